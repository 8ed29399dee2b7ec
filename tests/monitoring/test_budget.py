"""The budget bounds the cost for any model, and leaves short trainings complete."""

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


def both_clocks(seconds):
    """Return equal times on both clocks, as on a machine without other load."""
    return Seconds(seconds, seconds)


@settings(max_examples=60, deadline=None)
@given(
    share=st.floats(0.001, 0.5),
    costs=st.lists(st.floats(0, 3), min_size=20, max_size=300),
    steps=st.floats(0.001, 1.0),
    epoch=st.integers(1, 50),
)
def test_spending_is_bounded_by_share_and_free_time(share, costs, steps, epoch):
    budget, now, spent = Budget(share), 0.0, 0.0
    for number, cost in enumerate(costs):
        if budget.allows(both_clocks(now), number // epoch):
            budget.pay(both_clocks(cost))
            spent += cost
            now += cost
        now += steps
        assert spent <= share * now + 2 * FREE_S + max(costs)
    assert budget.skipped < len(costs)


@pytest.mark.parametrize("others", [1, 4], ids=["alone", "of four"])
@pytest.mark.parametrize("waits", [0.0, 0.02], ids=["never", "waiting"])
def test_budget_bounds_both_clocks(others, waits):
    """Let the training have one processor in ``others``.

    Recording a pass takes as long as a step, waits ``waits`` seconds of wall-clock time, and gives the sender
    as much work.
    """
    budget, wall, processor, spent, waited = Budget(0.05), 0.0, 0.0, 0.0, 0.0
    for _ in range(5000):
        if budget.allows(Seconds(wall, processor), 0):
            budget.pay(Seconds(0.01 * others + waits, 0.01))
            budget.pay(both_clocks(0.01))  # the sender
            spent, waited = spent + 0.02, waited + 0.01 * others + waits
            wall, processor = wall + 0.02 * others + waits, processor + 0.02
        wall, processor = wall + 0.01 * others, processor + 0.01
    assert spent <= 0.05 * processor + FREE_S + 0.04
    assert waited <= 0.05 * wall + FREE_S + 0.01 * others + waits
    assert max((spent - FREE_S) / processor, (waited - FREE_S) / wall) > 0.03


def test_infinite_budget_skips_nothing():
    budget = Budget(math.inf)
    for number in range(100):
        assert budget.allows(both_clocks(number), 0)
        budget.pay(both_clocks(9.0))
        budget.adapt_rows(10**12, 64)
    assert budget.rows is None


def test_rows_are_reduced_for_large_pass():
    budget = Budget(0.05)
    assert budget.allows(both_clocks(0.0), 0)
    budget.adapt_rows(4 * PASS_BYTES, 64)
    assert budget.rows == 16


def test_rows_are_reduced_for_slow_pass_and_recover():
    budget, now = Budget(0.05), 0.0
    for _ in range(2000):
        now += 0.01
        if budget.allows(both_clocks(now), 0):
            budget.pay(both_clocks(0.4 * min(budget.rows or 256, 256) / 256))
            budget.adapt_rows(1000, 256)
    assert ROWS <= budget.rows <= 32
    for _ in range(2000):
        now += 0.01
        if budget.allows(both_clocks(now), 0):
            budget.pay(both_clocks(1e-5))
            budget.adapt_rows(1000, 256)
    assert budget.rows >= 256


def test_every_epoch_has_a_pass_within_credit():
    budget, now, watched = Budget(0.05), 0.0, set()
    for epoch in range(40):
        for _ in range(10):
            now += 0.01
            if budget.allows(both_clocks(now), epoch):
                watched.add(epoch)
                budget.pay(both_clocks(0.012))
    assert watched == set(range(40))


@pytest.mark.parametrize("wrong", [0, -1, "5%", True, float("nan")])
def test_invalid_budget_is_refused(wrong):
    with pytest.raises(InputError, match="budget must be"):
        probe(nn.Linear(2, 2), budget=wrong)


def test_slow_probe_skips_passes_within_budget(server, monkeypatch):
    """Each copy takes 20 ms, each step 2 ms."""
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
