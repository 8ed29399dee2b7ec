"""Noting every call of a pass while it runs, so that it can be run again: done where activations are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from .containers import ATOMS, is_plain
from .context.execution_context import DEFAULT, ExecutionContext, current_context
from .context.randomness import generators, has_moved, may_draw
from .invocation import PLACEHOLDER, Invocation, Patch, TensorArg, flatten

#: What a call was given: arguments, keywords, pairs of each tensor's row and its argument's number.
Given = tuple[tuple[Any, ...], dict[str, Any] | None, list[int]]
#: A call as it is noted while the pass runs: the function's number, arguments, keywords in pairs, pairs of a
#: row and an argument's number, whether each tensor required a gradient, their patches, states, the context
#: state's number. Tuples of numbers and texts: the garbage collector soon stops walking them.
Note = tuple[
    int,
    tuple[Any, ...],
    tuple[tuple[str, Any], ...],
    tuple[int, ...],
    tuple[bool, ...],
    tuple[Patch | None, ...] | None,
    tuple[tuple[Any, Tensor], ...],
    int,
]
INPUTS: Final = 3  # places in a Note
STATES: Final = 6


class CallLog:
    """Notes the calls of one pass, by the row of the first tensor each returned. Runs once per operation, so
    it makes few objects; ``invocation`` makes sense of them when someone asks."""

    def __init__(self) -> None:
        self.calls: dict[int, Note] = {}
        self.picks: dict[int, tuple[int, ...]] = {}
        self.outputs: dict[int, TensorArg] = {}  # those that were written to after they had been returned
        #: Arguments written through a view, by the tensor's id and the row it came from.
        self.patches: dict[tuple[int, int], Patch] = {}
        self.nested = False
        self._functions: list[Any] = []
        self._met: dict[Any, tuple[int, bool]] = {}  # by function: its number, and whether it may draw
        self._contexts: dict[Any, int] = {DEFAULT: 0}
        self._last: tuple[Any, int] = (DEFAULT, 0)  # the context state of the last call, and its number

    def invocation(
        self,
        note: Note,
        tensor_arg: Callable[[int, int, bool, Patch | None], TensorArg],
        picks: tuple[int, ...] | None = None,
    ) -> Invocation:
        """A noted call; ``tensor_arg`` makes a tensor_arg of argument, source, ``grad`` and patch."""
        function, args, named, inputs, grads, patches, states, context = note
        tensor_args = zip(inputs[1::2], inputs[::2], grads, patches or (None,) * len(grads), strict=True)
        return Invocation(
            self._functions[function],
            args,
            dict(named),
            tuple(tensor_arg(*one) for one in tensor_args),
            states,
            list(self._contexts)[context] if context else None,
            picks,
        )

    def before(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, inputs: list[int]
    ) -> Any:
        """A call is about to run: what ``after`` is to be given of it, None where it cannot be noted."""
        if self.nested:  # a trace around this one must not see our own look at the tensors
            with torch._C.DisableTorchFunction():
                return self.noted(func, args, kwargs, inputs)
        return self.noted(func, args, kwargs, inputs)

    def noted(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, inputs: list[int]
    ) -> Note | None:
        """A call as it is noted; ``inputs`` pairs each tensor's row with its argument's number. None for
        arguments that cannot be kept (a container that cannot be made again). All in one, for on small
        tensors the calls of functions of our own are a good part of what saving costs."""
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
            function, draws = self._met.get(func) or self._learn(func)
            states = tuple([(g, g.get_state()) for g in generators(dict(named))]) if draws else ()
            now = current_context()
            if now != self._last[0]:
                self._last = now, self._contexts.setdefault(ExecutionContext(*now), len(self._contexts))
            return function, tuple(plain), named, tuple(inputs), grads, patches, states, self._last[1]
        except Exception:  # a foreign container may refuse anything; the pass goes on, unproven here
            return None

    def _learn(self, func: Any) -> tuple[int, bool]:
        known = self._met[func] = len(self._functions), may_draw(func)
        self._functions.append(func)
        return known

    def after(self, row: int, note: Any, out: Any) -> None:
        """The call has returned ``out``, whose first tensor is ``row``; ``note`` is what ``before`` gave."""
        if note[STATES]:
            try:
                with torch._C.DisableTorchFunction():
                    drawn = tuple((g, state) for g, state in note[STATES] if has_moved(g, state))
            except Exception:  # within ``torch.func`` or a fake mode a generator's state cannot be looked at
                return
            note = _with_states(note, drawn)
        self.calls[row] = note

    def whole(
        self, row: int, module: Module, given: Given, picks: tuple[int, ...], out: list[Tensor]
    ) -> Note | None:
        """Note a module that ran out of sight: ``picks`` of what it returned are ``out``, from ``row`` on."""
        note = self.noted(module, *given)
        if note is not None:
            note = _with_states(note, ())  # it has drawn already: what from is not known any more
            self.calls[row], self.picks[row] = note, picks
        return note

    def output(self, row: int, t: Tensor, source: int, arg: int) -> None:
        """The pass returns ``t``, which comes from the row ``source``."""
        patch = self.patches.get((id(t), source))
        if patch is not None:
            self.outputs[row] = TensorArg(arg, source, False, patch)


def _with_states(note: Any, states: tuple[tuple[Any, Tensor], ...]) -> Note:
    noted: Note = (*note[:STATES], states, *note[STATES + 1 :])
    return noted
