"""Linear classifiers: the discriminant, from moments, and a logistic regression shrunk towards it.

The discriminant is exact from streamed moments, so it uses all rows. It assumes that classes are clouds of
one shape; where they are not (words with several senses), it loses up to .16 of macro F1 to logistic
regression. Logistic regression needs rows, of which only some are kept. It is therefore shrunk towards the
discriminant of all rows, and corrects it where the kept rows say so.

The penalty of the discriminant is chosen for each layer and target by generalised cross-validation (Golub,
Heath and Wahba 1979), which needs only moments. No fixed penalty works: it must be high if features are
noise, and low if most of a layer's variance lies in a few directions, as in trained networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..statistics.merged import MergedLogistic
from ..statistics.moments import Sums
from ..statistics.ridge import Factor, penalty

KEPT = 8192  #: most rows that a logistic regression is fitted on, the same number of each class if possible
PENALTY = 3.0  #: its L2 penalty on standardised features, scikit-learn's 1 / C
STEPS = 20  #: of L-BFGS; fewer with many classes, whose steps cost more
_MEMORY = 10  # pairs that L-BFGS remembers
_MANY, _FEW_STEPS = 50, 8
MOST_CLASSES = 100  #: with more classes the discriminant is used as it is


class LinearClassifier(NamedTuple):
    """``coef`` (features, classes) and ``intercept`` (classes,), for rows minus the moments' shift."""

    coef: np.ndarray
    intercept: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the class of each row of (rows, features)."""
        return np.asarray(np.argmax(x @ self.coef + self.intercept, axis=1))


def discriminate(factor: Factor, sums: Sums, alpha: float | None = None) -> LinearClassifier:
    """Return the linear discriminant of these class sums; a class without rows is never predicted.

    ``alpha`` is added to the variances within classes, relative to the covariance's scale (Friedman 1989).
    That is scikit-learn's LinearDiscriminantAnalysis("lsqr", shrinkage=alpha / (alpha + v)) of standardised
    rows, with v their mean variance within classes. By default generalised cross-validation chooses it. The
    covariance within classes is that of all rows minus that of the means, W Wᵀ, so Woodbury's identity solves
    it.
    """
    turned = _turned(factor, sums)
    alpha = _chosen(factor, sums, turned) if alpha is None else alpha
    root = np.sqrt(np.maximum(sums.counts, 1) / factor.n)
    turned = turned / (2 * factor.n * root)  # Qᵀ W: the classes' means (features, classes) times root
    coef = factor.n * factor.solve(turned, alpha * factor.n)
    gap = np.eye(len(root)) - turned.T @ coef
    level = max(float(factor.values.sum()) / factor.n - float((turned**2).sum()), 1e-12)
    level /= len(factor.scale)
    coef = (level + alpha) / level * np.linalg.solve(gap, coef.T).T / root
    with np.errstate(divide="ignore"):
        prior = np.log(sums.counts / sums.counts.sum())
    intercept = prior - (turned / root * coef).sum(axis=0) / 2
    coef = factor.back(coef) / factor.scale[:, None]
    return LinearClassifier(coef, intercept - factor.mean @ coef)


def penalty_of(factor: Factor, sums: Sums) -> float:
    """Return the penalty per row that generalised cross-validation chooses for these classes."""
    return _chosen(factor, sums, _turned(factor, sums))


def _chosen(factor: Factor, sums: Sums, turned: np.ndarray) -> float:
    share = sums.counts / factor.n
    return penalty(factor, turned, float(4 * factor.n * (share * (1 - share)).sum()))


def _turned(factor: Factor, sums: Sums) -> np.ndarray:
    """Return Qᵀ Σ z·y (features, classes), of standardised features and ±1 codes of the classes."""
    centred = sums.totals - sums.counts[:, None] * factor.mean
    return factor.turn(2 * centred.T / factor.scale[:, None])


def balanced(codes: np.ndarray, classes: int, most: int = KEPT) -> np.ndarray:
    """Return the numbers of at most ``most`` rows, with as even a number of each class as there is.

    Args:
        codes: The class of each row, in random order.
        classes: The number of classes.
        most: The largest number of rows.

    Example:
        >>> balanced(np.array([0, 0, 0, 1, 0, 0]), 2, most=4)
        array([0, 1, 2, 3])
    """
    counts = np.bincount(codes, minlength=classes)
    quota, left, remaining = np.zeros(classes, np.int64), most, int((counts > 0).sum())
    for c in np.argsort(counts, kind="stable"):
        if counts[c]:
            quota[c] = min(counts[c], left // remaining)
            left, remaining = left - quota[c], remaining - 1
    order = np.argsort(codes, kind="stable")
    first = np.cumsum(counts) - counts
    rank = np.empty(len(codes), np.int64)
    rank[order] = np.arange(len(codes)) - first[codes[order]]
    return np.flatnonzero(rank < quota[codes])


def logistic(
    factor: Factor, sums: Sums, x: np.ndarray, codes: np.ndarray, start: LinearClassifier | None = None
) -> LinearClassifier:
    """Return a multinomial logistic regression on kept rows, shrunk towards the discriminant of all rows.

    It minimizes the log loss, weighted so that the classes have their frequencies in all rows, plus
    ``PENALTY / 2`` times the squared distance of the coefficients of standardised features to those of the
    discriminant. A few steps of L-BFGS (Nocedal 1980) do, because it begins at the discriminant and is
    preconditioned by the scatter of all rows, which ``factor`` decomposes.

    Args:
        factor: The decomposition of all training rows.
        sums: Their class sums.
        x: Kept training rows minus the moments' shift, shape (rows, features). If they are all, they have the
            order in which ``factor`` got them.
        codes: Their classes, shape (rows,).
        start: The discriminant of these class sums, if it is known.

    Returns:
        The classifier. A class without training rows is never predicted.
    """
    start = discriminate(factor, sums) if start is None else start
    classes, n = len(sums.counts), float(sums.counts.sum())
    if classes > MOST_CLASSES:
        return start
    kept = np.bincount(codes, minlength=classes)
    coef = start.coef * factor.scale[:, None]
    z, few = (x - factor.mean) / factor.scale, False
    if factor.turned is not None and len(factor.turned) == len(x):  # few rows; their dimensions suffice
        z, coef, few = factor.turned, factor.turn(coef), True
    weights = (sums.counts / np.maximum(kept, 1))[codes]
    problem = _LogLoss(factor, z, codes, weights, kept > 0, turned=few)
    share = sums.counts / n
    curvature = 0.25 * max(float((4 * share * (1 - share)).mean()), 1e-3)
    bias = np.where(np.isfinite(start.intercept), start.intercept + factor.mean @ start.coef, 0.0)
    coef, bias = problem.minimize(coef, bias, curvature, STEPS if classes < _MANY else _FEW_STEPS)
    coef = (factor.back(coef) if few else coef) / factor.scale[:, None]
    usable = (sums.counts > 0) & (kept > 0)
    return LinearClassifier(coef, np.where(usable, bias - factor.mean @ coef, -np.inf))


def logistics(factor: Factor, sums: Sequence[Sums], z: np.ndarray, codes: np.ndarray) -> LinearClassifier:
    """Return ``logistic`` of many targets of two classes that label the same rows, in one optimization.

    Where a column of the classifier is positive, the second class of that target is predicted.

    Args:
        factor: The decomposition of all training rows.
        sums: The class sums of each target; both classes have rows.
        z: Kept training rows, standardized, shape (rows, features), float32.
        codes: The classes of each target, shape (rows, targets); each has rows of both.
    """
    starts = [discriminate(factor, one) for one in sums]
    coef = np.stack([one.coef[:, 1] - one.coef[:, 0] for one in starts], axis=1)
    bias = np.array([one.intercept[1] - one.intercept[0] for one in starts]) + factor.mean @ coef
    start = np.concatenate([coef * factor.scale[:, None], bias[None]])
    counts = np.array([one.counts for one in sums]).T

    def fitted(rows: int, begin: np.ndarray, steps: int) -> np.ndarray:
        """Fit to the first rows the targets that have both classes among them."""
        truth, out = codes[:rows] == 1, begin.copy()
        kept = np.stack([(~truth).sum(axis=0), truth.sum(axis=0)])
        both = kept.min(axis=0) > 0
        weights = counts[:, both] / kept[:, both]
        problem = MergedLogistic(factor, z[:rows], truth[:, both], weights, PENALTY / 2)
        out[:, both] = problem.minimize(begin[:, both], steps, start[:-1, both])
        return out

    if len(z) > KEPT:  # a quarter of the rows leads most of the way
        found = fitted(len(z), fitted(len(z) // 4, start, STEPS), STEPS // 2)
    else:
        found = fitted(len(z), start, STEPS)
    coef = found[:-1] / factor.scale[:, None]
    return LinearClassifier(coef, found[-1] - factor.mean @ coef)


class _LogLoss:
    """The penalized log loss of one logistic regression on standardised rows.

    Args:
        factor: The decomposition of all training rows.
        z: Standardised rows, shape (rows, features).
        codes: Their classes.
        weights: Their weights.
        possible: The classes that are ever predicted, shape (classes,).
        turned: Whether the rows were turned by ``factor``, into its dimensions.
    """

    def __init__(
        self,
        factor: Factor,
        z: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        possible: np.ndarray,
        *,
        turned: bool,
    ) -> None:
        self.factor, self.z, self.weights, self.turned = factor, z, weights, turned
        self.mask = np.where(possible, 0.0, -np.inf)
        self.truth = (np.arange(len(codes)), codes)

    def _loss(self, coef: np.ndarray, bias: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the loss and its gradients by the coefficients and by the biases."""
        logits = self.z @ coef + (bias + self.mask)
        logits -= logits.max(axis=1, keepdims=True)
        likely = np.exp(logits)
        total = likely.sum(axis=1, keepdims=True)
        loss = float(self.weights @ (np.log(total[:, 0]) - logits[self.truth]))
        likely /= total
        likely[self.truth] -= 1
        likely *= self.weights[:, None]
        away = coef - self.centre
        return (
            loss + PENALTY / 2 * float((away**2).sum()),
            self.z.T @ likely + PENALTY * away,
            likely.sum(axis=0),
        )

    def _preconditioned(
        self, coef: np.ndarray, bias: np.ndarray, curvature: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the product of an approximate inverse of the Hessian with a gradient.

        It is that of the scatter of all rows.
        """
        coef = coef if self.turned else self.factor.turn(coef)
        coef = self.factor.solve(coef, PENALTY / curvature) / curvature
        coef = coef if self.turned else self.factor.back(coef)
        return coef, bias / (curvature * self.weights.sum())

    def minimize(
        self, coef: np.ndarray, bias: np.ndarray, curvature: float, steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (features, classes) and biases (classes,) after some steps of L-BFGS.

        Args:
            coef: The coefficients to begin with, towards which the result is shrunk.
            bias: The biases to begin with.
            curvature: The second derivative of the loss of a row, roughly, which the preconditioner assumes.
            steps: The number of steps.
        """
        self.centre = coef
        size = coef.size

        def split(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return v[:size].reshape(coef.shape), v[size:]

        def joined(*parts: np.ndarray) -> np.ndarray:
            return np.concatenate([part.ravel() for part in parts])

        at = joined(coef, bias)
        loss, *gradients = self._loss(*split(at))
        gradient = joined(*gradients)
        pairs: list[tuple[np.ndarray, np.ndarray, float]] = []
        for _ in range(steps):
            direction, scales = -gradient, []
            for moved, bent, product in reversed(pairs):
                scales.append(float(moved @ direction) / product)
                direction = direction - scales[-1] * bent
            direction = joined(*self._preconditioned(*split(direction), curvature))
            for (moved, bent, product), scale in zip(pairs, reversed(scales), strict=True):
                direction = direction + moved * (scale - float(bent @ direction) / product)
            slope, step = float(gradient @ direction), 1.0
            while True:
                new = at + step * direction
                new_loss, *gradients = self._loss(*split(new))
                if new_loss <= loss + 1e-4 * step * slope or step < 1e-3:
                    break
                step /= 2
            if not new_loss < loss:
                break
            new_gradient = joined(*gradients)
            moved, bent = new - at, new_gradient - gradient
            product = float(moved @ bent)
            if product > 1e-12:
                pairs = [*pairs[1 - _MEMORY :], (moved, bent, product)]
            done = loss - new_loss < 1e-7 * abs(loss)
            at, loss, gradient = new, new_loss, new_gradient
            if done:
                break
        return split(at)
