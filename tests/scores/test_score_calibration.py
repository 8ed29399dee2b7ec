"""The measurement of false positives and of coverage, on scores of which both are known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import norm
from score_help import read
from sklearn.metrics import f1_score
from sklearn.naive_bayes import GaussianNB

from intus.scores import Score, ScoreInfo, ScoreResult, infos, names
from intus.scores.documentation import calibrate
from intus.scores.documentation.calibrate import DESIGNS, calibrate_description
from intus.scores.documentation.document import _range_of
from intus.scores.registry import as_score, get
from intus.scores.statistics.split import places


def planted(width: float, shift: float) -> Score:
    """Return the mean of a unit, with an interval of known width, shifted by some standard errors."""

    def compute(statistics):
        x, items = statistics.drawn()[1][:, 0], statistics.drawn()[0].item
        means = np.array([x[items == item].mean() for item in np.unique(items)])
        error = means.std(ddof=1) / np.sqrt(len(means))
        value = float(means.mean() + shift * error)
        p = float(2 * norm.sf(abs(value) / error))
        half = width * 1.96 * error
        yield ScoreResult("planted_t", value, "y", 0, value - half, value + half, 0.0, len(x), p=p)

    info = ScoreInfo(name="planted_t", level="unit", needs_target=True, baseline="0", interval="by items")
    return Score("planted_t", compute, frozenset({"sample"}), "unit", info=info)


@pytest.fixture
def no_signal(monkeypatch):
    """Measure with a single design of 30 items, whose unit has the mean zero with signal as well."""
    design = calibrate.hypotheses(4, 0.0)
    monkeypatch.setitem(DESIGNS, "hypotheses", [(design, design, 30)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("width", "shift"), [(1.0, 0.0), (0.5, 0.0), (1.0, 2.0)], ids=["right", "too narrow", "biased"]
)
def test_shares_equal_those_of_the_normal_distribution(no_signal, width, shift):
    found = calibrate.calibrate(planted(width, shift), 400)["planted_t"]
    reach = 1.96 * width

    def inside(shift):
        return norm.cdf(reach - shift) - norm.cdf(-reach - shift)

    [[coverage, n]], [[above, _]], [[p, _]] = found["coverage"], found["above"], found["p"]
    assert n == 400
    of_truth = shift * np.sqrt(30 / 5000)  # the very large draw has 5,000 items, and is shifted as well
    assert coverage == pytest.approx(inside(shift - of_truth), abs=0.05)
    assert above == pytest.approx(1 - inside(shift), abs=0.05)  # on either side
    assert p == pytest.approx(norm.sf(1.96 - shift) + norm.cdf(-1.96 - shift), abs=0.05)


def test_truth_of_a_trained_predictor_is_its_score_on_many_further_rows():
    signal = DESIGNS["classes"][1][1]
    draw = signal(np.random.default_rng(3), 200)
    held = places(draw.items, 7).held
    model = GaussianNB().fit(draw.x[~held], draw.labels["y"][~held])
    fresh = signal(np.random.default_rng(4), 20_000)
    wanted = f1_score(fresh.labels["y"], model.predict(fresh.x), average="macro")
    truth = calibrate._truth(as_score(GaussianNB(), "bayes_t"), signal, 1, draw, 7)
    assert truth["bayes_t", -1] == pytest.approx(wanted, abs=0.01)


def test_rows_of_the_second_scorer_are_all_held_out():
    ids = calibrate._held_out(1003, 50, 5, seed=3)
    assert len(ids) == 1003
    assert ids.min() >= 50
    assert places(ids, 3).held.all()
    assert np.bincount(ids - 50).max() == 5


def test_description_is_compared_with_very_many_rows():
    [[coverage, n]] = calibrate_description(get("mean"), 60)["mean"]["coverage"]
    assert n == 60
    assert coverage > 0.8


def test_every_score_with_an_interval_was_measured():
    """`make calibrate` measures them; `make calibrate ARGS="name …"` those that are new."""
    known = infos()
    with_interval = {info.name for name in names() for info in get(name).infos if known[info.name].interval}
    assert with_interval - set(calibrate.stored()) == set()


def test_shares_out_of_bounds_are_in_bold_type():
    assert _range_of([[0.01, 400], [0.05, 400]], 0, 0.04) == "1.0 % to 5.0 %"
    assert _range_of([[0.01, 400], [0.08, 400]], 0, 0.04) == "1.0 % to **8.0 %**"
    assert _range_of([[0.95, 400]], 0.92, 0.98) == "95.0 %"
    assert _range_of([[0.7, 400], [0.999, 4000]], 0.92, 0.98) == "**70.0 %** to **99.9 %**"
    assert _range_of([], 0, 1) == ""


def test_named_scores_are_added_to_the_stored_ones(monkeypatch, capsys):
    monkeypatch.setattr(calibrate, "RUNS", 2)
    monkeypatch.setattr(calibrate, "stored", lambda: {"old": {"p": [[0.05, 9]]}})
    monkeypatch.setattr(calibrate.measure, "__defaults__", ((), 2))
    calibrate.main(["mean"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"old", "mean"}


def test_agreement_of_clusters_with_further_rows():
    """The stored centers assign further rows; well separated classes agree with them."""
    signal = calibrate.classes((0.5, 0.5), 1, 12.0)
    draw, large = signal(np.random.default_rng(0), 300), signal(np.random.default_rng(1), 3000)
    assert calibrate._agreement(get("kmeans_ami"), draw, large, 0) > 0.95
    noise = calibrate.classes((0.5, 0.5), 1, 0.0)
    draw, large = noise(np.random.default_rng(0), 300), noise(np.random.default_rng(1), 3000)
    assert abs(calibrate._agreement(get("kmeans_ami"), draw, large, 0)) < 0.01
    assert read(calibrate._scorer(get("kmeans_ami"), draw, 0), "kmeans_ami", "y").value < 0.05
