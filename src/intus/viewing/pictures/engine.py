"""Run the page's program inside Python, in a QuickJS engine that exchanges JSON and can measure text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...core.errors import IntusError, require
from ..assets import asset
from .measure import measure

#: The memory limit of the engine in bytes. A hundred thousand boxes need about half of it.
MOST_MEMORY = 4 * 2**30

#: The stack limit of the engine in bytes. The page's code avoids recursion and stays far below it, and every
#: thread has a stack of this size.
MOST_STACK = 2**18

# The C module, not its wrapper `quickjs`: the wrapper starts a thread on import, and forking a process with
# several threads, as data loaders do, raises a warning and can deadlock.
_MODULE = "_quickjs"


def run(program: str, task: Mapping[str, Any]) -> Any:
    """Run one of the programs in ``web/src/pictures/main.ts`` and return its result.

    An engine can be used only by the thread that made it, so each call makes a new one, which takes 10 ms.
    Other Python threads run meanwhile.

    Args:
        program: ``"draw"`` or ``"diagram"``.
        task: The input, as ``PictureTask`` in ``web/src/pictures/still.ts`` declares it.

    Raises:
        MissingExtraError: QuickJS is not installed.
        IntusError: The graph is too large for the engine's memory.
    """
    engine = require(
        _MODULE,
        extra="draw",
        why="to lay out pictures (.html and .json do not need it)",
        package="quickjs-ng",
    )
    context = engine.Context()
    context.set_memory_limit(MOST_MEMORY)
    context.set_max_stack_size(MOST_STACK)
    context.add_callable("width", measure)
    try:
        context.eval(asset("pictures.js"))
        run = context.eval("(program, task) => intusPictures.run(program, task, width)")
        # ASCII JSON escapes lone surrogates, which UTF-8, the encoding of the engine, cannot represent.
        return json.loads(run(program, json.dumps(task, allow_nan=False)))
    except engine.JSException as error:
        # Without memory for an error object the engine throws null.
        message = str(error)
        if (
            isinstance(error, engine.StackOverflow)
            or "out of memory" in message
            or message.startswith("null")
        ):
            raise IntusError(
                "This graph is too large to be drawn as one picture. Draw fewer levels (depth=) or "
                "rolled=True, or save it as .html and explore it there."
            ) from error
        raise
