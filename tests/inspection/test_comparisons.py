"""Comparing layers and checkpoints: paired tests, repeated splits and confusion tables."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, f1_score
from sklearn.model_selection import ShuffleSplit
from torch import nn

from intus import inspect
from intus.core.errors import InputError
from intus.storage.database import Database

N = 1200


def _pseudo(x):
    """Return numbers that no linear classifier can tell from noise."""
    return torch.sin(1000 * x[:, 6:]).repeat(1, 2)


class Layers(nn.Module):
    """Three layers: the input, the input with noise, and the input with the same noise again."""

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__()
        self.clean, self.noisy, self.same = nn.Identity(), nn.Identity(), nn.Identity()
        self.noise = noise

    def forward(self, x):
        x = self.clean(x + self.noise * _pseudo(x))
        return self.same(self.noisy(x + 2 * _pseudo(x)))


@pytest.fixture(scope="module")
def planted():
    """Twelve features: the class moves the first three, the last six are noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N)
    x = rng.normal(size=(N, 12))
    x[:, :3] += 1.1 * np.eye(3)[y]
    return torch.tensor(x, dtype=torch.float32), y


def test_layers_against_a_layer(planted):
    x, y = planted
    layers = ["clean[:@1]", "noisy[:@1]", "same[:@1]"]
    table = inspect(Layers(), {"y": y}, ["linear_accuracy", "lda_f1"], x, layers, against="noisy")
    gaps = table[table.score.str.contains(" above ")]
    assert gaps[["address", "score"]].apply(tuple, axis=1).tolist() == [
        ("clean", "linear_accuracy above noisy"),
        ("clean", "lda_f1 above noisy"),
        ("same", "linear_accuracy above noisy"),
        ("same", "lda_f1 above noisy"),
    ]
    values = table.set_index(["address", "score"]).value
    for row in gaps.itertuples():
        name = row.score.partition(" above ")[0]
        assert row.value == pytest.approx(values[row.address, name] - values["noisy", name])
    clean, same = gaps[gaps.address == "clean"], gaps[gaps.address == "same"]
    assert (clean.low > 0).all()
    assert (clean.p < 0.01).all()
    assert (same.value == 0).all()
    assert (same.p == 1).all()
    assert (gaps.baseline == 0).all()


def test_epochs_against_an_epoch(planted, tmp_path):
    x, y = planted
    asked = {"y": y}, ["linear_f1"], x, "clean[:@1]"
    models = {0: Layers(2.0), 1: Layers(0.5), 2: Layers()}
    table = inspect(models, *asked, against=2)
    gaps = table[table.score == "linear_f1 above epoch 2"].set_index("epoch")
    assert gaps.index.tolist() == [0, 1]
    assert gaps.loc[0, "high"] < 0
    assert gaps.loc[0, "p"] < 0.05
    assert table.epoch.is_monotonic_increasing
    named = inspect({"wide": Layers(2.0), "plain": Layers()}, *asked, against="plain")
    assert named[named.score == "linear_f1 above plain"].model.tolist() == ["wide"]
    # The rows are resumed with the gaps in them.
    stored = [inspect(models, *asked, against=2, store=tmp_path / "s.db", run="r") for _ in range(2)]
    pd.testing.assert_frame_equal(*stored)


@pytest.mark.parametrize(
    ("against", "scores", "text"),
    [
        ("nosuch", "linear_f1", "against='nosuch' is no layer with a classifier here"),
        (7, "linear_f1", "against=7 is no epoch of the models"),
        ("clean", "correlation", "compares layers by their classifiers, such as 'linear_f1'"),
    ],
)
def test_wrong_comparison(planted, against, scores, text):
    x, y = planted
    with pytest.raises(InputError, match=text):
        inspect(Layers(), {"y": y}, scores, x, ["clean[:@1]"], against=against)


def test_changed_reference_is_compared_anew(planted, tmp_path):
    """The rows of a model depend on what it is compared with, also if they are in the store."""
    x, y = planted

    def ask(reference):
        models = {0: Layers(2.0), 1: Layers(reference)}
        asked = {"y": y}, ["linear_f1"], x, "clean[:@1]"
        return inspect(models, *asked, against=1, store=tmp_path / "s.db", run="r")

    before, after = ask(0.0), ask(2.0)
    gaps = [table[table.score == "linear_f1 above epoch 1"].value.item() for table in (before, after)]
    assert gaps[0] < -0.05
    assert gaps[1] == 0


def test_units_against_an_epoch(planted):
    x, y = planted
    hypotheses = {"first": y == 0, "second": y == 1}
    models = {0: Layers(1.0), 1: Layers()}
    table = inspect(models, hypotheses, "correlation", x, "clean[:@1]", against=0)
    gaps = table[table.score == "correlation above epoch 0"]
    assert gaps.epoch.eq(1).all()
    assert gaps.unit.tolist() == [*range(12)] * 2
    values = table[table.score == "correlation"].set_index(["epoch", "unit", "target"]).value
    for row in gaps.itertuples():
        expected = values[1, row.unit, row.target] - values[0, row.unit, row.target]
        assert row.value == pytest.approx(expected, abs=1e-6)
    best = gaps[(gaps.unit == 0) & (gaps.target == "first")].iloc[0]
    assert best.low > 0
    assert best.p < 0.01
    noise = gaps[gaps.unit >= 6]
    assert (noise.p < 0.05).mean() < 0.3


def test_repeated_splits_equal_scikit_learn(planted):
    x, y = planted
    table = inspect(Layers(), {"y": y}, ["lda_f1", "correlation"], x, "clean[:@1]", splits=8)
    row = table[table.score == "lda_f1"].iloc[0]
    scores = []
    for train, test in ShuffleSplit(20, test_size=0.25, random_state=0).split(x):
        fit = LinearDiscriminantAnalysis("lsqr", shrinkage=0.01).fit(x[train], y[train])
        scores.append(f1_score(y[test], fit.predict(x[test]), average="macro"))
    assert row.value == pytest.approx(np.mean(scores), abs=0.015)
    assert row.low < np.mean(scores) < row.high
    assert row.note == "mean of 8 splits"
    # Scores that hold nothing out are those of a single split.
    once = inspect(Layers(), {"y": y}, "correlation", x, "clean[:@1]")
    np.testing.assert_array_equal(table[table.score == "correlation"].value, once.value)


@pytest.mark.parametrize("regul", ["l1", "l2"])
def test_repeated_splits_of_penalized_regressions_equal_scikit_learn(planted, regul):
    x, y = planted
    score, where = f"logistic_{regul}", ["clean[:@1]", "noisy[:@1]"]
    table = inspect(Layers(), {"y": y == 0}, score, x, where, splits=8, against="noisy", null=20)
    row = table[(table.score == score) & (table.address == "clean")].iloc[0]
    scores = []
    for train, test in ShuffleSplit(20, test_size=0.25, random_state=0).split(x):
        ratio, strength = (1, 0.03) if regul == "l1" else (0, 1)
        model = LogisticRegression(C=strength, l1_ratio=ratio, solver="saga", max_iter=500)
        scores.append(
            f1_score(y[test] == 0, model.fit(x[train], y[train] == 0).predict(x[test]), average="macro")
        )
    assert row.value == pytest.approx(np.mean(scores), abs=0.02)
    assert row.low < np.mean(scores) < row.high
    assert row.note == "mean of 8 splits"
    gap = table[table.score == f"{score} above noisy"].iloc[0]
    assert gap.value == pytest.approx(
        row.value - table[table.score == score].set_index("address").value["noisy"]
    )
    units = table[(table.score == f"{score}.coef") & (table.address == "clean")]
    once = inspect(Layers(), {"y": y == 0}, score, x, "clean[:@1]")
    np.testing.assert_array_equal(units.value, once[once.unit >= 0].value)
    np.testing.assert_array_equal(units.low, once[once.unit >= 0].low)
    assert (units.note == "of split 1 of 8").all()


def test_no_splits():
    with pytest.raises(InputError, match="splits=0 must be 1 or more"):
        inspect(Layers(), {"y": [0, 1]}, "linear_f1", torch.zeros(2, 12), "clean[:@1]", splits=0)


def test_confusion_table(planted, tmp_path):
    x, y = planted
    names = np.array(["ant", "bee", "cat"])[y]

    def ask():
        return inspect(
            Layers(), {"y": names}, ["linear_f1", "mean"], x, "clean[:@1]", store=tmp_path / "s.db", run="r"
        )

    for table in (ask(), ask()):  # the second is read from the store
        found = table.confusion(table[table.score == "linear_f1"].iloc[0])
        assert found.index.tolist() == ["ant", "bee", "cat"]
        counts = found[["ant", "bee", "cat"]].to_numpy()
        row = table[table.score == "linear_f1"].iloc[0]
        assert counts.sum() == row.n
        assert found.f1.mean() == pytest.approx(row.value)
        true = np.repeat(np.repeat(range(3), 3), counts.ravel())
        guess = np.repeat(np.tile(range(3), 3), counts.ravel())
        np.testing.assert_array_equal(confusion_matrix(true, guess), counts)
        np.testing.assert_allclose(f1_score(true, guess, average=None), found.f1)
        assert (found.low < found.f1).all()
        assert (found.f1 < found.high).all()
        with pytest.raises(InputError, match="The score 'mean' of 'clean' is not one of a classifier"):
            table.confusion(table[table.score == "mean"].iloc[0])


def test_confusion_table_over_splits_is_that_of_the_first(planted):
    x, y = planted
    found = []
    for splits in (1, 3):
        table = inspect(Layers(), {"y": y}, "linear_f1", x, "clean[:@1]", splits=splits)
        found.append(table.confusion(table[table.score == "linear_f1"].iloc[0]))
        assert found[-1].attrs["split"] == f"1 of {splits}"
    np.testing.assert_array_equal(found[0], found[1])


def test_table_that_does_not_know_its_models(planted, tmp_path):
    x, y = planted
    table = inspect(Layers(), {"y": y}, "linear_f1", x, "clean[:@1]")
    table.to_pickle(tmp_path / "table.pickle")
    read = pd.read_pickle(tmp_path / "table.pickle")
    pd.testing.assert_frame_equal(read, table)
    with pytest.raises(InputError, match="does not know its models any more"):
        read.confusion(0)


def test_store_has_the_predictions_that_the_page_shows(tmp_path):
    """The page's table of confused classes is that of the returned table."""
    where = tmp_path / "inspected.db"
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    label = (x[:, 0] > 0.3).long().numpy() + (x[:, 1] > 0.8).long().numpy()
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU())
    table = inspect(
        {0: net, 4: net}, {"class": label}, ["linear_f1", "correlation"], x, "0", store=where, run="r"
    )
    row = table[(table.score == "linear_f1") & (table.epoch == 4)].iloc[0]
    with Database(where) as database:
        found = database.predictions("r", row.model, "0", "class", ["linear_f1"], kind="inspect")
    assert found.epoch == 4
    matrix = np.zeros((3, 3), int)
    np.add.at(matrix, (found.truth, found.guess), 1)
    np.testing.assert_array_equal(matrix, table.confusion(row).iloc[:, :3].to_numpy())
    np.testing.assert_array_equal(np.array(found.classes)[found.truth], label[found.items])


def test_comparison_over_splits(linear, images, digit):
    table = inspect(
        nn.Sequential(*linear, nn.Linear(6, 3)),
        {"digit": digit},
        "linear_accuracy",
        images,
        ["1", "2"],
        splits=3,
        against="2",
    )
    gap = table[table.score == "linear_accuracy above 2"].iloc[0]
    values = table[table.score == "linear_accuracy"].set_index("address").value
    assert gap.value == pytest.approx(values["1"] - values["2"])
    assert gap.note == "mean of 3 splits"
    assert gap.low < gap.value < gap.high
    assert (table[table.score == "linear_accuracy"].high <= 1).all()


def test_store_describes_intervals_over_splits(tmp_path):
    net, x = torch.nn.Sequential(torch.nn.Linear(6, 8)), torch.randn(200, 6)
    label, scores = (x[:, 0] > 0).numpy(), ["linear_f1", "correlation"]
    for splits in (1, 3):
        inspect(net, {"class": label}, scores, x, "0", store=tmp_path / f"{splits}.db", splits=splits)
    with Database(tmp_path / "1.db") as one, Database(tmp_path / "3.db") as three:
        plain, repeated = one.scores(), three.scores()
    assert "over 3 splits" in repeated["linear_f1"].interval
    assert "splits" not in plain["linear_f1"].interval
    assert repeated["correlation"] == plain["correlation"]
