"""Compare two traces: the function ``compare``.

The passes are aligned (``core/analysis/alignment.py``). For every pair of tensors, their difference is
compared with the rounding error that has accumulated so far. To find out whether an operation makes a
difference or only propagates one, the operation of ``a`` is run on the inputs of ``b``. Where that is not
possible, an operation is taken to make a difference if its inputs do not differ, unless the operations of
``a`` up to there, run on the tensors of ``b``, show that rounding explains it; of a file, what only depth
excuses is judged so as well (``judging/``). From what differs the places are found where differences
originate (``origins/``), and the table (``table.py``) says why (``divergence.py``, ``report.py``).
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.analysis.alignment import align, in_order
from ...core.analysis.modules import same_modules
from ...core.errors import InputError, require
from ..results.trace import Trace
from .judging.crossed import crossed
from .judging.judge import judge
from .judging.layouts import layouts_differ
from .judging.mispaired import mispaired
from .judging.pairs import Pairs
from .judging.regrouped import regrouped
from .judging.results import other_results
from .judging.sides import Side
from .judging.step_by_step import judge_step_by_step
from .origins.idle import idle
from .origins.origins import origins
from .output_order import with_named_outputs
from .pairing.modules import (
    with_folded_norms,
    with_moved_results,
    with_returned,
    with_same_parameters,
    with_whole_outputs,
)
from .pairing.moves import with_last_moves, with_unmoved
from .pairing.names import are_crossed, rows_of_layers
from .pairing.renaming import are_named_otherwise, names_in_other, under_names
from .turned import Judged, is_second_first
from .values.differences import element_sums

if TYPE_CHECKING:
    from .table import Comparison


def compare(a: Trace, b: Trace) -> Comparison:
    """Find where two forward passes diverge, and by how much.

    The traces may be of two checkpoints, dtypes, devices or modes of a model, or of two implementations of
    one architecture, also in two frameworks or a model file (``read``). Images with the channels first are
    compared with images with the channels last, of another framework or as the shapes of the inputs tell.

    Args:
        a: A trace with saved values.
        b: Another one.

    Returns:
        A DataFrame with one row for each pair of tensors, in the order of ``a``; printing it shows a summary
        and the rows around the first difference. Its columns:

        - ``a``, ``b``: the labels; ``""`` for a tensor without a partner.
        - ``verdict``: ``"equal"`` (bit for bit), ``"close"`` (rounding explains the difference),
          ``"differs"``, ``"shape"`` (the shapes differ), ``"only in a"``, ``"only in b"``, ``"not saved"``.
        - ``is_source``: whether the operation itself makes a difference, not only its inputs; or a NaN or an
          infinity in one pass only, also out of rounding.
        - ``relative``: the norm of the difference divided by the larger norm.
        - ``rounding_error``: the relative difference that rounding in the coarser dtype explains so far.
        - ``isolated_error``: the relative difference between the operation of ``a``, run on the inputs of
          ``b``, and the result of ``b``; if only the operations of ``b`` can be run, the other way around.
          NaN if that could not be run: a loaded trace, other operations. If rounding is amplified, or in a
          file depth alone explains a difference, it is known of all operations since what both have.
        - ``max_abs``: the largest absolute difference.
        - ``cosine``: the cosine similarity.
        - ``fraction_different``: the fraction of elements that are not equal; 0.0 does not equal -0.0.
        - ``nan_a``, ``nan_b``: the number of NaN.
        - ``region``: of a tensor without a partner, the address in ``a`` of the module around it whose
          outputs were paired: the module took other steps there. ``""`` if there is none.
        - ``shape_a``, ``shape_b``, ``dtype_a``, ``dtype_b``, ``module_a``, ``module_b``.

        ``.attrs["first"]`` is the first operation that makes a difference which reaches the outputs, as a
        dict of ``a``, ``b``, ``module`` and ``why``; None if there is none. If the passes ran other
        operations there, it is the last of them, and the module is the innermost around all of them that
        have an effect on these inputs; of a file, it is that of the last one of the model. Of an operation
        that is only given another tensor, it is the module that gives it the tensor.
        ``.attrs["summary"]`` is the summary in words.

        ``.agree`` is True if every output of both was compared and nothing differs, no tensor and no constant
        that both state, no parameter that only one uses, whether or not that reaches the outputs;
        ``.modules`` has one row for each pair of module calls.

    Raises:
        InputError: If an argument is not a trace, or a trace has no saved values.
        MissingExtraError: If pandas is not installed.

    Example:
        >>> from intus import trace
        >>> x = torch.linspace(-1, 1, 8)
        >>> tanh = trace(torch.nn.GELU(approximate="tanh"), x)
        >>> compare(trace(torch.nn.GELU(), x), tanh).attrs["first"]["why"]
        ["approximate is 'none' in a, 'tanh' in b"]
    """
    require("pandas", extra="inspect", why="to compare traces")
    from .table import Comparison

    for name, one in (("a", a), ("b", b)):
        if not isinstance(one, Trace):
            raise InputError(
                f"compare takes two traces, and {name} is of type {type(one).__name__}. "
                "Write compare(trace(model, inputs), trace(other, inputs))."
            )
        if not one.values:
            is_file = "format" in one.graph.facts
            how = (
                "Read the file with inputs: read(path, x)." if is_file else "Trace the model with save='all'."
            )
            raise InputError(f"Trace {name} has no values to compare. {how}")
    with _undisturbed():
        judged = _judged(b, a).turned() if is_second_first(a, b) else _judged(a, b)
        return Comparison.of(a, b, *judged)


def _undisturbed() -> AbstractContextManager[Any]:
    """Return a context in which no active trace of torch and no autograd graph records the comparison."""
    if sys.modules.get("torch") is None:
        return nullcontext()
    from .judging.crossing import undisturbed

    return undisturbed()


def _judged(a: Trace, b: Trace) -> Judged:
    """Return the pairs of two passes, and what was found of them.

    Names decide where equal values would pair layers against them and what follows differs for it. Modules
    that have other names in each pass are judged as if they had the same.
    """
    sums, names = (_sums(a), _sums(b)), same_modules(a.graph, b.graph)
    rows, other = None, b
    if are_named_otherwise(a.graph, b.graph):
        rows = _paired(a, b, sums)
        names = names_in_other(a, b, rows, sums)
        if names:
            rows, other = None, under_names(b, names, a)
    sides = Side(a), Side(other)
    pairs, found = _judged_as(sides, rows or _paired(a, other, sums))
    layers = rows_of_layers(a.graph, other.graph)
    if are_crossed(pairs, found.origins, layers):
        _, found = _judged_as(sides, _paired(a, other, sums, layers))
    return found._replace(names=names)


def _judged_as(sides: tuple[Side, Side], rows: list[tuple[int, int]]) -> tuple[Pairs, Judged]:
    """Return what is found of two passes whose rows correspond in this way, but for those that do not."""
    a, b = (side.graph for side in sides)
    pairs, seen = judge(*sides, rows), {tuple(rows)}
    while others := (
        crossed(pairs)
        or other_results(pairs)
        or regrouped(pairs)
        or dict.fromkeys((pairs[n].a for n in mispaired(pairs)), -1)
    ):
        partner = {pair.a: others.get(pair.a, pair.b) for pair in pairs if pair.a >= 0}
        rows = in_order([partner[i] for i in range(len(a.ops))], len(b.ops))
        if tuple(rows) in seen:  # each of two ways to pair them is refused for the other
            break
        pairs = judge(*sides, rows)
        seen.add(tuple(rows))
    rows = [(pair.a, pair.b) for pair in pairs]
    wrong_steps = judge_step_by_step(pairs)
    without_use = idle(a, b, rows)
    found = origins(pairs, wrong_steps, without_use)
    return pairs, Judged([*pairs], found, pairs.modules, without_use, {})


def _paired(
    a: Trace,
    b: Trace,
    sums: tuple[np.ndarray, np.ndarray],
    layers: tuple[np.ndarray, np.ndarray] | None = None,
) -> list[tuple[int, int]]:
    """Return the rows of two passes that correspond to each other; -1 where there is none.

    Args:
        a: The first trace.
        b: The second trace.
        sums: What ``_sums`` returns of each.
        layers: The layers that rows ran in, where no row of one corresponds to that of another.
    """
    coarse = any("16" in meta.dtype or "8" in meta.dtype for t in (a, b) for meta in t.graph.metas)
    near, any_layout = 1e-2 if coarse else 1e-3, layouts_differ(a.graph, b.graph)
    pairs = align(a.graph, b.graph, sums, near=near, any_layout=any_layout, apart=layers)
    pairs = with_folded_norms(a.graph, b.graph, pairs)
    pairs = with_whole_outputs(a.graph, b.graph, pairs)
    pairs = with_moved_results(a.graph, b.graph, pairs, sums)
    pairs = with_unmoved(a, b, with_last_moves(a, b, pairs))
    pairs = with_returned(a.graph, b.graph, pairs, sums, any_layout=any_layout)
    pairs = with_same_parameters(a.graph, b.graph, pairs)
    return with_named_outputs(a.graph, b.graph, pairs)


def _sums(trace: Trace) -> np.ndarray:
    """Return Σ|x|, Σx² and Σx of every row, NaN for those not saved."""
    sums = np.full((len(trace.graph.ops), 3), np.nan)
    for row, value in trace.values.items():
        sums[row] = element_sums(value)
    return sums
