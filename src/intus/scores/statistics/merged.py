"""Logistic regressions of many binary targets in one optimization with common products."""

from __future__ import annotations

import numpy as np

from .ridge import Factor

_MEMORY = 10  # steps that L-BFGS remembers
_HALVINGS = 10  # of a step that does not decrease the loss


class MergedLogistic:
    """Penalized logistic regressions on the same standardized rows, one for each column of labels.

    Each minimizes the weighted log loss plus ``penalty / 2`` times the squared distance of its coefficients
    to those it begins with, by L-BFGS (Nocedal 1980), preconditioned by the scatter of the rows. Products
    with the rows are in float32.

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
        self.weight = np.where(truth, weights[1], weights[0]).astype(np.float32)

    def minimize(self, start: np.ndarray, steps: int) -> np.ndarray:
        """Return coefficients and, in the last row, intercepts, (features + 1, targets), after some steps.

        Args:
            start: The coefficients and intercepts to begin with.
            steps: The number of steps.
        """
        out = start.copy()
        active = np.arange(start.shape[1])
        share = (self.weight * (self.sign > 0)).sum(axis=0) / self.weight.sum(axis=0)
        curvature = np.maximum(share * (1 - share), 2.5e-4).astype(np.float64)
        at, centre = start.copy(), start[:-1].copy()
        loss, gradient = self._loss(at, centre, active)
        pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for _ in range(steps):
            direction = self._direction(gradient, pairs, curvature[active], active)
            slope = (gradient * direction).sum(axis=0)
            new, new_loss, new_gradient = at + direction, *self._loss(at + direction, centre, active)
            failed = np.flatnonzero(~(new_loss <= loss + 1e-4 * slope))
            size = 1.0
            for _ in range(_HALVINGS):
                if not len(failed):
                    break
                size /= 2
                trial = at[:, failed] + size * direction[:, failed]
                new[:, failed] = trial
                new_loss[failed], new_gradient[:, failed] = self._loss(
                    trial, centre[:, failed], active[failed]
                )
                failed = failed[~(new_loss[failed] <= loss[failed] + 1e-4 * size * slope[failed])]
            better = new_loss < loss
            moving = better & (loss - new_loss > 1e-6 * np.abs(loss))
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
        every = len(targets) == self.sign.shape[1]
        sign = self.sign if every else self.sign[:, targets]
        weight = self.weight if every else self.weight[:, targets]
        margin = self.z @ at[:-1].astype(np.float32)
        margin += at[-1].astype(np.float32)
        margin *= sign
        small = np.exp(-np.abs(margin))
        losses = np.log1p(small)
        losses -= np.minimum(margin, 0)
        losses *= weight
        wrong = np.where(margin > 0, small, 1)  # the probability of the other class, times 1 + small
        wrong /= 1 + small
        wrong *= weight
        wrong *= -sign
        away = at[:-1] - centre
        gradient = np.empty_like(at)
        gradient[:-1] = self.z.T @ wrong
        gradient[:-1] += self.penalty * away
        gradient[-1] = wrong.sum(axis=0, dtype=np.float64)
        return losses.sum(axis=0, dtype=np.float64) + self.penalty / 2 * (away**2).sum(axis=0), gradient

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
        rows = self.weight.sum(axis=0, dtype=np.float64)[targets]
        out = np.concatenate([self.factor.back(turned) / curvature, (out[-1] / (curvature * rows))[None]])
        for (step, bend, inverse), scale in zip(pairs, reversed(scales), strict=True):
            out = out + step * (scale - inverse * (bend * out).sum(axis=0))
        return np.asarray(out)
