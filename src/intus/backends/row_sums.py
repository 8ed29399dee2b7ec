"""Sums over the rows of a tensor, computed on its device: an optional part of ``CapturedTensor``.

A framework that can compute them sends statistics of a layer instead of its activations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class RowPlan:
    """The sums to compute of a tensor whose rows are known beforehand.

    Attributes:
        positions: Whether each position of a tensor (rows, positions, features) is a row.
        kept: The numbers of the rows to return, shape (kept,).
        products: Of which rows to sum outer products, each a mask of shape (rows,); empty for none.
        classes: By which classes to sum the rows of ``products[0]``: pairs of a code for each row (rows,), -1
            for none, and the number of codes.
        seed: The seed of the sketch of rows that are wider than ``PROJECTED``.
        units: The numbers of single features to append to sketched rows.
        chosen_by: The classes by which to choose units for a later pass, as in ``classes``; empty for none.
        items: How many items of the tensor to use, the first ones along the axis of its rows; None for all.
    """

    positions: bool
    kept: np.ndarray
    products: tuple[np.ndarray, ...] = ()
    classes: tuple[tuple[np.ndarray, int], ...] = ()
    seed: int = 0
    units: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    chosen_by: tuple[tuple[np.ndarray, int], ...] = ()
    items: int | None = None


class Products(NamedTuple):
    """Sums of some rows, minus a shift.

    Attributes:
        n: The number of rows.
        total: Their sum, float64 of shape (width,).
        gram: The sum of their outer products, float32 or float64 of shape (width, width).
    """

    n: int
    total: np.ndarray
    gram: np.ndarray


class ClassSums(NamedTuple):
    """Sums of rows by class, minus a shift.

    Attributes:
        counts: The number of rows of each class, int64 of shape (classes,).
        totals: Their sums, float64 of shape (classes, width).
    """

    counts: np.ndarray
    totals: np.ndarray


@dataclass(slots=True, eq=False)
class RowSums:
    """The result of a RowPlan. Rows with NaN or infinite values are in ``summary`` alone.

    Attributes:
        features: The number of features of a row.
        sketch: How rows were sketched: "sparse", "dense", or "" if they were not.
        shift: What was subtracted from the rows, float64 of shape (width,): about their mean.
        summary: The statistics ``SUMMARY`` of each row before it was sketched, float32 of shape (rows, 8).
        alive: True for features that are not 0 in every finite row, shape (features,).
        kept: The kept rows minus the shift, float32 of shape (kept, width).
        products: The sums of outer products of each mask.
        classes: The sums by each target's classes.
        units: The numbers of the single features at the end of each row.
        best: The numbers of the UNITS features whose means differ most between classes; empty if none were
            to be chosen, or rows were not sketched.
    """

    features: int
    sketch: str
    shift: np.ndarray
    summary: np.ndarray
    alive: np.ndarray
    kept: np.ndarray
    products: tuple[Products, ...] = ()
    classes: tuple[ClassSums, ...] = ()
    units: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    best: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


#: Computes the sums of a tensor whose rows are along an axis.
Summing = Callable[[RowPlan, int], RowSums]
