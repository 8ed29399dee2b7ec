"""Who may speak to the server: a token where one is set, and no foreign web page."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_COOKIE = "intus_token"


class Guard:
    """ASGI middleware. ``token`` is asked of every request, as a Bearer or, of a page, as the cookie that
    ``/?token=…`` sets. ``loopback`` refuses requests that came under another name than this machine's
    own, which is how a foreign page would reach a server that listens here only (DNS rebinding)."""

    def __init__(self, app: ASGIApp, token: str | None = None, loopback: bool = False) -> None:
        self._app, self._token, self._loopback = app, token, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._foreign(headers) or self._stranger(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _foreign(self, headers: Headers) -> JSONResponse | None:
        host = headers.get("host", "")
        if self._loopback and _name(host) not in LOOPBACK:
            text = f"This server listens on this machine only, and not under the name {host!r}."
            return JSONResponse({"error": text}, 403)
        origin = headers.get("origin")
        if origin and origin != "null" and _netloc(origin) != host:
            return JSONResponse({"error": f"A page of {origin!r} may not speak to this server."}, 403)
        if origin == "null":
            return JSONResponse({"error": "A page without an origin may not speak to this server."}, 403)
        return None

    def _stranger(self, scope: Scope, headers: Headers) -> JSONResponse | RedirectResponse | None:
        if self._token is None:
            return None
        if self._same(headers.get("authorization", "").removeprefix("Bearer ")):
            return None
        if self._same(_cookie(headers.get("cookie", ""))):
            return None
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if scope["path"] == "/" and self._same(query.get("token", [""])[0]):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict")
            return answer
        text = "A token is needed: send 'Authorization: Bearer TOKEN', or open the page as /?token=TOKEN."
        return JSONResponse({"error": text}, 401, {"WWW-Authenticate": "Bearer"})

    def _same(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


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


def _cookie(header: str) -> str:
    try:
        morsel = SimpleCookie(header).get(_COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
