"""Load the structure of an ONNX file without its weights, and check it.

A file is a protobuf message with the weights among the rest. ``structure`` copies everything but large arrays
and lets onnx parse the copy, so that a file of gigabytes is read in the time of its graph.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ...core.building import nbytes
from ...core.errors import CodecError
from .naming import dtype_of
from .ordering import arrange

#: Arrays of more bytes than this are left out.
_LARGE = 4096

_Fields = dict[int, Any]
_RAW = 9
#: The numbers of the fields that hold arrays, in a TensorProto.
_TENSOR: _Fields = dict.fromkeys((4, 5, 6, 7, 9, 10, 11))
_SPARSE: _Fields = {1: _TENSOR, 2: _TENSOR}
_ATTRIBUTE: _Fields = {5: _TENSOR, 10: _TENSOR, 22: _SPARSE, 23: _SPARSE}
_NODE: _Fields = {5: _ATTRIBUTE}
_GRAPH: _Fields = {1: _NODE, 5: _TENSOR, 15: _SPARSE}
_ATTRIBUTE |= {6: _GRAPH, 11: _GRAPH}
#: Where arrays are in a ModelProto: field numbers to the fields of the message inside; None for an array.
_MODEL: _Fields = {7: _GRAPH, 25: {7: _NODE}}


def structure(path: Path) -> onnx.ModelProto:
    """Return the model in a file without its large arrays.

    Args:
        path: The file.

    Raises:
        CodecError: If the file is no ONNX model, is damaged, or of a version that is not known; if data that
            it keeps in other files are missing or outside its folder; or if its nodes have no order.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            model = onnx.ModelProto.FromString(b"".join(_small(data, 0, len(data), _MODEL, 0)))
        except (_DamagedError, DecodeError) as error:
            raise CodecError(
                f"{str(path)!r} is no ONNX model, or is damaged or truncated: {error}."
            ) from None
    _check(model, path)
    arrange(model, path)
    return model


def whole(path: Path) -> onnx.ModelProto:
    """Return the model in a file with its arrays, except those in other files."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise CodecError(
            f"{str(path)!r} is too large to compute its values, or is damaged: {error}."
        ) from None
    arrange(model, path)
    return model


class _DamagedError(Exception):
    pass


def _small(data: mmap.mmap, start: int, stop: int, fields: _Fields, depth: int) -> Iterator[bytes]:
    """Yield the parts of a message without large arrays."""
    if depth > 100:
        raise _DamagedError("its graphs are nested more than 100 deep")
    copied = start  # everything before this position was yielded
    while start < stop:
        begin = start
        key, start = _varint(data, start, stop)
        number, wire = key >> 3, key & 7
        if not number:  # as the zeros are that a file system puts in the place of what was not written
            raise _DamagedError(f"byte {begin:,} begins a field without a number")
        if wire == 0:
            _, start = _varint(data, start, stop)
        elif wire == 1:
            start += 8
        elif wire == 5:
            start += 4
        elif wire == 2:
            length, start = _varint(data, start, stop)
            inside, start = start, start + length
            if length > _LARGE and start <= stop and number in fields:
                yield data[copied:begin]
                copied = start
                if fields is _TENSOR:
                    yield _left_out(number, length)
                elif fields[number] is not None:
                    part = b"".join(_small(data, inside, start, fields[number], depth + 1))
                    yield _encoded(key) + _encoded(len(part)) + part
        else:
            raise _DamagedError(f"byte {begin:,} has an unknown kind of field")
        if start > stop:
            raise _DamagedError(f"it ends {start - stop:,} bytes early, in what begins at byte {begin:,}")
    yield data[copied:stop]


def _varint(data: mmap.mmap, start: int, stop: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if start >= stop:
            raise _DamagedError(f"it ends early, at byte {start:,}")
        byte = data[start]
        start += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, start
    raise _DamagedError(f"byte {start:,} is in no number")


def _left_out(number: int, length: int) -> bytes:
    """Return an entry of ``external_data`` that says how many bytes of a field of a tensor were left out."""
    entry: bytes = onnx.StringStringEntryProto(key=str(number), value=str(length)).SerializeToString()
    return _encoded(13 << 3 | 2) + _encoded(len(entry)) + entry


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _check(model: onnx.ModelProto, path: Path) -> None:
    if not model.HasField("graph") or not model.ir_version:
        raise CodecError(f"{str(path)!r} is no ONNX model: it has no graph or no version.")
    if not 0 < model.ir_version <= onnx.IR_VERSION:
        raise CodecError(
            f"{str(path)!r} has version {model.ir_version} of ONNX's format, but onnx {onnx.__version__} "
            f"reads 1 to {onnx.IR_VERSION}. Update onnx if there is a newer one, or export the model again."
        )
    graph = model.graph
    named = (*graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info)
    texts = [model.producer_name, model.producer_version, graph.name, *(one.name for one in named)]
    texts += [text for node in graph.node for text in (node.op_type, node.domain, *node.input, *node.output)]
    texts += [attribute.name for node in graph.node for attribute in node.attribute]
    if not all(isinstance(text, str) for text in texts):  # protobuf returns bytes that are no text
        raise CodecError(f"{str(path)!r} is damaged: a name in it is no text.")
    for name, tensor in _tensors(graph.node, graph):
        _check_tensor(name, tensor, path)
    for function in model.functions:
        for name, tensor in _tensors(function.node):
            _check_tensor(name, tensor, path)


def _tensors(
    nodes: Iterable[onnx.NodeProto], graph: onnx.GraphProto | None = None
) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the initializers and constants of nodes and their graph, also inside, with a name each."""
    if graph is not None:
        yield from ((one.name, one) for one in graph.initializer)
        yield from ((one.values.name, one.values) for one in graph.sparse_initializer)
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield (node.output[0] if node.output else node.name), attribute.t
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _tensors(inner.node, inner)


#: The fields of a TensorProto that hold numbers, with the bytes of one; 0 where it takes as many as it needs.
_NUMBERS = {
    "float_data": (4, 4),
    "int32_data": (5, 0),
    "int64_data": (7, 0),
    "raw_data": (9, 1),
    "double_data": (10, 8),
    "uint64_data": (11, 0),
}


def _check_tensor(name: str, tensor: onnx.TensorProto, path: Path) -> None:
    """Raise CodecError if a tensor has no shape or dtype, or other data than these say."""
    dims = tuple(tensor.dims)
    damaged = f"{str(path)!r} is damaged: the tensor {name!r}"
    if min(dims, default=0) < 0:
        raise CodecError(f"{damaged} has the shape {dims}.")
    dtype = dtype_of(tensor.data_type)
    if not dtype:
        raise CodecError(f"{damaged} has the unknown data type {tensor.data_type}.")
    if dtype == "string":
        return
    count, size = prod(dims), nbytes(dims, dtype)
    if dtype.startswith("float6_"):  # numpy has a byte for each, a file six bits
        size = -(-count * 6 // 8)
    if count and not size:  # a dtype whose numbers have a size that is not known here
        return
    stated = f"of the shape {dims} and the dtype {dtype} takes {size:,} bytes"
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        length = external(tensor, path)[2]
        is_stated = any(entry.key == "length" for entry in tensor.external_data)
        if length < size or (is_stated and length > size):
            raise CodecError(f"{damaged} {stated}, but {length:,} are in the other file.")
        return
    left = {entry.key: int(entry.value) for entry in tensor.external_data if entry.key.isdecimal()}
    most = 0
    for field, (number, width) in _NUMBERS.items():
        bytes_ = left.get(str(number), 0)
        kept = len(getattr(tensor, field))
        if number == _RAW:
            if (bytes_ or kept) and bytes_ + kept != size:
                raise CodecError(f"{damaged} {stated}, but has {bytes_ + kept:,}.")
            most += 2 * size if bytes_ or kept else 0  # of numbers, of which one may take half a byte
        else:
            most += kept + bytes_ // (width or 1)
    packed = 4 if "int4" in dtype or "float4" in dtype or "int2" in dtype else 1
    if most * packed < count:
        raise CodecError(f"{damaged} of the shape {dims} and the dtype {dtype} has {most:,} numbers.")


def external(tensor: onnx.TensorProto, path: Path) -> tuple[Path, int, int]:
    """Return where the data of a tensor are that are in another file.

    Args:
        tensor: The tensor.
        path: The file of the model.

    Returns:
        The file, the position in it, and the number of bytes.

    Raises:
        CodecError: If there is no such file, it is too short, or it is outside the model's folder.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    folder = path.resolve().parent
    file = Path(os.path.realpath(folder / location))
    if not location or not file.is_relative_to(folder):
        raise CodecError(
            f"{str(path)!r} keeps the data of {tensor.name!r} in {location!r}, which is not in its folder, "
            "so it is not read."
        )
    if not file.is_file():
        raise CodecError(
            f"{str(path)!r} keeps the data of {tensor.name!r} in {location!r}, but there is no such file "
            "beside it. Copy it there."
        )
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or file.stat().st_size - offset)
    except ValueError:
        raise CodecError(
            f"{str(path)!r} is damaged: the place of the data of {tensor.name!r} is no number."
        ) from None
    if offset < 0 or length < 0 or offset + length > file.stat().st_size:
        raise CodecError(
            f"{str(path)!r} keeps the data of {tensor.name!r} in {location!r}, bytes {offset:,} to "
            f"{offset + length:,}, but that file has {file.stat().st_size:,} bytes. Copy it again."
        )
    return file, offset, length


def array_of(tensor: onnx.TensorProto, path: Path, most: int = sys.maxsize) -> np.ndarray | None:
    """Return the values of a tensor; None if it has more than ``most``, or they are unknown.

    Args:
        tensor: The tensor.
        path: The file of the model, for data in another file.
        most: The largest number of values.
    """
    if min(tensor.dims, default=0) < 0 or prod(tensor.dims) > most:
        return None
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            file, offset, length = external(tensor, path)
            with file.open("rb") as opened:
                opened.seek(offset)
                copy = onnx.TensorProto()
                copy.CopyFrom(tensor)
                copy.data_location = onnx.TensorProto.DEFAULT
                copy.raw_data = opened.read(length)
            tensor = copy
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, RuntimeError):  # damaged, or of a kind that numpy does not know
        return None
