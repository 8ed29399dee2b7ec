"""Compute the values of all tensors of an ONNX model with onnxruntime.

The model runs with every tensor as an output and without optimizations, so that the operations are those of
the file. A nested graph has no outputs of its own, so the branch that an ``If`` took is put in its place and
the model runs again; see ``loops`` for the graphs of loops. What onnxruntime cannot run is left out with all
that depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from ...core.errors import InputError, IntusError, require
from ..bounds import check_grown
from . import watched
from .blocked import in_order
from .inlining import nested
from .loops import last_values, with_outputs
from .shapes import are_sound, bytes_given

#: Types of tensors that onnxruntime cannot return as numpy arrays.
_NO_ARRAY = re.compile(r"tensor\((bfloat16|float8.*|float4.*|u?int[24])\)")
#: The first version of ONNX's format in which constants are no inputs, as they are none here.
_CONSTANTS = 4
#: The ending of the names of tensors that are returned as float32.
_CAST = "/as float32"
_CODES = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+ .*?\) ")


class Run(NamedTuple):
    """The values of a run.

    Attributes:
        values: Arrays by the name of the tensor; of types that numpy lacks, as float32.
        missing: Why other tensors have no value, as sentences.
        ran: How often nested graphs ran, by the name of the node and the attribute, as far as it is known.
    """

    values: dict[str, np.ndarray]
    missing: list[str]
    ran: dict[tuple[str, str], int]


def run(model: onnx.ModelProto, path: Path, feeds: Mapping[str, Any]) -> Run:
    """Compute the values of the tensors of a model.

    Args:
        model: The model with its weights, without functions; it is changed.
        path: Its file: data in other files are read from its folder.
        feeds: The inputs by name.

    Raises:
        InputError: If the model cannot run on these inputs.
        MissingExtraError: If onnxruntime is not installed.
    """
    runner = Runner(require("onnxruntime", extra="onnx", why="to compute the values of an ONNX file"), path)
    missing: list[str] = []
    taken: dict[str, bool] = {}
    ran: dict[tuple[str, str], int] = {}
    while True:
        missing += runner.leave_out(model)
        values = runner.run(model, feeds)
        changed = [name for name, way in taken.items() if _truth(values.get(name)) not in (None, way)]
        if changed:
            raise InputError(
                f"{path.name} takes another branch each time that it runs: its condition {changed[0]!r} is "
                "random, so there are no values to show."
            )
        branches = _take_branches(model, values, ran)
        taken |= branches
        if not branches:
            break
    lists = [name for name, value in values.items() if not isinstance(value, np.ndarray)]
    if lists:
        missing.append(f"{lists[0]!r} is a list or is left out, so it has no value that can be shown.")
    if taken:
        missing.append("Of an If, the operations of the branch that was not taken have no value.")
    if any(nested(node) for node in model.graph.node):
        inside, notes = _inside_of_loops(runner, model, feeds, values, ran)
        values |= inside
        missing += notes
    values = in_order(model, values, runner.runtime)
    return Run({name: value for name, value in values.items() if name not in lists}, missing, ran)


def _inside_of_loops(
    runner: Runner,
    model: onnx.ModelProto,
    feeds: Mapping[str, Any],
    values: Mapping[str, Any],
    ran: dict[tuple[str, str], int],
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the values inside of loops in the last iteration, and sentences about them; add to ``ran``."""
    loops = with_outputs(model)
    try:
        return last_values(loops, model, values, runner.run(loops.model, feeds), ran)
    except Exception as error:  # of a type for each cause, which onnxruntime does not document
        return {}, [
            "The operations inside a loop have no value, because onnxruntime cannot return them: "
            f"{_message(error)}"
        ]


class Runner:
    """Runs models with every tensor as an output."""

    def __init__(self, runtime: Any, path: Path) -> None:
        self.runtime, self._path = runtime, path
        self._options = runtime.SessionOptions()
        self._options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._options.log_severity_level = 4  # it raises what it logs
        folder = str(path.resolve().parent)
        self._options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)

    def run(self, model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all tensors by name; those of no array as onnxruntime returns them."""
        if not model.graph.node:
            return {}
        session = self._session(model)
        casts = [out.name for out in session.get_outputs() if _NO_ARRAY.fullmatch(out.type)]
        if casts:
            session = self._session(model, casts=casts)
        outputs = [out.name.removesuffix(_CAST) for out in session.get_outputs()]
        names = [one.name for one in session.get_inputs()]
        fed = {name: feeds[name.removesuffix(_CAST)] for name in names if name.removesuffix(_CAST) in feeds}
        try:
            results = watched.run(
                session,
                self.runtime,
                {name: as_numpy(value) for name, value in fed.items()},
                partial(check_grown, self._path.name, bytes_given(model.graph, feeds)),
            )
        except IntusError:
            raise
        except Exception as error:  # of a type for each cause, which onnxruntime does not document
            raise InputError(f"{self._path.name} cannot run on these inputs: {_message(error)}") from None
        return dict(zip(outputs, results, strict=True))

    def leave_out(self, model: onnx.ModelProto) -> list[str]:
        """Take out of a model what onnxruntime cannot run, and what depends on it; return why."""
        why = []
        while model.graph.node:
            error = self._error(model, len(model.graph.node))
            if error is None:
                break
            low, high = 0, len(model.graph.node)  # with `low` nodes it loads, with `high` it does not
            while high - low > 1:
                middle = (low + high) // 2
                found = self._error(model, middle)
                low, high, error = (middle, high, error) if found is None else (low, middle, found)
            wrong = model.graph.node[high - 1]
            name = f"{wrong.domain or 'ai.onnx'}:{wrong.op_type}"
            why.append(
                f"onnxruntime cannot run the operator {name} of {wrong.name!r}, so that what depends on it "
                f"has no value: {_message(error)}"
            )
            _remove(model, wrong)
        return why

    def _error(self, model: onnx.ModelProto, nodes: int) -> Exception | None:
        try:
            self._session(model, nodes)
        except Exception as error:  # of a type for each cause, which onnxruntime does not document
            return error
        return None

    def _session(self, model: onnx.ModelProto, nodes: int | None = None, casts: Collection[str] = ()) -> Any:
        """Return a session of the first nodes of a model, with every tensor as an output."""
        graph = model.graph
        kept = list(graph.node)[:nodes]
        if not are_sound(kept, model):  # onnxruntime infers shapes as onnx does, which may end the process
            raise ValueError("It has other inputs, outputs or attributes than its operator takes.")
        made = [name for node in kept for name in node.output if name]
        known = {value.name: value for value in graph.output}
        outputs = [known.get(name, onnx.ValueInfoProto(name=name)) for name in made if name not in casts]
        outputs += [onnx.ValueInfoProto(name=f"{name}{_CAST}") for name in casts]
        kept += [
            onnx.helper.make_node("Cast", [name], [f"{name}{_CAST}"], to=onnx.TensorProto.FLOAT)
            for name in casts
        ]
        inputs = []
        for value in graph.input:
            number = value.type.tensor_type.elem_type
            if _is_foreign(number):
                cast = f"{value.name}{_CAST}"
                inputs.append(onnx.helper.make_tensor_value_info(cast, onnx.TensorProto.FLOAT, None))
                kept.insert(0, onnx.helper.make_node("Cast", [cast], [value.name], to=number))
            else:
                inputs.append(value)
        part = onnx.GraphProto(name=graph.name, node=kept, input=inputs, output=outputs)
        part.initializer.extend(graph.initializer)
        part.sparse_initializer.extend(graph.sparse_initializer)
        version = max(model.ir_version, _CONSTANTS)
        data = onnx.ModelProto(
            ir_version=version, opset_import=model.opset_import, graph=part
        ).SerializeToString()
        return self.runtime.InferenceSession(
            data, self._options, providers=["CPUExecutionProvider"], enable_fallback=0
        )


def as_numpy(value: Any) -> Any:
    """Return an array of a dtype that numpy lacks, such as bfloat16, as float32; anything else unchanged."""
    return value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype.isbuiltin == 2 else value


def _is_foreign(number: int) -> bool:
    """Return whether numpy lacks a dtype, by its number in ``TensorProto.DataType``."""
    return number != 0 and np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)).isbuiltin == 2


def _take_branches(
    model: onnx.ModelProto, values: Mapping[str, Any], ran: dict[tuple[str, str], int]
) -> dict[str, bool]:
    """Put the branches that were taken in the place of ``If`` nodes; return conditions, add to ``ran``."""
    taken: dict[str, bool] = {}
    replaced: list[onnx.NodeProto] = []
    for node in model.graph.node:
        way = _truth(values.get(node.input[0])) if node.op_type == "If" and not node.domain else None
        if way is None:
            replaced.append(node)
            continue
        taken[node.input[0]] = way
        ran |= {(node.name, "then_branch"): int(way), (node.name, "else_branch"): int(not way)}
        branch = nested(node)["then_branch" if way else "else_branch"]
        model.graph.initializer.extend(branch.initializer)
        replaced += branch.node
        replaced += [
            onnx.helper.make_node("Identity", [inner.name], [name], name=f"{node.name}/{name}")
            for inner, name in zip(branch.output, node.output, strict=False)
            if name
        ]
    if taken:
        _set_nodes(model, replaced)
    return taken


def _truth(value: Any) -> bool | None:
    """Return the truth of a condition; None if it is unknown."""
    return bool(value.any()) if isinstance(value, np.ndarray) else None


def _remove(model: onnx.ModelProto, wrong: onnx.NodeProto) -> None:
    """Take a node out of a model, with those that depend on it; all of its kind if the kind is unknown."""
    kind = (wrong.domain, wrong.op_type)
    is_known = onnx.defs.has(wrong.op_type, domain=wrong.domain)
    lost: set[str] = set()
    kept = []
    for node in model.graph.node:
        is_wrong = node.name == wrong.name or (not is_known and (node.domain, node.op_type) == kind)
        if is_wrong or not lost.isdisjoint(_read(node)):
            lost |= set(node.output)
        else:
            kept.append(node)
    _set_nodes(model, kept)


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of the tensors that a node reads, also in its graphs."""
    yield from node.input
    for graph in nested(node).values():
        yield from (value.name for value in graph.output)
        for inner in graph.node:
            yield from _read(inner)


def _set_nodes(model: onnx.ModelProto, nodes: Collection[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _message(error: Exception) -> str:
    """Return what onnxruntime says, without its codes and the places in its sources."""
    return " ".join(_CODES.sub("", str(error)).split())[:300].rstrip(".") + "."
