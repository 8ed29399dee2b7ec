"""The graph of a pass that runs anyway: recorded on the side, nothing saved, nothing run twice."""

from __future__ import annotations

from typing import Any

from ..core.graph import Graph
from .capture.argument_names import by_name
from .capture.interpose import Capture
from .compiled import reaches_compiled
from .run import structure

MOST = 1_000_000  # operations of one pass: some 100 MB of integers


class Aside:
    """Records one call of a model from its hooks; what ``intus.monitoring`` calls a Structure.

    >>> import torch
    >>> net, x, aside = torch.nn.Linear(2, 1), torch.ones(1, 2), Aside()
    >>> aside.begin(net, x)
    >>> out = net(x)
    >>> aside.end(out)
    <Graph of Linear: 1 operations, 1 modules>
    """

    def __init__(self) -> None:
        self._capture: Capture | None = None

    def begin(self, model: Any, inputs: Any) -> None:
        """The call begins: ``inputs`` are its arguments, nested as they like. A model that leads to compiled
        code is left alone: such code would run uncompiled while it is watched."""
        if reaches_compiled(model):
            return
        capture = Capture(model, most=MOST)
        match inputs:
            case (tuple() as args, dict() as kwargs):
                inputs = by_name(model, args, kwargs)
        capture.inputs(inputs)
        capture.__enter__()
        self._capture, self._model, self._call = capture, model, capture.begin_call(model)

    def end(self, out: Any) -> Graph | None:
        """The call returned ``out``; the graph of it, or None where no call was recorded or it ran more
        operations than a page can show. To be called on the thread that began."""
        capture, self._capture = self._capture, None
        if capture is None:
            return None
        model, self._model = self._model, None
        try:
            capture.end_call(self._call, model, out)
            capture.outputs(out)
        finally:
            capture.__exit__(None, None, None)
        return None if capture.full else structure(capture, model)
