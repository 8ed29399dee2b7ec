"""Run a model of PyTorch or a function once and record every operation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import torch

from ..core.errors import CaptureError, InputError
from ..core.graph import Graph
from ..core.probes_disabled import probes_disabled
from ..core.selection import Selection
from .building.assemble import assemble
from .building.finish import finish
from .capture.argument_names import by_name
from .capture.containers import is_wrapped, named_tensors
from .capture.context.interrupts import interrupts_deferred
from .capture.context.randomness import same_random_state
from .capture.context.sharded_parameters import is_fsdp
from .capture.interpose import Capture
from .capture.recording import CALL, Recording
from .capture.run_generators import drained
from .capture.saving.choose import Chooser
from .capture.saving.form import Form, To
from .capture.saving.gradients import Nodes
from .capture.saving.store import Store
from .capture.saving.values import Values
from .compiled import compiled_parts
from .failure import advice, raised_at
from .front_door import Arguments
from .models import must_be_torch
from .progress_bar import counter
from .replaying.replay import Replays
from .results.trace import Trace
from .validation.autograd import AutogradJudge, Trail, requiring_gradients
from .validation.fidelity import FidelityCheck, unless_uninitialized
from .validation.online import LiveValues, OnlineReport, OnlineValidator
from .validation.report import Report

_FRAMEWORK = {"framework": "torch", "version": torch.__version__}


def record(
    model: Callable[..., Any],
    given: Arguments,
    *,
    save: Selection | Chooser,
    seed: int | None,
    on_error: str,
    meta_value: bool | Callable[[str, torch.Tensor], Any] | None,
    to: To | None,
    transform: Callable[[torch.Tensor], torch.Tensor] | None,
    copy: bool,
    grads: bool | Selection,
    decompose: bool,
    store: str | Path | None,
    shard_bytes: int,
) -> Trace:
    """Run a model of PyTorch or a function once and record it; see ``trace``, whose options these are."""
    _refuse_transforms("trace", given)
    _check_seed(seed)
    if on_error not in ("raise", "keep"):
        raise InputError(f"on_error={on_error!r} is not one of 'raise', 'keep'.")
    owner = owner_of(model)
    if grads is not False and owner is not None and any(map(is_fsdp, owner.modules())):
        raise CaptureError(
            f"grads={grads!r} cannot be used with FSDP: its backward pass needs the state that its forward "
            "pass leaves in the modules, and a trace restores it. Trace the model before it is sharded."
        )
    answer = meta_value if callable(meta_value) or meta_value is None else lambda method, tensor: meta_value
    values = Values(
        _chooser(save, grads),
        Form(to, transform, copy),
        None if grads is False else Nodes(),
        None if store is None else Store(store, shard_bytes),
    )
    with interrupts_deferred() as interrupts:
        capture = Capture(owner, values, restore=True, meta_value=answer, decompose=decompose)
        started, began = time.time(), time.perf_counter_ns()
        output, failure = _run(capture, model, given, seed, interrupts)
        facts: dict[str, Any] = {
            "seed": seed,
            "training": bool(getattr(owner, "training", False)),  # a frozen ScriptModule has none
            "started": started,
            "seconds": (time.perf_counter_ns() - began) / 1e9,
            **_FRAMEWORK,
        }
        if failure is not None:
            facts["raised"] = raised_at(failure, owner)
        if compiled := _compiled(model, capture.recording):
            facts["notes"] = compiled
        result = finish(capture, _name(model, owner), facts, grads, output)
    try:
        if failure is None or (on_error == "keep" and isinstance(failure, Exception)):
            return result
        with suppress(Exception):  # the model's exception may refuse attributes
            failure.intus_trace = result  # type: ignore[attr-defined]
            failure.add_note(advice(result.graph, failure, given))
        raise failure
    finally:
        del failure  # its traceback refers to this frame: a reference cycle


def validate_while_running(
    model: Callable[..., Any],
    given: Arguments,
    *,
    seed: int | None,
    every: bool,
    fidelity: bool,
    against: str | None,
) -> Report:
    """Run a model and validate each operation while it runs; see ``intus.validate``.

    Args:
        model: As in ``trace``.
        given: The model's arguments.
        seed: As in ``trace``.
        every: Whether to try random arguments on each operation, or once for operations that are alike.
        fidelity: Whether to compare the pass with plain ones.
        against: ``"autograd"`` to compare the edges with autograd's; None for no comparison.

    Returns:
        The report.
    """
    if against not in (None, "autograd"):
        raise InputError(f"against={against!r} is not one of 'autograd', None.")
    must_be_torch("validate", model, given)
    _refuse_transforms("validate", given)
    _check_seed(seed)
    if against is not None:
        try:
            return _validated(model, given, seed, every, fidelity, (given.args, given.kwargs))
        except RuntimeError as error:
            if "requires_grad flags of leaf variables" not in str(error):
                raise
    # The model lets an input, or a view of one, require a gradient, which torch allows once.
    return _validated(model, given, seed, every, fidelity, None if against is None else ())


def _validated(
    model: Callable[..., Any], given: Arguments, seed: int | None, every: bool, fidelity: bool, follow: Any
) -> Report:
    """Run a model and validate it; see ``validate_while_running``.

    Args:
        model: The model.
        given: Its arguments.
        seed: As in ``trace``.
        every: Whether to try random arguments on each operation.
        fidelity: Whether to compare the pass with plain ones.
        follow: The arguments that autograd follows besides the parameters; None for no comparison with it.
    """
    trail = Trail() if follow is not None else None
    owner = owner_of(model)
    plain = FidelityCheck(model, owner, given.args, given.kwargs, seed) if fidelity else None
    params = owner.parameters() if owner is not None else ()
    with (
        interrupts_deferred() as interrupts,
        nullcontext() if trail is None else requiring_gradients(params, follow),
    ):
        if plain is not None:
            interrupts.run(plain.before)
        with counter("validate", "calls") as advance:
            values = LiveValues(every=every, on_checked=advance, trail=trail)
            capture = Capture(owner, values, restore=True)
            observe = None if plain is None else plain.observe
            _, failure = _run(capture, model, given, seed, interrupts, observe)
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback refers to this frame: a reference cycle
        compared = None if plain is None else interrupts.run(plain.result)
    graph, graph_row = assemble(capture.recording, _name(model, owner), _FRAMEWORK)
    validator = cast(OnlineValidator, capture.call_log)  # ``LiveValues.call_log`` made it
    replays = Replays(capture.recording, validator, graph_row, values.kept)
    checks = OnlineReport(graph, replays, validator).report().checks
    followed = None
    if trail is not None:
        judge = AutogradJudge(graph, trail, capture.recording, graph_row, replays, values.leaves())
        checks, followed = judge.judge(checks)
    return Report(checks, None if compared is None else unless_uninitialized(compared, graph), followed)


def _run(
    capture: Capture,
    model: Callable[..., Any],
    given: Arguments,
    seed: int | None,
    interrupts: interrupts_deferred,
    observe: Callable[[Any], None] | None = None,
) -> tuple[Any, BaseException | None]:
    """Run the model under a capture, then restore the random state and the memory that it wrote to.

    Args:
        capture: The capture.
        model: The model.
        given: Its arguments.
        seed: The seed of torch's generators; None for the current random state.
        interrupts: Defers interrupts, except while the model runs.
        observe: Is given what the model returned, before anything is restored.

    Returns:
        What the model returned, and what it raised; one of them is None.
    """
    with same_random_state(seed):
        try:
            reachable = [
                one for one in (*given.args, *given.kwargs.values()) if type(one) is not torch.Tensor
            ]
            if reachable or not isinstance(model, torch.nn.Module):
                capture.reach(None if isinstance(model, torch.nn.Module) else model, reachable)
            capture.inputs(by_name(model, given.args, given.kwargs))
            with capture, probes_disabled():
                output = interrupts.run(_called, model, given)
                capture.outputs(output)
                if observe is not None:
                    with torch._C.DisableTorchFunction():
                        observe(output)
        except BaseException as error:
            return None, error
    return output, None


def _compiled(model: Callable[..., Any], recording: Recording) -> list[str]:
    """Return a note on each part that ``torch.jit`` compiled, and one on those that ``torch.compile`` did."""
    numbers = dict.fromkeys(recording.calls[:: len(CALL)])
    modules, names = recording.addresses.modules, recording.addresses.names
    found = [
        f"{repr(names[one]) if names[one] else 'The model'} is compiled by torch.jit, so it is one "
        "operation. To see inside, trace it alone and without options other than save and seed."
        for one in numbers
        if isinstance(modules[one], torch.jit.ScriptModule)
    ]
    others = {
        names[one]: modules[one] for one in numbers if not isinstance(modules[one], torch.jit.ScriptModule)
    }
    if parts := compiled_parts(model, others):
        found.append(
            f"Made by torch.compile, and run uncompiled in a trace: {', '.join(parts)}. Compiled, the values "
            "may differ in the last bits."
        )
    return found + [
        f"The function {name!r} is compiled by torch.jit, so each call of it is one operation. To see "
        "inside, call the function that it was compiled from."
        for name, functions in recording.functions.items()
        if any(isinstance(one, torch.jit.ScriptFunction) for one in functions)
    ]


def _called(model: Callable[..., Any], given: Arguments) -> Any:
    return drained(model(*given.args, **given.kwargs))


def structure(capture: Capture, model: Callable[..., Any]) -> Graph:
    """Return the graph of a finished capture, without values."""
    owner = owner_of(model)
    return assemble(capture.recording, _name(model, owner), _FRAMEWORK)[0]


def _chooser(save: Selection | Chooser, grads: bool | Selection) -> Chooser | None:
    """Return what decides during the pass which values to keep; None if there is nothing to keep."""
    if grads is not False:
        if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
            off = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
            raise InputError(
                f"grads={grads!r} needs autograd, which {off} has turned off here. Call trace outside of it."
            )
        if grads is not True:
            Chooser(grads)  # so that an invalid selection raises before the pass
    if isinstance(save, str) and save == "none" and grads is False:
        return None
    return save if isinstance(save, Chooser) else Chooser(save)


def _check_seed(seed: Any) -> None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or abs(seed) >= 2**63):
        raise InputError(f"seed must be an integer of at most 63 bits, or None, got {seed!r}.")


def _refuse_transforms(verb: str, given: Arguments) -> None:
    """Raise CaptureError if this call runs inside a transform of torch that replaces tensors or code."""
    if any(is_wrapped(t) for _, t in named_tensors((given.args, given.kwargs))):
        raise CaptureError(
            f"{verb} cannot run inside vmap, grad or another transform of torch.func: its tensors have no "
            f"values of their own there. Transform the model instead: {verb}(torch.vmap(model), inputs)."
        )
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
        raise CaptureError(
            f"{verb} cannot run while a CUDA graph is captured, since what is captured has no values yet. "
            "Call it before or after."
        )
    if "torch._dynamo" in sys.modules and callable(torch._C._dynamo.eval_frame.get_eval_frame_callback()):
        raise CaptureError(
            f"{verb} cannot run inside a function that torch.compile compiles. Call it outside, with the "
            f"compiled function as the model: {verb}(compiled, inputs)."
        )


def owner_of(model: Callable[..., Any]) -> torch.nn.Module | None:
    """Return the module that gives the names: the model itself, or the module of a bound method."""
    for candidate in (model, getattr(model, "__self__", None)):
        if isinstance(candidate, torch.nn.Module):
            return candidate
    return None


def _name(model: Callable[..., Any], owner: torch.nn.Module | None) -> str:
    if owner is not None and owner is model:
        compiled = "_orig_mod" in owner._modules  # torch.compile's wrapper keeps the module under this name
        return type(owner._modules["_orig_mod"] if compiled else owner).__name__
    return str(getattr(model, "__qualname__", type(model).__name__)).rpartition("<locals>.")[2]
