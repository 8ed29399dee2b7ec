"""Paired tests between two layers, or two checkpoints: is one above the other?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import InputError, did_you_mean
from ...scores import Confusion, Score, ScoreColumns, Scorer, ScoreResult
from ...scores.judging import ConfusionCounts
from ..models import Checkpoint
from ..running.model_pass import ModelPass

#: The predictions of each classifier on held-out items, by address, score and target.
Predictions = Mapping[tuple[str, str, str], ConfusionCounts]


class Against(NamedTuple):
    """What every layer or checkpoint is compared with.

    Attributes:
        name: What the caller wrote.
        checkpoint: The number of the checkpoint; None if it is a layer of the same model.
    """

    name: str
    checkpoint: int | None

    @classmethod
    def of(cls, given: Any, checkpoints: Sequence[Checkpoint], scores: Sequence[Score]) -> Against | None:
        """Read what the caller of ``inspect`` passed.

        Args:
            given: The name or epoch of a checkpoint, or the address of a layer; None for no comparison.
            checkpoints: The checkpoints.
            scores: The scores.

        Raises:
            InputError: If there is no such epoch, or no score is one of a classifier.
        """
        if given is None:
            return None
        if not any(score.judged is not None for score in scores):
            raise InputError(
                f"against={given!r} compares the predictions of classifiers, such as 'linear_f1', but "
                f"scores={[score.name for score in scores]} has none."
            )
        numbered = isinstance(given, int | float) and not isinstance(given, bool)
        for number, one in enumerate(checkpoints):
            if (one.epoch == given) if numbered else (one.name == given):
                return cls(str(one), number)
        if numbered:
            known = [f"{one.epoch:g}" for one in checkpoints if one.epoch == one.epoch]
            raise InputError(
                f"against={given!r} is no epoch of the models. {did_you_mean(str(given), known)}"
            )
        return cls(str(given), None)


def predictions(model_pass: ModelPass) -> Predictions:
    """Return the predictions of all classifiers of a pass."""
    found = {key: scorer.predictions(*key[1:]) for key, scorer in _classifiers(model_pass)}
    return {key: counts for key, counts in found.items() if counts is not None}


def confusions(model_pass: ModelPass) -> dict[tuple[str, str, str], Confusion]:
    """Return which classes each classifier of a pass takes for which, by address, score and target."""
    found = {key: scorer.confusion(*key[1:]) for key, scorer in _classifiers(model_pass)}
    return {key: one for key, one in found.items() if one is not None}


def _classifiers(model_pass: ModelPass) -> Iterator[tuple[tuple[str, str, str], Scorer]]:
    """Yield the address, score and target of each classifier, and its scorer."""
    for feed in model_pass.feeds:
        for scorer in feed.scorers.values():
            judged = [score.name for score in scorer.scores if score.judged is not None]
            for name, target in itertools.product(judged, scorer.statistics.targets):
                yield (feed.group.shown, name, target), scorer


def gaps(
    own: Predictions, reference: Predictions, against: Against, scores: Sequence[Score]
) -> tuple[np.ndarray, ScoreColumns]:
    """Return the differences to the reference as rows, and the address of each.

    The score is called ``linear_f1 above NAME``, its baseline is 0, and p is that of no difference.

    Args:
        own: The predictions of a model.
        reference: Those that it is compared with; if that is a layer, those of the same model.
        against: What it is.
        scores: The scores.

    Raises:
        InputError: If no layer has that address.
    """
    layer = against.name if against.checkpoint is None else None
    addresses = sorted({address for address, _, _ in reference})
    if layer is not None and layer not in addresses:
        raise InputError(
            f"against={layer!r} is no layer with a classifier here, nor the name of a model. "
            + did_you_mean(layer, addresses)
        )
    measures = {score.name: score.measure for score in scores}
    found, rows = [], []
    for (address, score, target), counts in own.items():
        other = reference.get((layer or address, score, target))
        if other is None or other is counts:
            continue
        gap = counts.above(other, measures[score])
        name = f"{score} above {against.name}"
        found.append(address)
        rows.append(ScoreResult(name, gap.value, target, -1, gap.low, gap.high, 0.0, gap.n, gap.note, gap.p))
    return np.array(found, dtype=object), ScoreColumns.of(rows)
