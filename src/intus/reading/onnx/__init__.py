"""Read ONNX files: the graph with onnx, values with onnxruntime."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...core.errors import require
from ...core.graph import Graph
from ...core.traced import Traced
from .blocked import blocked_weights, weight_in_order
from .graph import build
from .inlining import constants, inline
from .inputs import defaults, feeds, settle_defaults
from .loading import array_of, structure, whole
from .naming import address_of
from .parts import Parts
from .quantized import is_quantized
from .running import as_numpy, run
from .shapes import check_run

_QUANTIZED = (
    "The file is quantized: weights are whole numbers with scales and zero points, which count as parameters "
    "too. check_export compares it with the model that it was made from."
)


def read(path: Path, inputs: tuple[Any, ...] | None, named: Mapping[str, Any]) -> Traced:
    """Return the graph of an ONNX file and, if inputs are given, values; see ``reading.read``."""
    model = structure(path)
    optional = defaults(model)
    takes_nothing = len(optional) == len(model.graph.input)
    is_run = bool(inputs or named or (inputs is not None and takes_nothing))
    given = feeds(model, path, inputs or (), named) if is_run else {}
    settle_defaults(model, given)
    inlined = inline(model, path)
    values: dict[str, np.ndarray] = {}
    missing: list[str] = []
    ran: dict[tuple[str, str], int] = {}
    complete: onnx.ModelProto | None = None
    weights: dict[str, onnx.TensorProto] = {}
    in_blocks: dict[str, int] = {}
    if is_run:
        check_run(inlined.model, path, given)
        complete = whole(path)
        settle_defaults(complete, given)
        complete = inline(complete, path).model
        values, missing, ran = run(complete, path, given)
        values |= {name: as_numpy(value) for name, value in given.items() if isinstance(value, np.ndarray)}
        weights, in_blocks = constants(complete), blocked_weights(complete)
    facts = _facts(model)
    if optional:
        facts["optional"] = sorted(optional)
    if inlined.inside:  # what is not known is -1
        facts["runs"] = {scope[-1].address: ran.get(key, -1) for key, scope in inlined.inside.items()}
    notes = [_QUANTIZED, *missing] if is_quantized(model) else missing
    if notes:
        facts["notes"] = notes
    graph, names = build(inlined, path, values, facts)
    known = {row: values[name] for row, name in names.items() if name in values}
    for row in names.keys() - known.keys():
        array = array_of(weights[names[row]], path) if names[row] in weights else None
        if array is not None:
            known[row] = as_numpy(array)
    parts = None if complete is None else Parts(complete, path, names, values)
    return Traced(graph, known, _Weights(weights, path, in_blocks), parts)


def declared(path: Path, given: Collection[str] | None = None) -> Graph:
    """Return the graph of an ONNX file without values, in which inputs that have a default are inputs.

    Args:
        path: The file.
        given: The names of these; None for all that have one.
    """
    model = structure(path)
    settle_defaults(model, defaults(model) if given is None else given)
    return build(inline(model, path), path, {}, _facts(model))[0]


def _facts(model: onnx.ModelProto) -> dict[str, Any]:
    return {
        "format": "ONNX",
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "version": f"IR {model.ir_version}",
        "opsets": {one.domain or "ai.onnx": one.version for one in model.opset_import},
    }


class _Weights(Mapping[str, np.ndarray]):
    """The values of a file's weights by address, which are decoded on access."""

    def __init__(
        self, tensors: Mapping[str, onnx.TensorProto], path: Path, in_blocks: Mapping[str, int]
    ) -> None:
        self._tensors, self._path = {address_of(name): tensor for name, tensor in tensors.items()}, path
        self._in_blocks = {address_of(name): groups for name, groups in in_blocks.items()}

    def __getitem__(self, address: str) -> np.ndarray:
        array = array_of(self._tensors[address], self._path)
        if array is not None and address in self._in_blocks:
            runtime = require("onnxruntime", extra="onnx", why="to know the order of its weights")
            array = weight_in_order(array, self._in_blocks[address], runtime)
        if array is None:
            raise KeyError(address)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
