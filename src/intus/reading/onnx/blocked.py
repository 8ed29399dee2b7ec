"""Put values and weights in the order of their shape that onnxruntime keeps in blocks of channels.

A file that onnxruntime optimized for a processor has convolutions whose tensors are in blocks of 8 or 16
channels (its domain ``com.microsoft.nchwc``), although their shapes say that the channels come one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx

_DOMAIN = "com.microsoft.nchwc"


def in_order(model: onnx.ModelProto, values: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
    """Return values of which those in blocks of channels are in the order of their shape.

    Args:
        model: The model.
        values: The values of its tensors by name.
        runtime: The module onnxruntime.
    """
    names = [name for name in _blocked(model) if isinstance(values.get(name), np.ndarray)]
    return dict(values) | {name: _in_order(values[name], _block(runtime)) for name in names}


def _blocked(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the names of the tensors that are in blocks."""
    found: set[str] = set()
    for node in model.graph.node:
        is_made = node.domain == _DOMAIN and node.op_type != "ReorderOutput"
        # Operations on elements leave them in blocks.
        if is_made or (node.domain != _DOMAIN and not found.isdisjoint(node.input)):
            found.update(node.output)
            yield from node.output


def blocked_weights(model: onnx.ModelProto) -> dict[str, int]:
    """Return the weights of a model that are in blocks: the number of groups of the convolution by name."""
    nodes = (node for node in model.graph.node if node.domain == _DOMAIN and node.op_type == "Conv")
    return {
        node.input[1]: next((int(one.i) for one in node.attribute if one.name == "group"), 1)
        for node in nodes
        if len(node.input) > 1
    }


def weight_in_order(weight: np.ndarray, groups: int, runtime: Any) -> np.ndarray | None:
    """Return a weight in blocks in the order of its shape; None if its blocks are not known.

    Args:
        weight: The weight.
        groups: The number of groups of the convolution.
        runtime: The module onnxruntime.
    """
    block = _block(runtime)
    if weight.ndim != 4 or weight.shape[0] % block:
        return None
    outputs, inputs, height, width = weight.shape
    is_depthwise = groups > 1 and inputs == 1 and outputs == groups
    if is_depthwise or (groups == 1 and inputs < block):  # the channels that it is given are not in blocks
        blocks = weight.reshape(outputs // block, inputs, height, width, block).transpose(0, 4, 1, 2, 3)
    elif inputs % block:
        return None
    else:
        split = outputs // block, inputs // block, height, width, block, block
        blocks = weight.reshape(split).transpose(0, 5, 1, 4, 2, 3)
    return np.ascontiguousarray(blocks).reshape(weight.shape)


def _in_order(value: np.ndarray, block: int) -> np.ndarray:
    if value.ndim != 4 or value.shape[1] % block:
        return value
    batch, channels, height, width = value.shape
    blocks = value.reshape(batch, channels // block, height, width, block)
    return np.ascontiguousarray(blocks.transpose(0, 1, 4, 2, 3)).reshape(value.shape)


@cache
def _block(runtime: Any) -> int:
    """Return the number of channels of a block on this processor, which a file does not say."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=_DOMAIN)
    ends = (helper.make_tensor_value_info(name, kind, [1, 64, 1, 2]) for name in "xy")
    graph = helper.make_graph([node], "block", *([end] for end in ends))
    versions = [helper.make_opsetid("", 20), helper.make_opsetid(_DOMAIN, 1)]
    data = helper.make_model(graph, opset_imports=versions, ir_version=9).SerializeToString()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    channels = np.arange(64, dtype=np.float32)[None, :, None, None].repeat(2, axis=3)
    (order,) = session.run(None, {"x": channels})
    return int(np.flatnonzero(order.ravel() == 0)[1])  # the first channel again, at the second place
