"""Ctrl+C ends the demo even where a library swallows it."""

from __future__ import annotations

import contextlib
import signal

import pytest

from intus.demo.interrupt import interruptible


def press_unheard() -> None:
    """As where a library has `except:` around an import that may fail."""
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


def run(*steps):
    with interruptible() as check:
        for step in steps:
            check()
            step()


def test_what_was_swallowed_is_raised_by_the_next_check():
    reached = []
    with pytest.raises(KeyboardInterrupt):
        run(lambda: reached.append("before"), press_unheard, lambda: reached.append("after"))
    assert reached == ["before"]


def test_what_was_swallowed_is_raised_at_the_end():
    with pytest.raises(KeyboardInterrupt):
        run(press_unheard)


def test_what_was_turned_into_an_error_of_another_kind_is_still_an_interrupt():
    def fail():
        press_unheard()
        raise ImportError("a module could not be initialised")

    with pytest.raises(KeyboardInterrupt):
        run(fail)


def test_without_ctrl_c_nothing_is_raised_and_the_handler_is_as_before():
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as check:
        check()
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ZeroDivisionError):
        run(lambda: 1 / 0)
    assert signal.getsignal(signal.SIGINT) is before
