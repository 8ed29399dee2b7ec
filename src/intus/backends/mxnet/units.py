"""The axis of units of a layer's output, as far as its type and layout determine it."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn, rnn

from .module import Node

_LAST = (nn.Dense, nn.Embedding, rnn.RNN, rnn.LSTM, rnn.GRU)
_OPERATIONS_LAST = frozenset({"FullyConnected", "Embedding", "RNN"})
_OPERATIONS_SPATIAL = frozenset({"Convolution", "Deconvolution", "Pooling"})
_NORMALIZING = frozenset({"BatchNorm", "InstanceNorm"})


def unit_axis(part: Any, shape: tuple[int, ...]) -> int | None:
    """Return the axis of units of an output, or None if it is unknown.

    Args:
        part: A block, or an operation of a symbol.
        shape: The shape of its output.
    """
    if 1 <= len(shape) <= 2:
        return len(shape) - 1
    if isinstance(part, Node):
        if part.type in _OPERATIONS_LAST:
            return len(shape) - 1
        if part.type in _OPERATIONS_SPATIAL:
            own = part.settings.get("layout", "None")
            return 1 if own == "None" else own.find("C")
        return int(part.settings.get("axis", 1)) if part.type in _NORMALIZING else None
    if isinstance(part, _LAST):
        return len(shape) - 1
    layout = getattr(part, "_kwargs", {}).get("layout")
    if isinstance(layout, str) and "C" in layout and len(layout) == len(shape):
        return layout.find("C")
    axis = getattr(part, "_axis", None)
    if isinstance(part, nn.BatchNorm | nn.LayerNorm | nn.InstanceNorm) and isinstance(axis, int):
        return axis % len(shape)
    return None
