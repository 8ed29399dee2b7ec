"""Build a Graph row by row: for what is not recorded from PyTorch (other frameworks, model files)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from .analysis.loops import find_layers, occurrences
from .analysis.returned import with_returned
from .errors import InputError
from .graph import (
    BUFFER,
    CONSTANT,
    INPUT,
    OP,
    OP_COLUMNS,
    OP_KINDS,
    OUTPUT,
    PARAMETER,
    Calls,
    Edges,
    Graph,
    Meta,
    ModuleInfo,
    Ops,
    Param,
    Source,
)

#: Sizes in bytes of the dtypes that numpy has no name for.
_SIZES = {"bfloat16": 2.0, "int4": 0.5, "uint4": 0.5, "int2": 0.25, "uint2": 0.25, "float4_e2m1fn": 0.5}
#: The columns that each row has from the start, with their defaults; ``GraphBuilder.graph`` adds the others.
_DEFAULTS = {
    column.name: column.default for column in OP_COLUMNS if column.name not in ("layer", "passno", "call")
}


class Scope(NamedTuple):
    """A module call that a row ran in.

    Attributes:
        address: The module's address.
        type: The name of its class; ``""`` if unknown.
        call: What distinguishes this call from others of the same module; None if the module is called once,
            or its calls cannot be told apart.
    """

    address: str
    type: str = ""
    call: Hashable = None


def nbytes(shape: Iterable[int], dtype: str) -> int:
    """Return the size of a tensor in bytes; 0 if a length or the dtype is unknown.

    Example:
        >>> nbytes((2, 3), "float32"), nbytes((5,), "bfloat16"), nbytes((-1, 3), "float32")
        (24, 10, 0)
    """
    shape = tuple(shape)
    if min(shape, default=0) < 0:
        return 0
    size = _SIZES.get(dtype)
    if size is None:
        try:
            size = 1.0 if dtype.startswith("float8") else float(np.dtype(dtype).itemsize)
        except TypeError:
            return 0
    return math.ceil(math.prod(shape) * size)


class GraphBuilder:
    """Collects rows in an order in which every row follows its parents, and builds their graph.

    The rows of a module call need not be adjacent: ``graph`` reorders them so that each call is an interval.
    Where the dependencies do not allow that, the call is split into several.

    Args:
        model: The model's name.
        type: The name of its class. Default: ``model``.
        device: The device of its tensors.

    Example:
        >>> builder = GraphBuilder("Net")
        >>> builder.param("fc.weight", (3, 2), "float32")
        >>> x = builder.input("x", (1, 2), "float32")
        >>> fc = [Scope("fc", "Dense")]
        >>> y = builder.op("matmul", (1, 3), "float32", scope=fc, parents=[(x, "0")], params=["fc.weight"])
        >>> end = builder.output("y", y)
        >>> graph, rows = builder.graph()
        >>> graph, graph.labels, graph.rows("fc")
        (<Graph of Net: 1 operations, 2 modules>, ['input_1', 'matmul_1_1', 'output_1'], [1])
    """

    def __init__(self, model: str, type: str = "", *, device: str = "cpu") -> None:
        self._model, self._device = model, device
        self._modules: dict[str, ModuleInfo] = {"": ModuleInfo("", type or model, "")}
        self._params: dict[str, Param] = {}
        self._shared: dict[str, str] = {}  # further addresses of parameters
        self._buffers: dict[str, Param] = {}
        self._owners: dict[str, str] = {}
        self._types: dict[str, int] = {}
        self._metas: dict[Meta, int] = {}
        self._sites: dict[Source, int] = {}
        self._args: dict[str, int] = {}
        self._settings: dict[str, int] = {}
        self._names: dict[int, list[str]] = {INPUT: [], OUTPUT: []}
        self._columns: dict[str, list[int]] = {name: [] for name in _DEFAULTS}
        self._scopes: list[tuple[Scope, ...] | None] = []
        self._edges: list[tuple[int, int, int]] = []
        self._op_params: list[tuple[int, str]] = []
        self._exits: list[tuple[int, tuple[Scope, ...]]] = []
        self._merged: list[int] = []
        self._called: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    # -- the model -------------------------------------------------------------------------------------

    def module(self, address: str, type: str = "", args: str = "", *, training: bool = False) -> None:
        """Declare a module. Modules that are not declared are taken from the scopes of rows.

        Args:
            address: Its address; ``""`` is the model.
            type: The name of its class.
            args: The arguments that its repr shows.
            training: Whether it is in training mode.
        """
        self._modules[address] = ModuleInfo(address, type, args, training)

    def param(
        self,
        address: str,
        shape: Iterable[int],
        dtype: str,
        *,
        trainable: bool = True,
        owner: str | None = None,
        size: int | None = None,
    ) -> None:
        """Declare a parameter.

        Args:
            address: Its address, ``"fc.weight"``.
            shape: Its shape.
            dtype: Its dtype.
            trainable: Whether it is trained.
            owner: The address of its module. Default: the longest address of a module that its own begins
                with.
            size: Its size in bytes, if it is not that of a plain array.
        """
        self._declare(self._params, address, shape, dtype, trainable, owner, size)

    def shared_param(self, address: str, first: str) -> None:
        """Declare a further address of a parameter: another module holds it too.

        Args:
            address: The further address. Rows may name it.
            first: The address that the parameter was declared with.

        Raises:
            InputError: If ``first`` was not declared.
        """
        if first not in self._params:
            raise InputError(f"{address!r} is said to be the parameter {first!r}, which was not declared.")
        self._shared[address] = first

    def buffer_of(self, address: str, shape: Iterable[int], dtype: str, *, owner: str | None = None) -> None:
        """Declare a buffer: an array that belongs to a module and is not trained; see ``param``."""
        self._declare(self._buffers, address, shape, dtype, False, owner)

    def _declare(
        self,
        table: dict[str, Param],
        address: str,
        shape: Iterable[int],
        dtype: str,
        trainable: bool,
        owner: str | None,
        size: int | None = None,
    ) -> None:
        shape = tuple(int(length) for length in shape)
        table[address] = Param(
            address, shape, dtype, nbytes(shape, dtype) if size is None else size, trainable
        )
        if owner is not None:
            self._owners[address] = owner

    # -- rows ------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Iterable[int], dtype: str) -> int:
        """Add an input of the model under the name that the model gives it (``""`` for none)."""
        self._names[INPUT].append(name)
        return self._row(INPUT, "input", shape, dtype, None)

    def output(self, name: str, row: int, others: Iterable[int] = (), *, like: int | None = None) -> int:
        """Add an output of the model, which is the value of ``row``, under a name (``""`` for none).

        Args:
            name: The name.
            row: The row.
            others: Further rows, of which it has parts.
            like: The row whose shape and dtype it has, if ``row`` is what wrote into a part of that.
        """
        self._names[OUTPUT].append(name)
        parents = [(one, "0") for one in (row, *others)]
        end = self._row(OUTPUT, "output", (), "", None, parents=parents)
        self._columns["meta"][end] = self._columns["meta"][row if like is None else like]
        return end

    def buffer(self, address: str, shape: Iterable[int], dtype: str, scope: Sequence[Scope] = ()) -> int:
        """Add a buffer that the model reads (``"norm.mean"``), as a row, and declare it."""
        shape = tuple(shape)
        if address not in self._buffers:
            self.buffer_of(address, shape, dtype)
        return self._row(BUFFER, address, shape, dtype, scope)

    def parameter(self, address: str, scope: Sequence[Scope] = ()) -> int:
        """Add a declared parameter as a row: one that a module returns, or that no operation is known of.

        Raises:
            InputError: If it was not declared.
        """
        address = self._shared.get(address, address)
        shape, dtype = self._params[address][1:3] if address in self._params else ((), "")
        row = self._row(PARAMETER, address, shape, dtype, scope, params=[address])
        self._columns["meta"][row] = _intern(
            self._metas, Meta(shape, dtype, self._device, self._params[address].nbytes)
        )
        return row

    def constant(self, shape: Iterable[int], dtype: str, scope: Sequence[Scope] = ()) -> int:
        """Add a tensor that is neither an input nor state of the model."""
        return self._row(CONSTANT, "constant", shape, dtype, scope)

    def op(
        self,
        type: str,
        shape: Iterable[int],
        dtype: str,
        *,
        scope: Sequence[Scope] = (),
        parents: Iterable[tuple[int, str]] = (),
        params: Iterable[str] = (),
        setting: str = "",
        event: int | None = None,
        output: int = -1,
        time: int = 0,
        site: Source | None = None,
        flags: int = 0,
    ) -> int:
        """Add the result of an operation.

        Args:
            type: The operation's type, ``"conv2d"``.
            shape: The shape of the result; -1 for an unknown length.
            dtype: Its dtype.
            scope: The module calls it ran in, outermost first, without the model's own.
            parents: Pairs of a row and the name of the argument that it is (``"0"``, ``"weight"``).
            params: The addresses of declared parameters that it used.
            setting: Its arguments that are not tensors, as text.
            event: A number shared by the results of one operation with several. Default: its own.
            output: The index of the result among those.
            time: Its duration in nanoseconds.
            site: The line of code that ran it.
            flags: Bits of ``Ops.flags``.

        Returns:
            The number of the row, to be named as a parent.

        Raises:
            InputError: If a parent is no earlier row, or a parameter was not declared.
        """
        columns = {"output": output, "time": time, "flags": flags}
        if setting:
            columns["setting"] = _intern(self._settings, setting)
        if event is not None:
            columns["event"] = event
        if site is not None:
            columns["site"] = _intern(self._sites, site)
        return self._row(OP, type, shape, dtype, scope, parents, params, columns)

    def returns(self, row: int, scope: Sequence[Scope]) -> None:
        """State that the innermost call of ``scope`` returned a row, after those stated before.

        The row may be one that the call was given. Of a call without such a statement, ``analysis.returned``
        finds what it may have returned among the rows inside of it that others outside read.
        """
        self._exits.append((row, tuple(scope)))

    def merged(self, row: int) -> None:
        """State that a row has what a later module computes too: its own module returned another tensor."""
        self._merged.append(row)

    def called(self, address: str, type: str) -> None:
        """State that a module was called. A call inside of an operation has no row."""
        self._modules.setdefault(address, ModuleInfo(address, type, ""))
        self._called[address] = None

    def _row(
        self,
        kind: int,
        type: str,
        shape: Iterable[int],
        dtype: str,
        scope: Sequence[Scope] | None,
        parents: Iterable[tuple[int, str]] = (),
        params: Iterable[str] = (),
        columns: Mapping[str, int] | None = None,
    ) -> int:
        """Add a row; ``columns`` are those of ``Ops`` that are not given otherwise."""
        row = len(self._scopes)
        shape = tuple(int(length) for length in shape)
        meta = Meta(shape, dtype, self._device, nbytes(shape, dtype))
        for parent, arg in parents:
            if not 0 <= parent < row:
                raise InputError(
                    f"Row {row} ({type}) names row {parent} as a parent, which is no earlier row."
                )
            self._edges.append((parent, row, _intern(self._args, arg)))
        for address in (self._shared.get(one, one) for one in params):
            if address not in self._params:
                raise InputError(
                    f"Row {row} ({type}) uses the parameter {address!r}, which was not declared."
                )
            self._op_params.append((row, address))
        values = {
            **_DEFAULTS,
            "kind": kind,
            "type": _intern(self._types, type),
            "meta": _intern(self._metas, meta),
            "event": row,
            **(columns or {}),
        }
        for name, value in values.items():
            self._columns[name].append(value)
        for one in scope or ():
            self._modules.setdefault(one.address, ModuleInfo(one.address, one.type, ""))
        self._scopes.append(None if scope is None else tuple(scope))
        return row

    # -- the graph -------------------------------------------------------------------------------------

    def graph(self, facts: Mapping[str, Any] | None = None) -> tuple[Graph, np.ndarray]:
        """Build the graph.

        Args:
            facts: Facts about the whole pass to store in it.

        Returns:
            The graph, and for each row that was added the row of the graph.
        """
        edges = np.array(self._edges, np.int64).reshape(-1, 3)
        order, calls_of_rows, calls = _nested(self._scopes, edges[:, 0].tolist(), edges[:, 1].tolist())
        rows = np.empty(len(order), np.int64)
        rows[order] = np.arange(len(order))
        columns = {name: np.array(column, np.int64)[order] for name, column in self._columns.items()}
        src, dst, arg = rows[edges[:, 0]], rows[edges[:, 1]], edges[:, 2]
        by_dst = np.argsort(dst, kind="stable")
        src, dst, arg = src[by_dst], dst[by_dst], arg[by_dst]
        numbers = {address: number for number, address in enumerate(self._params)}
        pairs = [(int(rows[row]), numbers[address]) for row, address in self._op_params]
        op_params = np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)
        # Operations are alike if their type and arguments are; -1 marks what is no operation.
        signature = np.where(columns["kind"] == OP, columns["setting"] + 1, -1)
        layer = find_layers(
            {**columns, "signature": signature}, {"src": src, "dst": dst, "arg": arg}, op_params
        )
        modules = self._module_infos(numbers)
        with_rows = {call.address for call in calls}
        inside = [address for address in self._called if address not in with_rows]
        exits, stated, parts = self._all_exits(calls_of_rows, calls, rows)
        graph = Graph(
            model=self._model,
            types=tuple(self._types),
            metas=tuple(self._metas),
            sites=tuple(self._sites),
            args=tuple(self._args),
            params=tuple(self._params.values()),
            modules=modules,
            ops=Ops(
                len(order),
                **columns,
                layer=layer,
                passno=occurrences(layer) + 1,
                call=np.array(calls_of_rows, np.int64)[order],
            ),
            edges=Edges(src, dst, arg),
            calls=self._calls(calls, rows, {module.address: n for n, module in enumerate(modules)}),
            op_params=op_params,
            exits=exits,
            buffers=tuple(self._buffers.values()),
            settings=tuple(self._settings),
            facts={
                **(facts or {}),
                **({"inside_operations": inside} if inside else {}),
                **({"shared_params": dict(self._shared)} if self._shared else {}),
                **{f"{OP_KINDS[end]}s": names for end, names in self._names.items() if any(names)},
            },
        )
        return with_returned(graph, stated, parts, rows[self._merged].tolist()), rows

    def _module_infos(self, numbers: Mapping[str, int]) -> tuple[ModuleInfo, ...]:
        """Return the modules with the numbers of their parameters and buffers."""
        params: dict[str, list[int]] = {}
        buffers: dict[str, list[int]] = {}
        for table, owned in ((numbers, params), ({a: n for n, a in enumerate(self._buffers)}, buffers)):
            for address, number in table.items():
                owned.setdefault(self._owner(address), []).append(number)
        for address, first in self._shared.items():
            held = params.setdefault(self._owner(address), [])
            held += [] if numbers[first] in held else [numbers[first]]
        return tuple(
            module._replace(params=tuple(params.get(address, ())), buffers=tuple(buffers.get(address, ())))
            for address, module in self._modules.items()
        )

    def _owner(self, address: str) -> str:
        """Return the address of the module that a parameter or buffer belongs to."""
        owner = self._owners.get(address, address.rpartition(".")[0])
        while owner not in self._modules:
            owner = owner.rpartition(".")[0]
        return owner

    def _calls(self, calls: Sequence[_Call], rows: np.ndarray, numbers: Mapping[str, int]) -> Calls:
        module = np.array([numbers[call.address] for call in calls], np.int64)
        inside: list[np.ndarray] = [rows[np.array(call.rows, np.int64)] for call in calls]
        return Calls(
            module=module,
            passno=occurrences(module) + 1,
            parent=np.array([call.parent for call in calls], np.int64),
            start=np.array([int(part.min()) if len(part) else 0 for part in inside], np.int64),
            stop=np.array([int(part.max()) + 1 if len(part) else 0 for part in inside], np.int64),
        )

    def _all_exits(
        self, calls_of_rows: Sequence[int], calls: Sequence[_Call], rows: np.ndarray
    ) -> tuple[np.ndarray, set[int], list[list[int]]]:
        """Return the tensors that leave calls.

        Returns:
            Pairs of a row and a call that it leaves; the calls that state what they return, whose pairs are
            that, in its order; and the calls that may be parts of one, as they are of one scope.
        """
        chains: list[list[int]] = []  # of every call: itself and those around it
        for number, call in enumerate(calls):
            chains.append([number, *(chains[call.parent] if call.parent >= 0 else ())])
        paths = [
            (self._scopes[call.rows[0]] or ())[: len(chain) - 1] if call.rows else ()
            for call, chain in zip(calls, chains, strict=True)
        ]
        last = {path: number for number, path in enumerate(paths)}  # of a call in parts, the last
        stated: dict[tuple[int, int], None] = {}  # in order
        for row, scope in self._exits:
            around = chains[calls_of_rows[row]] if calls_of_rows[row] >= 0 else []
            found = next((call for call in around if paths[call] == scope), last.get(scope, -1))
            if found >= 0:
                stated[row, found] = None
        known = {call for _, call in stated}
        read = set()
        for src, dst, _ in self._edges:
            around = chains[calls_of_rows[dst]] if calls_of_rows[dst] >= 0 else []
            if calls_of_rows[src] >= 0:
                read |= {(src, call) for call in chains[calls_of_rows[src]] if call not in around}
        unstated = sorted((int(rows[row]), call) for row, call in read if call not in known)
        pairs = [*((int(rows[row]), call) for row, call in stated), *unstated]
        parts: dict[tuple[Scope, ...], list[int]] = {}
        for number, path in enumerate(paths):
            if path:
                parts.setdefault(path, []).append(number)
        several = [some for some in parts.values() if len(some) > 1 and known.isdisjoint(some)]
        return np.array(pairs, np.int64).reshape(-1, 2), known, several


class _Call(NamedTuple):
    """A module call: the module's address, the number of the enclosing call, and its rows, also nested."""

    address: str
    parent: int
    rows: list[int]


def _intern(table: dict[Any, int], key: Hashable) -> int:
    return table.setdefault(key, len(table))


def _nested(
    scopes: Sequence[tuple[Scope, ...] | None], src: Sequence[int], dst: Sequence[int]
) -> tuple[list[int], list[int], list[_Call]]:
    """Order rows so that those of each module call are adjacent.

    Returns:
        The rows in order, the number of the innermost call of each row, and the calls, the model's first.
    """
    order: list[int] = []
    call_of = [-1] * len(scopes)
    outside = [row for row, scope in enumerate(scopes) if scope is None]
    calls = [_Call("", -1, [row for row, scope in enumerate(scopes) if scope is not None])]
    parents: list[list[int]] = [[] for _ in scopes]
    for one, other in zip(src, dst, strict=True):
        parents[other].append(one)

    def place(rows: list[int], depth: int, call: int) -> None:
        for scope, members in _items(rows, depth, scopes, parents):
            if scope is None:
                order.extend(members)
                for row in members:
                    call_of[row] = -1 if scopes[row] is None else call
            else:
                calls.append(_Call(scope.address, call, members))
                place(members, depth + 1, len(calls) - 1)

    place(sorted([*outside, *calls[0].rows]), 0, 0)
    return order, call_of, calls


def _items(
    rows: list[int],
    depth: int,
    scopes: Sequence[tuple[Scope, ...] | None],
    parents: Sequence[Sequence[int]],
) -> list[tuple[Scope | None, list[int]]]:
    """Group the rows of a call into its own rows and the calls inside of it, each after what it reads."""
    item_of: dict[int, int] = {}
    items: list[tuple[Scope | None, list[int]]] = []
    numbers: dict[Scope, int] = {}
    for row in rows:
        inner = scopes[row]
        scope = inner[depth] if inner is not None and len(inner) > depth else None
        number = numbers.setdefault(scope, len(items)) if scope is not None else len(items)
        if number == len(items):
            items.append((scope, []))
        items[number][1].append(row)
        item_of[row] = number
    while True:
        done, stuck = _sorted_items(items, item_of, parents)
        if not stuck:
            return [items[number] for number in done]
        # A call that both precedes and follows something cannot be an interval: split the first such.
        scope, members = items[stuck[0]]
        runs = _runs(members, rows)
        items[stuck[0]] = (scope, runs[0])
        for run in runs[1:]:
            for row in run:
                item_of[row] = len(items)
            items.append((scope, run))


def _sorted_items(
    items: Sequence[tuple[Scope | None, list[int]]],
    item_of: Mapping[int, int],
    parents: Sequence[Sequence[int]],
) -> tuple[list[int], list[int]]:
    """Sort items topologically, by their first row where there is a choice.

    Returns:
        The sorted items; and if there is a cycle, those calls of it and after it that are not contiguous.
    """
    needed: list[set[int]] = [set() for _ in items]
    for row, item in item_of.items():
        needed[item] |= {item_of[parent] for parent in parents[row] if item_of.get(parent, item) != item}
    dependents: list[list[int]] = [[] for _ in items]
    for item, some in enumerate(needed):
        for one in some:
            dependents[one].append(item)
    waiting = [len(some) for some in needed]
    ready = [(members[0], item) for item, (_, members) in enumerate(items) if not waiting[item]]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        _, item = heapq.heappop(ready)
        done.append(item)
        for other in dependents[item]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (items[other][1][0], other))
    if len(done) == len(items):
        return done, []
    left = set(range(len(items))) - set(done)
    position = {row: at for at, row in enumerate(sorted(item_of))}
    scattered = [
        item
        for item in left
        if position[items[item][1][-1]] - position[items[item][1][0]] >= len(items[item][1])
    ]
    return done, sorted(scattered, key=lambda item: items[item][1][0])


def _runs(members: Sequence[int], rows: Sequence[int]) -> list[list[int]]:
    """Split rows of a call into runs that are adjacent among the rows of the enclosing call."""
    position = dict(zip(rows, count()))
    runs: list[list[int]] = []
    for row in members:
        if runs and position[row] == position[runs[-1][-1]] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs
