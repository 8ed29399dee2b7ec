"""Notes of scores: what a reader should know of a score, and the facts among it that findings follow from.

A note consists of remarks, in words, with semicolons between them. A database keeps these words. So where a
remark decides what may be said of a score, this module alone writes it and reads it, and what others compute
with are ``Facts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_BETWEEN = "; "

#: The remarks that say that something is so, by the fact.
_SAID = {
    "has_copies": "many held-out rows are exact copies of fitted ones: pass groups=",
    "has_other_inputs": "items with other inputs than in earlier epochs",
    "is_untrained": "parameters as before the training",
    "are_numbers": "the labels are numbers (see r2)",
}
_NUMBER = "labels no. {} of this name"
_CLASSES, _SET = "rows of {} of {} classes ({})", ", set {}"
_FITTED = "fitted to {} rows, fewer than 10 per class: more would give a higher score"
_DOUBT, _REASON = "labels are perhaps of other rows", ": {}"


def joined(*notes: str) -> str:
    """Return one note of several; those that are empty do not count.

    >>> joined("first", "", "second; third")
    'first; second; third'
    """
    return _BETWEEN.join(filter(None, notes))


def remarks(note: str) -> list[str]:
    """Return the remarks that a note consists of.

    >>> remarks("first; second"), remarks("")
    (['first', 'second'], [])
    """
    return note.split(_BETWEEN) if note else []


def within(name: str) -> str:
    """Return a name as a remark may have it: it must not end the remark, and begin what reads as another.

    >>> within("mine; labels no. 2 of this name")
    'mine, labels no. 2 of this name'
    """
    return name.replace(";", ",")


@dataclass(frozen=True, slots=True)
class SomeClasses:
    """The classes of the rows of a score, if they lack some that as many rows at random would have.

    Attributes:
        known: The number of those that the rows have.
        every: The number of all.
        named: The first of them in words, without parentheses.
        code: Tells them apart from others for which the words are the same; "" if the words do.
    """

    known: int
    every: int
    named: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts in a note that decide what follows from its score.

    Attributes:
        number: The number of the score's labels among those of their name that were registered, from 1.
            Scores of different labels do not compare.
        classes: The classes of its rows, if they lack some. Scores of different classes do not compare.
        has_copies: Whether many rows are copies of others, so that it may show only that they are recognized.
        has_other_inputs: Whether the inputs of its items were seen to be others than before.
        is_untrained: Whether it is of a model that a training had not changed.
        are_numbers: Whether its labels are numbers that are not whole, although it is a classifier's.
        few_fitted: The number of rows that the classifier was fitted to, if they are few; else 0.
        doubts: The reasons for which its labels are perhaps of other rows.

    Example:
        >>> Facts(number=2, is_untrained=True).note
        'labels no. 2 of this name; parameters as before the training'
        >>> Facts.of("matched 3 of 4 labels; labels no. 2 of this name")
        Facts(number=2, classes=None, ..., doubts=())
    """

    number: int = 1
    classes: SomeClasses | None = None
    has_copies: bool = False
    has_other_inputs: bool = False
    is_untrained: bool = False
    are_numbers: bool = False
    few_fitted: int = 0
    doubts: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """The facts in words, as ``of`` reads them; "" if there is nothing to say."""
        return joined(*self._remarks())

    def _remarks(self) -> Iterator[str]:
        if self.number > 1:
            yield _NUMBER.format(self.number)
        if (found := self.classes) is not None:
            words = _CLASSES.format(f"{found.known:,}", f"{found.every:,}", within(found.named))
            yield words + _SET.format(found.code) * bool(found.code)
        for name, words in _SAID.items():
            if getattr(self, name):
                yield words
        if self.few_fitted:
            yield _FITTED.format(f"{self.few_fitted:,}")
        for reason in self.doubts:
            yield _DOUBT + _REASON.format(within(reason)) * bool(reason)

    @classmethod
    def of(cls, note: str) -> Facts:
        """Return the facts in a note, whatever else it says."""
        return _read(note)


def _pattern(words: str, *parts: str) -> str:
    """Return the pattern of words that have something in place of each ``{}``."""
    first, *rest = map(re.escape, words.split("{}"))
    return first + "".join(f"({part}){after}" for part, after in zip(parts, rest, strict=True))


_COUNT = "[0-9][0-9,]{0,15}"
_READ_NUMBER = re.compile(_pattern(_NUMBER, "[0-9]{1,9}"))
_READ_CLASSES = re.compile(
    f"{_pattern(_CLASSES, _COUNT, _COUNT, '[^()]*')}(?:{_pattern(_SET, '[0-9a-f]+')})?"
)
_READ_FITTED = re.compile(_pattern(_FITTED, _COUNT))
_READ_DOUBT = re.compile(f"{_pattern(_DOUBT)}(?:{_pattern(_REASON, '.*')})?", re.DOTALL)


@lru_cache(maxsize=4096)  # many scores have the same note
def _read(note: str) -> Facts:
    number, few_fitted, classes, doubts = 1, 0, None, list[str]()
    parts = remarks(note)
    for part in parts:
        if found := _READ_NUMBER.fullmatch(part):
            number = int(found[1])
        elif found := _READ_CLASSES.fullmatch(part):
            known, every = (int(count.replace(",", "")) for count in found.group(1, 2))
            classes = SomeClasses(known, every, found[3], found[4] or "")
        elif found := _READ_FITTED.fullmatch(part):
            few_fitted = int(found[1].replace(",", ""))
        elif found := _READ_DOUBT.fullmatch(part):
            doubts.append(found[1] or "")
    said = {name: words in parts for name, words in _SAID.items()}
    return Facts(number, classes, **said, few_fitted=few_fitted, doubts=tuple(doubts))
