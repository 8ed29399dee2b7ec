"""Compare a pass under the names that its modules have in the other pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ....core.analysis.modules import corresponding_modules, same_ends, sums_as_key, with_names
from ....core.graph import BUFFER, PARAMETER
from ...results.trace import Trace
from ..values.differences import element_sums
from ..values.elements import value_of
from .modules import EQUAL_SUMS

if TYPE_CHECKING:
    from ....core.graph import Graph, Param


def are_named_otherwise(a: Graph, b: Graph) -> bool:
    """Return whether each pass has modules of names that the other has not, which no file changes."""
    if "format" in a.facts or "format" in b.facts:
        return False
    names_a, names_b = ({module.address for module in graph.modules} for graph in (a, b))
    return bool(names_a - names_b and names_b - names_a)


def names_in_other(
    a: Trace, b: Trace, pairs: Sequence[tuple[int, int]], sums: tuple[np.ndarray, np.ndarray]
) -> dict[str, str]:
    """Return the address in ``a`` of each module of ``b`` that has a counterpart of another name.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: Pairs of rows, as ``align`` returns them.
        sums: The sums over the elements of each graph's rows, as ``align`` takes them.
    """
    both = np.array([(i, j) for i, j in pairs if i >= 0 and j >= 0], np.int64).reshape(-1, 2)
    one, other = sums[0][both[:, 0]], sums[1][both[:, 1]]
    same = (np.abs(other - one) <= EQUAL_SUMS * one[:, [0, 1, 0]]).all(axis=-1)
    agreeing = [(int(i), int(j)) for i, j in both[same]]
    return corresponding_modules(a.graph, b.graph, agreeing, (_weights(a), _weights(b)))


def _weights(trace: Trace) -> dict[int, Hashable]:
    """Return what identifies the values of each parameter that are known and not one number."""
    keys = {number: _key(trace, param.address) for number, param in enumerate(trace.graph.params)}
    return {number: key for number, key in keys.items() if key is not None}


def _key(trace: Trace, address: str) -> Hashable | None:
    """Return what identifies the values of a parameter; None if they are unknown or one number."""
    value = value_of(trace, address)
    if value is None:
        return None
    size, squares, _ = element_sums(value.array)
    is_one_number = size * size >= squares * value.array.size * (1 - EQUAL_SUMS)
    return None if is_one_number else (value.array.size, sums_as_key(np.array([size, squares])))


def under_names(b: Trace, names: Mapping[str, str], a: Trace) -> Trace:
    """Return a trace under the names that its modules and their parameters have in another one.

    Args:
        b: The trace.
        names: The names in the other trace of modules that correspond.
        a: The other trace.
    """
    graph = b.graph
    others = with_names(graph, names, (module.address for module in a.graph.modules))

    def in_module(address: str) -> str:
        owner, _, last = address.rpartition(".")
        return f"{others[owner]}.{last}" if owner in others else address

    left = _left_parameters(a, b, in_module)

    def named(address: str) -> str:
        return left.get(address) or in_module(address)

    def of(params: Sequence[Param]) -> tuple[Param, ...]:
        return tuple(param._replace(address=named(param.address)) for param in params)

    state = {int(type_) for type_ in graph.ops.type[np.isin(graph.ops.kind, (BUFFER, PARAMETER))]}
    renamed = replace(
        graph,
        modules=tuple(
            module._replace(address=others.get(module.address, module.address)) for module in graph.modules
        ),
        params=of(graph.params),
        buffers=of(graph.buffers),
        types=tuple(named(name) if n in state else name for n, name in enumerate(graph.types)),
    )
    values = {named(address): value for address, value in b._param_values.items()}
    other = Trace(renamed, b.values, b.maybe_modified, b._replays, values, b._parts)
    other.gradients, other.not_stored = b.gradients, b.not_stored
    return other


def _left_parameters(a: Trace, b: Trace, in_module: Callable[[str], str]) -> dict[str, str]:
    """Return the address in ``a`` of parameters of ``b`` that no module tells.

    Such are the positions of a model that is a part of another one. They correspond if they have the values
    that no others have, or one address ends with the other.

    Args:
        a: The trace that gives the names.
        b: The other one.
        in_module: Returns the address of a parameter of ``b`` in the module of ``a`` that corresponds.
    """
    own, others = ({param.address: param.shape for param in trace.graph.params} for trace in (a, b))
    found = {in_module(address) for address in others}
    left = [one for one in own if one not in found], [one for one in others if in_module(one) not in own]
    if not all(left):
        return {}
    keys: list[dict[Hashable, list[str]]] = [{}, {}]
    for trace, addresses, by_key in zip((a, b), left, keys, strict=True):
        for address in addresses:
            by_key.setdefault(_key(trace, address), []).append(address)
    same = [(keys[0][key], keys[1][key]) for key in keys[0] if key is not None and key in keys[1]]
    by_values = {other[0]: one[0] for one, other in same if len(one) == len(other) == 1}
    by_ends = same_ends(left[0], left[1])
    ends = {other: one for other, one in by_ends.items() if own[one] == others[other]}
    return {other: one for other, one in ends.items() if one not in by_values.values()} | by_values
