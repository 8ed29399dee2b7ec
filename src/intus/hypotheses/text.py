"""Hypotheses about text: matches of a regular expression, words of a lexicon, nesting of brackets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError
from .declaration import Declaration, declare, many
from .spans import check_encoding, mark, text_of


def regex(
    pattern: str, flags: int = 0, *, encoding: str = "inside", name: str | None = None
) -> Callable[[str], Any]:
    """Label the characters that a regular expression matches.

    A pattern with named groups gives a hypothesis for each group, from one search.

    Args:
        pattern: The regular expression, as for ``re``.
        flags: Its flags, such as ``re.IGNORECASE``. Default: none.
        encoding: ``"inside"`` labels all characters of a match 1, ``"boundary"`` its first and last.
            Default: ``"inside"``.
        name: The name of the hypothesis. Default: the pattern.

    Returns:
        A hypothesis function of a text, of kind ``"binary"``: an array (characters,), or a dict of these by
        the name of the group.

    Raises:
        InputError: If the pattern is no regular expression, or the encoding is unknown.

    Example:
        >>> regex("[0-9]+")("a 12").tolist()
        [False, False, True, True]
        >>> both = regex("(?P<key>[a-z]+)=(?P<value>[0-9]+)")
        >>> both("k=42")["value"].tolist()
        [False, False, True, True]

    References:
        Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks", SIGMOD: the two encodings.
    """
    check_encoding(encoding, "regex")
    try:
        compiled = re.compile(pattern, flags)
    except re.error as error:
        raise InputError(f"The pattern {pattern!r} is no regular expression: {error}.") from error
    groups = tuple(compiled.groupindex)

    def rows(text: str) -> np.ndarray:
        matches = list(compiled.finditer(text_of(text, "regex")))
        out = np.zeros((max(1, len(groups)), len(text)), dtype=bool)
        if not groups:
            mark(out[0], (match.span() for match in matches), encoding)
        for row, group in zip(out, groups, strict=False):
            mark(row, (match.span(group) for match in matches), encoding)
        return out

    if groups:
        return many(rows, name or "regex", groups, "binary")
    return _single(lambda text: rows(text)[0], name or pattern)


def lexicon(
    words: str | Iterable[str] | Mapping[str, str | Iterable[str]],
    *,
    case: bool = False,
    name: str = "lexicon",
) -> Callable[[str | Sequence[str]], Any]:
    """Label where the words of a list occur, as whole words.

    The symbols of a text are its characters, those of a list of tokens the tokens. An entry of several words
    must occur with the same white space in a text, and as consecutive tokens in a list.

    Args:
        words: The words; or a dict of lists of words, for a hypothesis by name for each.
        case: Whether upper and lower case differ. Default: False.
        name: The name of the hypothesis of a single list. Default: ``"lexicon"``.

    Returns:
        A hypothesis function of a text or of a list of tokens, of kind ``"binary"``: an array (symbols,), or
        a dict of these by name.

    Raises:
        InputError: If there are no words, or one is empty.

    Example:
        >>> lexicon(["the", "a"])("A cat").tolist()
        [True, False, False, False, False]
        >>> lexicon({"article": ["the", "a"], "animal": "cat"})(["the", "cat"])["animal"].tolist()
        [False, True]
    """
    lists = {str(key): _words(value) for key, value in words.items()} if isinstance(words, Mapping) else {}
    names = tuple(lists)
    searches = [_search(entries, case) for entries in (list(lists.values()) or [_words(words)])]

    def rows(record: str | Sequence[str]) -> np.ndarray:
        return np.array([search(record) for search in searches])

    if names:
        return many(rows, name, names, "binary")
    return _single(lambda record: rows(record)[0], name)


def _words(words: Any) -> list[str]:
    entries = [words] if isinstance(words, str) else list(words)
    bad = next((word for word in entries if not isinstance(word, str) or not word.strip()), None)
    if bad is not None or not entries:
        raise InputError(f"lexicon needs words, got {bad if entries else entries!r}.")
    return [word.strip() for word in entries]


def _search(words: list[str], case: bool) -> Callable[[str | Sequence[str]], np.ndarray]:
    """Return a function that marks the words in a text or in a list of tokens."""
    longest_first = sorted(words, key=len, reverse=True)
    # A look-ahead finds words that overlap, such as "New York" and "York Times".
    one_of = "|".join(map(re.escape, longest_first))
    compiled = re.compile(rf"(?<!\w)(?=((?:{one_of})(?!\w)))", 0 if case else re.IGNORECASE)

    def fold(word: str) -> str:
        return word if case else word.casefold()

    entries = {tuple(map(fold, word.split())) for word in words}
    sizes = {len(entry) for entry in entries}

    def search(record: str | Sequence[str]) -> np.ndarray:
        row = np.zeros(len(record), dtype=bool)
        if isinstance(record, str):
            return mark(row, (match.span(1) for match in compiled.finditer(record)), "inside")
        tokens = [fold(str(token)) for token in record]
        found = (
            (i, i + size)
            for size in sizes
            for i in range(len(tokens))
            if tuple(tokens[i : i + size]) in entries
        )
        return mark(row, ((i, end) for i, end in found if end <= len(tokens)), "inside")

    return search


def nesting(
    open: str = "([{", close: str = ")]}", *, ignore: str = "", name: str = "nesting"
) -> Callable[[str | Sequence[str]], dict[str, np.ndarray]]:
    """Label how deep each symbol is nested in brackets.

    A bracket is as deep as what it encloses. A closing bracket that does not match the last open one is
    ignored; a bracket that is never closed reaches to the end.

    Args:
        open: The opening brackets, one character each. Default: ``"([{"``.
        close: The closing brackets, in the same order. Default: ``")]}"``.
        ignore: A regular expression; brackets inside its matches do not count, such as those in strings:
            ``ignore="'[^']*'"``. For texts only. Default: none.
        name: The name of the function, which is used where names clash. Default: ``"nesting"``.

    Returns:
        A hypothesis function of a text, or of a list of tokens. It returns a dict of arrays (symbols,):
        ``depth``; ``inside``, 1 where the depth is at least 1; and, for several kinds of brackets, one for
        each, such as ``inside ()``.

    Raises:
        InputError: If there are not as many closing as opening brackets, or one occurs twice.

    Example:
        >>> nesting("(", ")")("f((x), y)")["depth"].astype(int).tolist()
        [0, 1, 2, 2, 2, 1, 1, 1, 1]
        >>> list(nesting()(""))
        ['depth', 'inside', 'inside ()', 'inside []', 'inside {}']
    """
    if len(open) != len(close) or not open or len(set(open + close)) < 2 * len(open):
        raise InputError(
            f"nesting needs as many closing as opening brackets, all different, got {open!r} and {close!r}."
        )
    opening, closing = ({bracket: i for i, bracket in enumerate(part)} for part in (open, close))
    compiled = re.compile(ignore) if ignore else None
    kinds = [f"inside {first}{last}" for first, last in zip(open, close, strict=True)]

    def rows(record: str | Sequence[str]) -> np.ndarray:
        depth = np.zeros((len(open), len(record)))
        ignored = np.zeros(len(record), dtype=bool)
        if compiled is not None:
            mark(ignored, (match.span() for match in compiled.finditer(text_of(record, "nesting"))), "inside")
        stack: list[tuple[int, int]] = []  # the kind of each open bracket, and where it is
        for i, symbol in enumerate(record):
            if ignored[i]:
                continue
            if symbol in opening:
                stack.append((opening[symbol], i))
            elif stack and closing.get(symbol) == stack[-1][0]:
                kind, first = stack.pop()
                depth[kind, first : i + 1] += 1
        for kind, first in stack:
            depth[kind, first:] += 1
        total = depth.sum(axis=0)
        return np.vstack([total, total > 0, depth > 0]) if len(open) > 1 else np.vstack([total, total > 0])

    return many(rows, name, ("depth", "inside", *(kinds if len(open) > 1 else ())))


def _single(function: Callable[[Any], np.ndarray], name: str) -> Callable[[Any], np.ndarray]:
    declared: Callable[[Any], np.ndarray] = declare(function, Declaration(name, "binary"))
    return declared
