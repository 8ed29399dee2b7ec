"""Measures how often scores exceed their baselines without signal, and how often intervals hold the truth.

``python -m intus.scores --calibrate`` prints the result as JSON, which is stored beside this file and shown
in ``docs/scores.md``. It takes some minutes. Data are drawn from designs of which the truth is known:

- without signal, the labels do not depend on the behaviours. The labels and part of the behaviours are shared
  by the rows of an item, as for the words of a sentence.
- with signal, they do. The truth of a score with a predictor that was trained is what this very predictor
  reaches on very many further rows: a second scorer gets the same training rows and many more that its split
  holds out. The truth of any other score is its value for very many rows.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from ..base import Score, ScoreResult
from ..cluster import LEAST_ROWS, adjusted, contingency, k_means, mutual_information, normalised
from ..comparisons.layers import canonical_correlation, main_directions, relations
from ..estimators.penalized import fit_linear, fit_logistic
from ..probes.labelled import labelled_rows
from ..registry import get, names
from ..scorer import Scorer
from ..statistics.split import places

RUNS = 120  #: data sets of each design
MORE = 8  #: times as many for scores without a target, which are cheap
SLOW_RUNS = 60  #: the same for scores that take long
LARGE = 20_000  #: rows of the very large draw
SLOW = frozenset({"linear_selectivity", "svm_f1", "logistic_f1", "logistic_l1", "logistic_l2"})
#: Scores whose predictor or threshold is learned on the training rows and judged on the others.
TRAINED = "held fixed"
_TRAINED_TOO = frozenset({"iou_max", "linear_selectivity"})
_FILE = "calibration.json"


class Draw(NamedTuple):
    """Data of one design: behaviours (rows, units), labels by target, items and types (rows,)."""

    x: np.ndarray
    labels: dict[str, np.ndarray]
    items: np.ndarray
    types: np.ndarray

    def take(self, rows: np.ndarray) -> Draw:
        """Return some of the rows."""
        labels = {name: column[rows] for name, column in self.labels.items()}
        return Draw(self.x[rows], labels, self.items[rows], self.types[rows])


#: By name of row: "above", the share of intervals above the baseline without signal; "p", the share with
#: p < .05 without signal; "coverage", the share of intervals that contain the truth. Each is a list of
#: pairs of a share and a number of intervals, one for each design.
Calibration = dict[str, dict[str, list[list[float]]]]

#: Draws data with the seed's generator, of a number of items.
Design = Callable[[np.random.Generator, int], Draw]


def classes(shares: tuple[float, ...], per: int, signal: float) -> Design:
    """Return a design of classes with these frequencies and ``per`` rows in an item."""

    def draw(rng: np.random.Generator, items: int) -> Draw:
        rows = items * per
        of_item = np.repeat(rng.choice(len(shares), items, p=shares), per)
        own = rng.choice(len(shares), rows, p=shares)
        y = np.where(rng.random(rows) < (0.7 if per > 1 else 0.0), of_item, own)
        mean = np.random.default_rng(5).normal(size=(len(shares), 8)) / np.sqrt(8)
        x = rng.normal(size=(rows, 8)) + (per > 1) * 0.7 * np.repeat(rng.normal(size=(items, 8)), per, axis=0)
        x += signal * mean[y]
        types = rng.integers(0, 200, rows)
        return Draw(x.astype(np.float32), {"y": y}, np.repeat(np.arange(items), per), types)

    return draw


def words(shares: tuple[float, ...], noise: float) -> Design:
    """Return a design of types (words) with random labels, and of a layer that knows only the types."""

    def draw(rng: np.random.Generator, items: int) -> Draw:
        frequency = 1 / np.arange(1, 301)
        types = rng.choice(300, items, p=frequency / frequency.sum())
        x = rng.normal(size=(300, 16))[types] + noise * rng.normal(size=(items, 16))
        labels = {"y": rng.choice(len(shares), 300, p=shares)[types]}
        return Draw(x.astype(np.float32), labels, np.arange(items), types)

    return draw


def numbers(per: int, signal: float) -> Design:
    """Return a design of a measured number with ``per`` rows in an item."""

    def draw(rng: np.random.Generator, items: int) -> Draw:
        rows = items * per
        x = rng.normal(size=(rows, 8)) + (per > 1) * 0.7 * np.repeat(rng.normal(size=(items, 8)), per, axis=0)
        noise = rng.normal(size=rows) + (per > 1) * np.repeat(rng.normal(size=items), per)
        y = signal * (x[:, 0] - 0.5 * x[:, 1]) + noise
        return Draw(x.astype(np.float32), {"y": y}, np.repeat(np.arange(items), per), np.zeros(rows, int))

    return draw


def hypotheses(per: int, signal: float) -> Design:
    """Return a design of a binary hypothesis that some units follow, with ``per`` rows in an item."""

    def draw(rng: np.random.Generator, items: int) -> Draw:
        rows = items * per
        hidden = rng.normal(size=rows) + np.repeat(rng.normal(size=items), per)
        x = rng.normal(size=(rows, 6)) + np.repeat(rng.normal(size=(items, 6)), per, axis=0)
        x += signal * hidden[:, None] * np.linspace(0.3, 1.5, 6)
        labels = {"y": (hidden > 1.8).astype(int)}
        return Draw(x.astype(np.float32), labels, np.repeat(np.arange(items), per), np.zeros(rows, int))

    return draw


def layers(per: int, signal: float) -> Design:
    """Return a design of two layers, the second of which is the label ``y``, a matrix."""

    def draw(rng: np.random.Generator, items: int) -> Draw:
        rows = items * per
        x = rng.normal(size=(rows, 6)) + np.repeat(rng.normal(size=(items, 6)), per, axis=0)
        mix = np.random.default_rng(5).normal(size=(6, 6)) / 2
        y = signal * x @ mix + rng.normal(size=(rows, 6))
        return Draw(x, {"y": y}, np.repeat(np.arange(items), per), np.zeros(rows, int))

    return draw


#: The designs of each kind of score: without signal and with it, and the number of items.
DESIGNS: dict[str, list[tuple[Design, Design, int]]] = {
    "classes": [
        (classes((0.5, 0.5), 1, 0.0), classes((0.5, 0.5), 1, 1.5), 600),
        (classes((0.5, 0.3, 0.2), 5, 0.0), classes((0.5, 0.3, 0.2), 5, 2.0), 200),
        (classes((0.97, 0.03), 1, 0.0), classes((0.97, 0.03), 1, 3.0), 1500),
    ],
    "numbers": [(numbers(1, 0.0), numbers(1, 0.7), 400), (numbers(5, 0.0), numbers(5, 0.7), 200)],
    "hypotheses": [
        (hypotheses(10, 0.0), hypotheses(10, 0.7), 100),
        (hypotheses(20, 0.0), hypotheses(20, 0.7), 400),
    ],
    "layers": [(layers(3, 0.0), layers(3, 1.0), 150)],
}
DESIGNS["types"] = [
    *DESIGNS["classes"],
    (words((0.5, 0.5), 1.0), classes((0.5, 0.5), 1, 1.5), 2000),
    (words((0.8, 0.15, 0.05), 1.0), classes((0.8, 0.15, 0.05), 1, 2.0), 2000),
]


# -- one score ----------------------------------------------------------------------------------------


def kind_of(score: Score) -> str:
    """Return the kind of designs that a score is measured with."""
    if score.per == "layers":
        return "layers"
    if score.per == "unit" and score.infos[0].level == "unit":
        return "hypotheses"
    if score.name == "linear_selectivity":
        return "types"
    return "numbers" if "values" in score.needs and "numbers" in score.infos[0].requires else "classes"


def calibrate(score: Score, runs: int) -> Calibration:
    """Return what was measured for each row of a score, with data of ``runs`` seeds for each design."""
    out: Calibration = {}
    for number, (noise, signal, items) in enumerate(DESIGNS[kind_of(score)]):
        hits: dict[tuple[str, str], list[bool]] = {}
        for run in range(runs):
            draw = noise(np.random.default_rng([run, number]), items)
            for result in _results(score, draw, run):
                if math.isfinite(result.low) and math.isfinite(result.baseline):
                    above = result.low > result.baseline or result.high < -abs(result.baseline)
                    hits.setdefault((result.score, "above"), []).append(above)
                if math.isfinite(result.p):
                    hits.setdefault((result.score, "p"), []).append(result.p < 0.05)
        truth: dict[Any, float] = {}
        for run in range(runs):
            draw = signal(np.random.default_rng([run, number, 1]), items)
            results = [r for r in _results(score, draw, run) if math.isfinite(r.low)]
            if results and (not truth or _is_trained(score)):
                truth = _truth(score, signal, number, draw, run)
            for result in results:
                at = truth.get((result.score, result.unit), math.nan)
                if math.isfinite(at):
                    covered = result.low <= at <= result.high
                    hits.setdefault((result.score, "coverage"), []).append(covered)
        for (name, what), each in hits.items():
            share = [round(float(np.mean(each)), 4), len(each)]
            out.setdefault(name, {}).setdefault(what, []).append(share)
    return out


def _is_trained(score: Score) -> bool:
    """Return whether the truth depends on the training rows, so that each data set has its own."""
    return TRAINED in score.infos[0].interval or score.name in _TRAINED_TOO or score.name.startswith("kmeans")


def _scorer(score: Score, draw: Draw, seed: int) -> Scorer:
    scorer = Scorer([score], seed=seed, sample_bytes=256 << 20)
    scorer.update(draw.x, draw.labels, draw.items, types=draw.types)
    return scorer


def _results(score: Score, draw: Draw, seed: int) -> Iterable[ScoreResult]:
    if score.per != "layers":
        return _scorer(score, draw, seed).result()
    pair = {"one": draw.x, "two": draw.labels["y"]}
    scorers = {name: _scorer(score, draw._replace(x=x, labels={}), seed) for name, x in pair.items()}
    return [result for _, result in relations(scorers, score)]


def _truth(score: Score, signal: Design, number: int, draw: Draw, seed: int) -> dict[Any, float]:
    """Return the true value of each row by name and unit."""
    items = len(np.unique(draw.items))
    per = len(draw.items) // items
    large = signal(np.random.default_rng([10**6, number]), LARGE // per)
    if score.per == "layers":
        return {(score.name, -1): _POPULATION[score.name](large.x, large.labels["y"])}
    if score.name in _AGREEMENTS:
        return {(score.name, -1): _agreement(score, draw, large, seed)}
    if not _is_trained(score):
        return _values(_scorer(score, large, seed).result())
    further = large._replace(items=_held_out(len(large.items), draw.items.max() + 1, per, seed))
    kept = draw.take(~places(draw.items, seed).held)
    both = Draw(
        np.concatenate([kept.x, further.x]),
        {name: np.concatenate([kept.labels[name], further.labels[name]]) for name in kept.labels},
        np.concatenate([kept.items, further.items]),
        np.concatenate([kept.types, further.types]),
    )
    out = {key: value for key, value in _values(_scorer(score, both, seed).result()).items() if key[1] < 0}
    if score.infos[0].level == "unit":
        return _values(_scorer(score, both, seed).result())
    if score.name in _COEFFICIENTS:
        many = signal(np.random.default_rng([10**6, number]), 4 * LARGE // per)
        coef = _COEFFICIENTS[score.name](many.x, many.labels["y"], len(kept.items))
        out |= {(f"{score.name}.coef", unit): float(value) for unit, value in enumerate(coef)}
    return out


def _values(results: Iterable[ScoreResult]) -> dict[Any, float]:
    return {(result.score, result.unit): result.value for result in results}


def _held_out(rows: int, first: int, per: int, seed: int) -> np.ndarray:
    """Return ids of items that a split holds out, ``per`` rows of each."""
    ids = np.arange(first, first + 6 * rows // per + 100)
    return np.repeat(ids[places(ids, seed).held][: -(-rows // per)], per)[:rows]


def _logistic_coefficients(x: np.ndarray, codes: np.ndarray, rows: int) -> np.ndarray:
    """Return coefficients with a penalty that is as strong for each row as that of ``rows`` rows is."""
    coef = fit_logistic((x - x.mean(axis=0)) / x.std(axis=0), codes, "L2", rows / len(x)).coef
    return coef[:, 0] if coef.shape[1] == 1 else np.empty(0)


def _linear_coefficients(x: np.ndarray, y: np.ndarray, rows: int) -> np.ndarray:
    """Return coefficients without a penalty, since the chosen penalty is small with a signal."""
    coef = fit_linear((x - x.mean(axis=0)) / x.std(axis=0), y, "L2", 1e-9).coef[:, 0]
    return np.asarray(coef / y.std())


_COEFFICIENTS: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "logistic_l2": _logistic_coefficients,
    "linear_l2": _linear_coefficients,
}


def _population_cka(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    norm = np.linalg.norm
    return float(norm(x.T @ y) ** 2 / norm(x.T @ x) / norm(y.T @ y))


_POPULATION: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "cka": _population_cka,
    "svcca": lambda x, y: canonical_correlation(main_directions(x), main_directions(y)),
}
_AGREEMENTS = {"kmeans_ami": adjusted, "kmeans_mi": mutual_information, "kmeans_nmi": normalised}


def _agreement(score: Score, draw: Draw, large: Draw, seed: int) -> float:
    """Return the agreement of further rows' labels with the nearest of the centers found in ``draw``."""
    statistics = _scorer(score, draw, seed).statistics
    _, x, truth = labelled_rows(statistics, "y")
    if len(x) < LEAST_ROWS:
        return math.nan
    cluster = k_means(x, len(np.unique(truth)), seed)
    centers = np.array([x[: len(cluster)][cluster == number].mean(axis=0) for number in np.unique(cluster)])
    nearest = ((large.x**2).sum(axis=1)[:, None] - 2 * large.x @ centers.T + (centers**2).sum(axis=1)).argmin(
        1
    )
    return float(_AGREEMENTS[score.name](contingency(large.labels["y"], nearest)))


# -- all scores ---------------------------------------------------------------------------------------


def measure(wished: Iterable[str] = (), runs: int = RUNS) -> Iterator[tuple[str, Calibration]]:
    """Yield each registered score of intus with its calibration, by name of row."""
    for name in wished or names():
        score = get(name)
        if score.kinds or not any(info.interval for info in score.infos):
            continue
        if score.infos[0].needs_target:
            yield name, calibrate(score, min(runs, SLOW_RUNS) if name in SLOW else runs)
        else:
            yield name, calibrate_description(score, MORE * runs)


def calibrate_description(score: Score, runs: int) -> Calibration:
    """Return the coverage of a score that needs no target."""
    design, hits = DESIGNS["hypotheses"][0][1], []

    def draw(seed: int, items: int) -> Draw:
        found = design(np.random.default_rng(seed), items)
        return found._replace(x=np.maximum(found.x, 0))

    truth = _values(_scorer(score, draw(10**6, LARGE // 4), 0).result())
    for run in range(runs):
        for result in _scorer(score, draw(run, 100), run).result():
            hits.append(result.low <= truth[result.score, result.unit] <= result.high)
    return {score.name: {"coverage": [[round(float(np.mean(hits)), 4), len(hits)]]}}


def stored() -> Calibration:
    """Return the stored measurements by name of row."""
    file = resources.files(__package__) / _FILE
    found: Calibration = json.loads(file.read_text(encoding="utf-8"))
    return found


def main(wished: list[str]) -> None:
    """Measure the named scores, all by default, and print them with the other stored ones as JSON."""
    out = {name: row for name, row in stored().items() if wished}
    for name, found in measure(wished):
        print(f"{name}: {found}", file=sys.stderr)
        out |= found
    json.dump(out, sys.stdout, indent=1, sort_keys=True)
    print()
