"""Hypotheses from parse trees: two for every non-terminal of a grammar."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError, require
from .declaration import Declaration, declare
from .spans import ENCODINGS, check_encoding, mark

_log = logging.getLogger(__name__)


class Grammar:
    """The hypothesis function that ``grammar`` returns.

    Attributes:
        names: The names of the hypotheses.
        read: The number of records that were parsed.
        unparsed: The number of those that have no parse and are not annotated.
    """

    def __init__(
        self,
        parse: Callable[[Any], Any],
        symbols: Sequence[str],
        encodings: Sequence[str],
        tokens: Callable[[Any], list[str]] | None,
        characters: bool,
    ) -> None:
        self._parse, self._tokens, self._characters = parse, tokens, characters
        self._rows = [(symbol, encoding) for symbol in symbols for encoding in encodings]
        several = len(encodings) > 1
        self.names = tuple(f"{symbol} {how}" if several else symbol for symbol, how in self._rows)
        self.read = self.unparsed = 0

    def __call__(self, record: Any) -> dict[str, np.ndarray]:
        """Return the labels of a record by name."""
        return dict(zip(self.names, self.rows(record), strict=True))

    def rows(self, record: Any) -> np.ndarray:
        """Return the labels of a record, a row for each name; NaN if it has no parse."""
        tree = self._parse(record if self._tokens is None else self._tokens(record))
        self.read += 1
        if tree is None:
            self.unparsed += 1
            if self.unparsed == 1:
                _log.warning("grammar: a record has no parse and is not annotated: %.200r", record)
            return np.full((len(self.names), self._length(record)), np.nan, dtype=np.float32)
        nodes, leaves = _nodes(tree)
        bounds, length = self._bounds(record, leaves)
        spans: dict[str, list[tuple[int, int]]] = {}
        for symbol, first, end in nodes:
            if first < end:
                spans.setdefault(symbol, []).append((bounds[first][0], bounds[end - 1][1]))
        out = np.zeros((len(self.names), length), dtype=np.float32)
        for row, (symbol, encoding) in zip(out, self._rows, strict=True):
            mark(row, spans.get(symbol, ()), encoding)
        return out

    def _length(self, record: Any) -> int:
        if isinstance(record, str) and not self._characters:
            return len(record.split())
        return len(record)

    def _bounds(self, record: Any, leaves: list[str]) -> tuple[list[tuple[int, int]], int]:
        """Return the first symbol of each leaf and the one after its last, and the number of symbols."""
        if not (isinstance(record, str) and self._characters):
            if len(leaves) != self._length(record):
                raise InputError(
                    f"The parse tree has {len(leaves)} leaves, but the record has {self._length(record)} "
                    "tokens. Parse the same tokens, or pass characters=True for a text whose leaves are "
                    "not words."
                )
            return [(i, i + 1) for i in range(len(leaves))], len(leaves)
        bounds, at = [], 0
        for leaf in leaves:
            first = record.find(leaf, at)
            if first < 0 or record[at:first].strip():
                raise InputError(
                    f"The leaf {leaf!r} of the parse tree does not follow in the record {record!r:.200}."
                )
            at = first + len(leaf)
            bounds.append((first, at))
        return bounds, len(record)


def grammar(
    rules: Any,
    encoding: str | Sequence[str] = ENCODINGS,
    *,
    names: Sequence[str] | None = None,
    characters: bool = False,
    name: str = "grammar",
) -> Grammar:
    """Label the symbols of a record by the non-terminals of its parse tree, from one parse.

    The symbols of a list of tokens are the tokens; those of a text are its words between white space, or its
    characters. An ambiguous record is labeled by its first parse. A record without a parse is not annotated;
    the attribute ``unparsed`` of the result counts them.

    Args:
        rules: A context-free grammar, as text in nltk's notation or as ``nltk.CFG``, which needs nltk; or a
            function of a record that returns its parse tree, or None if it has none. A tree is an
            ``nltk.Tree`` or a nested tuple ``("NP", ("Det", "the"), ("N", "cat"))``.
        encoding: ``"inside"`` labels all symbols of a constituent 1, ``"boundary"`` its first and last. By
            default, both, and the names are ``NP inside`` and ``NP boundary``. With one, they are ``NP``.
        names: The non-terminals that are hypotheses. Default: all of the grammar. A function needs them.
        characters: Whether the symbols of a text are its characters. Terminals that are single characters
            then need no white space between them. Default: False.
        name: The name of the function, which is used where names clash. Default: ``"grammar"``.

    Returns:
        A hypothesis function of a record, of kind ``"binary"``. It returns a dict of arrays (symbols,).

    Raises:
        InputError: If the rules or names are no grammar, or the encoding is unknown.
        MissingExtraError: If nltk is needed and not installed.

    Example:
        >>> tree = grammar(lambda words: ("S", ("NP", *words[:2]), ("VP", words[2])), "inside", names=["NP"])
        >>> tree(["the", "cat", "sat"])["NP"].tolist()
        [1.0, 1.0, 0.0]

    References:
        Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks", SIGMOD: hypotheses of a grammar
        in two encodings.
    """
    encodings = (encoding,) if isinstance(encoding, str) else tuple(encoding)
    for one in encodings:
        check_encoding(one, "grammar")
    if isinstance(names, str):
        raise InputError(f"names={names!r} of grammar must be a list of non-terminals.")
    if callable(rules):
        if not names:
            raise InputError("grammar with a function needs names=, the non-terminals that are hypotheses.")
        made = Grammar(rules, list(names), encodings, None, characters)
    else:
        made = _of_rules(rules, encodings, names, characters)
    declared: Grammar = declare(made, Declaration(name, "binary", names=made.names, rows=made.rows))
    return declared


def _of_rules(rules: Any, encodings: Sequence[str], names: Sequence[str] | None, characters: bool) -> Grammar:
    nltk = require("nltk", extra="hypotheses", why="to parse by a grammar")
    if not isinstance(rules, nltk.CFG):
        try:
            rules = nltk.CFG.fromstring(rules)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"The rules {rules!r:.200} are no grammar in nltk's notation: {error}."
            ) from error
    known = list(dict.fromkeys(str(rule.lhs()) for rule in rules.productions()))
    wrong = next((one for one in names or () if one not in known), None)
    if wrong is not None:
        raise InputError(f"{wrong!r} is no non-terminal of the grammar. It has {', '.join(known)}.")
    parser = nltk.ChartParser(rules)
    terminals = {leaf for rule in rules.productions() for leaf in rule.rhs() if isinstance(leaf, str)}
    of_characters = characters and all(len(leaf) == 1 for leaf in terminals)
    white = any(leaf.isspace() for leaf in terminals)

    def tokens(record: Any) -> list[str]:
        if not isinstance(record, str):
            return [str(token) for token in record]
        if of_characters:
            return [one for one in record if white or not one.isspace()]
        return re.findall(r"\S+", record)

    def parse(sequence: list[str]) -> Any:
        try:
            return next(iter(parser.parse(sequence)), None)
        except ValueError:  # a token that is no terminal
            return None

    return Grammar(parse, list(names or known), encodings, tokens, characters)


def _nodes(tree: Any) -> tuple[list[tuple[str, int, int]], list[str]]:
    """Return the label, the first leaf and the end of each node, and the leaves."""
    nodes: list[tuple[str, int, int]] = []
    leaves: list[str] = []

    # Written as a loop, because a list can be a tree of any depth.
    pending: list[tuple[str, int, Iterator[Any]]] = []

    def enter(node: Any) -> None:
        label = node.label() if hasattr(node, "label") else node[0]
        children = iter(node) if hasattr(node, "label") else iter(node[1:])
        pending.append((str(label), len(leaves), children))

    enter(_checked(tree))
    while pending:
        label, first, children = pending[-1]
        child = next(children, None)
        if child is None:
            pending.pop()
            nodes.append((label, first, len(leaves)))
        elif isinstance(child, str):
            leaves.append(child)
        else:
            enter(_checked(child))
    return nodes, leaves


def _checked(node: Any) -> Any:
    is_tuple = isinstance(node, tuple | list) and len(node) and isinstance(node[0], str)
    if not hasattr(node, "label") and not is_tuple:
        raise InputError(
            f"A parse tree must be an nltk.Tree or a tuple of a label and its children, got {node!r:.200}."
        )
    return node
