"""Epochs over parts of one dataset are those of the script, or the probe says that they may not be."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset, random_split

from intus.monitoring import probe

ROWS = torch.randn(72, 6, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(ROWS, (ROWS[:, 0] > 0).long())
#: The rows of each part, and of those that only validate.
PARTS = {"A": range(10), "B": range(10, 30), "C": range(30, 60), "V": range(60, 72)}
PROBE_SET = ROWS[:8] + 1


@pytest.fixture
def watched(unused_port):
    """Return a function that probes a model."""
    return partial(probe, host="127.0.0.1", port=unused_port, budget=float("inf"))


def loader_of_subset(rows):
    return DataLoader(Subset(DATA, rows), 5, shuffle=True)


def loader_of_sampler(rows):
    return DataLoader(DATA, 5, sampler=SubsetRandomSampler(rows))


MADE = {"subset": loader_of_subset, "sampler": loader_of_sampler}


class Training:
    """A training over parts, the rows that each epoch of its script had, and the models that it had."""

    def __init__(self, watched, made, *, anew=False, validates=False, probe_set=False):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Identity(), nn.Linear(6, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        options = {"probe_set": (PROBE_SET, {"y": torch.arange(8) % 2})} if probe_set else {}
        self.watch = watched(self.model, **options)
        self.made, self.anew, self.validates = MADE[made], anew, validates
        self.kept = {} if anew else {part: self.made(rows) for part, rows in PARTS.items()}
        self.rows, self.models = Counter(), [self.shown()]

    def shown(self):
        with torch.no_grad():
            return F.linear(PROBE_SET, self.model[1].weight, self.model[1].bias).numpy()

    def epochs(self, script):
        """Train epochs, each over one or more parts: ``["AB", "AB"]``."""
        for epoch, parts in enumerate(script, 1):
            for part in parts:
                self.rows[epoch] += self.iterate(self.made(PARTS[part]) if self.anew else self.kept[part])
                self.models.append(self.shown())
            if self.validates:
                with torch.no_grad():
                    self.model.eval()
                    for x, _ in self.made(PARTS["V"]) if self.anew else self.kept["V"]:
                        self.model(x)
                    self.model.train()

    def iterate(self, loader):
        count = 0
        for x, y in loader:
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            count += len(x)
        return count

    def said(self):
        """Return the faults that epochs may be others, when the probe is removed."""
        self.watch.remove()
        return [one for one in self.watch.status()["faults"] if "Set watch.epoch = number before each" in one]


def recorded(kept):
    rows = Counter()
    for one in kept:
        if one.address == "0" and one.mode == "train":
            rows[one.epoch] += one.rows
    return rows


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        ["AB"] * 3,
        ["ABC"] * 2,
        ["BA"] * 3,
        ["A", "A", "A"],
        ["A", "A", "B", "B"],
        ["A", "A", "B", "B", "A", "A"],
        ["A", "A", "A", "B", "B", "C", "C"],
    ],
    ids="-".join,
)
def test_epochs_over_kept_parts_are_those_of_the_script(watched, unsent, made, validates, script):
    """Before, each part was an epoch: A, B, A, B were four."""
    training = Training(watched, made, validates=validates)
    training.epochs(script)
    assert not training.said()
    assert recorded(unsent) == training.rows


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(
    "script", [["A", "B", "C"], ["A", "B", "B", "C", "C"], ["A", "A", "AB", "AB"]], ids="-".join
)
def test_parts_of_which_it_is_not_known_whether_they_are_epochs_are_said(watched, unsent, made, script):
    training = Training(watched, made)
    training.epochs(script)
    assert len(training.said()) == 1
    assert recorded(unsent) != training.rows
    assert sum(recorded(unsent).values()) == sum(training.rows.values())


@pytest.mark.parametrize("seed", range(100))
def test_epochs_over_parts_are_true_or_said_not_to_be_known(watched, unsent, seed):
    """Draw trainings in stages, in each of which an epoch has one or more parts."""
    choose = random.Random(seed)
    script = []
    for _ in range(choose.randrange(1, 4)):
        parts = "".join(choose.sample("ABC", choose.choice([1, 1, 2, 3])))
        script += [parts] * choose.randrange(1 + (len(parts) > 1), 4)
    training = Training(
        watched, choose.choice([*MADE]), anew=choose.random() < 0.4, validates=choose.random() < 0.4
    )
    training.epochs(script)
    assert training.said() or recorded(unsent) == training.rows, (script, recorded(unsent), training.rows)


@pytest.mark.parametrize("seed", range(3))
def test_parts_that_are_drawn_anew_in_each_epoch_are_epochs(watched, unsent, seed):
    """A part that is gone is not waited for, as of a random subset in each epoch, or of growing ones."""
    choose = random.Random(seed)
    training = Training(watched, "subset")
    training.epochs(["A"] * seed)  # which is kept
    for epoch in range(seed + 1, seed + 5):
        rows = choose.sample(range(60), choose.randrange(10, 40))
        training.rows[epoch] = training.iterate(loader_of_subset(rows))
    said = training.said()
    assert bool(said) == (recorded(unsent) != training.rows) == (seed == 1)


def test_split_that_is_drawn_anew_in_each_epoch_is_one_epoch(watched, unsent):
    training = Training(watched, "subset")
    for epoch in range(1, 4):
        one, other = random_split(Subset(DATA, range(60)), [20, 40])
        for part in (one, other):
            training.rows[epoch] += training.iterate(DataLoader(part, 5, shuffle=True))
    assert training.said()  # it may be two stages of one iteration each
    assert recorded(unsent) == training.rows


def test_part_that_grows_in_place_is_an_epoch_each_time(watched, unsent):
    """Active learning: the same subset has more rows in each epoch."""
    training = Training(watched, "subset")
    part = Subset(DATA, list(range(5, 15)))
    for epoch in range(1, 5):
        training.rows[epoch] = training.iterate(DataLoader(part, 5, shuffle=True))
        part.indices = [*range(5 * epoch % 3, 5), *part.indices, *range(20 + 10 * epoch, 30 + 10 * epoch)][
            :60
        ]
    assert not training.said()
    assert recorded(unsent) == training.rows


@pytest.mark.parametrize("made", MADE)
def test_probe_set_shows_each_model_after_a_part(watched, unsent, made):
    """With a probe set each part is an epoch, so that every model is shown, and this is said."""
    training = Training(watched, made, probe_set=True)
    training.epochs(["AB"] * 3)
    assert not training.said()
    shown = {one.epoch: one.array for one in unsent if one.address == "1"}
    assert sorted(shown) == list(range(7))
    for epoch, model in enumerate(training.models):
        np.testing.assert_allclose(shown[epoch], model, atol=1e-5)
    assert "is the model after it changed further" in training.watch.status()["epochs"]
