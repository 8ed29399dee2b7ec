"""The QuickJS engine for pictures: threads, limits, and the error if it is missing."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from drafts import chain, digits_cnn, gpt2, loop, resnet

from intus.core.errors import IntusError, MissingExtraError
from intus.viewing.html import View
from intus.viewing.pictures import engine


@pytest.mark.long
def test_drawing_in_many_threads_at_once(tmp_path: Path) -> None:
    graphs = [digits_cnn(), resnet(), gpt2(layers=3), loop()]
    alone = [View(g, depth="all").save(tmp_path / f"alone{n}.svg").read_text() for n, g in enumerate(graphs)]

    def draw(number: int) -> str:
        which = number % len(graphs)
        return View(graphs[which], depth="all").save(tmp_path / f"{number}.svg").read_text()

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(draw, range(32)))
    assert together == alone * 8


def test_drawing_in_a_thread_with_a_small_stack(tmp_path: Path) -> None:
    done: list[Path] = []
    before = threading.stack_size(2**19)
    try:
        thread = threading.Thread(
            target=lambda: done.append(View(gpt2(), depth="all").save(tmp_path / "a.svg"))
        )
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert done


@pytest.mark.long
def test_drawing_releases_the_gil(tmp_path: Path) -> None:
    drawing = threading.Thread(target=lambda: View(chain(3000), depth="all").save(tmp_path / "a.svg"))
    drawing.start()
    turns = 0
    while drawing.is_alive():
        drawing.join(0.001)
        turns += 1
    assert turns > 20  # hundreds, unless the engine kept the GIL


def test_drawing_starts_no_thread_and_import_loads_no_engine(tmp_path: Path) -> None:
    code = f"""
import sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
import intus, intus.viewing.html, intus.viewing.pictures.save
from drafts import digits_cnn
assert not {{"quickjs", "_quickjs", "matplotlib"}} & set(sys.modules)
intus.viewing.html.View(digits_cnn()).save({str(tmp_path / "a.svg")!r})
assert threading.active_count() == 1
assert "matplotlib" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "dot"])
def test_missing_quickjs_error_names_the_extra(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "_quickjs", None)
    with pytest.raises(MissingExtraError, match=r"quickjs-ng is needed to lay out pictures.*'intus\[draw\]'"):
        View(digits_cnn()).save(tmp_path / f"a.{ending}")
    for other in ("html", "json"):
        assert View(digits_cnn()).save(tmp_path / f"a.{other}").stat().st_size > 1000


@pytest.mark.parametrize(("limit", "size"), [("MOST_MEMORY", 2**22), ("MOST_STACK", 2**14)])
def test_graph_beyond_engine_limits_is_refused(
    limit: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, limit, size)
    with pytest.raises(IntusError, match=r"too large to be drawn as one picture. Draw fewer levels"):
        View(gpt2(), depth="all").save(tmp_path / "a.svg")
    assert list(tmp_path.iterdir()) == []
