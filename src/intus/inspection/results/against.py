"""Paired tests between two layers, or two checkpoints: is one above the other?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core import results as core
from ...core.errors import InputError, did_you_mean
from ...core.notes import joined
from ...scores import Confusion, Gap, Score, ScoreColumns, Scorer, ScoreResult, over_splits
from ...scores.comparisons.paired import Estimates, correlations, units_above
from ...scores.probes.judging import ConfusionCounts
from ...scores.repeated import RepeatedScorer
from ...scores.statistics.pairs import N
from ..models import Checkpoint
from ..running.model_pass import ModelPass

_OF_UNITS = "correlation"  # the score of units that two checkpoints are compared by
#: The predictions of each classifier on held-out items, one for each split, by address, score and target.
Predictions = Mapping[tuple[str, str, str], Sequence[ConfusionCounts]]


class Against(NamedTuple):
    """The layer or checkpoint that every other is compared with.

    Attributes:
        name: What the caller wrote.
        checkpoint: The number of the checkpoint; None if it is a layer of the same model.
        measures: What each classifier's score is of its predictions, "f1" or "accuracy".
    """

    name: str
    checkpoint: int | None
    measures: Mapping[str, str]

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
        measures = {score.name: score.measure for score in scores}
        numbered = isinstance(given, int | float) and not isinstance(given, bool)
        judged = any(score.judged is not None for score in scores)
        names = [score.name for score in scores]
        for number, one in enumerate(checkpoints):
            if (one.epoch == given) if numbered else (one.name == given):
                if not judged and _OF_UNITS not in names:
                    raise InputError(
                        f"against={given!r} compares classifiers, such as 'linear_f1', and correlations of "
                        f"units, but scores={names} has none."
                    )
                return cls(str(one), number, measures)
        if numbered:
            known = [f"{one.epoch:g}" for one in checkpoints if one.epoch == one.epoch]
            raise InputError(
                f"against={given!r} is no epoch of the models. {did_you_mean(str(given), known)}"
            )
        if not judged:
            raise InputError(
                f"against={given!r} compares layers by their classifiers, such as 'linear_f1', but "
                f"scores={names} has none."
            )
        return cls(str(given), None, measures)


class Units(NamedTuple):
    """The correlations of a layer's units, to compare them with those of another checkpoint.

    Attributes:
        numbers: The numbers of the units in the layer, (units,).
        targets: The hypotheses.
        n: The number of rows, (units, hypotheses).
        estimates: The correlations.
    """

    numbers: np.ndarray
    targets: tuple[str, ...]
    n: np.ndarray
    estimates: Estimates


def units(model_pass: ModelPass) -> dict[Any, Units]:
    """Return the correlations of all units of a pass, by address and shape of labels."""
    found = {}
    for feed in model_pass.feeds:
        for key, scorer in feed.scorers.items():
            if any(score.name == _OF_UNITS for score in scorer.scores):
                statistics = scorer.statistics
                estimates = correlations(statistics)
                n = np.broadcast_to(statistics.pairs.total()[N], estimates.value.shape)
                found[feed.shown, key] = Units(feed.picked, statistics.targets, n, estimates)
    return found


def unit_gaps(
    own: Mapping[Any, Units], reference: Mapping[Any, Units], against: Against
) -> tuple[np.ndarray, ScoreColumns]:
    """Return how much more each unit correlates than the unit of the same number in the reference.

    Args:
        own: The units of a model.
        reference: Those of another checkpoint.
        against: Which it is.
    """
    addresses, parts = [], []
    for key, mine in own.items():
        theirs = reference.get(key)
        if theirs is None or theirs is mine or mine.targets != theirs.targets:
            continue
        if not np.array_equal(mine.numbers, theirs.numbers):
            continue
        found = units_above(mine.estimates, theirs.estimates)
        shape = found.value.shape
        columns = {name: part.T.ravel() for name, part in found._asdict().items()}
        count = found.value.size
        parts.append(
            ScoreColumns(
                score=np.full(count, f"{_OF_UNITS} above {against.name}", dtype=object),
                target=np.repeat(np.array([*mine.targets, ""], dtype=object)[:-1], shape[0]),
                unit=np.tile(mine.numbers, shape[1]),
                baseline=np.zeros(count),
                n=np.minimum(mine.n, theirs.n).T.ravel().astype(np.int64),
                note=np.full(count, "", dtype=object),
                **columns,
            )
        )
        addresses += [key[0].partition("[")[0]] * count
    return np.array(addresses, dtype=object), ScoreColumns.concat(parts)


def predictions(model_pass: ModelPass) -> Predictions:
    """Return the predictions of all classifiers of a pass."""
    found = {}
    for key, scorer in _classifiers(model_pass):
        splits = [scorer, *scorer.others] if isinstance(scorer, RepeatedScorer) else [scorer]
        counts = [split.predictions(*key[1:]) for split in splits]
        known = [one for one in counts if one is not None]
        if len(known) == len(splits):
            found[key] = known
    return found


def stored_predictions(model_pass: ModelPass, run: str, model: str, epoch: float) -> list[core.Predictions]:
    """Return the predictions of a pass for the database, whose scores of layers have the kind ``inspect``."""
    facts = {"run": run, "model": model, "epoch": epoch, "step": -1, "kind": "inspect"}
    return [
        each
        for feed in model_pass.feeds
        for scorer in feed.scorers.values()
        for each in scorer.predicted(facts | {"address": feed.shown})
    ]


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
                yield (feed.shown, name, target), scorer


def gaps(own: Predictions, reference: Predictions, against: Against) -> tuple[np.ndarray, ScoreColumns]:
    """Return the differences to the reference as rows, and the address of each.

    The score is called ``linear_f1 above NAME``, its baseline is 0, and p is that of no difference.

    Args:
        own: The predictions of a model.
        reference: Those that it is compared with; if that is a layer, those of the same model.
        against: What it is.

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
    found, rows = [], []
    for (address, score, target), counts in own.items():
        other = reference.get((layer or address, score, target))
        if other is None or other is counts:
            continue
        gap = _over_splits(
            [one.above(two, against.measures[score]) for one, two in zip(counts, other, strict=True)]
        )
        name = f"{score} above {against.name}"
        found.append(address)
        rows.append(ScoreResult(name, gap.value, target, -1, gap.low, gap.high, 0.0, gap.n, gap.note, gap.p))
    return np.array(found, dtype=object), ScoreColumns.of(rows)


def _over_splits(gaps: Sequence[Gap]) -> Gap:
    """Return the mean of the differences on several splits, with the corrected resampled t-test."""
    if len(gaps) == 1:
        return gaps[0]
    mean = over_splits([gap.value for gap in gaps])
    n = round(float(np.mean([gap.n for gap in gaps])))
    return Gap(*mean, n, joined(gaps[0].note, f"mean of {len(gaps)} splits"))
