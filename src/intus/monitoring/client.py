"""HTTP requests to the server over one persistent connection, without third-party packages."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
from typing import Any, NamedTuple

from ..core.errors import ServeError
from ..storage.token_file import VARIABLE, read_token, why_ignored

BINARY, JSON = "application/octet-stream", "application/json"
CONNECT_S = 5.0
RECONNECT_S = 1.0  # for a server that did not answer before


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        status: The HTTP status.
        reply: The JSON object in the body; ``{}`` if there is none.
        retry_after: The seconds of the ``Retry-After`` header; 0 if absent.
    """

    status: int
    reply: dict[str, Any]
    retry_after: float

    @property
    def ok(self) -> bool:
        """True if the request succeeded."""
        return 200 <= self.status < 300

    @property
    def why(self) -> str:
        """The server's error message, or the status."""
        return str(self.reply.get("error") or f"HTTP status {self.status}")


class Client:
    """Sends requests to one server, one at a time.

    Args:
        host: The server's host name.
        port: Its port.
        timeout: Seconds to wait for an answer.
    """

    def __init__(self, host: str, port: int, timeout: float = 10.0) -> None:
        self.host, self.port, self.timeout = host, port, timeout
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str) -> Answer:
        """Send a GET request and return its answer; raises ServeError if none comes."""
        return self._authorized("GET", path, b"", {})

    def post(
        self, path: str, body: bytes | memoryview, content: str = JSON, wait: float | None = None
    ) -> Answer:
        """Send a request and return its answer.

        A server may close an idle connection at any time, so a request that fails on a reused connection is
        sent again on a new one. Requests must therefore be idempotent.

        Args:
            path: The path.
            body: The body.
            content: The content type.
            wait: Ask the server to answer within this many seconds, even if it is not done.

        Raises:
            ServeError: If no answer comes.
        """
        headers = {"Content-Type": content}
        if wait is not None:
            headers["Prefer"] = f"wait={math.ceil(wait)}"  # RFC 7240
        return self._authorized("POST", path, body, headers)

    def _authorized(
        self, method: str, path: str, body: bytes | memoryview, headers: dict[str, str]
    ) -> Answer:
        """Send a request with the token, and once more if the server has another since."""
        token = self._token()
        answer = self._sent(method, path, body, headers, token)
        if answer.status == 403 and (new := self._token()) != token:  # a server that just started anew
            answer = self._sent(method, path, body, headers, new)
        is_from_file = answer.status == 403 and not os.environ.get(VARIABLE)
        if is_from_file and (ignored := why_ignored(self.host, self.port)):
            return answer._replace(reply={**answer.reply, "error": f"{ignored} {answer.why}"})
        return answer

    def _token(self) -> str | None:
        return os.environ.get(VARIABLE) or read_token(self.host, self.port)

    def _sent(
        self, method: str, path: str, body: bytes | memoryview, headers: dict[str, str], token: str | None
    ) -> Answer:
        """Send a request, and once more if a reused connection was closed."""
        if token:
            headers = headers | {"Authorization": f"Bearer {token}"}
        reused = self._connection is not None
        try:
            return self._request(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not reused or isinstance(error, TimeoutError):
                raise self._unreachable(error) from error
        try:
            return self._request(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from error

    def connect(self, timeout: float) -> None:
        """Open a connection if there is none.

        Args:
            timeout: Seconds to wait for it.

        Raises:
            ServeError: If none can be opened.
        """
        if self._connection is None:
            try:
                self._connection = self._opened(timeout)
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error

    def _opened(self, timeout: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=min(timeout, self.timeout))
        connection.connect()
        connection.sock.settimeout(self.timeout)
        return connection

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def _request(self, method: str, path: str, body: bytes | memoryview, headers: dict[str, str]) -> Answer:
        if self._connection is None:
            self._connection = self._opened(CONNECT_S)
        try:
            self._connection.request(method, path, body or None, headers)
        except (BrokenPipeError, ConnectionResetError) as error:
            return self._answer_before(error)
        return self._answer(self._connection)

    def _answer_before(self, error: OSError) -> Answer:
        """Return the answer of a server that closed the connection before it had the whole request."""
        connection, self._connection = self._connection, None
        assert connection is not None
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            return self._answer(connection)
        raise error

    def _answer(self, connection: http.client.HTTPConnection) -> Answer:
        response = connection.getresponse()
        return Answer(response.status, _object(response.read()), _seconds(response.getheader("Retry-After")))

    def _unreachable(self, error: Exception) -> ServeError:
        return ServeError(f"{self.host}:{self.port} does not answer: {type(error).__name__}: {error}")


def _object(body: bytes) -> dict[str, Any]:
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return reply if isinstance(reply, dict) else {}


def _seconds(header: str | None) -> float:
    try:
        return min(max(float(header or 0), 0.0), 60.0)
    except ValueError:
        return 0.0
