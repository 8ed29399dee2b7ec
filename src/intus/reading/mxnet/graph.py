"""Build the graph of a symbol of MXNet from its JSON."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.building import GraphBuilder, Scope
from ...core.errors import CodecError
from ...core.graph import CREATED, Graph
from ...core.shortest import shortest_in_text

_Entry = tuple[int, int]
_Meta = tuple[tuple[int, ...], str]
_DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")
#: How the names of parameters end, after the name of their block or operation.
_PARAMETER = re.compile(
    r"(.+?)_((?:[lr]\d+_)?(?:i2h_|h2h_)?(?:weight|bias)|gamma|beta|alpha|parameters"
    r"|(?:running|moving)_(?:mean|var))"
)
_STATISTICS = re.compile(r".*_(?:running|moving)_(?:mean|var)")
_LONGEST = 200
#: Operations that do something else in training. A file runs in evaluation mode.
_TRAINED = ("BatchNorm", "Dropout")


class Symbol(NamedTuple):
    """A symbol.

    Attributes:
        graph: Its JSON.
        nodes: Its nodes, each after those that it reads.
        entries: The outputs of nodes that something reads or that are returned, as pairs of node and output.
        heads: Those that are returned.
        version: The version of MXNet that wrote it; ``""`` if unknown.
    """

    graph: dict[str, Any]
    nodes: list[dict[str, Any]]
    entries: list[_Entry]
    heads: list[_Entry]
    version: str


def symbol_of(path: Path) -> Symbol:
    """Return the symbol in a file.

    Raises:
        CodecError: If it is none, or is damaged.
    """
    try:
        graph = json.loads(path.read_bytes())
        nodes = graph["nodes"]
        heads = [(int(head[0]), int(head[1])) for head in graph["heads"]]
        if not heads:
            raise ValueError("it returns nothing: its list of heads is empty")
        read = set(heads)
        for number, node in enumerate(nodes):
            if not isinstance(node["name"], str) or not isinstance(node["op"], str):
                raise TypeError("a name is no text")
            for source, output, *_ in node["inputs"]:
                if not 0 <= source < number or output < 0:
                    raise ValueError(f"{node['name']!r} reads the node {source}, which does not precede it")
                read.add((source, output))
            read.add((number, 0))
        if any(not 0 <= node < len(nodes) for node, _ in read):
            raise ValueError("it returns a node that it does not have")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        text = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise CodecError(f"{str(path)!r} is no symbol of MXNet, or is damaged: {text[:200]}.") from None
    version = (graph.get("attrs") or {}).get("mxnet_version", ["", ""])[1]
    text = f"{version // 10000}.{version // 100 % 100}.{version % 100}" if isinstance(version, int) else ""
    return Symbol(graph, nodes, sorted(read), heads, text)


class Program:
    """A symbol whose variables are told apart into inputs and parameters.

    Args:
        symbol: The symbol.
        name: The model's name.
        arrays: The shapes and dtypes of the parameters that are known.

    Attributes:
        inputs: The names of its inputs.
        parameters: The addresses of its parameters by name.
        notes: What is not shown.
    """

    def __init__(self, symbol: Symbol, name: str, arrays: Mapping[str, _Meta]) -> None:
        self._symbol, self._name, self._arrays = symbol, name, arrays
        variables = [node for node in symbol.nodes if node["op"] == "null"]
        ops = {node["name"] for node in symbol.nodes if node["op"] != "null"}
        self.inputs = [one["name"] for one in variables if not self._is_parameter(one, ops)]
        names = [one["name"] for one in variables if one["name"] not in self.inputs]
        self._modules = _Modules(names, ops)
        self.parameters = {one: self._modules.address(one) for one in names}
        self.notes = [
            f"The graphs inside of {node['name']!r} ({node['op']}) are not shown."
            for node in symbol.nodes
            if node.get("subgraphs")
        ]

    def _is_parameter(self, node: Mapping[str, Any], ops: Collection[str]) -> bool:
        name, attributes = node["name"], _attributes(node)
        if self._arrays:
            return name in self._arrays
        match = _PARAMETER.fullmatch(name)
        return "__lr_mult__" in attributes or (match is not None and match[1] in ops)

    def graph(
        self, facts: Mapping[str, Any], values: Mapping[_Entry, np.ndarray]
    ) -> tuple[Graph, dict[int, _Entry]]:
        """Return the graph, and the node and output of its rows.

        Args:
            facts: Facts to store in it.
            values: The values of tensors, which state their shapes.
        """
        builder = GraphBuilder(self._name)
        for address, type_ in self._modules.types(self._symbol.nodes).items():
            builder.module(address, type_)
        metas = {name: self._meta_of_variable(name) for name in self.parameters}
        for name, address in self.parameters.items():
            owner = address.rpartition(".")[0]
            if _STATISTICS.fullmatch(name):
                builder.buffer_of(address, *metas[name], owner=owner)
            else:
                builder.param(address, *metas[name], owner=owner)
        rows: dict[_Entry, int] = {}
        several = {node for node, output in self._symbol.entries if output > 0}
        known = [*metas.values(), *map(self._meta_of_variable, self.inputs), *map(_meta, values.values())]
        stated = [_attributes(node).get("dtype") for node in self._symbol.nodes]
        is_double = "float64" in [*stated, *(dtype for _, dtype in known)]
        for number, node in enumerate(self._symbol.nodes):
            if node["op"] == "null":
                if node["name"] not in self.parameters:
                    value = values.get((number, 0))
                    meta = self._meta_of_variable(node["name"]) if value is None else _meta(value)
                    rows[number, 0] = builder.input(node["name"], *meta)
                continue
            sources = [(source, output) for source, output, *_ in node["inputs"]]
            read = [self._symbol.nodes[source]["name"] for source, _ in sources]
            scope = self._modules.scope(node["name"])
            parents = [(rows[one], str(at)) for at, one in enumerate(sources) if one in rows]
            for at, name in enumerate(read):
                if name in self.parameters and _STATISTICS.fullmatch(name):
                    if sources[at] not in rows:
                        rows[sources[at]] = builder.buffer(self.parameters[name], *metas[name], scope)
                    parents.append((rows[sources[at]], str(at)))
            params = [
                self.parameters[name]
                for name in read
                if name in self.parameters and not _STATISTICS.fullmatch(name)
            ]
            event = len(builder)
            for entry in [one for one in self._symbol.entries if one[0] == number]:
                value = values.get(entry)
                rows[entry] = builder.op(
                    node["op"].strip("_"),
                    *(((-1,), "") if value is None else _meta(value)),
                    scope=scope,
                    parents=dict.fromkeys(parents),
                    params=params,
                    setting=_setting(node, is_double=is_double),
                    event=event,
                    output=entry[1] if number in several else -1,
                    flags=0 if parents or params else CREATED,
                )
        ends = {builder.output("", rows[head]): head for head in self._symbol.heads if head in rows}
        graph, placed = builder.graph(facts)
        found = {int(placed[row]): entry for entry, row in rows.items()}
        return graph, found | {int(placed[row]): entry for row, entry in ends.items()}

    def _meta_of_variable(self, name: str) -> _Meta:
        if name in self._arrays:
            return self._arrays[name]
        node = next(one for one in self._symbol.nodes if one["name"] == name)
        attributes = _attributes(node)
        try:
            shape = ast.literal_eval(attributes.get("__shape__", "(0,)"))
            lengths = tuple(int(one) or -1 for one in shape)
            return lengths, _DTYPES[int(attributes.get("__dtype__", 0))]
        except (ValueError, SyntaxError, TypeError, IndexError, MemoryError, RecursionError):
            return (-1,), ""


class _Modules:
    """The blocks that the names of parameters and operations begin with.

    A block of Gluon gives its prefix to what is inside: ``resnetv10_stage1_conv0_weight`` is a parameter of
    ``stage1.conv0``. Names that only continue another are one block: ``my_net`` is no ``net`` in ``my``.
    """

    def __init__(self, parameters: Collection[str], ops: Collection[str]) -> None:
        is_gluon = any(name.endswith("_fwd") for name in ops)
        every = [*parameters, *ops]
        parts = zip(*(name.split("_")[:-1] for name in every if is_gluon), strict=False)
        common = takewhile(lambda several: len(set(several)) == 1, parts)
        self._prefix = "".join(f"{several[0]}_" for several in common)
        blocks = {match[1] for one in parameters if (match := _PARAMETER.fullmatch(one))}
        blocks |= {one.removesuffix("_fwd") for one in ops if one.endswith("_fwd")}
        #: The parts of the name of each block, without the common beginning.
        own = {
            tuple(one.removeprefix(self._prefix).split("_")) for one in blocks if len(one) > len(self._prefix)
        }
        self._paths: dict[tuple[str, ...], list[str]] = {}
        if not is_gluon:
            self._paths = {one: ["_".join(one)] for one in own}
            return
        above = {one[:length] for one in own for length in range(1, len(one))}
        following: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for one in own | above:
            following.setdefault(one[:-1], set()).add(one)
        for one in sorted(own | {one for one in above if len(following[one]) > 1}):
            around = max((two for two in self._paths if one[: len(two)] == two), key=len, default=())
            self._paths[one] = [*self._paths.get(around, []), "_".join(one[len(around) :])]

    def _of(self, name: str) -> tuple[str, ...]:
        """Return the parts of the innermost block of a name."""
        parts = tuple(name.removeprefix(self._prefix).split("_"))
        lengths = range(len(parts), 0, -1)
        return next((parts[:length] for length in lengths if parts[:length] in self._paths), ())

    def address(self, parameter: str) -> str:
        """Return the address of a parameter."""
        block = self._of(parameter)
        rest = parameter.removeprefix(self._prefix).split("_")[len(block) :]
        return ".".join([*self._paths.get(block, []), "_".join(rest)])

    def scope(self, op: str) -> tuple[Scope, ...]:
        """Return the module calls that an operation ran in."""
        parts = self._paths.get(self._of(op), [])
        return tuple(Scope(".".join(parts[: n + 1])) for n in range(len(parts)))

    def types(self, nodes: Collection[Mapping[str, Any]]) -> dict[str, str]:
        """Return the modules, with the type of the operation of those that are one."""
        found = {".".join(one): "" for one in self._paths.values()}
        for node in nodes:
            parts = self._paths.get(self._of(node["name"]), [])
            is_whole = node["name"].removeprefix(self._prefix).removesuffix("_fwd") == "_".join(parts)
            if node["op"] != "null" and parts and (node["name"].endswith("_fwd") or is_whole):
                found[".".join(parts)] = node["op"]
        return found


def _attributes(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a node, which older versions keep under other names."""
    return {**node.get("param", {}), **node.get("attr", {}), **node.get("attrs", {})}


def _setting(node: Mapping[str, Any], *, is_double: bool) -> str:
    """Return the settings of an operation as text.

    Args:
        node: The operation.
        is_double: Whether something is computed in float64, so that no number is shortened.
    """
    settings = {key: value for key, value in _attributes(node).items() if key[:2] != "__"}
    if node["op"] in _TRAINED:
        settings["training"] = False
    # A longer one is left out whole: what is left of a number would be another.
    texts = (f"{key}={value}" for key, value in settings.items())
    text = ", ".join(one for one in texts if len(one) <= _LONGEST)
    return text if is_double else shortest_in_text(text)


def _meta(value: np.ndarray) -> _Meta:
    return value.shape, value.dtype.name
