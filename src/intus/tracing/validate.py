"""Proof of a trace: every op is run again on its saved parents, and on random ones; see ``Trace.validate``.

Parents are taken from the graph's own edges, so a lost or a wrong edge shows as well as a wrong value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.errors import InputError
from ..core.graph import CONSTANT, INPUT, OUTPUT
from ..core.graph import FAILED as RAISED
from ..core.walks import ancestors
from .exempt import UNINITIALISED, Case, reason, stand_ins
from .given import Parents, WrongError, calls_of
from .invocation import Invocation
from .replay import LEFT_OUT, Replays, UnprovenError, equal, run, same, unwatched
from .report import EXEMPT, FAILED, PROVEN, UNPROVEN, Check, Report

if TYPE_CHECKING:
    from .trace import Trace


def validate(
    model: Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
) -> Report:
    """Trace ``model`` on ``inputs`` with everything saved, and prove every saved activation.

    The arguments are those of ``trace``; the Report is true when all is proven or rightly exempt.

    >>> print(validate(torch.nn.Linear(2, 1), torch.ones(1, 2)))
    valid: 2 of 2 ops proven
    """
    from .run import trace

    return trace(model, inputs, kwargs, seed=seed).validate()


def check(trace: Trace) -> Report:
    """Check every op and output of a trace."""
    if trace._replays is None:
        raise InputError(
            "This trace has no calls to run again: it was taken with save='none', copied, or read from a "
            "file. Trace the model again with save='all'."
        )
    return _Checker(trace, trace._replays).report()


class _Checker:
    """One validation; ``chance`` draws the random values, the same in every run."""

    def __init__(self, trace: Trace, replays: Replays) -> None:
        self.trace, self.graph, self.replays = trace, trace.graph, replays
        self.chance = torch.Generator().manual_seed(0)
        self.parents = Parents(trace.graph, replays, trace.values)

    def report(self) -> Report:
        events = calls_of(self.graph)
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        with torch.random.fork_rng(devices=devices), unwatched():
            found = {row: one for event, rows in events.items() for row, one in self._event(event, rows)}
        return Report([found[row] for row in sorted(found)])

    def _event(self, event: int, rows: list[int]) -> list[tuple[int, Check]]:
        """The checks of the rows that one call returned."""
        try:
            checks = (
                [self._output(rows[0])]
                if int(self.graph.ops.kind[rows[0]]) == OUTPUT
                else self._call(event, rows)
            )
        except (UnprovenError, WrongError) as error:
            status = UNPROVEN if isinstance(error, UnprovenError) else FAILED
            checks = [Check(self.graph.label(row), status, (str(error),)) for row in rows]
        except Exception as error:  # values that cannot be compared: on meta, nested, of a foreign class
            why = f"it cannot be checked: {_told(error)}"
            checks = [Check(self.graph.label(row), UNPROVEN, (why,)) for row in rows]
        return list(zip(rows, checks, strict=True))

    def _output(self, row: int) -> Check:
        parents = self.parents.into.get(row, {})
        if not parents:
            if row in self.graph.row_params:
                return Check(self.graph.label(row), EXEMPT, ("it is a parameter as it stands",))
            raise WrongError("it has no parent")
        (parent,) = parents.values()
        if not same(self.parents.value(row), self.parents.value(parent)):
            raise WrongError(f"it is not what {self.graph.label(parent)} returned")
        kinds = {int(self.graph.ops.kind[above]) for above in (parent, *ancestors(self.graph, [parent]))}
        if CONSTANT in kinds and INPUT not in kinds and self.graph.rows_of(INPUT):
            raise UnprovenError(
                "it descends from no input, only from tensors made before the pass or out of sight"
            )
        return Check(self.graph.label(row), PROVEN)

    # -- one call ------------------------------------------------------------------------------------

    def _call(self, event: int, rows: list[int]) -> list[Check]:
        call = self.replays.call(event)
        if self._was_caught(rows[0]):
            return [Check(self.graph.label(rows[0]), EXEMPT, ("it raised, and the model went on",))]
        if call is None:
            raise UnprovenError("its call was not noted: it ran out of sight, or raised")
        saved = {self._output_number(row): self.parents.value(row) for row in rows}
        self.parents.agree(call, rows)
        given = [self.parents.given(hole, rows[0]) for hole in call.holes]
        try:
            out = run(call, given)
        except Exception as error:
            if getattr(call.func, "__module__", None) == "torch.autograd":
                raise UnprovenError("it needs what autograd had recorded, which is gone") from None
            raise WrongError(f"run again it raised {_told(error)}") from None
        type_ = self.trace.graph.types[int(self.graph.ops.type[rows[0]])]
        blank = type_ in UNINITIALISED
        checks = {row: self._compare(call, row, saved, out, blank) for row in rows}
        if all(status == PROVEN for status, _ in checks.values()):
            reasons = self._sensitive(call, type_, given, out)
            if blank:
                reasons = [(EXEMPT, "its memory is not initialised, so only shape and dtype were compared")]
            status = FAILED if any(s == FAILED for s, _ in reasons) else EXEMPT if reasons else PROVEN
            said = tuple(why for s, why in reasons if s == status)
            return [Check(self.graph.label(row), status, said) for row in rows]
        return [Check(self.graph.label(row), *checks[row]) for row in rows]

    def _compare(
        self, call: Invocation, row: int, saved: dict[int, Tensor], out: list[Tensor], blank: bool
    ) -> tuple[str, tuple[str, ...]]:
        number = self._output_number(row)
        if number >= len(out):
            return FAILED, (f"run again it returned {len(out)} tensors, not {number + 1}",)
        was, now = saved[number], out[number]
        if blank:
            same_kind = (was.shape, was.dtype) == (now.shape, now.dtype)
            return (PROVEN, ()) if same_kind else (FAILED, ("run again its shape or dtype is another",))
        if same(was, now):
            return PROVEN, ()
        if self.graph.label(row) in self.graph.facts.get("changed", ()):
            return EXEMPT, ("it was changed in a rerun",)
        return FAILED, (
            f"run again on its saved parents it gives something else{_how_far(was, now)}"
            + self._excuse(call, row),
        )

    def _excuse(self, call: Invocation, row: int) -> str:
        """What may explain a difference."""
        changed = [
            self.graph.params[-1 - hole.source].address
            for hole in call.holes
            if LEFT_OUT < hole.source < 0 and self._changed(-1 - hole.source)
        ]
        if changed:
            return f"; {', '.join(changed)} changed since the trace was taken"
        return "; something unseen wrote to its memory" if row in self.trace.unverified else ""

    def _sensitive(
        self, call: Invocation, type_: str, given: list[Tensor], out: list[Tensor]
    ) -> list[tuple[str, str]]:
        """What is to be said of arguments that are not seen to matter: a status and why, for each."""
        said = []
        for number, hole in enumerate(call.holes):
            name = f"argument {self.graph.args[hole.arg]!r}: "
            if hole.left is not None:
                said.append((EXEMPT, name + "it came from an op that leads nowhere and is not in the graph"))
                continue
            if not (given[number].is_floating_point() or given[number].is_complex()):
                said.append((EXEMPT, name + "whole numbers, indices and masks are not replaced"))
                continue
            refused = self._matters(call, number, given, out)
            if refused is None:
                continue
            case = Case(type_, call, given, number, self.graph.args[hole.arg], out)
            why = reason(case) or (f"random values are refused ({refused})" if refused else None)
            said.append(
                (EXEMPT, name + why) if why else (FAILED, name + "random values give the same result")
            )
        return said

    def _matters(self, call: Invocation, number: int, given: list[Tensor], out: list[Tensor]) -> str | None:
        """None where other values give another result, else why none could be tried ("" if some were)."""
        refused: list[str] = []
        tried = 0
        for value in stand_ins(given[number], self.chance):
            try:
                other = run(call, [value if n == number else t for n, t in enumerate(given)])
            except Exception as error:
                refused.append(_told(error))
                continue
            tried += 1
            if len(other) != len(out) or not all(map(equal, other, out)):
                return None
        return "" if tried else refused[0]

    def _was_caught(self, row: int) -> bool:
        """Whether the op returned nothing, and is not the one that ended the pass."""
        nothing = self.graph.metas[int(self.graph.ops.meta[row])].dtype == ""
        return nothing and not self.graph.ops.flags[row] & RAISED

    def _output_number(self, row: int) -> int:
        return max(int(self.graph.ops.output[row]), 0)

    def _changed(self, number: int) -> bool:
        value, version = self.replays.params[number]
        return version is not None and value._version != version


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def _how_far(was: Tensor, now: Tensor) -> str:
    """The greatest difference, where there is one to tell."""
    if was.shape != now.shape:
        return f" (shape {tuple(now.shape)}, saved {tuple(was.shape)})"
    if was.dtype != now.dtype:
        return f" ({now.dtype}, saved {was.dtype})"
    far = (
        (was.to(torch.float64) - now.to(torch.float64)).abs().max()
        if not was.is_complex()
        else torch.zeros(0)
    )
    return f" (differs by up to {far.item():.3g})" if far.numel() else ""
