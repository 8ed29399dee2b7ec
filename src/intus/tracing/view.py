"""``view``: a model, a trace or two of them as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import InputError
from ..core.graph import Graph
from ..viewing.html import View
from ..viewing.overlay import Overlay, to_save
from .comparison.side_by_side import sides
from .results.trace import Trace
from .run import trace


def view(
    model_or_trace: Callable[..., Any] | Trace | Graph,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    depth: int | str | None = None,
    overlay: Overlay = None,
    seed: int | None = None,
    rolled: bool | None = None,
    beside: Callable[..., Any] | Trace | None = None,
) -> View:
    """The model's graph as a page to walk in: a model is traced once, with nothing saved.

    ``seed`` seeds torch for that pass alone. ``depth`` is how many levels of modules stand open at first,
    ``"all"`` for every one; ``overlay`` colours the boxes: ``"time"``, ``"memory"``, ``"parameters"``,
    ``"flops"``, for a trace with ``grads`` also ``"autograd"`` (bytes kept for the backward pass) and,
    after ``backward``, ``"gradient"`` (the norm of each gradient); ``"mean"``, ``"std"``, ``"zero"`` or
    ``"nan"`` of what each operation gave; a dict or a pandas Series from address to number; or one score of
    ``inspect``. ``rolled`` shows the passes of a recurrent layer as one
    box, by default where there are too many to read.

    ``beside`` is another trace, or a model to run on the same inputs: the page then shows both, walking
    together, with what ``compare`` finds marked on them. ``overlay`` may then be ``"time"``, ``"memory"``,
    ``"parameters"`` or ``"flops"``; the differences are a choice away. It needs ``intus[inspect]``.

    >>> view(torch.nn.Linear(2, 1), torch.ones(1, 2))  # doctest: +ELLIPSIS
    <View of Linear: 1 operation, 0 modules, 3 parameters (12 B), ...>
    """
    if beside is not None:
        both = _both((model_or_trace, beside), inputs, kwargs, seed)
        return sides(*both, depth=depth, rolled=rolled, overlay=overlay)
    ran = isinstance(model_or_trace, (Trace, Graph))
    if ran and not (isinstance(inputs, tuple) and not inputs and kwargs is None and seed is None):
        raise InputError(
            f"A {type(model_or_trace).__name__.lower()} is of a pass that ran already, so inputs, kwargs and "
            "seed would change nothing. Leave them out, or give the model: view(model, inputs)."
        )
    if isinstance(model_or_trace, Graph):
        return View(model_or_trace, depth=depth, overlay=overlay, rolled=rolled)
    if not isinstance(model_or_trace, Trace):
        model_or_trace = trace(model_or_trace, inputs, kwargs, save=to_save(overlay), seed=seed)
    return model_or_trace.show(depth=depth, overlay=overlay, rolled=rolled)


def _both(
    given: tuple[Any, Any], inputs: Any, kwargs: Mapping[str, Any] | None, seed: int | None
) -> tuple[Trace, Trace]:
    """Two traces of traces or models; what is a model is run on the inputs, its values saved."""
    for name, one in zip(("The first", "beside"), given, strict=True):
        if isinstance(one, Graph) or not (isinstance(one, Trace) or callable(one)):
            raise InputError(
                f"{name} is of type {type(one).__name__}, and side by side stand traces, whose values are "
                "compared, or models to trace. Write view(a, beside=b)."
            )
    traces = sum(isinstance(one, Trace) for one in given)
    if traces == 1 and isinstance(inputs, tuple) and not (inputs or kwargs):
        raise InputError("One is a trace, the other a model without inputs. Write view(a, inputs, beside=b).")
    a, b = (one if isinstance(one, Trace) else trace(one, inputs, kwargs, seed=seed) for one in given)
    return a, b
