"""The budget bounds the cost for any model, and leaves short trainings complete."""

from __future__ import annotations

import math
import time

import numpy as np
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


def test_nothing_is_waited_for_before_the_first_pass_or_without_a_bound():
    assert Budget(0.02).seconds_until_next(both_clocks(5.0)) == 0
    budget = Budget(math.inf)
    budget.allows(both_clocks(0.0), 0)
    budget.pay(both_clocks(9.0))
    assert budget.seconds_until_next(both_clocks(1.0)) == 0


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
        period = number // epoch
        if not budget.skips(period) and budget.allows(both_clocks(now), period):
            budget.pay(both_clocks(cost))
            spent += cost
            now += cost
        now += steps
        assert spent <= max(FREE_S, FREE_S + share * now / 2, share * now) + max(costs)
    assert budget.skipped < len(costs)


@pytest.mark.parametrize("others", [1, 4], ids=["alone", "of four"])
@pytest.mark.parametrize("waits", [0.0, 0.02], ids=["never", "waiting"])
def test_budget_bounds_both_clocks(others, waits):
    """Let the training have one processor in ``others``.

    Recording a pass takes as long as a step, waits ``waits`` seconds of wall-clock time, and gives the sender
    as much work.
    """
    budget, wall, processor, spent, waited = Budget(0.05), 0.0, 0.0, 0.0, 0.0
    for _ in range(20000):
        if budget.allows(Seconds(wall, processor), 0):
            budget.pay(Seconds(0.01 * others + waits, 0.01))
            budget.pay(both_clocks(0.01))  # the sender
            spent, waited = spent + 0.02, waited + 0.01 * others + waits
            wall, processor = wall + 0.02 * others + waits, processor + 0.02
        wall, processor = wall + 0.01 * others, processor + 0.01
    assert spent <= 0.05 * processor + 0.04  # the loan is repaid
    assert waited <= 0.05 * wall + 0.01 * others + waits
    assert max(spent / processor, waited / wall) > 0.03


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


class Training:
    """A simulated training on both clocks.

    Args:
        share: The share of the budget.
        pass_s: The seconds of monitoring a pass that the budget is told.
        unseen_s: Those that it is not told, and must find.
    """

    def __init__(self, share, pass_s, unseen_s=0.0):
        self.budget, self.now, self.spent, self.looks = Budget(share), 0.0, 0.0, 0
        self.pass_s, self.unseen_s = pass_s, unseen_s
        self._random = np.random.default_rng(0)

    def step(self, period, mode=None, seconds=0.01):
        """Train for a step, and return whether its pass was recorded."""
        allowed = not self.budget.skips(period, mode)
        if allowed:
            self.looks += 1
            allowed = self.budget.allows(both_clocks(self.now), period, mode)
        if allowed:
            self.budget.pay(both_clocks(self.pass_s))
            self.now += self.pass_s + self.unseen_s
            self.spent += self.pass_s + self.unseen_s
        self.now += seconds * self._random.lognormal(0, 0.1)
        return allowed


def test_short_training_is_recorded_completely():
    training = Training(0.02, 0.001, 0.001)
    assert all(training.step(number // 10) for number in range(300))
    assert training.budget.skipped_periods == 0


@pytest.mark.parametrize(("unseen", "most"), [(0.0, 0.05), (0.5, 0.05), (1.0, 0.05), (3.0, 0.06)])
def test_cost_of_thirty_seconds_and_of_long_training(unseen, most):
    """The budget is told only a part of the cost of a pass; the rest takes ``unseen`` times as long."""
    training = Training(0.02, 0.002, 0.002 * unseen)
    recorded = [training.step(number // 500) for number in range(3000)]
    assert 29 < training.now < 33
    assert training.spent / (training.now - training.spent) <= most
    recorded += [training.step(number // 500) for number in range(3000, 20000)]
    assert 0.017 <= training.spent / (training.now - training.spent) <= 0.021
    assert training.budget.spent.processor == pytest.approx(training.spent, rel=0.1)
    gaps = np.diff(np.flatnonzero(recorded[10000:]))
    assert gaps.max() <= 3 * gaps.mean()


def test_clocks_are_read_seldom_while_nothing_can_be_paid():
    training = Training(0.02, 0.02)
    recorded = [training.step(0) for _ in range(20000)]
    assert training.budget.skipped == 20000 - sum(recorded)
    assert sum(recorded) < training.looks < 20000 / 5
    assert 0.017 <= training.spent / (training.now - training.spent) <= 0.021


def test_clocks_are_read_in_each_new_period_and_mode():
    budget, now = Budget(0.02), 0.0
    budget.allows(both_clocks(now), 0, "train")
    budget.pay(both_clocks(30.0))
    for now in range(30, 40):
        if not budget.skips(0, "train"):
            budget.allows(both_clocks(float(now)), 0, "train")
    assert budget.skips(0, "train")
    assert not budget.skips(0, "eval")
    assert not budget.skips(1, "train")


def test_unseen_cost_is_found_only_where_there_is_one():
    training = Training(0.02, 0.002)
    for number in range(5000):
        training.step(number // 500)
    assert training.budget.spent.processor == pytest.approx(training.spent, rel=0.1)


def test_unseen_cost_is_not_taken_from_steps_of_another_mode():
    """A step of the training takes ten times as long as one of the evaluation."""
    training = Training(0.02, 0.002)
    for number in range(20000):
        mode = "eval" if number % 200 >= 100 else "train"
        training.step((number // 200, mode), mode, 0.001 if mode == "eval" else 0.01)
    assert training.budget.spent.processor == pytest.approx(training.spent, rel=0.1)


def test_short_epochs_keep_the_share_and_are_recorded_evenly():
    """An epoch of 0.7 s earns 14 ms, but a pass costs 50 ms."""
    training, watched = Training(0.02, 0.05), []
    for epoch in range(1000):
        watched.append(sum(training.step(epoch) for _ in range(70)) > 0)
    assert training.spent / (training.now - training.spent) <= 0.0205
    skipped = training.budget.skipped_periods
    assert skipped == watched.count(False) - (not watched[-1])  # without the present one
    training.budget.end()
    assert training.budget.skipped_periods == watched.count(False)
    assert training.budget.periods == 1000
    gaps = np.diff(np.flatnonzero(watched[300:]))  # the loan is repaid
    assert set(gaps) <= {3, 4, 5}


def test_minute_of_short_epochs_is_bounded_and_its_first_epochs_are_recorded():
    """A pass costs more than three epochs of 0.7 s earn, half of which the budget must find."""
    training, watched = Training(0.02, 0.02, 0.02), []
    while training.now < 60:
        epoch = len(watched)
        watched.append(sum(training.step(epoch) for _ in range(70)) > 0)
    assert training.spent / (training.now - training.spent) <= 0.025
    assert all(watched[:6])
    assert watched.count(True) >= 16


@pytest.mark.parametrize("cost", [0.02, 0.05, 0.2])
def test_next_recorded_epoch_comes_when_it_is_said_to(cost):
    """In epochs of 0.7 s, also while the loan is repaid."""
    training, said, waits = Training(0.02, cost), None, []
    for epoch in range(400):
        began = training.now
        recorded = [training.step(epoch, seconds=0.035) for _ in range(20)]
        if any(recorded):
            if said is not None:
                assert (
                    said - 0.1 <= began <= said + 1.6
                )  # it begins with an epoch, and a pass is counted late
            said = None
        elif said is None:
            waits.append(training.budget.seconds_until_next(both_clocks(training.now)))
            said = training.now + waits[-1]
    assert len(waits) > 5
    assert max(waits) > 3


@pytest.mark.parametrize("processors", [0.05, 0.25, 1.0, 8.0])
def test_next_recorded_epoch_comes_when_it_is_said_to_by_the_wall_clock(processors):
    """A training takes so many processor seconds in each second, and recording a pass one of them or more."""
    budget, wall, processor, said, errors = Budget(0.02), 0.0, 0.0, None, []
    cost = Seconds(0.15, 0.15 * max(processors, 1.0))
    for epoch in range(3000):
        began, recorded = wall, False
        for _ in range(20):
            if not budget.skips(epoch) and budget.allows(Seconds(wall, processor), epoch):
                budget.pay(cost)
                wall, processor, recorded = wall + cost.wall, processor + cost.processor, True
            wall, processor = wall + 0.035, processor + 0.035 * processors
        if recorded:
            if said is not None:
                errors.append((began - said[0]) / (said[1] - said[0]))
            said = None
        elif said is None and (wait := budget.seconds_until_next(Seconds(wall, processor))) > 5:
            said = wall, wall + wait
    assert len(errors) > 4
    assert min(errors) >= 0.9
    assert max(errors) <= 1.15


def test_cost_that_is_found_late_leaves_no_gap():
    """Passes wait 15 ms that no clock of the probe sees, and that are found after eight of them."""
    budget, wall, processor, watched = Budget(0.02), 0.0, 0.0, []
    for epoch in range(200):
        recorded = False
        for _ in range(60):
            if not budget.skips(epoch) and budget.allows(Seconds(wall, processor), epoch):
                budget.pay(both_clocks(0.003))
                wall, processor, recorded = wall + 0.018, processor + 0.003, True
            wall, processor = wall + 0.01, processor + 0.01
        watched.append(recorded)
    assert np.diff(np.flatnonzero(watched)).max() <= 6
    assert watched[-6:].count(True)


def test_training_and_evaluation_take_turns_in_short_epochs():
    """Both periods of an epoch together earn half of what a pass costs."""
    training, watched = Training(0.02, 0.028), {"train": [], "eval": []}
    for epoch in range(1000):
        for mode in ("train", "eval"):
            watched[mode].append(sum(training.step((epoch, mode), mode) for _ in range(35)) > 0)
    late = {mode: flags[300:].count(True) for mode, flags in watched.items()}
    assert min(late.values()) >= 0.8 * max(late.values()) >= 50


def test_mode_that_ends_does_not_keep_others_waiting():
    training = Training(0.02, 0.05)
    for epoch in range(100):
        for mode in ("train", "eval"):
            training.step((epoch, mode), mode, 0.3)
    watched = [training.step((epoch, "train"), "train", 0.6) for epoch in range(100, 400)]
    assert watched[-200:].count(True) >= 40


def test_every_epoch_has_a_pass_if_it_earns_enough():
    """The reserve is kept for the first passes of epochs."""
    training, watched = Training(0.02, 0.05), set()
    for epoch in range(30):
        for _ in range(1200):
            if training.step(epoch):
                watched.add(epoch)
    assert watched == set(range(30))
    assert training.budget.skipped_periods == 0


def test_time_taken_once_is_repaid_without_stopping_the_recording():
    """A compilation takes 1.5 s at the start."""
    training = Training(0.02, 0.002)
    training.budget.allows(both_clocks(0.0), 0)
    training.budget.pay_once(both_clocks(1.5))
    training.now = training.spent = 1.5
    recorded = [training.step(number // 500) for number in range(60000)]
    assert recorded[:10000].count(True) >= 50  # about 1 % of 100 s
    assert training.spent / (training.now - training.spent) <= 0.021


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
    model = nn.Sequential(nn.Linear(3, 2), nn.Sigmoid())  # whose result is not copied again
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


def test_rare_unseen_cost_counts_and_checkpoints_do_not():
    """Every fourth recorded pass takes half a step more; every 100th step of the training takes 1 s."""
    training = Training(0.02, 0.002)
    recorded = 0
    for number in range(30000):
        training.unseen_s = 0.005 if recorded % 4 == 0 else 0.0
        recorded += training.step(number // 500, seconds=1.0 if number % 100 == 50 else 0.01)
    assert training.budget.spent.processor == pytest.approx(training.spent, rel=0.15)


def test_period_that_comes_again_counts_once():
    """Evaluation within an epoch divides its training in two."""
    budget = Budget(1e-9)
    assert budget.allows(Seconds(0, 0), (0, "train"), "train")
    budget.pay(Seconds(9, 9))
    for number, period in enumerate([(0, "eval"), (0, "train"), (0, "eval"), (1, "train")]):
        assert not budget.allows(Seconds(number + 1, number + 1), period, period[1])
    budget.end()
    assert (budget.skipped_periods, budget.periods) == (2, 3)


def test_time_is_counted_without_a_bound():
    budget = Budget(math.inf)
    assert budget.allows(Seconds(0, 0), 0)
    budget.pay(Seconds(1, 2))
    budget.pay_once(Seconds(3, 4))
    assert budget.spent == Seconds(4, 6)
    assert budget.allows(Seconds(5, 5), 0)


def test_epochs_without_data_are_counted_and_said_at_the_end(unused_port, monkeypatch):
    """Before, the last was not counted, and the log said that they were even over the training."""
    monkeypatch.setattr(Budget, "_affords", lambda self, now, mode, is_first: self._period[0] < 2)
    model = nn.Linear(2, 2)
    with probe(model, HOST, unused_port, structure=False) as watch:
        for watch.epoch in range(5):
            for _ in range(3):
                model(torch.ones(4, 2))
    assert watch.status()["skipped_epochs"] == 3
    faults = watch.status()["faults"]
    assert any("3 of 5 epochs of Linear have no data" in one and "is epoch 1." in one for one in faults)
    assert not any("evenly" in one for one in faults)
