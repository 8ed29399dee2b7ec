"""Saved pages of which a part is missing say so, and names that UTF-8 cannot encode are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page
from torch import nn
from waiting import until

import intus

pytestmark = pytest.mark.browser
MESSAGE = "This graph cannot be shown: the end of the file is missing. Save or copy it again."
SHOWN = "document.getElementById('intus-graph').textContent"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("page") / "net.html"
    intus.view(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(1, 2)).save(path)
    return path.read_bytes()


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("where", ["data", "program", "start"])
def test_truncated_page_says_so(
    new_page: Callable[..., Page], whole: bytes, tmp_path: Path, where: str, zeros: bool
) -> None:
    marks = {
        "data": whole.index(b'id="intus-data"') + 500,
        "program": whole.index(b'id="intus-assets"') + 500,
        "start": whole.rindex(b"</script>") - 100,
    }
    kept = whole[: marks[where]]
    path = tmp_path / "cut.html"
    path.write_bytes(kept + bytes(len(whole) - len(kept)) * zeros)
    page = new_page(offline=True)
    page.goto(path.as_uri())
    until(page, f"{SHOWN} === {MESSAGE!r}")


def test_whole_page_does_not_say_so(open_graph: Callable[..., Page]) -> None:
    page = open_graph(intus.view(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(1, 2)))
    assert MESSAGE not in page.evaluate(SHOWN)


def test_lone_surrogate_in_a_name(open_graph: Callable[..., Page]) -> None:
    net = nn.Sequential()
    net.add_module("a\ud800b", nn.Linear(2, 3))
    page = open_graph(intus.view(net, torch.ones(1, 2)))
    page.evaluate("document.querySelector('#intus-graph').intusView.select('a\\\\ud800b')")
    until(page, f"{SHOWN}.includes('a\\\\ud800b')")
