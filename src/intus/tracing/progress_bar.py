"""Show a progress bar during long work, if tqdm is installed and someone watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")

DELAY = 2.0  # seconds before a bar appears


def progress(items: Iterable[_T], what: str, unit: str) -> Iterable[_T]:
    """Return ``items``, with a bar on standard error while they are consumed.

    There is no bar if tqdm is not installed, or standard error is neither a terminal nor a notebook.

    Args:
        items: What is worked on.
        what: The name of the work.
        unit: What one item is called.

    Example:
        >>> list(progress([1, 2], "collect", "batch"))
        [1, 2]
    """
    tqdm = _tqdm()
    if tqdm is None:
        return items
    bar: Iterable[_T] = tqdm(items, desc=what, unit=f" {unit}", delay=DELAY, disable=None, leave=False)
    return bar


@contextmanager
def counter(what: str, unit: str) -> Iterator[Callable[[], Any]]:
    """Show a bar for work of unknown length, as ``progress`` does.

    Args:
        what: The name of the work.
        unit: What one step is called.

    Yields:
        A function to call after each step.
    """
    tqdm = _tqdm()
    if tqdm is None:
        yield lambda: None
        return
    with tqdm(desc=what, unit=f" {unit}", delay=DELAY, disable=None, leave=False) as bar:
        yield bar.update


@contextmanager
def bar(what: str, total: int, unit: str, shown: bool | None = None) -> Iterator[Callable[[int], Any]]:
    """Show a bar for work of known length.

    Args:
        what: The name of the work.
        total: Its length.
        unit: What one step is called.
        shown: Whether to show it; None as ``progress`` does.

    Yields:
        A function of the number of steps that are done.
    """
    tqdm = None if shown is False else _tqdm()
    if tqdm is None:
        yield lambda done: None
        return
    options = {"delay": DELAY, "disable": None, "leave": False} if shown is None else {}
    with tqdm(desc=what, total=total, unit=f" {unit}", **options) as made:
        yield lambda done: made.update(done - made.n)


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm
