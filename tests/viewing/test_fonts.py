"""Names in scripts that matplotlib's own font lacks: drawn in another font, or legibly said to be missing."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest
from drafts import Draft
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.font_manager import get_font
from PIL import Image, ImageChops

from intus.core.graph import Graph
from intus.viewing.html import View
from intus.viewing.pictures import fonts

STIX = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "STIXGeneral.ttf")
IN_STIX = (
    "\N{MATHEMATICAL SANS-SERIF ITALIC CAPITAL A}\N{MATHEMATICAL MONOSPACE CAPITAL B}"  # not in DejaVu Sans
)
NAMES = ("层.注意力", "كلمة.x", "한국어", "emoji 🦔🙂", "हिन्दी", "x\u0301y", IN_STIX, "\U00010330")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine whose fonts a test says."""
    fonts._file_with.cache_clear()
    yield monkeypatch
    fonts._file_with.cache_clear()


def named(*names: str) -> Graph:
    d = Draft(names[0])
    x = d.input(2, 3)
    with d.module("", "Model"):
        for name in names:
            x = d.layer(name, name, "linear", x, shape=(2, 3))
    d.output(x)
    return d.graph()


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_every_character_is_drawn_in_a_font_that_has_it(words: str) -> None:
    parts = list(fonts.runs(words))
    drawn = "".join(part.removeprefix("\u200e") for part, _ in parts)
    if "\u200e" not in words:
        assert all(a in (b, fonts.MISSING) for a, b in zip(drawn, words, strict=True))
    for part, file in parts:
        known = get_font(file or fonts._own()).get_charmap()
        assert all(ord(c) in known or unicodedata.combining(c) for c in part)


def test_what_another_font_has_is_drawn_in_it(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setattr(fonts, "_files", lambda: (STIX,))
    assert list(fonts.runs(f"a{IN_STIX}b")) == [("a", fonts.OWN), (IN_STIX, STIX), ("b", fonts.OWN)]
    graph = named(f"net {IN_STIX}")
    assert b"STIXGeneral" in View(graph).save(tmp_path / "a.pdf").read_bytes()
    with_it = Image.open(View(graph).save(tmp_path / "a.png"))
    fonts._file_with.cache_clear()
    machine.setattr(fonts, "_files", lambda: ())
    without = Image.open(View(graph).save(tmp_path / "b.png"))
    assert ImageChops.difference(with_it.convert("L"), without.convert("L")).getbbox()


def test_what_no_font_has_is_an_empty_box(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(fonts, "_files", lambda: ())
    assert list(fonts.runs("层.a🦔")) == [("▯.a▯", fonts.OWN)]
    assert list(fonts.runs("plain")) == [("plain", fonts.OWN)]


def test_right_to_left_words_stay_where_they_stand() -> None:
    """A part that begins in Arabic would be laid out from the right, with what follows it to its left."""
    assert list(fonts.runs("a")) == [("a", fonts.OWN)]
    assert all(part.startswith("\u200e") for part, _ in fonts.runs("كلمة model"))


@pytest.mark.parametrize("ending", ["png", "pdf"])
@pytest.mark.parametrize("installed", [(), None])
def test_a_picture_of_any_script_is_drawn_without_a_warning(
    ending: str, installed: tuple[str, ...] | None, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the fonts of this machine, whichever they are, and with none."""
    if installed is not None:
        machine.setattr(fonts, "_files", lambda: installed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = View(named(*NAMES)).save(tmp_path / f"a.{ending}")
    assert path.stat().st_size > 3000
