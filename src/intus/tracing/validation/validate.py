"""Validate a forward pass while it runs: the function ``validate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..front_door import arguments, front_door
from ..record import validate_while_running
from .perturb import perturbs_every
from .report import Report


@front_door
def validate(
    model: Callable[..., Any],
    /,
    *args: Any,
    seed: int | None = None,
    perturb: str = "alike",
    fidelity: bool = True,
    against: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Report:
    """Run a model and validate every operation of its graph while it runs.

    Each operation is run again just before the model runs it, on the parents that the graph records for it,
    and both results must be equal bit for bit. The parents must be the tensors that the operation really
    receives. Random values in place of a parent show that it matters; where they change nothing, the
    operation is exempt and the report gives the reason. This takes about three forward passes and little
    memory, because activations are not kept. ``Trace.validate`` does the same for a trace that exists
    already, on its saved values. A bar shows the progress if tqdm (``intus[progress]``) is installed and
    standard error is a terminal or a notebook.

    The whole pass is compared with passes of the plain model before and after it.

    Args:
        model: As in ``trace``.
        *args: The model's positional arguments, as in ``trace``.
        seed: As in ``trace``.
        perturb: ``"alike"`` (default) tries random values once for operations that are alike: same function,
            same non-tensor arguments, same shapes and dtypes; ``Check.alike`` names the op on which they were
            tried. ``"all"`` tries them on every operation.
        fidelity: Whether to run the model also without a trace, before and after, each time from the same
            restored state, and to compare outputs, state (parameters, buffers, attributes, inputs) and random
            state bit for bit. Takes two more forward passes and memory for two copies of the parameters and
            buffers. A model that is not deterministic is reported as such, not as a failure. Default: True.
        against: ``"autograd"`` also compares the edges of the graph with those of autograd, which records by
            itself what each tensor is computed from. This shows that no edge is missing, which random values
            cannot. Gradients are on during the pass, for all floating-point parameters and inputs, so a model
            may run other functions than without (not its fused attention, for example). Autograd cannot judge
            edges of integers, booleans, constants and buffers, arguments without a derivative, and what the
            model computes without gradients; ``report.autograd`` counts them. Default: None.
        kwargs: Keyword arguments of the model whose names are also options, as in ``trace``.
        **keywords: The model's keyword arguments.

    Returns:
        The report, with a check of every operation and output, and ``report.fidelity``. It is true if nothing
        failed, nothing is unproven, and the pass is that of the plain model; operations that are exempt count
        as valid.

    Raises:
        InputError: If an option has an impossible value, ``model`` cannot be called, or a keyword is neither
            an option nor a parameter of the model or is both.
        CaptureError: If the pass cannot be recorded.
        Exception: Whatever the model raised.

    Example:
        >>> print(validate(torch.nn.Linear(2, 1), torch.ones(1, 2)))
        valid: 2 of 2 ops proven
        fidelity: the same as the untraced model, before and after (1 output, random state)

    References:
        Taylor and Kriegeskorte (2023), TorchLens, section "Validating the accuracy of saved activations".
    """
    return validate_while_running(
        model,
        arguments(args, kwargs),
        seed=seed,
        every=perturbs_every(perturb),
        fidelity=fidelity,
        against=against,
    )
