"""Measure the graph page in Chromium: its goals, and a comparison with torchvista and Model Explorer.

All tools show the same models in the same window without network. They take turns round by round. Each page
opens in an isolated window once the browser is idle. Actions of more than three seconds are measured once;
actions of more than ten are given up, and the table says so. ``make bench ARGS=pages`` installs the other
tools (``benchmarks/viewers.txt``) into ``.venvs/viewers``; without them the table says what is missing. This
needs playwright and Chromium.
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

from .. import harness
from ..workloads import PICTURED
from .browsing import Chromium, Took, TooSlowError, browsers
from .goals import goals
from .tools import TOOLS, Tool

ROUNDS = 3
KEPT = ("made", "error", "instead", "kilobytes", "notebook")  # the facts of a tool and model that are stored
PATIENCE = 3000.0  # milliseconds; longer actions are measured once


def main() -> None:
    """Measure, print and write results/pages.md and .json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, help="measure this part and keep the stored results of the other"
    )
    only = parser.parse_args().only
    stored = harness.RESULTS / "pages.json"
    found = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    for part in [only] if only else PARTS:
        found[part] = measured(PARTS[part])
    harness.write("pages", report(**found), found)


def measured(part: Callable[[Path], Any]) -> dict[str, Any]:
    """Measure a part, and return its results with facts about the machine."""
    machine, began = harness.machine(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = part(Path(folder))
    machine["load after"] = round(os.getloadavg()[0], 1)
    machine["minutes"] = round((time.perf_counter() - began) / 60, 1)
    return {"machine": machine, "found": found}


def beside(folder: Path) -> dict[str, Any]:
    """Measure every tool on every model; tools take turns."""
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
            found[model] = {tool.name: result(tool.facts[model], took[tool.name]) for tool in tools}
    finally:
        for tool in tools:
            tool.close()
    return found


#: The parts that can be measured separately; the first takes two minutes, the second five.
PARTS: dict[str, Callable[[Path], Any]] = {"goals": goals, "beside": beside}


def result(facts: dict[str, Any], took: dict[str, Any]) -> dict[str, Any]:
    """Return what is stored of a tool and a model."""
    return {what: facts[what] for what in KEPT if what in facts} | {"took": took}


def one_round(chromium: Chromium, tool: Tool, model: str, took: dict[str, Any]) -> None:
    """Visit a tool's pages of a model once, and record the time of each action, or why there is none."""
    for steps in tool.visits(model):
        pending = list(takewhile(lambda step: not is_done(took.get(step[0])), steps))
        if not pending:
            continue
        try:
            with chromium.visit(tool.drawn) as page:
                for what, act in pending:
                    took.setdefault(what, []).extend(act(page))
        except TooSlowError as reason:
            took[what] = str(reason)


def is_done(times: list[Took] | str | None) -> bool:
    """Return whether an action was given up, or takes so long that it is measured once."""
    return isinstance(times, str) or bool(times and median(times).wall > PATIENCE)


def median(took: list[Took]) -> Took:
    """Return the medians of both clocks."""
    return Took(*(statistics.median(clock) for clock in zip(*took, strict=True)))


def report(goals: dict[str, Any], beside: dict[str, Any]) -> str:
    """Return both tables with explanations."""
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
    columns_of_tools = [
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

[benchmarks/README.md](../README.md) describes the measurement and the columns.

## Goals

{load(goals["machine"])}

{harness.table(heads, rows)}

## Comparison with torchvista and Model Explorer

Milliseconds of wall clock and, in parentheses, of CPU in the page's own thread. {load(beside["machine"])}

{harness.table(columns_of_tools, tools)}
"""


def load(machine: dict[str, Any]) -> str:
    """Return a sentence about the load of the machine."""
    before, after = machine["load before"], machine["load after"]
    cores, minutes = machine["cores"], machine["minutes"]
    return f"Load of the machine: {before} before and {after} after, on {cores} cores; {minutes} minutes."


def size(found: dict[str, Any], what: str) -> str:
    """Format a size, or what there is instead of a file."""
    return f"{found[what]:,.0f} KB" if what in found else found.get("instead", "–")


def made(found: dict[str, Any]) -> str:
    """Format the time to make a page, and an exception of the tool."""
    error = found.get("error", "")
    return ", ".join([*([f"{found['made']:.2f} s"] if "made" in found else []), *([error] if error else [])])


def cell(found: dict[str, Any], what: str) -> str:
    """Format the time of an action."""
    took = found["took"].get(what)
    if not took:
        return "–"
    if isinstance(took, str):
        return took
    both = median(took)
    return f"{both.wall:,.0f} ({both.cpu:,.0f})"
