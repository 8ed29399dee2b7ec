"""The command line: help, errors and exit codes."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import intus
from intus import trace
from intus.cli import main, parser
from intus.cli.numpy_names import numpy_names
from intus.core.errors import IntusError

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x):
        return torch.relu(self.fc(x))

ready = Net()

other = Net()

def fails(x):
    raise ValueError("no")

def late(x):
    raise ValueError(x.tanh())

def make():
    return Net()

def masked(x, *, mask):
    return x * mask

def steps(x):
    for _ in range(50):
        x = torch.sin(x) - x
    return x

class Sized(torch.nn.Linear):
    def __init__(self, size):
        super().__init__(size, 1)
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


@pytest.mark.parametrize("command", [[], ["demo"], ["serve"], ["view"]])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


def test_every_option_has_help() -> None:
    verbs = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    without_help = [
        f"{name} {action.dest}" for name, verb in verbs.items() for action in verb._actions if not action.help
    ]  # type: ignore[union-attr]
    assert without_help == []


def test_unknown_command_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["vew"])
    assert ended.value.code == 2
    assert "vew" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Net", "ready"])
def test_view_of_class_or_module(net: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out.html"
    assert main(["view", f"{net}:{name}", "--inputs", "randn(3, 4)", "--output", str(out), "--no-open"]) == 0
    text = out.read_text()
    assert text.startswith("<!doctype html>")
    assert "<title>Net</title>" in text


def test_view_of_saved_trace(tmp_path: Path) -> None:
    trace(torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.ones(1, 4)).save(tmp_path / "net.trace")
    out = tmp_path / "out.html"
    assert main(["view", str(tmp_path / "net.trace"), "--output", str(out), "--no-open"]) == 0
    assert "<title>Sequential</title>" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["view", "nowhere.py:Net"], "no file 'nowhere.py'"),
        (["view", "{folder}/nt.py:Net"], "Did you mean 'net.py'"),
        (["view", "{folder}/net:Net"], "Did you mean {net}:Net?"),
        (["view", "{folder}/no/net.py:Net"], "There is no folder '{folder}/no' either"),
        (["view", "{net}:"], "{net} needs the name of one of its 4 models: write\n"),
        (["view", "{net}::Net"], "{net}::Net does not work: SyntaxError"),
        (
            ["view", "{net}:torch"],
            "of type module, not a model to run. Known names: 'Net', 'ready', 'other', ",
        ),
        (["view", "{net}:Nett", "--no-open"], "Did you mean 'Net'?"),
        (["view", "{net}:Net", "--inputs", "rann(3)", "--no-open"], "--inputs 'rann(3)'"),
        (
            ["view", "{net}", "{folder}/other.py"],
            "but 2 are named. For two on one page write: ",
        ),
        (
            ["view", "{net}:Net", "--inputs", "randn(3, 5)", "--no-open"],
            "/Net.html shows where: RuntimeError: mat1 and mat2 shapes",
        ),
        (
            ["view", "{net}:Net", "--no-open"],
            "{net}:Net cannot run without --inputs: TypeError: Net.forward() missing 1 required positional "
            "argument: 'x'. It takes (x): write a value for each, such as --inputs",
        ),
        (
            ["view", "{net}:make", "--inputs", "ones(4)"],
            "It takes (): if it makes the model, write {net}:make().",
        ),
        (["view", "{net}:masked", "--inputs", "ones(4)"], 'or by name: "dict(x=…, mask=…)".'),
        (["view", "{net}:Net", "--inputs", "ones(1), 2"], "takes 2 positional arguments but 3 were given"),
        (
            ["view", "{net}:fails", "--inputs", "ones(1)"],
            "on --inputs 'ones(1)': ValueError: no ({net}, line",
        ),
        (["view", "{net}:Net", "--inputs", "ones(4"], "--inputs 'ones(4' does not work: SyntaxError"),
        (["view", "{net}:Sized", "--no-open"], "Sized takes (size): write {net}:'Sized(…)' with"),
        (["view", "{net}:Sized(1, 2)", "--no-open"], "Write {net}:NAME, or {net}:'NAME(…)' with arguments"),
        (
            ["view", "{net}:Net", "--inputs", "ones(4)", "--output", "/no/x.html", "--no-open"],
            "--out '/no/x.html'",
        ),
        (["view", "{net}:ready", "--inputs", "ones(4)", "--output", "x.jpg"], "path must end in .html, .svg"),
        (["view", "{net}:ready", "--inputs", "ones(4)", "--overlay", "tme"], "Did you mean 'time'"),
        (["view", "{net}:ready", "--inputs", "ones(4)", "--output", "x.svg", "--direction", "up"], "='up'"),
        (["view", "{net}:ready", "--inputs", "ones(4)", "--dark"], "for still pictures, not for a page"),
        (["view", "nowhere:Net"], "There is no module 'nowhere' for "),
        (["view", "torch.nowhere:Net"], "There is no module 'torch.nowhere' for "),
        (
            ["view", "torch.nn"],
            "no file 'torch.nn'. Write FILE.py:NAME, MODULE:NAME, or the path of a model file or a saved",
        ),
        (["view", "torch.nn:Linea"], "torch.nn has no 'Linea'. Did you mean 'Linear'"),
        (["view", "torch.nn:Linear"], "write torch.nn:'Linear(…)' with its arguments"),
        (["view", "broken:Net"], "broken does not import: ValueError: no data"),
        (
            ["view", "{net}:ready", "--inputs", "ones(4)", "--output", "no/x.svg"],
            "--out 'no/x.svg' cannot be",
        ),
        (["demo", "--epochs", "0"], "--epochs 0 trains nothing"),
    ],
)
def test_failure_exits_with_1_and_a_reason(
    net: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("raise ValueError('no data')")
    monkeypatch.setattr("webbrowser.open", lambda _address: None)
    named = {"net": net, "folder": tmp_path}
    assert main([argument.format(**named) for argument in arguments]) == 1
    assert words.format(**named) in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "title"),
    [
        (["torch.nn:ReLU", "--inputs", "ones(4)"], "ReLU"),
        (["torch.nn:Linear(4, 2)", "--inputs", "ones(4)"], "Linear"),
        (["parts.nets:Net", "--inputs", "ones(4)"], "Net"),
        (["parts.nets:build", "--inputs", "ones(4)"], "Net"),  # declared to return a module
        (["parts/nets.py:build", "--inputs", "ones(4)"], "Net"),
        (["parts.nets:ready", "--beside", "parts.nets:other", "--inputs", "ones(4)"], "Net and Net"),
    ],
)
def test_view_of_name_in_a_module(net: Path, words: list[str], title: str) -> None:
    """Also without --out: the page is in a temporary folder, and none is left in the current one."""
    (net.parent / "parts").mkdir()
    text = NET + "\ndef build(width: int = 4) -> Net:\n    return Net()\n"
    (net.parent / "parts" / "nets.py").write_text(text)
    before = sorted(net.parent.rglob("*.html"))
    command = [sys.executable, "-m", "intus", "view", *words, "--no-open"]
    done = subprocess.run(command, cwd=net.parent, capture_output=True, text=True, timeout=120, check=True)
    shown, _, page = done.stdout.strip().partition(": ")
    assert shown == title
    assert Path(page).read_text().startswith("<!doctype html>")
    assert not Path(page).is_relative_to(net.parent)
    assert sorted(net.parent.rglob("*.html")) == before


def test_view_needs_only_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["view"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("the following arguments are required: FILE.py:NAME\n")


def view_as_typed(folder: Path, *words: str) -> tuple[int, str]:
    """Run ``intus view`` in a folder; return the exit code and standard error."""
    asked = [sys.executable, "-m", "intus", "view", *words, "--no-open"]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.long
def test_view_of_file_lists_its_models(net: Path) -> None:
    code, text = view_as_typed(net.parent, "net.py")
    assert code == 1
    first, *lines, last = text.splitlines()
    assert first == "intus: net.py needs the name of one of its 4 models: write"
    assert [re.split(" {2,}", line.strip()) for line in lines] == [
        ['net.py:ready --inputs "x"', "a Net"],
        ['net.py:other --inputs "x"', "a Net"],
        ['net.py:Net --inputs "x"', "a class"],
        ["net.py:'Sized(size)' --inputs \"input\"", "a class that takes size"],
    ]
    assert "a value for each input" in last
    code, text = view_as_typed(net.parent, "net.py:ready", "--inputs", "randn(3, 4)", "-o", "net.json")
    assert (code, text) == (0, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from net import Net", '  some.py:Net --inputs "x"  a class\n'),
        ("import torch\nloss = torch.nn.MSELoss()", '  some.py:loss --inputs "input, target"  a MSELoss\n'),
        (
            "def build(width=4):\n    import torch\n    return torch.nn.Linear(width, 2)",
            "write some.py:'build()'. To show the function itself, write some.py:build.",
        ),
        (
            "from torch.nn import Linear",
            "some.py defines nothing to show: no model (torch.nn.Module, …) and no ",
        ),
        ("if __name__ == '__main__':\n    model = 1", "does not run here: make the model above it"),
        ("raise ValueError('no data')", "some.py does not run: ValueError: no data"),
    ],
    ids=["imported", "a loss", "a function", "torch's own", "below main", "raises"],
)
def test_view_of_file_says_what_to_write(
    net: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(net.parent)
    Path("some.py").write_text(text)
    assert main(["view", "some.py"]) == 1
    assert words in capsys.readouterr().err


def test_view_of_file_lists_at_most_twelve_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = tmp_path / "many.py"
    many.write_text("import torch\nfor n in range(30):\n    globals()[f'net{n}'] = torch.nn.ReLU()\n")
    assert main(["view", str(many)]) == 1
    text = capsys.readouterr().err
    assert "one of its 30 models" in text
    assert "  and 18 more\n" in text
    assert len(text.splitlines()) == 15


@pytest.mark.parametrize("depth", ["-1", "two", "1.5"])
def test_invalid_depth_exits_with_2(depth: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["view", "net.py:Net", f"--depth={depth}"])
    assert ended.value.code == 2
    assert f"{depth!r} is not a number of levels, 0 or more, or all" in capsys.readouterr().err


def test_view_of_invalid_trace_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def text(name: str) -> str:
        assert main(["view", str(tmp_path / name), "--no-open"]) == 1
        return capsys.readouterr().err

    (tmp_path / "empty.trace").touch()
    assert "is no trace that this version of intus can read" in text("empty.trace")
    torch.save({"a": torch.ones(1)}, tmp_path / "net.pt")
    assert "It has pickled weights, which can run code when they are loaded" in text("net.pt")
    (tmp_path / "net.pt").rename(tmp_path / "net.ckpt")
    assert "It has pickled weights, which can run code when they are loaded" in text("net.ckpt")
    save_file({"a": torch.ones(1)}, tmp_path / "new.trace", {"intus": "99", "graph": "{}"})
    assert "in format '99'; this version reads format '1' and '2'. Write it again" in text("new.trace")
    (tmp_path / "folder").mkdir()
    assert "is a folder, but none that trace(…, store=…) has finished" in text("folder")
    trace(torch.nn.Linear(4, 2), torch.ones(4), save="none").save(tmp_path / "a.trace")
    assert main(["view", str(tmp_path / "a.trace"), "--inputs", "3"]) == 1
    assert "--inputs '3': no model runs, a trace was recorded before" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("net.tflite", b"\x1c\0\0\0TFL3" + bytes(20)),
        ("net.h5", b"\x89HDF\r\n\x1a\n" + bytes(20)),
        ("net.pkl", b"\x80\x04" + bytes(20)),
        ("net.json", b"{}"),
        ("net.bin", b""),
        ("/dev/null", b""),
    ],
)
def test_view_of_a_file_that_read_refuses_says_why(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(IntusError) as of_read:
        intus.read(path)
    with pytest.raises(IntusError) as of_view:
        intus.view(path)
    assert str(of_view.value) == str(of_read.value)
    assert main(["view", str(path), "--no-open"]) == 1
    assert f"intus: {of_read.value} A model in Python is written FILE.py:NAME.\n" == capsys.readouterr().err


def marks(page: Path) -> dict[str, Any]:
    """Return the comparison in the data of a page of two."""
    data = re.search(r'id="intus-data"[^>]*>([^<]+)<', page.read_text())
    assert data
    content = json.loads(gzip.decompress(base64.b64decode(data[1])))
    return {**content["beside"], "paint": content["paint"], "depth": content["depth"]}


def test_view_beside_of_two_models(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A class that is built twice has the same weights; another module of the file has others."""
    out = tmp_path / "both.html"
    rest = ["--inputs", "randn(3, 4)", "-o", str(out), "--no-open", "--depth", "2"]
    assert main(["view", f"{net}:Net", "--beside", f"{net}:Net()", *rest]) == 0
    assert capsys.readouterr().out == f"Net and Net: {out}\n"
    found = marks(out)
    assert {found["marks"][mark] for mark, *_ in found["names"][0].values()} == {"equal"}
    assert found["depth"] == 2
    assert main(["view", f"{net}:Net", "--beside", f"{net}:other", *rest, "--overlay", "flops"]) == 0
    found = marks(out)
    assert found["paint"] == "flops"
    assert found["first"] == ["linear_1_1", "linear_1_1"]


def test_view_beside_of_traces(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    for name in ("a", "b"):
        trace(model, torch.ones(1, 4)).save(tmp_path / f"{name}.trace")
        with torch.no_grad():
            model.bias += 1
    a, b, out = (str(tmp_path / name) for name in ("a.trace", "b.trace", "both.html"))
    assert main(["view", a, "--beside", b, "-o", out, "--no-open"]) == 0
    assert "They diverge at linear_1" in marks(Path(out))["summary"]
    assert main(["view", a, "--beside", f"{net}:Net", "--inputs", "ones(1, 4)", "-o", out, "--no-open"]) == 0
    capsys.readouterr()
    for other, rest, words in (
        (f"{net}:Net", [], "cannot run without --inputs"),
        (f"{net}:Net", ["--inputs", "ones(5)"], "Net raised an exception: RuntimeError: mat1"),
        (str(tmp_path / "c.trace"), [], "There is no file"),
        (b, ["-o", "x.svg"], "'x.svg' cannot be: two graphs side by side are a page"),
        (b, ["--dark"], "['dark'] cannot be: two graphs side by side are a page"),
        (b, ["--overlay", "tme"], "Did you mean 'time'"),
        (b, ["--inputs", "3"], "--inputs '3': no model runs"),
    ):
        assert main(["view", a, "--beside", other, "--no-open", *rest]) == 1
        assert words in capsys.readouterr().err


def test_view_of_model_that_raises(net: Path, tmp_path: Path) -> None:
    out = tmp_path / "part.svg"
    command = ["view", f"{net}:late", "--inputs", "ones(4)", "-o", str(out), "--no-open"]
    assert main(command) == 1
    assert "tanh" in out.read_text()


def test_view_of_class_with_arguments(net: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert main(["view", f"{net}:Sized(3)", "--inputs", "ones(3)", "--output", str(out), "--no-open"]) == 0
    assert "<title>Sized</title>" in out.read_text()


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "dot", "json"])
def test_view_writes_pictures(net: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out.{ending}"
    options = ["--out", str(out), "--rolled", "--depth", "all", "--overlay", "time", "--dark", "--no-open"]
    assert main(["view", f"{net}:Net", "--inputs", "torch.ones(3, 4)", *options]) == 0
    assert out.stat().st_size > 500


def test_view_opens_the_page_in_the_browser(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    out = tmp_path / "out.html"
    assert main(["view", f"{net}:ready", "--inputs", "ones(4)", "--out", str(out)]) == 0
    assert opened == [out.as_uri()]
    assert capsys.readouterr().out == f"Net: {out}\n"


@pytest.mark.parametrize(("flag", "boxes"), [([], 4), (["--rolled"], 4), (["--no-rolled"], 102)])
def test_view_rolls_long_loops_by_default(flag: list[str], boxes: int, net: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    assert main(["view", f"{net}:steps", "--inputs", "ones(4)", "--out", str(out), "--no-open", *flag]) == 0
    assert out.read_text().count('role="graphics-symbol"') == boxes


@pytest.mark.parametrize("details", ["full", "parameters"])
def test_view_with_details(details: str, net: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    options = ["--out", str(out), "--details", details, "--no-open"]
    assert main(["view", f"{net}:ready", "--inputs", "ones(4)", *options]) == 0
    assert "4 float32 · 16 B" in out.read_text()
    assert (">fc.weight<" in out.read_text()) == (details == "parameters")


def test_viewed_file_imports_from_its_folder(net: Path, tmp_path: Path) -> None:
    (tmp_path / "main_net.py").write_text("from net import Net\n")
    out = tmp_path / "out.svg"
    before = list(sys.path)
    command = [
        "view",
        f"{tmp_path / 'main_net.py'}:Net",
        "--inputs",
        "ones(4)",
        "--out",
        str(out),
        "--no-open",
    ]
    assert main(command) == 0
    assert sys.path == before


def test_viewed_file_that_raises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("raise ValueError('no data here')")
    assert main(["view", f"{bad}:Net"]) == 1
    assert f"{bad} does not run: ValueError: no data here ({bad}, line 1)." in capsys.readouterr().err
    (tmp_path / "helper.py").write_text("import nowhere_to_be_found")
    for text, words in (
        ("def f(:", "SyntaxError: invalid syntax (bad.py, line 1)."),
        (
            "import helper",
            f"No module named 'nowhere_to_be_found' ({tmp_path / 'helper.py'}, line 1). Install",
        ),
        ("raise SystemExit(3)", f"SystemExit: 3 ({bad}, line 1)."),
    ):
        bad.write_text(text)
        assert main(["view", f"{bad}:Net"]) == 1
        assert words in capsys.readouterr().err


def test_serve_on_a_port_in_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port), "--database", str(tmp_path / "x.db")]) == 1
    assert f"cannot listen on port {port} of 127.0.0.1" in capsys.readouterr().err


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "intus", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("intus 0.")


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "intus serve --port 9000" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["serve"], ["demo"], ["examples"]])
@pytest.mark.parametrize("port", ["99999", "-1", "x", ""])
def test_invalid_port_exits_with_2(command: list[str], port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, f"--port={port}"])
    assert ended.value.code == 2
    assert f"{port!r} is not a port" in capsys.readouterr().err


def test_invalid_frontend_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--role", "evaluator", "--port", "0", "--frontend-url", "elsewhere:8080"]) == 1
    assert "frontend_url must be an address such as http://HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    "written",
    [
        *("ones(2, 4)", "ones((2, 4))", "ones([2, 4])", "ones(2)", "ones(())", "zeros(3, 1, 2)"),
        *("zeros(size=(2, 3))", "ones(2, 3, dtype=int32)", "ones((2, 8), dtype=int64)", "rand(2, 4)"),
        *("rand(4)", "randn(1, 3, 8, 8)", "randn((2,))", "randint(5, (2, 3))", "randint(2, 5, (2, 3))"),
        *("randint(0, 9, size=(4,))", "randint(high=5, size=[2])", "randint(5, (2,), dtype=int32)"),
    ],
)
def test_inputs_without_torch_are_those_of_torch(written):
    """Expect shapes and dtypes of torch of functions that make arrays."""
    found, expected = eval(written, numpy_names()), eval(written, dict(vars(torch)))
    assert (found.shape, f"torch.{found.dtype}") == (tuple(expected.shape), str(expected.dtype))
    if "rand" not in written:
        assert (found == expected.numpy()).all()


def test_inputs_without_torch_name_arguments_of_torch():
    with pytest.raises(TypeError, match="requires_grad= is an argument of torch, which is not installed"):
        numpy_names()["ones"](2, requires_grad=True)
