"""The plan of one call of ``inspect`` for every model, and the blocks of its records."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from ..scores import Score
from .alignment.padding import Padding
from .alignment.symbols import Alignment
from .behaviours import Records
from .hypotheses import Labels
from .observations import Observations
from .reading import Behavior
from .running.content_hash import ContentHash, NotHashableError

#: The version of the package, whose __init__ this folder may not import.
_VERSION: str = sys.modules[__name__.partition(".")[0]].__version__


def parts_of(count: int, size: int) -> list[slice]:
    """Return parts of at most ``size`` records; a single record at the end joins the part before it.

    Hypotheses are moved between the records of a part for a baseline, which a single record cannot have.

    Example:
        >>> parts_of(7, 3)
        [slice(0, 3, None), slice(3, 7, None)]
    """
    starts = list(range(0, count, size))
    if len(starts) > 1 and size > 1 and starts[-1] == count - 1:
        starts.pop()
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], count], strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some records with their labels: all that a worker needs besides the model.

    Attributes:
        numbers: The numbers of the records, (records,).
        inputs: The model's input for these records.
        labels: The labels by hypothesis, (records, …grid) each.
        ragged: The hypotheses whose records differ in length.
        images: What may be the height and width of a record.
        groups: The group of each record, (records,); None if each is a group.
        types: The type of each symbol, (records, …grid); None if there are none.
        symbols: Which symbols the positions of layers belong to; None if positions are symbols.
        padding: What is known of the padding of the records.
        lengths: The number of labels of each record, (records,), by hypothesis, and of types by ``""``.
        placed: The hypotheses whose labels were put on the positions that are no padding by the mask.
    """

    numbers: np.ndarray
    inputs: Any
    labels: dict[str, np.ndarray]
    ragged: frozenset[str]
    images: list[tuple[int, ...]]
    groups: np.ndarray | None
    types: np.ndarray | None
    symbols: Alignment | None
    padding: Padding
    lengths: dict[str, np.ndarray] = field(default_factory=dict)
    placed: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.numbers)

    def add_to(self, total: ContentHash) -> ContentHash | None:
        """Add the content to a hash and return it; None if it cannot be hashed."""
        try:
            aligned = None if self.symbols is None else (self.symbols.index, self.symbols.reduce)
            total.add(self.numbers, self.inputs, self.labels, self.groups, self.types, aligned)
            return total.add(self.lengths, self.padding.lengths)
        except NotHashableError:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The work of one call of ``inspect`` for every model.

    Attributes:
        records: The data.
        labels: The labels of the hypotheses.
        observed: The groups of records, the types of symbols and the names of confounders.
        scores: The scores.
        units: The units, as the caller wrote them.
        batch: The number of records of a block.
        seed: The seed of samples, of held-out rows and of the order of records.
        splits: The number of splits into training and held-out items.
        null: The number of permutations that p-values of units come from; 0 for sums over groups.
        eps: The half-width of intervals at which reading stops; None to read all records.
        top: The number of strongest units of each hypothesis that must be known to stop; None to read all.
        behavior: What is read of units: activations, gradients or attributions.
        tcav: The gradient of the class that TCAV is of; None without that score.
    """

    records: Records
    labels: Labels
    observed: Observations
    scores: Sequence[Score]
    units: Any
    batch: int
    seed: int
    splits: int = 1
    null: int = 0
    eps: float | None = None
    top: int | None = None
    behavior: Behavior = field(default_factory=Behavior)
    tcav: Behavior | None = None

    @property
    def may_stop(self) -> bool:
        """True if reading stops early, for which the records are read in a random order."""
        return self.eps is not None or self.top is not None

    def content_hash(self) -> ContentHash | None:
        """Return the hash of everything but the models and the blocks; None if it cannot be known.

        It is not known for scores or outputs that are functions of the caller, whose code may change, nor for
        scores of estimators, whose parameters no name tells.
        """
        scores = [_identity(score) for score in self.scores]
        if None in scores or callable(self.behavior.output):
            return None
        if self.tcav is not None and callable(self.tcav.output):
            return None
        observed = self.observed
        try:
            return ContentHash().add(
                *(_VERSION, scores, self.units, self.seed, self.batch, self.splits),
                (self.null, self.eps, self.top),
                observed.confounders,
                (self.behavior.name, self.behavior.output),
                None if self.tcav is None else self.tcav.output,
                self.tcav is not None,
            )
        except NotHashableError:
            return None

    def order(self) -> list[np.ndarray]:
        """Return the numbers of the records of each block.

        Shuffled records stay together if they are of one group, so that a block has whole groups where
        possible.
        """
        numbers = np.arange(len(self.records))
        if self.may_stop:
            random = np.random.default_rng(self.seed)
            groups = numbers if self.observed.groups is None else self.observed.groups
            which = np.unique(groups, return_inverse=True)[1].reshape(-1)
            rank = random.permutation(int(which.max()) + 1)[which]
            numbers = np.lexsort((numbers, rank))
        return [numbers[part] for part in parts_of(len(numbers), self.batch)]

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        for numbers in self.order():
            yield self.block(numbers)

    def block(self, numbers: np.ndarray) -> Block:
        """Return a block; raises what a hypothesis or ``inputs`` raises."""
        read = partial(self.records.block, numbers)
        inputs, symbols = self.records.model_input(numbers), self.labels.symbols
        padding = Padding.of(numbers, inputs, self.records.lengths(numbers))
        columns, types = self.labels.columns(numbers, read), self.observed.types_of_block(numbers, read)
        every = columns if types is None else columns | {"": types}
        labels = {name: column.values for name, column in every.items()}
        lengths = {name: column.lengths for name, column in every.items() if column.lengths is not None}
        placed = set()
        if symbols is None:
            for name, column in every.items():
                on_mask = padding.by_mask(*column)
                if on_mask is not None:
                    labels[name] = on_mask
                    placed.add(name)
                    del lengths[name]  # none is left to place
        aligned = None if symbols is None else padding.of_symbols(symbols.of(numbers, read))
        return Block(
            numbers,
            inputs,
            {name: labels[name] for name in columns},
            frozenset(self.labels.ragged),
            self.records.images(int(numbers[0])),
            None if self.observed.groups is None else self.observed.groups[numbers],
            labels.get("") if types is not None else None,
            aligned,
            padding,
            lengths,
            frozenset(placed),
        )


def _identity(score: Score) -> list[Any] | None:
    """Return what tells a score from others; None if it is not only code of this package and plain arguments.

    The version names the code of this package. An argument such as an estimator of scikit-learn has further
    parameters, which no name tells.
    """
    try:
        return [score.name, score.per, *map(_code, (score.compute, score.suits, score.judged))]
    except NotHashableError:
        return None


def _code(value: Any) -> Any:
    """Return the name of a function of this package with its arguments, as text and numbers in lists.

    Raises:
        NotHashableError: If the value is neither such a function nor plain.
    """
    if isinstance(value, str | int | float | bool | type(None)):
        return value
    if isinstance(value, partial):
        parts = (value.func, *value.args, *value.keywords.values())
        return [list(value.keywords), *map(_code, parts)]
    if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == __name__.partition(".")[0]:
        cells = [_code(cell.cell_contents) for cell in value.__closure__ or ()]
        return [value.__module__, value.__qualname__, *cells]
    raise NotHashableError(f"{type(value).__name__} is not plain")
