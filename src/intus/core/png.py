"""Write arrays of pixels as PNG."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np


def png(pixels: np.ndarray) -> bytes:
    """Return pixels as a PNG.

    Args:
        pixels: Bytes, (rows, columns, 3) for red, green and blue, or (rows, columns, 4) with opacity.

    Example:
        >>> png(np.zeros((1, 2, 3), np.uint8))[1:4]
        b'PNG'
    """
    rows, columns, channels = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", columns, rows, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    body = _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def data_url(pixels: np.ndarray) -> str:
    """Return pixels as a PNG in a ``data:`` URL; see ``png``."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
