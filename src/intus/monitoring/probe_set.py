"""A probe set: a fixed batch with labels that the monitor runs through the model at intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import InputError
from .targets import plain_labels


class ProbeSet(NamedTuple):
    """A fixed batch with labels.

    Attributes:
        inputs: The inputs of the model.
        labels: Labels by name, one per row.
        items: The ids of the rows.
        every: The number of calls of the model between two runs; None for once per epoch.
    """

    inputs: Any
    labels: dict[str, list[Any]]
    items: np.ndarray
    every: int | None


def check_probe_set(given: Any, every: Any, rows_of: Callable[[Any], int | None]) -> ProbeSet | None:
    """Validate the caller's ``probe_set`` and ``every``.

    Args:
        given: The caller's ``probe_set``, or None.
        every: The caller's ``every``, or None.
        rows_of: Returns the number of rows of inputs.

    Returns:
        The probe set, or None if there is none.

    Raises:
        InputError: If one of them is invalid, or a target has not one label per row.
    """
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise InputError(
            f"every must be a number of calls of at least 1, or None for once per epoch, got {every!r}."
        )
    if given is None:
        if every is not None:
            raise InputError(f"every={every} requires a probe set. Pass probe_set=(inputs, labels).")
        return None
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], Mapping):
        raise InputError(
            f"probe_set must be a pair (inputs, {{'name': labels}}), got {type(given).__name__}. The inputs "
            "are a tensor, a tuple of positional arguments or a dict of keywords."
        )
    inputs, named = given
    rows = rows_of(inputs)
    if not rows:
        raise InputError("The inputs of probe_set must have a tensor with at least one row.")
    labels = {}
    for name, values in named.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"The labels of probe_set must have names such as 'digit', got {name!r}.")
        labels[name] = plain_labels(name, values)
        if len(labels[name]) != rows:
            raise InputError(
                f"probe_set has {len(labels[name])} labels of {name!r} for {rows} rows. Give one per row."
            )
    return ProbeSet(inputs, labels, np.arange(rows), every)
