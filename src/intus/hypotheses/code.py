"""Hypotheses about source code: the kinds of tokens."""

from __future__ import annotations

import io
import keyword
import tokenize as python
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ..core.errors import InputError, did_you_mean
from .declaration import many
from .spans import text_of

#: The kinds of tokens of Python.
PYTHON = ("keyword", "name", "definition", "string", "comment", "number", "operator")
_KINDS = {"NAME": "name", "STRING": "string", "COMMENT": "comment", "NUMBER": "number", "OP": "operator"}

Token = tuple[str | None, int, int]


def tokenize(
    language: str | Callable[[str], Iterable[Token]] = "python",
    kinds: Sequence[str] | None = None,
    *,
    name: str = "tokenize",
) -> Callable[[str], dict[str, np.ndarray]]:
    """Label the characters of source code by the kind of their token, from one pass of a tokenizer.

    Python is read by the standard library's ``tokenize``. Its kinds are ``keyword``, ``name`` (any other
    name), ``definition`` (a name after ``def`` or ``class``, which is a ``name`` too), ``string``,
    ``comment``, ``number`` and ``operator`` (also brackets). Code that is cut off or wrong is labeled up to
    the place where the tokenizer stops; what follows is not annotated.

    Args:
        language: ``"python"``, or a function of the text that returns tokens ``(kind, start, end)``, where
            ``end`` is the character after the last. A token of kind None is not annotated.
            Default: ``"python"``.
        kinds: The kinds that are hypotheses. Default: all those of Python. A function needs them.
        name: The name of the function, which is used where names clash. Default: ``"tokenize"``.

    Returns:
        A hypothesis function of a text, of kind ``"binary"``. It returns a dict of arrays (characters,) by
        kind: 1 in tokens of that kind, else 0, NaN where not annotated.

    Raises:
        InputError: If the language or a kind is unknown.

    Example:
        >>> labels = tokenize()("x = 'a'  # b")
        >>> [kind for kind in labels if labels[kind][4]], int(labels["comment"].sum())
        (['string'], 3)
    """
    if language == "python":
        wrong = next((kind for kind in kinds or () if kind not in PYTHON), None)
        if wrong is not None:
            raise InputError(f"tokenize has no kind {wrong!r} for Python. {did_you_mean(wrong, PYTHON)}")
        return _of_tokens(python_tokens, tuple(kinds or PYTHON), name)
    if not callable(language):
        raise InputError(
            f"tokenize reads 'python' or calls a function that returns tokens, got {language!r}."
        )
    if not kinds:
        raise InputError("tokenize with a function needs kinds=, the kinds of tokens that are hypotheses.")
    return _of_tokens(language, tuple(kinds), name)


def _of_tokens(
    tokens: Callable[[str], Iterable[Token]], kinds: tuple[str, ...], name: str
) -> Callable[[str], dict[str, np.ndarray]]:
    places = {kind: i for i, kind in enumerate(kinds)}

    def rows(text: str) -> np.ndarray:
        out = np.zeros((len(kinds), len(text_of(text, "tokenize"))), dtype=np.float32)
        for kind, start, end in tokens(text):
            if kind is None:
                out[:, start:end] = np.nan
            elif kind in places:
                out[places[kind], start:end] = 1
        return out

    return many(rows, name, kinds, "binary")


def python_tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of Python code, and one of kind None from where it cannot be read to the end.

    Args:
        text: The code.

    Example:
        >>> list(python_tokens("def f(): 'abc"))[:2], list(python_tokens("def f(): 'abc"))[-1]
        ([('keyword', 0, 3), ('name', 4, 5)], (None, 9, 13))
    """
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    done = 0
    defines = False
    tokens, complete = _read(text)
    for token in tokens:
        start, end = (starts[min(row, len(starts)) - 1] + column for row, column in (token.start, token.end))
        kind = python.tok_name[token.type]
        if kind in ("NEWLINE", "NL", "INDENT", "DEDENT", "ENDMARKER", "ENCODING"):
            continue
        of_fstring = kind.startswith(("FSTRING", "TSTRING"))
        if kind == "ERRORTOKEN" or (not of_fstring and text[start:end] != token.string):
            complete = False
            break
        label = "string" if of_fstring else _KINDS.get(kind)
        if kind == "NAME" and keyword.iskeyword(token.string):
            label = "keyword"
        if label is not None:
            yield label, start, end
        if defines and label == "name":
            yield "definition", start, end
        defines = label == "keyword" and token.string in ("def", "class")
        done = end
    if not complete:
        yield None, len(text) - len(text[done:].lstrip()), len(text)


def _read(text: str) -> tuple[list[python.TokenInfo], bool]:
    """Return the tokens up to the first error, and whether there was none."""
    tokens: list[python.TokenInfo] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as those on invalid literals
        try:
            for token in python.generate_tokens(io.StringIO(text, newline="").readline):
                tokens.append(token)
        except (python.TokenError, SyntaxError, ValueError):
            return tokens, False
    return tokens, True
