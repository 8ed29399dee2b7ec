"""The clocks of the training process, as the budget wants them."""

from __future__ import annotations

import time

from .budget import Seconds


def of_process() -> Seconds:
    """Now, with what all threads of the process have worked."""
    return Seconds(time.perf_counter(), time.process_time())


def of_thread() -> Seconds:
    """Now, with what this thread has worked."""
    return Seconds(time.perf_counter(), time.thread_time())


def since(began: Seconds) -> Seconds:
    """What this thread has taken since."""
    return Seconds(time.perf_counter() - began.wall, time.thread_time() - began.processor)
