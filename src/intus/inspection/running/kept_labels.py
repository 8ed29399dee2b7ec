"""Keep the labels of hypotheses in a cache, if all that decides them is known."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import copy
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import numpy as np
from safetensors import numpy

from ...backends.content import Content, UnknownContentError, version
from ...hypotheses.columns import Column, ShapeState
from ...hypotheses.source import Source
from .cache import Cache
from .content_hash import ContentHash, NotHashableError

#: Names of functions, attributes and modules by which code reads files, the clock, random numbers, or names
#: that are not written in it. A function that has one of these is called again.
_UNSEEN = re.compile(
    r"open|input|eval|exec|globals|locals|vars|dir|getattr|hash|id|__(import|dict|globals|builtins)__|"
    r"(read|load)(_\w+|lines?|txt|arr)?|from_?file|genfromtxt|memmap|mmap|"
    r"rand\w*|(normal|uniform|bernoulli|shuffle|exponential)_?|dropout\w*|choices?|permut\w+|samples?|"
    r"multinomial|now|today|utcnow|environ|getenv|urandom|urlopen|"
    r"os|sys|io|time|datetime|random|secrets|uuid|pathlib|glob|subprocess|socket|urllib|http|requests|"
    r"importlib|sqlite3|ctypes"
)
#: Modules whose functions depend on their arguments alone, apart from those in ``_UNSEEN``. A function that
#: uses another installed package is called again, because what that reads cannot be known.
_PURE = (
    *(
        "abc",
        "ast",
        "bisect",
        "builtins",
        "cmath",
        "collections",
        "copy",
        "dataclasses",
        "decimal",
        "difflib",
    ),
    *("enum", "fractions", "functools", "heapq", "intus", "itertools", "keyword", "math", "nltk.grammar"),
    *("nltk.parse", "nltk.tree", "numbers", "numpy", "operator", "re", "statistics", "string", "textwrap"),
    *("token", "tokenize", "types", "typing", "unicodedata"),
)
_TYPES = ("?", *np.typecodes["AllInteger"], "e", "f", "d")
_FACTS = "facts"
#: The type of functions with ``functools.cache`` or ``functools.lru_cache``.
_CACHED = type(functools.cache(len))


class Kept(NamedTuple):
    """The labels of one hypothesis for a block of records.

    Attributes:
        column: The labels.
        state: The shape of the labels after the block.
    """

    column: Column
    state: ShapeState


class KeptLabels:
    """The labels of hypotheses in a cache, by the content of their functions and of the records.

    Labels that are given as arrays are not kept: they are there already.

    Args:
        cache: The cache.
        hypotheses: The hypotheses.
    """

    def __init__(self, cache: Cache, hypotheses: Sequence[Source]) -> None:
        self.cache, self.hypotheses = cache, hypotheses

    def block(
        self, numbers: np.ndarray, records: Sequence[Any], states: Sequence[Mapping[str, ShapeState]]
    ) -> KeptBlock | None:
        """Return the labels of a block of records; None if the content of the records cannot be known.

        Args:
            numbers: The numbers of the records.
            records: The records.
            states: The shapes of labels after the blocks before by name, for each hypothesis.
        """
        content = None if self.cache.folder is None else _content_of(numbers, records)
        return None if content is None else KeptBlock(self, numbers, records, content, states)


class KeptBlock:
    """The labels of one block of records in a cache.

    A function that changes its own state, or the records, is noticed after the block, whose labels are then
    not kept.

    Args:
        kept: The cache with the hypotheses.
        numbers: The numbers of the records.
        records: The records.
        content: Their hash.
        states: The shapes of labels after the blocks before, which labels of records that are not annotated
            depend on, by name for each hypothesis.
    """

    def __init__(
        self,
        kept: KeptLabels,
        numbers: np.ndarray,
        records: Sequence[Any],
        content: ContentHash,
        states: Sequence[Mapping[str, ShapeState]],
    ) -> None:
        self._kept, self._numbers, self._records = kept, numbers, records
        self._content, self._states = content, states
        self._new: list[tuple[int, str, tuple[str, ...] | None, dict[str, Kept]]] = []
        self._keys: dict[int, tuple[str, tuple[str, ...] | None]] = {}

    def read(self, at: int, names: tuple[str, ...] | None) -> dict[str, Kept] | None:
        """Return the labels of a hypothesis; None if they must be computed.

        Args:
            at: The number of the hypothesis.
            names: The names that it returned for the first block; None for the first block.
        """
        key = self._key(at, names, self._content)
        if key is None:
            return None
        found = self._kept.cache.read(f"{key}.labels", _decode)
        if found is None or any(len(one.column.values) != len(self._numbers) for one in found.values()):
            self._keys[at] = key, names
            return None
        return found

    def add(self, at: int, labels: dict[str, Kept]) -> None:
        """Add the labels of a hypothesis that were computed, to be written."""
        if at in self._keys:
            self._new.append((at, *self._keys[at], labels))

    def write(self) -> None:
        """Write the labels that were added, unless they depend on what has changed meanwhile."""
        content = _content_of(self._numbers, self._records) if self._new else None
        for at, key, names, labels in self._new:
            if content is not None and self._key(at, names, content) == key:
                self._write(key, labels)

    def _write(self, key: str, labels: Mapping[str, Kept]) -> None:
        encoded = _encode(labels)
        if encoded is not None:
            self._kept.cache.write(f"{key}.labels", lambda: encoded)

    def _key(self, at: int, names: tuple[str, ...] | None, content: ContentHash) -> str | None:
        source = self._kept.hypotheses[at]
        code = _code_of(source)
        if code is None:
            return None
        states = {
            name: (one.ragged, None if one.ragged else one.first) for name, one in self._states[at].items()
        }
        facts = version(__name__), code, source.name, source.kind, source.names, names, states
        return copy(content).add(*facts).digest()


class _Code(Content):
    """The content of a function that depends on its arguments and on what is hashed alone."""

    def special(self, value: Any) -> bool:
        """Raise UnknownContentError for a function or path by which something else is read."""
        if isinstance(value, FunctionType | BuiltinFunctionType | type):
            self.reads(value.__name__)
        if isinstance(value, _CACHED):
            raise UnknownContentError(f"{value!r} returns what it returned before")
        if isinstance(value, os.PathLike) or (isinstance(value, type) and issubclass(value, os.PathLike)):
            raise UnknownContentError(f"{value!r} is a path")
        if getattr(value, "training", False) is True and callable(value):
            raise UnknownContentError(f"{type(value).__name__} is in training mode")
        return False

    def reads(self, *names: str) -> None:
        """Raise UnknownContentError for a name by which something else is read."""
        for name in names:
            if any(_UNSEEN.fullmatch(part) for part in name.split(".")):
                raise UnknownContentError(f"{name!r} may read what is not known")

    def library(self, module: str) -> None:
        """Raise UnknownContentError for a package that may read something else."""
        if not any(module.lstrip("_") == one or module.lstrip("_").startswith(f"{one}.") for one in _PURE):
            raise UnknownContentError(f"{module!r} may read what is not known")


def _code_of(source: Source) -> str | None:
    """Return the hash of all that decides the labels besides the records; None if it cannot be known."""
    if source.length is not None:
        return None
    content = _Code()
    try:
        content.add(source.answers)
    except Exception:  # whatever the objects of the caller raise when they are read
        return None
    return content.digest()


def _content_of(numbers: np.ndarray, records: Sequence[Any]) -> ContentHash | None:
    try:
        return ContentHash().add(numbers, *records)
    except NotHashableError:
        return None


def _encode(labels: Mapping[str, Kept]) -> bytes | None:
    """Return labels as a file of safetensors, text as JSON in it; None for labels of another type."""
    arrays: dict[str, np.ndarray] = {}
    facts: list[dict[str, Any]] = []
    for number, (name, (column, state)) in enumerate(labels.items()):
        fact: dict[str, Any] = {"name": name, "lengths": column.lengths is not None, "state": state}
        values = column.values
        if values.dtype.kind in "UO":
            if not all(one is None or type(one) is str for one in values.reshape(-1).tolist()):
                return None
            fact |= {"text": values.reshape(-1).tolist(), "shape": values.shape, "dtype": values.dtype.str}
        elif values.dtype.char in _TYPES:
            arrays[f"values {number}"] = np.ascontiguousarray(values)
        else:
            return None
        if column.lengths is not None:
            arrays[f"lengths {number}"] = np.ascontiguousarray(column.lengths)
        facts.append(fact)
    text = json.dumps(facts).encode()
    return bytes(numpy.save(arrays | {_FACTS: np.frombuffer(text, np.uint8)}))


def _decode(content: bytes) -> dict[str, Kept]:
    """Return the labels in a file."""
    arrays = numpy.load(content)
    labels = {}
    for number, fact in enumerate(json.loads(bytes(arrays[_FACTS]))):
        if "text" in fact:
            values = np.empty(len(fact["text"]), dtype=fact["dtype"])
            values[:] = fact["text"]
            values = values.reshape(fact["shape"])
        else:
            values = arrays[f"values {number}"]
        first, ragged = fact["state"]
        labels[fact["name"]] = Kept(
            Column(values, arrays[f"lengths {number}"] if fact["lengths"] else None),
            ShapeState(None if first is None else tuple(first), ragged),
        )
    return labels
