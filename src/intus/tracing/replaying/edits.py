"""What a rerun changes: what the caller wrote, as functions from old values to new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeGuard, Union

import torch
from torch import Tensor

from ...core.errors import AddressError, InputError, did_you_mean
from ...core.graph import Graph
from ...core.selection import is_glob, resolve, select, speakable
from ...core.units import Index, Part, index, split, unit_axis
from ..results.op import Op

if TYPE_CHECKING:
    from ..results.trace import Trace

Change = Union[Tensor, float, Callable[[Tensor], Any], Op, "Trace"]
Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Edits:
    """Changes by row, functions by row, and parameters by number."""

    values: Mapping[int, Sequence[Edit]] = field(default_factory=dict)
    functions: Mapping[int, Callable[..., Any]] = field(default_factory=dict)
    params: Mapping[int, Edit] = field(default_factory=dict)

    def after(self, earlier: Edits) -> Edits:
        """These, on top of those of an earlier rerun, whose parameters are in its trace already."""
        rows = {*earlier.values, *self.values}
        values = {row: (*earlier.values.get(row, ()), *self.values.get(row, ())) for row in rows}
        return Edits(values, {**earlier.functions, **self.functions})


def edits(
    trace: Trace, changes: Mapping[str | int, Change], swap: Mapping[str | int, Callable[..., Any]]
) -> Edits:
    """Find what the caller's addresses mean. Raises AddressError, and InputError for what is no change."""
    values: dict[int, list[Edit]] = {}
    params: dict[int, Edit] = {}
    for key, change in changes.items():
        name, parts = (key, []) if not isinstance(key, str) or key in trace else split(key)
        rows, named = _meant(trace, name)
        for param in named:
            params[param] = _edit(key, _param(change, trace.graph.params[param].address), parts, 0)
        sources = _sources(change, name, len(rows)) if rows else []
        for row, source in zip(rows, sources, strict=True):
            edit = _edit(key, source, parts, unit_axis(trace.graph, row))
            values.setdefault(row, []).append(edit)
    functions = {row: function for key, function in swap.items() for row in _rows(trace, key)}
    return Edits(values, functions, params)


def _rows(trace: Trace, name: str | int) -> list[int]:
    """The rows that a name, an ordinal, a type or class, or a pattern means."""
    if isinstance(name, str):
        return select(trace.graph, name)
    return resolve(trace.graph, name, ordinals=trace._ordinals)


def _meant(trace: Trace, name: str | int) -> tuple[list[int], list[int]]:
    """The rows that a change is of, or else the parameters, by number."""
    numbers = _params(trace.graph) if isinstance(name, str) else {}
    if name in numbers and name not in trace:
        return [], [numbers[str(name)]]
    try:
        return _rows(trace, name), []
    except AddressError:
        if not isinstance(name, str):
            raise
        fitting = {number for known, number in numbers.items() if is_glob(name) and fnmatchcase(known, name)}
        if fitting:
            return [], sorted(fitting)
        known = [*speakable(trace.graph), *numbers]
        raise AddressError(f"{trace.graph.model} has no {name!r}. {did_you_mean(name, known)}") from None


def _params(graph: Graph) -> dict[str, int]:
    """Parameters by address; one that is tied answers to what each module that holds it would call it."""
    tied = {
        f"{module.address}.{graph.params[number].address.rpartition('.')[2]}".lstrip("."): number
        for module in graph.modules
        for number in module.params
    }
    return tied | {param.address: number for number, param in enumerate(graph.params)}


def _sources(change: Change, name: str | int, count: int) -> list[Any]:
    """The change of each of the rows that an address means: another trace's are its own."""
    if isinstance(change, Op):
        return [change.value] * count
    if not _is_trace(change):
        return [change] * count
    rows = _rows(change, name)
    if len(rows) != count:
        raise InputError(f"{name!r} stands for {count} values here, and for {len(rows)} in the other trace.")
    return [Op(change, row).value for row in rows]


def _param(change: Change, name: str) -> Any:
    """The change of a parameter: another trace's parameter of that address, or what was given."""
    if isinstance(change, Op):
        return change.value
    if not _is_trace(change):
        return change
    if change._replays is None:
        raise InputError(f"The other trace holds no parameters to take {name!r} from: it was copied or read.")
    for param, (value, _) in zip(change.graph.params, change._replays.params, strict=True):
        if param.address == name:
            return value
    raise AddressError(f"The other trace has no parameter {name!r}.")


def _is_trace(change: Any) -> TypeGuard[Trace]:
    from ..results.trace import Trace

    return isinstance(change, Trace)


def _edit(key: str | int, change: Any, parts: Sequence[Part], units: int) -> Edit:
    """The change of one value, or of parts of it."""

    def edited(old: Tensor) -> Tensor:
        new = old.detach().clone()
        whole = index(new.shape, parts, units, str(key))
        part, put = _part(new, whole)
        value = change(part.clone()) if callable(change) else change
        if not isinstance(value, Tensor | int | float | complex):
            raise InputError(f"The change of {key!r} gave {value!r}; it must give a tensor or a number.")
        if isinstance(value, Tensor):
            value = value.detach()
            if parts and not callable(change) and value.shape == new.shape:
                value = _part(value, whole)[0]  # a whole value, of which the same part is meant
            try:
                value = value.to(part.device).broadcast_to(part.shape)
            except RuntimeError:
                raise InputError(
                    f"The change of {key!r} is of shape {tuple(value.shape)}, and what it changes is "
                    f"{tuple(part.shape)}."
                ) from None
        with torch.no_grad():
            put(value)
        return new

    return edited


def _part(t: Tensor, whole: Sequence[Index]) -> tuple[Tensor, Callable[[Any], Any]]:
    """The part of a tensor that an index takes, and what writes into it. Axes of one unit are left out."""
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
