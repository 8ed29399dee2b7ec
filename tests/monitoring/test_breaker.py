"""The pauses of the breaker, for any history of failures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from intus.monitoring.breaker import AWAY_S, MOST_S, PATIENCE, Breaker

chances = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(chances)
def test_pauses_grow_up_to_bound(history):
    breaker = Breaker()
    longest = 0.0
    for number, chance in enumerate(history, start=1):
        breaker.failed(0.0, chance)
        pause = breaker.wait(0.0)
        full = min(0.1 * 3.0 ** (number - 1), AWAY_S)
        assert full / 2 - 1e-6 <= pause <= full + 1e-6
        assert breaker.down == (number >= PATIENCE)
        longest = max(longest, pause)
    assert longest <= AWAY_S
    breaker.succeeded()
    assert (breaker.wait(0.0), breaker.down, breaker.failures) == (0.0, False, 0)


def test_pauses_of_busy_server_grow_longer():
    breaker = Breaker()
    for _ in range(8):
        breaker.busy(0.0, 1.0, 0.0)
    assert breaker.wait(0.0) == MOST_S


@given(st.integers(0, 6), st.floats(0, 60), st.floats(0, 1))
def test_busy_server_gets_requested_pause(failures, requested, chance):
    breaker = Breaker()
    for _ in range(failures):
        breaker.failed(5.0, chance)
    before = breaker.wait(5.0)
    breaker.busy(5.0, chance, requested)
    assert breaker.wait(5.0) >= max(before, round(requested, 6)) - 1e-5
    assert not breaker.down
    breaker.retry_now()
    assert breaker.wait(5.0) == 0.0
