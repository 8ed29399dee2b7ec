"""Fit the inputs that a caller wrote to those that an ONNX model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...core.errors import InputError, did_you_mean
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
    takes = {value.name: value.type for value in model.graph.input if value.name not in constants}
    optional = {value.name: value.type for value in model.graph.input if value.name in constants}
    described = ", ".join(f"{name} ({_described(type_)})" for name, type_ in takes.items()) or "no inputs"
    if len(inputs) > len(takes):
        raise InputError(f"{path.name} takes {_count(len(takes))}, got {len(inputs)}. It takes: {described}.")
    given = dict(zip(takes, inputs, strict=False))
    for name, value in named.items():
        if name not in takes and name not in optional:
            raise InputError(f"{path.name} has no input {name!r}. {did_you_mean(name, takes)}")
        if name in given:
            raise InputError(f"The input {name!r} of {path.name} is given twice. Give it once.")
        given[name] = value
    missing = [
        name for name in takes if name not in given and takes[name].WhichOneof("value") != "optional_type"
    ]
    if missing:
        raise InputError(f"{path.name} needs an input {missing[0]!r}. It takes: {described}.")
    return {
        name: _fitted(name, value, takes.get(name) or optional[name], path) for name, value in given.items()
    }


def _count(number: int) -> str:
    return f"{number} input{'' if number == 1 else 's'}"


def _described(type_: onnx.TypeProto) -> str:
    if type_.WhichOneof("value") != "tensor_type":
        return str(type_.WhichOneof("value")).removesuffix("_type")
    dtype = dtype_of(type_.tensor_type.elem_type)
    if not type_.tensor_type.HasField("shape"):
        return dtype
    return f"{dtype}, {'×'.join(map(_length, type_.tensor_type.shape.dim)) or 'a scalar'}"


def _length(dim: onnx.TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"


def _fitted(name: str, value: Any, type_: onnx.TypeProto, path: Path) -> Any:
    """Return an input as a numpy array of the right dtype and shape."""
    if type_.WhichOneof("value") != "tensor_type" or value is None:
        return value  # a list of arrays, or nothing: onnxruntime checks it
    dtype = dtype_of(type_.tensor_type.elem_type)
    is_plain = isinstance(value, bool | int | float | list | tuple)
    if hasattr(value, "detach"):  # a tensor of torch
        value = value.detach().cpu()
    try:
        array = np.asarray(value, dtype if is_plain and dtype != "string" else None)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(f"The input {name!r} of {path.name} is no array of {dtype}: {error}.") from None
    wanted = _described(type_)
    if _name(array) != dtype:
        advice = "" if dtype == "string" else f" Convert it with .astype({dtype!r})."
        raise InputError(f"The input {name!r} of {path.name} must be {wanted}, got {_name(array)}.{advice}")
    if not type_.tensor_type.HasField("shape"):
        return array
    lengths = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in type_.tensor_type.shape.dim]
    fits = len(lengths) == array.ndim and all(
        expected in (-1, length) for expected, length in zip(lengths, array.shape, strict=True)
    )
    if not fits:
        raise InputError(f"The input {name!r} of {path.name} must be {wanted}, got the shape {array.shape}.")
    return array


def _name(array: np.ndarray) -> str:
    return "string" if array.dtype.kind in "OUS" else str(array.dtype)
