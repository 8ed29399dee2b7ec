"""The OpenAPI 3.1 document of the endpoints, generated from their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...storage.codec import FORMAT
from ..messages import ErrorReply
from .endpoints import Endpoint

_REFERENCE = "#/components/schemas/{name}"
_BLOB = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the document; if endpoints have the same route, the first is described.

    >>> from ..messages import ClearRequest
    >>> openapi([Endpoint("POST", "/clear", "Forget everything", print, body=ClearRequest)])["paths"].keys()
    dict_keys(['/clear'])
    """
    kinds = [kind for each in endpoints for kind in (each.body, each.reply)]
    named = [kind for kind in dict.fromkeys([*kinds, ErrorReply]) if kind not in (None, bytes)]
    schemas, components = msgspec.json.schema_components(named, ref_template=_REFERENCE)
    schema_of = dict(zip(named, schemas, strict=True))
    for kind in named:
        if one_of := getattr(kind, "ONE_OF", ()):
            components[kind.__name__]["anyOf"] = [{"required": [name]} for name in one_of]
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        of_path = paths.setdefault(each.path, {})
        of_path.setdefault(each.method.lower(), _operation(each, schema_of, components))
    return {
        "openapi": "3.1.0",
        "info": {"title": "intus", "version": FORMAT},
        "paths": paths,
        "components": {"schemas": _portable(components)},
    }


def _operation(endpoint: Endpoint, schema_of: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint.query),
        "responses": {
            "200": {"description": "Done", "content": _json(schema_of[endpoint.reply])},
            "4XX": {"description": "Refused, with the reason", "content": _json(schema_of[ErrorReply])},
            "5XX": {"description": "Not done now, with the reason", "content": _json(schema_of[ErrorReply])},
        },
    }
    if endpoint.body is not None:
        content = _BLOB if endpoint.body is bytes else _json(_portable(schema_of[endpoint.body]))
        fields = components.get(getattr(endpoint.body, "__name__", ""), {"required": True})
        needed = bool(fields.get("required") or fields.get("anyOf"))  # an empty body counts as {}
        operation["requestBody"] = {"required": needed, "content": content}
    return operation


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameters(query: type | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    _, schemas = msgspec.json.schema_components([query])
    schema = _portable(schemas[query.__name__])
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": of}
        for name, of in schema["properties"].items()
    ]


def _portable(schema: Any) -> Any:
    """Return a schema without lone surrogates in its patterns, which not all engines can read."""
    if isinstance(schema, dict):
        return {name: _portable(value) for name, value in schema.items()}
    if isinstance(schema, list):
        return [_portable(value) for value in schema]
    return schema.replace(r"\ud800-\udfff", "") if isinstance(schema, str) else schema
