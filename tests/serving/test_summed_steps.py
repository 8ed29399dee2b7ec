"""Gradients and updates of parameters: scores of an epoch are of all its steps, of which sums are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journal_help import Machine
from serving_help import record

from intus.core.record import PassFacts
from intus.scores import Scorer
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.ingest import IngestRequest
from intus.serving.data_point import DataPoint
from intus.serving.decoding import builtins, read
from intus.serving.evaluation.relations import Relations
from intus.serving.evaluation.scoring import evaluate
from intus.serving.messages import PointEnvelope
from intus.storage.codec import decode_records, encode_records

ENTRIES = ("mean", "mean_abs", "std", "variance", "min", "max", "norm", "sparsity", "dead", "nonfinite")


def step(number, **facts):
    """Return the update of a step; step 5 is not finite, and one entry is always 0."""
    array = np.random.default_rng(number).normal(size=(3, 4)).astype(np.float32)
    array[0, 0] = 0.0
    array[1, 1] = np.nan if number == 5 else array[1, 1]
    return record(**({"array": array, "kind": "update", "batch_axis": None, "step": number} | facts))


def scored(point, names=ENTRIES):
    found = evaluate(point, [], names).results
    columns = (found[name].tolist() for name in ("score", "value", "low", "high", "n"))
    return {score: rest for score, *rest in zip(*columns, strict=True)}


def of_rows(numbers, names=ENTRIES):
    """Return the same scores of all arrays as rows."""
    scorer = Scorer(names)
    scorer.update(np.stack([step(number).array.reshape(-1) for number in numbers]))
    return {one.score: [one.value, one.low, one.high, one.n] for one in scorer.result()}


OPERATIONS = st.lists(st.sampled_from(["send", "again", "kill", "flush", "store", "send two"]), max_size=20)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(operations=OPERATIONS, kind=st.sampled_from(["update", "parameter_grad"]))
def test_scores_are_those_of_all_steps_whatever_happens_to_the_server(tmp_path_factory, operations, kind):
    machine, sent, seq, last = Machine(tmp_path_factory.mktemp("m") / "journal"), [0], 0, None

    def send(numbers):
        envelope = {"client": "c", "seq": seq}
        machine.service.records([step(number, kind=kind) for number in numbers], envelope)

    send([0])
    for operation in operations:
        if operation.startswith("send"):
            last = [len(sent) + more for more in range(2 if operation == "send two" else 1)]
            sent, seq = sent + last, seq + 1
            send(last)
        elif operation == "again" and last is not None:
            send(last)  # as after a lost reply
        elif operation == "kill":
            machine.kill()
        elif operation == "flush":
            machine.service.flush()
        elif operation == "store":
            machine.evaluator.store()
    sent, seq = [*sent, len(sent)], seq + 1
    send(sent[-1:])
    machine.service.flush()
    (row,) = machine.service.counts().runs
    if row.refused:  # the epoch was over, and its arrays were deleted, before the server was killed
        assert "too_late" in {notice.code for notice in machine.evaluator.received_notices}
        machine.stop()
        return
    point = machine.evaluator.got[-1]
    assert point.complete
    found, expected = scored(point), of_rows(sent)
    assert found.pop("nonfinite_step", [5])[0] == 5
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.allclose(found[name], values, rtol=1e-9, equal_nan=True), name
    machine.evaluator.store()
    machine.service.flush()
    (row,) = machine.service.counts().runs
    assert (row.kept, row.scored, row.waiting) == (len(sent), len(sent), 0)
    machine.stop()


def test_gradient_noise_is_that_of_all_steps():
    steps = np.random.default_rng(0).normal(0.5, 1.0, (200, 12)).astype(np.float32)
    aggregator = Aggregator()
    for number, array in enumerate(steps):
        aggregator.accept([step(number, array=array, kind="parameter_grad")])
        assert aggregator.nbytes < 1000 + 80 * number
    (point,) = aggregator.flush()
    (value, *_, n) = scored(point, ["gradient_noise"])["gradient_noise"]
    noise = steps.astype(float).var(axis=0, ddof=1).sum()
    mean = steps.astype(float).mean(axis=0)
    assert value == pytest.approx(noise / (mean @ mean - noise / 200))
    assert n == 200


def test_update_ratio_is_the_mean_norm_of_updates_over_the_norm_of_the_parameter():
    aggregator, relations, weights = Aggregator(), Relations(), []
    for number in range(6):
        weights.append(np.full((3, 4), number + 1, np.float32))
        aggregator.accept([step(number), step(number, array=weights[-1], kind="parameter")])
    found = [evaluate(point, [], ["norm"], relations=relations) for point in aggregator.flush()]
    tables = [table for one in found for table in (one.results, one.later)]
    (ratio,) = [row for table in tables for row in table if row["score"] == "update_ratio"]
    norms = [np.linalg.norm(step(number).array) for number in range(5)]  # number 5 is not finite
    assert ratio["value"] == pytest.approx(np.mean(norms) / np.linalg.norm(weights[-1]))
    assert ratio["n"] == 5


def test_sums_are_sent_to_another_role():
    aggregator = Aggregator()
    for number in range(4):
        aggregator.accept([step(number)])
    (point,) = aggregator.flush()
    body = encode_records(point.records, builtins(point.envelope(last=True)))
    records, envelope = decode_records(body)
    received = DataPoint.read(records, read(envelope, PointEnvelope))
    assert repr(scored(received)) == repr(scored(point))


def test_sums_from_a_client_are_refused():
    aggregator = Aggregator()
    for number in range(2):
        aggregator.accept([step(number)])
    (point,) = aggregator.flush()
    with pytest.raises(Exception, match="malformed"):
        IngestRequest.read(point.records, {})


def test_steps_that_memory_could_not_hold_are_said_to_be_missing():
    aggregator = Aggregator(max_bytes=1500)
    big = record(array=np.zeros((60, 4), np.float32))
    notices = [
        notice for each in (step(0), big, big, step(1)) for notice in aggregator.accept([each]).notices
    ]
    assert [notice.code for notice in notices] == ["memory"]
    (point,) = [point for point in aggregator.flush() if point.key.kind == "update"]
    assert "arrays of this epoch were dropped from memory" in point.lacks
    assert scored(point)["norm"][-1] == 1


def test_loss_is_the_mean_of_all_passes_and_of_one_look_at_a_probe_set():
    losses = np.float32([0.8, 0.4, 0.6])
    for mode, wanted in (("train", [losses.mean(), 3]), ("probe", [losses[-1], 1])):
        aggregator = Aggregator()
        for number, loss in enumerate(losses):
            facts = {"kind": "output", "mode": mode, "address": "loss", "array": np.array(loss)}
            aggregator.accept([step(number, **facts)])
        (point,) = aggregator.flush()
        value, *_, n = scored(point, ["mean"])["mean"]
        assert [value, n] == pytest.approx(wanted)


def test_other_output_without_rows_says_that_it_is_of_one_pass():
    aggregator = Aggregator()
    for number in range(2):
        aggregator.accept([step(number, kind="output")])
    (point,) = aggregator.flush()
    notes = evaluate(point, [], ["mean"]).results["note"].tolist()
    assert notes == ["of the last recorded pass alone, since its rows are not known"]


def test_steps_on_several_data_are_told_of():
    aggregator = Aggregator()
    for number in range(7):
        data = int(number % 3 == 0)
        aggregator.accept([step(number, of_pass=PassFacts(data=data, rows_of=f"data {data}"))])
    (point,) = aggregator.flush()
    assert len(point.records) == 2
    assert scored(point)["norm"][-1] == 6  # one is not finite
    assert {"3 rows of data 1", "4 rows of data 0"} == set(point.doubt.removeprefix("of ").split(" and "))
