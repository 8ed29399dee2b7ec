"""Ridge regression from moments, for all penalties at a third of the cost of an eigendecomposition.

The correlation matrix is reduced to tridiagonal form once per layer (Householder; Golub and Van Loan, section
8.3). Then each penalty and each target takes milliseconds: Q(T + p)⁻¹Qᵀ solves the regression, and the
eigenvalues of T give the degrees of freedom. Eigenvectors, which take twice as long again, are not needed.

Rows that are fewer than their features span few dimensions. Ridge and logistic coefficients lie in these, so
everything is computed in an orthonormal basis of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import require
from .moments import BLOCK, Gram

#: The penalties per training row, on standardised features, among which ``penalty`` chooses.
ALPHAS: tuple[float, ...] = tuple(10.0 ** (half / 2) for half in range(-10, 3))


class Factor(NamedTuple):
    """The decomposition Q T Qᵀ of the standardised scatter of a layer, which all targets share.

    Attributes:
        n: The number of rows.
        mean: The mean of each feature, shape (features,).
        scale: The standard deviation of each feature, 1 for constant ones, shape (features,).
        reflectors: Q, as LAPACK's Householder reflectors, shape (features - 1, features - 1). Each begins one
            row below the diagonal, so the first row and the last column of the matrix are left out.
        tau: The scalar factors of the reflectors.
        diagonal: The diagonal of T.
        beside: The subdiagonal of T.
        values: The eigenvalues of T. Those of dimensions that no row reaches are 0, and left out.
        basis: An orthonormal basis of the rows, shape (features, dimensions), if they were fewer than the
            features; else None. With one, "features" above are these dimensions, but for mean and scale.
        turned: Qᵀ of each of these rows, shape (rows, dimensions); else None.
    """

    n: int
    mean: np.ndarray
    scale: np.ndarray
    reflectors: np.ndarray
    tau: np.ndarray
    diagonal: np.ndarray
    beside: np.ndarray
    values: np.ndarray
    basis: np.ndarray | None = None
    turned: np.ndarray | None = None

    def standardized(self, x: np.ndarray, shift: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
        """Return some rows of (rows, features), standardized, in float32.

        Args:
            x: The rows.
            shift: What was subtracted from the rows that were decomposed.
            rows: The numbers of the rows to return.
        """
        out = np.empty((len(rows), x.shape[1]), dtype=np.float32)
        middle = self.mean + shift
        for start in range(0, len(rows), BLOCK):  # each in float64, which takes less memory than all
            part = slice(start, start + BLOCK)
            out[part] = (x[rows[part]] - middle) / self.scale
        return out

    def turn(self, b: np.ndarray) -> np.ndarray:
        """Return Qᵀb (dimensions, outputs) for b (features, outputs) of the rows' span."""
        return self._applied(b if self.basis is None else self.basis.T @ b, "T")

    def back(self, b: np.ndarray) -> np.ndarray:
        """Return Q b (features, outputs) for b (dimensions, outputs)."""
        out = self._applied(b, "N")
        return out if self.basis is None else np.asarray(self.basis @ out)

    def _applied(self, b: np.ndarray, how: str) -> np.ndarray:
        out = np.array(b, dtype=np.float64, order="F")
        if len(out) > 1:
            out[1:] = _lapack().dormqr("L", how, self.reflectors, self.tau, out[1:], 64 * out.shape[1])[0]
        return out

    def solve(self, b: np.ndarray, ridge: float) -> np.ndarray:
        """Return (T + ridge)⁻¹ b for b (dimensions, outputs).

        The ridge is raised to a minimum above rounding errors, so that the matrix is positive definite.
        """
        least = max(-2 * self.values.min(initial=0), 1e-14 * self.values.max(initial=0), 1e-9)
        diagonal = self.diagonal + max(ridge, least)
        if len(diagonal) < 2:
            return np.asarray(b / diagonal[:, None])
        return np.asarray(_lapack().dptsv(diagonal, self.beside, b)[2])


@cache
def _lapack() -> Any:
    return require("scipy.linalg", extra="server", why="to fit linear classifiers").lapack


def factorise(gram: Gram, rows: np.ndarray | None = None) -> Factor:
    """Decompose the correlation matrix times the number of rows; constant features get scale 1.

    Args:
        gram: The moments of the rows.
        rows: The rows that ``gram`` sums, or some of them, shape (rows, features). If they are all, and fewer
            than the features, they are decomposed instead, which takes less time.
    """
    scale = _scale(gram)
    if rows is None or not len(rows) == gram.n < len(scale):
        scatter = gram.scatter() / scale / scale[:, None]
        return Factor(gram.n, gram.mean(), scale, *_tridiagonal(scatter))
    linalg = require("scipy.linalg", extra="server", why="to fit linear classifiers")
    standard = np.asarray((rows - gram.mean()) / scale, dtype=np.float64)
    basis, inside = linalg.qr(standard.T, overwrite_a=True, mode="economic", check_finite=False)
    found = Factor(gram.n, gram.mean(), scale, *_tridiagonal(inside @ inside.T))
    return found._replace(basis=basis, turned=found._applied(inside, "T").T)


def _tridiagonal(scatter: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return reflectors, their factors, diagonal, subdiagonal and eigenvalues; overwrites its argument."""
    lapack = _lapack()
    if len(scatter) < 2:
        values, none = np.diag(scatter), np.empty(0)
        return none, none, values, none, values
    room = int(lapack.dsytrd_lwork(len(scatter), lower=1)[0])
    # The matrix is symmetric: its transpose is the same matrix in the memory order of LAPACK.
    reflectors, diagonal, beside, tau, _ = lapack.dsytrd(scatter.T, lower=1, lwork=room, overwrite_a=1)
    values = lapack.dsterf(diagonal, beside)[0]
    reflectors = np.asfortranarray(reflectors[1:, :-1])  # LAPACK's wrapper would copy a slice at each call
    return reflectors, tau, diagonal, beside, values


def _scale(gram: Gram) -> np.ndarray:
    """Return the standard deviation of each feature, 1 for constant ones."""
    variance = gram.variations() / gram.n
    squares = np.maximum(gram.squares, gram.cancelled) / gram.n
    constant = variance <= 1e-12 * np.maximum(squares, 1e-300)
    return np.where(constant, 1.0, np.sqrt(np.maximum(variance, 1e-300)))


def regress(factor: Factor, turned: np.ndarray, alpha: float) -> np.ndarray:
    """Return ridge coefficients (features, outputs) of standardised features.

    Args:
        factor: The decomposition of the rows.
        turned: ``factor.turn(Σ z·y)``, with z the standardised rows and y the outputs.
        alpha: The penalty per row.
    """
    return factor.back(factor.solve(turned, alpha * factor.n))


def penalty(factor: Factor, turned: np.ndarray, square: float) -> float:
    """Return the penalty per row that generalised cross-validation chooses from ALPHAS.

    It minimizes (squared error) / (1 - degrees of freedom / rows)². Of equal penalties the largest is chosen.

    Args:
        factor: The decomposition of the rows.
        turned: ``factor.turn(Σ z·y)``, with z the standardised rows and y the outputs.
        square: The sum of squares of the centred outputs.
    """
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
