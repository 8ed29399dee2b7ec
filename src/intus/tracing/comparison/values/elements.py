"""The elements of a saved value as a numpy array, with the dtype that they were rounded to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....core.errors import IntusError
from ....core.shared_array import shared_array

if TYPE_CHECKING:
    from ...results.trace import Trace

#: Of every floating-point dtype: the distance from 1 to the next number, and the largest finite number.
_FLOATS = {
    "float64": (2.0**-52, float(np.finfo(np.float64).max)),
    "float32": (2.0**-23, float(np.finfo(np.float32).max)),
    "float16": (2.0**-10, 65504.0),
    "bfloat16": (2.0**-7, 3.3895313892515355e38),
    "float8_e4m3fn": (2.0**-3, 448.0),
    "float8_e4m3fnuz": (2.0**-3, 240.0),
    "float8_e5m2": (2.0**-2, 57344.0),
    "float8_e5m2fnuz": (2.0**-2, 57344.0),
    "complex64": (2.0**-23, float(np.finfo(np.float32).max)),
    "complex128": (2.0**-52, float(np.finfo(np.float64).max)),
}


class Elements(NamedTuple):
    """The elements of a value as real numbers.

    Attributes:
        array: The elements. Complex numbers are pairs; a dtype that numpy does not have is widened, which
            changes no value.
        dtype: The dtype that the value had.
    """

    array: np.ndarray
    dtype: str

    @property
    def is_float(self) -> bool:
        """True for a floating-point or complex dtype."""
        return self.dtype in _FLOATS

    @property
    def is_square(self) -> bool:
        """True for a square matrix, whose shape does not tell it from its transpose."""
        return self.array.ndim == 2 and self.array.shape[0] == self.array.shape[1] > 1

    @property
    def is_complex(self) -> bool:
        """True for a complex dtype."""
        return self.dtype.startswith("complex")

    @property
    def eps(self) -> float:
        """The distance from 1 to the next number of the dtype; 0 for integers."""
        return eps_of(self.dtype)

    @property
    def limit(self) -> float:
        """The largest finite number of the dtype, if it is a float."""
        return _FLOATS[self.dtype][1]

    def equals(self, other: Elements) -> bool:
        """Return whether both are equal bit for bit: NaN equals itself, 0.0 does not equal -0.0."""
        return self.dtype == other.dtype and np.array_equal(_bits(self.array), _bits(other.array))

    def within(self, other: Elements) -> np.ndarray:
        """Return the elements, finite ones clamped to the limits of another dtype.

        Masks are often filled with the least number of their dtype.
        """
        if self.dtype == other.dtype or not (self.is_float and other.is_float) or self.limit <= other.limit:
            return self.array
        clamped = self.array.clip(-other.limit, other.limit)
        return np.where(np.isinf(self.array), self.array, clamped)


def eps_of(dtype: str) -> float:
    """Return the distance from 1 to the next number of a dtype; 0 for one of no floats."""
    return _FLOATS[dtype][0] if dtype in _FLOATS else 0.0


def is_half(*values: Elements) -> bool:
    """Return whether any of some values is of a precision below float32."""
    return max(one.eps for one in values) > eps_of("float32")


def limit_of(dtype: str) -> float:
    """Return the largest finite number of a dtype; infinity for one of no floats."""
    return _FLOATS[dtype][1] if dtype in _FLOATS else np.inf


def plain(value: Any) -> Elements | None:
    """Return the elements of a value; None if they cannot be compared (text, tensors without memory).

    Args:
        value: A numpy array, a tensor of torch, or None for what was not saved. Quantized and sparse tensors
            become dense. Of a ``DTensor`` this is the part of this process.

    Example:
        >>> plain(np.ones(2, np.float16))
        Elements(array=array([1., 1.], dtype=float16), dtype='float16')
        >>> plain(torch.ones(2, dtype=torch.bfloat16))
        Elements(array=array([1., 1.], dtype=float32), dtype='bfloat16')
    """
    if value is None:
        return None
    if not isinstance(value, np.ndarray | np.generic):
        return _of_tensor(value)
    array, dtype = np.asarray(value), value.dtype.name
    if dtype in _FLOATS and array.dtype.kind not in "fc":  # bfloat16 and float8 of ml_dtypes
        array = array.astype(np.float32)
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    return Elements(array, dtype) if array.dtype.kind in "biuf" else None


def value_of(trace: Trace, address: str) -> Elements | None:
    """Return the value of a parameter; None if it is not known."""
    try:
        return plain(trace.value(address))
    except (IntusError, KeyError):  # not saved, or changed since
        return None


def _of_tensor(value: Any) -> Elements | None:
    import torch

    from ...capture.memory import local_of

    t = local_of(value)
    if t.is_meta or t.is_nested:
        return None
    t = t.detach()
    if t.is_quantized:
        t = t.dequantize()
    if t.layout != torch.strided:
        t = t.to_dense()
    dtype = str(t.dtype).removeprefix("torch.")
    t = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).resolve_neg().cpu()
    if t.is_floating_point() and t.dtype not in (torch.float64, torch.float32, torch.float16):
        t = t.float()  # numpy has no bfloat16 and no float8
    return Elements(shared_array(t), dtype)


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the elements as integers of the same bits."""
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "f" and array.itemsize <= 8 else array
