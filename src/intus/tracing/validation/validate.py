"""Proof that a trace is right: every op is run again on its parents, and on random ones in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..run import witnessed
from .perturb import asks_every
from .report import Report


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
