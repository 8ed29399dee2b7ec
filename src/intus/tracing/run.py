"""Run a model once and record every operation: the function ``trace``."""

from __future__ import annotations

import reprlib
import sys
import time
from collections.abc import Callable, Mapping
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
from .capture.run_generators import drained
from .capture.saving.choose import Chooser
from .capture.saving.form import Form, To
from .capture.saving.gradients import Nodes
from .capture.saving.store import SHARD_BYTES, Store
from .capture.saving.values import Values
from .failure import advice, raised_at
from .front_door import Arguments, arguments, front_door
from .progress_bar import counter
from .replaying.replay import Replays
from .results.trace import Trace
from .validation.autograd import AutogradJudge, Trail, requiring_gradients
from .validation.fidelity import FidelityCheck, unless_uninitialized
from .validation.online import LiveValues, OnlineReport, OnlineValidator
from .validation.report import Report

_FRAMEWORK = {"framework": "torch", "version": torch.__version__}


@front_door
def trace(
    model: Callable[..., Any],
    /,
    *args: Any,
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
    kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Trace:
    """Run a model once and record every operation of its forward pass.

    Call it as you call the model: ``trace(model, x, mask=mask, save="none")`` runs ``model(x, mask=mask)``.

    The model, its buffers, what else the call can reach (modules, optimizers, random generators) and the
    random state are restored afterwards, also when the model raises; ``docs/limits.md`` lists the exceptions
    and the unusual cases. A generator or coroutine is
    run to its end, and what it yields or returns is the output.

    Args:
        model: A module, a function, or a bound method such as ``model.generate``.
        *args: The model's positional arguments. A mapping alone (a tokenizer's output) gives the keyword
            arguments, and a tuple alone, unless it is a named tuple, the positional ones. To pass either as
            one argument, put it into a tuple: ``trace(model, (mapping,))``.
        save: Which activations to keep: ``"all"`` (default), ``"none"``, or one of the following or a list
            of them. A label (``"conv2d_3_7"``, ``"conv2d_3"``, ``"conv2d_3:2"``), a module's address
            (``"features.6"``, ``"cell:2"``), the name of an input or output, an operation type
            (``"relu"``), a module class (``"GPT2MLP"``), a pattern (``"h.*.attn"``), an ordinal (``-1``), a
            slice of ordinals, or a predicate. A predicate is called with the operation while the model runs
            (``lambda op: op.type == "linear"``).
        seed: The seed of torch's random generators for this pass. Default: the current random state.
        on_error: What to do with an exception of the model. ``"raise"`` (default) raises it, with the partial
            trace as its attribute ``intus_trace``. ``"keep"`` returns the partial trace; exceptions that do
            not derive from ``Exception`` (KeyboardInterrupt) are raised all the same.
        meta_value: What the model gets when it reads the value of a tensor on the ``meta`` device
            (``if t.any():``), which has none: True, False, or a function ``(method, tensor)``, where the
            method is ``"bool"`` or ``"item"``. Default: torch raises its own error.
        to: Keep each activation on another device or in another floating-point dtype. Takes what
            ``Tensor.to`` takes; several of its arguments as a tuple (``("cpu", torch.float16)``). Integers
            and masks keep their dtype. Default: keep it as it is.
        transform: Keep what this function returns, a tensor, instead of each activation. It receives a copy,
            without gradients, and is not recorded. It is applied before ``to``. Default: None.
        copy: Copy each activation at once. Default: False, which copies a value only before something
            writes to its memory.
        grads: Collect gradients. With True the model's output is ``trace.output``, and after ``backward`` on
            a loss of it every op has its ``grad``. A selection, as in ``save``, limits this to some ops.
            Default: False.
        decompose: Record composite functions (``multi_head_attention_forward``, ``einsum``, an LSTM, a loss)
            as calls, like those of modules, with the operations inside them. Each such function is run once
            more, on copies, to see whether it consists of several operations. A fused encoder layer then runs
            its parts, which compute padded positions too and round otherwise. Default: False.
        store: Write the activations to this folder while the model runs, for what is larger than memory:
            safetensors files and an index. A value is read when it is accessed; ``load`` reads the folder.
            The folder must not hold another trace. Default: keep them in memory.
        shard_bytes: The approximate size in bytes of each file in ``store``, which is also how much waits in
            memory. Default: 256 MiB.
        kwargs: Keyword arguments of the model by name. Needed only for a parameter of the model that has the
            name of an option: ``trace(model, x, kwargs={"seed": 3})``. If it is given, also empty, such a
            name that is written as a keyword is the option.
        **keywords: The model's keyword arguments.

    Returns:
        The trace: the graph of the pass and the activations that were saved.

    Raises:
        InputError: If an option has an impossible value, ``model`` cannot be called, an argument is given
            twice, a keyword is neither an option nor a parameter of the model or is both, ``grads`` is set
            while autograd is off, or ``transform`` or a predicate raised.
        AddressError: If ``save`` or ``grads`` names something that did not run.
        CaptureError: If the pass cannot be recorded as requested: the model is asynchronous and an event loop
            is running, the call is inside ``vmap``, ``grad`` or a compiled function, or ``store`` could not
            be written. With ``grads``, if the model writes into memory that autograd needs, changes state
            that its backward pass may read, or is sharded by FSDP.
        Exception: Whatever the model raised, with a note that says where.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        >>> t = trace(net, torch.ones(2, 4))
        >>> [op.label for op in t.ops], tuple(t["1"].shape)
        (['linear_1_1', 'relu_1_2'], (2, 3))

        Only some activations, as float16:

        >>> t = trace(net, torch.ones(2, 4), save=["relu"], to=torch.float16)
        >>> [op.label for op in t.ops if op.saved], t["relu_1"].value.dtype
        (['relu_1_2'], torch.float16)

        Gradients:

        >>> t = trace(net, torch.ones(2, 4), grads=True)
        >>> t.output.sum().backward()
        >>> t["relu_1"].grad.tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]

    References:
        Taylor and Kriegeskorte (2023), "Extracting and visualizing hidden activations and computational
        graphs of PyTorch models with TorchLens", sections "User interface" and "Logging the forward pass".
        ``docs/names.md`` maps the paper's names, ``docs/values.md`` has examples of every option.
    """
    given = arguments(args, kwargs)
    must_run("trace", model, given)
    _refuse_transforms("trace", given)
    _check_seed(seed)
    if on_error not in ("raise", "keep"):
        raise InputError(f"on_error={on_error!r} is not one of 'raise', 'keep'.")
    owner = _owner(model)
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
    must_run("validate", model, given)
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
    owner = _owner(model)
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


def _called(model: Callable[..., Any], given: Arguments) -> Any:
    return drained(model(*given.args, **given.kwargs))


def structure(capture: Capture, model: Callable[..., Any]) -> Graph:
    """Return the graph of a finished capture, without values."""
    owner = _owner(model)
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
    if "torch._dynamo" in sys.modules and callable(torch._C._dynamo.eval_frame.get_eval_frame_callback()):
        raise CaptureError(
            f"{verb} cannot run inside a function that torch.compile compiles. Call it outside, with the "
            f"compiled function as the model: {verb}(compiled, inputs)."
        )


def must_run(verb: str, model: Any, given: Arguments) -> None:
    """Raise InputError if ``model`` is nothing to run.

    Args:
        verb: The function that the caller called.
        model: Its first argument.
        given: The arguments for the model, which may hold the model by mistake.
    """
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise InputError(
            f"{verb} needs a module, and {model.__name__} is a class: write {model.__name__}(…) to make one."
        )
    if callable(model):
        return
    message = f"{verb} needs a module or a function to run, got {_described(model)}."
    modules = [one for one in given.args if isinstance(one, torch.nn.Module)]
    if isinstance(model, Trace):
        message = (
            f"{verb} runs a model, got a trace, whose pass ran already. A trace has methods of its own, such "
            "as validate() and show()."
        )
    elif modules:
        message += f" The model comes first: write {verb}({type(modules[0]).__name__.lower()}, inputs)."
    elif isinstance(model, Mapping) and any(isinstance(one, torch.Tensor) for one in model.values()):
        message += " Weights do not run: make the model, call its load_state_dict, and pass the model."
    elif isinstance(model, str | Path):
        message += " To read a saved trace, write load(path). A model is passed itself, not by its name."
    raise InputError(message)


def _described(value: Any) -> str:
    """Describe a value in less than a line.

    >>> _described(torch.ones(2, 3)), _described({"weight": 1}), _described("resnet50")
    ('a Tensor of shape (2, 3)', 'a dict of 1', "'resnet50'")
    """
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return f"a {kind} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping | list | tuple | set):
        return f"a {kind} of {len(value)}"
    return reprlib.repr(value) if isinstance(value, str | bytes | int | float | None) else f"a {kind}"


def _owner(model: Callable[..., Any]) -> torch.nn.Module | None:
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
