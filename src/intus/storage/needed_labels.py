"""Tell which earlier labels are needed beside newer ones. Scoring needs it, so it imports no database."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def needed_beside(
    newest: float, times: Sequence[float], waiting: float | None, moments: Sequence[float] | None = None
) -> list[float]:
    """Return which earlier labels for the same layers are needed beside the newest, by their times.

    Those that seem to be registered later are of before the clock was set back, and no array waits that came
    after them.

    Args:
        newest: When the newest labels were registered.
        times: When the others were.
        waiting: No epoch waits whose last array came before that time; None if none waits.
        moments: When the last array of each epoch that waits came; None for any time since ``waiting``.

    >>> needed_beside(7.0, [1.0, 3.0, 5.0], 4.0), needed_beside(7.0, [1.0, 3.0, 5.0], 4.0, [4.0])
    ([3.0, 5.0], [3.0])
    """
    every = sorted({newest, *(each for each in times if each < newest)})
    if moments is None:
        moments = [] if waiting is None else [waiting, *(each for each in every if each > waiting)]
    found = {every[max(bisect_right(every, moment) - 1, 0)] for moment in moments}
    return sorted(found - {newest})
