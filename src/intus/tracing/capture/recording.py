"""The recording of one pass: flat lists of integers, and the tables that say what the integers mean.

Each flat list stores a fixed number of integers per row. Python's garbage collector never has to walk a list
of integers.

A tensor met in a pass has up to three numbers. Each has one name everywhere in ``capture``:

- Its **offset**: where its row begins in ``Recording.rows``, a multiple of ``len(ROW)``. The recorder
  identifies tensors by offset, because ``len(rows)`` gives it for free. ``Producers``, ``CallLog``,
  ``Values`` and ``Chooser`` all use offsets.
- Its **recorded row**: offset // len(ROW), its position among all recorded tensors.
- Its **graph row**: its row in ``Graph.ops``. ``assemble`` drops recorded rows that are not connected to an
  input or output, and returns a function from offsets to graph rows.

A tensor's **producer** is the offset of the row that computed it, or a negative number for a parameter:
-1 - its number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from types import CodeType
from typing import Any, NamedTuple

from torch import Tensor

from ...core.graph import OP_COLUMNS, Meta
from .addresses import Addresses
from .context.state_restorer import StateRestorer
from .memory import distribution

_CALL_FACTS = (*(column.name for column in OP_COLUMNS if column.recorded == "call"), "signature", "inputs")
#: The integers of a row of ``Recording.rows``: first what differs between the tensors that a call returned,
#: then what they share. The last, ``inputs``, counts the row's integers in ``Recording.inputs``.
ROW = (*(column.name for column in OP_COLUMNS if column.recorded == "tensor"), *_CALL_FACTS)
_DEFAULTS = {column.name: column.default for column in OP_COLUMNS if column.recorded} | {"signature": -1}
#: The integers of a row of ``Recording.calls``. ``start`` and ``stop`` are offsets.
CALL = ("module", "parent", "start", "stop", "site")
_TYPE, _SITE = ROW.index("type"), CALL.index("site")
#: Positional arguments before this one have their position as the number of their name.
POSITIONS = 32
_POSITIONAL = [str(position) for position in range(POSITIONS)]


class Read(NamedTuple):
    """One time Python read a tensor's plain value.

    Attributes:
        offset: The offset of the tensor.
        how: The method that read it: ``"bool"``, ``"item"``.
        code: The code that read it.
        instruction: The index of the reading instruction in that code (``f_lasti``).
        value: The value, if it was a bool, else None.
        end: The length of ``Recording.rows`` at the time.
    """

    offset: int
    how: str
    code: CodeType
    instruction: int
    value: bool | None
    end: int

    @property
    def row(self) -> int:
        """The tensor's recorded row."""
        return self.offset // len(ROW)

    @property
    def next_row(self) -> int:
        """The recorded row of the first tensor that was recorded after the read."""
        return self.end // len(ROW)


@dataclass(slots=True)
class Recording:
    """The tables of one pass.

    Attributes:
        rows: The tensors: inputs, buffers, constants, outputs of operations and outputs of the pass, with the
            columns of ``ROW``.
        inputs: For each row in turn, a pair of integers for each tensor it was computed from: the producer,
            and the number of the argument's name.
        calls: The module calls, with the columns of ``CALL``. A call's number is its row in this list.
        exits: Pairs of an offset and the number of a module call that returned that tensor.
        types: Names of operation types, by number.
        metas: Shapes, dtypes and devices, by number.
        sites: Instructions that ran operations or called modules, by number: code and ``f_lasti``.
        args: Names of arguments, by number: ``"0"``, ``"1.2"``, ``"weight"``.
        modes_around: The classes of other modes around the trace, which may change what functions do.
        restorer: Restores the memory and attributes that the pass changed.
        addresses: The names of the model's modules, parameters and buffers.
        stack: The numbers of the module calls in progress, innermost last, above a bottom entry of -1.
        failure: The exception that ended the pass, if any.
        raised: The offset of the last operation that raised, and its exception.
        state_writes: Offsets of the calls that wrote into memory from before the pass (a buffer, a cache).
        exposed: Memories that code outside may write to after the pass: of the outputs, and of arrays.
        reads: The times Python read a tensor's plain value.
        param_reads: The method by which Python read the value of a parameter itself, by its number.
        signatures: Numbers for the arguments of calls other than tensors. The first entry of a key is the
            function's number, the rest is what ``walk`` collects.
        end_names: Names of the inputs and of the outputs, in order; ``""`` for one without a name.
        functions: The functions of the operations, by the name of their type.
        type_numbers: The numbers of ``types``.
        meta_numbers: The numbers of ``metas``.
    """

    rows: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    metas: list[Meta] = field(default_factory=list)
    sites: list[tuple[CodeType, int]] = field(default_factory=list)
    args: list[str] = field(default_factory=_POSITIONAL.copy)
    modes_around: tuple[str, ...] = ()
    restorer: StateRestorer = field(default_factory=StateRestorer)
    addresses: Addresses = field(init=False)
    stack: list[int] = field(default_factory=[-1].copy)
    failure: BaseException | None = None
    raised: tuple[int, BaseException] | None = None
    state_writes: list[int] = field(default_factory=list)
    exposed: set[int | None] = field(default_factory=set)
    reads: list[Read] = field(default_factory=list)
    param_reads: dict[int, str] = field(default_factory=dict)
    signatures: dict[tuple[Any, ...], int] = field(default_factory=dict)
    end_names: dict[str, list[str]] = field(default_factory=lambda: {"inputs": [], "outputs": []})
    functions: dict[str, list[Any]] = field(default_factory=dict)
    type_numbers: dict[str, int] = field(default_factory=dict)
    meta_numbers: dict[Any, int] = field(default_factory=dict)
    _arg_numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.addresses = Addresses(self.restorer)

    def type_number(self, name: str) -> int:
        """Return the number of an operation type."""
        return _number(name, name, self.type_numbers, self.types)

    def arg_number(self, name: str) -> int:
        """Return the number of an argument's name: ``"0"``, ``"1.2"``, ``"weight"``."""
        return (
            int(name)
            if name.isdigit() and int(name) < POSITIONS
            else _number(name, name, self._arg_numbers, self.args)
        )

    def meta_number(self, t: Tensor | None) -> int:
        """Return the number of a tensor's shape, dtype and device; pass None for a call that raised."""
        key = None if t is None else (_shape(t), t.dtype, t.device, *distribution(t))
        number = self.meta_numbers.get(key)
        return _number(key, _meta(t), self.meta_numbers, self.metas) if number is None else number

    def type_of(self, offset: int) -> str:
        """Return the name of the type of the row at ``offset``."""
        return self.types[self.rows[offset + _TYPE]]

    def module_of(self, call: int) -> int:
        """Return the number of the module that ``call`` is a call of; -1 for ``call`` -1."""
        return self.calls[call * len(CALL)] if call >= 0 else -1

    def call_site(self, call: int) -> int:
        """Return the number of the instruction that made a module call."""
        return self.calls[call * len(CALL) + _SITE]

    def call_facts(self, inputs: list[int], **facts: int) -> tuple[int, ...]:
        """Return the second part of a ``ROW``: what all tensors returned by one call share."""
        values = {**_DEFAULTS, **facts, "inputs": len(inputs)}
        return tuple(values[name] for name in _CALL_FACTS)

    def add(self, inputs: list[int] | tuple[int, ...] = (), **facts: int) -> int:
        """Append a row in the current module call.

        The hot path writes its rows itself; see ``operations.make_handler``.

        Args:
            inputs: Pairs of a producer and an argument's number, as in ``Recording.inputs``.
            **facts: Values of columns of ``ROW``, by name. Columns left out have their defaults.

        Returns:
            The offset of the row.
        """
        offset = len(self.rows)
        values = {**_DEFAULTS, "call": self.stack[-1], **facts, "inputs": len(inputs)}
        row, rows, all_inputs = [values[name] for name in ROW], self.rows, self.inputs
        rows += row  # no signal is handled until both are extended, so an interrupt leaves no incomplete row
        all_inputs += inputs
        return offset


def _number(key: Any, value: Any, numbers: dict[Any, int], values: list[Any]) -> int:
    number = numbers.get(key)
    if number is None:
        number = numbers[key] = len(values)
        values.append(value)
    return number


def _meta(t: Tensor | None) -> Meta:
    if t is None:
        return Meta((), "", "", 0)
    shape = tuple(length if type(length) is int else -1 for length in _shape(t))
    spread = distribution(t)
    size = t.dtype.itemsize * (t.numel() if -1 in shape else prod(spread[0] if spread else shape))
    return Meta(shape, str(t.dtype).removeprefix("torch."), str(t.device), int(size), *spread)


def _shape(t: Tensor) -> tuple[Any, ...]:
    """Return a tensor's shape, with -1 for a ragged dimension."""
    try:
        return t.shape
    except RuntimeError:  # a nested tensor of strided layout
        return (t.size(0), *(-1 for _ in range(t.dim() - 1)))
