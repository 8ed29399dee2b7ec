"""Record the graph of a model's first pass, and send it to the server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from ...backends.base import GraphRecorder
from ...storage.codec import encode_graph
from ..budget import Budget
from ..clocks import thread_seconds, thread_seconds_since
from ..sender import Sender
from ..warn_once import WarningLog

T = TypeVar("T")
_NO_GRAPH = (
    "intus: the page has no graph of %s, as it could not be made: %s: %s. Layers are recorded without."
)


class FirstGraph:
    """The graph of the first pass of one model.

    Args:
        recorder: Records it; None for no graph.
        run: The name of the training.
        name: The name of the model.
        model: Returns the model.
        sender: Receives the graph.
        budget: Pays for it.
        troubles: Logs why there is none.

    Attributes:
        traced: What records the pass in progress; None in all but the first.
    """

    def __init__(
        self,
        recorder: GraphRecorder | None,
        run: str,
        name: str,
        model: Callable[[], Any],
        sender: Sender,
        budget: Budget,
        troubles: WarningLog,
    ) -> None:
        self._recorder = recorder  # None once the first pass has begun
        self._run, self._name, self._model = run, name, model
        self._sender, self._budget, self._troubles = sender, budget, troubles
        self.traced: GraphRecorder | None = None
        self._thread: int | None = None  # that of the first pass; None if its end may come in any

    def begin(self, inputs: Any) -> bool:
        """Begin to record the pass with these inputs; False if it is not the first."""
        self.end(None)  # left by an interrupted pass
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return False
        any_thread = getattr(recorder, "any_thread", False)
        self.traced, self._thread = recorder, None if any_thread else threading.get_ident()
        self._made(partial(recorder.begin, self._model(), inputs))
        return True

    def end(self, output: Any) -> None:
        """Send the graph, if the pass that ends is the first; an output of None stands for none."""
        if self.traced is None or self._thread not in (None, threading.get_ident()):
            return  # a pass on another thread is in progress
        traced, self.traced = self.traced, None
        began = thread_seconds()
        graph = self._made(partial(traced.end, output))
        if graph is not None:
            query = urlencode({"run": self._run, "model": self._name})
            self._sender.send(f"/graph?{query}", encode_graph(graph), topic="graph")
        self._budget.pay_once(thread_seconds_since(began))

    def _made(self, make: Callable[[], T]) -> T | None:
        """Return what a function of the recorder returns; if it raises, None, and say so."""
        try:
            return make()
        except Exception as error:  # of code of the model that the recorder runs once more, or of ours
            lines = str(error).strip().splitlines() or [""]
            line = lines[-1 if lines[0].startswith("Traceback") else 0]
            self._troubles.warn_once(_NO_GRAPH, self._name, type(error).__name__, line)
            return None
