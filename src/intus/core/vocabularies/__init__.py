"""The types of operations of other frameworks, translated to the names that the analyses know.

What is known of a type is stated once, under the name that PyTorch or ONNX gives to it: in ``families`` what
several analyses ask, in ``core.units`` and ``core.analysis.flops`` what one does. A framework may give the
same name to another operation (``max`` of JAX is elementwise), so a type of its graphs that is not in its
table is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..graph import OP, Graph
from . import mxnet, tensorflow
from .families import DRAWING
from .jax import DRAWING as JAX_DRAWING
from .jax import JAX, KEYS
from .mxnet import MXNET
from .tensorflow import TENSORFLOW

_TABLES: dict[str, Mapping[str, str]] = {
    "jax": JAX,
    "mxnet": MXNET,
    "MXNet symbol": MXNET,  # a file
    "tensorflow": TENSORFLOW,
    "keras": TENSORFLOW,
}
_DRAWING: dict[str, Callable[[str], object]] = {
    "jax": (JAX_DRAWING | KEYS).__contains__,
    "mxnet": mxnet.DRAWING.match,
    "MXNet symbol": mxnet.DRAWING.match,
    "tensorflow": tensorflow.DRAWING.match,
    "keras": tensorflow.DRAWING.match,
}

#: One name for those of operations that differ by what their framework has them state.
KINDS = {"add_to_channels": "add", "dot_general": "matmul", "matmul_by_settings": "matmul"} | dict.fromkeys(
    ("conv1d", "conv2d", "conv3d", "conv_general_dilated", "conv_to_last", "conv_by_layout"), "conv"
)
KINDS |= dict.fromkeys(("linear", "fully_connected", "dot_by_settings"), "matmul")
KINDS |= dict.fromkeys(("concat", "concatenate"), "cat")
KINDS |= {"conv_of_each_channel": "conv", "layer_normalization": "layer_norm"}
KINDS |= dict.fromkeys(("batch_norm_by_axis", "batch_norm_to_last", "batch_normalization"), "batch_norm")


def is_translated(graph: Graph) -> bool:
    """Return whether the types of a graph's operations are those of another framework than PyTorch."""
    return graph.facts.get("framework") in _TABLES


def common_types(graph: Graph) -> list[str]:
    """Return the common name of each type of a graph; ``""`` if it is unknown.

    Args:
        graph: The graph of a forward pass; ``facts["framework"]`` is the framework.

    Example:
        >>> from intus.core.building import GraphBuilder
        >>> builder = GraphBuilder("Net")
        >>> row = builder.op("max", (2,), "float32")
        >>> common_types(builder.graph({"framework": "jax"})[0]), common_types(builder.graph()[0])
        (['maximum'], ['max'])
    """
    table = _TABLES.get(str(graph.facts.get("framework")))
    return list(graph.types) if table is None else [table.get(name, "") for name in graph.types]


def common_type(graph: Graph, row: int) -> str:
    """Return the common name of an operation; ``""`` if it is unknown, and of rows that are no operations.

    Of an operation whose setting names the function that it computes, it is the name of that.

    Args:
        graph: The graph of a forward pass; ``facts["framework"]`` is the framework.
        row: A row of it.

    Example:
        >>> from intus.core.building import GraphBuilder
        >>> builder = GraphBuilder("Net")
        >>> row = builder.op("LeakyReLU", (2,), "float32", setting="act_type=gelu")
        >>> common_type(builder.graph({"framework": "mxnet"})[0], row)
        'gelu'
    """
    if graph.ops.kind[row] != OP:
        return ""
    table, name = _TABLES.get(str(graph.facts.get("framework"))), graph.type_of(row)
    if table is None:
        return name
    named = re.search(r"act_type='?(\w+)", graph.setting(row)) if name in mxnet.WITH_FUNCTION else None
    return mxnet.ACTIVATIONS.get(named[1], named[1]) if named else table.get(name, "")


def draws_at_random(graph: Graph, row: int) -> bool:
    """Return whether an operation draws random numbers in every mode, or makes the state for it.

    Args:
        graph: The graph of a forward pass; ``facts["framework"]`` is the framework.
        row: Its row.

    Example:
        >>> from intus.core.building import GraphBuilder
        >>> builder = GraphBuilder("Net")
        >>> rows = [builder.op(kind, (2,), "float32") for kind in ("StatelessWhile", "TruncatedNormal")]
        >>> graph = builder.graph({"framework": "tensorflow"})[0]
        >>> [draws_at_random(graph, row) for row in rows]
        [False, True]
    """
    of_framework = _DRAWING.get(str(graph.facts.get("framework")), DRAWING.__contains__)
    return bool(of_framework(graph.type_of(row)))
