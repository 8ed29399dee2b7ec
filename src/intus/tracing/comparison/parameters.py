"""Compare the parameters of operations of two passes that need not be of one framework."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import IntusError
from ...core.graph import Param
from ...viewing.repr_text import listed
from .differences import Difference, difference, rounding
from .elements import Elements, plain

if TYPE_CHECKING:
    from ..results.trace import Trace


def different_parameters(a: Trace, rows_a: Iterable[int], b: Trace, rows_b: Iterable[int]) -> list[str]:
    """Return how the parameters of operations that compute the same differ, as sentences.

    Parameters correspond if they have the same address, or else if no others have the same name in their
    modules or the same lengths. Where one side has combined several (a batch norm folded into a convolution),
    that is all that is said. Frameworks store weights in other orders of their axes: the nearest counts.

    Args:
        a: The first trace.
        rows_a: The rows of its operations.
        b: The second trace.
        rows_b: The rows of its operations.
    """
    partners, left_a, left_b = _partners(_used(a, rows_a), _used(b, rows_b))
    if left_a or left_b:
        sides = [f"{listed(names)} in {name}" for name, names in (("a", left_a), ("b", left_b)) if names]
        return [
            f"other parameters are combined there ({', '.join(sides)}), so they are not compared one by one"
        ]
    found = []
    for address, other in partners:
        x, y = _value(a, address), _value(b, other)
        if x is None or y is None:
            continue
        both = f"{address} of a and of b" if address == other else f"{address} of a and {other} of b"
        apart = _nearest(x, y)
        if apart is None:
            found.append(f"{both} are of shapes {x.array.shape} and {y.array.shape}")
        elif apart.relative > rounding(x, y) or apart.lopsided:
            found.append(f"{both} {_words(apart)}")
    return found


def _words(apart: Difference) -> str:
    if apart.nan != apart.other_nan:
        return f"have {apart.nan} and {apart.other_nan} NaN"
    return f"differ by {apart.relative:.2g} of their norm"


def _partners(
    params_a: list[Param], params_b: list[Param]
) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Return the addresses of parameters that correspond to each other, and those left on each side."""
    left_a, left_b, found = list(params_a), list(params_b), []
    for key in (_address, _name, _lengths):
        for name in dict.fromkeys(map(key, left_a)):
            one, other = ([param for param in left if key(param) == name] for left in (left_a, left_b))
            if len(one) == len(other) == 1:
                left_a.remove(one[0])
                left_b.remove(other[0])
                found.append((one[0].address, other[0].address))
    return found, [param.address for param in left_a], [param.address for param in left_b]


def _used(trace: Trace, rows: Iterable[int]) -> list[Param]:
    graph = trace.graph
    numbers = [number for row in rows for number in graph.row_params.get(row, ())]
    return [graph.params[number] for number in dict.fromkeys(numbers)]


def _address(param: Param) -> Hashable:
    return param.address


def _name(param: Param) -> Hashable:
    return param.address.rpartition(".")[2]


def _lengths(param: Param) -> Hashable:
    return tuple(sorted(param.shape))


def _value(trace: Trace, address: str) -> Elements | None:
    try:
        return plain(trace.value(address))
    except (IntusError, KeyError):  # not saved, or changed since
        return None


def _nearest(x: Elements, y: Elements) -> Difference | None:
    """Return the difference in the order of y's axes in which it is least; None if no order fits.

    A matrix may be transposed, and the kernel of a convolution has its channels first (PyTorch) or last.
    """
    orders = [y.array, y.array.T]
    if y.array.ndim > 2:
        orders += [np.moveaxis(y.array, (-1, -2), (0, 1)), np.moveaxis(y.array, (0, 1), (-1, -2))]
    found = [difference(x, y._replace(array=one)) for one in orders if one.shape == x.array.shape]
    return min(found, key=lambda apart: apart.relative, default=None)
