"""Cards with their histograms and heat maps."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from intus.core.graph import Source
from intus.core.png import png
from intus.viewing.repr_text import Card, html, listed, text
from intus.viewing.thumbnail import ValueSummary, heat_colors, heat_map, histogram, sentence

HOSTILE = "</td><script>alert(1)</script>\"'&"
VALUES = ValueSummary(6, 1, 1, 2, -1.0, 0.25, 2.0, 1.0, (1, 0, 3), np.array([[-1.0, 0.0], [np.nan, 2.0]]))


def pixels(data: bytes) -> np.ndarray:
    """Decode an 8-bit RGB PNG without line filters."""
    width, height = struct.unpack(">II", data[16:24])
    found, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(name + body)
        found += body if name == b"IDAT" else b""
        at += 12 + length
    lines = np.frombuffer(zlib.decompress(found), np.uint8).reshape(height, 1 + 3 * width)
    assert (lines[:, 0] == 0).all()
    return lines[:, 1:].reshape(height, width, 3)


def test_png_colors_show_sign_and_nan() -> None:
    minus, zero, missing, plus = (
        pixels(png(heat_colors(np.array([[-1.0, 0.0], [np.nan, 2.0]])))).reshape(4, 3).astype(int)
    )
    assert plus[0] > plus[2]
    assert minus[2] > minus[0]
    assert zero.tolist() == [247] * 3
    assert missing.tolist() == [128] * 3


@given(arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 8))))
def test_png_and_heat_map_accept_any_values(image: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        assert pixels(png(heat_colors(image))).shape == (*image.shape, 3)
    assert heat_map(image).startswith("<img ")


def test_histogram_has_a_bar_per_nonzero_count() -> None:
    svg = histogram(VALUES)
    assert svg.count("<rect") == 2
    assert "<line" in svg  # where zero is
    assert histogram(VALUES._replace(counts=(), low=None)) == ""


def test_sentence_lists_statistics() -> None:
    assert sentence(VALUES) == "min -1, mean 0.25, max 2, std 1, 33% zeros, 1 NaN, 1 infinite"
    assert sentence(ValueSummary(0, 0, 0, 0, None, None, None, None, (), None)) == "no values"


def test_html_escapes_hostile_names() -> None:
    card = Card(HOSTILE, HOSTILE, ((HOSTILE, HOSTILE),), Source(HOSTILE, 3, HOSTILE), VALUES)
    page = html(card)
    assert "<script" not in page
    assert page.count("&lt;script") == 6
    assert text(card).count(HOSTILE) == 6


def test_text_shows_source_line() -> None:
    here = Source(__file__, 1, "<module>")
    assert (
        text(Card("a", "b", (), here)).splitlines()[-1].strip()
        == '"""Cards with their histograms and heat maps."""'
    )
    assert (
        text(Card("a", "b", (), Source("no such file", 4, "f")))
        .splitlines()[-1]
        .endswith("no such file:4 in f")
    )
    assert text(Card("a", "b", (), Source("", 0, ""))) == "a: b"


def test_listed_truncates_long_lists() -> None:
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"
    assert listed([]) == ""
