"""Read the groups, the types and the confounders that the caller of ``inspect`` passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import InputError, did_you_mean
from ..hypotheses.columns import Column
from .behaviours import Records
from .hypotheses import Labels, as_hypotheses
from .running.cache import Cache

_TYPES = "types"


@dataclass(frozen=True, slots=True)
class Observations:
    """The groups of records and the types of symbols.

    Attributes:
        groups: The id of each record's group, (records,); None if each record is a group.
        types: The types, as labels of one hypothesis; None if there are none.
        confounders: The names of the hypotheses that are confounders.
    """

    groups: np.ndarray | None
    types: Labels | None
    confounders: tuple[str, ...] = ()

    def types_of_block(self, numbers: np.ndarray, block: Callable[[], Sequence[Any]]) -> Column | None:
        """Return the types of a block's symbols, (records, …grid); None if there are none."""
        if self.types is None:
            return None
        types = self.types.columns(numbers, block)
        if list(types) != [_TYPES]:
            raise InputError(f"types must give one type per symbol, got several: {list(types)}. Choose one.")
        return types[_TYPES]


def groups_of(given: Any, records: Records) -> np.ndarray | None:
    """Return the group of each record.

    Args:
        given: An id per record, or a function of a record; None for no groups.
        records: The records.

    Raises:
        InputError: If there is not one id per record, or only one group.
    """
    if given is None:
        return None
    if callable(given):
        given = [given(records.block(np.array([number]))[0]) for number in range(len(records))]
    groups = np.asarray(given)
    if groups.shape != (len(records),):
        raise InputError(
            f"groups has shape {groups.shape}, but there are {len(records)} records; give one id per record."
        )
    missing = [one is None or one != one for one in groups.tolist()]
    if any(missing):
        raise InputError(
            f"groups has no id for {sum(missing)} records, such as record {missing.index(True)}. Give each "
            "record an id."
        )
    if len(groups) and (groups == groups[0]).all():
        raise InputError(
            f"groups has a single group, {groups.tolist()[0]!r}, so no group can be held out. Give the "
            "document, episode or subject of each record, or leave groups out."
        )
    return groups


def types_of(given: Any, records: int, cache: Cache) -> Labels | None:
    """Return the types of symbols as labels, from what the caller passed; raises InputError.

    Args:
        given: What the caller passed.
        records: The number of records.
        cache: The folder in which labels are kept.
    """
    return None if given is None else Labels(as_hypotheses({_TYPES: given}, records), cache=cache)


def confounders_of(given: str | Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the confounders.

    Args:
        given: One name or several.
        known: The names of all hypotheses.

    Raises:
        InputError: If one names no hypothesis, or no hypothesis is left.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in known:
            raise InputError(f"given={name!r} names no hypothesis. {did_you_mean(str(name), known)}")
    if names and len(set(names)) == len(known):
        raise InputError(f"given={list(names)} names all hypotheses, so that none is left to score.")
    return names
