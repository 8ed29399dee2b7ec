"""Check a random program: everything that a trace says of it, against judges that know nothing of intus."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch

import intus

from .check import difference, message, state_of, tensors
from .check_inputs import all_equal, equal
from .judges.edges import judge
from .judges.programs import Program, program

#: How many programs a subject has, and how many subjects there are.
PER_SUBJECT, SUBJECTS = 20, 25


class Seeds(NamedTuple):
    """Some random programs, by their seeds."""

    family: str
    name: str
    seeds: range


@dataclass
class ProgramsOutcome:
    """The result of checking some programs.

    Attributes:
        family: ``"programs"``.
        name: The seeds.
        counts: The number of programs that ran without intus (``ran``), and what was counted in them.
        wrong: What did not agree: ``step | seed | why``.
        seconds: Seconds of the whole check.
        reasons: Why the process ended early, if it did.
    """

    family: str
    name: str
    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True if something did not agree."""
        return bool(self.wrong or self.reasons)


def subjects() -> Iterator[Seeds]:
    """Yield the seeds that the sweep uses."""
    for number in range(SUBJECTS):
        seeds = range(number * PER_SUBJECT, (number + 1) * PER_SUBJECT)
        yield Seeds("programs", f"seeds {seeds.start} to {seeds.stop - 1}", seeds)


def check_programs(one: Seeds, report: Callable[[dict[str, Any]], None]) -> None:
    """Check programs, and report after each."""
    began, counts, outcome = time.perf_counter(), Counter[str](), ProgramsOutcome(one.family, one.name)
    for seed in one.seeds:
        counts["programs"] += 1
        found = check_program(program(Random(seed)))
        counts.update(found.counts)
        outcome.wrong += [f"{why.replace(' | ', f' | seed {seed} | ', 1)}" for why in found.wrong]
        outcome.counts, outcome.seconds = dict(counts), time.perf_counter() - began
        report(asdict(outcome))


class Checked(NamedTuple):
    """The counts of a check of a program, and the disagreements: ``step | why``."""

    counts: Counter[str]
    wrong: list[str]


def check_program(one: Program) -> Checked:
    """Check one program."""
    found = Checked(Counter(), [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = one.build()
        torch.manual_seed(1)
        try:
            expected = tensors(model(*_copies(one)))
        except RuntimeError as error:  # torch refuses a write that autograd cannot follow
            if "modified inplace" not in str(error):
                raise
            return found
        found.counts["ran"] += 1
        trace = _step(found, "equal", lambda: _equal(one, expected, found.counts))
        if trace is not None:
            _step(found, "valid", lambda: _valid(one, trace))
            _step(found, "rerun", lambda: _same(expected, trace.rerun({}).outputs))
            _step(found, "saved", lambda: _saved(trace))
            _step(found, "decisions", lambda: _decisions(one, trace, found.counts))
            _step(found, "edges", lambda: _edges(one, found.counts))
    return found


def _step(found: Checked, name: str, run: Callable[[], Any]) -> Any:
    try:
        result = run()
    except Exception as error:
        found.wrong.append(f"{name} | {message(error)}")
        return None
    found.counts[f"{name} ok"] += 1
    return result


def _copies(one: Program) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone() for tensor in one.inputs)


def _same(expected: list[torch.Tensor], outputs: list[Any]) -> None:
    if not all_equal(expected, [op.value for op in outputs]):
        raise AssertionError("the outputs differ")


def _equal(one: Program, expected: list[torch.Tensor], counts: Counter[str]) -> Any:
    model, inputs = one.build(), _copies(one)
    state = state_of(model)
    trace = intus.trace(model, inputs, seed=1)
    _same(expected, trace.outputs)
    if trace.maybe_modified:
        raise AssertionError(f"{len(trace.maybe_modified)} values are maybe_modified")
    if not all_equal(list(one.inputs), list(inputs)):
        raise AssertionError("the inputs changed")
    if changed := difference(state, state_of(model)):
        raise AssertionError(f"the model changed: {changed}")
    counts["operations"] += len(trace)
    counts["writes"] += sum(op.in_place for op in trace.ops)
    return trace


def _valid(one: Program, trace: Any) -> None:
    for how, report in (
        ("Trace.validate", trace.validate()),
        ("intus.validate", intus.validate(one.build(), _copies(one), seed=1)),
    ):
        for check in (*report.failed, *report.unproven):
            raise AssertionError(f"{how}: {check.status} {check.label}: {'; '.join(check.reasons)}")


def _saved(trace: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace.save(Path(folder) / "a.trace")
        back = intus.load(Path(folder) / "a.trace")
        if back.graph.labels != trace.graph.labels or back.values.keys() != trace.values.keys():
            raise AssertionError("the loaded trace has other rows")
        if not all(equal(trace.values[row], back.values[row]) for row in trace.values):
            raise AssertionError("a loaded value differs")


def _decisions(one: Program, trace: Any, counts: Counter[str]) -> None:
    expected = one.decisions()
    got = [(decision.kind, decision.way) for decision in trace.conditionals]
    counts["decisions noted"] += len(expected)
    if got != expected:
        first = next(n for n, pair in enumerate([*expected, None]) if n >= len(got) or got[n] != pair)
        raise AssertionError(
            f"decision {first} of {len(expected)}: {[*expected, None][first]}, got {got[first : first + 1]}"
        )


def _edges(one: Program, counts: Counter[str]) -> None:
    found = judge(one.build(), one.inputs)
    counts["pairs"] += found.pairs + found.parameters
    for what in ("lost", "invented", "unmatched"):
        if names := getattr(found, what):
            raise AssertionError(f"{what}: {'; '.join(names[:3])}")
