"""A probe set: a fixed batch with labels that the monitor runs through the model at intervals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core.errors import InputError, did_you_mean
from ..core.names import check_name
from .targets import check_lengths, check_pattern, plain_ids, plain_labels

#: Whether statistics are made: always, never, or where they are cheaper than sending rows.
StatisticsChoice = bool | Literal["auto"]


class ProbeSet(NamedTuple):
    """A fixed batch with labels, or the share of it that a process runs.

    Attributes:
        inputs: The inputs of the model.
        labels: Labels by name, one per row of the whole batch.
        groups: The group of each row of the whole batch, or None.
        types: The types of the labels of each name, or None.
        typed: Whether the caller gave the types; else they are token ids.
        layers: Regular expressions for the addresses of the layers that labels are meant for, by name.
        items: The ids of the rows of ``inputs``: their numbers in the whole batch.
        every: The number of calls of the model between two runs; None for once per epoch.
        rank: The number of the process among those that share the batch, from 0.
        ranks: The number of these processes.
    """

    inputs: Any
    labels: dict[str, list[Any]]
    groups: list[Any] | None
    types: dict[str, list[Any] | None]
    typed: bool
    layers: dict[str, str]
    items: np.ndarray
    every: int | None
    rank: int = 0
    ranks: int = 1

    @property
    def outline(self) -> str:
        """A text that differs for another number of rows, other labels, or other times to run."""
        labels = hashlib.blake2b(json.dumps(self.labels).encode(), digest_size=4).hexdigest()
        when = "every epoch" if self.every is None else f"every={self.every}"
        return f"{len(self.items)} rows ({when}, labels {labels})"

    def with_copies_together(self, contents: np.ndarray | None) -> ProbeSet:
        """Return it with rows that are exact copies in one group, unless it has groups.

        Otherwise rows would be tested on their copies. Rows that are single numbers, such as tokens, are
        often equal: what they are is named by ``types``.

        Args:
            contents: The hashes of the rows; None if they cannot be compared.
        """
        if self.groups is not None or contents is None or len(getattr(self.inputs, "shape", (0, 0))) < 2:
            return self
        _, first, groups = np.unique(contents, return_index=True, return_inverse=True)
        return self if len(first) == len(contents) else self._replace(groups=first[groups].tolist())

    def share(self, ranks: Any, axis: int) -> ProbeSet:
        """Return the share of a process.

        Args:
            ranks: The caller's ``ranks``: the number of the process, and of all.
            axis: The axis of the rows.

        Raises:
            InputError: If ``ranks`` is invalid, or there are fewer rows than processes.
        """
        pair: list[Any] = list(ranks) if isinstance(ranks, tuple | list) else []
        if [type(number) for number in pair] != [int, int] or not 0 <= pair[0] < pair[1]:
            raise InputError(
                f"ranks must be the rank of this process and the number of processes, such as (0, 4), got "
                f"{ranks!r}."
            )
        (rank, count), rows = pair, len(self.items)
        if rows < count:
            raise InputError(f"ranks={ranks!r} cannot share a probe set of {rows} rows. Give it more rows.")
        inputs = taken(self.inputs, axis, rows, slice(rank, None, count))
        return self._replace(inputs=inputs, items=self.items[rank::count], rank=rank, ranks=count)


def taken(inputs: Any, axis: int, rows: int, which: slice | np.ndarray) -> Any:
    """Return inputs with some rows of each tensor that has so many rows."""
    if isinstance(inputs, Mapping):
        return {name: taken(value, axis, rows, which) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        parts = [taken(value, axis, rows, which) for value in inputs]
        return type(inputs)(*parts) if hasattr(inputs, "_fields") else type(inputs)(parts)
    shape = tuple(getattr(inputs, "shape", ()))
    if len(shape) <= axis or shape[axis] != rows:
        return inputs
    return inputs[(slice(None),) * axis + (which,)]


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
            "{'groups': ids, 'types': ids, 'layers': {'name': pattern}}."
        )
    inputs, named = given[0], maps[0]
    ids: Mapping[str, Any] = maps[1] if len(maps) == 2 else {}
    if unknown := [name for name in ids if name not in ("groups", "types", "layers")]:
        raise InputError(
            f"The third part of probe_set may have 'groups', 'types' and 'layers', got {unknown[0]!r}."
        )
    rows = rows_of(inputs)
    if not rows:
        raise InputError("The inputs of probe_set must have a tensor with at least one row.")
    labels = {}
    for name, values in named.items():
        check_name("A name of labels in probe_set", name, " such as 'digit'")
        labels[name] = plain_labels(name, values)
        if len(labels[name]) != rows:
            raise InputError(
                f"probe_set has {len(labels[name])} labels of {name!r} for {rows} rows. Give one per row."
            )
        check_lengths(name, labels[name], inputs)
    groups = plain_ids("groups", ids.get("groups"), [None] * rows)
    types = _types_of(ids.get("types"), labels) if "types" in ids else _tokens_of(inputs, labels)
    layers = _layers_of(ids.get("layers", {}), labels)
    return ProbeSet(inputs, labels, groups, types, "types" in ids, layers, np.arange(rows), every)


def _layers_of(given: Any, labels: Mapping[str, Any]) -> dict[str, str]:
    """Return the pattern of the layers of each target that names one."""
    if not isinstance(given, Mapping):
        raise InputError(
            f"layers must map names of targets to regular expressions for addresses, got {given!r}."
        )
    _check_names("layers", given, labels)
    return {name: check_pattern(f"layers[{name!r}]", pattern) for name, pattern in given.items()}


def _check_names(part: str, given: Mapping[str, Any], labels: Mapping[str, Any]) -> None:
    for name in given:
        if name not in labels:
            raise InputError(f"{part} names {name!r}, which has no labels. {did_you_mean(name, labels)}")


def _types_of(given: Any, labels: dict[str, list[Any]]) -> dict[str, list[Any] | None]:
    """Return the types of each target whose labels they fit; InputError if there is no such target.

    A mapping names the types of each target, None or left out for a target without.
    """
    if isinstance(given, Mapping):
        _check_names("types", given, labels)
        return {
            name: None if (ids := given.get(name)) is None else plain_ids(f"types[{name!r}]", ids, column)
            for name, column in labels.items()
        }
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
    positional arguments, or named ``input_ids``. If the model is also called with other token ids, such as
    those of a decoder, nobody knows which of them the labels belong to, and there are no types.
    """
    if isinstance(inputs, Mapping):
        every = list(inputs.values())
        first = inputs.get("input_ids", every[0] if len(every) == 1 else None)
    else:
        every = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
        first = every[0]
    others = [other for other in every if other is not first and _has_ids(other)]
    if not _has_ids(first) or any(map(_is_vocabulary, others)):
        return dict.fromkeys(labels)
    tokens = first.tolist()
    return {name: _fitted(tokens, column) for name, column in labels.items()}


def _has_ids(value: Any) -> bool:
    shape = tuple(getattr(value, "shape", ()))
    return "int" in str(getattr(value, "dtype", "")) and len(shape) in (1, 2)


def _is_vocabulary(ids: Any) -> bool:
    """Return whether ids may be tokens: more than two values, and not the same in every row."""
    rows = ids.tolist()
    values = {value for row in rows for value in (row if isinstance(row, list) else [row])}
    return len(values) > 2 and any(row != rows[0] for row in rows)


def _fitted(tokens: list[Any], labels: list[Any]) -> list[Any] | None:
    """Return tokens cut or padded to the labels of positions; None if they are not labels of tokens."""
    nested = isinstance(tokens[0], list)
    if not nested or not isinstance(labels[0], list):
        return None if nested or isinstance(labels[0], list) else tokens
    widths = map(len, labels)
    fitted = [[*row[:width], *[None] * (width - len(row))] for row, width in zip(tokens, widths, strict=True)]
    beyond = any(label is not None for row in labels for label in row[len(tokens[0]) :])
    return None if beyond else fitted


def check_statistics(given: Any, *, framework: str, able: bool) -> StatisticsChoice:
    """Validate the ``statistics`` of a probe.

    Args:
        given: The caller's value.
        framework: The name of the model's framework.
        able: Whether its backend can make statistics.

    Raises:
        InputError: If it is neither True, False nor "auto", or cannot be True.
    """
    if given is not True and given is not False and given != "auto":
        raise InputError(f"statistics must be True, False or 'auto', got {given!r}.")
    if given is True and not able:
        raise InputError(
            f"statistics=True is for models of PyTorch, got one of {framework}. Leave it out to send rows."
        )
    return given if able else False
