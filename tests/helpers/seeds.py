"""Seeds of generated tests: a few run in ``make test``, the others in ``make test-long``."""

import pytest


def seeds(count: int, *, quick: int = 1) -> list:
    """Return ``count`` seeds to parametrize a test with, of which all but the first ``quick`` are long."""
    marks = [()] * quick + [pytest.mark.long] * (count - quick)
    return [pytest.param(seed, marks=mark) for seed, mark in enumerate(marks)]
