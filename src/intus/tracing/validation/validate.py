"""Proof that a trace is right: every op is run again on its parents, and on random ones in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ..run import witnessed
from .offline import TraceValidator
from .report import Report

if TYPE_CHECKING:
    from ..results.trace import Trace


def validate(
    model: Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    perturb: str = "alike",
) -> Report:
    """Run ``model`` on ``inputs`` under the recorder, and prove every op of its graph as it runs.

    Each op is run again just before it runs, on its parents as the graph has them, and must give the same,
    bit for bit; with random values in a parent's place it must give something else. Activations are not kept:
    it takes little memory and about three forward passes. (A trace that is there already proves itself by its
    saved values, ``Trace.validate``.) ``perturb="alike"`` tries random values once on ops that are alike
    (function, plain arguments, shapes, dtypes), which the Report says op by op; ``"all"`` on every op. The
    other arguments are those of ``trace``; the Report is true when all is proven or rightly exempt.

    >>> print(validate(torch.nn.Linear(2, 1), torch.ones(1, 2)))
    valid: 2 of 2 ops proven
    """
    return witnessed(model, inputs, kwargs, seed=seed, every=asks_every(perturb))


def check(trace: Trace, perturb: str) -> Report:
    """Check every op and output of a trace by its saved values."""
    every = asks_every(perturb)
    if trace._replays is None:
        raise InputError(
            "This trace has no calls to run again: it was taken with save='none', copied, or read from a "
            "file. Trace the model again with save='all'."
        )
    return TraceValidator(trace, trace._replays, every=every).report()


def asks_every(perturb: str) -> bool:
    """Whether random values are to be tried on each op; InputError for what means nothing."""
    if perturb not in ("alike", "all"):
        raise InputError(f"perturb={perturb!r} is not one of 'alike', 'all'.")
    return perturb == "all"
