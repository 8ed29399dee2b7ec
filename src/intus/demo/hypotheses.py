"""Hypotheses about handwritten digits: functions from an image to a mask of its pixels.

``image`` is (1, 8, 8) with ink from 0 to 1; each function returns (8, 8) of zeros and ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

INK = 0.3  # a pixel above this value is ink


def upright_stroke(image: np.ndarray) -> Any:
    """Mark ink in vertical strokes: at least four pixels of ink on top of one another."""
    return ndimage.binary_opening(image[0] > INK, np.ones((4, 1))).astype(np.float32)


def open_to_the_left(image: np.ndarray) -> Any:
    """Mark the bay of a 3 or a 5: paper with ink above, below and to the right, and none to the left."""
    ink = image[0] > INK
    above, below = _ink_above(ink), _ink_above(ink[::-1])[::-1]
    left, right = _ink_above(ink.T).T, _ink_above(ink.T[::-1])[::-1].T
    return (~ink & above & below & right & ~left).astype(np.float32)


def upper_loop(image: np.ndarray) -> Any:
    """Mark the loop in the upper half of the stroke, as in an 8 or a 9: the hole and its rim."""
    ink = image[0] > INK
    holes, count = ndimage.label(~ink)
    mask = np.zeros(ink.shape, dtype=np.float32)
    for hole in range(1, count + 1):
        rows, columns = np.nonzero(holes == hole)
        inside = min(rows.min(), columns.min()) > 0 and max(rows.max(), columns.max()) < len(ink) - 1
        if inside and rows.mean() < (len(ink) - 1) / 2:
            mask[ndimage.binary_dilation(holes == hole)] = 1
    return mask


def _ink_above(ink: np.ndarray) -> Any:
    """Return whether some row above has ink in the same column."""
    return (np.cumsum(ink, axis=0) - ink) > 0
