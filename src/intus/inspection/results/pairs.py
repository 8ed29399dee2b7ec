"""Scores of two layers, or of a layer and a hypothesis whose labels are vectors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ...scores import ScoreColumns, Scorer, ScoreResult
from ...scores.comparisons.layers import relations
from ..alignment.padding import PADDED
from ..plan import Plan
from ..running.model_pass import ModelPass
from .part import joined

_ALONE = "a single layer, with none to compare it with"


def pairs_of_layers(model_pass: ModelPass, plan: Plan) -> tuple[np.ndarray, ScoreColumns]:
    """Return the rows of scores of two layers, with the address of the first of each.

    If all scores read whole layers, the labels of a hypothesis are taken as a vector for each record, such as
    a brain recording, and each layer is compared with them as well.

    Args:
        model_pass: A finished pass.
        plan: Its plan.
    """
    asked = [score for score in plan.scores if score.per == "layers"]
    scorers: dict[str, Scorer] = {}
    for feed in model_pass.feeds if asked else ():
        if feed.layer_scorer is not None:
            scorers[feed.shown] = feed.layer_scorer
    padded = any(
        feed.lengths.note(feed.group.address, whole=True) for feed in model_pass.feeds if feed.layer_scorer
    )
    vectors, texts = _vectors(plan) if asked else ({}, [])
    out: list[tuple[str, ScoreResult]] = []
    for score in asked:
        out += relations(scorers, score, against=vectors)
        for address in scorers:
            for name in texts:
                note = "the labels are not numbers"
                out.append((address, ScoreResult(score.name, float("nan"), name, note=note)))
            if len(scorers) < 2 and not vectors and not texts:
                out.append((address, ScoreResult(score.name, float("nan"), note=_ALONE)))
    addresses = np.array([*(address for address, _ in out), ""], dtype=object)[:-1]
    columns = ScoreColumns.of([result for _, result in out])
    return addresses, replace(columns, note=joined(columns.note, PADDED)) if padded else columns


def _vectors(plan: Plan) -> tuple[dict[str, Scorer], list[str]]:
    """Return scorers of hypotheses as vectors, by name, and the names of those that are not numbers."""
    if not all(score.reads_layers for score in plan.scores):
        return {}, []
    out: dict[str, Scorer] = {}
    texts: dict[str, None] = {}
    for numbers in plan.order() if plan.labels.hypotheses else ():
        labels = plan.labels.of(numbers, partial(plan.records.block, numbers))
        groups = None if plan.observed.groups is None else plan.observed.groups[numbers]
        for name, column in labels.items():
            if column.dtype.kind not in "fiub":
                texts[name] = None
                continue
            if name not in out:
                out[name] = Scorer([score for score in plan.scores if score.per == "layers"], seed=plan.seed)
            out[name].update(column.reshape(len(column), -1), items=numbers, groups=groups)
    return out, list(texts)
