"""The progress bars of validate and collect: on a terminal only, and only if tqdm is installed."""

import os
import pty
import subprocess
import sys
import termios

import pytest

SCRIPT = """
import sys
BLOCK
import torch, intus
from intus.tracing import progress_bar
progress_bar.DELAY = 0.0
net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(30)])
assert intus.validate(net, torch.ones(2, 4))
assert intus.trace(net, torch.ones(2, 4)).validate()
acts = intus.collect(net, [torch.ones(2, 4)] * 3, ["0"], sys.argv[1])
assert acts["0"].shape == (6, 4)
"""


def errors_of(script, file, terminal):
    """Run a script and return what it wrote to standard error, which is a terminal or a pipe."""
    command = [sys.executable, "-W", "error", "-c", script, str(file)]
    if not terminal:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stderr
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    done = subprocess.Popen(command, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    text = b""
    while True:
        try:
            text += os.read(ours, 4096)
        except OSError:  # the process has closed the terminal
            break
    os.close(ours)
    assert done.wait(timeout=300) == 0, text
    return text.decode()


@pytest.mark.long
def test_bars_on_a_terminal(tmp_path):
    pytest.importorskip("tqdm")
    text = errors_of(SCRIPT.replace("BLOCK", ""), tmp_path / "a", terminal=True)
    assert "validate: 0 calls" in text  # while the model runs, their number is unknown
    assert "validate:   0%|" in text  # of a trace it is known
    assert "/32 [" in text or "/31 [" in text
    assert "collect:   0%|" in text
    assert "| 0/3 [" in text


@pytest.mark.long
@pytest.mark.parametrize(("block", "terminal"), [("", False), ("sys.modules['tqdm'] = None", True)])
def test_no_bar_in_a_pipe_or_without_tqdm(block, terminal, tmp_path):
    assert errors_of(SCRIPT.replace("BLOCK", block), tmp_path / "a", terminal=terminal) == ""
