"""The table that ``compare`` returns, and its summary in words. Imported only when pandas is needed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...core.analysis.walks import ancestors
from ...core.graph import BUFFER, OP, OUTPUT, Graph, end_names
from ...core.vocabularies import KINDS, common_types, is_translated
from ...core.vocabularies.families import MOVES
from ...viewing.repr_text import listed
from ..results.op import Op
from .lost import drawn_at_random, judged_by_depth, lost_in_rounding
from .output_order import reordered_outputs
from .pairing.modules import ModulePair
from .parameters.exchanged import exchanged
from .parameters.parameters import COMBINED, UsedParameters
from .reasons import drawn, reasons
from .unseen.hidden import hidden_steps
from .unseen.other_numbers import OnOthers, not_shown_to_agree, on_other_numbers
from .unseen.other_numbers import sentences as other_numbers
from .unseen.parameters_apart import parameters_of_one_side
from .unseen.passes import Both
from .unseen.stated import different_constants_stated, different_stated, lower_precisions
from .unseen.without_effect import Unseen, sentences, unseen_operations
from .values.axes import different_axes
from .values.differences import difference
from .values.elements import plain
from .values.settings import different_constants, different_settings, whole_numbers
from .values.windows import different_windows

if TYPE_CHECKING:
    from ..results.trace import Trace
    from .judging.pairs import Pair
    from .origins.origins import Origin

_SAME = ("equal", "close")  # verdicts of values that differ by no more than rounding explains
_SHOWN = ["a", "b", "verdict", "is_source", "relative", "rounding_error", "isolated_error"]
_AROUND = 3  # rows shown before and after the first difference
_NAMED = 5  # operations and outputs named in the summary
#: The verdicts, the best first.
_FROM_BEST = ["equal", "close", "not saved", "only in a", "only in b", "shape", "differs"]
_MODULE_COLUMNS = ["a", "b", "class_a", "class_b", "ops_a", "ops_b", "verdict", "is_source", "relative"]
_FORMAT: dict[str, Any] = {"float_format": lambda x: f"{x:.2g}", "na_rep": ""}


class Comparison(pd.DataFrame):  # type: ignore[misc]
    """The result of ``compare``: a DataFrame that prints where two passes diverge.

    Selections of its rows or columns are plain DataFrames.
    """

    @property
    def agree(self) -> bool:
        """True if every output was compared and nothing differs by more than rounding, or in its place.

        Nothing: no output or other tensor that both have, no constant that both state, and neither has an
        operation whose effect the values do not show, or computes in a lower precision than its inputs,
        parameters and outputs state.
        """
        return bool(self.attrs["agree"])

    @property
    def agreeing(self) -> list[tuple[int, int]]:
        """The pairs of rows that differ neither in their constants nor in values, but for rounding."""
        constants = self.attrs["constants"]
        same = zip(self.pairs, self["verdict"].isin(_SAME).tolist(), strict=True)
        return [pair for pair, is_same in same if is_same and pair[0] not in constants]

    def differences_inside(self, name: str = "a", other: str = "in b") -> Iterator[str]:
        """Yield what differs although no difference originates that reaches the outputs.

        State and steps that no output depends on are left out, but for what modules return.

        Args:
            name: The name of the first pass.
            other: The words for "in the second pass".
        """
        is_apart = self["verdict"].isin(("differs", "shape"))
        if self.attrs["first"] is not None or not is_apart.any():
            return
        apart = [one for one in self["relative"][self.a.str.startswith("output_")] if one == one]
        most = max(apart, default=0.0)
        effect = "which has no effect on the outputs"
        if most:
            effect = f"and the outputs by {most:.2g}, which rounding may explain"
        found = False
        for row in self.modules.itertuples():
            returned = f"What {row.a or name} returns"
            found = found or row.verdict in ("shape", "differs")
            if row.verdict == "shape":
                yield f"{returned} is of another shape {other}"
            elif row.verdict == "differs":
                yield f"{returned} differs by {row.relative:.2g} of its norm, {effect}"
        steps = self[(self.verdict == "differs") & ~np.isin(np.arange(len(self)), [*self.attrs["idle"]])]
        if not found and len(steps):
            step = steps.iloc[0]
            where = f"{step.a} in {step.module_a}" if step.module_a else step.a
            yield f"{where} differs by {step.relative:.2g} of its norm, {effect}"

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of rows of the graphs, -1 where there is none."""
        return [tuple(pair) for pair in self.attrs["pairs"]]

    @property
    def modules(self) -> pd.DataFrame:
        """The module calls that were paired, with columns as in the table.

        ``ops_a`` and ``ops_b`` count the operations inside; ``verdict`` and ``relative`` are the worst of
        what the calls returned, ``is_source`` whether the difference originates there.
        """
        return pd.DataFrame(self.attrs["modules"], columns=_MODULE_COLUMNS)

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    @classmethod
    def of(
        cls,
        a: Trace,
        b: Trace,
        pairs: list[Pair],
        origins: list[Origin],
        modules: list[ModulePair],
        idle: set[int],
    ) -> Comparison:
        """Return the table of all pairs.

        Args:
            a: The first trace.
            b: The second trace.
            pairs: The pairs of rows, with what was found.
            origins: Where differences originate.
            modules: The module calls that correspond to each other.
            idle: The numbers of the pairs that no output depends on.
        """
        unpaired_sources = {
            number
            for origin, region in origins
            if region
            for number in ([origin] if origin in region else pairs[origin].unpaired_parents)
        }
        region = {number: a.graph.call_address(module.a) for module in modules for number in module.unpaired}
        table = cls(
            [
                _row(a, b, pair, number in unpaired_sources) | {"region": region.get(number, "")}
                for number, pair in enumerate(pairs)
            ]
        )
        report = _Report(a, b, pairs, origins, idle)
        first = report.first()
        outputs = [pair for pair in pairs if pair.a >= 0 and a.graph.ops.kind[pair.a] == OUTPUT]
        reordered = reordered_outputs(a, b, pairs)
        table.attrs = {
            "reordered": reordered,
            "not_run": list(_not_run(a, b, outputs)),
            "first": first,
            "at": origins[0].pair if origins else None,
            "pairs": [(pair.a, pair.b) for pair in pairs],
            "outputs_agree": not origins
            and not reordered
            and bool(outputs)
            and all(pair.difference for pair in outputs),
            "modules": [
                _module(a, b, module, pairs, {origin.pair for origin in origins}) for module in modules
            ],
        }
        table.attrs["idle"] = idle
        table.attrs["constants"] = constants = different_stated(a, b, table.pairs)
        # From the pairs, because pandas copies all attributes of a table with each column that is read.
        same = {pair.a: pair.b for pair in pairs if pair.verdict in _SAME}
        hidden = [sentence for row, some in constants.items() if row in same for sentence in some]
        stated = [f"{sentence}, which rounding hides on these inputs" for sentence in hidden]
        names, agreeing = ("a", "b"), [pair for pair in same.items() if pair[0] not in constants]
        stated += different_constants_stated(a, b, agreeing, names)
        others = OnOthers([], []) if first is not None else on_other_numbers(a, b, agreeing)
        table.attrs["apart"], table.attrs["untried"] = others
        if first is None:
            both = Both(a, b, agreeing)
            stated += hidden_steps(both, names)
            stated += parameters_of_one_side(both, names)
            stated += other_numbers(table.attrs["apart"], a.graph, b.graph, names)
        unseen = unseen_operations(a, b, table.pairs)
        table.attrs["unseen"] = not_shown_to_agree(a, b, agreeing, unseen)
        table.attrs["drawn"] = report.drawn
        table.attrs["lost"] = lost = list(lost_in_rounding(a.graph, b.graph, pairs, idle, report.drawn))
        table.attrs["by_depth"] = by_depth = list(judged_by_depth(a.graph, pairs, idle))
        stated += lost
        inside = list(table.differences_inside())
        said = [
            *report.unseen(table.attrs["unseen"]),
            *(f"{one[0].upper()}{one[1:]}." for one in (*inside, *stated)),
        ]
        lower = lower_precisions(a.graph, b.graph, names)
        same_precisions = all(one.is_stated for one in lower)
        table.attrs["agree"] = table.attrs["outputs_agree"] and not said and not constants and same_precisions
        found = [*report.sentences(first), *table.attrs["not_run"], *reordered, *said]
        table.attrs["summary"] = "\n".join([*found, *(one.sentence for one in lower), *by_depth])
        return table

    def __str__(self) -> str:
        summary, rows = self._shown()
        return summary if rows is None else f"{summary}\n\n{rows.to_string(**_FORMAT)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the same as HTML."""
        summary, rows = self._shown()
        table = "" if rows is None else rows.to_html(**_FORMAT)
        return f'<pre style="white-space: pre-wrap">{escape(summary)}</pre>{table}'

    def _shown(self) -> tuple[str, pd.DataFrame | None]:
        """Return the summary, and the rows around the first difference, None if there is none."""
        at, summary = self.attrs.get("at"), str(self.attrs.get("summary", ""))
        if at is None:
            return summary, None
        # Steps of a module that the other does otherwise are left out; the summary counts them.
        numbers = [n for n, region in enumerate(self["region"]) if not region or n == at]
        near = numbers.index(at)
        return summary, self.iloc[numbers[max(0, near - _AROUND) : near + _AROUND + 1]][_SHOWN]


def _row(a: Trace, b: Trace, pair: Pair, unpaired_source: bool) -> dict[str, Any]:
    found = pair.difference
    facts: dict[str, Any] = {
        "a": a.graph.labels[pair.a] if pair.a >= 0 else "",
        "b": b.graph.labels[pair.b] if pair.b >= 0 else "",
        "verdict": pair.verdict,
        "is_source": pair.is_source or unpaired_source,
        "relative": found.relative if found else None,
        "rounding_error": pair.rounding_error if found else None,
        "isolated_error": pair.isolated_error,
        "max_abs": found.largest if found else None,
        "cosine": found.cosine if found else None,
        "fraction_different": found.fraction_different if found else None,
        "nan_a": found.nan if found else None,
        "nan_b": found.other_nan if found else None,
    }
    for name, trace, row in (("a", a, pair.a), ("b", b, pair.b)):
        op = Op(trace, row) if row >= 0 else None
        facts[f"shape_{name}"] = op.shape if op else None
        facts[f"dtype_{name}"] = op.dtype if op else ""
        facts[f"module_{name}"] = (op.module or "") if op else ""
    return facts


def _not_run(a: Trace, b: Trace, outputs: Iterable[Pair]) -> Iterator[str]:
    """Yield what files among two traces say of what has no value, if an output was not compared for it."""
    ends = [pair for pair in outputs if pair.difference is None]
    for trace, rows in ((a, [pair.a for pair in ends]), (b, [pair.b for pair in ends])):
        if "format" in trace.graph.facts and any(row >= 0 and row not in trace.values for row in rows):
            yield from trace.graph.facts.get("notes", ())


def _module(a: Trace, b: Trace, module: ModulePair, pairs: list[Pair], origins: set[int]) -> dict[str, Any]:
    found = [pairs[number] for number in module.outputs]
    facts: dict[str, Any] = {}
    for name, graph, call in (("a", a.graph, module.a), ("b", b.graph, module.b)):
        start, stop = int(graph.calls.start[call]), int(graph.calls.stop[call])
        facts[name] = graph.call_address(call)
        facts[f"class_{name}"] = graph.modules[int(graph.calls.module[call])].type
        facts[f"ops_{name}"] = int((graph.ops.kind[start:stop] == OP).sum())
    return facts | {
        "verdict": max((pair.verdict for pair in found), key=_FROM_BEST.index, default="not saved"),
        "is_source": not origins.isdisjoint(module.outputs),
        "relative": max((pair.difference.relative for pair in found if pair.difference), default=math.nan),
    }


class _Report:
    """The summary of a comparison in words."""

    def __init__(self, a: Trace, b: Trace, pairs: list[Pair], origins: list[Origin], idle: set[int]) -> None:
        self.a, self.b, self.pairs, self.origins, self.idle = a, b, pairs, origins, idle
        self.drawn = drawn_at_random(pairs, idle)

    def _op(self, number: int) -> Op:
        """Return the op of a pair, from ``a`` if it has one."""
        pair = self.pairs[number]
        return Op(self.a, pair.a) if pair.a >= 0 else Op(self.b, pair.b)

    def _labels(self, numbers: Iterable[int]) -> tuple[list[str], list[str]]:
        """Return the labels of some pairs in ``a`` and in ``b``."""
        found = [self.pairs[number] for number in numbers]
        labels_a = [self.a.graph.labels[pair.a] for pair in found if pair.a >= 0]
        return labels_a, [self.b.graph.labels[pair.b] for pair in found if pair.b >= 0]

    def first(self) -> dict[str, Any] | None:
        """Return the first operation that makes a difference, and why; None if there is none."""
        if not self.origins:
            return None
        number, region = self.origins[0]
        pair = self.pairs[number]
        labels_a, labels_b = self._labels(region or [number])
        op = self.a[labels_a[-1]] if labels_a else self.b[labels_b[-1]]
        if labels_a and labels_b:
            inside = {self.pairs[n].a for n in region}
            op = Op(self.a, self._computed(op.row, self.b[labels_b[-1]].row, inside))
        return {
            "a": op.label if labels_a else "",
            "b": labels_b[-1] if labels_b else "",
            "module": op.module or self._module_of_b(labels_b),
            "why": [*(self._why_region(region, pair) if region else self._why(pair)), *self._exchanged(pair)],
        }

    def _exchanged(self, pair: Pair) -> list[str]:
        """Return which values of another layer, or under another name, make a pair differ."""
        is_op = pair.has_both and self.a.graph.ops.kind[pair.a] == OP == self.b.graph.ops.kind[pair.b]
        return exchanged(self.a, pair.a, self.b, pair.b) if is_op else []

    def _module_of_b(self, labels: list[str]) -> str:
        """Return the module of b's last operation if a has none such: it computes outside of all modules."""
        address = (self.b[labels[-1]].module or "") if labels and "format" not in self.b.graph.facts else ""
        return "" if address in {module.address for module in self.a.graph.modules} else address

    def _why_region(self, region: list[int], pair: Pair) -> list[str]:
        """Return how operations that correspond as a whole differ, which led to a pair."""
        found = [self.pairs[number] for number in region]
        kinds_a, kinds_b = self.a.graph.ops.kind, self.b.graph.ops.kind
        rows_a = [pair.a for pair in found if pair.a >= 0 and kinds_a[pair.a] == OP]
        rows_b = [pair.b for pair in found if pair.b >= 0 and kinds_b[pair.b] == OP]
        if drops := drawn(self.a, rows_a, self.b, rows_b):
            return drops
        settings = self._settings(rows_a, rows_b, self._buffers(found)) or self._constants_of_module(pair)
        computing, others = _computing(self.a.graph, rows_a), _computing(self.b.graph, rows_b)
        one_each = len(computing) == len(others) == 1
        if settings and one_each and _are_one_kind(self.a.graph, computing[0], self.b.graph, others[0]):
            return settings
        return [*_different_ops(self.a.graph, rows_a, self.b.graph, rows_b), *settings]

    def _constants_of_module(self, pair: Pair) -> list[str]:
        """Return how the constants of the modules around a pair differ, if these have none inside of them.

        A module that computes a variance in another way has steps that differ before those with the constant.
        For passes of other frameworks than PyTorch, whose steps are primitives.
        """
        sides = (self.a.graph, pair.a), (self.b.graph, pair.b)
        if min(pair.a, pair.b) < 0 or not all(is_translated(graph) for graph, _ in sides):
            return []
        rows = []
        for graph, row in sides:
            call = int(graph.ops.call[row])
            inside = (
                range(int(graph.calls.start[call]), int(graph.calls.stop[call])) if call >= 0 else range(0)
            )
            if not inside or any(int(graph.ops.call[one]) != call for one in inside):
                return []
            rows.append(inside)
        return different_constants(self.a.graph, rows[0], self.b.graph, rows[1])

    def _buffers(self, found: list[Pair]) -> list[str]:
        """Return how the buffers without a partner differ, if a region has one on each side."""
        rows = [pair.a for pair in found if pair.a >= 0 and self.a.graph.ops.kind[pair.a] == BUFFER]
        others = [pair.b for pair in found if pair.b >= 0 and self.b.graph.ops.kind[pair.b] == BUFFER]
        if len(rows) != 1 or len(others) != 1:
            return []
        x, y = plain(self.a.values.get(rows[0])), plain(self.b.values.get(others[0]))
        if x is None or y is None or x.array.shape != y.array.shape or not x.array.any():
            return []
        apart = difference(x, y).relative
        one, other = self.a.graph.state_address(rows[0]), self.b.graph.state_address(others[0])
        return [f"{one} of a and {other} of b differ by {apart:.2g} of their norm"] if apart else []

    def _settings(self, rows_a: list[int], rows_b: list[int], buffers: Sequence[str] = ()) -> list[str]:
        """Return how the state and constants of operations that correspond as a whole differ."""
        graphs = self.a.graph, self.b.graph
        used = UsedParameters(self.a, rows_a, self.b, rows_b)
        why = [
            *buffers,
            *used.different(),
            *different_constants(graphs[0], rows_a, graphs[1], rows_b),
        ]
        if all(one.startswith(COMBINED) for one in why) and len(rows_a) == len(rows_b) == 1:
            why += different_settings(graphs[0], rows_a[0], graphs[1], rows_b[0])
        if self._are_translated() or (not why and any(map(is_translated, graphs))):
            why += different_windows(graphs[0], rows_a, graphs[1], rows_b)
            why += different_axes(self.a, rows_a, self.b, rows_b)
        is_known = any(not reason.startswith(COMBINED) for reason in why)
        why = why or used.unknown()
        is_known = is_known or graphs[0].facts.get("framework") == graphs[1].facts.get("framework")
        return why if is_known else [*why, *whole_numbers(graphs[0], rows_a, graphs[1], rows_b)]

    def _are_translated(self) -> bool:
        """Return whether the passes are of two frameworks, of which one has other names and settings."""
        graphs = self.a.graph, self.b.graph
        frameworks = {graph.facts.get("framework") for graph in graphs}
        return len(frameworks) == 2 and any(map(is_translated, graphs))

    def _computed(self, row: int, other: int, inside: Collection[int]) -> int:
        """Return the row of a that computed a value in the module in which b did.

        A dropout in evaluation mode returns what it is given, and a file lacks it, so that it is paired with
        the result of what is before it: of the layer, or of code of the parent.

        Args:
            row: A row of a.
            other: The row of b that corresponds to it; -1 for none.
            inside: The rows of a that b computes otherwise.
        """
        module = Op(self.b, other).module if other >= 0 else None
        for parent in self.a.graph.parents(row):
            one, two = (plain(self.a.values.get(at)) for at in (row, parent))
            if one is None or two is None or not one.equals(two):
                continue
            if module:
                is_before = Op(self.a, row).module != module == Op(self.a, parent).module
            else:
                is_before = parent in inside
            if is_before:
                return self._computed(parent, other, inside)
        return row

    def _why(self, pair: Pair) -> list[str]:
        one, other = Op(self.a, pair.a), Op(self.b, pair.b)
        why = reasons(self.a, pair.a, self.b, pair.b)
        if one.type != other.type:
            found = different_constants(self.a.graph, [pair.a], self.b.graph, [pair.b])
            why = [*why, *(found or self._foreign(pair, why) or self._constants_of_module(pair))]
            is_one_kind = _are_one_kind(self.a.graph, pair.a, self.b.graph, pair.b)
            if not why and is_one_kind and pair.verdict != "shape":
                why = self._other_inputs(pair)
            if not why or not is_one_kind:
                why.insert(0, f"it is {one.type} in a, {other.type} in b")
        else:
            why = [*why, *self._foreign(pair, why)]
        if pair.verdict == "shape":
            why.insert(0, f"its shape is {one.shape} in a, {other.shape} in b")
        return why or self._other_inputs(pair)

    def _other_inputs(self, pair: Pair) -> list[str]:
        """Return which tensors two operations of one kind are given, if these do not correspond.

        Nothing is said if one of them has no counterpart, which may be the same tensor in another shape, or
        if the counterparts have the same elements.
        """
        partner = {one.a: one.b for one in self.pairs if one.difference is not None}
        graphs = self.a.graph, self.b.graph
        given = [
            [row for _, row in graph.parents_by_argument(one)]
            for graph, one in zip(graphs, (pair.a, pair.b), strict=True)
        ]
        expected = [partner.get(row, -1) for row in given[0]]
        if -1 in expected or len(expected) != len(given[1]) or not {*given[1]} <= {*partner.values()}:
            return []
        is_same = sorted(expected) == sorted(given[1])
        if is_same and common_types(graphs[0])[int(graphs[0].ops.type[pair.a])] not in _ORDERED:
            return []
        values = [plain(self.b.values.get(row)) for row in (*expected, *given[1])]
        known = [value for value in values if value is not None]
        count = len(expected)
        if len(known) < 2 * count or all(
            x.array.shape == y.array.shape and x.equals(y)
            for x, y in zip(known[:count], known[count:], strict=True)
        ):
            return []
        names = [
            ", ".join(graph.label(row) for row in rows) for graph, rows in zip(graphs, given, strict=True)
        ]
        what = "in another order" if is_same else "others"
        return [f"its inputs are {what}: {names[0]} in a, {names[1]} in b"]

    def _foreign(self, pair: Pair, why: list[str]) -> list[str]:
        """Return how the settings of operations of two frameworks differ, if nothing else is known to.

        Those of which the notation is translated may differ besides parameters.
        """
        is_foreign = self._are_translated() or (not why and is_translated(self.a.graph))
        if is_foreign and self.a.graph.ops.kind[pair.a] == OP:
            return [one for one in self._settings([pair.a], [pair.b]) if one not in why]
        is_one_framework = self.a.graph.facts.get("framework") == self.b.graph.facts.get("framework")
        return (
            [] if why or is_one_framework or pair.verdict == "shape" else self._settings([pair.a], [pair.b])
        )

    def unseen(self, found: Iterable[Unseen]) -> list[str]:
        """Return the operations of one pass alone that have no effect on these inputs, if nothing differs."""
        if self.origins:
            return []
        return [f"{one}." for one in sentences(found, self.a.graph, self.b.graph, ("a", "b"))]

    def sentences(self, first: dict[str, Any] | None) -> list[str]:
        """Return the summary, line by line."""
        pairs = self.pairs
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
                is_rounding = not {*self.drawn} & {*ancestors(self.a.graph, [pair.a])}
                why = ", within rounding error" if is_rounding else ", by random numbers"
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
        return bool(outputs) and all(pair.difference and pair.is_explained for pair in outputs)

    def _agreement(self) -> str:
        differing = [n for n, pair in enumerate(self.pairs) if not pair.is_explained and n not in self.idle]
        if differing:
            return (
                f"The outputs agree, although {len(differing)} intermediate tensors differ, from "
                f"{self._op(differing[0]).label} on."
            )
        if not any(pair.difference for pair in self.pairs):
            return "No two values could be compared."
        why = "rounding and random numbers explain" if self.drawn else "rounding explains"
        if any(pair.a < 0 or pair.b < 0 for pair in self.pairs):
            return f"Of the tensors that both have, none differs by more than {why}."
        return f"No tensor differs by more than {why}."

    def _divergence(self, first: dict[str, Any]) -> list[str]:
        number, region = self.origins[0]
        pair = self.pairs[number]
        op = self.a[first["a"]] if first["a"] else self.b[first["b"]]
        name = " and ".join(dict.fromkeys(label for label in (first["a"], first["b"]) if label))
        where = f" in {op.module}" if op.module else ""
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
            others = [self._op(origin.pair).label for origin in self.origins[1 : _NAMED + 1]]
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


#: Operations that return something else for their inputs in another order.
_ORDERED = frozenset({"sub", "div", "true_divide", "pow", "matmul", "bmm", "atan2", "cat", "concat"})


def _are_one_kind(a: Graph, row: int, b: Graph, other: int) -> bool:
    """Return whether two rows are the same operation, whatever their frameworks call it."""
    kinds = [common_types(graph)[int(graph.ops.type[one])] for graph, one in ((a, row), (b, other))]
    one, two = (KINDS.get(kind, kind) for kind in kinds)
    return one == two != ""


def _computing(graph: Graph, rows: list[int]) -> list[int]:
    """Return the rows whose operations do not only move elements, nor only add a bias to the result."""
    types = common_types(graph)
    kinds = {row: types[int(graph.ops.type[row])] for row in rows}
    found = [row for row in rows if kinds[row] not in MOVES]
    return [row for row in found if len(found) == 1 or not _adds_bias(graph, row, kinds)]


def _adds_bias(graph: Graph, row: int, kinds: Mapping[int, str]) -> bool:
    """Return whether an operation adds a parameter to the result of another of some rows."""
    is_sum = KINDS.get(kinds[row], kinds[row]) == "add"
    return is_sum and bool(graph.row_params.get(row)) and any(one in kinds for one in graph.parents(row))


def _different_ops(a: Graph, rows_a: list[int], b: Graph, rows_b: list[int]) -> list[str]:
    """Return the sentence for operations that only one pass ran, with the setting of a single one."""
    names_a, names_b = (
        _named([graph.labels[row] for row in rows]) for graph, rows in ((a, rows_a), (b, rows_b))
    )
    if names_a and names_b:
        return [f"a runs {names_a} where b runs {names_b}"]
    graph, rows, name = (a, rows_a, "a") if names_a else (b, rows_b, "b")
    setting = graph.setting(rows[0]) if len(rows) == 1 else ""
    return [f"{names_a or names_b}{f' ({setting})' if setting else ''} ran only in {name}"]


def _named(labels: list[str], most: int = 12) -> str:
    """Join labels with commas; of many only the first and the last.

    >>> _named(["a", "b", "c", "d"], most=3)
    'a, b … d (4 operations)'
    """
    if len(labels) <= most:
        return ", ".join(labels)
    return f"{', '.join(labels[: most - 1])} … {labels[-1]} ({len(labels)} operations)"
