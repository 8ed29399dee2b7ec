"""Modules of a traced model and their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import AddressError, did_not_run, did_you_mean
from ...core.graph import BUFFER, OP, Graph, ModuleInfo, Param, Source, elements, size_in_bytes
from ...core.selection import check_outputs_known, check_told
from ...viewing.repr_text import html, text
from ..capture.saving.stored import Value
from .text import module_card, times_called

if TYPE_CHECKING:
    from .op import Op
    from .trace import Trace


class _Handle:
    """Refers to something in a trace by its number; equal to another of the same class, trace and number."""

    __slots__ = ("_trace", "number")

    def __init__(self, trace: Trace, number: int) -> None:
        self._trace = trace
        self.number = number

    @property
    def _graph(self) -> Graph:
        return self._trace.graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other._trace is self._trace and other.number == self.number

    def __hash__(self) -> int:
        return hash((id(self._trace), type(self), self.number))


class Module(_Handle):
    """A module of the model, whether it was called or not.

    Get modules from ``trace.modules`` by address. ``print(module)`` shows what is known of it.

    Example:
        >>> from intus import trace
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        >>> module = trace(net, torch.ones(2, 4)).modules["0"]
        >>> module.type, module.args, module.num_params, module.calls[0].outputs[0].shape
        ('Linear', 'in_features=4, out_features=3, bias=True', 15, (2, 3))
    """

    __slots__ = ()

    @property
    def _info(self) -> ModuleInfo:
        return self._graph.modules[self.number]

    @property
    def address(self) -> str:
        """The path of the module in the model: ``features.6``, ``""`` for the model itself."""
        return self._info.address

    @property
    def type(self) -> str:
        """The name of its class."""
        return self._info.type

    @property
    def args(self) -> str:
        """The arguments it was created with, as its repr shows them."""
        return self._info.args

    @property
    def training(self) -> bool:
        """True if it was in training mode."""
        return self._info.training

    @property
    def source(self) -> Source | None:
        """The file and line of the ``forward`` of its class; None if that is not written in Python."""
        site = self._info.site
        return self._graph.sites[site] if site >= 0 else None

    @property
    def depth(self) -> int:
        """Its depth in the tree of modules: 0 for the model, 1 for its children."""
        return len(_parts(self.address))

    @property
    def parent(self) -> Module | None:
        """The module that contains it; None for the model."""
        parent_parts = _parts(self.address)[:-1]
        return self._trace.modules.get(".".join(parent_parts)) if self.address else None

    @property
    def children(self) -> list[Module]:
        """The modules that it contains directly, in the order they were registered."""
        own_parts = _parts(self.address)
        return [m for m in self._trace.modules.values() if m.address and _parts(m.address)[:-1] == own_parts]

    def _inside(self) -> list[ModuleInfo]:
        """Return the module and all its submodules."""
        prefix = f"{self.address}." if self.address else ""
        return [m for m in self._graph.modules if m.address == self.address or m.address.startswith(prefix)]

    @property
    def params(self) -> list[Param]:
        """The parameters of the module and its submodules, each once."""
        numbers = dict.fromkeys(number for module in self._inside() for number in module.params)
        return [self._graph.params[number] for number in numbers]

    @property
    def own_params(self) -> list[Param]:
        """The parameters that the module has itself, without those of its submodules."""
        return [self._graph.params[number] for number in self._info.params]

    @property
    def buffers(self) -> list[Param]:
        """The buffers of the module and its submodules, whether the pass read them or not."""
        numbers = dict.fromkeys(number for module in self._inside() for number in module.buffers)
        return [self._graph.buffers[number] for number in numbers]

    @property
    def num_params(self) -> int | None:
        """The number of elements of its parameters; None if a length of one is unknown."""
        return elements(self.params)

    @property
    def num_trainable(self) -> int | None:
        """The number of elements of its parameters that require gradients; None if unknown."""
        return elements(param for param in self.params if param.trainable)

    @property
    def num_frozen(self) -> int | None:
        """The number of elements of its parameters that do not require gradients; None if unknown."""
        return elements(param for param in self.params if not param.trainable)

    @property
    def param_bytes(self) -> int | None:
        """The size of its parameters in bytes; None if unknown."""
        return size_in_bytes(self.params)

    @property
    def calls(self) -> list[Call]:
        """Its calls, in order."""
        return [Call(self._trace, call) for call in self._trace._facts.module_calls[self.number]]

    @property
    def num_calls(self) -> int:
        """The number of its calls; of a file that does not tell all of them, see ``most_calls``."""
        return len(self._trace._facts.module_calls[self.number])

    @property
    def most_calls(self) -> int:
        """The most calls of it that there may be, if a file does not tell them.

        That is so of calls in a row, and of a module whose operation an optimizer has merged with that of
        another, as a convolution into which a BatchNorm is folded.
        """
        return self._graph.untold_calls.get(self.address, self.num_calls)

    @property
    def ops(self) -> list[Op]:
        """The operations that ran in its calls, at any depth."""
        return [op for call in self.calls for op in call.ops]

    @property
    def outputs(self) -> list[Op]:
        """The tensors that its calls returned; if ``has_unknown_output``, those that they may have."""
        return [op for call in self.calls for op in call.outputs]

    @property
    def has_unknown_output(self) -> bool:
        """True if a file does not state what one of its calls returned: one or more of ``outputs``."""
        return any(call.has_unknown_output for call in self.calls)

    @property
    def value(self) -> Value:
        """The saved value of its output, as ``trace[address].value``: the first tensor of its first call.

        ``outputs`` has those of all calls.

        Raises:
            AddressError: If it was never called, returned no tensor, the value was not saved, or it is not
                known which tensor it returned.
        """
        if not self.outputs:
            if not self.num_calls:
                check_told(self._graph, [self.address])
                raise AddressError(did_not_run(self.address))
            raise AddressError(f"The module {self.address!r} has no value: it returned no tensor.")
        check_outputs_known(self._graph, [call.number for call in self.calls if call.outputs][:1])
        return self.outputs[0].value

    @property
    def seconds(self) -> float:
        """The duration of all function calls inside its calls, in seconds."""
        return sum(call.seconds for call in self.calls)

    @property
    def flops(self) -> int:
        """The floating-point operations in its calls; operations without a FLOP rule count as 0."""
        return sum(call.flops for call in self.calls)

    def __str__(self) -> str:
        return text(module_card(self))

    def _repr_html_(self) -> str:
        return html(module_card(self))

    def __repr__(self) -> str:
        name = self.address or "the model"
        called = f"called {times_called(self)}" if self.most_calls else "never called"
        held = "?" if self.num_params is None else f"{self.num_params:,}"
        return f"<Module {name}: {self.type}({self.args}), {held} parameters, {called}>"


class Modules(dict[str, Module]):
    """Modules by address; a missing address raises AddressError with the nearest names."""

    def __missing__(self, address: str) -> Module:
        raise AddressError(
            f"There is no module {address!r}. {did_you_mean(str(address), filter(None, self))}"
        )


class Call(_Handle):
    """One call of a module: ``trace.modules["features.6"].calls[0]``."""

    __slots__ = ()

    @property
    def address(self) -> str:
        """The address of the module, with the number of the call if there are several: ``fc:2``."""
        return self._graph.call_address(self.number)

    @property
    def module(self) -> Module:
        """The module that was called."""
        return Module(self._trace, int(self._graph.calls.module[self.number]))

    @property
    def pass_number(self) -> int:
        """The number of the call among those of its module, from 1."""
        return int(self._graph.calls.passno[self.number])

    @property
    def parent(self) -> Call | None:
        """The call that contains this one; None for the call of the model."""
        parent = int(self._graph.calls.parent[self.number])
        return Call(self._trace, parent) if parent >= 0 else None

    @property
    def children(self) -> list[Call]:
        """The calls directly inside this one, in order."""
        return [Call(self._trace, call) for call in self._trace._facts.call_children.get(self.number, ())]

    def _rows(self) -> range:
        calls = self._graph.calls
        return range(int(calls.start[self.number]), int(calls.stop[self.number]))

    @property
    def ops(self) -> list[Op]:
        """The operations that ran in the call, at any depth."""
        kinds = self._graph.ops.kind
        return self._trace._handles(row for row in self._rows() if kinds[row] == OP)

    @property
    def buffers(self) -> list[Op]:
        """The buffers that were read for the first time in the call, at any depth."""
        kinds = self._graph.ops.kind
        return self._trace._handles(row for row in self._rows() if kinds[row] == BUFFER)

    @property
    def inputs(self) -> list[Op]:
        """The tensors from outside the call that its operations took as arguments."""
        rows = self._rows()
        taken = {parent for row in rows for parent in self._graph.parents(row) if parent < rows.start}
        return self._trace._handles(sorted(taken))

    @property
    def outputs(self) -> list[Op]:
        """The tensors that the call returned; if ``has_unknown_output``, those that it may have."""
        return self._trace._handles(self._graph.call_outputs.get(self.number, ()))

    @property
    def has_unknown_output(self) -> bool:
        """True if a file does not state which tensors the call returned: one or more of ``outputs``."""
        return self.number in self._graph.unknown_outputs

    @property
    def seconds(self) -> float:
        """The duration of all function calls inside the call, in seconds."""
        rows = self._rows()
        return int(self._graph.ops.time[rows.start : rows.stop].sum()) / 1e9

    @property
    def flops(self) -> int:
        """The floating-point operations in the call; operations without a FLOP rule count as 0."""
        rows = self._rows()
        return int(self._trace._facts.flops[rows.start : rows.stop].clip(0).sum())

    def __repr__(self) -> str:
        count = len(self.ops)
        ran = f"{count} operation{'' if count == 1 else 's'}"
        return f"<Call {self.address or 'of the model'}: {self.module.type}, {ran}>"


def _parts(address: str) -> list[str]:
    return address.split(".") if address else []
