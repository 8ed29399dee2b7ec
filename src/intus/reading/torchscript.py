"""Read the graph of TorchScript: of a file that ``torch.jit.save`` wrote, or of a loaded model.

Every call of a submodule's method is a module call. A function of ``torch.nn.functional`` is one operation.
Of a file nothing runs: conditions on constants, such as ``training``, are decided, other branches and loops
are drawn once, and no values are computed. A model that the caller has loaded runs on inputs
(``evaluated``).
"""

from __future__ import annotations

import inspect
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from ..core.building import GraphBuilder, Scope
from ..core.errors import CodecError, InputError
from ..core.graph import CREATED, INPLACE, Graph
from ..core.traced import Traced
from .torchscript_values import Restored, Values, same, values_of

_LONGEST = 200
_A = {"if": "a condition", "loop": "a loop"}
_DEEPEST = 200
_NOT_FOLDED = object()
_UNKNOWN: tuple[tuple[int, ...], str] = ((-1,), "")
_UNPACKING = ("prim::ListUnpack", "prim::TupleUnpack")
#: Operations that pass their first argument on as it is.
_SAME = frozenset(
    {
        "prim::unchecked_cast",
        "prim::unchecked_unwrap_optional",
        "aten::_unwrap_optional",
        "prim::Uninitialized",
    }
)


class _Row(NamedTuple):
    """A value that is a row of the graph; ``param`` is the address of a parameter, which is none."""

    row: int = -1
    param: str = ""


class _Module(NamedTuple):
    """A value that is a module."""

    address: str
    script: Any


class _Many(NamedTuple):
    """A list or tuple of values."""

    items: list[Any]


class _Open(NamedTuple):
    """A number or other value that is not known; ``row`` is that of a tensor that it was computed from."""

    text: str
    row: int = -1


def read(path: Path, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Traced:
    """Return the graph of a TorchScript file.

    Args:
        path: The file.
        inputs: Inputs, which are refused.
        named: Inputs by name, which are refused.

    Raises:
        CodecError: If the file is damaged, or contains code that runs when it is loaded.
        InputError: If inputs are given.
    """
    if inputs or named:
        raise InputError(
            f"{path.name} is TorchScript, of which intus reads the graph but computes no values. Leave the "
            "inputs out, or export the model with torch.export or to ONNX."
        )
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".py") and b"__setstate__" in archive.read(name):
                raise CodecError(
                    f"{str(path)!r} contains code that runs when it is loaded (__setstate__ in {name}), so "
                    "it is not read. Export the model with torch.export or to ONNX."
                )
    try:
        load: Any = torch._C.import_ir_module  # torch.jit.load without its warning
        script = load(torch._C.CompilationUnit(), str(path), torch.device("cpu"), {}, False)
    except RuntimeError as error:
        text = " ".join(str(error).split())[:200]
        raise CodecError(
            f"{str(path)!r} is damaged, or of a version that torch does not know: {text}"
        ) from None
    return Traced(structure(script, path.name), {})


def structure(script: Any, name: str) -> Graph:
    """Return the graph of a TorchScript module.

    Args:
        script: The module: ``torch._C.ScriptModule``, as ``_c`` of a ``torch.jit.ScriptModule`` is one.
        name: The model's name.
    """
    rows = _Rows(script, name)
    rows.model()
    return rows.traced().graph


def evaluated(
    script: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any, restored: Restored
) -> Traced:
    """Return the graph of a call of a TorchScript module, with values.

    Args:
        script: The module, as in ``structure``.
        name: The model's name.
        args: The positional arguments of the call.
        kwargs: Its keyword arguments.
        output: What the module returned.
        restored: Returns a context with the state from before the call; each method runs in one.
    """
    rows = _Rows(script, name, _Pass(_bound(script, args, kwargs), output, restored))
    rows.model()
    return rows.traced()._replace(params=rows.parameters())


class _Pass(NamedTuple):
    """A call of the model: its arguments, what it returned, and what restores the state before it."""

    arguments: list[Any]
    output: Any
    restored: Restored


class _Rows:
    def __init__(self, script: Any, name: str, call: _Pass | None = None) -> None:
        self._call = call
        self._values: dict[int, torch.Tensor] = {}
        self._notes: dict[str, None] = {}
        self._root = _Module("", script)
        self._builder = GraphBuilder(name, _class(script))
        self._rows: dict[str, int] = {}
        self._written: dict[int, int] = {}  # rows of tensors that an operation wrote into, and its row
        self._params: dict[str, torch.Tensor] = {}
        self._by_data: dict[tuple[int, tuple[int, ...]], str] = {}  # parameters, by memory and shape
        self._modules: set[str] = set()
        self._calls: dict[str, int] = {}
        self._arguments: dict[str, list[str]] = {}
        self._count = 0
        self._declare(self._root)
        if not script.hasattr("training"):
            self._notes[
                "torch.jit.freeze made the weights of this model constants, which do not count as parameters."
            ] = None

    def _declare(self, module: _Module) -> None:
        prefix = f"{module.address}." if module.address else ""
        params: Any = torch._C.ParameterDict(module.script)
        buffers: Any = torch._C.BufferDict(module.script)
        modules: Any = torch._C.ModuleDict(module.script)
        for name, value in params.items():
            address = f"{prefix}{name}"
            key = value.data_ptr() or id(value), tuple(value.shape)
            first = self._by_data.setdefault(key, address) if value.numel() else address
            if first == address:
                self._builder.param(address, *_meta(value), trainable=value.requires_grad)
            else:
                self._builder.shared_param(address, first)
            self._params[address] = value
        for name, value in buffers.items():
            self._builder.buffer_of(f"{prefix}{name}", *_meta(value))
        for name, value in modules.items():
            inner = _Module(f"{prefix}{name}", value)
            self._builder.module(inner.address, _class(value))
            self._modules.add(inner.address)
            self._declare(inner)

    def traced(self) -> Traced:
        """Return the graph and the values."""
        if self._call is None:
            self._notes["The shapes and values of TorchScript are not in the file."] = None
        facts: dict[str, Any] = {"format": "TorchScript", "arguments": self._arguments}
        if self._notes:
            facts["notes"] = list(self._notes)
        graph, rows = self._builder.graph(facts)
        return Traced(graph, {int(rows[row]): _array(value) for row, value in self._values.items()})

    def parameters(self) -> dict[str, np.ndarray]:
        """Return copies of the parameters by address."""
        return {address: _array(value.detach().clone()) for address, value in self._params.items()}

    def model(self) -> None:
        """Add everything."""
        if not self._root.script._has_method("forward"):
            raise CodecError("The TorchScript model has no method forward.")
        graph = self._root.script._get_method("forward").graph
        given: list[Any] = [self._root]
        for place, value in enumerate(list(graph.inputs())[1:]):
            name = value.debugName().partition(".")[0]
            if self._call is None:
                given.append(_Row(self._builder.input(name, *_of_type(value.type()))))
            else:
                given.append(self._input(name, self._call.arguments[place]))
        values = None
        if self._call is not None:
            values = self._evaluated(self._root, graph, self._call.arguments, self._call.output)
        results = self._run(graph, given, (), 0, values)
        ends = [self._builder.output("", row) for result in results for row in self._flat(result, ())]
        returned = () if self._call is None else tree_leaves(self._call.output)
        tensors = [one for one in returned if isinstance(one, torch.Tensor)]
        if len(tensors) == len(ends):
            self._values |= {end: one.detach().clone() for end, one in zip(ends, tensors, strict=True)}

    def _input(self, name: str, value: Any) -> Any:
        """Return an argument of the model, with a row for each tensor in it."""
        if isinstance(value, torch.Tensor):
            row = self._builder.input(name, *_meta(value))
            self._values[row] = value.detach().clone()
            return _Row(row)
        if isinstance(value, list | tuple):
            return _Many([self._input(f"{name}.{place}", one) for place, one in enumerate(value)])
        if isinstance(value, Mapping):
            rows = [self._input(f"{name}.{key}", one) for key, one in value.items()]
            return _Open(name, next((one.row for one in rows if isinstance(one, _Row)), -1))
        return value

    def _evaluated(self, module: _Module, graph: Any, arguments: Sequence[Any], result: Any) -> Values | None:
        """Return the values of a call; None, with a note, if they are not those of the pass."""
        assert self._call is not None
        name = repr(module.address) if module.address else "the model"
        try:
            values = values_of(module.script, graph, arguments, self._call.restored)
        except (RuntimeError, TypeError) as error:  # of a kind of argument that Python has no value for
            text = " ".join(str(error).split())[:200].rstrip(".")
            self._notes[f"What is inside of {name} has no value: torch cannot run it alone: {text}."] = None
            return None
        if not same(values.result, result):
            self._notes[
                f"What is inside of {name} has no value, because it returns something else each time that it "
                "runs (random numbers, or a state that it changes)."
            ] = None
            return None
        return values

    def _run(
        self,
        graph: Any,
        given: Sequence[Any],
        scope: tuple[Scope, ...],
        depth: int,
        values: Values | None,
    ) -> list[Any]:
        """Add the operations of a graph or a block; return what it returns."""
        if depth > _DEEPEST:
            raise CodecError(f"The methods of TorchScript call each other more than {_DEEPEST} deep.")
        known = dict(zip((value.debugName() for value in graph.inputs()), given, strict=False))
        return self._block(graph, known, scope, depth, values)

    def _block(
        self,
        block: Any,
        known: dict[str, Any],
        scope: tuple[Scope, ...],
        depth: int,
        values: Values | None = None,
    ) -> list[Any]:
        for node in block.nodes():
            results = self._node(node, known, scope, depth, values)
            for value, result in zip(node.outputs(), results, strict=False):
                known[value.debugName()] = result
                tensor = values.tensors.get(value.debugName()) if values else None
                is_one = isinstance(result, _Row) and result.row >= 0 and node.kind() not in _UNPACKING
                if tensor is not None and is_one:
                    self._values.setdefault(result.row, tensor)
        return [self._known(value, known) for value in block.outputs()]

    def _known(self, value: Any, known: Mapping[str, Any]) -> Any:
        found = known.get(value.debugName(), _Open(value.debugName()))
        while isinstance(found, _Row) and found.row in self._written:
            found = _Row(self._written[found.row])
        return found

    def _node(
        self,
        node: Any,
        known: dict[str, Any],
        scope: tuple[Scope, ...],
        depth: int,
        values: Values | None,
    ) -> list[Any]:
        """Return the values of the outputs of a node."""
        kind = node.kind()
        given = [self._known(value, known) for value in node.inputs()]
        if kind == "prim::Constant":
            return [self._constant(node, scope)]
        if kind == "prim::GetAttr":
            return [self._attribute(given[0], node.s("name"), scope)]
        if kind == "prim::CallMethod" and isinstance(given[0], _Module):
            return self._method(given[0], node, given, scope, depth, values)
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return [_Many(given)]
        if kind in _UNPACKING:
            several = list(node.outputs())
            if isinstance(given[0], _Many) and len(given[0].items) == len(several):
                return given[0].items
            return [given[0]] * len(several)
        if kind in _SAME and given:
            return given[:1]
        if (folded := _folded(kind, given)) is not _NOT_FOLDED:
            return [folded]
        if kind in ("prim::If", "prim::Loop"):
            return self._nested(node, given, known, scope, depth, values)
        return self._operation(node, given, scope, values)

    def _constant(self, node: Any, scope: tuple[Scope, ...]) -> Any:
        value = node.output()
        if value.type().kind() == "FunctionType":
            return _Open(node.s("name"))
        constant = value.toIValue()
        if isinstance(constant, torch.Tensor):
            if constant.dim() == 0:
                return constant.item()
            row = self._builder.constant(*_meta(constant), scope)
            if self._call is not None:
                self._values[row] = constant.detach()
            return _Row(row)
        return constant

    def _attribute(self, owner: Any, name: str, scope: tuple[Scope, ...]) -> Any:
        if not isinstance(owner, _Module):
            return _Open(name)
        address = f"{owner.address}.{name}".lstrip(".")
        if address in self._params:
            return _Row(param=address)
        value = owner.script.getattr(name)
        if isinstance(value, torch._C.ScriptModule):
            return _Module(address, value)
        if isinstance(value, torch.Tensor):
            if address not in self._rows:
                self._rows[address] = row = self._builder.buffer(address, *_meta(value), scope)
                if self._call is not None:
                    self._values[row] = value.detach().clone()
            return _Row(self._rows[address])
        if isinstance(value, list) and value and all(isinstance(one, torch.Tensor) for one in value):
            known = [self._by_data.get((one.data_ptr(), tuple(one.shape)), "") for one in value]
            return _Many([_Row(param=one) if one else _Open(name) for one in known])  # weights of an LSTM
        return value

    def _method(
        self,
        module: _Module,
        node: Any,
        given: Sequence[Any],
        scope: tuple[Scope, ...],
        depth: int,
        values: Values | None,
    ) -> list[Any]:
        """Add the operations of a method; of another module, as a call of it."""
        inner = next((one.address for one in reversed(scope) if one.address in self._modules), "")
        if module.address != inner:
            self._calls[module.address] = call = self._calls.get(module.address, 0) + 1
            scope = (*scope, Scope(module.address, _class(module.script), call))
        graph, made = module.script._get_method(node.s("name")).graph, node.output().debugName()
        inside = None
        if values is not None and made in values.results:
            inside = self._evaluated(module, graph, values.calls.get(made, []), values.results[made])
        results = self._run(graph, given, scope, depth + 1, inside)
        return [results[0] if len(results) == 1 else _Many(results)]

    def _nested(
        self,
        node: Any,
        given: list[Any],
        known: dict[str, Any],
        scope: tuple[Scope, ...],
        depth: int,
        values: Values | None,
    ) -> list[Any]:
        """Add the blocks of a condition or loop, and an operation for each tensor that it returns."""
        type_ = node.kind().rpartition("::")[2].lower()
        blocks = list(node.blocks())
        if type_ == "if" and isinstance(given[0], bool):
            return self._inside(blocks[not given[0]], dict(known), scope, depth, type_)
        self._count += 1
        address = f"{scope[-1].address}.{type_}_{self._count}" if scope else f"{type_}_{self._count}"
        around = (*scope, Scope(address, type_))
        names = ("then", "else") if type_ == "if" else ("body",)
        ends: list[list[Any]] = []
        for name, block in zip(names, blocks, strict=False):
            inside = dict(known)
            if type_ == "loop":  # the number of the iteration, then what is carried
                carried = [_Open("i"), *given[2:]]
                inside |= dict(zip((value.debugName() for value in block.inputs()), carried, strict=False))
            results = self._inside(block, inside, (*around, Scope(f"{address}.{name}", name)), depth, type_)
            ends.append(results[1:] if type_ == "loop" else results)
        returned: list[Any] = []
        for place, value in enumerate(node.outputs()):
            parents = [
                (row, name)
                for name, results in zip(names, ends, strict=False)
                if place < len(results)
                for row in self._flat(results[place], around)
            ]
            if not parents:
                returned.append(_Open(value.debugName()))
                continue
            parents += [(row, "condition") for row in self._flat(given[0], around, plain=True)]
            row = self._builder.op(type_, *_made(value, values), scope=around, parents=parents)
            returned.append(_Row(row))
        return returned

    def _inside(
        self, block: Any, known: dict[str, Any], scope: tuple[Scope, ...], depth: int, type_: str
    ) -> list[Any]:
        """Add the operations of a block of a condition or loop, which have no values."""
        first = len(self._builder)
        results = self._block(block, known, scope, depth)
        if self._call is not None and len(self._builder) > first:
            self._notes[f"What runs inside of {_A[type_]} of TorchScript has no value."] = None
        return results

    def _operation(
        self, node: Any, given: list[Any], scope: tuple[Scope, ...], values: Values | None
    ) -> list[Any]:
        kind = node.kind()
        names: list[str] = []
        if kind == "prim::CallFunction" and isinstance(given[0], _Open):
            type_, given = given[0].text, given[1:]
            is_inplace = _is_inplace(type_, given)
        else:
            type_ = kind.rpartition("::")[2]
            if node.schema() != "(no schema)":
                names = [one.name for one in torch._C.parse_schema(node.schema()).arguments]
            is_inplace = type_.endswith("_") and not type_.endswith("__")
        type_ = (type_.strip("_") or type_).lower()
        parents: list[tuple[int, str]] = []
        params: list[str] = []
        settings: list[str] = []
        for place, value in enumerate(given):
            found = list(_leaves(value))
            for number, one in enumerate(found):
                if isinstance(one, _Row) and one.param:
                    params.append(one.param)
                elif isinstance(one, _Row):
                    parents.append((one.row, f"{place}.{number}" if isinstance(value, _Many) else str(place)))
            if value is not None and not any(isinstance(one, _Row | _Module) for one in found):
                name = names[place] if place < len(names) else ""
                settings.append(f"{name}={_text(value)}" if name else _text(value))
        outputs = list(node.outputs())
        if len(names) > 1:
            self._arguments.setdefault(type_, names)
        if not any(_has_tensor(value.type()) for value in outputs):
            return [_Open(type_, parents[0][0] if parents else -1) for _ in outputs]
        event, several = len(self._builder), len(outputs) > 1
        flags = (INPLACE if is_inplace else 0) | (0 if parents or params else CREATED)
        results: list[Any] = []
        for place, value in enumerate(outputs):
            row = self._builder.op(
                type_,
                *_made(value, values),
                scope=scope,
                parents=parents,
                params=params,
                setting=", ".join(settings)[:_LONGEST],
                event=event if several else None,
                output=place if several else -1,
                flags=flags,
            )
            results.append(_Row(row))
            if is_inplace and isinstance(given[0], _Row) and given[0].row >= 0:
                self._written[given[0].row] = row
            if values is not None and value.type().kind() != "TensorType":
                self._notes["A list of tensors, which TorchScript has as one, has no value."] = None
        return results

    def _flat(self, value: Any, scope: tuple[Scope, ...], *, plain: bool = False) -> list[int]:
        """Return the rows in a value.

        Args:
            value: The value.
            scope: The module calls around, for a parameter, which gets a row.
            plain: Whether to return the rows that numbers were computed from too, but none of parameters.
        """
        rows = []
        for one in _leaves(value):
            if isinstance(one, _Row) and one.param and not plain:
                rows.append(self._builder.parameter(one.param, scope))
            elif (isinstance(one, _Row) and not one.param) or (
                isinstance(one, _Open) and plain and one.row >= 0
            ):
                rows.append(one.row)
        return rows


def _bound(script: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of ``forward`` in its order, with defaults."""
    expected = script._get_method("forward").schema.arguments[1 + len(args) :]
    return [*args, *(kwargs.get(one.name, one.default_value) for one in expected)]


def _made(value: Any, values: Values | None) -> tuple[tuple[int, ...], str]:
    """Return the shape and dtype of a value of a graph."""
    tensor = values.tensors.get(value.debugName()) if values else None
    return _of_type(value.type()) if tensor is None else _meta(tensor)


def _array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array; of a dtype that numpy lacks, as float32."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    try:
        return tensor.to_dense().numpy() if tensor.layout is not torch.strided else tensor.numpy()
    except TypeError:
        return tensor.float().numpy()


def _is_inplace(name: str, given: Sequence[Any]) -> bool:
    """Return whether a function of ``torch.nn.functional`` writes into its first argument."""
    try:
        names = list(inspect.signature(getattr(torch.nn.functional, name)).parameters)
        return given[names.index("inplace")] is True
    except (AttributeError, ValueError, IndexError, TypeError):
        return False


def _folded(kind: str, given: Sequence[Any]) -> Any:
    """Return the result of an operation on what is known without running: ``x is None``, ``pair[0]``."""
    name = kind.rpartition("::")[2]
    if name in ("__is__", "__isnot__") and len(given) == 2 and given[1] is None:
        is_none = given[0] is None
        return _NOT_FOLDED if isinstance(given[0], _Open) else is_none == (name == "__is__")
    if name == "__not__" and isinstance(given[0], bool):
        return not given[0]
    if name in ("TupleIndex", "__getitem__") and isinstance(given[0], _Many) and isinstance(given[1], int):
        items = given[0].items
        return items[given[1]] if -len(items) <= given[1] < len(items) else _NOT_FOLDED
    return _NOT_FOLDED


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, _Many):
        for one in value.items:
            yield from _leaves(one)
    else:
        yield value


def _text(value: Any) -> str:
    if isinstance(value, _Many):
        return f"[{', '.join(map(_text, value.items))}]"
    return value.text if isinstance(value, _Open) else repr(value)


def _class(script: Any) -> str:
    """Return the name of the class of a module, without what TorchScript adds to tell copies apart."""
    return str(script._type()).rpartition(".")[2]


def _meta(tensor: Any) -> tuple[tuple[int, ...], str]:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _of_type(type_: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape and dtype that a type states; traced models that were not saved have them."""
    if type_.kind() != "TensorType" or type_.sizes() is None or type_.dtype() is None:
        return _UNKNOWN
    return tuple(type_.sizes()), str(type_.dtype()).removeprefix("torch.")


def _has_tensor(type_: Any) -> bool:
    return type_.kind() == "TensorType" or any(map(_has_tensor, type_.containedTypes()))
