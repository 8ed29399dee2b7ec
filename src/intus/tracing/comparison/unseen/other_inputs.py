"""Run a model and its file on other inputs, where one pass of each cannot show what the file has fixed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ....core.errors import IntusError
from ....core.graph import INPUT, OP, OUTPUT, Graph
from ....reading.exported_ranges import RefusedLengthError
from ....viewing.repr_text import listed
from ..output_order import counterparts
from ..pairing.regions import of_inputs
from ..values.differences import SAME, SAME_HALF, difference
from ..values.elements import Elements, is_half, plain
from .fixed import decided_by, named_inputs
from .made_inputs import made_inputs
from .passes import placed

if TYPE_CHECKING:
    import torch

    from ...front_door import Arguments
    from ...results.trace import Conditional, Trace
    from ...validation.fidelity import FidelityCheck

#: Other lengths of an axis, from its own; of each line the first that a model takes. A multiple fits where a
#: model divides a length, one less where there are no more positions. Code may treat one row, and many, in
#: another way.
_LENGTHS: tuple[tuple[Callable[[int], int], ...], ...] = (
    (
        lambda length: 3 * length,
        lambda length: 2 * length,
        lambda length: length + 1,
        lambda length: length // 2,
        lambda length: length - 1,
    ),
    (lambda length: 1,),
    (lambda length: math.ceil(_MANY / length) * length,),
)
_MANY = 65
#: How many elements inputs may have that are longer than three times their own.
_MOST_ELEMENTS = 2**16


class Called:
    """A call of a model of PyTorch, and the file that is run on the same inputs.

    Attributes:
        inputs: The tensors that the model was called with, in the order of the inputs of its trace.
        run: Returns the trace of the file on the inputs of a trace of the model.

    Args:
        model: The model.
        trace: Traces the model on arguments.
        run: Returns the trace of the file on the inputs of a trace of the model.
        given: The arguments of the call.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        trace: Callable[..., Trace],
        run: Callable[[Trace], Trace],
        given: Arguments,
    ) -> None:
        from ...capture.argument_names import by_name
        from ...capture.containers import named_tensors
        from ...capture.invocation import flatten

        self._model, self._given = model, given
        self._trace, self.run = trace, run
        self._tensors: list[torch.Tensor] = []
        self._args = tuple(flatten(one, self._tensors) for one in given.args)
        self._kwargs = {name: flatten(one, self._tensors) for name, one in given.kwargs.items()}
        named = named_tensors(by_name(model, given.args, given.kwargs))
        self.inputs = list({id(t): t for _, t in named}.values())

    @property
    def can_change(self) -> bool:
        """True if the model can be called on other tensors: none is inside of an object."""
        return {id(t) for t in self.inputs} == {id(t) for t in self._tensors}

    def on(self, change: Callable[[int, torch.Tensor], torch.Tensor]) -> Trace | None:
        """Return a trace of the model on other tensors; None if it raises, or cannot be called on others.

        Args:
            change: Returns another tensor for the number and the tensor of an input.
        """
        if not self.can_change:
            return None
        from ...capture.invocation import arguments

        others = {id(t): change(number, t) for number, t in enumerate(self.inputs)}
        try:
            args, kwargs = arguments(self._args, self._kwargs, [others[id(t)] for t in self._tensors])
            return self._trace(*args, **kwargs)
        except Exception:  # of the model, which may not take such inputs
            return None

    @cached_property
    def _plain(self) -> FidelityCheck:
        from ...validation.fidelity import FidelityCheck

        return FidelityCheck(self._model, self._owner, self._given.args, self._given.kwargs, None)

    @cached_property
    def _owner(self) -> torch.nn.Module | None:
        from ...record import owner_of

        return owner_of(self._model)

    def returned(
        self,
        tensors: Sequence[torch.Tensor],
        weights: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> list[Elements]:
        """Return what a plain call of the model returns.

        Args:
            tensors: What the model is called with in place of ``inputs``.
            weights: Returns other parameters and buffers for those of a model that is a module.

        Raises:
            TypeError: If the model returns what is no plain tensor.
            Exception: Whatever the model raised, which may not take such inputs.
        """
        import torch

        from ...capture.invocation import arguments

        others = {id(t): other for t, other in zip(self.inputs, tensors, strict=True)}
        model = self._model
        if weights is not None and isinstance(model, torch.nn.Module):
            named = [*model.named_parameters(), *model.named_buffers()]
            model = partial(_called_with, model, {name: weights(t) for name, t in named})
        args, kwargs = arguments(self._args, self._kwargs, [others[id(t)] for t in self._tensors])
        found = self._plain.outputs(args, kwargs, model)
        values = [plain(t) for t in found or ()]
        if found is None or None in values:
            raise TypeError("the model returns what is no plain tensor")
        return [one for one in values if one is not None]

    def agrees(self, traced: Trace) -> bool | None:
        """Return whether the file returns what a trace of the model did; None if it states that it cannot.

        Args:
            traced: The trace, on whose inputs the file is run.
        """
        try:
            other = self.run(traced)
        except RefusedLengthError:
            return None
        except IntusError:
            return False
        ends = traced.graph.rows_of(OUTPUT), other.graph.rows_of(OUTPUT)
        if len(ends[0]) != len(ends[1]):
            return False
        for row, place in zip(ends[0], counterparts(traced.graph, other.graph), strict=True):
            x, y = plain(traced.values.get(row)), plain(other.values.get(ends[1][place]))
            if x is None or y is None or x.array.shape != y.array.shape:
                return False
            found = difference(x, y)
            if found.lopsided or found.relative > (SAME_HALF if is_half(x, y) else SAME):
                return False
        return True


def _called_with(model: Any, weights: Mapping[str, torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """Return what a module returns with other parameters and buffers."""
    import torch

    return torch.func.functional_call(model, dict(weights), args, kwargs)


# -- decisions -----------------------------------------------------------------------------------------------


class Decision(NamedTuple):
    """A value that Python code or a ``torch.cond`` of a model took; the same code may take one several times.

    Attributes:
        file: The file of the code; ``""`` for a ``torch.cond``.
        line: Its line; 0 for that.
        kind: What Python did with the value.
        number: How often the same code had done so before.
    """

    file: str
    line: int
    kind: str
    number: int


class Otherwise(NamedTuple):
    """Results of running a model and its file on inputs by which the model decides otherwise.

    Attributes:
        differs: Whether the file returned something else somewhere.
        agreeing: The traces of the model where the file returned the same.
        left: Sentences about the decisions that were not taken otherwise.
    """

    differs: bool
    agreeing: list[Trace]
    left: list[str]


def otherwise(called: Called | None, first: Trace) -> Otherwise:
    """Take each decision of a model by values of its inputs otherwise, and compare what its file returns.

    Also the decisions of code that only runs then. A file has recorded what ran, so each has to be shown.

    Args:
        called: The call; None if the model cannot be called again.
        first: The trace of the model.
    """
    taken, sentences = _decisions(first), said_of_decisions(first)
    left, agreeing = {**sentences}, list["Trace"]()
    for made in made_inputs(called.inputs, every=True) if called is not None and left else ():
        if not left or called is None:
            break
        traced = called.on(lambda number, _, tensors=made.tensors: tensors[number])  # type: ignore[misc]
        if traced is None:
            continue
        others = _decisions(traced)
        new = [one for one in left if one in others and others[one] != taken.setdefault(one, others[one])]
        if not new:
            continue
        if not called.agrees(traced):
            return Otherwise(True, agreeing, [*left.values()])
        agreeing.append(traced)
        more = {one: text for one, text in said_of_decisions(traced).items() if one not in sentences}
        taken |= {one: others[one] for one in more}
        sentences |= more
        left = {one: text for one, text in (left | more).items() if one not in new}
    return Otherwise(False, agreeing, list(dict.fromkeys(left.values())))


def said_of_decisions(model: Trace) -> dict[Decision, str]:
    """Return what is said of what Python code of a model took from the values of its inputs, by decision.

    Args:
        model: The trace of the model.
    """
    varies = of_inputs(model.graph)
    in_python = {
        one: decided_by(conditional)
        for one, conditional in _numbered(model).items()
        if conditional.op.row in varies and conditional.kind != "assert"
    }
    branches = {
        one: f"{placed(model.graph, row)} takes one of its branches on all inputs that were tried, so the "
        "other was not compared"
        for one, (row, predicate) in _branches(model).items()
        if predicate in varies
    }
    return in_python | branches


def _branches(trace: Trace) -> dict[Decision, tuple[int, int]]:
    """Return the rows of each ``torch.cond`` of a trace, and of what it decides by."""
    graph, found = trace.graph, dict[Decision, tuple[int, int]]()
    for row in graph.rows_of(OP):
        predicate = dict(graph.parents_by_argument(row)).get("0", -1)
        if graph.type_of(row) == "cond" and predicate >= 0:
            found[Decision("", 0, "cond", len(found))] = row, predicate
    return found


def _numbered(trace: Trace) -> dict[Decision, Conditional]:
    """Return the conditionals of a trace by decision."""
    found: dict[Decision, Conditional] = {}
    before: Counter[tuple[str, int, str]] = Counter()
    for one in trace.conditionals:
        source = one.op.source
        place = (source.file, source.line, one.kind) if source else ("", 0, one.kind)
        found[Decision(*place, before[place])] = one
        before[place] += 1
    return found


def _decisions(trace: Trace) -> dict[Decision, tuple[Any, ...]]:
    """Return what Python code of a model took from the values of tensors, by decision."""

    def numbers(row: int) -> tuple[Any, ...]:
        value = plain(trace.values.get(row))
        return () if value is None else tuple(value.array.reshape(-1)[:100].tolist())

    in_python = {decision: (one.way, numbers(one.op.row)) for decision, one in _numbered(trace).items()}
    return in_python | {decision: ("", numbers(row)) for decision, (_, row) in _branches(trace).items()}


# -- lengths -------------------------------------------------------------------------------------------------


class Lengths(NamedTuple):
    """Results of running a model and its file on inputs of other lengths.

    Attributes:
        unlike: What is said of lengths for which the file returns something else.
        notes: Which lengths of open axes were run, and of which axes none could be.
    """

    unlike: list[str]
    notes: list[str]


def other_lengths(called: Called | None, model: Graph, declared: Graph, chosen: Sequence[int]) -> Lengths:
    """Run a model and its file with other lengths of the axes that the file leaves open.

    Axes of one length are taken for one, such as those of a mask and of what it is of. Python code may decide
    by a length, which no trace shows, so it is said which ones were run.

    Args:
        called: The call; None if the model cannot be called again.
        model: The graph of the model.
        declared: The graph of the file without values, in which lengths that are open are -1.
        chosen: The numbers of the inputs of the model that those of the file are given.
    """
    rows = declared.rows_of(INPUT)
    shapes = [model.metas[int(model.ops.meta[row])].shape for row in model.rows_of(INPUT)]
    open_axes = [
        (number, axis)
        for number, row in zip(chosen, rows, strict=True)
        for axis, length in enumerate(declared.metas[int(declared.ops.meta[row])].shape)
        if length == -1
    ]
    names = dict(zip(chosen, named_inputs(declared), strict=True))
    axes: dict[int, list[tuple[int, int]]] = {}
    for number, axis in open_axes:
        axes.setdefault(shapes[number][axis], []).append((number, axis))
    found, tried = Lengths([], []), dict[int, list[int]]()
    can_change = called is not None and called.can_change
    if called is not None and can_change:
        for length, some in axes.items():
            tried |= _tried(called, {length: some}, found.unlike)
        left = {length: some for length, some in axes.items() if length not in tried}
        if len(left) > 1:  # one may be the sum of others
            tried |= _tried(called, left, found.unlike)
    why = "neither model nor file takes one" if can_change else "the model is not called again"
    for length, some in axes.items():
        places = listed([f"axis {axis} of {names[number]}" for number, axis in some])
        others = ", ".join(map(str, tried.get(length, [])))
        said = f"Lengths that were tried of {places}: {length}, {others}."
        none = f"No other length than {length} was tried of {places}: {why}."
        found.notes.append(said if others else none)
    return found


def _tried(
    called: Called, axes: Mapping[int, Sequence[tuple[int, int]]], unlike: list[str]
) -> dict[int, list[int]]:
    """Return with which other lengths of some axes model and file ran; add what is said of the file.

    Args:
        called: The call of the model.
        axes: The numbers of the inputs and their axes, by their length.
        unlike: What is said of the first lengths for which the file returns something else.
    """
    where = {place for some in axes.values() for place in some}
    tried: dict[int, list[int]] = {}
    for others in _LENGTHS:
        for other in others:
            lengths = {length: other(length) for length in axes}
            known = {length: (length, *tried.get(length, ())) for length in axes}
            if any(new < 1 or min(known[own]) <= new <= max(known[own]) for own, new in lengths.items()):
                continue  # one between others shows little more
            if not _is_affordable(called.inputs, where, lengths):
                continue
            traced = called.on(partial(_with_lengths, where, lengths))
            agrees = None if traced is None else called.agrees(traced)
            if agrees is None:
                continue
            for length, new in lengths.items():
                tried.setdefault(length, []).append(new)
            if agrees:
                break
            is_batch = {axis for _, axis in where} == {0}
            what = "any number of rows" if is_batch else "any length there"
            changed = ", ".join(f"{new} in place of {length}" for length, new in lengths.items())
            inside = (
                "" if is_batch else f" on axis {', '.join(map(str, sorted({axis for _, axis in where})))}"
            )
            unlike.append(
                f"The file takes {what}, and for {changed}{inside} it does not return what the model does"
            )
            return tried
    return tried


def _is_affordable(
    inputs: Sequence[torch.Tensor], where: Collection[tuple[int, int]], lengths: Mapping[int, int]
) -> bool:
    """Return whether inputs of other lengths are small, or a few times as large as those of the call."""
    if all(new <= 3 * length for length, new in lengths.items()):
        return True
    shapes = [
        [lengths[length] if (number, axis) in where else length for axis, length in enumerate(t.shape)]
        for number, t in enumerate(inputs)
    ]
    return sum(map(math.prod, shapes)) <= _MOST_ELEMENTS


def _with_lengths(where: Collection[tuple[int, int]], lengths: Mapping[int, int], number: int, t: Any) -> Any:
    """Return an input with other lengths: its numbers, the same in the opposite order, and again.

    Args:
        where: The numbers of the inputs and their axes that have other lengths.
        lengths: The other lengths by the ones of the axes.
        number: The number of the input.
        t: The input.
    """
    import torch

    for axis in (axis for one, axis in where if one == number):
        length, new = t.shape[axis], lengths[t.shape[axis]]
        repeated = torch.cat([t, t.flip(axis)] * (new // length // 2 + 1), axis)
        t = repeated.narrow(axis, 0, new).clone()
    return t
