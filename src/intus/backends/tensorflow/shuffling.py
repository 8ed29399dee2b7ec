"""Find out whether ``fit`` of Keras shuffles the rows.

With a seed it draws the same order in every epoch, so that equal first batches do not show it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

_LOOPS = ("fit", "evaluate", "predict")


def random_order(data: Iterable[Any]) -> str | None:
    """Return what shuffles the rows of the data of loops of Keras, or None.

    Args:
        data: What ``loop_data`` returned on the threads that may have called the model.
    """
    for adapter in data:
        if getattr(adapter, "_shuffle", getattr(adapter, "shuffle", False)):
            return "fit shuffles them, unless shuffle=False is passed"
        if any("Shuffle" in type(one).__name__ for one in _datasets(getattr(adapter, "_dataset", None))):
            return "its tf.data.Dataset shuffles them"
    return None


def loop_data() -> Any | None:
    """Return the data of the innermost loop of Keras that this thread is in, or None."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name in _LOOPS and "keras" in code.co_filename and "epoch_iterator" in frame.f_locals:
            return frame.f_locals["epoch_iterator"].data_adapter
        frame = frame.f_back
    return None


def _datasets(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and those that it is made from."""
    todo = [dataset] if dataset is not None else []
    while todo:
        one = todo.pop()
        yield one
        todo += one._inputs()
