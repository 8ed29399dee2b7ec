"""The Graph: the operations of a forward pass as plain columns, independent of any framework.

Rows of ``ops`` are the tensors of a forward pass: its inputs, buffers, constants (tensors from outside, such
as a closure or a plain attribute), the results of operations (an operation that returns three tensors has
three rows) and its outputs. Graphs with a hundred thousand operations are common, so everything is a numpy
column and names are interned; ``Op`` objects are created on access. Modules appear as *calls*: intervals of
rows, so that the graph is acyclic at every level of nesting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import InputError

OP_KINDS = ("op", "input", "output", "buffer", "constant", "parameter")
OP, INPUT, OUTPUT, BUFFER, CONSTANT, PARAMETER = range(6)

#: Bits of ``Ops.flags``.
INPLACE = 1  # it wrote to one of its arguments
CREATED = 2  # a factory function created it: torch.rand, torch.ones
FAILED = 4  # it raised, and ended the pass


class Meta(NamedTuple):
    """The properties of a tensor that are known without its values.

    Attributes:
        shape: Its shape; -1 for a length that is open, ``(-1,)`` if the shape is not known.
        dtype: Its dtype, as ``"float32"``.
        device: Its device, as ``"cpu"``.
        nbytes: Its size in bytes; of a tensor that is distributed over processes, of this process's part.
        local_shape: The shape of this process's part, if it is distributed.
        placement: How it is distributed over each dimension of the device mesh, as ``"tp=2: Shard(dim=0)"``;
            ``""`` if it is not.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int
    local_shape: tuple[int, ...] = ()
    placement: str = ""

    @property
    def place(self) -> str:
        """Return its device and, if it is distributed over processes, how.

        Example:
            >>> Meta((4, 8), "float32", "cpu", 64, (4, 4), "tp=2: Shard(dim=1)").place
            'cpu, tp=2: Shard(dim=1), 4×4 in this process'
        """
        part = f", {'×'.join(map(str, self.local_shape)) or 1} in this process"
        return f"{self.device}, {self.placement}{part}" if self.placement else self.device


class Source(NamedTuple):
    """The line of the user's code that ran an operation.

    Attributes:
        file: The path of the file.
        line: The line number, from 1; 0 if unknown.
        function: The function.
    """

    file: str
    line: int
    function: str


class Param(NamedTuple):
    """A parameter or buffer.

    Attributes:
        address: Its address, as ``features.0.weight``.
        shape: Its shape.
        dtype: Its dtype, as ``"float32"``.
        nbytes: Its size in bytes; if it is distributed over processes, of this process's part.
        trainable: Whether it requires a gradient.
        local_shape: As in ``Meta``.
        placement: As in ``Meta``.
    """

    address: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    trainable: bool
    local_shape: tuple[int, ...] = ()
    placement: str = ""


def elements(params: Iterable[Param]) -> int | None:
    """Return the number of elements of parameters; None if a length of one is unknown.

    >>> elements([Param("a", (2, 3), "", 0, True)]), elements([Param("a", (-1, -1), "", 0, True)])
    (6, None)
    """
    shapes = [param.shape for param in params]
    return None if any(-1 in shape for shape in shapes) else sum(map(math.prod, shapes))


def size_in_bytes(params: Iterable[Param]) -> int | None:
    """Return the size of parameters in bytes; None if a length of one is unknown."""
    params = tuple(params)
    return None if elements(params) is None else sum(param.nbytes for param in params)


class ModuleInfo(NamedTuple):
    """A module.

    Attributes:
        address: Its address; ``""`` for the model.
        type: The name of its class.
        args: The arguments that its repr shows.
        training: Whether it was in training mode.
        site: Where its ``forward`` is defined: index into ``Graph.sites``, -1 if unknown.
        params: Its own parameters, without those of submodules: indices into ``Graph.params``.
        buffers: Its own buffers: indices into ``Graph.buffers``.
    """

    address: str
    type: str
    args: str
    training: bool = False
    site: int = -1
    params: tuple[int, ...] = ()
    buffers: tuple[int, ...] = ()


class Branch(NamedTuple):
    """A tensor whose plain value Python read, and the branch it decided.

    Attributes:
        row: The tensor's row in ``Graph.ops``.
        kind: ``if``, ``elif``, ``while``, ``ternary``, ``assert``, ``comprehension`` or ``guard``; ``read``
            if no branch is known to depend on it.
        way: True if the condition held, False if not, None if unknown.
        how: The method that read it: ``bool``, ``item``, ``tolist`` or ``equal``, for example.
    """

    row: int
    kind: str
    way: bool | None
    how: str


def end_names(kinds: Iterable[int], facts: Mapping[str, Any]) -> dict[int, str]:
    """Return the names that the model's code gives to its inputs and outputs.

    Args:
        kinds: The kind of every row.
        facts: ``Graph.facts``, with names of ``inputs`` and ``outputs`` in order.

    Returns:
        Names by row, without rows that have none.

    Example:
        >>> end_names([INPUT, INPUT, OP, OUTPUT], {"inputs": ["image", ""], "outputs": ["logits"]})
        {0: 'image', 3: 'logits'}
    """
    called = {INPUT: iter(facts.get("inputs", ())), OUTPUT: iter(facts.get("outputs", ()))}
    names = {row: next(called[kind], "") for row, kind in enumerate(kinds) if kind in called}
    return {row: name for row, name in names.items() if name}


class OpColumn(NamedTuple):
    """A column of ``Ops``: one fact about every row, as an integer.

    The recorder, ``assemble``, files, the page and the tests' builders read the columns from ``OP_COLUMNS``.
    ``CONTRIBUTING.md`` shows how to add one.

    Attributes:
        name: Its name in ``Ops``, in files and on the page.
        dtype: Its dtype.
        default: The value if unknown.
        low: The smallest valid value.
        below: What it indexes, a name in ``Graph.limits``; ``""`` if it has no upper bound.
        recorded: ``"tensor"`` if the recorder writes it for each tensor, ``"call"`` if once for all tensors
            that a call returned, ``""`` if ``assemble`` derives it.
        rolled: How the passes of a layer that is shown as one are combined: ``"first"``, ``"sum"`` or
            ``"any"`` (of bits).
        on_page: Whether it is sent to the page.
        required: Whether a file without it is refused; otherwise it takes its default.
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
    # number of the layer, shared by the passes of one layer
    OpColumn("layer", np.int32, 0, 0, "ops"),
    # number of the pass of its layer, from 1
    OpColumn("passno", np.int32, 1, 1, "passes"),
    # row of ``Calls`` it ran in, -1 outside any module
    OpColumn("call", np.int32, -1, -1, "calls", "tensor"),
    # index into ``Graph.metas``
    OpColumn("meta", np.int32, 0, 0, "metas", "tensor"),
    # number of the function call, shared by the tensors that one call returned; -1 for none
    OpColumn("event", np.int32, -1, -1, "", "tensor"),
    # index among the tensors that the call returned, -1 if it returned one
    OpColumn("output", np.int16, -1, -1, "", "tensor", on_page=False),
    # duration of the call in nanoseconds, at its first row
    OpColumn("time", np.int64, 0, 0, "", "tensor", rolled="sum"),
    # index into ``Graph.sites``, -1 unknown
    OpColumn("site", np.int32, -1, -1, "sites", "call"),
    # bits INPLACE, CREATED, FAILED
    OpColumn("flags", np.int8, 0, 0, "", "call", rolled="any"),
    # index into ``Graph.settings``: the arguments that are not tensors; -1 if none or unknown
    OpColumn("setting", np.int32, -1, -1, "settings", required=False),
)


class Ops:
    """The columns of ``OP_COLUMNS``, one row per tensor, in order of execution.

    Args:
        rows: The number of rows.
        **columns: Integer arrays (not copied) or lists, by name. Omitted columns are filled with their
            default.

    Raises:
        InputError: If a column has another length, or there is no such column.

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
                raise InputError(f"The column {name!r} must have shape {(rows,)}, got {column.shape}.")
            setattr(self, name, column)
        if columns:
            raise InputError(
                f"Ops has no column {next(iter(columns))!r}. Known columns: {', '.join(self.__slots__)}."
            )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> np.ndarray: ...

    def __len__(self) -> int:
        return len(self.kind)

    def columns(self) -> dict[str, np.ndarray]:
        """Return all columns, by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The arguments of operations, as columns with one row per tensor passed, sorted by ``dst``.

    Attributes:
        src: The row of Ops that was passed.
        dst: The row of Ops that received it.
        arg: Index into ``Graph.args``: ``"0"`` is the first positional argument, ``"1.2"`` the third element
            of the second, ``"weight"`` a keyword argument.
    """

    src: np.ndarray
    dst: np.ndarray
    arg: np.ndarray

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The module calls, as columns with one row per call, in the order they began; row 0 is the model's call.

    Attributes:
        module: Index into ``Graph.modules``.
        passno: The number of the call of that module, from 1.
        parent: The enclosing call; -1 for the model's.
        start: The first row of Ops that ran inside.
        stop: The end of these rows, exclusive.
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
    """Everything known about one forward pass except the values.

    Attributes:
        model: The model's name.
        types: Operation types and addresses of buffers, which ``ops.type`` indexes; see ``type_of`` and
            ``state_address``.
        metas: Shapes, dtypes and devices, which ``ops.meta`` indexes.
        sites: Source lines, which ``ops.site`` indexes.
        args: Argument names, which ``edges.arg`` indexes.
        params: The model's parameters.
        modules: The model's modules.
        ops: The tensors.
        edges: The tensors passed to operations.
        calls: The module calls.
        op_params: Pairs (row of Ops, index into ``params``): the parameters that an operation used.
        exits: Pairs (row of Ops, row of Calls): the tensors that a call returned; of ``unknown_outputs``,
            those that it may have returned.
        branches: The tensors whose plain value Python read, in order.
        buffers: The model's buffers, whether read or not.
        settings: The arguments of calls that are not tensors, as text (``"(3, 3), stride=2"``), which
            ``ops.setting`` indexes.
        error: The text of the exception that ended the pass; ``""`` if it completed.
        facts: A small JSON-serializable dict of facts about the whole pass: seconds, seed, mode, versions.

    Example:
        >>> graph = intus.trace(torch.nn.Linear(3, 2), torch.ones(1, 3)).graph
        >>> graph
        <Graph of Linear: 1 operations, 1 modules>
        >>> graph.labels, graph.parents(1), graph.rows("linear_1")
        (['input_1', 'linear_1_1', 'output_1'], [0], [1])
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
        """Return the graph of modules of which only the names are known, as if each ran once.

        It serves to resolve addresses before a model has run, or if its graph cannot be recorded.

        Args:
            model: The model's name.
            modules: Pairs of an address and a class name.
            params: Pairs of a module's position in ``modules`` and the name of a parameter of that module.

        Returns:
            The graph: one row and one call per module, without edges.

        Example:
            >>> graph = Graph.of_modules("Net", [("", "Net"), ("fc", "Linear")], [(1, "weight")])
            >>> graph.rows("fc"), graph.params[0].address
            ([1], 'fc.weight')
        """
        named = list(modules)
        owned: dict[int, list[int]] = {}
        parameters: list[Param] = []
        for position, name in params:
            owned.setdefault(position, []).append(len(parameters))
            parameters.append(Param(f"{named[position][0]}.{name}".lstrip("."), (), "", 0, True))
        count = len(named)
        rows, zeros, ones = np.arange(count), np.zeros(count, np.int64), np.ones(count, np.int64)
        root = np.where(rows > 0, 0, -1) if named and named[0][0] == "" else zeros - 1
        return cls(
            model=model,
            types=("",),
            metas=(Meta((), "", "", 0),),
            sites=(),
            args=(),
            params=tuple(parameters),
            modules=tuple(
                ModuleInfo(address, type_, "", params=tuple(owned.get(position, ())))
                for position, (address, type_) in enumerate(named)
            ),
            ops=Ops(count, layer=rows, call=rows, event=rows),
            edges=Edges(zeros[:0], zeros[:0], zeros[:0]),
            calls=Calls(rows, ones, root, rows, rows + 1),
            op_params=np.zeros((0, 2), np.int64),
            exits=np.stack([rows, rows], 1),
        )

    @property
    def limits(self) -> dict[str, int]:
        """The number of entries in each table that an ``OpColumn`` can index (``OpColumn.below``)."""
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

    def type_of(self, row: int) -> str:
        """Return the operation type of a row, as ``"conv2d"``; of any other row its kind, as ``"buffer"``."""
        kind = int(self.ops.kind[row])
        return self.types[int(self.ops.type[row])] if kind == OP else OP_KINDS[kind]

    def dtype_of(self, row: int) -> str:
        """Return the dtype of a row's value, as ``"float32"``; ``""`` if it has none."""
        return self.metas[int(self.ops.meta[row])].dtype

    def state_address(self, row: int) -> str:
        """Return the address of the buffer or parameter that a row of that kind is; ``types`` has it."""
        return self.types[int(self.ops.type[row])]

    def setting(self, row: int) -> str:
        """Return the arguments of a row's call that are not tensors, as text; ``""`` if none or unknown."""
        number = int(self.ops.setting[row])
        return self.settings[number] if number >= 0 else ""

    # -- names ---------------------------------------------------------------------------------------

    @cached_property
    def _layer_names(self) -> tuple[list[str], list[str], np.ndarray]:
        """The full and short name of every layer, and its number of passes."""
        count = int(self.ops.layer.max()) + 1 if len(self.ops) else 0
        passes = np.bincount(self.ops.layer, minlength=count)
        _, first = np.unique(self.ops.layer, return_index=True)
        kinds, types = self.ops.kind[first].tolist(), self.ops.type[first].tolist()
        full, short = [""] * count, [""] * count
        counts: dict[str, int] = {}
        overall = 0
        for layer, (kind, type_) in enumerate(zip(kinds, types, strict=True)):
            name = self.types[type_] if kind == OP else OP_KINDS[kind]
            counts[name] = number = counts.get(name, 0) + 1
            short[layer] = f"{name}_{number}"
            if kind == OP:  # only operations have an overall number: conv2d_3_7 is the seventh to run
                overall += 1
                full[layer] = f"{short[layer]}_{overall}"
            else:
                full[layer] = short[layer]
        return full, short, passes

    def label(self, row: int) -> str:
        """Return a row's label: ``conv2d_3_7``, or ``conv2d_3_7:2`` if its layer has several passes."""
        layer = int(self.ops.layer[row])
        full, _, passes = self._layer_names
        return f"{full[layer]}:{int(self.ops.passno[row])}" if passes[layer] > 1 else full[layer]

    def layer_label(self, layer: int) -> str:
        """Return the label shared by the passes of a layer: ``conv2d_3_7``."""
        return self._layer_names[0][layer]

    def layer_numbers(self, layer: int) -> tuple[int, int]:
        """Return the number of a layer among those of its type and among all operations.

        Both count from 1: ``conv2d_3_7`` has (3, 7). The second is 0 for rows that are not operations.
        """
        full, short, _ = (names[layer] for names in self._layer_names)
        overall = full[len(short) + 1 :]
        return int(short.rpartition("_")[2]), int(overall or 0)

    @cached_property
    def labels(self) -> list[str]:
        """The label of every row, in order."""
        full, _, passes = self._layer_names
        many = passes > 1
        return [
            f"{full[layer]}:{passno}" if many[layer] else full[layer]
            for layer, passno in zip(self.ops.layer.tolist(), self.ops.passno.tolist(), strict=True)
        ]

    def call_address(self, call: int) -> str:
        """Return the address of a module call: ``features.6``, or ``features.6:2`` if called repeatedly.

        ``""`` for -1, the call of what runs outside of all modules.
        """
        if call < 0:
            return ""
        module = int(self.calls.module[call])
        address = self.modules[module].address
        return f"{address}:{int(self.calls.passno[call])}" if self._module_calls[module] > 1 else address

    @cached_property
    def _module_calls(self) -> np.ndarray:
        return np.bincount(self.calls.module, minlength=len(self.modules))

    # -- neighbors -----------------------------------------------------------------------------------

    @cached_property
    def _into(self) -> np.ndarray:
        """The start of each row's incoming edges in ``edges``, which is sorted by ``dst``."""
        return np.searchsorted(self.edges.dst, np.arange(len(self.ops) + 1))

    @cached_property
    def _out_of(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges sorted by ``src``, and the start of each row's outgoing edges in that order."""
        order = np.argsort(self.edges.src, kind="stable")
        return order, np.searchsorted(self.edges.src[order], np.arange(len(self.ops) + 1))

    def parents(self, row: int) -> list[int]:
        """Return the rows that a row was computed from, in argument order, without duplicates."""
        start, stop = self._into[row], self._into[row + 1]
        return list(dict.fromkeys(self.edges.src[start:stop].tolist()))

    def parents_by_argument(self, row: int) -> list[tuple[str, int]]:
        """Return the name of each argument that a row was computed from, and its row, in argument order."""
        start, stop = self._into[row], self._into[row + 1]
        names = (self.args[arg] for arg in self.edges.arg[start:stop].tolist())
        return list(zip(names, self.edges.src[start:stop].tolist(), strict=True))

    def children(self, row: int) -> list[int]:
        """Return the rows computed from a row, in order of execution, without duplicates."""
        order, start = self._out_of
        return sorted(set(self.edges.dst[order[start[row] : start[row + 1]]].tolist()))

    def rows_of(self, kind: int) -> list[int]:
        """Return the rows of one kind: OP, INPUT, OUTPUT, BUFFER, CONSTANT or PARAMETER."""
        return np.flatnonzero(self.ops.kind == kind).tolist()

    def results_of(self, row: int) -> list[int]:
        """Return the rows of the tensors that the operation of a row returned; none if it has no call."""
        ops = self.ops
        same = (ops.event == ops.event[row]) & (ops.kind == ops.kind[row])
        return np.flatnonzero(same).tolist() if ops.event[row] >= 0 else []

    def enclosing_calls(self, row: int) -> list[int]:
        """Return the module calls that a row ran in, outermost first."""
        chain, call = [], int(self.ops.call[row])
        while call >= 0:
            chain.append(call)
            call = int(self.calls.parent[call])
        return chain[::-1]

    @cached_property
    def call_outputs(self) -> dict[int, list[int]]:
        """The rows that each module call returned, or may have returned (``unknown_outputs``)."""
        outputs: dict[int, list[int]] = {}
        for row, call in self.exits.tolist():
            outputs.setdefault(call, []).append(row)
        return outputs

    @cached_property
    def unknown_outputs(self) -> frozenset[int]:
        """The module calls of which it is not known which of their ``exits`` they returned.

        So it is in files of operations that do not state it; ``analysis.returned`` has the rule.
        """
        return frozenset(self.facts.get("unknown_outputs", ()))

    @cached_property
    def row_exits(self) -> dict[int, list[int]]:
        """The module calls that returned each row, or may have, innermost first."""
        exits: dict[int, list[int]] = {}
        for row, call in self.exits.tolist():
            exits.setdefault(row, []).append(call)
        return {row: sorted(calls, reverse=True) for row, calls in exits.items()}

    def returned_by(self, row: int) -> list[int]:
        """Return the module calls that are known to have returned a row, innermost first."""
        return [call for call in self.row_exits.get(row, ()) if call not in self.unknown_outputs]

    @cached_property
    def row_params(self) -> dict[int, list[int]]:
        """The parameters that each row's operation used; rows without any are absent."""
        used: dict[int, list[int]] = {}
        for row, param in self.op_params.tolist():
            used.setdefault(row, []).append(param)
        return used

    @cached_property
    def untold_calls(self) -> dict[str, int]:
        """The most calls that there may be of each module whose calls a file does not tell, by address."""
        return dict(self.facts.get("untold_calls", {}))

    @cached_property
    def _state_users(self) -> dict[str, list[int]]:
        """The rows of the operations that use each parameter and read each buffer, by its address."""
        users: dict[str, list[int]] = {}
        for row, param in self.op_params.tolist():
            users.setdefault(self.params[param].address, []).append(row)
        for row in self.rows_of(BUFFER):
            users.setdefault(self.state_address(row), []).extend(self.children(row))
        return users

    def state_uses(self, module: int) -> list[list[int]]:
        """Return the rows that use each parameter and buffer of a module's own, of those that are used."""
        info = self.modules[module]
        own = [self.params[number].address for number in info.params]
        own += [self.buffers[number].address for number in info.buffers]
        return [self._state_users[address] for address in own if address in self._state_users]

    # -- lookup --------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> dict[str, list[int]]:
        """The rows of every name: labels, short labels, passes, buffers and modules."""
        labels: dict[str, list[int]] = {}
        short_labels: dict[str, list[int]] = {}
        full, short, _ = self._layer_names
        layers, passes, types = (getattr(self.ops, name).tolist() for name in ("layer", "passno", "type"))
        for row, (layer, passno, type_) in enumerate(zip(layers, passes, types, strict=True)):
            if not self.types[type_]:  # of a graph of modules alone, whose operations are not known
                continue
            for names, name in ((labels, full[layer]), (short_labels, short[layer])):
                names.setdefault(name, []).append(row)
                names.setdefault(f"{name}:{passno}", []).append(row)
        # The label conv2d_1_2 takes precedence over the short one of a second conv2d_1.
        names = short_labels | labels
        for row in self.rows_of(BUFFER):
            names.setdefault(self.state_address(row), []).append(row)
        # A module named linear_1 takes precedence, as in probe and inspect.
        return names | {
            name: [row for call in calls for row in self.call_outputs[call]]
            for name, calls in self.module_names.items()
        }

    @cached_property
    def module_names(self) -> dict[str, list[int]]:
        """The calls of modules that returned something, by address (``cell``) and call (``cell:2``)."""
        names: dict[str, list[int]] = {}
        for call in sorted(self.call_outputs):
            address = self.modules[int(self.calls.module[call])].address
            for name in (address, f"{address}:{int(self.calls.passno[call])}"):
                names.setdefault(name, []).append(call)
        return names

    @cached_property
    def ends(self) -> dict[str, list[int]]:
        """The rows of inputs and outputs by the name the model's code gives them, if unambiguous.

        An input takes precedence over an output of the same name: a cache is often both.
        """
        ends: dict[str, list[int]] = {}
        for row, name in end_names(self.ops.kind.tolist(), self.facts).items():
            of_type = np.flatnonzero(self.ops.type == self.types.index(name)) if name in self.types else [row]
            if name not in self._names and list(of_type) == [row]:
                ends.setdefault(name, []).append(row)
        inputs = {name: [row for row in rows if self.ops.kind[row] == INPUT] for name, rows in ends.items()}
        chosen = {name: inputs[name] or rows for name, rows in ends.items()}
        return {name: rows for name, rows in chosen.items() if len(rows) == 1}

    def rows(self, name: str) -> list[int] | None:
        """Return the rows that a name means, or None if there is no such name.

        Args:
            name: A label, short label, pass, module address, buffer address, or the name of an input or
                output in the model's code.
        """
        return self._names.get(name) or self.ends.get(name)

    def names(self) -> Iterator[str]:
        """Return an iterator over all names that ``rows`` knows, except ``ends``."""
        return iter(self._names)

    def __len__(self) -> int:
        return int((self.ops.kind == OP).sum())

    def __repr__(self) -> str:
        return f"<Graph of {self.model}: {len(self)} operations, {len(self.modules)} modules>"
