"""Compare the parameters of a layer and of the batch norm after it with what an export folded them into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.graph import Graph
from ....core.vocabularies.families import CONVOLUTIONS
from ....viewing.repr_text import listed
from ..values.differences import rounding
from ..values.elements import Elements, plain, value_of
from ..values.settings import arguments, common, number_of
from .orientation import turn
from .parameters import apart_in_words, nearest

if TYPE_CHECKING:
    from ...results.trace import Trace

#: Layers that a batch norm is folded into, with the axis of the weight that has the channels of the result.
_LAYERS = {
    **dict.fromkeys(("linear", *CONVOLUTIONS), 0),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1),
}
#: Operations on elements that a file may compute in the operation of the layer.
_FUSED = frozenset({"relu", "relu6", "leaky_relu", "sigmoid", "tanh", "hardsigmoid", "hardtanh", "clamp"})


class _Layer(NamedTuple):
    """A weight and a bias with a batch norm folded into them.

    Attributes:
        weight: The weight.
        bias: The bias.
        terms: The largest that the parts are which the bias is the sum of, whose rounding it has.
        addresses: The parameters that they were computed from, that of the weight first.
    """

    weight: Elements
    bias: Elements
    terms: np.ndarray
    addresses: list[str]


def folded_parameters(
    a: Trace, b: Trace, pairs: Iterable[tuple[int, int]]
) -> tuple[dict[int, list[str]], set[str]]:
    """Return the parameters of layers and of batch norms that are others in an export, which has folded them.

    What the file should have is known: ``weight * gamma / sqrt(var + eps)``, and the bias with it.

    Args:
        a: The trace of the model.
        b: The trace of the file.
        pairs: The pairs of rows whose values differ by no more than rounding explains.

    Returns:
        Sentences by the row of the layer, and the addresses of the parameters that were compared.
    """
    changed: dict[int, list[str]] = {}
    compared: set[str] = set()
    if a.graph.facts.get("framework") != "torch" or b.graph.facts.get("format") != "ONNX":
        return changed, compared
    partner = {i: j for i, j in pairs if i >= 0 and j >= 0}
    for norm in range(len(a.graph.ops)):
        parents = a.graph.parents(norm) if a.graph.type_of(norm) == "batch_norm" else []
        end = _end(a.graph, norm, partner) if parents and parents[0] not in partner else None
        folded = None if end is None else _folded(a, parents[0], norm)
        if end is None or folded is None:
            continue
        found = _differences(a, folded, b, partner[end])
        if found is None or (found and end != norm):  # what follows the norm may have been folded as well
            continue
        compared.update(folded.addresses)
        if found:
            changed[parents[0]] = found
    return changed, compared


def _end(graph: Graph, norm: int, partner: Mapping[int, int]) -> int | None:
    """Return the first row with a partner from a batch norm on, through operations fused with it."""
    row = norm
    while row not in partner:
        following = graph.children(row)
        if len(following) != 1 or graph.type_of(following[0]) not in _FUSED:
            return None
        (row,) = following
    return row


def _folded(a: Trace, layer: int, norm: int) -> _Layer | None:
    """Return the parameters of a layer with the batch norm after it folded into them; None if not known."""
    graph, axis = a.graph, _LAYERS.get(a.graph.type_of(layer))
    given = common(graph, norm, arguments(graph.setting(norm)))
    eps, places = number_of(given.get("eps", "")), dict(graph.parents_by_argument(norm))
    if axis is None or eps is None or given.get("training") != "False" or len(graph.children(layer)) != 1:
        return None
    own, of_norm = ([graph.params[n].address for n in graph.row_params.get(row, ())] for row in (layer, norm))
    values = {address: value_of(a, address) for address in (*own, *of_norm)}
    mean, var = (plain(a.values.get(places.get(name, -1))) for name in ("1", "2"))
    weight, bias = (values.get(names[0]) if names else None for names in (own, own[1:]))
    is_whole = len(own) in (1, 2) and len(graph.parents(layer)) == 1 and len(of_norm) in (0, 2)
    if not is_whole or weight is None or mean is None or var is None or None in values.values():
        return None
    found = [one.array.astype(np.float64) for name in of_norm if (one := values[name]) is not None]
    gamma, beta = found or (np.ones(1), np.zeros(1))
    scale = gamma / np.sqrt(var.array.astype(np.float64) + eps)
    channels = np.broadcast_to(scale, mean.array.shape)
    shape = weight.array.shape
    if bias is not None and bias.array.shape != channels.shape:
        return None
    if axis:  # a transposed convolution has the channels of the result group by group
        groups = channels.size // shape[1]
        split = (groups, shape[0] // groups, *shape[1:])
        by_channel = channels.reshape(groups, 1, shape[1], *[1] * (len(shape) - 2))
        scaled = (weight.array.reshape(split) * by_channel).reshape(shape)
    else:
        scaled = weight.array * channels.reshape(-1, *[1] * (len(shape) - 1))
    before = -mean.array.astype(np.float64) if bias is None else bias.array - mean.array.astype(np.float64)
    largest = np.abs(mean.array) + (0.0 if bias is None else np.abs(bias.array))
    return _Layer(
        weight._replace(array=scaled),
        weight._replace(array=before * channels + beta),
        largest * np.abs(channels) + np.abs(beta),
        [*own, *of_norm],
    )


def _differences(a: Trace, folded: _Layer, b: Trace, row: int) -> list[str] | None:
    """Return how what an operation of the file has differs, as sentences; None if it is not known."""
    params = [b.graph.params[number] for number in b.graph.row_params.get(row, ())]
    places = [
        [one.address for one in params if len(one.shape) == own.array.ndim]
        for own in (folded.weight, folded.bias)
    ]
    if [len(names) for names in places] != [1, 1] or len(params) != 2:
        return None
    address = folded.addresses[0]
    way = turn(a, address, b, places[0][0])
    if folded.weight.is_square and way is None:
        return None
    found = []
    for (other,), own, terms in zip(
        places, (folded.weight, folded.bias), (folded.weight.array, folded.terms), strict=True
    ):
        stored = value_of(b, other)
        apart = nearest(own, stored, way) if stored is not None and stored.is_float else None
        if stored is None or apart is None:
            return None
        sizes = [float(np.linalg.norm(one)) for one in (terms, own.array)]
        allowed = rounding(own, stored) * (sizes[0] / sizes[1] if sizes[1] else 1.0)
        if apart.lopsided or apart.relative > allowed:
            found.append(
                f"{listed(folded.addresses)} of a and {other} of b, into which they are folded, "
                f"{apart_in_words(apart)}"
            )
    return found
