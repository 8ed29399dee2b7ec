"""Read the graph of TorchScript: of a file that ``torch.jit.save`` wrote, or of a loaded model.

Every call of a submodule's method is a module call. A function of ``torch.nn.functional`` is one operation.
Of a file nothing runs: conditions on constants, such as ``training``, are decided, other branches and loops
are drawn once, and no values are computed. A model that the caller has loaded runs on inputs
(``evaluated``).
"""

from __future__ import annotations

import inspect
import operator
import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, reduce
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..core.building import GraphBuilder, Scope
from ..core.errors import CodecError, InputError
from ..core.graph import CREATED, INPLACE, Graph
from ..core.nested import paths
from ..core.traced import Traced
from ..core.vocabularies.families import DROPOUTS
from .ancestry import is_before
from .torchscript_content import (
    ABSENT,
    TAKING,
    UNKNOWN,
    WRITING,
    Cause,
    Choice,
    Content,
    Decided,
    Held,
    Many,
    Module,
    Open,
    Result,
    Row,
    State,
    is_followed,
    joined,
    one_of,
    operated,
    options_of,
    without,
)
from .torchscript_values import Restored, Values, same, values_of

_LONGEST = 200
_A = {"if": "a condition", "loop": "a loop"}
_DEEPEST = 200
_NOT_FOLDED = object()
_UNKNOWN: tuple[tuple[int, ...], str] = ((-1,), "")
_UNPACKING = ("prim::ListUnpack", "prim::TupleUnpack")
#: Operations that pass their first argument on as it is.
_SAME = frozenset({"prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::_unwrap_optional"})
#: Comparisons and sums of known numbers and texts.
_PLAIN = {
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub")},
    "__not__": operator.not_,
}
_NUMBERS = (bool, int, str)
#: What reading a loop only to find what it changes must not change.
_KEPT = (
    *("_builder", "_notes", "_rows", "_lists", "_values", "_calls", "_arguments", "_count", "_chosen"),
    *("_memory", "_parents"),
)
#: In loops inside of so many others, whatever can change is taken to change.
_NESTED_LOOPS = 4


def read(path: Path, inputs: tuple[Any, ...] | None, named: Mapping[str, Any]) -> Traced:
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
        self._root = Module("", script)
        self._state = State()
        self._initial: dict[int, Content] = {}  # of lists and dicts that the model had before it ran
        self._numbers = count()
        self._attributes: dict[str, int] = {}  # the numbers of lists and dicts of the model
        self._chosen: dict[tuple[tuple[Row, ...], Cause], Row] = {}
        self._assigned: dict[str, tuple[Module, str]] = {}  # attributes that the program assigns to
        self._exploring = 0  # how many loops are being searched for what they change
        self._builder: Any = GraphBuilder(name, _class(script))
        self._rows: dict[str, int] = {}
        self._lists: dict[str, Held] = {}
        self._params: dict[str, torch.Tensor] = {}
        self._by_data: dict[tuple[int, tuple[int, ...]], str] = {}  # parameters, by memory and shape
        self._modules: set[str] = set()
        self._calls: dict[str, int] = {}
        self._arguments: dict[str, list[str]] = {}
        self._memory: dict[int, int] = {}  # of tensors in the memory of another: the row that made it
        self._parents: dict[int, list[int]] = {}
        self._count = 0
        self._declare(self._root)
        if not script.hasattr("training"):
            self._notes[
                "torch.jit.freeze made the weights of this model constants, which do not count as parameters."
            ] = None

    def _declare(self, module: Module) -> None:
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
            inner = Module(f"{prefix}{name}", value)
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
                row = Row(self._builder.input(name, *_of_type(value.type())))
                is_optional = value.type().kind() == "OptionalType"
                given.append(Choice((None, row), Cause("if")) if is_optional else row)
            else:
                given.append(self._input(name, self._call.arguments[place]))
        values = None
        if self._call is not None:
            values = self._evaluated(self._root, graph, self._call.arguments, self._call.output)
        results = self._run(graph, given, (), 0, values)
        returned = {} if self._call is None else dict(paths(self._call.output, torch.Tensor))
        for path, one in list(self._ends(results[0] if len(results) == 1 else Many(tuple(results)))):
            first, *others = self._flat(one, ())
            like = one.base if one.base >= 0 else first
            end = self._builder.output("" if path.isdigit() else path, first, others, like=like)
            if path in returned:
                self._values[end] = returned[path].detach().clone()

    def _input(self, name: str, value: Any) -> Any:
        """Return an argument of the model, with a row for each tensor in it."""
        if isinstance(value, torch.Tensor):
            row = self._builder.input(name, *_meta(value))
            self._values[row] = value.detach().clone()
            return Row(row)
        if isinstance(value, tuple):
            return Many(tuple(self._input(f"{name}.{place}", one) for place, one in enumerate(value)))
        if isinstance(value, list):
            items = [self._input(f"{name}.{place}", one) for place, one in enumerate(value)]
            return self._hold(Content("list", items))
        if isinstance(value, dict):
            return self._hold(
                Content("dict", {key: self._input(f"{name}.{key}", one) for key, one in value.items()})
            )
        return value if isinstance(value, Hashable) else Open(name)

    def _ends(self, value: Any, path: str = "") -> Iterator[tuple[str, Row]]:
        """Yield the path of every tensor in what the model returns, and the tensor."""
        value = self._one(value)
        content = self._content(value)
        if isinstance(value, Many):
            content = Content("list", list(value.items))
        if content is not None and content.items is None:
            self._notes[
                f"The model returns a {content.kind} that a loop or a condition fills: it is one output, "
                "without a value."
            ] = None
            parents = [(row, str(place)) for place, row in enumerate(self._flat(value, ()))]
            yield path, Row(self._builder.op(content.kind, *_UNKNOWN, parents=parents))
        elif content is not None:
            items = enumerate(content.items) if content.kind == "list" else content.items.items()
            for key, one in items:
                inner = f"{path}.{key}".lstrip(".")
                if one is not without(ABSENT, one):
                    self._notes[f"The model does not return {inner!r} each time."] = None
                yield from self._ends(without(ABSENT, one), inner)
        else:
            for one in self._leaves(value):
                rows = [one] if isinstance(one, Row) else [Row(row) for row in self._flat(one, ())]
                yield from ((path, row) for row in rows)

    # -- values ----------------------------------------------------------------------------------------

    def _hold(self, content: Content, attribute: str | None = None) -> Held:
        """Return a new list or dict; that of an attribute has one number, however often it is read."""
        if attribute is None:
            held = Held(next(self._numbers))
        else:
            held = Held(self._attributes.setdefault(attribute, next(self._numbers)))
            self._initial[held.number] = content
        self._state.contents[held.number] = content
        return held

    def _content(self, value: Any) -> Content | None:
        """Return what is known of a list or dict; None if a value is none, or a list that is one row."""
        options = [one for one in options_of(value) if one is not None]
        if not options or not all(isinstance(one, Held) for one in options):
            return None
        found = [self._of(one) for one in options]
        cause = value.cause if isinstance(value, Choice) else Cause("")
        return reduce(lambda a, b: joined(a, b, cause), found)

    def _of(self, held: Held) -> Content:
        known = self._state.contents
        return known[held.number] if held.number in known else self._initial[held.number]

    def _one(self, value: Any, meta: tuple[tuple[int, ...], str] = _UNKNOWN) -> Any:
        """Return a value as what is written last; a choice among tensors as one operation's result."""
        if isinstance(value, Row):
            last = self._state.written.get(self._memory.get(value.row, value.row))
            if last is None or value.row < 0 or last.row <= value.row:
                return value
            return Row(last.row, base=value.row if value.base < 0 else value.base)
        if not isinstance(value, Choice) or value is ABSENT:
            return value
        options = list(dict.fromkeys(self._one(one) for one in options_of(value)))
        rows = [one for one in options if isinstance(one, Row)]
        if rows:
            row = rows[0] if len(rows) == 1 else self._choice(rows, value.cause, meta)
            others = [one for one in options if one is None or isinstance(one, Held | Many | Module)]
            return Choice((*others, row), value.cause) if others else row
        if any(isinstance(one, Held | Many | Module) for one in options):
            return Choice(tuple(options), value.cause)
        found = [row for one in options if isinstance(one, Open) for row in one.rows]
        if None in options and len(options) > 1:
            return Choice((None, Open(value.cause.kind, tuple(found))), value.cause)
        return options[0] if len(options) == 1 else Open(value.cause.kind, (*value.cause.conditions, *found))

    def _choice(self, rows: Sequence[Row], cause: Cause, meta: tuple[tuple[int, ...], str]) -> Row:
        """Return the operation that stands for one of several tensors, and add it if it is not there."""
        key = tuple(rows), cause
        if key not in self._chosen:
            names = cause.names if len(cause.names) == len(rows) else tuple(map(str, range(len(rows))))
            parents = [
                (row, name)
                for one, name in zip(rows, names, strict=True)
                for row in self._flat(one, cause.scope)
            ]
            parents += [(row, "condition") for row in dict.fromkeys(cause.conditions)]
            row = self._builder.op(cause.kind or "if", *meta, scope=cause.scope, parents=parents)
            self._chosen[key] = Row(row)
        found: Row = self._one(self._chosen[key])
        return found

    def _leaves(self, value: Any) -> Iterator[Any]:
        """Yield what is in a value other than tuples, lists and dicts."""
        value = self._one(value)
        content = self._content(value)
        if isinstance(value, Many) or content is not None:
            for one in value.items if content is None else content.values:
                yield from self._leaves(one) if one is not ABSENT else ()
        elif isinstance(value, Choice) and value is not ABSENT:
            for one in value.options:
                yield from self._leaves(one)
        else:
            yield value

    def _text(self, value: Any) -> str:
        value = self._one(value)
        content = self._content(value)
        if isinstance(value, Many):
            return f"[{', '.join(map(self._text, value.items))}]"
        if content is not None and content.items is not None:
            if content.kind == "list":
                return f"[{', '.join(map(self._text, content.items))}]"
            return f"{{{', '.join(f'{key!r}: {self._text(one)}' for key, one in content.items.items())}}}"
        if isinstance(value, Choice) or content is not None:
            return "unknown"
        return value.text if isinstance(value, Open) else repr(value)

    def _given(self, value: Any, scope: tuple[Scope, ...], attribute: str | None = None) -> Any:
        """Return a value that the model had before it ran."""
        if isinstance(value, torch.Tensor):
            key = value.data_ptr(), tuple(value.shape)
            if value.numel() and key in self._by_data:
                return Row(param=self._by_data[key])  # the weights of an LSTM, for example
            if value.dim() == 0:
                return value.item()
            row = self._builder.constant(*_meta(value), scope)
            if self._call is not None:
                self._values[row] = value.detach().clone()
            return Row(row)
        if not isinstance(value, tuple | list | dict):
            return value if isinstance(value, Hashable) else Open(attribute or "constant")
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        inside = {
            key: self._given(one, scope, None if attribute is None else f"{attribute}.{key}")
            for key, one in pairs
        }
        if isinstance(value, tuple):
            return Many(tuple(inside.values()))
        if isinstance(value, list):
            return self._hold(Content("list", list(inside.values())), attribute)
        return self._hold(Content("dict", inside), attribute)

    # -- the program -----------------------------------------------------------------------------------

    def _evaluated(self, module: Module, graph: Any, arguments: Sequence[Any], result: Any) -> Values | None:
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
            first = len(self._builder)
            results = self._node(node, known, scope, depth, values)
            for value, result in zip(node.outputs(), results, strict=False):
                known[value.debugName()] = result
                tensor = values.tensors.get(value.debugName()) if values else None
                is_new = isinstance(result, Row) and result.row >= first and node.kind() not in _UNPACKING
                if tensor is not None and is_new:
                    self._values.setdefault(result.row, tensor)
        return [self._known(value, known) for value in block.outputs()]

    def _known(self, value: Any, known: Mapping[str, Any]) -> Any:
        return self._one(known.get(value.debugName(), Open(value.debugName())))

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
        if kind == "prim::CallMethod" and isinstance(given[0], Module):
            return self._method(given[0], node, given, scope, depth, values)
        if kind == "prim::SetAttr":
            self._assign(given[0], node.s("name"), given[1])
            return []
        if kind == "prim::TupleConstruct":
            return [Many(tuple(given))]
        if kind == "prim::ListConstruct":
            return [self._hold(Content("list", given))]
        if kind == "prim::DictConstruct":
            keys = given[::2]
            items = (
                None
                if any(isinstance(key, Open | Row) for key in keys)
                else dict(zip(keys, given[1::2], strict=True))
            )
            return [self._hold(Content("dict", items, tuple(given[1::2]) if items is None else ()))]
        if kind == "prim::Uninitialized":
            return [ABSENT]
        if kind in _UNPACKING:
            return self._unpacked(given[0], len(list(node.outputs())), scope)
        if kind in _SAME and given:
            return [without(None, given[0])]
        if (folded := self._folded(kind, given)) is not _NOT_FOLDED:
            return [folded]
        if kind == "prim::If":
            return self._condition(node, given, known, scope, depth, values)
        if kind == "prim::Loop":
            return self._loop(node, given, known, scope, depth, values)
        content = self._content(given[0]) if given and kind.startswith("aten::") else None
        if content is not None and is_followed(kind.removeprefix("aten::"), content):
            return self._on_content(node, given, content, scope, values)
        return self._operation(node, given, scope, values)

    def _unpacked(self, value: Any, number: int, scope: tuple[Scope, ...]) -> list[Any]:
        value = without(None, value)
        content = self._content(value)
        if content is not None and content.kind == "list" and content.items is not None:
            value = Many(tuple(content.items))
        if isinstance(value, Many) and len(value.items) == number:
            return list(value.items)
        if content is None:
            return [value] * number
        return [one_of(content.values, Cause("listunpack", scope)) for _ in range(number)]

    def _on_content(
        self, node: Any, given: list[Any], content: Content, scope: tuple[Scope, ...], values: Values | None
    ) -> list[Any]:
        """Return what an operation on a list or dict returns, and change its content."""
        name = node.kind().removeprefix("aten::")
        others = list(given[1:])
        if name in TAKING:
            taken = self._content(others[0])
            others[0] = Content("list", None, (others[0],)) if taken is None else taken
        after, answer = operated(name, content, others)
        if name in WRITING:
            self._write(given[0], lambda held: operated(name, self._of(held), others)[0], after)
        outputs = list(node.outputs())
        if isinstance(answer, Content):
            return [self._hold(answer)]
        if answer is UNKNOWN:
            return [Open(name)]
        if isinstance(answer, Result):
            options = [one for one in answer.options if one is not None]
            if outputs[0].type().kind() in ("TensorType", "OptionalType") and _has_tensor(outputs[0].type()):
                (result,) = self._operation(
                    node, [Many(tuple(options)), *given[1:]], scope, values, writes=False
                )
                return [Choice((None, result), Cause(name)) if None in answer.options else result]
            return [one_of(answer.options or [Open(name)], Cause(name.strip("_"), scope))]
        if not outputs:
            return []
        if answer is None and name in WRITING:
            return [given[0]]  # ``append`` returns the list
        return [self._one(answer, _made(outputs[0], values))]

    def _write(self, value: Any, after: Callable[[Held], Content], only: Content | None = None) -> None:
        """Change the content of a list or dict; where it is one of several, of each, or of none."""
        helds = [one for one in options_of(value) if isinstance(one, Held)]
        contents = self._state.contents
        if len(helds) == 1 and only is not None:
            contents[helds[0].number] = only
            return
        for held in helds:
            contents[held.number] = joined(self._of(held), after(held), Cause("if"))

    def _assign(self, owner: Any, name: str, value: Any) -> None:
        if isinstance(owner, Module):
            address = f"{owner.address}.{name}".lstrip(".")
            self._assigned[address] = owner, name
            self._state.attributes[address] = value

    def _constant(self, node: Any, scope: tuple[Scope, ...]) -> Any:
        value = node.output()
        if value.type().kind() == "FunctionType":
            return Open(node.s("name"))
        constant = value.toIValue()
        return self._given(constant, scope)

    def _attribute(self, owner: Any, name: str, scope: tuple[Scope, ...]) -> Any:
        if not isinstance(owner, Module):
            return Open(name)
        address = f"{owner.address}.{name}".lstrip(".")
        if address in self._state.attributes:
            return self._state.attributes[address]
        return self._first(owner, name, scope)

    def _first(self, owner: Module, name: str, scope: tuple[Scope, ...]) -> Any:
        """Return an attribute as it was before the model ran."""
        address = f"{owner.address}.{name}".lstrip(".")
        if address in self._params:
            return Row(param=address)
        value = owner.script.getattr(name)
        if isinstance(value, torch._C.ScriptModule):
            return Module(address, value)
        if isinstance(value, torch.Tensor):
            if address not in self._rows:
                self._rows[address] = row = self._builder.buffer(address, *_meta(value), scope)
                if self._call is not None:
                    self._values[row] = value.detach().clone()
            return Row(self._rows[address])
        if isinstance(value, list | dict):  # of the model, also where one branch of several changes it
            if address not in self._lists:
                self._lists[address] = self._given(value, scope, address)
            return self._lists[address]
        return self._given(value, scope, address)

    def _method(
        self,
        module: Module,
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
        result = results[0] if len(results) == 1 else Many(tuple(results))
        if module.address != inner:
            result = self._with_rows(result, scope)
            for one in self._leaves(result):
                if isinstance(one, Row):
                    self._builder.returns(self._with_rows(one, scope).row, scope)
        return [result]

    def _with_rows(self, value: Any, scope: tuple[Scope, ...]) -> Any:
        """Return what a module returns, with a row for each parameter that is not in a list or dict."""
        if isinstance(value, Many):
            return Many(tuple(self._with_rows(one, scope) for one in value.items))
        if not isinstance(value, Row) or not value.param or value.row >= 0:
            return value
        row = self._builder.parameter(value.param, scope)
        if self._call is not None:
            self._values[row] = self._params[value.param].detach().clone()
        return replace(value, row=row)

    def _condition(
        self,
        node: Any,
        given: list[Any],
        known: dict[str, Any],
        scope: tuple[Scope, ...],
        depth: int,
        values: Values | None,
    ) -> list[Any]:
        """Add the branches of a condition, and an operation for each tensor that they return."""
        blocks = list(node.blocks())
        if isinstance(given[0], bool) and not self._exploring:
            return self._inside(blocks[not given[0]], dict(known), scope, depth, "if")
        address, around = self._control("if", scope)
        conditions = tuple(self._flat(given[0], around, plain=True))
        before, ends, states = self._state, [], []
        for name, block in zip(("then", "else"), blocks, strict=True):
            self._state = before.copy()
            inner = (*around, Scope(f"{address}.{name}", name))
            ends.append(self._inside(block, dict(known), inner, depth, "if"))
            states.append(self._state)
        raising = [any(one.kind() == "prim::RaiseException" for one in block.nodes()) for block in blocks]
        live = [place for place, is_raising in enumerate(raising) if not is_raising] or [0, 1]
        cause = Cause("if", around, conditions, tuple(("then", "else")[place] for place in live))
        self._state = reduce(lambda a, b: self._joined(a, b, cause), [states[place] for place in live])
        return [
            self._returned([ends[branch][place] for branch in live], cause, _made(value, values))
            for place, value in enumerate(node.outputs())
        ]

    def _loop(
        self,
        node: Any,
        given: list[Any],
        known: dict[str, Any],
        scope: tuple[Scope, ...],
        depth: int,
        values: Values | None,
    ) -> list[Any]:
        """Add the body of a loop once, and an operation for each tensor that it returns."""
        (block,) = node.blocks()
        names = [value.debugName() for value in block.inputs()]
        address, around = self._control("loop", scope)
        inner = (*around, Scope(f"{address}.body", "body"))

        def body() -> list[Any]:
            carried = map(self._carried, given[2:], names[1:])
            inside = dict(zip(names, (Open("i"), *carried), strict=True))
            return self._inside(block, known | inside, inner, depth, "loop")

        before = self._state.copy()
        changed = self._changed_by(body)
        self._blur(changed)
        results = body()
        if changed or any(isinstance(leaf, Row) for one in given[2:] for leaf in self._leaves(one)):
            self._notes["What one iteration of a loop passes to the next is not drawn."] = None
        decided = [row for one in (*given[:2], results[0]) for row in self._flat(one, around, plain=True)]
        is_entered = isinstance(given[0], int) and given[0] > 0 and given[1] is True
        cause = Cause(
            "loop", around, tuple(dict.fromkeys(decided)), ("body",) if is_entered else ("body", "before")
        )
        if not is_entered:
            self._state = self._joined(self._state, before, cause)
        ends = [
            [result] if is_entered else [result, initial]
            for result, initial in zip(results[1:], given[2:], strict=True)
        ]
        return [
            self._returned(options, cause, _made(value, values))
            for options, value in zip(ends, node.outputs(), strict=True)
        ]

    def _control(self, type_: str, scope: tuple[Scope, ...]) -> tuple[str, tuple[Scope, ...]]:
        """Return the address of a condition or loop, and the scope of what is inside."""
        self._count += 1
        address = f"{scope[-1].address}.{type_}_{self._count}" if scope else f"{type_}_{self._count}"
        return address, (*scope, Scope(address, type_))

    def _returned(self, options: Sequence[Any], cause: Cause, meta: tuple[tuple[int, ...], str]) -> Any:
        """Return what a condition or loop returns, which is one of several; a tensor as a row of its own."""
        options = [one for option in options for one in options_of(option)]
        found = [one for one in options if one is not ABSENT]
        if not found:
            return ABSENT
        rows = [one for one in found if isinstance(one, Row)]
        if rows and not any(isinstance(one, Held | Many | Module) for one in found):
            names = cause.names if len(options) == len(cause.names) else tuple(map(str, range(len(options))))
            parents = [
                (row, name)
                for one, name in zip(options, names, strict=True)
                if isinstance(one, Row)
                for row in self._flat(one, cause.scope)
            ]
            parents += [(row, "condition") for row in cause.conditions]
            row = Row(self._builder.op(cause.kind, *meta, scope=cause.scope, parents=parents))
            return Choice((None, row), cause) if None in found else row
        return one_of(found, cause)

    def _carried(self, value: Any, name: str) -> Any:
        """Return what a variable may be that a loop changes, as far as is known before."""
        if isinstance(value, Many):
            return Many(tuple(self._carried(one, name) for one in value.items))
        if isinstance(value, Held):
            return Choice((value, self._hold(self._of(value).blurred())), Cause("loop"))
        if isinstance(value, Choice) and value is not ABSENT:
            return Choice(tuple(self._carried(one, name) for one in value.options), value.cause)
        return value if isinstance(value, Row | Module | Open) else Open(name)

    def _blur(self, changed: Iterable[int | str]) -> None:
        """Forget what is not so in each iteration of a loop that changes these contents and attributes."""
        for key in changed:
            if isinstance(key, int):
                self._state.contents[key] = self._of(Held(key)).blurred()
            else:
                self._state.attributes[key] = self._carried(self._attribute_in(self._state, key), key)

    def _attribute_in(self, state: State, address: str) -> Any:
        if address in state.attributes:
            return state.attributes[address]
        return self._first(*self._assigned[address], ())

    def _changed_by(self, body: Callable[[], Any]) -> set[int | str]:
        """Return the numbers of the lists and dicts and the addresses of the attributes that a loop changes.

        Its body is read without adding rows, with both branches of every condition, until no more is found.
        """
        state = self._state
        if self._exploring >= _NESTED_LOOPS:
            return {*state.contents, *state.attributes}
        kept = {name: copy(getattr(self, name)) for name in _KEPT}
        self._builder = _NoRows(len(self._builder))
        self._exploring += 1
        changed: set[int | str] = set()
        while True:
            self._state = state.copy()
            self._blur(changed)
            before = self._state.copy()
            body()
            more = self._state.changed(before, self._initial) - changed
            if not more:
                break
            changed |= more
        self._exploring -= 1
        self._state = state
        vars(self).update(kept)
        return changed

    def _joined(self, a: State, b: State, cause: Cause) -> State:
        """Return what is known after one of two ways through the program."""
        contents = {**b.contents, **a.contents}
        for number in contents:
            one, other = (
                state.contents.get(number, self._initial.get(number, contents[number])) for state in (a, b)
            )
            contents[number] = joined(one, other, cause)
        attributes = {
            address: one_of([self._attribute_in(state, address) for state in (a, b)], cause)
            for address in {**b.attributes, **a.attributes}
        }
        joint = State(contents, attributes)
        self._state = State()  # of which no row was written
        for row in {**b.written, **a.written}:
            found = [state.written.get(row, Row(row)) for state in (a, b)]
            if found[0] == found[1]:
                joint.written[row] = found[0]
            else:
                joint.written[row] = chosen = self._choice(found, cause, _UNKNOWN)
                self._memory[chosen.row] = row
        return joint

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
        self,
        node: Any,
        given: list[Any],
        scope: tuple[Scope, ...],
        values: Values | None,
        *,
        writes: bool = True,
    ) -> list[Any]:
        kind = node.kind()
        names: list[str] = []
        if kind == "prim::CallFunction" and isinstance(given[0], Open):
            type_, given = given[0].text, given[1:]
            written = _written_by_function(type_, given)
        else:
            type_ = kind.rpartition("::")[2]
            names, written = _arguments(node.schema())
        written = written if writes else []
        type_ = (type_.strip("_") or type_).lower()
        parents: list[tuple[int, str]] = []
        params: list[str] = []
        settings: list[str] = []
        computed: list[int] = []  # rows that the numbers among the arguments were computed from
        for place, value in enumerate(given):
            found = list(self._leaves(value))
            for number, one in enumerate(found):
                if isinstance(one, Row) and one.param:
                    params.append(one.param)
                if isinstance(one, Row) and (one.row >= 0 or not one.param):
                    is_part = isinstance(value, Many | Held) or len(found) > 1
                    argument = f"{place}.{number}" if is_part else str(place)
                    parents += [(row, argument) for row in self._sources(one)]
                elif isinstance(one, Decided):
                    parents.append((one.row, "condition"))
                elif isinstance(one, Open):
                    computed += one.rows
            if value is not None and not any(isinstance(one, Row | Module) for one in found):
                name = names[place] if place < len(names) else ""
                settings.append(f"{name}={self._text(value)}" if name else self._text(value))
        outputs = list(node.outputs())
        targets = [one for place in written for one in self._leaves(given[place]) if isinstance(one, Row)]
        targets = [one for one in targets if one.row >= 0]
        if len(names) > 1:
            self._arguments.setdefault(type_, names)
        results: list[Any] = []
        if targets or any(_has_tensor(value.type()) for value in outputs):
            event, several = len(self._builder), len(outputs) > 1
            flags = (INPLACE if written else 0) | (0 if parents or params else CREATED)
            for place, value in enumerate(outputs or [None]):
                row = self._builder.op(
                    type_,
                    *(_UNKNOWN if value is None else _made(value, values)),
                    scope=scope,
                    parents=parents,
                    params=params,
                    setting=", ".join(settings)[:_LONGEST],
                    event=event if several else None,
                    output=place if several else -1,
                    flags=flags,
                )
                is_optional = value is not None and value.type().kind() == "OptionalType"
                results.append(Choice((None, Row(row)), Cause(type_)) if is_optional else Row(row))
                if values is not None and value is not None and value.type().kind() != "TensorType":
                    self._notes["A list of tensors, which TorchScript has as one, has no value."] = None
                self._parents[row] = [parent for parent, _ in parents]
                shared = targets or self._shared(node, type_, given)
                if shared:
                    self._memory[row] = self._memory_of(shared[min(place, len(shared) - 1)])
            self._state.written |= {self._memory_of(one): Row(row) for one in targets}
        else:
            rows = tuple(dict.fromkeys([*(row for row, _ in parents), *computed]))
            results = [Open(type_, rows) for _ in outputs]
        for place in written:
            inside = [one for other in given if other is not given[place] for one in self._leaves(other)]
            self._write(given[place], lambda held: self._of(held).blurred(*inside, *results))  # noqa: B023
        return results if outputs else []

    def _sources(self, one: Row) -> list[int]:
        """Return the rows that a tensor comes from: if it is a view of what was written, the view too."""
        is_apart = one.base >= 0 and not is_before(one.base, one.row, self._parents)
        return [one.row, one.base] if is_apart else [one.row]

    def _memory_of(self, one: Row) -> int:
        """Return the row that made the memory of a tensor."""
        return self._memory.get(one.row, one.row)

    def _shared(self, node: Any, type_: str, given: Sequence[Any]) -> list[Row]:
        """Return the tensors whose memory an operation may return: ``to`` copies only to another dtype."""
        places = _shared_arguments(node.schema())
        if type_ in DROPOUTS and given and given[2:3] != [True]:  # the third: whether it is in training
            places = [0]
        found = [one for place in places for one in self._leaves(given[place]) if isinstance(one, Row)]
        return [one for one in found if one.row >= 0]

    def _flat(self, value: Any, scope: tuple[Scope, ...], *, plain: bool = False) -> list[int]:
        """Return the rows in a value.

        Args:
            value: The value.
            scope: The module calls around, for a parameter, which gets a row.
            plain: Whether to return the rows that numbers were computed from too, but none of parameters.
        """
        rows = []
        for one in self._leaves(value):
            if isinstance(one, Row) and one.param and (plain or one.row < 0):
                rows += [] if plain else [self._builder.parameter(one.param, scope)]
            elif isinstance(one, Decided | Row):
                rows += self._sources(one) if isinstance(one, Row) else [one.row]
            elif isinstance(one, Open) and plain:
                rows += one.rows
        return rows

    def _folded(self, kind: str, given: Sequence[Any]) -> Any:
        """Return the result of an operation on what is known: ``x is None``, ``pair[0]``, ``n + 1``."""
        name = kind.rpartition("::")[2]
        if name in ("__is__", "__isnot__") and len(given) == 2 and given[1] is None:
            options = list(options_of(given[0]))
            are_none = {one is None for one in options}
            if len(are_none) > 1 or any(isinstance(one, Open) or one is ABSENT for one in options):
                return _NOT_FOLDED
            return are_none.pop() == (name == "__is__")
        if name == "TupleIndex" and isinstance(given[1], int):
            found = self._one(without(None, given[0]))
            if isinstance(found, Many) and -len(found.items) <= given[1] < len(found.items):
                return found.items[given[1]]
        if name in _PLAIN and kind.startswith("aten::") and all(type(one) in _NUMBERS for one in given):
            try:
                return _PLAIN[name](*given)
            except TypeError:
                return _NOT_FOLDED
        return _NOT_FOLDED


class _NoRows:
    """Numbers rows as a ``GraphBuilder`` does, and forgets them."""

    def __init__(self, first: int) -> None:
        self._next = first

    def __len__(self) -> int:
        return self._next

    def op(self, *_: Any, **__: Any) -> int:
        """Return the number of a new row."""
        self._next += 1
        return self._next - 1

    buffer = constant = parameter = op

    def returns(self, *_: Any) -> None:
        """Forget which call returned a row."""


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


def _written_by_function(name: str, given: Sequence[Any]) -> list[int]:
    """Return the places of the arguments that a function may write into."""
    if not hasattr(torch.nn.functional, name) and not hasattr(torch.functional, name):
        return [place for place, one in enumerate(given) if isinstance(one, Held | Choice)]
    try:
        names = list(inspect.signature(getattr(torch.nn.functional, name)).parameters)
        return [0] if given[names.index("inplace")] is True else []
    except (AttributeError, ValueError, IndexError, TypeError):
        return []


@cache
def _arguments(schema: str) -> tuple[list[str], list[int]]:
    """Return the names of an operation's arguments, and the places of those that it writes into."""
    if schema == "(no schema)":
        return [], []
    found = torch._C.parse_schema(schema).arguments
    written = [place for place, one in enumerate(found) if one.alias_info and one.alias_info.is_write]
    return [one.name for one in found], written


@cache
def _shared_arguments(schema: str) -> list[int]:
    """Return the places of the arguments whose memory an operation may return, without writing into it."""
    if schema == "(no schema)":
        return []
    arguments = torch._C.parse_schema(schema).arguments
    return [place for place, one in enumerate(arguments) if one.alias_info and not one.alias_info.is_write]


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
