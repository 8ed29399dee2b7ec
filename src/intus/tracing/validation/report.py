"""What a validation found, op by op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

PROVEN, EXEMPT, UNPROVEN, FAILED = "proven", "exempt", "unproven", "failed"


class Check(NamedTuple):
    """What was found of one op: ``status`` is proven, exempt, unproven or failed, ``reasons`` say why.

    ``alike`` are the ops on whose arguments random values were tried in its stead: the same function, the
    same arguments that are no tensors, tensors of the same shapes and dtypes. Empty where its own were tried.
    """

    label: str
    status: str
    reasons: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()


class Report:
    """The checks of one trace, in the order the ops ran; true when nothing failed and nothing is unproven.

    ``report["relu_1_2"]`` is one op's Check; ``failed``, ``unproven``, ``exempt`` and ``proven`` list them.

    >>> report = Report([Check("relu_1_1", "proven"), Check("add_1_2", "failed", ("differs",))])
    >>> bool(report), report.failed[0].label, report["relu_1_1"].status
    (False, 'add_1_2', 'proven')
    >>> print(report)
    failed: 1 of 2 ops proven, 1 failed
      failed    add_1_2  differs
    """

    def __init__(self, checks: list[Check]) -> None:
        self.checks = checks

    def _with(self, status: str) -> list[Check]:
        return [check for check in self.checks if check.status == status]

    @property
    def proven(self) -> list[Check]:
        """Run again they gave what was saved, and they, or an op alike, something else on random parents."""
        return self._with(PROVEN)

    @property
    def exempt(self) -> list[Check]:
        """Run again they gave what was saved; that a parent matters rightly does not show."""
        return self._with(EXEMPT)

    @property
    def unproven(self) -> list[Check]:
        """They could not be run again on what they were given."""
        return self._with(UNPROVEN)

    @property
    def failed(self) -> list[Check]:
        """What was saved is not what comes out, or a parent in the graph does not matter."""
        return self._with(FAILED)

    def __bool__(self) -> bool:
        return not any(check.status in (UNPROVEN, FAILED) for check in self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __getitem__(self, label: str) -> Check:
        for check in self.checks:
            if check.label == label:
                return check
        raise KeyError(f"No op of this report is called {label!r}.")

    def __repr__(self) -> str:
        return f"<Report: {self._summary()}>"

    def _summary(self) -> str:
        counts = Counter(check.status for check in self.checks)
        rest = [f"{counts[status]} {status}" for status in (EXEMPT, UNPROVEN, FAILED) if counts[status]]
        alike = sum(bool(check.alike) for check in self.proven)
        stead = f" ({alike} with random values tried on an op alike)" if alike else ""
        said = ", ".join([f"{counts[PROVEN]} of {len(self)} ops proven{stead}", *rest])
        verdict = "valid" if self else "failed" if counts[FAILED] else "unproven"
        return f"{verdict}: {said}"

    def __str__(self) -> str:
        """The failed first, then the unproven, then why the exempt are exempt, alike reasons on one line."""
        lines = [self._summary()]
        for check in self.failed:
            lines += [f"  {FAILED:8}  {check.label}  {reason}" for reason in check.reasons]
        together: dict[tuple[str, str], list[str]] = {}
        for check in [*self.unproven, *self.exempt]:
            for reason in check.reasons:
                together.setdefault((check.status, reason), []).append(check.label)
        for (status, reason), labels in together.items():
            labels = list(dict.fromkeys(labels))
            more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
            lines.append(f"  {status:8}  {', '.join(labels[:3])}{more}  {reason}")
        return "\n".join(lines)
