"""Whether rows come in random order just now: told by the DataLoaders that are being iterated over."""

from __future__ import annotations

import gc
from collections.abc import Sized
from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

_ITERATORS = {_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter}
_RANDOM = RandomSampler, SubsetRandomSampler, WeightedRandomSampler
_FRESH = 2  # batches: one, and one that is fetched ahead


def random_loader() -> str | None:
    """The DataLoader that draws its items at random and is being iterated over, in words; None where none is.

    The garbage collector knows all iterators that are alive; to go through a million objects takes it some
    30 ms, so this is for the first batch of an epoch. Where an iterator has just begun, those that began
    before it, such as the training's during an evaluation, do not count.
    """
    alive = [one for one in gc.get_objects() if type(one) in _ITERATORS]
    going = [one for one in alive if _is_going(one)]
    fresh = [one for one in going if one._num_yielded <= _FRESH]
    for one in fresh or going:
        sampler = _sampler(one)
        if isinstance(sampler, _RANDOM):
            data = one._dataset
            size = f" of {len(data)} items" if isinstance(data, Sized) else ""
            return f"a DataLoader over {type(data).__name__}{size} draws them with {type(sampler).__name__}"
    return None


def _sampler(iterator: Any) -> Any:
    sampler = iterator._index_sampler
    return sampler.sampler if isinstance(sampler, BatchSampler) else sampler


def _is_going(iterator: Any) -> bool:
    """Not one that waits for its next epoch, as with ``persistent_workers``."""
    done: int = iterator._num_yielded
    try:
        most = len(iterator._index_sampler)
    except TypeError:
        return done > 0
    return 0 < done < most or done == most == 1
