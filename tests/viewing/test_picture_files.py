"""Files of a graph: SVG, PNG, PDF, DOT and JSON, and errors for what cannot be written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from html import unescape
from pathlib import Path

import pytest
import torch
from drafts import chain, digits_cnn, gpt2, hostile, recurrent, resnet
from PIL import Image, ImageChops, ImageStat

import intus
from intus.core.errors import InputError, MissingExtraError
from intus.core.graph import Graph
from intus.viewing.html import View
from intus.viewing.pictures import matplotlib_writer
from intus.viewing.scene import scene

PICTURES = Path(__file__).with_name("pictures")
RENEW = "INTUS_RENEW_PICTURES" in os.environ
SVG = "{http://www.w3.org/2000/svg}"


def svg_of(
    graph: Graph, tmp_path: Path, depth: int | str | None = None, **options: object
) -> ElementTree.Element:
    path = View(graph, depth=depth).save(tmp_path / "graph.svg", **options)  # type: ignore[arg-type]
    return ElementTree.fromstring(path.read_text(encoding="utf-8"))


def titles(root: ElementTree.Element) -> list[str]:
    return [title.text or "" for title in root.findall(f"{SVG}g/{SVG}title")]


def words(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def test_svg_has_titles_and_descriptions(tmp_path: Path) -> None:
    root = svg_of(digits_cnn(), tmp_path, depth=1)
    assert root.find(f"{SVG}title").text == "DigitsCNN"
    assert root.find(f"{SVG}desc").text == "11 operations, 10 modules, 38,314 parameters (150 KB), 2.10 ms."
    facts = {title.split(" · ")[0]: title for title in titles(root)}
    assert list(facts)[-1] == "features"  # the header of the open module is drawn after its contents
    assert len(facts) == 11 + 3
    assert facts["features.4"].startswith("features.4 · Conv2d · 32×32×4×4 float32 · 4.6K parameters · ")
    assert {"32×1×8×8", "32×16×4×4", "features.0", "Conv2d · 160", "with parameters"} <= set(words(root))


@pytest.mark.parametrize("dark", [False, True])
def test_svg_uses_the_pages_colors(dark: bool, tmp_path: Path) -> None:
    text = ElementTree.tostring(svg_of(digits_cnn(), tmp_path, dark=dark), encoding="unicode")
    css = (Path(__file__).parents[2] / "web" / "src" / "ui" / "theme.css").read_text()
    for token in ("input-fill", "output-fill", "param-fill", "op-fill", "bg"):
        pair = re.search(rf"--{token}: light-dark\((#\w+), (#\w+)\)", css).groups()
        assert f'fill="{pair[dark]}"' in text


@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf", ".dot", ".json"])
def test_hostile_names_in_every_format(ending: str, tmp_path: Path) -> None:
    path = View(hostile()).save(tmp_path / f"graph{ending}")
    data = path.read_bytes()
    if ending == ".svg":
        root = ElementTree.fromstring(data)
        assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
            *("svg", "title", "desc", "g", "rect", "path", "text")
        }
        assert {"a&b\"'", "<b>bold</b>", "x[0]:1", "\ufffdright", "emoji 🦔", "${x}`"} <= set(words(root))
        assert "n" * 14 + "…" + "n" * 21 in words(root)
        assert "\u202e" not in data.decode()
    elif ending == ".png":
        assert Image.open(path).text["Title"] == "</script><img src=x onerror=alert(1)>"
    elif ending == ".pdf":
        assert data.startswith(b"%PDF-1.4")
    elif ending == ".dot":
        names = [node["label"] for node in parse_dot(data.decode())[0].values()]
        assert "a&b\"'" in [name.split("\n")[0] for name in names]
    else:
        assert json.loads(data) == json.loads(json.dumps(scene(hostile())))


def test_control_characters_and_lone_surrogates_in_every_format(tmp_path: Path) -> None:
    graph = chain(2)
    odd = Graph(**{**vars(graph), "model": "\x00\x08\ud800\uffff\u05e9\u05dc\u5377\n$a$ \\alpha"})
    for ending in (".svg", ".png", ".pdf", ".dot"):
        path = View(odd).save(tmp_path / f"odd{ending}")
        if ending == ".svg":
            root = ElementTree.fromstring(path.read_bytes())
            assert (
                root.find(f"{SVG}title").text == "\ufffd\ufffd\ufffd\ufffd\u05e9\u05dc\u5377\ufffd$a$ \\alpha"
            )
    View(odd).save(tmp_path / "odd.json")
    assert json.loads((tmp_path / "odd.json").read_bytes())["model"].endswith("$a$ \\alpha")


def test_pdf_embeds_its_font_and_is_deterministic(tmp_path: Path) -> None:
    first, second = (View(digits_cnn()).save(tmp_path / f"{n}.pdf").read_bytes() for n in "ab")
    assert first == second
    assert b"/FontFile" in first or b"/Type3" in first
    assert b"DejaVuSans" in first


def test_png_size_follows_scale(tmp_path: Path) -> None:
    root = svg_of(digits_cnn(), tmp_path)
    size = [float(root.get(side)) for side in ("width", "height")]
    for scale in (1.0, 2.0):
        with Image.open(View(digits_cnn()).save(tmp_path / "a.png", scale=scale)) as image:
            assert image.size == pytest.approx([side * scale for side in size], abs=1)


def test_too_large_picture_is_made_smaller_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matplotlib_writer, "MOST_PIXELS", 100_000)
    with pytest.warns(UserWarning, match=r"big\.png: the picture is 303 × 1,204 pixels.*to 26 %.*depth="):
        path = View(digits_cnn()).save(tmp_path / "big.png")
    with Image.open(path) as image:
        assert image.width * image.height <= 100_000 * 1.01
    monkeypatch.setattr(matplotlib_writer, "LONGEST_PAGE", 500)
    with pytest.warns(UserWarning, match=r"big\.pdf.*made smaller, to 55 %"):
        path = View(digits_cnn()).save(tmp_path / "big.pdf")
    box = re.search(rb"/MediaBox \[ ?([\d. ]+) ?\]", path.read_bytes())[1].split()
    assert max(map(float, box)) == pytest.approx(500, abs=1)


def test_missing_matplotlib_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"matplotlib is needed to write \.pdf.*intus\[draw\]"):
        View(digits_cnn()).save(tmp_path / "a.pdf")
    assert View(digits_cnn()).save(tmp_path / "a.svg").stat().st_size > 1000


@pytest.mark.long
def test_writing_leaves_matplotlib_settings_unchanged(tmp_path: Path) -> None:
    code = f"""
import sys, warnings
warnings.simplefilter("error")
sys.path.insert(0, {str(Path(__file__).parent)!r})
import matplotlib
settings = lambda: {{k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != "backend"}}
before = settings()  # reading "backend" would select one
from drafts import hostile
from intus.viewing.html import View
for ending in ("png", "pdf"):
    View(hostile()).save({str(tmp_path)!r} + "/a." + ending)
assert settings() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("net.jpg", {}, r"path must end in \.html, \.svg, .* got '.*net\.jpg'"),
        ("net", {}, "path must end in .*, got "),
        ("net.svg", {"direction": "up"}, "direction='up' is not a direction.*'down', 'right'"),
        ("net.png", {"scale": 0}, "scale must be a number between 0 and 100, got 0"),
        ("net.html", {"dark": True}, "for still pictures, not for a page"),
    ],
)
def test_save_refuses_wrong_paths_and_options(
    name: str, options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        View(digits_cnn()).save(tmp_path / name, **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("depth", [-1, 1.5, "everything"])
def test_view_refuses_wrong_depth(depth: object) -> None:
    with pytest.raises(InputError, match=r"must be a number of levels \(0 or more\) or 'all', got "):
        View(digits_cnn(), depth=depth)  # type: ignore[arg-type]


def test_overlay_colors_boxes_and_shows_its_scale(tmp_path: Path) -> None:
    path = View(digits_cnn(), overlay={"fc1": 0.0, "fc2": 1.0, "dropout": float("nan")}).save(
        tmp_path / "a.svg"
    )
    root = ElementTree.fromstring(path.read_text())
    fill, pattern = {}, {}
    for group in root.findall(f"{SVG}g"):
        if group.find(f"{SVG}title") is not None:
            name = group.find(f"{SVG}title").text.split(" · ")[0]
            fill[name] = group.find(f"{SVG}rect")
            pattern[name] = "hatched" if group.find(f"{SVG}clipPath") is not None else ""
    assert fill["fc1"].get("fill") == "#440154"
    assert fill["fc2"].get("fill") == "#fde725"
    assert "hatched" in pattern["dropout"]
    assert fill["input_1"].get("fill") == "#dff3e4"
    assert words(root)[-4:] == ["value", "0", "1", "no value"]


def test_built_in_overlay_scale(tmp_path: Path) -> None:
    root = ElementTree.fromstring(
        View(digits_cnn(), overlay="parameters").save(tmp_path / "a.svg").read_text()
    )
    scale = ["Parameters", "32", "100", "1K", "10K", "32.8K"]  # up to the largest box: 64 × 512 + 64
    note = "A module has the color of its costliest operation"
    assert words(root)[-8:] == [*scale, "no value", note]


def parse_dot(text: str) -> tuple[dict[str, dict[str, str]], list[tuple[str, str, dict[str, str]]], int]:
    """Parse nodes, edges and the number of clusters from a DOT file, by the tokens of its grammar."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|->|[\w#]+|[{}\[\];=,]', text)
    assert re.sub(r"\s", "", text) == re.sub(r"\s", "", "".join(tokens))  # nothing between the tokens
    assert tokens.count("{") == tokens.count("}")
    nodes, edges = {}, []
    pattern = r'^ *(n\d+)(?: -> (n\d+))? \[((?:"(?:[^"\\]|\\.)*"|[^\]"])*)\];$'
    for a, b, rest in re.findall(pattern, text, re.MULTILINE):
        pairs = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\w+)', rest)
        values = {
            key: unescape(re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), v.strip('"')))
            for key, v in pairs
        }
        if b:
            edges.append((a, b, values))
        else:
            nodes[a] = values
    return nodes, edges, tokens.count("subgraph")


def test_dot_contains_what_is_visible(tmp_path: Path) -> None:
    path = View(resnet(), depth=1).save(tmp_path / "a.dot")
    nodes, edges, clusters = parse_dot(path.read_text())
    labels = {id: node["label"].split("\n")[0] for id, node in nodes.items()}
    assert clusters == 4
    assert "layer1.0" in labels.values()
    assert {a for a, _, _ in edges} | {b for _, b, _ in edges} == set(nodes)
    named = {(labels[a], labels[b]): edge["label"] for a, b, edge in edges}
    assert named["conv1", "bn1"] == "1×16×32×32"
    assert named["layer1.1", "layer2.0"] == "1×16×32×32"


@pytest.mark.parametrize(
    ("name", "graph", "view", "options"),
    [
        ("digits", digits_cnn(), {}, {}),
        ("gpt2-two-levels", gpt2(), {"depth": 2}, {}),
        ("gpt2-right-dark", gpt2(), {"depth": 2}, {"direction": "right", "dark": True}),
        ("recurrent", recurrent(), {"overlay": "time"}, {}),
        ("resnet-parameters", resnet((2, 8, 2, 2)), {"overlay": "parameters", "depth": 1}, {}),
    ],
)
def test_svg_equals_kept_picture(
    name: str, graph: Graph, view: dict[str, object], options: dict[str, object], tmp_path: Path
) -> None:
    """Renew the kept pictures with INTUS_RENEW_PICTURES=1 in the environment, and check them by eye."""
    path = View(graph, **view).save(tmp_path / "a.svg", **options)
    if RENEW:
        shutil.copy(path, PICTURES / f"{name}.svg")
    drawn = ElementTree.fromstring(path.read_text())
    kept = ElementTree.fromstring((PICTURES / f"{name}.svg").read_text())
    assert words(drawn) == words(kept)
    assert titles(drawn) == titles(kept)
    number = re.compile(r"-?\d+(?:\.\d+)?")
    for one, other in zip(drawn.iter(), kept.iter(), strict=True):
        assert one.tag == other.tag
        for key in {**one.attrib, **other.attrib}:
            ours, theirs = one.get(key, ""), other.get(key, "")
            assert number.sub("0", ours) == number.sub("0", theirs), key
            if not ours.startswith("#"):
                at = [[float(n) for n in number.findall(value)] for value in (ours, theirs)]
                assert at[0] == pytest.approx(at[1], abs=0.5)


def test_png_resembles_kept_picture(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = View(digits_cnn()).save(tmp_path / "a.png", scale=1.0)
    if RENEW:
        shutil.copy(path, PICTURES / "digits.png")
    with Image.open(path) as drawn, Image.open(PICTURES / "digits.png") as kept:
        assert drawn.size == kept.size
        difference = ImageChops.difference(drawn.convert("RGB"), kept.convert("RGB"))
        assert max(ImageStat.Stat(difference).mean) < 2.0  # of 255; moving a box by a few pixels gives more


@pytest.mark.parametrize("name", ["a.html", "a.svg", "a.png", "a.pdf", "a.dot", "a.json", "a.trace"])
def test_missing_folder_is_named(name, tmp_path):
    t = intus.trace(torch.nn.Linear(2, 1), torch.ones(1, 2))
    path = tmp_path / "none" / name
    save = t.save if name == "a.trace" else t.draw
    with pytest.raises(FileNotFoundError, match=r"cannot be written: there is no folder .*none'. Make it"):
        save(path)
    if name == "a.html":
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            intus.view(t, beside=t).save(path)
