"""Read ONNX files: the graph with onnx, values with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...core.traced import Traced
from .graph import build
from .inlining import constants, inline
from .inputs import feeds
from .loading import array_of, structure, whole
from .running import as_numpy, run


def read(path: Path, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Traced:
    """Return the graph of an ONNX file and, if inputs are given, values; see ``reading.read``."""
    model = structure(path)
    inlined = inline(model, path)
    values: dict[str, np.ndarray] = {}
    missing: list[str] = []
    weights: dict[str, onnx.TensorProto] = {}
    if inputs or named:
        given = feeds(model, path, inputs, named)
        complete = inline(whole(path), path).model
        values, missing = run(complete, path, given)
        values |= {name: as_numpy(value) for name, value in given.items() if isinstance(value, np.ndarray)}
        weights = constants(complete)
    facts: dict[str, Any] = {
        "format": "ONNX",
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "version": f"IR {model.ir_version}",
        "opsets": {one.domain or "ai.onnx": one.version for one in model.opset_import},
    }
    if missing:
        facts["notes"] = missing
    graph, names = build(inlined, path, values, facts)
    known = {row: values[name] for row, name in names.items() if name in values}
    for row in names.keys() - known.keys():
        array = array_of(weights[names[row]], path) if names[row] in weights else None
        if array is not None:
            known[row] = as_numpy(array)
    return Traced(graph, known)
