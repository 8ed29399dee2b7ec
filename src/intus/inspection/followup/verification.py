"""Verify that a unit follows a hypothesis, and that the output uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import CaptureError, InputError
from ...core.followup import Measure, UnitVerification, VerifiedPart
from ..plan import Plan
from .ablation import Ablation, Metric, ablate
from .estimate import Estimate
from .perturbation import Change, Perturbation, perturb
from .unit_reader import UnitReader
from .unit_row import UnitRow

TESTS = ("perturbation", "ablation")


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """The tests of whether a unit follows a hypothesis, and whether the model's output uses it.

    Attributes:
        model: The name of the model.
        address: The layer.
        unit: The number of the unit.
        target: The hypothesis.
        perturbation: How the unit changes if its input is changed; None if this was not tested.
        ablation: How the output changes if the unit is replaced by its mean; None if this was not tested.
        notes: Why something was not tested, or is NaN.
    """

    model: str
    address: str
    unit: int
    target: str
    perturbation: Perturbation | None
    ablation: Ablation | None
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> list[VerifiedPart]:
        """The measurements of each test, with their names and a sentence."""
        found = []
        if (one := self.perturbation) is not None:
            measures = [
                _measure("change of the unit where the label flips", one.flips),
                _measure("size of its change where it does not", one.baseline),
                _measure("excess of the first over the second", one.excess, _follows(one)),
            ]
            silhouette = (
                "silhouette not known"
                if one.rank is None
                else f"silhouette {one.silhouette:.2f}, rank {one.rank} of {one.units} units of the layer"
            )
            title = f"Changed input ({one.records} records tried)"
            found.append(VerifiedPart(title, measures, silhouette, []))
        if (two := self.ablation) is not None:
            measures = [
                _measure("effect on the output where it holds", two.holds),
                _measure("effect where it does not", two.lacks),
                _measure("difference", two.effect, _used(two)),
                _measure("effect anywhere", two.anywhere),
            ]
            p = (
                f"p of the difference {two.p:.2g}, of the effect anywhere {two.p_anywhere:.2g}, against "
                f"{len(two.others)} random units of the layer; the least possible p is "
                f"{1 / (1 + len(two.others)):.2g}"
            )
            others = [float(value) for value in two.others if np.isfinite(value)]
            found.append(VerifiedPart(f"Unit replaced by its mean, {two.mean:.3g}", measures, p, others))
        return found

    def summary(self) -> UnitVerification:
        """Return it in the form in which it is stored and shown on the page."""
        return UnitVerification(self.parts, list(self.notes))

    def __repr__(self) -> str:
        lines = [f"Verification of {self.address}[{self.unit}] of {self.model} and {self.target!r}"]
        for part in self.parts:
            lines += [part.title, *(_line(measure) for measure in part.measures), f"  {part.sentence}"]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])


def _measure(name: str, estimate: Estimate, verdict: str = "") -> Measure:
    value, low, high = (x if np.isfinite(x) else None for x in estimate[:3])
    return Measure(name, value, low, high, estimate.n, verdict)


def _line(one: Measure) -> str:
    """Return a measure as a line of text."""
    value, low, high = (np.nan if x is None else x for x in (one.value, one.low, one.high))
    return f"  {one.name:<42} {Estimate(value, low, high, one.n)}  n={one.n}" + (
        f": {one.verdict}" if one.verdict else ""
    )


#: Share of the change with the label above which a change without it is stated.
_MUCH = 0.2


def _follows(one: Perturbation) -> str:
    if one.flips.value == 0:
        return "the unit does not change with the label"
    if one.excess.low > 0:
        if one.baseline.low > _MUCH * abs(one.flips.value):
            return "follows the hypothesis in part: it also changes where the label does not"
        return "follows the hypothesis"
    return "changes more without it" if one.excess.high < 0 else "not decided"


def _used(one: Ablation) -> str:
    if one.effect.value == one.holds.value == one.lacks.value == 0:
        return "the output does not depend on the unit"
    return "differs" if one.effect.low > 0 or one.effect.high < 0 else "not decided"


def verify(
    plan: Plan,
    row: UnitRow,
    *,
    tests: str | tuple[str, ...],
    change: Change | None,
    metric: Metric | None,
    records: int,
    patch: int | None,
    seed: int | None,
) -> Verification:
    """Verify a unit; see ``Inspection.verify``."""
    chosen = (tests,) if isinstance(tests, str) else tuple(tests)
    if not chosen or not set(chosen) <= set(TESTS):
        raise InputError(f"tests must be one or both of {', '.join(map(repr, TESTS))}, got {tests!r}.")
    for name, value in (("records", records), ("patch", patch)):
        if value is not None and value < 1:
            raise InputError(f"{name}={value!r} must be 1 or more.")
    reader = UnitReader(plan, row)
    seed = plan.seed if seed is None else seed
    perturbation = ablation = None
    notes: list[str] = []
    if "perturbation" in chosen:
        try:
            perturbation = perturb(reader, change, patch, records, seed)
        except InputError as error:
            raise _with_way_out(error, chosen) from error
    if "ablation" in chosen:
        try:
            ablation = ablate(reader, metric, records, seed)
        except (CaptureError, InputError) as error:
            if chosen == ("ablation",):
                raise
            notes.append(f"no ablation: {error}")
    notes += [one.note for one in (perturbation, ablation) if one is not None and one.note]
    return Verification(reader.name, row.address, row.unit, row.target, perturbation, ablation, tuple(notes))


def _with_way_out(error: InputError, chosen: tuple[Any, ...]) -> InputError:
    """Return the error of the perturbation, which names the other test if that was requested too."""
    if "ablation" not in chosen:
        return error
    return InputError(f"{error} To ablate the unit alone, pass tests='ablation'.")
