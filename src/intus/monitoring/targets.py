"""Convert targets to plain JSON, and validate them. It is pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..core.errors import InputError

_MAX_AXES = 8
#: The lengths of nested lists along each axis; the last may be a tuple, of the length of each row.
_Shape = tuple[int | tuple[int, ...], ...]


class RegisteredTarget(NamedTuple):
    """Labels that this process registered.

    Attributes:
        name: The name.
        labels: The labels, from ``plain_labels``.
        groups: The ids of groups, or None.
        types: The ids of types, or None.
        model_pattern: Regular expression for the names of models.
        layer_pattern: Regular expression for the addresses of layers.
        run_pattern: Regular expression for the names of runs.
    """

    name: str
    labels: list[Any]
    groups: list[Any] | None = None
    types: list[Any] | None = None
    model_pattern: str = ".*"
    layer_pattern: str = ".*"
    run_pattern: str = ".*"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The name and the patterns. Labels replace those of the same key, and stand beside others."""
        return self.name, self.model_pattern, self.layer_pattern, self.run_pattern

    def is_for(self, model: str, run: str) -> bool:
        """Return whether the labels are for a model of a run."""
        return bool(re.search(self.model_pattern, model) and re.search(self.run_pattern, run))


def in_use(targets: Iterable[RegisteredTarget], model: str, run: str) -> list[RegisteredTarget]:
    """Return the targets that a model of a run is scored on at some of its layers.

    Of targets of one name, a layer is scored on the one that was registered last.

    Args:
        targets: The targets of this process, the newest last.
        model: The name of the model.
        run: The name of the run.

    Example:
        >>> old, new = RegisteredTarget("y", [0, 1]), RegisteredTarget("y", [1, 2, 0], run_pattern="^r$")
        >>> [len(one.labels) for one in in_use([old, new], "m", "r")], len(in_use([old, new], "m", "q"))
        ([3], 1)
    """
    found: list[RegisteredTarget] = []
    for one in targets:
        if one.is_for(model, run):
            is_for_all = one.layer_pattern == ".*"
            found = [
                earlier
                for earlier in found
                if earlier.name != one.name or not (is_for_all or earlier.layer_pattern == one.layer_pattern)
            ]
            found.append(one)
    return found


def plain_labels(name: str, targets: Any) -> list[Any]:
    """Convert labels to nested lists of ints, floats, strings, bools and None.

    The lists of labels of positions may differ in length.

    Args:
        name: The name of the target, for error messages.
        targets: A list, numpy array, torch tensor, pandas Series, or anything else with ``tolist``. NaN and
            pandas' missing values become None, which means no label. An array of shape (N, 1) has N labels.

    Raises:
        InputError: If the targets are empty, of another type, or nested differently in each row, contain no
            label, or contain a string beside a number that is written alike.

    Example:
        >>> plain_labels("pos", [["N", "V"], ["V", float("nan"), "N"]])
        [['N', 'V'], ['V', None, 'N']]
    """
    what = f"targets of {name!r}"
    labels, shape = _nested(what, _column(targets))
    if not _any_label(labels):
        raise InputError(f"{what} contain no label: all entries (shape {shape}) are missing.")
    _refuse_alike(what, labels)
    return labels


def _refuse_alike(what: str, labels: list[Any]) -> None:
    """Raise InputError for labels such as 1 and "1", which would be two classes of one name."""
    distinct = set(_flat(labels))
    texts = {label for label in distinct if isinstance(label, str)}
    alike = next((label for label in distinct if not isinstance(label, str) and str(label) in texts), None)
    if alike is not None:
        raise InputError(
            f"{what} contain {alike!r} and {str(alike)!r}, which would be two classes of one name. Make all "
            "labels strings, or none."
        )


def _flat(labels: list[Any]) -> Iterator[Any]:
    for label in labels:
        if isinstance(label, list):
            yield from _flat(label)
        else:
            yield label


def _column(given: Any) -> Any:
    """Return an array of shape (N, 1) as one of shape (N,): it has one entry for each row."""
    shape = tuple(getattr(given, "shape", ()))
    if len(shape) != 2 or shape[1] != 1:
        return given
    return given.to_numpy().reshape(-1) if hasattr(given, "to_numpy") else given.reshape(-1)


def doubt_of_shape(name: str, labels: list[Any]) -> str:
    """Return a warning if lists of labels look like classes in another form than one label per row.

    They may be labels of positions, such as which word of a sentence is its verb, so they are not changed.

    Args:
        name: The name of the target.
        labels: Its labels, from ``plain_labels``.

    Example:
        >>> doubt_of_shape("digit", [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]])[:58]
        "labels of 'digit' of shape (4, 3) look one-hot, and are ta"
        >>> doubt_of_shape("pos", [["N", "V"], ["V", "N"]])
        ''
    """
    if not isinstance(labels[0], list) or are_ragged(labels):
        return ""
    width = len(labels[0])
    if not 1 < width < len(labels) or not all(_is_one_hot(row) for row in labels):
        return ""
    return (
        f"labels of {name!r} of shape ({len(labels)}, {width}) look one-hot, and are taken as labels of "
        f"{width} positions of each row. For one class per row, pass labels.argmax(1)."
    )


def _is_one_hot(row: list[Any]) -> bool:
    return row.count(1) == 1 and row.count(0) == len(row) - 1


def are_ragged(labels: list[Any]) -> bool:
    """Return whether labels are lists of different lengths, each as long as its item."""
    return len({len(row) if isinstance(row, list) else -1 for row in labels}) > 1


def check_lengths(name: str, labels: list[Any], inputs: Any) -> None:
    """Check lists of labels that differ in length against the mask that says which positions are no padding.

    Args:
        name: The name of the target.
        labels: Its labels, from ``plain_labels``.
        inputs: The inputs of the model. Without an ``attention_mask`` of shape (rows, positions) among them
            nothing is checked.

    Raises:
        InputError: If a row has padding in front, or another number of labels than of other positions.
    """
    mask: Any = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    if len(getattr(mask, "shape", ())) != 2 or not are_ragged(labels):
        return
    for row, (length, positions) in enumerate(zip(map(len, labels), mask.tolist(), strict=True)):
        if [bool(one) for one in positions] != [at < length for at in range(len(positions))]:
            raise InputError(
                f"targets of {name!r} have {length} labels for row {row}, but its attention_mask is "
                f"{positions}. Labels belong to the first positions: give each list one for each position, "
                "None for those without a label."
            )


def plain_ids(what: str, given: Any, labels: list[Any]) -> list[Any] | None:
    """Convert the ids of groups or of types to plain JSON, and check that they fit the labels.

    Args:
        what: ``"groups"``, which has one id per row, or ``"types"``, which has one for each label.
        given: The caller's ids: whole numbers or strings in a list or an array; or None.
        labels: The labels of the target, from ``plain_labels``.

    Returns:
        The ids as (nested) lists; None for None.

    Raises:
        InputError: If they have another shape than the labels, or are not ids.

    Example:
        >>> plain_ids("groups", ("a", "a", "b"), [1, 0, None])
        ['a', 'a', 'b']
    """
    if given is None:
        return None
    ids, shape = _nested(what, _column(given))
    wanted = _shape("targets", labels)
    wanted = wanted[:1] if what == "groups" else wanted
    if shape != wanted:
        each = "row" if what == "groups" else "label"
        raise InputError(
            f"{what} has shape {shape}, but the targets need {wanted}. Give one id for each {each}."
        )
    _check_ids(what, ids, labels, ())
    return ids


def _check_ids(what: str, ids: Any, labels: Any, position: tuple[int, ...]) -> None:
    """Raise InputError for an id that is no whole number or string, or is missing where there is a label."""
    if isinstance(ids, list):
        for number, (part, label) in enumerate(zip(ids, labels, strict=True)):
            _check_ids(what, part, label, (*position, number))
    elif ids is None and what == "types" and labels is None:
        return  # padding
    elif not isinstance(ids, int | str):
        raise InputError(f"{what} must be whole numbers or strings, got {ids!r} at {_brackets(position)}.")


def _nested(what: str, given: Any) -> tuple[list[Any], _Shape]:
    """Return nested lists and their shape; InputError if they are empty or not nested alike."""
    plain = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(plain, list | tuple):
        raise InputError(f"{what} must be a list or an array, got {type(given).__name__}.")
    rows: list[Any] = [_plain(what, entry, (row,)) for row, entry in enumerate(plain)]
    shape = _shape(what, rows)
    if 0 in shape:
        raise InputError(f"{what} are empty: shape {shape}. Give one entry per row.")
    return rows, shape


def check_pattern(name: str, pattern: Any) -> str:
    """Validate a regular expression.

    Args:
        name: The name of the argument, for error messages.
        pattern: The caller's value.

    Returns:
        The pattern.

    Raises:
        InputError: If it is not a regular expression.
    """
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InputError(f"{name} must be a regular expression, got {pattern!r}: {error}.") from None
    if not isinstance(pattern, str):
        raise InputError(f"{name} must be a string, got {pattern!r}.")
    return pattern


def _plain(what: str, label: Any, position: tuple[int, ...]) -> Any:
    if hasattr(label, "tolist"):  # a numpy scalar, an array in a list, a tensor
        label = label.tolist()
    if isinstance(label, list | tuple):
        if len(position) >= _MAX_AXES:
            raise InputError(f"{what} must be nested at most {_MAX_AXES} lists deep.")
        return [_plain(what, part, (*position, number)) for number, part in enumerate(label)]
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(label, float):
        if math.isinf(label):
            raise InputError(f"{what} must be finite, got {label!r} at {_brackets(position)}.")
        return None if math.isnan(label) else float(label)
    if isinstance(label, bool | int | str):
        return label
    raise InputError(
        f"{what} must be int, float, str or bool, or None for no label, got {label!r} of type "
        f"{type(label).__name__} at {_brackets(position)}."
    )


def _shape(what: str, labels: list[Any], axis: int = 0) -> _Shape:
    """Return the shape of nested lists; InputError names rows that are not nested alike."""
    parts = [_shape(what, part, axis + 1) if isinstance(part, list) else () for part in labels]
    if not axis and len(set(parts)) > 1 and all(map(_is_flat, labels)):
        return len(labels), tuple(map(len, labels))
    for row, part in enumerate(parts):
        if part != parts[0]:
            raise InputError(
                f"{what} are not nested alike: entry 0 has shape {parts[0]}, entry {row} has {part}. "
                "Give one label per row, or one list of labels per row."
            )
    return (len(labels), *(parts[0] if parts else ()))


def _is_flat(part: Any) -> bool:
    return isinstance(part, list) and not any(isinstance(one, list) for one in part)


def _any_label(labels: list[Any]) -> bool:
    return any(label is not None for label in _flat(labels))


def _brackets(position: tuple[int, ...]) -> str:
    return "".join(f"[{number}]" for number in position)
