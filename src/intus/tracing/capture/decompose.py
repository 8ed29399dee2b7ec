"""Record composite functions by the operations they run inside: ``trace(…, decompose=True)``.

A composite function (``multi_head_attention_forward``, ``einsum``, an LSTM) is recorded as a call, like a
call of a module. Its operations are the torch functions that it calls in Python if it calls several,
otherwise the ATen operations that it dispatches.

Whether a function is composite is found out by running it once on copies of its arguments, for each distinct
combination of arguments, shapes, dtypes and modes. Operations that only move memory (views, copies, casts) do
not count.
"""

from __future__ import annotations

import warnings
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .containers import tensors, walk
from .context.randomness import common_generators, generators, preserve_generators
from .functions import describe, written
from .invocation import arguments, flatten
from .memory import copied, inner_of, memory_of

if TYPE_CHECKING:
    from .recorder import Recorder

#: Strategies for recording a call: as one operation, by what it calls in Python, by what it dispatches.
PLAIN, PYTHON, ATEN = range(3)
#: Modules of torch's functions that are written in Python. They check for torch function modes only on entry.
_IN_PYTHON = ("torch.nn.functional", "torch.functional")
#: ATen operations that only move memory, besides views. What chooses elements, as most of ``families.MOVES``
#: does, is work: a function that runs one of them and another operation is worth opening.
_MOVES = frozenset({"clone", "_to_copy", "_unsafe_view", "_reshape_alias", "empty", "empty_like", "detach"})
#: Functions that are decomposed even if only one of the operations they run does more than move memory.
_ALWAYS_OPENED = frozenset({"einsum", "tensordot"})
_skip_one_hop = getattr(torch._C, "_skip_one_hop_torch_function", None)  # torch 2.9 or newer

#: The identity of a view: its memory, storage offset, shape, strides and dtype.
_View = tuple[int | None, int, tuple[int, ...], tuple[int, ...], torch.dtype]


class Decomposer:
    """Records composite functions by the operations they run, for one recorder.

    Attributes:
        recorder: The recorder while it is entered, else None.
        nested: Whether another recorder is active around it. Nothing is decomposed then, because the outer
            recorder would record the trial runs.
    """

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.nested = False
        self._strategies: dict[Any, int] = {}
        self._modules: dict[tuple[int, Any], Module] = {}
        self._dispatching = False
        self._producers: dict[_View, int] = {}  # of the views made in the current function
        self._fresh: list[
            tuple[Any, int]
        ] = []  # the last operation's results and writes, with their producers

    def strategy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> int:
        """Return how to record a call: PLAIN, PYTHON or ATEN.

        Args:
            func: The function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
        """
        if self._dispatching or not _is_torch_function(func):
            return PLAIN
        recorder = self.recorder
        if recorder is None or self.nested or recorder.producers.transformed:
            return PLAIN
        atoms: list[Any] = []
        inputs = [t for t, _ in walk((args, kwargs or {}), "", atoms)]
        if any(inner_of(t) is not None for t in inputs):
            return PLAIN  # its operations would be those of its subclass, and the trial run might communicate
        metas = [(t.shape, t.dtype, t.device, t.requires_grad, _is_contiguous(t)) for t in inputs]
        modes = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch._C._is_any_autocast_enabled(),
        )
        key = (func, tuple(atoms), tuple(metas), modes)
        if key not in self._strategies:
            self._strategies[key] = _try_out(func, args, kwargs or {})
        return self._strategies[key]

    def run(self, strategy: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run a call and record it as the call of a module named after the function.

        Args:
            strategy: PYTHON or ATEN.
            func: The function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            What the function returned.
        """
        recorder, kwargs = self.recorder, kwargs or {}
        assert recorder is not None
        module = self._module(recorder, func)
        call = recorder.module_calls.begin(module)
        try:
            if strategy == PYTHON:
                with _reentered(recorder):
                    out = _skip_one_hop(func, (), args, kwargs)  # type: ignore[misc]
            else:
                out = self._dispatched(recorder, func, args, kwargs)
            recorder.module_calls.end(call, module, args, kwargs, out)
        finally:
            recorder.module_calls.leave(call)
        return out

    def _module(self, recorder: Recorder, func: Any) -> Module:
        """Return the module that represents a function: one for each module that calls it."""
        parent = recorder.recording.module_of(recorder.recording.stack[-1])
        if (parent, func) not in self._modules:
            class_ = type(describe(func).type, (Module,), {"forward": staticmethod(func)})
            self._modules[parent, func] = class_()
        return self._modules[parent, func]

    def _dispatched(
        self, recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._dispatching = True
        try:
            with _Dispatch(self, recorder):
                out = func(*args, **kwargs)
            self._refresh(recorder)
            self._add_aliases(recorder, out)
            return out
        finally:
            self._dispatching = False
            self._producers.clear()
            self._fresh.clear()

    def dispatch(self, recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run and record an ATen operation of the current composite function.

        Args:
            recorder: The recorder.
            func: The operation.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            What the operation returned.
        """
        with torch._C.DisableTorchFunction():
            self._refresh(recorder)
            self._add_aliases(recorder, (args, kwargs))
        if func is torch.ops.aten.detach.default:
            return func(*args, **kwargs)  # autograd detaches what it saves: not part of the computation
        out = recorder.handler(recorder, func, (), args, kwargs)
        with torch._C.DisableTorchFunction():
            for t in (*tensors(out), *written(describe(func), args, kwargs)):
                entry = recorder.producers.known.get(id(t))
                if entry is not None:
                    self._producers[_view(t)] = entry[1]
                    self._fresh.append((entry[0], entry[1]))
        return out

    def _refresh(self, recorder: Recorder) -> None:
        """Update the versions of the last operation's results.

        Autograd changes versions once more after an operation has returned: it counts an in-place write then,
        and gives a view the version of its base. No other operation can have run in between.
        """
        producers, values = recorder.producers, recorder.values
        for reference, producer in self._fresh:
            t = reference()
            if t is not None and producers.known[id(t)][1] == producer:
                producers.set_producer(t, producer)
            values.refresh(producer, t)
        self._fresh.clear()

    def _add_aliases(self, recorder: Recorder, value: Any) -> None:
        """Record the producers of unknown tensors that are views made in the current function.

        Autograd may pass on another object than the operation returned, with the same memory and strides.
        """
        for t in tensors(value):
            if not recorder.producers.is_known(t) and (producer := self._producers.get(_view(t))) is not None:
                recorder.producers.set_producer(t, producer)


class _Dispatch(TorchDispatchMode):
    """Passes ATen operations to a Decomposer."""

    def __init__(self, decomposer: Decomposer, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._decomposer, self._recorder = decomposer, recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._decomposer.dispatch(self._recorder, func, args, kwargs or {})


class _CountDispatched(TorchDispatchMode):
    """Counts ATen operations: ``all``, and ``work``, those that do more than move memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.all = self.work = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.all += 1
        returns = func._schema.returns
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        self.work += not (views or func.overloadpacket.__name__ in _MOVES)
        return func(*args, **(kwargs or {}))


class _CountCalled(TorchFunctionMode):
    """Counts the torch functions that a function written in Python calls."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += describe(func).record
        return func(*args, **(kwargs or {}))


def _is_torch_function(func: Any) -> bool:
    """Return whether a function is torch's own; others may have side effects that must not happen twice."""
    module = getattr(func, "__module__", None) or "torch"
    if isinstance(func, FunctionType):
        return module in _IN_PYTHON
    return isinstance(func, BuiltinFunctionType | MethodDescriptorType) and module.startswith("torch")


def _try_out(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Run a call on copies of its arguments, and return the strategy that what it does calls for."""
    found: list[Tensor] = []
    plain = tuple(flatten(value, found) for value in args)
    named = {name: flatten(value, found) for name, value in kwargs.items()}
    python_calls = _CountCalled()
    try:
        copies = {id(t): _copy(t) for t in found}
        again, others = arguments(plain, named, [copies[id(t)] for t in found])
        with preserve_generators({*common_generators(), *generators(kwargs)}), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _CountDispatched() as dispatched:
                if _skip_one_hop is not None and isinstance(func, FunctionType):
                    with python_calls:
                        _skip_one_hop(func, (), again, others)
                else:
                    func(*again, **others)
    except Exception:  # the call itself will raise it again, where the caller can see it
        return PLAIN
    if dispatched.work < 2 and not (dispatched.all > 1 and describe(func).type in _ALWAYS_OPENED):
        return PLAIN
    return PYTHON if python_calls.count > 1 else ATEN


def _copy(t: Tensor) -> Tensor:
    detached = t.detach()
    return copied(detached.requires_grad_() if t.requires_grad else detached)


class _reentered:  # noqa: N801 - used like a function
    """Activate a mode again inside its own handler, where torch has deactivated it.

    It is no generator: one that an interrupt left suspended would pop another mode when it is deleted.
    """

    def __init__(self, mode: TorchFunctionMode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        torch._C._push_on_torch_function_stack(self._mode)

    def __exit__(self, *error: Any) -> None:
        torch._C._pop_torch_function_stack()


def _is_contiguous(t: Tensor) -> bool:
    return t.layout == torch.strided and not t.is_nested and t.is_contiguous()


def _view(t: Tensor) -> _View:
    try:
        return memory_of(t), int(t.storage_offset()), tuple(t.shape), t.stride(), t.dtype
    except RuntimeError:  # a sparse tensor is identified by its object
        return None, id(t), (), (), t.dtype
