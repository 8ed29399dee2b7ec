"""The tests of a framework run in its own environment alone; see ``make test-frameworks``."""

import os
import sys
from pathlib import Path

#: The framework whose environment this is; "" in the main one.
FRAMEWORK = os.environ.get("INTUS_FRAMEWORK", "")
#: The frameworks whose tests need an environment of their own, by the name of their folder.
APART = ("jax", "tensorflow", "mxnet", "onnx")


if FRAMEWORK and str(Path(__file__).parent) in sys.path:
    # ``import jax`` would find the folder of its tests where JAX is not installed, as Keras tries.
    sys.path.remove(str(Path(__file__).parent))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the folders of other frameworks."""
    return True if collection_path.name in APART and collection_path.name != FRAMEWORK else None
