"""Convert a graph to a scene: JSON columns that saved files contain and the server sends to the page.

``web/src/graph/model/scene.ts`` declares the same format for the page. A scene has no layout. Names are
stored once and referenced by index, as in the Graph, so a hundred thousand operations take a few megabytes.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.analysis.flops import flops, runs
from ..core.graph import OP, OP_COLUMNS, OUTPUT, Graph, Source, elements, size_in_bytes

VERSION = 1
_ON_PAGE = {column.name for column in OP_COLUMNS if column.on_page}
#: How the page combines a column over the passes of a rolled layer. In other columns the first pass counts.
_ROLLED = {column.name: column.rolled for column in OP_COLUMNS if column.rolled != "first"} | {"flops": "sum"}
_LONGEST_LINE = 160


def scene(graph: Graph, *, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Convert a graph to a JSON-able dict of columns.

    Args:
        graph: The graph.
        values: Summaries of the saved activations, one entry per activation in each column: ``row`` (the
            graph's row), ``mean``, ``std``, ``low``, ``high``, ``nan`` and ``inf`` (counts), ``zero``
            (fraction of the finite values), ``histogram`` (counts of equally wide bins) and ``picture`` (see
            ``tracing.results.value_summary``; null for none). ``params`` has such columns for parameters,
            with ``param`` instead of ``row``. Default: none.

    Returns:
        A dict whose keys ``web/src/graph/model/scene.ts`` documents. ``ops`` has one entry per row of the
        graph: its label, the columns that ``OP_COLUMNS`` marks for the page, and ``flops`` (null where
        unknown). ``setting`` is -1 for calls without arguments other than tensors. ``calls`` are the module
        calls. ``totals`` are the figures of the header; see ``totals``.
    """
    ops, calls = graph.ops, graph.calls
    args, arg = _arguments(graph)
    return {
        "version": VERSION,
        "model": graph.model,
        "types": list(graph.types),
        "metas": [[list(m.shape), m.dtype, m.place, m.nbytes] for m in graph.metas],
        "sites": [[*site, _line(site)] for site in graph.sites],
        "args": args,
        "settings": list(graph.settings),
        "params": [[p.address, list(p.shape), p.dtype, p.nbytes, p.trainable] for p in graph.params],
        "modules": [list(module) for module in graph.modules],
        "branches": [list(branch) for branch in graph.branches],
        "ops": {
            "label": graph.labels,
            **{name: column.tolist() for name, column in ops.columns().items() if name in _ON_PAGE},
            "flops": [count if count >= 0 else None for count in flops(graph).tolist()],
        },
        "rolled": _ROLLED,
        "edges": {"src": graph.edges.src.tolist(), "dst": graph.edges.dst.tolist(), "arg": arg},
        "calls": {
            "address": [graph.call_address(call) for call in range(len(calls))],
            **{name: getattr(calls, name).tolist() for name in ("module", "passno", "parent")},
            **{name: getattr(calls, name).tolist() for name in ("start", "stop")},
        },
        "opParams": {
            "op": graph.op_params[:, 0].tolist(),
            "param": graph.op_params[:, 1].tolist(),
        },
        "values": None if values is None else finite(dict(values)),
        "totals": totals(graph),
        "error": graph.error,
        "facts": finite(_facts(graph)),
    }


def _line(site: Source) -> str:
    """Return the text of a source line, read as tracebacks read it, or ``""`` if it cannot be read."""
    return linecache.getline(site.file, site.line).strip()[:_LONGEST_LINE] if site.line else ""


def _arguments(graph: Graph) -> tuple[list[str], list[int]]:
    """Return the names of arguments, of positional ones after torch's signatures, and the index of each edge.

    An element of a sequence of tensors has its position in the sequence as its name: ``"3"`` in
    ``cat(tensors)``.
    """
    types = graph.ops.type[graph.edges.dst].tolist()
    signatures = graph.facts.get("arguments") or {}
    numbers: dict[str, int] = {}
    known: dict[tuple[int, int], int] = {}
    column = []
    for pair in zip(types, graph.edges.arg.tolist(), strict=True):
        if pair not in known:
            type_, arg = pair
            name = _argument(graph.args[arg], signatures.get(graph.types[type_], ()))
            known[pair] = numbers.setdefault(name, len(numbers))
        column.append(known[pair])
    return list(numbers), column


def _argument(path: str, names: Sequence[str]) -> str:
    """Return the name of an argument, given its path in the call and the names of positional parameters.

    >>> _argument("1", ["query", "key"]), _argument("1.0", ["input", "hx"]), _argument("0.3", ["tensors"])
    ('key', 'hx.0', '3')
    """
    position, _, rest = path.partition(".")
    name = names[int(position)] if position.isdigit() and int(position) < len(names) else ""
    if not name:
        return path
    return rest if rest and name == "tensors" else f"{name}.{rest}" if rest else name


def _facts(graph: Graph) -> dict[str, Any]:
    facts = {name: fact for name, fact in graph.facts.items() if name != "arguments"}
    raised = facts.get("raised")
    if raised:  # code of a module raised, not an operation
        facts["raised"] = raised | {"text": _line(Source(raised["file"], raised["line"], raised["function"]))}
    return facts


def totals(graph: Graph) -> dict[str, Any]:
    """Return the totals of a graph.

    Returns:
        A dict with the number of ``operations``, ``modules``, ``parameters`` and ``trainable`` parameters,
        ``bytes`` (of the parameters), ``activations`` (bytes of the results of operations that ran; of a loop
        those of one iteration), ``tensors`` and ``tensorBytes`` (of inputs, buffers, constants and results of
        operations), and ``seconds`` (of the pass where it was measured, else the sum over the operations).
        The number and the bytes of parameters are None if a length of one is unknown.
    """
    ran, tensors = (graph.ops.kind == OP) & (runs(graph) != 0), graph.ops.kind != OUTPUT
    sizes = np.array([meta.nbytes for meta in graph.metas], dtype=np.int64)
    seconds = finite(graph.facts.get("seconds"))
    return {
        "operations": len(graph),
        "modules": sum(1 for module in graph.modules if module.address),
        "parameters": elements(graph.params),
        "trainable": elements(p for p in graph.params if p.trainable),
        "bytes": size_in_bytes(graph.params),
        "activations": int(sizes[graph.ops.meta[ran]].sum()) if ran.any() else 0,
        "tensors": int(tensors.sum()),
        "tensorBytes": int(sizes[graph.ops.meta[tensors]].sum()) if tensors.any() else 0,
        "seconds": float(graph.ops.time.sum()) / 1e9 if seconds is None else float(seconds),
    }


def finite(value: Any) -> Any:
    """Replace every NaN and infinity in a nested value by None, because JSON cannot represent them."""
    if isinstance(value, dict):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
