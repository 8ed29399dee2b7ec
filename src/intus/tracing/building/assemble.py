"""Build a Graph from a recording with pure functions of integers.

Rows that neither descend from an input nor lead to an end of the pass (orphans) are dropped, and the rest is
renumbered. Then layers and passes are found, and source lines are looked up. The three numberings of rows are
described in ``capture.recording``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any

import numpy as np
from torch.nn import Module as TorchModule

from ...core.analysis.loops import find_layers, occurrences
from ...core.graph import (
    BUFFER,
    FAILED,
    INPUT,
    OP_COLUMNS,
    OUTPUT,
    PARAMETER,
    Calls,
    Edges,
    Graph,
    ModuleInfo,
    Ops,
    Source,
)
from ..capture.addresses import param_of
from ..capture.argument_names import of_functions
from ..capture.recording import CALL, ROW, Recording
from ..capture.sites import source_of
from .branches import find_branches
from .escape import escaped


def assemble(
    recording: Recording, model: str, facts: Mapping[str, Any]
) -> tuple[Graph, Callable[[int], int]]:
    """Build the graph of a recording.

    Args:
        recording: The recording.
        model: The name of the model.
        facts: Facts about the pass to store in the graph.

    Returns:
        The graph, and a function from the offset of a tensor to its row in the graph, -1 if it was dropped.
    """
    rows = _table(recording.rows, ROW)
    calls = _table(recording.calls, CALL)
    exits = np.array(recording.exits, dtype=np.int64).reshape(-1, 2)
    for column in (rows["event"], calls["start"], calls["stop"], exits[:, 0]):
        column //= len(ROW)  # from offsets to recorded rows; -1 remains -1
    edges, op_params = _inputs(recording.inputs, rows["inputs"], rows["kind"])

    sites_of_rows = rows["site"].tolist() if recording.reads else []
    branches = find_branches(recording.reads, recording.sites, sites_of_rows)
    ends = rows["kind"] == OUTPUT
    if recording.raised is not None:
        ends |= _failed_row(rows["flags"], recording)
    for branch in branches:
        ends[branch.row] = True  # a tensor that decides a branch is no orphan
    for offset in recording.state_writes:
        ends[offset // len(ROW)] = True  # neither is a write into a buffer
    keep = _connected(rows["kind"], edges, ends, whole=recording.failure is not None)
    starts = np.zeros(len(keep) + 1, dtype=np.int64)  # by recorded row: the number of kept rows before it
    np.cumsum(keep, out=starts[1:])
    graph_rows = np.full(len(keep) + 1, -1)  # the last is for a row that an interrupt prevented
    graph_rows[:-1][keep] = starts[:-1][keep]
    if starts[-1] < len(keep):
        rows = {name: column[keep] for name, column in rows.items()}
        edges = _sorted_edges(edges, graph_rows)
        op_params, exits = _renumber(op_params, graph_rows), _renumber(exits, graph_rows)
    layers = find_layers(rows, edges, op_params)
    settings, rows["setting"] = settings_of(recording.signatures, rows["signature"])
    rows["layer"], rows["passno"] = layers, occurrences(layers) + 1
    modules, forwards = _modules(recording)
    second_names = recording.addresses.second_names()
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
        branches=tuple(branch._replace(row=int(graph_rows[branch.row])) for branch in branches),
        buffers=tuple(param_of(name, t) for name, t in recording.addresses.buffers),
        settings=settings,
        error=_error_text(recording.failure),
        facts={
            **facts,
            **({"second_names": second_names} if second_names else {}),
            **{end: list(names) for end, names in recording.end_names.items() if any(names)},
            "arguments": _argument_names(recording, rows["type"][edges["dst"]], edges["arg"]),
        },
    )
    item = graph_rows.item  # the fastest way to read one number of an array
    return escaped(graph), lambda offset: item(offset // len(ROW))


def _argument_names(recording: Recording, types: np.ndarray, args: np.ndarray) -> dict[str, list[str]]:
    """Return the names of the positional arguments of every type of operation that takes several tensors.

    Args:
        recording: The recording.
        types: The number of the type of the operation at the end of each edge.
        args: The number of the argument of each edge.
    """
    later = np.array([name != "0" and name[:1].isdigit() for name in recording.args], dtype=bool)
    names = (recording.types[number] for number in np.unique(types[later[args]]).tolist())
    return {name: list(of_functions(name, recording.functions.get(name, ()))) for name in names}


def _failed_row(flags: np.ndarray, recording: Recording) -> np.ndarray:
    """Return a mask of the operation whose exception ended the pass; clear the FAILED flag of all others."""
    failed_row = -1
    if recording.raised is not None and recording.failure is not None:
        offset, error = recording.raised
        failed_row = (
            offset // len(ROW) if error is recording.failure or error is recording.failure.__cause__ else -1
        )
    raised = np.flatnonzero(flags & FAILED)
    flags[raised[raised != failed_row]] &= ~FAILED
    recording.raised = None  # the exception refers to frames that refer to the recording
    return flags & FAILED > 0


def _table(flat: list[int], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    whole = np.array(flat, dtype=np.int64).reshape(-1, len(names))
    return dict(zip(names, np.ascontiguousarray(whole.T), strict=True))


def _inputs(
    flat: list[int], counts: np.ndarray, kind: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Split the inputs of rows into edges between rows, and pairs of a row and a parameter's number.

    What takes a parameter from a module that returned it has both: an edge from its row, and the parameter.
    """
    source, arg = np.array(flat, dtype=np.int64).reshape(-1, 2).T
    into = np.arange(len(counts)).repeat(counts // 2)
    param = source < 0
    row = ~param
    edges = {"src": source[row] // len(ROW), "dst": into[row], "arg": arg[row]}
    op_params = _pairs(into[param], -1 - source[param])
    returned = op_params[kind[op_params[:, 0]] == PARAMETER]
    if len(returned):
        number = np.full(len(counts), -1)
        number[returned[:, 0]] = returned[:, 1]
        taken = number[edges["src"]]
        op_params = np.concatenate([op_params, _pairs(edges["dst"], taken)[taken >= 0]])
        op_params = op_params[np.argsort(op_params[:, 0], kind="stable")]
    return edges, op_params


def _pairs(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    out = np.empty((len(one), 2), dtype=np.int64)
    out[:, 0], out[:, 1] = one, other
    return out


def _connected(
    kind: np.ndarray, edges: Mapping[str, np.ndarray], ends: np.ndarray, *, whole: bool
) -> np.ndarray:
    """Return a mask of the rows that descend from an input or lead to one of ``ends``, and their ancestors.

    With ``whole`` (the pass did not finish), or without any output, all rows are kept except those that
    descend only from buffers and parameters: any other row might have led to an output.
    """
    srcs, dsts = edges["src"].tolist(), edges["dst"].tolist()  # sorted by dst, and src < dst
    to_output = ends.tolist()
    for src, dst in zip(reversed(srcs), reversed(dsts), strict=True):
        if to_output[dst]:
            to_output[src] = True
    if all(to_output):
        return np.ones(len(kind), dtype=bool)
    if whole or not (kind == OUTPUT).any():
        computed = np.isin(np.arange(len(kind)), edges["dst"])
        from_input = (~computed & ~np.isin(kind, (BUFFER, PARAMETER))).tolist()
    else:
        from_input = (kind == INPUT).tolist()
    for src, dst in zip(srcs, dsts, strict=True):
        if from_input[src]:
            from_input[dst] = True
    keep = [one or other for one, other in zip(from_input, to_output, strict=True)]
    for src, dst in zip(reversed(srcs), reversed(dsts), strict=True):
        if keep[dst]:  # an operation that leads nowhere still shows all that it was computed from
            keep[src] = True
    return np.array(keep, dtype=bool)


def _sorted_edges(edges: Mapping[str, np.ndarray], graph_rows: np.ndarray) -> dict[str, np.ndarray]:
    src, dst = graph_rows[edges["src"]], graph_rows[edges["dst"]]
    kept = (src >= 0) & (dst >= 0)
    order = np.argsort(dst[kept], kind="stable")
    return {"src": src[kept][order], "dst": dst[kept][order], "arg": edges["arg"][kept][order]}


def _renumber(pairs: np.ndarray, graph_rows: np.ndarray) -> np.ndarray:
    """Renumber the rows that are the first members of pairs, and drop the pairs of dropped rows."""
    if not len(pairs):
        return pairs
    rows = graph_rows[pairs[:, 0]]
    return _pairs(rows[rows >= 0], pairs[rows >= 0, 1])


def _unique(pairs: np.ndarray) -> np.ndarray:
    """Return each pair once, sorted; encoded as single integers, pairs sort several times faster.

    Example:
        >>> _unique(np.array([[2, 0], [1, 7], [2, 0]])).tolist()
        [[1, 7], [2, 0]]
    """
    base = int(pairs[:, 1].max(initial=0)) + 1
    numbers = pairs[:, 0] * base + pairs[:, 1]
    if (numbers[1:] > numbers[:-1]).all():  # usually they are sorted already
        return pairs
    return _pairs(*np.divmod(np.unique(numbers), base))


def _calls(calls: Mapping[str, np.ndarray], starts: np.ndarray) -> Calls:
    return Calls(
        module=calls["module"].astype(np.int32),
        passno=(occurrences(calls["module"]) + 1).astype(np.int32),
        parent=calls["parent"].astype(np.int32),
        start=starts[calls["start"]],
        stop=starts[calls["stop"]],  # -1, of a call that never ended, selects the last entry: the end
    )


def _arguments(module: Any) -> str:
    """Return the arguments that a module's repr shows: ``3, 8, kernel_size=(3, 3)``."""
    try:
        return str(module.extra_repr())[:500] if hasattr(module, "extra_repr") else ""
    except Exception:  # extra_repr is user code, which may raise anything
        return ""


def _modules(recording: Recording) -> tuple[tuple[ModuleInfo, ...], list[Source]]:
    """Return the modules, and the sources of their ``forward``, which are numbered after the sites."""
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
                bool(getattr(module, "training", False)),  # a frozen ScriptModule has none
                numbers.get(code, -1),
                _numbers(module._parameters, addresses.sources),
                _numbers(module._buffers, addresses.sources),
            )
        )
    return tuple(modules), forwards


def _forward(class_: type) -> CodeType | None:
    """Return the code of a class's ``forward``, without its decorators; None if it has none."""
    function = getattr(class_, "forward", None)
    if function is None or function is TorchModule.forward:
        return None
    return getattr(inspect.unwrap(function), "__code__", None)


def _numbers(tensors: Mapping[str, Any], sources: Mapping[int, tuple[str, int]]) -> tuple[int, ...]:
    """Return the numbers of those of a module's parameters or buffers that existed before the pass."""
    return tuple(sources[id(t)][1] for t in tensors.values() if t is not None and id(t) in sources)


def settings_of(
    signatures: Mapping[tuple[Any, ...], int], column: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the arguments of calls other than tensors as texts.

    Args:
        signatures: The numbers of the arguments; see ``Recording.signatures``.
        column: The number of each row; below zero if it has none.

    Returns:
        The distinct texts, and for each row the index of its text, -1 for none.

    Example:
        >>> settings_of({(0, ("", (3, 3)), ("stride", 2)): 0, (1,): 1}, np.array([1, 0, -1, 0]))
        (('(3, 3), stride=2',), array([-1,  0, -1,  0], dtype=int32))
    """
    numbers: dict[str, int] = {"": -1}
    text_numbers = np.full(len(signatures) + 1, -1, np.int32)  # the last is for rows without a signature
    for atoms, number in signatures.items():
        text_numbers[number] = numbers.setdefault(_as_text(atoms[1:]), len(numbers) - 1)
    del numbers[""]
    return tuple(numbers), text_numbers[np.maximum(column, -1)]


def _as_text(atoms: Iterable[Any]) -> str:
    pairs = (atom if type(atom) is tuple else ("", atom) for atom in atoms)
    return ", ".join(
        (f"{name}={value!r}" if name else repr(value))[:200] for name, value in pairs if name is not None
    )


def _error_text(failure: BaseException | None) -> str:
    return f"{type(failure).__name__}: {failure}" if failure is not None else ""
