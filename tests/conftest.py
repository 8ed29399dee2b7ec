"""What all tests share: property tests have no deadline, for the machine may be busy with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from postgres_help import postgres

pytest.register_assert_rewrite("backends.contract")

settings.register_profile("intus", deadline=None)
settings.load_profile("intus")


@pytest.fixture(scope="session")
def new_postgres() -> Iterator[Callable[[], str]]:
    """Makes a new PostgreSQL database and returns its URL; the server is the tests' own."""
    with postgres() as make:
        yield make
