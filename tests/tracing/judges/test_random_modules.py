"""Hypothesis writes modules: views, writes, branches, loops, shared parameters, nested outputs."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from sweep.check_program import check_program
from sweep.judges.programs import program

CHECKS = list(HealthCheck)
STEPS = {f"{step} ok" for step in ("equal", "valid", "rerun", "saved", "decisions", "edges")}


def check(one):
    found = check_program(one)
    assert found.wrong == []
    if found.counts["ran"]:
        assert found.counts.keys() >= STEPS
    return found.counts


@pytest.mark.long
@settings(max_examples=15, deadline=None, suppress_health_check=CHECKS, derandomize=True)
@given(st.randoms(use_true_random=False), st.integers(1, 8))
def test_module(rng, statements):
    one = program(rng, statements)
    note(one.source)
    check(one)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=CHECKS)
@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_many_modules(rng, statements):
    one = program(rng, statements)
    note(one.source)
    check(one)


@pytest.mark.parametrize("seed", range(12))
def test_program_of_the_sweep(seed):
    assert check(program(Random(seed)))["operations"] > 3


def test_program_with_an_expanded_view_that_is_written_later():
    """Seed 133 of the sweep found this: the writes to the memory of the view could not be combined."""
    assert check(program(Random(133)))["ran"] == 1


def test_decisions_of_a_program():
    kinds = {kind for seed in range(30) for kind, _ in program(Random(seed)).decisions()}
    assert kinds == {"if", "elif", "while", "ternary", "assert", "comprehension"}
