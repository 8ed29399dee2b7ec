"""Statistics made where the model runs: equal to those of a server, whole, split and with rows missing."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import f1_score

from intus.core.errors import InputError
from intus.core.projection import PROJECTED, summarize
from intus.core.record import Record
from intus.core.sketch import dense_sketch, sparse_sketch
from intus.scores import Scorer, get
from intus.scores.statistics import kept
from intus.scores.statistics.sent import KnownRows, check_sent
from intus.scores.statistics.split import places
from intus.serving.evaluation.scoring import default_scores

NAMES = ["linear_f1", "linear_accuracy", "lda_f1", "lda_accuracy", "kmeans_mi", "r2", "participation_ratio"]
NAMES += ["effective_rank", "mean", "mean_abs", "std", "norm", "min", "max", "sparsity", "dead", "nonfinite"]


def matrix_of(features):
    """Return the sparse sketch as a matrix, or the unit matrix for narrow rows."""
    if features <= PROJECTED:
        return np.eye(features)
    columns, entries = sparse_sketch(0, features)
    out = np.zeros((features, PROJECTED))
    np.put_along_axis(out, columns, entries, axis=1)
    return out


def sums_of(x, known, matrix=None):
    """Compute the sums of rows in float64, as the judge of what a device computes."""
    matrix = matrix_of(x.shape[1]) if matrix is None else matrix
    finite = np.isfinite(x).all(axis=1)
    z = np.where(finite[:, None], x, 0).astype(np.float64) @ matrix
    shift = z[finite].mean(axis=0)
    z = z - shift

    def products(mask):
        return SimpleNamespace(
            n=int(mask.sum()), total=z[mask].sum(axis=0), gram=z[mask].T @ z[mask]
        )  # of rows minus the shift

    def by_class(codes, count):
        rows = [finite & known.masks[0] & (codes == one) for one in range(count)]
        return SimpleNamespace(
            counts=np.array([int(mask.sum()) for mask in rows]),
            totals=np.array([z[mask].sum(axis=0) for mask in rows]),
        )

    return SimpleNamespace(
        features=x.shape[1],
        sketch="sparse" * (x.shape[1] > PROJECTED),
        shift=shift,
        summary=summarize(x),
        alive=(x[finite] != 0).any(axis=0),
        kept=z[known.kept[finite[known.kept]]].astype(np.float32),
        products=tuple(products(mask & finite) for mask in known.masks),
        classes=tuple(by_class(*one) for one in known.classes),
        units=np.empty(0, np.int64),
        packed=None,
    )


def record_of(x, items, labels, **ids):
    """Return the record of the statistics of some rows."""
    known = KnownRows(np.asarray(items), labels, **ids)
    rows, kept_items, statistics = known.packed(sums_of(x, known))
    record = Record(rows, "fc1", items=kept_items, statistics=statistics)
    check_sent(record)
    assert (
        record.array.nbytes + record.items.nbytes + statistics.nbytes
        <= known.nbytes(rows.shape[1]) + (x.shape[1])
    )
    return record


def results(scorer):
    """Return (value, n) of each score and target."""
    return {(one.score, one.target): (one.value, one.n) for one in scorer.result()}


def received(records, names=NAMES):
    scorer = Scorer(names)
    scorer.receive(records)
    return scorer


def plant(rows=3000, features=64, seed=0, offset=0.0):
    """Return rows of ReLU features with five classes of 3 to 60 % and a number that they determine."""
    rng = np.random.default_rng(seed)
    y = rng.choice(5, rows, p=[0.6, 0.2, 0.12, 0.05, 0.03])
    hidden = rng.normal(size=(rows, 16)) + 1.5 * np.eye(16)[y]
    x = np.maximum(hidden @ rng.normal(size=(16, features)) + rng.normal(size=(rows, features)), 0) + offset
    labels = {"class": y, "number": hidden[:, 0] + 0.1, "some": np.where(y == 1, None, y % 2)}
    return x.astype(np.float32), labels


def close(found, wanted):
    """Check that results are equal within 1e-3; k-means ends in another minimum for rounded rows."""
    assert found.keys() == wanted.keys()
    for key, (value, n) in wanted.items():
        assert found[key][1] == n or np.isnan(value), key
        atol = 0.03 if "kmeans" in key[0] else 1e-3
        assert found[key][0] == pytest.approx(value, rel=1e-3, abs=atol, nan_ok=True), key


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_few_rows_are_scored_as_on_a_server(offset):
    x, labels = plant(offset=offset)
    server = Scorer(NAMES)
    server.update(x, labels, np.arange(3000))
    close(results(received([record_of(x, np.arange(3000), labels)])), results(server))


def test_default_scores_of_few_rows_are_those_of_a_server():
    digits = load_digits()
    x, labels = digits.data.astype(np.float32), {"digit": digits.target, "even": digits.target % 2 == 0}
    names = [name for name in default_scores() if "output" in (get(name).kinds or ["output"])]
    server = Scorer(names)
    server.update(x, labels, np.arange(len(x)))
    found = received([record_of(x, np.arange(len(x)), labels)], names)
    close(results(found), results(server))


@pytest.mark.long
def test_sketched_rows_are_scored_as_their_sketch_is_on_a_server():
    x, labels = plant(features=3000)
    server = Scorer(NAMES[:6])
    server.update(x @ matrix_of(3000), labels, np.arange(3000), projected_from=3000)
    scorer = received([record_of(x, np.arange(3000), labels)])
    found = results(scorer)
    close({key: found[key] for key in results(server)}, results(server))
    whole = Scorer(["mean", "std", "min", "max", "norm", "dead"])
    whole.update(x, labels, np.arange(3000))
    for key, (value, n) in results(whole).items():
        assert found[key] == (pytest.approx(value, rel=1e-5), n)
    notes = {one.score: one.note for one in scorer.result()}
    assert notes["linear_f1"] == "3,000 features sketched to 1,024"
    assert notes["mean"] == ""
    assert notes["effective_rank"] == "not for more than 1024 features"


def test_many_rows_have_the_predictions_of_all_rows():
    """The discriminant is that of all trained rows; the judge fits scikit-learn's to them."""
    x, labels = plant(rows=20_000, features=32)
    scorer = received([record_of(x, np.arange(20_000), labels)])
    server = Scorer(NAMES)
    server.update(x, labels, np.arange(20_000))
    sent, rows = (one.predictions("lda_f1", "class") for one in (scorer, server))
    of_row = dict(zip(rows.items[rows.rows[2]].tolist(), rows.rows[1].tolist(), strict=True))
    truth, guess, which = sent.rows
    assert [of_row[item] for item in sent.items[which].tolist()] == guess.tolist()
    assert len(truth) == kept.HELD
    where = places(np.arange(20_000), 0)
    judge = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(
        x[~where.held], labels["class"][~where.held]
    )
    held = sent.items[which]
    value = f1_score(truth, judge.predict(x[held]), average="macro")
    found = results(scorer)
    assert found["lda_f1", "class"][0] == pytest.approx(value, abs=0.01)
    assert found["linear_f1", "class"][0] > value - 0.03
    notes = {(one.score, one.target): one.note for one in scorer.result()}
    trained = int((~where.held).sum())
    assert re.fullmatch(rf"fitted to [1234],\d+ of {trained:,} trained rows", notes["linear_f1", "class"])
    assert notes["lda_f1", "class"] == ""
    exact = results(server)
    for name in ("mean", "std", "min", "max", "norm", "sparsity", "dead", "nonfinite"):
        assert found[name, ""] == (pytest.approx(exact[name, ""][0], rel=1e-5), exact[name, ""][1])
    ratio = found["participation_ratio", ""]
    assert ratio == (pytest.approx(exact["participation_ratio", ""][0], rel=0.02), int((~where.held).sum()))


def test_rare_classes_keep_their_rows():
    rng = np.random.default_rng(0)
    codes = (rng.random(50_000) < 0.005).astype(np.int16)[:, None]
    where = places(np.arange(50_000), 0)
    chosen = kept.kept_rows(where, codes)
    rare = np.flatnonzero((codes[:, 0] == 1) & ~where.held)
    assert set(rare) <= set(chosen.tolist())
    assert where.held[chosen].sum() == kept.HELD
    assert (~where.held[chosen]).sum() <= kept.UNIFORM + kept.BALANCED


@pytest.mark.parametrize("rows", [5000, 20_000])
@pytest.mark.parametrize("senders", [2, 4])
def test_parts_of_the_rows_merge_to_the_scores_of_all(rows, senders):
    x, labels = plant(rows=rows, features=48, offset=50.0)
    whole = results(received([record_of(x, np.arange(rows), labels)]))
    parts = [
        record_of(x[n::senders], np.arange(rows)[n::senders], {k: v[n::senders] for k, v in labels.items()})
        for n in range(senders)
    ]
    merged = received(parts[::-1])
    close(results(merged), whole)


def test_merged_rows_are_those_chosen_from_all():
    x, labels = plant(rows=30_000, features=4)
    one = received([record_of(x, np.arange(30_000), labels)])
    parts = [
        record_of(x[n::3], np.arange(30_000)[n::3], {k: v[n::3] for k, v in labels.items()}) for n in range(3)
    ]
    many = received(parts)
    one.result(), many.result()
    for read in (lambda s: s.drawn()[0], *(lambda s, t=t: s.rows_to_fit(t)[0] for t in ("class", "some"))):
        assert np.array_equal(read(one.statistics).item, read(many.statistics).item)


def test_rows_that_are_not_finite_are_counted_and_left_out():
    x, labels = plant(rows=8000, features=16)
    x[::10, 3] = np.nan
    found = results(received([record_of(x, np.arange(8000), labels)]))
    assert found["nonfinite", ""] == (800, 8000)
    assert found["mean", ""][1] == 7200
    assert np.isfinite(found["linear_f1", "class"][0])


def test_groups_are_held_out_together_and_types_give_the_control():
    x, labels = plant(rows=4000, features=16)
    groups, types = np.arange(4000) // 40, np.arange(4000) % 97
    names = ["linear_accuracy", "linear_selectivity"]
    server = Scorer(names)
    server.update(x, labels, np.arange(4000), groups=groups, types=types)
    found = received([record_of(x, np.arange(4000), labels, groups=groups, types=types)], names)
    close(results(found), results(server))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("codes", lambda a, f: a.update(codes=a["codes"] + 9)),
        ("alive", lambda a, f: a.update(alive=a["alive"][:-1])),
        ("gram.0", lambda a, f: a.pop("gram.0")),
        ("scale", lambda a, f: a.update(scale=a["scale"].astype(np.float64))),
        ("features", lambda a, f: f.update(features=17)),
        ("rows", lambda a, f: f.update(rows=-1)),
        ("sketch", lambda a, f: f.update(sketch="other")),
        ("targets", lambda a, f: f.pop("targets")),
        ("label", lambda a, f: f["targets"][0].update(labels=[[1]])),
    ],
)
def test_malformed_statistics_are_refused(what, change):
    x, labels = plant(rows=6100, features=16)
    record = record_of(x, np.arange(6100), labels)
    change(record.statistics.arrays, record.statistics.facts)
    with pytest.raises(InputError, match=what):
        check_sent(record)


def test_statistics_of_other_targets_are_not_merged():
    x, labels = plant(rows=100, features=16)
    one, other = (record_of(x, np.arange(100), {"class": labels["class"]}), record_of(x, np.arange(100), {}))
    with pytest.raises(InputError, match="cannot be merged"):
        received([one, other])


@pytest.mark.parametrize("sketch", ["sparse", "dense"])
def test_sketches_of_parts_of_the_features_add_up(sketch):
    def whole(start, stop):
        if sketch == "dense":
            return dense_sketch(start, stop)
        columns, entries = sparse_sketch(start, stop)
        out = np.zeros((stop - start, PROJECTED), np.float32)
        np.put_along_axis(out, columns, entries, axis=1)
        return out

    x = np.random.default_rng(0).normal(size=(50, 4000)).astype(np.float32)
    shards = sum(x[:, start : start + 1000] @ whole(start, start + 1000) for start in range(0, 4000, 1000))
    full = x @ whole(0, 4000)
    np.testing.assert_allclose(shards, full, atol=1e-3)
    distances = [np.linalg.norm(rows[:25] - rows[25:], axis=1) for rows in (x, full)]
    assert np.abs(distances[1] / distances[0] - 1).max() < 0.12
