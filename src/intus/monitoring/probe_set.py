"""A probe set: a fixed batch with labels that the monitor runs through the model at intervals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import InputError
from .targets import plain_ids, plain_labels


class ProbeSet(NamedTuple):
    """A fixed batch with labels.

    Attributes:
        inputs: The inputs of the model.
        labels: Labels by name, one per row.
        groups: The group of each row, or None.
        types: The types of the labels of each name, or None.
        items: The ids of the rows.
        every: The number of calls of the model between two runs; None for once per epoch.
    """

    inputs: Any
    labels: dict[str, list[Any]]
    groups: list[Any] | None
    types: dict[str, list[Any] | None]
    items: np.ndarray
    every: int | None

    @property
    def outline(self) -> str:
        """A text that differs for another number of rows, other labels, or other times to run."""
        labels = hashlib.blake2b(json.dumps(self.labels).encode(), digest_size=4).hexdigest()
        when = "every epoch" if self.every is None else f"every={self.every}"
        return f"{len(self.items)} rows ({when}, labels {labels})"


def check_probe_set(given: Any, every: Any, rows_of: Callable[[Any], int | None]) -> ProbeSet | None:
    """Validate the caller's ``probe_set`` and ``every``.

    Args:
        given: The caller's ``probe_set``, or None.
        every: The caller's ``every``, or None.
        rows_of: Returns the number of rows of inputs.

    Returns:
        The probe set, or None if there is none.

    Raises:
        InputError: If one of them is invalid, or labels, groups or types do not fit the rows.
    """
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise InputError(
            f"every must be a number of calls of at least 1, or None for once per epoch, got {every!r}."
        )
    if given is None:
        if every is not None:
            raise InputError(f"every={every} requires a probe set. Pass probe_set=(inputs, labels).")
        return None
    maps = given[1:] if isinstance(given, tuple) else ()
    if len(maps) not in (1, 2) or not all(isinstance(one, Mapping) for one in maps):
        raise InputError(
            f"probe_set must be a pair (inputs, {{'name': labels}}), got {type(given).__name__}. The inputs "
            "are a tensor, a tuple of positional arguments or a dict of keywords. A third part may name "
            "{'groups': ids, 'types': ids}."
        )
    inputs, named = given[0], maps[0]
    ids: Mapping[str, Any] = maps[1] if len(maps) == 2 else {}
    if unknown := [name for name in ids if name not in ("groups", "types")]:
        raise InputError(f"The third part of probe_set may have 'groups' and 'types', got {unknown[0]!r}.")
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
    groups = plain_ids("groups", ids.get("groups"), [None] * rows)
    types = _types_of(ids.get("types"), labels) if "types" in ids else _tokens_of(inputs, labels)
    return ProbeSet(inputs, labels, groups, types, np.arange(rows), every)


def _types_of(given: Any, labels: dict[str, list[Any]]) -> dict[str, list[Any] | None]:
    """Return the types of each target whose labels they fit; InputError if there is no such target."""
    out: dict[str, list[Any] | None] = {}
    reason: InputError | None = None
    for name, column in labels.items():
        try:
            out[name] = plain_ids("types", given, column)
        except InputError as error:
            reason, out[name] = error, None
    if reason is not None and not any(out.values()):
        raise reason
    return out


def _tokens_of(inputs: Any, labels: dict[str, list[Any]]) -> dict[str, list[Any] | None]:
    """Return the token ids of the inputs as the types of labels of tokens; None for other labels.

    Inputs of token ids are an integer tensor of shape (rows, positions) or (rows,), alone, first among
    positional arguments, or named ``input_ids``.
    """
    if isinstance(inputs, Mapping):
        inputs = inputs.get("input_ids", next(iter(inputs.values())) if len(inputs) == 1 else None)
    elif isinstance(inputs, tuple | list):
        inputs = inputs[0]
    shape = tuple(getattr(inputs, "shape", ()))
    if "int" not in str(getattr(inputs, "dtype", "")) or len(shape) not in (1, 2):
        return dict.fromkeys(labels)
    tokens = inputs.tolist()
    return {name: _fitted(tokens, column) for name, column in labels.items()}


def _fitted(tokens: list[Any], labels: list[Any]) -> list[Any] | None:
    """Return tokens cut or padded to the labels of positions; None if they are not labels of tokens."""
    nested = isinstance(tokens[0], list)
    if not nested or not isinstance(labels[0], list):
        return None if nested or isinstance(labels[0], list) else tokens
    width = len(labels[0])
    fitted = [[*row[:width], *[None] * (width - len(row))] for row in tokens]
    beyond = any(label is not None for row in labels for label in row[len(tokens[0]) :])
    return None if beyond else fitted
