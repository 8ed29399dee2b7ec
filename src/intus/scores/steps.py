"""Gradients over steps: how much of a step is direction and how much is noise."""

from __future__ import annotations

from collections.abc import Iterable

from .base import NAN, ScoreResult, score
from .statistics.statistics import Statistics


@score("gradient_noise", "steps", kinds=("parameter_grad",))
def gradient_noise(statistics: Statistics) -> Iterable[ScoreResult]:
    """The simple noise scale tr(Σ)/|G|² of gradients, a row for each step, in batches: in a batch so many
    times as large, noise and direction would be equal parts (McCandlish et al. 2018, sections 2.2 and A.1).

    |G|² is the squared mean less what noise adds to it. Parameters move meanwhile, which counts as noise:
    take epochs in which they move little. NaN with fewer than two steps, or where noise hides the direction.
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
