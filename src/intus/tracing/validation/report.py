"""The Report of a validation: one Check for each op, and comparisons of the whole pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

PROVEN, EXEMPT, UNPROVEN, FAILED = "proven", "exempt", "unproven", "failed"
SAME, DIFFERS, NOT_DETERMINISTIC, NOT_COMPARED = "same", "differs", "not deterministic", "not compared"


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


class Fidelity(NamedTuple):
    """The comparison of the traced pass with passes of the plain model, run before and after it.

    Attributes:
        status: ``"same"`` if all of them computed and changed the same, bit for bit. ``"differs"`` if the
            traced pass differs, or changed something that was not restored. ``"not deterministic"`` if plain
            passes differ among themselves, so that nothing follows for the trace. ``"not compared"`` if plain
            passes were not possible.
        reasons: What differs, or why nothing was compared, in words.
        outputs: The number of values in the output that were compared.
        state: The number of parameters, buffers, attributes and inputs that the pass changed.
    """

    status: str
    reasons: tuple[str, ...] = ()
    outputs: int = 0
    state: int = 0

    def __str__(self) -> str:
        """Describe the comparison in one line, or one line for each difference."""
        if self.status == SAME:
            changed = f", {self.state} changed in the model or the inputs" if self.state else ""
            return (
                f"fidelity: the same as the untraced model, before and after ({self.outputs} "
                f"{'output' if self.outputs == 1 else 'outputs'}{changed}, random state)"
            )
        head = {
            DIFFERS: "fidelity: the traced pass differs from the untraced model",
            NOT_DETERMINISTIC: "fidelity: not decided, because the untraced model differs from itself",
            NOT_COMPARED: "fidelity: not compared with the untraced model",
        }[self.status]
        shown = [f"  {reason}" for reason in self.reasons[:_SHOWN]]
        more = len(self.reasons) - len(shown)
        return "\n".join([head, *shown, *([f"  and {more} more"] if more else [])])


class Followed(NamedTuple):
    """The comparison of the graph's edges with those of autograd.

    Attributes:
        confirmed: The number of edges that autograd has too.
        no_gradient: The number of edges that it cannot judge, because one of the two tensors has no gradient:
            integers, booleans, constants, buffers, and what the model computes without gradients.
        no_derivative: The number of edges that it does not have, because the function has no derivative with
            respect to that argument, or not on these values.
        missing: The edges that it has and the graph lacks, each as a sentence.
    """

    confirmed: int
    no_gradient: int
    no_derivative: int
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Describe the comparison in one line, and one line for each missing edge."""
        others = {"without a gradient": self.no_gradient, "without a derivative": self.no_derivative}
        not_judged = ", ".join(f"{count} {why}" for why, count in others.items() if count)
        total = self.confirmed + sum(others.values())
        head = f"autograd: {self.confirmed} of {total} edges confirmed, {len(self.missing) or 'none'} missing"
        shown = [f"  {sentence}" for sentence in self.missing[:_SHOWN]]
        more = len(self.missing) - len(shown)
        lines = [head + (f"; not judged: {not_judged}" if not_judged else ""), *shown]
        return "\n".join([*lines, *([f"  and {more} more"] if more else [])])


_SHOWN = 5  # reasons that are printed


class Report:
    """The checks of one forward pass, in order of execution.

    A report is true if no op failed or is unproven, and the pass does not differ from one of the plain model.
    Index it with a label, iterate over its checks, or print it. An op is

    - *proven* if it returned the same again, bit for bit, on its parents in the graph, and something else for
      random values in place of each parent;
    - *exempt* if it returned the same again, but random values in place of a parent change nothing. The
      reason is the rule that explains it, or that the parent has no effect on these values;
    - *unproven* if it could not be run again on its parents;
    - *failed* if it returned something else, or if the graph has another parent, function or parameter than
      the call had.

    Args:
        checks: The checks.
        fidelity: The comparison with passes of the plain model; None if it was not requested.
        autograd: The comparison of the edges with those of autograd; None if it was not requested.

    Example:
        >>> report = Report([Check("relu_1_1", "proven"), Check("add_1_2", "failed", ("differs",))])
        >>> bool(report), report.failed[0].label, report["relu_1_1"].status
        (False, 'add_1_2', 'proven')
        >>> print(report)
        failed: 1 of 2 ops proven, 1 failed
          failed    add_1_2  differs
    """

    def __init__(
        self, checks: list[Check], fidelity: Fidelity | None = None, autograd: Followed | None = None
    ) -> None:
        self.checks, self.fidelity, self.autograd = checks, fidelity, autograd

    def _with(self, status: str) -> list[Check]:
        return [check for check in self.checks if check.status == status]

    @property
    def proven(self) -> list[Check]:
        """The ops that returned the same again, and something else for random values of each parent."""
        return self._with(PROVEN)

    @property
    def exempt(self) -> list[Check]:
        """The ops that returned the same again, but a parent of which has no effect on these values."""
        return self._with(EXEMPT)

    @property
    def unproven(self) -> list[Check]:
        """The ops that could not be run again on their arguments."""
        return self._with(UNPROVEN)

    @property
    def failed(self) -> list[Check]:
        """The ops that returned something else, or whose edges or function in the graph are wrong."""
        return self._with(FAILED)

    def __bool__(self) -> bool:
        return not self._differs and not any(check.status in (UNPROVEN, FAILED) for check in self.checks)

    @property
    def _differs(self) -> bool:
        return self.fidelity is not None and self.fidelity.status == DIFFERS

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
        verdict = "valid" if self else "failed" if counts[FAILED] or self._differs else "unproven"
        return f"{verdict}: {totals}"

    def __str__(self) -> str:
        """Show the failed ops, the unproven and exempt ones by reason, and the comparison of the pass."""
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
        lines += [str(section) for section in (self.autograd, self.fidelity) if section is not None]
        return "\n".join(lines)
