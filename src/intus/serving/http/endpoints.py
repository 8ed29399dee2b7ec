"""From a function to an HTTP route: bodies that may be so long and no longer, work in a thread, answers as
JSON, refusals with a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.errors import IntusError, ServeError
from ..aggregation.journal import FullError
from ..checks import check_text
from ..interfaces import BusyError

Work = Callable[[Request, bytes], Any]
#: The longest JSON: as Python objects it takes ten times as much.
MAX_JSON = 64 << 20
#: The longest that a caller who names no time is kept waiting, in seconds.
PATIENCE = 3600.0


def get(path: str, work: Callable[[Request], Any]) -> Route:
    """A route that reads."""

    async def endpoint(request: Request) -> Response:
        return _answer(await run_in_threadpool(work, request))

    return Route(path, endpoint, methods=["GET"])


def post(path: str, work: Work, limit: int) -> Route:
    """A route that takes a body of at most ``limit`` bytes."""

    async def endpoint(request: Request) -> Response:
        body = await _read(request, limit)
        return _answer(await run_in_threadpool(work, request, body))

    return Route(path, endpoint, methods=["POST"])


def patience(request: Request) -> float:
    """How many seconds the caller would wait, by RFC 7240's ``Prefer: wait=…``."""
    for part in request.headers.get("prefer", "").split(","):
        name, _, value = part.strip().partition("=")
        if name == "wait" and value.isascii() and value.isdigit() and len(value) < 6:
            return min(float(value), PATIENCE)
    return PATIENCE


def run_and_model(request: Request) -> tuple[str, str]:
    """The run and the model that a request's query names."""
    query = request.query_params
    return check_text(query.get("run", ""), "run"), check_text(query.get("model", ""), "model")


class Answers:
    """ASGI middleware that counts the requests that were not done."""

    def __init__(self, app: ASGIApp, counts: Counter[str]) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self._count(message["status"])
            await send(message)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)

    def _count(self, status: int) -> None:
        self._counts[f"http_{status}"] += 1
        if status < 500 and status not in (404, 429):  # those ask to come back, or for what is not there yet
            self._counts["refused"] += 1


def _answer(value: Any) -> Response:
    return value if isinstance(value, Response) else JSONResponse(value or {})


async def _read(request: Request, limit: int) -> bytes:
    """The body, refused as soon as it is known to be longer than ``limit`` bytes."""
    announced = request.headers.get("content-length", "")
    parts, size = [], int(announced) if announced.isascii() and announced.isdigit() else 0
    if size <= limit:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                break
            parts.append(part)
    if size > limit:
        raise HTTPException(413, f"The body is longer than the {limit:,} bytes that this server takes.")
    return b"".join(parts)


async def _sorry(request: Request, error: Exception) -> Response:
    text = str(error).encode("utf-8", "backslashreplace").decode()  # it may quote half a surrogate pair
    if isinstance(error, BusyError):
        return JSONResponse({"error": text}, 429, {"Retry-After": "1"})
    if isinstance(error, FullError):
        return JSONResponse({"error": text}, 507, {"Retry-After": "5"})
    return JSONResponse({"error": text}, 502 if isinstance(error, ServeError) else 400)


async def _no_database(request: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)
    text = f"The database cannot be read now: {str(error.orig).strip()}."
    return JSONResponse({"error": text}, 503, {"Retry-After": "5"})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failure(request: Request, error: Exception) -> Response:
    request.app.state.requests["http_500"] += 1  # it is answered outside of all middleware
    return JSONResponse({"error": f"The server failed: {type(error).__name__}."}, 500)


HANDLERS: Any = {
    IntusError: _sorry,
    HTTPException: _http_error,
    DBAPIError: _no_database,
    ClientDisconnect: lambda request, error: Response(status_code=400),
    Exception: _failure,
}
