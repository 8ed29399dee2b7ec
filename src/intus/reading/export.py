"""Read ``.pt2`` files, which ``torch.export.save`` writes, without loading them.

``torch.export.load`` can run code that a file contains: it unpickles tensors and evaluates the expressions of
shapes. The graph itself is JSON, which is parsed here. ``exported_values`` computes values.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.building import GraphBuilder, Scope, nbytes
from ..core.errors import check_installed
from ..core.graph import CREATED, INPLACE
from ..core.traced import Traced
from .bounds import check_depth
from .exported_memory import Place, Writes, is_in_place, place_of, shared_by, tensors_in, written_by
from .inputs import Expected, bind
from .pickled_weights import places

if TYPE_CHECKING:
    from .exported_values import Ran

#: The numbers of dtypes in such a file.
DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
}
_LONGEST = 200
#: The fields that hold floats: numbers or lists of them, the last two the parts of a complex number.
_FLOATS = frozenset({"as_float", "as_floats", "as_float_lists", "real", "imag"})
_NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def model_of(archive: zipfile.ZipFile) -> str | None:
    """Return the name of the member of a zip file that holds the graph; None if there is none."""
    return next(
        (
            name
            for name in archive.namelist()
            if name == "serialized_exported_program.json"
            or (name.endswith(".json") and name.split("/")[-2:-1] == ["models"])
        ),
        None,
    )


def read(path: Path, inputs: tuple[Any, ...] | None, named: Mapping[str, Any]) -> Traced:
    """Return the graph of a ``.pt2`` file and, if inputs are given, values; see ``reading.read``."""
    with zipfile.ZipFile(path) as archive:
        member = model_of(archive)
        assert member is not None
        program = json.loads(archive.read(member), object_hook=_with_numbers)
        _name_apart(program["graph_module"]["graph"])
        _return_writes(program["graph_module"]["graph"])
        rows = _Rows(path, program, _places(archive))
        ran: Ran | None = None
        if inputs or named or (inputs is not None and not rows.expected):
            check_installed("Computing the values of a .pt2 file", ["torch"], "torch")
            from .exported_values import values_of

            given = bind(path.name, rows.expected, inputs or (), named)
            ran = values_of(path, archive, program, rows.expected, given)
        return rows.traced(ran)


def _with_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an object of the file with its numbers that are not finite, which JSON has as words.

    >>> _with_numbers({"as_floats": ["-Infinity", 1.0]}), _with_numbers({"as_string": "NaN"})
    ({'as_floats': [-inf, 1.0]}, {'as_string': 'NaN'})
    """
    return {key: _number_of(value) if key in _FLOATS else value for key, value in fields.items()}


def _number_of(value: Any) -> Any:
    if isinstance(value, list):
        return [_number_of(one) for one in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _name_apart(graph: Mapping[str, Any]) -> None:
    """Give the tensors of nested graphs names of their own: each graph of the file numbers its names anew.

    Args:
        graph: The outermost graph, which keeps its names. The graphs inside of it are changed.
    """
    for count, outer in enumerate(_graphs(graph)):
        prefix = f"{count}/" if count else ""
        for node in outer["nodes"]:
            if prefix:
                _prefix_names([given["arg"] for given in node["inputs"]], prefix)
                _prefix_names(node["outputs"], prefix)
        if prefix:
            _prefix_names([outer["inputs"], outer["outputs"]], prefix)
            metas = outer["tensor_values"]
            renamed = {f"{prefix}{name}": meta for name, meta in metas.items()}
            metas.clear()
            metas.update(renamed)


def _graphs(graph: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a graph and those inside of its operations."""
    waiting = [graph]
    while waiting:
        outer = waiting.pop()
        yield outer
        arguments = [given["arg"] for node in outer["nodes"] for given in node["inputs"]]
        waiting += [inner["graph"] for one in arguments if (inner := subgraph(one)) is not None]


def _return_writes(graph: Mapping[str, Any]) -> None:
    """Let the operations that write and return nothing (``_foreach_add_``) return what they wrote."""
    for outer in _graphs(graph):
        metas = outer["tensor_values"]
        for number, node in enumerate(outer["nodes"]):
            if node["outputs"]:
                continue
            made = [(f"{name}/{number}", name) for name in written_by(node)]
            metas.update({new: metas[name] for new, name in made if name in metas})
            node["outputs"] = [{"as_tensor": {"name": new}} for new, _ in made]


def _prefix_names(argument: Any, prefix: str) -> None:
    """Put a prefix before the names of the tensors and lengths in an argument, or a list of them."""
    if isinstance(argument, list):
        for one in argument:
            _prefix_names(one, prefix)
    elif isinstance(argument, dict) and subgraph(argument) is None:
        for key, value in argument.items():
            if key in ("name", "as_name") and isinstance(value, str):
                argument[key] = f"{prefix}{value}"
            else:
                _prefix_names(value, prefix)


def _places(archive: zipfile.ZipFile) -> dict[str, Hashable]:
    """Return where the data of weights are, by address, as far as known; tied weights have one place."""
    found: dict[str, Hashable] = {}
    for member in archive.namelist():
        if member == "serialized_state_dict.pt":  # of an older torch
            found |= places(archive.read(member))
        if not member.endswith("_weights_config.json"):
            continue
        with suppress(ValueError, TypeError, AttributeError, KeyError):  # damaged: found if values are wanted
            for address, entry in json.loads(archive.read(member))["config"].items():
                if not entry.get("use_pickle"):  # otherwise each has a file of its own, tied or not
                    found[address] = json.dumps(entry, sort_keys=True)
    return found


def subgraph(argument: Any) -> Mapping[str, Any] | None:
    """Return the graph that an argument is, with its name; None if it is none."""
    found = argument.get("as_graph") if isinstance(argument, dict) else None
    return found if isinstance(found, dict) else None


def operator_of(target: str) -> str:
    """Return the type of an operation: ``conv2d`` for ``torch.ops.aten.conv2d.default``.

    As in a trace, that of an operation in place is the type of the one that is not.

    >>> operator_of("torch.ops.aten.add_.Tensor"), operator_of("_operator.mul")
    ('add', 'mul')
    """
    parts = target.split(".")
    name = parts[-2] if parts[:2] == ["torch", "ops"] and len(parts) > 4 else parts[-1]
    return name.rstrip("_") if is_in_place(name) and not name.endswith("__") else name


def results_of(signature: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a name for each output of a program, and the name of the tensor that it is when the program ends.

    Their values differ if a later operation writes into the tensor.
    """
    for place, spec in enumerate(signature["output_specs"]):
        ((kind, entry),) = spec.items()
        name = _argument_name(entry["arg"])
        if kind == "user_output" and name:
            yield f"output {place}", name


def _argument_name(argument: Any) -> str:
    found = argument.get("as_tensor", argument) if isinstance(argument, dict) else {}
    return str(found.get("name", "")) if isinstance(found, dict) else ""


class _Rows:
    """The rows of an exported program."""

    def __init__(self, path: Path, program: Mapping[str, Any], places: Mapping[str, Hashable]) -> None:
        self._path, self._places = path, places
        self._program, self._module = program, program["graph_module"]
        self._signature = self._module["signature"]
        self._metas: dict[str, Any] = dict(self._module["graph"]["tensor_values"])
        self._state: dict[str, tuple[str, str]] = {}  # kind and address, by the name of the argument
        user: list[str] = []
        for spec in self._signature["input_specs"]:
            ((kind, entry),) = spec.items()
            name = _argument_name(entry["arg"])
            if kind == "user_input":
                user += [name] if name in self._metas else []
            elif name:
                key = next((key for key in entry if key.endswith("_name")), "")
                self._state[name] = (kind, entry.get(key) or name)
        self.expected = [Expected(name, *self._expected(name)) for name in user]
        classes = [self._stack(node)[0] for node in self._module["graph"]["nodes"] if self._stack(node)]
        self._builder = GraphBuilder(path.name, classes[0].type if classes else "")
        self._rows: dict[str, int] = {}
        self._arguments: dict[str, list[str]] = {}
        self._named: list[tuple[int, str]] = []
        self._memory: dict[str, Place] = {}
        self._calls: dict[str, tuple[Scope, ...]] = {}  # the scope of each call of a module, by its name
        self._writes = Writes()

    def _expected(self, name: str) -> tuple[str, tuple[int | str, ...]]:
        shape, dtype = self._meta(name)
        return dtype, tuple("?" if length < 0 else length for length in shape)

    def _meta(self, name: str) -> tuple[tuple[int, ...], str]:
        meta = self._metas.get(name)
        if not isinstance(meta, dict):
            return (-1,), ""
        return tuple(int(size.get("as_int", -1)) for size in meta["sizes"]), DTYPES.get(meta["dtype"], "")

    @staticmethod
    def _stack(node: Mapping[str, Any]) -> list[Scope]:
        """Return the modules that a node ran in, the model first."""
        scopes = []
        for entry in str(node["metadata"].get("nn_module_stack", "")).split(";"):
            parts = entry.split(",", 2)
            if len(parts) == 3 and not parts[2].startswith("_empty_nn_module_stack"):
                address, _, call = parts[1].partition("@")
                call = call or parts[0].partition("@")[2]
                scopes.append(Scope(address, parts[2].rpartition(".")[2], call or None))
        return scopes

    def traced(self, ran: Ran | None) -> Traced:
        """Return the graph, with values if the program ran."""
        self._values = values = {} if ran is None else ran.values
        notes: Sequence[str] = () if ran is None else ran.notes
        declared: dict[Hashable, str] = {}  # the first address of each weight, by its place
        unplaced: dict[Hashable, list[str]] = {}  # addresses of weights without a place, by shape and dtype
        for name, (kind, address) in self._state.items():
            shape, dtype = self._meta(name)
            if kind == "parameter":
                if address not in self._places:
                    unplaced.setdefault((shape, dtype), []).append(address)
                first = declared.setdefault(self._places.get(address, address), address)
                if first != address:
                    self._builder.shared_param(address, first)
                    continue
                trainable = bool(self._metas[name].get("requires_grad"))
                self._builder.param(address, shape, dtype, trainable=trainable)
            elif kind == "buffer":
                self._builder.buffer_of(address, shape, dtype)
        for one in self.expected:
            self._rows[one.name] = self._builder.input(one.name, *self._found(one.name))
        self._add(self._module["graph"], ())
        self._return()
        for result, name in results_of(self._signature):
            sources, own = self._sources(name, ()), self._row(name, ())
            if own is not None:
                source, *others = sources or [own]
                end = self._builder.output(name, source, others, like=own)
                self._named.append((end, result))
        version = self._program.get("schema_version") or {}
        facts: dict[str, Any] = {
            "format": "torch.export",
            "version": f"{version.get('major', '?')}.{version.get('minor', '?')}",
            "producer": f"torch {self._program.get('torch_version', '')}".strip(),
            "arguments": self._arguments,
        }
        alike = next((some for some in unplaced.values() if len(some) > 1), [])
        if alike:
            notes = [
                *notes,
                f"Whether {alike[0]!r} and {alike[1]!r} are one weight is not known, because the file has "
                "them pickled or not at all. Each counts.",
            ]
        if notes:
            facts["notes"] = list(notes)
        graph, rows = self._builder.graph(facts)
        names = [*((row, name) for name, row in self._rows.items()), *self._named]
        params = {
            address: values[name]
            for name, (kind, address) in self._state.items()
            if kind == "parameter" and name in values
        }
        known = {int(rows[row]): values[name] for row, name in names if name in values}
        named: dict[int, list[str]] = {}
        for row, name in names:
            named.setdefault(int(rows[row]), []).append(name)
        return Traced(graph, known, params, None if ran is None else ran.parts(named))

    def _found(self, name: str) -> tuple[tuple[int, ...], str]:
        value = self._values.get(name)
        shape, dtype = self._meta(name)
        return (shape, dtype) if value is None else (value.shape, dtype or str(value.dtype))

    def _row(self, name: str, scope: Sequence[Scope]) -> int | None:
        """Return the row of a tensor that is no parameter; None if there is none."""
        if name not in self._rows and name in self._state:
            kind, address = self._state[name]
            if kind == "buffer":
                self._rows[name] = self._builder.buffer(address, *self._found(name), scope)
            elif kind == "parameter":
                self._rows[name] = self._builder.parameter(address, scope)
            else:
                self._rows[name] = self._builder.constant(*self._found(name), scope)
        return self._rows.get(name)

    def _sources(self, name: str, scope: Sequence[Scope]) -> list[int]:
        """Return the rows that what a tensor contains now comes from; none for a parameter as given."""
        is_parameter = self._state.get(name, ("",))[0] == "parameter"
        return self._writes.sources(None if is_parameter else self._row(name, scope), self._place(name))

    def _place(self, name: str, other: str | None = None) -> Place:
        """Return where a tensor is; with ``other``, of one that has the memory of that tensor."""
        if other is not None or name not in self._memory:
            memory = name if other is None else self._place(other).memory
            meta = self._metas.get(name)
            self._memory[name] = place_of(memory, meta, nbytes((1,), self._meta(name)[1]))
        return self._memory[name]

    def _return(self) -> None:
        """State what the modules return whose signature the file has; of others it is not known."""
        for entry in self._module.get("module_call_graph") or ():
            scope = self._calls.get(entry["fqn"])
            if scope is None or not entry.get("signature"):
                continue
            returned = [self._row(name, scope) for name in _names_in(entry["signature"]["outputs"])]
            rows = [row for row in returned if row is not None]
            for row in rows if len(rows) == len(returned) else ():
                self._builder.returns(row, scope)

    def _add(self, graph: Mapping[str, Any], around: tuple[Scope, ...]) -> None:
        for node in graph["nodes"]:
            scope = (*around, *(one for one in self._stack(node) if one.address and one not in around))
            for depth, one in enumerate(scope, 1):
                self._calls.setdefault(
                    f"{one.address}@{one.call}" if one.call else one.address, scope[:depth]
                )
            check_depth(str(self._path), scope[-1].address if scope else "", len(scope))
            self._add_node(node, scope)

    def _add_node(self, node: Mapping[str, Any], scope: tuple[Scope, ...]) -> None:
        type_ = operator_of(node["target"])
        parents: list[tuple[int, str]] = []
        params: list[str] = []
        settings: list[str] = []
        names: list[str] = []
        graphs: list[Mapping[str, Any]] = []
        operands: list[str] = []
        for place, given in enumerate(node["inputs"]):
            names.append(given["name"])
            inner = subgraph(given["arg"])
            if inner is not None:
                graphs.append(inner)
                continue
            found = list(tensors_in(given["arg"]))
            for rest, name in found:
                operands += [name] if graphs else []
                rows = self._sources(name, scope)
                parents += [(row, f"{place}.{rest}".rstrip(".")) for row in rows]
                if not rows and self._state.get(name, ("",))[0] == "parameter":
                    params.append(self._state[name][1])
            text = "" if found else _text(given["arg"])
            settings += [f"{given['name']}={text}" if given["name"] else text] if text else []
        if len(names) > 1 and all(names):
            self._arguments[type_] = names
        if graphs:
            parents += self._add_graphs(
                graphs, operands, (*scope, Scope(_address(scope, node["name"]), type_))
            )
            scope = (*scope, Scope(_address(scope, node["name"]), type_))
        outputs = [name for one in node["outputs"] for _, name in tensors_in(one)]
        is_writing = bool(written_by(node))
        for name, other in shared_by(node, type_, self._metas):
            self._place(name, other)
        event = len(self._builder)
        for place, name in enumerate(outputs):
            several = len(outputs) > 1
            self._rows[name] = self._builder.op(
                type_,
                *self._found(name),
                scope=scope,
                parents=parents,
                params=params,
                setting=", ".join(settings),
                event=event if several else None,
                output=place if several else -1,
                flags=(INPLACE if is_writing else 0) | (0 if parents or params else CREATED),
            )
            self._writes.descends(self._rows[name], [row for row, _ in parents])
            if is_writing:
                self._writes.add(self._rows[name], self._place(name))
        if len(graphs) == 1:  # which ran once, so that the results are those of the graph inside
            results = _names_in(graphs[0]["graph"]["outputs"])
            for name, result in zip(outputs, results, strict=False):
                self._place(name, result)

    def _add_graphs(
        self, graphs: Sequence[Mapping[str, Any]], operands: Sequence[str], around: tuple[Scope, ...]
    ) -> list[tuple[int, str]]:
        """Add the graphs inside an operation, such as the branches of ``cond``; return their results."""
        results = []
        for one in graphs:
            scope = (*around, Scope(_address(around, one["name"]), ""))
            self._metas |= one["graph"]["tensor_values"]
            inputs = [_argument_name(argument) for argument in one["graph"]["inputs"]]
            for inner, outer in zip(inputs, operands, strict=False):
                self._memory[inner] = self._place(outer)
                if self._state.get(outer, ("",))[0] == "parameter":
                    self._state[inner] = self._state[outer]
                elif (row := self._row(outer, around)) is not None:
                    self._rows[inner] = row
            self._add(one["graph"], scope)
            for output in one["graph"]["outputs"]:
                for _, name in tensors_in(output):
                    own = self._row(name, scope)
                    rows = self._sources(name, scope) or ([] if own is None else [own])
                    results += [(row, one["name"]) for row in rows]
        return results


def _names_in(arguments: Iterable[Any]) -> list[str]:
    return [name for one in arguments for _, name in tensors_in(one)]


def _address(scope: Sequence[Scope], name: str) -> str:
    return f"{scope[-1].address}.{name}" if scope else name


def _text(argument: Any) -> str:
    """Return an argument that is no tensor as text; ``""`` for None.

    >>> _text({"as_ints": [1, 1]}), _text({"as_sym_int": {"as_name": "s0"}}), _text({"as_none": True})
    ('[1, 1]', 's0', '')
    """
    ((kind, value),) = argument.items()
    if kind == "as_none":
        return ""
    if kind == "as_scalar_type":
        return DTYPES.get(value, str(value))
    return _shown(value)[:_LONGEST]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        if set(value) == {"real", "imag"}:
            return repr(complex(value["real"], value["imag"]))
        if set(value) == {"type", "index"}:  # a device
            return str(value["type"])
        return _shown(next(iter(value.values()), "")).strip("'")
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, list) else repr(value)
