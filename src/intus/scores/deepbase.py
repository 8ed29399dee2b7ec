"""Scores under the names that the papers and the post on DeepBase use.

Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks", SIGMOD. ``LogRegressionScore`` and
``LinRegressionScore`` are in ``estimators.penalized``.
"""

from __future__ import annotations

from ..core.errors import InputError
from .base import Score
from .registry import get
from .units.overlap import QUANTILE, iou


def LocalIOU(quantile: float = QUANTILE) -> Score:  # noqa: N802
    """Return intersection over union with the threshold of NetDissect; see ``iou``.

    Args:
        quantile: The fraction of rows, those with the largest values, for which a unit is active.

    Returns:
        The score ``iou``; with another quantile, one named after it.

    Example:
        >>> LocalIOU().name, LocalIOU(0.01).name
        ('iou', 'iou_0.01')
    """
    return get("iou") if quantile == QUANTILE else iou(quantile)


def CorrelationScore(kind: str = "pearson") -> Score:  # noqa: N802
    """Return the score ``correlation``.

    Args:
        kind: "pearson", the only one there is.

    Returns:
        The score.

    Raises:
        InputError: If another kind is requested.

    Example:
        >>> CorrelationScore("pearson").name
        'correlation'
    """
    if kind != "pearson":
        raise InputError(f"CorrelationScore computes 'pearson' only, got {kind!r}.")
    return get("correlation")
