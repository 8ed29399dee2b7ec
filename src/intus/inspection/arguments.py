"""Check the arguments of ``inspect`` that are numbers, and that labels and data belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from ..core.errors import InputError


def check_whole(least: int, **given: Any) -> None:
    """Raise InputError unless each argument is a whole number that is not less than ``least``.

    Example:
        >>> check_whole(1, batch=32)
    """
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InputError(f"{name}={value!r} must be a whole number.")
        if int(value) < least:
            raise InputError(f"{name}={value!r} must be {least} or more.")


def check_options(eps: Any, top: Any, cache: Any, cache_outputs: bool, null: Any, given: Any) -> None:
    """Raise InputError if an option has an impossible value, or does not go with another."""
    if eps is not None and (isinstance(eps, bool) or not isinstance(eps, Real) or not float(eps) > 0):
        raise InputError(f"eps={eps!r} must be a positive half-width of intervals, such as 0.025.")
    if top is not None:
        check_whole(1, top=top)
    if cache_outputs and cache is None:
        raise InputError("cache_outputs=True needs a folder. Give cache='folder' too.")
    named = isinstance(given, str) or (
        isinstance(given, list | tuple) and all(isinstance(one, str) for one in given)
    )
    if not named:
        raise InputError(
            f"given= takes the names of hypotheses, got a {type(given).__name__}. Put the confounder among "
            "the hypotheses, and write given='its name'."
        )
    if null and given:
        raise InputError(
            f"null={null} permutes hypotheses, which would also take given={given!r} from "
            "them. Leave out one of both."
        )


def check_index(data: Any, hypotheses: Any, **others: Any) -> None:
    """Raise InputError if labels or other arguments of pandas have another index than data of pandas.

    Args:
        data: The data.
        hypotheses: The hypotheses.
        others: Further arguments that may have an entry for each record, by name.
    """
    index = _index(data)
    if index is None:
        return
    labels = [(f"The labels {name} have", "labels", one) for name, one in _labels(hypotheses)]
    for subject, name, given in [*labels, *((f"{name} has", name, given) for name, given in others.items())]:
        other = _index(given)
        if other is not None and len(other) == len(index) and not index.equals(other):
            raise InputError(
                f"{subject} another index than data. Write {name}.loc[data.index] to match by index, or "
                f"{name}.to_numpy() to match by position."
            )


def _labels(hypotheses: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(hypotheses, Mapping):
        return [(repr(name), labels) for name, labels in hypotheses.items()]
    if isinstance(hypotheses, list | tuple):
        return [(f"number {number}", labels) for number, labels in enumerate(hypotheses)]
    return [(repr(getattr(hypotheses, "name", "")), hypotheses)]


def _index(value: Any) -> Any:
    """Return the index of a Series or DataFrame, None for anything else."""
    return value.index if hasattr(value, "iloc") else None
