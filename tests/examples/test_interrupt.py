"""Ctrl+C ends the demo even if a library swallows it."""

from __future__ import annotations

import contextlib
import signal

import pytest

from intus.demo.interrupt import interruptible


def press_swallowed() -> None:
    """Press Ctrl+C where a library has ``except:`` around an import."""
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


def run(*steps):
    with interruptible() as check:
        for step in steps:
            check()
            step()


def test_swallowed_interrupt_is_raised_by_the_next_check():
    reached = []
    with pytest.raises(KeyboardInterrupt):
        run(lambda: reached.append("before"), press_swallowed, lambda: reached.append("after"))
    assert reached == ["before"]


def test_swallowed_interrupt_is_raised_at_the_end():
    with pytest.raises(KeyboardInterrupt):
        run(press_swallowed)


def test_interrupt_turned_into_another_exception():
    def fail():
        press_swallowed()
        raise ImportError("a module could not be initialised")

    with pytest.raises(KeyboardInterrupt):
        run(fail)


def test_handler_is_restored():
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as check:
        check()
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ZeroDivisionError):
        run(lambda: 1 / 0)
    assert signal.getsignal(signal.SIGINT) is before
