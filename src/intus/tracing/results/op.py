"""One tensor of a trace: which operation made it, from what, where and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...core import walks
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
)
from ...viewing.repr_text import html, text
from ..capture.invocation import Invocation, arguments, unflatten
from ..capture.saving.has_meta import HasMeta
from ..replaying.replay import LEFT_OUT
from .text import op_card

if TYPE_CHECKING:
    from ...core.facts import Facts
    from .trace import Trace


class Op(HasMeta):
    """One tensor of the pass: which operation made it, from what, where and when.

    ``value`` is the saved activation; asking for one that was not saved raises AddressError.
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

    # -- its names -------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """``conv2d_3_7``, or ``conv2d_3_7:2`` for the second pass of a recurrent layer."""
        return self._graph.label(self.row)

    @property
    def layer(self) -> str:
        """The label of its layer, which is that of all its passes: ``conv2d_3_7``."""
        return self._graph.layer_label(int(self._graph.ops.layer[self.row]))

    @property
    def pass_label(self) -> str:
        """Its layer with its pass, also where there is only one: ``conv2d_3_7:1``."""
        return f"{self.layer}:{self.pass_number}"

    @property
    def keys(self) -> list[str | int]:
        """Everything that the trace finds it by: labels, modules whose output it is, ordinals."""
        ordinals = self._trace._ordinals
        at = ordinals.index(self.row) if self.row in ordinals else None
        numbers = [] if at is None else [at, at - len(ordinals)]
        return [*self._facts.keys.get(self.row, ()), *numbers]

    @property
    def type(self) -> str:
        """The function's name: ``conv2d``."""
        return self._graph.types[int(self._graph.ops.type[self.row])]

    @property
    def kind(self) -> str:
        """``op``, ``input``, ``output``, ``buffer`` or ``constant``."""
        return OP_KINDS[int(self._graph.ops.kind[self.row])]

    @property
    def is_input(self) -> bool:
        """Whether it is an input of the model."""
        return bool(self._graph.ops.kind[self.row] == INPUT)

    @property
    def is_output(self) -> bool:
        """Whether it is an output of the model."""
        return bool(self._graph.ops.kind[self.row] == OUTPUT)

    @property
    def is_buffer(self) -> bool:
        """Whether it is a buffer of the model, as it was when the pass first read it."""
        return bool(self._graph.ops.kind[self.row] == BUFFER)

    @property
    def buffer_address(self) -> str | None:
        """The buffer's address in the model; None where it is no buffer."""
        return self._facts.buffer_address(self.row)

    # -- its place in the order ------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """How many operations had run when it had, itself included: 6 for the sixth operation."""
        return int(self._facts.number[self.row])

    @property
    def type_number(self) -> int:
        """Which layer of its type its layer is, from 1: 3 for ``conv2d_3_7``."""
        return self._graph.layer_numbers(int(self._graph.ops.layer[self.row]))[0]

    @property
    def layer_number(self) -> int:
        """Which layer of all its layer is, from 1: 7 for ``conv2d_3_7``; 0 where it is no operation."""
        return self._graph.layer_numbers(int(self._graph.ops.layer[self.row]))[1]

    @property
    def pass_number(self) -> int:
        """Which pass of its layer this is, from 1."""
        return int(self._graph.ops.passno[self.row])

    @property
    def num_passes(self) -> int:
        """How many passes its layer has."""
        return len(self._facts.layer_rows[self._graph.ops.layer[self.row]])

    @property
    def passes(self) -> list[Op]:
        """All passes of its layer in order, itself included."""
        return self._ops(self._facts.layer_rows[self._graph.ops.layer[self.row]])

    # -- what it looks like ----------------------------------------------------------------------------

    @property
    def meta(self) -> Meta:
        """Shape, dtype, device and bytes, known whether the value was saved or not."""
        return self._graph.metas[int(self._graph.ops.meta[self.row])]

    # -- the call that made it -------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """How long the function took; of a function that returned several tensors, at the first of them."""
        return int(self._graph.ops.time[self.row]) / 1e9

    @property
    def non_tensor_args(self) -> str:
        """What the function was given besides tensors, as text: ``(3, 3), stride=2``; empty for an index."""
        return self._graph.setting(self.row)

    @property
    def source(self) -> Source | None:
        """The line of the user's code that ran it."""
        site = int(self._graph.ops.site[self.row])
        return self._graph.sites[site] if site >= 0 else None

    @property
    def in_place(self) -> bool:
        """Whether it wrote into one of its arguments."""
        return bool(self._graph.ops.flags[self.row] & INPLACE)

    @property
    def is_factory(self) -> bool:
        """Whether it made a tensor out of nothing, as torch.rand does."""
        return bool(self._graph.ops.flags[self.row] & CREATED)

    @property
    def failed(self) -> bool:
        """Whether it is the operation that raised."""
        return bool(self._graph.ops.flags[self.row] & FAILED)

    @property
    def output_index(self) -> int | None:
        """Which of the tensors that its function returned it is, from 0; None where that was the only one."""
        index = int(self._graph.ops.output[self.row])
        return index if index >= 0 else None

    @property
    def sibling_outputs(self) -> list[Op]:
        """All tensors that its function returned and that are in the graph, itself included."""
        event = int(self._graph.ops.event[self.row])
        return self._ops(self._facts.event_rows.get(event, [self.row]))

    @property
    def flops(self) -> int | None:
        """The floating point operations it took, two for a multiply-add (``core/flops.py`` has the rules);
        None where no rule knows. Of a function that returned several tensors, at the first of them."""
        return _known(self._facts.flops[self.row])

    @property
    def macs(self) -> int | None:
        """Its multiply-adds, where it is a product (linear, matmul, convolution, attention); 0 elsewhere."""
        return _known(self._facts.macs[self.row])

    # -- parameters ------------------------------------------------------------------------------------

    @property
    def params(self) -> list[Param]:
        """The parameters that went in."""
        return [self._graph.params[p] for p in self._graph.row_params.get(self.row, ())]

    @property
    def has_params(self) -> bool:
        """Whether parameters went in."""
        return self.row in self._graph.row_params

    @property
    def num_params(self) -> int:
        """How many numbers the parameters that went in hold."""
        return sum(math.prod(param.shape) for param in self.params)

    @property
    def param_bytes(self) -> int:
        """The size of the parameters that went in."""
        return sum(param.nbytes for param in self.params)

    # -- modules ---------------------------------------------------------------------------------------

    @property
    def module(self) -> str | None:
        """Address of the innermost module it ran in, ``""`` for the model itself, None outside any."""
        call = int(self._graph.ops.call[self.row])
        return self._graph.call_address(call) if call >= 0 else None

    @property
    def modules(self) -> list[str]:
        """Addresses of all modules it ran in, from the model inwards."""
        return self._addresses(self._graph.enclosing_calls(self.row))

    @property
    def in_submodule(self) -> bool:
        """Whether it ran inside a module of the model's."""
        return len(self._graph.enclosing_calls(self.row)) > 1

    @property
    def modules_entered(self) -> list[str]:
        """Addresses of the modules that its tensor went into from outside, in the order they were called."""
        return self._addresses(self._facts.entered(self.row))

    @property
    def output_of(self) -> list[str]:
        """Addresses of the modules whose output it is, innermost first."""
        return self._addresses(self._graph.row_exits.get(self.row, ()))

    @property
    def is_module_output(self) -> bool:
        """Whether a module of the model's returned it."""
        return any(self._graph.calls.parent[call] >= 0 for call in self._graph.row_exits.get(self.row, ()))

    @property
    def is_whole_module(self) -> bool:
        """Whether it is the output of a module in which no other operation ran, as of an ``nn.ReLU``."""
        return bool(self._facts.alone_in(self.row))

    def _addresses(self, calls: Iterable[int]) -> list[str]:
        return [self._graph.call_address(call) for call in calls]

    # -- what it was computed from, and what was computed from it ------------------------------------

    @property
    def parents(self) -> list[Op]:
        """The ops whose tensors went in."""
        return self._ops(self._graph.parents(self.row))

    @property
    def children(self) -> list[Op]:
        """The ops that took this tensor."""
        return self._ops(self._graph.children(self.row))

    @property
    def ancestors(self) -> list[Op]:
        """Everything it was computed from, in order of execution."""
        return self._ops(walks.ancestors(self._graph, [self.row]))

    @property
    def descendants(self) -> list[Op]:
        """Everything computed from it, in order of execution."""
        return self._ops(walks.descendants(self._graph, [self.row]))

    @property
    def siblings(self) -> list[Op]:
        """The ops that share a parent with it."""
        return self._ops(walks.siblings(self._graph, self.row))

    @property
    def spouses(self) -> list[Op]:
        """The ops that share a child with it."""
        return self._ops(walks.spouses(self._graph, self.row))

    @property
    def roots(self) -> list[Op]:
        """The ancestors without parents: inputs, buffers, constants and tensors made inside."""
        return self._ops(self._facts.roots(self.row))

    @property
    def has_input_ancestor(self) -> bool:
        """Whether it is an input or computed from one."""
        return bool(self._facts.from_input[0][self.row] >= 0)

    @property
    def min_distance_from_input(self) -> int | None:
        """The fewest steps that lead to it from an input; None where none does."""
        return _known(self._facts.from_input[0][self.row])

    @property
    def max_distance_from_input(self) -> int | None:
        """The most steps that lead to it from an input; None where none does."""
        return _known(self._facts.from_input[1][self.row])

    @property
    def is_output_ancestor(self) -> bool:
        """Whether it is an output or an output is computed from it."""
        return bool(self._facts.to_output[0][self.row] >= 0)

    @property
    def output_descendants(self) -> list[Op]:
        """The model's outputs that are computed from it."""
        below = walks.descendants(self._graph, [self.row])
        return self._ops(row for row in below if self._graph.ops.kind[row] == OUTPUT)

    @property
    def min_distance_from_output(self) -> int | None:
        """The fewest steps that lead from it to an output; None where none does."""
        return _known(self._facts.to_output[0][self.row])

    @property
    def max_distance_from_output(self) -> int | None:
        """The most steps that lead from it to an output; None where none does."""
        return _known(self._facts.to_output[1][self.row])

    @property
    def factory_parents(self) -> list[Op]:
        """The parents that were made out of nothing inside the model."""
        return self._ops(self._facts.made_inside(self._graph.parents(self.row)))

    @property
    def factory_ancestors(self) -> list[Op]:
        """The ancestors that were made out of nothing inside the model."""
        return self._ops(self._facts.made_inside(walks.ancestors(self._graph, [self.row])))

    @property
    def is_terminal(self) -> bool:
        """Whether nothing was computed from it and it is no output: it ends inside the model."""
        return bool(self._facts.childless[self.row])

    @property
    def is_terminal_bool(self) -> bool:
        """Whether it is one truth that Python asked for and that nothing was computed from."""
        return self.row in self._facts.terminal_bools

    @property
    def in_condition(self) -> bool:
        """Whether it served the evaluation of an if, while or the like alone."""
        return self.row in self._facts.deciding

    @property
    def writers(self) -> list[Op]:
        """The ops that later wrote into this very tensor, in order: the history of a buffer."""
        return self._ops(self._facts.writers(self.row))

    # -- its value, its call and its gradient ---------------------------------------------------------

    @property
    def value(self) -> Tensor:
        """The activation as it was when the operation returned it, detached; in the form that ``to`` and
        ``transform`` of ``trace`` gave it, while ``shape`` and ``dtype`` stay those of the operation."""
        try:
            return self._trace.values[self.row]
        except KeyError:
            why = self._trace.not_stored.get(self.row)
            if why:
                raise AddressError(f"{self.label!r} was not stored: it {why}.") from None
            raise AddressError(
                f"{self.label!r} was not saved. Trace again with save='all', or save={self.label!r}."
            ) from None

    @property
    def grad(self) -> Tensor | None:
        """The gradient of this very tensor, once ``backward`` was called on a loss of ``trace.output``: the
        sum of all backward passes, as in torch's ``grad``. None before, and where no gradient passed: what
        requires none, what the loss does not depend on, a view that was overwritten, what runs without
        gradients inside a checkpoint. Raises InputError where the trace was taken without ``grads``.
        """
        if self._trace.gradients is None:
            raise InputError(f"{self.label!r} has no gradient: trace with grads=True, then call backward.")
        return self._trace.gradients.by_row.get(self.row)

    @property
    def grad_fn(self) -> str | None:
        """The name of the autograd node that made it, as ``"AddmmBackward0"``; None where no gradient flows
        through it, or where the trace was taken without ``grads``."""
        noted = self._graph.facts.get("autograd", {}).get(str(self.row))
        return noted[0] if noted else None

    @property
    def saved_bytes(self) -> int | None:
        """How many bytes autograd keeps until the backward pass because of this operation: memory counts
        once, where it is first kept, and parameters and buffers not at all. None where the trace was taken
        without ``grads``."""
        if "autograd" not in self._graph.facts:
            return None
        noted = self._graph.facts["autograd"].get(str(self.row))
        return noted[1] if noted else 0

    @property
    def saved(self) -> bool:
        """Whether ``value`` is there."""
        return self.row in self._trace.values

    @property
    def func(self) -> Callable[..., Any] | None:
        """The function that was called; None where it was not kept: nothing was saved, or it is no call."""
        return None if self._call is None else self._call.func

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments it was called with, each tensor as the label or address it came from."""
        if self._call is None:
            return ()
        return self._named(self._call)[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments it was called with, each tensor as the label or address it came from."""
        if self._call is None:
            return {}
        return self._named(self._call)[1]

    @property
    def func_name(self) -> str:
        """The name of the function that was called; its type where the function was not kept."""
        name = str(getattr(self.func, "__name__", self.type))
        return self.type if name in ("__get__", "__set__") else name

    @property
    def plain_args(self) -> tuple[Any, ...]:
        """The positional arguments that hold no tensor."""
        return () if self._call is None else tuple(v for v in self._call.args if _is_plain(v))

    @property
    def plain_kwargs(self) -> dict[str, Any]:
        """The keyword arguments that hold no tensor."""
        return {} if self._call is None else {k: v for k, v in self._call.kwargs.items() if _is_plain(v)}

    @property
    def rng_state(self) -> Tensor | None:
        """The state of the random generator that it drew from, as it was before; None if it drew nothing, or
        where calls were not kept (``save="none"``, a copy, a file).

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

    def _named(self, call: Invocation) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def name(source: int) -> str:
            if source >= 0:
                return self._graph.label(source)
            return "left out" if source == LEFT_OUT else self._graph.params[-1 - source].address

        return arguments(call.args, call.kwargs, [name(tensor_arg.source) for tensor_arg in call.tensor_args])

    @property
    def maybe_modified(self) -> bool:
        """Whether something unseen wrote to the saved value's memory, so that it may not be what was."""
        return self.row in self._trace.maybe_modified

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and other._trace is self._trace and other.row == self.row

    def __hash__(self) -> int:
        return hash((id(self._trace), self.row))

    def __str__(self) -> str:
        return text(op_card(self))

    def _repr_html_(self) -> str:
        return html(op_card(self))

    def __repr__(self) -> str:
        shape = "failed" if self.failed else "×".join(map(str, self.shape)) or "scalar"
        where = f" in {self.module}" if self.module else ""
        return f"<Op {self.label}: {shape} {self.dtype}{where}{'' if self.saved else ', not saved'}>"


def _is_plain(value: Any) -> bool:
    numbers = count()
    unflatten(value, numbers)
    return next(numbers) == 0


def _known(number: int) -> int | None:
    """The number as it is told: None for -1, which stands for "not known" in the graph's columns."""
    return int(number) if number >= 0 else None
