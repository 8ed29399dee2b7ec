"""``compare``: where two passes part, and by how much.

The passes are aligned (``core/alignment.py``), and every pair of tensors is judged by how far apart they are
and how far rounding could have taken them. Whether a difference is made by an operation or only passed on is
seen by running the one's operation on the other's inputs; where that cannot be, by whether its inputs differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.alignment import align
from ...core.errors import InputError, require
from ...core.graph import OP, OUTPUT, Graph
from ..capture.invocation import Invocation
from ..capture.saving.store import for_replay
from ..replaying.call_inputs import Parents
from ..replaying.replay import run, same, unrecorded
from ..results.trace import Trace
from ..validation.exemptions import UNINITIALISED
from .differences import Difference, difference, held, plain, rounding

if TYPE_CHECKING:
    from .table import Comparison

EQUAL, CLOSE, DIFFERS, SHAPE = "equal", "close", "differs", "shape"
ONLY_A, ONLY_B, UNSAVED = "only in a", "only in b", "not saved"
_UNKNOWN = float("nan")


def compare(a: Trace, b: Trace) -> Comparison:
    """Where two passes part: a DataFrame, one row for each pair of tensors, that prints what was found.

    ``a`` and ``b`` are traces of two checkpoints, dtypes, devices or modes, or of two implementations of one
    architecture, also ones read from files. Columns: ``a`` and ``b`` are labels (empty without a partner);
    ``verdict`` is ``equal`` (bit for bit), ``close`` (rounding explains it), ``differs``, ``shape`` (the
    shapes do), ``only in a``, ``only in b`` or ``not saved``; ``is_source`` says that the operation itself
    makes a difference, not only its inputs; ``relative`` is the norm of the difference over the greater norm
    and ``rounding_error`` what rounding in the coarser dtype makes of it by then; ``local`` is how far a's
    operation, run on b's inputs, is from b's result (NaN where that could not be run: loaded traces,
    different operations); ``max_abs``, ``cosine``, ``fraction_different`` of elements that differ, ``nan_a``,
    ``nan_b``.

    ``.attrs["first"]`` names the first operation that makes a difference the outputs show, as a dict of
    ``a``, ``b``, ``module`` and ``why``; None where there is none. Where the passes part by running other
    operations, it is the last of these. ``.attrs["summary"]`` says it in words.

    Raises InputError for what is no trace, or when no value of one was saved.

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
            raise InputError(f"Trace {name} has no values to compare. Trace the model with save='all'.")
    with unrecorded(), torch.no_grad():
        sides = _Side(a), _Side(b)
        coarse = any("16" in meta.dtype or "8" in meta.dtype for g in (a.graph, b.graph) for meta in g.metas)
        pairs = align(a.graph, b.graph, (sides[0].held(), sides[1].held()), near=1e-2 if coarse else 1e-3)
        judge = _Judge(*sides, pairs)
        return Comparison.of(a, b, judge.found, judge.origins())


@dataclass(slots=True)
class Pair:
    """What was found of two rows; -1 for no row. ``noise`` is the relative difference that rounding explains
    by here, ``local`` the one the operation makes by itself, ``made`` whether that is more than rounding,
    ``proven`` that this was seen by running it, ``fine`` whether rounding explains what difference it holds,
    ``through`` the numbers of pairs without partner that brought one, ``other`` whether the two are of other
    operations."""

    a: int
    b: int
    verdict: str = UNSAVED
    difference: Difference | None = None
    noise: float = 0.0
    local: float = _UNKNOWN
    made: bool = False
    proven: bool = False
    fine: bool = True
    through: list[int] = field(default_factory=list)
    other: bool = False


class Origin(NamedTuple):
    """Where a difference is made: the number of the first pair that shows it, and of what led there without
    a partner, where the passes are not the same operations; empty where the pair's own operation makes it."""

    pair: int
    region: list[int]


class _Side:
    """One of the two traces."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.graph = trace, trace.graph
        self.replays = None if "form" in trace.graph.facts else trace._replays
        self.parents = (
            None if self.replays is None else Parents(self.graph, self.replays, for_replay(trace.values))
        )

    def held(self) -> np.ndarray:
        """Σ|x|, Σx² and Σx of every row, NaN where not saved."""
        sums = np.full((len(self.graph.ops), 3), np.nan)
        for row, value in self.trace.values.items():
            sums[row] = held(value)
        return sums

    def value(self, row: int) -> Tensor | None:
        """What the row held, to be compared; None where it was not saved or means nothing."""
        value = self.trace.values.get(row)
        uninitialised = self.graph.types[int(self.graph.ops.type[row])] in UNINITIALISED
        return None if value is None or uninitialised else plain(value)

    def changed(self, row: int) -> bool:
        """Whether a rerun put the row's value there."""
        return self.graph.label(row) in self.graph.facts.get("changed", ())

    def taken(self, row: int) -> dict[str, int]:
        """The row behind each argument's name."""
        graph = self.graph
        start, stop = graph._into[row], graph._into[row + 1]
        names = (graph.args[arg] for arg in graph.edges.arg[start:stop].tolist())
        return dict(zip(names, graph.edges.src[start:stop].tolist(), strict=True))

    def call(self, row: int) -> Invocation | None:
        """The call that returned the row."""
        return None if self.replays is None else self.replays.call(int(self.graph.ops.event[row]))

    def given(self, row: int, call: Invocation) -> dict[str, Tensor]:
        """What the call was given, by the arguments' names."""
        assert self.parents is not None
        return {
            self.graph.args[tensor_arg.arg]: self.parents.given(tensor_arg, row)
            for tensor_arg in call.tensor_args
        }

    def output(self, row: int) -> int:
        """Which of its call's tensors the row is."""
        return max(int(self.graph.ops.output[row]), 0)


def _is_one_pass(a: Graph, b: Graph) -> bool:
    """Whether one was made of the other by a rerun: what did not change is the same to the last bit."""
    changed = "changed" in a.facts or "changed" in b.facts
    return changed and a.facts.get("started") == b.facts.get("started")


class _Judge:
    """Goes through the pairs in order; ``found`` is what it says of each."""

    def __init__(self, a: _Side, b: _Side, pairs: list[tuple[int, int]]) -> None:
        self.a, self.b = a, b
        self.one_pass = _is_one_pass(a.graph, b.graph)
        self.found = [Pair(i, j) for i, j in pairs]
        self._of_a = {i: number for number, (i, _) in enumerate(pairs) if i >= 0}
        self._of_b = {j: number for number, (_, j) in enumerate(pairs) if j >= 0}
        for pair in self.found:
            self._judge(pair)

    def _above(self, pair: Pair) -> list[int]:
        """The pairs that either of two rows was computed from."""
        mine = [self._of_a[row] for row in self.a.graph.parents(pair.a)] if pair.a >= 0 else []
        theirs = [self._of_b[row] for row in self.b.graph.parents(pair.b)] if pair.b >= 0 else []
        return list(dict.fromkeys(mine + theirs))

    def _judge(self, pair: Pair) -> None:
        above = self._above(pair)
        x = self.a.value(pair.a) if pair.a >= 0 else None
        y = self.b.value(pair.b) if pair.b >= 0 else None
        eps = 0.0 if self.one_pass else rounding(*(t for t in (x, y) if t is not None))
        inherited = max((self.found[n].noise for n in above), default=0.0)
        pair.noise = (inherited**2 + eps**2) ** 0.5
        pair.fine = all(self.found[n].fine for n in above)
        if pair.a < 0 or pair.b < 0:
            pair.verdict = ONLY_A if pair.b < 0 else ONLY_B
        elif x is not None and y is not None:
            if x.shape != y.shape:
                pair.verdict, pair.made, pair.fine = SHAPE, pair.fine, False
            else:
                self._judge_values(pair, x, y, above)

    def _judge_values(self, pair: Pair, x: Tensor, y: Tensor, above: list[int]) -> None:
        pair.difference = found = difference(x, y)
        if x.dtype == y.dtype and found.fraction_different == 0:
            pair.verdict, pair.noise, pair.fine = EQUAL, 0.0, True
            return
        pair.through = self._brought(pair, above)
        pair.other = self._types(pair)[0] != self._types(pair)[1]
        brought = bool(pair.through) or not pair.fine
        beyond = found.relative > pair.noise or found.lopsided
        local = self._local(pair, y)
        if local is None:
            pair.made = beyond and not brought
            pair.fine = not beyond
        else:
            pair.local, allowed = local
            pair.made = pair.proven = pair.local > allowed
            pair.fine = not pair.made and not (beyond and brought)
        pair.verdict = CLOSE if pair.fine else DIFFERS
        pair.noise = max(pair.noise, found.relative) if pair.fine else pair.noise

    def _brought(self, pair: Pair, above: list[int]) -> list[int]:
        """The parents without partner or value whose tensor is not what the other's operation took; of two
        operations that are not the same, all of them."""
        single = {n for n in above if self.found[n].difference is None and self.found[n].fine}
        if not single:
            return []
        types = self._types(pair)
        if types[0] != types[1]:
            beyond = pair.difference is not None and pair.difference.relative > pair.noise
            return sorted(single) if beyond else []
        mine, theirs = self.a.taken(pair.a), self.b.taken(pair.b)
        brought: list[int] = []
        for name in mine.keys() & theirs.keys():
            numbers = {self._of_a[mine[name]], self._of_b[theirs[name]]} & single
            x, y = self.a.value(mine[name]), self.b.value(theirs[name])
            if numbers and x is not None and y is not None and x.shape == y.shape:
                allowed = max(self.found[n].noise for n in numbers)
                brought += numbers if difference(x, y).relative > allowed else ()
        return sorted(set(brought))

    def _local(self, pair: Pair, y: Tensor) -> tuple[float, float] | None:
        """How far a's operation, run on b's inputs, is from what b's gave, and how far it may be; None where
        that cannot be run."""
        calls = self.a.call(pair.a), self.b.call(pair.b)
        if calls[0] is None or calls[1] is None or pair.other:
            return None
        if self.a.changed(pair.a):
            return None  # a's operation did not make a's value: a rerun put it there
        try:
            inputs = self.b.given(pair.b, calls[1])
            given = list(self._crossed(pair, calls[0], inputs))
            out = plain(run(calls[0], given)[self.a.output(pair.a)])
        except Exception:  # other arguments, a value that was not saved, a shape that does not fit
            return None
        if out is None or out.shape != y.shape:
            return None
        far = difference(out, y).relative
        if self.b.changed(pair.b):
            return far, 0.0
        kinds = [[(t.dtype, t.device) for t in some] for some in (given, inputs.values())]
        if (
            far
            and out.dtype == y.dtype
            and kinds[0] == kinds[1]
            and self._repeats(pair, calls[1], list(inputs.values()), y)
        ):
            return far, 0.0  # the same kernel on the same inputs: every difference is the operation's own
        return far, rounding(out, y, *inputs.values())

    def _crossed(self, pair: Pair, call: Invocation, inputs: dict[str, Tensor]) -> Iterator[Tensor]:
        """What a's call is given: its own parameters, and b's tensors as its own were."""
        own = self.a.given(pair.a, call)
        for tensor_arg in call.tensor_args:
            name = self.a.graph.args[tensor_arg.arg]
            mine, theirs = own[name], inputs[name]
            if tensor_arg.source < 0:
                yield mine
            else:
                dtype = mine.dtype if theirs.is_floating_point() and mine.is_floating_point() else None
                yield theirs.to(mine.device, dtype or theirs.dtype)

    def _repeats(self, pair: Pair, call: Invocation, given: list[Tensor], y: Tensor) -> bool:
        """Whether b's own operation gives the same again: some kernels add in no fixed order."""
        again = plain(run(call, given)[self.b.output(pair.b)])
        return again is not None and same(again, y)

    def _types(self, pair: Pair) -> list[str]:
        rows = (self.a.graph, pair.a), (self.b.graph, pair.b)
        return [graph.types[int(graph.ops.type[row])] for graph, row in rows]

    # -- where they part -----------------------------------------------------------------------------

    def origins(self) -> list[Origin]:
        """Where a difference is made that the outputs show, in order; where these show none, where one is
        proven to be made all the same."""
        kinds = [self.a.graph.ops.kind[p.a] if p.a >= 0 else OP for p in self.found]
        ends = [n for n, p in enumerate(self.found) if kinds[n] == OUTPUT and p.b >= 0]
        waiting, seen = [n for n in ends or range(len(self.found)) if not self.found[n].fine], set[int]()
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting += [n for n in self._above(self.found[number]) if not self.found[n].fine]
        made = {n for n in seen if self.found[n].made or self.found[n].through} or seen
        made = made or {n for n, pair in enumerate(self.found) if pair.proven}
        return [Origin(n, [] if self.found[n].made else self._region(n)) for n in sorted(made)]

    def _region(self, number: int) -> list[int]:
        """What has no partner and led to a pair."""
        waiting, region = list(self.found[number].through), set[int]()
        if waiting and self.found[number].other:
            region.add(number)
        while waiting:
            one = waiting.pop()
            if one not in region:
                region.add(one)
                above = self._above(self.found[one])
                waiting += [n for n in above if self.found[n].verdict in (ONLY_A, ONLY_B)]
        return sorted(region)
