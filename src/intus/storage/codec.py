"""Records and graphs as bytes, the same on the wire and on disk: safetensors with JSON metadata.

No pickle, nothing executable; numpy alone on both ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load as _load
from safetensors.numpy import save as _save

from ..core.errors import CodecError, InputError
from ..core.graph import OP_KINDS, Branch, Calls, Edges, Graph, Meta, ModuleInfo, Ops, Param, Source
from ..core.record import KINDS, PROJECTED, Record

FORMAT = "1"
MAX_HEADER = 64 << 20  # of JSON, which takes many times as much once it is read
_RECORD_FACTS = ("address", "kind", "run", "model", "step", "epoch", "mode", "batch_axis", "index")
_FACT_TYPES: dict[str, tuple[type, ...]] = {
    "address": (str,),
    "kind": (str,),
    "run": (str,),
    "model": (str,),
    "step": (int, type(None)),
    "epoch": (int, float, type(None)),
    "mode": (str,),
    "batch_axis": (int, type(None)),
    "index": (int,),
}


def encode_records(records: Iterable[Record], envelope: Mapping[str, Any] | None = None) -> bytes:
    """Pack records into one safetensors blob; ``envelope`` is a JSON-able dict that travels beside them.

    >>> blob = encode_records([Record(np.ones((2, 3), np.float32), "fc1")], {"seq": 7})
    >>> records, envelope = decode_records(blob)
    >>> records[0].address, records[0].array.shape, envelope["seq"]
    ('fc1', (2, 3), 7)
    """
    arrays: dict[str, np.ndarray] = {}
    facts = []
    for number, record in enumerate(records):
        arrays[str(number)] = np.asarray(record.array, order="C")  # ascontiguousarray gives scalars an axis
        if record.items is not None:
            arrays[f"{number}.items"] = np.ascontiguousarray(record.items, dtype=np.int64)
        if record.summary is not None:
            arrays[f"{number}.summary"] = np.ascontiguousarray(record.summary, dtype=np.float32)
        facts.append({name: getattr(record, name) for name in _RECORD_FACTS})
        if record.projected_from is not None:
            facts[-1]["projected_from"] = record.projected_from
    return _save(arrays, {"intus": FORMAT, "records": _dump(facts), "envelope": _dump(envelope or {})})


def decode_records(blob: bytes) -> tuple[list[Record], dict[str, Any]]:
    """Unpack what ``encode_records`` made; raises CodecError for anything else, never anything other."""
    arrays, meta = _open(blob, "records")
    facts, envelope = _parse(meta["records"]), _parse(meta.get("envelope", "{}"))
    if not isinstance(facts, list) or not isinstance(envelope, dict):
        raise CodecError("The blob's metadata is malformed: records must be a list, envelope an object.")
    records = []
    for number, fact in enumerate(facts):
        if str(number) not in arrays:
            raise CodecError(f"The blob names record {number} but holds no array for it.")
        beside = (arrays.get(f"{number}.{name}") for name in ("items", "summary"))
        records.append(_record(arrays[str(number)], fact, *beside))
    return records, envelope


def encode_graph(graph: Graph, arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Pack a graph, and any arrays that belong to it, into one safetensors blob."""
    columns = {f"value/{name}": np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    parts, meta = graph_parts(graph)
    return _save(columns | parts, meta)


def decode_graph(blob: bytes) -> tuple[Graph, dict[str, np.ndarray]]:
    """Unpack what ``encode_graph`` made: the graph and its arrays; raises CodecError otherwise."""
    columns, meta = _open(blob, "graph")
    values = {name[len("value/") :]: array for name, array in columns.items() if name.startswith("value/")}
    return _graph_of(columns, meta), values


def read_graph(path: Path) -> tuple[Graph, dict[str, np.ndarray], list[str]]:
    """The graph in a file, all columns, and the names of the values and gradients, which are not read."""
    try:
        with safe_open(path, framework="numpy") as file:
            names, meta = list(file.keys()), file.metadata() or {}
            others = [name for name in names if name.startswith(("value/", "grad/"))]
            columns = {name: file.get_tensor(name) for name in set(names) - set(others)}
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CodecError(f"{str(path)!r} cannot be read: {error}.") from None
    except Exception as error:  # safetensors raises its own type, and TypeError for a kind numpy lacks
        raise CodecError(f"{str(path)!r} is no safetensors file: {error}.") from None
    _check_format(meta, "graph")
    return _graph_of(columns, meta), columns, others


def graph_parts(graph: Graph) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """A graph as named columns and safetensors metadata."""
    columns: dict[str, np.ndarray] = {}
    for table in ("ops", "edges", "calls"):
        part = getattr(graph, table)
        columns |= {f"{table}/{f.name}": np.ascontiguousarray(getattr(part, f.name)) for f in fields(part)}
    columns |= {"op_params": graph.op_params, "exits": graph.exits, "op_settings": graph.op_settings}
    facts = {
        "model": graph.model,
        "types": graph.types,
        "metas": graph.metas,
        "sites": graph.sites,
        "args": graph.args,
        "params": graph.params,
        "modules": graph.modules,
        "branches": graph.branches,
        "buffers": graph.buffers,
        "settings": graph.settings,
        "error": graph.error,
        "facts": dict(graph.facts),
    }
    return columns, {"intus": FORMAT, "graph": _dump(facts)}


def _graph_of(columns: Mapping[str, np.ndarray], meta: Mapping[str, str]) -> Graph:
    facts = _parse(meta["graph"])
    try:
        graph = Graph(
            model=facts["model"],
            types=tuple(facts["types"]),
            metas=_named(Meta, facts["metas"]),
            sites=_named(Source, facts["sites"]),
            args=tuple(facts["args"]),
            params=_named(Param, facts["params"]),
            modules=_named(ModuleInfo, facts["modules"]),
            ops=_table(Ops, "ops", columns),
            edges=_table(Edges, "edges", columns),
            calls=_table(Calls, "calls", columns),
            op_params=columns["op_params"],
            exits=columns["exits"],
            branches=_named(Branch, facts["branches"]),
            buffers=_named(Param, facts["buffers"]),
            settings=tuple(facts["settings"]),
            op_settings=columns["op_settings"],
            error=facts["error"],
            facts=facts["facts"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CodecError(f"The blob is not a whole graph: {type(error).__name__} {error}.") from None
    _check(graph)
    return graph


def _named(cls: Any, rows: Any) -> tuple[Any, ...]:
    """Build named tuples of one class; each value must be just what the class says it is."""
    hints = tuple(get_type_hints(cls).values())
    built = []
    for row in rows:
        values = tuple(tuple(value) if isinstance(value, list) else value for value in row)
        if len(values) != len(hints) or not all(map(_is, values, hints)):
            raise TypeError(f"{row!r} is no {cls.__name__}")
        built.append(cls(*values))
    return tuple(built)


def _is(value: Any, hint: Any) -> bool:
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(type(part) is int for part in value)
    return any(type(value) is one for one in (get_args(hint) or (hint,)))


def _check(graph: Graph) -> None:
    """Names must be text, and every index a graph from outside holds must point at something."""
    if not all(
        isinstance(text, str)
        for text in (graph.model, graph.error, *graph.types, *graph.args, *graph.settings)
    ):
        raise CodecError("The graph's names must be text.")
    if not isinstance(graph.facts, dict):
        raise CodecError(f"The graph's facts must be an object, got {graph.facts!r}.")
    _check_columns(graph)
    rows, calls = len(graph.ops), len(graph.calls)
    for name, pairs, limits in (
        ("op_params", graph.op_params, (rows, len(graph.params))),
        ("exits", graph.exits, (rows, calls)),
    ):
        if pairs.dtype.kind != "i" or pairs.ndim != 2 or pairs.shape[1] != 2:
            raise CodecError(f"The graph's {name} must be pairs of integers.")
        if pairs.size and (pairs.min() < 0 or (pairs >= limits).any()):
            raise CodecError(f"The graph's pairs {name} point outside it.")
    for module in graph.modules:
        for name, numbers, limit in (
            ("params", module.params, len(graph.params)),
            ("buffers", module.buffers, len(graph.buffers)),
            ("site", (module.site,) * (module.site != -1), len(graph.sites)),
        ):
            if not all(0 <= number < limit for number in numbers):
                raise CodecError(f"The module {module.address!r} has {name} outside the graph.")
    if len(graph.op_settings) not in (0, rows):
        raise CodecError("The graph's column op_settings is not as long as its ops.")
    if any(not 0 <= branch.row < rows for branch in graph.branches):
        raise CodecError("The graph's branches name rows outside it.")
    if (graph.calls.parent >= np.arange(calls)).any():
        raise CodecError("The graph's column calls/parent names a call that began later.")
    if (graph.calls.start > graph.calls.stop).any():
        raise CodecError("The graph's columns calls/start and calls/stop: a call ends before it starts.")
    if (np.diff(graph.edges.dst) < 0).any() or (graph.edges.src >= graph.edges.dst).any():
        raise CodecError("The graph's edges/dst must be sorted, and edges/src must come before edges/dst.")
    if len(np.unique(graph.ops.layer)) != (graph.ops.layer.max() + 1 if rows else 0):
        raise CodecError("The graph's column ops/layer leaves numbers out.")


def _check_columns(graph: Graph) -> None:
    rows, calls = len(graph.ops), len(graph.calls)
    whole = 2**63
    bounds = {
        "ops/kind": (graph.ops.kind, 0, len(OP_KINDS)),
        "ops/type": (graph.ops.type, 0, len(graph.types)),
        "ops/layer": (graph.ops.layer, 0, max(rows, 1)),
        "ops/passno": (graph.ops.passno, 1, rows + 1),
        "ops/call": (graph.ops.call, -1, calls),
        "ops/meta": (graph.ops.meta, 0, len(graph.metas)),
        "ops/site": (graph.ops.site, -1, len(graph.sites)),
        "ops/event": (graph.ops.event, -1, whole),
        "ops/output": (graph.ops.output, -1, whole),
        "ops/time": (graph.ops.time, 0, whole),
        "ops/flags": (graph.ops.flags, 0, whole),
        "edges/src": (graph.edges.src, 0, rows),
        "edges/dst": (graph.edges.dst, 0, rows),
        "edges/arg": (graph.edges.arg, 0, len(graph.args)),
        "op_settings": (graph.op_settings, -1, len(graph.settings)),
        "calls/module": (graph.calls.module, 0, len(graph.modules)),
        "calls/passno": (graph.calls.passno, 1, calls + 1),
        "calls/parent": (graph.calls.parent, -1, calls),
        "calls/start": (graph.calls.start, 0, rows + 1),
        "calls/stop": (graph.calls.stop, 0, rows + 1),
    }
    for name, (column, low, high) in bounds.items():
        if column.dtype.kind != "i" or column.ndim != 1:
            raise CodecError(f"The graph's column {name} must be a line of integers.")
        if column.size and not (low <= column.min() and column.max() < high):
            raise CodecError(f"The graph's column {name} points outside {low} to {high - 1}.")


def _table(cls: Any, name: str, columns: Mapping[str, np.ndarray]) -> Any:
    parts = {f.name: columns[f"{name}/{f.name}"] for f in fields(cls)}
    if len({part.shape for part in parts.values()}) > 1:
        raise ValueError(f"columns of {name} differ in length")
    return cls(**parts)


def _record(
    array: np.ndarray, fact: Any, items: np.ndarray | None, summary: np.ndarray | None = None
) -> Record:
    if not isinstance(fact, dict):
        raise CodecError(f"A record's facts must be an object, got {fact!r}.")
    for name, types in _FACT_TYPES.items():
        value = fact.get(name)
        if name not in fact or isinstance(value, bool) or not isinstance(value, types):
            raise CodecError(
                f"A record's {name} must be {' or '.join(t.__name__ for t in types)}, got {value!r}."
            )
    if fact["kind"] not in KINDS:
        raise CodecError(f"A record's kind must be one of {', '.join(KINDS)}, got {fact['kind']!r}.")
    if array.dtype.kind not in "fiub":
        raise CodecError(f"The array at {fact['address']!r} has dtype {array.dtype}, expected numbers.")
    if items is not None and items.dtype != np.int64:
        raise CodecError(f"The item ids at {fact['address']!r} have dtype {items.dtype}, expected int64.")
    if summary is not None and summary.dtype != np.float32:
        raise CodecError(f"The summary at {fact['address']!r} has dtype {summary.dtype}, expected float32.")
    known = {name: fact[name] for name in _RECORD_FACTS}
    known["projected_from"] = _projected_from(array, fact)
    try:
        return Record(array, items=items, summary=summary, **known)
    except InputError as error:
        raise CodecError(str(error)) from None


def _projected_from(array: np.ndarray, fact: dict[str, Any]) -> int | None:
    features = fact.get("projected_from")
    fine = isinstance(features, int) and not isinstance(features, bool) and 0 < features < 2**53
    if features is not None and not (fine and array.ndim > 1 and array.shape[-1] == PROJECTED):
        raise CodecError(
            f"The array at {fact['address']!r}, of shape {array.shape}, cannot be projected from "
            f"{features!r} features to {PROJECTED}."
        )
    return features


def _open(blob: bytes, part: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of a safetensors blob that must hold ``part``."""
    try:
        length = int.from_bytes(blob[:8], "little")
        if length > MAX_HEADER:
            raise ValueError(f"a header of {length:,} bytes; the most is {MAX_HEADER:,}")
        header = json.loads(blob[8 : 8 + length]) if 0 < length <= len(blob) - 8 else None
        arrays = _load(blob)
        meta = header["__metadata__"] if header else {}
    except Exception as error:  # safetensors raises its own type and json its own; all mean the same here
        raise CodecError(f"Not a safetensors blob: {type(error).__name__}: {error}.") from None
    _check_format(meta, part)
    return arrays, meta


def _check_format(meta: Mapping[str, str], part: str) -> None:
    if "intus" in meta and meta["intus"] != FORMAT:
        raise CodecError(
            f"Written by another version of intus, in format {meta['intus']!r}; this one reads {FORMAT!r}. "
            "Write it anew with this version, or read it with the one that wrote it."
        )
    if "intus" not in meta or part not in meta:
        raise CodecError(
            f"A safetensors blob, but not of intus format {FORMAT} with {part}: metadata keys are "
            f"{', '.join(sorted(meta)) or 'none'}."
        )


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"Malformed JSON: {error}.") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
