"""Build the graph of an ONNX model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...core.building import GraphBuilder, Scope
from ...core.graph import CREATED, Graph
from .inlining import Inlined, nested
from .loading import array_of
from .naming import address_of, argument, argument_names, array_text, attribute_text, dtype_of, type_of
from .scopes import model_class, states_module
from .shapes import inferred
from .signature import made_constants, setting_constants, targets
from .untold import with_untold

#: Constants of at most so many numbers are written into the settings of the operations that take them.
_FEW = 16
_REWRITTEN = "pkg.onnxscript.rewriter.rule_name"
#: Rules that rewrite one operation, whatever ran before and after it, begin with this.
_ALONE = "RemoveOptionalBias"

_Known = tuple[Sequence[int], str]


def build(
    inlined: Inlined, path: Path, values: Mapping[str, np.ndarray], facts: Mapping[str, Any]
) -> tuple[Graph, dict[int, str]]:
    """Return the graph of a model, and the name of the tensor of each row.

    Args:
        inlined: The model.
        path: Its file.
        values: The values of tensors as far as they are known; they have precedence over the shapes in the
            file, which may be open.
        facts: Facts to store in the graph.
    """
    rows = _Rows(inlined, path, values)
    rows.model()
    return rows.finish(facts)


class _Rows:
    def __init__(self, inlined: Inlined, path: Path, values: Mapping[str, np.ndarray]) -> None:
        self._onnx, self._scopes, self._inside, self._returned, self._told = inlined
        self._path, self._values = path, values
        self._builder = GraphBuilder(path.name, model_class(self._onnx.graph.node))
        self._known = _types(self._onnx)
        self._versions = {one.domain: one.version for one in self._onnx.opset_import}
        self._targets = targets(self._onnx.graph)
        self._made = made_constants(self._onnx.graph, self._targets)
        self._settings = setting_constants(self._onnx.graph)
        self._rows: dict[str, int] = {}
        self._outputs: list[tuple[int, str]] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._small: dict[str, np.ndarray] = {}  # constants that are written into settings
        self._same: dict[str, str] = {}  # of tensors that are an initializer under another name
        self._declared: set[str] = set()
        self._arguments: dict[str, tuple[str, ...]] = {}
        self._unsure: list[int] = []  # rows that an optimizer may have merged with those of another module

    def model(self) -> None:
        """Add everything."""
        graph = self._onnx.graph
        self._add_weights(graph)
        for value in graph.input:
            self._rows[value.name] = self._builder.input(value.name, *self._meta(value.name))
        self._add_nodes(graph.node)
        for name, scope in self._returned:
            if name in self._rows:
                self._builder.returns(self._rows[name], scope)
        for value in graph.output:
            row = self._row(value.name, ())
            if row is not None:
                self._outputs.append((self._builder.output(value.name, row), self._original(value.name)))
        for name in self._weights:
            if name not in self._small and name not in self._made:
                self._declare(name, ())

    def finish(self, facts: Mapping[str, Any]) -> tuple[Graph, dict[int, str]]:
        """Return the graph and the names of the tensors of its rows."""
        modules = {scope.address for scopes in self._scopes.values() for scope in scopes}
        for name in self._targets:  # modules of which no operation is left, such as a folded BatchNorm
            address = name.rpartition(".")[0]
            if address and address not in modules and name in self._weights:
                self._builder.module(address)
        graph, rows = self._builder.graph({**facts, "arguments": self._arguments})
        graph = with_untold(graph, self._told, rows[self._unsure].tolist())
        names = [*((row, name) for name, row in self._rows.items()), *self._outputs]
        return graph, {int(rows[row]): name for row, name in names}

    # -- constants -------------------------------------------------------------------------------------

    def _add_weights(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._weights[tensor.name] = tensor
            is_target = tensor.name in self._targets and tensor.name not in self._made
            named = is_target or (not tensor.dims and "." in tensor.name)
            if not named:
                self._fold(tensor.name, tensor, is_weight=tensor.name not in self._settings)
        for sparse in graph.sparse_initializer:
            tensor = onnx.TensorProto(
                name=sparse.values.name, dims=sparse.dims, data_type=sparse.values.data_type
            )
            self._weights[tensor.name] = tensor

    def _fold(self, name: str, tensor: onnx.TensorProto, *, is_weight: bool) -> None:
        """Note a constant that is small enough for settings; one-element weights and biases are not."""
        of_numbers = tensor.data_type in (
            onnx.TensorProto.INT64,
            onnx.TensorProto.INT32,
            onnx.TensorProto.BOOL,
        )
        if len(tensor.dims) > 1 or (is_weight and tensor.dims and not of_numbers):
            return
        array = array_of(tensor, self._path, _FEW)
        if array is not None:
            self._small[name] = array

    def _add_constant(self, node: onnx.NodeProto) -> None:
        """Note a node that is a constant; a large one is a row."""
        name = node.output[0]
        for attribute in node.attribute:
            if attribute.name == "value":
                self._fold(name, attribute.t, is_weight=False)
                if name not in self._small:
                    meta = attribute.t.dims, dtype_of(attribute.t.data_type)
                    self._rows[name] = self._builder.constant(*meta, self._scopes[node.name])
                return
            if attribute.name.startswith("value_"):
                dtype = np.float32 if attribute.name.startswith("value_float") else None
                self._small[name] = np.asarray(onnx.helper.get_attribute_value(attribute), dtype)
                return
        self._rows[name] = self._builder.constant(*self._meta(name), self._scopes[node.name])

    def _declare(self, name: str, scope: tuple[Scope, ...]) -> str:
        """Declare a weight; return its address."""
        address = address_of(name)
        if name not in self._declared:
            self._declared.add(name)
            tensor = self._weights[name]
            dtype = dtype_of(tensor.data_type)
            owner = None if "." in address else scope[-1].address if scope else ""
            if self._targets.get(name) == "BUFFER":
                self._builder.buffer_of(address, tensor.dims, dtype, owner=owner)
            else:
                trainable = "float" in dtype and not dtype.startswith(("float8", "float4"))
                self._builder.param(address, tensor.dims, dtype, trainable=trainable, owner=owner)
        return address

    def _buffer(self, name: str, scope: tuple[Scope, ...]) -> int:
        """Return the row of a buffer that an operation reads."""
        if name not in self._rows:
            tensor = self._weights[name]
            self._declared.add(name)
            meta = tensor.dims, dtype_of(tensor.data_type)
            self._rows[name] = self._builder.buffer(name, *meta, scope)
        return self._rows[name]

    # -- operations ------------------------------------------------------------------------------------

    def _add_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            if node.op_type == "Constant" and not node.domain and len(node.output) == 1:
                self._add_constant(node)
            elif (
                node.op_type == "Identity"
                and not node.domain
                and self._original(node.input[0]) in self._weights
            ):
                self._same[node.output[0]] = node.input[0]
            else:
                self._add_node(node)

    def _add_node(self, node: onnx.NodeProto) -> None:
        scope = self._scopes[node.name]
        graphs = nested(node)
        parents: list[tuple[int, str]] = []
        params: list[str] = []
        settings = [f"{one.name}={text}" for one in node.attribute if (text := attribute_text(one))]
        names, variadic = self._names(node)
        fed = max((len(graph.input) for graph in graphs.values()), default=0)  # these go into the graphs
        for position, name in enumerate(node.input):
            if not name or position >= len(node.input) - fed:
                continue
            arg = argument(position, names, variadic)
            original = self._original(name)
            if original in self._small:
                label = names[position] if position < len(names) and not variadic else arg
                settings.append(f"{label}={array_text(self._small[original])}")
            elif original in self._weights and self._is_parameter(original, node, position):
                params.append(self._declare(original, scope))
            else:
                is_buffer = original in self._weights and original not in self._made
                row = self._buffer(original, scope) if is_buffer else self._row(original, scope)
                if row is not None:
                    parents.append((row, arg))
        if rule := next((one.value for one in node.metadata_props if one.key == _REWRITTEN), ""):
            settings.append(f"rewritten={rule!r}")
        is_merged = bool(rule) and not all(one.startswith(_ALONE) for one in rule.split(", "))
        is_folded = node.op_type.startswith("Conv") and any(name.startswith("onnx::Conv") for name in params)
        if is_folded:
            settings.append("weights='computed at export'")  # a BatchNorm after it was folded into them
        for attribute, graph in graphs.items():
            inside = self._inside[node.name, attribute]
            self._add_graph(node, graph, inside)
            scope = inside[:-1]  # the operation is in its module, beside its graphs
        event = len(self._builder)
        several = sum(map(bool, node.output)) > 1
        for position, name in enumerate(node.output):
            if not name:
                continue
            inner = []
            for attribute, graph in graphs.items():
                at = position + len(graph.output) - len(node.output)  # the first of a Loop is its condition
                row = (
                    self._row(graph.output[at].name, self._inside[node.name, attribute]) if at >= 0 else None
                )
                inner += [] if row is None else [(row, attribute)]
            self._rows[name] = self._builder.op(
                type_of(node.op_type),
                *self._meta(name),
                scope=scope,
                parents=[*parents, *inner],
                params=params,
                setting=", ".join(settings),
                event=event if several else None,
                output=position if several else -1,
                flags=0 if parents or inner or params else CREATED,
            )
            if is_folded:
                self._builder.merged(self._rows[name])
            if is_merged or not states_module(node):
                self._unsure.append(self._rows[name])

    def _add_graph(self, node: onnx.NodeProto, graph: onnx.GraphProto, scope: tuple[Scope, ...]) -> None:
        """Add a graph inside an operation, once however often it runs."""
        self._add_weights(graph)
        given = node.input[len(node.input) - len(graph.input) :]
        for value, name in zip(graph.input, given, strict=False):
            outer = self._row(name, scope[:-1]) if name else None
            self._rows[value.name] = self._builder.op(
                f"{type_of(node.op_type)}_input",
                *self._meta(value.name),
                scope=scope,
                parents=[] if outer is None else [(outer, "0")],
                flags=CREATED if outer is None else 0,
            )
        self._add_nodes(graph.node)

    def _row(self, name: str, scope: tuple[Scope, ...]) -> int | None:
        """Return the row of a tensor; make one for a constant."""
        original = self._original(name)
        if original in self._rows:
            return self._rows[original]
        if original in self._small:
            array = self._small[original]
            meta: _Known = array.shape, _dtype(array)
        elif original in self._weights:
            meta = self._weights[original].dims, dtype_of(self._weights[original].data_type)
        else:
            return None
        self._rows[original] = self._builder.constant(*meta, scope)
        return self._rows[original]

    def _original(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name

    def _is_parameter(self, name: str, node: onnx.NodeProto, position: int) -> bool:
        """Return whether a weight is a parameter where an operation takes it, and no buffer or constant."""
        if name in self._targets or name in self._made:
            return self._targets.get(name) == "PARAMETER"
        return position not in (3, 4) or bool(node.op_type != "BatchNormalization")

    def _names(self, node: onnx.NodeProto) -> tuple[tuple[str, ...], bool]:
        version = self._versions.get(node.domain, self._versions.get("", 1))
        names, variadic = argument_names(node.domain, node.op_type, version)
        if len(names) > 1 or variadic:
            self._arguments[type_of(node.op_type)] = names
        return names, variadic

    def _meta(self, name: str) -> _Known:
        """Return the shape and dtype of a tensor."""
        shape, dtype = self._known.get(name, ((-1,), ""))
        value = self._values.get(name)
        return (shape, dtype) if value is None else (value.shape, dtype or _dtype(value))


def _dtype(array: np.ndarray) -> str:
    return str(array.dtype) if array.dtype.kind in "biufc" else "string"


def _types(model: onnx.ModelProto) -> dict[str, _Known]:
    """Return the shape and dtype of every tensor of which they are known."""
    known: dict[str, _Known] = {}

    def add(graph: onnx.GraphProto) -> None:
        for value in (*graph.input, *graph.output, *graph.value_info):
            known[value.name] = _type(value.type)
        for node in graph.node:
            for inner in nested(node).values():
                add(inner)

    add(inferred(model).graph)
    return known


def _type(type_: onnx.TypeProto) -> _Known:
    kind = type_.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(type_, kind)
        dtype = dtype_of(tensor.elem_type)
        if not tensor.HasField("shape"):
            return (-1,), dtype
        lengths = (dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
        return tuple(max(-1, length) for length in lengths), dtype
    if kind in ("sequence_type", "optional_type"):
        return (-1,), f"{kind.removesuffix('_type')}({_type(getattr(type_, kind).elem_type)[1]})"
    return (-1,), "map" if kind else ""
