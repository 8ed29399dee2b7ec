"""Settings of all tests: property tests have no deadline, because the machine may be busy.

The tests of a framework other than torch run in its own environment alone; see ``make test-frameworks``.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from postgres_help import postgres

#: Servers of tests write their tokens here, not into the user's folder.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="intus-tests-")

pytest.register_assert_rewrite("backends.contract")

settings.register_profile("intus", deadline=None)
settings.load_profile("intus")

#: The framework whose environment this is; "" in the main one.
FRAMEWORK = os.environ.get("INTUS_FRAMEWORK", "")
#: The frameworks whose tests need an environment of their own, by the name of their folder. Their folder
#: ``tests/frameworks`` holds no test itself: on the path of imports it would hide what is not installed.
APART = ("jax", "tensorflow", "mxnet", "onnx")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of frameworks of other environments."""
    apart = collection_path.parent.name == "frameworks" and collection_path.name in APART
    return True if apart and collection_path.name != FRAMEWORK else None


def pytest_collection_finish() -> None:
    """Take what is imported and collected, a million objects, out of the garbage collector's lists.

    The probe searches them for iterators and optimizers in each epoch, and tests collect garbage.
    """
    if not FRAMEWORK:
        gc.collect()
        gc.freeze()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the records that a probe makes."""
    from intus.monitoring.sender import Sender

    out: list[Any] = []
    gather = Sender.gather

    def keep(self: Sender, record: Any, nbytes: int, contents: Any = None) -> None:
        out.append(record)
        gather(self, record, nbytes)

    monkeypatch.setattr(Sender, "gather", keep)
    return out


@pytest.fixture
def unsent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the records that a probe makes, which are not sent, so that no server needs to answer."""
    from intus.monitoring.sender import Sender

    out: list[Any] = []
    monkeypatch.setattr(Sender, "gather", lambda self, record, *_: out.append(record))
    monkeypatch.setattr(Sender, "reserve", lambda *_: True)
    return out


@pytest.fixture(scope="session")
def new_postgres() -> Iterator[Callable[[], str]]:
    """Makes a new PostgreSQL database and returns its URL; the server is the tests' own."""
    with postgres() as make:
        yield make
