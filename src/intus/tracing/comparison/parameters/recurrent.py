"""Find the parameters of LSTM, GRU and RNN in an ONNX file, which packs those of a layer into three."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ....core.graph import Graph
from ..values.elements import plain

if TYPE_CHECKING:
    from ...results.trace import Trace

_NAME = re.compile(r"(.*)(weight|bias)_(ih|hh)_l(\d+)(_reverse)?")
#: The places of torch's gates in ONNX: LSTM has i, o, f, c for i, f, c, o; GRU has z, r, h for r, z, n.
_GATES = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "rnn": (0,)}


def unpacked(a: Trace, b: Trace) -> dict[str, tuple[str, np.ndarray]]:
    """Return the parameters of recurrent layers as an ONNX file holds them, in the layout of torch.

    Layers correspond in the order of execution; a file with another number of them has none that do.

    Args:
        a: The trace of the model.
        b: The trace of the file.

    Returns:
        The name in the file and the array by the address in the model.
    """
    if b.graph.facts.get("format") != "ONNX":
        return {}
    layers = list(_layers(a.graph))
    rows = list(_rows(b.graph))
    if [kind for kind, _ in layers] != [b.graph.type_of(row) for row in rows]:
        return {}
    found: dict[str, tuple[str, np.ndarray]] = {}
    for (kind, addresses), row in zip(layers, rows, strict=True):
        found |= _layer(a.graph, addresses, b, row, _GATES[kind])
    return found


def _layers(graph: Graph) -> Iterator[tuple[str, dict[tuple[str, str, int], str]]]:
    """Yield the layers of recurrent operations: their kind, and the addresses of their parameters."""
    seen: set[int] = set()
    for row, numbers in graph.row_params.items():
        kind = graph.type_of(row).partition("_")[0]
        event = int(graph.ops.event[row])
        if kind not in _GATES or event in seen:
            continue
        seen.add(event)
        layers: dict[int, dict[tuple[str, str, int], str]] = {}
        for number in numbers:
            address = graph.params[number].address
            if part := _NAME.fullmatch(address):
                layers.setdefault(int(part[4]), {})[part[2], part[3], int(bool(part[5]))] = address
        yield from ((kind, layers[number]) for number in sorted(layers))


def _rows(graph: Graph) -> Iterator[int]:
    seen: set[int] = set()
    for row in range(len(graph.ops)):
        event = int(graph.ops.event[row])
        if graph.type_of(row) in _GATES and event not in seen:
            seen.add(event)
            yield row


def _layer(
    graph: Graph, addresses: dict[tuple[str, str, int], str], b: Trace, row: int, gates: tuple[int, ...]
) -> Iterator[tuple[str, tuple[str, np.ndarray]]]:
    """Yield the parameters of a layer, as far as the operation of the file has them as they are."""
    shapes = {param.address: param.shape for param in graph.params}
    hidden = next((shapes[one][1] for key, one in addresses.items() if key[:2] == ("weight", "hh")), 0)
    directions = 1 + max((key[2] for key in addresses), default=0)
    params = [b.graph.params[number].address for number in b.graph.row_params.get(row, ())]
    arrays = {address: found.array for address in params if (found := plain(b._parameter(address)))}
    length = len(gates) * hidden
    matrices = [
        name for name, one in arrays.items() if one.ndim == 3 and one.shape[:2] == (directions, length)
    ]
    vectors = [name for name, one in arrays.items() if one.shape == (directions, 2 * length)]
    for (part, side, direction), address in addresses.items():
        second = side == "hh"
        if part == "weight" and len(matrices) > 1:
            name = matrices[second]
            packed = arrays[name][direction]
        elif part == "bias" and vectors:
            name = vectors[0]
            packed = arrays[name][direction].reshape(2, -1)[int(second)]
        else:
            continue
        blocks = packed.reshape(len(gates), hidden, *packed.shape[1:])
        yield address, (name, np.concatenate([blocks[gate] for gate in gates]))
