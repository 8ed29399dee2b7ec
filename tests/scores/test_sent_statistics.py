"""Statistics that were made where the model runs: on the wire, in the journal, and as scores of a server."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from intus.backends.row_sums import RowPlan
from intus.backends.torch.row_sums import row_sums
from intus.core.errors import CodecError, InputError
from intus.core.record import OF_PROBE_SET, PROBE_SET_MODE, Record
from intus.scores.statistics.sent import KnownRows
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.ingest import IngestRequest
from intus.serving.aggregation.journal import Journal
from intus.serving.aggregation.service import AggregatorService
from intus.serving.data_point import DataPoint, Key
from intus.serving.evaluation.relations import Relations
from intus.serving.evaluation.scoring import evaluate
from intus.serving.evaluation.targets import Target
from intus.serving.messages import TargetRequest
from intus.storage import codec
from intus.storage.codec import decode_records, encode_records

DIGITS = load_digits()
ROWS = np.arange(1797)
FACTS = {"run": "r", "model": "m", "epoch": 0, "mode": PROBE_SET_MODE}


def target_of(name, labels):
    return Target.parse(
        TargetRequest(name=name, targets=labels, client=f"c{OF_PROBE_SET}r m", run_pattern="r")
    )


def point(*records):
    return DataPoint(Key.of(records[0]), "output", 0, -1, records)


TARGET = target_of("digit", DIGITS.target.tolist())


def sent(rank=0, ranks=1, address="fc", data=DIGITS.data):
    """Return the record of a rank's share of the digits."""
    rows = ROWS[rank::ranks]
    known = KnownRows(rows, {"digit": DIGITS.target[rows]})
    plan = RowPlan(False, known.kept, known.masks, known.classes)
    sums = row_sums(torch.tensor(data[rows], dtype=torch.float32), plan, 0)
    array, items, statistics = known.packed(sums, rank=rank, ranks=ranks)
    return Record(array, address, items=items, statistics=statistics, **FACTS)


def rows_of(address="fc", data=DIGITS.data):
    return Record(data.astype(np.float32), address, items=ROWS, **FACTS)


def table(evaluation):
    results = evaluation.results
    columns = (results[name].tolist() for name in ("score", "target", "value", "n", "note"))
    return {(score, target): facts for score, target, *facts in zip(*columns, strict=True)}


def test_wire_keeps_statistics():
    records, envelope = decode_records(encode_records([sent(), rows_of()], {"seq": 3}))
    assert envelope == {"seq": 3}
    assert records[1].statistics is None
    before, after = sent().statistics, records[0].statistics
    assert after.facts == before.facts
    assert after.arrays.keys() == before.arrays.keys()
    assert all(np.array_equal(after.arrays[name], before.arrays[name]) for name in before.arrays)


def test_older_server_refuses_statistics_and_takes_rows(monkeypatch):
    monkeypatch.setitem(codec._READABLE, "records", ("1",))  # as in the version before
    assert decode_records(encode_records([rows_of()]))[0][0].rows == 1797
    with pytest.raises(CodecError, match="Written by another version of intus, in format '2'"):
        decode_records(encode_records([sent()]))


def test_scores_of_finite_entries_whose_sums_overflow_say_so():
    """Sums are of float32 there. Before, the note was "nan"."""
    found = table(
        evaluate(point(sent(data=DIGITS.data * 1e30)), [TARGET], ["norm", "std", "max", "nonfinite"])
    )
    assert found["nonfinite", ""][0] == 0
    assert found["max", ""] == [pytest.approx(1.6e31), 1797, ""]
    for name in ("norm", "std"):
        value, *others = found[name, ""]
        assert not np.isfinite(value)
        assert others == [1797, "sums of entries of up to 2e+31 overflow"]


def test_scores_are_those_of_the_rows():
    scores = ["linear_f1", "lda_f1", "mean", "std", "participation_ratio", "dead"]
    found, wanted = (table(evaluate(point(record), [TARGET], scores)) for record in (sent(), rows_of()))
    assert found.keys() == wanted.keys()
    for key, (value, n, note) in wanted.items():
        assert found[key] == [pytest.approx(value, abs=1e-3, rel=1e-3), n, note]


def test_ranks_are_merged_in_any_order_and_missing_ones_are_named():
    one = table(evaluate(point(sent()), [TARGET]))
    records = [decode_records(encode_records([sent(rank, 4)]))[0][0] for rank in (2, 0, 3, 1)]
    four = table(evaluate(point(*records), [TARGET]))
    for key in (("linear_f1", "digit"), ("mean", ""), ("std", ""), ("participation_ratio", "")):
        assert four[key] == [pytest.approx(one[key][0], abs=1e-3, rel=1e-3), *one[key][1:]]
    three = table(evaluate(point(*records[:3]), [TARGET]))
    assert three["mean", ""][1:] == [1797 - 449, "3 of 4 ranks"]
    assert three["linear_f1", "digit"][2] == "3 of 4 ranks"
    assert three["linear_f1", "digit"][1] < one["linear_f1", "digit"][1]


def test_last_statistics_of_a_rank_count():
    again = table(evaluate(point(sent(), sent()), [TARGET]))
    assert again["mean", ""][1] == 1797


def test_scores_that_need_rows_say_so():
    found = table(evaluate(point(sent()), [TARGET], ["correlation", "mean"]))
    assert np.isnan(found["correlation", ""][0])
    assert "statistics=False) sends the rows" in found["correlation", ""][2]
    assert found["mean", ""][0] == pytest.approx(DIGITS.data.mean())


def test_other_splits_of_the_server_are_noted():
    found = table(evaluate(point(sent()), [TARGET], ["linear_f1", "mean"], seed=3, splits=2))
    assert found["linear_f1", "digit"][2] == "one split, of seed 0"
    assert found["mean", ""][2] == ""


def test_layers_and_epochs_are_compared():
    relations = Relations()
    other = DIGITS.data @ np.random.default_rng(0).normal(size=(64, 20))
    found = []
    for make in (sent, rows_of):
        relations = Relations()
        evaluate(point(make()), [TARGET], relations=relations)
        found.append(table(evaluate(point(make(address="fc2", data=other)), [TARGET], relations=relations)))
    statistics, rows = (each["cka_layer", ""] for each in found)
    assert statistics == [pytest.approx(rows[0], abs=1e-3), *rows[1:]]


def test_interval_of_cka_of_sketched_layers_covers_that_of_all_features():
    """Turn a layer: its CKA with the one before is 1, which the interval of the sketches excluded."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(2000, 64)))[0]
    noisy = DIGITS.data + rng.normal(0, 6, DIGITS.data.shape)
    relations = Relations()
    evaluate(point(sent(data=noisy)), [TARGET], relations=relations)
    made = evaluate(point(sent(address="fc2", data=noisy @ turn.T)), [TARGET], relations=relations).results
    (found,) = (row for row in made if row["score"] == "cka_layer")
    assert found["low"] <= 1 - 1e-6
    assert found["high"] >= 1 - 1e-6
    assert "2,000 features sketched to 1,024" in found["note"]


def test_mixed_rows_and_statistics_are_refused():
    with pytest.raises(InputError, match="statistics by others"):
        evaluate(point(sent(), rows_of()), [TARGET])


def test_target_without_statistics_is_a_misfit():
    other = target_of("other", [0, 1])
    found = evaluate(point(sent()), [TARGET, other], ["linear_f1"])
    assert found.fitted == {"digit"}
    assert "of the labels ['digit']" in found.misfits["other"]


def test_malformed_statistics_are_refused_at_ingest():
    record = sent()
    facts = json.loads(json.dumps(record.statistics.facts)) | {"ranks": "4"}
    bad = replace(record, statistics=replace(record.statistics, facts=facts))
    request = IngestRequest.read([bad, rows_of("fc2")], {})
    assert [one.address for one in request.records] == ["fc2"]
    assert "are malformed" in request.unusable[0].text


class Points:
    """An evaluator that keeps the data points it is given."""

    def __init__(self):
        self.got = []

    def points(self, batch, done):
        self.got += batch

    def backlog(self):
        return 0

    def check(self):
        """Take everything."""

    def troubles(self):
        return {}

    def flush(self, run=None, model=None, timeout=None):
        """Wait for nothing."""

    def report(self, report):
        """Ignore counts."""


def test_journal_keeps_statistics_of_a_killed_server(tmp_path):
    """Records of two ranks, one before the server is killed, are one data point after it."""
    scores = []
    for kill in (False, True):
        journal, evaluator = Journal(tmp_path / f"journal {kill}"), Points()
        service = AggregatorService(evaluator, Aggregator(), journal)
        for rank in range(2):
            blob = encode_records([sent(rank, 2)], {"client": f"c{rank}", "seq": 1})
            assert service.records(*decode_records(blob), blob).accepted == 1
            if kill and rank == 0:
                journal.close()
                journal = Journal(tmp_path / f"journal {kill}")
                service = AggregatorService(evaluator, Aggregator(), journal)
        service.flush()
        journal.close()
        (found,) = evaluator.got
        assert len(found.records) == 2
        scores.append(table(evaluate(found, [TARGET], ["linear_f1", "mean"])))
    assert scores[0] == scores[1]
    assert scores[0]["mean", ""][1:] == [1797, ""]
