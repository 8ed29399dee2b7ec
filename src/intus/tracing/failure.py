"""Where a model raised: the line of its own code and the module, when no operation did it."""

from __future__ import annotations

import traceback
from typing import Any

from torch import nn

from .sites import LIBRARIES


def raised_at(error: BaseException | None, owner: nn.Module | None) -> dict[str, Any] | None:
    """File, line, function and module address of the innermost frame of the user's code in a traceback.

    The module is the innermost one whose method is on the way there, ``""`` for the model itself; None where
    there is no error or no such frame.
    """
    if error is None:
        return None
    addresses = {} if owner is None else {id(module): name for name, module in owner.named_modules()}
    found: dict[str, Any] | None = None
    module = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = addresses.get(id(frame.f_locals.get("self")), module)
        code = frame.f_code
        if not code.co_filename.startswith(LIBRARIES):
            found = {"file": code.co_filename, "line": line, "function": code.co_name, "module": module}
        elif found is not None:
            found["module"] = module
    return found
