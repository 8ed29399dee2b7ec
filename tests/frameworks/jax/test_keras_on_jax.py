"""Keras with JAX as its backend: a probe set is recorded after each epoch, and everything else is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_probe_set_of_keras_on_jax():
    """The judge is Keras: the same training, stopped after each epoch."""
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": os.pathsep.join(sys.path)}
    script = Path(__file__).with_name("keras_on_jax.py")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["backend"] == "jax"
    assert not found["torch"]
    assert set(found["errors"]) == {"0", "1", "2", "3"}
    assert max(found["errors"].values()) < 1e-5
    assert found["passes"] == 0
    assert not [fault for fault in found["faults"] if "could not record" in fault]
    assert (
        "Of Keras on jax, the training's own passes cannot be recorded. Pass a probe_set" in found["reason"]
    )
    assert len(found["refused"]) == 2
    assert all("kinds of Keras on jax must be of output, input, parameter" in one for one in found["refused"])
