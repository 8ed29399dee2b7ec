"""Connections that end if the client neither completes a request nor takes a response."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .bodies import SILENCE_S

#: Seconds in which the headers of a request must come, and the rest of a body that was refused.
REQUEST_S = SILENCE_S
#: Seconds in which a client must take some bytes of a response.
RESPONSE_S = SILENCE_S


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection of uvicorn with limits of time, which uvicorn has for idle connections alone.

    The body of a request has its limit in ``Bodies``, which answers 408.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._request_timer: asyncio.TimerHandle | None = None
        self._response_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """Take bytes; if they leave no request under way, wait for one."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_request()
        elif self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def pause_writing(self) -> None:
        """Wait for the client to take what is written."""
        super().pause_writing()
        self._wait_for_client(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timers."""
        super().connection_lost(exc)
        for timer in (self._request_timer, self._response_timer):
            if timer is not None:
                timer.cancel()

    def _wait_for_request(self) -> None:
        if self._request_timer is None:
            self._request_timer = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _wait_for_client(self, left: int) -> None:
        """Close the connection unless the client takes a byte of the ``left`` ones."""

        def check() -> None:
            now = self.transport.get_write_buffer_size()
            if now < left:
                self._wait_for_client(now)
            else:
                self.transport.abort()

        self._response_timer = self.loop.call_later(RESPONSE_S, check)
