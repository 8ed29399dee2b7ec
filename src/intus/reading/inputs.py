"""Match the inputs that a caller wrote with those that a model file takes, and check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import InputError, did_you_mean


class Expected(NamedTuple):
    """An input that a model takes.

    Attributes:
        name: Its name.
        dtype: Its dtype; ``""`` if the file does not have it.
        shape: Its shape: numbers, and names of lengths that are open (``"?"`` without a name); None if the
            file does not have it.
        is_array: Whether it is an array; otherwise a list, for example.
        is_optional: Whether it may be left out.
    """

    name: str
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    is_array: bool = True
    is_optional: bool = False

    def __str__(self) -> str:
        shape = None if self.shape is None else "×".join(map(str, self.shape)) or "a scalar"
        return ", ".join(part for part in (self.dtype, shape) if part) or "anything"


def bind(
    file: str, expected: Sequence[Expected], inputs: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the inputs by name.

    Args:
        file: The name of the file.
        expected: The inputs that the model takes; optional ones are last.
        inputs: Inputs in the model's order.
        named: Inputs by name.

    Raises:
        InputError: If an input is missing, unknown or given twice.

    Example:
        >>> bind("net.onnx", [Expected("x"), Expected("mask")], [1], {"mask": 2})
        {'x': 1, 'mask': 2}
    """
    names = [one.name for one in expected]
    takes = ", ".join(f"{one.name} ({one})" for one in expected if not one.is_optional) or "nothing"
    if len(inputs) > len(names):
        count = f"{len(names)} input{'' if len(names) == 1 else 's'}"
        raise InputError(f"{file} takes {count}, got {len(inputs)}. It takes: {takes}.")
    given = dict(zip(names, inputs, strict=False))
    for name, value in named.items():
        if name not in names:
            raise InputError(f"{file} has no input {name!r}. {did_you_mean(name, names)}")
        if name in given:
            raise InputError(f"The input {name!r} of {file} is given twice. Give it once.")
        given[name] = value
    for one in expected:
        if one.name not in given and not one.is_optional:
            raise InputError(f"{file} needs an input {one.name!r}. It takes: {takes}.")
    return given


def as_array(file: str, expected: Expected, value: Any) -> Any:
    """Return an input as a numpy array of the dtype and shape that the model takes.

    Numbers and lists get the dtype; arrays and tensors must have it.

    Args:
        file: The name of the file.
        expected: The input.
        value: What the caller wrote.

    Raises:
        InputError: If it has another dtype or shape.

    Example:
        >>> as_array("net.onnx", Expected("x", "float32", (2,)), [1, 2])
        array([1., 2.], dtype=float32)
    """
    if not expected.is_array or value is None:
        return value
    is_plain = isinstance(value, bool | int | float | list | tuple)
    try:
        if hasattr(value, "asnumpy"):  # an array of MXNet
            value = value.asnumpy()
        elif hasattr(value, "detach"):  # a tensor of torch
            value = value.detach().cpu()
        array = np.asarray(value, expected.dtype if is_plain and expected.dtype != "string" else None)
    except Exception as error:  # whatever the caller's object raises
        raise InputError(f"The input {expected.name!r} of {file} is no array: {error}.") from None
    dtype = "string" if array.dtype.kind in "OUS" else str(array.dtype)
    check(file, expected, dtype, array.shape)
    return array


def check(file: str, expected: Expected, dtype: str, shape: Sequence[int]) -> None:
    """Raise InputError if an array is of another dtype or shape than the model takes.

    Args:
        file: The name of the file.
        expected: The input.
        dtype: The dtype of the array.
        shape: Its shape.
    """
    must = f"The input {expected.name!r} of {file} must be {expected}"
    if expected.dtype and dtype != expected.dtype:
        raise InputError(f"{must}, got {dtype}. Convert it to {expected.dtype}.")
    if expected.shape is not None and (
        len(shape) != len(expected.shape)
        or any(
            isinstance(one, int) and one != length for one, length in zip(expected.shape, shape, strict=True)
        )
    ):
        raise InputError(f"{must}, got the shape {tuple(shape)}.")
