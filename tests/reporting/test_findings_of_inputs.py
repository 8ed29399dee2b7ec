"""Findings of trainings whose inputs change: only a model that was trained has learned."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import intus
from intus.core.findings import findings
from intus.core.notes import Facts
from intus.core.results import Results
from intus.serving.run import Server

ROWS = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
EPOCHS = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(database=tmp_path_factory.mktemp("inputs") / "runs.db", port=0) as server:
        yield server


class Noisy(Dataset):
    """Rows with noise of a strength that the training sets."""

    strength = 0.0

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, item):
        return ROWS[item] + self.strength * torch.randn(8), LABELS[item]


def train(server, run, strengths, rates, kind):
    """Return findings and scores of a training, and whether its weights stayed the same."""
    torch.manual_seed(0)
    between = nn.BatchNorm1d(16) if kind == "norm" else nn.ReLU()
    model = nn.Sequential(nn.Linear(8, 16), between, nn.Linear(16, 2))
    optimizer, data = torch.optim.SGD(model.parameters(), 0.1), Noisy()
    states = []
    with intus.probe(model, server.host, server.port, run=run, budget=float("inf")) as watch:
        watch.register_targets(name="class", targets=LABELS)
        for strength, rate in zip(strengths, rates, strict=True):
            states.append(copy.deepcopy(dict(model.named_parameters())))
            data.strength, optimizer.param_groups[0]["lr"] = strength, rate
            for x, y in DataLoader(data, 25, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        assert watch.status()["faults"] == []
    assert watch.flush()
    last = dict(model.named_parameters())
    are_same = all(torch.equal(one, last[name]) for name, one in states[0].items())
    of_run = intus.runs(f"{server.host}:{server.port}")[run]
    return of_run.findings(), of_run.scores(target="class", score="linear_f1"), are_same


@pytest.mark.parametrize("seed", range(8))
def test_model_that_no_training_changed_has_learned_and_lost_nothing(server, seed):
    """Before, a class was "learned" by a model with the same weights, once the noise on its inputs ended."""
    choose = random.Random(seed)
    end = choose.randrange(2, 5)
    strengths = [5.0] * end + [0.0] * (EPOCHS - end)
    strengths = strengths[:: choose.choice([1, -1])]
    rate = choose.choice([0.0, 0.0, 0.1])
    run = f"search {seed}"
    found, scores, are_same = train(server, run, strengths, [rate] * EPOCHS, choose.choice(["plain", "norm"]))
    assert are_same == (rate == 0)
    changes = [each for each in found if each.kind in ("learned", "risen", "fell")]
    assert not (are_same and changes), changes
    facts = dict(zip(scores["epoch"].tolist(), map(Facts.of, scores["note"]), strict=False))
    is_changed = [any(strengths[: epoch + 1]) and epoch > 0 for epoch in range(EPOCHS)]
    assert [facts[epoch + 1].has_other_inputs for epoch in range(EPOCHS)] == is_changed
    assert all(each.is_untrained == are_same for each in facts.values())
    for each in changes:
        assert ("other inputs in earlier epochs" in each.text) == is_changed[int(each.epoch) - 1]


@pytest.mark.parametrize("strength", [0.0, 0.5])
def test_ordinary_augmentation_is_said_and_the_finding_stays(server, strength):
    """The label is no part of the inputs, so that only a model that is trained to it can have it."""
    torch.manual_seed(1)
    found, _, _ = train(
        server, f"ordinary {strength}", [strength] * EPOCHS, [0.0, *[0.3] * (EPOCHS - 1)], "plain"
    )
    for each in found:
        assert ("other inputs in earlier epochs" in each.text) == (
            strength > 0 and each.kind in ("risen", "fell")
        )


def points(values, notes):
    """Return scores of a layer, one in each epoch, with narrow intervals."""
    rows = [
        {
            "address": "h.0",
            "target": "class",
            "score": "linear_f1",
            "epoch": epoch,
            "value": value,
            "note": note,
        }
        | {"low": value - 0.05, "high": value + 0.05, "baseline": 0.5, "n": 100}
        for epoch, (value, note) in enumerate(zip(values, notes, strict=True))
    ]
    return Results.from_rows(rows)


@pytest.mark.parametrize("seed", range(40))
def test_sentences_say_what_differs_beside_the_model(seed):
    """Draw from which epoch on inputs are others, and up to which epoch the parameters are the first ones."""
    choose = random.Random(seed)
    rises, changes, moves = choose.randrange(1, 4), choose.randrange(1, 7), choose.randrange(7)
    values = [0.5 if epoch < rises else 0.9 for epoch in range(6)]
    if is_fall := bool(seed % 2):
        values = [0.9 if epoch < rises + 1 else 0.5 for epoch in range(6)]
        rises += 1
    notes = [Facts(has_other_inputs=epoch >= changes, is_untrained=epoch < moves).note for epoch in range(6)]
    told = {each.kind: each for each in findings(points(values, notes), ["h.0"])}
    if is_fall:
        assert ("fell" in told) == (moves <= rises), told
        each = told.get("fell")
    else:
        assert ("learned" in told) == (moves <= 4)  # at two points at least
        each = told["learned" if moves <= 4 else "decodable"]
    if each is not None:
        is_said = changes <= each.epoch + 1
        is_same = each.epoch < moves
        assert ("no training made the difference" in each.text) == is_same
        assert ("other inputs in earlier epochs" in each.text) == (is_said and not is_same)
