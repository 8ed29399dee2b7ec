"""The claims of findings, read from their sentences, against the scores: by plain loops over the rows."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from intus.core.findings import findings
from intus.core.results import Results

N = r"(-?\d+\.\d\d)"
LAYER = r"(the model's output|layer \d+)"
MORE = r"(?: and (\d+) more layers?)?"
NUMBERS = rf"linear_f1 {N} \[{N}, {N}\], baseline {N}"
ROWS = r"(?: Epoch (\d+) has (\d+) held-out rows, epoch (\d+) (\d+){}\.)?"
LEARNED = re.compile(
    rf"y is learned in {LAYER}{MORE} from epoch (\d+): {NUMBERS}; "
    rf"{LAYER} had {N} \[{N}, {N}\] at epoch (\d+), the first scored\." + ROWS.format("")
)
DECODABLE = re.compile(
    rf"y can be decoded from {LAYER}{MORE} since epoch (\d+)(, the first scored)?: "
    rf"{NUMBERS}(?: in {LAYER})?\."
    + ROWS.format(", which alone may show it")
    + r" (?:No interval of the newest point is above that of the first( by more than its rows may give)?\.|"
    rf"At the newest point the interval of {LAYER}{MORE} is above that of the first\.)"
)
FELL = re.compile(
    rf"y fell (to|below|to or below) its baseline in {LAYER}{MORE} at epoch (\d+): {NUMBERS}; "
    rf"{LAYER} had {N} at epoch (\d+)\." + ROWS.format("")
)
IDLE = re.compile(
    rf"(?:{LAYER} adds|The (\d+) layers from {LAYER} to {LAYER} add) nothing about y "
    rf"over {LAYER} since epoch (\d+)(, the first scored)?, or 0\.02 at most: {NUMBERS}, "
    rf"and {N} as the highest upper bound of later layers, at epoch (\d+), where they come closest\."
)
PATTERNS = {"learned": LEARNED, "decodable": DECODABLE, "fell": FELL, "idle": IDLE}


class Told:
    """The table of one target as lists of rows of each layer, in time."""

    def __init__(self, rows):
        self.rows = {}
        for row in sorted(rows, key=lambda row: row["epoch"]):
            if row["value"] is not None:
                self.rows.setdefault(row["address"] or "the model's output", []).append(row)

    def at(self, layer, epoch):
        (row,) = [row for row in self.rows[layer] if row["epoch"] == epoch]
        return row

    def since(self, layer, epoch):
        return [row for row in self.rows.get(layer, []) if row["epoch"] >= epoch]

    def has(self, layer, epoch, *numbers):
        row = self.at(layer, epoch)
        names = ("value", "low", "high", "baseline")[: len(numbers)]
        return all(f"{row[name]:.2f}" == number for name, number in zip(names, numbers, strict=True))

    def check_rows(self, layer, epoch, before, *told, only_more=False):
        """Check that the rows of two points are told if they differ, and are those of these points."""
        rows, earlier = self.at(layer, epoch)["n"], self.at(layer, before)["n"]
        if rows > earlier if only_more else rows != earlier:
            assert tuple(map(float, told)) == (before, earlier, epoch, rows)
        else:
            assert told == (None,) * 4


def above_first(row, first, by_rows=True):
    """Return whether a score is above the first, by more than its rows may give."""
    more = max(row["n"] / first["n"], 1) if by_rows else 1
    bound = first["high"] + (more - 1) * (first["high"] - min(first["value"], first["baseline"]))
    return row["low"] > bound + 1e-12


def check_learned(told, order, layer, more, epoch, value, low, high, baseline, same, v0, l0, h0, e0, *rows):
    assert layer == same
    told.check_rows(layer, float(epoch), float(e0), *rows)
    epoch, first = float(epoch), told.rows[layer][0]
    assert first["epoch"] == float(e0)
    assert told.has(layer, epoch, value, low, high, baseline)
    assert told.has(layer, float(e0), v0, l0, h0)

    def holds(name):
        rows = told.since(name, epoch)
        return (
            len(rows) >= 2
            and rows[0]["epoch"] == epoch
            and all(row["low"] > row["baseline"] and above_first(row, told.rows[name][0]) for row in rows)
        )

    assert holds(layer)
    assert sum(holds(name) for name in told.rows if name != layer) >= int(more or 0)


def check_decodable(
    told,
    order,
    layer,
    more,
    epoch,
    is_first,
    value,
    low,
    high,
    baseline,
    same,
    e0,
    n0,
    e1,
    n1,
    by_rows,
    risen,
    others,
):
    epoch = float(epoch)
    before = max((row["epoch"] for row in told.rows[layer] if row["epoch"] < epoch), default=epoch)
    told.check_rows(layer, epoch, before, e0, n0, e1, n1, only_more=True)
    assert same in (None, layer)
    assert told.has(layer, epoch, value, low, high, baseline)

    def holds(name):
        rows = told.since(name, epoch)
        known = len(rows) >= 2 and rows[0]["epoch"] == epoch and (not is_first or rows == told.rows[name])
        return known and all(row["low"] > row["baseline"] for row in rows)

    def rises(name, by_rows=True):
        return above_first(told.rows[name][-1], told.rows[name][0], by_rows)

    assert holds(layer)
    assert is_first or told.rows[layer][0]["epoch"] < epoch
    those = [name for name in told.rows if holds(name)]
    assert len(those) >= 1 + int(more or 0)
    if risen is None:
        assert sum(not rises(name) for name in those) >= 1 + int(more or 0)
        assert bool(by_rows) <= any(rises(name, by_rows=False) for name in those)
    else:
        assert risen in those
        assert rises(risen)
        assert sum(rises(name) for name in those) >= 1 + int(others or 0)


def check_fell(
    told, order, side, layer, more, epoch, value, low, high, baseline, same, before, when, *counts
):
    assert layer == same
    epoch, when = float(epoch), float(when)
    told.check_rows(layer, epoch, when, *counts)
    assert when < epoch
    assert told.has(layer, epoch, value, low, high, baseline)
    assert told.has(layer, when, before)

    def holds(name):
        rows, earlier = told.since(name, epoch), [row for row in told.rows[name] if row["epoch"] < epoch]
        if len(rows) < 2 or rows[0]["epoch"] != epoch or any(row["low"] > row["baseline"] for row in rows):
            return False
        if side != "to or below" and (side == "below") != (rows[0]["high"] < rows[0]["baseline"]):
            return False
        top = [row for row in earlier if row["low"] > row["baseline"]]

        def below(row, was):
            fewer = max(was["n"] / row["n"], 1)
            return row["high"] < was["baseline"] + (was["value"] - was["baseline"]) / fewer

        return any(all(below(row, was) for row in rows) for was in top)

    assert holds(layer)
    assert sum(holds(name) for name in told.rows if name != layer) >= int(more or 0)


def check_idle(
    told, order, only, count, start, end, over, epoch, is_first, value, low, high, baseline, bound, when
):
    epoch, when = float(epoch), float(when)
    later = [name for name in order[order.index(over) + 1 :] if told.rows.get(name)]
    assert later == [only] if only else (len(later), later[0], later[-1]) == (int(count), start, end)
    rows = told.since(over, epoch)
    assert len(rows) >= 2
    assert rows[0]["epoch"] == epoch
    assert bool(is_first) == (rows == told.rows[over])
    gaps = {}
    for row in rows:
        bounds = [told.at(name, row["epoch"])["high"] for name in later]  # each was scored then
        assert row["low"] > row["baseline"]
        assert {told.at(name, row["epoch"])["n"] for name in later} == {row["n"]}
        gaps[row["epoch"]] = max(bounds) - row["value"]
    assert max(gaps.values()) <= 0.02 + 1e-12  # 0.72 - 0.7 is above 0.02
    assert gaps[when] == max(gaps.values())  # the sentence has the worst of all epochs that it covers
    assert told.has(over, when, value, low, high, baseline)
    assert f"{max(told.at(name, when)['high'] for name in later):.2f}" == bound
    times = {row["epoch"] for name in [over, *later] for row in told.since(name, epoch)}
    assert times == set(gaps)  # of each epoch since


CHECKS = {"learned": check_learned, "decodable": check_decodable, "fell": check_fell, "idle": check_idle}


@st.composite
def histories(draw):
    """Draw scores of some layers over some epochs: levels with jumps, wide and narrow intervals, gaps."""
    level = st.sampled_from([0.30, 0.45, 0.50, 0.52, 0.6, 0.7, 0.72, 0.86, 0.93, 0.97, 1.0])
    width = st.sampled_from([0.0, 0.01, 0.03, 0.05, 0.12, 0.3])
    layers, epochs = draw(st.integers(1, 5)), sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=6)))
    rows = []
    counts = {epoch: draw(st.sampled_from([100, 100, 100, 110, 200, 800])) for epoch in epochs}
    for layer in range(layers):
        value, half = draw(level), draw(width)
        for epoch in epochs:
            if draw(st.integers(0, 3)) == 0:
                value = draw(level)
            if draw(st.integers(0, 4)) == 0:
                half = draw(width)
            fate = draw(st.integers(0, 19))
            if fate == 0:
                continue
            row = {"address": f"layer {layer}", "target": "y", "score": "linear_f1", "epoch": float(epoch)}
            low, high = max(value - half, 0.0), min(value + half, 1.0)
            n = draw(st.sampled_from([counts[epoch]] * 9 + [70]))
            numbers = {"value": value, "low": low, "high": high, "baseline": 0.5, "n": n}
            rows.append(row | (numbers if fate > 1 else {"note": "too few rows"}))
    return [{"value": None, **row} for row in rows]


def told_of(rows, order):
    return findings(Results.from_rows(rows), order)


def row(layer, epoch, value, low, high):
    facts = {"address": f"layer {layer}", "target": "y", "score": "linear_f1", "epoch": float(epoch)}
    return facts | {"value": value, "low": low, "high": high, "baseline": 0.5, "n": 100}


#: The scores of which strangers read a sentence that they contradict.
HIGHER_LATER = [row(0, epoch, 1.0, 0.97, 1.0) for epoch in (1, 2)]
HIGHER_LATER += [row(1, 1, 0.5, 0.42, 0.58), row(1, 2, 0.944, 0.907, 0.981)]
ROSE = [row(0, epoch, 1.0, 0.97, 1.0) for epoch in (1, 2)]
ROSE += [row(1, 1, 0.66, 0.58, 0.73), row(1, 2, 0.83, 0.77, 0.89)]
OVERLAPS = [row(0, 0, 0.57, 0.49, 0.65), *(row(0, epoch, 0.72, 0.64, 0.79) for epoch in (1, 2, 3))]


@pytest.mark.long
@settings(deadline=None, max_examples=400)
@given(rows=histories())
@example(rows=HIGHER_LATER)
@example(rows=ROSE)
@example(rows=OVERLAPS)
def test_no_sentence_is_contradicted_by_the_scores(rows):
    order = [f"layer {number}" for number in range(5)]
    told = Told(rows)
    for finding in told_of(rows, order):
        found = PATTERNS[finding.kind].fullmatch(finding.text)
        assert found, finding.text
        CHECKS[finding.kind](told, order, *found.groups())


@settings(deadline=None, max_examples=100)
@given(rows=histories(), random=st.randoms(use_true_random=False), pace=st.integers(1, 7))
def test_order_of_arrival_and_names_change_no_finding(rows, random, pace):
    order = [f"layer {number}" for number in range(5)]
    before = told_of(rows, order)
    moved = [dict(each) for each in rows]
    random.shuffle(moved)
    assert told_of(moved, order) == before
    for each in moved:
        each["address"], each["target"] = f"net.{9 - int(each['address'][-1])}", "z"
        each["epoch"] = pace * each["epoch"] + 3
    after = told_of(moved, [f"net.{9 - number}" for number in range(5)])
    assert [(e.kind, int(e.address[-1]), e.epoch) for e in after] == [
        (e.kind, 9 - int(e.address[-1]), pace * e.epoch + 3) for e in before
    ]


def test_learned_is_said_only_of_intervals_above_the_first():
    assert [each.kind for each in told_of(OVERLAPS, ["layer 0"])] == ["decodable"]
    above = [row(0, 0, 0.57, 0.49, 0.65), *(row(0, epoch, 0.75, 0.66, 0.8) for epoch in (1, 2))]
    (found,) = told_of(above, ["layer 0"])
    assert str(found) == (
        "y is learned in layer 0 from epoch 1: linear_f1 0.75 [0.66, 0.80], baseline 0.50; "
        "layer 0 had 0.57 [0.49, 0.65] at epoch 0, the first scored."
    )


def test_nan_of_the_first_scored_epoch_is_said_to_be_that():
    def counted(*values):
        rows = [{"address": "layer 0", "score": "nonfinite", "epoch": 4.0 + at} for at in range(len(values))]
        return told_of([each | {"value": value} for each, value in zip(rows, values, strict=True)], [])

    assert [str(each) for each in counted(2, 1)] == [
        "NaN or infinite values began in layer 0 at epoch 4, the first scored: 2 values."
    ]
    assert [str(each) for each in counted(0, 1)] == [
        "NaN or infinite values began in layer 0 at epoch 5: 1 value."
    ]
    (unknown,) = told_of([{"address": "layer 0", "score": "nonfinite", "value": 1}], [])
    assert str(unknown).endswith("at an unknown epoch, the first scored: 1 value.")
    assert unknown.epoch != unknown.epoch


def counted(address, value, kind="output", **facts):
    return {"address": address, "kind": kind, "score": "nonfinite", "epoch": 3.0, "value": value} | facts


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ("", "began in layer 1 at step 19 of epoch 3: 4 values in the epoch."),
        (
            "step 15, the last one recorded before, had none",
            "were first recorded in layer 1 at step 19 of epoch 3: 4 values in the epoch. Step 15, the last "
            "one recorded before, had none.",
        ),
    ],
)
def test_nan_of_an_epoch_began_in_the_layer_of_the_earliest_step(note, words):
    rows = [counted("layer 0", 0, epoch=2.0)]
    for address, value, step in (("layer 0", 9, 20), ("layer 1", 4, 19), ("layer 2", 8, 19)):
        rows += [counted(address, value), counted(address, step, score="nonfinite_step", note=note)]
    (found,) = told_of(rows, ["layer 0", "layer 1", "layer 2"])
    assert str(found) == f"NaN or infinite values {words}"
    assert (found.address, found.epoch, found.step) == ("layer 1", 3.0, 19)


def test_layer_is_not_blamed_for_nan_of_an_epoch_whose_steps_are_unknown():
    rows = [counted("layer 0", 0, epoch=2.0), counted("layer 0", 2), counted("layer 1", 1)]
    (found,) = told_of(rows, ["layer 0", "layer 1"])
    assert str(found) == (
        "NaN or infinite values began at epoch 3, in layer 0 and 1 more layer: 2 values in layer 0. In which "
        "layer they began is not known, for a point of a whole epoch does not tell."
    )
    (alone,) = told_of([rows[0], rows[2]], ["layer 0", "layer 1"])
    assert str(alone) == "NaN or infinite values began in layer 1 at epoch 3: 1 value."


def test_nan_of_gradients_began_in_the_last_layer_of_a_step():
    rows = [counted("layer 0", 0, epoch=2.0)]
    for address in ("layer 0", "layer 1"):
        rows += [
            counted(address, 2, "grad_output"),
            counted(address, 19, "grad_output", score="nonfinite_step"),
        ]
    (found,) = told_of(rows, ["layer 0", "layer 1"])
    assert found.address == "layer 1"
    output = [
        counted("layer 0", 2, "output@train"),
        counted("layer 0", 19, "output@train", score="nonfinite_step"),
    ]
    assert told_of(rows + output, ["layer 0", "layer 1"])[0].text.startswith(
        "NaN or infinite values began in layer 0 (output@train) at step 19"
    )
