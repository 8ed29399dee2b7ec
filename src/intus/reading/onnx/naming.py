"""Name operations, arguments, dtypes and attributes of ONNX as graphs of intus do."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import onnx

from ...core.shortest import shortest

#: Names that the rule would cut where no other library does.
_WORD = re.compile("MatMul|PRelu|TopK|ArgM|CumS|CumP|LSTM|NaN|QLinear|Col2Im")
_CUT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONGEST = 200


def type_of(op_type: str) -> str:
    """Return the type of an operation: ``matmul``, ``layer_normalization``, ``reduce_l2``."""
    return _CUT.sub("_", _WORD.sub(lambda word: word[0].capitalize(), op_type)).lower()


def address_of(name: str) -> str:
    """Return the address of a weight: ``block.fc.weight`` is one, and so is ``block.fc/kernel``."""
    return name.replace("/", ".") if "." in name.partition("/")[0] else name


@cache
def dtype_of(number: int) -> str:
    """Return the dtype of a number of ONNX's ``TensorProto.DataType``; ``""`` if there is none."""
    if number == onnx.TensorProto.STRING:
        return "string"
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(number))
    except (KeyError, ValueError, TypeError):
        return ""


@cache
def argument_names(domain: str, op_type: str, version: int) -> tuple[tuple[str, ...], bool]:
    """Return the names of an operator's inputs, and whether the last takes any number of tensors.

    Args:
        domain: The operator's domain.
        op_type: The operator.
        version: The version of the domain.
    """
    try:
        inputs = onnx.defs.get_schema(op_type, version, "" if domain == "ai.onnx" else domain).inputs
    except onnx.defs.SchemaError:
        return (), False
    variadic = bool(inputs) and inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return tuple(one.name for one in inputs), variadic


def argument(position: int, names: tuple[str, ...], variadic: bool) -> str:
    """Return the argument of an edge: ``"1"``, or ``"0.1"`` for the second tensor of a list."""
    first = len(names) - 1
    return f"{first}.{position - first}" if variadic and position >= first else str(position)


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """Return the value of an attribute as text; ``""`` if it is a graph."""
    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.FLOAT:
            return str(shortest(np.float32(attribute.f)))
        case kinds.INT:
            return str(attribute.i)
        case kinds.STRING:
            return _short(repr(attribute.s.decode(errors="replace")))
        case kinds.FLOATS:
            return _short(str(shortest(np.array(attribute.floats, np.float32))))
        case kinds.INTS:
            return _short(str(list(attribute.ints)))
        case kinds.STRINGS:
            return _short(str([one.decode(errors="replace") for one in attribute.strings]))
        case kinds.TENSOR:
            return "×".join(map(str, attribute.t.dims)) + f" {dtype_of(attribute.t.data_type)}"
    return ""


def array_text(array: np.ndarray) -> str:
    """Return a small array as text: ``[2, 3]``, ``0.5``; strings are cut."""
    text = repr(shortest(array))
    return _short(text) if array.dtype.kind in "OSU" else text


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
