"""Scores: pure functions of mergeable statistics, the same for a layer in training and a single unit.

scorer = Scorer(["mean", "linear_f1", "kmeans_ami"])
scorer.update(behaviours, {"digit": labels}, items)
scorer.result()                                      # a list of ScoreResult, the rows of Results
"""

from . import affinity, cluster, intrinsic, linear, mdl, regression, steps  # noqa: F401  (registered)
from .adapters import register
from .base import Score, ScoreResult, get, names
from .overlap import iou
from .scorer import Scorer

__all__ = ["ScoreResult", "Score", "Scorer", "get", "iou", "names", "register"]
