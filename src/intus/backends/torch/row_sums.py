"""Sums over the rows of a tensor on its device, in float32 products that are added in float64.

Rows are centred before they are multiplied, block by block. So a large mean costs no digits, and the sums of
float32 products agree with those in float64 to seven digits. Only half precision is sketched as it is.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

from ...core.projection import PROJECTED
from ...core.sketch import UNITS, dense_sketch, sparse_sketch
from ..row_sums import ClassSums, Products, RowPlan, RowSums
from .random_projection import summary

_BLOCK = 4096  # rows multiplied at once
_HALVES = (torch.float16, torch.bfloat16)
_EPS = 1e-30  # what a layer norm adds to a variance
_DENSE = 1 << 15  # features up to which a dense sketch is small enough for a GPU's memory


def has_doubles(tensor: Tensor) -> bool:
    """Return whether the tensor's device computes in float64, which Apple's does not."""
    return tensor.device.type != "mps"


def row_sums(tensor: Tensor, plan: RowPlan, axis: int, sketch: str = "") -> RowSums:
    """Compute the sums of a tensor.

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
        x = x.movedim(axis, 0)[: plan.items]
        x = x.flatten(0, 1) if plan.positions else x.flatten(1)
        return _of_rows(x, plan, sketch)


def _of_rows(x: Tensor, plan: RowPlan, sketch: str) -> RowSums:
    device, features = x.device, x.shape[1]
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    wide = features > PROJECTED
    sketch = (sketch or ("dense" if device.type != "cpu" and features <= _DENSE else "sparse")) * wide
    parts = [_summary(block, kind) for block in torch.split(x, _BLOCK)]
    described = torch.cat(parts) if parts else x.new_zeros((0, 8), dtype=kind)
    finite = described[:, -1] == 0
    alive = torch.zeros(features, dtype=torch.bool, device=device)
    total = torch.zeros(features, dtype=torch.float64, device=device)
    everything = bool(finite.all())
    for block, good in zip(torch.split(x, _BLOCK), torch.split(finite, _BLOCK), strict=True):
        rows = block if everything else block[good]
        if len(rows):
            alive |= torch.linalg.vector_norm(rows, torch.inf, dim=0) != 0
        total += rows.sum(0, dtype=kind)  # a sum in float64 would first copy all rows to float64
    mean = (total / max(int(finite.sum()), 1)).to(kind)
    matrix = _matrix(features, sketch, plan.seed, device, kind) if wide else None
    units = torch.from_numpy(plan.units).to(device)
    shift = _sketched(mean.double()[None], None if matrix is None else matrix.double(), units)[0]
    if matrix is not None and not matrix.is_sparse and x.dtype in _HALVES:
        # Products with powers of two, the entries of a sketch, are exact; centred rows have more digits.
        of_blocks = [_sketched(block, matrix, units) - shift.to(kind) for block in torch.split(x, _BLOCK)]
    else:
        of_blocks = [_sketched(block.to(kind) - mean, matrix, units) for block in torch.split(x, _BLOCK)]
    z = torch.cat(of_blocks)
    if not everything:
        z[~finite] = 0.0
    ok = finite.cpu().numpy()
    first = plan.products[0] & ok if plan.products else np.zeros(len(ok), bool)
    return RowSums(
        features,
        sketch,
        _host(shift),
        _host(described.float()),
        _host(alive),
        _host(z[torch.from_numpy(plan.kept[ok[plan.kept]]).to(device)].float()),
        tuple(_products(z, mask & ok) for mask in plan.products),
        tuple(_by_class(z, np.where(first, codes, -1), classes) for codes, classes in plan.classes),
        plan.units[: len(plan.units) * wide],
        _best(x, mean, [(np.where(ok, codes, -1), classes) for codes, classes in plan.chosen_by])
        if features > PROJECTED + UNITS
        else np.empty(0, np.int64),
    )


def _summary(rows: Tensor, kind: torch.dtype) -> Tensor:
    """Compute the statistics of ``SUMMARY`` for each row.

    On a GPU, rows of half precision are not copied in float32 first: a layer norm computes their mean and
    variance in float32, in one pass.
    """
    if rows.device.type != "cuda" or rows.dtype not in _HALVES or not rows.shape[1]:
        return summary(rows.to(kind))
    size, norm = rows.shape[1], torch.linalg.vector_norm
    _, mean, root = torch.native_layer_norm(rows, (size,), None, None, _EPS)
    mean, root = mean.view(-1).double(), root.view(-1).double()
    spread = (root**-2 - _EPS).clamp_(min=0)
    length = ((spread + mean**2) * size).sqrt()
    low, high = torch.aminmax(rows, dim=1)
    mean_abs = norm(rows, 1, dim=1, dtype=kind) / size
    zeros = 1 - norm(rows, 0, dim=1, dtype=kind) / size
    nonfinite = torch.zeros_like(mean)
    affected = ~torch.isfinite(mean_abs)
    if affected.any():
        nonfinite[affected] = (~torch.isfinite(rows[affected])).sum(1).to(nonfinite.dtype)
    columns = [mean, mean_abs, spread, length, zeros, low, high, nonfinite]
    return torch.stack([column.to(kind) for column in columns], 1)


def _best(x: Tensor, mean: Tensor, columns: list[tuple[np.ndarray, int]]) -> np.ndarray:
    """Return the features with the largest share of variance between the classes of one of the targets."""
    best = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
    for codes, classes in columns:
        rows = np.flatnonzero(codes >= 0)
        squares = torch.zeros_like(best)
        totals = torch.zeros((classes, len(best)), dtype=torch.float64, device=x.device)
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            block = x[torch.from_numpy(some).to(x.device)].to(mean.dtype) - mean
            totals += _class_totals(codes[some], classes, block)
            squares += torch.linalg.vector_norm(block, dim=0).double() ** 2
        counts = torch.from_numpy(np.bincount(codes[rows], minlength=classes)).to(x.device)
        overall = totals.sum(0) ** 2 / max(len(rows), 1)
        between = (totals**2 / counts.clamp(min=1)[:, None]).sum(0) - overall
        best = torch.maximum(best, between / (squares - overall).clamp(min=1e-30))
    return np.sort(_host(best.topk(UNITS).indices)) if columns else np.empty(0, np.int64)


def _class_totals(codes: np.ndarray, classes: int, rows: Tensor) -> Tensor:
    """Return the sum of the rows of each class."""
    member = torch.zeros((classes, len(codes)), dtype=rows.dtype, device=rows.device)
    at = torch.from_numpy(codes.astype(np.int64)).to(rows.device)
    member[at, torch.arange(len(codes), device=rows.device)] = 1
    return _times(rows.T, member.T).T


def _products(z: Tensor, mask: np.ndarray) -> Products:
    rows = torch.from_numpy(np.flatnonzero(mask)).to(z.device)
    total = torch.zeros(z.shape[1], dtype=torch.float64, device=z.device)
    gram = torch.zeros((z.shape[1], z.shape[1]), dtype=torch.float64, device=z.device)
    for some in torch.split(rows, _BLOCK):
        block = z[some]
        total += block.sum(0)
        gram += block.T @ block
    return Products(len(rows), _host(total), _host(gram.float() if z.dtype == torch.float32 else gram))


def _by_class(z: Tensor, codes: np.ndarray, classes: int) -> ClassSums:
    rows = np.flatnonzero(codes >= 0)
    totals = torch.zeros((classes, z.shape[1]), dtype=torch.float64, device=z.device)
    for start in range(0, len(rows), _BLOCK):
        some = rows[start : start + _BLOCK]
        totals += _class_totals(codes[some], classes, z[torch.from_numpy(some).to(z.device)])
    return ClassSums(np.bincount(codes[rows], minlength=classes), _host(totals))


def _sketched(rows: Tensor, matrix: Tensor | None, units: Tensor) -> Tensor:
    """Return sketched rows and, beside them, single features; rows as they are without a matrix."""
    if matrix is None:
        return rows
    sketched = (matrix @ rows.T.contiguous()).T if matrix.is_sparse else _times(rows, matrix)
    return torch.cat([sketched, rows[:, units].to(sketched.dtype)], dim=1) if len(units) else sketched


def _times(rows: Tensor, simple: Tensor) -> Tensor:
    """Return ``rows @ simple``, in float32 for rows of half precision.

    Args:
        rows: The rows.
        simple: A matrix of powers of two and zeros, which every dtype has exactly.
    """
    if rows.dtype not in _HALVES:
        return rows @ simple.to(rows.dtype)
    if _adds_halves(rows.device):  # many times as fast
        return torch.mm(rows, simple.to(rows.dtype), out_dtype=torch.float32)
    return rows.float() @ simple.float()


@cache
def _adds_halves(device: torch.device) -> bool:
    """Return whether products of half precision can be added in float32 on a device."""
    return device.type == "cuda" and hasattr(torch.ops.aten.mm, "dtype")


@lru_cache(maxsize=4)
def _matrix(features: int, sketch: str, seed: int, device: torch.device, kind: torch.dtype) -> Tensor:
    """Return the matrix of a sketch: dense (features, PROJECTED), or sparse (PROJECTED, features)."""
    if sketch == "dense":
        return torch.from_numpy(dense_sketch(0, features, seed)).to(device, kind)
    columns, entries = sparse_sketch(0, features, seed)
    feature = np.repeat(np.arange(features), columns.shape[1])
    places = torch.from_numpy(np.stack([columns.reshape(-1), feature]))
    values = torch.from_numpy(entries.reshape(-1)).to(kind)
    matrix = torch.sparse_coo_tensor(places, values, (PROJECTED, features), check_invariants=False)
    return matrix.coalesce().to(device)


def _host(tensor: Tensor) -> np.ndarray:
    """Copy a tensor that nothing else refers to."""
    return np.asarray(tensor.cpu().numpy())
