"""Scores: pure functions of mergeable statistics, the same for a layer in training and a single unit.

    scorer = Scorer(["mean", "linear_f1", "kmeans_ami"])
    scorer.update(behaviours, {"digit": labels}, items)
    scorer.result()                          # a list of ScoreResult, the rows of Results

``docs/scores.md`` describes each score; it is generated from the docstrings and arguments with which the
scores are registered (``python -m intus.scores``).
"""

# The order of registration is the order in which scores are listed to people.
from .probes import linear  # noqa: F401, I001
from . import cluster  # noqa: F401
from .estimators import logistic, regression, penalized, baselines  # noqa: F401
from . import intrinsic, steps  # noqa: F401
from .units import affinity, overlap, association  # noqa: F401
from .comparisons import layers  # noqa: F401
from ..core.score_info import ScoreInfo
from .base import Score, ScoreColumns, ScoreResult
from .deepbase import CorrelationScore, LocalIOU
from .estimators.penalized import LinRegressionScore, LogRegressionScore
from .probes.judging import Confusion, Gap
from .multiple import merged_splits, over_splits
from .units.overlap import iou
from .registry import get, infos, names, register
from .scorer import Scorer

__all__ = [
    "Confusion",
    "CorrelationScore",
    "Gap",
    "LinRegressionScore",
    "LocalIOU",
    "LogRegressionScore",
    "Score",
    "ScoreColumns",
    "ScoreInfo",
    "ScoreResult",
    "Scorer",
    "get",
    "infos",
    "iou",
    "merged_splits",
    "names",
    "over_splits",
    "register",
]
