"""``probe(model, to="runs.db")``: scores without a server of the user's, however the training ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
import torch
from process_help import runs_now, wait_for_end

import intus
from intus.core.errors import InputError, ServeError
from intus.serving.run import Server

SCRIPT = """
import sys, time, torch, intus
from intus.monitoring.private_server import _SERVERS
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images[:300] / 16).float(), labels[:300]
model = torch.nn.Sequential(torch.nn.Linear(64, 8))
watch = intus.probe(model, to=sys.argv[1], run="r", probe_set=(images, {"digit": labels}))
(server,) = _SERVERS.values()
print(server.process.pid, flush=True)
for watch.epoch in range(4):
    model(images)
    watch.log(loss=0.5)
    if watch.epoch == 3 and sys.argv[2] != "end":
        assert watch.run == "r"
        if sys.argv[2] == "flush":
            assert watch.flush()
            print(len(intus.runs(sys.argv[1])["r"].scores(score="linear_f1")), flush=True)
        else:
            assert watch._tap.sender.drain(120)
            print("waiting", flush=True)
            time.sleep(60)
"""


def start(path, how):
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return script, int(script.stdout.readline())


def epochs(path):
    table = intus.runs(path)["r"].scores(target="digit", score="linear_f1", address="0")
    assert table["value"].notna().all()
    return table["epoch"].tolist()


pytestmark = pytest.mark.skipif(not os.path.isdir("/proc"), reason="the test reads /proc")


@pytest.mark.long
@pytest.mark.parametrize("how", ["end", "flush"])
def test_server_ends_after_the_training_and_all_is_scored(tmp_path, how):
    path = tmp_path / "runs.db"
    script, server = start(path, how)
    out, errors = script.communicate(timeout=120)
    assert script.returncode == 0, errors
    assert out.split() == (["8"] if how == "flush" else [])
    wait_for_end([server])
    assert epochs(path) == [0, 1, 2, 3]
    assert len(intus.runs(path)["r"].log("loss")) == 4


@pytest.mark.long
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_server_ends_when_the_training_is_interrupted_or_killed(tmp_path, signal_number):
    path = tmp_path / "runs.db"
    script, server = start(path, "wait")
    assert script.stdout.readline() == "waiting\n"
    assert runs_now(server)
    script.send_signal(signal_number)
    script.communicate(timeout=60)
    assert script.returncode != 0
    wait_for_end([server])
    known = epochs(path)
    # a process that ends by itself also runs its probe set for the last epoch
    assert known == ([0, 1, 2, 3] if signal_number == signal.SIGINT else [0, 1, 2])
    with Server(database=path, port=0) as later:  # what was not complete is in the journal
        assert intus.flush(later.host, later.port)
    assert epochs(path) == known


@pytest.mark.long
def test_page_is_served_later(tmp_path):
    path = tmp_path / "runs.db"
    script, server = start(path, "end")
    script.communicate(timeout=120)
    wait_for_end([server])
    command = [sys.executable, "-m", "intus", "serve", str(path), "--port", "0", "--no-token"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        try:
            page = re.search(r"Page: (http://\S+/)", serving.stdout.readline())[1]
            with urllib.request.urlopen(f"{page}api/runs", timeout=20) as answer:
                (run,) = json.load(answer)["runs"]
        finally:
            serving.terminate()
        serving.stdout.read()
    assert (run["run"], run["epochs"], run["targets"]) == ("r", [0, 1, 2, 3], ["digit"])


def test_what_cannot_be_written_to_is_refused(tmp_path):
    model = torch.nn.Linear(1, 1)
    with pytest.raises(
        InputError, match=r"Pass either to='runs.db' or the host and port of a server, not both"
    ):
        intus.probe(model, "127.0.0.1", 9000, to="runs.db")
    with pytest.raises(InputError, match=r"to must be a database, such as 'runs.db', .* got 3\."):
        intus.probe(model, to=3)
    with pytest.raises(InputError, match=r"to must name one database at most, and something, got \['a.db', "):
        intus.probe(model, to=["a.db", "b.db"])
    with pytest.raises(InputError, match=r"to='wandb:' lacks a project after the colon\. Write to='wandb'"):
        intus.probe(model, to="wandb:")
    with pytest.raises(InputError, match=r"to='wanbd' is no tracker\. Did you mean 'wandb'\?"):
        intus.probe(model, to="wanbd")
    (tmp_path / "text.db").write_text("no database, only some text of many characters" * 9)
    with pytest.raises(ServeError, match=r"did not start: .*text.db"):
        intus.probe(model, to=tmp_path / "text.db")
    assert not model._forward_hooks


def test_database_of_another_process_is_refused_with_what_to_do(tmp_path):
    """Before, the error named an option of `intus serve`."""
    path = tmp_path / "runs.db"
    begin = f"import intus, torch; intus.probe(torch.nn.Linear(1, 1), to={str(path)!r})"
    script = f"{begin}; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "\n"
        model = torch.nn.Linear(1, 1)
        words = r"Another process writes to='.*runs\.db'.* to=\"runs-1\.db\"\. .*`intus serve .*runs\.db`"
        with pytest.raises(ServeError, match=words) as caught:
            intus.probe(model, to=path)
        other.communicate("\n", timeout=60)
    assert "--journal" not in str(caught.value)
    assert not model._forward_hooks


def test_serve_with_two_databases_is_refused():
    command = [sys.executable, "-m", "intus", "serve", "a.db", "--database", "b.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Two databases are given, 'a.db' and --database 'b.db'. Name one." in done.stderr


@pytest.mark.long
def test_warning_of_a_probe_is_logged_once(tmp_path):
    """Before, the private server, whose log the script shows too, logged it again."""
    failing = ("probe_set=(images", "when=lambda model, operation: 1 / 0, probe_set=(images")
    command = [sys.executable, "-c", SCRIPT.replace(*failing), str(tmp_path / "x.db"), "flush"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    (text,) = [line for line in done.stderr.splitlines() if "raised ZeroDivisionError" in line]
    assert text.startswith("intus: when(model, operation) raised")


def test_process_leaves_nothing_open_at_its_end():
    """The server has ended before its process does, and its pipes are closed."""
    script = """
from intus.monitoring.private_server import _SERVERS, private_server
private_server(None)
print(_SERVERS[None].process.pid)
"""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert not done.stderr
    assert not runs_now(int(done.stdout))
