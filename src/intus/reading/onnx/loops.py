"""Give the tensors inside of ``Loop`` and ``Scan`` an output, for their values in the last iteration.

A Loop gets them as further values that it carries, each of which the next iteration ignores. A Scan, whose
carried values may not change their shapes, returns them for every iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx

from .inlining import nested
from .shapes import inferred

_LAST, _BEFORE, _COUNT = "/last iteration", "/before", "/number of the last iteration"


class Loops(NamedTuple):
    """A model whose loops return what is inside of them.

    Attributes:
        model: The model.
        added: For each loop, by the name of its node: the tensors inside that it returns.
    """

    model: onnx.ModelProto
    added: dict[str, list[str]]


def with_outputs(model: onnx.ModelProto) -> Loops:
    """Return a copy of a model whose loops return the tensors inside of them.

    Args:
        model: The model with unique names.

    A Scan of opset 8, which runs several sequences of different lengths at once, is left as it is.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    types = _element_types(model)
    added: dict[str, list[str]] = {}
    initial: list[onnx.NodeProto] = []
    version = next((one.version for one in model.opset_import if not one.domain), 0)
    for node in copy.graph.node:
        if node.domain or node.op_type not in ("Loop", "Scan") or (node.op_type == "Scan" and version < 9):
            continue
        body = nested(node)["body"]
        made = [name for inner in body.node for name in inner.output]
        names = [name for name in (*(one.name for one in body.input), *made) if types.get(name)]
        added[node.name] = names
        for name in names:
            body.node.append(onnx.helper.make_node("Identity", [name], [f"{name}{_LAST}"]))
        if node.op_type == "Scan":
            node.output.extend(f"{name}{_LAST}" for name in names)
            for attribute in node.attribute:
                if attribute.name in ("scan_output_axes", "scan_output_directions"):  # one for each output
                    attribute.ints.extend([0] * len(names))
            body.output.extend(
                onnx.helper.make_tensor_value_info(f"{name}{_LAST}", types[name], None) for name in names
            )
        else:
            initial += _carry(node, body, names, types)
    nodes = [*initial, *copy.graph.node]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return Loops(copy, added)


def _carry(
    node: onnx.NodeProto, body: onnx.GraphProto, names: list[str], types: Mapping[str, int]
) -> Iterator[onnx.NodeProto]:
    """Let a Loop carry the tensors inside of it; yield nodes that make the first values."""
    carried = len(body.input) - 2
    number = f"{node.name}{_COUNT}"
    body.node.append(onnx.helper.make_node("Identity", [body.input[0].name], [number]))
    pairs = [(f"{name}{_LAST}", types[name]) for name in names] + [(number, onnx.TensorProto.INT64)]
    results, outputs = list(body.output), list(node.output)
    values = [onnx.helper.make_tensor_value_info(name, type_, None) for name, type_ in pairs]
    del body.output[:], node.output[:]
    body.output.extend([*results[: 1 + carried], *values, *results[1 + carried :]])
    node.output.extend([*outputs[:carried], *(name for name, _ in pairs), *outputs[carried:]])
    node.input.extend([""] * (2 + carried - len(node.input)))
    for name, type_ in pairs:
        body.input.append(onnx.helper.make_tensor_value_info(f"{name}{_BEFORE}/in", type_, None))
        node.input.append(f"{name}{_BEFORE}")
        whole = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [-1])
        if type_ == onnx.TensorProto.INT64:
            yield onnx.helper.make_node("Constant", [], [f"{name}{_BEFORE}"], value=whole)
        else:
            yield onnx.helper.make_node("Constant", [], [f"{name}{_BEFORE}/whole"], value=whole)
            yield onnx.helper.make_node("Cast", [f"{name}{_BEFORE}/whole"], [f"{name}{_BEFORE}"], to=type_)


def last_values(
    loops: Loops,
    model: onnx.ModelProto,
    values: Mapping[str, Any],
    again: Mapping[str, Any],
    ran: dict[tuple[str, str], int],
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the values inside of loops in the last iteration, and sentences about them.

    Args:
        loops: What ``with_outputs`` returned.
        model: The model that it was given.
        values: The values of the model.
        again: The values of ``loops.model``.
        ran: Receives the numbers of iterations, by the name of the node and ``"body"``.
    """
    found: dict[str, np.ndarray] = {}
    notes: list[str] = []
    for node in model.graph.node:
        if node.name not in loops.added:
            if node.op_type == "Scan" and not node.domain:
                notes.append(
                    f"The operations inside of {node.name!r} have no value, because it is a Scan of opset 8."
                )
            continue
        names = [name for name in node.output if name]
        if not all(_same(values.get(name), again.get(name)) for name in names):
            notes.append(
                f"The operations inside of {node.name!r} have no value, because it returns something else "
                "each time that it runs."
            )
            continue
        inside = {name: again.get(f"{name}{_LAST}") for name in loops.added[node.name]}
        if node.op_type == "Scan":
            count = max((len(one) for one in inside.values() if isinstance(one, np.ndarray)), default=0)
            inside = {name: one[-1] for name, one in inside.items() if one is not None and len(one)}
        else:
            count = int(np.ravel(again[f"{node.name}{_COUNT}"])[0]) + 1
        ran[node.name, "body"] = count
        if count == 0:
            notes.append(f"{node.name!r} ran no iteration, so the operations inside of it have no value.")
            continue
        found |= {name: one for name, one in inside.items() if isinstance(one, np.ndarray)}
        notes.append(f"Inside of {node.name!r}, values are those of the last of {count} iterations.")
    return found, notes


def _same(a: Any, b: Any) -> bool:
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return True  # lists, which are not compared
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the number of the dtype of the tensors in graphs, as far as it is known."""
    found: dict[str, int] = {}

    def add(graph: onnx.GraphProto) -> None:
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.WhichOneof("value") == "tensor_type":
                found[value.name] = value.type.tensor_type.elem_type
        for node in graph.node:
            for inner in nested(node).values():
                add(inner)

    add(inferred(model).graph)
    return found
