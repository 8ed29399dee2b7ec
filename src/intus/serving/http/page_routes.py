"""The routes of the page: its files, and the data that it reads from the database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ...core.errors import InputError, did_you_mean
from ...storage.codec import decode_graph
from ...viewing.scene import scene
from ..frontend import Frontend
from ..messages import (
    POINT_COLUMNS,
    AboveQuery,
    ChangeRunRequest,
    ConfusionReply,
    ErrorReply,
    FindingsReply,
    FollowupQuery,
    FollowupReply,
    GapReply,
    LogQuery,
    LogReply,
    NoticesQuery,
    NoticesReply,
    PointQuery,
    PointsQuery,
    PointsReply,
    RunQuery,
    RunsReply,
)
from .endpoints import CheckedRequest, Endpoint, get, json_response, post
from .feed import ChangeFeed

STATIC = Path(__file__).resolve().parents[2] / "_static"


def page_routes(frontend: Frontend, change_run: Callable[[ChangeRunRequest], None]) -> list[Endpoint]:
    """Return the endpoints from which the page reads its data.

    Args:
        frontend: The frontend.
        change_run: Tags, renames or deletes a run.
    """
    database = frontend.database

    def points(request: CheckedRequest) -> dict[str, Any]:
        query: PointsQuery = request.query
        named = {"score": query.score, "target": query.target, "kind": query.kind, "address": query.address}
        names = POINT_COLUMNS if query.columns is None else query.columns.split(",")
        for name in names:
            if name not in POINT_COLUMNS:
                raise InputError(f"Points have no column {name!r}. {did_you_mean(name, POINT_COLUMNS)}")
        equal: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        model = _only_model(query.run) if query.model is None else query.model
        frontend.on_show.note(query.run, model, query.address)
        change = database.change_number()  # read first: what changes meanwhile comes again
        epochs = None
        if query.group:
            columns = frontend.grouped(query.run, model, names, level=query.level, **equal)
        else:
            epochs = database.epochs_after(query.run, model, query.after) if query.after else None
            chosen: dict[str, Any] = {"level": query.level, "since": query.since, "epochs": epochs}
            columns = database.columns(query.run, model, names, **chosen, **equal)
        return columns | ({} if query.after is None else {"change": change, "whole": epochs is None})

    def _only_model(run: str) -> str:
        models = [one["model"] for one in database.runs() if one["run"] == run]
        if len(models) > 1:
            raise InputError(f"The run {run!r} has {len(models)} models. Add model=, one of {models}.")
        return models[0] if models else ""

    def graph(request: CheckedRequest) -> Any:
        run, model = request.query.run, request.query.model
        blob = database.graph(run, model)
        if blob is None:
            return json_response(ErrorReply(f"There is no graph of model {model!r} in run {run!r}."), 404)
        return scene(decode_graph(blob)[0])

    def notices(request: CheckedRequest) -> dict[str, Any]:
        return {"notices": database.notices(request.query.run)}

    return [
        get(
            "/api/runs",
            "Every run, with its epochs, layers and scores",
            RunsReply,
            lambda request: frontend.runs(),
        ),
        get("/api/points", "Scores, as columns", PointsReply, points, PointsQuery),
        get(
            "/api/confusion",
            "The classes that a classifier takes for each other, on held-out rows",
            ConfusionReply,
            lambda request: frontend.confusion(request.query),
            PointQuery,
        ),
        get(
            "/api/above",
            "How much higher a classifier's score is than at another point, on the same held-out items",
            GapReply,
            lambda request: frontend.above(request.query),
            AboveQuery,
        ),
        get(
            "/api/followup",
            "Examples and the verification of a unit, as far as a user stored them",
            FollowupReply,
            lambda request: frontend.followup(request.query),
            FollowupQuery,
        ),
        get(
            "/api/findings",
            "What follows from the scores of a run, in sentences, and the number of its last change",
            FindingsReply,
            lambda request: frontend.findings(request.query.run, request.query.model),
            RunQuery,
        ),
        get(
            "/api/log",
            "The values that the user logged",
            LogReply,
            lambda request: frontend.log(request.query),
            LogQuery,
        ),
        post(
            "/api/run",
            "Rename, tag or delete a run",
            ChangeRunRequest,
            lambda request: change_run(request.body),
            1 << 16,
        ),
        get("/api/graph", "A model's graph", dict[str, Any], graph, RunQuery),
        get("/api/notices", "Notices, the newest first", NoticesReply, notices, NoticesQuery),
    ]


def file_routes(feed: ChangeFeed) -> list[Route]:
    """Return the routes of the page's files and of its event stream."""

    async def stream(request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        since = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(feed.stream(since), media_type="text/event-stream", headers=headers)

    return [
        Route("/", lambda request: _static("index.html"), methods=["GET"]),
        Route("/static/{name}", lambda request: _static(request.path_params["name"]), methods=["GET"]),
        Route("/api/stream", stream, methods=["GET"]),
    ]


def _static(name: str) -> Response:
    path = STATIC / name
    if path.parent == STATIC and path.is_file():
        return FileResponse(path, headers={"Cache-Control": "no-cache"})
    if name == "index.html":
        return PlainTextResponse("The page is not built; run 'make web' in the repository of intus.", 404)
    return json_response(ErrorReply(f"There is no file {name!r}."), 404)
