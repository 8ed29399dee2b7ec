"""Measure the cost of a probe in the training process, in every framework that is installed.

A training, the same again, and the same with a probe at its default budget run as three processes that take
turns, block by block, so that a busy machine slows all. The figures are processor seconds of the whole
process, with all its threads, from the first step, compilations included, and until the last record is sent.
Two processes of the same training may differ by a tenth for as long as they live, so this is repeated with
new processes, and the training that ran twice shows how far such a difference goes. Another training has a
probe that records nothing, which shows what a step costs that is not recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from . import harness

ROOT = Path(__file__).parent.parent
#: What the training of each name is, and its environment (``.venvs/NAME``); "" for that which runs this.
WAYS = {
    "torch": ("PyTorch", ""),
    "session": ("TensorFlow 1, Session", "tensorflow"),
    "keras": ("Keras, fit", "tensorflow"),
    "loop": ("TensorFlow, tf.function", "tensorflow"),
    "gluon": ("MXNet, Gluon", "mxnet"),
    "hybrid": ("MXNet, Gluon hybridized", "mxnet"),
    "module": ("MXNet, Module", "mxnet"),
    "nnx": ("JAX, Flax NNX", "jax"),
}
#: Trainings that call the model's own step in every second block, beside a probe that records nothing.
ALTERNATED = ("session", "nnx")
#: The steady state begins after this many seconds of the plain training.
WARM_S = 10.0
#: The goals: whole training, training with epochs of 0.7 s, microseconds of a step that is not recorded.
RATIO, SHORT_RATIO, STEP_US = 1.05, 1.03, 20.0


class Totals(NamedTuple):
    """The report of a process at the end of a block.

    Attributes:
        seconds: Processor seconds.
        passes: Passes of the probe.
        skipped: Those that were not recorded.
        charged: The processor seconds that the probe's budget was charged.
    """

    seconds: float
    passes: int
    skipped: int
    charged: float


class Training:
    """A process that trains block by block.

    Args:
        python: The interpreter.
        arguments: The arguments of ``benchmarks.trainings``.
    """

    def __init__(self, python: Path, *arguments: str) -> None:
        threads = dict.fromkeys(
            (
                *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
                *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "MXNET_CPU_WORKER_NTHREADS"),
            ),
            "1",
        )
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        # By default malloc changes its mind about large arrays while a program runs: a training that returns
        # them to the system after each step takes some 2,000 page faults a step, with a probe or without.
        memory = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.trainings", *arguments],
            env={**os.environ, **threads, **memory, **quiet, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._last = self._read()

    def run(self, command: str = "go") -> Totals:
        """Run a block, or with ``"stop"`` end the training; return what the block took."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        before, self._last = self._last, self._read()
        return self._last._replace(seconds=self._last.seconds - before.seconds)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> Totals:
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if len(words) != 4:
            raise RuntimeError(f"{self._process.args} ended early.")
        return Totals(float(words[0]), int(words[1]), int(words[2]), float(words[3]))


def interpreter(way: str) -> Path | None:
    """Return the Python of a way's environment; None if it does not exist."""
    environment = WAYS[way][1]
    if not environment:
        return Path(sys.executable) if find_spec(way) is not None else None
    python = ROOT / ".venvs" / environment / "bin/python"
    return python if python.exists() else None


def cost(
    python: Path, way: str, port: int, seconds: float, epoch: int, steps: int, repeats: int
) -> dict[str, Any]:
    """Measure a training of so many processor seconds, the same again, and the same with a probe.

    Args:
        python: The interpreter of the framework.
        way: The name of the training.
        port: The port of a server that accepts everything.
        seconds: The processor time of each plain training.
        epoch: The number of steps in an epoch.
        steps: The number of steps in a block.
        repeats: How often it is done, each time with new processes.
    """
    arguments = [str(python), way, "--steps", str(steps), "--epoch", str(epoch)]
    runs, states = zip(*(_side_by_side(arguments, port, seconds) for _ in range(repeats)), strict=True)
    steady = [_after_warm_up(taken, min(WARM_S, seconds / 2)) for taken in runs]
    plain = [sum(taken["plain"]) for taken in runs]
    return {
        "probe": _ratio(runs, "probe"),
        "plain again": _ratio(runs, "plain again"),
        "steady": _ratio(steady, "probe"),
        "steady, plain again": _ratio(steady, "plain again"),
        "repeats": repeats,
        "plain seconds": min(plain),
        "step ms": sum(plain) / sum(len(taken["plain"]) for taken in runs) / steps * 1e3,
        "recorded": sum(last.passes - last.skipped for last in states),
        "passes": sum(last.passes for last in states),
        "charged": sum(last.charged for last in states),
    }


def _side_by_side(arguments: list[str], port: int, seconds: float) -> tuple[dict[str, list[float]], Totals]:
    """Return the seconds of each block of three processes that take turns, and the state of the probe."""
    python, *common = arguments
    options = {"plain": [], "plain again": [], "probe": ["--port", str(port)]}
    processes = {name: Training(Path(python), *common, *more) for name, more in options.items()}
    taken: dict[str, list[float]] = {name: [] for name in options}
    try:
        order = list(processes)
        while sum(taken["plain"]) < seconds:
            for name in order:
                last = processes[name].run()
                taken[name].append(last.seconds)
                if name == "probe":
                    state = last
            order = [*order[1:], order[0]]
        rest = {name: one.run("stop").seconds for name, one in processes.items()}
    finally:
        for one in processes.values():
            one.close()
    taken["probe"][-1] += max(0.0, rest["probe"] - rest["plain"])  # what was still to be sent
    return taken, state


def _after_warm_up(taken: dict[str, list[float]], seconds: float) -> dict[str, list[float]]:
    """Return the blocks that began after so many seconds of the plain training."""
    plain = taken["plain"]
    first = next((at for at in range(len(plain)) if sum(plain[:at]) >= seconds), len(plain) - 1)
    return {name: times[first:] for name, times in taken.items()}


def _ratio(runs: Sequence[dict[str, list[float]]], name: str) -> dict[str, float]:
    """Return a process's seconds to those of the plain one beside it: of all runs, lowest and highest."""
    totals = [(sum(taken[name]), sum(taken["plain"])) for taken in runs]
    single = [seconds / plain for seconds, plain in totals]
    whole = sum(seconds for seconds, _ in totals) / sum(plain for _, plain in totals)
    return {"ratio": whole, "low": min(single), "high": max(single)}


def unrecorded(python: Path, way: str, port: int, rounds: int = 200, steps: int = 50) -> float:
    """Return the microseconds that a probe adds to a step that it does not record, of a narrow network.

    It is the median of the differences between a block and the next, of ALTERNATED within one process, and
    else of two.
    """
    common = (way, "--steps", str(steps), "--epoch", "5000", "--width", "8")
    probed = Training(python, *common, "--port", str(port), "--blind")
    plain = probed if way in ALTERNATED else Training(python, *common)
    try:
        added = [probed.run().seconds - plain.run().seconds for _ in range(rounds)]
    finally:
        plain.close()
        probed.close()
    return median(added[rounds // 4 :]) / steps * 1e6


def measure(way: str, seconds: float, repeats: int, port: int) -> dict[str, Any] | None:
    """Return the figures of a way to train; None if its framework is not installed."""
    python = interpreter(way)
    if python is None:
        return None
    found: dict[str, Any] = {"long": cost(python, way, port, seconds, 400, 25, repeats)}
    found["step us"] = unrecorded(python, way, port)
    if way == "torch":
        epoch = max(int(700 / found["long"]["step ms"]), 1)
        found["short"] = cost(python, way, port, 2 * seconds, epoch, 25, repeats)
    print(way, json.dumps(found), flush=True)
    return found


def report(measured: dict[str, dict[str, Any] | None]) -> str:
    """Return the tables of goals and figures."""
    rows, missing = [], []
    for way, found in measured.items():
        title = WAYS[way][0]
        if found is None:
            missing.append(title)
            continue
        for key, goal, name in (
            ("long", RATIO, title),
            ("short", SHORT_RATIO, f"{title}, epochs of 0.7 s"),
        ):
            if one := found.get(key):
                rows.append(
                    [
                        name,
                        f"{one['step ms']:.1f} ms",
                        f"{one['repeats']} x {one['plain seconds']:.0f} s",
                        f"≤ {goal:g}",
                        _words(one["probe"]),
                        "met" if one["probe"]["ratio"] <= goal else "missed",
                        _words(one["plain again"]),
                        _words(one["steady"]),
                        f"{one['recorded']} of {one['passes']}",
                        f"{found['step us']:.0f} µs" if key == "long" else "",
                    ]
                )
    heads = ["training", "step", "for", "goal", "CPU, ratio to plain", "", "plain again", "after 10 s"]
    heads += ["passes recorded", "added to a step that is not"]
    text = (
        harness.table(heads, rows)
        + "\n\nIn brackets: the lowest and highest of one process beside another.\n"
    )
    return text + (f"\nNot installed: {', '.join(missing)}.\n" if missing else "")


def _words(ratio: dict[str, float]) -> str:
    return f"{ratio['ratio']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"


def main(arguments: list[str] | None = None) -> None:
    """Measure and write results/frameworks.md and .json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}; default: all")
    parser.add_argument("--seconds", type=float, default=30.0, help="processor time of a plain training")
    parser.add_argument("--repeats", type=int, default=3, help="how often, each time with new processes")
    chosen = parser.parse_args(arguments)
    if unknown := [way for way in chosen.ways if way not in WAYS]:
        parser.error(f"there is no way {unknown[0]!r}, choose from {', '.join(WAYS)}")
    results = harness.RESULTS / "frameworks.json"
    known = json.loads(results.read_text(encoding="utf-8"))["ways"] if results.exists() else {}
    with harness.sink() as port:
        for way in chosen.ways or WAYS:
            known[way] = measure(way, chosen.seconds, chosen.repeats, port)
            ways = {one: known[one] for one in WAYS if one in known}
            harness.write("frameworks", report(ways), {"ways": ways, "machine": harness.machine()})


if __name__ == "__main__":
    main()
