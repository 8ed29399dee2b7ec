"""The choice among several targets of one name for a layer, as a property of any registrations."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from serving_help import point, record, target_of

from intus.serving.evaluation.targets import choose

PATTERNS = {
    "run_pattern": ["r", "^r$", ".*"],
    "model_pattern": ["m", ".*"],
    "layer_pattern": ["fc", "1", ".*"],
}
LABELS = [[0, 1, 0, 1], [0, 0, 1, 1]]
REGISTRATIONS = st.lists(
    st.tuples(
        st.fixed_dictionaries({name: st.sampled_from(texts) for name, texts in PATTERNS.items()}),
        st.sampled_from(LABELS),
        st.sampled_from(["", "x", "y"]),
    ),
    min_size=1,
    max_size=5,
)


def targets(registrations):
    """Return targets in order of registration; all are for the layer. A later one replaces one of its key."""
    made = (
        replace(
            target_of({"name": "t", "targets": labels, "client": client} | patterns), registered=float(time)
        )
        for time, (patterns, labels, client) in enumerate(registrations, start=1)
    )
    return sorted({target.key: target for target in made}.values(), key=lambda target: target.registered)


@settings(max_examples=150, deadline=None)
@given(REGISTRATIONS)
def test_choice_is_one_that_nothing_beats_or_is_disputed(registrations):
    known = targets(registrations)
    late = replace(point(record()), began=1000.0)  # all targets were there when the run began
    choice = choose(known, late)
    if choice.target is None:
        labels = {target.labels.tobytes() for target in choice.disputed}
        assert len(choice.disputed) > 1
        assert len(labels) > 1
        for one in choice.disputed:
            assert not any(one.given.keys() < other.given.keys() for other in choice.disputed)
            assert not any(one.patterns == other.patterns for other in choice.disputed if other is not one)
        return
    assert choice.disputed == ()
    last = {target.client or target.patterns: target for target in known}.values()
    newer = [target for target in last if target.registered > choice.target.registered]
    assert not any(target.patterns == choice.target.patterns for target in newer)
    assert not any(target.client and target.client == choice.target.client for target in newer)


@settings(max_examples=150, deadline=None)
@given(REGISTRATIONS, st.randoms())
def test_order_of_clients_does_not_matter_except_for_the_same_patterns(registrations, random):
    distinct = {}
    for patterns, labels, _ in registrations:  # nobody in particular, so that each is a client
        distinct[tuple(sorted(patterns.items()))] = (patterns, labels, "")
    given_order = list(distinct.values())
    other_order = random.sample(given_order, len(given_order))
    late = replace(point(record()), began=1000.0)
    one, other = (choose(targets(order), late) for order in (given_order, other_order))
    assert (one.target is None) == (other.target is None)
    if one.target is not None:
        assert one.target.says_the_same(other.target)


@settings(max_examples=100, deadline=None)
@given(REGISTRATIONS)
def test_run_that_began_before_a_dispute_stays_with_the_first(registrations):
    known = targets(registrations)
    choice = choose(known, replace(point(record()), began=0.0))
    assert choice.target is not None
    assert choice.target in (choice.disputed or known)
    if choice.disputed:
        assert choice.target is choice.disputed[0]
