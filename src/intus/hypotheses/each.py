"""Take hypotheses apart: one function for each name, of all or some of the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .columns import names_of
from .declaration import Declaration, numbered
from .source import Source, as_hypotheses, by_record


def each(given: Any, records: int) -> dict[str, Callable[[Any], Any]]:
    """Return a hypothesis function for each name.

    Hypotheses that declare several names are taken apart; their parse is shared by the names of a block.

    Args:
        given: Hypotheses, as the caller of ``inspect`` passes them.
        records: The number of records.

    Raises:
        InputError: If they are no hypotheses, or two have the same name.

    Example:
        >>> list(each([lambda record: 1, {"a": [1, 2]}["a"]], 2))
        ['lambda_0', 'labels_1']
    """
    sources = as_hypotheses(given, records)
    keys = [source.names or ("",) for source in sources]
    out: dict[str, Callable[[Any], Any]] = {}
    for source, names in zip(sources, names_of(sources, keys), strict=True):
        shared = _Last(source)
        for key, name in names.items():
            out[name] = _of_key(shared, key, name)
    return out


def some(hypothesis: Callable[[Any], Any], records: np.ndarray) -> Callable[[Any], Any]:
    """Return a hypothesis for some of the records, which are then numbered from 0.

    Args:
        hypothesis: A result of ``each``.
        records: The numbers of the records.
    """
    declared: Declaration = hypothesis.__dict__["__hypothesis__"]
    answers = declared.answers
    assert answers is not None
    return numbered(
        lambda numbers, block: answers(records[numbers], block), declared._replace(length=len(records))
    )


class _Last:
    """A source that keeps its answers for the last block, so that several names share them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._last: tuple[bytes, list[Any]] = b"", []

    def answers(self, numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
        if self._last[0] != numbers.tobytes():
            found = by_record(self.source, self.source.answers(numbers, records), len(records))
            self._last = numbers.tobytes(), found
        return self._last[1]


def _of_key(shared: _Last, key: str, name: str) -> Callable[[Any], Any]:
    def answers(numbers: np.ndarray, records: Sequence[Any]) -> list[Any]:
        found = shared.answers(numbers, records)
        return [answer.get(key) if key and isinstance(answer, Mapping) else answer for answer in found]

    source = shared.source
    return numbered(answers, Declaration(name, source.kind, length=source.length))
