"""Logistic regressions of many binary targets in one optimization with common products."""

from __future__ import annotations

import numpy as np

from .ridge import Factor

_MEMORY = 10  # steps that L-BFGS remembers
_SHORTER = 10  # times that a step which does not decrease the loss is shortened
_ROWS = 512  # rows whose losses are computed at once, so that they stay in the processor's cache
_TOLERANCE = 1e-4  # largest derivative of the mean loss at which a target has converged, as scikit-learn's


class MergedLogistic:
    """Penalized logistic regressions on the same standardized rows, one for each column of labels.

    Each minimizes the weighted log loss plus ``penalty / 2`` times the squared distance of its coefficients
    to given ones, by L-BFGS (Nocedal 1980), preconditioned by the scatter of the rows. Products
    with the rows are in float32, their sums over blocks of rows in float64. A target is left out of further
    steps once it has converged.

    Args:
        factor: The decomposition of the standardized scatter.
        z: Standardized rows, shape (rows, features), float32.
        truth: True for the rows of the second class, shape (rows, targets).
        weights: The weights of rows of the first and of the second class, shape (2, targets).
        penalty: The L2 penalty.
    """

    def __init__(
        self, factor: Factor, z: np.ndarray, truth: np.ndarray, weights: np.ndarray, penalty: float
    ) -> None:
        self.factor, self.z, self.penalty = factor, z, penalty
        self.sign = np.where(truth, 1, -1).astype(np.float32)
        second = truth.sum(axis=0)
        self.total = np.asarray(weights[1] * second + weights[0] * (len(truth) - second))
        self.share = weights[1] * second / self.total
        # The weight of a row is the mean of those of both classes plus its sign times half their difference.
        self.mean, self.half = ((weights[1] + other * weights[0]) / 2 for other in (1, -1))

    def minimize(self, start: np.ndarray, steps: int, centre: np.ndarray | None = None) -> np.ndarray:
        """Return coefficients and, in the last row, intercepts, (features + 1, targets), after some steps.

        Args:
            start: The coefficients and intercepts to begin with.
            steps: The number of steps.
            centre: The coefficients that the penalty is the distance to, shape (features, targets). Default:
                None, those to begin with.
        """
        out = start.copy()
        active = np.arange(start.shape[1])
        curvature = np.maximum(self.share * (1 - self.share), 2.5e-4)
        at, centre = start.copy(), (start[:-1] if centre is None else centre).copy()
        loss, gradient = self._loss(at, centre, active)
        pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for _ in range(steps):
            direction = self._direction(gradient, pairs, curvature[active], active)
            slope = (gradient * direction).sum(axis=0)
            new, new_loss, new_gradient = at + direction, *self._loss(at + direction, centre, active)
            failed = np.flatnonzero(~(new_loss <= loss + 1e-4 * slope))
            size = np.ones(len(active))
            for _ in range(_SHORTER):
                if not len(failed):
                    break
                fall = size[failed] * slope[failed]  # the minimum of the parabola through what is known
                bow = np.maximum(new_loss[failed] - loss[failed] - fall, 1e-300)
                size[failed] *= np.clip(np.nan_to_num(-fall / (2 * bow)), 0.1, 0.5)
                trial = at[:, failed] + size[failed] * direction[:, failed]
                new[:, failed] = trial
                new_loss[failed], new_gradient[:, failed] = self._loss(
                    trial, centre[:, failed], active[failed]
                )
                failed = failed[~(new_loss[failed] <= loss[failed] + 1e-4 * size[failed] * slope[failed])]
            better = new_loss < loss
            steep = np.abs(new_gradient).max(axis=0) > _TOLERANCE * self.total[active]
            moving = better & steep & (loss - new_loss > 1e-6 * np.abs(loss))
            out[:, active[better]] = new[:, better]
            step, bend = new - at, new_gradient - gradient
            product = (step * bend).sum(axis=0)
            inverse = np.where(product > 1e-12, 1 / np.where(product > 1e-12, product, 1), 0)
            pairs = [*pairs[1 - _MEMORY :], (step, bend, inverse)]
            if not moving.any():
                break
            pairs = [(a[:, moving], b[:, moving], c[moving]) for a, b, c in pairs]
            active, at, centre = active[moving], new[:, moving], centre[:, moving]
            loss, gradient = new_loss[moving], new_gradient[:, moving]
        return out

    def _loss(self, at: np.ndarray, centre: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses (targets,) and their gradients (features + 1, targets) of some targets."""
        coef, away = at.astype(np.float32), at[:-1] - centre
        sign = self.sign if len(targets) == self.sign.shape[1] else self.sign[:, targets]
        mean, half = (part[targets].astype(np.float32) for part in (self.mean, self.half))
        losses, gradient = self.penalty / 2 * (away**2).sum(axis=0), np.zeros_like(at)
        gradient[:-1] = self.penalty * away
        for start in range(0, len(self.z), _ROWS):
            z, y = self.z[start : start + _ROWS], sign[start : start + _ROWS]
            margin = z @ coef[:-1]
            margin += coef[-1]
            margin *= y
            small = np.exp(-np.abs(margin))
            weight = mean + half * y
            losses += np.einsum("ij,ij->j", weight, np.log1p(small) - np.minimum(margin, 0))
            weight *= (small + (margin < 0) * (1 - small)) / (1 + small)  # the probability of the other class
            weight *= y
            gradient[:-1] -= z.T @ weight
            gradient[-1] -= weight.sum(axis=0)
        return losses, gradient

    def _direction(
        self,
        gradient: np.ndarray,
        pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
        curvature: np.ndarray,
        targets: np.ndarray,
    ) -> np.ndarray:
        """Return minus the product of the approximate inverse of each Hessian with its gradient."""
        out, scales = -gradient, []
        for step, bend, inverse in reversed(pairs):
            scales.append(inverse * (step * out).sum(axis=0))
            out = out - scales[-1] * bend
        turned = self.factor.solve(self.factor.turn(out[:-1]), self.penalty / float(np.median(curvature)))
        bias = out[-1] / (curvature * self.total[targets])
        out = np.concatenate([self.factor.back(turned) / curvature, bias[None]])
        for (step, bend, inverse), scale in zip(pairs, reversed(scales), strict=True):
            out = out + step * (scale - inverse * (bend * out).sum(axis=0))
        return np.asarray(out)
