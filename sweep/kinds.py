"""The kinds of checks of ``make sweep``: the subjects, how each is checked, and what is written about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from . import proof, table, table_inputs
from .catalogue import catalogue
from .check_inputs import InputsOutcome, check_inputs
from .check_opinions import OpinionsOutcome, check_opinions
from .check_program import ProgramsOutcome, check_programs
from .check_program import subjects as programs
from .run import ARCHITECTURES, Kind


class Sweep(NamedTuple):
    """One of the things that ``make sweep`` can check.

    Attributes:
        subjects: Yields what is checked.
        kind: How it is checked.
        summary: Returns one line about all outcomes.
        write: Writes the pages about them into a folder; the text says how much was checked.
    """

    subjects: Callable[[], Iterable[Any]]
    kind: Kind
    summary: Callable[[list[Any]], str]
    write: Callable[[Path, list[Any], str], None]


def kinds() -> dict[str, Sweep]:
    """Return everything that can be checked, by name."""
    return {
        "models": Sweep(catalogue, ARCHITECTURES, table.summary, _write_models),
        "ops": _inputs("operators"),
        "modules": _inputs("modules"),
        "programs": Sweep(
            programs, Kind(check_programs, ProgramsOutcome, _line), _counts, _write(proof.programs)
        ),
        "opinions": Sweep(
            catalogue, Kind(check_opinions, OpinionsOutcome, _opinion), _opinions, _write(proof.opinions)
        ),
    }


def _inputs(family: str) -> Sweep:
    def subjects() -> Iterable[Any]:
        from . import torch_inputs  # needs expecttest

        return torch_inputs.operators() if family == "operators" else torch_inputs.modules()

    def write(docs: Path, outcomes: list[Any], extent: str) -> None:
        table_inputs.write(docs / "torch-inputs.md", family, outcomes, extent)
        proof.write(docs, f"torch's own test inputs: {family}", table_inputs.proof(family, outcomes, extent))

    return Sweep(subjects, Kind(check_inputs, InputsOutcome, _line), _counts, write)


def _write_models(docs: Path, outcomes: list[Any], extent: str) -> None:
    (docs / "sweep.md").write_text(table.table(outcomes, extent), encoding="utf-8")
    proof.write(docs, *proof.models(outcomes, extent))


def _write(section: Callable[[list[Any], str], tuple[str, str]]) -> Callable[[Path, list[Any], str], None]:
    def write(docs: Path, outcomes: list[Any], extent: str) -> None:
        proof.write(docs, *section(outcomes, extent))

    return write


def _line(outcome: Any) -> str:
    wrong = (outcome.wrong + outcome.reasons)[:1]
    ran = outcome.counts.get("ran", 0)
    counts = f"{ran} run, {len(outcome.wrong)} wrong, {outcome.seconds:.1f} s"
    return f"{outcome.family} {outcome.name}: {counts} {wrong}"


def _opinion(outcome: OpinionsOutcome) -> str:
    wrong = (outcome.wrong + outcome.reasons)[:1]
    return f"{outcome.family} {outcome.name}: {outcome.compared}, {len(outcome.wrong)} wrong {wrong}"


def _counts(outcomes: list[Any]) -> str:
    total = sum((Counter(one.counts) for one in outcomes), Counter[str]())
    return f"{total['ran']:,} ran, {sum(len(one.wrong) for one in outcomes)} wrong: {dict(total)}"


def _opinions(outcomes: list[OpinionsOutcome]) -> str:
    total = sum((Counter(one.compared) for one in outcomes), Counter[str]())
    return f"{dict(total)}; {sum(len(one.wrong) for one in outcomes)} wrong"
