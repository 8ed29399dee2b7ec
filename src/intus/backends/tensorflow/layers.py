"""The layers of a Keras model, and how a function is put in the place of their ``call``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras

from ...core.address import Address
from ..base import Operation, Tap
from .calls import CallObserver, ObservedCall, Watch

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

    Those of a recurrent layer's cell are the layer's own (``cell.kernel``).
    """
    cells = layer.cell._flatten_layers() if isinstance(layer, keras.layers.RNN) else ()
    named = [("", variable) for variable in layer._trainable_variables]
    named += [("cell.", variable) for cell in cells for variable in cell._trainable_variables]
    found: dict[str, Any] = {}
    for prefix, variable in named:
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
    own, before = layer.call, vars(layer).get("call")
    object.__setattr__(layer, "call", functools.partial(function, own))  # Keras would track it

    def undo() -> None:
        if before is None:
            del vars(layer)["call"]
        else:
            object.__setattr__(layer, "call", before)

    return undo


class LayersAttachment:
    """Attaches to the layers of one model; several may be attached at a time.

    Args:
        model: The model.
        operations: The layers to observe.
        kinds: The kinds of tensors to capture.
        tap: The observer.
    """

    def __init__(self, model: Any, operations: Iterable[Operation], kinds: tuple[str, ...], tap: Tap) -> None:
        self._calls = CallObserver(model, _gate(), variables_of, kinds, tap)
        self._watched: list[tuple[Any, Watch]] = []
        self._model = model
        chosen = list(operations)
        if not any(one.module is model for one in chosen):
            self._add(model, Watch(self._calls, None, True))
        for one in chosen:
            self._add(one.module, Watch(self._calls, one, one.module is model))
        renew_functions(model)

    def remove(self) -> None:
        """Restore the layers. Calling it again has no effect."""
        self._calls.observer.stop()
        if not self._watched:
            return
        self._calls.gate.close()
        while self._watched:
            layer, watch = self._watched.pop()
            observed = vars(layer)["call"]
            observed.watches.remove(watch)
            if not observed.watches:
                del vars(layer)["call"]
                if observed.was_attribute:
                    object.__setattr__(layer, "call", observed.own)
        renew_functions(self._model)

    def _add(self, layer: Any, watch: Watch) -> None:
        observed = vars(layer).get("call")
        if not isinstance(observed, ObservedCall):
            own = layer.call
            observed = ObservedCall(own)
            functools.update_wrapper(observed, own)
            observed.was_attribute = "call" in vars(layer)
            object.__setattr__(layer, "call", observed)  # Keras would track it
        observed.watches.append(watch)
        self._watched.append((layer, watch))


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
