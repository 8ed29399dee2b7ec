"""ScoreInfo: what a score is, as a fact that travels with its results."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from .errors import InputError

_LONGEST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreInfo:
    """The description of a score, for people and programs that read its results.

    It is given where the score is registered, stored with the results, and served to the page. Code that
    shows results therefore needs no list of scores, and shows a score of another package or process like any
    other.

    Attributes:
        name: The name that results have in the column ``score``.
        label: What people call it; by default the name.
        level: Whether it is a score of a whole layer or of a single unit.
        needs_target: Whether it is computed for a target (a hypothesis); if not, results have the target "".
        about: What it measures, in a sentence or two.
        formula: How it is computed.
        low: The least value it can have; None if there is none, or none is known.
        high: The largest value it can have; None if there is none, or none is known.
        baseline: What the column ``baseline`` holds; empty if nothing.
        interval: What the columns ``low`` and ``high`` of its results hold; empty if nothing.
        requires: What data it needs beyond behaviours; empty if nothing.
        source: Where it is defined: a paper, or a function of a library.
        baseline_of: The name of the score whose baseline it is; empty if it is none.
        center: The value of a unit that does not respond, if values on both sides of it are responses; None
            if only larger values are.

    >>> ScoreInfo(name="kurtosis", about="Excess kurtosis of all entries.").label
    'kurtosis'
    """

    name: str
    label: str = ""
    level: Literal["layer", "unit"] = "layer"
    needs_target: bool = False
    about: str = ""
    formula: str = ""
    low: float | None = None
    high: float | None = None
    baseline: str = ""
    interval: str = ""
    requires: str = ""
    source: str = ""
    baseline_of: str = ""
    center: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name)
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, str) and (len(value) > _LONGEST or "\0" in value):
                raise InputError(
                    f"{each.name} of the score {self.name[:100]!r} must be text of at most {_LONGEST:,} "
                    f"characters without NUL, got {value[:40]!r} of {len(value):,} characters."
                )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values.

        >>> ScoreInfo(name="mean").to_json()["label"]
        'mean'
        """
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ScoreInfo:
        """Return what ``to_json`` made. Fields that are not known, of a newer version, are ignored.

        >>> ScoreInfo.from_json({"name": "mean", "colour": "red"}).name
        'mean'
        """
        known = {each.name for each in fields(cls)}
        return cls(**{name: part for name, part in value.items() if name in known})
