"""Run a short training in a process of its own, whose exit must say nothing."""

from __future__ import annotations

import os
import subprocess
import sys

_BEFORE = """
import logging, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
from intus import probe
WHERE = "127.0.0.1", 9  # where no server is
"""


def assert_quiet_exit(script: str) -> None:
    """Run a script that has ``probe`` and ``WHERE``; nothing but it may write, and it must not."""
    quiet = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", _BEFORE + script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **quiet},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
