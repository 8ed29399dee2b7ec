"""Record the graph of a forward pass that runs anyway, without saving values or running it twice."""

from __future__ import annotations

from typing import Any

from ..core.graph import Graph
from .capture.argument_names import by_name
from .capture.context.interrupts import interrupts_deferred
from .capture.interpose import Capture
from .compiled import reaches_compiled
from .record import structure

MOST = 1_000_000  # operations of one pass, about 100 MB of integers


class FirstPassRecorder:
    """Records one call of a model from its hooks; implements ``backends.base.GraphRecorder``.

    Example:
        >>> import torch
        >>> net, x, recorder = torch.nn.Linear(2, 1), torch.ones(1, 2), FirstPassRecorder()
        >>> recorder.begin(net, x)
        >>> out = net(x)
        >>> recorder.end(out)
        <Graph of Linear: 1 operations, 1 modules>
    """

    def __init__(self) -> None:
        self._capture: Capture | None = None

    def begin(self, model: Any, inputs: Any) -> None:
        """Start to record a call.

        A model that may run compiled code is not recorded, because such code would run uncompiled meanwhile.

        Args:
            model: The model that is about to run.
            inputs: Its arguments, ``(args, kwargs)`` as a forward hook receives them, or one value.
        """
        if reaches_compiled(model):
            return
        capture = Capture(model, max_rows=MOST)
        match inputs:
            case (tuple() as args, dict() as kwargs):
                inputs = by_name(model, args, kwargs)
        capture.inputs(inputs)
        with interrupts_deferred():
            capture.__enter__()
            self._capture, self._model, self._call = capture, model, capture.begin_call(model)

    def end(self, out: Any) -> Graph | None:
        """Stop recording. Must be called on the thread that called ``begin``.

        Args:
            out: What the call returned.

        Returns:
            The graph; None if no call was recorded, or if it ran more than ``MOST`` operations.
        """
        if self._capture is None:
            return None
        with interrupts_deferred():
            capture, self._capture = self._capture, None
            model, self._model = self._model, None
            try:
                capture.end_call(self._call, model, out)
                capture.outputs(out)
            finally:
                capture.__exit__(None, None, None)
        return None if capture.full else structure(capture, model)
