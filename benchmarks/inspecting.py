"""Measure the cost of inspecting an LSTM: 512 units × 190 hypotheses × 29,696 records of 30 symbols.

``python -m benchmarks.inspecting`` generates SQL queries, trains a character model for a moment and
correlates all units with all hypotheses: by ``inspect``, by a pass that stops when it is precise enough, and
by scipy, whose time is that of some pairs times the number of pairs. ``python -m benchmarks.inspecting 2048``
takes fewer records.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, jaccard_score
from sklearn.preprocessing import StandardScaler

from intus import inspect
from intus.scores import Scorer
from intus.scores.statistics.split import places

from . import harness

RECORDS, SYMBOLS, UNITS, HYPOTHESES = 29_696, 30, 512, 190
BLOCK, EPS, ROWS, PAIRS = 256, 0.025, 20_000, 24
GOAL_FULL, GOAL_STOPPED, GOAL_BEYOND, GOAL_MEGABYTES, GOAL_IOU = 20, 250, 0.001, 150, 0.03
GOAL_LOGISTIC, PROBES, SAMPLE = 50, 24, 100 << 20

Labels = dict[str, np.ndarray]


def main() -> None:
    """Measure, and write results/inspecting.md and .json."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    facts = harness.machine()
    parts = {
        part.__name__: _alone(part, records) for part in (forward, full, stopped, scipy, thresholds, logistic)
    }
    found = {"machine": facts, "records": records, **parts}
    harness.write("inspecting", _report(found), found)


def _alone(part: Callable[[int], dict[str, float]], records: int) -> dict[str, float]:
    """Run a measurement in a fresh process, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(part, records).result()


# -- the task ----------------------------------------------------------------------------------------


def query(rng: random.Random) -> list[tuple[str, str]]:
    """Return a random SQL query as pieces of text, each with the names of its grammar rules, by spaces."""
    out: list[tuple[str, str]] = []

    def say(text: str, rules: str) -> None:
        out.append((text, rules))

    def column(rules: str) -> None:
        if rng.random() < 0.2:
            say(rng.choice(["max", "min", "sum", "avg"]), f"{rules} call function")
            say("(", f"{rules} call bracket")
            say(rng.choice("abcdefgh") + str(rng.randrange(10)), f"{rules} call argument column")
            say(")", f"{rules} call bracket")
        else:
            say(rng.choice("abcdefgh") + str(rng.randrange(10)), f"{rules} column")

    say("select ", "clause keyword select")
    for number in range(rng.randrange(1, 4)):
        if number:
            say(", ", "select list comma")
        column("select list")
    say(" from ", "clause keyword from")
    say(rng.choice(["users", "items", "log"]), "from table")
    if rng.random() < 0.7:
        say(" where ", "clause keyword where")
        for number in range(rng.randrange(1, 4)):
            if number:
                say(rng.choice([" and ", " or "]), "where keyword logic")
            column("where condition left")
            say(rng.choice(["=", "<", ">", "<>"]), "where condition operator")
            if rng.random() < 0.5:
                say(str(rng.randrange(1000)), "where condition right number")
            else:
                word = "".join(rng.choices("abcdefgh", k=4))
                say(f"'{word}'", "where condition right string")
    if rng.random() < 0.5:
        say(" order by ", "clause keyword order")
        column("order list")
    say("; ", "end")
    return out


def task(records: int) -> tuple[np.ndarray, Labels]:
    """Return symbols (records, 30) and 190 hypotheses, each (records, 30)."""
    rng, texts, rules = random.Random(0), "", list[str]()
    while len(texts) < (records + 1) * SYMBOLS * 2:
        for text, names in query(rng):
            texts += text
            rules += [names] * len(text)
    alphabet = sorted(set(texts))
    codes = np.array([alphabet.index(one) for one in texts])
    starts = np.arange(records)[:, None] * 2 * SYMBOLS + np.random.default_rng(0).integers(
        0, SYMBOLS, (records, 1)
    )
    at = starts + np.arange(SYMBOLS)
    long: Labels = {}
    names = sorted({name for one in set(rules) for name in one.split()})
    for name in names:
        inside = np.array([name in one.split() for one in rules])
        long[f"in {name}"] = inside
        long[f"start of {name}"] = inside & ~np.r_[False, inside[:-1]]
        long[f"end of {name}"] = inside & ~np.r_[inside[1:], False]
    for ago in (0, 1, 2):
        for code, character in enumerate(alphabet):
            long[f"{character!r} {ago} ago"] = np.roll(codes, ago) == code
    depth = np.cumsum((codes == alphabet.index("(")) * 1 - (codes == alphabet.index(")")) * 1)
    labels: Labels = {"depth": depth[at].astype(np.float32)}
    labels["position"] = np.broadcast_to(np.arange(SYMBOLS, dtype=np.float32), at.shape).copy()
    for name, column in long.items():
        if len(labels) < HYPOTHESES:
            labels[name] = column[at]
    return codes[at], labels


class Model(torch.nn.Module):
    """A character model; its hidden states are inspected."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(64, 64)
        self.lstm = torch.nn.LSTM(64, UNITS, batch_first=True)
        self.head = torch.nn.Linear(UNITS, 64)

    def hidden(self, symbols: torch.Tensor) -> torch.Tensor:
        """Return the hidden states, (records, symbols, units)."""
        return self.lstm(self.embedding(symbols))[0]

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next symbol."""
        return self.head(self.hidden(symbols))


def prepared(records: int) -> tuple[Model, torch.Tensor, Labels]:
    """Return a model that was trained for 40 steps, its inputs and the hypotheses."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    symbols, labels = task(records)
    data, model = torch.from_numpy(symbols), Model()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(40):
        rows = data[(torch.arange(64) + 64 * step) % records]
        loss = torch.nn.functional.cross_entropy(model(rows)[:, :-1].flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), data, labels


# -- the contenders ----------------------------------------------------------------------------------


def forward(records: int) -> dict[str, float]:
    """Return the CPU seconds of the forward passes alone."""
    model, data, _ = prepared(records)
    with torch.inference_mode():
        model(data[:BLOCK])
        began = time.process_time()
        for start in range(0, records, BLOCK):
            model(data[start : start + BLOCK])
        return {"seconds": time.process_time() - began}


def full(records: int) -> dict[str, float]:
    """Return the CPU seconds of ``inspect`` over all records, and its peak memory above the forward pass."""
    model, data, labels = prepared(records)
    with torch.inference_mode():
        model(data[:BLOCK])
    few = {name: label[:64] for name, label in list(labels.items())[:2]}
    inspect(model, few, "correlation", data[:64], "lstm")
    before, began = _peak(), time.process_time()
    table = inspect(model, labels, "correlation", data, "lstm", batch=BLOCK)
    seconds, peak = time.process_time() - began, _peak() - before
    columns = [int(table[name].notna().sum()) for name in ("value", "low", "p", "q", "baseline")]
    return {"seconds": seconds, "megabytes": peak, "rows": len(table), "least filled": min(columns)}


def stopped(records: int) -> dict[str, float]:
    """Return the CPU seconds of ``inspect`` that stops at ``EPS``, and its error against all records."""
    model, data, labels = prepared(records)
    few = {name: label[:64] for name, label in list(labels.items())[:2]}
    inspect(model, few, "correlation", data[:64], "lstm")
    began = time.process_time()
    found = inspect(model, labels, "correlation", data, "lstm", batch=BLOCK, eps=EPS)
    seconds = time.process_time() - began
    whole = inspect(model, labels, "correlation", data, "lstm", batch=BLOCK)
    gap = (found.value - whole.value).abs().to_numpy()
    known = np.isfinite(gap)
    return {
        "seconds": seconds,
        "blocks": int(found.n.max()) // SYMBOLS // BLOCK,
        "beyond": float((gap[known] > EPS).mean()),
        "worst": float(gap[known].max()),
    }


def scipy(records: int) -> dict[str, float]:
    """Return the CPU seconds of scipy for all pairs, from some pairs, and the largest difference of r."""
    model, data, labels = prepared(records)
    with torch.inference_mode():
        states = np.concatenate([model.hidden(part).numpy() for part in data.split(BLOCK)]).reshape(-1, UNITS)
    table = np.stack([label.reshape(-1) for label in labels.values()], axis=1).astype(np.float32)
    rng, gap = np.random.default_rng(0), 0.0
    pairs = [(int(rng.integers(UNITS)), int(rng.integers(len(labels)))) for _ in range(PAIRS)]
    began = time.process_time()
    for unit, label in pairs[: PAIRS // 3]:
        stats.pearsonr(states[:, unit], table[:, label])
    naive = (time.process_time() - began) / (PAIRS // 3)
    columns = {unit: np.ascontiguousarray(states[:, unit]) for unit, _ in pairs}
    rows = {label: np.ascontiguousarray(table[:, label]) for _, label in pairs}
    began = time.process_time()
    found = [stats.pearsonr(columns[unit], rows[label]).statistic for unit, label in pairs]
    fair = (time.process_time() - began) / PAIRS
    scorer, names = Scorer("correlation"), list(labels)
    for start in range(0, len(states), BLOCK * SYMBOLS):
        part = slice(start, start + BLOCK * SYMBOLS)
        some = {names[label]: rows[label][part] for label in rows}
        scorer.update(states[part], some, np.arange(len(states))[part] // SYMBOLS)
    values = scorer.columns().value.reshape(-1, UNITS)
    for (unit, label), want in zip(pairs, found, strict=True):
        gap = max(gap, abs(float(values[list(rows).index(label), unit]) - float(want)))
    every = UNITS * len(labels)
    return {"naive": naive * every, "fair": fair * every, "largest difference": gap}


def thresholds(records: int) -> dict[str, float]:
    """Return the CPU milliseconds per pair for 20,000 rows, and how far ``iou_max`` is from a search."""
    model, data, labels = prepared(min(records, ROWS // SYMBOLS + 1))
    with torch.inference_mode():
        x = model.hidden(data).numpy().reshape(-1, UNITS)[:ROWS]
    binary = {name: label.reshape(-1)[:ROWS] for name, label in labels.items() if label.dtype == bool}
    out: dict[str, float] = {}
    for name in ("iou_max", "iou", "auroc", "mutual_information"):
        scorer = Scorer(name, sample_bytes=1 << 28)
        scorer.update(x, binary, np.arange(len(x)) // SYMBOLS)
        scorer.statistics.drawn()
        began = time.process_time()
        found = scorer.columns()
        out[name] = (time.process_time() - began) / len(found) * 1e3
        if name == "iou_max":
            out["largest difference"] = _search(scorer, found)
    return out


def logistic(records: int) -> dict[str, float]:
    """Return CPU seconds of ``linear_f1`` of all binary hypotheses, of scikit-learn, and the gap of F1.

    scikit-learn is trained on all training rows of some hypotheses and judged on all held-out rows.
    """
    model, data, labels = prepared(records)
    with torch.inference_mode():
        x = np.concatenate([model.hidden(part).numpy() for part in data.split(BLOCK)]).reshape(-1, UNITS)
    items = np.arange(len(x)) // SYMBOLS
    held = places(items, 0).held
    binary = {name: label.reshape(-1) for name, label in labels.items() if label.dtype == bool}
    binary = {name: label for name, label in binary.items() if label[held].sum() > 20}
    scorer, began = Scorer("linear_f1", sample_bytes=SAMPLE), time.process_time()
    for start in range(0, len(x), BLOCK * SYMBOLS):
        rows = slice(start, start + BLOCK * SYMBOLS)
        scorer.update(x[rows], {name: label[rows] for name, label in binary.items()}, items[rows])
    values = {one.target: one.value for one in scorer.result() if one.score == "linear_f1"}
    ours = time.process_time() - began
    z = StandardScaler().fit(x[~held]).transform(x)
    some = list(binary)[:: len(binary) // PROBES]
    gaps, began = [], time.process_time()
    for name in some:
        fitted = LogisticRegression(max_iter=100).fit(z[~held], binary[name][~held])
        f1 = f1_score(binary[name][held], fitted.predict(z[held]), average="macro")
        gaps.append(values[name] - float(f1))
    theirs = (time.process_time() - began) / len(some) * len(binary)
    error = float(np.std(gaps) / len(gaps) ** 0.5)
    found = {"gap": float(np.mean(gaps)), "error": error, "worst": float(min(gaps)), "probes": len(gaps)}
    return {"seconds": ours, "sklearn": theirs, **found}


def _search(scorer: Scorer, found: Any, count: int = 12) -> float:
    """Return the largest difference of ``iou_max`` from an exhaustive search with scikit-learn's index."""
    where, x, _, values = scorer.statistics.drawn()
    held, worst = where.held, 0.0
    for pair in np.random.default_rng(0).integers(0, len(found), count):
        unit, label = int(found.unit[pair]), scorer.statistics.targets.index(found.target[pair])
        u, h = x[:, unit], values[:, label] == 1
        if not h[~held].any():
            continue
        order = np.argsort(-u[~held], kind="stable")
        hits = np.cumsum(h[~held][order])
        index = hits / (np.arange(1, len(order) + 1) + hits[-1] - hits)
        last = np.r_[np.diff(u[~held][order]) != 0, True]
        level = u[~held][order][np.argmax(np.where(last, index, -1))]
        worst = max(worst, abs(jaccard_score(h[held], u[held] >= level) - float(found.value[pair])))
    return worst


def _peak() -> float:
    """Return the peak resident memory in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _report(found: dict[str, Any]) -> str:
    """Return the tables."""
    plain, theirs = found["forward"]["seconds"], found["scipy"]
    fair, naive = theirs["fair"] + plain, theirs["naive"] + plain
    rows = [["forward passes alone", f"{plain:.1f}", "", ""]]
    for name, seconds in (
        ("scipy, a column at a time", naive),
        ("scipy, contiguous columns", fair),
        ("inspect, all records", found["full"]["seconds"]),
        (f"stopped at {EPS}", found["stopped"]["seconds"]),
    ):
        rows.append([name, f"{seconds:.1f}", f"{fair / seconds:.1f}", f"{naive / seconds:.0f}"])
    stop, whole, best, probe = (found[part] for part in ("stopped", "full", "thresholds", "logistic"))
    goals = [
        ("all records, × contiguous scipy", fair / whole["seconds"], GOAL_FULL, False),
        ("peak memory above the forward pass, MB", whole["megabytes"], GOAL_MEGABYTES, True),
        (f"stopped at {EPS}, × contiguous scipy", fair / stop["seconds"], GOAL_STOPPED, False),
        (f"share of pairs beyond {EPS}", stop["beyond"], GOAL_BEYOND, True),
        ("iou_max, ms per pair", best["iou_max"], GOAL_IOU, True),
        ("iou_max, largest difference from a search", best["largest difference"], 0.002, True),
        ("linear_f1, × scikit-learn", probe["sklearn"] / probe["seconds"], GOAL_LOGISTIC, False),
        ("linear_f1, mean difference of F1 from scikit-learn", probe["gap"], -0.005, False),
        ("largest difference of r from scipy", theirs["largest difference"], 1e-6, True),
    ]
    table = [
        [what, f"{'≤' if most else '≥'} {goal:g}", f"{got:.3g}", "met" if (got <= goal) == most else "missed"]
        for what, got, goal, most in goals
    ]
    others = ", ".join(f"{name} {best[name]:.3f}" for name in ("iou", "auroc", "mutual_information"))
    parts = [
        "# Inspecting",
        f"{UNITS} units × {HYPOTHESES} hypotheses × {found['records']:,} records of {SYMBOLS} symbols: "
        "correlations with intervals, p, q and baseline. CPU seconds of one thread, with the forward passes; "
        f"scipy's are those of {PAIRS} pairs times the number of pairs, without intervals over records.",
        harness.table(["", "CPU s", "× faster than contiguous", "× faster than by column"], rows),
        harness.table(["goal", "", "figure", ""], table),
        f"The stopped pass read {stop['blocks']} blocks of {BLOCK} records; its largest error is "
        f"{stop['worst']:.3f}. Milliseconds per pair for {ROWS:,} rows: {others}. linear_f1 keeps "
        f"{SAMPLE >> 20} MB of sampled rows and is compared with scikit-learn's for {probe['probes']} "
        f"hypotheses: worst {probe['worst']:.3f}, standard error of the mean {probe['error']:.4f}.",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
