"""Read ``.pt2`` files, which ``torch.export.save`` writes, without loading them.

``torch.export.load`` can run code that a file contains: it unpickles tensors and evaluates the expressions of
shapes. The graph itself is JSON, which is parsed here. ``exported_values`` computes values.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.building import GraphBuilder, Scope
from ..core.errors import check_installed
from ..core.traced import Traced
from .bounds import check_depth
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
    waiting, count = [(graph, "")], 0
    while waiting:
        outer, prefix = waiting.pop()
        for node in outer["nodes"]:
            for given in node["inputs"]:
                inner = subgraph(given["arg"])
                if inner is not None:
                    count += 1
                    waiting.append((inner["graph"], f"{count}/"))
            if prefix:
                _prefix_names([given["arg"] for given in node["inputs"]], prefix)
                _prefix_names(node["outputs"], prefix)
        if prefix:
            _prefix_names([outer["inputs"], outer["outputs"]], prefix)
            metas = outer["tensor_values"]
            renamed = {f"{prefix}{name}": meta for name, meta in metas.items()}
            metas.clear()
            metas.update(renamed)


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


def tensors_in(argument: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of every tensor in an argument: ``("", "x")``, ``("1", "y")``."""
    if not isinstance(argument, dict):
        return
    for kind, value in argument.items():
        if kind in ("as_tensor", "as_optional_tensor") and isinstance(value, dict):
            inner = value.get("as_tensor", value)  # an optional one is wrapped once more
            if isinstance(inner, dict) and "name" in inner:
                yield "", inner["name"]
        elif kind in ("as_tensors", "as_optional_tensors", "as_nested_tensors") and isinstance(value, list):
            for place, one in enumerate(value):
                found = {"as_tensor": one} if isinstance(one, dict) and "name" in one else one
                if isinstance(found, list):
                    found = {"as_tensors": found}
                yield from ((f"{place}.{rest}".rstrip("."), name) for rest, name in tensors_in(found))


def subgraph(argument: Any) -> Mapping[str, Any] | None:
    """Return the graph that an argument is, with its name; None if it is none."""
    found = argument.get("as_graph") if isinstance(argument, dict) else None
    return found if isinstance(found, dict) else None


def operator_of(target: str) -> str:
    """Return the type of an operation: ``conv2d`` for ``torch.ops.aten.conv2d.default``.

    >>> operator_of("torch.ops.aten.add.Tensor"), operator_of("_operator.mul")
    ('add', 'mul')
    """
    parts = target.split(".")
    return parts[-2] if parts[:2] == ["torch", "ops"] and len(parts) > 4 else parts[-1]


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
            name = self._argument_name(entry["arg"])
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

    @staticmethod
    def _argument_name(argument: Any) -> str:
        found = argument.get("as_tensor", argument) if isinstance(argument, dict) else {}
        return str(found.get("name", "")) if isinstance(found, dict) else ""

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
        for spec in self._signature["output_specs"]:
            ((kind, entry),) = spec.items()
            name = self._argument_name(entry["arg"])
            if kind == "user_output" and name:
                row = self._row(name, ())
                if row is not None:
                    self._named.append((self._builder.output(name, row), name))
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

    def _add(self, graph: Mapping[str, Any], around: tuple[Scope, ...]) -> None:
        for node in graph["nodes"]:
            scope = (*around, *(one for one in self._stack(node) if one.address and one not in around))
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
                if self._state.get(name, ("",))[0] == "parameter":
                    params.append(self._state[name][1])
                elif (row := self._row(name, scope)) is not None:
                    parents.append((row, f"{place}.{rest}".rstrip(".")))
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
                flags=0 if parents or params else 2,
            )

    def _add_graphs(
        self, graphs: Sequence[Mapping[str, Any]], operands: Sequence[str], around: tuple[Scope, ...]
    ) -> list[tuple[int, str]]:
        """Add the graphs inside an operation, such as the branches of ``cond``; return their results."""
        results = []
        for one in graphs:
            scope = (*around, Scope(_address(around, one["name"]), ""))
            self._metas |= one["graph"]["tensor_values"]
            inputs = [self._argument_name(argument) for argument in one["graph"]["inputs"]]
            for inner, outer in zip(inputs, operands, strict=False):
                if self._state.get(outer, ("",))[0] == "parameter":
                    self._state[inner] = self._state[outer]
                elif (row := self._row(outer, around)) is not None:
                    self._rows[inner] = row
            self._add(one["graph"], scope)
            for output in one["graph"]["outputs"]:
                for _, name in tensors_in(output):
                    row = self._row(name, scope)
                    results += [] if row is None else [(row, one["name"])]
        return results


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
