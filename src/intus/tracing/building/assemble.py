"""From a recording to a Graph: pure functions of plain integers.

Orphans are trimmed, what is left is renumbered, layers and passes are found, lines of source looked up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any

import numpy as np
from torch.nn import Module as TorchModule

from ...core.graph import (
    BUFFER,
    FAILED,
    INPUT,
    OP_COLUMNS,
    OUTPUT,
    Calls,
    Edges,
    Graph,
    ModuleInfo,
    Ops,
    Source,
)
from ..capture.addresses import param_of
from ..capture.recording import CALL, ROW, Recording
from ..capture.sites import source_of
from .branches import find_branches
from .loops import find_layers, occurrences


def assemble(
    recording: Recording, model: str, facts: Mapping[str, Any]
) -> tuple[Graph, Callable[[int], int]]:
    """Build the graph; also returns what tells a recorded row's place in it, -1 where it was trimmed."""
    rows = _table(recording.rows, ROW)
    calls = _table(recording.calls, CALL)
    exits = np.array(recording.exits, dtype=np.int64).reshape(-1, 2)
    for column in (rows["event"], calls["start"], calls["stop"], exits[:, 0]):
        column //= len(ROW)  # from where a row begins in the flat list to its number; -1 stays what it is
    edges, op_params = _inputs(recording.inputs, rows["inputs"])

    reads = [read._replace(row=read.row // len(ROW), rows=read.rows // len(ROW)) for read in recording.reads]
    branches = find_branches(reads, recording.sites, rows["site"].tolist() if reads else [])
    ends = rows["kind"] == OUTPUT
    if recording.raised is not None:
        ends |= _blame(rows["flags"], recording)
    for branch in branches:
        ends[branch.row] = True  # what decides where the model goes is no orphan
    keep = _connected(rows["kind"], edges, ends, whole=recording.failure is not None)
    starts = np.zeros(len(keep) + 1, dtype=np.int64)  # where a recorded boundary falls in the kept rows
    np.cumsum(keep, out=starts[1:])
    where = np.where(keep, starts[:-1], -1)
    if starts[-1] < len(keep):
        rows = {name: column[keep] for name, column in rows.items()}
        edges = _sorted_edges(edges, where)
        op_params, exits = _renumber(op_params, where), _renumber(exits, where)
    layers = find_layers(rows, edges, op_params)
    settings, rows["setting"] = written_settings(recording.signatures, rows["signature"])
    rows["layer"], rows["passno"] = layers, occurrences(layers) + 1
    modules, forwards = _modules(recording)
    graph = Graph(
        model=model,
        types=tuple(recording.types),
        metas=tuple(recording.metas),
        sites=(*(source_of(code, at) for code, at in recording.sites), *forwards),
        args=tuple(recording.args),
        params=tuple(param_of(name, p) for name, p in recording.addresses.params),
        modules=modules,
        ops=Ops(len(layers), **{name: rows[name].astype(dtype) for name, dtype, *_ in OP_COLUMNS}),
        edges=Edges(**edges),
        calls=_calls(calls, starts),
        op_params=_unique(op_params),
        exits=exits,
        branches=tuple(branch._replace(row=int(where[branch.row])) for branch in branches),
        buffers=tuple(param_of(name, t) for name, t in recording.addresses.buffers),
        settings=settings,
        error=_error_text(recording.failure),
        facts={**facts, **{end: list(names) for end, names in recording.ends.items() if any(names)}},
    )
    place = where.item  # of all ways to read one number the quickest
    return graph, lambda row: place(row // len(ROW))


def _blame(flags: np.ndarray, recording: Recording) -> np.ndarray:
    """Which operation failed: the one whose very exception ended the pass; the others the model caught."""
    culprit = -1
    if recording.raised is not None and recording.failure is not None:
        row, error = recording.raised
        culprit = (
            row // len(ROW) if error is recording.failure or error is recording.failure.__cause__ else -1
        )
    failed = np.flatnonzero(flags & FAILED)
    flags[failed[failed != culprit]] &= ~FAILED
    recording.raised = None  # an exception holds its frames, and they hold us
    return flags & FAILED > 0


def _table(flat: list[int], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    whole = np.array(flat, dtype=np.int64).reshape(-1, len(names))
    return dict(zip(names, np.ascontiguousarray(whole.T), strict=True))


def _inputs(flat: list[int], counts: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What went into each row: edges from other rows, and pairs of a row and a parameter's number."""
    source, arg = np.array(flat, dtype=np.int64).reshape(-1, 2).T
    into = np.arange(len(counts)).repeat(counts // 2)
    param = source < 0
    row = ~param
    edges = {"src": source[row] // len(ROW), "dst": into[row], "arg": arg[row]}
    return edges, _pairs(into[param], -1 - source[param])


def _pairs(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    out = np.empty((len(one), 2), dtype=np.int64)
    out[:, 0], out[:, 1] = one, other
    return out


def _connected(
    kind: np.ndarray, edges: Mapping[str, np.ndarray], ends: np.ndarray, *, whole: bool
) -> np.ndarray:
    """Rows that descend from an input or lead to an end. When the pass did not end, everything may have been
    on its way to one, but for what only counts in the model's own buffers (BatchNorm's batches)."""
    srcs, dsts = edges["src"].tolist(), edges["dst"].tolist()  # in the order of dst: time only moves on
    to_output = ends.tolist()
    for src, dst in zip(reversed(srcs), reversed(dsts), strict=True):
        if to_output[dst]:
            to_output[src] = True
    if all(to_output):
        return np.ones(len(kind), dtype=bool)
    whole = whole or not (kind == OUTPUT).any()
    starts = (kind != BUFFER) & ~np.isin(np.arange(len(kind)), edges["dst"]) if whole else kind == INPUT
    from_input = starts.tolist()
    for src, dst in zip(srcs, dsts, strict=True):
        if from_input[src]:
            from_input[dst] = True
    either: np.ndarray = np.array(from_input, dtype=bool) | np.array(to_output, dtype=bool)
    return either


def _sorted_edges(edges: Mapping[str, np.ndarray], where: np.ndarray) -> dict[str, np.ndarray]:
    src, dst = where[edges["src"]], where[edges["dst"]]
    kept = (src >= 0) & (dst >= 0)
    order = np.argsort(dst[kept], kind="stable")
    return {"src": src[kept][order], "dst": dst[kept][order], "arg": edges["arg"][kept][order]}


def _renumber(pairs: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Pairs whose first half is a row, with the rows renumbered and those of trimmed rows dropped."""
    if not len(pairs):
        return pairs
    rows = where[pairs[:, 0]]
    return _pairs(rows[rows >= 0], pairs[rows >= 0, 1])


def _unique(pairs: np.ndarray) -> np.ndarray:
    """Each pair once, in order; as single numbers they sort several times faster.

    >>> _unique(np.array([[2, 0], [1, 7], [2, 0]])).tolist()
    [[1, 7], [2, 0]]
    """
    base = int(pairs[:, 1].max(initial=0)) + 1
    numbers = pairs[:, 0] * base + pairs[:, 1]
    if (numbers[1:] > numbers[:-1]).all():  # as they mostly come
        return pairs
    return _pairs(*np.divmod(np.unique(numbers), base))


def _calls(calls: Mapping[str, np.ndarray], starts: np.ndarray) -> Calls:
    return Calls(
        module=calls["module"].astype(np.int32),
        passno=(occurrences(calls["module"]) + 1).astype(np.int32),
        parent=calls["parent"].astype(np.int32),
        start=starts[calls["start"]],
        stop=starts[calls["stop"]],  # the last, -1, for a call that an exception cut short
    )


def _arguments(module: Any) -> str:
    """What the module's own repr says between its brackets: ``3, 8, kernel_size=(3, 3)``."""
    try:
        return str(module.extra_repr())[:500] if hasattr(module, "extra_repr") else ""
    except Exception:  # a user's extra_repr may rely on what only exists elsewhere
        return ""


def _modules(recording: Recording) -> tuple[tuple[ModuleInfo, ...], list[Source]]:
    """The modules, and where their classes' ``forward`` is written, which are numbered after the sites."""
    addresses, numbers = recording.addresses, dict[Any, int]()
    forwards: list[Source] = []
    modules = []
    for name, module in zip(addresses.names, addresses.modules, strict=True):
        code = _forward(type(module))
        if code is not None and code not in numbers:
            numbers[code] = len(recording.sites) + len(forwards)
            forwards.append(Source(code.co_filename, code.co_firstlineno, code.co_qualname))
        modules.append(
            ModuleInfo(
                name,
                type(module).__name__,
                _arguments(module),
                bool(module.training),
                numbers.get(code, -1),
                _known(module._parameters, addresses.sources),
                _known(module._buffers, addresses.sources),
            )
        )
    return tuple(modules), forwards


def _forward(class_: type) -> CodeType | None:
    """The code of a class's own ``forward``, below what decorates it."""
    function = getattr(class_, "forward", None)
    if function is None or function is TorchModule.forward:
        return None
    return getattr(inspect.unwrap(function), "__code__", None)


def _known(held: Mapping[str, Any], sources: Mapping[int, tuple[str, int]]) -> tuple[int, ...]:
    """The numbers of a module's own parameters or buffers, as they were named before the pass."""
    return tuple(sources[id(t)][1] for t in held.values() if t is not None and id(t) in sources)


def written_settings(
    signatures: Mapping[tuple[Any, ...], int], column: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray]:
    """What calls were given besides tensors as texts, and which of them is each row's, -1 for none.

    >>> written_settings({(0, ("", (3, 3)), ("stride", 2)): 0, (1,): 1}, np.array([1, 0, -1, 0]))
    (('(3, 3), stride=2',), array([-1,  0, -1,  0], dtype=int32))
    """
    numbers: dict[str, int] = {"": -1}
    of = np.full(len(signatures) + 1, -1, np.int32)  # the last for rows without a signature
    for atoms, number in signatures.items():
        of[number] = numbers.setdefault(_written(atoms[1:]), len(numbers) - 1)
    del numbers[""]
    return tuple(numbers), of[np.maximum(column, -1)]


def _written(atoms: Iterable[Any]) -> str:
    pairs = (atom if type(atom) is tuple else ("", atom) for atom in atoms)
    return ", ".join(
        (f"{name}={value!r}" if name else repr(value))[:200] for name, value in pairs if name is not None
    )


def _error_text(failure: BaseException | None) -> str:
    return f"{type(failure).__name__}: {failure}" if failure is not None else ""
