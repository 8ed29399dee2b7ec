"""The shortest numbers that are the same in the dtype of a constant, by which graphs show it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

#: Whole numbers below it are shown in full: -65504 in float16 is the least number, which -65500 is too.
_IN_FULL = 2**24
_FRACTION = re.compile(r"(?<![\w.])-?\d+\.\d+(?:[eE][+-]?\d+)?(?![\w.])")


def shortest(constant: Any) -> Any:
    """Return a constant as numbers of Python whose text is the shortest that gives it in its dtype.

    Someone wrote 0.3 where the constant is ``float32(0.3)``; in float64 that is 0.30000001192092896.

    Args:
        constant: An array, or a number with or without a dtype; one without is Python's, which is returned.

    Returns:
        A number, or a list of them as ``ndarray.tolist`` returns it.

    Example:
        >>> import numpy as np
        >>> shortest(np.float32(0.3)), shortest(np.float64(np.float32(0.3)))
        (0.3, 0.30000001192092896)
        >>> shortest(np.array([0.1, 65504], np.float16)), shortest(np.complex64(0.3j)), shortest(True)
        ([0.1, 65504.0], 0.3j, True)
    """
    array = np.asarray(constant, getattr(constant, "dtype", None))
    if array.ndim:
        return [shortest(one) for one in array]
    if array.dtype == np.complex64:
        return complex(shortest(array.real), shortest(array.imag))
    number, dtype = array.item(), array.dtype
    is_narrow = "float" in dtype.name and dtype.itemsize < np.dtype(np.float64).itemsize
    if not is_narrow or not np.isfinite(number) or (number.is_integer() and abs(number) < _IN_FULL):
        return number
    texts = (float(f"{number:.{digits}g}") for digits in range(1, 18))
    with np.errstate(over="ignore"):  # of a text above the largest number
        return next((text for text in texts if array == np.array(text).astype(dtype)), number)


def shortest_in_text(text: str) -> str:
    """Return the text of arguments that are computed with in float32, with its numbers shortened.

    It is for a format that keeps numbers as text, without their dtype. A number that float32 does not have is
    as someone wrote it, and stays.

    Args:
        text: The text.

    Example:
        >>> shortest_in_text("scalar=0.30000001192092896, slope=0.3, scales=(9.999999747378752e-06, 0.5)")
        'scalar=0.3, slope=0.3, scales=(1e-05, 0.5)'
        >>> shortest_in_text("scalar=0.30000001192092897, y=0.3000000119209289, name=v0.30000001192092896")
        'scalar=0.3, y=0.3000000119209289, name=v0.30000001192092896'
    """
    return _FRACTION.sub(_shortened, text)


def _shortened(found: re.Match[str]) -> str:
    number = float(found[0])
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(number)
    return min(found[0], str(shortest(single)), key=len) if single.item() == number else found[0]
