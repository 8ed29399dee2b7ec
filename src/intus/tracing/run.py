"""``trace``: run a model once and record what happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch

from ..core.errors import InputError
from ..core.graph import Graph
from ..core.probes_disabled import probes_disabled
from ..core.selection import Selection
from .building.assemble import assemble
from .building.finish import finish
from .capture.argument_names import by_name
from .capture.context.randomness import same_random_state
from .capture.interpose import Capture
from .capture.recording import ROW
from .capture.run_generators import drained
from .capture.saving.choose import Chooser
from .capture.saving.form import Form, To
from .capture.saving.gradients import Nodes
from .capture.saving.store import SHARD_BYTES, Store
from .capture.saving.values import Values
from .failure import advice, raised_at
from .replaying.replay import Replays
from .results.trace import Trace
from .validation.online import LiveValues, OnlineReport, OnlineValidator
from .validation.report import Report

_FRAMEWORK = {"framework": "torch", "version": torch.__version__}


def trace(
    model: Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    save: Selection | Chooser = "all",
    seed: int | None = None,
    on_error: str = "raise",
    meta_value: bool | Callable[[str, torch.Tensor], Any] | None = None,
    to: To | None = None,
    transform: Callable[[torch.Tensor], torch.Tensor] | None = None,
    copy: bool = False,
    grads: bool | Selection = False,
    decompose: bool = False,
    store: str | Path | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Trace:
    """Run ``model`` once and record every operation; model, torch and random state are left as they were.

    ``inputs`` is a tensor, a tuple of positional arguments, or a mapping passed as keywords (a tokenizer's
    output); any other object is passed as the one argument. ``save`` chooses the activations to keep:
    ``"all"``, ``"none"``, or one or many of label, module address, type, module class, glob, ordinal and
    predicate on the op. ``seed`` seeds torch for this pass alone. An exception of the model is raised, with
    the partial trace as its ``intus_trace``; with ``on_error="keep"`` the partial trace is returned instead.
    A tensor on the ``meta`` device has no value: where the model asks for one (``if t.any():``), it is given
    ``meta_value``, or what that returns for how it was asked (``"bool"``, ``"item"``) and the tensor.

    ``to`` keeps each activation on another device or as another dtype of floating point numbers: what
    ``Tensor.to`` takes, as a tuple where it takes several arguments. ``transform`` keeps what a function
    makes of each, which is given a copy outside the trace's sight. ``copy`` copies at once, where otherwise a
    value is copied only before something writes to its memory.

    With ``grads=True`` the trace's ``output`` is what the model returned, and once you have called
    ``backward`` on a loss of it every op has its ``grad``; ``grads`` may also choose the ops, as ``save``
    does.

    ``store`` names a folder that the values are written to while the model runs, for what is larger than
    memory: safetensors files of about ``shard_bytes``, which is all that waits in memory, and an index. A
    value is read when it is asked for; ``load`` reads the folder. ``docs/values.md`` has examples of it all.

    ``decompose`` opens composite functions: ``multi_head_attention_forward``, ``einsum``, an LSTM, a loss
    become calls like a module's (``attn.einsum``), whose operations are what the function does inside. Each
    is run once more, on copies, to see whether it does several things.

    A generator or coroutine runs while it is recorded, and what it yields or returns is the output. What
    else is special stands in ``docs/limits.md``, with what happens there.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> t = trace(net, torch.ones(2, 4))
    >>> [op.label for op in t.ops], tuple(t["1"].shape)
    (['linear_1_1', 'relu_1_2'], (2, 3))
    """
    _must_run("trace", model)
    if on_error not in ("raise", "keep"):
        raise InputError(f"on_error={on_error!r} is not one of 'raise', 'keep'.")
    args, keywords = _arguments(inputs, kwargs)
    owner = _owner(model)
    answer = meta_value if callable(meta_value) or meta_value is None else lambda how, tensor: meta_value
    values = Values(
        _chooser(save, grads),
        Form(to, transform, copy),
        None if grads is False else Nodes(),
        None if store is None else Store(store, shard_bytes),
    )
    capture = Capture(owner, values, restore=True, meta_value=answer, decompose=decompose)
    started, began = time.time(), time.perf_counter_ns()
    output, failure = _run(capture, model, args, keywords, seed)
    facts: dict[str, Any] = {
        "seed": seed,
        "training": bool(owner.training) if owner is not None else False,
        "started": started,
        "seconds": (time.perf_counter_ns() - began) / 1e9,
        **_FRAMEWORK,
    }
    if failure is not None:
        facts["raised"] = raised_at(failure, owner)
    result = finish(capture, _name(model, owner), facts, grads, output)
    try:
        if failure is None or (on_error == "keep" and isinstance(failure, Exception)):
            return result
        with suppress(Exception):  # an exception may refuse attributes; it is the model's, not ours
            failure.intus_trace = result  # type: ignore[attr-defined]
            failure.add_note(advice(result.graph, failure, inputs))
        raise failure
    finally:
        del failure  # it holds this frame, which would hold it: a cycle


def witnessed(
    model: Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    *,
    seed: int | None,
    every: bool,
) -> Report:
    """Run ``model`` once with every op proven as it runs; see ``intus.validate``."""
    _must_run("validate", model)
    args, keywords = _arguments(inputs, kwargs)
    owner, passing = _owner(model), LiveValues(every=every)
    capture = Capture(owner, passing, restore=True)
    _, failure = _run(capture, model, args, keywords, seed)
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # it holds this frame, which would hold it: a cycle
    graph, where = assemble(capture.recording, _name(model, owner), _FRAMEWORK)
    witness = cast(OnlineValidator, capture.call_log)  # what ``LiveValues`` made
    replays = Replays(capture.recording, witness, where, passing.kept)
    rows = {row: where(row) for row in range(0, len(capture.recording.rows), len(ROW)) if where(row) >= 0}
    return OnlineReport(graph, replays, passing.left(rows), witness).report()


def _run(
    capture: Capture,
    model: Callable[..., Any],
    args: tuple[Any, ...],
    keywords: dict[str, Any],
    seed: int | None,
) -> tuple[Any, BaseException | None]:
    """Run the model under a capture, with its random state and what it wrote outside put back; returns what
    it returned and what it raised."""
    with same_random_state(seed):
        try:
            capture.inputs(by_name(model, args, keywords))
            with capture, probes_disabled():
                output = drained(model(*args, **keywords))
                capture.outputs(output)
        except BaseException as error:
            return None, error
    return output, None


def structure(capture: Capture, model: Callable[..., Any]) -> Graph:
    """The graph of what a finished capture saw, without values."""
    owner = _owner(model)
    return assemble(capture.recording, _name(model, owner), _FRAMEWORK)[0]


def _chooser(save: Selection | Chooser, grads: bool | Selection) -> Chooser | None:
    """What decides during the pass; None where nothing has to be kept or noted."""
    if grads is not False:
        if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
            off = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
            raise InputError(
                f"grads={grads!r} needs autograd, which {off} has turned off here. Trace outside of it."
            )
        if grads is not True:
            Chooser(grads)  # what is no selection is told before the pass
    nothing = isinstance(save, str) and save == "none" and grads is False
    return None if nothing else save if isinstance(save, Chooser) else Chooser(save)


def _arguments(inputs: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        args, keywords = inputs, {}
    elif isinstance(inputs, Mapping):
        args, keywords = (), {str(name): value for name, value in inputs.items()}
    else:
        args, keywords = (inputs,), {}
    twice = set(keywords) & set(kwargs or {})
    if twice:
        raise InputError(f"{sorted(twice)} are given in both inputs and kwargs.")
    return args, {**keywords, **(kwargs or {})}


def _must_run(verb: str, model: Any) -> None:
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise InputError(
            f"{verb} needs a module, and {model.__name__} is a class: write {model.__name__}(…)."
        )
    if not callable(model):
        raise InputError(f"{verb} needs a module or a function to run, got {model!r}.")


def _owner(model: Callable[..., Any]) -> torch.nn.Module | None:
    """The module whose parameters and submodules give names: the model, or what a bound method belongs to."""
    for candidate in (model, getattr(model, "__self__", None)):
        if isinstance(candidate, torch.nn.Module):
            return candidate
    return None


def _name(model: Callable[..., Any], owner: torch.nn.Module | None) -> str:
    if owner is not None and owner is model:
        compiled = "_orig_mod" in owner._modules  # what torch.compile was given
        return type(owner._modules["_orig_mod"] if compiled else owner).__name__
    return str(getattr(model, "__qualname__", type(model).__name__)).rpartition("<locals>.")[2]
