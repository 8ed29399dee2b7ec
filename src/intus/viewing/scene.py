"""The scene: a Graph as JSON columns, what a saved file carries and the server sends to the page.

The page's side of this contract is ``web/src/graph/model/scene.ts``. Nothing is laid out or decided here;
names are interned as in the Graph, so that a hundred thousand operations stay a few megabytes.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.flops import flops
from ..core.graph import OP, OP_COLUMNS, Graph, Source

VERSION = 1
_ON_PAGE = {column.name for column in OP_COLUMNS if column.on_page}
#: How the passes of a layer that is shown as one are put together, for columns where not the first counts.
_ROLLED = {column.name: column.rolled for column in OP_COLUMNS if column.rolled != "first"} | {"flops": "sum"}
_LONGEST_LINE = 160


def scene(graph: Graph, *, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Turn a graph into a JSON-able dict of columns.

    Rows of ``ops`` are the graph's rows, with their labels; ``calls`` are its module calls, with their
    addresses; ``flops`` is null where not known, ``setting`` -1 where a call was given nothing but tensors;
    ``totals`` are what the header shows (bytes in bytes, seconds in seconds). ``values`` are columns of what
    saved activations looked like: ``row``, ``mean``, ``std``, ``low``, ``high``, ``nan`` and ``inf``
    (counts), ``zero`` (share), ``histogram`` (counts of equally wide bins), and ``picture`` (see
    ``tracing.thumbnails``), null for none.
    """
    ops, calls = graph.ops, graph.calls
    return {
        "version": VERSION,
        "model": graph.model,
        "types": list(graph.types),
        "metas": [[list(m.shape), m.dtype, m.device, m.nbytes] for m in graph.metas],
        "sites": [[*site, _line(site)] for site in graph.sites],
        "args": list(graph.args),
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
        "edges": {name: getattr(graph.edges, name).tolist() for name in ("src", "dst", "arg")},
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
    """The text of a line of source, as tracebacks read it; ``""`` where it cannot be read."""
    return linecache.getline(site.file, site.line).strip()[:_LONGEST_LINE] if site.line else ""


def _facts(graph: Graph) -> dict[str, Any]:
    facts = dict(graph.facts)
    raised = facts.get("raised")
    if raised:  # the line that raised, where no operation did
        facts["raised"] = raised | {"text": _line(Source(raised["file"], raised["line"], raised["function"]))}
    return facts


def totals(graph: Graph) -> dict[str, float]:
    """What a header says of a graph: operations, modules, parameters (also those trained), the parameters'
    and the activations' bytes, and the seconds its operations took."""
    ran = graph.ops.kind == OP
    sizes = np.array([meta.nbytes for meta in graph.metas], dtype=np.int64)
    seconds = finite(graph.facts.get("seconds"))
    return {
        "operations": len(graph),
        "modules": sum(1 for module in graph.modules if module.address),
        "parameters": sum(math.prod(p.shape) for p in graph.params),
        "trainable": sum(math.prod(p.shape) for p in graph.params if p.trainable),
        "bytes": sum(p.nbytes for p in graph.params),
        "activations": int(sizes[graph.ops.meta[ran]].sum()) if ran.any() else 0,
        "seconds": float(graph.ops.time.sum()) / 1e9 if seconds is None else float(seconds),
    }


def finite(value: Any) -> Any:
    """The value with every NaN and infinity replaced by None, which is what JSON has for them."""
    if isinstance(value, dict):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
