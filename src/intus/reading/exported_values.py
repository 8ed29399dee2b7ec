"""Compute the values of a ``.pt2`` file by calling torch's operators one by one.

A file may name any function, so only operators of torch itself and arithmetic are called. What is not called
is left out with all that depends on it.
"""

from __future__ import annotations

import io
import json
import operator
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.errors import CodecError, InputError
from .bounds import check_unpacked
from .export import DTYPES, operator_of, subgraph
from .exported_ranges import check_ranges
from .inputs import Expected, as_array, check

_OPERATOR = re.compile(r"torch\.ops\.(aten|prims|quantized_decomposed)\.(?!from_file\b)(\w+)\.(\w+)")
_LENGTHS = re.compile(
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|neg|eq|ne|lt|le|gt|ge|and_|or_|not_|getitem)"
)
_MEMORY_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}
_PLAIN = {f"as_{kind}{s}" for kind in ("int", "float", "bool", "string") for s in ("", "s")} | {
    "as_int_lists",
    "as_float_lists",
}


class _UnknownError(Exception):
    """Something that is not called, or depends on such; its text says what."""


def values_of(
    path: Path,
    archive: zipfile.ZipFile,
    program: Mapping[str, Any],
    expected: Sequence[Expected],
    inputs: Mapping[str, Any],
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the values of all tensors of an exported program, and why others are missing.

    Args:
        path: The file, for messages.
        archive: The file.
        program: The program: the file's JSON.
        expected: The inputs that it takes.
        inputs: The inputs by name.

    Raises:
        CodecError: If the weights cannot be read.
        InputError: If the inputs do not fit, or an operator raises.
    """
    module = program["graph_module"]
    running = _Program(path, module)
    tensors: dict[str, Any] = {}
    for one in expected:
        value = inputs[one.name]
        if not isinstance(value, torch.Tensor):
            try:
                value = torch.as_tensor(np.array(as_array(path.name, one, value)))
            except (TypeError, ValueError) as error:
                raise InputError(f"The input {one.name!r} of {path.name} is no tensor: {error}.") from None
        value = value.detach().cpu()
        check(path.name, one, _name(value.dtype), value.shape)
        tensors[one.name] = value
    metas = module["graph"]["tensor_values"]
    check_ranges(
        path.name, program, [(name, metas[name]["sizes"], value.shape) for name, value in tensors.items()]
    )
    weights = _Weights(path, archive)
    for spec in module["signature"]["input_specs"]:
        ((kind, entry),) = spec.items()
        if kind in ("parameter", "buffer", "tensor_constant"):
            found = weights.tensor(entry[f"{kind}_name"])
            # A parameter, as in torch's own program: some operators take another kernel for plain tensors.
            needs = kind == "parameter" and bool(metas[entry["arg"]["name"]].get("requires_grad"))
            tensors[entry["arg"]["name"]] = torch.nn.Parameter(found, needs) if kind == "parameter" else found
    with torch.no_grad():
        running.run(module["graph"], tensors)
    return running.values, running.notes


class _Program:
    def __init__(self, path: Path, module: Mapping[str, Any]) -> None:
        self._path, self._module = path, module
        self.values: dict[str, np.ndarray] = {}
        self.notes: list[str] = []

    def run(self, graph: Mapping[str, Any], known: dict[str, Any]) -> None:
        """Run a graph; add its results to the tensors that are known."""
        for name, value in known.items():
            self._keep(name, value)
        for node in graph["nodes"]:
            try:
                result = self._call(node, known)
            except _UnknownError as error:
                if str(error):  # otherwise it depends on what was left out before
                    self.notes.append(str(error))
                continue
            self._bind(node["outputs"], result, known)

    def _call(self, node: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
        target = node["target"]
        graphs = [found for one in node["inputs"] if (found := subgraph(one["arg"])) is not None]
        given = [
            (one, self._value(one["arg"], known)) for one in node["inputs"] if subgraph(one["arg"]) is None
        ]
        args = [value for one, value in given if one.get("kind") != 2]
        kwargs = {one["name"]: value for one, value in given if one.get("kind") == 2}
        if graphs:
            return self._branch(target, graphs, args)
        try:
            return _function(target)(*args, **kwargs)
        except _UnknownError:
            raise
        except Exception as error:  # whatever an operator raises
            text = " ".join(str(error).split())[:300]
            raise InputError(
                f"{self._path.name} cannot run on these inputs: {operator_of(target)} raised "
                f"{type(error).__name__}: {text}"
            ) from None

    def _branch(self, target: str, graphs: Sequence[Mapping[str, Any]], args: Sequence[Any]) -> Any:
        """Run the graph inside an operation that runs one once: a branch of ``cond``, or a block."""
        kind = operator_of(target)
        if kind == "cond" and len(graphs) == 2:
            graph, operands = graphs[0 if bool(args[0]) else 1]["graph"], args[1]
            self.notes.append("Of cond, the operations of the branch that was not taken have no value.")
        elif kind == "wrap_with_set_grad_enabled":
            graph, operands = graphs[0]["graph"], args[1:]
        else:
            raise _UnknownError(f"What is inside of {kind} is not computed, nor what depends on it.")
        names = [one["as_tensor"]["name"] for one in graph["inputs"]]
        known = dict(zip(names, operands, strict=True))
        self.run(graph, known)
        return [self._value(one, known) for one in graph["outputs"]]

    def _value(self, argument: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
        """Return the value of an argument."""
        ((kind, value),) = argument.items()
        if kind in _PLAIN:
            return value
        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return _known(value["name"], known)
        if kind in ("as_tensors", "as_optional_tensors", "as_sym_ints", "as_sym_bools", "as_sym_floats"):
            return [self._value(one if "name" not in one else {"as_tensor": one}, known) for one in value]
        if kind in ("as_sym_int", "as_sym_bool", "as_sym_float", "as_optional_tensor"):
            return self._value(value, known)
        if kind == "as_nested_tensors":
            return [self._value({"as_tensors": one}, known) for one in value]
        if kind == "as_name":
            return _known(value, known)
        if kind == "as_complex":
            return complex(value["real"], value["imag"])
        if kind == "as_scalar_type":
            return getattr(torch, DTYPES[value])
        if kind == "as_memory_format":
            return _MEMORY_FORMATS[value]
        if kind == "as_layout":
            return torch.strided
        if kind == "as_device":
            return torch.device("cpu")
        raise _UnknownError(
            f"An argument of the kind {kind} is not known, so what depends on it has no value."
        )

    def _bind(self, outputs: Sequence[Mapping[str, Any]], result: Any, known: dict[str, Any]) -> None:
        results = [result] if len(outputs) == 1 else result or ()  # an assertion returns None
        for output, value in zip(outputs, results, strict=False):
            ((kind, entry),) = output.items()
            if kind == "as_tensors":
                self._bind(
                    [{"as_tensor": one} for one in entry], value if len(entry) > 1 else value[0], known
                )
            elif kind == "as_tensor":
                value = value[0] if isinstance(value, list | tuple) else value
                known[entry["name"]] = value
                self._keep(entry["name"], value)
            elif kind.startswith("as_sym_"):
                known[entry.get("as_name", "")] = value

    def _keep(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            is_foreign = value.dtype in (torch.bfloat16,) or "float8" in str(value.dtype)
            array = (value.float() if is_foreign else value).resolve_conj().resolve_neg().numpy()
            self.values[name] = array.copy()  # a later operation may write to its memory


class _Weights:
    """The weights of a file, each read when it is needed."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._places: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for name in archive.namelist():
            if name.endswith(("_weights_config.json", "_constants_config.json")):
                folder = name.rpartition("/")[0]
                for key, entry in json.loads(archive.read(name))["config"].items():
                    self._places[key] = f"{folder}/{entry['path_name']}", entry
        self._older = dict(self._items())

    def _items(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors of a file of an older torch, which are pickled; nothing else is unpickled."""
        for name in ("serialized_state_dict.pt", "serialized_constants.pt"):
            if name in self._archive.namelist() and (data := self._archive.read(name)):
                yield from self._unpickled(data).items()

    def _unpickled(self, data: bytes) -> Any:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                check_unpacked(archive, len(data), str(self._path))
        try:
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception as error:  # of a type for each cause
            reason = str(error).partition("\n")[0]
            raise CodecError(
                f"{str(self._path)!r} has weights that are no plain tensors, so they are not loaded: {reason}"
            ) from None

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor by its address."""
        if name in self._older:
            return self._older[name].detach()
        if name not in self._places:
            raise CodecError(f"{str(self._path)!r} is damaged: it has no data for {name!r}.")
        member, entry = self._places[name]
        data, meta = self._archive.read(member), entry["tensor_meta"]
        if entry.get("use_pickle"):
            return torch.as_tensor(self._unpickled(data)).detach()
        dtype = getattr(torch, DTYPES[meta["dtype"]])
        sizes, strides = ([one["as_int"] for one in meta[key]] for key in ("sizes", "strides"))
        try:
            plain = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
            return plain.as_strided(sizes, strides, meta["storage_offset"]["as_int"])
        except (RuntimeError, ValueError) as error:
            raise CodecError(f"{str(self._path)!r} is damaged: the data of {name!r}: {error}.") from None


def _function(target: str) -> Callable[..., Any]:
    """Return the operator of torch, or of arithmetic, that a node names."""
    found = _OPERATOR.fullmatch(target)
    if found:
        namespace, name, overload = found.groups()
        try:
            return getattr(getattr(getattr(torch.ops, namespace), name), overload)  # type: ignore[no-any-return]
        except AttributeError:
            pass
    found = _LENGTHS.fullmatch(target)
    if found:
        return getattr(operator, found[1])  # type: ignore[no-any-return]
    raise _UnknownError(
        f"{target} is no operator of torch, so it is not called: what depends on it has no value."
    )


def _known(name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise _UnknownError
    return known[name]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
