"""The recorder of one pass: a TorchFunctionMode that notes what runs and changes nothing.

It puts the parts together: ``operations`` notes what torch computes and ``module_calls`` in which module,
``producers`` knows every tensor's row, ``sites`` every line; ``values`` and ``call_log`` hold what is to be
kept.
"""

from __future__ import annotations

import sys
from types import CodeType, MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from ...core.graph import INPUT, OUTPUT
from .decompose import Decomposer
from .module_calls import ModuleCalls
from .operations import Answer, make_handler
from .producers import Producers
from .recording import ROW, Recording
from .saving.values import Values
from .sites import Sites


class Recorder(TorchFunctionMode):
    """Records what runs while it is entered, on this thread; see ``interpose`` for its use.

    ``model`` gives parameters, buffers and modules their addresses (None for a plain function); ``values``
    decides which activations are kept; ``entry`` is the code through which modules are called; after ``most``
    operations no more are noted; ``answer`` gives the plain values of tensors on ``meta``; ``decomposer``
    opens composite functions.
    """

    def __init__(
        self,
        model: Module | None,
        values: Values,
        entry: CodeType | None = None,
        *,
        most: int = sys.maxsize,
        answer: Answer | None = None,
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
            recording.addresses.learn(model)
        self.module_calls = ModuleCalls(recording, producers, sites, values, call_log)
        limit = most * len(ROW) if most < sys.maxsize else 0
        self.handler = make_handler(
            recording, producers, sites, values, call_log, most=limit, answer=answer, decomposer=decomposer
        )
        self._decomposer = decomposer

    def __enter__(self) -> Recorder:
        # Bound for the time of the pass alone: a mode that held itself would wait for the garbage collector.
        self.__torch_function__ = MethodType(self.handler, self)  # type: ignore[method-assign]
        if self._decomposer is not None:
            self._decomposer.recorder = self
            around = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
            self._decomposer.inside = any(isinstance(mode, Recorder) for mode in around)
        self.values.nested = torch._C._len_torch_function_stack() > 0
        if self.call_log is not None:
            self.call_log.nested = self.values.nested
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        del self.__torch_function__
        if self._decomposer is not None:
            self._decomposer.recorder = None  # it would be a cycle

    def add_input(self, t: Tensor, name: str = "") -> None:
        """Declare an input of the pass; one tensor given twice is one input."""
        if not self.producers.is_known(t):
            self.recording.ends["inputs"].append(name)
            self.recording.restorer.add(t)
            self.producers.add(t, INPUT, self.recording.type_number("input"))

    def add_output(self, t: Tensor, place: str, name: str = "") -> None:
        """Declare an output of the pass."""
        recording = self.recording
        recording.ends["outputs"].append(name)
        inputs = [self.producers.row(t), recording.arg_number(place)]
        source, arg = inputs
        self.producers.add_extra_producers(inputs)
        type_, meta = recording.type_number("output"), recording.meta_number(t)
        row = recording.add(inputs, kind=OUTPUT, type=type_, meta=meta)
        if self.call_log is not None:
            self.call_log.output(row, t, source, arg)
        self.values.offer(row, OUTPUT, "output", t)
