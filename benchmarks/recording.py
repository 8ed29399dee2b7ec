"""Measure the cost of recording a forward pass, compared with a plain forward, hooks and other tools.

``python -m benchmarks.recording`` measures in the environment with the other tools, which ``make bench``
creates, or without it in the current environment, and then says what is missing. TorchLens leaves torch
wrapped after it has run, which would slow down the others. Therefore it comes last in each process, relative
to a plain forward measured beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import goals, harness

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venvs" / "peers" / "bin" / "python"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
#: TorchLens takes more than a millisecond per operation, so with more operations it would take minutes.
MOST_FOR_TORCHLENS = 5_000
SECONDS = 3.0


def main() -> None:
    """Measure every workload in a fresh process and write results/recording.md and .json."""
    names = _run(["names"])
    found = []
    for name in names:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        one = _run(["measure", name])
        one["drawn"] = _run(["draw", name]) if one["operations"] <= MOST_FOR_TORCHLENS else {}
        found.append(one)
    measured = {}
    for name in goals.MEASURES:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        measured[name] = _run(["goal", name])
    facts = _run(["machine"])
    data = {"machine": facts, "workloads": found, "goals": measured}
    harness.write("recording", _report(found, measured, facts), data)


def _run(command: list[str]) -> Any:
    """Run a command in a fresh process, with the other tools if installed, and return its JSON result."""
    python = str(PEERS) if PEERS.exists() else sys.executable
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "benchmarks.recording", *command],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


# -- in the measuring process ----------------------------------------------------------------------------


def measure_workload(name: str) -> dict[str, Any]:
    """Measure every contender on a workload: first those that leave torch unchanged, then TorchLens."""
    import torch

    import intus
    from intus.tracing.capture.interpose import Capture

    from .workloads import WORKLOADS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = WORKLOADS[name]()
    model.eval()

    def record() -> None:
        capture = Capture(model)
        capture.inputs(inputs)
        with capture:
            capture.outputs(model(**inputs))

    contenders: dict[str, Callable[[], object]] = {
        "plain": lambda: model(**inputs),
        "recording": record,
        "structure": lambda: intus.trace(model, inputs, save="none"),
        "values": lambda: intus.trace(model, inputs),
    }
    if len(list(model.modules())) > 1:
        contenders["hooks"] = lambda: _with_hooks(model, inputs)
    with torch.no_grad():
        operations = len(intus.trace(model, inputs, save="none"))
        ours = harness.summary(harness.measure(contenders, seconds=SECONDS), "plain")
        theirs, note = _torchlens(model, inputs, operations)
    return {"name": name, "operations": operations, "intus": ours, "torchlens": theirs, "note": note}


def _with_hooks(model: Any, inputs: dict[str, Any]) -> list[Any]:
    """Save activations in the simplest way: with a forward hook on every module."""
    kept: list[Any] = []
    handles = [
        module.register_forward_hook(lambda _module, _args, out: kept.append(out))
        for module in model.modules()
    ]
    model(**inputs)
    for handle in handles:
        handle.remove()
    return kept


def _torchlens(model: Any, inputs: dict[str, Any], operations: int) -> tuple[dict[str, Any], str]:
    try:
        import torchlens
        from torchlens.options import CaptureOptions
    except ImportError:
        return {}, "the other tools are not installed: run make bench, which installs them into .venvs/peers"
    if operations > MOST_FOR_TORCHLENS:
        return {}, "other tools skipped: at more than a millisecond per operation TorchLens takes minutes"

    def run(save: str) -> Callable[[], object]:
        options = CaptureOptions(layers_to_save=save)
        return lambda: torchlens.trace(model, [*inputs.values()], capture=options)

    contenders = {"plain": lambda: model(**inputs), "structure": run("none"), "values": run("all")}
    return harness.summary(harness.measure(contenders, seconds=SECONDS, least=2), "plain"), ""


def draw_workload(name: str) -> dict[str, Any]:
    """Measure torchview and torchvista on a workload, in a process in which TorchLens has not run."""
    import torch

    from .workloads import WORKLOADS

    torch.set_num_threads(1)
    sys.setrecursionlimit(100_000)  # torchvista needs it for a thousand operations
    model, inputs = WORKLOADS[name]()
    contenders: dict[str, Callable[[], object]] = {"plain": lambda: model.eval()(**inputs)}
    try:
        contenders |= {"torchview": _torchview(model, inputs), "torchvista": _torchvista(model, inputs)}
    except ImportError:
        return {}
    with torch.no_grad():
        return harness.summary(harness.measure(contenders, seconds=SECONDS, least=2, most=5), "plain")


def _torchview(model: Any, inputs: dict[str, Any]) -> Callable[[], object]:
    from torchview import draw_graph

    return lambda: draw_graph(model, input_data=inputs, device="cpu", mode="eval")


_TORCHVISTA_KEEPS = (
    *("adj_list", "module_info", "func_info", "node_to_module_path", "parent_module_to_depth"),
    *("graph_node_name_to_without_suffix", "graph_node_display_names", "node_to_attr_name"),
)


def _torchvista(model: Any, inputs: dict[str, Any]) -> Callable[[], object]:
    """Return a function that does what torchvista does before rendering."""
    import collections

    from torchvista.tracer import process_graph

    def run() -> None:
        kept: dict[str, Any] = {name: {} for name in _TORCHVISTA_KEEPS}
        lists = {
            name: collections.defaultdict(list) for name in ("parent_module_to_nodes", "node_to_ancestors")
        }
        process_graph(
            model,
            tuple(inputs.values()),
            **{**kept, **lists, "repeat_containers": set()},
            show_non_gradient_nodes=True,
            forced_module_tracing_depth=None,
        )

    return run


# -- the report ------------------------------------------------------------------------------------------


def comparison(found: list[dict[str, Any]]) -> str:
    """Return the table of workloads for all tools, with notes about what was skipped."""
    heads = ["work", "ops", "plain", "recording", "µs/op", "trace", "µs/op", "trace + values", "hooks"]
    heads += ["TorchLens", "µs/op", "TorchLens + values", "torchview", "torchvista"]
    rows, notes = [], []
    for one in found:
        ours, theirs, ops = one["intus"], one["torchlens"], one["operations"]
        rows.append(
            [
                *(one["name"], f"{ops:,}", f"{ours['plain']['median'] * 1e3:.1f} ms"),
                *(_ratio(ours, "recording"), _each(ours, "recording", ops)),
                *(_ratio(ours, "structure"), _each(ours, "structure", ops)),
                *(_ratio(ours, "values"), _ratio(ours, "hooks")),
                *(_ratio(theirs, "structure"), _each(theirs, "structure", ops), _ratio(theirs, "values")),
                *(_ratio(one["drawn"], "torchview"), _ratio(one["drawn"], "torchvista")),
            ]
        )
        if one["note"]:
            notes.append(f"- {one['name']}: {one['note']}.")
    return "\n".join([harness.table(heads, rows), "", *notes])


def _report(found: list[dict[str, Any]], measured: dict[str, Any], facts: dict[str, Any]) -> str:
    about = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n".join(
        [
            "# The cost of recording a forward pass\n",
            "## Goals\n",
            goals.report(measured, found),
            "\n## Comparison with plain PyTorch, hooks and other tools\n",
            "Medians of CPU time under `no_grad`, eval mode; × is the ratio to the plain forward that was",
            "measured in the same process, round by round. µs/op is the time added per operation.\n",
            comparison(found),
            f"\nMeasured with: {about}. `benchmarks/README.md` explains how to read and repeat this.\n",
        ]
    )


def _ratio(summary: dict[str, Any], name: str) -> str:
    return f"{_plain(summary[name]['ratio'])} ×" if name in summary else "–"


def _each(summary: dict[str, Any], name: str, operations: int) -> str:
    if name not in summary:
        return "–"
    return _plain((summary[name]["median"] - summary["plain"]["median"]) / operations * 1e6)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _execute(command: list[str]) -> Any:
    """Execute a command of ``_run``."""
    if command[0] == "names":
        from .workloads import WORKLOADS

        return list(WORKLOADS)
    if command[0] == "machine":
        import torch

        torch.set_num_threads(1)
        facts = harness.machine()
        try:
            import torchlens

            facts["torchlens"] = torchlens.__version__
        except ImportError:
            pass
        return facts
    if command[0] == "draw":
        return draw_workload(command[1])
    return goals.MEASURES[command[1]]() if command[0] == "goal" else measure_workload(command[1])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(_execute(sys.argv[1:])))
    else:
        main()
