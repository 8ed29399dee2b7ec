"""What one pass leaves behind: flat lists of integers, and what the integers mean.

A flat list holds a fixed number of integers a row, and Python's garbage collector never has to walk it. A row
is named by where it begins in ``rows``, which costs nothing to know; ``assemble`` counts them.
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

#: Integers per row of each flat list. Of an op: what differs by tensor, then what is the same for all tensors
#: that a call returned; the last, ``inputs``, is how many integers of ``Recording.inputs`` are the row's.
_CALL_FACTS = (*(column.name for column in OP_COLUMNS if column.recorded == "call"), "signature", "inputs")
ROW = (*(column.name for column in OP_COLUMNS if column.recorded == "tensor"), *_CALL_FACTS)
_DEFAULTS = {column.name: column.default for column in OP_COLUMNS if column.recorded} | {"signature": -1}
CALL = ("module", "parent", "start", "stop", "site")
_TYPE, _SITE = ROW.index("type"), CALL.index("site")
#: Positional arguments whose place is known without looking its name up.
POSITIONS = 32
_POSITIONAL = [str(position) for position in range(POSITIONS)]


class Read(NamedTuple):
    """Python asked for a tensor's plain value: the tensor's row, how (``"bool"``, ``"item"``), at which
    instruction, the value where it was a truth, and how far the recording had come."""

    row: int
    how: str
    code: CodeType
    at: int
    value: bool | None
    rows: int


@dataclass(slots=True)
class Recording:
    """The tables of one pass.

    ``inputs``  pairs of what went into a row: a row, or below zero a parameter (-1 - its number), and the
                number of the argument's name
    ``exits``   pairs: a row, and the module call that returned it
    ``stack``   the module calls under way, innermost last; -1 stands below them
    ``signatures``  numbers of what functions were given besides tensors, function first; see ``walk``
    ``reads``   the times Python asked for a tensor's plain value
    ``raised``  the row of the last operation that raised, and its exception
    ``ends``    what the inputs and the outputs are called, in order, "" where they have no name
    """

    rows: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    metas: list[Meta] = field(default_factory=list)
    sites: list[tuple[CodeType, int]] = field(default_factory=list)
    args: list[str] = field(default_factory=_POSITIONAL.copy)
    restorer: StateRestorer = field(default_factory=StateRestorer)
    addresses: Addresses = field(init=False)
    stack: list[int] = field(default_factory=[-1].copy)
    failure: BaseException | None = None
    raised: tuple[int, BaseException] | None = None
    reads: list[Read] = field(default_factory=list)
    signatures: dict[tuple[Any, ...], int] = field(default_factory=dict)
    ends: dict[str, list[str]] = field(default_factory=lambda: {"inputs": [], "outputs": []})
    type_numbers: dict[str, int] = field(default_factory=dict)
    meta_numbers: dict[Any, int] = field(default_factory=dict)
    _arg_numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.addresses = Addresses(self.restorer)

    def type_number(self, name: str) -> int:
        """The number of an operation's type."""
        return _number(name, name, self.type_numbers, self.types)

    def arg_number(self, name: str) -> int:
        """The number of an argument's name: ``"0"``, ``"1.2"``, ``"weight"``."""
        return (
            int(name)
            if name.isdigit() and int(name) < POSITIONS
            else _number(name, name, self._arg_numbers, self.args)
        )

    def meta_number(self, t: Tensor | None) -> int:
        """The number of a tensor's shape, dtype and device; None for what was never returned."""
        key = None if t is None else (_shape(t), t.dtype, t.device)
        number = self.meta_numbers.get(key)
        return _number(key, _meta(t), self.meta_numbers, self.metas) if number is None else number

    def type_of(self, row: int) -> str:
        """The name of a row's type."""
        return self.types[self.rows[row + _TYPE]]

    def module_of(self, call: int) -> int:
        """The number of the module that a call is of; -1 below the outermost call."""
        return self.calls[call * len(CALL)] if call >= 0 else -1

    def site_of(self, call: int) -> int:
        """The number of the instruction that a module's call was made from."""
        return self.calls[call * len(CALL) + _SITE]

    def call_facts(self, inputs: list[int], **facts: int) -> tuple[int, ...]:
        """Return what all tensors that a call returns have in common: the second part of a ``ROW``."""
        values = {**_DEFAULTS, **facts, "inputs": len(inputs)}
        return tuple(values[name] for name in _CALL_FACTS)

    def add(self, inputs: list[int] | tuple[int, ...] = (), **facts: int) -> int:
        """Append a row in the module call under way; a column left out has its default.

        The hot path writes its rows itself; see ``operations.make_handler``.

        Returns:
            The row's name.
        """
        row = len(self.rows)
        values = {**_DEFAULTS, "call": self.stack[-1], **facts, "inputs": len(inputs)}
        self.rows.extend([values[name] for name in ROW])
        self.inputs.extend(inputs)
        return row


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
    size = t.dtype.itemsize * (t.numel() if -1 in shape else prod(shape))
    return Meta(shape, str(t.dtype).removeprefix("torch."), str(t.device), int(size))


def _shape(t: Tensor) -> tuple[Any, ...]:
    """A tensor's shape; -1 stands for a length that differs from item to item."""
    try:
        return t.shape
    except RuntimeError:  # a nested tensor of strided layout
        return (t.size(0), *(-1 for _ in range(t.dim() - 1)))
