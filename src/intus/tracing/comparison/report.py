"""Say in words where two passes diverge, and why: the report on a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.analysis.walks import ancestors
from ...core.graph import BUFFER, OUTPUT, end_names
from ...viewing.repr_text import listed
from ..results.op import Op
from .judging.pairs import AGREE, DIFFERS, SHAPE
from .judging.sides import Side
from .judging.sums import Sums
from .lost import drawn_at_random, half_of, judged_by_depth, lost_in_rounding
from .output_order import misplaced_outputs
from .unseen.hidden import hidden_steps
from .unseen.other_numbers import OnOthers, not_shown_to_agree, on_other_numbers
from .unseen.other_numbers import sentences as other_numbers
from .unseen.parameters_apart import parameters_of_one_side
from .unseen.passes import Both
from .unseen.stated import different_constants_stated, different_stated, lower_precisions
from .unseen.without_effect import sentences, unseen_operations

if TYPE_CHECKING:
    from ..results.trace import Trace
    from .judging.pairs import Pair
    from .origins.origins import Origin

_NAMED = 5  # operations and outputs named in the summary


class Report:
    """The report of two passes: whether they agree, where they diverge, and why.

    Attributes:
        drawn: The rows of the first pass that draw random numbers by which the passes differ.
        misplaced: Which outputs have another place in the second pass, or are those of one pass only, as
            sentences.

    Args:
        a: The first trace.
        b: The second trace.
        pairs: The pairs of rows, with what was found.
        origins: Where differences originate.
        idle: The numbers of the pairs that no output depends on.
    """

    def __init__(self, a: Trace, b: Trace, pairs: list[Pair], origins: list[Origin], idle: set[int]) -> None:
        self.a, self.b, self.pairs, self.origins, self.idle = a, b, pairs, origins, idle
        self.drawn = drawn_at_random(pairs, idle)
        self.misplaced = misplaced_outputs(a, b, pairs)

    def _op(self, number: int) -> Op:
        """Return the op of a pair, from ``a`` if it has one."""
        pair = self.pairs[number]
        return Op(self.a, pair.a) if pair.a >= 0 else Op(self.b, pair.b)

    def findings(self, first: dict[str, Any] | None, inside: list[str]) -> dict[str, Any]:
        """Return whether the passes agree, what is not shown to, and the summary in words.

        Args:
            first: The first difference.
            inside: What differs although no difference originates that reaches the outputs.
        """
        a, b, pairs, names = self.a, self.b, self.pairs, ("a", "b")
        rows = [(pair.a, pair.b) for pair in pairs]
        outputs = [pair for pair in pairs if pair.a >= 0 and a.graph.ops.kind[pair.a] == OUTPUT]
        misplaced, not_run = self.misplaced, list(_not_run(a, b, outputs))
        outputs_agree = not self.origins and not misplaced and bool(outputs)
        outputs_agree = outputs_agree and all(pair.difference for pair in outputs)
        constants = different_stated(a, b, rows)
        same = {pair.a: pair.b for pair in pairs if pair.verdict in AGREE}
        agreeing = [pair for pair in same.items() if pair[0] not in constants]
        hidden = [sentence for row, some in constants.items() if row in same for sentence in some]
        stated = [f"{sentence}, which rounding hides on these inputs" for sentence in hidden]
        stated += different_constants_stated(a, b, agreeing, names)
        unseen = not_shown_to_agree(a, b, agreeing, unseen_operations(a, b, rows))
        others = OnOthers([], []) if first is not None else on_other_numbers(a, b, agreeing)
        if others.apart:  # 2 * x and x * 2 are not two tensors, each of any numbers
            sums = Sums(Side(a), Side(b), pairs)
            others = others._replace(apart=[one for one in others.apart if not sums.are_same(one.a, one.b)])
        named = {(one.side, one.row) for one in unseen}
        apart = [one for one in others.apart if named.isdisjoint((("a", one.a), ("b", one.b)))]
        if first is None:
            both = Both(a, b, agreeing)
            stated += hidden_steps(both, names)
            stated += parameters_of_one_side(both, names)
            stated += other_numbers(apart, a.graph, b.graph, names)
        otherwise = {one.a for one in others.apart} | {*constants}
        lost = list(lost_in_rounding(a.graph, b.graph, pairs, self.idle, self.drawn, otherwise))
        by_depth = list(judged_by_depth(a.graph, pairs, self.idle))
        said = [] if self.origins else [f"{one}." for one in sentences(unseen, a.graph, b.graph, names)]
        said += [f"{one[0].upper()}{one[1:]}." for one in (*inside, *stated, *lost)]
        lower = lower_precisions(a.graph, b.graph, names)
        lines = [
            *self._sentences(first, otherwise),
            *not_run,
            *misplaced,
            *said,
            *(one.sentence for one in lower),
        ]
        return {
            "agree": outputs_agree and not said and not constants and all(one.is_stated for one in lower),
            "outputs_agree": outputs_agree,
            "misplaced": misplaced,
            "not_run": not_run,
            "constants": constants,
            "apart": apart,
            "untried": others.untried,
            "unseen": unseen,
            "drawn": self.drawn,
            "lost": lost,
            "by_depth": by_depth,
            "summary": "\n".join([*lines, *by_depth]),
        }

    def _sentences(self, first: dict[str, Any] | None, otherwise: Collection[int]) -> list[str]:
        """Return the summary, line by line.

        Args:
            first: The first difference.
            otherwise: The rows of the first pass that the second is known to compute by another formula.
        """
        pairs, half = self.pairs, half_of(self.a.graph, self.b.graph)
        counts = Counter(pair.verdict for pair in pairs).most_common()
        verdicts = ", ".join(_counted(count, verdict) for verdict, count in counts)
        lines = [
            f"{self.a.graph.model} (a) and {self.b.graph.model} (b): of {len(pairs)} tensors {verdicts}."
        ]
        for name, trace in (("a", self.a), ("b", self.b)):
            if trace.graph.error:
                lines.append(
                    f"The pass of {name} ended with an exception: {trace.graph.error.partition(chr(10))[0]}"
                )
            if changed := trace.changed_since():
                lines.append(f"Changed since the pass of {name}, so its value is missing: {listed(changed)}.")
        if first is not None:
            lines += self._divergence(first)
            if self._outputs_agree():
                lines.append("The outputs agree nevertheless, because what follows hides the difference.")
        else:
            lines.append(self._agreement())
        if state := [self._state(n) for n in sorted(self.idle) if pairs[n].is_source]:
            lines.append(f"No output depends on what differs in {listed(state)}.")
        outputs = [pair for pair in pairs if pair.a >= 0 and self.a.graph.ops.kind[pair.a] == OUTPUT]
        names = end_names(self.a.graph.ops.kind.tolist(), self.a.graph.facts)
        for pair in outputs[:_NAMED]:
            found = pair.difference
            if found and found.fraction_different:
                name = f" ({names[pair.a]})" if pair.a in names else ""
                cosine = f", cosine {found.cosine:.4f}" if found.cosine == found.cosine else ""
                before = {*ancestors(self.a.graph, [pair.a])}
                why = ", within rounding error"
                if not before.isdisjoint(self.drawn):
                    why = ", by random numbers"
                elif found.relative > half or not before.isdisjoint(otherwise):
                    why = ", which rounding may explain"
                lines.append(
                    f"{self.a.graph.labels[pair.a]}{name}: relative difference {found.relative:.2g}, "
                    f"largest {found.largest:.2g}{cosine}{why * pair.is_explained}."
                )
        return lines

    def _state(self, number: int) -> str:
        """Return the label of a pair, of a buffer with its address."""
        op, row = self._op(number), self.pairs[number].a
        is_buffer = row >= 0 and self.a.graph.ops.kind[row] == BUFFER
        return f"{op.label} ({self.a.graph.state_address(row)})" if is_buffer else op.label

    def _outputs_agree(self) -> bool:
        outputs = [p for p in self.pairs if p.a >= 0 and self.a.graph.ops.kind[p.a] == OUTPUT]
        agree = all(pair.difference and pair.is_explained for pair in outputs)
        return bool(outputs) and agree and not self.misplaced

    def _agreement(self) -> str:
        apart = [n for n, pair in enumerate(self.pairs) if pair.verdict in (DIFFERS, SHAPE)]
        differing = [n for n in apart if n not in self.idle]
        if differing:
            which = " that both have" if self.misplaced else ""
            count = len(differing)
            differ = f"{count} intermediate tensors differ" if count > 1 else "1 intermediate tensor differs"
            return f"The outputs{which} agree, although {differ}, from {self._op(differing[0]).label} on."
        if not any(pair.difference for pair in self.pairs):
            return "No two values could be compared."
        shares = [pair.difference.relative for pair in self.pairs if pair.is_explained and pair.difference]
        explains = "explain" if self.drawn else "explains"
        if max(shares, default=0.0) > half_of(self.a.graph, self.b.graph):  # a fault may hide behind so much
            explains = "may explain"
        why = f"rounding{' and random numbers' * bool(self.drawn)} {explains}"
        if any(pair.a < 0 or pair.b < 0 for pair in self.pairs):
            return f"Of the tensors that both have, none differs by more than {why}."
        return f"No tensor differs by more than {why}."

    def _divergence(self, first: dict[str, Any]) -> list[str]:
        number, region, *_ = self.origins[0]
        pair = self.pairs[number]
        op = self.a[first["a"]] if first["a"] else self.b[first["b"]]
        name = " and ".join(dict.fromkeys(label for label in (first["a"], first["b"]) if label))
        where = f" in {first['module']}" if first["module"] else ""
        line = f" ({Path(op.source.file).name}, line {op.source.line})" if op.source else ""
        lines = [f"They diverge at {name}{where}{line}."]
        found = pair.difference
        if found is not None:
            what = "It" if number in region or not region else f"The next op, {self._op(number).label},"
            error = pair.isolated_error
            isolated = f", and by {error:.2g} when run on the same inputs" if error == error else ""
            lines.append(
                f"  {what} has {found.nan} NaN in a, {found.other_nan} in b."
                if found.nan != found.other_nan
                else f"  {what} differs by {_share(pair)}{isolated}."
            )
        lines += [f"  - {reason}" for reason in first["why"]]
        if op.kind == "input":
            lines.append("  To find where two models diverge, trace both on the same input.")
        if len(self.origins) > 1:
            others = [self._state(origin.pair) for origin in self.origins[1 : _NAMED + 1]]
            more = len(self.origins) - 1 - len(others)
            also = f"{', '.join(others)}{f' and {more} more' if more else ''}"
            lines.append(f"  Differences also originate at {also}.")
        return lines


_COUNTED = {
    "differs": ("differs", "differ"),
    "shape": ("differs in shape", "differ in shape"),
    "not saved": ("was not saved", "were not saved"),
}


def _share(pair: Pair) -> str:
    """Return the part of its norm that a pair differs by, or of that of its smaller numbers if it shows."""
    relative = pair.difference.relative if pair.difference else 0.0
    if relative <= pair.rounding_error and relative < pair.smaller:
        return f"{pair.smaller:.2g} of the norm of its smaller numbers"
    return f"{relative:.2g} of its norm"


def _counted(count: int, verdict: str) -> str:
    """Return a count with its verdict in words.

    Example:
        >>> [_counted(2, verdict) for verdict in ("equal", "differs", "shape", "only in a", "not saved")]
        ['2 are equal', '2 differ', '2 differ in shape', '2 are only in a', '2 were not saved']
    """
    one, many = _COUNTED.get(verdict, (f"is {verdict}", f"are {verdict}"))
    return f"{count} {one if count == 1 else many}"


def _not_run(a: Trace, b: Trace, outputs: Iterable[Pair]) -> Iterator[str]:
    """Yield what files among two traces say of what has no value, if an output was not compared for it."""
    ends = [pair for pair in outputs if pair.difference is None]
    for trace, rows in ((a, [pair.a for pair in ends]), (b, [pair.b for pair in ends])):
        if "format" in trace.graph.facts and any(row >= 0 and row not in trace.values for row in rows):
            yield from trace.graph.facts.get("notes", ())
