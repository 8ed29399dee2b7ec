"""docs/sweep.md, written from what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from .check import Outcome
from .run import versions

_HEAD = """# What has been traced

Written by `make sweep`; do not edit. Every architecture is made tiny at random initialisation and run
plainly, then it is traced with every activation saved (the outputs must be bit-equal, the model and the
random state unchanged), validated both ways (`Trace.validate` and `intus.validate`), saved, and loaded. What
does not run plainly as the sweep makes it says nothing about a trace, and does not count.

"""
_EXPLAINED = """
*proven* and *exempt* are the rows of `Trace.validate`'s report; *ratio* is the time of a trace with all
values saved to that of a plain run, of a tiny model, where a trace looks dearest.
"""
_COLUMNS = "| architecture | ops | proven | exempt | ratio |\n|---|--:|--:|--:|--:|\n"


def summary(outcomes: Sequence[Outcome]) -> str:
    """The first line: how many, and how many of these traced and validated."""
    ran = [one for one in outcomes if one.plain]
    words = f"{len(ran)} architectures run plainly: {sum(one.traced for one in ran)} traced, "
    words += (
        f"{sum(one.validated for one in ran)} validated, {sum(one.saved for one in ran)} saved and loaded"
    )
    if not ran:
        return words + "."
    ratio = median(one.trace_seconds / max(one.plain_seconds, 1e-9) for one in ran if one.traced)
    ops, proven = sum(one.ops for one in ran), sum(one.proven for one in ran)
    exempt = sum(one.exempt for one in ran)
    return (
        f"{words}. {ops:,} operations; {proven:,} rows proven, {exempt:,} exempt; median ratio {ratio:.1f}."
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    ran = sorted((one for one in outcomes if one.plain), key=lambda one: (one.family, one.name.lower()))
    parts = [_HEAD, f"**{summary(outcomes)}**\n\nWith {versions()}.\n", _problems(ran), _EXPLAINED]
    for family in sorted({one.family for one in ran}):
        members = [one for one in ran if one.family == family]
        parts.append(f"\n## {family}: {len(members)}\n\n{_COLUMNS}")
        parts += [_row(one) for one in members]
    parts += [_exemptions(ran), _not_plain([one for one in outcomes if not one.plain])]
    return "".join(parts)


def _row(one: Outcome) -> str:
    ratio = f"{one.trace_seconds / one.plain_seconds:.1f}" if one.traced and one.plain_seconds else ""
    mark = "" if one.validated and one.saved else " **(see above)**"
    return f"| {one.name}{mark} | {one.ops} | {one.proven} | {one.exempt} | {ratio} |\n"


def _problems(ran: list[Outcome]) -> str:
    bad = [one for one in ran if not (one.traced and one.validated and one.saved)]
    if not bad:
        return "\nNothing that ran plainly failed to trace, validate, save or load.\n"
    rows = [f"| {one.family} | {one.name} | {_short(one.reasons)} |\n" for one in bad]
    return "\n## What failed\n\n| family | architecture | why |\n|---|---|---|\n" + "".join(rows)


def _short(reasons: list[str]) -> str:
    first = reasons[0][:200].replace("|", "\\|") if reasons else ""
    return first + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")


def _exemptions(ran: list[Outcome]) -> str:
    counts = Counter(_rule(reason) for one in ran for reason in one.exemptions)
    rows = [f"| {reason} | {count:,} |\n" for reason, count in counts.most_common()]
    return "\n## Why rows were exempt\n\n| reason | times |\n|---|--:|\n" + "".join(rows)


def _rule(reason: str) -> str:
    """A reason without the operation and the argument it was given for."""
    why = reason.partition(" | ")[2]
    return why.partition("': ")[2] if why.startswith("argument '") else why


def _not_plain(failed: list[Outcome]) -> str:
    if not failed:
        return ""
    names = ", ".join(sorted(f"{one.name}" for one in failed))
    return f"\n## Not run plainly as the sweep makes them: {len(failed)}\n\n{names}\n"
