"""Find the inputs that an ONNX model takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from ..inputs import Expected, as_array, bind
from .naming import dtype_of


def feeds(
    model: onnx.ModelProto, path: Path, inputs: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the inputs of a model by name, as arrays.

    Args:
        model: The model.
        path: Its file, for messages.
        inputs: Inputs in the order of the model's.
        named: Inputs by name.

    Raises:
        InputError: If an input is missing, unknown or given twice, or of another dtype or shape.
    """
    optional = defaults(model)
    takes = [_expected(value, value.name in optional) for value in model.graph.input]
    takes.sort(key=lambda one: one.name in optional)
    given = bind(path.name, takes, inputs, named)
    return {one.name: as_array(path.name, one, given[one.name]) for one in takes if one.name in given}


def defaults(model: onnx.ModelProto) -> set[str]:
    """Return the names of the inputs of a model that have a default: an initializer of the same name."""
    graph = model.graph
    constants = {one.name for one in graph.initializer} | {
        one.values.name for one in graph.sparse_initializer
    }
    return constants.intersection(value.name for value in graph.input)


def settle_defaults(model: onnx.ModelProto, given: Collection[str]) -> None:
    """Let each input that has a default be either an input, after those that have none, or a constant.

    Args:
        model: The model, which is changed.
        given: The names of the inputs that are given. Their defaults are taken out.
    """
    graph, optional = model.graph, defaults(model)
    replaced = optional.intersection(given)
    inputs = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in graph.input]
    del graph.input[:]
    graph.input.extend(one for one in inputs if one.name not in optional)
    graph.input.extend(one for one in inputs if one.name in replaced)
    graph.value_info.extend(one for one in inputs if one.name in optional - replaced)
    _drop(graph.initializer, [one.name in replaced for one in graph.initializer])
    _drop(graph.sparse_initializer, [one.values.name in replaced for one in graph.sparse_initializer])


def _drop(field: Any, is_dropped: Sequence[bool]) -> None:
    """Take messages out of a repeated field."""
    for place in reversed(range(len(field))):
        if is_dropped[place]:
            del field[place]


def _expected(value: onnx.ValueInfoProto, is_constant: bool) -> Expected:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Expected(
            value.name, str(kind).removesuffix("_type"), is_array=False, is_optional=kind == "optional_type"
        )
    tensor = value.type.tensor_type
    shape = tuple(map(_length, tensor.shape.dim)) if tensor.HasField("shape") else None
    return Expected(value.name, dtype_of(tensor.elem_type), shape, is_optional=is_constant)


def _length(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    return int(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
