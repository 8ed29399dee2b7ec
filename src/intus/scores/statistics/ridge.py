"""Ridge regression from moments, for every penalty at the price of one third of a decomposition.

The correlation matrix is brought to tridiagonal form once per layer (Householder; Golub and Van Loan, section
8.3). From there each penalty and each target is a matter of milliseconds: Q(T + p)⁻¹Qᵀ solves, and the
eigenvalues of T give the degrees of freedom. Eigenvectors, which cost twice as much again, are never needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.errors import require
from .moments import Gram

#: Penalties per training row, on standardised features, that are tried.
ALPHAS: tuple[float, ...] = tuple(10.0 ** (half / 2) for half in range(-10, 3))


class Factor(NamedTuple):
    """What all targets share: rows, mean and scale of the features, and their standardised scatter as Q T Qᵀ:
    ``reflectors`` and ``tau`` make Q, ``diagonal`` and ``beside`` are T, ``values`` its eigenvalues."""

    n: int
    mean: np.ndarray
    scale: np.ndarray
    reflectors: np.ndarray
    tau: np.ndarray
    diagonal: np.ndarray
    beside: np.ndarray
    values: np.ndarray

    def turn(self, b: np.ndarray) -> np.ndarray:
        """Qᵀb for b (features, outputs)."""
        return self._applied(b, "T")

    def back(self, b: np.ndarray) -> np.ndarray:
        """Q b for b (features, outputs)."""
        return self._applied(b, "N")

    def _applied(self, b: np.ndarray, how: str) -> np.ndarray:
        out = np.array(b, dtype=np.float64, order="F")
        if len(out) > 1:  # each reflector begins one row below the diagonal, as in a QR decomposition
            out[1:] = _lapack().dormqr(
                "L", how, self.reflectors[1:, :-1], self.tau, out[1:], 64 * out.shape[1]
            )[0]
        return out

    def solve(self, b: np.ndarray, ridge: float) -> np.ndarray:
        """(T + ridge)⁻¹ b for b (features, outputs); the ridge exceeds what rounding leaves of 0."""
        least = max(-2 * self.values.min(initial=0), 1e-14 * self.values.max(initial=0), 1e-9)
        diagonal = self.diagonal + max(ridge, least)
        if len(diagonal) < 2:
            return np.asarray(b / diagonal[:, None])
        return np.asarray(_lapack().dptsv(diagonal, self.beside, b)[2])


def _lapack() -> Any:
    return require("scipy.linalg", extra="server", why="to fit linear classifiers").lapack


def factorise(gram: Gram) -> Factor:
    """Decompose the correlation matrix, times the rows; constant features get scale 1."""
    lapack, scale = _lapack(), _scale(gram)
    correlation = gram.scatter() / scale / scale[:, None]
    if len(correlation) < 2:
        values, none = np.diag(correlation), np.empty(0)
        return Factor(gram.n, gram.mean(), scale, correlation, none, values, none, values)
    room = int(lapack.dsytrd_lwork(len(correlation), lower=1)[0])
    # Of a symmetric matrix the transpose is itself, in LAPACK's order of memory.
    reflectors, diagonal, beside, tau, _ = lapack.dsytrd(correlation.T, lower=1, lwork=room, overwrite_a=1)
    values = lapack.dsterf(diagonal, beside)[0]
    return Factor(gram.n, gram.mean(), scale, reflectors, tau, diagonal, beside, values)


def _scale(gram: Gram) -> np.ndarray:
    """The standard deviation of each feature; 1 for those that are constant."""
    variance = np.diag(gram.scatter()) / gram.n
    constant = variance <= 1e-12 * np.maximum(np.diag(gram.gram) / gram.n, 1e-300)
    return np.where(constant, 1.0, np.sqrt(np.maximum(variance, 1e-300)))


def regress(factor: Factor, turned: np.ndarray, alpha: float) -> np.ndarray:
    """Ridge coefficients (features, outputs) for standardised features, from ``factor.turn(Σ z·y)``."""
    return factor.back(factor.solve(turned, alpha * factor.n))


def penalty(factor: Factor, turned: np.ndarray, square: float) -> float:
    """The penalty per row with the least (squared error) / (1 - degrees of freedom / rows)², of equals the
    greatest; ``turned`` is ``factor.turn(Σ z·y)``, ``square`` the sum of squares of the centred outputs."""
    values = np.maximum(factor.values, 0)
    best, chosen = np.inf, ALPHAS[-1]
    for alpha in reversed(ALPHAS):
        ridge = alpha * factor.n
        coef = factor.solve(turned, ridge)
        missed = square - float((coef * (turned + ridge * coef)).sum())
        free = 1 - (1 + float((values / (values + ridge)).sum())) / factor.n
        loss = missed / free**2 if free > 0 else np.inf
        if loss < best * (1 - 1e-9):
            best, chosen = loss, alpha
    return chosen
