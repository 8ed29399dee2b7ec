"""Testing with concept activation vectors (TCAV): does a class depend on a concept in a layer?"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import InputError
from ...scores import ScoreResult
from ..alignment.padding import Padding

NAME = "tcav"
_RANDOM = 200  # random concepts, for the p-value and the baseline
_RESAMPLES = 40  # for the interval
_MOST = 4000  # most records that a vector is fitted to
_COMPONENTS = 512  # most principal components of them
_FEWEST = 10  # records with and without the concept, and of the class


def requested(scores: Any) -> tuple[Any, bool]:
    """Return the other scores that the caller named, and whether ``"tcav"`` is among them."""
    if isinstance(scores, str):
        return ([], True) if scores == NAME else (scores, False)
    if isinstance(scores, list | tuple):
        others = [score for score in scores if not (isinstance(score, str) and score == NAME)]
        return others, len(others) < len(scores)
    return scores, False


def per_record(array: np.ndarray, padding: Padding, *, total: bool) -> np.ndarray:
    """Return an output (records, units, …positions) as (records, units): a sum over positions or a mean.

    A concept is a direction of units that is added at every position, so that the derivative along it is the
    sum. Positions that are padding do not count in the mean.
    """
    axes = tuple(range(2, array.ndim))
    found = array.sum(axis=axes) if total else padding.mean(array, slice(None))
    return np.asarray(found, np.float64)


def score(
    units: np.ndarray,
    gradients: np.ndarray,
    labels: np.ndarray,
    of_class: np.ndarray,
    groups: np.ndarray | None = None,
    target: str = "",
    seed: int = 0,
) -> ScoreResult:
    """Return the TCAV score of a concept: the share of a class's records whose output grows with the concept.

    The concept activation vector is the normal of a ridge classifier of records with against records without
    the concept, whose penalty is chosen by generalized cross-validation. The output grows with the concept if
    its derivative along the vector is positive. The p-value is two-sided: the rank of the mean derivative
    among those of 200 random concepts, which are permutations of the labels over records, or over groups. The
    baseline is the mean score of these. The interval is of refits to resampled records or groups.

    Args:
        units: The units of each record, (records, units).
        gradients: The derivative of the output along each unit, (records, units).
        labels: 1 with and 0 without the concept, NaN for neither, (records,).
        of_class: Whether each record is of the class, (records,).
        groups: The group of each record, (records,); None if each is a group.
        target: The name of the concept.
        seed: The seed of random concepts.

    Raises:
        InputError: If labels are neither 0 nor 1.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 3))
        >>> found = score(x, np.tile([2.0, 0, 0], (200, 1)), (x[:, 0] > 0).astype(float), np.full(200, True))
        >>> found.value, found.p < 0.05
        (1.0, True)

    References:
        Kim, Wattenberg, Gilmer, Cai, Wexler, Viegas and Sayres (2018), "Interpretability Beyond Feature
        Attribution: Quantitative Testing with Concept Activation Vectors (TCAV)", ICML. The paper tests
        repeated fits of one concept by a t-test; these share its records, so that random concepts would often
        pass. Ranks among permutations do not depend on the number of fits.
    """
    known = np.flatnonzero(np.isfinite(labels))
    if not np.isin(labels[known], (0, 1)).all():
        raise InputError(f"tcav needs labels 0 and 1 for the hypothesis {target!r}, got others.")
    counts = [int((labels[known] == which).sum()) for which in (0, 1)]
    here = np.asarray(gradients[of_class])
    if min(*counts, len(here)) < _FEWEST:
        note = f"needs {_FEWEST} records with, without the concept and of the class"
        return ScoreResult(NAME, np.nan, target, n=len(here), note=note)
    random = np.random.default_rng(seed)
    if len(known) > _MOST:
        known = np.sort(random.choice(known, _MOST, replace=False))
    members = np.arange(len(known)) if groups is None else np.unique(groups[known], return_inverse=True)[1]
    x, y = units[known] - units[known].mean(0), labels[known]
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    kept = np.flatnonzero(s > 1e-6 * max(s[0], 1e-30))[:_COMPONENTS]
    if not len(kept):
        return ScoreResult(NAME, np.nan, target, n=len(here), note="the layer is constant")
    u, s, vt = u[:, kept], s[kept], vt[kept]
    penalty, explained = _penalty(u, s, y)
    here = here @ vt.T  # derivatives along the components
    vector = _vector(u, s, y[:, None], penalty)
    along = (here @ vector)[:, 0]
    notes = [f"{len(here)} records of the class"]
    if explained <= 0:
        notes.append("the concept cannot be read from the layer")
    permuted = _permuted(y, members, random)
    p = baseline = np.nan
    if permuted is None:
        notes.append("no p: labels differ within groups")
    else:
        others = here @ _vector(u, s, permuted, penalty)
        p = float((1 + (np.abs(others.mean(0)) >= abs(along.mean())).sum()) / (1 + permuted.shape[1]))
        baseline = float((others > 0).mean())
    low, high = _interval(u * s, y, members, here, penalty, random)
    value = float((along > 0).mean())
    return ScoreResult(
        NAME, value, target, low=low, high=high, baseline=baseline, n=len(here), note=", ".join(notes), p=p
    )


def _vector(u: np.ndarray, s: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    """Return unit normals of ridge classifiers in the components, (components, labels)."""
    found = (s / (s**2 + penalty))[:, None] * (u.T @ (y - y.mean(0)))
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=0), 1e-30))


def _penalty(u: np.ndarray, s: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return the ridge penalty by generalized cross-validation, and the share of variance it explains."""
    centered, n = y - y.mean(), len(y)
    along, total = u.T @ centered, float(np.square(centered).sum())
    best, least = 0.0, np.inf
    for penalty in s[0] ** 2 * np.logspace(-6, 2, 17):
        shrink = s**2 / (s**2 + penalty)
        free = n - 1 - shrink.sum()
        if free <= 0:
            continue
        error = (total - ((2 * shrink - shrink**2) * along**2).sum()) / free**2
        if error < least:
            best, least = float(penalty), float(error)
    return best, 1 - least * (n - 1) ** 2 / total


def _permuted(y: np.ndarray, members: np.ndarray, random: np.random.Generator) -> np.ndarray | None:
    """Return labels of random concepts, (records, concepts); None if labels differ within a group."""
    count = int(members.max()) + 1
    first = np.zeros(count)
    first[members] = y
    if (first[members] != y).any():
        return None
    return np.stack([random.permutation(first)[members] for _ in range(_RANDOM)], axis=1)


def _interval(
    z: np.ndarray,
    y: np.ndarray,
    members: np.ndarray,
    gradients: np.ndarray,
    penalty: float,
    random: np.random.Generator,
) -> tuple[float, float]:
    """Return the 2.5 and 97.5 % quantiles of the score over resampled groups of records."""
    values = []
    count = int(members.max()) + 1
    for _ in range(_RESAMPLES):
        weights = np.bincount(random.integers(0, count, count), minlength=count)[members].astype(float)
        total = weights.sum()
        if not total or len(np.unique(y[weights > 0])) < 2:
            continue
        a, b = z - weights @ z / total, y - weights @ y / total
        products = (a * weights[:, None]).T @ a + penalty * np.eye(z.shape[1])
        vector = np.linalg.solve(products, (a * weights[:, None]).T @ b)
        chosen = gradients[random.integers(0, len(gradients), len(gradients))]
        values.append(float((chosen @ vector > 0).mean()))
    low, high = np.quantile(values, (0.025, 0.975)) if values else (np.nan, np.nan)
    return float(low), float(high)
