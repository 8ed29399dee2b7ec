"""The bodies of requests under way: how many bytes they have together, and how long one may be silent."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..errors import BusyError

#: Seconds without a byte after which a request is given up.
SILENCE_S = 60.0
#: Most bytes of a body that is never refused: uvicorn holds as much of each connection anyway.
SMALL = 1 << 16


class Bodies:
    """Reads bodies, and refuses those that would make the sum of all under way exceed a bound.

    A body counts with the bytes that came of it until its request is answered, so senders that announce much
    and send little leave the room to others. One that does not fit is refused before it is read. If several
    grow beyond the bound together, the one that has been silent the longest is refused, and its bytes are
    dropped. A body that is alone is read whatever its length, up to the limit of its route.

    All methods must be called in one event loop.

    Args:
        most: The most bytes of all bodies together.
        silence: Seconds without a byte after which a body is given up.
    """

    def __init__(self, most: int, silence: float = SILENCE_S) -> None:
        self._most, self._silence = most, silence
        self._held = 0
        self._coming: dict[_Body, None] = {}  # those not complete, by the time of their last byte

    @asynccontextmanager
    async def read(self, request: Request, limit: int) -> AsyncIterator[bytes]:
        """Yield the body of a request, which counts until the block ends.

        Raises:
            HTTPException: As soon as it is known to be longer than ``limit`` bytes, or if it is silent.
            BusyError: If there is no room for it now.
        """
        announced = request.headers.get("content-length", "")
        size = int(announced) if announced.isascii() and announced.isdigit() else 0
        _check_length(size, limit)
        if size > SMALL and self._held and self._held + size > self._most:
            raise self._busy()
        body = _Body()
        try:
            parts = request.stream()
            while part := await self._next(body, parts):
                _check_length(body.size + len(part), limit)
                self._add(body, part)
            self._coming.pop(body, None)
            yield body.take()
        finally:
            self._coming.pop(body, None)
            self._held -= body.counted

    async def _next(self, body: _Body, parts: AsyncIterator[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self._silence) as body.waiting:
                part = await anext(parts, b"")
        except TimeoutError:
            if not body.refused:
                raise HTTPException(
                    408,
                    f"No byte of the body came for {self._silence:g} seconds. Send this again.",
                    {"Connection": "close"},
                ) from None
        if body.refused:
            raise self._busy()
        return part

    def _add(self, body: _Body, part: bytes) -> None:
        """Add bytes to a body; refuse others, or this one, if the sum exceeds the bound."""
        before = body.counted
        body.add(part)
        self._held += body.counted - before
        self._coming.pop(body, None)
        self._coming[body] = None
        while self._held > self._most and self._held > body.counted:
            slowest = next((each for each in self._coming if each.counted), body)
            self._held -= slowest.counted
            del self._coming[slowest]
            slowest.refuse()
            if slowest is body:
                raise self._busy()

    def _busy(self) -> BusyError:
        return BusyError(
            f"The requests under way have {self._held:,} bytes together, and at most {self._most:,} are "
            "taken at once (--max-bytes). Send this again in a second."
        )


class _Body:
    """A body under way."""

    def __init__(self) -> None:
        self._content = io.BytesIO()  # which returns its content without a copy
        self.size = 0
        self.refused = False
        self.waiting: asyncio.Timeout | None = None

    @property
    def counted(self) -> int:
        """The bytes that count."""
        return 0 if self.refused or self.size <= SMALL else self.size

    def add(self, part: bytes) -> None:
        self.size += self._content.write(part)

    def take(self) -> bytes:
        """Return the content, once."""
        content, self._content = self._content, io.BytesIO()
        return content.getvalue()

    def refuse(self) -> None:
        """Drop the content, and wake the reader of this body."""
        self.refused, self._content = True, io.BytesIO()
        if self.waiting is not None:
            with suppress(RuntimeError):  # its next part has come
                self.waiting.reschedule(asyncio.get_running_loop().time())


def _check_length(size: int, limit: int) -> None:
    if size > limit:
        raise HTTPException(413, f"The body is longer than {limit:,} bytes, the most that this route takes.")
