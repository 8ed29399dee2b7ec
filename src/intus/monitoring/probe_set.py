"""A probe set: a fixed batch with labels that the monitor runs through the model itself, now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import InputError
from .targets import plain_labels


class ProbeSet(NamedTuple):
    """``inputs`` as the model is called with, ``labels`` by name, the rows' ``items``; ``every`` is how many
    calls lie between two runs, None for once an epoch."""

    inputs: Any
    labels: dict[str, list[Any]]
    items: np.ndarray
    every: int | None


def check_probe_set(given: Any, every: Any, rows_of: Callable[[Any], int | None]) -> ProbeSet | None:
    """What the caller wrote as ``probe_set`` and ``every``, checked: every label has its row."""
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise InputError(
            f"every={every!r} is not a number of calls. Write 1 or more, or None for each epoch."
        )
    if given is None:
        if every is not None:
            raise InputError(
                f"every={every} says when a probe set is run; give one: probe_set=(inputs, labels)."
            )
        return None
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], Mapping):
        raise InputError(
            f"probe_set must be a pair (inputs, {{'name': labels}}), got {type(given).__name__}. The inputs "
            "are a tensor, a tuple of positional arguments or a dict of keywords."
        )
    inputs, named = given
    rows = rows_of(inputs)
    if not rows:
        raise InputError("probe_set has inputs without a tensor that has rows; give at least one row.")
    labels = {}
    for name, values in named.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"probe_set has labels under {name!r}. Write a word such as 'digit'.")
        labels[name] = plain_labels(name, values)
        if len(labels[name]) != rows:
            raise InputError(
                f"probe_set has {len(labels[name])} labels of {name!r} for {rows} rows. Give one per row."
            )
    return ProbeSet(inputs, labels, np.arange(rows), every)
