"""Endpoints: an HTTP route with the messages it takes and answers, and the function that does the work.

An endpoint reads a body up to its limit, checks it against the endpoint's messages, works in a thread, and
replies with JSON. A request that cannot be used gets a 4xx reply with a sentence that names the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, NamedTuple

from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.errors import InputError, IntusError, ServeError, did_you_mean
from ...storage.same_file import ReplacedError
from ...storage.soundness import DamagedError
from ...storage.tables import reason
from ..decoding import decode, encode, read
from ..errors import BusyError, FullError, HeldError, ReadingError, fault
from ..messages import DoneReply, ErrorReply
from .headers import SECURITY
from .turns import Turns

#: Most bytes of a JSON body; its Python objects take about ten times as much memory.
MAX_JSON = 64 << 20
#: Seconds that a caller waits by default, and at most.
PATIENCE = 3600.0


class CheckedRequest(NamedTuple):
    """A checked request. ``wait`` is the number of seconds that the caller is willing to wait."""

    query: Any
    body: Any
    wait: float


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route.

    Attributes:
        method: The HTTP method.
        path: The path.
        summary: What it does, in a line.
        work: Takes the request and returns the reply, a Response or what ``encode`` takes.
        query: The struct of the query.
        body: The message of the body, ``bytes`` for a safetensors blob, None for no body.
        reply: The message of the reply.
        limit: Most bytes of the body.
        refused: Called when a request cannot be used.
        admit: Called before the body is read; raises BusyError or ReadingError to refuse it.
        turns: Lets one request at a time be worked on; None for many.
    """

    method: str
    path: str
    summary: str
    work: Callable[[CheckedRequest], Any]
    query: type | None = None
    body: Any = None
    reply: Any = DoneReply
    limit: int = 0
    refused: Callable[[], None] = lambda: None
    admit: Callable[[], None] = lambda: None
    turns: Turns | None = None

    async def respond(self, request: Request) -> Response:
        """Return the response to a request."""
        if self.method != "POST":
            return await run_in_threadpool(self._answer, request, b"")
        self.admit()
        async with request.app.state.bodies.read(request, self.limit) as body:
            run = run_in_threadpool if self.turns is None else self.turns.run
            return await run(self._answer, request, body)

    def _answer(self, request: Request, body: bytes) -> Response:
        try:
            query = read(_query_of(request, self.query), self.query, strict=False) if self.query else None
            message = body if self.body in (None, bytes) else decode(body, self.body)
            reply = self.work(CheckedRequest(query, message, patience(request)))
        except (BusyError, FullError, ReadingError, ReplacedError, ServeError):
            raise
        except IntusError:
            self.refused()
            raise
        return (
            reply if isinstance(reply, Response) else json_response(DoneReply() if reply is None else reply)
        )


def routes(endpoints: Iterable[Endpoint]) -> list[Route]:
    """Return a route for each path. Of endpoints with the same route, the first is used."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for each in endpoints:
        by_path.setdefault(each.path, {}).setdefault(each.method, each)

    def route(path: str, of_path: dict[str, Endpoint]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await of_path["GET" if request.method == "HEAD" else request.method].respond(request)

        return Route(path, endpoint, methods=list(of_path))

    return [route(path, of_path) for path, of_path in by_path.items()]


def _query_of(request: Request, kind: type) -> dict[str, str]:
    """Return the query of a request; raises InputError for a name that it does not have."""
    known = [*kind.__struct_fields__, "token"]  # type: ignore[attr-defined]
    for name in request.query_params:
        if name not in known:
            raise InputError(f"The query has no {name!r}. {did_you_mean(name, known[:-1])}")
    return dict(request.query_params)


def get(
    path: str, summary: str, reply: Any, work: Callable[[CheckedRequest], Any], query: type | None = None
) -> Endpoint:
    """Return a GET endpoint."""
    return Endpoint("GET", path, summary, work, query, reply=reply)


def post(
    path: str, summary: str, body: Any, work: Callable[[CheckedRequest], Any], limit: int, **more: Any
) -> Endpoint:
    """Return a POST endpoint for a body of at most ``limit`` bytes, for JSON at most MAX_JSON."""
    return Endpoint(
        "POST", path, summary, work, body=body, limit=limit if body is bytes else min(limit, MAX_JSON), **more
    )


def json_response(reply: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a reply as an HTTP response."""
    return Response(encode(reply), status, headers, "application/json")


def patience(request: Request) -> float:
    """Return the number of seconds that the caller is willing to wait (RFC 7240, ``Prefer: wait=…``)."""
    for part in request.headers.get("prefer", "").split(","):
        name, _, value = part.strip().partition("=")
        if name == "wait" and value.isascii() and value.isdigit() and len(value) < 6:
            return min(float(value), PATIENCE)
    return PATIENCE


class CountRefusals:
    """ASGI middleware that counts the requests that were refused or failed."""

    def __init__(self, app: ASGIApp, counts: Counter[str]) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it if its response has status 400 or above."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self._count(message["status"])
            await send(message)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)

    def _count(self, status: int) -> None:
        self._counts[f"http_{status}"] += 1
        if status < 500 and status not in (404, 429):  # 429 asks for a retry; a 404 is often just early
            self._counts["refused"] += 1


async def _refusal(request: Request, error: Exception) -> Response:
    text = str(error).encode("utf-8", "backslashreplace").decode()  # it may quote a lone surrogate
    if isinstance(error, BusyError):
        return json_response(ErrorReply(text), 429, {"Retry-After": "1"})
    if isinstance(error, ReadingError):
        return json_response(ErrorReply(text, error.lasting), 503, {"Retry-After": "1"})
    if isinstance(error, ReplacedError | DamagedError):
        return json_response(ErrorReply(text, lasting=True), 503, {"Retry-After": "5"})
    if isinstance(error, FullError | HeldError):
        return json_response(ErrorReply(text), 507, {"Retry-After": "5"})
    return json_response(ErrorReply(text), 502 if isinstance(error, ServeError) else 400)


async def _no_database(request: Request, error: Exception) -> Response:
    why = reason(error) if isinstance(error, DBAPIError) else f"a value is no JSON: {error}"
    text = f"The database cannot be read now: {why}."
    return json_response(ErrorReply(text), 503, {"Retry-After": "5"})


async def _fault(request: Request, error: Exception) -> Response:
    return json_response(ErrorReply(f"{fault(error)} Send this again later."), 503, {"Retry-After": "5"})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_response(ErrorReply(error.detail), error.status_code, dict(error.headers or {}))


async def _failure(request: Request, error: Exception) -> Response:
    """Answer an error outside of the routes, or of another handler; this bypasses all middleware."""
    if fault(error):
        response = await _fault(request, error)
    else:
        response = json_response(ErrorReply(f"The server failed: {type(error).__name__}."), 500)
    response.headers.update(SECURITY)
    request.app.state.requests[f"http_{response.status_code}"] += 1
    return response


HANDLERS: Any = {
    IntusError: _refusal,
    HTTPException: _http_error,
    DBAPIError: _no_database,
    JSONDecodeError: _no_database,
    MemoryError: _fault,
    OSError: _fault,
    ImportError: _fault,
    ClientDisconnect: lambda request, error: Response(status_code=400),
    Exception: _failure,
}
