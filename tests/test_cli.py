"""The command line: helpful, and with the exit codes it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from intus import trace
from intus.cli import main, parser

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x):
        return torch.relu(self.fc(x))

ready = Net()

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
def test_help_says_what_a_command_does(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


def test_every_option_is_explained() -> None:
    verbs = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    silent = [
        f"{name} {action.dest}" for name, verb in verbs.items() for action in verb._actions if not action.help
    ]  # type: ignore[union-attr]
    assert silent == []


def test_a_command_that_is_not_understood_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["vew"])
    assert ended.value.code == 2
    assert "vew" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Net", "ready"])
def test_view_writes_the_graph_of_a_class_or_a_module(net: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out.html"
    assert main(["view", f"{net}:{name}", "--inputs", "randn(3, 4)", "--output", str(out), "--no-open"]) == 0
    text = out.read_text()
    assert text.startswith("<!doctype html>")
    assert "<title>Net</title>" in text


def test_view_shows_a_saved_trace(tmp_path: Path) -> None:
    trace(torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.ones(1, 4)).save(tmp_path / "net.trace")
    out = tmp_path / "out.html"
    assert main(["view", str(tmp_path / "net.trace"), "--output", str(out), "--no-open"]) == 0
    assert "<title>Sequential</title>" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["view", "nowhere.py:Net"], "no file 'nowhere.py'"),
        (["view", "{net}:Nett", "--no-open"], "Did you mean 'Net'?"),
        (["view", "{net}:Net", "--inputs", "rann(3)", "--no-open"], "--inputs 'rann(3)'"),
        (["view", "{net}", "--no-open"], "may hold several models: write"),
        (
            ["view", "{net}:Net", "--inputs", "randn(3, 5)", "--no-open"],
            "Net cannot run on --inputs 'randn(3, 5)'",
        ),
        (["view", "{net}:Net", "--no-open"], "Net cannot run on --inputs '()'"),
        (["view", "{net}:Sized", "--no-open"], "Write {net}:'Sized(...)' with its arguments"),
        (
            ["view", "{net}:Net", "--inputs", "ones(4)", "--output", "/no/x.html", "--no-open"],
            "--output /no/x.html",
        ),
        (["view", "{net}:Net", "--depth", "-1"], "--depth -1"),
        (["view", "{net}:ready", "--inputs", "ones(4)", "--output", "x.jpg"], "'x.jpg' does not say what"),
        (["view", "{net}:ready", "--inputs", "ones(4)", "--overlay", "tme"], "Did you mean 'time'?"),
        (["view", "{net}:ready", "--inputs", "ones(4)", "--output", "x.svg", "--direction", "up"], "='up'"),
        (["view", "{net}:ready", "--inputs", "ones(4)", "--dark"], "for still pictures, not for a page"),
        (["demo", "--epochs", "0"], "--epochs 0 trains nothing"),
    ],
)
def test_what_cannot_be_done_ends_with_1_and_the_reason(
    net: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main([argument.format(net=net) for argument in arguments]) == 1
    assert words.format(net=net) in capsys.readouterr().err


def test_view_takes_a_class_with_its_arguments(net: Path, tmp_path: Path) -> None:
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


def test_a_file_may_import_its_neighbours(net: Path, tmp_path: Path) -> None:
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


def test_a_file_that_does_not_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("raise ValueError('no data here')")
    assert main(["view", f"{bad}:Net"]) == 1
    assert f"{bad} does not run: ValueError: no data here." in capsys.readouterr().err


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port), "--database", str(tmp_path / "x.db")]) == 1
    assert f"Port {port} of 127.0.0.1" in capsys.readouterr().err


def test_python_dash_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "intus", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("intus 0.")
