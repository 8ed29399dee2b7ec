"""The HTTP routes of each role, and the application that serves one role or all of them.

An endpoint reads a body that may be so long and no longer, works in a thread, and answers JSON. What a
caller got wrong is a 4xx with a sentence.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ..core.errors import InputError, IntusError, ServeError, did_you_mean
from ..storage.codec import decode_graph, decode_legacy, decode_records
from ..viewing.scene import scene
from .chain import AwayError, BusyError, Link
from .checks import check_text, read_json, read_names
from .endpoints import HANDLERS, MAX_JSON, Answers, Work, get, patience, post
from .feed import Feed
from .guard import Guard
from .journal import FullError
from .openapi import openapi
from .roles import Collector, Evaluator, Frontend
from .wire import notices_from_json, point_from_wire, results_from_json

STATIC = Path(__file__).resolve().parent.parent / "_static"
LEGACY = ("activation_output", "activation_input", "gradient_output", "gradient_input", "parameter")
_POINT_COLUMNS = (
    "address", "unit", "epoch", "step", "kind", "target", "score", "value", "low", "high", "baseline", "n",
    "note", "revision",
)  # fmt: skip
MAX_BODY = 256 << 20
MAX_SMALL = 1 << 16


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles one process plays; None for those played elsewhere. ``requests`` counts what was not done."""

    collector: Collector | None = None
    evaluator: Evaluator | None = None
    frontend: Frontend | None = None
    requests: Counter[str] = field(default_factory=Counter)

    def status(self) -> dict[str, Any]:
        """Each role's counts: our own as they are now, the others' as last reported. Besides, ``requests``:
        those of this process that were refused or failed; ``runs``: counts of each (run, model)."""
        told = {
            name: dict(counts) for name, counts in (self.frontend.reported if self.frontend else {}).items()
        }
        if self.collector:
            told["aggregator"] = self.collector.status() | {"runs": self.collector.by_run()}
        if self.evaluator:
            told["evaluator"] = self.evaluator.status() | {"runs": self.evaluator.by_run()}
        if self.frontend:
            told["frontend"] = dict(self.frontend.status())
        runs = [row for counts in told.values() for row in counts.pop("runs", [])]
        roles = {name: told.get(name, {}) for name in ("aggregator", "evaluator", "frontend")}
        return roles | {"requests": dict(self.requests), "runs": runs}

    def close(self) -> None:
        """Finish what was received, along the chain."""
        for role in (self.collector, self.evaluator, self.frontend):
            if role is not None:
                role.close()


def build(
    roles: Roles,
    *,
    token: str | None = None,
    loopback: bool = False,
    max_body: int = MAX_BODY,
    feed: Feed | None = None,
) -> Starlette:
    """The application of the roles given; in one of all, a request goes to the first of the chain."""
    routes: list[Route] = []
    if roles.collector:
        routes += _collector_routes(roles.collector, max_body)
    if roles.evaluator:
        routes += _evaluator_routes(roles.evaluator, max_body)
    if roles.frontend:
        routes += _frontend_routes(roles.frontend, max_body)
        routes += _page_routes(roles.frontend, feed or Feed(roles.frontend.database))
    routes.append(get("/api/status", lambda request: roles.status()))
    paths = [(route.path, *(route.methods or ())) for route in routes]
    routes.append(get("/openapi.json", lambda request: openapi(paths)))
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(Answers, counts=roles.requests),
            Middleware(Guard, token=token, loopback=loopback),
        ],
        exception_handlers=HANDLERS,
    )
    app.state.requests = roles.requests
    return app


def _collector_routes(collector: Collector, limit: int) -> list[Route]:
    def counted(work: Work) -> Work:
        def call(request: Request, body: bytes) -> Any:
            try:
                return work(request, body)
            except (BusyError, FullError, ServeError):
                raise
            except IntusError:
                collector.malformed += 1
                raise

        return call

    def records(request: Request, body: bytes) -> dict[str, Any]:
        return collector.records(*decode_records(body), body)

    def legacy(request: Request, body: bytes) -> dict[str, Any]:
        return collector.records([decode_legacy(body, request.url.path[1:])], {})

    def trigger(request: Request, body: bytes) -> None:
        collector.set_trigger(read_names(body))

    def status(request: Request) -> dict[str, Any]:
        return {"trigger": list(collector.aggregator.trigger)} | collector.status()

    return [
        post("/records", counted(records), limit),
        post("/set_trigger_fields", counted(trigger), MAX_SMALL),
        get("/status", status),
        *(post(f"/{name}", counted(legacy), min(limit, MAX_JSON)) for name in LEGACY),
        *_chain_routes(collector, limit, counted),
    ]


def _evaluator_routes(evaluator: Evaluator, limit: int) -> list[Route]:
    def datapoint(request: Request, body: bytes) -> dict[str, Any]:
        if evaluator.backlog() > limit * 4:
            raise BusyError("More data points wait to be scored than may; send this again in a second.")
        point, last = point_from_wire(*decode_records(body))
        stored = threading.Event()
        evaluator.point(point, last=last, done=lambda point: stored.set())
        while not stored.wait(0.5):  # who sent it keeps it until then
            if evaluator.closing.is_set() and not stored.wait(5):
                raise AwayError("The evaluator is being stopped; send this to it again.")
        return {"accepted": 1}

    return [
        post("/datapoint", datapoint, limit * 4),
        *_chain_routes(evaluator, limit),
        *_report_routes(evaluator, limit),
    ]


def _frontend_routes(frontend: Frontend, limit: int) -> list[Route]:
    def results(request: Request, body: bytes) -> dict[str, Any]:
        table = results_from_json(read_json(body))
        frontend.results(table)
        return {"accepted": len(table)}

    def claim(request: Request, body: bytes) -> None:
        packet = read_json(body)
        frontend.claim_target(*(check_text(packet.get(name), name) for name in ("name", "owner")))

    def order(request: Request, body: bytes) -> None:
        packet = read_json(body)
        run, model, mode = (check_text(packet.get(name), name) for name in ("run", "model", "mode"))
        if not isinstance(packet.get("holds"), bool):
            raise InputError('Expected "holds": true or false.')
        frontend.order(run, model, mode, packet["holds"])

    return [
        post("/results", results, limit),
        post("/claim", claim, limit),
        post("/order", order, limit),
        *_chain_routes(frontend, limit),
        *_report_routes(frontend, limit),
        get("/targets", lambda request: {"targets": frontend.targets()}),
    ]


def _chain_routes(
    role: Collector | Link, limit: int, wrap: Callable[[Work], Work] = lambda work: work
) -> list[Route]:
    """What every role takes and passes on."""

    def graph(request: Request, body: bytes) -> None:
        run, model = _run_and_model(request)
        role.put_graph(run, model, body)

    def targets(request: Request, body: bytes) -> None:
        role.put_target(read_json(body))

    def legacy_targets(request: Request, body: bytes) -> None:
        packet = read_json(body)
        values = packet.pop("values", None)
        role.put_target(packet if values is None else packet | {"targets": values})

    def flush(request: Request, body: bytes) -> None:
        packet = read_json(body)
        named = {name: packet[name] for name in ("run", "model", "client") if packet.get(name) is not None}
        for name, value in named.items():
            check_text(value, name)
        if not isinstance(role, Collector):
            named.pop("client", None)
        role.flush(**named, timeout=patience(request))

    def clear(request: Request, body: bytes) -> None:
        role.clear()

    def remove(request: Request, body: bytes) -> None:
        packet = read_json(body)
        role.remove(check_text(packet.get("model", packet.get("model_name")), "model"))

    works = {"/targets": targets, "/flush": flush, "/clear": clear, "/remove": remove}
    works |= {f"/register_{kind}_targets": legacy_targets for kind in ("classification", "clustering")}
    of_json = [post(path, wrap(work), min(limit, MAX_JSON)) for path, work in works.items()]
    return [post("/graph", wrap(graph), limit), *of_json]


def _report_routes(role: Link, limit: int) -> list[Route]:
    """What the roles before tell of themselves."""

    def notices(request: Request, body: bytes) -> None:
        role.notices(notices_from_json(read_json(body)))

    def status(request: Request, body: bytes) -> None:
        packet = read_json(body)
        counts = packet.get("counts")
        runs = counts.pop("runs", []) if isinstance(counts, dict) else None
        told = [counts, *runs] if isinstance(runs, list) else [None]
        if not all(isinstance(row, dict) and all(map(_is_count, row.items())) for row in told):
            raise InputError('Expected {"role": ..., "counts": {name: count, "runs": [{...}, ...]}}.')
        if packet.get("role") not in ("aggregator", "evaluator"):
            raise InputError(f"role={packet.get('role')!r} is not 'aggregator' or 'evaluator'.")
        role.report(packet["role"], {**(counts or {}), "runs": runs})

    return [post("/notices", notices, limit), post("/status", status, limit)]


def _page_routes(frontend: Frontend, feed: Feed) -> list[Route]:
    database = frontend.database

    def points(request: Request) -> Response:
        run, model = _run_and_model(request)
        query = request.query_params
        equal: dict[str, Any] = {
            name: check_text(query[name], name)
            for name in ("score", "target", "kind", "address")
            if name in query
        }
        level = query.get("level", "layer")
        names = query["columns"].split(",") if "columns" in query else _POINT_COLUMNS
        for name in names:
            if name not in _POINT_COLUMNS:
                raise InputError(f"Points have no column {name!r}. {did_you_mean(name, _POINT_COLUMNS)}")
        columns = database.columns(run, model, names, level=level, **equal)
        # of a hundred thousand numbers json would take longer than the database
        return Response(orjson.dumps(columns), media_type="application/json")

    def graph(request: Request) -> Any:
        run, model = _run_and_model(request)
        blob = database.graph(run, model)
        if blob is None:
            text = f"There is no graph of model {model!r} in run {run!r}."
            return JSONResponse({"error": text}, 404)
        return scene(decode_graph(blob)[0])

    def notices(request: Request) -> dict[str, Any]:
        run = request.query_params.get("run")
        return {"notices": database.notices(None if run is None else check_text(run, "run"))}

    async def stream(request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        since = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(feed.stream(since), media_type="text/event-stream", headers=headers)

    return [
        get("/", lambda request: _static("index.html")),
        get("/static/{name}", lambda request: _static(request.path_params["name"])),
        get("/api/runs", lambda request: {"runs": database.runs()}),
        get("/api/points", points),
        get("/api/graph", graph),
        get("/api/notices", notices),
        Route("/api/stream", stream, methods=["GET"]),
    ]


def _is_count(item: tuple[str, Any]) -> bool:
    name, value = item
    return isinstance(value, str if name in ("run", "model") else int)


def _static(name: str) -> Response:
    path = STATIC / name
    if path.parent == STATIC and path.is_file():
        return FileResponse(path, headers={"Cache-Control": "no-cache"})
    if name == "index.html":
        return PlainTextResponse("The page is not built; run 'make web' in intus' repository.", 404)
    return JSONResponse({"error": f"There is no file {name!r}."}, 404)


def _run_and_model(request: Request) -> tuple[str, str]:
    query = request.query_params
    return check_text(query.get("run", ""), "run"), check_text(query.get("model", ""), "model")
