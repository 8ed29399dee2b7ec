"""Observe DataLoaders: which of them a batch comes from, in which iteration, and which items its rows are.

While an observer is attached, the methods of torch's iterators over DataLoaders note the indices that the
sampler gave and the batches that came. Afterwards they are torch's own again. Nothing is drawn, so order and
random states are unchanged.
"""

from __future__ import annotations

import gc
import math
import operator
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    ConcatDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
    default_convert,
)
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _SingleProcessDataLoaderIter,
)

from ...core.nested import leaves
from ..feeds import Items, Origin
from .collated import MOST, is_reordered, rows_in_order
from .datasets import Datasets
from .order import row_contents

_RANDOM = RandomSampler, SubsetRandomSampler, WeightedRandomSampler
_FIRST_BATCHES = 2  # one batch, and one that is prefetched
#: Batches that are kept to be recognized: the newest, those that a wrapper of an iteration under way fetched
#: ahead, and of a loop that takes more before it calls the model, as to accumulate gradients, so many, if
#: they have no more bytes.
_RECENT, _AHEAD, _AHEAD_BYTES = 4, 64, 32 << 20
#: Calls whose values are compared with those of the batches of an iteration that is new.
_COMPARED = 3
#: Indices of a subset that are compared.
_FEW = 8
#: Batch samplers around one another that are looked into.
_NESTED = 8
#: Features of a row that are compared first.
_SAMPLE = 256
_CHANGED = (
    "the model's input is no tensor of the newest {} batches: it is of an earlier one, or computed from one, "
    "so that its rows may come in another order than the sampler's"
)
_UNREADABLE = "what its dataset is made of cannot be read ({}: {})"
_WRITTEN = (
    "its batches were written to in place after the DataLoader gave them, so their rows may come in another "
    "order than the sampler's"
)
_DRAWN = "its sampler draws in another order than that of the dataset, and {}"
_SORTED = "its collate_fn changes the order of the rows"
_LATE = "the probe was attached when its workers had already drawn some of them"
#: Modules of collate functions that keep the order of the rows.
_IN_ORDER = ("torch.utils.data", "transformers.data.data_collator", "transformers.trainer_utils")


@dataclass(eq=False)
class _Iteration:
    """One iteration over a DataLoader.

    Attributes:
        number: Its number among all iterations.
        dataset: The number of the dataset inside of subsets.
        name: The DataLoader in words.
        loader: What it is made of.
        part: What tells its subsets, and the indices of its sampler, apart from others.
        length: How many batches it gives; infinity if that is not known.
        reason: Why the rows of its batches cannot be identified; "" if they can.
        is_mixed: Whether its rows come in another order than that of the dataset, each time perhaps the same.
        is_drawn: Whether its sampler draws them at random.
        subsets: The indices of the subsets, the outermost first.
        rows_of: The dataset inside of them in words.
        indices: What the sampler gave for the batches that have not come.
        newest: The batches that came last: one, and the one before, which may wait for its call.
        batches: The number of batches that came.
        calls: The number of calls of models with them.
        drawn: The number of rows of these batches.
        samples: Of the newest batches, what a collate function of the script's own was given.
        may_prove: Whether the rows of a batch may be known from its samples, although ``reason`` is not "".
        compared: The number of calls whose values were compared with those of batches.
        items: The number of items of its dataset; 0 if that is not known.
        came: The number of its newest batch among all.
        began: The number of its first batch among all, as far as observed.
        was_under_way: Whether it had begun before it was observed.
        drawn_from: The number of its subset, or of a sampler of indices, or of its dataset.
        stood_for: The number of the batch for whose call a step of an optimizer was counted.
    """

    number: int
    dataset: int
    name: str
    loader: Hashable
    part: Hashable
    length: float
    reason: str
    is_mixed: bool
    subsets: list[Any]
    rows_of: str
    indices: deque[Any] = field(default_factory=deque)
    newest: deque[_Batch] = field(default_factory=lambda: deque(maxlen=_FIRST_BATCHES))
    batches: int = 0
    calls: int = 0
    drawn: int = 0
    samples: deque[Sequence[Any]] = field(default_factory=lambda: deque(maxlen=_FIRST_BATCHES))
    may_prove: bool = False
    compared: int = 0
    items: float = 0
    came: int = 0
    began: int = 0
    was_under_way: bool = False
    drawn_from: int = 0
    stood_for: int = 0
    is_drawn: bool = False


@dataclass(eq=False)
class _Batch:
    """A batch that came.

    Attributes:
        iteration: The iteration that it is of.
        tensors: Its tensors.
        index: What the sampler gave for it.
        number: Its number among all batches.
        first: The number of its first row among those of the iteration.
        samples: What a collate function of the script's own made it of; empty if that is not known.
        used: Whether a model has used it.
        versions: How often each tensor had been written to when it came.
        nbytes: The bytes of its tensors.
    """

    iteration: _Iteration
    tensors: list[Tensor]
    index: Any
    number: int
    first: int = 0
    samples: Sequence[Any] = ()
    used: bool = False
    versions: list[int | None] = field(init=False)
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.versions = [_version(one) for one in self.tensors]
        self.nbytes = sum(one.numel() * one.element_size() for one in self.tensors)


class Arrivals(NamedTuple):
    """The batches that had come at some time.

    Attributes:
        recent: The newest, as far as they are kept.
        came: The number of all.
    """

    recent: list[_Batch]
    came: int


class _Joined(Sequence[int]):
    """The indices of subsets that are joined: in each part, through the subsets around it."""

    def __init__(self, ends: list[int], parts: list[list[Any]]) -> None:
        self._ends, self._parts = ends, parts

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        index += len(self) if index < 0 else 0
        part = bisect_right(self._ends, index)
        return _mapped(index - (self._ends[part - 1] if part else 0), self._parts[part])


def _mapped(index: int, subsets: list[Any]) -> int:
    """Return the index of a row in the dataset inside of subsets."""
    for indices in subsets:
        index = operator.index(indices[index])
    return index


class LoaderObserver:
    """Observes all DataLoaders of the process while somebody is attached.

    Attributes:
        complete: How many batches came in iterations that went on to the end, by their numbers.
        given: How many batches came in each iteration.
        came: The number of batches that came so far.
        arrivals: These batches; another object for each that comes.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # while it attaches, the garbage collector may detach another
        self._listeners: dict[int, weakref.WeakMethod[Callable[[int], None]]] = {}
        self._originals: dict[str, Any] = {}
        self._numbers = count(1)
        self._iterations: weakref.WeakKeyDictionary[Any, _Iteration] = weakref.WeakKeyDictionary()
        self._datasets = Datasets()
        self.arrivals = Arrivals([], 0)
        self._iterators: dict[int, weakref.ref[Any]] = {}  # by the number of the iteration
        self.complete: dict[int, int] = {}
        self.given: dict[int, int] = {}
        self.came = 0
        self._recognized: set[int] = set()  # iterations that a call had a batch of for certain
        self._rounds: dict[int, float] = {}
        # By what a loader is made of: numbers of a tensor in its batches and in its samples. See ``_proven``.
        self._in_order: dict[Hashable, set[tuple[int, int]]] = {}
        self._reordering: set[Hashable] = (
            set()
        )  # of loaders whose collate function was seen to reorder a batch
        self._full: set[int] = set()  # of iterations that gave all their batches, perhaps not asked for more

    def attach(self, on_end: Callable[[int], None]) -> Callable[[], None]:
        """Start to observe.

        Args:
            on_end: A method, to be called with the number of an iteration that is over, if a model was
                called with its last batch. It is referred to weakly.

        Returns:
            A function that stops to observe.
        """
        with self._lock:
            token = next(self._numbers)
            self._listeners[token] = weakref.WeakMethod(on_end)
            if not self._originals:
                self._patch("__init__", lambda iterator, out: self._begin(iterator, ""))
                self._patch("_reset", lambda iterator, out: self._begin(iterator, ""))
                self._patch("_next_index", self._drawn)
                self._patch("__next__", self._came)
        return partial(self._detach, token)

    def _detach(self, token: int) -> None:
        with self._lock:
            if self._listeners.pop(token, None) is not None and not self._listeners:
                for name, original in self._originals.items():
                    setattr(_BaseDataLoaderIter, name, original)
                self._originals = {}
                self.arrivals = Arrivals([], self.came)
                self.complete.clear()
                self.given.clear()
                self._iterators.clear()
                self._full.clear()
                self._rounds.clear()
                self._in_order.clear()
                self._reordering.clear()
                self._recognized.clear()
                self._iterations = weakref.WeakKeyDictionary()
                self._datasets = Datasets()

    def origin(
        self, at: Arrivals, inputs: Any, trained: Collection[int], *, guesses: bool, since: int
    ) -> Origin | None:
        """Return where the batch of a call's arguments comes from; None if no DataLoader is known to give it.

        It compares addresses in memory. Otherwise it takes the batch that came last, if that is of an
        iteration that is known to train the model. Of another one, the values of a few calls are compared.

        Args:
            at: The batches that had come at the call.
            inputs: The arguments of the call; empty for a step of an optimizer that stands for one.
            trained: The iterations that are known to train the model.
            guesses: Whether a batch of another iteration is taken if it is under way, or is like one that was
                read into a list: it came after the last call, and others were recognized.
            since: The number of batches that had come at the last call.
        """
        recent = at.recent
        if not recent:
            return None
        of = recent[-1].iteration
        if of.stood_for == at.came and inputs:  # the call follows within the step, as in a closure
            of.calls, of.stood_for = of.calls - 1, 0
        # the usual case, for which nothing is compared: this runs before each step of a training
        is_trained = of.number in trained
        is_usual = is_trained and of.calls + 1 >= of.batches and at.came != since
        if not is_usual or any(batch.iteration is not of for batch in recent):
            batch = _match(recent, inputs, _shares_rows)
            # Training without a loader may have rows that equal those of one that was read through meanwhile.
            may_be = guesses or self.is_open(of.number)
            if batch is None and not is_trained and may_be and of.compared < _COMPARED:
                of.compared += 1
                batch = _match(recent, inputs, _is_copy)
            if batch is not None:
                is_again, batch.used, of = batch.used, True, batch.iteration
                self._recognized.add(of.number)
                of.calls -= is_again  # a further pass over it is no call with another one
            elif not is_trained and not (
                guesses and (self.is_open(of.number) or self._is_listed(recent, inputs, trained, since))
            ):
                return None
        of.calls += 1
        if not inputs:
            of.stood_for = at.came
        return _origin(of)

    def _is_listed(self, recent: list[_Batch], inputs: Any, trained: Collection[int], since: int) -> bool:
        """Return whether a call may have an early batch of an iteration that was read into a list."""
        if recent[-1].number <= since or self._recognized.isdisjoint(trained):
            return False
        of = recent[-1].iteration
        shapes = {one.shape for batch in recent if batch.iteration is of for one in batch.tensors}
        return any(one.shape in shapes for one in leaves(inputs, Tensor) if one.ndim)

    def source(self, at: Arrivals, inputs: Any, since: int | None) -> tuple[list[Origin], bool]:
        """Return what ``origin`` does, counting no call, and whether a tensor of the batch was recognized.

        Args:
            at: The batches that had come at the call.
            inputs: The arguments of the call.
            since: Of a call that is not recognized, all iterations are returned that gave a batch after so
                many, and that its rows may be of; None for all batches that are kept.
        """
        recent = at.recent
        batch = _match(recent, inputs, _shares_rows)
        if batch is None and any(one.iteration is not recent[-1].iteration for one in recent):
            batch = _match(recent, inputs, _has_equal_rows)
        if batch is not None:
            return [_origin(batch.iteration)], True
        tensors = [tensor for tensor in leaves(inputs, Tensor) if tensor.ndim]
        newest = [one for one in recent if since is None or one.number > since]
        found = {one.iteration.number: one.iteration for one in newest if _may_be_of(tensors, one, newest)}
        return [_origin(of) for of in found.values()], False

    def outers(self, at: Arrivals, origin: Origin, before: Origin | None, since: int) -> list[Origin]:
        """Return iterations that began before the newest batch of a call's came, and have no call yet.

        Args:
            at: The batches that had come at the call.
            origin: That of the call.
            before: The iteration of the loop before. One over its rows, which those of the call are not, may
                also have begun after the batch.
            since: The number of batches that had come before they began.
        """
        sought = None if before is None or origin.has_rows_of(before) else before
        came = [batch.iteration for batch in at.recent]
        newest = max((place for place, of in enumerate(came) if of.number == origin.iteration), default=0)
        found: dict[int, Origin] = {}
        for place, of in enumerate(came):
            one = _origin(of)
            is_new = of.began > since and of.batches <= _FIRST_BATCHES and not of.calls
            is_before = place < newest or (sought is not None and one.has_rows_of(sought))
            if of.number != origin.iteration and is_new and is_before and self.is_open(of.number):
                found[of.number] = one
        return [*found.values()]

    def items(self, at: Arrivals, inputs: Any, since: int) -> Items | None:
        """Return the ids of the rows in a call's arguments; None if no DataLoader gave a batch.

        It compares values where addresses differ, which waits for a GPU.

        Args:
            at: The batches that had come at the call.
            inputs: The arguments of the call.
            since: The number of batches that had come when the model was first observed. If no batch is
                recognized, loaders that were read to their end before are taken to be those of other models.
        """
        recent = at.recent
        if not recent:
            return None
        batch = _match(recent, inputs, _shares_rows) or _match(recent, inputs, _has_equal_rows)
        of = (batch or recent[-1]).iteration
        if batch is None:
            if recent[-1].number <= since and not self.is_open(of.number):
                return None
            reason = of.reason if of.is_mixed else _CHANGED.format(len(recent))
            # of an iteration under way, ``random_loader`` tells it
            is_drawn = of.is_drawn and not self.is_open(of.number)
            return Items(of.number, of.dataset, of.name, None, reason, of.is_mixed or is_drawn)
        tensors = _numbers(batch, inputs)
        given, is_written = [batch.tensors[one] for one in tensors], _is_written(batch, inputs)
        proven = [] if is_written else self._proven(batch, tensors)
        ids, reason = (None, _WRITTEN) if is_written else _items(batch, "" if proven else of.reason)
        shuffles = "" if proven else _shuffles(batch, given)
        if shuffles:
            self._reordering.add(of.loader)
        reason = shuffles or reason
        # a collate function may add noise to the items, which they are not compared by
        compared = proven or given
        contents = None if ids is None else _contents(compared, len(ids))
        form = hash(tuple((one.shape[1:], one.dtype) for one in compared))
        is_reordered = of.is_mixed or reason is _WRITTEN or bool(shuffles)
        return Items(
            of.number, of.dataset, of.name, ids, reason, is_reordered, tensors, contents, form, of.rows_of
        )

    def _proven(self, batch: _Batch, numbers: Sequence[int]) -> list[Tensor]:
        """Return the tensors of a batch whose rows are known to be its samples in their order.

        A tensor with rows that are all different shows this for itself. Of one that did, later batches may
        have copies. One that never does, such as a class or a constant, shows nothing; nor do those that a
        function which sorts, and so was seen to reorder others, happens to leave in order.
        """
        of = batch.iteration
        if not of.may_prove or of.loader in self._reordering:
            return []
        known = self._in_order.setdefault(of.loader, set())
        in_order = rows_in_order(batch.samples, [batch.tensors[one] for one in numbers])
        found = {(numbers[at], place): is_shown for (at, place), is_shown in in_order.items()}
        known |= {pair for pair, is_shown in found.items() if is_shown}
        return [batch.tensors[one] for one in sorted({number for number, _ in found.keys() & known})]

    def is_gone(self, dataset: int) -> bool:
        """Return whether a dataset, or the part of one that an iteration draws from, no longer exists."""
        return self._datasets.is_gone(dataset)

    def is_open(self, number: int) -> bool:
        """Return whether an iteration may still give batches: its iterator exists, and has not ended."""
        reference = self._iterators.get(number)
        iterator = None if reference is None or number in self.complete else reference()
        known = None if iterator is None else self._iterations.get(iterator)  # it may have begun anew
        return known is not None and known.number == number

    def is_over(self, number: int) -> bool:
        """Return whether an iteration has given all batches of its loader."""
        return number in self.complete or number in self._full

    def rounds(self, number: int) -> float | None:
        """Return how many times the rows of its dataset an iteration has given; None if that is not known."""
        return self._rounds.get(number)

    # -- called by the iterators -----------------------------------------------------------------------

    def _patch(self, name: str, after: Callable[[Any, Any], object]) -> None:
        original = vars(_BaseDataLoaderIter)[name]

        @wraps(original)
        def observed(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                out = original(iterator, *args, **kwargs)
            except StopIteration:
                if name == "__next__":
                    with suppress(Exception):
                        self._ended(iterator)
                raise
            with suppress(Exception):  # an unusual loader must not fail because it is observed
                after(iterator, out)
            return out

        self._originals[name] = original
        setattr(_BaseDataLoaderIter, name, observed)

    def _begin(self, iterator: Any, reason: str) -> _Iteration:
        name = _name(iterator)
        mixed = _mixed(iterator)
        reason = mixed or _unordered(iterator) or reason
        is_readable = True
        try:
            dataset, subsets = self._inside(iterator._dataset)
        except Exception as error:  # its iterations count epochs all the same
            dataset, subsets, is_readable = iterator._dataset, [], False
            reason = reason or _UNREADABLE.format(type(error).__name__, error)
        sampler = _samplers(iterator)[-1]
        is_of_part = isinstance(sampler, SubsetRandomSampler)
        number = self._datasets.number(dataset)
        part = _part([*subsets, sampler.indices] if is_of_part else subsets)
        loader = _loader(iterator, name, part)
        rows_of = f"the {type(dataset).__name__} that its subsets are of" if subsets else "its dataset"
        length = _length(iterator._index_sampler)
        iteration = _Iteration(
            next(self._numbers), number, name, loader, part, length, reason, bool(mixed), subsets, rows_of
        )
        if math.isfinite(size := _length(iterator._dataset)):
            iteration.items = size
        iteration.is_drawn = isinstance(sampler, _RANDOM)
        iteration.drawn_from = self._datasets.number(sampler if is_of_part else iterator._dataset)
        self._iterations[iterator] = iteration
        if _own_collate(iterator) and _keep_samples(iterator, iteration):
            iteration.may_prove = is_readable and (_batch_size(iterator) or 0) <= MOST
        self._iterators[iteration.number] = weakref.ref(iterator)
        return iteration

    def _inside(self, dataset: Any) -> tuple[Any, list[Any]]:
        """Return the dataset inside of subsets, and their indices, the outermost first.

        Subsets that are joined again, such as folds, are of one dataset too.
        """
        subsets: list[Any] = []
        while True:
            if isinstance(dataset, Subset):
                subsets.append(dataset.indices)
                dataset = dataset.dataset
                continue
            if getattr(type(dataset), "__getitem__", None) is not ConcatDataset.__getitem__:
                return dataset, subsets
            parts = [self._inside(part) for part in dataset.datasets]
            if len({self._datasets.number(one) for one, _ in parts}) != 1:
                return dataset, subsets
            subsets.append(_Joined(dataset.cumulative_sizes, [indices for _, indices in parts]))
            dataset = parts[0][0]

    def _of(self, iterator: Any) -> _Iteration:
        """Return the iteration of an iterator, also of one that was under way when the first was attached."""
        known = self._iterations.get(iterator)
        if known is not None:
            return known
        begun = self._begin(iterator, "" if type(iterator) is _SingleProcessDataLoaderIter else _LATE)
        begun.was_under_way = True
        return begun

    def _drawn(self, iterator: Any, index: Any) -> None:
        self._of(iterator).indices.append(index)

    def _came(self, iterator: Any, data: Any) -> None:
        iteration = self._of(iterator)
        index = iteration.indices.popleft() if iteration.indices else None
        iteration.batches += 1
        self.given[iteration.number] = iteration.batches
        if iteration.items and isinstance(index, list | tuple):
            self._rounds[iteration.number] = (
                self._rounds.get(iteration.number, 0.0) + len(index) / iteration.items
            )
        self.came += 1
        iteration.came, iteration.began = self.came, iteration.began or self.came
        tensors = [one for one in leaves(data, Tensor) if one.ndim]
        samples = iteration.samples.popleft() if iteration.samples else ()
        iteration.newest.append(_Batch(iteration, tensors, index, self.came, iteration.drawn, samples))
        iteration.drawn += len(index) if isinstance(index, list) else 1
        self._keep(iteration)
        if iteration.batches == iteration.length:
            self._full.add(iteration.number)

    def _keep(self, iteration: _Iteration) -> None:
        """Keep the newest batch of an iteration, and forget others."""
        ahead = min(iteration.batches - iteration.calls, _AHEAD)  # no model was called with so many of it
        kept, nbytes = [iteration.newest[-1]], 0
        for batch in reversed(self.arrivals.recent):
            nbytes += batch.nbytes
            is_new = len(kept) < _RECENT or (len(kept) < ahead and nbytes <= _AHEAD_BYTES)
            if is_new or (batch in batch.iteration.newest and self.is_open(batch.iteration.number)):
                kept.append(batch)
        self.arrivals = Arrivals(kept[::-1], self.came)

    def _ended(self, iterator: Any) -> None:
        iteration = self._iterations[iterator]
        self.complete[iteration.number] = iteration.batches
        newest = iteration.newest
        used = bool(newest) and (newest[-1].used or iteration.calls >= iteration.batches)
        newest.clear()
        if not used:  # a wrapper fetched ahead
            return
        for reference in list(self._listeners.values()):
            if (listener := reference()) is not None:
                listener(iteration.number)


#: The observer of this process.
LOADERS = LoaderObserver()


def _origin(of: _Iteration) -> Origin:
    return Origin(
        of.number,
        of.dataset,
        of.name,
        of.loader,
        of.length,
        of.part,
        of.came,
        of.was_under_way,
        of.drawn_from,
    )


def _match(recent: list[_Batch], inputs: Any, same: Callable[[Tensor, Tensor], bool]) -> _Batch | None:
    """Return the newest batch that has one of the tensors in a call's arguments."""
    tensors = [tensor for tensor in leaves(inputs, Tensor) if tensor.ndim]
    for batch in reversed(recent):
        if any(same(tensor, known) for tensor in tensors for known in batch.tensors):
            return batch
    return None


def _may_be_of(tensors: list[Tensor], batch: _Batch, batches: list[_Batch]) -> bool:
    """Return whether tensors may be computed from a batch, alone or joined with others.

    The number of their rows tells it, which are along the first axis, or along the second with time first.
    Along the first axis, a batch may be there several times.
    """
    sizes, others = ([len(known) for one in some for known in one.tensors] for some in ([batch], batches))
    rows = {len(one) for one in tensors}
    rows_of_sequences = {one.shape[1] for one in tensors if one.ndim > 2}
    return any(_are_summed(size, others, number) for size in sizes for number in rows) or any(
        size == number for size in sizes for number in rows_of_sequences
    )


def _are_summed(size: int, sizes: Collection[int], rows: int) -> bool:
    """Return whether a number of rows is a sum of the sizes of batches, each any times, with one of them.

    Example:
        >>> [_are_summed(10, (10, 40), rows) for rows in (40, 50, 90, 45)]
        [True, True, True, False]
        >>> _are_summed(40, (10, 40), 30)
        False
    """
    if not 0 < size <= rows:
        return False
    sums = 1  # bit i: whether i is a sum
    for step in {one for one in sizes if 0 < one <= rows}:
        while step <= rows:
            sums |= sums << step
            step *= 2
    return bool(sums >> (rows - size) & 1)


def _numbers(batch: _Batch, inputs: Any) -> tuple[int, ...]:
    """Return the numbers of the tensors of a batch that a call's arguments have, in the order of these."""
    found: dict[int, None] = {}
    for tensor in leaves(inputs, Tensor):
        if tensor.ndim:
            for number, known in enumerate(batch.tensors):
                if _shares_rows(tensor, known) or _has_equal_rows(tensor, known):
                    found[number] = None
    return tuple(found)


def _contents(tensors: list[Tensor], rows: int) -> np.ndarray | None:
    """Return a hash of each row of some tensors of a batch; None if that is not cheap, on another device."""
    if any(one.device.type != "cpu" or len(one) != rows for one in tensors):
        return None
    return row_contents(tensors, 0)


def _is_written(batch: _Batch, inputs: Any) -> bool:
    """Return whether a tensor of a batch that a call's arguments have was written to since the batch came.

    One that no argument has, such as that of the labels, may have been written to.
    """
    tensors = [tensor for tensor in leaves(inputs, Tensor) if tensor.ndim]
    return any(
        _version(known) != version and any(same(tensor, known) for tensor in tensors)
        for known, version in zip(batch.tensors, batch.versions, strict=True)
        for same in (_shares_rows, _has_equal_rows)
    )


def _version(tensor: Tensor) -> int | None:
    """Return how often a tensor was written to; None of a tensor of inference mode, which does not count."""
    return None if tensor.is_inference() else tensor._version


def _name(iterator: Any) -> str:
    data = iterator._dataset
    size = _length(data)
    of = f" of {size:,} items" if math.isfinite(size) else ""
    return f"the DataLoader over {type(data).__name__}{of}"


def _loader(iterator: Any, name: str, part: Hashable) -> Hashable:
    """Return what a DataLoader is made of, by which one that is made anew is recognized."""
    return name, part, type(_samplers(iterator)[-1]), _batch_size(iterator)


def _batch_size(iterator: Any) -> int | None:
    """Return how many rows a batch has, as far as the samplers say."""
    sizes = (getattr(one, "batch_size", None) for one in _samplers(iterator))
    return next((size for size in sizes if size is not None), None)


def _part(subsets: list[Any]) -> Hashable:
    """Return what tells subsets apart, by which those that are made anew are recognized."""
    few = ([indices[at] for at in range(min(len(indices), _FEW))] for indices in subsets)
    return tuple((len(indices), str(some)) for indices, some in zip(subsets, few, strict=True))


def _length(sized: Any) -> float:
    """Return the length of a dataset or a sampler; infinity if that is not known, or not to be had."""
    try:
        return len(sized)
    except Exception:  # that of a class of one's own may rely on attributes that it does not have
        return math.inf


def _unordered(iterator: Any) -> str:
    """Return why the sampler's indices do not tell the rows of the batches; "" if they do."""
    if iterator._dataset_kind != _DatasetKind.Map:
        return "an IterableDataset has no indices"
    own = _own_collate(iterator)
    return f"its collate_fn, {own}, may change the order of the rows" if own else ""


def _own_collate(iterator: Any) -> str:
    """Return the name of a collate function that may change the order of rows; "" if it does not."""
    collate = _given_collate(iterator)
    while (inner := getattr(collate, "data_collator", None)) is not None:  # of transformers
        collate = inner
    kind = collate if hasattr(collate, "__qualname__") else type(collate)
    known = collate in (default_collate, default_convert) or str(kind.__module__).startswith(_IN_ORDER)
    return "" if known else str(kind.__qualname__)


def _keep_samples(iterator: Any, iteration: _Iteration) -> bool:
    """Keep what the collate function of an iterator is given, of its newest batches; False in workers."""
    is_here = isinstance(iterator, _SingleProcessDataLoaderIter) and iterator._auto_collation
    if not is_here or iterator._dataset_kind != _DatasetKind.Map:
        return False
    collate = _given_collate(iterator)

    def collated(samples: Any) -> Any:
        iteration.samples.append(list(samples))  # which it may sort in place
        return collate(samples)

    collated.given = collate  # type: ignore[attr-defined]
    iterator._collate_fn = collated  # which the fetcher is made with, unless the iteration is under way
    if (fetcher := getattr(iterator, "_dataset_fetcher", None)) is not None:
        fetcher.collate_fn = collated
    return True


def _given_collate(iterator: Any) -> Any:
    """Return the collate function of the script."""
    return getattr(iterator._collate_fn, "given", iterator._collate_fn)


def _shuffles(batch: _Batch, tensors: list[Tensor]) -> str:
    """Return why rows are known to come in another order than that of the dataset; "" if they are not.

    Of a collate function of the script's own, which otherwise is taken to keep it.
    """
    index, reason = batch.index, batch.iteration.reason
    if not batch.samples and not reason.startswith("its collate_fn"):
        return ""
    if isinstance(index, list) and index != list(range(batch.first, batch.first + len(index))):
        return _DRAWN.format(reason)
    return _SORTED if is_reordered(list(batch.samples), tensors) else ""


def _mixed(iterator: Any) -> str:
    """Return why rows come in another order than that of the dataset for any sampler; "" if they do not.

    The first batch of each epoch may be the same all the same.
    """
    workers = iterator._num_workers
    if workers > 1 and not getattr(iterator, "_in_order", True):
        return (
            f"the DataLoader has in_order=False, so that batches of {workers} workers come as they are ready"
        )
    if workers > 1 and iterator._dataset_kind == _DatasetKind.Iterable:
        return (
            f"an IterableDataset has no indices, and batches of its {workers} workers come in turns, which "
            "is not the order of the dataset (with num_workers=0 it is)"
        )
    return ""


def _items(batch: _Batch, reason: str) -> tuple[np.ndarray | None, str]:
    """Return the ids of a batch's rows in the dataset inside of subsets, or None and the reason.

    Args:
        batch: The batch.
        reason: Why its rows are known not to be those that the sampler named; "" if they are.
    """
    if reason:
        return None, reason
    index = batch.index
    try:
        given = index if isinstance(index, list | tuple) else list(index)
        listed = [_mapped(operator.index(one), batch.iteration.subsets) for one in given]
    except TypeError:
        return None, f"its sampler gives {type(index).__name__}, and not indices of rows"
    return np.array(listed, np.int64), ""


def _shares_rows(tensor: Tensor, known: Tensor) -> bool:
    """Return whether each row of a tensor is in the memory of the same row of another."""
    if len(tensor) != len(known) or tensor.device != known.device or tensor.layout != torch.strided:
        return False
    memory = tensor.untyped_storage().data_ptr()
    if not memory or memory != known.untyped_storage().data_ptr():
        return False
    size = known.element_size()
    step = known.stride(0) * size
    offset = tensor.data_ptr() - known.data_ptr()
    if len(tensor) == 1:
        return True
    return tensor.stride(0) * tensor.element_size() == step and 0 <= offset < step


def _has_equal_rows(tensor: Tensor, known: Tensor) -> bool:
    """Return whether a tensor is a copy of another, on any device and in any type of numbers."""
    if tensor.shape != known.shape or not tensor.numel() or tensor.layout != torch.strided:
        return False
    with torch.no_grad():
        one, other = tensor.detach().flatten(1 if tensor.ndim > 1 else 0), known.detach()
        other = other.flatten(1 if other.ndim > 1 else 0)
        every = max(1, one.shape[-1] // _SAMPLE) if one.ndim > 1 else 1
        few = one[..., ::every].to("cpu")
        if not torch.equal(few, other[..., ::every].to("cpu", few.dtype)):
            return False
        if every == 1 or len(torch.unique(few, dim=0)) == len(few):
            return True
        return torch.equal(one, other.to(one.device, one.dtype))


def _is_copy(tensor: Tensor, known: Tensor) -> bool:
    """Return whether a tensor is a copy of another, and not just as constant, as a mask of ones is."""
    return _has_equal_rows(tensor, known) and bool((tensor != tensor.flatten()[0]).any())


def random_loader() -> str | None:
    """Return a description of a DataLoader whose rows come in another order than that of its dataset.

    It has a random sampler, or workers whose batches are mixed, and is being iterated over.

    The iterators are found through the garbage collector, which takes some 30 ms, so this is meant for the
    first batch of an epoch. If an iterator has just begun, those that began before it, such as the
    training's during an evaluation, are ignored.

    Returns:
        A clause such as "a DataLoader over TensorDataset of 60 items draws them with RandomSampler"; None if
        there is none.
    """
    active = [iterator for iterator in _objects_of(_BaseDataLoaderIter) if _is_active(iterator)]
    started = [iterator for iterator in active if iterator._num_yielded <= _FIRST_BATCHES]
    for iterator in started or active:
        if mixed := _mixed(iterator):
            return f"{_name(iterator)} gives them in an order of its own, because {mixed}"
        sampler = _samplers(iterator)[-1]
        if isinstance(sampler, _RANDOM):
            name = _name(iterator).removeprefix("the ")
            return f"a {name} draws them with {type(sampler).__name__}"
    return None


def _objects_of(kind: type) -> list[Any]:
    """Return the objects of a class and of its subclasses, each of which refers to its class."""
    kinds, found = {kind}, [kind]
    while found:
        more: list[type] = found.pop().__subclasses__()
        found += [one for one in more if one not in kinds]
        kinds |= set(more)
    return [one for one in gc.get_referrers(*kinds) if type(one) in kinds]


def is_trained(model: torch.nn.Module) -> bool:
    """Return whether an optimizer has a parameter of the model, found through the garbage collector."""
    own = {id(parameter) for parameter in model.parameters()}
    return any(
        id(parameter) in own
        for one in _objects_of(torch.optim.Optimizer)
        for group in one.param_groups
        for parameter in group["params"]
    )


def _samplers(iterator: Any) -> list[Any]:
    """Return the sampler of an iterator and those inside of it, which other batch samplers may wrap."""
    found = [iterator._index_sampler]
    while len(found) < _NESTED:
        inside = (getattr(found[-1], name, None) for name in ("sampler", "batch_sampler"))
        inner = next((one for one in inside if one is not None), None)
        if inner is None:
            break
        found.append(inner)
    return found


def _is_active(iterator: Any) -> bool:
    """Return whether an iterator is within an epoch, not waiting for the next (``persistent_workers``)."""
    done: int = iterator._num_yielded
    total = _length(iterator._index_sampler)
    return 0 < done < total or done == total == 1
