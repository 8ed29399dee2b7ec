"""The notebook's widget, on Python's side; tests/notebooks drives it in a real JupyterLab."""

from __future__ import annotations

import base64
import gzip
import json
import sys

import pytest
from drafts import digits_cnn

from intus.core.errors import AddressError, MissingExtraError
from intus.viewing.assets import asset
from intus.viewing.html import View
from intus.viewing.scene import scene


def unpacked(text: str) -> str:
    return gzip.decompress(base64.b64decode(text)).decode()


def test_a_widget_carries_the_page_and_the_scene() -> None:
    widget = View(digits_cnn(), overlay={"fc1": 0.5}, depth=2, height=400).widget()
    state = widget.get_state(["_assets", "_content", "height", "selected"])
    assert unpacked(state["_assets"]).split("\0") == [asset("intus.css"), asset("intus.js")]
    held = json.loads(unpacked(state["_content"]))
    assert held["scene"] == json.loads(json.dumps(scene(digits_cnn())))
    assert (held["depth"], held["paint"]["values"]) == (2, {"fc1": 0.5})
    assert (state["height"], state["selected"]) == (400, None)


def test_selecting_takes_every_name_and_tells_observers() -> None:
    widget = View(digits_cnn()).widget()
    seen: list[str | None] = []
    widget.observe(lambda change: seen.append(change["new"]), "selected")
    for name in ("features.4", "conv2d_2", "linear_1:1", "fc2:1", None):
        widget.select(name)
    assert seen == ["features.4", "conv2d_2_5", "linear_1_8", "fc2", None]
    widget.selected = "fc1"  # what the page does
    assert repr(widget) == "<Widget of DigitsCNN: 'fc1' selected>"


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    widget = View(digits_cnn()).widget()
    with pytest.raises(AddressError, match=r"No module or operation is called 'feature\.4'.*'features\.4'"):
        widget.select("feature.4")
    assert widget.selected is None


def test_without_anywidget_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(MissingExtraError, match=r"anywidget is needed .*intus\[widget\]"):
        View(digits_cnn()).widget()
