"""Run the page's layout inside Python, in QuickJS engines that know JSON and how wide words are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...core.errors import IntusError, require
from ..assets import asset
from .measure import measure

#: Bytes that one picture may take while it is made. A hundred thousand boxes take about half.
MOST_MEMORY = 4 * 2**30

#: Bytes of the C stack that the program may use. The page's code keeps its own stacks, so it stays far below,
#: and any thread has as much.
MOST_STACK = 2**18

# The C module itself: its wrapper `quickjs` starts a thread when it is imported, and a process with more than
# one thread is warned about (or worse) when it forks, as data loaders do.
_MODULE = "_quickjs"


def run(program: str, task: Mapping[str, Any]) -> Any:
    """Run one of the programs in ``web/src/pictures/main.ts`` on a task and return its result.

    An engine belongs to the thread that made it, so each call makes its own: 10 ms. While it runs, other
    threads run too.

    Raises:
        MissingExtraError: QuickJS is not installed.
        IntusError: The graph is too large for the engine's memory.
    """
    engine = require(
        _MODULE, extra="draw", why="to lay out pictures (.html and .json need nothing)", package="quickjs-ng"
    )
    context = engine.Context()
    context.set_memory_limit(MOST_MEMORY)
    context.set_max_stack_size(MOST_STACK)
    context.add_callable("width", measure)
    try:
        context.eval(asset("pictures.js"))
        run = context.eval("(program, task) => intusPictures.run(program, task, width)")
        # As ASCII: the engine takes and gives UTF-8, which has no words for half a character.
        return json.loads(run(program, json.dumps(task, allow_nan=False)))
    except engine.JSException as error:
        # Without memory there is none for an error object either: the engine then throws null.
        said = str(error)
        if isinstance(error, engine.StackOverflow) or "out of memory" in said or said.startswith("null"):
            raise IntusError(
                "This graph is too large to be drawn as one picture. Draw fewer levels (depth=) or "
                "rolled=True, or save it as .html and walk in it."
            ) from error
        raise
