"""Log every call of a pass while it runs, so that it can be replayed. Done only if activations are saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from .containers import ATOMS, is_plain
from .context.execution_context import DEFAULT, ExecutionContext, current_context
from .context.kernel_settings import kernel_settings
from .context.randomness import generators, has_moved, may_draw
from .context.script_state import ScriptCall
from .invocation import PLACEHOLDER, Invocation, Patch, TensorArg, flatten

#: The arguments of a call: positional, keyword, and for each tensor its producer and its argument's number.
CallArguments = tuple[tuple[Any, ...], dict[str, Any] | None, list[int]]
#: A call as logged during the pass: the function's number, positional arguments, keyword arguments in pairs,
#: the producer and argument number of each tensor, whether each tensor required a gradient, their patches,
#: the generators with their states, and the number of the execution context. It is made of tuples of numbers
#: and strings, which the garbage collector soon stops walking.
LoggedCall = tuple[
    int,
    tuple[Any, ...],
    tuple[tuple[str, Any], ...],
    tuple[int, ...],
    tuple[bool, ...],
    tuple[Patch | None, ...] | None,
    tuple[tuple[Any, Tensor], ...],
    int,
]
INPUTS: Final = 3  # positions in a LoggedCall
STATES: Final = 6


class CallLog:
    """Logs the calls of one pass, by the offset of the first tensor that each returned.

    It runs once per operation and therefore makes few objects; ``invocation`` decodes them on demand.

    Attributes:
        calls: The calls.
        picks: For modules that ran outside Python, which of the tensors that they returned or were given
            have rows, by position.
        scripts: For ScriptModules, the state before the call.
        outputs: Outputs of the pass that were written to after the call that returned them.
        patches: How tensors differ from what their producers returned, by the tensor's id and its producer.
        nested: Whether another trace runs around this one and must not see the log's own operations.
    """

    def __init__(self) -> None:
        self.calls: dict[int, LoggedCall] = {}
        self.picks: dict[int, tuple[int, ...]] = {}
        self.scripts: dict[int, ScriptCall] = {}
        self.outputs: dict[int, TensorArg] = {}
        self.patches: dict[tuple[int, int], Patch] = {}
        self.nested = False
        self._functions: list[Any] = []
        self._known: dict[
            Any, tuple[int, bool, bool]
        ] = {}  # by function: its number, if it may draw random numbers, and if it is attention
        self._contexts: dict[Any, int] = {DEFAULT: 0}
        self._last: tuple[Any, int] = (DEFAULT, 0)  # the execution context of the last call, and its number
        self._kernels = (
            kernel_settings()
        )  # of the last attention; to read them for every call would take as long as the rest

    def invocation(
        self,
        call: LoggedCall,
        tensor_arg: Callable[[int, int, bool, Patch | None], TensorArg],
        picks: tuple[int, ...] | None = None,
        script: ScriptCall | None = None,
    ) -> Invocation:
        """Decode a logged call.

        Args:
            call: The logged call.
            tensor_arg: Makes a ``TensorArg`` of ``arg``, ``source``, ``grad`` and ``patch``.
            picks: Which of the returned tensors have rows; None for all.
            script: The state of a ScriptModule before the call.
        """
        function, args, named, inputs, grads, patches, states, context = call
        tensor_args = zip(inputs[1::2], inputs[::2], grads, patches or (None,) * len(grads), strict=True)
        return Invocation(
            self._functions[function],
            args,
            dict(named),
            tuple(tensor_arg(*one) for one in tensor_args),
            states,
            list(self._contexts)[context] if context else None,
            picks,
            script,
        )

    def before(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, inputs: list[int]
    ) -> Any:
        """Log a call that is about to run.

        Args:
            func: The function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            inputs: The producer and the argument number of each tensor.

        Returns:
            What to pass to ``after``; None if the call cannot be logged.
        """
        if self.nested:  # a trace around this one must not see the log's own operations
            with torch._C.DisableTorchFunction():
                return self.logged_call(func, args, kwargs, inputs)
        return self.logged_call(func, args, kwargs, inputs)

    def logged_call(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, inputs: list[int]
    ) -> LoggedCall | None:
        """Return a call in the form in which it is logged.

        None if an argument cannot be stored, for example a container that cannot be rebuilt. The code is not
        split into functions: with small tensors, calls of Python functions are much of the cost of saving.
        """
        try:
            found: list[Tensor] = []
            plain: list[Any] = []
            for value in args:
                cls = type(value)
                if cls is Tensor or cls is Parameter:
                    plain.append(PLACEHOLDER)
                    found.append(value)
                elif cls in ATOMS:
                    plain.append(value)
                else:
                    plain.append(value if is_plain(value) else flatten(value, found))
            named = tuple([(name, flatten(value, found)) for name, value in kwargs.items()]) if kwargs else ()
            if 2 * len(found) != len(inputs):
                return None
            grads = tuple([t.requires_grad for t in found])
            patches = None
            if self.patches:
                patches = tuple(
                    [self.patches.get((id(t), row)) for t, row in zip(found, inputs[::2], strict=True)]
                )
            function, draws, attends = self._known.get(func) or self._learn(func)
            states = tuple([(g, g.get_state()) for g in generators(dict(named))]) if draws else ()
            if attends:  # models choose its kernel call by call, with ``sdpa_kernel``
                self._kernels = kernel_settings()
            now = current_context(self._kernels)
            if now != self._last[0]:
                self._last = now, self._contexts.setdefault(ExecutionContext(*now), len(self._contexts))
            return function, tuple(plain), named, tuple(inputs), grads, patches, states, self._last[1]
        except Exception:  # a container class may raise anything; the pass goes on without this call
            return None

    def _learn(self, func: Any) -> tuple[int, bool, bool]:
        attends = "attention" in getattr(func, "__name__", type(func).__name__).lower()
        entry = self._known[func] = len(self._functions), may_draw(func), attends
        self._functions.append(func)
        return entry

    def after(self, offset: int, call: Any, out: Any) -> None:
        """Store a call that has returned.

        Args:
            offset: The offset of the first tensor it returned.
            call: What ``before`` returned.
            out: What the call returned.
        """
        if call[STATES]:
            try:
                with torch._C.DisableTorchFunction():
                    drawn = tuple((g, state) for g, state in call[STATES] if has_moved(g, state))
            except Exception:  # within ``torch.func`` or a fake mode a generator's state cannot be read
                return
            call = _with_states(call, drawn)
        self.calls[offset] = call

    def add_module(
        self,
        offset: int,
        module: Module,
        call_arguments: CallArguments,
        picks: tuple[int, ...],
        out: list[Tensor],
        script: ScriptCall | None = None,
    ) -> LoggedCall | None:
        """Log a module that ran outside Python, after it has returned.

        Args:
            offset: The offset of the first of ``out``.
            module: The module.
            call_arguments: Its arguments.
            picks: The positions of ``out`` among the tensors that it returned and those that it was given.
            out: The tensors that have rows.
            script: The state of a ScriptModule before the call.

        Returns:
            The logged call; None if it cannot be logged.
        """
        call = self.logged_call(module, *call_arguments)
        if call is not None:
            states = script.states if script is not None else ()
            call = _with_states(call, tuple((g, state) for g, state in states if has_moved(g, state)))
            self.calls[offset], self.picks[offset] = call, picks
            if script is not None:
                self.scripts[offset] = script
        return call

    def add_output(self, offset: int, t: Tensor, source: int, arg: int) -> None:
        """Log an output of the pass, if it was written to after the call that returned it.

        Args:
            offset: The offset of the output's row.
            t: The tensor.
            source: Its producer.
            arg: The number of its argument's name.
        """
        patch = self.patches.get((id(t), source))
        if patch is not None:
            self.outputs[offset] = TensorArg(arg, source, False, patch)


def _with_states(call: Any, states: tuple[tuple[Any, Tensor], ...]) -> LoggedCall:
    logged: LoggedCall = (*call[:STATES], states, *call[STATES + 1 :])
    return logged
