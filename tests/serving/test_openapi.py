"""The OpenAPI document, and every route fuzzed by a tool that reads it."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient

from intus.serving.aggregation.service import AggregatorService
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.frontend import Frontend
from intus.serving.http.app import build, endpoints
from intus.serving.roles import Roles
from intus.storage.database import Database

EXAMPLES = 60
PAGES = {"/", "/static/{name}", "/api/stream", "/openapi.json"}


@pytest.fixture
def roles(tmp_path):
    frontend = Frontend(Database(tmp_path / "x.db"))
    evaluator = Evaluator(frontend, ["mean"])
    roles = Roles(AggregatorService(evaluator), evaluator, frontend)
    yield roles
    roles.close()


@pytest.fixture
def app(roles):
    return build(roles, max_body=1 << 20)


def stated(roles):
    """Return (method, path) of every endpoint."""
    return {(each.method, each.path) for each in endpoints(roles)}


def test_document_describes_exactly_the_served_routes(app, roles):
    served = {(method, route.path) for route in app.routes for method in route.methods - {"HEAD"}}
    with TestClient(app) as client:
        document = client.get("/openapi.json").json()
    described = {(m.upper(), path) for path, of_path in document["paths"].items() for m in of_path}
    assert described == {(m, path) for m, path in served if path not in PAGES} == stated(roles)


def test_document_of_single_role(tmp_path):
    frontend = Frontend(Database(tmp_path / "x.db"))
    with TestClient(build(Roles(frontend=frontend))) as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert "/results" in paths
    assert "/records" not in paths
    frontend.close()


def test_document_references_resolve(app):
    with TestClient(app) as client:
        document = client.get("/openapi.json").json()
    schemas, text = document["components"]["schemas"], json.dumps(document)
    named = set(re.findall(r'"#/components/schemas/(.*?)"', text))
    assert named <= set(schemas)
    assert {"TargetRequest", "RunSummary", "ErrorReply"} <= named
    assert schemas["ClaimRequest"]["required"] == ["name", "owner"]
    assert schemas["Notice"]["properties"]["level"]["enum"] == ["error", "info", "warning"]


def test_document_says_what_is_needed(app):
    judge = pytest.importorskip("jsonschema_rs", reason="part of schemathesis")
    with TestClient(app) as client:
        document = client.get("/openapi.json").json()
        paths, schemas = document["paths"], document["components"]["schemas"]
        for path in ("/flush", "/status", "/clear", "/targets", "/remove"):
            needed = client.post(path).status_code == 400
            assert paths[path]["post"]["requestBody"]["required"] is needed, path
        assert schemas["RemoveRequest"]["anyOf"] == [{"required": ["model"]}, {"required": ["model_name"]}]
        (columns,) = (
            each["schema"] for each in paths["/api/points"]["get"]["parameters"] if each["name"] == "columns"
        )
        for schema in schemas.values():
            judge.meta.validate(schema)
        for value, status in (("epoch,value", 200), ("", 400), ("epoch,", 400), ("when", 400)):
            assert client.get("/api/points", params={"run": "r", "columns": value}).status_code == status
            assert judge.is_valid(columns, value) is (status == 200)
        for value in (["epoch"], ["state", "step"], [], ["when"]):
            schema = paths["/set_trigger_fields"]["post"]["requestBody"]["content"]["application/json"]
            valid = judge.is_valid(schema["schema"], value)
            assert (client.post("/set_trigger_fields", json=value).status_code == 200) is valid, value


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS"])
def test_refused_method_is_told_the_others(app, roles, method):
    by_path = {}
    for allowed, path in stated(roles):
        by_path.setdefault(path, set()).update({allowed} | ({"HEAD"} if allowed == "GET" else set()))
    with TestClient(app) as client:
        for path, allowed in by_path.items():
            answer = client.request(method, path)
            assert answer.status_code == 405
            assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("given", ["few", "-1", "1e17", "9" * 30, "", "nan"])
def test_no_value_of_any_parameter_is_an_internal_error(app, given):
    """Before, /api/log?most=few was one."""
    tried = 0
    with TestClient(app, raise_server_exceptions=False) as client:
        paths = client.get("/openapi.json").json()["paths"]
        for path, operation in ((path, each["get"]) for path, each in paths.items() if "get" in each):
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query":
                    answer = client.get(path, params={parameter["name"]: given})
                    assert answer.status_code < 500, (path, parameter["name"], answer.text)
                    tried += 1
    assert tried > 20


def test_every_response_has_security_headers(app, roles, monkeypatch):
    with TestClient(app, raise_server_exceptions=False) as client:
        monkeypatch.setattr(roles.frontend.database, "notices", lambda run: 1 / 0)
        statuses = {
            "/": 200,
            "/api/runs": 200,
            "/nothing": 404,
            "/api/points?level=x": 400,
            "/api/notices": 500,
        }
        for path, status in statuses.items():
            answer = client.get(path)
            assert answer.status_code == status
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert "script-src 'self';" in answer.headers["content-security-policy"]
            named = ("x-frame-options", "x-content-type-options", "referrer-policy")
            assert [answer.headers[name] for name in named] == ["DENY", "nosniff", "no-referrer"]


@pytest.mark.filterwarnings("ignore")  # of the tool's own libraries
@pytest.mark.slow
def test_schemathesis_finds_no_failure(app, roles):
    schemathesis = pytest.importorskip("schemathesis", reason="part of the extra dev")
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    seen = set()

    def attempt(case):
        answer = case.call(headers={"Prefer": "wait=5"})
        seen.add((case.method, case.path, answer.status_code))
        assert answer.status_code < 500, (case, answer.text)
        assert answer.status_code < 400 or answer.json()["error"], (case, answer.text)

    for result in schema.get_all_operations():
        for mode in schemathesis.GenerationMode:
            cases = result.ok().as_strategy(generation_mode=mode)
            checks = settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
            with contextlib.suppress(Unsatisfiable):  # a route that takes nothing cannot be given too little
                checks(given(case=cases)(attempt))()
    assert {(method, path) for method, path, _ in seen} == stated(roles)
    assert {status for *_, status in seen} >= {200, 400}
