"""Turn the changes that a caller of ``rerun`` wrote into functions from old to new values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Union

import torch
from torch import Tensor

from ...core.address import Units, split_units
from ...core.errors import InputError
from ...core.selection import Match, match, resolve, whole_rows
from ...core.units import Index, UnitAxes, index, needs_axis
from ..results.op import Op

if TYPE_CHECKING:
    from ..results.trace import Trace

Change = Union[Tensor, float, Callable[[Tensor], Any], Op, "Trace"]
Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Edits:
    """The changes of a rerun.

    Attributes:
        values: The edits of each row's value, applied in order.
        functions: The function to run instead, by row.
        params: The edit of each parameter, by its number.
    """

    values: Mapping[int, Sequence[Edit]] = field(default_factory=dict)
    functions: Mapping[int, Callable[..., Any]] = field(default_factory=dict)
    params: Mapping[int, Edit] = field(default_factory=dict)

    def after(self, earlier: Edits) -> Edits:
        """Return these edits on top of those of an earlier rerun.

        The parameters are not merged, because those of the earlier rerun are in its trace already.
        """
        rows = {*earlier.values, *self.values}
        values = {row: (*earlier.values.get(row, ()), *self.values.get(row, ())) for row in rows}
        return Edits(values, {**earlier.functions, **self.functions})


def resolve_edits(
    trace: Trace, changes: Mapping[str | int, Change], swap: Mapping[str | int, Callable[..., Any]]
) -> Edits:
    """Return the edits that addresses and changes mean.

    Args:
        trace: The trace to change.
        changes: What each address becomes.
        swap: The function to run instead, by address.

    Raises:
        AddressError: If an address means nothing, or has no such unit.
        InputError: If a change is not valid, or does not fit.
    """
    values: dict[int, list[Edit]] = {}
    params: dict[int, Edit] = {}
    axes = UnitAxes(trace.graph)
    for key, change in changes.items():
        found = _match(trace, key)
        if isinstance(change, Tensor | Op):
            _refuse_several(trace, key, found)
        for param in found.params:
            axis = partial(axes.of_parameter, param, str(key))
            params[param] = _edit(key, _param_source(trace, change, param), found.units, axis)
        sources = _sources(trace, change, key, len(found.rows)) if found.rows else []
        for row, source in zip(found.rows, sources, strict=True):
            edit = _edit(key, source, found.units, partial(axes.of, row, str(key)))
            values.setdefault(row, []).append(edit)
    functions = {row: function for key, function in swap.items() for row in _rows(trace, key)}
    return Edits(values, functions, params)


def _refuse_several(trace: Trace, key: str | int, found: Match) -> None:
    """Raise InputError if one tensor is to replace several outputs of one module call."""
    calls = [call for name in found.names for call in trace.graph.module_names.get(name, ())]
    for call in calls:
        rows = trace.graph.call_outputs[call]
        if len(rows) > 1 and not found.units:
            labels = ", ".join(repr(trace.graph.label(row)) for row in rows[:4])
            raise InputError(
                f"{key!r} returns {len(rows)} tensors: {labels}. Write the label of the one to replace."
            )


def _match(trace: Trace, key: str | int) -> Match:
    """Return what an address means, or an ordinal over the saved ops."""
    if isinstance(key, str):
        return match(trace.graph, key)
    return Match([], resolve(trace.graph, key, ordinals=trace._ordinals), [], ())


def _rows(trace: Trace, key: str | int) -> list[int]:
    return whole_rows(trace.graph, key) if isinstance(key, str) else _match(trace, key).rows


def _sources(trace: Trace, change: Change, key: str | int, count: int) -> list[Any]:
    """Return the change of each row; from another trace, the value of the row with the same address."""
    if isinstance(change, Op):
        return [change.value] * count
    if not isinstance(change, type(trace)):
        return [change] * count
    place = split_units(key)[0] if isinstance(key, str) else key
    rows = _rows(change, place)
    if len(rows) != count:
        raise InputError(
            f"{place!r} means {count} values in this trace, but {len(rows)} in the other. Write the address "
            "of each value."
        )
    return [Op(change, row).value for row in rows]


def _param_source(trace: Trace, change: Change, number: int) -> Any:
    """Return the change of a parameter; from another trace, its parameter of the same address."""
    if isinstance(change, Op):
        return change.value
    if not isinstance(change, type(trace)):
        return change
    return change._parameter(trace.graph.params[number].address)


def _edit(key: str | int, change: Any, units: Sequence[Units], axis: Callable[[], int]) -> Edit:
    """Return the function that changes one value, or some units of it.

    Args:
        key: The address, for messages.
        change: The change.
        units: The units to change; empty for the whole value.
        axis: Returns the axis of units without ``@``.
    """

    def edited(old: Tensor) -> Tensor:
        new = old.detach().clone()
        whole = index(new.shape, units, axis() if needs_axis(units) else None, str(key))
        part, put = part_of(new, whole)
        value = change(part.clone()) if callable(change) else change
        if not isinstance(value, Tensor | int | float | complex):
            raise InputError(f"The change of {key!r} is {value!r}; it must be a tensor or a number.")
        if isinstance(value, Tensor):
            value = value.detach()
            if units and not callable(change) and value.shape == new.shape:
                value = part_of(value, whole)[0]  # a value of the full shape: take the same part of it
            if value.dtype != part.dtype:
                raise InputError(
                    f"After the change {key!r} is {tuple(value.shape)} {value.dtype}, and was "
                    f"{tuple(part.shape)} {part.dtype}. A rerun keeps shapes and dtypes. Convert the change, "
                    "or trace the changed model."
                )
            try:
                value = value.to(part.device).broadcast_to(part.shape)
            except RuntimeError:
                raise InputError(
                    f"The change of {key!r} is of shape {tuple(value.shape)}, which cannot be broadcast to "
                    f"{tuple(part.shape)}, the shape of the value it replaces."
                ) from None
        with torch.no_grad():
            put(value)
        return new

    return edited


def part_of(t: Tensor, whole: Sequence[Index]) -> tuple[Tensor, Callable[[Any], Any]]:
    """Return the part of a tensor that an index selects, and a function that writes into it.

    Args:
        t: The tensor.
        whole: The index, one entry for each axis; an integer removes its axis from the part.

    Returns:
        The part, and a function that sets it in ``t`` to a tensor or a number.
    """
    if not any(isinstance(one, list) for one in whole):
        view = t[tuple(whole)]
        return view, lambda value: view.copy_(value) if isinstance(value, Tensor) else view.fill_(value)
    lists = [
        one if isinstance(one, list) else [one] if isinstance(one, int) else list(range(length)[one])
        for one, length in zip(whole, t.shape, strict=True)
    ]
    axes = len(lists)
    grid = tuple(
        torch.tensor(one, device=t.device).view([-1 if at == axis else 1 for at in range(axes)])
        for axis, one in enumerate(lists)
    )
    single = [axis for axis, one in enumerate(whole) if isinstance(one, int)]
    taken = t[grid]

    def put(value: Any) -> None:
        for axis in single:
            value = value.unsqueeze(axis) if isinstance(value, Tensor) else value
        t[grid] = value

    return taken.squeeze(single) if single else taken, put
