"""Write docs/torch-inputs.md from the outcomes of ``ops`` and ``modules``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from .check_inputs import STEPS, InputsOutcome
from .proof import replaced
from .run import version_of

_HEAD = """# torch's own test inputs

torch tests its operators and modules on inputs of its own: `common_methods_invocations.op_db` and
`common_modules.module_db`. `make sweep ARGS=ops` and `ARGS=modules` trace them; do not edit this page.

An operator is called as a function, as a method, in place and with `out=`, on its first two samples and a
later one. A module is called with all its inputs, in training and in evaluation. Cases that torch itself
refuses, that return no tensor, or that give another result when run twice (uninitialized memory) do not
count.
"""


def write(path: Path, family: str, outcomes: Sequence[InputsOutcome], extent: str = "") -> None:
    """Write or renew the section of a family."""
    text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    path.write_text(
        replaced(text, f"{family.capitalize()}", _section(family, outcomes, extent)), encoding="utf-8"
    )


def _totals(outcomes: Sequence[InputsOutcome]) -> Counter[str]:
    return sum((Counter(one.counts) for one in outcomes), Counter[str]())


def summary(family: str, outcomes: Sequence[InputsOutcome]) -> str:
    """Return one sentence with the counts."""
    total, ran = _totals(outcomes), [one for one in outcomes if one.counts.get("ran")]
    clean = sum(not one.wrong for one in ran)
    return (
        f"{len(outcomes)} {family}, {len(ran)} of them run: {total['ran']:,} cases, "
        f"{total['operations']:,} operations; "
        f"{clean} {family} without a finding."
    )


def _section(family: str, outcomes: Sequence[InputsOutcome], extent: str) -> str:
    total = _totals(outcomes)
    lines = [f"**{summary(family, outcomes)}** torch {version_of('torch')}, {date.today()}.{extent}", ""]
    lines += ["| what | cases | agree | % |", "|---|--:|--:|--:|"]
    for step, what in STEPS.items():
        tried, agreed = total[step], total[f"{step} ok"]
        lines.append(f"| {what} | {tried:,} | {agreed:,} | {100 * agreed / max(tried, 1):.2f} |")
    lines += ["", f"Autograd judged {total['pairs']:,} pairs. "]
    lines[-1] += f"{total['proven']:,} rows are proven, {total['exempt']:,} exempt. "
    lines[-1] += (
        f"Left out: {total['refused by torch']} cases that torch refuses, "
        f"{total['no tensor']} without a tensor, "
    )
    lines[-1] += f"{total['not reproducible']} that are not reproducible."
    refused = sum((Counter(one.refused) for one in outcomes), Counter[str]())
    if refused:
        kinds = ", ".join(f"`{why}` {count}" for why, count in refused.most_common())
        lines += ["", f"`Trace.save` refuses what its format cannot hold, as documented: {kinds}."]
    none = [one for one in outcomes if one.reasons]
    if none:
        why = sorted({reason for one in none for reason in one.reasons})
        lines += ["", f"Not checked: {', '.join(f'`{one.name}`' for one in none)} ({'; '.join(why)})."]
    return "\n".join([*lines, *_findings(outcomes)]) + "\n"


def _findings(outcomes: Sequence[InputsOutcome]) -> list[str]:
    """Return a table of what is not clean: one line per operator and step."""
    rows = []
    for one in sorted(outcomes, key=lambda one: one.name.lower()):
        by_step: dict[str, list[str]] = {}
        for finding in one.wrong:
            step, _, rest = finding.partition(" | ")
            by_step.setdefault(step, []).append(rest)
        for step, found in by_step.items():
            first = found[0].partition(" | ")[2].replace("|", "\\|")[:160]
            rows.append(f"| `{one.name}` | {step} | {len(found)} of {one.counts[step]} | {first} |")
    if not rows:
        return ["", "Nothing disagrees."]
    return ["", "| name | what | cases | the first |", "|---|---|--:|---|", *rows]


def proof(family: str, outcomes: Sequence[InputsOutcome], extent: str = "") -> str:
    """Return the section of docs/proof.md."""
    total = _totals(outcomes)
    lines = [summary(family, outcomes) + extent, "", "| judge | compared | agree |", "|---|--:|--:|"]
    judges = {
        "equal": "plain torch: outputs, bit for bit",
        "unchanged": "plain torch: inputs, state, random state",
        "gradients": "plain torch: gradients, bit for bit",
        "edges": f"autograd: edges ({total['pairs']:,} pairs)",
        "valid": "every operation run again, on its inputs and on random ones",
        "rerun": "the whole graph run again",
        "saved": "the file read back",
    }
    lines += [f"| {what} | {total[step]:,} | {total[f'{step} ok']:,} |" for step, what in judges.items()]
    return "\n".join(lines) + "\n\nDetails: [torch's own test inputs](torch-inputs.md).\n"
