"""The folders of library code, as opposed to that of users."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

_TORCH = find_spec("torch")

#: Start of the file names of library code: torch's, and intus's own when one trace runs inside another.
#: Each folder ends with a separator: torchvision, which stands beside torch, is user code.
LIBRARIES = (
    *(f"{folder}{os.sep}" for folder in (_TORCH.submodule_search_locations or () if _TORCH else ())),
    f"{Path(__file__).parents[1]}{os.sep}",
    "<__array_function__",
)
