"""The graph page in Chromium: what we ask of it, and how it stands beside torchvista and Model Explorer.

The same models, the same window, no network; tools take turns round by round, each page in a window of its
own that shares nothing with others, once the browser is at rest. What takes longer than three seconds is
measured once, what takes longer than ten is given up: the table says so. ``make bench ARGS=pages`` puts
the neighbours (``benchmarks/viewers.txt``) into ``.venvs/viewers``; without it the table says what is
missing. Needs playwright and Chromium.
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
from itertools import takewhile
from pathlib import Path
from typing import Any

from . import harness
from .browsing import Chromium, Took, TooSlowError, browsers
from .pagegoals import goals
from .pagetools import TOOLS, Tool
from .workloads import PICTURED

ROUNDS = 3
KEPT = ("made", "error", "instead", "kilobytes", "notebook")  # of what a tool says of a model
PATIENCE = 3000.0  # milliseconds beyond which a thing is not measured again


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
    """Every tool on every model; tools take turns."""
    print("making the pages …", file=sys.stderr, flush=True)
    tools = [tool() for tool in TOOLS]
    found: dict[str, Any] = {}
    try:
        for tool in tools:
            tool.start(folder)
        for tool in tools:
            tool.made()
        for model in PICTURED:
            print(f"visiting {model} …", file=sys.stderr, flush=True)
            took: dict[str, dict[str, Any]] = {tool.name: {} for tool in tools}
            with browsers(len(tools)) as chromiums:
                for _ in range(ROUNDS):
                    for tool, chromium in zip(tools, chromiums, strict=True):
                        one_round(chromium, tool, model, took[tool.name])
            found[model] = {tool.name: noted(tool.facts[model], took[tool.name]) for tool in tools}
    finally:
        for tool in tools:
            tool.close()
    return found


#: What may be measured by itself: the first takes two minutes, the second five.
PARTS: dict[str, Callable[[Path], Any]] = {"goals": goals, "beside": beside}


def noted(facts: dict[str, Any], took: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a tool and a model."""
    return {what: facts[what] for what in KEPT if what in facts} | {"took": took}


def one_round(chromium: Chromium, tool: Tool, model: str, took: dict[str, Any]) -> None:
    """Visit a tool's pages of a model once, and note what each thing took, or why it has no figure."""
    for steps in tool.visits(model):
        asked = list(takewhile(lambda step: not enough(took.get(step[0])), steps))
        if not asked:
            continue
        try:
            with chromium.visit(tool.drawn) as page:
                for what, ask in asked:
                    took.setdefault(what, []).extend(ask(page))
        except TooSlowError as reason:
            took[what] = str(reason)


def enough(known: list[Took] | str | None) -> bool:
    """Whether a thing was given up or takes so long that it is measured once."""
    return isinstance(known, str) or bool(known and median(known).wall > PATIENCE)


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
        [name, tool, size(found, "kilobytes"), size(found, "notebook"), made(found)]
        + [cell(found, column) for column in columns]
        for name, each in beside["found"].items()
        for tool, found in each.items()
    ]
    words = [
        "model",
        "tool",
        "file",
        "ten in a notebook",
        "made in",
        "first picture",
        "everything open",
        "one toggle",
    ]
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


def size(found: dict[str, Any], what: str) -> str:
    return f"{found[what]:,.0f} KB" if what in found else found.get("instead", "–")


def made(found: dict[str, Any]) -> str:
    error = found.get("error", "")
    return ", ".join([*([f"{found['made']:.2f} s"] if "made" in found else []), *([error] if error else [])])


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
