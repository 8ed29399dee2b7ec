"""Trace a model that ``torch.jit`` compiled, whose operations run outside of Python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch.utils._pytree import tree_map_only

from ...core.probes_disabled import probes_disabled
from ...core.traced import Traced
from ...reading.torchscript import evaluated
from ..capture.context.randomness import same_random_state
from ..capture.context.script_state import ScriptCall
from ..front_door import Arguments


def trace_script(model: torch.jit.ScriptModule, given: Arguments, seed: int | None) -> Traced:
    """Run a ScriptModule, and return its graph with values; its state is restored.

    Args:
        model: The module.
        given: The arguments of the call.
        seed: The seed of torch's random generators; None for the current random state.
    """
    call = ScriptCall(model)

    @contextmanager
    def restored() -> Iterator[None]:
        with same_random_state(seed), call.state():
            yield

    started, began = time.time(), time.perf_counter_ns()
    args, kwargs = tree_map_only(torch.Tensor, torch.clone, (given.args, given.kwargs))
    with restored(), probes_disabled():
        output = tree_map_only(torch.Tensor, torch.clone, model(*args, **kwargs))
    seconds = (time.perf_counter_ns() - began) / 1e9
    name = str(model.original_name)
    found = evaluated(model._c, name, given.args, given.kwargs, output, restored)
    facts = {
        "started": started,
        "seconds": seconds,
        "seed": seed,
        "training": bool(getattr(model, "training", False)),
    }
    graph = replace(found.graph, facts={**facts, **found.graph.facts, "framework": "TorchScript"})
    return found._replace(graph=graph)
