"""The messages: decoding, encoding, and the replies of every endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_help import record, target_of
from starlette.testclient import TestClient

from intus.core.errors import CodecError, InputError
from intus.core.followup import Measure, UnitExample, UnitExamples, UnitVerification, VerifiedPart
from intus.core.results import COLUMNS, Results
from intus.serving.aggregation.service import AggregatorService
from intus.serving.decoding import decode, encode
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.http.app import build, endpoints
from intus.serving.messages import (
    LEGACY_KINDS,
    LegacyArray,
    Notice,
    ResultsRequest,
    RunRequest,
    StatusReport,
)
from intus.serving.roles import Roles
from intus.storage.codec import encode_graph, encode_records
from intus.storage.database import Database

LABELS = [0, 1] * 20
BODIES = {
    "/records": encode_records([record(40, array=np.random.default_rng(0).normal(size=(40, 5)))]),
    "/targets": {"name": "parity", "targets": LABELS},
    "/register_clustering_targets": {"name": "old", "values": LABELS},
    "/register_classification_targets": {"name": "old", "values": LABELS},
    "/set_trigger_fields": ["epoch"],
    "/results": {"columns": {"run": ["r"], "model": ["m"], "score": ["mean"], "value": [None]}},
    "/sketch": {
        "run": "r",
        "model": "m",
        "sketch": {"layer": "a", "training": 1.5, "epoch": 2, "step": -1, "previous": [1, -1], "number": 0},
    },
    "/sketches": {"run": "r", "model": "m", "training": 1.5, "at": ["a", 2, -1]},
    "/claim": {"name": "parity", "owner": ""},
    "/order": {"run": "r", "model": "m", "mode": ""},
    "/notices": {"notices": [{"code": "a", "text": "b"}]},
    "/status": {"evaluator": {"scored": 3}, "runs": [{"run": "r", "model": "m", "scored": 3}]},
    "/run": {
        "run": "r",
        "model": "m",
        "config": {"lr": 0.1},
        "tags": ["a"],
        "log": [{"step": 1, "epoch": 0, "time": 2.5, "values": {"loss": 0.5, "grad": "nan"}}],
    },
    "/doubts": {"run": "r", "model": "m", "note": "of other rows", "until": 1},
    "/api/run": {"run": "r", "tags": ["b"]},
    "/flush": {},
    "/remove": {"model": "nobody"},
    "/datapoint": encode_records([record()], {"kind": "output", "step": -1, "lacks": "", "last": True}),
    "/clear": {},
    "/run/remove": {"run": "r"},
    "/targets/remove": {"owner": "c"},
}
EXAMPLE = UnitExample(
    "top", 7, None, "1", ["a", "b"], " ", [100, -3], [True, False], 0, (False, True), "", ""
)
MEASURE = Measure("difference", 0.5, None, 0.75, 40, "differs")
FOLLOWUPS = (
    UnitExamples([EXAMPLE], 2.0, "orange: up to 2"),
    UnitVerification([VerifiedPart("title", [MEASURE], "sentence", [0.1, 0.2])], ["note"]),
)
LEGACY = {"metadata": {"model_name": "m", "operation_name": "fc1", "epoch": 0}, "array": [[1.0, None]]}


@pytest.fixture
def roles(tmp_path):
    frontend = Frontend(Database(tmp_path / "x.db"))
    evaluator = Evaluator(frontend)
    roles = Roles(AggregatorService(evaluator), evaluator, frontend)
    yield roles
    roles.close()


def test_replies_match_endpoint_schemas(roles):
    torch = pytest.importorskip("torch")
    from intus import trace

    graph = encode_graph(trace(torch.nn.Linear(5, 3), torch.ones(2, 5)).graph)
    stated = {(each.method, each.path): each for each in reversed(endpoints(roles))}
    asked = set()

    def check(client, method, path, body=None, query=""):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = client.request(method, path + query, content=content if method == "POST" else None)
        assert answer.status_code == 200, (path, answer.text)
        again = json.loads(encode(decode(answer.content, stated[method, path].reply)))
        assert again == answer.json(), path
        asked.add((method, path))

    with TestClient(build(roles)) as client:
        check(client, "POST", "/graph", graph, "?run=r&model=m")
        for path, body in BODIES.items():
            if path == "/clear":  # the last: all that can be read is there
                for query in ("/api/runs", "/api/notices", "/api/status", "/status", "/targets"):
                    check(client, "GET", query)
                check(client, "GET", "/api/points", query="?run=r&model=m&score=mean")
                check(client, "GET", "/api/graph", query="?run=r&model=m")
                check(client, "GET", "/api/log", query="?run=r&model=m")
                for path_of_point in ("/api/confusion", "/api/above"):
                    point = "?run=r&model=m&address=fc1&target=digit&score=linear_f1"
                    check(client, "GET", path_of_point, query=point)
                for content in FOLLOWUPS:
                    roles.frontend.database.put_followup("r", "m", 0, "fc1", 3, "digit", content)
                check(client, "GET", "/api/followup", query="?run=r&model=m&target=digit&unit=fc1[3]&epoch=0")
            check(client, "POST", path, body)
        for method, path in set(stated) - asked:
            check(client, method, path, LEGACY)
    assert asked == set(stated)


NUMBERS = st.floats(-1e299, 1e299) | st.sampled_from([np.nan, np.inf, -np.inf])


@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_nonfinite_results_are_sent_as_null(values):
    table = Results({"value": values, "n": range(len(values))})
    body = encode(ResultsRequest.of(table))
    assert b"NaN" not in body
    back = decode(body, ResultsRequest).results()
    expected = [value if np.isfinite(value) else np.nan for value in values]
    np.testing.assert_array_equal(back["value"], expected)
    assert all(back[name].tolist() == table[name].tolist() for name in ("run", "n", "unit", "note"))


def test_missing_result_columns_have_defaults():
    table = decode(b'{"columns": {"score": ["mean", null]}}', ResultsRequest).results()
    assert table["score"].tolist() == ["mean", ""]
    assert set(COLUMNS) == {name for row in [*table] for name in row}


@pytest.mark.parametrize(
    ("text", "kept"), [("a\0b", "a\\0b"), ("\ud800", "\\ud800"), ("x" * 2000, "x" * 1000)]
)
def test_notice_text_is_made_storable(text, kept):
    assert Notice("code", text).text == kept
    assert msgspec.convert({"code": "a", "text": text}, Notice).text == kept


def test_target_request_round_trip():
    facts = {"name": "pos", "targets": [["N", None], ["V"]], "client": "c", "layer_pattern": "fc"}
    request = target_of(facts).request()
    assert (request.targets, request.client, request.layer_pattern) == ([["N", None], ["V", None]], "c", "fc")
    again = target_of(msgspec.to_builtins(request))
    assert (again.labels == target_of(facts).labels).all()


def test_long_label_does_not_widen_label_array():
    labels = ["a"] * 10_000 + ["x" * 1000]
    assert target_of({"name": "word", "targets": labels}).labels.nbytes < 1 << 20


def test_unknown_fields_are_ignored():
    assert decode(b'{"evaluator": {"scored": 1}, "colour": 3}', StatusReport).evaluator.scored == 1


def test_messages_do_not_crash_process_exit():
    """msgspec 0.22 frees some unions twice; the checks of the allocator detect that every time."""
    code = """
import contextlib
import msgspec
from intus.core.errors import IntusError
from intus.serving import messages
from intus.serving.decoding import decode
for kind in vars(messages).values():
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        with contextlib.suppress(IntusError):
            decode(b"{}", kind)
"""
    environment = os.environ | {"PYTHONMALLOC": "debug"}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


# -- the client of 2018 ----------------------------------------------------------------------------------

DEEP = b"[" * 100_000


def legacy(array, **metadata):
    facts = {"model_name": "m", "operation_name": "dense", "epoch": 3, "batch_axis": 0} | metadata
    return json.dumps({"metadata": facts, "array": array}).encode()


@pytest.mark.parametrize(("route", "kind"), LEGACY_KINDS.items())
def test_json_of_2018_client_is_decoded(route, kind):
    body = legacy([[1, 2], [3, 4], [5, None]], array_name="1", state="training")
    record = decode(body, LegacyArray).record(route)
    assert (record.kind, record.model, record.address, record.epoch, record.index, record.mode) == (
        kind, "m", "dense", 3, 1, "training",
    )  # fmt: skip
    np.testing.assert_array_equal(record.array, np.array([[1, 2], [3, 4], [5, np.nan]], np.float32))
    assert record.rows == (1 if route == "parameter" else 3)


def test_parameter_of_2018_client_is_named_by_array():
    body = b'{"metadata": {"model_name": "m", "array_name": "dense.weight"}, "array": [0.5]}'
    assert decode(body, LegacyArray).record("parameter").address == "dense.weight"
    assert decode(body, LegacyArray).record("activation_output").address == ""


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "metadata is missing; it must be an object"),
        (b"\xff\xfe", "Malformed JSON"),
        (b"[]", "The message must be an object with the fields metadata, array"),
        (b'{"metadata": {}}', "array is missing; it must be a rectangular list of numbers"),
        (b'{"metadata": [], "array": [1]}', "metadata must be an object"),
        (legacy([[1], [1, 2]]), "array must be a rectangular list of numbers"),
        (legacy([["a"]]), "array must be a rectangular list of numbers: could not convert"),
        (legacy(["a"]), r"array\[0\] must be a number .*, got 'a'"),
        (legacy({"a": 1}), "array must be a rectangular list of numbers, got an object of 1"),
        (legacy(None), "array must be a rectangular list of numbers, got null"),
        (legacy([[1]], batch_axis=7), "has no batch_axis=7"),
        (legacy([[1]], batch_axis="0"), "metadata.batch_axis must be a whole number .*, got '0'"),
        (legacy([[1]], epoch="third"), "metadata.epoch must be a number .*, got 'third'"),
        (legacy([[1]], model_name=None), "metadata.model_name must be a string .*, got null"),
        (legacy([[1]], operation_name=["a"]), "metadata.operation_name must be a string"),
        (DEEP, "Malformed JSON"),
        (b'{"metadata": {}, "array": ' + DEEP + b"}", "Malformed JSON"),
        (b'{"metadata": {}, "array": [NaN]}', "NaN is not JSON; write null"),
        (legacy([10**400]), r"array\[0\] must be a number"),
        (legacy([[10**400]]), "array must be a rectangular list of numbers|Malformed"),
    ],
)
def test_invalid_json_of_2018_client_is_refused(body, complaint):
    with pytest.raises((CodecError, InputError), match=complaint) as caught:
        decode(body, LegacyArray).record("activation_output")
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("value", [None, "one", {}, []])
def test_wrong_value_of_an_object_is_refused_by_name(value):
    logged = {"epoch": 0, "step": 0, "time": 0, "values": {"loss": 0.5, "accuracy": value}}
    body = json.dumps({"run": "r", "model": "m", "log": [logged]}).encode()
    with pytest.raises(InputError, match=r"^A value of log\[0\].values must be a number or one of '-inf'"):
        decode(body, RunRequest)
