"""Standing between a model and torch while it runs, and leaving without a trace.

Two things see a forward pass: a ``TorchFunctionMode`` (thread-local, nothing in torch is patched) for
operations, and the code of ``nn.Module.__call__`` for which module they ran in. The latter is the one patch
there is: it is shared by all captures under way, put in by the first and taken out by the last, and asks a
thread-local which capture to tell. Traces may run in several threads, and inside one another.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FunctionType, TracebackType
from typing import Any, cast

import torch
from torch.nn import Module

from .containers import named_tensors
from .context.global_patches import GlobalPatches, plain_call
from .decompose import Decomposer
from .memory import memory_of
from .module_calls import ModuleCalls
from .operations import Answer
from .recorder import Recorder
from .recording import ROW
from .saving.values import Values

#: ``captures`` are the module calls of those captures that are under way in the thread, innermost last.
_local = threading.local()


def _call_module(
    module: Module,
    /,
    *args: Any,
    _intus_local: threading.local = _local,
    _intus_plain_call: Callable[..., Any] = plain_call,
    **kwargs: Any,
) -> Any:
    """Runs for ``Module.__call__`` while any capture is under way, with torch's names for its globals."""
    try:
        calls: ModuleCalls = _intus_local.captures[-1]
    except (AttributeError, IndexError):  # a thread without a capture
        return _intus_plain_call(module, *args, **kwargs)
    if calls.values.busy:  # the caller's own code, or what is run again: no part of the pass
        return _intus_plain_call(module, *args, **kwargs)
    call = calls.begin(module)
    try:
        out = _intus_plain_call(module, *args, **kwargs)
        calls.end(call, module, args, kwargs, out)
    finally:
        calls.leave(call)
    return out


_surroundings = GlobalPatches(cast(FunctionType, _call_module))


class Capture:
    """Records everything that runs inside its ``with`` block on this thread.

    ``model`` is where names come from (None for plain functions); ``values`` keeps activations. What the
    pass wrote into memory that was there before it (BatchNorm's running statistics, a cache, the inputs), and
    what it assigned to modules' attributes, is put back on exit when ``restore`` is set, so outputs are
    declared inside the block. After ``most`` operations no more are noted. ``answer`` is asked for the plain
    value of a tensor on ``meta``, which has none. With ``decompose``, composite functions are recorded by
    what they do inside.

    >>> net, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    >>> capture = Capture(net)
    >>> capture.inputs(x)
    >>> with capture:
    ...     capture.outputs(net(x))
    >>> capture.recording.types
    ['input', 'linear', 'output']
    """

    def __init__(
        self,
        model: Module | None,
        values: Values | None = None,
        *,
        restore: bool = False,
        most: int = sys.maxsize,
        answer: Answer | None = None,
        decompose: bool = False,
    ) -> None:
        self.values = values or Values(None)
        self._recorder = Recorder(
            model,
            self.values,
            _call_module.__code__,
            most=most,
            answer=answer,
            decomposer=Decomposer() if decompose else None,
        )
        #: What has been recorded so far.
        self.recording = self._recorder.recording
        #: What it takes to run each call again; None where no activations are kept.
        self.call_log = self._recorder.call_log
        self._most = most
        self.restored: list[int | None] = []  # the memories that were put back
        self._restore = restore
        if restore:
            self.recording.restorer.watch(self.recording.addresses.modules)

    @property
    def full(self) -> bool:
        """Whether there were more operations than are noted."""
        return len(self.recording.rows) >= self._most * len(ROW)

    def inputs(self, values: Any) -> None:
        """Declare the tensors in ``values`` as the inputs of the pass."""
        with torch._C.DisableTorchFunction():  # a trace inside a trace: our own work is no part of the outer
            for name, tensor in named_tensors(values):
                self._recorder.add_input(tensor, name)

    def outputs(self, values: Any) -> None:
        """Declare the tensors in ``values`` as the outputs of the pass."""
        with torch._C.DisableTorchFunction():
            for number, (name, tensor) in enumerate(named_tensors(values)):
                self._recorder.add_output(tensor, str(number), name)

    def begin_call(self, module: Module) -> int:
        """Note that a call of ``module`` is under way which began before this capture did."""
        return self._recorder.module_calls.begin(module)

    def end_call(self, call: int, module: Module, out: Any) -> None:
        """Note what that call returned."""
        self._recorder.module_calls.end(call, module, (), {}, out)
        self._recorder.module_calls.leave(call)

    def __enter__(self) -> Capture:
        _surroundings.enter()
        if not hasattr(_local, "captures"):
            _local.captures = []
        _local.captures.append(self._recorder.module_calls)
        self._recorder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._recorder.__exit__(kind, error, where)
        _local.captures.remove(self._recorder.module_calls)
        _surroundings.leave()
        self.recording.failure = error
        if self._restore:
            self._put_back()

    def _put_back(self) -> None:
        with torch._C.DisableTorchFunction():
            restorer = self.recording.restorer
            for t in restorer.written():
                self.values.before_writing(t)
                self.restored.append(memory_of(t))
            restorer.put_back()
