"""What units do: the outputs of chosen layers of a PyTorch model, extracted block by block.

The model is left as it was, also after an exception: hooks, train and eval flags, gradients and random
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backends.base import CapturedTensor, Operation, for_model
from ..core.address import Address
from ..core.errors import CaptureError, InputError
from ..core.probes_disabled import probes_disabled

Inputs = Callable[[list[Any]], Any]


class Records:
    """The data, a record at a time for hypotheses and a block at a time for the model.

    ``inputs`` makes the model's input from a list of records: a tensor, a tuple of positional arguments or
    a mapping passed as keywords. Without it records are stacked.
    """

    def __init__(self, data: Any, inputs: Inputs | None = None) -> None:
        if isinstance(data, str) or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise InputError(
                f"data must be an array, a tensor or a sequence of records, got a {type(data).__name__}."
            )
        if not len(data):
            raise InputError("There is nothing to inspect on: data is empty.")
        self.data, self.inputs = data, inputs

    def __len__(self) -> int:
        return len(self.data)

    def block(self, start: int, size: int) -> list[Any]:
        """Records as hypotheses see them: tensors as numpy copies, all else as it is."""
        return [_as_numpy(self.data[i]) for i in range(start, min(start + size, len(self)))]

    def model_input(self, start: int, size: int) -> Any:
        """The same records as the model sees them."""
        stop = min(start + size, len(self))
        if self.inputs is not None:
            return self.inputs([self.data[i] for i in range(start, stop)])
        part = self.data[start:stop] if hasattr(self.data, "shape") else None
        if part is not None:
            return part
        try:
            stacked = np.stack([np.asarray(_as_numpy(self.data[i])) for i in range(start, stop)])
        except ValueError as error:
            raise InputError(_how_to_stack(self.data[start])) from error
        if stacked.dtype.kind not in "fiub":
            raise InputError(_how_to_stack(self.data[start]))
        return stacked


def _how_to_stack(record: Any) -> str:
    return (
        f"Records of type {type(record).__name__} cannot be stacked into the model's input; pass "
        "inputs=, a function that turns a list of records into it."
    )


def _as_numpy(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy().copy()
    return value.copy() if isinstance(value, np.ndarray) else value


class _Catch:
    """A tap that keeps the outputs of the wanted addresses of one forward pass, and of the first pass the
    shapes of all outputs in the order in which modules finished."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = frozenset(wanted)
        self.operations = {str(Address(Address.parse(address).name)) for address in wanted}
        self.found: dict[str, np.ndarray] = {}
        self.outputs: list[tuple[str, tuple[int, ...]]] = []
        self.first = True
        self.error: Exception | None = None

    def on_forward_start(self, inputs: Any) -> None:
        self.found.clear()

    def wants(self, operation: Operation) -> Any | None:
        return operation.address if self.first or operation.address in self.operations else None

    def on_tensor(self, ticket: Any, seen: CapturedTensor) -> None:
        if self.first:
            self.outputs.append((seen.address, seen.shape))
        if seen.address in self.wanted:
            self.found[seen.address] = seen.copy(None, 0)

    def on_forward_end(self, output: Any) -> None:
        self.first = False

    def on_error(self, error: Exception) -> None:
        self.error = error


def behaviours(
    model: Any, addresses: Sequence[str], records: Records, batch: int
) -> Iterator[tuple[int, dict[str, np.ndarray], list[tuple[str, tuple[int, ...]]]]]:
    """Run the model over all records; yields the number of each block's first record, what every address
    gave, and the (address, shape) of all outputs of the first block as modules finished.
    Raises CaptureError when an address was never reached."""
    backend, catch = for_model(model), _Catch(addresses)
    if backend.name != "torch":
        raise InputError(f"Only PyTorch models can be inspected so far, this is one of {backend.name}.")
    with quiet(model):
        handle = backend.attach(model, backend.operations(model), ("output",), catch)
        try:
            for start in range(0, len(records), batch):
                args, kwargs = arguments(model, records.model_input(start, batch))
                model(*args, **kwargs)
                if catch.error is not None:
                    raise CaptureError(f"An output could not be read: {catch.error}") from catch.error
                if missing := [a for a in addresses if a not in catch.found]:
                    raise CaptureError(
                        f"{missing[0]!r} did not run for record {start}, or gave no tensor. "
                        "Choose a layer that every record passes through."
                    )
                yield start, dict(catch.found), catch.outputs
        finally:
            handle.remove()


@contextmanager
def quiet(model: Any) -> Iterator[None]:
    """Evaluation mode, no gradients, and everything put back: flags of every module, random states."""
    import torch

    flags = [(module, module.training) for module in model.modules()]
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices), torch.no_grad(), probes_disabled():
        try:
            model.eval()
            yield
        finally:
            for module, training in flags:
                module.training = training


def arguments(model: Any, given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A model's input as positional and keyword arguments, on its device."""
    if isinstance(given, Mapping):
        return (), {name: _placed(value, model) for name, value in given.items()}
    return tuple(_placed(value, model) for value in (given if isinstance(given, tuple) else (given,))), {}


def _placed(value: Any, model: Any) -> Any:
    """Arrays as tensors, floats in the model's dtype, everything on its device."""
    import torch

    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.ascontiguousarray(value))
    if not isinstance(value, torch.Tensor):
        return value
    parameter = next(iter(model.parameters()), None)
    if parameter is None:
        return value
    floats = value.is_floating_point() and parameter.is_floating_point()
    return value.to(parameter.device, parameter.dtype if floats else None)
