"""Measure the cost of a probe in the training process, in every framework that is installed.

A training and the same with a probe at its default budget run as two processes that take turns, block by
block, so that a busy machine slows both. The figures are processor seconds of the whole process, with all its
threads, from the first step, compilations included, and until the last record is sent. A third training has a
probe that records nothing, which shows what a step costs that is not recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
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


def cost(python: Path, way: str, port: int, seconds: float, epoch: int, steps: int) -> dict[str, Any]:
    """Measure a training of so many processor seconds, and the same with a probe.

    Args:
        python: The interpreter of the framework.
        way: The name of the training.
        port: The port of a server that accepts everything.
        seconds: The processor time of the plain training.
        epoch: The number of steps in an epoch.
        steps: The number of steps in a block.
    """
    common = (way, "--steps", str(steps), "--epoch", str(epoch))
    plain, probed = Training(python, *common), Training(python, *common, "--port", str(port))
    taken: dict[str, list[float]] = {"plain": [], "probe": []}
    try:
        while sum(taken["plain"]) < seconds:
            order = [("plain", plain), ("probe", probed)]
            for name, one in order if len(taken["plain"]) % 2 else reversed(order):
                last = one.run()
                taken[name].append(last.seconds)
                if name == "probe":
                    state = last
        rest = {"plain": plain.run("stop").seconds, "probe": probed.run("stop").seconds}
    finally:
        plain.close()
        probed.close()
    warm = next(
        at for at in range(len(taken["plain"])) if sum(taken["plain"][:at]) >= min(WARM_S, seconds / 2)
    )
    taken["probe"][-1] += max(0.0, rest["probe"] - rest["plain"])  # what was still to be sent
    found = harness.paired(taken, "plain")["probe"]
    steady = harness.paired({name: times[warm:] for name, times in taken.items()}, "plain")["probe"]
    return {
        "ratio": found["ratio"],
        "low": found["low"],
        "high": found["high"],
        "steady": steady["ratio"],
        "steady low": steady["low"],
        "steady high": steady["high"],
        "plain seconds": sum(taken["plain"]),
        "step ms": sum(taken["plain"][1:]) / max(len(taken["plain"]) - 1, 1) / steps * 1e3,
        "recorded": state.passes - state.skipped,
        "passes": state.passes,
        "charged": state.charged,
        "blocks": taken,
    }


def unrecorded(python: Path, way: str, port: int, rounds: int = 40, steps: int = 50) -> float:
    """Return the microseconds that a probe adds to a step that it does not record, of a narrow network.

    It is the difference of the fastest blocks, which a busy machine disturbs least.
    """
    common = (way, "--steps", str(steps), "--epoch", "5000", "--width", "8")
    plain = Training(python, *common)
    probed = Training(python, *common, "--port", str(port), "--blind")
    try:
        pairs = [(plain.run().seconds, probed.run().seconds) for _ in range(rounds)]
    finally:
        plain.close()
        probed.close()
    least, least_probed = (min(column[rounds // 4 :]) for column in zip(*pairs, strict=True))
    return (least_probed - least) / steps * 1e6


def measure(way: str, seconds: float, port: int) -> dict[str, Any] | None:
    """Return the figures of a way to train; None if its framework is not installed."""
    python = interpreter(way)
    if python is None:
        return None
    found = {"long": cost(python, way, port, seconds, 400, 25), "step us": unrecorded(python, way, port)}
    if way == "torch":
        epoch = max(int(700 / found["long"]["step ms"]), 1)
        found["short"] = cost(python, way, port, 2 * seconds, epoch, 25)
    print(way, json.dumps(_brief(found)), flush=True)
    return found


def _brief(found: dict[str, Any]) -> dict[str, Any]:
    """Return figures without those of single blocks."""
    return {
        key: {name: round(one, 4) for name, one in value.items() if name != "blocks"}
        if isinstance(value, dict)
        else value
        for key, value in found.items()
    }


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
                        f"{one['plain seconds']:.0f} s",
                        f"≤ {goal:g}",
                        f"{one['ratio']:.3f} ({one['low']:.3f} to {one['high']:.3f})",
                        "met" if one["ratio"] <= goal else "missed",
                        f"{one['steady']:.3f} ({one['steady low']:.3f} to {one['steady high']:.3f})",
                        f"{one['recorded']} of {one['passes']}",
                        f"{found['step us']:.0f} µs" if key == "long" else "",
                    ]
                )
    heads = ["training", "step", "for", "goal", "CPU, ratio to plain (95 %)", "", "after 10 s"]
    heads += ["passes recorded", "added to a step that is not"]
    text = harness.table(heads, rows) + "\n"
    return text + (f"\nNot installed: {', '.join(missing)}.\n" if missing else "")


def main(arguments: list[str] | None = None) -> None:
    """Measure and write results/frameworks.md and .json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}; default: all")
    parser.add_argument("--seconds", type=float, default=30.0, help="processor time of a plain training")
    chosen = parser.parse_args(arguments)
    if unknown := [way for way in chosen.ways if way not in WAYS]:
        parser.error(f"there is no way {unknown[0]!r}, choose from {', '.join(WAYS)}")
    results = harness.RESULTS / "frameworks.json"
    before = json.loads(results.read_text(encoding="utf-8"))["ways"] if results.exists() else {}
    with harness.sink() as port:
        found = {way: measure(way, chosen.seconds, port) for way in chosen.ways or WAYS}
    for one in found.values():
        for part in (one or {}).values():
            if isinstance(part, dict):
                part.pop("blocks", None)
    known = {way: found.get(way, before.get(way)) for way in WAYS if way in found or way in before}
    harness.write("frameworks", report(known), {"ways": known, "machine": harness.machine()})


if __name__ == "__main__":
    main()
