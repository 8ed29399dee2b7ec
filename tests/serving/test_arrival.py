"""Labels matched by order of arrival: unverified, then verified by a second epoch or withdrawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_help import point, record, target_of
from starlette.testclient import TestClient
from test_journal import Machine

from intus.core.results import Results
from intus.serving.decoding import encode
from intus.serving.evaluation.arrival_order import BY_ORDER, UNVERIFIED, WITHDRAWN, ArrivalOrder, disproved
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.http.app import build
from intus.serving.roles import Roles
from intus.storage.database import Database

LOST = np.arange(-4, 0)


def news_and_notes(orders, *points):
    """Return the news of each data point, and the note that scores matched by order then have."""
    out = []
    for one in points:
        results = Results.from_rows([{"score": "x", "note": f"{UNVERIFIED}; incomplete: 3 of 4"}])
        out.append((orders.news(one), orders.update(one, results)["note"].tolist()[0].partition(";")[0]))
    return out


def test_second_epoch_verifies_order_once():
    first, second, third = (point(record(epoch=epoch)) for epoch in range(3))
    assert news_and_notes(ArrivalOrder(), first, first, second, second, third) == [
        (None, UNVERIFIED),
        (None, UNVERIFIED),
        (True, BY_ORDER),
        (None, BY_ORDER),
        (None, BY_ORDER),
    ]


def test_unknown_rows_disprove_order():
    lost = [point(record(epoch=epoch, items=LOST)) for epoch in (1, 2)]
    assert [news for news, _ in news_and_notes(ArrivalOrder(), point(record()), *lost)] == [None, False, None]


def test_news_is_repeated_until_update():
    orders, second = ArrivalOrder(), point(record(epoch=1))
    news_and_notes(orders, point(record()))
    assert [orders.news(second), orders.news(second)] == [True, True]


def test_order_is_tracked_per_run_model_and_mode():
    orders = ArrivalOrder()
    news_and_notes(orders, point(record()))
    others = [{"mode": "eval"}, {"run": "s"}, {"model": "n"}, {"items": np.arange(4)}, {"batch_axis": None}]
    told = [point(record(**({"epoch": 1} | facts))) for facts in others]
    assert [news for news, _ in news_and_notes(orders, *told)] == [None] * 5
    orders.forget("r", "m")
    assert news_and_notes(orders, point(record(epoch=1))) == [(None, UNVERIFIED)]


def test_restarted_training_is_verified_anew():
    epochs = (4, 0), (5, 0), (0, 1), (1, 1)
    points = [replace(point(record(epoch=epoch)), attempt=attempt) for epoch, attempt in epochs]
    assert news_and_notes(ArrivalOrder(), *points, points[0]) == [
        (None, UNVERIFIED),
        (True, BY_ORDER),
        (None, UNVERIFIED),
        (True, BY_ORDER),
        (None, UNVERIFIED),  # of the first training: the check is of the second one
    ]


def test_training_started_again_under_its_name_is_another_attempt(tmp_path):
    machine = Machine(tmp_path / "journal")
    for epoch in range(4):
        machine.send(epoch, seq=epoch, epoch=epoch)
    machine.time += 10.0  # no process of the first training sends any more
    machine.send(9, seq=0, client="again", epoch=0)
    machine.service.flush()
    found = [(each.epoch, each.attempt, each.previous) for each in machine.evaluator.got]
    assert found == [(0, 0, None), *((epoch, 0, (epoch - 1, -1)) for epoch in (1, 2, 3)), (0, 1, None)]
    machine.kill()
    machine.service.flush()
    machine.send(10, seq=1, client="again", epoch=1)
    machine.service.flush()
    found = [(each.epoch, each.attempt, each.previous) for each in machine.evaluator.got]
    machine.journal.close()
    assert found[-2:] == [(0, 1, None), (1, 1, (0, -1))]
    assert [attempt for _, attempt, _ in found[:-2]] == [0, 0, 0, 0]


def test_order_is_checked_whichever_epoch_is_scored_first():
    points = [point(record(epoch=epoch)) for epoch in (3, 0, 1)]
    found = [(None, UNVERIFIED), (True, BY_ORDER), (None, BY_ORDER)]
    assert news_and_notes(ArrivalOrder(), *points) == found
    orders, lost = ArrivalOrder(), point(record(epoch=1, items=LOST))
    rows = Results.from_rows([by_order(), {"score": "mean", "value": 1.0}])
    assert orders.news(lost) is False
    orders.update(lost, Results())
    first = orders.update(point(record()), rows)  # scored after the second epoch withdrew it
    assert first["note"].tolist() == [WITHDRAWN, ""]
    assert np.isnan(first["value"][0])
    assert np.isnan(first["low"][0])
    assert first["value"][1] == 1


@pytest.mark.parametrize("first", [0, 1])
def test_withdrawal_is_told_whichever_epoch_is_scored_first(tmp_path, first):
    labels = [number % 2 for number in range(40)]
    epochs = [point(record(40, epoch=0)), point(record(40, epoch=1, items=np.full(40, -1)))]
    with Database(tmp_path / "x.db") as database:
        evaluator = Evaluator(Frontend(database), scores=["lda_f1"])
        evaluator.put_target(target_of({"name": "t", "targets": labels}))
        for each in (epochs[first], epochs[1 - first]):
            evaluator.points([each])
            evaluator.flush()
        evaluator.close()
        table = database.points("r", "m").where(score="lda_f1", epoch=0.0)
        notices = [notice["text"] for notice in database.notices() if notice["code"] == "order"]
    assert table["note"].tolist() == [WITHDRAWN]
    assert notices == [f"Scores of the first epoch in mode train are {WITHDRAWN}."]


def test_withdrawn_score_stays_so_when_its_epoch_is_scored_again_after_a_restart(tmp_path):
    """The server was killed before it had noted that the first epoch was scored, and after the second was."""
    labels = target_of({"name": "t", "targets": [number % 2 for number in range(40)]})
    first = replace(point(record(40, epoch=0)), training=5.0)
    second = replace(point(record(40, epoch=1, items=np.full(40, -1))), training=5.0)
    newer = replace(first, training=6.0, attempt=1)

    def score(*points):
        evaluator = Evaluator(Frontend(database), scores=["lda_f1"])
        evaluator.put_target(labels)
        for each in points:
            evaluator.points([each])
            evaluator.flush()
        found = database.points("r", "m").where(score="lda_f1", epoch=0.0)
        return found["note"].tolist(), np.isnan(found["value"]).tolist()

    with Database(tmp_path / "x.db") as database:
        assert score(first, second) == ([WITHDRAWN], [True])
        assert score(first) == ([WITHDRAWN], [True])
        assert score(newer) == ([UNVERIFIED], [False])  # of another training nothing was found


def by_order(kind="output", value=0.5, note=UNVERIFIED):
    return {"run": "r", "model": "m", "epoch": 0, "address": "fc1", "kind": kind, "score": "f1"} | {
        "target": "t",
        "value": value,
        "low": 0.4,
        "note": note,
    }


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
def test_stored_scores_are_verified_or_withdrawn(tmp_path, holds, apart):
    rows = [by_order(), by_order("output@eval") | {"mode": "eval"}]
    rows.append(by_order("input", note=f"{UNVERIFIED}; a doubt"))
    rows.append(by_order("grad_output", note="matched 3 of 4 labels"))
    with Database(tmp_path / "x.db") as database:
        frontend = Frontend(database)
        frontend.results(Results.from_rows(rows))
        disproof = disproved(point(record(mode="")))
        for remote in (apart, False):
            page = TestClient(build(Roles(None, None, frontend)))
            if not remote:
                frontend.arrival_order("r", "m", "") if holds else frontend.put_doubt(disproof)
            elif holds:
                said = {"run": "r", "model": "m", "mode": ""}
                assert page.post("/order", json=said).status_code == 200
            else:
                assert page.post("/doubts", content=encode(disproof)).status_code == 200
        found = database.columns("r", "m", ["kind", "value", "low", "note", "revision"])
        notices = [notice["code"] for notice in database.notices()]
    stored = dict(zip(found.pop("kind"), zip(*found.values(), strict=True), strict=True))
    if holds:
        assert stored["output"] == (0.5, 0.4, BY_ORDER, 1)
        assert stored["input"] == (0.5, 0.4, f"{BY_ORDER}; a doubt", 1)
    else:
        assert stored["output"] == stored["input"] == (None, None, WITHDRAWN, 1)
    assert stored["output@eval"] == (0.5, 0.4, UNVERIFIED, 0)
    assert stored["grad_output"] == (0.5, 0.4, "matched 3 of 4 labels", 0)
    assert notices == ([] if holds else ["order"])


def test_revise_changes_named_mode_only(tmp_path):
    with Database(tmp_path / "x.db") as database:
        database.add(Results.from_rows([by_order(), by_order("output@dev_1"), by_order("output@devX1")]))
        assert database.revise("r", "m", "dev_1", UNVERIFIED, BY_ORDER) == 1
        assert database.revise("r", "other", "", UNVERIFIED, BY_ORDER) == 0
