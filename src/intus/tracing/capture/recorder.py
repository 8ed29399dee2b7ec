"""The recorder of one pass: a TorchFunctionMode that records what runs and changes nothing.

It connects the parts. ``operations`` records operations and ``module_calls`` the modules they run in.
``producers`` maps tensors to the rows that computed them and ``sites`` numbers source instructions.
``values`` saves activations, and ``call_log`` logs calls so that they can be replayed.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from types import CodeType, MethodType, TracebackType

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import _pop_mode

from ...core.graph import INPUT, OUTPUT
from .decompose import Decomposer
from .memory import memory_of
from .module_calls import ModuleCalls
from .operations import MetaValue, make_handler
from .producers import Producers
from .recording import ROW, Recording
from .saving.values import Values
from .sites import Sites


class Recorder(TorchFunctionMode):
    """Records what runs on this thread while it is entered; ``interpose`` uses it.

    Args:
        model: Gives parameters, buffers and modules their addresses; None for a plain function.
        values: Saves activations.
        entry: The code through which modules are called.
        max_rows: No rows are recorded once there are this many.
        meta_value: Returns the plain values of tensors on ``meta``; None to let torch raise.
        decomposer: Records composite functions by what they call; None to record them as one operation.
    """

    def __init__(
        self,
        model: Module | None,
        values: Values,
        entry: CodeType | None = None,
        *,
        max_rows: int = sys.maxsize,
        meta_value: MetaValue | None = None,
        decomposer: Decomposer | None = None,
    ) -> None:
        super().__init__()
        self.recording = recording = Recording()
        self.values = values
        values.begin(recording)
        self.call_log = call_log = values.call_log(recording)
        self.producers = producers = Producers(recording, values, call_log)
        sites = Sites(recording, entry)
        if model is not None:
            recording.addresses.add_model(model)
        self.module_calls = ModuleCalls(recording, producers, sites, values, call_log)
        self.handler = make_handler(
            recording,
            producers,
            sites,
            values,
            call_log,
            max_length=max_rows * len(ROW) if max_rows < sys.maxsize else 0,
            meta_value=meta_value,
            decomposer=decomposer,
        )
        self._decomposer = decomposer
        self._around: list[Producers] = []  # those of the traces around this one
        self._outer_modes, self._outer_dispatch_modes, self._grad_mode = 0, 0, True  # set when it is entered

    @property
    def decomposes(self) -> bool:
        """True if composite functions are recorded by what they call."""
        return self._decomposer is not None

    def __enter__(self) -> Recorder:
        # Bound only during the pass: the method refers to the mode, which would keep itself alive in a cycle.
        self.__torch_function__ = MethodType(self.handler, self)  # type: ignore[method-assign]
        outer = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        self._around = [mode.producers for mode in outer if isinstance(mode, Recorder)]
        self.values.on_alias = self._add_alias if self._around else None
        own = [type(mode).__name__ for mode in outer if not isinstance(mode, Recorder)]
        self.recording.modes_around = tuple(own)
        if self._decomposer is not None:
            self._decomposer.recorder = self
            self._decomposer.nested = bool(self._around)
        self.values.nested = torch._C._len_torch_function_stack() > 0
        if self.call_log is not None:
            self.call_log.nested = self.values.nested
        self._outer_modes = torch._C._len_torch_function_stack()
        self._outer_dispatch_modes = torch._C._len_torch_dispatch_stack()
        self._grad_mode = torch.is_grad_enabled()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self._leave_contexts(where)
        super().__exit__(kind, error, where)  # type: ignore[no-untyped-call]
        del self.__torch_function__
        self.values.on_alias = None
        if self._decomposer is not None:
            self._decomposer.recorder = None  # to break the reference cycle

    def _add_alias(self, t: Tensor, alias: Tensor) -> None:
        """Tell the traces around this one that a saved value has the memory and value of ``t``."""
        for producers in self._around:
            producers.add_alias(t, alias)

    def before_restoring(self, t: Tensor) -> None:
        """Let the traces around this one copy what they saved of a tensor that is about to be restored."""
        for producers in self._around:
            producers.before_restoring(t)

    def _leave_contexts(self, where: TracebackType | None) -> None:
        """Leave the contexts that an interrupt left entered, because it ended ``__enter__`` or ``__exit__``.

        A context that is a generator is left when it is deleted; the frame of its ``__enter__`` refers to it.

        Args:
            where: The traceback of the interrupt.
        """
        for frame, _ in traceback.walk_tb(where):
            if frame.f_code.co_filename == contextlib.__file__:
                frame.clear()
        while torch._C._len_torch_function_stack() > self._outer_modes + 1:
            torch._C._pop_torch_function_stack()
        while torch._C._len_torch_dispatch_stack() > self._outer_dispatch_modes:
            _pop_mode()
        if torch._C._len_torch_function_stack() == self._outer_modes:
            torch._C._push_on_torch_function_stack(self)
        torch.set_grad_enabled(self._grad_mode)

    def add_input(self, t: Tensor, name: str = "") -> None:
        """Record an input of the pass.

        Args:
            t: The tensor. A tensor that was added before is ignored, so that it stays one input.
            name: Its path in the named arguments: ``"states.0"``; ``""`` if it has none.
        """
        if not self.producers.is_known(t):
            self.recording.end_names["inputs"].append(name)
            self.recording.restorer.add(t)
            self.producers.add(t, INPUT, self.recording.type_number("input"))

    def add_output(self, t: Tensor, place: str, name: str = "") -> None:
        """Record an output of the pass.

        Args:
            t: The tensor.
            place: Its position among the outputs.
            name: Its path in what the model returned; ``""`` if it has none.
        """
        recording = self.recording
        recording.end_names["outputs"].append(name)
        inputs = [self.producers.producer_of(t), recording.arg_number(place)]
        source, arg = inputs
        self.producers.add_extra_producers(inputs)
        recording.exposed.add(memory_of(t))
        type_, meta = recording.type_number("output"), recording.meta_number(t)
        offset = recording.add(inputs, kind=OUTPUT, type=type_, meta=meta)
        if self.call_log is not None:
            self.call_log.add_output(offset, t, source, arg)
        self.values.on_tensor(offset, OUTPUT, "output", t)
