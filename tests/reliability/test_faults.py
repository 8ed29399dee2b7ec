"""A fault at every call: no acknowledged point is lost, doubled or wrong; see docs/reliability.md.

The cases run in a process of their own, which forks: this one may have threads.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"


def run(*arguments: str) -> subprocess.CompletedProcess:
    """Run cases; return code, table and the cases that did not hold."""
    if sys.platform != "linux":
        pytest.skip("needs fork, and SQLite's table of system calls")
    command = [sys.executable, str(HERE / "fault_cases.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def counts(done: subprocess.CompletedProcess, row: str = "all") -> dict[str, int]:
    """Return the numbers of a row of the table, by their headings."""
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert lines, done.stderr
    (found,) = (line for line in lines if line[0] == row)
    return {name: int(number.replace(",", "")) for name, number in zip(lines[0][1:], found[1:], strict=True)}


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["new", "restart"])
def test_sample_of_faults_loses_doubles_and_changes_nothing(scenario):
    done = run("--sample", "--scenario", scenario)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    found = counts(done)
    assert found["cases"] >= 15
    assert found["held"] == found["met"] >= 0.9 * found["cases"]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["new", "restart"])
def test_fault_at_every_place_loses_doubles_and_changes_nothing(scenario):
    done = run("--scenario", scenario)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert counts(done)["cases"] > 500


@pytest.mark.long
@pytest.mark.parametrize(
    ("sabotage", "kind", "calls", "outcome"),
    [
        ("unwritten", "committed", [30], "lost"),
        ("unknown", "fsync", [15, 16, 20, 21], "doubled"),  # some of them end a request that was written
        ("unstored", "stat", [1], "lost"),
        ("undoubted", "stat", [1], "lost"),
    ],
)
def test_judge_notices_a_server_that_breaks_its_promise(sabotage, kind, calls, outcome):
    cases = [word for call in calls for word in ("--case", "new", kind, str(call), "crash", "killed")]
    done = run(*cases, "--sabotage", sabotage)
    assert done.returncode == 1, done.stdout + done.stderr
    assert counts(done)[outcome] >= 1


def test_page_names_tests_that_exist():
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./([\w/]+\.py)\)", PAGE.read_text())
    assert len(named) > 20
    root = PAGE.parents[1]
    assert [name for name, file in named if f"def {name}(" not in (root / file).read_text()] == []


def test_sums_of_the_page_are_those_of_its_rows():
    lines = re.findall(r"^\| .*\|$", PAGE.read_text().partition("<!-- counts: begin -->")[2], re.MULTILINE)
    rows = [[cell.strip().replace(",", "") for cell in line.strip("|").split("|")] for line in lines]
    numbers = {row[0]: [int(cell) for cell in row[1:]] for row in rows[2:]}
    total = numbers.pop("all")
    assert total == [sum(column) for column in zip(*numbers.values(), strict=True)]
