"""The clocks of the training process, for the budget."""

from __future__ import annotations

import time

from .budget import Seconds


def process_seconds() -> Seconds:
    """Return the current time, with the processor time of all threads."""
    return Seconds(time.perf_counter(), time.process_time())


def process_seconds_since(began: Seconds) -> Seconds:
    """Return the time since ``began``, with the processor time of all threads."""
    return Seconds(time.perf_counter() - began.wall, time.process_time() - began.processor)


def thread_seconds() -> Seconds:
    """Return the current time, with the processor time of this thread."""
    return Seconds(time.perf_counter(), time.thread_time())


def thread_seconds_since(began: Seconds) -> Seconds:
    """Return the time since ``began``, with the processor time of this thread."""
    return Seconds(time.perf_counter() - began.wall, time.thread_time() - began.processor)
