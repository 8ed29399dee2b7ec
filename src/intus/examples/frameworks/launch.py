"""``intus examples --framework``: run the script of each framework in its environment."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from ...core.errors import InputError
from .problem import write

#: The environment (``.venvs/NAME``) of each framework's script; "" for the one that runs this.
ENVIRONMENTS = {"torch": "", "session": "tensorflow", "keras": "tensorflow", "gluon": "mxnet", "nnx": "jax"}


def interpreter(framework: str) -> Path:
    """Return the Python of a framework's environment, as ``make`` places it in the present folder."""
    environment = ENVIRONMENTS[framework]
    return Path(".venvs", environment, "bin", "python") if environment else Path(sys.executable)


def launch(framework: str, host: str, port: int, epochs: int, run: str) -> int:
    """Run one script, or all of them.

    Args:
        framework: The framework, or ``"all"`` for those whose environment exists.
        host: The host of the server.
        port: The server's port for probes.
        epochs: The number of epochs.
        run: The name of the run on the page.

    Returns:
        The exit code: 1 if a script failed.

    Raises:
        InputError: If the environment of the framework does not exist.
    """
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder, "problem.npz")
        write(problem)
        for name in ENVIRONMENTS if framework == "all" else (framework,):
            python = interpreter(name)
            if not python.exists():
                target = f"make test-{ENVIRONMENTS[name]}"
                missing = f"{name} needs {python}, which does not exist. Make it with: {target}"
                if framework != "all":
                    raise InputError(missing)
                print(missing, flush=True)
                continue
            command = [str(python), "-m", f"{__package__}.{name}_mlp", str(problem), "--host", host]
            command += ["--port", str(port), "--epochs", str(epochs), "--run", run]
            failed |= subprocess.run(command, check=False).returncode != 0
    return int(failed)
