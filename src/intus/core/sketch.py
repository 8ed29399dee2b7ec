"""Seeded hashes, and the random sketch that statistics of wide layers are made of where the model runs.

Each column of a sketch follows from the seed and the feature's number in the whole layer alone. Sketches of
parts of the features therefore add up to the sketch of all, in every process, framework and device.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .projection import PROJECTED

UNITS = 64  #: single features that are kept beside a sketch
PER_FEATURE = 8  #: entries other than 0 of each feature in a sparse sketch


def hashed(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """Hash integers by the finalizer of SplitMix64 (Steele, Lea and Flood 2014) to uint64."""
    z = values.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def row_hashes(rows: np.ndarray) -> np.ndarray:
    """Return a hash of the bytes of each row, uint64 of shape (rows,).

    Example:
        >>> one, other, same = row_hashes(np.array([[1, 2], [2, 1], [1, 2]])).tolist()
        >>> one == same, one == other
        (True, False)
    """
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    if flat.shape[1] % 8:
        flat = np.pad(flat, ((0, 0), (0, -flat.shape[1] % 8)))
    words = flat.view(np.uint64)
    # Numbers such as 1.0 and 2.0 have their bits at the upper end of a word, where a product would lose them.
    words = words ^ (words >> np.uint64(32))
    mixed: np.ndarray = words @ (hashed(np.arange(words.shape[1]), 1) | np.uint64(1))
    return mixed


def hashes_of_rows(rows: int, arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Return a hash of each row of several arrays together, uint64 of shape (rows,).

    Example:
        >>> one, other = hashes_of_rows(2, [np.array([[1], [1]]), np.array([[2.0], [3.0]])])
        >>> bool(one == other)
        False
    """
    mixed = np.zeros(rows, np.uint64)
    for array in arrays:
        mixed = hashed(mixed) + row_hashes(array)
    return mixed


def sparse_sketch(start: int, stop: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns and entries of a sparse sketch for the features from ``start`` to ``stop``.

    Each feature is added, with random signs, to one random column of each eighth of the PROJECTED columns
    (Kane and Nelson 2014, "Sparser Johnson-Lindenstrauss transforms").

    Args:
        start: The number of the first feature in the layer.
        stop: One more than the number of the last.
        seed: The seed.

    Returns:
        The columns, int64, and the entries, float32, both of shape (features, PER_FEATURE).

    Example:
        >>> columns, entries = sparse_sketch(0, 5000)
        >>> bool((columns[4000:] == sparse_sketch(4000, 5000)[0]).all())
        True
    """
    block = np.arange(PER_FEATURE)
    drawn = hashed(np.arange(start, stop)[:, None] * PER_FEATURE + block, seed)
    size = PROJECTED // PER_FEATURE
    columns = ((drawn >> np.uint64(8)) % np.uint64(size)).astype(np.int64) + block * size
    return columns, _signs(drawn & np.uint64(1)) / np.float32(PER_FEATURE**0.5)


def dense_sketch(start: int, stop: int, seed: int = 0) -> np.ndarray:
    """Return the rows of a dense sketch for the features from ``start`` to ``stop``.

    Its entries are random signs, divided by the root of PROJECTED (Achlioptas 2003). It takes a hundred times
    as many products as a sparse one, which a GPU computes faster.

    Args:
        start: The number of the first feature in the layer.
        stop: One more than the number of the last.
        seed: The seed.

    Returns:
        float32 of shape (features, PROJECTED).
    """
    words = PROJECTED // 64
    drawn = hashed(np.arange(start, stop)[:, None] * words + np.arange(words), seed + 1)
    bits = (drawn[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    return _signs(bits.reshape(stop - start, PROJECTED)) / np.float32(PROJECTED**0.5)


def _signs(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.float32) * 2 - 1
