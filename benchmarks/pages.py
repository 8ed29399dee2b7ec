"""The graph page in Chromium: what we ask of it, and how it stands beside torchvista and Model Explorer.

The same models, the same window, no network; tools take turns round by round, each page in a fresh browser.
What takes longer than four seconds is measured once, what takes longer than fifteen is given up: the
table says so. ``make bench ARGS=pages`` puts the neighbours (``benchmarks/viewers.txt``) into
``.venvs/viewers``; without it the table says what is missing. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure this, and keep what is known of the other")
    only = parser.parse_args().only
    kept = harness.RESULTS / "pages.json"
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for part in [only] if only else PARTS:
        found[part] = measured(PARTS[part])
    harness.write("pages", report(**found), found)


def measured(part: Callable[[Path], Any]) -> dict[str, Any]:
    """What a part finds, and on what machine."""
    machine, began = harness.machine(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = part(Path(folder))
    machine["load after"] = round(os.getloadavg()[0], 1)
    machine["minutes"] = round((time.perf_counter() - began) / 60, 1)
    return {"machine": machine, "found": found}


def beside(folder: Path) -> dict[str, Any]:
    """Every tool on every model."""
    from .workloads import PICTURED

    return {name: compare(name, folder) for name in PICTURED}


#: What may be measured by itself: the first takes two minutes, the second ten.
PARTS: dict[str, Callable[[Path], Any]] = {"goals": goals, "beside": beside}


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


def report(goals: dict[str, Any], beside: dict[str, Any]) -> str:
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
        for one in goals["found"]
    ]
    columns = ["first", "all", "toggle"]
    tools = [
        [name, tool, kilobytes(found), made(found), *(cell(found, column) for column in columns)]
        for name, each in beside["found"].items()
        for tool, found in each.items()
    ]
    words = ["model", "tool", "file", "made in", "first picture", "everything open", "one toggle"]
    return f"""# The graph page

How it is measured, and what the columns mean, stands in [benchmarks/README.md](../README.md).

## What we ask of it

{load(goals["machine"])}

{harness.table(heads, rows)}

## Beside torchvista and Model Explorer

Milliseconds on the wall's clock, and in brackets of CPU in the page's own thread. {load(beside["machine"])}

{harness.table(words, tools)}
"""


def load(machine: dict[str, Any]) -> str:
    before, after = machine["load before"], machine["load after"]
    cores, minutes = machine["cores"], machine["minutes"]
    return f"Load of the machine: {before} before and {after} after, on {cores} cores; {minutes} minutes."


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
