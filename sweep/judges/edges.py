"""Autograd as the judge of edges: what each operation was computed from, by ``next_functions``.

The judge runs the model once more without intus, notes every call and its node of autograd, and finds for
each call the nearest calls, inputs and parameters that autograd reaches. Operations of the trace and calls
are matched one to one by name, shape and value. Views are passed over on both sides, because autograd makes
their nodes again after a write through another view.

Autograd sees no integers, no comparisons and nothing under ``no_grad``: pairs of those are not judged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

import intus

from .observe import Observed, observe, tensors_in

#: Functions that overwrite their first argument, so that autograd cuts it off, as intus need not.
_OVERWRITES = frozenset(
    {"zero", "fill", "copy", "setitem", "set_data", "data", "normal", "uniform", "bernoulli"}
)
_OVERWRITES |= {"exponential", "geometric", "log_normal", "cauchy", "random", "clamp_", "index_fill", "eye"}
#: Arguments that autograd does not follow, by function: those that give only a shape or dtype, and targets
#: that are only compared.
_NOT_FOLLOWED = {"expand_as": 1, "view_as": 1, "reshape_as": 1, "type_as": 1, "to": 1}
_NOT_FOLLOWED |= {"cosine_embedding_loss": 2, "hinge_embedding_loss": 1}
#: Names of operators, as Python and as intus call them.
_SYNONYMS = {"truediv": "div", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
_SYNONYMS |= {"invert": "bitwise_not"}


@dataclass
class Judgement:
    """The comparison of the edges of a trace with autograd.

    Attributes:
        operations: The number of operations that autograd follows.
        pairs: The number of pairs (operation, nearest ancestor) that were compared.
        parameters: The number of pairs (operation, parameter) that were compared.
        lost: Pairs that autograd has and the graph has not, in words.
        invented: Pairs that the graph has and autograd has not, in words.
        unmatched: Operations of the trace that no call of the plain run equals.
    """

    operations: int = 0
    pairs: int = 0
    parameters: int = 0
    lost: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)

    def add(self, other: Judgement) -> None:
        """Add another judgement of the same trace."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def __bool__(self) -> bool:
        return not (self.lost or self.invented or self.unmatched)


class _Near(NamedTuple):
    """The nearest results and parameters that the graph has, and the operations passed over."""

    results: set[int]
    params: set[str]
    passed: list[Any]


def judge(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Judgement:
    """Trace a model and let autograd judge the edges.

    Args:
        model: A module or function; a copy of it runs.
        args: Its positional arguments; copies of them are used.
        kwargs: Its keyword arguments.
    """
    kwargs = dict(kwargs or {})
    try:
        return _judged(model, args, kwargs, None)
    except NotDifferentiableError:
        found = Judgement()
        for number in range(len(tensors_in((args, kwargs)))):
            with suppress(NotDifferentiableError):
                found.add(_judged(model, args, kwargs, number))
        return found


class NotDifferentiableError(Exception):
    """torch refuses to run the model on inputs that require gradients."""


def _judged(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], only: int | None
) -> Judgement:
    with torch.enable_grad():
        observed_model = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model
        torch.manual_seed(1)
        try:
            observed = observe(observed_model, *differentiable((args, kwargs), only))
        except RuntimeError as error:
            raise NotDifferentiableError(str(error)) from error
        given = differentiable((args, kwargs), only)
        trace = intus.trace(model, given[0], kwargs=given[1], seed=1)
    return judge_trace(trace, observed)


def differentiable(given: Any, only: int | None = None) -> Any:
    """Return a copy of the arguments whose floating-point tensors require gradients and are no leaves.

    Args:
        given: The arguments.
        only: The number of the only tensor that shall require gradients; None for all.
    """
    memo: dict[int, Any] = {}
    for number, tensor in enumerate(tensors_in(given)):
        if only is not None and number != only:
            continue
        if tensor.layout is torch.strided and (tensor.is_floating_point() or tensor.is_complex()):
            leaf = tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_()
            memo[id(tensor)] = leaf.clone(memory_format=torch.preserve_format)
    return copy.deepcopy(given, memo)


def judge_trace(trace: intus.Trace, observed: Observed) -> Judgement:
    """Compare the edges of a trace with an observed run of the same model on the same inputs."""
    return _Judge(trace, observed).judgement()


class _Judge:
    """One comparison.

    Attributes:
        match: The number of the observed result, by row of the trace; -1 - n for the input n.
    """

    def __init__(self, trace: intus.Trace, observed: Observed) -> None:
        self.trace, self.observed = trace, observed
        self.found = Judgement()
        self.match = self._matched()
        self.followed_inputs = {number for number in self.observed.owner.values() if number < 0}
        self.rows = {number: row for row, number in self.match.items()}

    def judgement(self) -> Judgement:
        """Judge every operation and output."""
        for op in self.trace.ops:
            number = self.match.get(op.row)
            if number is None or self.observed.results[number].node is None:
                continue
            self.found.operations += 1
            result = self.observed.results[number]
            self._judge(op, number, result.edge)
        outputs = list(zip(self.observed.outputs, self.observed.output_nodes, strict=True))
        for op in self.trace.outputs:
            number = next((n for n, (tensor, _) in enumerate(outputs) if _same(tensor, op.value)), None)
            if number is not None and (node := outputs.pop(number)[1]) is not None:
                self._judge(op, None, node)
        return self.found

    # -- matching operations with calls ------------------------------------------------------------------

    def _matched(self) -> dict[int, int]:
        match = {op.row: -1 - number for number, op in enumerate(self.trace.inputs)}
        next_, uninitialized = 0, set[int]()  # memory that has any values, and its views
        for op in self.trace.ops:
            if op.failed or not op.saved:
                continue
            if "empty" in op.type:
                uninitialized.add(op.row)
            for number in range(next_, len(self.observed.results)):
                result = self.observed.results[number]
                if (result.is_view or op.in_place) and any(p.row in uninitialized for p in op.parents):
                    uninitialized.add(op.row)
                if _canonical(result.name) == op.type and (
                    op.row in uninitialized or _same(result.value, op.value)
                ):
                    match[op.row], next_ = number, number + 1
                    break
            else:
                # A ScriptModule is one operation; some functions do not tell what they write into, and
                # ``tensor.data = …`` returns nothing.
                if (
                    isinstance(op.func, torch.nn.Module)
                    or op.type == "set_data"
                    or any(one.row in match for one in op.sibling_outputs)
                ):
                    continue
                self.found.unmatched.append(op.label)
        return match

    # -- what autograd reaches ---------------------------------------------------------------------------

    def _expected(self, number: int | None, start: tuple[Any, int]) -> tuple[set[int], set[str], bool]:
        """Return the nearest results and parameters of autograd, and whether it passed a custom function."""
        results, params, custom = set[int](), set[str](), False
        call = None if number is None else self.observed.results[number].call
        todo, seen = [start], set[Any]()
        while todo:
            node, output = todo.pop()
            if node is None or (node, output) in seen:
                continue
            seen.add((node, output))
            owner = self.observed.owner.get((node, output))
            is_other = owner is not None and owner != number and not self._is_transparent(owner)
            if is_other and (owner < 0 or self.observed.results[owner].call != call):
                results.add(owner)
                continue
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                custom = True
            variable = getattr(node, "variable", None)
            if isinstance(variable, Tensor):
                params |= self.observed.names.get(id(variable), set())
            todo += node.next_functions
        return results, params, custom

    def _is_transparent(self, number: int) -> bool:
        """Return whether a result is a view, or an argument that was returned unchanged."""
        if number < 0:
            return False
        result = self.observed.results[number]
        return result.is_view or (result.node is not None and self.observed.owner[result.edge] != number)

    # -- what the graph says ------------------------------------------------------------------------------

    def _recorded(self, op: Any, *, wide: bool = False, only: str = "") -> _Near:
        """Return the nearest results and parameters in the graph.

        Args:
            op: The operation.
            wide: Whether to pass over results that autograd does not follow.
            only: The only argument of the operation to follow, if one is given.
        """
        near = _Near(set(), set() if only else _trainable(op), [])
        todo, seen = self._parents(op, only), set[int]()
        while todo:
            parent = todo.pop()
            if parent.row in seen:
                continue
            seen.add(parent.row)
            number = self.match.get(parent.row)
            if number is None:  # a buffer, a constant, or an operation without a match
                if parent.kind == "op":
                    todo += parent.parents
                    near.params.update(_trainable(parent))
            elif number < 0:
                near.results.add(number)
            elif self._is_transparent(number) or (wide and self.observed.results[number].node is None):
                todo += parent.parents
                near.params.update(_trainable(parent))
                near.passed.append(parent)
            elif self.observed.results[number].node is not None:
                near.results.add(number)
        return near

    def _parents(self, op: Any, only: str) -> list[Any]:
        if not only:
            return [*op.parents]
        edges, names = self.trace.graph.edges, self.trace.graph.args
        ops = {parent.row: parent for parent in op.parents}
        return [
            ops[src]
            for src, dst, arg in zip(edges.src.tolist(), edges.dst.tolist(), edges.arg.tolist(), strict=True)
            if dst == op.row and names[arg].partition(".")[0] in (only, "other", "target", "out")
        ]

    def _judge(self, op: Any, number: int | None, start: tuple[Any, int]) -> None:
        expected, params, custom = self._expected(number, start)
        near = self._recorded(op)
        near.results.difference_update([n for n in near.results if n < 0 and n not in self.followed_inputs])
        self.found.pairs += len(expected | near.results)
        self.found.parameters += len(params | near.params)
        reached = self._recorded(op, wide=True) if custom else near
        lost = [self._name(n) for n in sorted(expected - reached.results) if not self._is_beside(n, op)]
        lost += sorted(params - self._aliases(reached.params))
        self.found.lost += [f"{op.label}: {name}" for name in lost]
        if custom:  # what ran inside a custom function is in the graph, and not in autograd's
            return
        for one in (op, *near.passed):
            excused = self._excused(one)
            expected |= excused.results
            params |= excused.params
        invented = [self._name(n) for n in sorted(near.results - expected - self._before_writes(expected))]
        invented += sorted(near.params - self._aliases(params))
        self.found.invented += [f"{op.label}: {name}" for name in invented]

    def _aliases(self, params: set[str]) -> set[str]:
        """Return the parameters with all their names."""
        return params.union(*(names for names in self.observed.names.values() if names & params))

    def _excused(self, op: Any) -> _Near:
        """Return what autograd need not reach: through some arguments, or for other results of the call."""
        if op.in_place or op.type in _OVERWRITES:
            found = self._recorded(op, only="0")
        elif op.type in _NOT_FOLLOWED:
            found = self._recorded(op, only=str(_NOT_FOLLOWED[op.type]))
        else:
            found = _Near(set(), set(), [])
        if (number := self.match.get(op.row)) is not None:
            call = self.observed.results[number].call
            for other, result in enumerate(self.observed.results):
                if result.call == call and other != number and result.node is not None:
                    results, params, _ = self._expected(other, result.edge)
                    found = _Near(found.results | results, found.params | params, [])
        return found

    def _before_writes(self, expected: set[int]) -> set[int]:
        """Return what autograd reaches beyond writes among ``expected``.

        Where an operation reads a view of memory that was written later, the graph has both edges: to the
        view, which is the argument, and to the write. Autograd makes the view's node again and keeps only
        the write.
        """
        found, todo = set[int](), [n for n in expected if n >= 0 and self.observed.results[n].written]
        while todo:
            number = todo.pop()
            for before in self._expected(number, self.observed.results[number].edge)[0] - found:
                found.add(before)
                todo += [before] if before >= 0 else []
        return found

    def _is_beside(self, number: int, op: Any) -> bool:
        """Return whether a result was written into other elements of the memory than an operation reads.

        Autograd follows writes by whole tensors: after one into a row, it computes each row from it.
        """
        if number < 0 or not self.observed.results[number].written:
            return False
        written = self.observed.results[number].tensor
        matched = (self.match.get(parent.row, -1) for parent in op.parents)
        read = [self.observed.results[other].tensor for other in matched if other >= 0]
        of_same = [tensor for tensor in read if _memory(tensor) == _memory(written)]
        return bool(of_same) and not any(_elements(tensor) & _elements(written) for tensor in of_same)

    def _name(self, number: int) -> str:
        if number < 0:
            return f"input {-1 - number}"
        row = self.rows.get(number)
        name = self.observed.results[number].name
        return f"call {number} ({name}), not in the graph" if row is None else self.trace.graph.label(row)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _elements(tensor: Tensor) -> set[int]:
    """Return the numbers of the elements of its memory that a tensor has."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return set(
        torch.arange(count)
        .as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        .flatten()
        .tolist()
    )


def _trainable(op: Any) -> set[str]:
    return {param.address for param in op.params if param.trainable}


def _canonical(name: str) -> str:
    """Return the name of a function without the marks of its form, as in ``__iadd__`` and ``add_``."""
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        if name[1:] in _OPERATORS and name[0] in "ir":
            name = name[1:]
    name = name.partition(".")[0].strip("_") or name
    return _SYNONYMS.get(name, name)


_OPERATORS = frozenset(
    ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
)


def _same(one: Tensor, other: Tensor) -> bool:
    if one.layout is not other.layout or one.dtype != other.dtype:
        return False
    if one.is_nested or one.layout is not torch.strided or one.is_quantized:
        return True
    if one.shape != other.shape:
        return False
    if one.is_meta or one.is_complex():
        return one.is_meta or _same(
            torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
        )
    return bool(torch.equal(one, other)) or bool(torch.allclose(one, other, rtol=0, atol=0, equal_nan=True))
