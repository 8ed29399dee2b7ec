"""The table that ``compare`` returns. Imported only when pandas is needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...core.analysis.modules import renamed
from ...core.graph import OP, Graph
from ..results.op import Op
from .divergence import divergence, places
from .judging.layouts import layouts_like
from .judging.pairs import AGREE, DIFFERS, EQUAL, UNSAVED
from .pairing.modules import ModulePair
from .report import Report
from .values.differences import difference
from .values.elements import plain

if TYPE_CHECKING:
    from ..results.trace import Trace
    from .judging.pairs import Pair
    from .origins.origins import Origin

_SHOWN = ["a", "b", "verdict", "is_source", "relative", "rounding_error", "isolated_error"]
_AROUND = 3  # rows shown before and after the first difference
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

        An output that only one pass returns is not compared. Places are those among the tensors that are
        returned, or keys if both return dicts of the same keys. Nothing: no output or other tensor that both
        have, no constant that both state, and neither has an operation whose effect the values do not show,
        or computes in a lower precision than its inputs, parameters and outputs state.
        """
        return bool(self.attrs["agree"])

    @property
    def agreeing(self) -> list[tuple[int, int]]:
        """The pairs of rows that differ neither in their constants nor in values, but for rounding."""
        constants = self.attrs["constants"]
        same = zip(self.pairs, self["verdict"].isin(AGREE).tolist(), strict=True)
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
        names: Mapping[str, str],
    ) -> Comparison:
        """Return the table of all pairs.

        Args:
            a: The first trace.
            b: The second trace.
            pairs: The pairs of rows, with what was found.
            origins: Where differences originate.
            modules: The module calls that correspond to each other.
            idle: The numbers of the pairs that no output depends on.
            names: The address in ``a`` of modules of ``b`` that correspond and have another.
        """
        unpaired_sources = {
            number
            for origin, region, *_ in origins
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
        apart = _without_paired_results(a.graph, b.graph, modules, names)
        calls = _by_address(a.graph, b.graph, [*modules, *apart])
        sources = {calls[place] for place in places(a, b, pairs, origins, names) if place in calls}
        modules = sorted([*modules, *(module for module in apart if module.a in sources)])
        table.attrs = {
            "first": divergence(a, b, pairs, origins, names),
            "at": origins[0].pair if origins else None,
            "pairs": [(pair.a, pair.b) for pair in pairs],
            "modules": [_module(a, b, module, pairs, module.a in sources) for module in modules],
            "idle": idle,
        }
        report = Report(a, b, pairs, origins, idle)
        table.attrs |= report.findings(table.attrs["first"], list(table.differences_inside()))
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


def _without_paired_results(
    a: Graph, b: Graph, modules: list[ModulePair], names: Mapping[str, str]
) -> list[ModulePair]:
    """Return the calls of one address of which no results were paired.

    Of a file there are none: it folds modules into others.
    """
    if "format" in a.facts or "format" in b.facts:
        return []
    taken = {module.a for module in modules}, {module.b for module in modules}
    calls = {
        renamed(b.call_address(call), names): call for call in range(len(b.calls)) if call not in taken[1]
    }
    free = [call for call in range(len(a.calls)) if call not in taken[0] and a.call_address(call) in calls]
    return [ModulePair(call, calls[a.call_address(call)], [], []) for call in free]


def _by_address(a: Graph, b: Graph, modules: list[ModulePair]) -> dict[str, int]:
    """Return the calls of ``a`` of pairs of calls by their address in ``a``, and by that in ``b``."""
    others = {b.call_address(module.b): module.a for module in modules}
    return others | {a.call_address(module.a): module.a for module in modules}


def _module(a: Trace, b: Trace, module: ModulePair, pairs: list[Pair], is_source: bool) -> dict[str, Any]:
    found = [pairs[number] for number in module.outputs]
    facts: dict[str, Any] = {}
    for name, graph, call in (("a", a.graph, module.a), ("b", b.graph, module.b)):
        start, stop = int(graph.calls.start[call]), int(graph.calls.stop[call])
        facts[name] = graph.call_address(call)
        facts[f"class_{name}"] = graph.modules[int(graph.calls.module[call])].type
        facts[f"ops_{name}"] = int((graph.ops.kind[start:stop] == OP).sum())
    verdicts = [pair.verdict for pair in found]
    apart = [pair.difference.relative for pair in found if pair.difference]
    if not found and (apart := _unpaired_results(a, module.a, b, module.b)):
        verdicts = [DIFFERS if apart[0] else EQUAL]
    return facts | {
        "verdict": max(verdicts, key=_FROM_BEST.index, default=UNSAVED),
        "is_source": is_source,
        "relative": max(apart, default=math.nan),
    }


def _unpaired_results(a: Trace, call: int, b: Trace, other: int) -> list[float]:
    """Return by how much the results of two calls differ that each have one, which are no pair.

    Empty if they are not known, or of two shapes.
    """
    rows, others = a.graph.call_outputs.get(call, ()), b.graph.call_outputs.get(other, ())
    if len(rows) != 1 or len(others) != 1:
        return []
    x, y = plain(a.values.get(rows[0])), plain(b.values.get(others[0]))
    if x is None or y is None:
        return []
    return sorted(difference(x, one).relative for one in layouts_like(a.graph, x, b.graph, y))[:1]
