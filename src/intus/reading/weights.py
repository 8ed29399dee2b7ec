"""Read files that hold weights alone, from their headers: safetensors, in one file or several, and GGUF.

Nothing in such a file says how the weights are used, so its graph has no operations: it is the tree of the
names, with every tensor as a row of the module that its name begins with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from ..core.building import GraphBuilder, Scope
from ..core.errors import CodecError, InputError
from ..core.traced import Traced
from .bounds import check_depth
from .gguf import read_header

_DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F4": "float4_e2m1fn",
}
_KINDS = {"F": "float", "I": "int", "U": "uint", "C": "complex"}
_LONGEST = 500  # of a text of metadata
_FEW = 5  # tensors that a note names
_INDEX = ".index.json"


class Tensor(NamedTuple):
    """A tensor of a file.

    Attributes:
        name: Its name.
        shape: Its shape.
        dtype: Its dtype.
        size: Its size in bytes; None if it follows from the others.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int | None = None


def read(path: Path, inputs: tuple[Any, ...] | None, named: Mapping[str, Any]) -> Traced:
    """Return the tree of the tensors in a file of weights.

    Args:
        path: The file: safetensors, the index of several, or GGUF.
        inputs: Inputs, which are refused.
        named: Inputs by name, which are refused.

    Raises:
        CodecError: If the file is damaged or incomplete.
        InputError: If inputs are given.
    """
    if inputs or named:
        raise InputError(
            f"{path.name} holds weights only, so it cannot run on inputs. Make the model in Python, load the "
            "weights into it, and pass the model to intus."
        )
    with path.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    facts: dict[str, Any] = {
        "notes": [
            "This file holds weights only. Which operations use them is not in it, nor which are buffers: "
            "all count as parameters."
        ]
    }
    if is_gguf:
        header = read_header(path)
        tensors = [Tensor(*one) for one in header.tensors]
        unknown = [f"{one.name!r} ({one.dtype})" for one in tensors if one.size is None]
        if unknown:
            facts["notes"] += [f"The size of {', '.join(unknown[:_FEW])} is not known and not counted."]
        facts |= {"format": f"GGUF {header.version}", "metadata": _shown(header.metadata)}
    elif path.name.endswith(_INDEX):
        tensors, metadata = _sharded(path)
        facts |= {"format": "safetensors", "metadata": _shown(metadata)}
    else:
        tensors, metadata = _safetensors(path)
        facts |= {"format": "safetensors", "metadata": _shown(metadata)}
    for one in tensors:
        check_depth(str(path), one.name, one.name.count("."))
    return Traced(_tree(f"{path.name} (weights only, no graph)", tensors, facts), {})


def _tree(model: str, tensors: Iterable[Tensor], facts: Mapping[str, Any]) -> Any:
    builder = GraphBuilder(model)
    for name, shape, dtype, size in tensors:
        parts = name.split(".")[:-1]
        scope = [Scope(".".join(parts[: n + 1])) for n in range(len(parts))]
        trainable = "float" in dtype or dtype.startswith(("q", "iq", "tq", "mx", "nv"))
        builder.param(name, shape, dtype, trainable=trainable, size=size, owner=".".join(parts))
        builder.parameter(name, scope)
    return builder.graph(facts)[0]


def _safetensors(path: Path) -> tuple[list[Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file in the natural order of their names, and its metadata."""
    try:
        with safe_open(path, "numpy") as file:
            names = list(file.keys())
            slices = map(file.get_slice, names)
            tensors = [
                Tensor(name, tuple(one.get_shape()), _dtype(one.get_dtype()))
                for name, one in zip(names, slices, strict=True)
            ]
            return sorted(tensors, key=_natural), file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CodecError(
            f"{str(path)!r} is no safetensors file, or is damaged or truncated: {error}."
        ) from None


def _sharded(path: Path) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the tensors of several safetensors files, given the index that names the file of each."""
    try:
        index = json.loads(path.read_bytes())
        files: dict[str, str] = dict(index["weight_map"])
        metadata = dict(index.get("metadata") or {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CodecError(f"{str(path)!r} is no index of safetensors files: it has no weight_map.") from None
    folder = path.resolve().parent
    found: dict[str, Tensor] = {}
    for name in dict.fromkeys(files.values()):
        if not isinstance(name, str) or Path(name).name != name:
            raise CodecError(f"{str(path)!r} names the file {name!r}, which is not in its folder.")
        if not (folder / name).is_file():
            raise CodecError(
                f"{str(path)!r} names the file {name!r}, but there is none beside it. Copy it there."
            )
        found |= {tensor.name: tensor for tensor in _safetensors(folder / name)[0]}
    missing = [name for name in files if name not in found]
    if missing:
        raise CodecError(
            f"{str(path)!r} names {missing[0]!r} as a tensor of {files[missing[0]]!r}, which has none."
        )
    return sorted(found.values(), key=_natural), metadata


def _dtype(name: str) -> str:
    if name in _DTYPES:
        return _DTYPES[name]
    plain = re.fullmatch(r"([FIUC])(\d+)", name)
    return f"{_KINDS[plain[1]]}{plain[2]}" if plain else name.lower()


def _natural(tensor: Tensor) -> list[tuple[int, int, str]]:
    """Return a key by which ``layers.2`` precedes ``layers.10``."""
    parts = tensor.name.split(".")
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _shown(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with long texts cut."""
    return {
        key: f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
        for key, value in metadata.items()
    }
