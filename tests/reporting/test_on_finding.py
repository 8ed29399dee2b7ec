"""``probe(on_finding=f)``: each finding once, in the process of the training, which no error ends."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

import intus
from intus.core.errors import InputError
from intus.core.findings import Finding
from intus.serving.run import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(database=tmp_path_factory.mktemp("findings") / "runs.db", port=0) as server:
        yield server


def planted(server, run, on_finding):
    """Train nothing, but let layer 1 know the class from epoch 2, lose it, and be NaN at last."""
    torch.manual_seed(0)
    labels = torch.arange(300) % 2
    noise = torch.randn(300, 5)

    class Planted(torch.nn.Module):
        known, worth = 0.0, 1.0

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Identity()

        def forward(self, rows):
            return self.layer(rows * self.worth + self.known * labels[:, None] * torch.eye(5)[0])

    model = Planted()
    options = {"run": run, "probe_set": (noise, {"half": labels}), "on_finding": on_finding}
    with intus.probe(model, server.host, server.port, **options) as watch:
        for watch.epoch in range(7):
            model.known = 6.0 if watch.epoch >= 2 else 0.0
            model.worth = float("nan") if watch.epoch == 6 else 1.0
            watch.run_probe_set()
            if watch.epoch in (3, 5):
                assert watch.flush()
    assert watch.flush()
    return watch


@pytest.mark.long
def test_each_finding_comes_once_with_the_words_of_the_page(server):
    found = []
    planted(server, "all", lambda finding: found.append((finding, threading.current_thread())))
    assert len({(each.kind, each.target, each.address, each.epoch) for each, _ in found}) == len(found)
    assert [(each.kind, each.target, each.epoch) for each, _ in found][:1] == [("learned", "half", 2.0)]
    assert [each.kind for each, _ in found].count("nonfinite") == 1
    assert all(isinstance(each, Finding) and each.text for each, _ in found)
    assert threading.main_thread() not in {thread for _, thread in found}
    final = [each.text for each in intus.runs(f"{server.host}:{server.port}")["all"].findings()]
    assert set(final) <= {str(each) for each, _ in found}
    assert "intus-follower" not in {thread.name for thread in threading.enumerate()}  # it ended in flush


@pytest.mark.long
def test_command_prints_findings(tmp_path):
    """Before, `intus serve` printed only warnings, and these sentences stood on the page alone."""
    command = [sys.executable, "-u", "-m", "intus", "serve", "--port=0", f"--database={tmp_path / 'x.db'}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    found = []
    with subprocess.Popen(command, **pipes) as server:
        port = re.search(r"send to 127\.0\.0\.1:(\d+)", server.stdout.readline())[1]
        planted(SimpleNamespace(host="127.0.0.1", port=int(port)), "all", found.append)
        server.terminate()
        printed = server.stdout.read().splitlines()
    told = [f"finding in all: {each}" for each in found if each.kind == "learned"]
    assert told
    assert set(told) <= set(printed)


def test_error_of_the_callback_is_logged_once_and_never_raised(server):
    def fail(finding):
        raise SystemExit(f"no {finding.kind}")

    watch = planted(server, "fails", fail)
    (fault,) = [each for each in watch.status()["faults"] if "on_finding" in each]
    assert fault.startswith(
        "The function on_finding raised an error, and is called again with the next finding: SystemExit"
    )
    assert watch.status()["troubles"] > 1


def test_what_cannot_be_called_is_refused():
    with pytest.raises(InputError, match="on_finding must be a function that takes a finding, got 'print'"):
        intus.probe(torch.nn.Linear(1, 1), on_finding="print")


@pytest.mark.long
def test_server_without_a_page_is_named(tmp_path):
    command = [sys.executable, "-m", "intus.serving", "--role=aggregator", "--port=0", "--no-token"]
    command += [f"--journal={tmp_path / 'journal'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            port = int(re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())[1])
            with intus.probe(torch.nn.Linear(3, 1), port=port, on_finding=print) as watch:
                watch._follower.catch_up(30)
        finally:
            server.kill()
    assert any("because it has no page" in each for each in watch.status()["faults"])
    watch._follower.end()
