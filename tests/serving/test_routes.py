"""The routes in one process: accepted and refused requests, and the replies to the page."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_help import record
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from intus.core.errors import ServeError
from intus.core.results import Results
from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.service import AggregatorService
from intus.serving.evaluation import evaluator
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.http import page_routes
from intus.serving.http.app import build
from intus.serving.roles import Roles
from intus.storage.codec import encode_graph, encode_records
from intus.storage.database import Database

LABELS = [0, 1] * 20
rng = np.random.default_rng(0)


def batch(number: int = 0, **facts):
    array = rng.normal(size=(40, 5)).astype(np.float32)
    return encode_records([record(array=array, **facts)], {"client": "c", "seq": number, "dropped": 0})


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One server for the module; a test that reads stored scores uses a run of its own."""
    frontend = Frontend(Database(tmp_path_factory.mktemp("routes") / "scores.db"))
    scoring = Evaluator(frontend)
    roles = Roles(AggregatorService(scoring, Aggregator()), scoring, frontend)
    with TestClient(build(roles, max_body=1 << 20), raise_server_exceptions=False) as client:
        yield client, roles
    roles.close()


@pytest.fixture
def client(served):
    return served[0]


@pytest.fixture
def fresh(served):
    client, roles = served
    roles.aggregator.aggregator._runs.clear()  # also the clients that sent to them
    for run in client.get("/api/runs").json()["runs"]:
        client.post("/clear", json={"run": run["run"]})
    for scope in ({}, {"client": "c"}):  # of records without a client, and of `batch`
        client.post("/clear", json=scope)
    return client


def post(client, path, content):
    return (
        client.post(path, content=content) if isinstance(content, bytes) else client.post(path, json=content)
    )


def test_records_are_scored_as_points(fresh):
    assert post(fresh, "/targets", {"name": "parity", "targets": LABELS}).status_code == 200
    for epoch in (0, 1):
        answer = post(fresh, "/records", batch(100 + epoch, epoch=epoch))
        assert answer.json() == {"accepted": 1, "duplicate": False}
    assert post(fresh, "/records", batch(100)).json() == {"accepted": 0, "duplicate": True}
    assert post(fresh, "/flush", {}).status_code == 200
    (run,) = fresh.get("/api/runs").json()["runs"]
    assert (run["run"], run["model"], run["epochs"]) == ("r", "m", [0, 1])
    assert (run["addresses"], run["targets"], run["kinds"]) == (["fc1"], ["parity"], ["output"])
    assert {"mean", "linear_f1", "linear_f1.majority", "kmeans_ami"} <= set(run["scores"])
    points = fresh.get("/api/points", params={"run": "r", "model": "m", "score": "mean"}).json()
    assert points["epoch"] == [0, 1]
    assert all(isinstance(value, float) for value in points["value"])
    some = fresh.get("/api/points?run=r&model=m&score=mean&columns=epoch,value").json()
    assert some == {name: points[name] for name in ("epoch", "value")}
    query = "/api/points?run=r&model=m&score=mean&columns=epoch&after="
    first = fresh.get(query + "0").json()
    assert first == {"epoch": [0, 1], "change": first["change"], "whole": True}
    later = fresh.get(f"{query}{first['change']}").json()
    assert later == {"epoch": [], "change": first["change"], "whole": False}
    status = fresh.get("/api/status").json()
    assert (status["aggregator"]["received"], status["aggregator"]["duplicates"]) == (2, 1)
    assert (status["evaluator"]["scored"], status["evaluator"]["pending"]) == (2, 0)
    (of_run,) = status["runs"]
    assert {
        "run": "r",
        "model": "m",
        "sent": 2,
        "kept": 2,
        "scored": 2,
        "waiting": 0,
    }.items() <= of_run.items()


def test_nan_is_stored_as_null_with_note(fresh):
    array = np.ones((40, 5), np.float32)
    array[2, 2] = np.nan
    answer = post(fresh, "/records", encode_records([record(array=array, run="nan")]))
    assert answer.status_code == 200
    post(fresh, "/flush", {})
    points = fresh.get("/api/points", params={"run": "nan", "model": "m"}).json()
    found = dict(zip(points["score"], points["value"], strict=True))
    assert found["nonfinite"] == 1
    assert found["mean"] == 1
    assert found["participation_ratio"] is None  # nothing varies
    (notice,) = fresh.get("/api/notices", params={"run": "nan"}).json()["notices"]
    assert (notice["code"], notice["count"]) == ("nonfinite", 1)
    assert "began in fc1 at epoch 0" in notice["text"]


def test_misfit_target_gives_one_notice_with_both_lengths(fresh, caplog):
    post(fresh, "/targets", {"name": "short", "targets": [1, 2, 3]})
    for epoch in range(3):
        post(fresh, "/records", encode_records([record(40, epoch=epoch, address=a) for a in ("fc1", "fc2")]))
    post(fresh, "/flush", {})
    (notice,) = fresh.get("/api/notices").json()["notices"]
    assert "'short' has 3 labels" in notice["text"]
    assert "'fc1' of 'm' (output in mode train) sent 40 rows" in notice["text"]
    assert notice["count"] == 1
    assert sum("has 3 labels" in line for line in caplog.messages) == 1


def test_target_that_fits_one_layer_names_the_others(fresh):
    post(fresh, "/targets", {"name": "parity", "targets": LABELS})
    post(
        fresh, "/records", encode_records([record(4, address="small"), record(40), record(4, address="last")])
    )
    post(fresh, "/flush", {})
    [notice] = fresh.get("/api/notices").json()["notices"]
    assert notice["level"] == "info"
    assert "'parity'" in notice["text"]
    assert "at 2 of 3 layers: 'small', 'last'" in notice["text"]
    assert fresh.get("/api/runs").json()["runs"][0]["targets"] == ["parity"]


def test_replaced_target_gives_notice(fresh):
    for labels in ([0, 1], [0, 1], [1, 1]):
        fresh.post("/targets", json={"name": "digit", "targets": labels})
    told = [n for n in fresh.get("/api/notices").json()["notices"] if n["code"] == "target_replaced"]
    assert [n["count"] for n in told] == [1]
    assert "'digit' was registered again with other labels" in told[0]["text"]


def post_as_2018(client, path, packet=None):
    """Post as Vivisect's ``_post`` does: JSON, or no body."""
    content = None if packet is None else json.dumps(packet).encode()
    answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.json()


def test_routes_of_2018_client(fresh):
    """Send the requests of a training with Vivisect's ``run_mlps.py`` to every route."""
    about = {"model_name": "PyTorch MLP", "framework": None, "misc": {}}
    data = np.random.default_rng(0).normal(size=(40, 3)).round(3)
    labels = {"name": "parity", "values": LABELS, "model_pattern": "PyTorch MLP", "layer_pattern": ".*"}
    post_as_2018(fresh, "/clear")
    post_as_2018(fresh, "/set_trigger_fields", ["epoch", "state"])
    assert fresh.get("/status").json()["trigger"] == ["epoch", "mode"]
    for kind in ("classification", "clustering"):
        post_as_2018(fresh, f"/register_{kind}_targets", labels)
    for epoch, state in product((0, 1), ("train", "dev")):
        now = about | {"epoch": epoch, "state": state}
        for rows in (data[:20], data[20:]):
            for route in ("activation_input", "activation_output", "gradient_input", "gradient_output"):
                array = {"array_name": "0", "array_type": route, "batch_axis": 0}
                operation = {"operation_name": "dense1", "operation_type": "<class 'Linear'>"}
                packet = {"metadata": now | operation | array, "array": (rows + epoch).tolist()}
                post_as_2018(fresh, f"/{route}", packet)
        for name in ("dense1.weight", "dense1.bias"):
            packet = {"metadata": now | {"array_name": name, "array_type": "parameter"}, "array": [0.5, 1.5]}
            post_as_2018(fresh, "/parameter", packet)
    post_as_2018(fresh, "/flush")
    (run,) = fresh.get("/api/runs").json()["runs"]
    kinds = ["output", "input", "grad_output", "grad_input", "parameter"]
    assert set(run["kinds"]) == {f"{kind}{mode}" for kind in kinds for mode in ("", "@dev")}
    assert sorted(run["addresses"]) == ["dense1", "dense1.bias", "dense1.weight"]
    assert run["targets"] == ["parity"]
    where = "/api/points?run=&model=PyTorch MLP&kind=output@dev&columns=epoch,value,n&score="
    means = fresh.get(where + "mean").json()
    assert means["epoch"] == [0, 1]
    assert means["value"] == pytest.approx([data.mean(), data.mean() + 1], abs=1e-6)
    assert fresh.get(where + "kmeans_mi&target=parity").json()["n"] == [40, 40]
    post_as_2018(fresh, "/remove", {"model_name": "PyTorch MLP"})
    reply = fresh.get("/api/runs").json()
    assert reply == {"runs": [], "scores": [], "kinds": {}, "change": reply["change"]}
    post_as_2018(fresh, "/set_trigger_fields", ["epoch"])


def test_graph_is_stored_and_served(fresh, monkeypatch):
    torch = pytest.importorskip("torch")
    from intus import trace

    graph = trace(torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU()), torch.ones(2, 5)).graph
    assert post(fresh, "/graph?run=g&model=m", encode_graph(graph)).status_code == 200
    scene = fresh.get("/api/graph?run=g&model=m").json()
    assert scene["model"] == "Sequential"
    assert fresh.get("/api/runs").json()["runs"][0]["has_graph"] is True
    answer = fresh.get("/api/graph?run=g&model=nobody")
    assert (answer.status_code, list(answer.json())) == (404, ["error"])


def test_list_of_runs_has_the_number_of_its_last_change(fresh):
    numbers = [fresh.get("/api/runs").json()["change"]]
    for model in ("m", "n"):
        post(fresh, "/records", encode_records([record(model=model)]))
        post(fresh, "/flush", {})
        numbers.append(fresh.get("/api/runs").json()["change"])
    assert numbers == sorted(set(numbers))  # it rises with each change, and only with one
    assert fresh.get("/api/runs").json()["change"] == numbers[-1]


def test_remove_and_clear_routes(fresh):
    for model in ("m", "n"):
        post(fresh, "/records", encode_records([record(model=model)]))
    post(fresh, "/flush", {})
    assert {run["model"] for run in fresh.get("/api/status").json()["runs"]} == {"m", "n"}
    assert post(fresh, "/remove", {"model": "m"}).status_code == 200
    assert [run["model"] for run in fresh.get("/api/runs").json()["runs"]] == ["n"]
    assert [run["model"] for run in fresh.get("/api/status").json()["runs"]] == ["n"]
    post(fresh, "/targets", {"name": "parity", "targets": LABELS})
    assert len(fresh.get("/targets").json()["targets"]) == 1
    post(fresh, "/clear", {})
    reply = fresh.get("/api/runs").json()
    assert reply == {"runs": [], "scores": [], "kinds": {}, "change": reply["change"]}
    assert fresh.get("/targets").json() == {"targets": []}
    assert fresh.get("/api/status").json()["runs"] == []


def test_remove_and_clear_leave_runs_of_others(fresh):
    for client, run in (("a", "first"), ("b", "second"), (None, "third")):
        envelope = {} if client is None else {"client": client, "seq": 0}
        post(fresh, "/records", encode_records([record(run=run, model="Sequential")], envelope))
        post(fresh, "/targets", {"name": "parity", "targets": LABELS, "client": client or ""})
    post(fresh, "/flush", {})

    def left():
        return {run["run"] for run in fresh.get("/api/runs").json()["runs"]}

    def owners():
        return {target["owner"] for target in fresh.get("/targets").json()["targets"]}

    assert post(fresh, "/remove", {"model": "Sequential", "client": "c"}).json() == {"removed": []}
    answer = post(fresh, "/remove", {"model": "Sequential", "client": "a"})
    assert answer.json() == {"removed": [["first", "Sequential"]]}
    assert (left(), owners()) == ({"second", "third"}, {"a", "b", ""})
    assert post(fresh, "/clear", {}).json() == {"removed": [["third", "Sequential"]]}
    assert (left(), owners()) == ({"second"}, {"a", "b"})
    assert post(fresh, "/clear", {"client": "a"}).status_code == 200
    assert (left(), owners()) == ({"second"}, {"b"})
    assert post(fresh, "/remove", {"model": "other", "run": "second"}).status_code == 200
    assert left() == {"second"}
    assert post(fresh, "/remove", {"model": "Sequential", "run": "second"}).status_code == 200
    assert left() == set()


def test_failed_score_gives_notice_and_others_are_computed(fresh, monkeypatch):
    real = evaluator.measure

    def fails(point, *rest):
        if point.key.address == "bad":
            raise ZeroDivisionError("a score went wrong")
        return real(point, *rest)

    monkeypatch.setattr(evaluator, "measure", fails)
    before = fresh.get("/api/status").json()["evaluator"]
    post(fresh, "/records", encode_records([record(address="bad"), record(address="good")]))
    post(fresh, "/flush", {})
    assert fresh.get("/api/runs").json()["runs"][0]["addresses"] == ["good"]
    (notice,) = (n for n in fresh.get("/api/notices").json()["notices"] if n["run"])
    assert (notice["level"], notice["text"]) == (
        "error",
        "Scoring 'bad' (output in mode train) failed: ZeroDivisionError: a score went wrong",
    )
    counts = fresh.get("/api/status").json()["evaluator"]
    assert {name: counts[name] - before[name] for name in counts} == {"scored": 1, "failed": 1, "pending": 0}


def test_points_of_units_by_level(fresh, served):
    row = {
        "run": "u",
        "model": "m",
        "epoch": 0,
        "address": "fc1",
        "unit": 3,
        "score": "iou",
        "target": "loop",
    }
    served[1].frontend.results(Results.from_rows([row | {"value": 0.5}]))
    assert fresh.get("/api/points?run=u&model=m").json()["unit"] == []
    assert fresh.get("/api/points?run=u&model=m&level=unit&target=loop").json()["unit"] == [3]
    assert fresh.get("/api/runs").json()["runs"][0]["units"] == [{"score": "iou", "target": "loop"}]


# -- the page ----------------------------------------------------------------------------------------


def test_page_files_are_served(client, tmp_path, monkeypatch):
    (tmp_path / "index.html").write_text("<p>page</p>")
    (tmp_path / "intus.js").write_text("1")
    monkeypatch.setattr(page_routes, "STATIC", tmp_path)
    assert client.get("/").text == "<p>page</p>"
    assert client.get("/static/intus.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/static/secret").status_code == 404
    (tmp_path / "index.html").unlink()
    missing = client.get("/")
    assert missing.status_code == 404
    assert "run 'make web'" in missing.text


@pytest.mark.parametrize("path", ["/static/..%2f__init__.py", "/static/%2e%2e/app.py", "/static/%00"])
def test_other_files_are_not_served(client, path):
    assert client.get(path).status_code == 404


# -- what is refused ---------------------------------------------------------------------------------

POINT = {"kind": "output", "step": -1, "lacks": "", "last": True}
BAD = [
    ("/records", b"", "Not a safetensors blob"),
    ("/records", b"\xff" * 100, "Not a safetensors blob"),
    ("/records", (65 << 20).to_bytes(8, "little") + b"{}", "header of 68,157,440 bytes exceeds the maximum"),
    (
        "/records",
        encode_records([record()], {"epochs": 1}),
        "envelope of the records: epochs must be a list.* got 1",
    ),
    ("/claim", {"name": "a"}, r"^owner is missing; it must be a string .* \(the id of the client"),
    ("/claim", {"name": "a", "owner": 3}, r"^owner must be a string .*, got 3\.$"),
    ("/records", encode_records([record(epoch=float("1e999"))]), "Malformed JSON: Infinity is not JSON"),
    (
        "/records",
        encode_records([record(epoch=1e300)]),
        r"epoch must be a number from -1e\+15 to 1e\+15 or null, got 1e\+300",
    ),
    (
        "/records",
        encode_records([record(run="a\0b")]),
        r"record at 'fc1': run must be a string .* without NUL .*, got 'a\\x00b'",
    ),
    (
        "/records",
        encode_records([record(address="x" * 2000)]),
        "address must be a string of at most 1,000 characters .* of 2,002 characters",
    ),
    (
        "/records",
        encode_records([record(step=-5)]),
        "step must be a whole number of at least -1 or null, got -5",
    ),
    ("/records", encode_records([record(array=np.zeros((1,) * 9))]), "9 axes"),
    (
        "/records",
        encode_records([record()], {"seq": "a"}),
        "seq must be a whole number of at least 0 or null.*, got 'a'",
    ),
    (
        "/records",
        encode_records([record()], {"dropped": True}),
        "dropped must be a whole number .*, got true",
    ),
    ("/records", encode_records([record()], {"client": 5}), "client must be a string .*, got 5"),
    ("/graph?run=a&model=b", encode_records([record()]), "not of intus format"),
    ("/targets", {"name": "a"}, "targets is missing; it must be a list of labels"),
    ("/targets", {"name": "a", "targets": [1], "layer_pattern": "("}, "not a regular expression"),
    ("/targets", {"name": "a", "targets": [1], "model_pattern": "(?=a)"}, "Lookarounds"),
    (
        "/set_trigger_fields",
        ["epoch", "colour"],
        r"must be some of epoch, step, mode, got \['epoch', 'colour'\]",
    ),
    ("/set_trigger_fields", [], "must be some of"),
    ("/set_trigger_fields", [3], r"^message\[0\] must be a string .*, got 3"),
    ("/set_trigger_fields", {"fields": []}, "The message must be a list of field names, got an object of 1"),
    ("/set_trigger_fields", b"[NaN", "Malformed JSON"),
    ("/register_clustering_targets", {"name": "a", "values": [[1], 2]}, "mixes single labels"),
    ("/targets", b"[" * 100_000, "Malformed JSON"),
    ("/targets", b"\xff\xfe", "Malformed JSON"),
    ("/targets", b'{"name": NaN}', "NaN is not JSON"),
    ("/targets", [1], "The message must be an object with the fields name, .*, got a list of 1"),
    ("/flush", {"run": 3}, r"^run must be a string .*the run's name\), got 3"),
    ("/remove", {}, r"^model is missing; it must be a string"),
    ("/remove", {"model": [1]}, r"^model must be a string .*, got a list of 1"),
    (
        "/activation_output",
        {"metadata": 3},
        r"^metadata must be an object with the fields model_name, .*, got 3",
    ),
    ("/parameter", {"metadata": {}, "array": [[1], 2]}, "array must be a rectangular list of numbers"),
    ("/parameter", {"metadata": {}}, "array is missing; it must be a rectangular list of numbers"),
    ("/activation_input", {"metadata": {"batch_axis": 5}, "array": [[1]]}, "has no batch_axis=5"),
    (
        "/datapoint",
        encode_records([record(), record(address="fc2")], POINT),
        "must have one address, kind, mode and output, got 2",
    ),
    (
        "/datapoint",
        encode_records([record()]),
        r"envelope of the data point: kind is missing; it must be a string",
    ),
    (
        "/datapoint",
        encode_records([record()], {"kind": "output"}),
        "step is missing; it must be a whole number",
    ),
    ("/results", {"columns": {"value": ["a"]}}, r"^columns\.value\[0\] must be a number or null, got 'a'"),
    ("/results", {"columns": {"value": [1], "n": [1, 2]}}, "equally long"),
    ("/results", {"columns": {"colour": [1]}}, "no field 'columns.colour'. Did you mean"),
    ("/results", {"columns": {"n": [10**30]}}, r"^columns\.n\[0\] must be a whole number or null, got 1000"),
    ("/results", b'{"columns": {"run": ["\\ud800"]}}', "surrogate"),
    ("/results", b'{"columns": {"\\ud800": [1]}}', "surrogate"),
    ("/results", {"columns": {}, "scores": [{}]}, r"^scores\[0\]\.name is missing; it must be a string"),
    (
        "/results",
        {"columns": {}, "scores": [{"name": "a", "level": "row"}]},
        r"level must be one of 'layer', 'unit'",
    ),
    (
        "/results",
        {"columns": {}, "scores": [{"name": "a", "low": "b"}]},
        r"low must be a number or null, got 'b'",
    ),
    (
        "/results",
        {"columns": {}, "scores": [3]},
        r"^scores\[0\] must be an object with the fields name, label",
    ),
    (
        "/results",
        {"columns": {}, "scores": [{"name": "x" * 1001}]},
        "must be text of at most 1,000 characters",
    ),
    ("/results", {}, "columns is missing; it must be an object with the fields run, model"),
    (
        "/notices",
        {"notices": [{"code": "a", "text": "b", "level": "loud"}]},
        r"^notices\[0\]\.level must be one of 'error', 'info', 'warning', got 'loud'",
    ),
    ("/status", {"aggregator": {"king": 1}}, "no field 'aggregator.king'"),
    (
        "/status",
        {"aggregator": {"received": "all"}},
        r"^aggregator\.received must be a whole number .*, got 'all'",
    ),
]


@pytest.mark.parametrize(("path", "content", "complaint"), BAD)
def test_invalid_requests_are_refused_with_reason(client, path, content, complaint):
    answer = post(client, path, content)
    assert answer.status_code == 400
    assert re.search(complaint, answer.json()["error"]), answer.json()["error"]


def test_malformed_requests_are_counted(fresh, served):
    before = fresh.get("/api/status").json()["aggregator"]["malformed"]
    post(fresh, "/records", b"nothing")
    post(fresh, "/targets", {"name": ""})
    assert fresh.get("/api/status").json()["aggregator"]["malformed"] == before + 2


def test_refused_requests_are_counted_by_status(fresh, served):
    def counts():
        return Counter(fresh.get("/api/status").json()["requests"])

    before = counts()
    post(fresh, "/records", b"nothing")
    post(fresh, "/records", bytes((1 << 20) + 1))
    post(fresh, "/activation_output", b"[" * 100_000)
    fresh.get("/nowhere")
    assert counts() - before == {"http_400": 2, "http_413": 1, "http_404": 1, "refused": 3}


def test_unavailable_database_is_503(client, served, monkeypatch):
    def away():
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(served[1].frontend.database, "runs", away)
    answer = client.get("/api/runs")
    assert answer.status_code == 503
    assert answer.json() == {"error": "The database cannot be read now: connection refused."}
    assert answer.headers["retry-after"] == "5"


def test_too_long_body_is_refused(client):
    assert post(client, "/records", bytes(1 << 20)).status_code == 400
    answer = post(client, "/records", bytes((1 << 20) + 1))
    assert answer.status_code == 413
    assert "1,048,576 bytes" in answer.json()["error"]
    chunks = client.post("/records", content=(bytes(1 << 18) for _ in range(5)))  # no length announced
    assert chunks.status_code == 413


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/records"), ("POST", "/api/runs"), ("GET", "/nowhere")]
)
def test_unknown_routes_and_methods_are_refused(client, method, path):
    answer = client.request(method, path)
    assert answer.status_code in (404, 405)
    assert "error" in answer.json()


@pytest.mark.parametrize("query", ["level=row", "run=%00", "score=" + "x" * 1001, "columns=epoch,secret"])
def test_invalid_queries_are_refused(client, query):
    answer = client.get(f"/api/points?{query}")
    assert answer.status_code == 400
    assert "error" in answer.json()


POSTS = [
    "/records",
    "/graph",
    "/targets",
    "/flush",
    "/remove",
    "/parameter",
    "/datapoint",
    "/results",
    "/notices",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["name", "targets", "run", "model", "metadata", "array", "columns", "notices", "value", "code", "text"]
OBJECTS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(POSTS),
    content=st.binary(max_size=60) | OBJECTS.map(lambda o: json.dumps(o).encode()),
)
def test_random_bodies_cause_no_server_error(client, path, content):
    assert post(client, path, content).status_code < 500


# -- being swamped, and being apart ------------------------------------------------------------------


def test_overloaded_server_replies_429(tmp_path):
    class Swamped:
        def backlog(self) -> int:
            return 1000

        def check(self) -> None:
            pass

    with TestClient(build(Roles(AggregatorService(Swamped(), Aggregator(max_bytes=999))))) as client:
        answer = post(client, "/records", batch(0))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_unreachable_next_server_is_502(tmp_path):
    class Away:
        def put_target(self, target) -> None:
            raise ServeError("http://127.0.0.1:8081 cannot be reached")

    with TestClient(build(Roles(AggregatorService(Away())))) as client:
        answer = post(client, "/targets", {"name": "digit", "targets": [1]})
    assert (answer.status_code, answer.json()["error"]) == (502, "http://127.0.0.1:8081 cannot be reached")


# -- who may speak -----------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path):
    frontend = Frontend(Database(tmp_path / "x.db"))
    with TestClient(build(Roles(frontend=frontend), token="s3cret"), follow_redirects=False) as client:
        yield client
    frontend.close()


def test_every_request_needs_the_token(guarded):
    assert guarded.get("/api/runs").status_code == 403
    assert guarded.post("/results", json={"columns": {}}).status_code == 403
    assert guarded.get("/api/runs", headers={"Authorization": "Bearer wrong"}).status_code == 403
    assert guarded.get("/api/runs", headers={"Authorization": "Bearer s3cret"}).status_code == 200


def test_token_in_url_sets_cookie(guarded):
    assert guarded.get("/?token=wrong").status_code == 403
    assert guarded.get("/api/runs?token=s3cret").status_code == 403
    answer = guarded.get("/?token=s3cret")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert guarded.get("/api/runs").status_code == 200  # the cookie


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8080"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:8080"}, 200),
        ({"Host": "127.0.0.1:8080", "Origin": "https://evil.example"}, 403),
        ({"Host": "127.0.0.1:8080", "Origin": "null"}, 403),
    ],
)
def test_requests_of_foreign_pages_are_refused(tmp_path, headers, status):
    frontend = Frontend(Database(tmp_path / "x.db"))
    with TestClient(build(Roles(frontend=frontend), loopback=True)) as client:
        assert client.get("/api/runs", headers=headers).status_code == status
    frontend.close()


def test_points_query_without_model_and_with_unknown_names(fresh):
    post(fresh, "/records", encode_records([record(model="m")]))
    post(fresh, "/flush", {})
    assert fresh.get("/api/points?run=r").json() == fresh.get("/api/points?run=r&model=m").json()
    assert fresh.get("/api/points?run=r").json()["value"]
    reply = fresh.get("/api/points?run=r&adress=fc1")
    assert (reply.status_code, reply.json()["error"]) == (
        400,
        "The query has no 'adress'. Did you mean 'address' or 'target'?",
    )
    post(fresh, "/records", encode_records([record(model="n")]))
    post(fresh, "/flush", {})
    assert "Add model=, one of" in fresh.get("/api/points?run=r").json()["error"]
