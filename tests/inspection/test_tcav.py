"""TCAV on planted truth, with derivatives judged by torch.autograd and by captum."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from intus import inspect
from intus.core.errors import InputError
from intus.inspection.reading.tcav import score

N, WIDTH = 400, 12
CONCEPTS = (np.random.default_rng(0).random((N, 3)) < 0.5).astype(float)


class Planted(nn.Module):
    """Class 1 grows with concept 0 and shrinks with concept 1; concept 2 is encoded, but not used."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.act = nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh()
        with torch.no_grad():
            self.mix.weight.copy_(torch.eye(WIDTH) * 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.act(self.mix(x))
        logit = 3 * h[:, 0] - 2 * h[:, 1] ** 3 - h[:, 1] + 0.1 * h[:, 5]
        return torch.stack([torch.zeros_like(logit), logit], 1)


@pytest.fixture(scope="module")
def x():
    noise = np.random.default_rng(1).normal(size=(N, WIDTH))
    noise[:, :3] = 2 * (CONCEPTS - 0.5) + 0.3 * noise[:, :3]
    return torch.from_numpy(noise).float()


HYPOTHESES = {"used": CONCEPTS[:, 0], "against": CONCEPTS[:, 1], "unused": CONCEPTS[:, 2]}


def test_planted_concepts(x):
    table = inspect(Planted(), HYPOTHESES, "tcav", x, ["mix", "act"], output=1, batch=64)
    assert table.score.eq("tcav").all()
    assert table.unit.eq(-1).all()
    for layer in ("mix", "act"):
        rows = table[table.address == layer].set_index("target")
        assert rows.value["used"] == 1.0
        assert rows.value["against"] == 0.0
        assert rows.p[["used", "against"]].max() < 0.03
        assert rows.p["unused"] > 0.05
        assert rows.baseline.between(0.2, 0.8).all()
        assert (rows.low <= rows.value).all()
        assert (rows.value <= rows.high).all()
    with torch.no_grad():
        predicted = int((Planted()(x).argmax(1) == 1).sum())
    assert table.n.eq(predicted).all()
    assert table.note.str.contains(f"{predicted} records of the class").all()


def test_beside_other_scores(x):
    table = inspect(Planted(), HYPOTHESES, ["tcav", "correlation"], x, "mix", output=1)
    assert table.groupby("score").size().to_dict() == {"correlation": 3 * WIDTH, "tcav": 3}
    alone = inspect(Planted(), HYPOTHESES, "tcav", x, "mix", output=1)
    assert table[table.score == "tcav"].value.tolist() == alone.value.tolist()


class Counted(Planted):
    """Writes the process of each of its passes to a file."""

    def __init__(self, log) -> None:
        super().__init__()
        self.log = str(log)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with open(self.log, "a") as file:
            file.write(f"{os.getpid()} {len(x)}\n")
        return super().forward(x)


@pytest.mark.long
def test_workers_give_the_same_rows(x, tmp_path):
    groups = np.repeat(np.arange(40), 10)
    asked = HYPOTHESES, "tcav", x, ["mix", "act"]
    tables = [
        inspect(Counted(tmp_path / f"{engine}"), *asked, output=1, batch=25, engine=engine, groups=groups)
        for engine in (None, 2)
    ]
    pd.testing.assert_frame_equal(*tables, rtol=1e-12)
    for engine, is_here in ((None, True), (2, False)):
        ids = {int(line.split()[0]) for line in (tmp_path / f"{engine}").read_text().splitlines()}
        assert (ids == {os.getpid()}) == is_here


def test_no_pass_without_gradients(x, tmp_path):
    """One record makes the graph; the first block runs twice, to check that records are independent."""
    inspect(Counted(tmp_path / "log"), HYPOTHESES, "tcav", x, "mix", output=1, batch=100)
    sizes = [int(line.split()[1]) for line in (tmp_path / "log").read_text().splitlines()]
    assert sizes == [1, 100, 100, 100, 100, 100]


def test_layer_that_cannot_be_read_is_left_out(x):
    """The unit axis of the model's stacked output is not known, and the patterns name no layer."""
    table = inspect(nn.Sequential(Planted()), HYPOTHESES, "tcav", x, ["*", "0.*"], output=1)
    alone = inspect(Planted(), HYPOTHESES, "tcav", x, ["mix", "act"], output=1)
    assert table[table.address != "0"].value.tolist() == alone.value.tolist()
    left_out = table[table.address == "0"].note.tolist()
    assert len(left_out) == 1
    assert left_out[0].startswith("left out: '0' has shape")


def test_hypotheses_of_units(x):
    table = inspect(Planted(), HYPOTHESES, "tcav", x, [("mix", "*", ["used"]), ("act", "*")], output=1)
    assert table.groupby("address").target.apply(list).to_dict() == {"mix": ["used"], "act": [*HYPOTHESES]}
    with pytest.raises(InputError, match=r"units names the hypothesis 'usd'\. Did you mean 'used'"):
        inspect(Planted(), HYPOTHESES, "tcav", x, [("mix", "*", ["usd"])], output=1)


@pytest.mark.long
def test_random_concepts_are_rarely_found(x):
    """Of 200 random concepts, 5 % are expected; more than 10 % would have a chance of 1 in 500."""
    random = np.random.default_rng(2)
    null = {f"r{k}": random.integers(0, 2, N).astype(float) for k in range(200)}
    table = inspect(Planted(), null, "tcav", x, "act", output=1)
    assert (table.p < 0.05).mean() < 0.10
    assert (table.p > 0.5).mean() > 0.35


@pytest.mark.long
def test_groups_that_share_a_label():
    """Concepts that differ between 20 documents only are compared with labels of whole documents."""
    random, found = np.random.default_rng(3), {False: [], True: []}
    document = np.repeat(np.arange(20), 20)
    for _ in range(40):
        about = random.normal(size=(20, 30))[document] + 0.1 * random.normal(size=(N, 30))
        label = random.permutation(np.arange(20) % 2)[document].astype(float)
        slope = np.tile(random.normal(size=30), (N, 1))
        for grouped in found:
            ids = document if grouped else None
            found[grouped].append(score(about, slope, label, np.ones(N, bool), ids).p)
    assert np.mean(np.array(found[True]) < 0.05) <= 0.15
    assert np.mean(np.array(found[False]) < 0.05) > np.mean(np.array(found[True]) < 0.05)


def test_sign_count_equals_captum(x, tmp_path):
    """Captum counts positive derivatives along a given vector; ours is its vector, by ridge regression."""
    concept = pytest.importorskip("captum.concept")
    import warnings

    from sklearn.linear_model import RidgeCV

    net, label = Planted(), HYPOTHESES["against"] * 0.55 + HYPOTHESES["used"] * 0.45
    label = (label + 0.4 * np.random.default_rng(5).normal(size=N) > 0.5).astype(float)
    with torch.no_grad():
        hidden = net.act(net.mix(x)).numpy().astype(float)
        mine = net(x).argmax(1) == 1
    ridge = RidgeCV(np.linalg.svd(hidden - hidden.mean(0))[1][0] ** 2 * np.logspace(-6, 2, 17)).fit(
        hidden, label
    )

    class Ridge(concept.Classifier):
        def __init__(self):
            pass

        def train_and_eval(self, dataloader, **_):
            return None

        def weights(self):
            return torch.from_numpy(np.stack([ridge.coef_, -ridge.coef_])).float()

        def classes(self):
            return [0, 1]

    sets = [
        concept.Concept(k, name, torch.utils.data.DataLoader(x[torch.from_numpy(label == value)], 50))
        for k, name, value in ((0, "with", 1.0), (1, "without", 0.0))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge = concept.TCAV(net, ["act"], classifier=Ridge(), save_path=str(tmp_path))
        found = judge.interpret(x[mine].requires_grad_(), [sets], target=1)
    expected = float(found["0-1"]["act"]["sign_count"][0])
    value = inspect(net, {"c": label}, "tcav", x, "act", output=1).value[0]
    assert 0.02 < expected < 0.98
    assert value == pytest.approx(expected, abs=0.011)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"output": None}, "gradients need output="),
        ({"hypotheses": {"c": np.arange(N)}}, "labels 0 and 1 for the hypothesis 'c'"),
        ({"hypotheses": {"c": np.array(["a", "b"] * (N // 2))}}, "one label 0 or 1 per record"),
        ({"hypotheses": []}, "tcav needs a hypothesis"),
        ({"hypotheses": {"c": lambda record: record > 0}}, r"gives labels of shape \(12,\)"),
    ],
)
def test_refusals(x, change, text):
    asked = {"hypotheses": HYPOTHESES, "output": 1, **change}
    with pytest.raises(InputError, match=text):
        inspect(Planted(), asked["hypotheses"], "tcav", x, "act", output=asked["output"])


def test_too_few_records(x):
    rare = {"rare": (np.arange(N) < 4).astype(float)}
    table = inspect(Planted(), rare, "tcav", x, "act", output=1)
    assert table.value.isna().all()
    assert table.note.str.startswith("needs 10 records").all()
