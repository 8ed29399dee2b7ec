"""Sums over the rows of a tensor on its device, in float32 products that are added in float64.

Rows are centred before they are multiplied, block by block. So a large mean costs no digits, and the sums of
float32 products agree with those in float64 to seven digits. Only half precision is sketched as it is.

The processor only gives orders: it waits for the device once, to learn whether a large tensor is finite, and
everything is copied to the host in a few pieces, which the sender's thread waits for.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.projection import PROJECTED
from ...core.sketch import UNITS, dense_sketch, sparse_sketch
from ..row_sums import ClassSums, Packed, Products, RowPlan, RowSums, Tally
from .random_projection import summary
from .to_host import Arriving, recorded_event, to_host

_BLOCK = 4096  # rows multiplied at once
_PART = 1 << 28  # bytes that a GPU summarizes at once
_ASKED = 1 << 24  # bytes from which on waiting for a GPU is cheaper than not to know that all is finite
_MEMBERS = 1 << 24  # entries of a matrix of classes and rows that a GPU multiplies at once
_HALVES = (torch.float16, torch.bfloat16)
_EPS = 1e-30  # what a layer norm adds to a variance
_DENSE = 1 << 15  # features up to which a dense sketch is small enough for a GPU's memory
_SCALARS = 5  # of a row's summary, that have a mean
#: A variance below this part of the mean square of a half precision feature is rounding.
_ROUNDING = 4e-6


def has_doubles(tensor: Tensor) -> bool:
    """Return whether the tensor's device computes in float64, which Apple's does not."""
    return tensor.device.type != "mps"


def row_sums(tensor: Tensor, plan: RowPlan, axis: int, sketch: str = "") -> RowSums:
    """Compute the sums of a tensor, and wait for them; see ``begin_sums``."""
    return begin_sums(tensor, plan, axis, sketch).result()


def begin_sums(tensor: Tensor, plan: RowPlan, axis: int, sketch: str = "") -> LateRowSums:
    """Begin to compute the sums of a tensor.

    Args:
        tensor: The tensor.
        plan: The sums to compute.
        axis: The axis of the rows.
        sketch: "sparse" or "dense"; "" for dense on accelerators unless the layer is too wide, else sparse.
    """
    from ...tracing.capture.context.kernel_settings import full_float32

    x = tensor.detach()
    x = x if has_doubles(x) else x.cpu()
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False), full_float32():
        began = recorded_event(x.device)
        x = x.movedim(axis, 0)[: plan.items]
        x = x.flatten(0, 1) if plan.positions else x.flatten(1)
        features, sketch, out = _of_rows(x, plan, sketch)
        ended = recorded_event(x.device)
        return LateRowSums(features, sketch, plan.groups is not None, to_host(out), out["best"], began, ended)


class _Order:
    """The arrays of a plan on a device.

    Attributes:
        kept: The numbers of the kept rows.
        masks: The rows of each product, as masks.
        rows: The same, as their numbers.
        classes: The class of each row, -1 for none, and the number of classes.
        chosen_by: The same, of the classes by which units are chosen.
        groups: The group of each row, and the number of groups; None for no tally.
    """

    def __init__(self, plan: RowPlan, device: torch.device) -> None:
        def there(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        self.kept = there(plan.kept.astype(np.int64))
        self.masks = [there(mask) for mask in plan.products]
        self.rows = [there(np.flatnonzero(mask)) for mask in plan.products]
        first = plan.products[0] if plan.products else False
        self.classes = [
            (there(np.where(first, codes, -1).astype(np.int32)), classes) for codes, classes in plan.classes
        ]
        self.chosen_by = [(there(codes.astype(np.int32)), classes) for codes, classes in plan.chosen_by]
        self.groups = (
            None if plan.groups is None else (there(plan.groups[0].astype(np.int64)), plan.groups[1])
        )

    @classmethod
    def of(cls, plan: RowPlan, device: torch.device) -> _Order:
        """Return the arrays of a plan, which are copied once."""
        if device not in plan.prepared:
            plan.prepared[device] = cls(plan, device)
        order: _Order = plan.prepared[device]
        return order


class LateRowSums:
    """Sums on their way to the host.

    Args:
        features: The number of features of a row.
        sketch: How rows are sketched.
        packs: Whether they are packed.
        arriving: The arrays.
        best: The chosen units, on the device.
        began: When the device began; None for a processor.
        ended: When it had computed them.
    """

    def __init__(
        self,
        features: int,
        sketch: str,
        packs: bool,
        arriving: Arriving,
        best: Tensor,
        began: torch.cuda.Event | None,
        ended: torch.cuda.Event | None,
    ) -> None:
        self._features, self._sketch, self._packs = features, sketch, packs
        self._arriving, self.best, self._began, self._ended = arriving, best, began, ended

    def result(self) -> RowSums:
        """Return the sums once they are there."""
        found = self._arriving.arrays()
        kept, ok = found["kept"], found["finite"]
        packed = None
        if self._packs:
            counts, means, m2s, ends = (found[name] for name in ("counts", "means", "m2s", "ends"))
            tally = Tally(counts, means, m2s, ends, int(found["nonfinite"]))
            packed = Packed(found["offset"], found["scale"], ok, tally)
        number = range(sum(name.startswith("gram.") for name in found))
        of_classes = range(sum(name.startswith("totals.") for name in found))
        return RowSums(
            self._features,
            self._sketch,
            found["shift"],
            found["summary"],
            found["alive"],
            kept if ok.all() else kept[ok],
            tuple(Products(int(found[f"n.{k}"]), found[f"total.{k}"], found[f"gram.{k}"]) for k in number),
            tuple(ClassSums(found[f"counts.{k}"], found[f"totals.{k}"]) for k in of_classes),
            found["units"],
            found["best"],
            packed,
            0.0 if not (self._began and self._ended) else self._began.elapsed_time(self._ended) / 1e3,
        )


class _Described(NamedTuple):
    """The summaries of rows.

    Attributes:
        summary: The statistics ``SUMMARY`` of each row.
        finite: Which rows are finite.
        all_finite: Whether it is known that all are.
    """

    summary: Tensor
    finite: Tensor
    all_finite: bool


def _of_rows(x: Tensor, plan: RowPlan, sketch: str) -> tuple[int, str, dict[str, Tensor]]:
    """Return the number of features, how rows are sketched, and what is to be copied to the host."""
    device, features = x.device, x.shape[1]
    order = _Order.of(plan, device)
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    wide = features > PROJECTED
    sketch = (sketch or ("dense" if device.type != "cpu" and features <= _DENSE else "sparse")) * wide
    described, finite, all_finite = _described(x, kind)
    x = x if all_finite else torch.where(finite[:, None], x, 0)
    count = finite.sum()
    alive = torch.zeros(features, dtype=torch.bool, device=device)
    total = torch.zeros(features, dtype=torch.float64, device=device)
    for block in torch.split(x, _step(x)):
        if len(block):
            alive |= torch.linalg.vector_norm(block, torch.inf, dim=0) != 0
        total += block.sum(0, dtype=kind)  # a sum in float64 would first copy all rows to float64
    mean = (total / count.clamp(min=1)).to(kind)
    units = torch.as_tensor(plan.units, device=device) if wide else x.new_empty(0, dtype=torch.int64)
    z, shift = _centred(x, mean, sketch, plan.seed, units, kind)
    if not all_finite:
        z *= finite[:, None]
    chooses = bool(plan.chosen_by) and features > PROJECTED + UNITS
    best = _best(x, mean, None if all_finite else finite, order.chosen_by) if chooses else units[:0]
    out = {
        "shift": shift,
        "alive": alive,
        "finite": finite[order.kept],
        "units": units,
        "best": best,
        "summary": described.float() if order.groups is None else described.new_empty((0, 8)).float(),
    }
    kept = z.index_select(0, order.kept).float()
    if order.groups is None:
        out["kept"] = kept
    else:
        out |= _gridded(kept, None if all_finite else out["finite"], shift) | _tallied(
            described, finite, order.groups
        )
    for k, (mask, rows) in enumerate(zip(order.masks, order.rows, strict=True)):
        out[f"n.{k}"] = (mask & finite).sum()
        out[f"total.{k}"], gram = _products(z, rows)
        gram = gram.float() if kind == torch.float32 else gram
        out[f"gram.{k}"] = gram if order.groups is None else gram.view(-1)[_upper(z.shape[1], device)].float()
    for k, (codes, classes) in enumerate(order.classes):
        out[f"counts.{k}"], out[f"totals.{k}"] = _by_class(z, finite, codes, classes)
    return features, sketch, out


def _step(x: Tensor) -> int:
    """Return how many rows to reduce at once: on a processor those that fit into its caches."""
    if x.device.type == "cpu":
        return _BLOCK
    return max(_PART // max(x.shape[1] * x.element_size(), 1), 1)


def _described(x: Tensor, kind: torch.dtype) -> _Described:
    """Summarize rows. Whether all are finite is looked up only if the answer saves more than the waiting."""
    parts = [_summary(block, kind) for block in torch.split(x, _step(x))]
    described = torch.cat(parts) if parts else x.new_zeros((0, 8), dtype=kind)
    suspect = ~torch.isfinite(described[:, 1])  # also if the sum of large numbers overflows
    if x.device.type == "cpu" or x.nbytes > _ASKED:
        if not bool(suspect.any()):
            return _Described(described, ~suspect, True)
        described[suspect, -1] = (~torch.isfinite(x[suspect])).sum(1).to(kind)
    else:
        described[:, -1] = (~torch.isfinite(x)).sum(1).to(kind)
    return _Described(described, described[:, -1] == 0, False)


def _summary(rows: Tensor, kind: torch.dtype) -> Tensor:
    """Compute the statistics of ``SUMMARY`` for each row, but for the number of those that are not finite.

    On a GPU, rows of half precision are not copied in float32 first: a layer norm computes their mean and
    variance in float32, in one pass.
    """
    if rows.device.type != "cuda" or rows.dtype not in _HALVES or not rows.shape[1]:
        return summary(rows.to(kind), counts=False)
    size, norm = rows.shape[1], torch.linalg.vector_norm
    _, mean, root = torch.native_layer_norm(rows, (size,), None, None, _EPS)
    mean, root = mean.view(-1).double(), root.view(-1).double()
    spread = (root**-2 - _EPS).clamp_(min=0)
    length = ((spread + mean**2) * size).sqrt()
    low, high = torch.aminmax(rows, dim=1)
    mean_abs = norm(rows, 1, dim=1, dtype=kind) / size
    zeros = 1 - norm(rows, 0, dim=1, dtype=kind) / size
    columns = [mean, mean_abs, spread, length, zeros, low, high, torch.zeros_like(mean)]
    return torch.stack([column.to(kind) for column in columns], 1)


def _tallied(described: Tensor, finite: Tensor, groups: tuple[Tensor, int]) -> dict[str, Tensor]:
    """Return the fields of a ``Tally``."""
    group, count = groups
    clean = torch.where(finite[:, None], described.float().double(), 0)
    scalars = clean[:, :_SCALARS]
    member = _members(group, count, torch.float64) * finite
    counts = member.sum(1)
    means = member @ scalars / counts.clamp(min=1)[:, None]
    gaps = (scalars - means[group]) * finite[:, None]
    edge = described.new_full((1,), torch.inf, dtype=torch.float64)
    low, high = (
        torch.where(finite, described[:, k].double(), sign * torch.inf) for k, sign in ((5, 1), (6, -1))
    )
    ends = torch.stack([torch.cat([low, edge]).amin(), torch.cat([high, -edge]).amax()])
    nonfinite = described[:, -1].sum(dtype=torch.float64)
    m2s = member @ gaps**2
    return {"counts": counts.long(), "means": means, "m2s": m2s, "ends": ends, "nonfinite": nonfinite}


def _gridded(rows: Tensor, finite: Tensor | None, shift: Tensor) -> dict[str, Tensor]:
    """Return kept rows in float16, their offset and scale, on the grid of ``scores.statistics.sent``."""
    mean = rows.sum(0) / (max(len(rows), 1) if finite is None else finite.sum().clamp(min=1))
    if len(rows):
        below, above = (
            rows if finite is None else torch.where(finite[:, None], rows, end)
            for end in (-torch.inf, torch.inf)
        )
        widest = torch.maximum(below.amax(0) - mean, mean - above.amin(0)).double().clamp_(1e-30, 1e300)
    else:
        widest = torch.full_like(shift, 1e-30)
    spread = _power_above(widest)
    offset = (torch.round((mean + shift) / (2 * spread)) * 2 * spread).float()
    scale = (spread / 2**13).float()
    rows = rows.sub_((offset - shift).float()).div_(scale).half()
    return {"kept": rows, "offset": offset, "scale": scale}


def _power_above(numbers: Tensor) -> Tensor:
    """Return the smallest powers of two that are not less than positive numbers in float64.

    They are made of the bits, for a device may round powers.
    """
    bits = numbers.view(torch.int64)
    exponent = (bits >> 52) + ((bits & ((1 << 52) - 1)) != 0)
    return (exponent << 52).view(torch.float64)


def _centred(
    x: Tensor, mean: Tensor, sketch: str, seed: int, units: Tensor, kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return sketched rows minus a shift, and the shift in float64."""
    if not sketch:
        z = torch.empty(x.shape, dtype=kind, device=x.device)
        return torch.sub(x, mean, out=z), mean.double()
    matrix = _matrix(x.shape[1], sketch, seed, x.device, x.dtype if x.dtype in _HALVES else kind)
    if not matrix.is_sparse and x.dtype in _HALVES:
        # Products with powers of two, the entries of a sketch, are exact; centred rows have more digits.
        if len(units):
            matrix = torch.cat([matrix, _members(units, len(matrix), x.dtype)], 1)
        shift = _times(_halves_of(mean, x.dtype), matrix).sum(0)
        return _times(x, matrix).sub_(shift), shift.double()
    shift = _sketched(mean.double()[None], matrix.double(), units)[0]
    blocks = torch.split(x, _BLOCK)
    return torch.cat([_sketched(block.to(kind) - mean, matrix, units) for block in blocks]), shift


def _halves_of(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return three rows of half precision that add up to numbers in float32, but for its last digit."""
    parts = []
    for _ in range(3):
        parts.append(numbers.to(dtype))
        numbers = numbers - parts[-1].to(numbers.dtype)
    return torch.stack(parts)


def _best(x: Tensor, mean: Tensor, finite: Tensor | None, columns: list[tuple[Tensor, int]]) -> Tensor:
    """Return the features with the largest share of variance between the classes of one of the targets.

    The variance is that of all rows, also of held-out ones, whose classes do not count in it. Rows of half
    precision on a GPU are not centred before, which copies them in float32: what is then lost of a variance
    is about what their rounding adds to it.
    """
    raw = x.dtype in _HALVES and _adds_halves(x.device)
    kind = x.dtype if raw else mean.dtype
    members = [_members(codes, classes, kind) for codes, classes in columns]
    member = torch.cat(members) if finite is None else torch.cat(members) * finite
    totals = torch.zeros((len(member), len(mean)), dtype=torch.float64, device=x.device)
    squares = torch.zeros(len(mean), dtype=torch.float64, device=x.device)
    step = _step(x) if raw else _BLOCK
    for start in range(0, len(x), step):
        rows, own = x[start : start + step], member[:, start : start + step]
        if not raw:
            rows = rows.to(kind) - mean
            rows = rows if finite is None else rows * finite[start : start + step, None]
        totals += _times(own, rows) if raw else own @ rows
        squares += torch.linalg.vector_norm(rows, dim=0, dtype=mean.dtype).double() ** 2
    counts = member.sum(1, dtype=torch.float32).double()
    every = max(len(x), 1) if finite is None else finite.sum().clamp(min=1)
    gap = mean.double() if raw else torch.zeros_like(squares)
    totals -= counts[:, None] * gap
    variance = torch.maximum(squares / every - gap**2, squares / every * _ROUNDING).clamp_(min=1e-30)
    best, sizes = torch.zeros_like(squares), [classes for _, classes in columns]
    for total, n in zip(torch.split(totals, sizes), torch.split(counts, sizes), strict=True):
        all_ = n.sum().clamp(min=1)
        between = (total**2 / n.clamp(min=1)[:, None]).sum(0) - total.sum(0) ** 2 / all_
        best = torch.maximum(best, between / (variance * all_))
    return best.topk(UNITS).indices.sort().values


def _members(codes: Tensor, classes: int, kind: torch.dtype) -> Tensor:
    """Return a matrix (classes, rows) of ones where a row is of a class."""
    return (torch.arange(classes, device=codes.device)[:, None] == codes).to(kind)


def _products(z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of some rows and that of their outer products, in float64."""
    total = torch.zeros(z.shape[1], dtype=torch.float64, device=z.device)
    gram = torch.zeros((z.shape[1], z.shape[1]), dtype=torch.float64, device=z.device)
    for some in torch.split(rows, _BLOCK):
        block = z.index_select(0, some)
        total += block.sum(0)
        gram += block.T @ block
    return total, gram


def _by_class(z: Tensor, finite: Tensor, codes: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the number of finite rows of each class, and their sums in float64."""
    totals = torch.zeros((classes, z.shape[1]), dtype=torch.float64, device=z.device)
    counts = torch.zeros(classes, dtype=torch.int64, device=z.device)
    step = _BLOCK if z.device.type == "cpu" else _MEMBERS // max(classes, 256)
    for part in zip(*(torch.split(one, step) for one in (z, finite, codes)), strict=True):
        block, good, some = part
        member = _members(some, classes, z.dtype)
        totals += member @ block  # of rows that are not finite there are zeros
        counts += (member * good).sum(1).long()
    return counts, totals


def _sketched(rows: Tensor, matrix: Tensor, units: Tensor) -> Tensor:
    """Return sketched rows and, beside them, single features."""
    sketched = (matrix @ rows.T.contiguous()).T if matrix.is_sparse else rows @ matrix.to(rows.dtype)
    return torch.cat([sketched, rows[:, units]], dim=1) if len(units) else sketched


def _times(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of two matrices of half precision in float32."""
    if _adds_halves(left.device):  # many times as fast
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


@cache
def _adds_halves(device: torch.device) -> bool:
    """Return whether products of half precision can be added in float32 on a device."""
    return device.type == "cuda" and hasattr(torch.ops.aten.mm, "dtype")


@lru_cache(maxsize=16)  # for each width, dtype and device
def _matrix(features: int, sketch: str, seed: int, device: torch.device, kind: torch.dtype) -> Tensor:
    """Return the matrix of a sketch: dense (features, PROJECTED), or sparse (PROJECTED, features)."""
    if sketch == "dense":
        return torch.from_numpy(dense_sketch(0, features, seed)).to(device, kind)
    columns, entries = sparse_sketch(0, features, seed)
    feature = np.repeat(np.arange(features), columns.shape[1])
    places = torch.from_numpy(np.stack([columns.reshape(-1), feature]))
    values = torch.from_numpy(entries.reshape(-1)).to(torch.float32 if kind in _HALVES else kind)
    matrix = torch.sparse_coo_tensor(places, values, (PROJECTED, features), check_invariants=False)
    return matrix.coalesce().to(device)


@lru_cache(maxsize=4)
def _upper(width: int, device: torch.device) -> Tensor:
    """Return the places of the upper triangle in a flattened square matrix."""
    row, column = torch.triu_indices(width, width, device=device)
    places: Tensor = row * width + column
    return places
