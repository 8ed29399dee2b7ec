"""Examples and verifications of single units, in the form in which they are stored and shown."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class UnitExample:
    """A record, with the behavior of a unit over it.

    Attributes:
        kind: Why it was chosen, such as ``"top"``.
        record: The number of the record in the data.
        behavior: The behavior of the unit at the chosen symbol; None if it is not finite.
        label: The label there, as text.
        tokens: The symbols of a text around the chosen one; empty if the record is no text.
        gap: What separates symbols: ``" "`` between words, ``""`` between characters.
        shades: The behavior at each symbol relative to the largest size in all examples, from -100 to 100; 0
            if it is not finite. Empty if the layer has no positions that fit the record.
        holds: Whether the hypothesis holds at each symbol; empty if the record has one label.
        at: The index of the chosen symbol in ``tokens``; None if there is none.
        cut: Whether symbols before the first and after the last are left out.
        picture: An image as a ``data:`` URL; ``""`` if the record is no image.
        over: The behavior and the outline of the hypothesis as a transparent picture of the same shape, as a
            ``data:`` URL; ``""`` if there is none.
        labels: The label of each symbol, as text; empty if ``holds`` tells it or the record has one label.
    """

    kind: str
    record: int
    behavior: float | None
    label: str
    tokens: list[str]
    gap: str
    shades: list[int]
    holds: list[bool]
    at: int | None
    cut: tuple[bool, bool]
    picture: str
    over: str
    labels: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class UnitExamples:
    """Examples of a unit.

    Attributes:
        examples: The examples, those of a kind together.
        largest: The largest size of a behavior in the examples, which has the strongest shade.
        legend: What the colors and marks mean, as far as the examples have any.
    """

    examples: list[UnitExample]
    largest: float
    legend: str


@dataclass(frozen=True, slots=True)
class Measure:
    """A mean with its 95 % interval.

    Attributes:
        name: What it is.
        value: The mean; None if there is none.
        low: The lower end of the interval.
        high: The upper end.
        n: The number of values.
        verdict: What follows from it; ``""`` if nothing.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    verdict: str


@dataclass(frozen=True, slots=True)
class VerifiedPart:
    """The result of one of the tests of a verification.

    Attributes:
        title: What was done.
        measures: What was measured.
        sentence: How this compares with other units of the layer.
        others: The measure named ``"difference"`` of other units of the layer, chosen at random; empty if
            there is none.
    """

    title: str
    measures: list[Measure]
    sentence: str
    others: list[float]


@dataclass(frozen=True, slots=True)
class UnitVerification:
    """The verification of a unit.

    Attributes:
        parts: Its tests.
        notes: Why something was not tested.
    """

    parts: list[VerifiedPart]
    notes: list[str]
