"""Decide when to retry a server: a circuit breaker without clock or network."""

from __future__ import annotations

FIRST_S, FACTOR, MOST_S = 0.1, 3.0, 30.0
#: The longest pause while there is no answer: a server that returns is found within 2 s.
AWAY_S = 1.0
PATIENCE = 4  # consecutive failures until the server counts as down: about 1.3 s if it refuses connections


class Breaker:
    """Spaces the requests to a server that fails.

    The pauses are 0.1 s, 0.3 s, 0.9 s ... up to 1 s if no answer comes, and up to 30 s if the server asks
    for them, each shortened at random by up to a half so that many clients do not return at the same time.

    Example:
        >>> breaker = Breaker()
        >>> breaker.failed(now=10.0, random=1.0)
        >>> breaker.wait(now=10.0), breaker.down
        (0.1, False)
    """

    def __init__(self) -> None:
        self.failures = 0  # consecutive failures, without any answer
        self._num_pauses = 0
        self._retry_at = 0.0

    @property
    def down(self) -> bool:
        """True if the server failed often enough in a row to count as down."""
        return self.failures >= PATIENCE

    def wait(self, now: float) -> float:
        """Return the seconds until the next request is due."""
        return max(0.0, round(self._retry_at - now, 6))

    def failed(self, now: float, random: float) -> None:
        """Register that no answer came; ``random`` is a random number from 0 to 1."""
        self.failures += 1
        self._pause(now, random, 0.0, min(AWAY_S, MOST_S))

    def busy(self, now: float, random: float, at_least: float) -> None:
        """Register that the server requested a pause of ``at_least`` seconds."""
        self.failures = 0
        self._pause(now, random, at_least, MOST_S)

    def succeeded(self) -> None:
        """Register that a request was answered."""
        self.failures, self._num_pauses, self._retry_at = 0, 0, 0.0

    def retry_now(self) -> None:
        """Make the next request due now."""
        self._retry_at = 0.0

    def _pause(self, now: float, random: float, at_least: float, most: float) -> None:
        pause = min(FIRST_S * FACTOR ** min(self._num_pauses, 20), most)
        self._num_pauses += 1
        self._retry_at = now + max(pause * (0.5 + random / 2), at_least)
