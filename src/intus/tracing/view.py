"""Show a model, a trace, or two of them side by side, as a page: the function ``view``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.graph import Graph
from ..viewing.html import View
from ..viewing.overlay import Overlay, to_save
from .front_door import Arguments, arguments, front_door
from .load import load_to_show
from .models import backend_of, is_script, require_torch
from .read import is_model_file, read
from .results.trace import Trace
from .run import trace


@front_door
def view(
    model_or_trace: Callable[..., Any] | Trace | Graph | str | Path,
    /,
    *args: Any,
    depth: int | str | None = None,
    overlay: Overlay = None,
    seed: int | None = None,
    rolled: bool | None = None,
    details: str | None = None,
    beside: Callable[..., Any] | Trace | str | Path | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> View:
    """Show the graph of a model, a trace or a file as an interactive page.

    Call it as you call the model: ``view(model, x, mask=mask, depth=1)`` runs ``model(x, mask=mask)``.

    In a notebook, a cell that ends with the view displays it; ``View.save`` writes a page or a picture.

    Args:
        model_or_trace: A model or function, which is traced once, without saving values unless the overlay
            needs them; a ``Trace``; the path of a saved one, or of a model file (see ``read``), with values
            if inputs are given; or a ``Graph``.
        *args: The model's positional arguments, as in ``trace``. Only for a model, or with a model in
            ``beside``.
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
            its parameters and its address, which are what ``save=`` takes. ``"parameters"`` also draws
            every parameter that an operation reads as a box with an edge into the operation; a shared one
            is one box. The page has a menu for it. Default: only names.
        beside: Another trace, the path of a saved one, or a model or model file that is run on the same
            inputs. The page then shows both, aligned, with what ``compare`` finds. ``overlay`` may then be
            ``"time"``, ``"memory"``, ``"parameters"`` or ``"flops"``. Needs ``intus[inspect]``.
        kwargs: Keyword arguments of the model whose names are also options, as in ``trace``.
        **keywords: The model's keyword arguments.

    Returns:
        The view.

    Raises:
        InputError: If an option has an impossible value, inputs are given with a trace or missing for a
            model, a keyword is neither an option nor a parameter of the model or is both, or the overlay
            cannot be computed.
        CodecError: If a path holds no trace, or one of a version that cannot be read.
        MissingExtraError: If ``beside`` is given and pandas is not installed.
        Exception: Whatever the model raised.

    Example:
        >>> view(torch.nn.Linear(2, 1), torch.ones(1, 2))  # doctest: +ELLIPSIS
        <View of Linear: 1 operation, 0 modules, 3 parameters (12 B), ...>

    References:
        Taylor and Kriegeskorte (2023), TorchLens, section "Visualization": ``show_model_graph``.
    """
    given = arguments(args, kwargs)
    has_inputs = bool(args or kwargs)
    shown = _read(model_or_trace, given)
    if beside is not None:
        from .comparison.side_by_side import side_by_side

        both = _two_traces((shown, _read(beside, given)), given, has_inputs, seed)
        return side_by_side(*both, depth=depth, rolled=rolled, details=details, overlay=overlay)
    uses_inputs = not isinstance(shown, Trace | Graph) or is_model_file(model_or_trace)
    if (has_inputs and not uses_inputs) or (seed is not None and isinstance(shown, Trace | Graph)):
        raise InputError(
            f"A {type(shown).__name__.lower()} is of a pass that ran already, so inputs and seed have no "
            "effect. Leave them out, or pass the model: view(model, inputs)."
        )
    if isinstance(shown, Graph):
        return View(shown, depth=depth, overlay=overlay, rolled=rolled, details=details)
    if not isinstance(shown, Trace):
        if backend_of("view", shown, given) is None:
            require_torch("view")
        if is_script(shown) and not has_inputs:
            from ..reading.torchscript import structure

            graph = structure(shown._c, shown.original_name)
            return View(graph, depth=depth, overlay=overlay, rolled=rolled, details=details)
        shown = trace(shown, given, save=to_save(overlay), seed=seed, kwargs={})
    return shown.show(depth=depth, overlay=overlay, rolled=rolled, details=details)


def _read(subject: Any, given: Arguments) -> Any:
    """Return the trace of a path, with the values of a model file on the inputs; anything else unchanged."""
    if is_model_file(subject):
        return read(subject, *given.args, **given.kwargs)
    return load_to_show(subject) if isinstance(subject, str | Path) else subject


def _two_traces(
    shown: tuple[Any, Any], given: Arguments, has_inputs: bool, seed: int | None
) -> tuple[Trace, Trace]:
    """Return the traces of two traces or models; a model is run on the inputs and its values saved."""
    for name, one in zip(("The first argument", "beside"), shown, strict=True):
        if isinstance(one, Graph) or not (isinstance(one, Trace) or callable(one)):
            raise InputError(
                f"{name} is of type {type(one).__name__}, but a page of two needs traces, whose values are "
                "compared, or models to trace. Write view(a, beside=b)."
            )
    traces = sum(isinstance(one, Trace) for one in shown)
    if traces == 1 and not has_inputs:
        raise InputError(
            "One of the two is a trace, the other a model without inputs. Write view(a, inputs, beside=b)."
        )
    a, b = (one if isinstance(one, Trace) else trace(one, given, seed=seed, kwargs={}) for one in shown)
    return a, b
