"""The application that serves one role, or all of them."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..messages import StatusQuery, StatusReply
from ..roles import Roles
from .bodies import Bodies
from .endpoints import HANDLERS, CheckedRequest, CountRefusals, Endpoint, get, json_response, routes
from .feed import ChangeFeed
from .guard import Guard
from .headers import SecurityHeaders
from .openapi import openapi
from .page_routes import file_routes, page_routes
from .routes import aggregator_routes, evaluator_routes, frontend_routes

#: Most bytes of a body.
MAX_BODY = 256 << 20
#: Most bytes of all bodies under way, by default.
MAX_BODIES = 1 << 30


def endpoints(roles: Roles, max_body: int = MAX_BODY) -> list[Endpoint]:
    """Return the endpoints of these roles.

    If several roles have the same route, the first is that of the role that passes requests on to the others.
    """
    found: list[Endpoint] = []
    if roles.aggregator:
        found += aggregator_routes(roles.aggregator, max_body)
    if roles.evaluator:
        found += evaluator_routes(roles.evaluator, max_body)
    if roles.frontend:
        found += frontend_routes(roles.frontend, max_body)
        found += page_routes(roles.frontend, roles.change_run)

    def status(request: CheckedRequest) -> StatusReply:
        run, model = request.query.run, request.query.model
        if roles.frontend and run is not None and model is not None:  # a page asks while it shows the run
            roles.frontend.on_show.note(run, model)
        return roles.status(run, model)

    summary = "The counts of each role, and what became of every array of a run"
    return [*found, get("/api/status", summary, StatusReply, status, StatusQuery)]


def build(
    roles: Roles,
    *,
    token: str | None = None,
    loopback: bool = False,
    max_body: int = MAX_BODY,
    bodies: Bodies | None = None,
    feed: ChangeFeed | None = None,
) -> Starlette:
    """Return the application of these roles.

    Args:
        roles: The roles of this process.
        token: Secret that every request must carry.
        loopback: Whether the server listens on this machine only. Then requests with another Host are
            refused.
        max_body: Most bytes of a body.
        bodies: Reads the bodies of all requests, by default with at most MAX_BODIES bytes together.
        feed: The stream of changes, by default a new one.
    """
    served = endpoints(roles, max_body)
    document = openapi(served)

    def describe(request: Request) -> Response:
        return json_response(document)

    files = file_routes(feed or ChangeFeed(roles.frontend.database)) if roles.frontend else []
    app = Starlette(
        routes=[
            *routes(served),
            *files,
            Route("/openapi.json", describe, methods=["GET"]),
        ],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(CountRefusals, counts=roles.requests),
            Middleware(Guard, token=token, loopback=loopback),
        ],
        exception_handlers=HANDLERS,
    )
    app.state.requests, app.state.bodies = roles.requests, bodies or Bodies(MAX_BODIES)
    return app
