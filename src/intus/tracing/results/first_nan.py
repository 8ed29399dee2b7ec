"""Find the operation that made the first NaN or infinity of a pass, forward or backward."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...core.errors import InputError
from ...core.graph import OP, OUTPUT
from ...core.nested import leaves
from ...viewing.outline import dimensions
from ...viewing.repr_text import listed
from ..capture.invocation import arguments
from ..replaying.call_inputs import CallInputs, MismatchError
from ..replaying.replay import UnprovenError, unrecorded
from ..validation.uninitialized import UNINITIALIZED
from .value_summary import summary_of

if TYPE_CHECKING:
    from .op import Op
    from .trace import Trace

#: Functions that place a number which the model's code gives: an infinity in it is there on purpose.
_PLACES = frozenset(
    {"setitem", "full", "full_like", "new_full", "fill", "masked_fill", "where", "tensor", "new_tensor"}
    | {"index_fill", "pad", "constant_pad_nd", "clamp", "clip", "nan_to_num", "as_tensor", "scalar_tensor"}
)
_INFINITY = re.compile(r"(?<![\w.])-?inf\b")  # as Python writes it


class Range(NamedTuple):
    """The values of a tensor that an operation took.

    Attributes:
        name: The label of the op that it came from, or the address of a parameter.
        shape: Its shape.
        low: Its smallest finite number; None if there is none, or if its values are unknown.
        high: Its largest finite number; None likewise.
        nan: How many of its numbers are NaN.
        infinite: How many are infinite.
        size: How many numbers it has; 0 if its values are unknown.
    """

    name: str
    shape: tuple[int, ...]
    low: float | None
    high: float | None
    nan: int
    infinite: int
    size: int

    def __str__(self) -> str:
        if not self.size:
            return f"{self.name} ({dimensions(self.shape)})"
        span = "no finite number" if self.low is None else f"{self.low:.6g} to {self.high:.6g}"
        return f"{self.name} ({dimensions(self.shape)}): {span}{_counted(self.nan, self.infinite)}"


@dataclass(frozen=True)
class Origin:
    """The origin of the first NaN or infinity of a pass; ``print`` shows it as text.

    Attributes:
        op: The operation that made it. If the data had it before, the input, buffer or constant.
        direction: ``"forward"`` or ``"backward"``.
        tensor: The tensor that has it: what ``op`` returned, or the gradient of this tensor or parameter.
        nan: How many of its numbers are NaN.
        infinite: How many are infinite.
        size: How many numbers it has.
        rows: The indices along its axis 0 that have them.
        inputs: The tensors and parameters that ``op`` took; backward also the gradient that it received.
        alternatives: Other operations that may have made it, if that could not be decided.
    """

    op: Op
    direction: str
    tensor: str
    nan: int
    infinite: int
    size: int
    rows: tuple[int, ...]
    inputs: tuple[Range, ...]
    alternatives: tuple[Op, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"<Origin: {self._sentence()}>"

    def _sentence(self) -> str:
        count = _counted(self.nan, self.infinite).removeprefix(", ")
        what = f"{count} of {self.size:,} numbers"
        if self.direction == "backward":
            makers = " or ".join(op.label for op in (self.op, *self.alternatives))
            if self.tensor == self.op.label:
                return f"the gradient that the loss sent to {self.tensor} has {what}"
            return f"the backward pass of {makers} made {what} in the gradient of {self.tensor}"
        return f"{self.op.label} {'made' if self.op.kind == 'op' else 'already has'} {what}"

    def _lines(self) -> Iterator[str]:
        where = f", in rows {listed([str(row) for row in self.rows], most=8)}" if self.rows else ""
        yield f"{self._sentence()}{where}."
        source = self.op.source
        if source is not None:
            code = linecache.getline(source.file, source.line).strip()
            where = f"{Path(source.file).name}:{source.line} in {source.function}"
            yield f"  {where}: {code}" if code else f"  {where}"
        if self.op.module:
            yield f"  in module {self.op.module}"
        for one in self.inputs:
            yield f"  from {one}"


def first_nan(
    trace: Trace,
    param_grads: Mapping[str, Tensor] | None = None,
) -> Origin | None:
    """Return where the first NaN or infinity of a pass came from; see ``Trace.first_nan``.

    Args:
        trace: The trace.
        param_grads: The gradients of parameters by address, to be searched as well.

    Raises:
        InputError: If values are missing.
    """
    search = _Search(trace)
    return (
        search.forward_nan()
        or search.forward_infinity(in_output=True)
        or search.backward(param_grads or {})
        or search.forward_infinity(in_output=False)
    )


class _Search:
    """The search in one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.graph = trace, trace.graph
        trace._require_unchanged_values("searched for NaN")
        missing = [
            op.label for op in trace.ops if not op.saved and op.row not in trace.not_stored and not op.failed
        ]
        if missing:
            raise InputError(
                f"first_nan needs the value of every operation, and this trace lacks {listed(missing)}. "
                "Trace with save='all'."
            )
        self.nan, self.infinite = set[int](), set[int]()
        for row, value in trace.values.items():
            has_nan, has_infinity = _has(value)
            if has_nan:
                self.nan.add(row)
            if has_infinity:
                self.infinite.add(row)

    # -- forward ---------------------------------------------------------------------------------------

    def forward_nan(self) -> Origin | None:
        """Return what made the first NaN, or the infinity that it came from."""
        for row in sorted(self.nan):
            if self._is_new(row, self.nan) and self.graph.ops.kind[row] != OUTPUT:
                causes = self._infinity_behind(self.graph.parents(row))
                return self._forward(min(causes) if causes else row)
        return None

    def forward_infinity(self, *, in_output: bool) -> Origin | None:
        """Return what made the first infinity: of those in outputs, or of all."""
        ends = [row for row in self.infinite if self.graph.ops.kind[row] == OUTPUT or not in_output]
        made = self._infinity_behind(ends)
        return self._forward(min(made)) if made else None

    def _is_new(self, row: int, bad: set[int]) -> bool:
        """Return whether a row has what none of its parents has, and is not uninitialized memory."""
        return self.graph.type_of(row) not in UNINITIALIZED and not bad & set(self.graph.parents(row))

    def _infinity_behind(self, rows: Iterable[int]) -> list[int]:
        """Return the operations that made the infinities of rows, from finite numbers and not on purpose."""
        made, visited = [], set[int]()
        pending = [row for row in rows if row in self.infinite]
        while pending:
            row = pending.pop()
            if row not in visited:
                visited.add(row)
                above = [parent for parent in self.graph.parents(row) if parent in self.infinite]
                pending += above
                if not above and self.graph.ops.kind[row] == OP and self._made_infinity(row):
                    made.append(row)
        return made

    def _made_infinity(self, row: int) -> bool:
        on_purpose = self.graph.type_of(row) in _PLACES or _INFINITY.search(self.graph.setting(row))
        return self._is_new(row, self.infinite | self.nan) and not on_purpose

    def _forward(self, row: int) -> Origin:
        op = self.trace._handles([row])[0]
        return Origin(op, "forward", op.label, *_counts(op.value), self._inputs(row))

    def _inputs(self, row: int) -> tuple[Range, ...]:
        ranges = [
            _range(self.graph.label(parent), self.graph.metas[self.graph.ops.meta[parent]].shape, value)
            for parent in self.graph.parents(row)
            for value in [self.trace.values.get(parent)]
        ]
        for number in self.graph.row_params.get(row, ()):
            param = self.graph.params[number]
            ranges.append(_range(param.address, param.shape, self._params.get(number)))
        return tuple(ranges)

    @cached_property
    def _params(self) -> dict[int, Tensor]:
        """The values of the parameters, by number; empty if the trace has none."""
        replays = self.trace._replays
        if replays is None:
            return {}
        return {number: p for number, p in enumerate(replays.params) if not replays.is_changed(number)}

    # -- backward --------------------------------------------------------------------------------------

    def backward(self, param_grads: Mapping[str, Tensor]) -> Origin | None:
        """Return what made the first NaN or infinity of the backward pass."""
        grads = {} if self.trace.gradients is None else self.trace.gradients.by_row
        bad = [row for row, grad in grads.items() if any(_has(grad))]
        if bad:
            row = max(bad)  # the backward pass runs from the last row to the first
            makers = [child for child in self.graph.children(row) if self.graph.ops.kind[child] == OP]
            makers = [child for child in makers if child in grads] or makers
            if not makers:
                op = self.trace._handles([row])[0]
                return Origin(op, "backward", op.label, *_counts(grads[row]), ())
            return self._backward(makers, self.graph.label(row), grads[row], row)
        for number, param in enumerate(self.graph.params):
            grad = param_grads.get(param.address)
            if grad is not None and any(_has(grad)):
                makers = [row for row, used in self.graph.row_params.items() if number in used]
                if makers:
                    return self._backward(makers, param.address, grad, -1 - number)
        return None

    def _backward(self, makers: list[int], tensor: str, grad: Tensor, source: int) -> Origin:
        """Return the origin in the backward pass of one of ``makers``, which all took ``source``."""
        if len(makers) > 1:
            certain = [row for row in makers if self._contributes(row, source)]
            makers = certain[-1:] or makers
        op, *others = self.trace._handles(sorted(makers, reverse=True))
        assert self.trace.gradients is not None
        received = self.trace.gradients.by_row.get(op.row)
        inputs = self._inputs(op.row)
        if received is not None:
            inputs += (_range(f"the gradient of {op.label}", tuple(received.shape), received),)
        return Origin(op, "backward", tensor, *_counts(grad), inputs, tuple(others))

    def _contributes(self, row: int, source: int) -> bool:
        """Return whether the backward of a row's call alone sends NaN or infinity to one of its arguments.

        False also if the call cannot be run again.
        """
        replays, gradients = self.trace._replays, self.trace.gradients
        call = None if replays is None else replays.call(int(self.graph.ops.event[row]))
        if replays is None or call is None or gradients is None:
            return False
        found = CallInputs(self.graph, replays, self.trace.values)
        try:
            given = [found.argument(tensor_arg, row).detach().clone() for tensor_arg in call.tensor_args]
            wanted = [t for t, arg in zip(given, call.tensor_args, strict=True) if arg.source == source]
            with unrecorded(), torch.enable_grad():
                for t in wanted:
                    t.requires_grad_()
                args, kwargs = arguments(call.args, call.kwargs, given)
                returned = leaves(call.func(*args, **kwargs), Tensor)
                index = int(self.graph.ops.output[row])
                sent = torch.autograd.grad(
                    returned[max(index, 0)], wanted, gradients.by_row[row], allow_unused=True
                )
        except (RuntimeError, TypeError, ValueError, KeyError, IndexError, MismatchError, UnprovenError):
            return False
        return any(grad is not None and any(_has(grad)) for grad in sent)


def _numbers(value: Tensor, compute: Callable[[Tensor], tuple[int, ...]]) -> tuple[int, ...]:
    """Return what a function computes of a tensor, unrecorded; () if the tensor has no such numbers."""
    if not (value.is_floating_point() or value.is_complex()):
        return ()
    with unrecorded(), torch.no_grad():
        try:
            return compute(value.detach())
        except (
            RuntimeError,
            NotImplementedError,
            TypeError,
        ):  # on meta, nested, quantized, or a class that refuses
            return ()


def _has(value: Tensor) -> tuple[bool, bool]:
    """Return whether a tensor has NaN, and whether it has infinities."""
    found = _numbers(
        value, lambda t: () if t.isfinite().all() else (int(t.isnan().any()), int(t.isinf().any()))
    )
    return (bool(found[0]), bool(found[1])) if found else (False, False)


def _counts(value: Tensor) -> tuple[int, int, int, tuple[int, ...]]:
    """Return the numbers of NaN, infinities and all elements, and the indices along axis 0 with any."""
    found = _numbers(value, lambda t: (int(t.isnan().sum()), int(t.isinf().sum()), t.numel()))
    nan, infinite, size = found if found else (0, 0, value.numel())
    rows: tuple[int, ...] = ()
    if value.dim():
        rows = _numbers(
            value, lambda t: tuple((~t.isfinite()).reshape(len(t), -1).any(1).nonzero().flatten().tolist())
        )
    return nan, infinite, size, rows


def _range(name: str, shape: tuple[int, ...], value: Tensor | None) -> Range:
    found = None if value is None else summary_of(value.detach(), image=False)
    if found is None:
        return Range(name, shape, None, None, 0, 0, 0)
    return Range(name, shape, found.low, found.high, found.nan, found.infinite, found.size)


def _counted(nan: int, infinite: int) -> str:
    return (f", {nan:,} NaN" if nan else "") + (f", {infinite:,} infinite" if infinite else "")
