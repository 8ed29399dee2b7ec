"""The facts about a forward pass as columns for a DataFrame or a networkx graph, one entry per tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from .analysis.facts import Facts
from .graph import CREATED, FAILED, INPLACE, OP_KINDS, Graph, elements, size_in_bytes


def columns(facts: Facts) -> dict[str, list[Any]]:
    """Return every fact that is a single number, text or short list, as columns by name.

    Args:
        facts: The facts of a graph.

    Returns:
        Lists with one entry per row of the graph, by column name. Sizes are in bytes and times in seconds;
        None means unknown or not applicable.
    """
    graph = facts.graph
    ops = graph.ops
    rows = range(len(ops))
    metas = [graph.metas[meta] for meta in ops.meta.tolist()]
    layers = ops.layer.tolist()
    calls = [graph.call_address(call) for call in range(len(graph.calls))]
    params = [[graph.params[number] for number in graph.row_params.get(row, ())] for row in rows]
    return {
        "label": graph.labels,
        "layer": [graph.layer_label(layer) for layer in layers],
        "pass": ops.passno.tolist(),
        "number": facts.number.tolist(),
        "type": [graph.type_of(row) for row in rows],
        "kind": [OP_KINDS[kind] for kind in ops.kind.tolist()],
        "shape": [meta.shape for meta in metas],
        "dtype": [meta.dtype for meta in metas],
        "device": [meta.device for meta in metas],
        "bytes": [meta.nbytes for meta in metas],
        "seconds": (ops.time / 1e9).tolist(),
        "flops": _known(facts.flops),
        "macs": _known(facts.macs),
        "module": [calls[call] if call >= 0 else None for call in ops.call.tolist()],
        "output_of": [[calls[call] for call in graph.returned_by(row)] for row in rows],
        "parameters": [elements(some) for some in params],
        "parameter_bytes": [size_in_bytes(some) for some in params],
        "non_tensor_args": _settings(graph),
        "parents": _parents(graph),
        "num_consumers": np.bincount(graph.edges.src, minlength=len(ops)).tolist(),
        "min_distance_from_input": _known(facts.from_input[0]),
        "max_distance_from_input": _known(facts.from_input[1]),
        "min_distance_from_output": _known(facts.to_output[0]),
        "max_distance_from_output": _known(facts.to_output[1]),
        **{name: (ops.flags & bit > 0).tolist() for name, bit in _FLAGS.items()},
        "in_condition": [row in facts.deciding for row in rows],
        "source": _sources(graph),
    }


_FLAGS = {"in_place": INPLACE, "is_factory": CREATED, "failed": FAILED}
#: Integer columns whose entries may be None.
NUMBERS = (
    "flops",
    "macs",
    "parameters",
    "parameter_bytes",
    *(f"{m}_distance_{w}" for m in ("min", "max") for w in ("from_input", "from_output")),
)


def _known(column: np.ndarray) -> list[int | None]:
    """Replace negative numbers, which mean unknown, by None."""
    return [number if number >= 0 else None for number in column.tolist()]


def _settings(graph: Graph) -> list[str]:
    return [graph.setting(row) for row in range(len(graph.ops))]


def _parents(graph: Graph) -> list[list[str]]:
    found: list[dict[str, None]] = [{} for _ in range(len(graph.ops))]
    for src, dst in zip(graph.edges.src.tolist(), graph.edges.dst.tolist(), strict=True):
        found[dst][graph.labels[src]] = None
    return [list(labels) for labels in found]


def _sources(graph: Graph) -> list[str]:
    texts = [f"{site.file}:{site.line}" for site in graph.sites]
    return [texts[site] if site >= 0 else "" for site in graph.ops.site.tolist()]
