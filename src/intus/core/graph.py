"""The Graph: what ran in a model, as plain columns; it knows no framework.

Rows of ``ops`` are the tensors that a forward pass met: its inputs, buffers, constants (tensors that came
from outside, a closure or a plain attribute), what each operation returned (an operation that returns
three tensors has three rows) and its outputs. A hundred thousand operations are
common, so everything is a numpy column and names are interned; ``Op`` is a handle made when someone looks.
Modules are seen as *calls*: an interval of rows in time. That makes every level of nesting a DAG.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import InputError

OP_KINDS = ("op", "input", "output", "buffer", "constant")
OP, INPUT, OUTPUT, BUFFER, CONSTANT = range(5)

#: Bits of ``Ops.flags``.
INPLACE = 1  # it wrote into one of its arguments
CREATED = 2  # it made a tensor out of nothing: torch.rand, torch.ones
FAILED = 4  # it raised: the last thing that ran


class Meta(NamedTuple):
    """What a tensor looks like: its shape, dtype (``"float32"``), device (``"cpu"``) and size in bytes."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int


class Source(NamedTuple):
    """The line of the user's code that ran an operation; ``line`` 0 means unknown."""

    file: str
    line: int
    function: str


class Param(NamedTuple):
    """A parameter: its address (``features.0.weight``), shape, dtype, bytes and whether it is trained."""

    address: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    trainable: bool


class ModuleInfo(NamedTuple):
    """A module: its address (``""`` is the model), class name and the arguments its repr shows; whether it
    was in training mode; where its ``forward`` is written (index into ``Graph.sites``, -1 unknown); and what
    it holds itself, submodules aside: indices into ``Graph.params`` and ``Graph.buffers``."""

    address: str
    type: str
    args: str
    training: bool = False
    site: int = -1
    params: tuple[int, ...] = ()
    buffers: tuple[int, ...] = ()


class Branch(NamedTuple):
    """A tensor's plain value that Python asked for, and what it decided.

    ``row`` is the tensor's row in Ops; ``kind`` one of ``if``, ``elif``, ``while``, ``ternary``, ``assert``,
    ``comprehension``, ``guard``, or ``read`` where it decided nothing that can be told; ``way`` is True where
    the condition held, False where it did not, None where that cannot be told; ``how`` the method that asked:
    ``bool``, ``item``, ``equal``.
    """

    row: int
    kind: str
    way: bool | None
    how: str


def end_names(kinds: Iterable[int], facts: Mapping[str, Any]) -> dict[int, str]:
    """What the model's own code calls its inputs and outputs, by row; those without a name are left out.

    >>> end_names([INPUT, INPUT, OP, OUTPUT], {"inputs": ["image", ""], "outputs": ["logits"]})
    {0: 'image', 3: 'logits'}
    """
    called = {INPUT: iter(facts.get("inputs", ())), OUTPUT: iter(facts.get("outputs", ()))}
    names = {row: next(called[kind], "") for row, kind in enumerate(kinds) if kind in called}
    return {row: name for row, name in names.items() if name}


def _ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


class OpColumn(NamedTuple):
    """A column of ``Ops``: one fact of every row, as an integer.

    The recorder, ``assemble``, files, the page and the tests' builders read the columns from ``OP_COLUMNS``;
    ``CONTRIBUTING.md`` shows how to add one.

    Attributes:
        name: Its name in ``Ops``, in files and on the page.
        dtype: How it is kept.
        default: The value where nothing is known.
        low: The least value.
        below: What it indexes, a name of ``Graph.limits``; ``""`` for a number without a bound.
        recorded: ``"tensor"`` if the recorder writes it for each tensor, ``"call"`` if once for all tensors
            that a call returned, ``""`` if ``assemble`` derives it.
        rolled: How the passes of a layer that is shown as one are put together: ``"first"``, ``"sum"`` or
            ``"any"`` (of bits).
        on_page: Whether the page gets it.
        required: Whether a file without it is refused; a file of an older version has the default.
    """

    name: str
    dtype: type[np.signedinteger[Any]]
    default: int
    low: int
    below: str = ""
    recorded: str = ""
    rolled: str = "first"
    on_page: bool = True
    required: bool = True


OP_COLUMNS = (
    # index into OP_KINDS
    OpColumn("kind", np.int8, OP, 0, "kinds", "tensor"),
    # index into ``Graph.types``: ``conv2d``
    OpColumn("type", np.int32, 0, 0, "types", "tensor"),
    # number of the layer; rows that are passes of one layer share it
    OpColumn("layer", np.int32, 0, 0, "ops"),
    # which pass of its layer, from 1
    OpColumn("passno", np.int32, 1, 1, "passes"),
    # row of ``Calls`` it ran in, -1 outside any module
    OpColumn("call", np.int32, -1, -1, "calls", "tensor"),
    # index into ``Graph.metas``
    OpColumn("meta", np.int32, 0, 0, "metas", "tensor"),
    # number of the function call, shared by the tensors that one call returned; -1 for none
    OpColumn("event", np.int32, -1, -1, "", "tensor"),
    # which of the call's tensors, -1 when it returned just one
    OpColumn("output", np.int16, -1, -1, "", "tensor", on_page=False),
    # nanoseconds that the function took, on its first row
    OpColumn("time", np.int64, 0, 0, "", "tensor", rolled="sum"),
    # index into ``Graph.sites``, -1 unknown
    OpColumn("site", np.int32, -1, -1, "sites", "call"),
    # bits INPLACE, CREATED, FAILED
    OpColumn("flags", np.int8, 0, 0, "", "call", rolled="any"),
    # index into ``Graph.settings``: what the call was given besides tensors; -1 for nothing, or not known
    OpColumn("setting", np.int32, -1, -1, "settings", required=False),
)


class Ops:
    """The columns of ``OP_COLUMNS``, one row per tensor, in the order of execution.

    Args:
        rows: How many rows there are.
        **columns: Integer arrays, kept as they are, or lists, by name; a column left out has its default.

    Raises:
        InputError: If a column is not as long, or there is no such column.

    Example:
        >>> ops = Ops(2, kind=[INPUT, OP], layer=[0, 1])
        >>> len(ops), ops.layer.tolist(), ops.call.tolist()
        (2, [0, 1], [-1, -1])
    """

    __slots__ = tuple(column.name for column in OP_COLUMNS)

    def __init__(self, rows: int, **columns: np.ndarray | Sequence[int]) -> None:
        for name, dtype, default, *_ in OP_COLUMNS:
            given = columns.pop(name, None)
            if given is None:
                column = np.full(rows, default, dtype)
            else:
                column = given if isinstance(given, np.ndarray) else np.array(given, dtype)
            if column.shape != (rows,):
                raise InputError(f"The column {name!r} has shape {column.shape}, for {rows} rows.")
            setattr(self, name, column)
        if columns:
            raise InputError(f"Ops has no column {next(iter(columns))!r}: {', '.join(self.__slots__)}.")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> np.ndarray: ...

    def __len__(self) -> int:
        return len(self.kind)

    def columns(self) -> dict[str, np.ndarray]:
        """Return every column by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Columns, one row per tensor passed on: ``src`` and ``dst`` are rows of Ops, sorted by ``dst``;
    ``arg`` indexes ``Graph.args``: ``"0"`` the first positional argument, ``"1.2"`` the third of a list,
    ``"weight"`` a keyword."""

    src: np.ndarray
    dst: np.ndarray
    arg: np.ndarray

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Columns, one row per call of a module, in the order they began; row 0 is the model's own call.

    ``module`` index into ``Graph.modules``; ``passno`` which call of it, from 1; ``parent`` the enclosing
    call, -1 for the model's; ``start`` and ``stop`` the rows of Ops that ran inside, half open.
    """

    module: np.ndarray
    passno: np.ndarray
    parent: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    def __len__(self) -> int:
        return len(self.module)


@dataclass(frozen=True, eq=False)
class Graph:
    """Everything known of one forward pass but the values.

    ``op_params`` holds pairs (row of Ops, index into ``params``); ``exits`` pairs (row of Ops, row of
    Calls): that tensor was what that call returned. ``branches`` are the tensors whose plain value Python
    asked for, in order. ``buffers`` are the model's, read or not. ``settings`` are texts of what a call was
    given besides tensors (``"(3, 3), stride=2"``), which ``ops.setting`` indexes. ``error`` is the text of
    the exception that ended the pass, ``""`` if none did. ``facts`` is a small JSON-able dict for whatever is
    known once: seconds, seed, mode, versions.
    """

    model: str
    types: tuple[str, ...]
    metas: tuple[Meta, ...]
    sites: tuple[Source, ...]
    args: tuple[str, ...]
    params: tuple[Param, ...]
    modules: tuple[ModuleInfo, ...]
    ops: Ops
    edges: Edges
    calls: Calls
    op_params: np.ndarray
    exits: np.ndarray
    branches: tuple[Branch, ...] = ()
    buffers: tuple[Param, ...] = ()
    settings: tuple[str, ...] = ()
    error: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_modules(
        cls, model: str, modules: Iterable[tuple[str, str]], params: Iterable[tuple[int, str]] = ()
    ) -> Graph:
        """Return the graph of modules of which nothing is known but their names, as if each ran once.

        Addresses can be looked up in it before a model has run, or where its graph cannot be recorded.

        Args:
            model: The model's name.
            modules: Pairs of an address and a class.
            params: Pairs of a module's position and the name of a parameter that it holds.

        Example:
            >>> graph = Graph.of_modules("Net", [("", "Net"), ("fc", "Linear")], [(1, "weight")])
            >>> graph.rows("fc"), graph.params[0].address
            ([1], 'fc.weight')
        """
        named = list(modules)
        owned: dict[int, list[int]] = {}
        known: list[Param] = []
        for at, name in params:
            owned.setdefault(at, []).append(len(known))
            known.append(Param(f"{named[at][0]}.{name}".lstrip("."), (), "", 0, True))
        count = len(named)
        rows, zeros, ones = np.arange(count), np.zeros(count, np.int64), np.ones(count, np.int64)
        root = np.where(rows > 0, 0, -1) if named and named[0][0] == "" else zeros - 1
        return cls(
            model=model,
            types=("",),
            metas=(Meta((), "", "", 0),),
            sites=(),
            args=(),
            params=tuple(known),
            modules=tuple(
                ModuleInfo(address, type_, "", params=tuple(owned.get(at, ())))
                for at, (address, type_) in enumerate(named)
            ),
            ops=Ops(count, layer=rows, call=rows, event=rows),
            edges=Edges(zeros[:0], zeros[:0], zeros[:0]),
            calls=Calls(rows, ones, root, rows, rows + 1),
            op_params=np.zeros((0, 2), np.int64),
            exits=np.stack([rows, rows], 1),
        )

    @property
    def limits(self) -> dict[str, int]:
        """How many there are of what ``OpColumn.below`` names."""
        return {
            "kinds": len(OP_KINDS),
            "types": len(self.types),
            "ops": max(len(self.ops), 1),
            "passes": len(self.ops) + 1,
            "calls": len(self.calls),
            "metas": len(self.metas),
            "sites": len(self.sites),
            "settings": len(self.settings),
        }

    def setting(self, row: int) -> str:
        """Return what a row's call was given besides tensors, as text; ``""`` if nothing, or not known."""
        number = int(self.ops.setting[row])
        return self.settings[number] if number >= 0 else ""

    # -- names ---------------------------------------------------------------------------------------

    @cached_property
    def _layer_names(self) -> tuple[list[str], list[str], np.ndarray]:
        """(full name, short name) of every layer, and how many passes it has."""
        count = int(self.ops.layer.max()) + 1 if len(self.ops) else 0
        passes = np.bincount(self.ops.layer, minlength=count)
        _, first = np.unique(self.ops.layer, return_index=True)
        kinds, types = self.ops.kind[first].tolist(), self.ops.type[first].tolist()
        full, short = [""] * count, [""] * count
        seen: dict[str, int] = {}
        overall = 0
        for layer, (kind, type_) in enumerate(zip(kinds, types, strict=True)):
            name = self.types[type_] if kind == OP else OP_KINDS[kind]
            seen[name] = number = seen.get(name, 0) + 1
            short[layer] = f"{name}_{number}"
            if kind == OP:  # only operations are numbered overall: conv2d_3_7 is the seventh to run
                overall += 1
                full[layer] = f"{short[layer]}_{overall}"
            else:
                full[layer] = short[layer]
        return full, short, passes

    def label(self, row: int) -> str:
        """The row's own address: ``conv2d_3_7``, or ``conv2d_3_7:2`` where its layer has several passes."""
        layer = int(self.ops.layer[row])
        full, _, passes = self._layer_names
        return f"{full[layer]}:{int(self.ops.passno[row])}" if passes[layer] > 1 else full[layer]

    def layer_label(self, layer: int) -> str:
        """The label that a layer's passes share: ``conv2d_3_7``."""
        return self._layer_names[0][layer]

    def layer_numbers(self, layer: int) -> tuple[int, int]:
        """Which of its type a layer is and which of all, from 1: (3, 7); the latter 0 for no operation.

        They are read off its names, which are made of them.
        """
        full, short, _ = (names[layer] for names in self._layer_names)
        overall = full[len(short) + 1 :]
        return int(short.rpartition("_")[2]), int(overall or 0)

    @cached_property
    def labels(self) -> list[str]:
        """Every row's label, in order."""
        full, _, passes = self._layer_names
        many = passes > 1
        return [
            f"{full[layer]}:{passno}" if many[layer] else full[layer]
            for layer, passno in zip(self.ops.layer.tolist(), self.ops.passno.tolist(), strict=True)
        ]

    def call_address(self, call: int) -> str:
        """The address of a module's call: ``features.6``, or ``features.6:2`` where it is called again."""
        module = int(self.calls.module[call])
        address = self.modules[module].address
        return f"{address}:{int(self.calls.passno[call])}" if self._module_calls[module] > 1 else address

    @cached_property
    def _module_calls(self) -> np.ndarray:
        return np.bincount(self.calls.module, minlength=len(self.modules))

    # -- neighbours ----------------------------------------------------------------------------------

    @cached_property
    def _into(self) -> np.ndarray:
        """Start of each row's parents in ``edges``, which is sorted by ``dst``."""
        return np.searchsorted(self.edges.dst, np.arange(len(self.ops) + 1))

    @cached_property
    def _out_of(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.edges.src, kind="stable")
        return order, np.searchsorted(self.edges.src[order], np.arange(len(self.ops) + 1))

    def parents(self, row: int) -> list[int]:
        """Rows whose tensors this one was computed from, in argument order, each once."""
        start, stop = self._into[row], self._into[row + 1]
        return list(dict.fromkeys(self.edges.src[start:stop].tolist()))

    def children(self, row: int) -> list[int]:
        """Rows computed from this one, in order of execution, each once."""
        order, start = self._out_of
        return sorted(set(self.edges.dst[order[start[row] : start[row + 1]]].tolist()))

    def rows_of(self, kind: int) -> list[int]:
        """Rows of one kind: OP, INPUT, OUTPUT, BUFFER or CONSTANT."""
        return np.flatnonzero(self.ops.kind == kind).tolist()

    def enclosing_calls(self, row: int) -> list[int]:
        """The module calls the row ran in, from the model's own inwards."""
        chain, call = [], int(self.ops.call[row])
        while call >= 0:
            chain.append(call)
            call = int(self.calls.parent[call])
        return chain[::-1]

    @cached_property
    def call_outputs(self) -> dict[int, list[int]]:
        """For each module call, the rows it returned."""
        out: dict[int, list[int]] = {}
        for row, call in self.exits.tolist():
            out.setdefault(call, []).append(row)
        return out

    @cached_property
    def row_exits(self) -> dict[int, list[int]]:
        """For each row, the module calls that returned it, innermost first."""
        out: dict[int, list[int]] = {}
        for row, call in self.exits.tolist():
            out.setdefault(row, []).append(call)
        return {row: sorted(calls, reverse=True) for row, calls in out.items()}

    @cached_property
    def row_params(self) -> dict[int, list[int]]:
        """For each row that used parameters, which ones."""
        out: dict[int, list[int]] = {}
        for row, param in self.op_params.tolist():
            out.setdefault(row, []).append(param)
        return out

    # -- lookup --------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> dict[str, list[int]]:
        """Every name the graph answers to, with its rows: labels, short labels, passes, modules."""
        names: dict[str, list[int]] = {}
        full, short, _ = self._layer_names
        for row, (layer, passno) in enumerate(
            zip(self.ops.layer.tolist(), self.ops.passno.tolist(), strict=True)
        ):
            for name in dict.fromkeys((full[layer], short[layer])):
                names.setdefault(name, []).append(row)
                names.setdefault(f"{name}:{passno}", []).append(row)
        for row in self.rows_of(BUFFER):  # a buffer's type is its address
            names.setdefault(self.types[self.ops.type[row]], []).append(row)
        modules: dict[str, list[int]] = {}
        for call, rows in sorted(self.call_outputs.items()):
            module, passno = int(self.calls.module[call]), int(self.calls.passno[call])
            address = self.modules[module].address
            for name in (address, f"{address}:{passno}"):
                modules.setdefault(name, []).extend(rows)
        return names | modules  # a module called linear_1 is what probe and inspect mean by that name

    @cached_property
    def ends(self) -> dict[str, list[int]]:
        """Inputs and outputs by what the model's own code calls them, where that means nothing else."""
        found: dict[str, list[int]] = {}
        for row, name in end_names(self.ops.kind.tolist(), self.facts).items():
            of_type = np.flatnonzero(self.ops.type == self.types.index(name)) if name in self.types else [row]
            if name not in self._names and list(of_type) == [row]:
                found.setdefault(name, []).append(row)
        return {name: rows for name, rows in found.items() if len(rows) == 1}

    def rows(self, name: str) -> list[int] | None:
        """Rows that answer to a label, short label, pass or module address, or to what the model's own code
        calls its inputs and outputs; None if nothing does."""
        return self._names.get(name) or self.ends.get(name)

    def names(self) -> Iterator[str]:
        """Every name that ``rows`` knows, ``ends`` aside."""
        return iter(self._names)

    def __len__(self) -> int:
        return int((self.ops.kind == OP).sum())

    def __repr__(self) -> str:
        return f"<Graph of {self.model}: {len(self)} operations, {len(self.modules)} modules>"
