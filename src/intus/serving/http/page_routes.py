"""The HTTP routes of the page: its files, and what it reads from the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ...core.errors import InputError, did_you_mean
from ...storage.codec import decode_graph
from ...viewing.scene import scene
from ..checks import check_text
from ..frontend import Frontend
from .endpoints import get, run_and_model
from .feed import ChangeFeed

STATIC = Path(__file__).resolve().parents[2] / "_static"
_POINT_COLUMNS = (
    "address", "unit", "epoch", "step", "kind", "target", "score", "value", "low", "high", "baseline", "n",
    "note", "revision",
)  # fmt: skip


def page_routes(frontend: Frontend, feed: ChangeFeed) -> list[Route]:
    """What a browser asks for."""
    database = frontend.database

    def points(request: Request) -> Response:
        run, model = run_and_model(request)
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
        run, model = run_and_model(request)
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


def _static(name: str) -> Response:
    path = STATIC / name
    if path.parent == STATIC and path.is_file():
        return FileResponse(path, headers={"Cache-Control": "no-cache"})
    if name == "index.html":
        return PlainTextResponse("The page is not built; run 'make web' in intus' repository.", 404)
    return JSONResponse({"error": f"There is no file {name!r}."}, 404)
