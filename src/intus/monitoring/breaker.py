"""When to try again: a circuit breaker that knows neither clock nor network."""

from __future__ import annotations

FIRST_S, FACTOR, MOST_S = 0.1, 3.0, 30.0
PATIENCE = 4  # failures in a row until the line counts as down: about 1.3 s when connections are refused


class Breaker:
    """Spaces the tries at a server that fails: 0.1 s, 0.3 s, 0.9 s … at most 30 s, each shortened by
    chance to as little as a half so that many clients do not come back at once.

    >>> breaker = Breaker()
    >>> breaker.failed(now=10.0, chance=1.0)
    >>> breaker.wait(now=10.0), breaker.down
    (0.1, False)
    """

    def __init__(self) -> None:
        self.failures = 0  # in a row, without any answer
        self._pauses = 0
        self._until = 0.0

    @property
    def down(self) -> bool:
        """Whether the server has been silent often enough to stop counting on it."""
        return self.failures >= PATIENCE

    def wait(self, now: float) -> float:
        """Seconds until the next try is due."""
        return max(0.0, round(self._until - now, 6))

    def failed(self, now: float, chance: float) -> None:
        """No answer came; ``chance`` is in 0 to 1."""
        self.failures += 1
        self._pause(now, chance, 0.0)

    def busy(self, now: float, chance: float, at_least: float) -> None:
        """The server answered: not now, and asked for a pause of ``at_least`` seconds."""
        self.failures = 0
        self._pause(now, chance, at_least)

    def worked(self) -> None:
        """A try succeeded."""
        self.failures, self._pauses, self._until = 0, 0, 0.0

    def hurry(self) -> None:
        """Make the next try due now."""
        self._until = 0.0

    def _pause(self, now: float, chance: float, at_least: float) -> None:
        pause = min(FIRST_S * FACTOR ** min(self._pauses, 20), MOST_S)
        self._pauses += 1
        self._until = now + max(pause * (0.5 + chance / 2), at_least)
