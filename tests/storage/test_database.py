"""The database of scores, graphs, targets and notices."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections import OrderedDict

import numpy as np
import pytest
import sqlalchemy as sa
import torch
from small_graph import small_graph
from sqlalchemy.dialects import postgresql

import intus
from intus.core.doubt import Doubt
from intus.core.errors import CodecError, InputError
from intus.core.followup import UnitExamples, UnitVerification
from intus.core.results import COLUMNS, Results
from intus.core.score_info import ScoreInfo
from intus.serving.evaluation.targets import Target
from intus.storage import migrations, tables
from intus.storage.codec import encode_graph
from intus.storage.database import Database, network_order

VERIFICATION = UnitVerification([], ["no ablation: none"])


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def place(request, tmp_path):
    """Return a place for a new database: a path, or with ``-m postgres`` the URL of a PostgreSQL database."""
    if request.param == "sqlite":
        return str(tmp_path / "scores.db")
    return request.getfixturevalue("new_postgres")()


@pytest.fixture
def database(place):
    with Database(place) as opened:
        yield opened


def raw(database, query):
    """Return the rows of a query, bypassing ``Database``."""
    with database._engine.connect() as connection:
        return [tuple(row) for row in connection.execute(sa.text(query))]


def rows(**changes):
    base = {"run": "r", "model": "m", "epoch": 0, "address": "fc1", "score": "mean", "value": 1.0, "n": 5}
    return Results.from_rows([base | changes])


def test_locked_database_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BUSY_S", 0.1)
    holder = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    holder.execute("PRAGMA journal_mode=WAL")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InputError, match=r"database is locked\. Another program has locked it"):
        Database(tmp_path / "x.db")
    holder.close()
    Database(tmp_path / "x.db").close()


def test_last_registered_target_is_newest_if_clock_goes_back(database, monkeypatch):
    database.put_target("digit", [1], owner="a")
    monkeypatch.setattr("intus.storage.labels.time.time", lambda: 5.0)
    database.put_target("digit", [2], owner="b")
    assert [target["owner"] for target in database.targets()] == ["a", "b"]


def test_results_round_trip(database):
    table = Results.from_rows(
        [
            {"run": "r", "model": "m", "epoch": 0.5, "step": 3, "address": "fc1", "unit": 7, "kind": "input",
             "target": "digit", "score": "iou", "value": 0.25, "low": 0.1, "high": 0.4, "baseline": 0.2,
             "n": 9, "note": "as noted"},
            {"run": "r", "model": "m", "address": "fc1", "score": "mean", "value": -1.0},
        ]
    )  # fmt: skip
    assert database.add(table) == 2
    got = {row["score"]: row for row in database.points("r", "m")}
    assert got == {row["score"]: row for row in table}


def test_existing_row_is_replaced_and_counted_once(database):
    assert database.add(rows(value=1.0)) == 1
    assert database.add(rows(value=2.0, note="revised")) == 0
    points = database.points("r", "m")
    assert points["value"].tolist() == [2.0]
    assert points["note"].tolist() == ["revised"]
    assert database.runs()[0]["points"] == 1


def test_last_of_duplicate_rows_is_stored(database):
    assert database.add(Results.concat([rows(value=1.0), rows(value=3.0), rows(epoch=1)])) == 2
    assert database.points("r", "m", epoch=0)["value"].tolist() == [3.0]


@pytest.mark.parametrize(("value", "note"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_nonfinite_value_is_null_with_note(database, value, note):
    database.add(rows(value=value, low=np.inf))
    assert raw(database, "SELECT value, low, note FROM point") == [(None, None, note)]
    assert np.isnan(database.points("r", "m")["value"]).all()


def test_given_note_of_missing_value_is_stored(database):
    database.add(rows(value=np.nan, note="one class"))
    assert database.points("r", "m")["note"].tolist() == ["one class"]


def test_unknown_epoch_round_trip(database):
    database.add(Results.concat([rows(epoch=None), rows(epoch=-1)]))
    assert np.isnan(database.points("r", "m")["epoch"][0])
    assert database.runs()[0]["epochs"] == [-1.0]


def test_points_filtered_by_column_and_level(database):
    database.add(
        Results.concat([rows(), rows(score="std"), rows(unit=3, target="loop", score="iou"), rows(epoch=1)])
    )
    assert len(database.points("r", "m")) == 4
    assert len(database.points("r", "m", level="layer")) == 3
    assert database.points("r", "m", level="unit")["unit"].tolist() == [3]
    assert len(database.points("r", "m", score="mean", epoch=1)) == 1
    assert len(database.points("r", "nobody")) == 0
    with pytest.raises(InputError, match=r"no column 'sorce'\. Did you mean 'score'"):
        database.points("r", "m", sorce="mean")
    with pytest.raises(InputError, match="level='row'"):
        database.points("r", "m", level="row")


def test_points_are_ordered_by_epoch(database):
    database.add(Results.concat([rows(epoch=epoch) for epoch in (10, 2, 0.5)]))
    assert database.points("r", "m")["epoch"].tolist() == [0.5, 2, 10]


def test_runs_summarize_contents(database):
    database.add(Results.concat([rows(address="b"), rows(address="a", target="digit", score="linear_f1")]))
    database.add(rows(run="later", kind="input"))
    database.add(rows(run="later", unit=1, score="iou", target="loop"))
    later, earlier = database.runs()
    assert (later["run"], earlier["run"]) == ("later", "r")
    assert earlier["addresses"] == ["b", "a"]  # in order of first appearance: there is no graph
    assert (earlier["targets"], earlier["scores"]) == (["digit"], ["mean", "linear_f1"])
    assert (later["kinds"], later["scores"]) == (["input"], ["mean"])
    assert later["units"] == [{"score": "iou", "target": "loop"}]
    assert earlier["has_graph"] is False
    assert earlier["points"] == 2


def test_graph_orders_addresses(database):
    graph = small_graph()
    for address in ("", "act", "fc", "fc.a:2", "fc.a", "elsewhere"):
        database.add(rows(address=address))
    assert database.graph("r", "m") is None
    blob = encode_graph(graph)
    database.put_graph("r", "m", blob)
    database.put_graph("r", "m", blob)
    assert database.graph("r", "m") == blob
    run = database.runs()[0]
    assert run["addresses"] == ["fc.a", "act", "fc.a:2", "fc", "", "elsewhere"]
    assert (run["has_graph"], run["framework"]) == (True, "torch")


def test_network_order_includes_operations():
    order = network_order(small_graph())
    assert (
        order["linear_1_1"] < order["fc.a"] < order["relu_1_2"] < order["act"] < order["fc.a:2"] < order[""]
    )
    assert order["fc.a"] == order["fc.a:1"]


def test_network_order_of_a_module_that_returns_its_input():
    layers = [("linear", torch.nn.Linear(2, 2)), ("same", torch.nn.Identity())]
    first = torch.nn.Sequential(OrderedDict(layers))
    graph = intus.trace(
        torch.nn.Sequential(first, torch.nn.Identity(), torch.nn.ReLU()), torch.ones(1, 2)
    ).graph
    order = network_order(graph)
    assert order["0.linear"] < order["0.same"] < order["0"] < order["1"] < order["2"] < order[""]


def test_connection_that_can_only_read_is_replaced(tmp_path):
    """SQLite opens a file so, without an error, if opening it for writing fails once."""
    with Database(tmp_path / "x.db") as database:
        database._engine.dispose()
        opened = []

        def connect(dialect, record, arguments, options):
            opened.append(arguments)
            if len(opened) == 1:
                return sqlite3.connect(f"{(tmp_path / 'x.db').as_uri()}?mode=ro", uri=True, **options)
            return None

        sa.event.listen(database._engine, "do_connect", connect)
        with pytest.raises(sa.exc.OperationalError, match="readonly database"):
            database.add(rows())
        for _ in range(3):
            database.add(rows())
        assert len(opened) == 2
        assert len(database.points("r", "m")) == 1


def test_put_graph_refuses_other_bytes(database):
    with pytest.raises(CodecError):
        database.put_graph("r", "m", b"nothing")
    assert database.runs() == []


def test_repeated_notice_is_counted(database):
    for _ in range(3):
        database.add_notice("misfit", "3 labels, 5 rows", run="r", model="m")
    database.add_notice("other", "all runs", level="info")
    notices = database.notices()
    assert [(n["code"], n["count"], n["level"]) for n in notices] == [
        ("other", 1, "info"),
        ("misfit", 3, "warning"),
    ]
    assert [n["code"] for n in database.notices("r")] == ["other", "misfit"]
    assert [n["code"] for n in database.notices("another")] == ["other"]
    with pytest.raises(InputError, match="level='loud'"):
        database.add_notice("a", "b", level="loud")


def test_targets_persist(place):
    with Database(place) as first:
        first.put_target("digit", [1, 2.5, "a", True, None], "M.*", "conv")
        first.put_target("digit", [1, None, [1, None]], "M.*", "conv")
        first.put_target("unused", [1], groups=["x"], types=[None], exact=True)
        for facts in ({}, {"model": "other"}, {"run": "z", "unit": 3}, {"run": "y", "target": "unknown"}):
            first.add(rows(**({"target": "digit"} | facts)))
    with Database(place) as again:
        found = again.targets()
        assert all(facts.pop("registered") > 1e9 for facts in found)
        common = {
            "owner": "",
            "run_pattern": ".*",
            "until": None,
            "claimed": False,
            "groups": None,
            "types": None,
            "exact": False,
            "during": [],
            "number": 1,
        }
        assert found == [
            common
            | {
                "name": "digit",
                "targets": [1, None, [1, None]],
                "model_pattern": "M.*",
                "layer_pattern": "conv",
                "runs": [["r", "m"], ["r", "other"]],
            },
            common
            | {
                "name": "unused",
                "targets": [1],
                "model_pattern": ".*",
                "layer_pattern": ".*",
                "runs": [],
                "groups": ["x"],
                "types": [None],
                "exact": True,
            },
        ]


def test_targets_have_owner_and_end(database, monkeypatch):
    database.put_target("digit", [1])
    database.put_target("digit", [2], owner="a", run_pattern="x")
    database.end_targets()
    database.put_target("digit", [3], owner="b")
    database.claim_target("digit", "a")
    found = {facts["owner"]: facts for facts in database.targets()}
    assert {owner: facts["targets"] for owner, facts in found.items()} == {"": [1], "a": [2], "b": [3]}
    assert {owner: facts["until"] is None for owner, facts in found.items()} == {
        "": False,
        "a": False,
        "b": True,
    }
    assert {owner: facts["claimed"] for owner, facts in found.items()} == {"": False, "a": True, "b": False}
    assert found["a"]["run_pattern"] == "x"
    database.put_target("digit", [4], owner="a", run_pattern="x")
    (renewed,) = [facts for facts in database.targets() if facts["owner"] == "a"]
    assert (renewed["targets"], renewed["until"], renewed["claimed"]) == ([4], None, False)
    monkeypatch.setattr("intus.storage.labels.OWNERS", 2)
    database.put_target("digit", [5], owner="c")
    assert [facts["owner"] for facts in database.targets()] == ["a", "c"]


def test_targets_with_other_patterns_are_kept_beside_each_other(database, monkeypatch):
    for number, pattern in enumerate("abca"):
        database.put_target("digit", [number], owner="o", run_pattern=pattern)
    database.put_target("digit", [9], owner="o", run_pattern="a", layer_pattern="x" * 9000)
    found = [(each["run_pattern"], each["targets"]) for each in database.targets()]
    assert found == [("b", [1]), ("c", [2]), ("a", [3]), ("a", [9])]
    monkeypatch.setattr("intus.storage.labels.CHOICES", 2)
    database.put_target("digit", [5], owner="o", run_pattern="d")
    assert [each["targets"] for each in database.targets()] == [[9], [5]]
    database.claim_target("digit", "o")
    assert all(each["claimed"] for each in database.targets())


def test_revision_counts_changed_values(database):
    def revision():
        with database._read() as connection:
            return connection.execute(sa.text("SELECT revision FROM point")).scalars().all()

    database.add(rows(value=1.0))
    database.add(rows(value=1.0))
    assert revision() == [0]
    database.add(rows(value=np.nan))
    database.add(rows(value=np.nan))
    assert revision() == [1]
    database.add(rows(value=np.nan, note="one class"))
    assert revision() == [2]


class Reader:
    """Reads a run as a page does: after the first time only the epochs that changed."""

    NAMES = ("epoch", "address", "value", "note", "revision")

    def __init__(self):
        self.change, self.rows = 0, set()

    def read(self, database):
        number = database.change_number()
        epochs = database.epochs_after("r", "m", self.change) if self.change else None
        news = set(zip(*database.columns("r", "m", self.NAMES, epochs=epochs).values(), strict=True))
        changed = {row[0] for row in news}
        self.rows = news if epochs is None else {row for row in self.rows if row[0] not in changed} | news
        self.change = number
        return epochs


@pytest.mark.parametrize("seed", range(8))
def test_reading_only_changed_epochs_equals_reading_all(database, seed):
    rng, reader = np.random.default_rng(seed), Reader()

    def add(run="r", **more):
        epoch = [np.nan, 0, 0.5, 1, 2][rng.integers(5)]
        database.add(
            Results.concat(
                [
                    rows(
                        run=run,
                        epoch=epoch,
                        address=f"l{rng.integers(3)}",
                        value=float(rng.integers(3)),
                        **more,
                    )
                    for _ in range(2)
                ]
            )
        )

    def rename(old, new):
        if {old} <= (known := {each["run"] for each in database.runs()}) and new not in known:
            database.rename(old, new)

    actions = [add, add, add, add, lambda: add(run="other"), lambda: add(note="by order"),
               lambda: database.revise("r", "m", "", "by order", "in order"),
               lambda: database.put_doubt("r", "m", Doubt("withdrawn", withdraw=True, of="by order")),
               lambda: add(target="t"), lambda: database.put_doubt("r", "m", Doubt("in doubt", until=1.0)),
               lambda: database.remove(run="r"), lambda: rename("r", "other"), lambda: rename("other", "r"),
               lambda: database.put_run("r", "m", tags=["a"])]  # fmt: skip
    parts = 0
    for _ in range(120):
        actions[rng.integers(len(actions))]()
        if rng.integers(2):
            parts += reader.read(database) is not None
            whole = set(zip(*database.columns("r", "m", Reader.NAMES).values(), strict=True))
            assert reader.rows == whole
    assert parts > 10


def test_only_changed_epochs_are_returned(database):
    database.add(Results.concat([rows(epoch=epoch) for epoch in range(3)]))
    change = database.change_number()
    assert database.epochs_after("r", "m", change) == []
    database.add(Results.concat([rows(epoch=1, value=2.0), rows(epoch=3)]))
    assert sorted(database.epochs_after("r", "m", change)) == [1, 3]
    assert database.columns("r", "m", ["epoch", "value"], epochs=[1, 3]) == {"epoch": [1, 3], "value": [2, 1]}
    database.add(Results.concat([rows(epoch=epoch) for epoch in range(4, 300)]))
    assert database.epochs_after("r", "m", change) is None  # as many as that are read with the others
    assert database.epochs_after("r", "gone", change) is None


def test_remove_and_clear(database):
    for model in ("m", "other"):
        database.add(rows(model=model))
        database.add_notice("code", "text", model=model)
    database.put_graph("r", "m", encode_graph(small_graph()))
    database.put_target("digit", [1])
    assert database.remove("m") == 1
    assert [run["model"] for run in database.runs()] == ["other"]
    assert [n["model"] for n in database.notices()] == ["other"]
    assert len(database.targets()) == 1
    assert database.clear() == 1
    assert database.runs() == database.notices() == database.targets() == []
    for table in ("series", "point", "epoch", "graph", "place"):
        assert raw(database, f"SELECT count(*) FROM {table}") == [(0,)]


def test_changes_since_a_number(database):
    start = database.changes()
    assert start.what == []
    database.add(rows())
    database.add_notice("code", "text", run="r", model="m")
    first = database.changes(start.number)
    assert (first.what, first.runs) == (["points", "notices"], [("r", "m")])
    assert database.changes(first.number) == (first.number, [], [])
    database.add(rows(run="s"))
    database.add(rows(run="s", epoch=1))
    second = database.changes(first.number)
    assert (second.what, second.runs) == (["points"], [("s", "m")])
    database.clear()
    assert {("r", "m"), ("s", "m")} == set(database.changes(second.number).runs)


def test_empty_results_are_no_change(database):
    assert database.add(Results()) == 0
    assert database.changes().number == 0


def test_concurrent_threads(database):
    def write(number: int) -> None:
        for epoch in range(10):
            database.add(
                Results.concat([rows(epoch=epoch, address=f"l{number}"), rows(epoch=epoch, value=epoch)])
            )

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(database.points("r", "m")) == 70
    assert database.runs()[0]["points"] == 70
    assert database.changes().number == 60


WRITER = """
import sys
from intus.core.results import Results
from intus.storage.database import Database
with Database(sys.argv[1]) as database:
    for epoch in range(40):
        row = {"run": "r", "model": "m", "epoch": epoch, "score": "mean", "value": 1.0}
        database.add(Results.from_rows([row | {"address": sys.argv[2]}, row | {"address": "shared"}]))
"""


def test_two_processes_share_a_database(place):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, place, name]) for name in ("a", "b")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    with Database(place) as database:
        assert len(database.points("r", "m")) == 120
        assert database.runs()[0]["points"] == 120
        assert database.changes().number == 80


# -- what scores are -------------------------------------------------------------------------------------


def test_score_descriptions_are_stored_with_results(place):
    kurtosis = ScoreInfo(name="kurtosis", label="Kurtosis", about="Excess kurtosis.", low=-2.0)
    with Database(place) as database:
        assert database.scores() == {}
        database.add(rows(score="kurtosis"), [kurtosis])
        database.add(rows(score="kurtosis", epoch=1), [kurtosis])
    with Database(place) as later:
        assert later.scores() == {"kurtosis": kurtosis}
        (run,) = later.runs()
        assert run["layers"] == [{"score": "kurtosis", "target": ""}]
        newer = ScoreInfo(name="kurtosis", label="Excess kurtosis")
        later.add(rows(score="kurtosis", epoch=2), [newer])
        assert later.scores() == {"kurtosis": newer}
        later.remove("m")
        assert later.scores() == {"kurtosis": newer}
        later.clear()
        assert later.scores() == {}
        later.add(rows(score="kurtosis", epoch=2), [newer])
        assert later.scores() == {"kurtosis": newer}


def test_failed_add_stores_no_score_descriptions(database, monkeypatch):
    info = ScoreInfo(name="mean", label="Mean")

    def fails(*arguments):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("intus.storage.points.add", fails)
        with pytest.raises(ZeroDivisionError):
            database.add(rows(), [info])
    assert database.scores() == {}
    database.add(rows(), [info])
    assert database.scores() == {"mean": info}


def test_runs_list_pairs_of_score_and_target(database):
    for score, target in (("mean", ""), ("linear_f1", "digit"), ("linear_f1", "even"), ("r2", "age")):
        database.add(rows(score=score, target=target))
    (run,) = database.runs()
    assert run["scores"] == ["mean", "linear_f1", "r2"]
    assert run["targets"] == ["digit", "even", "age"]
    assert [(pair["score"], pair["target"]) for pair in run["layers"]] == [
        ("mean", ""), ("linear_f1", "digit"), ("linear_f1", "even"), ("r2", "age"),
    ]  # fmt: skip


# -- examples and verifications of units -----------------------------------------------------------------


def test_followups_are_kept_by_unit_hypothesis_and_epoch(database):
    database.add(rows(epoch=0))
    database.add(rows(epoch=7))
    before = database.changes().number
    database.put_followup("r", "m", 7, "a[0:4@1]", 3, "ink", VERIFICATION)
    database.put_followup("r", "m", 7, "a[0:4@1]", 3, "ink", UnitExamples([], 2.0, "x"))
    database.put_followup("r", "m", float("nan"), "b", 0, "ink", UnitExamples([], 1.0, ""))
    database.put_followup("r", "m", float("nan"), "b", 0, "ink", UnitExamples([], 5.0, ""))
    changed = database.changes(before)
    assert (changed.what, changed.runs) == (["points"], [("r", "m")])
    units, epoch, found = database.followups("r", "m", "ink", "a[0:4@1][3]")
    assert units == [("a[0:4@1][3]", 7), ("b[0]", None)]
    assert epoch == 7  # the newest of the run
    assert json.loads(found["examples"]) == {"examples": [], "largest": 2.0, "legend": "x"}
    assert json.loads(found["verification"])["notes"] == ["no ablation: none"]
    assert json.loads(raw(database, "SELECT content FROM followup WHERE address = 'b'")[0][0])["largest"] == 5
    for unit in ("a[0:4@1][2]", "", "b", "b[x]", "b[-1]", "b[" + "9" * 40 + "]", "b[0]"):
        assert database.followups("r", "m", "ink", unit, 7)[2] == {}
    assert database.followups("r", "m", "other", "b[0]") == ([], 7, {})
    assert database.followups("r", "none", "ink", "b[0]") == ([], None, {})
    database.drop_followups("r", "m", 7, {"b"}, {"ink"})
    database.drop_followups("r", "m", 7, {"a[0:4@1]"}, {"other"})
    assert len(database.followups("r", "m", "ink", "")[0]) == 2
    database.drop_followups("r", "m", 7, {"a[0:4@1]"}, {"ink"})
    assert database.followups("r", "m", "ink", "")[0] == [("b[0]", None)]
    database.remove("m")
    assert raw(database, "SELECT count(*) FROM followup") == [(0,)]


# -- opening and migrations --------------------------------------------------------------------------


def test_tables_equal_migrated_schema(database):
    engine = sa.create_engine(database.url)
    found = sa.inspect(engine)
    for table in tables.TABLES:
        assert {c["name"] for c in found.get_columns(table.name)} == {c.name for c in table.columns}
    engine.dispose()


def test_database_of_version_1_is_migrated(place):
    engine = tables.make_engine(tables.read_url(place))
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        assert migrations.migrate(connection, migrations.STEPS[:1]) == 1
        connection.execute(
            sa.text("INSERT INTO run (run, model, started, updated) VALUES ('old', 'm', 1, 1)")
        )
        connection.execute(sa.text("INSERT INTO target VALUES ('digit', '[1]', 'a', 'b')"))
    engine.dispose()
    with Database(place) as database:
        assert [run["run"] for run in database.runs()] == ["old"]
        (digit,) = database.targets()
        assert (digit["targets"], digit["owner"], digit["until"]) == ([1], "", 0)
        assert digit["groups"] is digit["types"] is None
        assert Target.stored(digit).groups is None
        assert raw(database, "SELECT max(version) FROM schema_version") == [(len(migrations.STEPS),)]


def test_database_without_followups_is_migrated(place):
    engine = tables.make_engine(tables.read_url(place))
    before = migrations.STEPS.index(migrations._FOLLOWUPS)
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        assert migrations.migrate(connection, migrations.STEPS[:before]) == before
        connection.execute(
            sa.text("INSERT INTO run (run, model, started, updated) VALUES ('old', 'm', 1, 1)")
        )
        connection.execute(sa.text("INSERT INTO inspection VALUES (1, 3, 'hash', :rows)"), {"rows": b"rows"})
    engine.dispose()
    with Database(place) as database:
        assert database.inspection("old", "m", 3) == ("hash", b"rows")
        assert database.followups("old", "m", "ink", "conv1[3]", 3) == ([], 3, {})
        database.put_followup("old", "m", 3, "conv1", 3, "ink", VERIFICATION)
        assert database.followups("old", "m", "ink", "conv1[3]", 3)[0] == [("conv1[3]", 3)]


def test_queries_of_plot_and_changes_use_indexes(tmp_path):
    with Database(tmp_path / "x.db") as database:
        plan = raw(database, "EXPLAIN QUERY PLAN SELECT * FROM series WHERE run = 1 AND score = 'x'")
        assert "run=? AND score=?" in str(plan)
        plan = raw(database, "EXPLAIN QUERY PLAN SELECT * FROM change WHERE number > 1")
        assert "change_by_number" in str(plan)


def test_newer_database_is_refused(place):
    with Database(place) as database, database._write() as connection:
        connection.execute(sa.text("INSERT INTO schema_version VALUES (99)"))
    newest = len(migrations.STEPS)
    with pytest.raises(InputError, match=rf"is of version 99, .* up to {newest}\. Update intus"):
        Database(place)


def test_failed_migration_is_rolled_back(place):
    engine = tables.make_engine(tables.read_url(place))
    broken = (*migrations.STEPS, "CREATE TABLE more (id {identity});\nCREATE TABLE nonsense nonsense")
    with engine.connect().execution_options(writes=True) as connection:  # noqa: SIM117
        with pytest.raises(sa.exc.DBAPIError), connection.begin():
            migrations.migrate(connection, broken)
    assert sa.inspect(engine).get_table_names() == []
    engine.dispose()


def test_unopenable_database_error_names_reason(tmp_path):
    (tmp_path / "text.db").write_text("this is not a database, and long enough to be read as one" * 10)
    with pytest.raises(InputError, match=r"Could not open the database .*text\.db: file is not a database"):
        Database(tmp_path / "text.db")
    with pytest.raises(InputError, match="unable to open database file"):
        Database(tmp_path / "no" / "folder.db")
    with pytest.raises(InputError, match="kind 'mysql'"):
        Database("mysql://localhost/x")
    with pytest.raises(InputError, match="in memory"):
        Database(":memory:")


def test_url_and_path_open_same_database(tmp_path):
    with Database(f"sqlite:///{tmp_path}/x.db") as one, Database(str(tmp_path / "x.db")) as two:
        one.add(rows())
        assert len(two.points("r", "m")) == 1


def test_upsert_and_migrations_compile_for_postgresql():
    insert = postgresql.insert(tables.notice)
    text = str(insert.on_conflict_do_nothing(index_elements=["run"]).compile(dialect=postgresql.dialect()))
    assert "ON CONFLICT (run) DO NOTHING" in text
    for step in migrations.STEPS:
        assert "{" not in step.format(**migrations._WORDS["postgresql"])


def test_all_result_columns_are_stored():
    kept = {c.name for c in (*tables.series.columns, *tables.point.columns)} | {"run", "model"}
    assert set(COLUMNS) <= kept


def test_ids_of_a_commit_that_failed_are_forgotten(tmp_path):
    """After a full disk, all writes failed by a foreign key, or a new run got the ids of the lost one."""
    rows = [{"run": "lost", "model": "m", "epoch": 0, "address": "fc1", "score": "mean", "value": 0.5}]

    def fail(_):
        raise sqlite3.OperationalError("database or disk is full")

    with Database(tmp_path / "x.db") as database:
        sa.event.listen(database._engine, "commit", fail)
        with pytest.raises(sqlite3.OperationalError, match="disk is full"):
            database.add(Results.from_rows(rows))
        sa.event.remove(database._engine, "commit", fail)
        other = [rows[0] | {"run": "other", "value": 0.25}, rows[0] | {"run": "other", "address": "fc2"}]
        assert database.add(Results.from_rows(other)) == 2
        assert database.add(Results.from_rows(rows)) == 1
        assert database.points("lost", "m")["value"].tolist() == [0.5]
        assert database.points("other", "m")["value"].tolist() == [0.25, 0.5]
