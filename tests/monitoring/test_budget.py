"""The budget: bounded whatever the model, generous to short trainings, honest about rows."""

from __future__ import annotations

import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from intus.core.errors import InputError
from intus.monitoring import flush, probe
from intus.monitoring.budget import FREE_S, PASS_BYTES, ROWS, Budget, Seconds

HOST = "127.0.0.1"


def alike(seconds):
    """A machine that nobody else uses: what goes by on the wall, one processor works."""
    return Seconds(seconds, seconds)


@settings(max_examples=60, deadline=None)
@given(
    share=st.floats(0.001, 0.5),
    costs=st.lists(st.floats(0, 3), min_size=20, max_size=300),
    steps=st.floats(0.001, 1.0),
    epoch=st.integers(1, 50),
)
def test_what_is_spent_is_what_was_earned_and_what_is_free(share, costs, steps, epoch):
    budget, now, spent = Budget(share), 0.0, 0.0
    for number, cost in enumerate(costs):
        if budget.allows(alike(now), number // epoch):
            budget.pay(alike(cost))
            spent += cost
            now += cost
        now += steps
        assert spent <= share * now + 2 * FREE_S + max(costs)
    assert budget.skipped < len(costs)


@pytest.mark.parametrize("others", [1, 4], ids=["alone", "of four"])
@pytest.mark.parametrize("waits", [0.0, 0.02], ids=["never", "waiting"])
def test_it_holds_on_either_clock(others, waits):
    """The training has one processor in ``others``; a watched pass takes it as long as a step, waits for
    ``waits`` seconds on the wall alone, and leaves the sender as much to do."""
    budget, wall, processor, spent, waited = Budget(0.05), 0.0, 0.0, 0.0, 0.0
    for _ in range(5000):
        if budget.allows(Seconds(wall, processor), 0):
            budget.pay(Seconds(0.01 * others + waits, 0.01))
            budget.pay(alike(0.01))  # the sender
            spent, waited = spent + 0.02, waited + 0.01 * others + waits
            wall, processor = wall + 0.02 * others + waits, processor + 0.02
        wall, processor = wall + 0.01 * others, processor + 0.01
    assert spent <= 0.05 * processor + FREE_S + 0.04
    assert waited <= 0.05 * wall + FREE_S + 0.01 * others + waits
    assert max((spent - FREE_S) / processor, (waited - FREE_S) / wall) > 0.03


def test_without_a_bound_nothing_is_left_out():
    budget = Budget(math.inf)
    for number in range(100):
        assert budget.allows(alike(number), 0)
        budget.pay(alike(9.0))
        budget.passed(10**12, 64)
    assert budget.rows is None


def test_a_pass_that_is_too_large_is_cut_by_rows_at_once():
    budget = Budget(0.05)
    assert budget.allows(alike(0.0), 0)
    budget.passed(4 * PASS_BYTES, 64)
    assert budget.rows == 16


def test_a_pass_that_is_too_dear_is_cut_by_rows_and_recovers():
    budget, now = Budget(0.05), 0.0
    for _ in range(2000):
        now += 0.01
        if budget.allows(alike(now), 0):
            budget.pay(alike(0.4 * min(budget.rows or 256, 256) / 256))
            budget.passed(1000, 256)
    assert ROWS <= budget.rows <= 32
    for _ in range(2000):
        now += 0.01
        if budget.allows(alike(now), 0):
            budget.pay(alike(1e-5))
            budget.passed(1000, 256)
    assert budget.rows >= 256


def test_every_epoch_has_a_pass_while_credit_lasts():
    budget, now, watched = Budget(0.05), 0.0, set()
    for epoch in range(40):
        for _ in range(10):
            now += 0.01
            if budget.allows(alike(now), epoch):
                watched.add(epoch)
                budget.pay(alike(0.012))
    assert watched == set(range(40))


@pytest.mark.parametrize("wrong", [0, -1, "5%", True, float("nan")])
def test_what_is_no_share_is_said(wrong):
    with pytest.raises(InputError, match="budget="):
        probe(nn.Linear(2, 2), budget=wrong)


def test_a_dear_probe_skips_steps_and_its_part_of_the_time_stays_small(server, monkeypatch):
    """Copies that take 20 ms each, in steps of 2 ms."""
    monkeypatch.setattr("intus.monitoring.budget.FREE_S", 0.02)
    copies = []

    def slow(*args):
        copies.append(time.perf_counter())
        time.sleep(0.02)
        return torch.zeros(4, 2).numpy()

    monkeypatch.setattr("intus.backends.torch.captured_tensor.to_numpy", slow)
    model = nn.Sequential(nn.Linear(3, 2))
    began = time.perf_counter()
    with probe(model, HOST, server.port, structure=False, budget=0.1) as watch:
        for _ in range(300):
            model(torch.ones(4, 3))
            time.sleep(0.002)
        taken = time.perf_counter() - began
        status = watch.status()
    assert status["passes"] == 300
    assert status["skipped"] > 200
    assert 2 <= len(copies) <= (0.1 * taken + 0.1) / 0.02
    assert flush(HOST, server.port)
    assert status["skipped"] + len({one.step for one in server.records()}) == 300
