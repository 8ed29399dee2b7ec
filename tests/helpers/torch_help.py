"""Programs that the main environment runs, for tests in environments that have no PyTorch."""

import json
import os
import subprocess
from pathlib import Path


def run_with_torch(code, *arguments):
    """Return what code prints in the environment that has PyTorch and pandas, as JSON.

    Args:
        code: The program; it can import the modules beside this one.
        arguments: What the program is given in ``sys.argv``, as text.
    """
    command = [os.environ["INTUS_SERVER_PYTHON"], "-c", code, *map(str, arguments)]
    known = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": known}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
