"""Goals for the cost of recording, each measured in a fresh process."""

from __future__ import annotations

import gc
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import harness

Figures = dict[str, Any]


def validation(name: str) -> Figures:
    """Return the time of ``intus.validate`` over that of a plain forward, and its extra peak memory in MB."""
    import torch

    import intus

    from .workloads import WORKLOADS

    model, inputs = WORKLOADS[name]()
    model.eval()
    with torch.no_grad():
        intus.validate(torch.nn.Linear(2, 2), torch.ones(1, 2))
        model(**inputs)
        before = _peak()
        intus.validate(model, inputs)
        extra = _peak() - before
        taken = {"plain": lambda: model(**inputs), "validate": lambda: intus.validate(model, inputs)}
        ratio = harness.summary(harness.measure(taken, seconds=4, most=5), "plain")["validate"]["ratio"]
    return {"ratio": ratio, "megabytes": extra}


def smallest() -> Figures:
    """Return the milliseconds to trace one ``nn.Linear`` without values: the fixed cost of a trace."""
    import torch

    import intus

    model, x = torch.nn.Linear(4, 4), torch.ones(1, 4)

    def hooks() -> None:
        model.register_forward_hook(lambda _module, _args, out: None)
        model(x)
        model._forward_hooks.clear()

    found = {"intus": _milliseconds(lambda: intus.trace(model, x, save="none"), 300)}
    found["hooks"] = _milliseconds(hooks, 300)
    try:
        import torchlens
        from torchlens.options import CaptureOptions
    except ImportError:
        return found
    options = CaptureOptions(layers_to_save="none")
    found["torchlens"] = _milliseconds(lambda: torchlens.trace(model, [x], capture=options), 5)
    return found


def million() -> Figures:
    """Return the microseconds and bytes per operation to record a chain of a million operations."""
    import torch

    from intus.tracing.capture.interpose import Capture

    from .workloads import Chain

    model, x = Chain(1_000_000), torch.ones(8)
    with torch.no_grad():
        began = time.process_time()
        model(x)
        plain = time.process_time() - began
        gc.collect()
        before, began = _resident(), time.process_time()
        capture = Capture(model)
        capture.inputs(x)
        with capture:
            capture.outputs(model(x))
        taken = time.process_time() - began
        memory = _resident() - before
    return {"microseconds": taken - plain, "bytes": memory}  # seconds of a million are microseconds of one


def no_loops() -> Figures:
    """Return the microseconds per operation to trace random sequences of 10,000 and 100,000 functions."""
    import torch

    import intus

    torch.manual_seed(0)
    functions = [torch.relu, torch.tanh, torch.sin, torch.cos, torch.abs, torch.neg]
    found = {}
    for length in (10_000, 100_000):
        sequence = torch.randint(0, len(functions), (length,)).tolist()

        def forward(x: Any, sequence: list[int] = sequence) -> Any:
            for number in sequence:
                x = functions[number](x)
            return x

        x = torch.ones(8)
        taken = {"plain": lambda: forward(x), "trace": lambda: intus.trace(forward, x, save="none")}  # noqa: B023
        both = harness.summary(harness.measure(taken, seconds=2, least=2, most=5), "plain")
        found[f"{length:,}"] = (both["trace"]["median"] - both["plain"]["median"]) / length * 1e6
    return found


def bystander() -> Figures:
    """Return the time of an empty module's call while another thread traces, over that of a plain call."""
    import torch

    import intus

    module, x = torch.nn.Identity(), torch.ones(1)
    inside, finish = threading.Event(), threading.Event()

    def forward(x: Any) -> Any:
        inside.set()
        finish.wait()
        return x + 1

    def calls() -> float:
        began = time.thread_time_ns()
        for _ in range(20_000):
            module(x)
        return float(time.thread_time_ns() - began)

    plain, during = [], []
    for _ in range(15):
        plain.append(calls())
        inside.clear()
        finish.clear()
        thread = threading.Thread(target=lambda: intus.trace(forward, x, save="none"))
        thread.start()
        inside.wait()
        during.append(calls())
        finish.set()
        thread.join()
    return {"ratio": min(during) / min(plain)}


def llama() -> Figures:
    """Return the seconds and megabytes to trace a model of the size of Llama 70B on ``meta``."""
    import torch

    import intus

    from .workloads import llama_70b

    model, inputs = llama_70b()
    intus.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
    with torch.no_grad():
        before, began = _resident(), time.process_time()
        trace = intus.trace(model, inputs, save="none", meta_value=True)
        return {
            "seconds": time.process_time() - began,
            "megabytes": (_resident() - before) / 1e6,
            "operations": len(trace),
            "parameters": sum(p.numel() for p in model.parameters()),
        }


def freed() -> Figures:
    """Return the megabytes used by a trace with 400 MB of activations, and those left after deleting it."""
    import torch

    import intus

    def forward(x: Any) -> Any:
        for _ in range(25):
            x = torch.tanh(x)
        return x

    x = torch.ones(4_000_000)
    intus.trace(forward, x[:1])
    gc.collect()
    gc.disable()
    before = _resident()
    trace = intus.trace(forward, x)
    held = _resident() - before
    del trace
    return {"held": held / 1e6, "left": (_resident() - before) / 1e6}


#: The functions that measure the goals, by name.
MEASURES: dict[str, Callable[[], Figures]] = {
    "validate ResNet-50": lambda: validation("ResNet-50, batch 1"),
    "validate GPT-2": lambda: validation("GPT-2 small, 128 tokens"),
    "smallest": smallest,
    "million": million,
    "no loops": no_loops,
    "bystander": bystander,
    "llama": llama,
    "freed": freed,
}


def report(measured: dict[str, Figures], workloads: list[dict[str, Any]]) -> str:
    """Return the table of goals with figures, and those of hooks and TorchLens for the same task."""
    works = {one["name"]: one for one in workloads}
    lstm = works["Python LSTM, 200 steps"]
    small, big, free = measured["smallest"], measured["million"], measured["freed"]
    chains = {length: works[f"chain of {length}"] for length in ("1,000", "10,000", "100,000")}
    rows: list[tuple[str, float, float, str, str, str]] = []

    def add(what: str, goal: float, figure: float, unit: str, hooks: str = "–", torchlens: str = "–") -> None:
        rows.append((what, goal, figure, unit, hooks, torchlens))

    for name in ("ResNet-50", "GPT-2"):
        add(f"validate {name}, ratio to the plain forward", 4, measured[f"validate {name}"]["ratio"], "×")
        add(f"validate {name}, memory above it", 150, measured[f"validate {name}"]["megabytes"], "MB")
    theirs = f"{small['torchlens']:.3g} ms" if "torchlens" in small else "–"
    add("trace of one nn.Linear", 0.3, small["intus"], "ms", f"{small['hooks']:.2g} ms", theirs)
    add("LSTM, recorded", 3.3, lstm["intus"]["recording"]["ratio"], "×")
    hooks, all_ = f"{lstm['intus']['hooks']['ratio']:.3g} ×", lstm["torchlens"].get("values")
    theirs = f"{all_['ratio']:.3g} ×" if all_ else "–"
    add("LSTM, every activation, finished", 5, lstm["intus"]["values"]["ratio"], "×", hooks, theirs)
    for length, one in chains.items():
        add(f"chain of {length}, recorded, per op", 4.5, _each(one, "intus", "recording"), "µs")
    add("chain of 1,000,000, recorded, per op", 4.5, big["microseconds"], "µs")
    add("chain of 1,000,000, memory, per op", 200, big["bytes"] / 1e6, "B")
    for length, one in chains.items():
        theirs = f"{_each(one, 'torchlens', 'structure'):,.0f} µs" if one["torchlens"] else "–"
        add(f"chain of {length}, finished, per op", 15, _each(one, "intus", "structure"), "µs", "–", theirs)
    for length, figure in measured["no loops"].items():
        add(f"{length} ops without loops, finished, per op", 15, figure, "µs")
    ratio = measured["bystander"]["ratio"]
    add("module call while another thread traces, ratio to a plain call", 1.1, ratio, "×")
    add("structure of Llama 70B on meta", 2, measured["llama"]["seconds"], "s")
    add("structure of Llama 70B on meta, memory", 50, measured["llama"]["megabytes"], "MB")
    add(f"left of {free['held']:.0f} MB after deleting the trace", 10, free["left"], "MB")
    heads = ["what", "goal", "figure", "", "hooks", "TorchLens"]
    return harness.table(
        heads,
        [
            [
                what,
                f"≤ {goal:g} {unit}",
                f"{figure:.3g} {unit}",
                "met" if figure <= goal else "missed",
                *theirs,
            ]
            for what, goal, figure, unit, *theirs in rows
        ],
    )


def _each(one: dict[str, Any], who: str, what: str) -> float:
    """Return the microseconds per operation above the plain forward."""
    found = one[who]
    return (found[what]["median"] - found["plain"]["median"]) / one["operations"] * 1e6


def _milliseconds(run: Callable[[], object], times: int) -> float:
    """Return the CPU milliseconds of one run, the least of three averages."""
    run()
    taken = []
    for _ in range(3):
        began = time.process_time()
        for _ in range(times):
            run()
        taken.append((time.process_time() - began) / times * 1e3)
    return min(taken)


def _resident() -> float:
    """Return the resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _peak() -> float:
    """Return the peak resident memory in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
