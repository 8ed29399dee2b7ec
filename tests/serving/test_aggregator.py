"""The aggregator's state machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_help import record
from torch.utils.data import DistributedSampler

from intus.core.errors import InputError
from intus.core.record import PROBE_SET_MODE
from intus.serving.aggregation.aggregator import SILENCE_S, Aggregator
from intus.serving.data_point import DataPoint
from intus.serving.messages import EpochReport


def ids(points):
    """Return {(address, epoch, kind, mode): first values of its blocks}."""
    return {
        (p.key.address, p.epoch, p.key.kind, p.key.mode): [float(r.array.flat[0]) for r in p.records]
        for p in points
    }


def numbered(number: int, **facts):
    return record(array=np.full((2, 3), number, dtype=np.float32), **facts)


def test_newer_epoch_completes_older_epoch():
    aggregator = Aggregator()
    assert aggregator.accept([numbered(1), numbered(2)]).ready == []
    assert aggregator.accept([numbered(3, address="fc2")]).ready == []
    outcome = aggregator.accept([numbered(4, epoch=1)])
    assert ids(outcome.ready) == {("fc1", 0, "output", "train"): [1, 2], ("fc2", 0, "output", "train"): [3]}
    assert [p.rows for p in outcome.ready] == [4, 2]
    assert all(p.complete for p in outcome.ready)
    assert aggregator.status()["pending"] == 1


def test_newer_epoch_of_other_run_or_model_ends_no_window():
    aggregator = Aggregator()
    aggregator.accept([numbered(1)])
    assert aggregator.accept([numbered(2, run="s", epoch=5), numbered(3, model="n", epoch=5)]).ready == []
    assert len(aggregator.flush(run="s")) == 1
    assert len(aggregator.flush(model="m")) == 1
    assert len(aggregator.flush()) == 1
    assert aggregator.flush() == []


def test_modes_kinds_and_outputs_are_separate_data_points():
    aggregator = Aggregator()
    aggregator.accept(
        [numbered(1), numbered(2, mode="eval"), numbered(3, kind="input"), numbered(4, index=1)]
    )
    ready = aggregator.flush()
    assert [p.kind for p in ready] == ["output", "output@eval", "input", "output.1"]


def test_first_mode_of_run_is_main_mode():
    aggregator = Aggregator()
    aggregator.accept([numbered(1, mode="eval")])
    aggregator.accept([numbered(2, epoch=1), numbered(3, epoch=1, mode="eval")])
    assert [p.kind for p in aggregator.flush()] == ["output@train", "output"]
    aggregator.remove("r", "m")
    aggregator.accept([numbered(1)])
    assert [p.kind for p in aggregator.flush()] == ["output"]


def test_late_record_joins_its_data_point():
    aggregator = Aggregator()
    aggregator.accept([numbered(1), numbered(2, address="fc2")])
    assert len(aggregator.accept([numbered(3, epoch=1)]).ready) == 2
    assert aggregator.accept([numbered(4)]).ready == []  # late, and no reason to hand epoch 1 on
    assert ids(aggregator.flush()) == {
        ("fc1", 0, "output", "train"): [1, 4],
        ("fc1", 1, "output", "train"): [3],
    }


def test_first_record_of_older_epoch_opens_own_window():
    aggregator = Aggregator()
    aggregator.accept([numbered(1, epoch=1)])
    assert aggregator.accept([numbered(2, epoch=0)]).ready == []
    outcome = aggregator.accept([numbered(3, epoch=2)])
    assert ids(outcome.ready) == {("fc1", 1, "output", "train"): [1], ("fc1", 0, "output", "train"): [2]}


def test_skipped_epoch_is_late_not_restart():
    aggregator = Aggregator()
    for number, epoch in enumerate([0, 2, 1, 2]):
        outcome = aggregator.accept([numbered(number, epoch=epoch)])
        assert outcome.notices == []
    assert ids(aggregator.flush()) == {
        ("fc1", 1, "output", "train"): [2],
        ("fc1", 2, "output", "train"): [1, 3],
    }


def test_restarted_training_is_scored_with_notice():
    aggregator = Aggregator()
    for epoch in range(4):
        aggregator.accept([numbered(epoch, epoch=epoch)])
    outcome = aggregator.accept([numbered(10, epoch=0)])
    assert ids(outcome.ready) == {("fc1", 3, "output", "train"): [3]}
    assert [n.code for n in outcome.notices] == ["restarted"]
    assert "Epoch 0 came after epoch 3" in outcome.notices[0].text
    again = aggregator.accept([numbered(11, epoch=1)])
    assert ids(again.ready) == {("fc1", 0, "output", "train"): [10]}
    assert again.notices == []


def test_repeated_request_counts_once():
    aggregator = Aggregator()
    first = aggregator.accept([numbered(1)], "client", 0)
    second = aggregator.accept([numbered(1)], "client", 0)
    other = aggregator.accept([numbered(2)], "another", 0)
    assert (first.accepted, first.duplicate) == (1, False)
    assert (second.accepted, second.duplicate) == (0, True)
    assert (other.accepted, other.duplicate) == (1, False)
    assert ids(aggregator.flush()) == {("fc1", 0, "output", "train"): [1, 2]}
    assert (aggregator.status()["received"], aggregator.status()["duplicates"]) == (2, 1)


def test_newest_parameter_replaces_older():
    aggregator = Aggregator()
    for number in (1, 2, 3):
        aggregator.accept([numbered(number, kind="parameter", batch_axis=None)])
    assert ids(aggregator.flush()) == {("fc1", 0, "parameter", "train"): [3]}
    assert aggregator.nbytes == 24


def test_dropped_records_make_epoch_incomplete():
    aggregator = Aggregator()
    aggregator.accept([numbered(1)], "client", 0, dropped=0)
    outcome = aggregator.accept([numbered(2, epoch=1)], "client", 1, dropped=3)
    assert [p.complete for p in outcome.ready] == [False]
    assert [n.code for n in outcome.notices] == ["dropped"]
    assert [p.complete for p in aggregator.flush()] == [False]
    later = aggregator.accept([numbered(3, epoch=2)], "client", 2, dropped=3)
    assert later.notices == []
    assert [p.complete for p in aggregator.flush()] == [True]
    assert (aggregator.status()["dropped"], aggregator.status()["incomplete"]) == (3, 2)


def test_oldest_window_is_evicted_at_memory_limit():
    aggregator = Aggregator(max_bytes=100)  # four records of 24 bytes
    for epoch in range(4):
        aggregator.accept([numbered(epoch, model=f"m{epoch}")])
    outcome = aggregator.accept([numbered(9, model="m9")])
    assert outcome.accepted == 1
    assert [(n.code, n.model) for n in outcome.notices] == [("memory", "m0")]
    assert aggregator.nbytes <= 100
    assert {p.key.model for p in aggregator.flush()} == {"m1", "m2", "m3", "m9"}
    assert (aggregator.status()["lost"], aggregator.status()["refused"]) == (1, 0)


def test_passed_on_windows_are_evicted_first():
    aggregator = Aggregator(max_bytes=100)
    aggregator.accept([numbered(0, model="waits")])
    aggregator.accept([numbered(1, model="done")])
    assert len(aggregator.flush(model="done")) == 1
    outcome = aggregator.accept([numbered(2, model="new") for _ in range(3)])
    assert (outcome.accepted, outcome.notices) == (3, [])
    assert {p.key.model for p in aggregator.flush()} == {"waits", "new"}


def test_epoch_is_incomplete_after_eviction():
    aggregator = Aggregator(max_bytes=100)  # four records of 24 bytes
    notices = [n for number in range(5) for n in aggregator.accept([numbered(number)]).notices]
    assert [n.code for n in notices] == ["memory"]
    assert "which=, when=, rows=" in notices[0].text
    (tail,) = aggregator.accept([numbered(5, epoch=1)]).ready
    assert (tail.rows, tail.complete) == (2, False)
    assert "dropped from memory" in tail.lacks
    assert aggregator.status()["incomplete"] == 1
    assert [p.complete for p in aggregator.flush()] == [True]  # the next epoch is whole


def test_late_record_of_evicted_scored_epoch_is_refused():
    aggregator = Aggregator(max_bytes=100)
    aggregator.accept([numbered(0), numbered(1)])
    assert [p.rows for p in aggregator.flush()] == [4]
    aggregator.accept([numbered(2, model="other") for _ in range(4)])
    late = aggregator.accept([numbered(3), numbered(3), numbered(4, address="fc2")])
    assert late.accepted == 1
    assert [n.code for n in late.notices] == ["memory", "too_late"]
    assert [(p.key.address, p.complete) for p in aggregator.flush(model="m")] == [("fc2", True)]
    assert (aggregator.status()["lost"], aggregator.status()["refused"]) == (4, 2)
    for epoch in (1, 2, 0):  # begun anew, the epoch is taken again
        outcome = aggregator.accept([numbered(5, epoch=epoch)])
    assert (outcome.accepted, [n.code for n in outcome.notices]) == (
        1,
        ["restarted", "absent"],
    )  # fc2 is gone


def test_parameter_is_complete_after_eviction_of_older_value():
    aggregator = Aggregator(max_bytes=100)
    weight = {"kind": "parameter", "batch_axis": None}
    aggregator.accept([numbered(0, **weight)])
    aggregator.flush()
    aggregator.accept([numbered(2, model="other") for _ in range(4)])
    assert aggregator.accept([numbered(1, **weight)]).accepted == 1
    assert [p.complete for p in aggregator.flush(model="m")] == [True]


def test_record_larger_than_memory_limit_is_refused():
    outcome = Aggregator(max_bytes=10).accept([numbered(1)])
    assert outcome.accepted == 0
    assert "24 bytes at 'fc1' was refused: the aggregator holds at most 10" in outcome.notices[0].text


def test_remove_and_clear_delete_records():
    aggregator = Aggregator()
    aggregator.accept([numbered(1), numbered(2, model="n")])
    aggregator.remove("r", "m")
    assert [p.key.model for p in aggregator.flush()] == ["n"]
    aggregator.accept([numbered(1)], "client", 0)
    for own in (aggregator.runs_of(None), aggregator.runs_of("another"), aggregator.runs_of("client", "n")):
        assert ("r", "m") not in own
    assert aggregator.runs_of("client") == aggregator.runs_of("client", "m") == [("r", "m")]
    assert aggregator.remove("other") == aggregator.remove("r", "x") == []
    assert sorted(aggregator.remove("r")) == [("r", "m"), ("r", "n")]
    assert aggregator.flush() == []
    assert aggregator.accept([numbered(1)], "client", 0).duplicate


def test_trigger_fields_step_and_mode():
    aggregator = Aggregator(trigger=("epoch", "step"))
    aggregator.accept([numbered(1, step=0)])
    ready = aggregator.accept([numbered(2, step=1)]).ready
    assert [(p.epoch, p.step) for p in ready] == [(0, 0)]
    aggregator = Aggregator(trigger=("mode",))
    aggregator.accept([numbered(1)])
    assert ids(aggregator.accept([numbered(2, mode="eval")]).ready) == {("fc1", 0, "output", "train"): [1]}
    with pytest.raises(InputError, match=r"must be some of epoch, step, mode, got \['colour'\]"):
        Aggregator(trigger=("colour",))


def test_new_trigger_fields_apply_to_new_runs_only():
    aggregator = Aggregator()
    aggregator.accept([numbered(1, mode="train")], "c", 0)
    aggregator.set_trigger(["epoch", "state"])
    assert aggregator.accept([numbered(2, mode="eval")], "c", 1).ready == []
    other = {"run": "other"}
    aggregator.accept([numbered(1, mode="train", **other)], "c", 2)
    (ready,) = aggregator.accept([numbered(2, mode="eval", **other)], "c", 3).ready
    assert (ready.key.run, ready.key.mode) == ("other", "train")
    again = Aggregator()
    again.restore(("other", "m"), aggregator.snapshot(("other", "m"), 0.0))
    assert again.snapshot(("other", "m"), 0.0)["trigger"] == ["epoch", "mode"]


def test_records_without_epoch_have_own_window():
    aggregator = Aggregator()
    aggregator.accept([numbered(1, epoch=None)])
    assert ids(aggregator.accept([numbered(2, epoch=0)]).ready) == {("fc1", None, "output", "train"): [1]}


# -- properties --------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"]), st.sampled_from(["m", "n"]), st.booleans()),
    max_size=40,
)


@pytest.mark.long
@settings(max_examples=300)
@given(EVENTS)
def test_every_record_is_in_last_data_point_of_its_key(events):
    """With at most two open epochs, every record sent is in the last data point of its key and epoch."""
    aggregator, sent, last = Aggregator(), Counter(), {}
    newest = {"m": 0, "n": 0}
    for number, (advance, address, model, back) in enumerate(events):
        newest[model] += advance == 3
        epoch = max(0, newest[model] - back)
        sent[address, model, epoch, float(number)] += 1
        outcome = aggregator.accept([numbered(number, address=address, model=model, epoch=epoch)])
        for p in outcome.ready:
            last[p.key, p.epoch] = p
    for p in aggregator.flush():
        last[p.key, p.epoch] = p
    got = Counter(
        (p.key.address, p.key.model, p.epoch, float(r.array.flat[0]))
        for p in last.values()
        for r in p.records
    )
    assert got == sent


@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=8))
def test_reordered_and_repeated_requests_count_once(order, repeated):
    aggregator = Aggregator()
    for seq in [*order, *repeated]:
        aggregator.accept([numbered(seq)], "client", seq)
    (only,) = aggregator.flush()
    assert sorted(float(r.array.flat[0]) for r in only.records) == list(range(8))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(12, 600),
)
def test_memory_stays_within_limit(events, limit):
    aggregator = Aggregator(max_bytes=limit)
    for rows, epoch, flush in events:
        aggregator.accept([record(rows, epoch=epoch)])
        assert aggregator.nbytes <= limit
        if flush:
            aggregator.flush()


def test_rows_of_probe_set_count_once():
    aggregator = Aggregator()
    first, again = (
        numbered(number, mode=PROBE_SET_MODE, items=np.arange(2), address=address)
        for number, address in ((1, "fc1"), (2, "fc1"))
    )
    assert aggregator.accept([first], "first", 0).accepted == 1
    outcome = aggregator.accept([again, numbered(3, mode=PROBE_SET_MODE, items=np.arange(2, 4))], "second", 0)
    assert outcome.accepted == 1  # the items of the other record are new
    assert [notice.code for notice in outcome.notices] == ["repeated"]
    assert ids(aggregator.flush()) == {("fc1", 0, "output", PROBE_SET_MODE): [1, 3]}


def send_items(aggregator, client, seq, items, **facts):
    items = np.asarray(items)
    array = np.zeros((len(items), 3), np.float32)
    report = EpochReport("r", "m", facts.get("epoch", 0), sent=seq + 1, whole=seq + 1)
    one = record(array=array, items=items, **facts)
    return [notice.code for notice in aggregator.accept([one], client, seq, reports=[report]).notices]


def test_trainings_with_one_name_are_said_to_be_pooled():
    aggregator = Aggregator()
    shuffled = np.random.default_rng(0).permutation(600).reshape(6, 100)
    codes = []
    for seq, (mine, yours) in enumerate(zip(shuffled, shuffled[::-1], strict=True)):
        codes += send_items(aggregator, "a", seq, mine) + send_items(aggregator, "b", seq, yours)
    assert codes == ["pooled"]
    (point,) = aggregator.flush()
    assert point.rows == 1200
    assert "several processes sent rows of the same items" in point.doubt
    assert point.complete
    assert DataPoint.read(point.records, point.envelope(last=True)).doubt == point.doubt
    assert replace(point, pooled=False).digest() != point.digest()
    send_items(aggregator, "c", 0, range(9), epoch=1)
    assert [point.doubt for point in aggregator.flush() if point.epoch == 1] == [""]


@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize("size", [5, 601])
def test_ranks_of_one_training_are_not_pooled(world, size):
    """As DistributedSampler of PyTorch shares items out, which gives the first ones again to be even."""
    aggregator = Aggregator()
    shares = [list(DistributedSampler(range(size), world, rank, shuffle=False)) for rank in range(world)]
    assert sum(map(len, shares)) > size
    for rank, share in enumerate(shares):
        for seq, at in enumerate(range(0, len(share), 100)):
            assert send_items(aggregator, f"rank {rank}", seq, share[at : at + 100]) == []
    assert [point.doubt for point in aggregator.flush()] == [""]


def test_items_that_one_process_repeats_or_a_probe_set_are_not_pooled():
    aggregator = Aggregator()
    for seq in range(3):
        assert send_items(aggregator, "a", seq, range(100)) == []
    assert send_items(aggregator, "b", 0, [-1] * 50) == []  # rows without a known place
    assert "pooled" not in send_items(aggregator, "a", 3, range(9), mode=PROBE_SET_MODE)
    assert "pooled" not in send_items(aggregator, "b", 1, range(9), mode=PROBE_SET_MODE)


def test_silent_process_is_not_named_while_records_are_refused():
    aggregator = Aggregator(grace=60)
    report = EpochReport("r", "m", 0, sent=2)
    aggregator.accept([numbered(1)], "a", 0, reports=[report], now=0.0)
    assert len(aggregator.waits(82.0)) == 1
    aggregator.refused(80.0)
    assert aggregator.waits(82.0) == []
    assert len(aggregator.waits(82.0 + SILENCE_S)) == 1


def test_notice_of_dropped_records_has_the_reasons_of_the_client():
    aggregator = Aggregator()
    reports = [EpochReport("r", "m", 0, sent=1, dropped=2, reasons=["no server had answered yet"])]
    (notice,) = aggregator.accept([numbered(1)], "a", 0, reports=reports).notices
    assert notice.text.startswith("The probe dropped arrays: no server had answered yet. ")
