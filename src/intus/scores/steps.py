"""The noise scale of gradients over training steps."""

from __future__ import annotations

from collections.abc import Iterable

from .base import NAN, ScoreResult, score
from .statistics.statistics import Statistics


@score(
    "gradient_noise",
    "steps",
    kinds=("parameter_grad",),
    label="Gradient noise scale",
    formula="tr(Σ) / |G|², with Σ the covariance of the gradients over steps, and |G|² the squared norm of "
    "their mean minus what noise adds to it",
    low=0.0,
    requires='records of the kind "parameter_grad", of two steps or more and at most 8,388,608 numbers',
    source="McCandlish et al. 2018, sections 2.2 and A.1",
)
def gradient_noise(statistics: Statistics) -> Iterable[ScoreResult]:
    """Factor by which a batch must be larger for noise and mean of the gradient to be equally large.

    Changes of the parameters between steps count as noise: use epochs in which they change little. There is
    no value if the mean is not longer than noise alone would make it.
    """
    steps = statistics.steps
    note = "fewer than two steps" if steps.n < 2 else ""
    if steps.too_wide:
        note = f"not for more than {steps.MOST} numbers"
    if note:
        return [ScoreResult("gradient_noise", NAN, n=steps.n, note=note)]
    mean = steps.total / steps.n
    noise = max(steps.squares - steps.n * float(mean @ mean), 0.0) / (steps.n - 1)
    direction = float(mean @ mean) - noise / steps.n
    if direction <= 0:
        return [ScoreResult("gradient_noise", NAN, n=steps.n, note=f"{steps.n} steps show no direction")]
    return [ScoreResult("gradient_noise", noise / direction, n=steps.n)]
