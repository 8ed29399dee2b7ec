"""The first requests of a server may come at the same time.

msgspec builds what it needs of a struct at its first use. A second thread that used a struct meanwhile made
the process end with a segmentation fault, so each case runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from intus.serving import messages
from intus.serving.decoding import decode, read

together = threading.Barrier(8)
def first():
    together.wait()
    for _ in range(20):
        WORK

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
RUN = '{"run": "r", "model": "m"}'
COLUMNS = '{"columns": {"value": [1.0], "run": ["r"]}, "scores": [], "predictions": []}'
WORK = {
    "read": f"read({{'runs': [{RUN}], 'waits': []}}, messages.StatusReport)",
    "decode": f"decode(b'{COLUMNS}', messages.ResultsRequest)",
    "nested": f"read({RUN}, messages.RunLedger); read({{'runs': [{RUN}]}}, messages.StatusReport)",
}


@pytest.mark.parametrize("how", WORK)
def test_first_use_of_a_message_by_several_threads(how):
    for _ in range(3):
        command = [sys.executable, "-c", PROGRAM.replace("WORK", WORK[how])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stderr) == (0, "")
