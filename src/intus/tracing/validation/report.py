"""The Report of a validation: one Check for each op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

PROVEN, EXEMPT, UNPROVEN, FAILED = "proven", "exempt", "unproven", "failed"


class Check(NamedTuple):
    """The result of validating one op.

    Attributes:
        label: The label of the op.
        status: ``"proven"``, ``"exempt"``, ``"unproven"`` or ``"failed"``; ``Report`` explains them.
        reasons: Why it has that status, in words; empty if it is proven.
        alike: The labels of the ops on which random values were tried instead of on this one: same function,
            same non-tensor arguments, same shapes and dtypes. Empty if they were tried on this op.
    """

    label: str
    status: str
    reasons: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()


class Report:
    """The checks of one forward pass, in order of execution.

    A report is true if no op failed and no op is unproven. Index it with a label, iterate over its checks, or
    print it. An op is

    - *proven* if it returned the same again, bit for bit, and something else for random values of each
    parent; - *exempt* if it returned the same again, and a rule explains why random values of a parent need
    not matter; - *unproven* if it could not be run again on its arguments; - *failed* if it returned
    something else, or a parent of the graph makes no difference.

    Args:
        checks: The checks.

    Example:
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
        """The ops that returned the same again, and something else for random values of each parent."""
        return self._with(PROVEN)

    @property
    def exempt(self) -> list[Check]:
        """The ops that returned the same again, and a rule explains why a parent need not matter."""
        return self._with(EXEMPT)

    @property
    def unproven(self) -> list[Check]:
        """The ops that could not be run again on their arguments."""
        return self._with(UNPROVEN)

    @property
    def failed(self) -> list[Check]:
        """The ops that returned something else, or whose parent in the graph makes no difference."""
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
        raise KeyError(f"The report has no op {label!r}. Its labels are those of report.checks.")

    def __repr__(self) -> str:
        return f"<Report: {self._summary()}>"

    def _summary(self) -> str:
        counts = Counter(check.status for check in self.checks)
        others = [f"{counts[status]} {status}" for status in (EXEMPT, UNPROVEN, FAILED) if counts[status]]
        alike = sum(bool(check.alike) for check in self.proven)
        note = f" ({alike} with random values tried on an op that is alike)" if alike else ""
        totals = ", ".join([f"{counts[PROVEN]} of {len(self)} ops proven{note}", *others])
        verdict = "valid" if self else "failed" if counts[FAILED] else "unproven"
        return f"{verdict}: {totals}"

    def __str__(self) -> str:
        """Show the failed ops, then the unproven and exempt ones, grouped by reason."""
        lines = [self._summary()]
        for check in self.failed:
            lines += [f"  {FAILED:8}  {check.label}  {reason}" for reason in check.reasons]
        by_reason: dict[tuple[str, str], list[str]] = {}
        for check in [*self.unproven, *self.exempt]:
            for reason in check.reasons:
                by_reason.setdefault((check.status, reason), []).append(check.label)
        for (status, reason), labels in by_reason.items():
            labels = list(dict.fromkeys(labels))
            more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
            lines.append(f"  {status:8}  {', '.join(labels[:3])}{more}  {reason}")
        return "\n".join(lines)
