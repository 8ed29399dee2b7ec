"""Sums over the rows of a tensor, computed on its device: an optional part of ``CapturedTensor``.

A framework that can compute them sends statistics of a layer instead of its activations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

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
        units: The numbers of single features to append to sketched rows, as an array or the ``best`` of an
            earlier tensor.
        chosen_by: The classes by which to choose units for a later pass, as in ``classes``; empty for none.
        items: How many items of the tensor to use, the first ones along the axis of its rows; None for all.
        groups: By which groups to tally the summaries of rows: the group of each row (rows,) and the number
            of groups. Kept rows are then in float16, and products are upper triangles, as they are sent. None
            for the summary of each row, kept rows in float32 and whole products.
        prepared: What a backend has made of the arrays, which plans that differ in ``units`` alone share.
    """

    positions: bool
    kept: np.ndarray
    products: tuple[np.ndarray, ...] = ()
    classes: tuple[tuple[np.ndarray, int], ...] = ()
    seed: int = 0
    units: Any = field(default_factory=lambda: np.empty(0, np.int64))
    chosen_by: tuple[tuple[np.ndarray, int], ...] = ()
    items: int | None = None
    groups: tuple[np.ndarray, int] | None = None
    prepared: dict[Any, Any] = field(default_factory=dict)


class Tally(NamedTuple):
    """The summaries of finite rows by group, as in ``scores.statistics.row_statistics``.

    Attributes:
        counts: The number of rows of each group, int64 of shape (groups,).
        means: The means of the first five of ``SUMMARY``, float64 of shape (groups, 5).
        m2s: The sums of squared deviations from these means, of the same shape.
        ends: The smallest and the largest entry, float64.
        nonfinite: The number of entries that are NaN or infinite, of all rows.
    """

    counts: np.ndarray
    means: np.ndarray
    m2s: np.ndarray
    ends: np.ndarray
    nonfinite: int


class Packed(NamedTuple):
    """The kept rows in float16: (rows - (offset - shift)) / scale.

    Attributes:
        offset: float32 of shape (width,).
        scale: float32 of shape (width,), powers of two.
        finite: Which of the plan's kept rows are finite, and so are here, shape (kept,).
        tally: The tally of all rows.
    """

    offset: np.ndarray
    scale: np.ndarray
    finite: np.ndarray
    tally: Tally


class Products(NamedTuple):
    """Sums of some rows, minus a shift.

    Attributes:
        n: The number of rows.
        total: Their sum, float64 of shape (width,).
        gram: The sum of their outer products, float32 or float64 of shape (width, width), or the upper
            triangle of it, row by row.
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
        summary: The statistics ``SUMMARY`` of each row before it was sketched, float32 of shape (rows, 8); of
            no rows if they were tallied.
        alive: True for features that are not 0 in every finite row, shape (features,).
        kept: The kept rows minus the shift, float32 of shape (kept, width); or as in ``Packed``.
        products: The sums of outer products of each mask.
        classes: The sums by each target's classes.
        units: The numbers of the single features at the end of each row.
        best: The numbers of the UNITS features whose means differ most between classes; empty if none were
            to be chosen, or rows were not sketched.
        packed: What else is sent; None if the plan has no groups.
        seconds: The seconds that a device has computed them apart from the thread that gave it the order.
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
    packed: Packed | None = None
    seconds: float = 0.0


class LateSums(Protocol):
    """Sums that a device may not have finished yet.

    Attributes:
        best: What ``RowSums.best`` will have, for the ``units`` of a later plan.
    """

    best: Any

    def result(self) -> RowSums:
        """Return the sums once they are there. Any thread may call it, at any time, once."""


#: Begins to compute the sums of a tensor whose rows are along an axis; the tensor may change after that.
Summing = Callable[[RowPlan, int], LateSums]
