"""Find the inputs that an ONNX model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    constants = {tensor.name for tensor in model.graph.initializer}
    takes = [_expected(value, value.name in constants) for value in model.graph.input]
    takes.sort(key=lambda one: one.name in constants)
    given = bind(path.name, takes, inputs, named)
    return {one.name: as_array(path.name, one, given[one.name]) for one in takes if one.name in given}


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
