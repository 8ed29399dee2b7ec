"""The recorder of one pass: a TorchFunctionMode that notes what runs and changes nothing.

It puts the parts together: ``operations`` notes what torch computes and ``module_calls`` in which module,
``origins`` knows every tensor's row, ``sites`` every line; ``values`` and ``keeper`` hold what is to be kept.
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
from .decompose import Nest
from .module_calls import ModuleCalls
from .operations import Answer, make_handler
from .producers import Origins
from .recording import ROW, Recording
from .saving.values import Values
from .sites import Sites


class Recorder(TorchFunctionMode):
    """Records what runs while it is entered, on this thread; see ``interpose`` for its use.

    ``model`` gives parameters, buffers and modules their addresses (None for a plain function); ``values``
    decides which activations are kept; ``entry`` is the code through which modules are called; after ``most``
    operations no more are noted; ``answer`` gives the plain values of tensors on ``meta``; ``nest`` opens
    composite functions.
    """

    def __init__(
        self,
        model: Module | None,
        values: Values,
        entry: CodeType | None = None,
        *,
        most: int = sys.maxsize,
        answer: Answer | None = None,
        nest: Nest | None = None,
    ) -> None:
        super().__init__()
        self.recording = recording = Recording()
        self.values = values
        values.begin(recording)
        self.keeper = keeper = values.keeper(recording)
        self.origins = origins = Origins(recording, values, keeper)
        sites = Sites(recording, entry)
        if model is not None:
            recording.addresses.learn(model)
        self.module_calls = ModuleCalls(recording, origins, sites, values, keeper)
        limit = most * len(ROW) if most < sys.maxsize else 0
        self.handler = make_handler(
            recording, origins, sites, values, keeper, most=limit, answer=answer, nest=nest
        )
        self._nest = nest

    def __enter__(self) -> Recorder:
        # Bound for the time of the pass alone: a mode that held itself would wait for the garbage collector.
        self.__torch_function__ = MethodType(self.handler, self)  # type: ignore[method-assign]
        if self._nest is not None:
            self._nest.recorder = self
            around = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
            self._nest.inside = any(isinstance(mode, Recorder) for mode in around)
        self.values.nested = torch._C._len_torch_function_stack() > 0
        if self.keeper is not None:
            self.keeper.nested = self.values.nested
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        del self.__torch_function__
        if self._nest is not None:
            self._nest.recorder = None  # it would be a cycle

    def add_input(self, t: Tensor, name: str = "") -> None:
        """Declare an input of the pass; one tensor given twice is one input."""
        if not self.origins.is_known(t):
            self.recording.ends["inputs"].append(name)
            self.recording.outside.add(t)
            self.origins.add(t, INPUT, self.recording.type_number("input"))

    def add_output(self, t: Tensor, place: str, name: str = "") -> None:
        """Declare an output of the pass."""
        recording = self.recording
        recording.ends["outputs"].append(name)
        inputs = [self.origins.row(t), recording.arg_number(place)]
        source, arg = inputs
        self.origins.add_also(inputs)
        row = recording.add(OUTPUT, recording.type_number("output"), recording.meta_number(t), inputs)
        if self.keeper is not None:
            self.keeper.output(row, t, source, arg)
        self.values.offer(row, OUTPUT, "output", t)
