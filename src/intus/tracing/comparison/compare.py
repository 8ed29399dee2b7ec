"""Compare two traces: the function ``compare``.

The passes are aligned (``core/analysis/alignment.py``). For every pair of tensors, their difference is
compared with the rounding error that has accumulated so far. To find out whether an operation makes a
difference or only propagates one, the operation of ``a`` is run on the inputs of ``b``. Where that is not
possible, an operation is taken to make a difference if its inputs do not differ, unless the operations of
``a`` up to there, run on the tensors of ``b``, show that rounding explains it; of a file, what only depth
excuses is judged so as well (``steps.py``).
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.analysis.alignment import align, in_order
from ...core.analysis.flops import MOVES
from ...core.analysis.walks import ancestors
from ...core.errors import InputError, require
from ...core.graph import BUFFER, CONSTANT, OP, OUTPUT, Graph
from ...core.vocabularies import KINDS, common_types, is_translated
from ..results.trace import Trace
from ..validation.uninitialized import UNINITIALIZED
from .pairing.modules import (
    ModulePair,
    pair_modules,
    with_folded_norms,
    with_moved_results,
    with_returned,
    with_whole_outputs,
)
from .pairing.moves import with_last_moves
from .pairing.regions import of_inputs
from .parameters.parameters import different_parameters
from .turned import Judged, is_second_first
from .unseen.passes import same_elements
from .unseen.without_effect import idle
from .values.differences import (
    ROUNDINGS,
    SAME,
    Difference,
    difference,
    element_sums,
    rounding,
    smaller_relative,
)
from .values.elements import Elements, eps_of, plain, value_of
from .values.settings import RECURRENT, different_constants

if TYPE_CHECKING:
    from .judging.crossing import Calls
    from .judging.steps import Step, Steps
    from .table import Comparison

EQUAL, CLOSE, DIFFERS, SHAPE = "equal", "close", "differs", "shape"
ONLY_A, ONLY_B, UNSAVED = "only in a", "only in b", "not saved"
_UNKNOWN = float("nan")
#: Operations that return the same for many inputs, by the names of PyTorch or ONNX: they hide differences.
#: Any other may make up for one (``x * 2 / 2``), or is not known to hide it.
_HIDING = frozenset(
    {"layer_norm", "layer_normalization", "skip_layer_normalization", "simplified_layer_normalization"}
    | {"batch_norm", "batch_normalization", "group_norm", "group_normalization", "instance_norm"}
    | {"instance_normalization", "rms_norm", "rms_normalization", "normalize", "local_response_norm"}
    | {"softmax", "log_softmax", "softmin", "argmax", "argmin", "max", "min", "amax", "amin", "reduce_max"}
    | {"reduce_min", "relu", "relu6", "clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "hardsigmoid"}
    | {"hard_sigmoid", "threshold", "hardshrink", "softshrink", "maximum", "minimum", "sign", "round"}
    | {"floor", "ceil", "trunc", "max_pool", "max_pool1d", "max_pool2d", "max_pool3d", "eq", "ne", "lt", "le"}
    | {"gt", "ge", "equal", "less", "greater", "less_or_equal", "greater_or_equal", "topk", "sort", "argsort"}
)
#: Operations that choose between elements, and so may leave out those that differ.
_CHOOSING = frozenset({"where", "masked_fill"})
_MOST_AXES = 4
#: The largest number of operations of both sides in which the ones that make a difference are looked for.
_MOST_OF_A_REGION = 40
#: Frameworks whose images have their channels last.
CHANNELS_LAST = frozenset({"jax", "keras", "tensorflow"})


def compare(a: Trace, b: Trace) -> Comparison:
    """Find where two forward passes diverge, and by how much.

    The traces may be of two checkpoints, dtypes, devices or modes of a model, or of two implementations of
    one architecture, also in two frameworks or a model file (``read``). Images with the channels first are
    compared with images of another framework with the channels last.

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
        operations there, it is the last of them. ``.attrs["summary"]`` is the summary in words.

        ``.agree`` is True if every output was compared and nothing differs, no tensor and no constant that
        both state, no parameter that only one uses, whether or not that reaches the outputs; ``.modules`` has
        one row for each pair of module calls.

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


def _judged(a: Trace, b: Trace) -> Judged:
    """Return the pairs of two passes, and what was found of them."""
    side_a, side_b = _Side(a), _Side(b)
    coarse = any("16" in meta.dtype or "8" in meta.dtype for g in (a.graph, b.graph) for meta in g.metas)
    sums = side_a.element_sums(), side_b.element_sums()
    any_layout = _layouts_differ(a.graph, b.graph)
    pairs = align(a.graph, b.graph, sums, near=1e-2 if coarse else 1e-3, any_layout=any_layout)
    pairs = with_whole_outputs(a.graph, b.graph, with_folded_norms(a.graph, b.graph, pairs))
    pairs = with_moved_results(a.graph, b.graph, pairs, sums)
    pairs = with_returned(a.graph, b.graph, with_last_moves(a, b, pairs))
    judge = _Judge(side_a, side_b, pairs)
    while wrong := judge.mispaired():
        partner = {i: -1 if n in wrong else j for n, (i, j) in enumerate(pairs) if i >= 0}
        pairs = in_order([partner[i] for i in range(len(a.graph.ops))], len(b.graph.ops))
        judge = _Judge(side_a, side_b, pairs)
    judge.judge_steps()
    return Judged(judge.pairs, judge.origins(), judge.modules, judge.idle)


@dataclass(slots=True)
class Pair:
    """Two rows that correspond to each other, with what was found.

    Attributes:
        a: The row of ``a``; -1 if there is none.
        b: The row of ``b``; -1 if there is none.
        verdict: The verdict, as in the table.
        difference: The difference of the values; None if they were not compared.
        rounding_error: The relative difference that rounding explains so far.
        isolated_error: The relative difference that the operation makes by itself; NaN if unknown.
        is_source: Whether the operation makes more of a difference than rounding, or out of rounding a NaN or
            an infinity in one pass only.
        proven: Whether ``is_source`` was shown by running the operation.
        is_explained: Whether rounding explains the difference of the values, or, without values, those of all
            parents.
        unpaired_parents: The numbers of pairs without a partner that propagate a difference to this one.
        other_type: Whether the two operations have different types.
        step: What was found by running the operations of ``a`` that lead here; None if they were not, or do
            not show that rounding explains the difference.
        smaller: The largest relative difference of the elements that are much smaller than others, which the
            norm does not show.
        by_depth: Whether only the rounding that may have added up so far explains the difference, because
            those operations could not be run.
    """

    a: int
    b: int
    verdict: str = UNSAVED
    difference: Difference | None = None
    rounding_error: float = 0.0
    isolated_error: float = _UNKNOWN
    is_source: bool = False
    proven: bool = False
    is_explained: bool = True
    unpaired_parents: list[int] = field(default_factory=list)
    other_type: bool = False
    step: Step | None = None
    smaller: float = 0.0
    by_depth: bool = False


class Origin(NamedTuple):
    """The place where a difference originates.

    Attributes:
        pair: The number of the first pair that shows it.
        region: The numbers of the pairs that led there without a partner, because the passes ran other
            operations; empty if the operation of the pair itself makes the difference.
    """

    pair: int
    region: list[int]


class _Side:
    """One of the two traces."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.graph = trace, trace.graph
        self.calls = _calls_of(trace)
        self._uninitialized = _uninitialized(trace.graph)

    def element_sums(self) -> np.ndarray:
        """Return Σ|x|, Σx² and Σx of every row, NaN for those not saved."""
        sums = np.full((len(self.graph.ops), 3), np.nan)
        for row, value in self.trace.values.items():
            sums[row] = element_sums(value)
        return sums

    def value(self, row: int) -> Elements | None:
        """Return the value of a row to compare; None if it was not saved or is uninitialized memory."""
        value = self.trace.values.get(row)
        uninitialized = self.graph.types[int(self.graph.ops.type[row])] in self._uninitialized
        return None if value is None or uninitialized else plain(value)

    def depends_on_inputs(self, row: int) -> bool:
        """Return whether the values of a row depend on those of an input."""
        return row in self._of_inputs

    @cached_property
    def _of_inputs(self) -> set[int]:
        return of_inputs(self.graph)

    def has_state(self, row: int, value: Elements | None, allowed: float) -> bool:
        """Return whether an operation uses a parameter that is near a value, or may be.

        Args:
            row: The row of the operation.
            value: The value; None if it is not known.
            allowed: The relative difference up to which two values are near.
        """
        states = self.states(row)
        return value is None or any(one is None or not _are_apart(value, one, allowed) for one in states)

    def states(self, row: int) -> list[Elements | None]:
        """Return the parameters that an operation uses; None for one whose value is not known."""
        addresses = (self.graph.params[number].address for number in self.graph.row_params.get(row, ()))
        return [value_of(self.trace, address) for address in addresses]

    def changed(self, row: int) -> bool:
        """Return whether a rerun replaced the row's value."""
        return self.graph.label(row) in self.graph.facts.get("changed", ())

    def parents_by_arg(self, row: int) -> dict[str, int]:
        """Return the row of the parent for each argument's name."""
        return dict(self.graph.parents_by_argument(row))


def _are_apart(x: Elements, y: Elements, allowed: float) -> bool:
    """Return whether two operands are others, not only in another order or shape."""
    if x.array.shape == y.array.shape:
        return difference(x, y).relative > allowed
    sums = [float(np.abs(one.array).sum(dtype=np.float64)) for one in (x, y)]
    return x.array.size != y.array.size or not math.isclose(*sums, rel_tol=SAME)


def _has_near(value: Elements, states: Iterable[Elements | None]) -> bool:
    """Return whether a value is among those of parameters, but for rounding."""
    return any(one is not None and not _are_apart(value, one, rounding(value, one)) for one in states)


def _undisturbed() -> AbstractContextManager[Any]:
    """Return a context in which no active trace of torch and no autograd graph records the comparison."""
    if sys.modules.get("torch") is None:
        return nullcontext()
    from .judging.crossing import undisturbed

    return undisturbed()


def _calls_of(trace: Trace) -> Calls | None:
    """Return the calls of a trace if they can be run again, which only those of PyTorch can."""
    if trace._replays is None:
        return None
    from .judging.crossing import calls_of

    return calls_of(trace)


def _uninitialized(graph: Graph) -> Collection[str]:
    """Return the types of operations whose result is uninitialized memory."""
    return UNINITIALIZED if graph.facts.get("framework") == "torch" else ()


def _layouts_differ(a: Graph, b: Graph) -> bool:
    """Return whether the images of one pass may have their channels last, and those of the other first."""
    frameworks = {a.facts.get("framework"), b.facts.get("framework")}
    return len(frameworks) == 2 and not frameworks.isdisjoint(CHANNELS_LAST)


def _is_one_pass(a: Graph, b: Graph) -> bool:
    """Return whether one trace is a rerun of the other, so that unchanged values are equal bit for bit."""
    changed = "changed" in a.facts or "changed" in b.facts
    return changed and a.facts.get("started") == b.facts.get("started")


class _Judge:
    """Judges the pairs in order of execution.

    Attributes:
        pairs: The pairs, with what was found.
    """

    def __init__(self, a: _Side, b: _Side, pairs: list[tuple[int, int]]) -> None:
        self.a, self.b = a, b
        self.one_pass = _is_one_pass(a.graph, b.graph)
        self.layouts_differ = _layouts_differ(a.graph, b.graph)
        self.pairs = [Pair(i, j) for i, j in pairs]
        self.modules = pair_modules(a.graph, b.graph, pairs)
        self._pair_of_a = {i: number for number, (i, _) in enumerate(pairs) if i >= 0}
        self._pair_of_b = {j: number for number, (_, j) in enumerate(pairs) if j >= 0}
        self._module_of = {n: module.a for module in self.modules for n in module.unpaired}
        self._moved_values: dict[int, Elements] = {}
        self._wrong_steps: dict[int, list[int]] = {}
        self._apart: set[int] = set()
        for pair in self.pairs:
            self._judge(pair)
            if pair.difference is not None and pair.is_explained and self._steps_so_far is not None:
                self._steps_so_far.add(pair.a, pair.b)
            elif not pair.is_explained:
                self._apart.add(pair.a)

    def _parents(self, pair: Pair) -> list[int]:
        """Return the numbers of the pairs that either of two rows was computed from."""
        parents_a = [self._pair_of_a[row] for row in self.a.graph.parents(pair.a)] if pair.a >= 0 else []
        parents_b = [self._pair_of_b[row] for row in self.b.graph.parents(pair.b)] if pair.b >= 0 else []
        return list(dict.fromkeys(parents_a + parents_b))

    def _judge(self, pair: Pair) -> None:
        parents = self._parents(pair)
        x = self.a.value(pair.a) if pair.a >= 0 else None
        y = self.b.value(pair.b) if pair.b >= 0 else None
        eps = 0.0 if self.one_pass else rounding(*(t for t in (x, y) if t is not None))
        inherited = max((self.pairs[n].rounding_error for n in parents), default=0.0)
        pair.rounding_error = (inherited**2 + eps**2) ** 0.5
        pair.is_explained = all(self.pairs[n].is_explained for n in parents)
        if pair.a < 0 or pair.b < 0:
            pair.verdict = ONLY_A if pair.b < 0 else ONLY_B
        elif x is not None and y is not None:
            own, y = y, self._moved(pair, x, self._laid_out(pair, x, y))
            if y is not own:
                self._moved_values[pair.a] = y
            if x.array.shape != y.array.shape:
                # Operations of two modules need not correspond, and then their operands do not either.
                if self._are_in_one_module(pair):
                    pair.unpaired_parents = self._unpaired_parents(pair, parents, beyond=False)
                is_source = pair.is_explained and not pair.unpaired_parents
                pair.verdict, pair.is_source, pair.is_explained = SHAPE, is_source, False
            else:
                self._judge_values(pair, x, y, parents)

    def _laid_out(self, pair: Pair, x: Elements, y: Elements) -> Elements:
        """Return ``y``, with its channels moved as in another framework if that is nearer to ``x``.

        Inside of a module a framework may give a tensor axes of length 1, for which others broadcast it.
        """
        is_one = x.array.size == 1 == y.array.size and is_translated(self.b.graph)
        if not (self.layouts_differ or is_one):
            return y
        is_inside = all(
            graph.ops.kind[row] == OP and row not in graph.row_exits for graph, row in self._rows(pair)
        )
        if (
            is_inside
            and x.array.shape != y.array.shape
            and x.array.squeeze().shape == y.array.squeeze().shape
        ):
            return y._replace(array=y.array.reshape(x.array.shape))
        if not self.layouts_differ:
            return y
        if self._is_flattened(pair, x, y):
            return y._replace(array=np.ascontiguousarray(y.array).reshape(x.array.shape))
        if min(x.array.ndim, y.array.ndim) < 3:
            return y
        moved = [y, *(y._replace(array=np.moveaxis(y.array, *axes)) for axes in ((1, -1), (-1, 1)))]
        fitting = [one for one in moved if one.array.shape == x.array.shape]
        return min(fitting, key=lambda one: difference(x, one).relative, default=y)

    def _is_flattened(self, pair: Pair, x: Elements, y: Elements) -> bool:
        """Return whether two products are one but that one side computes it on the rows of a matrix.

        So does Keras, which gives what a dense layer returns its shape afterwards.
        """
        kinds = {KINDS.get(kind, kind) for kind in (self._kind(*side) for side in self._rows(pair))}
        shapes = sorted((x.array.shape, y.array.shape), key=len)
        if kinds != {"matmul"} or not len(shapes[0]) == 2 < len(shapes[1]):
            return False
        return shapes[0] == (math.prod(shapes[1][:-1]), shapes[1][-1])

    def _moved(self, pair: Pair, x: Elements, y: Elements) -> Elements:
        """Return ``y`` in the shape of ``x``, if two operations computed the same elements in another shape.

        A file may compute a linear layer on the rows of a matrix and give the result its shape afterwards, or
        transpose a sum in place of what is added. That is no difference of operations that compute, but what
        an operation does that only moves elements.
        """
        rows = self._rows(pair)
        if "format" not in self.b.graph.facts or x.array.size != y.array.size:
            return y
        is_end = any(graph.ops.kind[row] != OP for graph, row in rows)
        if is_end or all(graph.type_of(row) in MOVES for graph, row in rows):
            return y
        if x.array.shape == y.array.shape and difference(x, y).relative <= SAME:
            return y
        sizes = [np.abs(one.array).sum(dtype=np.float64) for one in (x, y)]
        if not math.isclose(*sizes, rel_tol=SAME):
            return y
        orders = [y.array]
        if y.array.ndim == x.array.ndim <= _MOST_AXES:
            orders += [y.array.transpose(axes) for axes in itertools.permutations(range(y.array.ndim))]
        flat = (one for one in orders if one.shape == x.array.shape or one is y.array)
        moved = (y._replace(array=np.ascontiguousarray(one).reshape(x.array.shape)) for one in flat)
        return next((one for one in moved if difference(x, one).relative <= SAME), y)

    def _judge_values(self, pair: Pair, x: Elements, y: Elements, parents: list[int]) -> None:
        pair.difference = found = difference(x, y)
        if x.dtype == y.dtype and found.fraction_different == 0:
            pair.verdict, pair.rounding_error, pair.is_explained = EQUAL, 0.0, True
            return
        pair.smaller = smaller_relative(x, y)
        by_norm = found.relative > pair.rounding_error or found.lopsided
        beyond = by_norm or pair.smaller > pair.rounding_error
        pair.unpaired_parents = self._unpaired_parents(pair, parents, beyond=beyond)
        pair.other_type = self._types(pair)[0] != self._types(pair)[1]
        inherited = bool(pair.unpaired_parents) or not pair.is_explained
        isolated = self._isolated_error(pair, y)
        # An error of which rounding explains nothing is the same kernel's, on the same tensors.
        may_amplify = beyond if isolated is None else isolated[0] > isolated[1] > 0
        if may_amplify and pair.is_explained:
            step = self._step_to(pair, y)
            pair.step = None if step is None or step.is_wrong else step
            if step is None and isolated is None and beyond != by_norm:
                # What is left where large numbers cancel is rounding, which only the step could tell.
                beyond, pair.by_depth = by_norm, True
        if pair.step is not None:
            pair.isolated_error = pair.step.error
        elif isolated is None:
            pair.is_source = beyond and not inherited
            pair.is_explained = not beyond
        else:
            pair.isolated_error, allowed = isolated
            pair.proven = pair.isolated_error > allowed
            # From inputs that differ by rounding it may make an infinity of the other sign, or a NaN.
            pair.is_source = pair.proven or (found.lopsided and not inherited)
            pair.is_explained = not pair.is_source and not (beyond and inherited)
        pair.verdict = CLOSE if pair.is_explained else DIFFERS
        pair.rounding_error = (
            max(pair.rounding_error, found.relative) if pair.is_explained else pair.rounding_error
        )

    def _step_to(self, pair: Pair, y: Elements) -> Step | None:
        """Return the step that ends at a pair; None if it cannot be run.

        It begins at tensors that rounding explains, and may amplify what they differ by.
        """
        steps = self._steps_so_far
        return None if steps is None else steps.also(pair.a, pair.b, y).judge(pair.a)

    @cached_property
    def _steps_so_far(self) -> Steps | None:
        """The steps that may begin at the tensors judged so far; None if none can be run, or none rounds."""
        if self.a.calls is None or self.one_pass:
            return None
        from .judging.steps import Steps

        return Steps(self.a.calls, self.b.graph, {}, self._apart, self._value_of_file)

    def _are_in_one_module(self, pair: Pair) -> bool:
        """Return whether two operations ran in calls of modules that correspond."""
        calls = [int(graph.ops.call[row]) for graph, row in self._rows(pair)]
        one, other = (
            graph.call_address(call) if call >= 0 else ""
            for (graph, _), call in zip(self._rows(pair), calls, strict=True)
        )
        return one == other or any([module.a, module.b] == calls for module in self.modules)

    def _unpaired_parents(self, pair: Pair, parents: list[int], *, beyond: bool) -> list[int]:
        """Return the parents without a partner or value that propagate a difference.

        Those are the parents whose tensor differs from the one that the other operation received. If the two
        operations have different types, they are all such parents, provided that rounding does not explain
        the difference.
        """
        single = {n for n in parents if self.pairs[n].difference is None and self.pairs[n].is_explained}
        if not single:
            return []
        types = self._types(pair)
        if types[0] != types[1]:
            return sorted(single) if beyond else []
        rows_a, rows_b = self.a.parents_by_arg(pair.a), self.b.parents_by_arg(pair.b)
        found: set[int] = set()
        for name in rows_a.keys() | rows_b.keys():
            i, j = rows_a.get(name, -1), rows_b.get(name, -1)
            numbers = {self._pair_of_a.get(i, -1), self._pair_of_b.get(j, -1)} & single
            allowed = max((self.pairs[n].rounding_error for n in numbers), default=0.0)
            if min(i, j) >= 0:
                x, y = self.a.value(i), self.b.value(j)
                apart = x is not None and y is not None and _are_apart(x, y, allowed)
            else:
                side, row, other, user = (self.a, i, self.b, pair.b) if j < 0 else (self.b, j, self.a, pair.a)
                apart = side.depends_on_inputs(row) and not other.has_state(user, side.value(row), allowed)
            found |= numbers if apart else set()
        return sorted(found)

    def _isolated_error(self, pair: Pair, y: Elements) -> tuple[float, float] | None:
        """Return the difference of a's operation, run on b's inputs, from b's result, and its allowance.

        None if it cannot be run so, or a rerun replaced the value in ``a``.
        """
        a, b = self.a.calls, self.b.calls
        if a is None or b is None or pair.other_type or self.a.changed(pair.a):
            return None
        from .judging.crossing import isolated_error

        return isolated_error(a, pair.a, b, pair.b, y, edited=self.b.changed(pair.b))

    def _types(self, pair: Pair) -> list[str]:
        return [graph.type_of(row) for graph, row in self._rows(pair)]

    # -- steps of a file ---------------------------------------------------------------------------------

    def judge_steps(self) -> None:
        """Judge the pairs by themselves that depth alone excuses, if ``b`` is a file.

        The same for those that differ although the outputs do not, because what follows may make up for it. A
        pair that does not correspond differs as well, such as that of a mean with the sum of the other mean
        and an epsilon. But then what is computed from it does not, begun at what is before it.
        """
        calls, is_file = self.a.calls, "format" in self.b.graph.facts
        if not is_file or self.b.calls is not None:
            return
        agree = all(pair.is_explained for pair in self._outputs())
        sources = [pair for pair in self.pairs if agree and pair.is_source and pair.verdict == DIFFERS]
        sources = [pair for pair in sources if self.a.graph.ops.kind[pair.a] == OP]
        excused = [pair for pair in self.pairs if self._is_excused(pair)]
        if calls is None:
            for pair in excused:
                pair.by_depth = True
        if calls is None or not (excused or sources):
            return
        from .judging.steps import Steps

        close = {pair.a: pair.b for pair in self.pairs if pair.difference is not None and pair.is_explained}
        close |= {pair.a: pair.b for pair in sources}
        apart = {pair.a for pair in self.pairs if not pair.is_explained}
        steps = Steps(calls, self.b.graph, close, apart, self._value_of_file)
        for pair in sorted([*excused, *sources], key=lambda pair: pair.a):
            step = steps.judge(pair.a)
            if step is None:
                pair.by_depth = pair.verdict == CLOSE
                continue
            if step.is_wrong and not self._is_seen_after(pair, steps):
                steps.leave_out(pair.a)
                continue
            pair.isolated_error = step.error
            if not step.is_wrong:
                pair.step = pair.step or step
            else:
                pair.is_source = pair.proven = True
                pair.is_explained, pair.verdict = False, DIFFERS
                inside = [self._pair_of_a[row] for row in step.region.rows]
                inside += [self._pair_of_b[row] for row in step.region.others]
                self._wrong_steps[self._pair_of_a[pair.a]] = sorted({*inside})

    def _is_excused(self, pair: Pair) -> bool:
        """Return whether a result differs by more than the rounding of one operation explains."""
        kind = self.a.graph.ops.kind[pair.a]
        if pair.verdict != CLOSE or pair.difference is None or kind not in (OP, OUTPUT):
            return False
        dtypes = [graph.dtype_of(row) for graph, row in self._rows(pair)]
        return max(pair.difference.relative, pair.smaller) > ROUNDINGS * max(map(eps_of, dtypes))

    def _is_seen_after(self, pair: Pair, steps: Steps) -> bool:
        """Return whether a wrong step also shows in what is computed from it, begun at what is before it.

        What does not agree itself shows nothing: what follows may make up for both, as a scatter does for the
        values and the indices of another order. An output shows itself.
        """
        ops = self.a.graph.ops
        if ops.kind[pair.a] == OUTPUT:
            return True
        results = {self._pair_of_a[row] for row in np.flatnonzero(ops.event == ops.event[pair.a]).tolist()}
        through = {n for n in results if not self.pairs[n].is_explained} | {self._pair_of_a[pair.a]}
        waiting, ends = [*through], set[int]()
        while waiting:
            for n in self._children(self.pairs[waiting.pop()]) - through:
                if self.pairs[n].difference is not None and self.pairs[n].is_explained:
                    ends.add(n)
                else:
                    through.add(n)
                    waiting.append(n)
        without = {self.pairs[n].a for n in through}
        found = (steps.judge(self.pairs[n].a, without) for n in sorted(ends))
        return any(step is not None and step.is_wrong for step in found)

    def _value_of_file(self, row: int) -> Elements:
        """Return the value of the file that corresponds to a row of ``a``, in its shape."""
        moved = self._moved_values.get(row)
        value = moved or self.b.value(self.pairs[self._pair_of_a[row]].b)
        assert value is not None
        return value

    # -- pairs that are none ----------------------------------------------------------------------------

    def mispaired(self) -> set[int]:
        """Return the pairs that differ and do not correspond.

        What follows in one of the passes is the same as in the other, so that this tensor is too: the
        operation of another kind or shape that it was paired with corresponds to another. Where the outputs
        agree, such a pair remains, because an operation may hide its difference, unless one of the two uses
        a parameter that the other leaves to the operation after it, or both have the same elements in
        another order.
        """
        agree = all(pair.is_explained for pair in self._outputs())
        found = {n for n, pair in enumerate(self.pairs) if self._is_mispaired(pair)}
        found = {n for n in found if not agree or self._corresponds_to_another(self.pairs[n])}
        found |= {n for n, pair in enumerate(self.pairs) if self._is_laid_out_for_a_layer(pair)}
        return found.union(*map(self._of_another_way, self.modules))

    def _of_another_way(self, module: ModulePair) -> set[int]:
        """Return the pairs of steps that differ inside a module that computes the same in another way.

        Of a variance as the mean of squares, or of what is left of the mean, no steps correspond. A module
        without others inside computes the same if it runs other operations on what both passes have, and what
        it returns agrees: unless two steps are given the same, so that they do correspond, or what follows a
        step may leave out a difference.
        """
        sides = (self.a.graph, module.a), (self.b.graph, module.b)
        is_root = not all(graph.call_address(call) for graph, call in sides)
        if is_root or not all(self.pairs[n].is_explained for n in module.outputs):
            return set()
        rows = [range(int(graph.calls.start[call]), int(graph.calls.stop[call])) for graph, call in sides]
        if any(
            int(graph.ops.call[row]) != call
            for (graph, call), own in zip(sides, rows, strict=True)
            for row in own
        ):
            return set()
        kinds = [
            sorted(kind for row in own if (kind := self._kind(graph, row)) not in MOVES)
            for (graph, _), own in zip(sides, rows, strict=True)
        ]
        inside = {self._pair_of_a[row] for row in rows[0]}, {self._pair_of_b[row] for row in rows[1]}
        given = {n for one in set.union(*inside) for n in self._parents(self.pairs[one])}.difference(*inside)
        if kinds[0] == kinds[1] or not all(self.pairs[n].is_explained for n in given):
            return set()
        apart = {n for n in inside[0] & inside[1] if not self.pairs[n].is_explained}
        for pair in (self.pairs[n] for n in apart):
            ends = [self.pairs[n] for n in self._children(pair) if self.pairs[n].is_explained]
            if self._are_given_the_same(pair) or any(self._may_leave_out(pair, end) for end in ends):
                return set()
        return apart

    def _are_given_the_same(self, pair: Pair) -> bool:
        """Return whether two operations are computed from tensors that correspond and do not differ."""
        found = [one for n in self._parents(pair) if self._depends_on_inputs(one := self.pairs[n])]
        return bool(found) and all(one.is_explained and min(one.a, one.b) >= 0 for one in found)

    def _may_leave_out(self, pair: Pair, end: Pair) -> bool:
        """Return whether what follows a pair of steps may agree although it would show a difference.

        A bound that returns what it is given, of either step, leaves out nothing.
        """
        sides = (self.a, end.a, pair.a), (self.b, end.b, pair.b)
        for side, row, given in (
            one for one in sides if one[1] >= 0 and one[2] in one[0].graph.parents(one[1])
        ):
            kind, x, y = self._kind(side.graph, row), side.value(row), side.value(given)
            if x is None or y is None or (kind in MOVES and x.array.size < y.array.size):
                return True
            if kind in _HIDING | _CHOOSING and _are_apart(x, y, SAME):
                return True
        return False

    def _depends_on_inputs(self, pair: Pair) -> bool:
        return self.a.depends_on_inputs(pair.a) or self.b.depends_on_inputs(pair.b)

    def _kind(self, graph: Graph, row: int) -> str:
        return common_types(graph)[int(graph.ops.type[row])]

    def _corresponds_to_another(self, pair: Pair) -> bool:
        """Return whether two operations of a pair compute the same with what follows them."""
        x, y = self.a.value(pair.a), self.b.value(pair.b)
        has_same = x is not None and y is not None and x.array.size == y.array.size and same_elements(x, y)
        return has_same or self._is_split_elsewhere(pair)

    def _is_split_elsewhere(self, pair: Pair) -> bool:
        """Return whether one operation of a pair has a parameter that the other leaves to the next one.

        So does a file in which the bias of a layer is a part of the activation or normalization after it.
        """
        sides = [(self.a, pair.a), (self.b, pair.b)]
        for (one, row), (other, partner) in (sides, sides[::-1]):
            states = [state for state in one.states(row) if state is not None]
            left = [state for state in states if not _has_near(state, other.states(partner))]
            following = [state for child in other.graph.children(partner) for state in other.states(child)]
            if left and all(_has_near(state, following) for state in left):
                return True
        return False

    def _outputs(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.a >= 0 and self.a.graph.ops.kind[pair.a] == OUTPUT]

    def _is_mispaired(self, pair: Pair) -> bool:
        if pair.is_explained or min(pair.a, pair.b) < 0 or not (pair.other_type or pair.verdict == SHAPE):
            return False
        sides = (self.a.graph, pair.a, self._pair_of_a), (self.b.graph, pair.b, self._pair_of_b)
        if any(graph.ops.kind[row] != OP for graph, row, _ in sides):
            return False
        following = [[self.pairs[n] for n in self._next_pairs(*side)] for side in sides]
        return any(found and all(one.is_explained for one in found) for found in following)

    def _is_laid_out_for_a_layer(self, pair: Pair) -> bool:
        """Return whether two moves give recurrent layers one tensor, the file's with the steps first.

        A layer of PyTorch may take the batch first, for which a file moves the axes otherwise.
        """
        if pair.verdict != SHAPE or "format" not in self.b.graph.facts or not self._are_moves(pair):
            return False
        x, y = self.a.value(pair.a), self.b.value(pair.b)
        if x is None or y is None or x.array.ndim != 3 or x.array.swapaxes(0, 1).shape != y.array.shape:
            return False
        swapped = y._replace(array=y.array.swapaxes(0, 1))
        if difference(x, swapped).relative > pair.rounding_error:
            return False
        layers, others = (
            [child for child in graph.children(row) if graph.type_of(child) != "shape"]
            for graph, row in self._rows(pair)
        )
        settings = [self.a.graph.setting(layer) for layer in layers if self._is_recurrent(self.a, layer)]
        return (
            all(setting.endswith(", True") for setting in settings)  # the last of them is batch_first
            and len(settings) == len(layers) > 0 < len(others)
            and all(self._is_recurrent(self.b, other) for other in others)
        )

    def _is_recurrent(self, side: _Side, row: int) -> bool:
        return side.graph.type_of(row).startswith(RECURRENT)

    def _are_moves(self, pair: Pair) -> bool:
        """Return whether both operations of a pair only move elements."""
        return all(
            graph.ops.kind[row] == OP and self._kind(graph, row) in MOVES for graph, row in self._rows(pair)
        )

    def _next_pairs(self, graph: Graph, row: int, number_of: dict[int, int]) -> set[int]:
        """Return the numbers of the first pairs with both rows that follow a row of a pass."""
        waiting, seen, found = [row], {row}, set[int]()
        while waiting:
            for child in set(graph.children(waiting.pop())) - seen:
                seen.add(child)
                number = number_of[child]
                if min(self.pairs[number].a, self.pairs[number].b) < 0:
                    waiting.append(child)
                else:
                    found.add(number)
        return found

    # -- where they diverge ----------------------------------------------------------------------------

    def origins(self) -> list[Origin]:
        """Return where the differences originate that reach the outputs, in order.

        If none reaches the outputs, return those that were proven by running an operation, are those of a
        whole module, or are hidden by an operation that cannot make up for them: what follows may hide a
        difference, as a normalization does. What no output depends on is not among them.
        """
        kinds = [self.a.graph.ops.kind[p.a] if p.a >= 0 else OP for p in self.pairs]
        outputs = [n for n, p in enumerate(self.pairs) if kinds[n] == OUTPUT and p.b >= 0]
        candidates = outputs or range(len(self.pairs))
        waiting, seen = [n for n in candidates if not self.pairs[n].is_explained], set[int]()
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting += [n for n in self._parents(self.pairs[number]) if not self.pairs[n].is_explained]
        sources = {n for n in seen if self._may_be_source(n)} or seen
        if not sources:
            left = set(range(len(self.pairs))) - self.idle
            of_modules = left.intersection(n for module in self.modules for n in module.outputs)
            sources = {n for n in left if self.pairs[n].proven}
            sources = sources or {n for n in of_modules if self._is_hidden(n)}
            sources = sources or {n for n in left if self._is_hidden(n, by_any=False)}
        sources |= self._wrong_steps.keys() - self.idle
        inside = {n: module.unpaired for module in self.modules for n in module.outputs}  # the innermost
        origins = [Origin(n, self._region(n, inside.get(n, []))) for n in sorted(sources)]
        return [origin for origin in origins if self._is_known(origin)] or origins

    @cached_property
    def idle(self) -> set[int]:
        """The numbers of the pairs that no output depends on."""
        return idle(self.a.graph, self.b.graph, [(pair.a, pair.b) for pair in self.pairs])

    def _is_known(self, origin: Origin) -> bool:
        """Return whether other operations than b's make a difference, and do not only propagate one.

        They cannot be run on the same inputs. If what they were given differs already, only other parameters
        or constants tell.
        """
        pair = self.pairs[origin.pair]
        given_same = all(self.pairs[n].is_explained for n in self._parents(pair))
        if given_same or pair.is_source or not origin.region:
            return True
        found = [self.pairs[n] for n in {*origin.region, origin.pair}]
        rows_a = sorted(p.a for p in found if p.a >= 0)
        rows_b = sorted(p.b for p in found if p.b >= 0)
        return bool(
            different_parameters(self.a.trace, rows_a, self.b.trace, rows_b)
            or different_constants(self.a.graph, rows_a, self.b.graph, rows_b)
        )

    def _may_be_source(self, number: int) -> bool:
        """Return whether a pair differs although its paired parents, as far as known, do not."""
        pair = self.pairs[number]
        return pair.is_source or (bool(pair.unpaired_parents) and not pair.is_explained)

    def _is_hidden(self, number: int, *, by_any: bool = True) -> bool:
        """Return whether a difference originates here that what follows, which both have, takes away.

        A difference that an operation of one side alone takes away is none: it may compute the rest of the
        module, as the batch norm does that an export has folded into a convolution.

        Args:
            number: The number of the pair.
            by_any: Whether arithmetic may take it away. Inside a module it may be another way to compute the
                same: ``x * 2 * 3`` and ``x * 3 * 2`` have other steps.
        """
        if not self._may_be_source(number) or self.pairs[number].verdict == SHAPE:
            return False
        around = set(self.a.graph.enclosing_calls(self.pairs[number].a))
        waiting, seen = [number], {number}
        while waiting:
            pair = self.pairs[waiting.pop()]
            for n in self._children(pair) - seen:
                is_unpaired = self.pairs[n].verdict in (ONLY_A, ONLY_B)
                if is_unpaired and (n not in self._module_of or self._module_of[n] in around):
                    return False
                if is_unpaired or not self.pairs[n].is_explained:
                    seen.add(n)
                    waiting.append(n)
                elif not self._hides(self.pairs[n], by_any=by_any):
                    return False
        return True

    def _hides(self, pair: Pair, *, by_any: bool) -> bool:
        """Return whether what both operations of a pair compute may hide a difference of what they are given.

        If one only moves elements and the other does not, that one computes alone what its side computes.
        """
        kinds = [common_types(graph)[int(graph.ops.type[row])] for graph, row in self._rows(pair)]
        if len({kind in MOVES for kind in kinds}) == 2:
            return False
        return by_any or _HIDING.issuperset(kinds)

    def _rows(self, pair: Pair) -> tuple[tuple[Graph, int], tuple[Graph, int]]:
        return (self.a.graph, pair.a), (self.b.graph, pair.b)

    def _children(self, pair: Pair) -> set[int]:
        """Return the numbers of the pairs that either of two rows is an argument of."""
        children_a = [self._pair_of_a[row] for row in self.a.graph.children(pair.a)] if pair.a >= 0 else []
        children_b = [self._pair_of_b[row] for row in self.b.graph.children(pair.b)] if pair.b >= 0 else []
        return {*children_a, *children_b}

    def _region(self, number: int, inside: list[int]) -> list[int]:
        """Return the pairs without a partner that led to a pair; ``inside`` are those of its module."""
        if number in self._wrong_steps:
            steps = self._wrong_steps[number]
            return steps if len(steps) > 1 else []
        if self.pairs[number].is_source:
            return [] if self.pairs[number].proven or not inside else [*inside, number]
        waiting, region = list(self.pairs[number].unpaired_parents), set[int]()
        if waiting and self.pairs[number].other_type:
            region.add(number)
        while waiting:
            one = waiting.pop()
            if one not in region:
                region.add(one)
                parents = self._parents(self.pairs[one])
                waiting += [n for n in parents if self.pairs[n].verdict in (ONLY_A, ONLY_B)]
        return self._before(number, region) or sorted(region)

    def _before(self, number: int, region: set[int]) -> list[int]:
        """Return the part of a region that explains the rest of it, because it ran before.

        A parent may compute something between two of its modules, which only one side does. The module that
        runs on the result is not to blame, even if a file has folded another into it.
        """
        pair = self.pairs[number]
        found = self._cut(pair, region)
        if not found and number in region and self._is_given_other(pair):
            found = {n for n in region if not self._is_inside(self.pairs[n], pair)}
        computing = {n for n in found if not self._only_moves(self.pairs[n])}
        return sorted(computing)

    def _cut(self, pair: Pair, region: set[int]) -> set[int]:
        """Return what leads to the first tensors of a region from which both sides compute the same.

        The operations of ``a`` that follow its tensor, run on the tensor of ``b``, have the result of ``b``.
        """
        if self.a.calls is None or pair.difference is None or len(region) > _MOST_OF_A_REGION:
            return set()
        graphs, ends = (self.a.graph, self.b.graph), (pair.a, pair.b)
        rows = [{row for n in region if (row := (self.pairs[n].a, self.pairs[n].b)[k]) >= 0} for k in (0, 1)]
        given = [{p for row in rows[k] for p in graphs[k].parents(row)} - rows[k] for k in (0, 1)]
        given = [{p for p in given[k] if graphs[k].ops.kind[p] not in (BUFFER, CONSTANT)} for k in (0, 1)]
        begins = [sorted((rows[k] | given[k]) - {ends[k]}) for k in (0, 1)]
        for i, j in itertools.product(*begins):
            if (i in given[0] and j in given[1]) or not self._computes_the_same(pair, i, j):
                continue
            # a LeakyReLU of what has passed a ReLU changes nothing, and may be what differs
            i = next(row for row in reversed(begins[0]) if row == i or self._computes_the_same(pair, row, j))
            before = [{row, *ancestors(graphs[k], [row])} & rows[k] for k, row in enumerate((i, j))]
            found = {n for n in region if self.pairs[n].a in before[0] or self.pairs[n].b in before[1]}
            if not all(self._only_moves(self.pairs[n]) for n in found):
                return found
        return set()

    def _computes_the_same(self, pair: Pair, i: int, j: int) -> bool:
        """Return whether ``a``, from a row on and given a tensor of ``b``, has the result of ``b``."""
        x, y = self.a.value(i), self.b.value(j)
        if x is None or y is None or x.array.shape != y.array.shape:
            return False
        steps = self._agreeing_steps.also(pair.a, pair.b, self._value_of_file(pair.a))
        step = steps.also(i, j, y).judge(pair.a)
        return step is not None and i in step.region.given and not step.is_wrong

    @cached_property
    def _agreeing_steps(self) -> Steps:
        """The steps of ``a`` that begin at tensors which rounding explains."""
        from .judging.steps import Steps

        assert self.a.calls is not None
        close = {one.a: one.b for one in self.pairs if one.difference is not None and one.is_explained}
        return Steps(self.a.calls, self.b.graph, close, set(), self._value_of_file)

    def _is_given_other(self, pair: Pair) -> bool:
        """Return whether the modules of a pair were called on one tensor each, which differ.

        For passes whose operations cannot be run.
        """
        if self.a.calls is not None and not self.layouts_differ:
            return False
        given = []
        for graph, row in self._rows(pair):
            call = int(graph.ops.call[row])
            if call < 0:
                return False
            inside = range(int(graph.calls.start[call]), int(graph.calls.stop[call]))
            outside = {parent for one in inside for parent in graph.parents(one)} - {*inside}
            given.append([one for one in outside if graph.ops.kind[one] not in (BUFFER, CONSTANT)])
        if [len(rows) for rows in given] != [1, 1]:
            return False
        (i,), (j,) = given
        x, y = self.a.value(i), self.b.value(j)
        if x is None or y is None:
            return False
        y = self._laid_out(Pair(i, j), x, y)
        return x.array.shape == y.array.shape and difference(x, y).relative > pair.rounding_error

    def _is_inside(self, one: Pair, pair: Pair) -> bool:
        """Return whether a row without a partner ran in the module call that a pair ran in."""
        graph, row, other = (self.a.graph, one.a, pair.a) if one.a >= 0 else (self.b.graph, one.b, pair.b)
        call = int(graph.ops.call[other])
        return call < 0 or call in graph.enclosing_calls(row)

    def _only_moves(self, one: Pair) -> bool:
        """Return whether a row without a partner is no operation, or one that only moves elements."""
        graph, row = (self.a.graph, one.a) if one.a >= 0 else (self.b.graph, one.b)
        return graph.ops.kind[row] != OP or common_types(graph)[int(graph.ops.type[row])] in MOVES
