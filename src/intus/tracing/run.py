"""Run a model once and record every operation: the function ``trace``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..backends.tracing import Traces
from ..core.errors import InputError
from ..core.graph import OUTPUT
from ..core.probes_disabled import probes_disabled
from ..core.selection import Selection
from ..core.traced import Traced
from .front_door import Arguments, arguments, front_door
from .models import backend_of, is_script, require_torch
from .results.trace import Trace

if TYPE_CHECKING:
    import torch

    from .capture.saving.choose import Chooser
    from .capture.saving.form import To

_SHARD_BYTES = 256 * 2**20
#: How the names of dtypes of numbers begin, in every framework.
_NUMBERS = re.compile("u?int|b?float|complex|bool")
_NO_NUMBERS = "has the dtype {}, which holds no numbers, as a text or a random key does not"


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
    shard_bytes: int = _SHARD_BYTES,
    kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Trace:
    """Run a model once and record every operation of its forward pass.

    The model is one of PyTorch, a function of tensors, or one of another framework whose backend can trace
    (``intus.backends``). For another framework ``save`` is the only option, and values are numpy arrays.
    So are those of a module that ``torch.jit`` compiled; with options other than ``save`` and ``seed`` it is
    recorded as one operation.

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
        InputError: If an option has an impossible value or is not for the model's framework, ``model`` cannot
            be called, an argument is given twice, a keyword is neither an option nor a parameter of the model
            or is both, ``grads`` is set while autograd is off, or ``transform`` or a predicate raised.
        AddressError: If ``save`` or ``grads`` names something that did not run.
        CaptureError: If the pass cannot be recorded as requested: the model is asynchronous and an event loop
            is running, the call is inside ``vmap``, ``grad`` or a compiled function, or ``store`` could not
            be written. With ``grads``, if the model writes into memory that autograd needs, changes state
            that its backward pass may read, or is sharded by FSDP.
        MissingExtraError: If the model is one of PyTorch, or a function, and PyTorch is not installed.
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
    backend = backend_of("trace", model, given)
    options = {
        "on_error": on_error != "raise",
        "meta_value": meta_value is not None,
        "to": to is not None,
        "transform": transform is not None,
        "copy": copy,
        "grads": grads is not False,
        "decompose": decompose,
        "store": store is not None,
    }
    if backend is not None:
        options["seed"] = seed is not None
        _refuse(backend.name, [name for name, is_given in options.items() if is_given])
        return _saved(_traced(backend, model, given), save)
    if is_script(model) and not any(options.values()):
        from .building.scripted import trace_script

        return _saved(trace_script(cast("torch.jit.ScriptModule", model), given, seed), save)
    require_torch("trace")
    from .record import record

    return record(
        model,
        given,
        save=save,
        seed=seed,
        on_error=on_error,
        meta_value=meta_value,
        to=to,
        transform=transform,
        copy=copy,
        grads=grads,
        decompose=decompose,
        store=store,
        shard_bytes=shard_bytes,
    )


def _refuse(framework: str, options: list[str]) -> None:
    """Raise InputError if options are given that only PyTorch has."""
    if options:
        named = " and ".join(f"{name}=" for name in options)
        are, them = ("is", "it") if len(options) == 1 else ("are", "them")
        raise InputError(
            f"{named} {are} for models of PyTorch, and this is one of {framework}. Leave {them} out."
        )


def _traced(backend: Traces, model: Any, given: Arguments) -> Traced:
    """Return the graph of a call of another framework's model, with values."""
    started, began = time.time(), time.perf_counter_ns()
    with probes_disabled():
        found = backend.trace(model, given.args, given.kwargs)
    seconds = (time.perf_counter_ns() - began) / 1e9
    facts = {"started": started, "seconds": seconds, **found.graph.facts, "framework": backend.name}
    values = {**_outputs(found), **found.values}
    return found._replace(graph=replace(found.graph, facts=facts), values=values)


def _outputs(found: Traced) -> dict[int, np.ndarray]:
    """Return the values of the model's outputs, which are those of the operations that computed them."""
    ends = found.graph.rows_of(OUTPUT)
    sources = [(row, parent) for row in ends for parent in found.graph.parents(row)[:1]]
    return {row: found.values[parent] for row, parent in sources if parent in found.values}


def _saved(found: Traced, save: Selection | Chooser) -> Trace:
    """Return the trace with the values that are to be saved."""
    found = found.with_shapes()
    arrays = {row: np.asarray(value) for row, value in found.values.items()}
    result = Trace(found.graph, arrays, params=found.params)
    if arrays:
        result.not_stored = {
            op.row: _NO_NUMBERS.format(op.dtype)
            for op in result._handles(range(len(found.graph.ops)))
            if op.row not in arrays and op.dtype and _NUMBERS.match(str(op.dtype)) is None
        }
    if save != "all":
        saved = set() if save == "none" else set(result._select(cast(Selection, save)))
        result.values = {row: value for row, value in result.values.items() if row in saved}
        result.not_stored = {row: why for row, why in result.not_stored.items() if row in saved}
    return result
