"""Find where a model raised, and the note that is added to its exception."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.graph import Graph
from ..viewing.outline import failed_at
from .capture.libraries import LIBRARIES
from .front_door import Arguments

if TYPE_CHECKING:
    from torch import nn


def advice(graph: Graph, error: BaseException, given: Arguments) -> str:
    """Return the note for an exception of a model: where it was raised and what may help.

    Args:
        graph: The graph of the pass up to the exception.
        error: The exception.
        given: The arguments of the model.
    """
    note = (
        f"Raised{failed_at(graph)} while intus traced {graph.model}; the operations that ran are in "
        "error.intus_trace."
    )
    not_begun = not len(graph) and graph.facts.get("raised") is None  # no line of the model's code ran
    if isinstance(error, TypeError) and not_begun:
        note += _how_passed(given)
    if "meta" in {meta.device for meta in graph.metas} and "meta tensor" in str(error):
        note += (
            " A tensor on the meta device has no value. Pass meta_value=True (or False, or a function) for "
            "the value that the model gets."
        )
    if isinstance(error, RecursionError):
        note += (
            f" A trace needs about ten frames more than the model. If the model runs without it, raise "
            f"Python's limit of {sys.getrecursionlimit()} first: sys.setrecursionlimit(…)."
        )
    return note


def _how_passed(given: Arguments) -> str:
    """Return how the caller's containers became arguments, and how to pass them otherwise; may be empty."""
    if isinstance(given.alone, Mapping):
        return " The mapping was passed as keyword arguments. To pass it as one argument, write (inputs,)."
    if given.alone and all(type(value) is int for value in given.alone):
        shape = ", ".join(map(str, given.alone))
        return (
            f" The tuple was passed as {len(given.alone)} numbers. For an input of that shape, write "
            f"torch.randn({shape})."
        )
    if given.alone:
        return (
            f" The tuple was passed as {len(given.alone)} arguments. To pass it as one argument, write "
            "(inputs,)."
        )
    if len(given.args) == 1 and isinstance(given.args[0], list):
        return " The list was passed as one argument. To pass its items as arguments, write *inputs."
    return ""


def raised_at(error: BaseException | None, owner: nn.Module | None) -> dict[str, Any] | None:
    """Return the innermost frame of the user's code in an exception's traceback.

    Args:
        error: The exception; None if there was none.
        owner: The model, whose modules give addresses; None for a plain function.

    Returns:
        ``file``, ``line``, ``function`` and ``module``: the address of the innermost module whose method is
        on the stack there, ``""`` for the model itself. None if there is no error or no such frame.
    """
    if error is None:
        return None
    addresses = {} if owner is None else {id(module): name for name, module in owner.named_modules()}
    frame_facts: dict[str, Any] | None = None
    module = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = addresses.get(id(frame.f_locals.get("self")), module)
        code = frame.f_code
        if not code.co_filename.startswith(LIBRARIES):
            frame_facts = {"file": code.co_filename, "line": line, "function": code.co_name, "module": module}
        elif frame_facts is not None:
            frame_facts["module"] = module
    return frame_facts
