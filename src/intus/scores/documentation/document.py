"""Generates the documentation of the scores from their descriptions in the registry."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from ...core.score_info import ScoreInfo
from ..base import Score
from ..comparisons.similarity import RELATIONS
from ..registry import get, infos, scores
from .calibrate import stored

_WIDTH = 130
_KEEP: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
_HEAD = """\
# Scores

Every score that is registered in intus. `make scores` generates this page from the docstrings and arguments
in `src/intus/scores`, and a test checks that it is up to date; `python -m intus.scores` prints it with the
scores of installed packages. How to add one is in [how it works](how-it-works.md#a-score-of-your-own).

A result has a value, where the score has them an interval and a baseline, and the number of rows `n`. The
interval covers only the source of error that is named below. Compare a value with its baseline, not with
zero. If there is no value, the note gives the reason.

Intervals and p-values of units come from the spread between 16 groups of items. If a hypothesis or a unit
varies in a few items only, its variance is in few groups. With fewer than 6 in effect, (Σ S)² / Σ S² for the
sums S of squared deviations in each group, there is no interval and no p-value; the note gives the number.
The p-values of `correlation` and `mean_difference` are at least those from the variance of r over
permutations of rows, 1 / (n - 1): a unit and a hypothesis that are both rare may not meet at all by
chance, and their interval may then exclude 0 although p does not reject it.
"""


_CALIBRATION = (
    "What was measured of the scores that have an interval, on data of which the truth is known "
    "(`make calibrate`). Without signal, at most 4 % of the intervals should be above the baseline, "
    "and about 5 % of the p-values below .05. With signal, 92 to 98 % of the intervals should contain"
    " the true value: that of the trained predictor, or of these clusters, for very many further "
    "rows, and that of very many rows for scores that train nothing. The table gives the least and "
    "the largest share of several designs: labels of rows or shared by the rows of an item, frequent "
    "and rare classes (3 % of 1,500 rows). Shares out of these bounds by more than three standard "
    "errors are in bold type."
)
#: The bounds of each measured share.
_PLANNED = {"above": (0.0, 0.04), "p": (0.0, 0.05), "coverage": (0.92, 0.98)}


def _compares(info: ScoreInfo) -> bool:
    """Return whether a score compares two layers or epochs."""
    score = _score_of(info)
    return info in RELATIONS if score is None else score.per == "layers"


_GROUPS: tuple[tuple[str, str, Callable[[ScoreInfo], bool]], ...] = (
    (
        "What layers know of a target",
        "Scores of a whole layer, one for each target: how well the labels can be predicted from the layer's "
        "behaviours. A quarter of the items, chosen by a hash of their ids, is held out.",
        lambda info: info.level == "layer" and info.needs_target and not _compares(info),
    ),
    (
        "What activations are like",
        "Scores of a whole layer that need no target. A parameter is a single row, as it was when the epoch "
        "ended. Of its gradients and updates each recorded step of an optimizer in the epoch is a row: "
        "`norm` is the mean over steps, `min` the smallest entry of any, `dead` counts entries that are 0 "
        "in all, and `n` is the number of steps. [When each is read](probing.md#parameters-and-their-steps)"
        " has the details, and what differs without an optimizer of PyTorch, and in other frameworks. So it"
        " is with an output that is one number, as a loss. All of these have "
        "the scores of entries, from `mean` to `nonfinite`.",
        lambda info: info.level == "layer" and not info.needs_target and not _compares(info),
    ),
    (
        "How two layers or epochs compare",
        "Scores of two layers, of a layer and vectors of another origin, of a layer in two epochs, or of a "
        "parameter and its updates. Of two layers, `address` is the first and `target` the second.",
        _compares,
    ),
    (
        "Which units respond to an idea",
        "Scores of single units, one for each hypothesis; `inspect` computes them.",
        lambda info: info.level == "unit",
    ),
)


def document() -> str:
    """Return the documentation of all known scores, as Markdown."""
    parts = [_HEAD]
    for title, text, belongs in _GROUPS:
        parts += [f"## {title}", text]
        for info in infos().values():
            if belongs(info):
                parts += [f"### `{info.name}`", *_section(info)]
    return "\n\n".join([*map(_wrapped, parts), *_calibration()]) + "\n"


def _calibration() -> Iterator[str]:
    """Yield the section that shows what was measured of baselines and intervals."""
    yield "## Calibration"
    yield _wrapped(_CALIBRATION)
    rows = [
        "| score | above the baseline | p < .05 | intervals that contain the truth |",
        "|---|---|---|---|",
    ]
    for name, found in ((name, found) for name in infos() if (found := stored().get(name))):
        cells = [_range_of(found.get(what, []), *bounds) for what, bounds in _PLANNED.items()]
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    yield "\n".join(rows)
    missing = [
        f"`{name}`"
        for name, info in infos().items()
        if info.interval and info not in RELATIONS and name not in stored()
    ]
    if missing:
        yield _wrapped(f"Not measured: {', '.join(missing)}.")


def _range_of(shares: list[list[float]], low: float, high: float) -> str:
    """Return the least and the largest share of the designs in %, those out of bounds in bold type.

    A share is out of bounds if it is so by more than three standard errors.
    """
    texts = []
    for share, n in sorted(shares):
        planned = max(low, min(share, high))
        error = 3 * math.sqrt(planned * (1 - planned) / n)
        text = f"{100 * share:.1f} %"
        texts.append(f"**{text}**" if not low - error <= share <= high + error else text)
    return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))


def _wrapped(part: str) -> str:
    """Wrap each line of a paragraph or a list."""
    lines = part.strip().split("\n")
    hanging = [
        textwrap.wrap(line, _WIDTH, subsequent_indent="  " * line.startswith("- "), **_KEEP) for line in lines
    ]
    return "\n".join(line for wrapped in hanging for line in wrapped or [""])


def _section(info: ScoreInfo) -> Iterator[str]:
    score = _score_of(info)
    yield f"**{info.label}.** {info.about}"
    if score is not None:
        yield from _further(score.compute)
    facts = {
        "Formula": info.formula,
        "Range": _range(info),
        "Baseline": info.baseline or _baseline_of(info),
        "Interval": info.interval or "none",
        "Needs": _needs(info),
        "Source": info.source,
        "Computed": _computed(info, score),
    }
    yield "\n".join(f"- {name}: {text}" for name, text in facts.items() if text)


def _computed(info: ScoreInfo, score: Score | None) -> str:
    """Return where the score is computed, unless it is wherever scores are."""
    if score is not None and score.per == "layers":
        return "by `inspect`, after the pass over the data"
    if score is not None:
        by_servers = f", and by servers with `--scores default,{score.name}`" * (score.per != "unit")
        return "" if score.default else f"by `Scorer` and `inspect`, if named{by_servers}: it is expensive"
    if info in RELATIONS:
        return "by servers, of two data points"
    return "together with " + next(f"`{one.name}`" for one in scores() if info in one.beside)


def _score_of(info: ScoreInfo) -> Score | None:
    """Return the score of that name; None for a further row of a score, or a score of two data points."""
    try:
        return get(info.name)
    except ValueError:
        return None


def _further(function: Callable[..., object]) -> Iterator[str]:
    """Yield the paragraphs of a docstring after the first."""
    for paragraph in (inspect.getdoc(function) or "").split("\n\n")[1:]:
        yield " ".join(paragraph.split()).replace("``", "`")


def _baseline_of(info: ScoreInfo) -> str:
    return f"none; it is one of `{info.baseline_of}`" if info.baseline_of else "none"


def _range(info: ScoreInfo) -> str:
    low = "(-∞" if info.low is None else f"[{info.low:g}"
    high = "∞)" if info.high is None else f"{info.high:g}]"
    return "any number" if info.low is None and info.high is None else f"{low}, {high}"


def _needs(info: ScoreInfo) -> str:
    named = {("layer", True): "a target: ", ("unit", True): "a hypothesis: "}.get(
        (info.level, info.needs_target), ""
    )
    return (named + info.requires).removesuffix(": ")
