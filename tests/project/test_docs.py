"""Every Python block of the README and the docs runs, and every example in a docstring."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path

import numpy
import pytest
import torch
from docs_help import ROOT, environments, python_blocks, run_blocks

import intus
from intus.cli import parser

CODE = ("src", "tests", "benchmarks", "sweep", "gallery")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from intus.serving.run import Server

    with Server(database=tmp_path_factory.mktemp("docs") / "docs.db", port=0) as running:
        yield running


@pytest.fixture
def registered():
    """Forget the scores that an example registers."""
    from intus.scores import base

    before = dict(base._SCORES)
    yield
    base._SCORES.clear()
    base._SCORES.update(before)


@pytest.mark.long
@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=lambda p: p.name)
def test_python_blocks_run(
    page: Path, server, registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(page, server.port)


@pytest.mark.parametrize("page", [p for p in PAGES if environments(p)], ids=lambda p: p.name)
def test_blocks_of_other_environments_run_in_their_tests(page: Path) -> None:
    """``make test-jax`` runs the blocks that follow ``<!-- environment: jax -->``."""
    for name in environments(page):
        tests = [one.read_text() for one in (ROOT / "tests" / "frameworks" / name).glob("test_*.py")]
        assert any("run_blocks(" in text and page.name in text for text in tests), name


def test_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert [name for name in commands if f"intus {name}" not in readme] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages() -> None:
    broken = []
    for page in PAGES:
        for target, _, anchor in re.findall(r"\]\(([^)#:]*)(#([^)]+))?\)", page.read_text()):
            other = page.parent / target if target else page
            if not other.exists() or (anchor and anchor not in anchors(other)):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []


def test_figures_of_statistics_are_those_of_their_results() -> None:
    """Before, the page said three to five times as long, for a fifth to half of the bytes."""
    lines = (ROOT / "benchmarks" / "results" / "statistics.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    (head,) = (row for row in cells if row[0] == "model, rows")
    rows = [
        dict(zip(head, row, strict=True)) for row in cells if len(row) == len(head) and row[1][0].isdigit()
    ]
    times = [float(row["statistics s"]) / float(row["rows s"]) for row in rows]
    sizes = [float(row["statistics MB"]) / float(row["rows MB"]) for row in rows]
    page = (ROOT / "docs" / "probing.md").read_text()
    assert f"takes {min(times):.1f} to {max(times):.1f} times as long as sending rows" in page
    assert f"for {min(sizes):.2f} to {max(sizes):.2f} of the bytes" in page


def test_pages_say_how_many_rows_of_statistics_are_kept() -> None:
    from intus.scores.statistics.kept import BALANCED, HELD, LEAST, UNIFORM

    design = (ROOT / "docs" / "design.md").read_text()
    assert f"{UNIFORM:,} trained rows whatever their class, {BALANCED:,} by class" in design
    assert f"at least {LEAST} for each), and {HELD:,} held-out rows" in design
    most = f"{UNIFORM + BALANCED:,}"
    assert f"else up to {most}" in design
    assert f"`linear_f1` to at most {most}" in (ROOT / "docs" / "probing.md").read_text()


def test_glossary_is_short() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert 10 <= len(rows) <= 25
    assert len(set(rows)) == len(rows)


def test_changelog_has_the_version_or_unreleased() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "## Unreleased" in changelog or f"## {intus.__version__}" in changelog


def test_docstrings_begin_with_a_verb_or_noun_phrase() -> None:
    question = re.compile(r'^ *r?"""(?:What|Whether|How|Where|Which|Who|When|Why)\b.*', re.MULTILINE)
    code = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(code) > 500
    assert {path: found for path in code if (found := question.findall(path.read_text()))} == {}


MODULES = sorted(
    name
    for _, name, is_package in pkgutil.walk_packages(intus.__path__, "intus.")
    if not is_package
    and not name.endswith("__main__")
    and ">>>" in (find_spec(name).loader.get_source(name) or "")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str, registered) -> None:
    module = importlib.import_module(name)
    given = {"np": numpy, "torch": torch, "intus": intus}
    assert doctest.testmod(module, extraglobs=given, optionflags=doctest.ELLIPSIS).failed == 0
