"""What follows from the graph about one tensor; ``Op`` adds what only the pass itself can tell."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Self

from ...core.graph import (
    BUFFER,
    CREATED,
    FAILED,
    INPLACE,
    INPUT,
    OP_KINDS,
    OUTPUT,
    Meta,
    Param,
    Source,
)
from ..capture.saving.described import Described
from .op_family import Family
from .op_row import known


class OpFacts(Family, Described):
    """One row of a trace's graph, and everything that the graph says of it. Nothing here needs a value, a
    function or torch, so an op of a loaded trace answers alike."""

    __slots__ = ()

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
    def passes(self) -> list[Self]:
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
    def settings(self) -> str:
        """What the function was given besides tensors, as text: ``(3, 3), stride=2``; empty for an index."""
        if not len(self._graph.op_settings) or self._graph.op_settings[self.row] < 0:
            return ""
        return self._graph.settings[int(self._graph.op_settings[self.row])]

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
    def output_index(self) -> int | None:
        """Which of the tensors that its function returned it is, from 0; None where that was the only one."""
        index = int(self._graph.ops.output[self.row])
        return index if index >= 0 else None

    @property
    def returned_together(self) -> list[Self]:
        """All tensors that its function returned and that are in the graph, itself included."""
        event = int(self._graph.ops.event[self.row])
        return self._ops(self._facts.event_rows.get(event, [self.row]))

    @property
    def flops(self) -> int | None:
        """The floating point operations it took, two for a multiply-add (``core/flops.py`` has the rules);
        None where no rule knows. Of a function that returned several tensors, at the first of them."""
        return known(self._facts.flops[self.row])

    @property
    def macs(self) -> int | None:
        """Its multiply-adds, where it is a product (linear, matmul, convolution, attention); 0 elsewhere."""
        return known(self._facts.macs[self.row])

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
