"""Write docs/proof.md: what was judged by whom, with the counts. Every sweep renews its own section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from . import table
from .check import Outcome
from .check_opinions import OpinionsOutcome
from .check_program import ProgramsOutcome
from .run import versions

_HEAD = """# Why believe a trace

What was judged by whom, with the counts. Every section is written by the sweep that it is about (`make sweep`
and `make sweep ARGS=ops`, `modules`, `programs`, `opinions`); do not edit.

Nobody who wrote intus decides here what is right: plain torch does (the same values without a trace),
autograd (which operation was computed from which), forward hooks, Hugging Face, torchvision,
`torch.export` and torch's FLOP counter. The inputs are torch's own, the architectures those of public
libraries, and the programs random.
"""
_STEPS = {
    "equal": "plain torch: outputs, state and inputs, bit for bit",
    "decisions": "the program itself: kind and way of every decision",
    "edges": "autograd: edges",
    "valid": "every operation run again, on its inputs and on random ones",
    "rerun": "the whole graph run again",
    "saved": "the file read back",
}


def write(docs: Path, title: str, body: str) -> None:
    """Write or renew a section of the page."""
    path = docs / "proof.md"
    text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    path.write_text(replaced(text, title, body), encoding="utf-8")


def replaced(text: str, title: str, body: str) -> str:
    """Return a page in which the section of that title has another body; it is added if there is none.

    Example:
        >>> print(replaced("# Page\\n\\n## A\\n\\nold\\n\\n## B\\n\\nb\\n", "A", "new\\n"), end="")
        # Page
        <BLANKLINE>
        ## A
        <BLANKLINE>
        new
        <BLANKLINE>
        ## B
        <BLANKLINE>
        b
    """
    head, *sections = text.rstrip("\n").split("\n## ")
    found = dict(section.split("\n", 1) for section in sections)
    found[title] = f"\n{body.rstrip()}\n"
    return "\n".join(
        [head.rstrip("\n") + "\n", *(f"## {name}\n{rest.rstrip()}\n" for name, rest in found.items())]
    )


def models(outcomes: Sequence[Outcome], extent: str = "") -> tuple[str, str]:
    """Return the section about the architectures."""
    return (
        "Architectures",
        f"{table.summary(outcomes)} {_when(extent)}\n\nDetails: [architectures](sweep.md).\n",
    )


def programs(outcomes: Sequence[ProgramsOutcome], extent: str = "") -> tuple[str, str]:
    """Return the section about random programs."""
    total = sum((Counter(one.counts) for one in outcomes), Counter[str]())
    lines = [
        f"{total['ran']:,} random modules with views, writes through views, branches, loops, shared "
        f"parameters and nested outputs: {total['operations']:,} operations, {total['writes']:,} of them "
        f"writes in place. Autograd judged {total['pairs']:,} pairs, the programs noted "
        f"{total['decisions noted']:,} decisions. "
        f"{_when(extent)}",
        "",
        "| judge | programs | agree |",
        "|---|--:|--:|",
        *(f"| {what} | {total['ran']:,} | {total[f'{step} ok']:,} |" for step, what in _STEPS.items()),
    ]
    wrong = [why for one in outcomes for why in (*one.wrong, *one.reasons)]
    lines += ["", *(f"- {why[:200]}" for why in wrong[:20])]
    return "Random programs", "\n".join(lines) + "\n"


def opinions(outcomes: Sequence[OpinionsOutcome], extent: str = "") -> tuple[str, str]:
    """Return the section about second opinions."""
    ran = [one for one in outcomes if one.plain]
    lines = [f"{len(ran)} architectures of the catalogue. {_when(extent)}", ""]
    lines += ["| judge | what | architectures | compared | disagrees in |", "|---|---|--:|--:|--:|"]
    for name, what in _JUDGES.items():
        asked = [one for one in ran if one.compared.get(name)]
        wrong = [one for one in asked if any(why.startswith(f"{name} |") for why in one.wrong)]
        compared = sum(one.compared[name] for one in asked)
        lines.append(f"| {name} | {what} | {len(asked)} | {compared:,} | {len(wrong)} |")
    bad = [(one, one.wrong) for one in ran if one.wrong]
    if bad:
        lines += ["", "| architecture | judge and difference |", "|---|---|"]
        lines += [f"| {one.family} {one.name} | {_short(why)} |" for one, why in bad]
    absent = Counter(name for one in ran for name in one.absent)
    if absent:
        counts = ", ".join(f"{name} {count}" for name, count in absent.most_common())
        lines += ["", f"Cannot judge, because they do not run on the architecture themselves: {counts}."]
    stopped = [one for one in ran if one.reasons]
    if stopped:
        lines += ["", f"Stopped by the time limit: {', '.join(one.name for one in stopped)}."]
    return "Second opinions on architectures", "\n".join(lines) + "\n"


_JUDGES = {
    "autograd": "edges, by `next_functions`",
    "forward hooks": "outputs of every module call, bit for bit",
    "output_hidden_states": "Hugging Face's hidden states and attentions, bit for bit",
    "torchvision.feature_extraction": "every node, bit for bit",
    "torch.export": "edges between operations with parameters",
    "FlopCounterMode": "FLOPs of all products",
}


def _short(why: list[str]) -> str:
    first = why[0].replace(" | ", ": ").replace("|", "\\|")[:200]
    return first + (f" (and {len(why) - 1} more)" if len(why) > 1 else "")


def _when(extent: str) -> str:
    return f"Run on {date.today()} with {versions()}.{extent}"
