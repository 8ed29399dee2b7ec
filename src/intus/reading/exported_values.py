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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..core.errors import CodecError, InputError, IntusError
from .bounds import check_created, check_unpacked
from .export import DTYPES, operator_of, results_of, subgraph
from .exported_memory import tensors_in
from .exported_ranges import check_ranges
from .inputs import Expected, as_array, check

_OPERATOR = re.compile(r"torch\.ops\.(aten|prims|quantized_decomposed)\.(?!from_file\b)(\w+)\.(\w+)")
_LENGTHS = re.compile(
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|neg|eq|ne|lt|le|gt|ge|and_|or_|not_|getitem)"
)
#: The beginning of torch's text where arguments do not fit to the schema of an operator.
_OF_SCHEMA = re.compile(r"\w+::\w+\(\) ")
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


class Part(NamedTuple):
    """The part of a memory that a tensor views.

    Attributes:
        memory: The identity of the memory.
        start: Its offset, in elements.
        shape: Its shape.
        strides: Its strides, in elements.
        dtype: Its dtype.
    """

    memory: int
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @property
    def stop(self) -> int:
        """Return the end of the elements that it can view."""
        return self.start + 1 + sum((n - 1) * by for n, by in zip(self.shape, self.strides, strict=True) if n)


class Write(NamedTuple):
    """A write into memory: the name of the tensor that was written, and its part of the memory."""

    name: str
    part: Part


class Read(NamedTuple):
    """A tensor that an operation was given.

    Attributes:
        name: Its name.
        part: Its part of its memory.
        writes: The writes into that memory since the tensor was made.
    """

    name: str
    part: Part | None = None
    writes: tuple[Write, ...] = ()


class Step(NamedTuple):
    """An operation that ran.

    Attributes:
        made: The names of the tensors that it returned.
        read: The tensors that it was given.
        call: Runs it again on tensors by name, which it may write into, and returns its results by name.
    """

    made: list[str]
    read: list[Read]
    call: Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ExportedParts:
    """The operations of an exported program that ran, to be run again.

    Args:
        steps: The operations, in order.
        values: The values of the pass by name.
        dtypes: Their dtypes, some of which numpy lacks.
        lengths: Numbers of the pass by name.
        names: The names of the tensor of each row of the graph.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        values: Mapping[str, np.ndarray],
        dtypes: Mapping[str, torch.dtype],
        lengths: Mapping[str, Any],
        names: Mapping[int, Sequence[str]],
    ) -> None:
        self._steps, self._values, self._dtypes = steps, values, dtypes
        self._lengths, self._names = lengths, names

    def computed(self, rows: Collection[int], row: int, given: Mapping[int, np.ndarray]) -> np.ndarray | None:
        """Return what operations compute for one of their rows; None if they cannot be run so.

        Args:
            rows: The rows of the operations.
            row: One of them.
            given: Arrays in the place of rows that they begin at. Others are as in the pass.
        """
        if row not in self._names or not given.keys() <= self._names.keys():
            return None
        known: dict[str, Any] = dict(self._lengths)
        inside = {name for one in rows for name in self._names.get(one, ())}
        try:
            for one, array in given.items():
                known |= {name: self._tensor(name, array) for name in self._names[one]}
            with torch.no_grad():
                for step in self._steps:
                    if inside.isdisjoint(step.made) or known.keys() >= {*step.made}:
                        continue
                    read = {one.name: self._contents(one, known) for one in step.read}
                    known |= step.call({**self._lengths, **read})
            return _array(known[self._names[row][0]])
        except (IntusError, _UnknownError, KeyError):  # of an operator, without a value, inside of a branch
            return None

    def _contents(self, read: Read, known: Mapping[str, Any]) -> torch.Tensor:
        """Return a copy of what an operation reads: a tensor, with what was written into it since."""
        found = self._value(read.name, known)
        for write in read.writes:
            found = _overwritten(found, read.part, self._value(write.name, known), write.part)
        return found

    def _value(self, name: str, known: Mapping[str, Any]) -> torch.Tensor:
        if name in known:
            copy: torch.Tensor = known[name].clone()
            return copy
        return self._tensor(name, self._values[name])

    def _tensor(self, name: str, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.array(array)).to(self._dtypes[name])


def _overwritten(tensor: torch.Tensor, part: Part | None, value: torch.Tensor, at: Part) -> torch.Tensor:
    """Return a tensor with another one written into its memory.

    Args:
        tensor: The tensor.
        part: Its part of the memory.
        value: The tensor that is written.
        at: Its part of the memory.
    """
    if part is None or part.dtype != at.dtype:
        raise _UnknownError
    first = min(part.start, at.start)
    memory = tensor.new_zeros(max(part.stop, at.stop) - first)
    whole = memory.as_strided(part.shape, part.strides, part.start - first)
    try:
        whole.copy_(tensor)
        memory.as_strided(at.shape, at.strides, at.start - first).copy_(value)
    except RuntimeError:  # several elements have one place, as of ``expand``
        raise _UnknownError from None
    return whole.clone()


class Ran(NamedTuple):
    """The knowledge that a run of an exported program gives.

    Attributes:
        values: The values of its tensors by name, each when it was made, and of its outputs when it ended.
        notes: Why others are missing.
        parts: Returns its operations, to be run again, for the names of the tensor of each row.
    """

    values: Mapping[str, np.ndarray]
    notes: list[str]
    parts: Callable[[Mapping[int, Sequence[str]]], ExportedParts]


def values_of(
    path: Path,
    archive: zipfile.ZipFile,
    program: Mapping[str, Any],
    expected: Sequence[Expected],
    inputs: Mapping[str, Any],
) -> Ran:
    """Return the values of all tensors of an exported program.

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
    tensors: dict[str, Any] = {}
    for one in expected:
        value = inputs[one.name]
        if not isinstance(value, torch.Tensor):
            array = as_array(path.name, one, value)
            try:
                value = torch.as_tensor(np.array(array))
            except (TypeError, ValueError) as error:
                raise InputError(f"The input {one.name!r} of {path.name} is no tensor: {error}.") from None
        value = value.detach().cpu().clone()  # which an operation of the file may write into
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
    running = _Program(path, sum(one.nbytes for one in tensors.values()))
    with torch.no_grad():
        running.run(module["graph"], tensors)
        running.end(module["signature"], tensors)
    return Ran(running.values, running.notes, running.parts)


class _Program:
    def __init__(self, path: Path, given: int) -> None:
        self._path, self._given, self._made = path, given, 0  # the bytes of what is given, and of all
        self.values: dict[str, np.ndarray] = {}
        self.notes: list[str] = []
        self._steps: list[Step] = []
        self._dtypes: dict[str, torch.dtype] = {}
        self._lengths: dict[str, Any] = {}
        self._writes: dict[int, list[Write]] = {}
        self._seen: dict[str, int] = {}  # how many writes there were when a tensor was made
        self._written: list[torch.Tensor] = []  # so that no other tensor gets their memory

    def parts(self, names: Mapping[int, Sequence[str]]) -> ExportedParts:
        """Return what ran, to be run again."""
        return ExportedParts(self._steps, self.values, self._dtypes, self._lengths, names)

    def run(self, graph: Mapping[str, Any], known: dict[str, Any]) -> None:
        """Run a graph; add its results to the tensors that are known."""
        for name, value in known.items():
            self._keep(name, value)
        for node in graph["nodes"]:
            read = self._reads(_names(one["arg"] for one in node["inputs"]), known)
            try:
                result, written = self._call(node, known)
            except _UnknownError as error:
                if str(error):  # otherwise it depends on what was left out before
                    self.notes.append(str(error))
                continue
            for name, value in _bound(node["outputs"], result).items():
                known[name] = value
                if any(value is one for one in written):
                    self._writes.setdefault(_memory(value), []).append(Write(name, _part(value)))
                    self._written.append(value)
                self._keep(name, value)
            if not any(subgraph(one["arg"]) for one in node["inputs"]):
                self._steps.append(Step(_names(node["outputs"]), read, partial(self._again, node)))

    def end(self, signature: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """Keep the outputs as they are when the program has run.

        Args:
            signature: The signature of the program.
            known: Its tensors.
        """
        for result, name in results_of(signature):
            if name in known:
                self._same([result], [name], known)
                self._keep(result, known[name])
        self._written.clear()

    def _reads(self, names: Iterable[str], known: Mapping[str, Any]) -> list[Read]:
        """Return what is read of tensors by name, as they are now."""
        return [_read(name, known[name], self._since(name, known[name])) for name in names if name in known]

    def _since(self, name: str, value: Any) -> Sequence[Write]:
        """Return the writes into the memory of a tensor since it was made."""
        writes = self._writes.get(_memory(value), []) if isinstance(value, torch.Tensor) else []
        return writes[self._seen.get(name, 0) :]

    def _again(self, node: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        return _bound(node["outputs"], self._call(node, known)[0])

    def _call(self, node: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[Any, list[torch.Tensor]]:
        """Return the results of a node, and the tensors that it wrote into."""
        target = node["target"]
        graphs = [found for one in node["inputs"] if (found := subgraph(one["arg"])) is not None]
        given = [
            (one, self._value(one["arg"], known)) for one in node["inputs"] if subgraph(one["arg"]) is None
        ]
        args = [value for one, value in given if one.get("kind") != 2]
        kwargs = {one["name"]: value for one, value in given if one.get("kind") == 2}
        if graphs:
            return self._branch(target, graphs, args, node, known), []
        try:
            function = _function(target)
            result, written = function(*args, **kwargs), _written(function, args, kwargs)
        except _UnknownError:
            raise
        except Exception as error:  # whatever an operator raises
            text = " ".join(str(error).split())[:300]
            if isinstance(error, TypeError) or _OF_SCHEMA.match(text):
                raise CodecError(
                    f"{str(self._path)!r} is damaged, or of another version of torch: {operator_of(target)} "
                    "takes other arguments than the file gives it."
                ) from error
            raise InputError(
                f"{self._path.name} cannot run on these inputs: {operator_of(target)} raised "
                f"{type(error).__name__}: {text}"
            ) from None
        if result is None and written:  # of ``_foreach_add_``
            result = written if len(node["outputs"]) > 1 else written[0]
        return result, written

    def _branch(
        self,
        target: str,
        graphs: Sequence[Mapping[str, Any]],
        args: Sequence[Any],
        node: Mapping[str, Any],
        around: Mapping[str, Any],
    ) -> Any:
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
        if kind != "cond":  # which may take the other branch on other tensors, so it is not run again
            outer = [one["arg"] for one in node["inputs"] if subgraph(one["arg"]) is None][-len(names) :]
            self._same(names, _names(outer), around)
        self.run(graph, known)
        if kind != "cond":
            self._same(_names(node["outputs"]), _names(graph["outputs"]), known)
        return [self._value(one, known) for one in graph["outputs"]]

    def _same(self, made: Sequence[str], read: Sequence[str], known: Mapping[str, Any]) -> None:
        """Let tensors have other names: inside of an operation that runs a graph, and as outputs."""
        for name, other in zip(made, read, strict=False):
            self._steps.append(Step([name], self._reads([other], known), partial(_renamed, name, other)))

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

    def _keep(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._made += value.nbytes
            check_created(self._path.name, self._given, self._made)
            self.values[name] = _array(value).copy()  # a later operation may write to its memory
            self._dtypes[name] = value.dtype
            self._seen[name] = len(self._writes.get(_memory(value), []))
        else:
            self._lengths[name] = value


def _memory(value: torch.Tensor) -> int:
    """Return the identity of the memory of a tensor."""
    return value.untyped_storage()._cdata  # type: ignore[no-any-return]


def _part(value: torch.Tensor) -> Part:
    return Part(_memory(value), int(value.storage_offset()), tuple(value.shape), value.stride(), value.dtype)


def _read(name: str, value: Any, writes: Sequence[Write]) -> Read:
    """Return what is read of a tensor, with those of the writes that overlap it."""
    if not writes:
        return Read(name)
    part = _part(value)
    overlapping = [one for one in writes if part.start < one.part.stop and one.part.start < part.stop]
    return Read(name, part, tuple(overlapping))


def _written(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operator writes into, as its schema states."""
    if not isinstance(function, torch._ops.OpOverload):
        return []
    names = [one.name for one in function._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    written = [
        given.get(one.name)
        for one in function._schema.arguments
        if one.alias_info is not None and one.alias_info.is_write
    ]
    lists = [one if isinstance(one, list) else [one] for one in written]
    return [one for several in lists for one in several if isinstance(one, torch.Tensor)]


def _bound(outputs: Sequence[Mapping[str, Any]], result: Any) -> dict[str, Any]:
    """Return the results of an operation by name."""
    found: dict[str, Any] = {}
    results = [result] if len(outputs) == 1 else result or ()  # an assertion returns None
    for output, value in zip(outputs, results, strict=False):
        ((kind, entry),) = output.items()
        if kind == "as_tensors":
            found |= _bound([{"as_tensor": one} for one in entry], value if len(entry) > 1 else value[0])
        elif kind == "as_tensor":
            found[entry["name"]] = value[0] if isinstance(value, list | tuple) else value
        elif kind.startswith("as_sym_"):
            found[entry.get("as_name", "")] = value
    return found


def _renamed(name: str, other: str, known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: known[other]}


def _names(arguments: Iterable[Any]) -> list[str]:
    """Return the names of the tensors in some arguments."""
    return [name for one in arguments for _, name in tensors_in(one)]


def _array(value: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array, in float32 if numpy lacks its dtype."""
    is_foreign = value.dtype in (torch.bfloat16,) or "float8" in str(value.dtype)
    array: np.ndarray = (value.float() if is_foreign else value).resolve_conj().resolve_neg().numpy()
    return array


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
        except Exception:  # of a type for each cause; torch's text advises to unpickle anything
            raise CodecError(
                f"{str(self._path)!r} has pickled weights that are damaged or no plain tensors, so they are "
                "not loaded. Export the model again."
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


@cache
def _function(target: str) -> Callable[..., Any]:
    """Return the operator of torch, or of arithmetic, that a node names.

    A name is looked up only if torch's dispatcher has an operator of exactly that name, because the
    namespaces of ``torch.ops`` have other attributes too, and scripting has functions of its own there.
    """
    found = _OPERATOR.fullmatch(target)
    if found:
        namespace, name, overload = found.groups()
        full = f"{namespace}::{name}" if overload == "default" else f"{namespace}::{name}.{overload}"
        if full in torch._C._dispatch_get_all_op_names():
            operation = getattr(getattr(getattr(torch.ops, namespace), name), overload)
            if isinstance(operation, torch._ops.OpOverload):
                return operation
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
