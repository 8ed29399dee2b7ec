"""Put the scores of the translator into tables and sentences.

Every number stands with its 95 % interval, and a sentence says no more than the intervals do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas

from intus.core.findings import streak_start
from intus.examples.inspecting import pictures

SCORE, CONTROL = "linear_f1", "linear_selectivity"
_COLUMNS = ("layer", "untrained", "trained", "from epoch", "baseline", "above a random label per word")


def report(scores: pandas.DataFrame) -> str:
    """Return the tables and sentences of all targets as Markdown.

    Args:
        scores: The scores of a run (``Run.scores``).
    """
    parts = []
    for target in dict.fromkeys(scores.loc[scores.score == SCORE, "target"]):
        table = summarize(scores, target)
        if not table.empty:
            parts += [f"### {target}", markdown(table), " ".join(sentences(table, target))]
    return "\n\n".join(parts)


def summarize(scores: pandas.DataFrame, target: str) -> pandas.DataFrame:
    """Return a row for each layer: its score before and after training, and when it was learned.

    Args:
        scores: The scores of a run.
        target: The name of the target.

    Returns:
        The columns ``layer``, ``first``, ``last`` (rows of ``scores``), ``since`` and ``control``. A score is
        learned ``since`` the epoch from which all of its intervals lie above that of the untrained network;
        NaN if the last one does not.
    """
    of_target = scores[(scores.target == target) & scores.value.notna()]
    rows = []
    for layer, by_epoch in of_target[of_target.score == SCORE].groupby("address", sort=False):
        by_epoch = by_epoch.sort_values("epoch")
        first, last = by_epoch.iloc[0], by_epoch.iloc[-1]
        start = streak_start((by_epoch.low > first.high).to_numpy(), least=1)
        since = float("nan") if start is None else by_epoch.epoch.iloc[start]
        control = of_target[(of_target.score == CONTROL) & (of_target.address == layer)]
        control = control[control.epoch == last.epoch]
        rows.append(
            {"layer": layer, "first": first, "last": last, "since": since}
            | {"control": None if control.empty else control.iloc[0]}
        )
    return pandas.DataFrame(rows)


def sentences(table: pandas.DataFrame, target: str) -> list[str]:
    """Return what follows from the intervals of a table: which layers know a target, and since when."""
    best = max(table.itertuples(), key=lambda row: row.last.value)
    if best.last.low <= best.last.baseline:
        return [f"No layer knows `{target}`: the best, `{best.layer}`, has {_number(best.last)}."]
    out = [f"`{best.layer}` has the highest value: {_number(best.last)}, baseline {best.last.baseline:.2f}."]
    equal = [row for row in table.itertuples() if row.last.high >= best.last.low and row.layer != best.layer]
    if equal:
        out.append(f"The intervals of {_names(equal)} overlap with it.")
    untaught = [row for row in table.itertuples() if row.since != row.since]
    if untaught:
        out.append(f"Training adds nothing that the intervals show in {_names(untaught)}.")
    early = [row for row in table.itertuples() if row.since == row.since]
    for epoch in sorted({row.since for row in early}):
        named = [row for row in early if row.since == epoch]
        out.append(f"Learned from epoch {epoch:g}: {_names(named)}.")
    return out


def markdown(table: pandas.DataFrame) -> str:
    """Return a table of ``summarize`` as Markdown."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in table.itertuples():
        since = f"{row.since:g}" if row.since == row.since else "-"
        control = "-" if row.control is None else _number(row.control)
        cells = (
            f"`{row.layer}`",
            _number(row.first),
            _number(row.last),
            since,
            f"{row.last.baseline:.2f}",
            control,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(scores: pandas.DataFrame, folder: Path) -> None:
    """Save the curves of all targets, with their intervals, as ``translation.png``."""
    kept = scores[(scores.score == SCORE) & scores.value.notna()]
    targets, layers = list(dict.fromkeys(kept.target)), list(dict.fromkeys(kept.address))
    drawn, panels = pictures.figure(4, height=5, rows=-(-len(targets) // 4))
    lines = {}
    for panel, target in zip(panels, targets, strict=False):
        for layer, rows in kept[kept.target == target].groupby("address", sort=False):
            rows, color = rows.sort_values("epoch"), f"C{layers.index(layer)}"
            (lines[layer],) = panel.plot(rows.epoch, rows.value, color=color)
            panel.fill_between(rows.epoch, rows.low, rows.high, color=color, alpha=0.15, linewidth=0)
        panel.set(title=target, ylim=(0, 1.02))
    drawn.supxlabel("epoch")
    drawn.supylabel(SCORE)
    drawn.legend([lines[layer] for layer in layers], layers, loc="outside right center", fontsize=8)
    pictures.save(drawn, folder, "translation")


def _number(row: Any) -> str:
    return f"{row.value:.2f} [{row.low:.2f}, {row.high:.2f}]"


def _names(rows: list[Any]) -> str:
    return ", ".join(f"`{row.layer}`" for row in rows)
