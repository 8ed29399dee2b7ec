"""The gate of Keras on JAX or PyTorch: calls of the host itself alone, such as those of a probe set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from .running import is_evaluated

_ONLY_PROBE_SET = (
    "Of Keras on {}, the training's own passes cannot be recorded. Pass a probe_set to probe(), which is run "
    "outside of the training, or use TensorFlow as the backend of Keras."
)


class HostGate:
    """The gate of one attachment; see ``gate.TensorFlowGate``."""

    nest = keras.tree

    def close(self) -> None:
        """Do nothing: no function was changed."""

    def place(self) -> None:
        """Return None: everything that is observed runs at once."""

    def left_out_of_export(self) -> None:
        """Return None: no function is traced."""

    def refusal(self) -> str:
        """Return why the host cannot be called from here; ``""`` if it can be."""
        return "" if is_evaluated() else _ONLY_PROBE_SET.format(keras.backend.backend())

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a tensor."""
        return bool(keras.ops.is_tensor(value))

    def is_float(self, value: Any) -> bool:
        """Return False: nothing of a probe set has gradients."""
        return False

    def value(self, variable: Any) -> Any:
        """Return the value of a variable."""
        return variable.numpy()

    now = value

    def trains(self) -> bool:
        """Return False: the training is not observed."""
        return False

    def ask(self, tensors: Sequence[Any], begin: Callable[..., int], _leave_out: Any) -> int:
        """Return the number of the call, 0 if it is not observed."""
        return begin(*tensors)

    def tell(self, go: int, tensors: Sequence[Any], take: Callable[..., None]) -> None:
        """Pass tensors to the host."""
        if go:
            take(go, *tensors)

    def with_gradient(self, tensor: Any, tell: Callable[[Any], None]) -> Any:
        """Return the tensor."""
        return tensor
