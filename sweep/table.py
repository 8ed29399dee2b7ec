"""Write docs/sweep.md from the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from statistics import median

from .check import Outcome
from .run import versions

_HEAD = """# Architectures that were traced

Which architectures `intus.trace` was tested on, and what failed. Written by `make sweep`; do not edit.

Every architecture is built small with random weights and run without intus. Then it is

1. traced with every activation saved: the outputs must be bit-equal, the model and the random state
   unchanged;
2. validated in both ways: `Trace.validate` and `intus.validate`;
3. saved and loaded.

A model that does not run without intus says nothing about tracing and does not count.

The names come from the registries of the libraries:

- torchvision, all of `list_models`: classification, segmentation, detection, video, optical flow,
  quantization. Where its binary does not fit the installed torch, `nms` and `roi_align` run as Python.
- timm, all of `list_models`, with ten classes, on the smallest square image that the model accepts. Models
  that are too large are listed below.
- transformers, in four families: every type of `AutoModel`; every class of the other auto classes, with an
  attention mask that hides the end; those that generate, in the second call, with the cache of the first; and
  their `generate`, three tokens.
- diffusers, monai, torch_geometric: the classes that run small.
- by hand: CORnet-Z, -R, -RT and -S, written from their papers, recurrent and unusual models, and the models
  of the tests.
- speech: torchaudio is not needed. wav2vec 2.0, HuBERT, WavLM and wav2vec 2.0 with a Conformer are in
  transformers; Conformer, Conv-TasNet, DeepSpeech, Tacotron 2 and WaveRNN are written by hand. Emformer,
  Hybrid Demucs and SQUIM are missing.

"""
_EXPLAINED = """
In the tables, *proven* and *exempt* count the tensors in the report of `Trace.validate`; values inside `vmap`
and the graph of `autograd.grad` cannot be saved, so these only `intus.validate` proves. *ratio* is the time
of a trace with all values saved, divided by the time of a run without intus; it is largest for small models.
"""
_COLUMNS = "| architecture | ops | proven | exempt | ratio |\n|---|--:|--:|--:|--:|\n"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the first line: how many architectures were traced, validated and saved."""
    ran = [one for one in outcomes if one.plain]
    text = f"{len(ran)} architectures run: {sum(one.traced for one in ran)} traced, "
    text += f"{sum(one.validated for one in ran)} validated, {sum(one.saved for one in ran)} saved and loaded"
    if refused := sum(bool(one.refused) for one in ran):
        text += f", {refused} refused by `save` as documented (sparse or quantized values)"
    if not ran:
        return text + "."
    ratio = median(one.trace_seconds / max(one.plain_seconds, 1e-9) for one in ran if one.traced)
    ops, proven = sum(one.ops for one in ran), sum(one.proven for one in ran)
    exempt = sum(one.exempt for one in ran)
    text += f". {ops:,} operations; {proven:,} rows proven, {exempt:,} exempt"
    if running := sum(one.running for one in ran):
        text += f", {running:,} proven only while the pass runs"
    return f"{text}; median ratio {ratio:.1f}."


def table(outcomes: Sequence[Outcome], extent: str = "") -> str:
    """Return the whole page."""
    ran = sorted((one for one in outcomes if one.plain), key=lambda one: (one.family, one.name.lower()))
    parts = [
        _HEAD,
        f"**{summary(outcomes)}**\n\nRun on {date.today()} with {versions()}.{extent}\n",
        _problems(ran),
        _EXPLAINED,
    ]
    for family in sorted({one.family for one in ran}):
        members = [one for one in ran if one.family == family]
        parts.append(f"\n## {family}: {len(members)}\n\n{_COLUMNS}")
        parts += [_row(one) for one in members]
    parts += [_exemptions(ran), _not_plain([one for one in outcomes if not one.plain])]
    return "".join(parts)


def _row(one: Outcome) -> str:
    ratio = f"{one.trace_seconds / one.plain_seconds:.1f}" if one.traced and one.plain_seconds else ""
    mark = " **(see above)**" if one.failed else ""
    return f"| {one.name}{mark} | {one.ops} | {one.proven} | {one.exempt} | {ratio} |\n"


def _problems(ran: list[Outcome]) -> str:
    bad = [one for one in ran if one.failed]
    if not bad:
        return "\nNo check of an architecture that runs failed.\n"
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
    """Return a reason without the operation and the argument that it is about."""
    why = reason.partition(" | ")[2]
    return why.partition("': ")[2] if why.startswith("argument '") else why


def _not_plain(failed: list[Outcome]) -> str:
    if not failed:
        return ""
    large = [one for one in failed if any("TooLargeError" in why for why in one.reasons)]
    limits = [one for one in failed if one not in large and any(why.startswith("it") for why in one.reasons)]
    others = [one for one in failed if one not in large and one not in limits]
    text = f"\n## Left out as too large: {len(large)}\n\nThe number is the parameters in millions.\n\n"
    text += ", ".join(f"{one.name} {_millions(one)}" for one in large) + "\n" if large else "none\n"
    if limits:
        text += f"\n## Stopped before the first run ended: {len(limits)}\n\n"
        text += ", ".join(f"{one.name} ({one.reasons[-1]})" for one in limits) + "\n"
    text += f"\n## Do not run as the sweep builds them: {len(others)}\n"
    for family in sorted({one.family for one in others}):
        names = [one.name for one in others if one.family == family]
        text += f"\n{family}, {len(names)}: {', '.join(sorted(names))}\n"
    return text


def _millions(one: Outcome) -> str:
    """Return the size of an architecture that is too large, from the reason."""
    return one.reasons[0].partition("TooLargeError: ")[2].partition(" ")[0]
