"""Access control: refuses requests without the token, if one is set, and requests of foreign web pages."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...storage.token_file import LOOPBACK
from ..messages import ErrorReply
from .endpoints import json_response

_COOKIE = "intus_token"
_NEEDS_TOKEN = (
    "This server answers only who knows its token. Open the page at the address that `intus serve` "
    "printed, http://HOST:PORT/?token=TOKEN. Scripts of the user who started the server, on the same "
    "machine, read it from a file of mode 600; for others, set INTUS_TOKEN, or send 'Authorization: Bearer "
    "TOKEN'."
)


class Guard:
    """ASGI middleware that refuses requests without the token, and requests of foreign pages.

    Args:
        app: The application.
        token: Secret that every request must carry, as a bearer token or in the cookie that ``/?token=…``
            sets.
        loopback: Whether to refuse requests whose Host is not a loopback name. A foreign page would use such
            a request to reach a server that listens on this machine only (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, token: str | None = None, loopback: bool = False) -> None:
        self._app, self._token, self._loopback = app, token, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an allowed HTTP request on, and answer any other with 403."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refuse_foreign(headers) or self._refuse_without_token(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refuse_foreign(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if self._loopback and _name(host) not in LOOPBACK:
            return _refuse(403, f"This server listens on this machine only, not under the name {host!r}.")
        origin = headers.get("origin")
        if origin and origin != "null" and _netloc(origin) != host:
            return _refuse(403, f"Pages of {origin!r} may not send requests to this server.")
        if origin == "null":
            return _refuse(403, "Pages without an origin may not send requests to this server.")
        return None

    def _refuse_without_token(self, scope: Scope, headers: Headers) -> Response | None:
        if self._token is None:
            return None
        if self._is_token(headers.get("authorization", "").removeprefix("Bearer ")):
            return None
        cookie = _cookie_name(headers.get("host", ""))
        if self._is_token(_cookie(headers.get("cookie", ""), cookie)):
            return None
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if scope["path"] == "/" and self._is_token(query.get("token", [""])[0]):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return answer
        return _refuse(403, _NEEDS_TOKEN)

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def _refuse(status: int, text: str) -> Response:
    return json_response(ErrorReply(text), status)


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _cookie_name(host: str) -> str:
    """Return the name of a server's cookie; browsers send cookies to all ports of a host."""
    try:
        return f"{_COOKIE}_{urlsplit(f'//{host}').port or 80}"
    except ValueError:
        return _COOKIE


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
