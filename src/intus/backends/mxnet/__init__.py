"""The MXNet backend: Gluon blocks, hybridized or not, and ``Module``.

Rules, each covered by a test:

- Nothing is registered on what the user made that cannot be removed: hooks of operations and monitors, which
  MXNet keeps forever, are registered on twins of the user's graphs that share all of their arrays.
- Gradients are those that pass through an identity, which has the same bits. Where it would not have them,
  they are refused.
- A gradient that may belong to another call is refused, and not guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from mxnet import autograd
from mxnet.gluon import Block
from mxnet.gluon.parameter import DeferredInitializationError, Parameter
from mxnet.module import BaseModule, BucketingModule, Module
from mxnet.ndarray import NDArray

from ...core.address import Address
from ...core.errors import InputError
from ...core.nested import leaves
from ...core.restoring import python_kept
from ...core.traced import Traced
from ..base import GraphRecorder, Handle, Operation, Tap, check_kinds
from ..host_arrays import order_of_rows
from . import blocks, module
from .arrays import as_arrays, batch_axis, first_rows, to_numpy
from .randomness import drawing, draws_refused, refuse
from .state import model_state
from .units import unit_axis

#: The kinds that cannot be captured of a Gluon block and of a Module, and the reasons.
_REFUSED: Mapping[type, Mapping[str, str]] = {
    Block: dict.fromkeys(
        ("parameter_grad", "update"),
        "MXNet does not report when Gluon has computed the gradient of a parameter, or updated it. Read "
        "Parameter.grad() in the training loop, or record grad_output",
    ),
    Module: dict.fromkeys(
        ("input", "grad_input"),
        "the inputs of an operation are outputs of others. Record output and grad_output",
    ),
}


class MXNetBackend:
    """Observes Gluon blocks and bound Modules; see ``Backend`` for the contract of each method."""

    name = "mxnet"
    blind_spot = (
        "Of MXNet, blocks are observed that Gluon calls, also inside hybridized blocks, and operations of a "
        "Module that was bound for training. Operations that MXNet fuses for inference are not observed."
    )

    def owns(self, model: Any) -> bool:
        """Return whether the model is a Gluon block or a Module."""
        return isinstance(model, Block | BaseModule)

    def operations(self, model: Any) -> list[Operation]:
        """Return the blocks, each once, under its first name; or the operations of a Module's symbol.

        Raises:
            InputError: If the model is a module other than ``mxnet.module.Module``.
        """
        if isinstance(model, Block):
            return list(_blocks(model, "", set()))
        return module.operations(_checked(model))

    def parameters(self, operation: Operation) -> Sequence[str]:
        """Return the names of the operation's own parameters."""
        part = operation.module
        if isinstance(part, Block):
            return list(part._reg_params)
        return list(part.parameters) if isinstance(part, module.Node) else []

    def unit_axis(self, operation: Operation, shape: tuple[int, ...]) -> int | None:
        """Return the unit axis that the type of a layer and its layout determine."""
        return unit_axis(operation.module, shape)

    def mode(self, model: Any) -> str:
        """Return ``"train"`` or ``"eval"``: the mode of autograd, or that of a Module's present pass."""
        if isinstance(model, Block):
            return "train" if autograd.is_training() else "eval"
        watch = module.watch_of(model) if model.binded else None
        return "train" if (watch.is_train if watch else model.for_training) else "eval"

    def inner(self, model: Any, *, compiled: bool) -> Any:
        """Return the model, of which there are no wrappers."""
        return model

    def rows(self, inputs: Any, axis: int) -> int | None:
        """Return the length along ``axis`` of the first array that has that axis."""
        return first_rows(inputs, axis)

    def is_time_first(self, model: Any) -> bool:
        """Return whether a recurrent layer of the model has its batch along another axis than the first."""
        blocks = _blocks(model, "", set()) if isinstance(model, Block) else ()
        return any(batch_axis(operation.module) == 1 for operation in blocks)

    def order(self, inputs: Any, axis: int) -> bytes | str:
        """Return a hash of the values of the arrays, or the reason why there is none."""
        return order_of_rows(map(to_numpy, leaves(inputs, NDArray)), axis)

    def shuffled(self) -> str | None:
        """Return None: batches are compared instead."""
        return None

    def version(self, model: Any) -> int:
        """Return a hash of the parameters' values."""
        digest = hashlib.blake2b(digest_size=8)
        for values in _values(model):
            digest.update(values.tobytes())
        return int.from_bytes(digest.digest(), "big")

    def state(self, model: Any) -> Any:
        """Return a hash of parameters, attributes and code; None if it cannot be known."""
        return model_state(model)

    def inputs(self, model: Any, data: Any) -> Any:
        """Return arrays as arrays of MXNet on the model's device, floats in the dtype of its parameters."""
        array = _first_parameter(model)
        if not isinstance(model, Block):
            data = module.as_dict(model, data)
        ctx = array.context if array is not None else None
        return as_arrays(data, ctx, array.dtype if array is not None else None)

    def evaluation(self, model: Any) -> AbstractContextManager[Callable[[Any], Any]]:
        """Return a context that yields a function that calls the model in evaluation mode.

        Parameters, and what the model keeps in Python, are restored. MXNet does not give the state of its
        random numbers, so that a model is refused that draws some in that mode.
        """
        return _evaluation(model)

    def trace(self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        """Run a model once, and return its graph with the value of every operation."""
        from .graph import trace

        return trace(model if isinstance(model, Block) else _checked(model), args, kwargs)

    def graph_recorder(self, model: Any) -> GraphRecorder:
        """Return a recorder for the graph of the next call."""
        from .graph import Recorder

        return Recorder()

    def attach(self, model: Any, operations: Iterable[Operation], kinds: Collection[str], tap: Tap) -> Handle:
        """Observe blocks, or operations of a Module.

        Raises:
            InputError: If a kind cannot be captured of the model, or a Module is not bound.
        """
        kinds = check_kinds(kinds)
        base = Block if isinstance(model, Block) else Module
        for kind in kinds:
            if kind in _REFUSED[base]:
                what = "a Gluon block" if base is Block else "a Module"
                raise InputError(f"kinds={kind!r} is not possible for {what}: {_REFUSED[base][kind]}.")
        if base is Block:
            return blocks.Attachment(model, list(operations), kinds, tap)
        return module.Attachment(_checked(model), list(operations), kinds, tap)


_BUCKETS = (
    "A BucketingModule cannot be observed: each bucket has a Module of its own, made when it is first used. "
    "Pass the Module of one bucket after bind (model._buckets[key]); of a training, only the steps of that "
    "bucket are recorded then."
)


def _checked(model: Any) -> Module:
    if isinstance(model, BucketingModule):
        raise InputError(_BUCKETS)
    if not isinstance(model, Module):
        raise InputError(
            f"A {type(model).__name__} cannot be observed. Pass the mxnet.module.Module that it uses."
        )
    return model


def _blocks(block: Block, name: str, seen: set[int]) -> Iterator[Operation]:
    if id(block) in seen:
        return
    seen.add(id(block))
    yield Operation(name, type(block).__name__, block)
    for key, child in block._children.items():
        own = str(Address(str(key)))
        yield from _blocks(child, f"{name}.{own}" if name else own, seen)


def _values(model: Any) -> Iterator[Any]:
    """Yield the values of the parameters that are initialized, as numpy arrays."""
    if isinstance(model, Block):
        for parameter in model.collect_params().values():
            if parameter._data is not None:
                yield to_numpy(parameter.list_data()[0])
    elif model.binded:
        yield from module.values(model).values()


def _first_parameter(model: Any) -> NDArray | None:
    if not isinstance(model, Block):
        (executor,) = _checked(model)._exec_group.execs
        return next((executor.arg_dict[name] for name in model._param_names), None)
    return next(_arrays(model.collect_params().values()), None)


@contextmanager
def _evaluation(model: Any) -> Iterator[Callable[[Any], Any]]:
    def run(inputs: Any) -> Any:
        if not isinstance(model, Block):
            refuse(drawing(_checked(model).symbol))
            return module.run_evaluation(model, module.as_dict(model, inputs))
        if isinstance(inputs, Mapping):
            raise InputError("Gluon blocks have no keyword arguments. Pass the inputs as a tuple.")
        array = _first_parameter(model)
        inputs = as_arrays(inputs, *((array.context, array.dtype) if array is not None else (None, None)))
        return model(*inputs if isinstance(inputs, tuple) else (inputs,))

    is_block = isinstance(model, Block)
    own = list(model.collect_params().values()) if is_block else []
    with (
        autograd.pause(train_mode=False),
        python_kept(model, (Block,), (NDArray,), frozenset({blocks.FORWARD})) as kept,
        draws_refused(own),
    ):
        before = [(array, array.asnumpy()) for array in (*_arrays(own), *kept) if array.size]
        try:
            yield run
        finally:
            for array, value in before:  # of a momentum encoder, whose forward writes to its parameters
                if array.asnumpy().tobytes() != value.tobytes():
                    array[slice(None) if array.shape else ()] = value


def _arrays(parameters: Iterable[Parameter]) -> Iterator[NDArray]:
    """Yield the arrays of the parameters that are initialized, on every device."""
    for parameter in parameters:
        try:
            yield from parameter.list_data()
        except (DeferredInitializationError, RuntimeError):
            continue
