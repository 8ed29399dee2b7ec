"""Encode records and graphs as bytes: safetensors with JSON metadata, the same on the wire and on disk.

The format contains no pickle and nothing executable, and needs only numpy on both ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load as _load
from safetensors.numpy import save as _save

from ..core.errors import CodecError, InputError
from ..core.graph import OP_COLUMNS, Branch, Calls, Edges, Graph, Meta, ModuleInfo, Ops, Param, Source
from ..core.projection import PROJECTED
from ..core.record import KINDS, NO_FACTS, LayerStatistics, PassFacts, Record
from .tensors import CheckedFile, tensors_blob

#: The version of the messages that carry records; of those in which some have statistics of rows that are not
#: sent, of which a server that reads only the first would take the rows that are sent for all; and of those
#: in which a record has the arrays of an earlier one.
FORMAT, STATISTICS_FORMAT, SHARED_FORMAT = "1", "2", "3"
#: The version of graphs and of the files that contain them. It rises whenever a column changes, which a test
#: checks. Format 2 brought checksums in files; in format 1 the column ``setting`` had been added unnoticed.
GRAPH_FORMAT = "2"
_READABLE = {"records": (FORMAT, STATISTICS_FORMAT, SHARED_FORMAT), "graph": ("1", GRAPH_FORMAT)}
_SUMS = "statistics."  # prefix of the names of a record's statistics
MAX_HEADER = 64 << 20  # bytes of JSON, which take many times as much memory once parsed
MOST_WORDS = 1000  # characters of the words for the data that rows are of
_RECORD_ARRAYS = ("array", "items", "summary", "statistics")
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
    """Encode records as one safetensors blob; see ``records_blob``."""
    return bytes(records_blob(records, envelope))


def records_blob(records: Iterable[Record], envelope: Mapping[str, Any] | None = None) -> memoryview:
    """Encode records as one safetensors blob. Arrays that several records share are in it once.

    Args:
        records: The records.
        envelope: A JSON-serializable dict that is sent with them.

    Example:
        >>> blob = records_blob([Record(np.ones((2, 3), np.float32), "fc1")], {"seq": 7})
        >>> records, envelope = decode_records(bytes(blob))
        >>> records[0].address, records[0].array.shape, envelope["seq"]
        ('fc1', (2, 3), 7)
    """
    arrays: dict[str, np.ndarray] = {}
    facts: list[dict[str, Any]] = []
    version = FORMAT
    encoded: dict[tuple[int, ...], int] = {}  # the numbers of records, by the identities of their arrays
    records = list(records)  # which keeps the arrays, and so their identities
    for number, record in enumerate(records):
        facts.append({name: getattr(record, name) for name in _RECORD_FACTS})
        if record.projected_from is not None:
            facts[-1]["projected_from"] = record.projected_from
        if record.cut_from is not None:
            facts[-1]["cut_from"] = record.cut_from
        if of_pass := record.of_pass.stated():
            facts[-1]["of_pass"] = of_pass
        if record.channels_first:
            facts[-1]["channels_first"] = True
        same = encoded.setdefault(tuple(id(getattr(record, name)) for name in _RECORD_ARRAYS), number)
        if same != number:
            version = SHARED_FORMAT
            facts[-1]["same_as"] = same
            continue
        arrays[str(number)] = np.asarray(
            record.array, order="C"
        )  # ascontiguousarray would add an axis to scalars
        if record.items is not None:
            arrays[f"{number}.items"] = np.ascontiguousarray(record.items, dtype=np.int64)
        if record.summary is not None:
            arrays[f"{number}.summary"] = np.ascontiguousarray(record.summary, dtype=np.float32)
        if record.statistics is not None:
            version = max(version, STATISTICS_FORMAT)
            facts[-1]["statistics"] = dict(record.statistics.facts)
            for name, array in record.statistics.arrays.items():
                arrays[f"{number}.{_SUMS}{name}"] = np.asarray(array, order="C")
    return tensors_blob(
        arrays, {"intus": version, "records": _dump(facts), "envelope": _dump(envelope or {})}
    )


def decode_records(blob: bytes | memoryview) -> tuple[list[Record], dict[str, Any]]:
    """Decode a blob of ``encode_records``.

    Args:
        blob: The bytes, which need not be trusted.

    Returns:
        The records and the envelope.

    Raises:
        CodecError: If the bytes are anything else. No other exception is raised but MemoryError.
    """
    arrays, meta = _open(blob, "records")
    facts, envelope = _parse(meta["records"]), _parse(meta.get("envelope", "{}"))
    if not isinstance(facts, list) or not isinstance(envelope, dict):
        raise CodecError("The blob's metadata is malformed: records must be a list, envelope an object.")
    records: list[Record] = []
    for number, fact in enumerate(facts):
        parts = _shared(fact, records) or _own(fact, arrays, number)
        records.append(_record(fact, *parts))
    return records, envelope


#: The arrays of a record: itself, items, summary and statistics.
_Parts = tuple[np.ndarray, np.ndarray | None, np.ndarray | None, LayerStatistics | None]


def _own(fact: Any, arrays: Mapping[str, np.ndarray], number: int) -> _Parts:
    """Return the arrays that a blob has for a record."""
    if str(number) not in arrays:
        raise CodecError(f"The blob lists record {number} but has no array for it.")
    items, summary = (arrays.get(f"{number}.{name}") for name in ("items", "summary"))
    return arrays[str(number)], items, summary, _statistics(fact, arrays, f"{number}.{_SUMS}")


def _shared(fact: Any, earlier: Sequence[Record]) -> _Parts | None:
    """Return the arrays of the earlier record whose arrays a record shares; None if it has its own."""
    same = fact.get("same_as") if isinstance(fact, dict) else None
    if same is None:
        return None
    if isinstance(same, bool) or not isinstance(same, int) or not 0 <= same < len(earlier):
        raise CodecError(f"A record's same_as must be the number of an earlier record, got {same!r}.")
    record = earlier[same]
    return record.array, record.items, record.summary, record.statistics


def _statistics(fact: Any, arrays: Mapping[str, np.ndarray], prefix: str) -> LayerStatistics | None:
    """Return the statistics of a record, whose contents are checked where they are read."""
    facts = fact.get("statistics") if isinstance(fact, dict) else None
    if facts is None:
        return None
    if not isinstance(facts, dict):
        raise CodecError(f"A record's statistics must be an object, got {facts!r}.")
    own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
    return LayerStatistics(own, facts)


def encode_graph(graph: Graph, arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Encode a graph, and arrays that belong to it, as one safetensors blob.

    Args:
        graph: The graph.
        arrays: Arrays by name.
    """
    columns = {f"value/{name}": np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    parts, meta = graph_parts(graph)
    return _save(columns | parts, meta)


def decode_graph(blob: bytes) -> tuple[Graph, dict[str, np.ndarray]]:
    """Decode a blob of ``encode_graph``.

    Args:
        blob: The bytes, which need not be trusted.

    Returns:
        The graph, and the arrays by name.

    Raises:
        CodecError: If the bytes are anything else. No other exception is raised but MemoryError.
    """
    columns, meta = _open(blob, "graph")
    values = {name[len("value/") :]: array for name, array in columns.items() if name.startswith("value/")}
    return _graph_of(columns, meta), values


def read_graph(path: Path) -> tuple[Graph, dict[str, np.ndarray], list[str]]:
    """Read the graph of a file, without the values and gradients in it.

    Args:
        path: A safetensors file.

    Returns:
        The graph, all columns by name, and the names of the values and gradients.

    Raises:
        FileNotFoundError: If there is no such file.
        CodecError: If the file cannot be read, or has no graph of this format.
    """
    try:
        checked = CheckedFile(path)
        with safe_open(path, framework="numpy") as file:
            values = [name for name in file.keys() if name.startswith(("value/", "grad/"))]  # noqa: SIM118
            columns = {name: file.get_tensor(name) for name in set(checked.spans) - set(values)}
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CodecError(f"{str(path)!r} cannot be read: {error}.") from None
    except (CodecError, MemoryError):
        raise
    except Exception as error:  # safetensors raises its own type, and TypeError for a dtype that numpy lacks
        raise CodecError(f"{str(path)!r} is not a safetensors file: {error}.") from None
    _check_format(checked.metadata, "graph")
    if checked.metadata["intus"] != "1" and not checked.has_checksums:
        raise CodecError(
            f"{path} is damaged: a file of format {GRAPH_FORMAT} has checksums, and it has none."
        )
    for name in columns:
        checked.check(name)
    return _graph_of(columns, checked.metadata), columns, values


def graph_parts(graph: Graph) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return a graph as columns, and metadata for a safetensors file.

    Args:
        graph: The graph.

    Returns:
        Arrays by name, and the metadata.
    """
    columns = {f"ops/{name}": np.ascontiguousarray(column) for name, column in graph.ops.columns().items()}
    for table in ("edges", "calls"):
        part = getattr(graph, table)
        columns |= {f"{table}/{f.name}": np.ascontiguousarray(getattr(part, f.name)) for f in fields(part)}
    columns |= {"op_params": graph.op_params, "exits": graph.exits}
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
    return columns, {"intus": GRAPH_FORMAT, "graph": _dump(facts)}


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
            ops=_ops(columns),
            edges=_table(Edges, "edges", columns),
            calls=_table(Calls, "calls", columns),
            op_params=columns["op_params"],
            exits=columns["exits"],
            branches=_named(Branch, facts["branches"]),
            buffers=_named(Param, facts["buffers"]),
            settings=tuple(facts["settings"]),
            error=facts["error"],
            facts=facts["facts"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CodecError(f"The blob is not a complete graph: {type(error).__name__} {error}.") from None
    _check(graph)
    return graph


def _named(cls: Any, rows: Any) -> tuple[Any, ...]:
    """Build named tuples of one class; each value must have exactly the annotated type.

    Fields that have a default may be missing at the end, because files of older versions lack them.
    """
    hints = tuple(get_type_hints(cls).values())
    required = len(hints) - len(cls._field_defaults)
    built = []
    for row in rows:
        values = tuple(tuple(value) if isinstance(value, list) else value for value in row)
        if not required <= len(values) <= len(hints) or not all(map(_has_type, values, hints)):
            raise TypeError(f"{row!r} is not a {cls.__name__}")
        built.append(cls(*values))
    return tuple(built)


def _has_type(value: Any, hint: Any) -> bool:
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(type(part) is int for part in value)
    return any(type(value) is one for one in (get_args(hint) or (hint,)))


def _check(graph: Graph) -> None:
    """Raise CodecError unless names are strings and every index is valid."""
    if not all(
        isinstance(text, str)
        for text in (graph.model, graph.error, *graph.types, *graph.args, *graph.settings)
    ):
        raise CodecError("The graph's names must be strings.")
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
            raise CodecError(f"The graph's {name} have indices outside the graph.")
    for module in graph.modules:
        for name, numbers, limit in (
            ("params", module.params, len(graph.params)),
            ("buffers", module.buffers, len(graph.buffers)),
            ("site", (module.site,) * (module.site != -1), len(graph.sites)),
        ):
            if not all(0 <= number < limit for number in numbers):
                raise CodecError(f"The module {module.address!r} has {name} with an index outside the graph.")
    if any(not 0 <= branch.row < rows for branch in graph.branches):
        raise CodecError("The graph's branches have rows outside the graph.")
    if (graph.calls.parent >= np.arange(calls)).any():
        raise CodecError("The graph's column calls/parent has a call that began later.")
    if (graph.calls.start > graph.calls.stop).any():
        raise CodecError(
            "The graph's columns calls/start and calls/stop have a call that ends before it starts."
        )
    if (np.diff(graph.edges.dst) < 0).any() or (graph.edges.src >= graph.edges.dst).any():
        raise CodecError(
            "The graph's edges/dst must be sorted, and edges/src must be smaller than edges/dst."
        )
    if len(np.unique(graph.ops.layer)) != (graph.ops.layer.max() + 1 if rows else 0):
        raise CodecError("The graph's column ops/layer must use every number from 0.")


def _check_columns(graph: Graph) -> None:
    rows, calls = len(graph.ops), len(graph.calls)
    unbounded = 2**63
    limits = graph.limits
    bounds = {
        **{
            f"ops/{c.name}": (getattr(graph.ops, c.name), c.low, limits[c.below] if c.below else unbounded)
            for c in OP_COLUMNS
        },
        "edges/src": (graph.edges.src, 0, rows),
        "edges/dst": (graph.edges.dst, 0, rows),
        "edges/arg": (graph.edges.arg, 0, len(graph.args)),
        "calls/module": (graph.calls.module, 0, len(graph.modules)),
        "calls/passno": (graph.calls.passno, 1, calls + 1),
        "calls/parent": (graph.calls.parent, -1, calls),
        "calls/start": (graph.calls.start, 0, rows + 1),
        "calls/stop": (graph.calls.stop, 0, rows + 1),
    }
    for name, (column, low, high) in bounds.items():
        if column.dtype.kind != "i" or column.ndim != 1:
            raise CodecError(f"The graph's column {name} must be one-dimensional, of integers.")
        if column.size and not (low <= column.min() and column.max() < high):
            raise CodecError(f"The graph's column {name} must have values from {low} to {high - 1}.")


def _ops(columns: Mapping[str, np.ndarray]) -> Ops:
    """Build the op columns of a file; a missing optional column takes its default."""
    parts = {c.name: columns[f"ops/{c.name}"] for c in OP_COLUMNS if f"ops/{c.name}" in columns}
    old = columns.get("op_settings")  # the name of ``setting`` before it was an op column
    if old is not None and len(old):
        parts.setdefault("setting", old)
    missing = [c.name for c in OP_COLUMNS if c.required and c.name not in parts]
    if missing:
        raise CodecError(
            f"The file has no column ops/{missing[0]}, which this version of intus requires. It was written "
            "by another version, or is damaged. Read it with the version that wrote it, or trace the model "
            "again."
        )
    try:
        return Ops(len(parts["kind"]), **parts)
    except InputError as error:
        raise CodecError(f"The blob is not a complete graph: {error}") from None


def _table(cls: Any, name: str, columns: Mapping[str, np.ndarray]) -> Any:
    parts = {f.name: columns[f"{name}/{f.name}"] for f in fields(cls)}
    if len({part.shape for part in parts.values()}) > 1:
        raise ValueError(f"columns of {name} differ in length")
    return cls(**parts)


def _record(
    fact: Any,
    array: np.ndarray,
    items: np.ndarray | None,
    summary: np.ndarray | None = None,
    statistics: LayerStatistics | None = None,
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
        raise CodecError(f"The array at {fact['address']!r} must be numeric, got dtype {array.dtype}.")
    if items is not None and items.dtype != np.int64:
        raise CodecError(f"The item ids at {fact['address']!r} must be int64, got {items.dtype}.")
    if summary is not None and summary.dtype != np.float32:
        raise CodecError(f"The summary at {fact['address']!r} must be float32, got {summary.dtype}.")
    checked = {name: fact[name] for name in _RECORD_FACTS}
    checked["projected_from"] = _projected_from(array, fact)
    checked["cut_from"] = _cut_from(fact)
    checked["of_pass"] = _of_pass(fact)
    checked["channels_first"] = _channels_first(fact)
    try:
        return Record(array, items=items, summary=summary, statistics=statistics, **checked)
    except InputError as error:
        raise CodecError(str(error)) from None


def _projected_from(array: np.ndarray, fact: dict[str, Any]) -> int | None:
    features = fact.get("projected_from")
    valid = isinstance(features, int) and not isinstance(features, bool) and 0 < features < 2**53
    if features is not None and not (valid and array.ndim > 1 and array.shape[-1] == PROJECTED):
        raise CodecError(
            f"The array at {fact['address']!r}, of shape {array.shape}, cannot be projected from "
            f"{features!r} features to {PROJECTED}."
        )
    return features


def _cut_from(fact: dict[str, Any]) -> int | None:
    rows = fact.get("cut_from")
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or not 0 < rows < 2**53):
        raise CodecError(f"A record's cut_from must be a number of rows, got {rows!r}.")
    return rows


def _channels_first(fact: dict[str, Any]) -> bool:
    given = fact.get("channels_first", False)
    if not isinstance(given, bool):
        raise CodecError(f"A record's channels_first must be true or false, got {given!r}.")
    return given


def _of_pass(fact: dict[str, Any]) -> PassFacts:
    facts = fact.get("of_pass", {})
    if not isinstance(facts, dict):
        raise CodecError(f"A record's of_pass must be an object, got {facts!r}.")
    known = {one.name: facts[one.name] for one in fields(PassFacts) if one.name in facts}
    for name, value in known.items():
        kind = type(getattr(NO_FACTS, name))
        if type(value) is not kind:
            raise CodecError(f"A record's {name} must be of type {kind.__name__}, got {value!r}.")
    words = known.get("rows_of", "")
    if len(words) > MOST_WORDS or not words.isprintable():
        raise CodecError(f"A record's rows_of must have at most {MOST_WORDS} characters that can be printed.")
    return PassFacts(**known)


def _open(blob: bytes | memoryview, part: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays and metadata of a safetensors blob that must contain ``part``."""
    try:
        length = int.from_bytes(blob[:8], "little")
        if length > MAX_HEADER:
            raise ValueError(f"a header of {length:,} bytes exceeds the maximum of {MAX_HEADER:,}")
        header = json.loads(bytes(blob[8 : 8 + length])) if 0 < length <= len(blob) - 8 else None
        arrays = _load(bytes(blob))  # which copies no bytes
        meta = header["__metadata__"] if header else {}
    except MemoryError:
        raise
    except Exception as error:  # safetensors and json raise their own types; all mean the same here
        raise CodecError(f"Not a safetensors blob: {type(error).__name__}: {error}.") from None
    _check_format(meta, part)
    return arrays, meta


def _check_format(meta: Mapping[str, str], part: str) -> None:
    readable = _READABLE[part]
    if "intus" in meta and meta["intus"] not in readable:
        raise CodecError(
            f"Written by another version of intus, in format {meta['intus']!r}; this version reads format "
            f"{' and '.join(map(repr, readable))}. Write it again with this version, or read it with the one "
            "that wrote it."
        )
    if "intus" not in meta or part not in meta:
        raise CodecError(
            f"The safetensors data is not of intus format {readable[-1]} with a part {part!r}. Its metadata "
            f"keys: {', '.join(sorted(meta)) or 'none'}."
        )


def _dump(value: Any) -> str:
    """Return a value as JSON; a lone surrogate, which UTF-8 cannot encode, as an escape."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"Malformed JSON: {error}.") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
