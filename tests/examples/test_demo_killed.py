"""`intus demo` that is killed, or whose terminal is closed, leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from process_help import descendants, runs_now, wait_for_end

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc"), reason="the test reads /proc")


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_demo_that_is_killed_leaves_no_process(tmp_path, how):
    command = [sys.executable, "-m", "intus", "demo", "--port=0", "--epochs=1"]
    with subprocess.Popen(
        [*command, f"--database={tmp_path / 'x.db'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # nohup ignores it
    ) as demo:
        try:
            assert any("Watch it learn" in line for line in demo.stdout)
            started = {pid for pid in descendants(demo.pid) if runs_now(pid)}
            assert started
            demo.send_signal(how)
            demo.wait(60)
        finally:
            demo.kill()
        wait_for_end(started)
