"""Run a symbol of MXNet with every tensor as an output."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import InputError
from .graph import Symbol


def run(symbol: Symbol, file: Path, inputs: Mapping[str, np.ndarray]) -> dict[tuple[int, int], np.ndarray]:
    """Return the values of all tensors of a symbol by node and output, in evaluation mode.

    Args:
        symbol: The symbol.
        file: The file of its parameters.
        inputs: Its inputs by name.

    Raises:
        InputError: If MXNet is not installed.
    """
    try:
        mx: Any = importlib.import_module("mxnet")
    except ImportError as error:
        raise InputError(
            f"Values of {file.name} need MXNet, which is not installed here. Read the symbol without inputs "
            "to see its graph, or read it where MXNet is."
        ) from error
    ops = [entry for entry in symbol.entries if symbol.nodes[entry[0]]["op"] != "null"]
    graph = {**symbol.graph, "heads": [[node, output, 0] for node, output in ops]}
    graph.pop("node_row_ptr", None)
    whole = mx.symbol.load_json(json.dumps(graph))
    loaded = {name.partition(":")[2]: one for name, one in mx.nd.load(str(file)).items()}
    loaded |= {name: mx.nd.array(one, dtype=one.dtype) for name, one in inputs.items()}
    # An executor would merge operations for oneDNN, and then return something else for those inside.
    with mx.autograd.pause(train_mode=False):
        results = mx.nd.CachedOp(whole)(*(loaded[name] for name in whole.list_inputs()))
    results = results if isinstance(results, list) else [results]
    values = {entry: one.asnumpy() for entry, one in zip(ops, results, strict=True)}
    for number, node in enumerate(symbol.nodes):
        if node["op"] == "null" and node["name"] in inputs:
            values[number, 0] = inputs[node["name"]]
    return values
