"""Detect whether rows come in random order, from the DataLoaders that are being iterated over."""

from __future__ import annotations

import gc
from collections.abc import Sized
from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

_ITERATORS = {_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter}
_RANDOM = RandomSampler, SubsetRandomSampler, WeightedRandomSampler
_FIRST_BATCHES = 2  # one batch, and one that is prefetched


def random_loader() -> str | None:
    """Return a description of a DataLoader with a random sampler that is being iterated over.

    The iterators are found through the garbage collector, which takes some 30 ms for a million objects, so
    this is meant for the first batch of an epoch. If an iterator has just begun, those that began before it,
    such as the training's during an evaluation, are ignored.

    Returns:
        A clause such as "a DataLoader over TensorDataset of 60 items draws them with RandomSampler"; None if
        there is none.
    """
    iterators = [iterator for iterator in gc.get_objects() if type(iterator) in _ITERATORS]
    active = [iterator for iterator in iterators if _is_active(iterator)]
    started = [iterator for iterator in active if iterator._num_yielded <= _FIRST_BATCHES]
    for iterator in started or active:
        sampler = _sampler(iterator)
        if isinstance(sampler, _RANDOM):
            data = iterator._dataset
            size = f" of {len(data)} items" if isinstance(data, Sized) else ""
            return f"a DataLoader over {type(data).__name__}{size} draws them with {type(sampler).__name__}"
    return None


def _sampler(iterator: Any) -> Any:
    sampler = iterator._index_sampler
    return sampler.sampler if isinstance(sampler, BatchSampler) else sampler


def _is_active(iterator: Any) -> bool:
    """Return whether an iterator is within an epoch, not waiting for the next (``persistent_workers``)."""
    done: int = iterator._num_yielded
    try:
        total = len(iterator._index_sampler)
    except TypeError:
        return done > 0
    return 0 < done < total or done == total == 1
