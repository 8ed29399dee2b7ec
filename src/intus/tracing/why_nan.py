"""Find why a model computes NaN: the function ``why_nan``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from ..core.errors import CaptureError, InputError, NonFiniteError
from ..core.nested import leaves
from .capture.context.interrupts import interrupts_deferred
from .capture.context.randomness import same_random_state
from .capture.context.state_restorer import StateRestorer
from .compiled import MOST, reached
from .front_door import Arguments, arguments, front_door
from .models import must_be_torch
from .results.first_nan import Origin, first_nan
from .results.trace import Trace
from .run import trace


@front_door
def why_nan(
    model: Callable[..., Any],
    /,
    *args: Any,
    loss: Callable[[Any], Tensor] | None = None,
    on_nan: str = "return",
    seed: int | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Origin | None:
    """Run a model once, forward and backward, and find the operation that made the first NaN or infinity.

    An infinity that the model's code places on purpose (``masked_fill``, ``where``, an attention mask) does
    not count; a NaN that comes of it does, as from a softmax over a row of which everything is masked. The
    model, its gradients, its buffers and the random state are restored, as by ``trace``.

    Args:
        model: A module, a function, or a bound method.
        *args: The model's positional arguments, as in ``trace``.
        loss: Computes the scalar whose gradients are searched from what the model returns. If it is not
            finite, the loss is searched, too. Default: what the model returns if that is a scalar, its
            ``loss`` if it has one, else the sum of all its floating-point outputs. Without gradients
            (``torch.no_grad()``, no parameter requires one) only the forward pass is searched.
        on_nan: ``"return"`` (default) returns what was found, ``"raise"`` raises it.
        seed: The seed of the pass. Default: the current random state.
        kwargs: Keyword arguments of the model whose names are also options, as in ``trace``.
        **keywords: The model's keyword arguments.

    Returns:
        The operation, its line, the ranges of what it took, and the rows that are affected; None if every
        number is finite. See ``Trace.first_nan`` for the order of the search.

    Raises:
        NonFiniteError: With ``on_nan="raise"``, if there is a NaN or infinity.
        InputError: If an option has an impossible value, or ``loss`` returns no scalar tensor.
        CaptureError: If the pass cannot be recorded, or its backward pass cannot be run.
        Exception: Whatever the model raised, if there was no NaN or infinity before, or ``loss``.

    Example:
        >>> def normalize(x):
        ...     scale = x.std(1, keepdim=True)
        ...     return x / scale
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 3.0], [4.0, 5.0]])
        >>> origin = why_nan(normalize, x - 3)
        >>> origin.op.label, origin.rows
        ('div_1_2', (1,))
        >>> print(origin)  # doctest: +ELLIPSIS
        div_1_2 made 2 NaN of 6 numbers, in rows 1.
          ...
          from input_1 (3×2): -2 to 2
          from std_1_1 (3×1): 0 to 0.707107
    """
    if on_nan not in ("return", "raise"):
        raise InputError(f"on_nan={on_nan!r} is not one of 'return', 'raise'.")
    if loss is not None and not callable(loss):
        raise InputError(f"loss={loss!r} must be a function of what the model returns, or None.")
    must_be_torch("why_nan", model, given := arguments(args, kwargs))
    grads = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    found, cause = None, None
    try:
        t = trace(model, given, seed=seed, grads=grads, kwargs={})
    except CaptureError:
        if not grads:
            raise
        t = trace(model, given, seed=seed, kwargs={})
        found = first_nan(t)
        if found is None:  # the backward pass, which was asked for, cannot be searched
            raise
    except Exception as error:
        found, cause = _before_raising(error), error
        if found is None:
            raise
    if found is None:
        with interrupts_deferred() as interrupts, same_random_state(None), _state_restored(model, given):
            found = _search(t, loss, interrupts) if grads else first_nan(t)
    if found is not None and on_nan == "raise":
        raise NonFiniteError(str(found)) from cause
    return found


def _before_raising(error: Exception) -> Origin | None:
    """Return the first NaN or infinity of a pass that raised an exception."""
    partial = getattr(error, "intus_trace", None)
    if not isinstance(partial, Trace):
        return None
    with suppress(InputError):  # values are missing
        return first_nan(partial)
    return None


@contextmanager
def _state_restored(model: Callable[..., Any], given: Arguments) -> Iterator[None]:
    """Restore what a backward pass may change: it runs checkpointed modules again, which have statistics."""
    found = list(islice(reached(model), MOST))
    retained = [(one, one.grad) for one in leaves((given.args, given.kwargs), Tensor) if one.retains_grad]
    restorer = StateRestorer()
    restorer.watch(one for one in found if isinstance(one, Module))
    for one in found:
        if isinstance(one, Tensor) and not one.requires_grad and not is_lazy(one):
            restorer.add(one)
            restorer.before_writing(one)
    try:
        yield
    finally:
        restorer.restore()
        for one, grad in retained:
            one.grad = grad


def _search(t: Trace, loss: Callable[[Any], Tensor] | None, interrupts: interrupts_deferred) -> Origin | None:
    """Search a trace with gradients, its loss and its backward pass."""
    total = interrupts.run(loss or _loss, t.output)
    if loss is not None:
        if not isinstance(total, Tensor) or total.numel() != 1:
            got = f"a tensor of shape {tuple(total.shape)}" if isinstance(total, Tensor) else repr(total)
            raise InputError(f"loss must return a scalar tensor, got {got}.")
        if not total.isfinite().all():
            found = first_nan(t) or first_nan(trace(loss, Arguments((t.output,), {}), kwargs={}))
            if found is not None:
                return found
            raise InputError(
                f"loss returned {total.item()}, and no operation in it made that from finite numbers: its "
                "code places it on purpose."
            )
    try:
        return first_nan(t, _param_grads(t, total, interrupts))
    except RuntimeError as error:
        if "use_reentrant=True" not in str(error) and "Checkpointing is not compatible" not in str(error):
            raise
        found = first_nan(t)
        if found is not None:
            return found
        raise CaptureError(
            "The model uses checkpoint(use_reentrant=True), whose backward pass cannot run without adding to "
            "the gradients of parameters. Use use_reentrant=False, or search the forward pass alone, under "
            "torch.no_grad()."
        ) from None


def _param_grads(t: Trace, total: Tensor | None, interrupts: interrupts_deferred) -> dict[str, Tensor]:
    """Run the backward pass, which saves the gradients of ops, and return those of parameters by address."""
    if total is None or total.grad_fn is None:
        return {}
    ends = list(_leaves_of(total))
    restored = [one.requires_grad_() for one in ends if not one.requires_grad]  # the model's forward set it
    # Nothing is accumulated into ``grad``. The caller may still need the graph behind an input.
    try:
        grads = interrupts.run(torch.autograd.grad, total, ends, allow_unused=True, retain_graph=True)
    finally:
        for one in restored:
            one.requires_grad_(False)
    params = t._replays.params if t._replays is not None else []
    names = {id(value): param.address for param, value in zip(t.graph.params, params, strict=False)}
    pairs = zip(ends, grads, strict=True)
    return {names[id(one)]: grad for one, grad in pairs if id(one) in names and grad is not None}


def _loss(output: Any) -> Tensor | None:
    """Return a scalar of what the model returned, to call backward on; None if it has no numbers."""
    named = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(named, Tensor) and named.numel() == 1:
        return named.reshape(())
    floats = [one for one in leaves(output, Tensor) if one.is_floating_point() and one.requires_grad]
    return torch.stack([one.sum().double().cpu() for one in floats]).sum() if floats else None


def _leaves_of(total: Tensor) -> Iterator[Tensor]:
    """Yield the leaves of autograd's graph that a tensor was computed from."""
    pending, visited = [total.grad_fn], {total.grad_fn}
    while pending:
        node = pending.pop()
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            yield variable
        new = {after for after, _ in getattr(node, "next_functions", ()) if after is not None} - visited
        visited |= new
        pending += new
