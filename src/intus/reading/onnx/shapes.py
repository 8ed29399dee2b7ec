"""Infer the shapes of an ONNX model, and refuse one that asks for far more memory than its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...core.building import nbytes
from ..bounds import check_created, check_iterations
from .inlining import nested
from .naming import dtype_of

#: Numbers of vectors are inferred if they are joined of fewer tensors than this.
_JOINED = 10_000


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the shapes that follow from its operations; as it is if they cannot be inferred.

    Inference takes it for granted that nodes are sound, and ends the whole process where some are not.

    Args:
        model: The model.
    """
    if are_sound(model.graph.node, model):
        with suppress(Exception):  # of a model that contradicts itself, or is too large
            return onnx.shape_inference.infer_shapes(model, data_prop=_joined(model.graph, {}) < _JOINED)
    return model


def _joined(graph: onnx.GraphProto, outside: Mapping[str, int]) -> int:
    """Return how many tensors a vector of a graph is joined of, at most, counted as often as they are in it.

    Inference keeps each number of such a vector, so that a few nodes may fill the memory.
    """
    known, most = dict(outside), 1
    for node in graph.node:
        counts = [known.get(name, 1) for name in node.input]
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        is_join = node.op_type == "Concat" and axis in (0, -1)
        count = sum(counts) if is_join else max(counts, default=1)
        count = max([count, *(_joined(inner, known) for inner in nested(node).values())])
        known |= dict.fromkeys(node.output, count)
        most = max(most, count)
    return most


def check_run(model: onnx.ModelProto, path: Path, feeds: Mapping[str, Any]) -> None:
    """Raise CodecError if a model makes far more of its inputs than it and they have bytes, or never ends.

    Only what is known before it runs counts: shapes that numbers decide, and the numbers of iterations.

    Args:
        model: The model; it needs no weights, but the numbers that shapes are.
        path: Its file.
        feeds: The inputs by name.
    """
    given = onnx.ModelProto()
    given.CopyFrom(model)
    for value in given.graph.input:
        array = feeds.get(value.name)
        if isinstance(array, np.ndarray) and value.type.HasField("tensor_type"):
            dtype = value.type.tensor_type.elem_type
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, dtype, array.shape))
    graph = inferred(given).graph
    check_created(path.name, bytes_given(graph, feeds), _created(graph, path, {}, 1))


def bytes_given(graph: onnx.GraphProto, feeds: Mapping[str, Any]) -> int:
    """Return the bytes of the weights and inputs of a graph."""
    weights = sum(nbytes(tuple(one.dims), dtype_of(one.data_type)) for one in graph.initializer)
    return weights + sum(one.nbytes for one in feeds.values() if isinstance(one, np.ndarray))


def _created(graph: onnx.GraphProto, path: Path, outside: Mapping[str, onnx.TensorProto], times: int) -> int:
    """Return the bytes of the tensors that a graph makes, as far as they are known; check its loops.

    Args:
        graph: The graph, with shapes.
        path: The file.
        outside: The constants of the graphs around it.
        times: How often it runs.
    """
    known = {**outside, **_constants(graph)}
    types = {one.name: one.type.tensor_type for one in (*graph.value_info, *graph.output)}
    size = sum(map(_bytes, types.values()))
    for node in graph.node:
        for inner in nested(node).values():
            count: int | None = 1
            if node.op_type == "Loop" and not node.domain and not _may_end(inner, known):
                count = _number(known.get(node.input[0])) if node.input[0] else None
                if count is not None or not node.input[0]:
                    check_iterations(path.name, node.name, None if count is None else count * times)
                count = count or 1
                rows = inner.output[len(node.input) - 1 :]  # after the condition and what the loop carries
                size += count * sum(_bytes(one.type.tensor_type) for one in rows)
            size += _created(inner, path, known, times * (count or 1))
    return size


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the constants of a graph by name."""
    made = {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    return made | {tensor.name: tensor for tensor in graph.initializer}


def _number(tensor: onnx.TensorProto | None) -> int | None:
    """Return the number that a constant is; None if it is none, or is not known."""
    with suppress(Exception):  # of data that are elsewhere, or damaged
        return None if tensor is None else int(onnx.numpy_helper.to_array(tensor).item())
    return None


def _may_end(body: onnx.GraphProto, outside: Mapping[str, onnx.TensorProto]) -> bool:
    """Return whether a loop computes a condition, which may end it before all of its iterations."""
    made = {node.output[0]: node for node in body.node if node.output}
    name = body.output[0].name
    for _ in body.node:
        if name in made and made[name].op_type in ("Identity", "Cast"):
            name = made[name].input[0]
    known = {**outside, **_constants(body)}
    return name != body.input[1].name and not _number(known.get(name))


def _bytes(type_: onnx.TypeProto.Tensor) -> int:
    dims = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in type_.shape.dim]
    return nbytes(tuple(dims), dtype_of(type_.elem_type)) if min(dims, default=1) > 0 else 0


def are_sound(nodes: Iterable[onnx.NodeProto], model: onnx.ModelProto) -> bool:
    """Return whether nodes, and those inside, have the inputs, outputs and attributes that operators take.

    Args:
        nodes: The nodes.
        model: Their model, for the versions of the operators.
    """
    versions = {one.domain: one.version for one in model.opset_import}
    return all(
        _is_sound(node, versions) and all(are_sound(inner.node, model) for inner in nested(node).values())
        for node in nodes
    )


def _is_sound(node: onnx.NodeProto, versions: Mapping[str, int]) -> bool:
    """Return whether a node has the inputs, outputs and attributes that its operator takes, or is unknown."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = versions.get(node.domain, versions.get(domain, 1))
    schema = _schema(node.op_type, version, domain)
    if schema is None:
        return True
    kinds = {one.name: one.type for one in node.attribute}
    required, types = _attributes(node.op_type, version, domain)
    single = [one.option == onnx.defs.OpSchema.FormalParameterOption.Single for one in schema.inputs]
    split = next((one.i for one in node.attribute if one.name == "num_outputs"), None)
    return (
        schema.min_input <= len(node.input) <= schema.max_input
        and schema.min_output <= len(node.output) <= schema.max_output
        and all(name or not is_needed for name, is_needed in zip(node.input, single, strict=False))
        and required <= kinds.keys()
        and all(kind in (0, types.get(name, kind)) for name, kind in kinds.items())  # 0: of old files
        and (node.op_type != "Split" or split in (None, len(node.output)))
    )


@cache
def _schema(op_type: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def _attributes(op_type: str, version: int, domain: str) -> tuple[set[str], dict[str, int]]:
    """Return the attributes that an operator needs, and the types of all."""
    schema = _schema(op_type, version, domain)
    attributes = {} if schema is None else schema.attributes
    needed = {name for name, one in attributes.items() if one.required}
    return needed, {name: int(one.type.value) for name, one in attributes.items()}
