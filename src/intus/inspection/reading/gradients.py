"""Behaviors of units that depend on the model's output: gradients, and attributions by captum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.base import Backend, Operation
from ...backends.reading import Attributes, ReadsOperations, Target
from ...core.errors import CaptureError, InputError, did_you_mean
from ...core.graph import Graph
from .traced import Output, TracedRows

GRADIENTS = ("gradient", "activation*gradient")
ATTRIBUTIONS = ("smoothgrad", "guided_backprop", "gradcam", "guided_gradcam")
BEHAVIORS = ("activation", *GRADIENTS, *ATTRIBUTIONS)


@dataclass(frozen=True, slots=True, eq=False)
class Behavior:
    """The quantity that is read of units.

    Attributes:
        name: One of ``BEHAVIORS``.
        output: The number of each record that gradients are of: a class, an array of one class per record, a
            function of the model's output, or None if the output is one number per record.
        seed: The seed of noise.
    """

    name: str = "activation"
    output: Any = None
    seed: int = 0

    @classmethod
    def of(cls, name: Any, output: Any, records: int, seed: int = 0) -> Behavior:
        """Return the behavior that the caller named.

        Args:
            name: The name.
            output: What the caller passed as ``output``.
            records: The number of records.
            seed: The seed of noise. Default: 0.

        Raises:
            InputError: If there is no such behavior, or ``output`` is of another kind or length.
        """
        if name not in BEHAVIORS:
            raise InputError(f"behavior={name!r} is not known. {did_you_mean(str(name), BEHAVIORS)}")
        if name == "activation":
            if output is not None:
                raise InputError(
                    f"output={output!r} is the number that gradients are of, and behavior='activation' has "
                    "none. Leave it out, or ask for behavior='gradient'."
                )
            return cls()
        if output is None or callable(output):
            return cls(name, output, seed)
        classes = np.asarray(output.detach().cpu() if hasattr(output, "detach") else output)
        if classes.dtype.kind not in "iu" or classes.shape not in ((), (records,)):
            raise InputError(
                f"output must be a class, one class for each of the {records} records, or a function of the "
                f"model's output, got {output!r}."
            )
        return cls(name, classes if classes.ndim else int(classes), seed)

    def target(self, numbers: np.ndarray, only: int | None = None) -> Target:
        """Return the target of the records with these numbers, or of only one of them."""
        choice = self.output[numbers] if isinstance(self.output, np.ndarray) else self.output
        return Target(len(numbers), choice, only)

    @property
    def channels_second(self) -> bool:
        """True if it averages over positions, so that units must be the second axis."""
        return self.name in ("gradcam", "guided_gradcam")

    @property
    def at_image(self) -> bool:
        """True if its maps have the size of the image, whatever the layer's size is."""
        return self.name == "guided_gradcam"


class GradientReader:
    """Reads gradients or attributions of layers in one block after another.

    Args:
        backend: The backend.
        model: The model, inside ``backend.evaluation``.
        graph: The graph of the first record's pass; None if it is not known.
        rows: The row of the graph of each address.
        operations: The addresses of operations that no module returns.
        behavior: What to read.

    Raises:
        CaptureError: If the backend has no gradients, or an address cannot be read so.
    """

    def __init__(
        self,
        backend: Backend,
        model: Any,
        graph: Graph | None,
        rows: Mapping[str, int],
        operations: Mapping[str, int],
        behavior: Behavior,
    ) -> None:
        self._backend, self._model, self._behavior = backend, model, behavior
        if graph is None or not isinstance(backend, ReadsOperations):
            raise CaptureError(
                f"behavior={behavior.name!r} needs the graph of the model, and {backend.name!r} recorded "
                "none. Use behavior='activation'."
            )
        self._traced = TracedRows(backend, model, graph, rows)
        self._layers: list[Operation] = []
        self._checked = False
        if behavior.name in ATTRIBUTIONS:
            self._layers = self._modules(graph, rows, operations)

    def _modules(
        self, graph: Graph, rows: Mapping[str, int], operations: Mapping[str, int]
    ) -> list[Operation]:
        """Return the modules of the addresses, which is what captum reads."""
        name = self._behavior.name
        if not isinstance(self._backend, Attributes):
            raise CaptureError(f"behavior={name!r} is not implemented for {self._backend.name!r}.")
        if operations:
            raise InputError(
                f"behavior={name!r} is of modules, but {next(iter(operations))!r} is an operation. Use "
                "behavior='gradient', or name a module."
            )
        known = {operation.address: operation for operation in self._backend.operations(self._model)}
        addresses = [module.address for module in graph.modules]
        for address in rows:
            calls = int((graph.calls.module == addresses.index(address)).sum()) if address in known else 2
            if calls > 1:
                raise InputError(
                    f"behavior={name!r} is of modules that run once, but {address!r} is a call of one that "
                    "runs several times. Use behavior='gradient'."
                )
        if name.startswith("guided"):
            _check_relus(graph, name)
        return [known[address] for address in rows]

    def read(self, inputs: Any, numbers: np.ndarray) -> dict[str, Output]:
        """Run the model on a block and return the behavior of every address.

        Args:
            inputs: The inputs of the block.
            numbers: The numbers of the records.

        Raises:
            CaptureError: If the pass ran other operations than that of the first record, an address has no
                gradient, or records of a block influence each other.
            InputError: If the target does not fit the model's output.
        """
        self._check_records(inputs, numbers)
        target = self._behavior.target(numbers)
        if self._layers:
            found = self._backend.attribute(  # type: ignore[attr-defined]
                self._model, inputs, self._layers, self._behavior.name, target, self._behavior.seed
            )
            return {layer.address: Output(found[layer.address], None, layer) for layer in self._layers}
        values, gradients, _ = self._traced.gradients(inputs, target)
        if self._behavior.name == "gradient":
            return gradients
        return {
            address: output._replace(array=output.array * values[address].array)
            for address, output in gradients.items()
        }

    def sensitivity(
        self, inputs: Any, numbers: np.ndarray
    ) -> tuple[dict[str, Output], dict[str, Output], np.ndarray]:
        """Run the model on a block; return values, gradients, and whether records are predicted as the class.

        Raises:
            CaptureError: As ``read``.
            InputError: As ``read``.
        """
        self._check_records(inputs, numbers)
        return self._traced.gradients(inputs, self._behavior.target(numbers))

    def _check_records(self, inputs: Any, numbers: np.ndarray) -> None:
        """Raise CaptureError if the first record's number has a gradient at other records of its block."""
        if self._checked or len(numbers) < 2:
            return
        self._checked = True
        for address, output in self._traced.gradients(inputs, self._behavior.target(numbers, only=0))[
            1
        ].items():
            places = np.argwhere(output.array != 0)
            if len(places) and not (places == 0).all(axis=0).any():
                raise CaptureError(
                    f"The output of one record depends on {address!r} of other records of its block, so "
                    "gradients cannot be told apart by record. Pass batch=1."
                )


def _check_relus(graph: Graph, name: str) -> None:
    """Raise InputError if a ReLU is no module: captum changes the gradients of ``nn.ReLU`` modules alone."""
    relus = 0
    for row in range(len(graph.ops)):
        if graph.type_of(row) in ("relu", "relu_", "relu6"):
            call = int(graph.ops.call[row])
            if call < 0 or graph.modules[int(graph.calls.module[call])].type != "ReLU":
                raise InputError(
                    f"behavior={name!r} changes the gradients of ReLU modules, but {graph.label(row)!r} is a "
                    "function, whose gradient would stay as it is. Write the model with torch.nn.ReLU."
                )
            relus += 1
    if not relus:
        raise InputError(
            f"behavior={name!r} changes the gradients of ReLU modules, and the model has none, so that "
            "it would be the gradient itself. Use behavior='gradient'."
        )
