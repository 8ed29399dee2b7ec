"""Generates the documentation of the scores from their descriptions in the registry."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from ...core.score_info import ScoreInfo
from ..base import Score
from ..comparisons.similarity import RELATIONS
from ..registry import get, infos, scores

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
"""


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
        "Scores of a whole layer that need no target. A parameter is a single row: it has the scores of "
        "entries, from `mean` to `nonfinite`.",
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
    return "\n\n".join(map(_wrapped, parts)) + "\n"


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
        return "" if score.default else "by `Scorer` and `inspect`, if named; not by servers: it is expensive"
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
