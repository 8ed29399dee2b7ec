"""Intercept the torch functions and module calls of a forward pass, and restore everything afterwards.

Operations are seen by a ``TorchFunctionMode``, which is thread-local and patches nothing. Module calls are
seen by replacing the code of ``nn.Module.__call__``, the only patch of torch's code. All active captures
share it: the first one installs it and the last one removes it. The replacement finds the capture to report
to in a context variable. Traces may run in several threads, and inside one another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from threading import get_ident
from types import FunctionType, TracebackType
from typing import Any, cast

import torch
from torch.nn import Module
from torch.overrides import _get_current_function_mode_stack

from .containers import named_tensors
from .context.global_patches import GlobalPatches
from .decompose import Decomposer
from .memory import memory_of
from .module_calls import ModuleCalls
from .operations import MetaValue
from .recorder import Recorder
from .recording import ROW
from .saving.values import Values

#: The active captures of this thread, innermost last. A context variable is read several times as fast as a
#: ``threading.local``, and every module call of every thread reads it.
_captures: ContextVar[tuple[ModuleCalls, ...]] = ContextVar("intus_captures", default=())


def _call_module(
    self: Any,
    *args: Any,
    _intus_captures: Callable[[], tuple[ModuleCalls, ...]] = _captures.get,
    **kwargs: Any,
) -> Any:
    """Run a module and record its call; replaces ``Module.__call__`` while any capture is active.

    It runs with the globals of torch's own function. What it needs besides is in its keyword defaults. Calls
    that are not recorded run what torch's own function has as its body, and recorded calls too, so that no
    call needs more frames than without a capture.
    """
    captures = _intus_captures()
    if not captures or captures[-1].ignores():
        if self._compiled_call_impl is None:
            return self._call_impl(*args, **kwargs)
        return self._compiled_call_impl(*args, **kwargs)
    calls = captures[-1]
    call = calls.begin(self, (args, kwargs))
    try:
        if self._compiled_call_impl is None:
            out = self._call_impl(*args, **kwargs)
        else:
            out = self._compiled_call_impl(*args, **kwargs)
        calls.end(call, self, args, kwargs, out)
    finally:
        calls.leave(call)
    return out


def _runs_fused() -> bool:
    """Return whether only captures override torch functions in this thread, and none looks inside them."""
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return all(isinstance(mode, Recorder) and not mode.decomposes for mode in modes)


def _before_shrinking(storage: torch.UntypedStorage) -> None:
    """Let the captures of this thread know that a storage is about to lose its contents."""
    for calls in _captures.get():
        if calls.thread == get_ident():
            calls.before_shrinking(storage)


_patches = GlobalPatches(cast(FunctionType, _call_module), _runs_fused, _before_shrinking)


class Capture:
    """Records everything that runs inside its ``with`` block on this thread.

    Args:
        model: Gives parameters, buffers and modules their addresses; None for a plain function.
        values: Saves activations; by default none are saved.
        restore: Whether to undo, on exit, what the pass wrote to memory that existed before it (BatchNorm's
            running statistics, a cache, the inputs) and what it assigned to attributes of modules. Outputs
            must then be declared inside the block.
        max_rows: No rows are recorded once there are this many.
        meta_value: Returns the plain value to use for a tensor on ``meta``, which has none; None to let torch
            raise.
        decompose: Whether to record composite functions by what they call inside.

    Attributes:
        recording: What has been recorded so far.
        call_log: The logged calls, for replaying them; None if no activations are saved.
        values: The saved activations.
        restored: The memories that were restored, as ``memory_of`` identifies them.
        reassigned: The attributes that were restored, by address; filled only if gradients are saved.

    Example:
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
        max_rows: int = sys.maxsize,
        meta_value: MetaValue | None = None,
        decompose: bool = False,
    ) -> None:
        self.values = values or Values(None)
        self._recorder = Recorder(
            model,
            self.values,
            _call_module.__code__,
            max_rows=max_rows,
            meta_value=meta_value,
            decomposer=Decomposer() if decompose else None,
        )
        self.recording = self._recorder.recording
        self.call_log = self._recorder.call_log
        self.restored: list[int | None] = []
        self._changed_late: list[Module] = []
        self.reassigned: list[str] = []
        self._max_ops, self._restore = max_rows, restore
        if restore:
            self.recording.restorer.watch(self.recording.addresses.modules)

    @property
    def full(self) -> bool:
        """True if ``max_rows`` was reached, so that operations may be missing."""
        return len(self.recording.rows) >= self._max_ops * len(ROW)

    def reach(self, *values: Any) -> None:
        """Remember the state of what a call of these values can reach: modules, optimizers, generators."""
        with torch._C.DisableTorchFunction():
            self.recording.restorer.add_reachable(*values)

    def inputs(self, values: Any) -> None:
        """Declare the tensors in ``values`` as the inputs of the pass."""
        with torch._C.DisableTorchFunction():  # a trace around this one must not see the recorder's own calls
            self.recording.restorer.add_arguments(values)
            for name, tensor in named_tensors(values):
                self._recorder.add_input(tensor, name)

    def outputs(self, values: Any) -> None:
        """Declare the tensors in ``values`` as the outputs of the pass."""
        with torch._C.DisableTorchFunction():
            for number, (name, tensor) in enumerate(named_tensors(values)):
                self._recorder.add_output(tensor, str(number), name)

    def begin_call(self, module: Module) -> int:
        """Record a call of ``module`` that began before this capture, and return its number."""
        return self._recorder.module_calls.begin(module)

    def end_call(self, call: int, module: Module, out: Any) -> None:
        """Record the end of a call that ``begin_call`` recorded.

        Args:
            call: The number that ``begin_call`` returned.
            module: The module.
            out: What the call returned.
        """
        self._recorder.module_calls.end(call, module, (), {}, out)
        self._recorder.module_calls.leave(call)

    def __enter__(self) -> Capture:
        _patches.enter()
        self._recorder.module_calls.thread = get_ident()
        _captures.set((*_captures.get(), self._recorder.module_calls))
        self._recorder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._recorder.__exit__(kind, error, where)
        _captures.set(tuple(one for one in _captures.get() if one is not self._recorder.module_calls))
        _patches.leave()
        self.recording.failure = error
        if self._restore:
            self._undo_writes()

    def not_restored(self) -> list[str]:
        """Return what the pass changed and could not be restored, each as a sentence."""
        addresses = self.recording.addresses
        named = {id(t): name for name, t in (*addresses.params, *addresses.buffers)}
        freed = [
            f"{named.get(id(t), 'An input')}: the model freed its memory."
            for t in self.recording.restorer.lost
        ]
        return freed + [
            f"{addresses.names[addresses.numbers[id(module)]]}: its attributes changed. It was found when it "
            "was called, so what they were before the pass is not known."
            for module in self._changed_late
        ]

    def _undo_writes(self) -> None:
        with torch._C.DisableTorchFunction():
            restorer = self.recording.restorer
            for t in restorer.gathered():
                self.values.before_writing(t)
                self._recorder.before_restoring(t)
            for t in restorer.modified():
                self.values.before_writing(t)
                self._recorder.before_restoring(t)
                self.restored.append(memory_of(t))
            self.values.end()
            self._changed_late = restorer.changed_late()
            if self.values.nodes is not None:
                self.reassigned = self._reassigned()
            restorer.restore()

    def _reassigned(self) -> list[str]:
        """Return the addresses of the attributes that the pass changed."""
        changed = self.recording.restorer.changed_attributes()
        if not changed:
            return []
        names: dict[int, str] = {}  # of the modules' dicts of attributes, and of what these refer to
        addresses = self.recording.addresses
        for address, module in zip(addresses.names, addresses.modules, strict=True):
            names[id(vars(module))] = address
            for key, value in vars(module).items():
                names[id(value)] = f"{address}.{key}".lstrip(".")
        unknown = "an object that the model refers to"
        parts = [(names.get(id(holder), unknown), key) for holder, key in changed]
        return [
            name if key is None or name == unknown else f"{name}.{key}".lstrip(".") for name, key in parts
        ]
