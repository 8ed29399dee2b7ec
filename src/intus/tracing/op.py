"""One tensor of a trace: which operation made it, from what, where and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..core import walks
from ..core.errors import AddressError
from ..core.graph import CREATED, FAILED, INPLACE, OP_KINDS, Graph, Meta, Param, Source
from .invocation import Invocation, filled
from .replay import LEFT_OUT

if TYPE_CHECKING:
    from .trace import Trace


class Op:
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
    def label(self) -> str:
        """``conv2d_3_7``, or ``conv2d_3_7:2`` for the second pass of a recurrent layer."""
        return self._graph.label(self.row)

    @property
    def type(self) -> str:
        """The function's name: ``conv2d``."""
        return self._graph.types[int(self._graph.ops.type[self.row])]

    @property
    def kind(self) -> str:
        """``op``, ``input``, ``output``, ``buffer`` or ``constant``."""
        return OP_KINDS[int(self._graph.ops.kind[self.row])]

    @property
    def pass_number(self) -> int:
        """Which pass of its layer this is, from 1."""
        return int(self._graph.ops.passno[self.row])

    @property
    def value(self) -> Tensor:
        """The activation as it was when the operation returned it, detached."""
        try:
            return self._trace.values[self.row]
        except KeyError:
            raise AddressError(
                f"{self.label!r} was not saved. Trace again with save='all', or save={self.label!r}."
            ) from None

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
        return tuple(filled(value, self._names(self._call)) for value in self._call.args)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments it was called with, each tensor as the label or address it came from."""
        if self._call is None:
            return {}
        names = self._names(self._call)
        return {name: filled(value, names) for name, value in self._call.kwargs.items()}

    @property
    def _call(self) -> Invocation | None:
        replays = self._trace._replays
        return None if replays is None else replays.call(int(self._graph.ops.event[self.row]))

    def _names(self, call: Invocation) -> Callable[[int], str]:
        def name(number: int) -> str:
            source = call.holes[number].source
            if source >= 0:
                return self._graph.label(source)
            return "left out" if source == LEFT_OUT else self._graph.params[-1 - source].address

        return name

    @property
    def meta(self) -> Meta:
        """Shape, dtype, device and bytes, known whether the value was saved or not."""
        return self._graph.metas[int(self._graph.ops.meta[self.row])]

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.meta.shape

    @property
    def dtype(self) -> str:
        """The tensor's dtype, as ``"float32"``."""
        return self.meta.dtype

    @property
    def nbytes(self) -> int:
        """The tensor's size in bytes."""
        return self.meta.nbytes

    @property
    def seconds(self) -> float:
        """How long the function took."""
        return int(self._graph.ops.time[self.row]) / 1e9

    @property
    def parents(self) -> list[Op]:
        """The ops whose tensors went in."""
        return [Op(self._trace, row) for row in self._graph.parents(self.row)]

    @property
    def children(self) -> list[Op]:
        """The ops that took this tensor."""
        return [Op(self._trace, row) for row in self._graph.children(self.row)]

    @property
    def ancestors(self) -> list[Op]:
        """Everything it was computed from, in order of execution."""
        return [Op(self._trace, row) for row in walks.ancestors(self._graph, [self.row])]

    @property
    def descendants(self) -> list[Op]:
        """Everything computed from it, in order of execution."""
        return [Op(self._trace, row) for row in walks.descendants(self._graph, [self.row])]

    @property
    def siblings(self) -> list[Op]:
        """The ops that share a parent with it."""
        return [Op(self._trace, row) for row in walks.siblings(self._graph, self.row)]

    @property
    def spouses(self) -> list[Op]:
        """The ops that share a child with it."""
        return [Op(self._trace, row) for row in walks.spouses(self._graph, self.row)]

    @property
    def params(self) -> list[Param]:
        """The parameters that went in."""
        return [self._graph.params[p] for p in self._graph.row_params.get(self.row, ())]

    @property
    def module(self) -> str | None:
        """Address of the innermost module it ran in, ``""`` for the model itself, None outside any."""
        call = int(self._graph.ops.call[self.row])
        return self._graph.call_address(call) if call >= 0 else None

    @property
    def modules(self) -> list[str]:
        """Addresses of all modules it ran in, from the model inwards."""
        return [self._graph.call_address(call) for call in self._graph.enclosing_calls(self.row)]

    @property
    def output_of(self) -> list[str]:
        """Addresses of the modules whose output it is, innermost first."""
        return [self._graph.call_address(call) for call in self._graph.row_exits.get(self.row, ())]

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
    def created(self) -> bool:
        """Whether it made a tensor out of nothing, as torch.rand does."""
        return bool(self._graph.ops.flags[self.row] & CREATED)

    @property
    def failed(self) -> bool:
        """Whether it is the operation that raised."""
        return bool(self._graph.ops.flags[self.row] & FAILED)

    @property
    def unverified(self) -> bool:
        """Whether something unseen wrote to the saved value's memory, so that it may not be what was."""
        return self.row in self._trace.unverified

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and other._trace is self._trace and other.row == self.row

    def __hash__(self) -> int:
        return hash((id(self._trace), self.row))

    def __repr__(self) -> str:
        shape = "failed" if self.failed else "×".join(map(str, self.shape)) or "scalar"
        where = f" in {self.module}" if self.module else ""
        return f"<Op {self.label}: {shape} {self.dtype}{where}{'' if self.saved else ', not saved'}>"
