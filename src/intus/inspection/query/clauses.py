"""Split a query into its clauses, and read the clause INSPECT; DuckDB reads all others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, NoReturn

from ...core.errors import InputError

#: Words that begin a clause outside brackets.
KEYWORDS = (
    *("WITH", "SELECT", "INSPECT", "FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER"),
    *("LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT"),
)
#: How INSPECT is written.
FORM = "INSPECT U.uid AND H.h USING correlation OVER D.seq AS S"

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>--[^\r\n]*|/\*)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$)
    |(?P<name>"(?:[^"]|"")*")
    |(?P<word>[^\W\d][\w$]*|\d\w*)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A piece of a query.

    Attributes:
        kind: ``space``, ``comment``, ``text`` (a quoted string), ``name`` (a quoted identifier), ``word`` or
            ``mark``.
        text: Its characters.
        start: Where it begins.
        depth: The number of brackets around it; a bracket is inside itself.
    """

    kind: str
    text: str
    start: int
    depth: int


class Clause(NamedTuple):
    """A clause of a query.

    Attributes:
        keyword: Its first word, in capitals; ``""`` for what comes before the first clause.
        tokens: Its tokens, with the keyword.
    """

    keyword: str
    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        """The characters of the clause."""
        return "".join(token.text for token in self.tokens)


class Inspect(NamedTuple):
    """A parsed INSPECT clause.

    Attributes:
        units: The alias of the units.
        hypotheses: The alias of the hypotheses, and the column that was written.
        scores: The names of the scores.
        inputs: The alias of the inputs.
        alias: The name of the relation of scores.
    """

    units: str
    hypotheses: tuple[str, str]
    scores: tuple[str, ...]
    inputs: str
    alias: str


def scan(text: str) -> list[Token]:
    """Split a query into tokens, which together are the query.

    Args:
        text: The query.

    Raises:
        InputError: If a quote, comment or bracket has no end.

    Example:
        >>> [token.text for token in scan("U.uid = 'FROM (' -- x") if token.kind != "space"]
        ['U', '.', 'uid', '=', "'FROM ('", '-- x']
    """
    tokens: list[Token] = []
    brackets: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None  # the last alternative matches any character
        kind, piece = str(found.lastgroup), found.group()
        if piece == "/*":
            piece = text[at : _comment_end(text, at)]
        if kind == "mark" and piece in "'\"":
            raise InputError(f"The query has a quote without an end: {_near(text, at)}.")
        depth = len(brackets)
        if kind == "mark" and piece in _BRACKETS:
            brackets.append((piece, at))
            depth += 1
        closes = kind == "mark" and piece in ")]}"
        if closes and (not brackets or _BRACKETS[brackets.pop()[0]] != piece):
            raise InputError(f"The query closes a bracket that is not open: {_near(text, at)}.")
        tokens.append(Token(kind, piece, at, depth))
        at += len(piece)
    if brackets:
        raise InputError(f"The query has a bracket without an end: {_near(text, brackets[-1][1])}.")
    return tokens


def _comment_end(text: str, start: int) -> int:
    """Return where a comment ends; comments may contain comments."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return mark.end()
    raise InputError(f"The query has a comment without an end: {_near(text, start)}.")


def _near(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, {text[at : at + 20]!r}"


def clauses(tokens: Sequence[Token]) -> list[Clause]:
    """Group tokens into clauses, which together are all tokens.

    Args:
        tokens: What ``scan`` returned.

    Example:
        >>> [c.keyword for c in clauses(scan("SELECT a FROM t WHERE a IS DISTINCT FROM (SELECT 1)"))]
        ['SELECT', 'FROM', 'WHERE']
    """
    starts = dict(_starts(tokens))
    bounds = [*starts, len(tokens)]
    head = [Clause("", tuple(tokens[: bounds[0]]))] if bounds[0] else []
    return head + [Clause(starts[start], tuple(tokens[start:stop])) for start, stop in pairwise(bounds)]


def _starts(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Yield the position and the keyword of each clause."""
    real = [n for n, token in enumerate(tokens) if token.kind not in ("space", "comment")]
    words = [tokens[n].text.upper() if tokens[n].kind in ("word", "mark") else "" for n in real]
    for place, n in enumerate(real):
        word = words[place]
        if tokens[n].depth or tokens[n].kind != "word" or word not in KEYWORDS:
            continue
        before, after = words[:place][-2:], (words[place + 1 :] or [""])[0]
        if before[-1:] == ["."] or (word == "INSPECT" and before[-1:] == ["AS"]):
            continue  # a column or an alias of that name; the other keywords are no aliases
        if word == "FROM" and before[-1:] == ["DISTINCT"] and before[0] in ("IS", "NOT"):
            continue  # a IS [NOT] DISTINCT FROM b
        if word in ("GROUP", "ORDER") and after != "BY":
            continue
        if word == "WITH" and place:
            continue
        yield n, word


def split(text: str) -> tuple[Inspect, str]:
    """Return what the INSPECT clause of a query says, and the query without it.

    Args:
        text: The query.

    Returns:
        The clause, and the rest with as many characters as the query.

    Raises:
        InputError: If the query is not one SELECT with one INSPECT.

    Example:
        >>> clause, rest = split("SELECT S.p INSPECT U.uid AND H.h USING iou OVER D.seq AS S FROM units U")
        >>> clause.scores, clause.alias, rest.split()
        (('iou',), 'S', ['SELECT', 'S.p', 'FROM', 'units', 'U'])
    """
    if not isinstance(text, str):
        raise InputError(f"A query is a text, got a {type(text).__name__}.")
    tokens = scan(text)
    real = [token for token in tokens if token.kind not in ("space", "comment")]
    while real and real[-1].text == ";":
        tokens.remove(real.pop())
    if any(token.text == ";" and token.kind == "mark" for token in real):
        raise InputError("A query is one SELECT, but there is more after the semicolon. Ask in two calls.")
    parts = clauses(tokens)
    keywords = [part.keyword for part in parts]
    if several := {"UNION", "INTERSECT", "EXCEPT"} & set(keywords):
        raise InputError(
            f"A query with INSPECT is one SELECT, but this one has {several.pop()}. Ask each in a call of "
            "its own, and join the tables with pandas.concat."
        )
    if keywords.count("INSPECT") > 1:
        raise InputError(
            "The query has two clauses INSPECT. Name all scores in one (USING correlation, iou), or ask in "
            "two calls."
        )
    if "INSPECT" not in keywords:
        inner = any(t.depth and t.kind == "word" and t.text.upper() == "INSPECT" for t in tokens)
        where = " It stands in brackets; it belongs to the outermost SELECT." if inner else ""
        raise InputError(f"The query has no INSPECT.{where} Write, between SELECT and FROM: {FORM}.")
    for needed in ("SELECT", "FROM"):
        if needed not in keywords:
            raise InputError(
                f"The query has no {needed}. Write: SELECT S.uid, S.unit_score {FORM} FROM models M, "
                "units U, hypotheses H, inputs D WHERE M.mid = U.mid."
            )
    part = parts[keywords.index("INSPECT")]
    start = part.tokens[0].start
    blank = re.sub(r"\S", " ", part.text)
    rest = "".join(token.text for token in tokens if token.start < start) + blank
    rest += "".join(token.text for token in tokens if token.start >= start + len(part.text))
    return _Reader(part).read(), rest


class _Reader:
    """Reads an INSPECT clause word by word."""

    def __init__(self, clause: Clause) -> None:
        self._tokens = [token for token in clause.tokens if token.kind not in ("space", "comment")]
        self._at = 1

    def read(self) -> Inspect:
        """Return what the clause says."""
        units, column = self._column("the units, such as U.uid")
        if column.lower() != "uid":
            self._fail(f"INSPECT takes the column uid of the units, got {units}.{column}.")
        self._keyword("AND", "the hypotheses, such as AND H.h")
        hypotheses = self._column("the hypotheses, such as H.h")
        if hypotheses[1].lower() not in ("h", "hid", "name"):
            self._fail(f"INSPECT takes the column h of the hypotheses, got {hypotheses[0]}.{hypotheses[1]}.")
        self._keyword("USING", "the scores, such as USING correlation")
        scores = [self._name("a score")]
        while self._next() == ",":
            self._at += 1
            scores.append(self._name("a score"))
        self._keyword("OVER", "the inputs, such as OVER D.seq")
        inputs, column = self._column("the inputs, such as D.seq")
        if column.lower() not in ("seq", "did"):
            self._fail(f"OVER takes the column seq of the inputs, got {inputs}.{column}.")
        if self._next().upper() == "AS":
            self._at += 1
        alias = self._name("a name for the scores, such as AS S")
        if self._at < len(self._tokens):
            self._fail(f"There is {self._next()!r} after the name {alias!r}.")
        aliases = [units, hypotheses[0], inputs, alias]
        for name in aliases:
            if [other.lower() for other in aliases].count(name.lower()) > 1:
                self._fail(f"The name {name!r} is used for two things.")
        return Inspect(units, hypotheses, tuple(dict.fromkeys(scores)), inputs, alias)

    def _next(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _keyword(self, keyword: str, what: str) -> None:
        if self._next().upper() != keyword:
            self._fail(f"{keyword} is missing before {self._next() or 'its end'!r}: it names {what}.")
        self._at += 1

    def _column(self, what: str) -> tuple[str, str]:
        alias = self._name(what)
        if self._next() != ".":
            self._fail(f"Expected {what}, got {alias!r} without a column.")
        self._at += 1
        return alias, self._name(what)

    def _name(self, what: str) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        reserved = ("AND", "USING", "OVER", "AS")
        if token is None or token.kind not in ("word", "name") or token.text.upper() in reserved:
            self._fail(f"Expected {what}, got {token.text if token else 'the end of the clause'!r}.")
        self._at += 1
        return token.text if token.kind == "word" else token.text[1:-1].replace('""', '"')

    def _fail(self, problem: str) -> NoReturn:
        raise InputError(f"{problem} INSPECT is written: {FORM}.")
