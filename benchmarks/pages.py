"""The graph page in Chromium: what we ask of it, and how it stands beside torchvista and Model Explorer.

The same models, the same window, no network; tools take turns round by round, each page in a fresh browser.
What takes longer than four seconds is measured once, what takes longer than fifteen is given up: the
table says so. ``make bench ARGS=pages`` puts the neighbours (``benchmarks/viewers.txt``) into
``.venvs/viewers``; without it the table says what is missing. Needs playwright and Chromium.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import harness
from .browsing import Took, TooSlowError, Visit, browser
from .pagegoals import goals
from .pagetools import TOOLS, Tool

ROUNDS = 3
PATIENCE = 4000.0  # milliseconds beyond which a thing is not measured again


def main() -> None:
    """Measure, print and write results/pages.md and .json."""
    from .workloads import PICTURED

    facts = harness.machine()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        asked = goals(Path(folder))
        beside = {name: compare(name, Path(folder)) for name in PICTURED}
    facts["load after"] = round(os.getloadavg()[0], 1)
    facts["minutes"] = round((time.perf_counter() - began) / 60, 1)
    harness.write("pages", report(asked, beside, facts), {"machine": facts, "goals": asked, "beside": beside})


def compare(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Every tool on one model, in turns."""
    print(f"drawing {name} …", file=sys.stderr, flush=True)
    tools = [tool(name, folder) for tool in TOOLS]
    found: dict[str, dict[str, Any]] = {tool.name: {**tool.facts, "took": {}} for tool in tools}
    try:
        for _ in range(ROUNDS):
            for tool in tools:
                one_round(tool, found[tool.name]["took"])
    finally:
        for tool in tools:
            tool.close()
    return found


def one_round(tool: Tool, took: dict[str, Any]) -> None:
    """Visit a tool's pages once, and note what each thing took; a text says why it has no figure."""
    for drawn, steps in tool.visits():
        known = took.get(steps[0][0], [])
        if isinstance(known, str) or (known and median(known).wall > PATIENCE):
            continue
        with browser() as chromium:
            visit = Visit(chromium, drawn)
            for what, ask in steps:
                known = took.setdefault(what, [])
                if isinstance(known, str) or (known and median(known).wall > PATIENCE):
                    break  # and what comes after it on this page
                try:
                    known += ask(visit)
                except TooSlowError as reason:
                    took[what] = str(reason)
                    break


def median(took: list[Took]) -> Took:
    """Medians of both clocks."""
    return Took(*(statistics.median(clock) for clock in zip(*took, strict=True)))


def report(asked: list[dict[str, Any]], beside: dict[str, Any], facts: dict[str, Any]) -> str:
    """Both tables in words around them."""
    heads = ["what", "goal", "figure", "CPU", ""]
    rows = [
        [
            one["what"],
            f"≤ {one['goal']:g} {one['unit']}",
            f"{one['figure']:,.0f} {one['unit']}",
            f"{one['cpu']:,.0f} ms" if one["cpu"] is not None else "–",
            "met" if one["figure"] <= one["goal"] else "missed",
        ]
        for one in asked
    ]
    columns = ["first", "all", "toggle"]
    tools = [
        [name, tool, kilobytes(found), made(found), *(cell(found, column) for column in columns)]
        for name, each in beside.items()
        for tool, found in each.items()
    ]
    words = ["model", "tool", "file", "made in", "first picture", "everything open", "one toggle"]
    load = f"{facts['load before']} before and {facts['load after']} after, on {facts['cores']} cores"
    said = f"Load of the machine: {load}; {facts['minutes']} minutes in all."
    return f"""# The graph page

How it is measured, and what the columns mean, stands in [benchmarks/README.md](../README.md). {said}

## What we ask of it

{harness.table(heads, rows)}

## Beside torchvista and Model Explorer

Milliseconds on the wall's clock, and in brackets of CPU in the page's own thread.

{harness.table(words, tools)}
"""


def kilobytes(found: dict[str, Any]) -> str:
    return f"{found['kilobytes']:,.0f} KB" if "kilobytes" in found else found.get("instead", "–")


def made(found: dict[str, Any]) -> str:
    error = found.get("error", "")
    return ", ".join([*([f"{found['made']:.1f} s"] if "made" in found else []), *([error] if error else [])])


def cell(found: dict[str, Any], what: str) -> str:
    took = found["took"].get(what)
    if not took:
        return "–"
    if isinstance(took, str):
        return took
    both = median(took)
    return f"{both.wall:,.0f} ({both.cpu:,.0f})"


if __name__ == "__main__":
    main()
