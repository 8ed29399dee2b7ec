"""The application that serves one role or all of them.

An endpoint reads a body that may be so long and no longer, works in a thread, and answers JSON. What a
caller got wrong is a 4xx with a sentence.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from ..roles import Roles
from .endpoints import HANDLERS, Answers, get
from .feed import ChangeFeed
from .guard import Guard
from .openapi import openapi
from .page_routes import page_routes
from .routes import collector_routes, evaluator_routes, frontend_routes

MAX_BODY = 256 << 20


def build(
    roles: Roles,
    *,
    token: str | None = None,
    loopback: bool = False,
    max_body: int = MAX_BODY,
    feed: ChangeFeed | None = None,
) -> Starlette:
    """The application of the roles given; in one of all, a request goes to the first of the chain."""
    routes: list[Route] = []
    if roles.collector:
        routes += collector_routes(roles.collector, max_body)
    if roles.evaluator:
        routes += evaluator_routes(roles.evaluator, max_body)
    if roles.frontend:
        routes += frontend_routes(roles.frontend, max_body)
        routes += page_routes(roles.frontend, feed or ChangeFeed(roles.frontend.database))
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
