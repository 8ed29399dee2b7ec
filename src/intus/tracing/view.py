"""Show a model, a trace, or two of them side by side, as a page: the function ``view``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import InputError
from ..core.graph import Graph
from ..viewing.html import View
from ..viewing.overlay import Overlay, to_save
from .comparison.side_by_side import side_by_side
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
    details: str | None = None,
    beside: Callable[..., Any] | Trace | None = None,
) -> View:
    """Show the graph of a model, a trace or a saved graph as an interactive page.

    In a notebook, a cell that ends with the view displays it; ``View.save`` writes a page or a picture.

    Args:
        model_or_trace: A model or function, which is traced once, without saving values unless the overlay
            needs them; a ``Trace``; or a ``Graph``.
        inputs: The model's inputs, as in ``trace``. Only for a model, or with a model in ``beside``.
        kwargs: The model's keyword arguments, as in ``trace``.
        depth: How many levels of modules are open at first; ``"all"`` for every level. Default: as many as
            stay readable.
        overlay: What colors the boxes. ``"time"``, ``"memory"``, ``"parameters"`` or ``"flops"``; for a trace
            with ``grads`` also ``"autograd"`` (bytes kept for the backward pass) and, after ``backward``,
            ``"gradient"`` (the norm of each gradient); ``"mean"``, ``"std"``, ``"zero"`` or ``"nan"`` of the
            saved values; a dict or pandas Series from address to number; or one score of ``inspect``, as
            Results or their DataFrame. Default: no coloring.
        seed: The seed of torch's random generators for the pass of a model.
        rolled: Whether the passes of a recurrent layer are shown as one box. Default: if there are too many
            to read.
        details: ``"full"`` to write on every box its labels, the shape and size of its values, the shapes of
            its parameters and its address, which are what ``save=`` takes; the page has a switch for it.
            Default: only names.
        beside: Another trace, or a model that is run on the same inputs. The page then shows both, aligned,
            with what ``compare`` finds. ``overlay`` may then be ``"time"``, ``"memory"``, ``"parameters"`` or
            ``"flops"``. Needs ``intus[inspect]``.

    Returns:
        The view.

    Raises:
        InputError: If an option has an impossible value, inputs are given with a trace or missing for a
            model, or the overlay cannot be computed.
        MissingExtraError: If ``beside`` is given and pandas is not installed.
        Exception: Whatever the model raised.

    Example:
        >>> view(torch.nn.Linear(2, 1), torch.ones(1, 2))  # doctest: +ELLIPSIS
        <View of Linear: 1 operation, 0 modules, 3 parameters (12 B), ...>

    References:
        Taylor and Kriegeskorte (2023), TorchLens, section "Visualization": ``show_model_graph``.
    """
    if beside is not None:
        both = _two_traces((model_or_trace, beside), inputs, kwargs, seed)
        return side_by_side(*both, depth=depth, rolled=rolled, details=details, overlay=overlay)
    has_run = isinstance(model_or_trace, (Trace, Graph))
    if has_run and not (isinstance(inputs, tuple) and not inputs and kwargs is None and seed is None):
        raise InputError(
            f"A {type(model_or_trace).__name__.lower()} is of a pass that ran already, so inputs, kwargs and "
            "seed have no effect. Leave them out, or pass the model: view(model, inputs)."
        )
    if isinstance(model_or_trace, Graph):
        return View(model_or_trace, depth=depth, overlay=overlay, rolled=rolled, details=details)
    if not isinstance(model_or_trace, Trace):
        model_or_trace = trace(model_or_trace, inputs, kwargs, save=to_save(overlay), seed=seed)
    return model_or_trace.show(depth=depth, overlay=overlay, rolled=rolled, details=details)


def _two_traces(
    given: tuple[Any, Any], inputs: Any, kwargs: Mapping[str, Any] | None, seed: int | None
) -> tuple[Trace, Trace]:
    """Return the traces of two traces or models; a model is run on the inputs and its values saved."""
    for name, one in zip(("The first argument", "beside"), given, strict=True):
        if isinstance(one, Graph) or not (isinstance(one, Trace) or callable(one)):
            raise InputError(
                f"{name} is of type {type(one).__name__}, but a page of two needs traces, whose values are "
                "compared, or models to trace. Write view(a, beside=b)."
            )
    traces = sum(isinstance(one, Trace) for one in given)
    if traces == 1 and isinstance(inputs, tuple) and not (inputs or kwargs):
        raise InputError(
            "One of the two is a trace, the other a model without inputs. Write view(a, inputs, beside=b)."
        )
    a, b = (one if isinstance(one, Trace) else trace(one, inputs, kwargs, seed=seed) for one in given)
    return a, b
