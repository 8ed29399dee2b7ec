"""Compute the values of all tensors of an ONNX model with onnxruntime.

The model runs with every tensor as an output and without optimizations, so that the operations are those of
the file. A nested graph has no outputs of its own, so the branch that an ``If`` took is put in its place and
the model runs again. What onnxruntime cannot run is left out with all that depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from ...core.errors import InputError, require
from .inlining import nested

#: What onnxruntime cannot run, in its messages when it loads a model.
_UNKNOWN = re.compile(
    r"Fatal error: (?P<domain>[^\s:]*):(?P<type>[^\s:(]+)\(|In Node, \(\"(?P<name>[^\"]*)\"|"
    r"node with name '(?P<node>[^']*)'"
)
#: Types of tensors that it cannot return as numpy arrays.
_NO_ARRAY = re.compile(r"tensor\((bfloat16|float8.*|float4.*|u?int[24])\)")
#: The ending of the names of tensors that are returned as float32.
_CAST = "/as float32"


class Run(NamedTuple):
    """The values of a run.

    Attributes:
        values: Arrays by the name of the tensor.
        missing: Why values are missing, as sentences.
    """

    values: dict[str, np.ndarray]
    missing: list[str]


def run(model: onnx.ModelProto, path: Path, feeds: Mapping[str, Any]) -> Run:
    """Compute the values of the tensors of a model.

    Args:
        model: The model with its weights, without functions.
        path: Its file: data in other files are read from its folder.
        feeds: The inputs by name.

    Raises:
        InputError: If the model cannot run on these inputs.
        MissingExtraError: If onnxruntime is not installed.
    """
    runtime = require("onnxruntime", extra="onnx", why="to compute the values of an ONNX file")
    model = onnx.ModelProto.FromString(model.SerializeToString())
    missing: list[str] = []
    taken: dict[str, bool] = {}
    while True:
        session = _session(runtime, model, path, missing)
        try:
            results = session.run(None, feeds)
        except Exception as error:  # of a type for each cause, which onnxruntime does not document
            raise InputError(f"{path.name} cannot run on these inputs: {_message(error)}") from None
        outputs = session.get_outputs()
        named = {out.name.removesuffix(_CAST): one for out, one in zip(outputs, results, strict=True)}
        values = {name: value for name, value in named.items() if isinstance(value, np.ndarray)}
        changed = [name for name, way in taken.items() if name in values and bool(values[name].any()) != way]
        if changed:
            raise InputError(
                f"{path.name} takes another branch each time that it runs: its condition {changed[0]!r} is "
                "random, so there are no values to show."
            )
        if not _take_branches(model, values, taken):
            return Run(values, missing)


def _session(runtime: Any, model: onnx.ModelProto, path: Path, missing: list[str]) -> Any:
    """Return a session with every tensor as an output; leave out what onnxruntime cannot run."""
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # it raises what it logs
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(path.resolve().parent)
    )
    while True:
        try:
            data = _with_outputs(model).SerializeToString()
            session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            casts = [out.name for out in session.get_outputs() if _NO_ARRAY.fullmatch(out.type)]
            if casts:
                data = _with_outputs(model, casts).SerializeToString()
                session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            return session
        except Exception as error:  # of a type for each cause, which onnxruntime does not document
            left_out = _leave_out(model, str(error))
            if not left_out:
                raise InputError(f"onnxruntime cannot load {path.name}: {_message(error)}") from None
            missing.append(f"onnxruntime cannot run {left_out}, so what depends on it has no value.")


def _with_outputs(model: onnx.ModelProto, casts: Collection[str] = ()) -> onnx.ModelProto:
    """Return a copy of a model of which every tensor is an output, some of them as float32."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    have = {value.name for value in graph.output}
    for node in model.graph.node:
        graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in node.output if name and name not in have
        )
    for name in casts:
        as_float = f"{name}{_CAST}"
        to = onnx.TensorProto.FLOAT
        graph.node.append(onnx.helper.make_node("Cast", [name], [as_float], name=as_float, to=to))
    if casts:
        kept = [value for value in graph.output if value.name not in casts]
        kept += [onnx.ValueInfoProto(name=f"{name}{_CAST}") for name in casts]
        copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
        del graph.output[:]
        graph.output.extend(copies)
    return copy


def _leave_out(model: onnx.ModelProto, message: str) -> str:
    """Take out the nodes that a message names, and those that depend on them; return what was named."""
    found = _UNKNOWN.search(message)
    if not found:
        return ""
    named, operator = found["name"] or found["node"], (found["domain"], found["type"])
    what = ""
    lost: set[str] = set()
    kept: list[onnx.NodeProto] = []
    for node in model.graph.node:
        inside = list(_with_nested(node))
        wrong = [one for one in inside if one.name == named or (one.domain, one.op_type) == operator]
        if wrong and not what:
            what = f"the operator {wrong[0].domain or 'ai.onnx'}:{wrong[0].op_type} of {wrong[0].name!r}"
        if wrong or any(name in lost for one in inside for name in one.input):
            lost |= set(node.output)
        else:
            kept.append(node)
    if what:
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        outputs = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in model.graph.output]
        del model.graph.node[:], model.graph.output[:]
        model.graph.node.extend(copies)
        model.graph.output.extend(one for one in outputs if one.name not in lost)
    return what


def _with_nested(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    yield node
    for graph in nested(node).values():
        for inner in graph.node:
            yield from _with_nested(inner)


def _message(error: Exception) -> str:
    """Return what onnxruntime says, without its codes and the places in its sources."""
    text = str(error).removeprefix("[ONNXRuntimeError] : ").partition(" : ")[2] or str(error)
    text = text.partition(" : ")[2] or text
    text = re.sub(r"/onnxruntime_src/\S+ .*?\) ", "", text)
    return " ".join(text.split())[:400].rstrip(".") + "."


def _take_branches(model: onnx.ModelProto, values: Mapping[str, np.ndarray], taken: dict[str, bool]) -> bool:
    """Put the branches that were taken in the place of ``If`` nodes; return whether there were any."""
    nodes = list(model.graph.node)
    if not any(node.op_type == "If" and node.input[0] in values for node in nodes):
        return False
    replaced: list[onnx.NodeProto] = []
    for node in nodes:
        if node.op_type != "If" or node.input[0] not in values:
            replaced.append(node)
            continue
        taken[node.input[0]] = bool(values[node.input[0]].any())
        branch = nested(node)["then_branch" if taken[node.input[0]] else "else_branch"]
        model.graph.initializer.extend(branch.initializer)
        replaced += branch.node
        replaced += [
            onnx.helper.make_node("Identity", [inner.name], [name], name=f"{node.name}/{name}")
            for inner, name in zip(branch.output, node.output, strict=False)
            if name
        ]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in replaced]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return True
