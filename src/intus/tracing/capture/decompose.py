"""What a composite function does inside: ``trace(…, decompose=True)``.

A function that does several things (``multi_head_attention_forward``, ``einsum``, an LSTM) becomes a call, as
a module's is, whose operations are what it does: first what it calls in Python, then what torch's own code
dispatches (ATen). Whether a function does several things is seen by running it once on copies, in each
situation in which it is met; what merely arranges memory (views, copies, casts) does not count.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .containers import tensors, walk
from .context.randomness import common_generators, generators, put_back
from .functions import describe, written
from .invocation import arguments, flatten
from .memory import copied, memory_of

if TYPE_CHECKING:
    from .recorder import Recorder

PLAIN, PYTHON, ATEN = range(3)
#: Written in Python for the most part of torch to call in turn, and checked at their head alone.
_IN_PYTHON = ("torch.nn.functional", "torch.functional")
#: Moves of memory that a function makes on its way.
_MOVES = frozenset({"clone", "_to_copy", "_unsafe_view", "_reshape_alias", "empty", "empty_like", "detach"})
#: Functions that are asked for what they arrange.
_ARRANGING = frozenset({"einsum", "tensordot"})
_skip_one_hop = getattr(torch._C, "_skip_one_hop_torch_function", None)  # torch 2.9 or newer

_Place = tuple[int | None, int, tuple[int, ...], tuple[int, ...], torch.dtype]


class Decomposer:
    """Opens composite functions for one recorder, which ``recorder`` is while it is entered; ``inside`` is
    whether another records around it, which must not see functions tried out."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.inside = False
        self._strategies: dict[Any, int] = {}
        self._modules: dict[tuple[int, Any], Module] = {}
        self._dispatching = False
        self._rows: dict[_Place, int] = {}  # what was made where in the function that is open
        self._fresh: list[tuple[Any, int]] = []  # what the last operation made or wrote, and the rows

    def strategy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> int:
        """How a call is to be recorded: PLAIN as one operation, PYTHON or ATEN by what is inside."""
        if self._dispatching or not _openable(func):
            return PLAIN
        recorder = self.recorder
        if recorder is None or self.inside or recorder.producers.transformed:
            return PLAIN
        atoms: list[Any] = []
        given = [t for t, _ in walk((args, kwargs or {}), "", atoms)]
        situation = [(t.shape, t.dtype, t.device, t.requires_grad, t.is_contiguous()) for t in given]
        state = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch._C._is_any_autocast_enabled(),
        )
        key = (func, tuple(atoms), tuple(situation), state)
        if key not in self._strategies:
            self._strategies[key] = _look(func, args, kwargs or {})
        return self._strategies[key]

    def run(self, strategy: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Run a call and record it as the call of a module of the function's name."""
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
        """What stands for a function among the modules: one in each module that calls it."""
        parent = recorder.recording.module_of(recorder.recording.stack[-1])
        if (parent, func) not in self._modules:
            kind = type(describe(func).type, (Module,), {"forward": staticmethod(func)})
            self._modules[parent, func] = kind()
        return self._modules[parent, func]

    def _dispatched(
        self, recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._dispatching = True
        try:
            with _Dispatch(self, recorder):
                out = func(*args, **kwargs)
            self._settle(recorder)
            self._recognise(recorder, out)
            return out
        finally:
            self._dispatching = False
            self._rows.clear()
            self._fresh.clear()

    def dispatch(self, recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An ATen operation inside an open function."""
        with torch._C.DisableTorchFunction():
            self._settle(recorder)
            self._recognise(recorder, (args, kwargs))
        if func is torch.ops.aten.detach.default:
            return func(*args, **kwargs)  # how autograd keeps what it needs: no part of what is computed
        out = recorder.handler(recorder, func, (), args, kwargs)
        with torch._C.DisableTorchFunction():
            for t in (*tensors(out), *written(describe(func), args, kwargs)):
                seen = recorder.producers.known.get(id(t))
                if seen is not None:
                    self._rows[_place(t)] = seen[1]
                    self._fresh.append((seen[0], seen[1]))
        return out

    def _settle(self, recorder: Recorder) -> None:
        """Counts of writes move once more when an operation has returned: autograd counts a write in place
        after it, and gives a view its base's count. Nothing else can have run since."""
        producers, values = recorder.producers, recorder.values
        for reference, row in self._fresh:
            t = reference()
            if t is not None and producers.known[id(t)][1] == row:
                producers.note(t, row)
            values.settled(row, t)
        self._fresh.clear()

    def _recognise(self, recorder: Recorder, value: Any) -> None:
        """Autograd may hand on another object than was returned; in the same place it is the same."""
        for t in tensors(value):
            if not recorder.producers.is_known(t) and (row := self._rows.get(_place(t))) is not None:
                recorder.producers.note(t, row)


class _Dispatch(TorchDispatchMode):
    """Shows the ATen operations to a Decomposer."""

    def __init__(self, decomposer: Decomposer, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._decomposer, self._recorder = decomposer, recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._decomposer.dispatch(self._recorder, func, args, kwargs or {})


class _CountDispatched(TorchDispatchMode):
    """Counts ATen operations: all, and those that do more than move memory."""

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


def _openable(func: Any) -> bool:
    """Whether a function is torch's own: what else there is may do more than once it may."""
    module = getattr(func, "__module__", None) or "torch"
    if isinstance(func, FunctionType):
        return module in _IN_PYTHON
    return isinstance(func, BuiltinFunctionType | MethodDescriptorType) and module.startswith("torch")


def _look(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Run a call on copies and see what it does."""
    found: list[Tensor] = []
    plain = tuple(flatten(value, found) for value in args)
    named = {name: flatten(value, found) for name, value in kwargs.items()}
    called = _CountCalled()
    try:
        copies = {id(t): _copy(t) for t in found}
        again, others = arguments(plain, named, [copies[id(t)] for t in found])
        with put_back({*common_generators(), *generators(kwargs)}), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _CountDispatched() as seen:
                if _skip_one_hop is not None and isinstance(func, FunctionType):
                    with called:
                        _skip_one_hop(func, (), again, others)
                else:
                    func(*again, **others)
    except Exception:  # what it raises it raises again when it is run, seen by the caller
        return PLAIN
    if seen.work < 2 and not (seen.all > 1 and describe(func).type in _ARRANGING):
        return PLAIN
    return PYTHON if called.count > 1 else ATEN


def _copy(t: Tensor) -> Tensor:
    mine = t.detach()
    return copied(mine.requires_grad_() if t.requires_grad else mine)


@contextmanager
def _reentered(mode: TorchFunctionMode) -> Iterator[None]:
    """The mode sees what runs, inside its own handler."""
    torch._C._push_on_torch_function_stack(mode)
    try:
        yield
    finally:
        torch._C._pop_torch_function_stack()


def _place(t: Tensor) -> _Place:
    try:
        return memory_of(t), int(t.storage_offset()), tuple(t.shape), t.stride(), t.dtype
    except RuntimeError:  # sparse: known by its identity alone
        return None, id(t), (), (), t.dtype
