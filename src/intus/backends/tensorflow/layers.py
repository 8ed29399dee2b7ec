"""The layers of a Keras model, and how a function is put in the place of their ``call``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from ...core.address import Address
from ..base import Operation, Tap
from .calls import Attachment, CallObserver, ObservedCall

_FUNCTIONS = ("train_function", "test_function", "predict_function")


def layers_of(model: Any) -> list[Operation]:
    """Return the layers of a model by address, the model itself first.

    A layer is named by the public attribute that has it (``encoder.blocks.0``), else by its own name. One
    that is used several times has its first name. Cells of recurrent layers are left out, because a loop of
    TensorFlow runs them, of which only one step would be seen.

    Args:
        model: The model.
    """
    found = {"": Operation("", type(model).__name__, model)}
    seen = {id(model)}

    def walk(layer: Any, path: str) -> None:
        names = _attributes(layer)
        for part in getattr(layer, "_layers", ()):
            if id(part) in seen:
                continue
            seen.add(id(part))
            if isinstance(part, keras.layers.InputLayer) or _is_cell(part, layer):
                continue
            name = names.get(id(part), part.name)
            at = f"{path}.{name}" if path else name
            while str(Address(at)) in found:
                at += "_"
            found[str(Address(at))] = Operation(str(Address(at)), type(part).__name__, part)
            walk(part, at)

    walk(model, "")
    return list(found.values())


def _is_cell(part: Any, layer: Any) -> bool:
    return isinstance(layer, keras.layers.RNN) and part is layer.cell


def _attributes(layer: Any) -> dict[int, str]:
    """Return the public attributes of a layer that have layers, by the id of the layer."""
    found: dict[int, str] = {}
    for name, value in vars(layer).items():
        if not name.startswith("_"):
            for inner, part in _parts(value):
                found.setdefault(id(part), f"{name}.{inner}" if inner else name)
    return found


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, keras.Layer):
        yield "", value
    elif isinstance(value, Mapping | list | tuple):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(part, keras.Layer):
                yield str(key), part


def variables_of(layer: Any) -> dict[str, Any]:
    """Return a layer's own variables by name that are trained, or were before they were frozen.

    Those of a recurrent layer's cell are the layer's own (``cell.kernel``). One that Keras has only planned,
    where it computes shapes alone, has no value and is left out.
    """
    cells = layer.cell._flatten_layers() if isinstance(layer, keras.layers.RNN) else ()
    named = [("", variable) for variable in layer._trainable_variables]
    named += [("cell.", variable) for cell in cells for variable in cell._trainable_variables]
    found: dict[str, Any] = {}
    for prefix, variable in named:
        if variable._value is None:
            continue
        name = f"{prefix}{variable.name}"
        while name in found:
            name += "_"
        found[name] = variable
    return found


def replaced(layer: Any, function: Callable[..., Any]) -> Callable[[], None]:
    """Put a function in the place of a layer's ``call``, and return a function that undoes it.

    Args:
        layer: The layer.
        function: Called with what calls the layer, and with the arguments.
    """
    return _put(layer, functools.partial(function, layer.call))


def _put(layer: Any, call: Callable[..., Any]) -> Callable[[], None]:
    before = vars(layer).get("call")
    object.__setattr__(layer, "call", call)  # Keras would track it

    def undo() -> None:
        if before is None:
            del vars(layer)["call"]
        else:
            object.__setattr__(layer, "call", before)

    return undo


def attach_layers(
    model: Any, operations: Iterable[Operation], kinds: tuple[str, ...], tap: Tap
) -> Attachment:
    """Attach to the layers of a model; see ``Backend.attach``."""
    calls = CallObserver(model, _gate(), variables_of, kinds, tap)
    return Attachment(model, operations, calls, _observe, functools.partial(renew_functions, model))


class _LayerCall(ObservedCall):
    """The observed call of a layer.

    To build a layer that is in another, Keras calls it in the middle of a call of the model, in a graph of
    its own that never runs.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer."""
        return self.own(*args, **kwargs) if in_symbolic_scope() else super().__call__(*args, **kwargs)


def _observe(layer: Any, is_model: bool) -> ObservedCall:
    before = vars(layer).get("call")
    if isinstance(before, ObservedCall):
        return before
    observed = _LayerCall(layer.call)
    functools.update_wrapper(observed, layer.call)
    observed.undo = _put(layer, observed)
    return observed


def _gate() -> Any:
    if keras.backend.backend() == "tensorflow":
        from .gate import TensorFlowGate

        return TensorFlowGate()
    from .host_gate import HostGate

    return HostGate()


def renew_functions(model: Any) -> None:
    """Make the compiled steps of a model anew, which is traced with its layers as they are now.

    They must not be left out: ``fit`` may be in progress.
    """
    for name in _FUNCTIONS:
        if getattr(model, name, None) is not None:
            getattr(model, f"make_{name}")(force=True)
