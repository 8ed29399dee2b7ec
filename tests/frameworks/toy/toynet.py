"""A framework for the tests: a network of numpy functions, and its backend for intus.

It is unlike torch on purpose: layers are plain functions with a name, a network knows its layers only once
the first call has built it, and it has no graph to record, no projection, and no gradients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intus.backends.base import CapturedTensor, Operation, Tap
from intus.core.building import GraphBuilder, Scope
from intus.core.traced import Traced


@dataclass
class Layer:
    """A layer.

    Attributes:
        name: Its address.
        kind: "dense", "conv" (channels second), "tanh" or "mystery".
        function: Computes its output.
        weights: Its arrays by name.
    """

    name: str
    kind: str
    function: Callable[[np.ndarray], np.ndarray]
    weights: dict[str, np.ndarray] = field(default_factory=dict)


class Network:
    """A sequence of layers, which ``build`` creates in the first call."""

    def __init__(self, build: Callable[[], list[Layer]], *, eager: bool = True) -> None:
        self._build = build
        self.layers: list[Layer] = build() if eager else []
        self.training = True
        self.taps: list[tuple[frozenset[str] | None, Tap]] = []

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.layers = self.layers or self._build()
        listening = [(addresses, tap) for addresses, tap in self.taps if tap.on_forward_start(x) is not False]
        out = None
        try:
            for layer in self.layers:
                x = layer.function(x)
                for addresses, tap in listening:
                    if addresses is None or layer.name in addresses:
                        _capture(tap, layer, x)
            out = x
        finally:
            for _, tap in listening:
                tap.on_forward_end(out)
        return x


def _capture(tap: Tap, layer: Layer, x: np.ndarray) -> None:
    ticket = tap.wants(Operation(layer.name, layer.kind, layer))
    if ticket is None:
        return

    def copy(rows: int | None, axis: int) -> np.ndarray:
        return np.array(x if rows is None else np.take(x, np.arange(rows), axis))

    try:
        tap.on_tensor(ticket, CapturedTensor(layer.name, "output", 0, x.shape, x.nbytes, copy))
    except Exception as error:
        tap.on_error(error)


class _Handle:
    def __init__(self, network: Network, entry: Any) -> None:
        self._network, self._entry = network, entry

    def remove(self) -> None:
        if self._entry in self._network.taps:
            self._network.taps.remove(self._entry)


class ToyBackend:
    name = "toynet"
    blind_spot = "Toy networks hide nothing."

    def owns(self, model: Any) -> bool:
        return isinstance(model, Network)

    def operations(self, model: Network) -> list[Operation]:
        return [Operation(layer.name, layer.kind, layer) for layer in model.layers]

    def parameters(self, operation: Operation) -> list[str]:
        return list(operation.module.weights)

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        if len(shape) <= 2 or operation.type == "dense":
            return len(shape) - 1
        return 1 if operation.type == "conv" else None

    def mode(self, model: Network) -> str:
        return "train" if model.training else "eval"

    def inner(self, model: Network, *, compiled: bool) -> Network:
        return model

    def rows(self, inputs: Any, axis: int) -> int | None:
        return inputs.shape[axis] if inputs.ndim > axis else None

    def order(self, inputs: Any, axis: int) -> bytes | str | None:
        return hashlib.sha256(np.ascontiguousarray(inputs).tobytes()).digest()

    def shuffled(self) -> str | None:
        return None

    def version(self, model: Network) -> int:
        return hash(tuple(w.tobytes() for layer in model.layers for w in layer.weights.values()))

    def state(self, model: Network) -> None:
        return None

    def inputs(self, model: Network, data: Any) -> np.ndarray:
        return np.asarray(data, np.float32)

    @contextmanager
    def evaluation(self, model: Network) -> Iterator[Callable[[Any], Any]]:
        training, model.training = model.training, False
        try:
            yield model
        finally:
            model.training = training

    def graph_recorder(self, model: Network) -> None:
        return None

    def attach(
        self, model: Network, operations: Iterable[Operation], kinds: Collection[str], tap: Tap
    ) -> _Handle:
        chosen = frozenset(operation.address for operation in operations)
        entry = (chosen if model.layers else None, tap)
        model.taps.append(entry)
        return _Handle(model, entry)


class TracingBackend(ToyBackend):
    """A backend that records graphs."""

    def trace(self, model: Network, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        (x,) = (*args, *kwargs.values())
        builder = GraphBuilder("Network")
        row = builder.input("x", x.shape, str(x.dtype))
        values = {row: x}
        for layer in model.layers or model._build():
            addresses = [f"{layer.name}.{name}" for name in layer.weights]
            for address, weight in zip(addresses, layer.weights.values(), strict=True):
                builder.param(address, weight.shape, str(weight.dtype))
            parts = layer.name.split(".")
            scope = [Scope(".".join(parts[: depth + 1])) for depth in range(len(parts))]
            x = layer.function(x)
            row = builder.op(
                layer.kind, x.shape, str(x.dtype), scope=scope, parents=[(row, "0")], params=addresses
            )
            values[row] = x
        values[builder.output("", row)] = x
        graph, rows = builder.graph()
        return Traced(graph, {int(rows[row]): value for row, value in values.items()})


class Unordered(ToyBackend):
    """A backend that cannot hash data."""

    def order(self, inputs: Any, axis: int) -> None:
        return None
