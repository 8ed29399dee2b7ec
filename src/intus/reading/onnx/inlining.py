"""Inline the functions of an ONNX model, and give every node and tensor a unique name and its modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import onnx

from ...core.building import Scope
from ...core.errors import CodecError
from ..bounds import check_depth
from .placing import placed
from .scopes import Scopes

#: A model is refused that has more nodes, or more bytes for each of its own, once its functions are inlined.
_MOST, _TIMES = 1_000_000, 20
#: A model of fewer bytes than this, once its functions are inlined, is read however small its file is.
_SMALL = 1 << 28
_DEEPEST = 50

_Names = Mapping[str, str]
_Attributes = Mapping[str, onnx.AttributeProto]


class Inlined(NamedTuple):
    """A model without functions of its own.

    Attributes:
        model: The model; the names of all its nodes and tensors, also in nested graphs, are unique.
        scopes: The module calls around each node, by the node's name.
        inside: The module calls around each nested graph, by the name of the node and the attribute. The last
            two are the operation that the graph belongs to, and the graph.
        returned: The tensors that each call of a function returned, in its order, with the module calls
            around them, of which that of the function is the last.
        told: The addresses of modules of which the file tells the calls.
    """

    model: onnx.ModelProto
    scopes: dict[str, tuple[Scope, ...]]
    inside: dict[tuple[str, str], tuple[Scope, ...]]
    returned: list[tuple[str, tuple[Scope, ...]]]
    told: set[str]


def inline(model: onnx.ModelProto, path: Path) -> Inlined:
    """Inline the functions of a model.

    Args:
        model: The model, which stays as it is.
        path: Its file, for messages.

    Raises:
        CodecError: If functions call each other in a circle, or there are too many nodes.
    """
    _Sizes(model, path).check()
    inliner = _Inliner(model, path)
    nodes = inliner.nodes(model.graph.node, {}, (), "", {}, 0)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.functions[:]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    inliner.place(result.graph)
    return Inlined(result, inliner.scopes, inliner.inside, inliner.returned, inliner.told())


def nested(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """Return the graphs in the attributes of a node, by the name of the attribute."""
    found = {}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            found[attribute.name] = attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            found |= {f"{attribute.name}_{n}": graph for n, graph in enumerate(attribute.graphs)}
    return found


def constants(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the initializers and the values of constants of a model and its nested graphs, by name."""
    found: dict[str, onnx.TensorProto] = {}

    def add(graph: onnx.GraphProto) -> None:
        found.update((tensor.name, tensor) for tensor in graph.initializer)
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    found[node.output[0]] = attribute.t
            for inner in nested(node).values():
                add(inner)

    add(model.graph)
    return found


def _every(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes with those of their nested graphs, which are before them."""
    found: list[onnx.NodeProto] = []
    for node in nodes:
        for graph in nested(node).values():
            found += _every(graph.node)
        found.append(node)
    return found


class _Size(NamedTuple):
    """The number of nodes once functions are inlined, their bytes, and the names in them."""

    nodes: int = 0
    bytes: int = 0
    names: int = 0

    def plus(self, inner: _Size, prefix: int) -> _Size:
        """Return the size with nodes inside, before whose names a prefix of so many characters is put."""
        return _Size(
            self.nodes + inner.nodes,
            self.bytes + inner.bytes + inner.names * prefix,
            self.names + inner.names,
        )


class _Sizes:
    """Counts what a model becomes without making it: functions that call each other grow as powers do."""

    def __init__(self, model: onnx.ModelProto, path: Path) -> None:
        self._model, self._path = model, path
        self._functions = {_key(one): one for one in model.functions}
        self._known: dict[tuple[str, str, str], _Size] = {}

    def check(self) -> None:
        """Raise CodecError if the model becomes too large, or nests too deep."""
        found = self._of(self._model.graph.node, 0)
        own = self._model.ByteSize()
        if found.nodes > _MOST:
            raise CodecError(
                f"{str(self._path)!r} is not read: its functions call each other so often that it has "
                f"{found.nodes:,} nodes, more than {_MOST:,}."
            )
        if found.bytes > max(_SMALL, _TIMES * own):
            raise CodecError(
                f"{str(self._path)!r} is not read: its functions call each other so often that it takes "
                f"{found.bytes:,} bytes, more than {_TIMES} times its own {own:,}."
            )

    def _of(self, nodes: Iterable[onnx.NodeProto], depth: int) -> _Size:
        if depth > _DEEPEST:
            raise CodecError(f"{str(self._path)!r} nests functions or graphs more than {_DEEPEST} deep.")
        total = _Size()
        for node in nodes:
            own = len(node.name or node.op_type) + 1
            total = total.plus(_Size(1, node.ByteSize(), 1 + len(node.input) + len(node.output)), 0)
            key = node.domain, node.op_type, node.overload
            if key in self._functions:
                if key not in self._known:
                    self._known[key] = self._of(self._functions[key].node, depth + 1)
                total = total.plus(self._known[key], own)
                continue
            for attribute, graph in nested(node).items():
                total = total.plus(self._of(graph.node, depth + 1), own + len(attribute) + 1)
        return total


def _key(function: onnx.FunctionProto) -> tuple[str, str, str]:
    return function.domain, function.name, function.overload


class _Inliner:
    def __init__(self, model: onnx.ModelProto, path: Path) -> None:
        self._path = path
        self._functions = {_key(one): one for one in model.functions}
        every = [*_every(model.graph.node), *(node for one in model.functions for node in _every(one.node))]
        for node in every:
            check_depth(str(path), node.name, node.name.count("/"))
        self._stated = Scopes(every, [tensor.name for tensor in model.graph.initializer])
        self._unstated: dict[str, tuple[Scope, ...]] = {}  # the calls around nodes that state no module
        self.scopes: dict[str, tuple[Scope, ...]] = {}
        self.inside: dict[tuple[str, str], tuple[Scope, ...]] = {}
        self.returned: list[tuple[str, tuple[Scope, ...]]] = []

    def nodes(
        self,
        nodes: Iterable[onnx.NodeProto],
        names: _Names,
        around: tuple[Scope, ...],
        prefix: str,
        given: _Attributes,
        depth: int,
    ) -> list[onnx.NodeProto]:
        """Return copies of nodes with functions inlined.

        Args:
            nodes: The nodes.
            names: The unique names of tensors; those that are not in it keep theirs.
            around: The module calls around.
            prefix: The beginning of the nodes' unique names.
            given: The attributes of the call, within a function.
            depth: The number of functions and nested graphs around.
        """
        if depth > _DEEPEST:
            raise CodecError(f"{str(self._path)!r} nests functions or graphs more than {_DEEPEST} deep.")
        copies = []
        for node in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [names.get(name, name) for name in node.input]
            copy.output[:] = [names.get(name, name) for name in node.output]
            _bind(copy, given)
            copy.name = self._unique(f"{prefix}{node.name or node.op_type}")
            outer = {scope.address for scope in around}
            stated = self._stated.of(node)
            scope = (*around, *(s for s in stated or () if s.address not in outer))
            check_depth(str(self._path), copy.name, len(scope))
            self.scopes[copy.name] = scope
            function = self._functions.get((node.domain, node.op_type, node.overload))
            if function is not None:
                copies += self._call(copy, function, (*scope, _module(copy, scope, function.name)), depth)
                continue
            graphs = nested(copy)
            if stated is None and not graphs:
                self._unstated[copy.name] = scope
            module = (*scope, _module(copy, scope, node.op_type))
            for attribute, graph in graphs.items():
                inside = (*module, Scope(f"{module[-1].address}.{attribute}", attribute))
                self.inside[copy.name, attribute] = inside
                self._body(graph, names, inside, f"{copy.name}.{attribute}/", given, depth)
            copies.append(copy)
        return copies

    def told(self) -> set[str]:
        """Return the addresses of modules of which the file tells the calls: functions and graphs too."""
        drawn = (*(around for _, around in self.returned), *self.inside.values())
        return self._stated.told | {scope.address for around in drawn for scope in around[-2:]}

    def place(self, graph: onnx.GraphProto) -> None:
        """Find the modules of the nodes that state none; see ``placed``."""
        stated = {name: scope for name, scope in self.scopes.items() if name not in self._unstated}
        self.scopes |= placed(_every(graph.node), graph, stated, self._unstated)

    def _call(
        self, call: onnx.NodeProto, function: onnx.FunctionProto, around: tuple[Scope, ...], depth: int
    ) -> list[onnx.NodeProto]:
        """Return the nodes of a function for one call."""
        prefix = f"{call.name}/"
        names = dict.fromkeys(function.input, "")  # of inputs that are left out
        names |= zip(function.input, call.input, strict=False)
        names |= _defined(function.node, prefix)
        names |= ((name, out) for name, out in zip(function.output, call.output, strict=False) if out)
        given = {one.name: one for one in (*function.attribute_proto, *call.attribute)}
        self.returned += [(name, around) for name in call.output if name]
        return self.nodes(function.node, names, around, prefix, given, depth + 1)

    def _body(
        self,
        graph: onnx.GraphProto,
        names: _Names,
        around: tuple[Scope, ...],
        prefix: str,
        given: _Attributes,
        depth: int,
    ) -> None:
        """Rename what a nested graph defines, and inline the functions in it."""
        own = {value.name: f"{prefix}{value.name}" for value in (*graph.input, *graph.initializer)}
        names = {**names, **own, **_defined(graph.node, prefix)}
        for value in (*graph.input, *graph.initializer, *graph.output, *graph.value_info):
            value.name = names.get(value.name, value.name)
        nodes = self.nodes(graph.node, names, around, prefix, given, depth + 1)
        del graph.node[:]
        graph.node.extend(nodes)

    def _unique(self, name: str) -> str:
        unique = name
        while unique in self.scopes:
            unique = f"{name}_{len(self.scopes)}"
        if len(self.scopes) > _MOST:  # a graph that is passed to a function may be in it any number of times
            raise CodecError(f"{str(self._path)!r} has more than {_MOST:,} nodes.")
        return unique


def _defined(nodes: Iterable[onnx.NodeProto], prefix: str) -> dict[str, str]:
    return {name: f"{prefix}{name}" for node in nodes for name in node.output if name}


def _module(node: onnx.NodeProto, scope: tuple[Scope, ...], type_: str) -> Scope:
    """Return the module that a node is drawn as: a call of a function, or an operation with graphs inside."""
    own = node.name.rstrip("/").rpartition("/")[2] or type_
    return Scope(f"{scope[-1].address}.{own}" if scope else own, type_)


def _bind(node: onnx.NodeProto, given: _Attributes) -> None:
    """Replace the attributes that refer to those of a function's call."""
    bound = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:  # otherwise it takes the operator's default
                copy = onnx.AttributeProto()
                copy.CopyFrom(given[attribute.ref_attr_name])
                copy.name = attribute.name
                bound.append(copy)
        else:
            bound.append(attribute)
    if len(bound) < len(node.attribute) or any(one.ref_attr_name for one in node.attribute):
        bound = [onnx.AttributeProto.FromString(one.SerializeToString()) for one in bound]
        del node.attribute[:]
        node.attribute.extend(bound)
