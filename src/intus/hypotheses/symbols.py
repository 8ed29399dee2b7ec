"""Say which symbols the positions of a layer belong to, such as the words of subword tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import InputError

REDUCTIONS = ("mean", "first", "last", "max")


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbol, such as a word or character, that each position of a layer belongs to.

    ``inspect(…, symbols=)`` takes it, or just its ``positions``.

    Args:
        positions: A function of a record that returns a list with an entry for each position: the number of
            its symbol, as ``word_ids()`` of Hugging Face's tokenizers, or its first character and the one
            after its last, as their ``offset_mapping``. None, -1 and empty spans are no symbol: special
            tokens, padding. Lists that are shorter than those of other records are padded at the end.
            Or a list with such a list for each record. A function with ``hypothesis(batch=True)`` gets the
            records of a batch.
        reduce: The behavior of a symbol that has several positions: their ``"mean"``, that of the ``"first"``
            or the ``"last"``, or the ``"max"``. Default: ``"mean"``.

    Raises:
        InputError: If ``reduce`` is unknown.

    Example:
        >>> Symbols(lambda text: [None, 0, 1, 1, None], reduce="last").reduce
        'last'
    """

    positions: Any
    reduce: str = "mean"

    def __post_init__(self) -> None:
        if self.reduce not in REDUCTIONS:
            raise InputError(
                f"reduce={self.reduce!r} of Symbols is not one of {', '.join(map(repr, REDUCTIONS))}."
            )
