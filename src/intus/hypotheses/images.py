"""Hypotheses about images: masks of pixels, and segmentation maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError
from .declaration import Declaration, numbered
from .source import as_source, by_record, entries


def masks(given: Any, *, names: Sequence[str] = (), name: str = "mask") -> Any:
    """Label pixels by masks: 1 in the mask, else 0.

    Args:
        given: A mask for each record, as an array (records, height, width) or a list; a dict of these by
            name; a list with a dict of masks by name for each record; or a function of a record that returns
            its mask or a dict of masks. A record whose dict lacks a name has nothing of it: its mask is 0
            everywhere.
        names: The names of all masks that the dicts of a list or a function may have. Default: for a list,
            those it has; a function that returns a dict needs them.
        name: The name of a single mask, which is also used where names clash. Default: ``"mask"``.

    Returns:
        Hypotheses of kind ``"binary"``, for ``inspect``.

    Raises:
        InputError: If a mask has other values than booleans, 0 and 1, or dicts of a function have names that
            are not declared.

    Example:
        >>> found = masks(lambda image: {"dark": image < 0.5}, names=["dark", "bright"])
        >>> found(np.array([[0.0, 1.0]]))["dark"].tolist()
        [[True, False]]
        >>> of_three_records = masks([{"cat": [[True, False]]}, {}, {"dog": [[True, True]]}])
    """
    if callable(given):
        declared = tuple(map(str, names))

        source = as_source(given)

        def of_records(numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
            found = by_record(source, source.answers(numbers, records), len(records))
            return [_of_record(one, declared, n) for n, one in zip(numbers.tolist(), found, strict=True)]

        return numbered(of_records, Declaration(name, "binary", names=declared))
    if isinstance(given, Mapping):
        columns = {str(key): entries(value) for key, value in given.items()}
        lengths = {key: len(column) for key, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise InputError(f"Masks must have an entry for each record under each name, got {lengths}.")
        items = [
            {key: column[i] for key, column in columns.items()} for i in range(next(iter(lengths.values())))
        ]
    else:
        items = list(given)
    found = dict.fromkeys(str(key) for item in items if isinstance(item, Mapping) for key in item)
    all_names = tuple(map(str, names)) or tuple(found)

    def of_numbers(numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
        return [_of_record(items[n], all_names, n) for n in numbers.tolist()]

    return numbered(of_numbers, Declaration(name, "binary", names=all_names, length=len(items)))


def _of_record(answer: Any, names: tuple[str, ...], number: int) -> Any:
    """Return the mask of a record, or its masks by name, 0 where it lacks one."""
    if not isinstance(answer, Mapping):
        if names and answer is not None:
            raise InputError(f"The masks of record {number} must be a dict with names of {list(names)}.")
        return None if answer is None else _mask(answer, number)
    if not names:
        raise InputError(
            f"The masks of record {number} are a dict, so their names must be known: masks(…, names=[…])."
        )
    given = {str(key): _mask(value, number) for key, value in answer.items()}
    unknown = next((key for key in given if key not in names), None)
    if unknown is not None:
        raise InputError(f"The mask {unknown!r} of record {number} is not among names={list(names)}.")
    if not given:
        return None
    empty = np.zeros(next(iter(given.values())).shape, dtype=bool)
    return {key: given.get(key, empty) for key in names}


def _mask(value: Any, number: int) -> np.ndarray:
    mask = np.asarray(value)
    if mask.dtype != bool and not (mask.dtype.kind in "fiu" and np.isin(mask[mask == mask], (0, 1)).all()):
        raise InputError(f"The mask of record {number} must have booleans, 0 and 1 only, got {mask.dtype}.")
    return mask


def categories(
    given: Any,
    names: Sequence[str] | Mapping[int, str],
    *,
    ignore: int | None = None,
    name: str = "categories",
) -> Any:
    """Label pixels by a segmentation map: a binary hypothesis for each category, from one map.

    Args:
        given: The maps, integers (records, height, width), or a function of a record that returns its map.
        names: The name of each category, by its number in the map; a list names 0, 1, 2 …. Categories
            without a name are 0 in all hypotheses.
        ignore: The number of pixels that are not annotated, often 255. Default: none.
        name: The name of the function, which is used where names clash. Default: ``"categories"``.

    Returns:
        Hypotheses of kind ``"binary"``, for ``inspect``.

    Raises:
        InputError: If a map does not have whole numbers, or there are no names.

    Example:
        >>> found = categories(lambda image: np.array([[0, 1], [1, 255]]), {1: "cat"}, ignore=255)
        >>> found("an image")["cat"].tolist()
        [[0.0, 1.0], [1.0, nan]]

    References:
        Bau et al. (2017), "Network Dissection: Quantifying Interpretability of Deep Visual Representations",
        CVPR: units against the categories of a segmentation.
    """
    by_number = dict(names) if isinstance(names, Mapping) else dict(enumerate(names))
    if not by_number:
        raise InputError("categories needs the names of the categories, by their number in the map.")
    labels = tuple(map(str, by_number.values()))
    source = as_source(given, name)

    def of_numbers(numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
        out = []
        maps = by_record(source, source.answers(numbers, records), len(records))
        for n, one in zip(numbers.tolist(), maps, strict=True):
            found = np.asarray(one)
            if found.dtype.kind not in "iu" and not (found.dtype.kind == "f" and (found % 1 == 0).all()):
                raise InputError(f"The map of record {n} must have whole numbers, got {found.dtype}.")
            masks_of = {label: found == number for number, label in by_number.items()}
            if ignore is not None:
                gone = found == ignore
                masks_of = {key: np.where(gone, np.float32(np.nan), mask) for key, mask in masks_of.items()}
            out.append(masks_of)
        return out

    return numbered(of_numbers, Declaration(name, "binary", names=labels, length=source.length))
