"""The Python side of the notebook widget; tests/notebooks drives it in a real JupyterLab."""

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


def test_widget_contains_page_and_scene() -> None:
    widget = View(digits_cnn(), overlay={"fc1": 0.5}, depth=2, height=400).widget()
    state = widget.get_state(["_assets", "_content", "height", "selected"])
    assert unpacked(state["_assets"]).split("\0") == [asset("intus.css"), asset("intus.js")]
    data = json.loads(unpacked(state["_content"]))
    assert data["scene"] == json.loads(json.dumps(scene(digits_cnn())))
    assert (data["depth"], data["paint"]["values"]) == (2, {"fc1": 0.5})
    assert (state["height"], state["selected"]) == (400, None)


def test_select_accepts_every_name_and_notifies_observers() -> None:
    widget = View(digits_cnn()).widget()
    seen: list[str | None] = []
    widget.observe(lambda change: seen.append(change["new"]), "selected")
    for name in ("features.4", "conv2d_2", "linear_1:1", "fc2:1", None):
        widget.select(name)
    assert seen == ["features.4", "conv2d_2_5", "linear_1_8", "fc2", None]
    widget.selected = "fc1"  # as the page sets it
    assert repr(widget) == "<Widget of DigitsCNN: 'fc1' selected>"


def test_select_refuses_unknown_name_and_suggests_the_nearest() -> None:
    widget = View(digits_cnn()).widget()
    with pytest.raises(AddressError, match=r"No module or operation is called 'feature\.4'.*'features\.4'"):
        widget.select("feature.4")
    assert widget.selected is None


def test_missing_anywidget_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(MissingExtraError, match=r"anywidget is needed .*intus\[widget\]"):
        View(digits_cnn()).widget()
