"""The Op: one tensor of a trace, with the operation that returned it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.analysis import walks
from ...core.errors import AddressError, InputError
from ...core.graph import (
    BUFFER,
    CREATED,
    FAILED,
    INPLACE,
    INPUT,
    OP_KINDS,
    OUTPUT,
    Graph,
    Meta,
    Param,
    Source,
    elements,
    size_in_bytes,
)
from ...viewing.repr_text import html, text
from ..capture.saving.has_meta import HasMeta
from ..capture.saving.stored import Value
from .arrays import as_numpy
from .text import op_card

if TYPE_CHECKING:
    from torch import Tensor

    from ...core.analysis.facts import Facts
    from ..capture.invocation import Invocation
    from .trace import Trace


class Op(HasMeta):
    """One tensor of a forward pass, with the operation that returned it.

    Get ops by indexing a trace or from its lists (``trace["conv2d_3_7"]``, ``trace.ops``). Inputs, outputs,
    buffers and constants are ops too; ``kind`` distinguishes them. An op is a small handle on its trace: two
    handles on the same tensor are equal. ``print(op)`` shows what is known of it.

    Attributes:
        row: The row of the tensor in the graph.

    Example:
        >>> import torch
        >>> from intus import trace
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        >>> op = trace(net, torch.ones(2, 4))["relu_1"]
        >>> op.type, op.shape, op.module, [parent.label for parent in op.parents]
        ('relu', (2, 3), '1', ['linear_1_1'])
        >>> op.value.shape
        torch.Size([2, 3])

    References:
        Taylor and Kriegeskorte (2023), TorchLens, section "The ModelHistory object" and Supplementary
        Table 1. ``docs/names.md`` maps every field of the table to the property here.
    """

    __slots__ = ("_trace", "row")

    def __init__(self, trace: Trace, row: int) -> None:
        self._trace = trace
        self.row = row

    @property
    def _graph(self) -> Graph:
        return self._trace.graph

    @property
    def _facts(self) -> Facts:
        return self._trace._facts

    def _ops(self, rows: Iterable[int]) -> list[Op]:
        return [Op(self._trace, row) for row in rows]

    # -- names -----------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """The address of the op: ``conv2d_3_7``, or ``conv2d_3_7:2`` where its layer has several passes."""
        return self._graph.label(self.row)

    @property
    def layer(self) -> str:
        """The label that all passes of its layer share: ``conv2d_3_7``."""
        return self._graph.layer_label(int(self._graph.ops.layer[self.row]))

    @property
    def pass_label(self) -> str:
        """The label of its layer with the number of the pass, even if there is only one: ``conv2d_3_7:1``."""
        return f"{self.layer}:{self.pass_number}"

    @property
    def keys(self) -> list[str | int]:
        """The keys that the trace finds it by: labels, modules whose output it is, ordinals."""
        ordinals = self._trace._ordinals
        position = ordinals.index(self.row) if self.row in ordinals else None
        numbers = [] if position is None else [position, position - len(ordinals)]
        return [*self._facts.keys.get(self.row, ()), *numbers]

    @property
    def type(self) -> str:
        """The operation type, the name of the function: ``conv2d``; the kind if it is no operation."""
        return self._graph.type_of(self.row)

    @property
    def kind(self) -> str:
        """The kind: ``"op"``, ``"input"``, ``"output"``, ``"buffer"``, ``"constant"`` or ``"parameter"``.

        Parameters have rows of their own only where a module returns one.
        """
        return OP_KINDS[int(self._graph.ops.kind[self.row])]

    @property
    def is_input(self) -> bool:
        """True if it is an input of the model."""
        return bool(self._graph.ops.kind[self.row] == INPUT)

    @property
    def is_output(self) -> bool:
        """True if it is an output of the model."""
        return bool(self._graph.ops.kind[self.row] == OUTPUT)

    @property
    def is_buffer(self) -> bool:
        """True if it is a buffer of the model, with the value it had when the pass first read it."""
        return bool(self._graph.ops.kind[self.row] == BUFFER)

    @property
    def buffer_address(self) -> str | None:
        """The address of the buffer in the model; None if it is not a buffer."""
        return self._facts.buffer_address(self.row)

    # -- position in the order of execution ----------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of operations that had run by then, including itself: 6 for the sixth operation."""
        return int(self._facts.number[self.row])

    @property
    def type_number(self) -> int:
        """The number of its layer among the layers of its type, from 1: 3 for ``conv2d_3_7``."""
        return self._graph.layer_numbers(int(self._graph.ops.layer[self.row]))[0]

    @property
    def layer_number(self) -> int:
        """The number of its layer among all, from 1: 7 for ``conv2d_3_7``; 0 for non-operations."""
        return self._graph.layer_numbers(int(self._graph.ops.layer[self.row]))[1]

    @property
    def pass_number(self) -> int:
        """The number of the pass of its layer, from 1."""
        return int(self._graph.ops.passno[self.row])

    @property
    def num_passes(self) -> int:
        """The number of passes of its layer."""
        return len(self._facts.layer_rows[self._graph.ops.layer[self.row]])

    @property
    def passes(self) -> list[Op]:
        """All passes of its layer in order of execution, including itself."""
        return self._ops(self._facts.layer_rows[self._graph.ops.layer[self.row]])

    # -- shape, dtype, size -----------------------------------------------------------------------------

    @property
    def meta(self) -> Meta:
        """The shape, dtype, device and size in bytes of the tensor, known even if its value was not saved."""
        return self._graph.metas[int(self._graph.ops.meta[self.row])]

    # -- the function call -------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """The duration of the function call.

        If the call returned several tensors, it counts for the first of them and is 0 for the others, so that
        sums over ops are right. ``sibling_outputs[0].seconds`` is the duration of the call for each of them.
        """
        return int(self._graph.ops.time[self.row]) / 1e9

    @property
    def non_tensor_args(self) -> str:
        """The arguments that are not tensors, as text: ``(3, 3), stride=2``; ``""`` for indexing."""
        return self._graph.setting(self.row)

    @property
    def source(self) -> Source | None:
        """The line of the user's code that ran it; None if unknown."""
        site = int(self._graph.ops.site[self.row])
        return self._graph.sites[site] if site >= 0 else None

    @property
    def in_place(self) -> bool:
        """True if the function wrote into one of its arguments."""
        return bool(self._graph.ops.flags[self.row] & INPLACE)

    @property
    def is_factory(self) -> bool:
        """True if the function created a tensor without tensor arguments, as ``torch.rand`` does."""
        return bool(self._graph.ops.flags[self.row] & CREATED)

    @property
    def failed(self) -> bool:
        """True if it is the operation whose exception ended the pass."""
        return bool(self._graph.ops.flags[self.row] & FAILED)

    @property
    def output_index(self) -> int | None:
        """The index among the tensors that the function returned, from 0; None if there was only one."""
        index = int(self._graph.ops.output[self.row])
        return index if index >= 0 else None

    @property
    def sibling_outputs(self) -> list[Op]:
        """The tensors of the graph that the same function call returned, including itself."""
        event = int(self._graph.ops.event[self.row])
        return self._ops(self._facts.event_rows.get(event, [self.row]))

    @property
    def flops(self) -> int | None:
        """The number of floating-point operations of the function call.

        A multiply-add counts as two; ``core/analysis/flops.py`` has the rules. None if no rule covers the
        operation. If the call returned several tensors, it counts for the first of them.
        """
        return _known(self._facts.flops[self.row])

    @property
    def macs(self) -> int | None:
        """The multiply-adds of a product (linear, matmul, convolution, attention); 0 for other operations."""
        return _known(self._facts.macs[self.row])

    # -- parameters ------------------------------------------------------------------------------------

    @property
    def params(self) -> list[Param]:
        """The parameters among the arguments."""
        return [self._graph.params[p] for p in self._graph.row_params.get(self.row, ())]

    @property
    def has_params(self) -> bool:
        """True if there are parameters among the arguments."""
        return self.row in self._graph.row_params

    @property
    def num_params(self) -> int | None:
        """The number of elements of those parameters; None if unknown."""
        return elements(self.params)

    @property
    def param_bytes(self) -> int | None:
        """The size of those parameters in bytes; None if unknown."""
        return size_in_bytes(self.params)

    # -- modules ---------------------------------------------------------------------------------------

    @property
    def module(self) -> str | None:
        """The address of the innermost module it ran in: ``""`` for the model, None outside any module."""
        call = int(self._graph.ops.call[self.row])
        return self._graph.call_address(call) if call >= 0 else None

    @property
    def modules(self) -> list[str]:
        """The addresses of all modules it ran in, from the model inwards."""
        return self._addresses(self._graph.enclosing_calls(self.row))

    @property
    def in_submodule(self) -> bool:
        """True if it ran inside a submodule of the model."""
        return len(self._graph.enclosing_calls(self.row)) > 1

    @property
    def modules_entered(self) -> list[str]:
        """The addresses of the modules that received its tensor from outside, in call order."""
        return self._addresses(self._facts.entered(self.row))

    @property
    def output_of(self) -> list[str]:
        """The addresses of the modules that returned it, innermost first."""
        return self._addresses(self._graph.returned_by(self.row))

    @property
    def maybe_output_of(self) -> list[str]:
        """The addresses of the modules that it leaves, innermost first, if that is not stated."""
        calls = self._graph.row_exits.get(self.row, ())
        return self._addresses(call for call in calls if call in self._graph.unknown_outputs)

    @property
    def is_module_output(self) -> bool:
        """True if a submodule of the model returned it."""
        return any(self._graph.calls.parent[call] >= 0 for call in self._graph.returned_by(self.row))

    @property
    def is_whole_module(self) -> bool:
        """True if it is the output of a module and the only operation in it, as in ``nn.ReLU``."""
        return bool(self._facts.alone_in(self.row))

    def _addresses(self, calls: Iterable[int]) -> list[str]:
        return [self._graph.call_address(call) for call in calls]

    # -- relations in the graph -----------------------------------------------------------------------

    @property
    def parents(self) -> list[Op]:
        """The ops whose tensors are its arguments, in the order of the arguments."""
        return self._ops(self._graph.parents(self.row))

    @property
    def children(self) -> list[Op]:
        """The ops that take its tensor as an argument, in order of execution."""
        return self._ops(self._graph.children(self.row))

    @property
    def ancestors(self) -> list[Op]:
        """All ops that it was computed from, in order of execution."""
        return self._ops(walks.ancestors(self._graph, [self.row]))

    @property
    def descendants(self) -> list[Op]:
        """All ops that were computed from it, in order of execution."""
        return self._ops(walks.descendants(self._graph, [self.row]))

    @property
    def siblings(self) -> list[Op]:
        """The other ops that share a parent with it."""
        return self._ops(walks.siblings(self._graph, self.row))

    @property
    def spouses(self) -> list[Op]:
        """The other ops that share a child with it."""
        return self._ops(walks.spouses(self._graph, self.row))

    @property
    def roots(self) -> list[Op]:
        """The ancestors without parents: inputs, buffers, constants, and tensors created in the model."""
        return self._ops(self._facts.roots(self.row))

    @property
    def has_input_ancestor(self) -> bool:
        """True if it is an input or was computed from one."""
        return bool(self._facts.from_input[0][self.row] >= 0)

    @property
    def min_distance_from_input(self) -> int | None:
        """The length of the shortest path from an input; None if there is no path."""
        return _known(self._facts.from_input[0][self.row])

    @property
    def max_distance_from_input(self) -> int | None:
        """The length of the longest path from an input; None if there is no path."""
        return _known(self._facts.from_input[1][self.row])

    @property
    def is_output_ancestor(self) -> bool:
        """True if it is an output or an output was computed from it."""
        return bool(self._facts.to_output[0][self.row] >= 0)

    @property
    def output_descendants(self) -> list[Op]:
        """The outputs of the model that were computed from it."""
        descendants = walks.descendants(self._graph, [self.row])
        return self._ops(row for row in descendants if self._graph.ops.kind[row] == OUTPUT)

    @property
    def min_distance_from_output(self) -> int | None:
        """The length of the shortest path to an output; None if there is no path."""
        return _known(self._facts.to_output[0][self.row])

    @property
    def max_distance_from_output(self) -> int | None:
        """The length of the longest path to an output; None if there is no path."""
        return _known(self._facts.to_output[1][self.row])

    @property
    def factory_parents(self) -> list[Op]:
        """The parents that are factory ops (``is_factory``)."""
        return self._ops(self._facts.made_inside(self._graph.parents(self.row)))

    @property
    def factory_ancestors(self) -> list[Op]:
        """The ancestors that are factory ops (``is_factory``)."""
        return self._ops(self._facts.made_inside(walks.ancestors(self._graph, [self.row])))

    @property
    def is_terminal(self) -> bool:
        """True if no op takes its tensor and it is not an output."""
        return bool(self._facts.childless[self.row])

    @property
    def is_terminal_bool(self) -> bool:
        """True if it is a boolean scalar that Python read (``if t:``) and that no op takes."""
        return self.row in self._facts.terminal_bools

    @property
    def in_condition(self) -> bool:
        """True if it was computed only to evaluate a condition of the model (an ``if``, ``while``, …)."""
        return self.row in self._facts.deciding

    @property
    def writers(self) -> list[Op]:
        """The ops that later wrote into this tensor in place, in order: the history of a buffer."""
        return self._ops(self._facts.writers(self.row))

    # -- value, gradient and arguments ------------------------------------------------------------------

    @property
    def value(self) -> Value:
        """The saved activation, with the values that the operation returned.

        A detached tensor in a trace of PyTorch, a numpy array in one of another framework or of a file.

        With ``to`` or ``transform`` of ``trace`` it is in the form that these gave it, while ``shape`` and
        ``dtype`` remain those of the operation.

        Raises:
            AddressError: If it was not saved, could not be stored, or was overwritten after the pass because
                its memory is that of a parameter, a buffer or another tensor that still changes.
        """
        try:
            return self._trace.values[self.row]
        except KeyError:
            why = self._trace.why_not_stored(self.row)
            if why:
                raise AddressError(f"{self.label!r} was not stored: it {why}.") from None
            if "format" in self._graph.facts:
                notes = (
                    " ".join(self._graph.facts.get("notes", ()))
                    or "Read the file with inputs: read(path, x)."
                )
                raise AddressError(f"{self.label!r} has no value. {notes}") from None
            raise AddressError(
                f"{self.label!r} was not saved. Trace again with save='all', or save={self.label!r}."
            ) from None

    @property
    def grad(self) -> Value | None:
        """The gradient of this tensor, after ``backward`` was called on a loss of ``trace.output``.

        It is the sum over all backward passes, as in ``Tensor.grad``. It is None before, and for a tensor
        that no gradient reached: one that does not require gradients, that the loss does not depend on, a
        view that was overwritten, or one computed without gradients inside a checkpoint.

        Raises:
            InputError: If the trace was taken without ``grads``.
        """
        if self._trace.gradients is None:
            raise InputError(
                f"{self.label!r} has no gradient: trace with grads=True, then call backward on a loss of "
                "trace.output."
            )
        return self._trace.gradients.by_row.get(self.row)

    @property
    def grad_fn(self) -> str | None:
        """The name of the autograd node that made it (``"AddmmBackward0"``).

        None if no gradient flows through it, or if the trace was taken without ``grads``.
        """
        node = self._graph.facts.get("autograd", {}).get(str(self.row))  # (name, bytes)
        return node[0] if node else None

    @property
    def saved_bytes(self) -> int | None:
        """The number of bytes that autograd keeps for the backward pass because of this operation.

        Memory is counted once, for the operation that first kept it; parameters and buffers are not counted.
        None if the trace was taken without ``grads``.
        """
        if "autograd" not in self._graph.facts:
            return None
        node = self._graph.facts["autograd"].get(str(self.row))  # (name, bytes)
        return node[1] if node else 0

    @property
    def saved(self) -> bool:
        """True if its value was saved."""
        return self.row in self._trace.values

    @property
    def func(self) -> Callable[..., Any] | None:
        """The function that was called.

        None if calls were not kept (``save="none"``, a copy, a file), or if the tensor is not an operation's.
        """
        return None if self._call is None else self._call.func

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments; each tensor is given as the label or address that it came from."""
        if self._call is None:
            return ()
        return self._with_names(self._call)[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments; each tensor is given as the label or address that it came from."""
        if self._call is None:
            return {}
        return self._with_names(self._call)[1]

    @property
    def func_name(self) -> str:
        """The name of the function that was called; the type if the function was not kept."""
        name = str(getattr(self.func, "__name__", self.type))
        return self.type if name in ("__get__", "__set__") else name

    @property
    def plain_args(self) -> tuple[Any, ...]:
        """The positional arguments that contain no tensor."""
        return () if self._call is None else tuple(v for v in self._call.args if _is_plain(v))

    @property
    def plain_kwargs(self) -> dict[str, Any]:
        """The keyword arguments that contain no tensor."""
        return {} if self._call is None else {k: v for k, v in self._call.kwargs.items() if _is_plain(v)}

    @property
    def rng_state(self) -> Tensor | None:
        """The state of the random generator that it drew from, before the call.

        None if it drew nothing, or if calls were not kept (``save="none"``, a copy, a file).

        Example:
            >>> import torch
            >>> from intus import trace
            >>> drop = trace(torch.nn.Dropout(), torch.ones(8)).ops[0]
            >>> with torch.random.fork_rng():
            ...     torch.set_rng_state(drop.rng_state)
            ...     again = torch.nn.functional.dropout(torch.ones(8))
            >>> torch.equal(again, drop.value)
            True
        """
        states = self._call.states if self._call is not None else ()
        return states[0][1].clone() if states else None

    @property
    def _call(self) -> Invocation | None:
        replays = self._trace._replays
        return None if replays is None else replays.call(int(self._graph.ops.event[self.row]))

    def _with_names(self, call: Invocation) -> tuple[tuple[Any, ...], dict[str, Any]]:
        from ..capture.invocation import arguments
        from ..replaying.replay import NOT_IN_GRAPH

        def name(source: int) -> str:
            if source >= 0:
                return self._graph.label(source)
            return "not in the graph" if source == NOT_IN_GRAPH else self._graph.params[-1 - source].address

        return arguments(call.args, call.kwargs, [name(tensor_arg.source) for tensor_arg in call.tensor_args])

    @property
    def maybe_modified(self) -> bool:
        """True if the saved value may be wrong, because something unrecorded wrote to its memory."""
        return self.row in self._trace.maybe_modified

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and other._trace is self._trace and other.row == self.row

    def __hash__(self) -> int:
        return hash((id(self._trace), self.row))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the saved value as an array: ``np.asarray(op)``."""
        array = as_numpy(self.value)
        return np.array(array, dtype=dtype) if copy else np.asarray(array, dtype=dtype)

    def __str__(self) -> str:
        return text(op_card(self))

    def _repr_html_(self) -> str:
        return html(op_card(self))

    def __repr__(self) -> str:
        shape = "failed" if self.failed else "×".join(map(str, self.shape)) or "scalar"
        where = f" in {self.module}" if self.module else ""
        return f"<Op {self.label}: {shape} {self.dtype}{where}{'' if self.saved else ', not saved'}>"


def _is_plain(value: Any) -> bool:
    """Return whether an argument contains no tensor."""
    from ..capture.invocation import unflatten

    numbers = count()
    unflatten(value, numbers)
    return next(numbers) == 0


def _known(number: int) -> int | None:
    """Return the number; None for -1, which means unknown in the columns of the graph."""
    return int(number) if number >= 0 else None
