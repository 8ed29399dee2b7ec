"""The order of scoring: by worth, with turns, and nothing starves."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_help import point, record, target_of
from sklearn.datasets import load_digits
from starlette.testclient import TestClient
from test_journal import Machine

from intus.core.results import COLUMNS
from intus.engines import LocalEngine
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.http.app import build
from intus.serving.messages import EpochReport
from intus.serving.on_show import OnShow
from intus.serving.roles import Roles
from intus.serving.schedule import CYCLE, LOOKS, TURN, Moment, Place, Schedule, next_moment
from intus.storage.database import Database

DIGITS = load_digits().data.astype(np.float32)


def schedule(shown=(), early=lambda item: None, look=lambda items: None):
    """Return a schedule of (run, epoch, number) with the layer ``number``."""
    place = lambda item: Place(item[0], "m", Moment(0, item[1]), f"{item[2]}")  # noqa: E731
    return Schedule(place, lambda: shown, early, look)


def drained(queue):
    out = []
    while queue:
        out.append(queue.popleft())
    return out


def epochs_of(items):
    """Return the (run, epoch) of each turn."""
    return [key for key, _ in groupby(items, key=lambda item: item[:2])]


ITEMS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=60)


@given(ITEMS, st.lists(st.booleans(), max_size=60))
def test_everything_comes_once_and_epochs_keep_their_order(items, pops):
    queue, out = schedule(), []
    for number, (run, epoch) in enumerate(items):
        queue.append((run, epoch, number))
        if number < len(pops) and pops[number]:
            out.append(queue.popleft())
    out += drained(queue)
    assert sorted(out, key=lambda item: item[2]) == [(*item, number) for number, item in enumerate(items)]
    for key in set(items):
        numbers = [number for *of_run, number in out if (*of_run,) == key]
        assert numbers == sorted(numbers)


@given(ITEMS, st.integers(0, 12))
def test_removed_items_do_not_come(items, epoch):
    queue = schedule()
    numbered = [(*item, number) for number, item in enumerate(items)]
    queue.extend(numbered)
    out = [queue.popleft()] if numbered else []
    removed = queue.remove(lambda item: item[1] == epoch)
    out += drained(queue)
    assert sorted(removed + out) == sorted(numbered)
    assert all(item[1] == epoch for item in removed)
    assert all(item[1] != epoch for item in out[1:])


def test_newest_epoch_of_each_run_comes_first():
    queue = schedule()
    queue.extend((run, epoch, layer) for epoch in range(9) for run in "abc" for layer in range(5))
    out = drained(queue)
    assert epochs_of(out)[:3] == [("a", 8), ("b", 8), ("c", 8)]
    assert [layer for *_, layer in out[:5]] == [0, 1, 2, 3, 4]


def test_older_epochs_come_on_a_grid_from_coarse_to_fine():
    """With a new epoch after every second turn, as while scoring is behind, the curve is evenly covered."""
    queue = schedule()
    queue.extend(("a", epoch, 0) for epoch in range(64))
    out, newest = [], 63
    for turn in range(24):
        out.append(queue.popleft()[1])
        if turn % 2 == 0:
            newest += 1
            queue.append(("a", newest, 0))
    is_new = [epoch > max(out[:turn], default=-1) for turn, epoch in enumerate(out)]
    assert sum(is_new) >= 12  # whenever there is a newer one, but for two of eight turns
    by_worth = [out[turn] for turn in range(24) if not is_new[turn] and turn % CYCLE < CYCLE - 1]
    assert by_worth[0] == 0
    assert [epoch % 8 for epoch in by_worth[:8]] == [0] * 8
    assert [epoch % 4 for epoch in by_worth] == [0] * len(by_worth)
    assert set(range(0, 64, 8)) <= set(out)


def test_two_runs_of_unequal_size_take_turns():
    queue = schedule()
    queue.extend(("big", 0, layer) for layer in range(10 * TURN))
    queue.extend(("small", epoch, 0) for epoch in range(3))
    turns = epochs_of(drained(queue))
    assert turns[:6] == [("big", 0), ("small", 2), ("big", 0), ("small", 0), ("big", 0), ("small", 1)]


def test_begun_epoch_is_finished_before_a_newer_one_of_its_run():
    queue = schedule()
    queue.extend(("a", 0, layer) for layer in range(TURN + 2))
    out = [queue.popleft() for _ in range(TURN)]
    queue.append(("a", 1, 0))
    queue.append(("a", 0, 999))  # not of what was begun
    out += drained(queue)
    assert [item[1] for item in out[TURN:]] == [0, 0, 1, 0]


@pytest.mark.long
@settings(deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=4),
    st.sets(st.integers(0, 3)),
)
def test_nothing_starves_while_more_arrives_than_is_scored(runs, before, arrivals, shown):
    """Every run gets new epochs for ever, some are on show; what waits longest comes within a bound."""
    names = [f"r{number}" for number in range(runs)]
    queue = schedule([(f"r{number}", "m", None) for number in shown])
    queue.extend((name, -epoch, 0) for name in names for epoch in range(before))
    waiting = {(name, -epoch) for name in names for epoch in range(before)}
    new = Counter()
    # each run has every 2 * runs-th turn at least, and each CYCLE-th of these goes to what waits longest
    for step in range(4 * runs * CYCLE * (before + 1)):
        for name in names:
            _, size = arrivals[step % len(arrivals)]
            new[name] += 1
            queue.extend((name, new[name], number) for number in range(size))
        waiting.discard(queue.popleft()[:2])
        if not waiting:
            return
    raise AssertionError(f"{len(waiting)} of {runs * before} starved")


def test_runs_on_show_get_every_other_turn_and_others_the_rest():
    queue = schedule([("c", "m", None), ("gone", "m", None)])
    queue.extend((run, epoch, 0) for epoch in range(40) for run in "abcd")
    turns = Counter(run for run, _, _ in (queue.popleft() for _ in range(60)))
    assert turns["c"] >= 30
    assert min(turns[run] for run in "abd") >= 7


def test_layer_on_show_is_done_early_once_and_keeps_its_turn():
    done = set()

    def early(item):
        if item in done:
            return None
        done.add(item)
        return ("early", item[1], item[2])

    queue = schedule([("a", "m", "7")], early)
    queue.extend(("a", epoch, layer) for epoch in (1, 2) for layer in range(3 * TURN))
    out = [queue.popleft() for _ in range(3)]
    assert out == [("early", 2, 7), ("early", 1, 7), ("a", 2, 0)]
    rest = drained(queue)
    assert sorted(item for item in [*out, *rest] if item[0] == "a") == sorted(
        ("a", epoch, layer) for epoch in (1, 2) for layer in range(3 * TURN)
    )
    assert not [item for item in rest if item[0] == "early"]


def test_newest_epoch_of_each_run_has_a_look_long_before_its_turn():
    looks = []
    queue = schedule(look=lambda items: looks.append(items) or ("look", *items[0]))
    queue.extend((f"r{run}", epoch, layer) for epoch in range(9) for run in range(50) for layer in range(20))
    turns = 50 // LOOKS + 1
    out = []
    while sum(item[0] != "look" for item in out) < 20 * turns:
        out.append(queue.popleft())
    turned = {item[:2] for item in out if item[0] != "look"}
    assert len(turned) == turns
    looked_at = {items[0][:2] for items in looks}
    assert looked_at | turned == {(f"r{run}", 8) for run in range(50)}
    assert all(items == [(*items[0][:2], layer) for layer in range(20)] for items in looks)
    queue.append(("r49", 9, 0))  # a newer epoch has another look
    rest = drained(queue)
    assert ("r49", 9) in {items[0][:2] for items in looks}
    assert len([item for item in [*out, *rest] if item[0] != "look"]) == 50 * 9 * 20 + 1


@given(ITEMS, st.lists(st.booleans(), max_size=60))
def test_looks_are_at_newest_epochs_once_and_change_no_turn(items, pops):
    queue = None

    def order(look):
        nonlocal queue
        queue, out = schedule(look=look), []
        for number, (run, epoch) in enumerate(items):
            queue.append((run, epoch, number))
            if number < len(pops) and pops[number]:
                out += popped(queue)
        while queue:
            out += popped(queue)
        return out

    def popped(queue):
        before, out = len(queue), []
        while len(queue) == before:
            out.append(queue.popleft())
        return out

    seen = []

    def look(looked_at):
        waiting = [item for item in queue if item[0] == looked_at[0][0]]
        newest = max(epoch for _, epoch, _ in waiting)
        assert looked_at == [item for item in waiting if item[1] == newest]
        seen.extend(looked_at)
        return ("look", *looked_at[0])

    out = order(look)
    assert [item for item in out if item[0] != "look"] == order(lambda items: None)
    assert len(seen) == len(set(seen))


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(st.integers(2, 10), st.lists(st.sampled_from([1, 3, TURN - 1, TURN + 1]), min_size=1, max_size=3))
def test_looks_take_a_share_of_the_time_however_fast_epochs_come(runs, sizes):
    looked_at, turned, epoch = 0, 0, 0

    def look(items):
        nonlocal looked_at
        looked_at += len(items)
        return ("look",)

    queue = schedule(look=look)
    while turned < 60:
        epoch += 1
        for run in range(runs):
            queue.extend((f"r{run}", epoch, layer) for layer in range(sizes[(epoch + run) % len(sizes)]))
        while queue.popleft() == ("look",):
            pass
        turned += 1
        assert looked_at <= LOOKS * (turned + TURN) + TURN
    assert looked_at >= min(LOOKS, runs - 1)


def test_single_run_and_epochs_that_had_a_turn_have_no_look():
    looks = []
    queue = schedule(look=lambda items: looks.append(items))
    queue.extend(("a", epoch, layer) for epoch in range(3) for layer in range(3))
    drained(queue)
    assert looks == []


MOMENTS = st.builds(Moment, st.integers(0, 3), st.integers(0, 40))


@given(st.lists(MOMENTS, min_size=1, unique=True), st.integers(0, 99), st.none() | MOMENTS)
def test_choice_of_an_epoch_depends_on_what_waits_and_the_newest_alone(waiting, turn, newest):
    chosen = next_moment(waiting, turn, newest)
    assert chosen in waiting
    assert chosen == next_moment(list(waiting), turn + CYCLE, newest)
    if turn % 4 < 3 and (newest is None or newest < max(waiting)):
        assert chosen == max(waiting)
    elif turn % CYCLE == CYCLE - 1:
        assert chosen == waiting[0]


def test_what_is_on_show_ends():
    now = [0.0]
    on_show = OnShow(lambda: now[0])
    on_show.note("r", "m", "fc1")
    now[0] = 29.0
    on_show.note("s", "m")
    assert on_show.now() == [("r", "m", "fc1"), ("s", "m", None)]
    now[0] = 31.0
    assert on_show.now() == [("s", "m", None)]


# -- the layer on show, end to end ----------------------------------------------------------------------


class Gate(LocalEngine):
    """An engine that scores when the test says so, and notes what it was asked to score."""

    def __init__(self):
        self.open, self.asked = threading.Event(), []
        self.second = lambda: None

    def submit(self, task):
        def answer():
            self.asked.append((task.arguments[0].epoch, task.arguments[0].key.address))
            self.open.wait(60)
            if len(self.asked) == 2:
                self.second()
            return LocalEngine().submit(task)()

        return answer


def test_layer_that_a_page_shows_is_scored_ahead_and_counted_once(tmp_path, monkeypatch):
    monkeypatch.setattr("intus.serving.schedule.TURN", 2)
    engine, done = Gate(), []
    with Database(tmp_path / "x.db") as database:
        frontend = Frontend(database)
        evaluator = Evaluator(frontend, engine=engine, on_show=frontend.on_show.now)
        page = TestClient(build(Roles(evaluator=evaluator, frontend=frontend)))
        for epoch in range(3):
            points = [
                point(record(array=DIGITS[:9] + 9 * epoch + n, address=f"l{n}", epoch=float(epoch)))
                for n in range(4)
            ]
            evaluator.points(points, lambda point, scored: done.append((point.epoch, point.key.address)))
            if epoch == 0:
                while not engine.asked:
                    time.sleep(0.01)
                shown = {"run": "r", "model": "m", "address": "l3", "target": "t", "score": "linear_f1"}
                assert page.get("/api/confusion", params=shown).status_code == 200
        engine.open.set()
        evaluator.flush()
        asked = engine.asked[2:]  # what was begun before the page asked
        assert asked[:4] == [(2, "l3"), (1, "l3"), (0, "l2"), (0, "l3")]  # the begun epoch has its turn
        assert sorted(asked[2:]) == sorted((epoch, f"l{n}") for epoch in range(3) for n in range(4))[2:]
        assert sorted(done) == [(epoch, f"l{number}") for epoch in range(3) for number in range(4)]
        assert evaluator.status()["scored"] == 12
        assert sum(database.columns("r", "m", ["revision"])["revision"]) == 0
        evaluator.close()


@pytest.mark.long
@pytest.mark.parametrize("splits", [1, 3])
def test_newest_epoch_of_each_run_has_its_first_scores_before_the_second_turn(tmp_path, splits):
    """The scores that are shown early are those that are stored in the end."""
    engine, names = Gate(), [f"r{number}" for number in range(6)]
    with Database(tmp_path / "x.db") as database:
        evaluator = Evaluator(Frontend(database), engine=engine, splits=splits)
        evaluator.put_target(target_of({"name": "t", "targets": [0, 1] * 20, "client": "c"}))
        evaluator.points([point(record(run="r0", array=DIGITS[:40], epoch=0.0))])
        while not engine.asked:
            time.sleep(0.01)
        for name in names:
            for epoch in range(1, 4):
                layers = (("conv", "output", DIGITS[:40]), ("fc", "output", DIGITS[40:80].astype(np.float16)))
                layers += (("conv", "grad_output", np.where(DIGITS[:40] > 9, np.inf, DIGITS[:40])),)
                facts = {"run": name, "epoch": epoch, "items": np.arange(40)}
                evaluator.points(
                    [
                        point(record(array=array * epoch, address=address, kind=kind, **facts))
                        for address, kind, array in layers
                    ]
                )
        asked, go_on = threading.Event(), threading.Event()
        engine.second = lambda: (asked.set(), go_on.wait(60))
        engine.open.set()
        assert asked.wait(60)
        first = {name: database.points(name, "m") for name in names[1:]}
        assert evaluator.status()["scored"] == 1
        go_on.set()
        evaluator.flush()
        evaluator.close()
        for name, early in first.items():
            assert set(early["epoch"]) == {3.0}
            assert {"mean", "norm", "std", "nonfinite"} <= set(early["score"])
            assert set(zip(early["address"], early["kind"], strict=True)) == {
                ("conv", "output"), ("fc", "output"), ("conv", "grad_output")
            }  # fmt: skip
            in_the_end = rows_of(database.points(name, "m"))
            assert set(rows_of(early)) <= set(in_the_end)
            assert "linear_f1" in set(database.points(name, "m")["score"])
            assert sum(database.columns(name, "m", ["revision"])["revision"]) == 0


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/api/points?run=r&model=m", ("r", "m", None)),
        ("/api/points?run=r&model=m&address=fc1", ("r", "m", "fc1")),
        ("/api/status?run=r&model=m", ("r", "m", None)),
        ("/api/confusion?run=r&model=m&address=fc1&target=t&score=f1", ("r", "m", "fc1")),
        ("/api/status", None),
    ],
)
def test_requests_of_a_page_tell_what_it_shows(tmp_path, path, shown):
    with Database(tmp_path / "x.db") as database:
        frontend = Frontend(database)
        assert TestClient(build(Roles(frontend=frontend))).get(path).status_code == 200
        assert frontend.on_show.now() == ([] if shown is None else [shown])


# -- what is said of it ---------------------------------------------------------------------------------


def test_postponed_epochs_are_counted_and_told_once(tmp_path):
    machine = Machine(tmp_path / "journal")
    now = [0.0]
    machine.service._clock = lambda: now[0]

    def row():
        return machine.service.counts().runs[0]

    for epoch in range(100):
        machine.send(epoch, seq=epoch, epoch=epoch)
    machine.service.flush()
    assert (row().queued, row().postponed) == (100, 0)
    waiting = machine.evaluator.waiting
    for number in (99, 0):  # the newest, which was scored in 10 s, and the first
        now[0] += 10
        each, done = waiting[number]
        done(each, True)
        machine.service.tick()
    assert (row().queued, row().postponed) == (98, 98)
    assert row().seconds_left > 60
    told = [notice for notice in machine.evaluator.received_notices if notice.code == "behind"]
    assert [(notice.run, notice.level) for notice in told] == [("r", "warning")]
    for each, done in waiting[1:99]:
        done(each, True)
    machine.service.tick()
    assert (row().queued, row().postponed, row().scored) == (0, 0, 100)
    assert not machine.on_disk()
    machine.stop()


def test_postponed_epochs_survive_a_kill(tmp_path):
    machine = Machine(tmp_path / "journal")
    for epoch in range(20):
        machine.send(epoch, seq=epoch, epoch=epoch)
    machine.service.flush()
    for each, done in list(machine.evaluator.waiting):
        if each.epoch in (19, 0, 16):
            done(each, True)
    machine.kill()
    machine.service.flush()
    left = {each.epoch for each in machine.evaluator.got}
    assert set(range(1, 19)) - {16} <= left
    machine.stop()


# -- the scores do not depend on the order --------------------------------------------------------------


def epochs_sent(order_holds: bool):
    """Return what an aggregator passes on of two models, a batch for each of four epochs."""
    aggregator, batches = Aggregator(), []
    for epoch in range(4):
        records, seq = [], epoch + 1
        for address in ("conv", "block", "block.fc", "head"):
            array = DIGITS[:40] * (1 + epoch) + len(address) * DIGITS[40:80]
            array = array if address != "block.fc" else DIGITS[:40] * (1 + epoch) + 5 * DIGITS[40:80]
            ids = np.arange(40)
            records.append(record(array=array, address=address, epoch=float(epoch), items=ids))
        lost = None if order_holds or not epoch else np.arange(-40, 0)
        records.append(record(array=array, address="conv", epoch=float(epoch), items=lost, mode="eval"))
        for kind in ("parameter", "update"):
            array = DIGITS[epoch : epoch + 8] / (1 + (kind == "update"))
            records.append(
                record(array=array, address="conv", kind=kind, batch_axis=None, epoch=float(epoch))
            )
        report = EpochReport("r", "m", float(epoch), sent=len(records), ended=True)
        batches.append(aggregator.accept(records, "c", seq, reports=[report]).ready)
    return batches


def scores_of(folder, batches):
    """Return all rows of a database for which the batches were scored one after the other."""
    with Database(folder / "x.db") as database:
        evaluator = Evaluator(Frontend(database))
        labels = [number % 2 for number in range(40)]
        evaluator.put_target(target_of({"name": "t", "targets": labels, "client": "c"}))
        for batch in batches:
            evaluator.points(batch)
            evaluator.flush()
        evaluator.close()
        return rows_of(database.points("r", "m"))


def rows_of(found):
    return sorted(map(repr, zip(*(found[name].tolist() for name in COLUMNS), strict=True)))


@pytest.mark.long
@pytest.mark.parametrize("order_holds", [True, False])
def test_scores_do_not_depend_on_the_order_of_epochs(tmp_path, order_holds):
    found = []
    for place, order in enumerate([(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]):
        folder, batches = tmp_path / f"{place}", epochs_sent(order_holds)
        folder.mkdir()
        found.append(scores_of(folder, [batches[epoch] for epoch in order]))
    for name in ("cka_epoch", "cka_layer", "update_ratio", "linear_f1"):
        assert any(name in row for row in found[0])
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("first", ["conv", "flat"])
def test_rows_in_another_shape_are_scored_once_with_relations_of_their_own(tmp_path, first):
    """A layer that flattens has the scores of the layer before it, and is compared with that layer itself."""
    rows = np.random.default_rng(0).normal(size=(60, 2, 3)).astype(np.float32)[:, :, None]
    arrays = {"before": rows[..., ::-1] ** 2, "conv": rows, "flat": rows.reshape(60, 6)}
    names = ["before", first, *({"conv", "flat"} - {first})]
    asked, tables = [], {}
    for name, engine in (("once", Counting(asked)), ("alone", LocalEngine())):
        with Database(tmp_path / f"{name}.db") as database:
            evaluator = Evaluator(Frontend(database), engine=engine)
            evaluator.put_target(target_of({"name": "t", "targets": [0, 1] * 30}))
            points = [
                point(record(array=np.ascontiguousarray(arrays[layer]), address=layer, items=np.arange(60)))
                for layer in names
            ]
            for one in [points] if name == "once" else [[each] for each in points]:
                evaluator.points(one)
                evaluator.flush()
            columns = ["address", "score", "target", "value", "low", "high", "baseline", "n", "note"]
            table = database.points("r", "m")
            tables[name] = sorted(zip(*(map(str, table[column]) for column in columns), strict=True))
            evaluator.close()
    assert asked == names[:2]
    assert tables["once"] == tables["alone"]


@pytest.mark.parametrize("labels", [[[0, 1]] * 30 + [[1, 0]] * 30, [0, 1] * 30], ids=["positions", "items"])
def test_shape_counts_where_positions_have_labels(tmp_path, labels):
    rows, asked = np.random.default_rng(0).normal(size=(60, 2, 3)).astype(np.float32), []
    with Database(tmp_path / "x.db") as database:
        evaluator = Evaluator(Frontend(database), engine=Counting(asked))
        evaluator.put_target(target_of({"name": "t", "targets": labels}))
        ids = np.arange(60)
        arrays = {"tokens": rows, "flat": rows.reshape(60, 6)}
        evaluator.points([point(record(array=a, address=n, items=ids)) for n, a in arrays.items()])
        evaluator.flush()
        evaluator.close()
    assert asked == (["tokens", "flat"] if isinstance(labels[0], list) else ["tokens"])


class Counting:
    """A local engine that notes the layers it is asked to score."""

    ahead = 1

    def __init__(self, asked):
        self.asked = asked

    def submit(self, task):
        self.asked.append(task.arguments[0].key.address)
        return LocalEngine().submit(task)

    def close(self):
        pass
