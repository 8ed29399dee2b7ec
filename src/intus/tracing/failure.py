"""Where a model raised: the line of its own code and the module, when no operation did it; what to do."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from torch import nn

from ..core.graph import Graph
from ..viewing.outline import failed_at
from .capture.sites import LIBRARIES


def advice(graph: Graph, error: BaseException, inputs: Any) -> str:
    """What to add to an exception of a model: where it was raised, where to look, and what may help."""
    said = f"Raised{failed_at(graph)} while intus traced {graph.model}; what ran is in error.intus_trace."
    unasked = not len(graph) and graph.facts.get("raised") is None  # its own code did not begin
    if isinstance(error, TypeError) and isinstance(inputs, Mapping) and unasked:
        said += " The mapping was passed as keywords: as the one argument it is written (inputs,)."
    if "meta" in {meta.device for meta in graph.metas} and "meta tensor" in str(error):
        said += " A tensor on the meta device has no value: meta_value=True answers for it."
    return said


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
