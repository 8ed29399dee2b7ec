"""What the routes take, as OpenAPI 3.1: for readers, and for tools that try what should be refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...storage.codec import FORMAT

_TEXT = {"type": "string", "maxLength": 1000}
_BLOB = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _json(required: str = "", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required.split()}
    return {"application/json": {"schema": schema}}


def _query(required: str = "", optional: str = "") -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": name in required.split(), "schema": _TEXT}
        for name in [*required.split(), *optional.split()]
    ]


_LABELS = {
    "type": "array",
    "minItems": 1,
    "items": {"anyOf": [{"type": ["string", "number", "boolean", "null"]}, {"type": "array"}]},
}
_PATTERNS = {f"{name}_pattern": _TEXT for name in ("model", "layer", "run")}
_TARGET = _json("name targets", name=_TEXT, targets=_LABELS, client=_TEXT, **_PATTERNS)
_LEGACY_TARGET = _json("name values", name=_TEXT, values=_LABELS, **_PATTERNS)
_NAMES = {"application/json": {"schema": {"type": "array", "items": _TEXT, "minItems": 1}}}
_ARRAY = _json(
    "metadata array",
    metadata={
        "type": "object",
        "required": ["model_name", "operation_name"],
        "properties": {
            "model_name": _TEXT,
            "operation_name": _TEXT,
            "epoch": {"type": ["number", "null"]},
            "batch_axis": {"type": ["integer", "null"]},
            "state": _TEXT,
            "array_name": _TEXT,
        },
    },
    array={"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "array"}]}},
)
_NOTICE = {
    "type": "object",
    "required": ["code", "text"],
    "properties": {
        "code": _TEXT,
        "text": _TEXT,
        "level": {"enum": ["info", "warning", "error"]},
        "run": _TEXT,
        "model": _TEXT,
    },
}

#: (method, path): what it does, its query, its body.
_ROUTES: dict[tuple[str, str], tuple[str, list[dict[str, Any]], dict[str, Any] | None]] = {
    ("POST", "/records"): ("Take records, as safetensors with JSON metadata", [], _BLOB),
    ("POST", "/graph"): ("Take a model's graph", _query("run model"), _BLOB),
    ("POST", "/targets"): ("Register labels", [], _TARGET),
    ("POST", "/flush"): (
        "Score all that came, and wait for it (as long as Prefer: wait=SECONDS says)",
        [],
        _json(run=_TEXT, model=_TEXT, client=_TEXT),
    ),
    ("POST", "/set_trigger_fields"): ("Say which fields complete data points from now on", [], _NAMES),
    ("GET", "/status"): ("The aggregator's counts, and the fields that complete a data point", [], None),
    ("POST", "/clear"): ("Forget everything", [], _json()),
    ("POST", "/remove"): ("Forget a model", [], _json("model", model=_TEXT)),
    ("POST", "/datapoint"): ("Score a data point; answers when it is stored", [], _BLOB),
    ("POST", "/results"): ("Store scores", [], _json("columns", columns={"type": "object"})),
    ("POST", "/claim"): ("Keep a target to its owner", [], _json("name owner", name=_TEXT, owner=_TEXT)),
    ("POST", "/order"): (
        "Verify or withdraw scores by order of arrival",
        [],
        _json("run model mode holds", run=_TEXT, model=_TEXT, mode=_TEXT, holds={"type": "boolean"}),
    ),
    ("POST", "/notices"): ("Tell people", [], _json("notices", notices={"type": "array", "items": _NOTICE})),
    ("POST", "/status"): (
        "Take another role's counts",
        [],
        _json("role counts", role={"enum": ["aggregator", "evaluator"]}, counts={"type": "object"}),
    ),
    ("GET", "/targets"): ("The labels kept", [], None),
    ("GET", "/api/runs"): ("Every run, and what there is to look at in it", [], None),
    ("GET", "/api/points"): (
        "Scores, as columns",
        _query("run model", "score target kind address level columns"),
        None,
    ),
    ("GET", "/api/graph"): ("A model's graph", _query("run model"), None),
    ("GET", "/api/notices"): ("What people should know", _query("", "run"), None),
    ("GET", "/api/status"): ("Counts of every role", [], None),
} | {
    ("POST", f"/{name}"): (text, [], body)
    for text, body, names in (
        ("Take one array, as the client of 2018 sends it", _ARRAY,
         ("activation_output", "activation_input", "gradient_output", "gradient_input", "parameter")),
        ("Register labels, as the client of 2018 does", _LEGACY_TARGET,
         ("register_classification_targets", "register_clustering_targets")),
    )
    for name in names
}  # fmt: skip


def openapi(served: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """The document of the routes that are served, each (path, method, …); pages and streams are left out.

    >>> sorted(openapi([("/clear", "POST")])["paths"])
    ['/clear']
    """
    paths: dict[str, dict[str, Any]] = {}
    for path, *methods in served:
        for method in methods:
            if (method, path) in _ROUTES:
                paths.setdefault(path, {}).setdefault(method.lower(), _operation(*_ROUTES[method, path]))
    return {
        "openapi": "3.1.0",
        "info": {"title": "intus", "version": FORMAT},
        "paths": paths,
    }


def _operation(text: str, query: list[dict[str, Any]], body: dict[str, Any] | None) -> dict[str, Any]:
    error = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
    operation: dict[str, Any] = {
        "summary": text,
        "parameters": query,
        "responses": {
            "200": {"description": "Done", "content": {"application/json": {"schema": {"type": "object"}}}},
            "4XX": {"description": "Refused, with the reason", "content": error},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation
