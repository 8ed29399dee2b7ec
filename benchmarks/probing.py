"""Measure the cost of probes: CPU of the training process with all its threads, relative to no probe.

The models are a CNN (batches of 64 x 3 x 32 x 32) and a transformer (4 blocks of width 128, 64 tokens, batch
32). The initial budget of the probe is spent before, so the figures are those of a long training. They are
compared with the method of the Vivisect paper's code (every output of every step as JSON, in one request
each) and, if installed, with other tools that log every step: wandb.watch, offline, and TensorBoard's
histograms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from intus import Record, probe
from intus.monitoring.client import Client
from intus.monitoring.clocks import process_seconds
from intus.storage.codec import decode_records, encode_records

from . import harness

#: The seconds of a short epoch, and the calls over which the cost of one that is not recorded is averaged.
EPOCH_S, PASSES = 0.7, 20_000
#: The environment in which `make bench` installs the other monitoring tools.
MONITORS = Path(__file__).parent.parent / ".venvs/monitors/bin/python"


def cnn() -> tuple[nn.Module, torch.Tensor]:
    """Return a CNN of eleven modules and a batch."""
    torch.manual_seed(0)
    body = [
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
    ]
    head = [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(*body, *head), torch.randn(64, 3, 32, 32)


class Transformer(nn.Module):
    """A transformer of four blocks."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True)
        self.embed, self.blocks = (
            nn.Embedding(1000, 128),
            nn.TransformerEncoder(block, 4, enable_nested_tensor=False),
        )
        self.head = nn.Linear(128, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Classify token sequences (batch, length)."""
        return self.head(self.blocks(self.embed(tokens)).mean(1))


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """Return a transformer of more than thirty modules and a batch."""
    torch.manual_seed(0)
    return Transformer(), torch.randint(0, 1000, (32, 64))


def training(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> tuple[nn.Module, Callable[[], None]]:
    """Return a model and a function that trains it for one step."""
    model, x = make()
    labels = torch.arange(len(x)) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    return model, step


def as_json(model: nn.Module, port: int) -> Callable[[], None]:
    """Send every output as nested lists in JSON, in one request each, over one connection."""
    client = Client("127.0.0.1", port)

    def send(module: nn.Module, given: Any, out: Any) -> None:
        if isinstance(out, torch.Tensor):
            client.post("/activation_output", json.dumps({"array": out.tolist()}).encode())

    for module in model.modules():
        module.register_forward_hook(send)
    return lambda: None


class Turn:
    """The turn of a watched training among others, outside of which its budget earns nothing.

    What it earned before its turn ended stays its own, also of steps for which it had not read the clocks.
    """

    def __init__(self, watch: Any) -> None:
        self._accounts, self._left = watch._tap.budget._accounts, process_seconds()

    def __enter__(self) -> None:
        for account, left, now in zip(self._accounts, self._left, process_seconds(), strict=True):
            account.at += now - left

    def __exit__(self, *error: object) -> None:
        self._left = process_seconds()


def long_run(watch: Any) -> None:
    """Remove what is left of the loan at the start, so that the figures are those of a long training."""
    for account in watch._tap.budget._accounts:
        account.saved, account.loan = min(account.saved, 0.0), 0.0


def without_loan(watch: Any) -> None:
    """Begin to measure a long training: nothing is lent or saved, and what the first steps took is paid."""
    long_run(watch)
    for account in watch._tap.budget._accounts:
        account.saved = 0.0


def blocks(
    runs: dict[str, tuple[nn.Module, Callable[[], None]]], steps: int, watch: Any, begin: Callable[[], None]
) -> dict[str, Callable[[], None]]:
    """Return functions that train for some steps, by contender; that of the probe has turns.

    Args:
        runs: The trainings.
        steps: The number of steps.
        watch: The probe of the training "probe".
        begin: Called when its turn begins.
    """
    turn = Turn(watch)

    def train(step: Callable[[], None]) -> None:
        for _ in range(steps):
            step()

    def watched() -> None:
        with turn:
            begin()
            train(runs["probe"][1])
            watch._tap.sender.drain(10)  # its pending work counts too

    return {name: watched if name == "probe" else partial(train, step) for name, (_, step) in runs.items()}


def overhead(
    make: Callable[[], tuple[nn.Module, torch.Tensor]], port: int, rounds: int, steps: int
) -> dict[str, Any]:
    """Measure the CPU of training steps with a probe and with other monitoring tools.

    Args:
        make: Returns a model and a batch.
        port: The port of a server that accepts everything.
        rounds: The number of rounds in which all contenders take turns.
        steps: The number of steps per turn; tools that record every step take fewer.

    Returns:
        Ratios by contender, the fraction of passes that the probe watched, and its status.
    """
    runs = {name: training(make) for name in ("plain", "plain again", "probe", "when false")}
    watch = probe(runs["probe"][0], port=port, structure=False)
    blind = probe(runs["when false"][0], port=port, when=lambda model, operation: False, structure=False)
    for _ in range(2 * steps):  # the probe must know the time of a step before it selects rows
        runs["probe"][1]()
    without_loan(watch)

    before = watch.status()
    contenders = blocks(runs, steps, watch, lambda: long_run(watch))
    taken = harness.measure(contenders, seconds=1e9, least=rounds, most=rounds)
    after = watch.status()
    watch.remove()
    blind.remove()
    found = harness.paired(taken, "plain")
    every = {
        name: each_step(make, attach, 1 if name == "JSON" else 3) for name, attach in monitors(port).items()
    }
    passes = after["passes"] - before["passes"]
    return found | every | {"watched": 1 - (after["skipped"] - before["skipped"]) / passes, "status": after}


def short_epochs(
    make: Callable[[], tuple[nn.Module, torch.Tensor]], port: int, rounds: int
) -> dict[str, Any]:
    """Measure the CPU of epochs of ``EPOCH_S`` seconds, each of which wants a recorded pass.

    Args:
        make: Returns a model and a batch.
        port: The port of a server that accepts everything.
        rounds: The number of epochs.

    Returns:
        Ratios of "plain again" and "probe" to a training without a probe, the seconds of an epoch, and how
        many epochs had no recorded pass.
    """
    runs = {name: training(make) for name in ("plain", "plain again", "probe")}
    taken = harness.measure({"step": runs["plain"][1]}, seconds=2, least=5, most=50)
    step = float(np.median(taken["step"]))
    steps = max(round(EPOCH_S / step), 1)
    watch = probe(runs["probe"][0], port=port, structure=False)
    watch.epoch = 1  # the same batch in each step would begin an epoch
    for _ in range(2 * steps):
        runs["probe"][1]()
    watch._tap.sender.drain(10)
    watch.epoch += 1
    runs["probe"][1]()  # charges what is left of them
    without_loan(watch)
    before = watch.status()["skipped_epochs"]

    def next_epoch() -> None:
        watch.epoch += 1

    contenders = blocks(runs, steps, watch, next_epoch)
    taken = harness.measure(contenders, seconds=1e9, least=rounds, most=rounds)
    skipped = watch.status()["skipped_epochs"] - before
    watch.remove()
    return harness.paired(taken, "plain") | {"seconds": steps * step, "without a pass": skipped}


def skipped_pass(make: Callable[[], tuple[nn.Module, torch.Tensor]], port: int) -> float:
    """Return the microseconds of CPU that a probe takes of a call of the model that it does not record."""
    model, x = make()
    watch = probe(model, port=port, structure=False)
    with torch.no_grad():
        model(x)
        tap = watch._tap
        for account in tap.budget._accounts:
            account.saved = account.loan = -1e6  # nothing can be paid for
        began = time.process_time()
        for _ in range(PASSES):
            tap.on_forward_start((x,))
        taken = time.process_time() - began
    watch.remove()
    return 1e6 * taken / PASSES


def each_step(
    make: Callable[[], tuple[nn.Module, torch.Tensor]],
    attach: Callable[[nn.Module], Callable[[], None]],
    steps: int,
) -> dict[str, float]:
    """Return the cost of recording every step, relative to a step without it."""
    plain, (model, step) = training(make)[1], training(make)
    log = attach(model)

    def logged() -> None:
        for _ in range(steps):
            step()
            log()

    def bare() -> None:
        for _ in range(steps):
            plain()

    taken = harness.measure({"plain": bare, "logged": logged}, seconds=10, least=1, most=5)
    return harness.paired(taken, "plain")["logged"]


def monitors(port: int) -> dict[str, Callable[[nn.Module], Callable[[], None]]]:
    """Return the other monitoring tools that are installed.

    Each attaches to a model and returns a function to call after every step.
    """
    found: dict[str, Callable[[nn.Module], Callable[[], None]]] = {}
    with contextlib.suppress(ImportError):
        import wandb

        def watch(model: nn.Module) -> Callable[[], None]:
            run = wandb.init(mode="offline", dir=tempfile.mkdtemp(), settings=wandb.Settings(silent=True))
            run.watch(model, log="all", log_freq=1)
            return lambda: run.log({"step": 1})

        found["wandb.watch"] = watch
    with contextlib.suppress(ImportError):
        from torch.utils.tensorboard import SummaryWriter

        found["TensorBoard"] = lambda model: histograms(model, SummaryWriter(tempfile.mkdtemp()))
    return found | {"JSON": lambda model: as_json(model, port)}


def histograms(model: nn.Module, writer: Any) -> Callable[[], None]:
    """Log histograms of activations, parameters and their gradients to TensorBoard."""
    for name, module in model.named_modules():
        module.register_forward_hook(
            lambda module, given, out, name=name: (
                writer.add_histogram(f"activation/{name}", out) if isinstance(out, torch.Tensor) else None
            )
        )

    def log() -> None:
        for name, parameter in model.named_parameters():
            writer.add_histogram(f"parameter/{name}", parameter)
            writer.add_histogram(f"gradient/{name}", parameter.grad)

    return log


def wire() -> float:
    """Return how many times faster than JSON a record of 256 x 768 numbers is encoded and decoded."""
    array = np.random.default_rng(0).normal(size=(256, 768)).astype(np.float32)
    record = Record(array, "fc1", run="r", model="m", epoch=0)
    contenders = {
        "JSON": lambda: np.array(json.loads(json.dumps({"array": array.tolist()}))["array"], np.float32),
        "binary": lambda: [decode_records(encode_records([record])) for _ in range(20)],
    }
    found = harness.summary(harness.measure(contenders, seconds=5, least=5, most=9), "JSON")
    return 20 / found["binary"]["ratio"]


def report(overheads: dict[str, dict[str, Any]], packed: float) -> str:
    """Return the tables: the goals, and the cost of other monitoring tools."""
    goals = []
    for model, found in overheads.items():
        for column, what, goal in (
            ("probe", "probe at its default budget", 1.05),
            ("when false", "probe, when always false", 1.01),
        ):
            one = found[column]
            met = "met" if one["ratio"] <= goal else "missed"
            figure = f"{one['ratio']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
            goals.append([f"{model}: {what}", f"≤ {goal:g}", figure, met])
        short = found["short epochs"]
        one = short["probe"]
        what = f"{model}: probe at its default budget, epochs of {short['seconds']:.2f} s"
        figure = f"{one['ratio']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
        met = "met" if one["ratio"] <= 1.03 else "missed"
        if short["without a pass"] >= one["rounds"]:
            met = "not proven: nothing was recorded"
        goals.append([what, "≤ 1.03", figure, met])
    met = "met" if packed >= 150 else "missed"
    goals.append(
        ["256 x 768 numbers encoded and decoded, speed relative to JSON", "≥ 150", f"{packed:.0f}", met]
    )
    columns = ("plain again", "probe", "when false", "wandb.watch", "TensorBoard", "JSON")
    rows = [
        [name, *(f"{one[column]['ratio']:.3f}" if column in one else "–" for column in columns)]
        for name, one in overheads.items()
    ]
    noise = ", ".join(
        f"{name} {one['plain again']['low']:.3f} to {one['plain again']['high']:.3f}"
        for name, one in overheads.items()
    )
    return "\n\n".join(
        [
            harness.table(["what", "goal", "CPU of a step, ratio to plain (95 %)", ""], goals),
            harness.table(["CPU of a training step, ratio to plain", *columns], rows),
            f"Two plain trainings in the same rounds: {noise}. wandb.watch(log='all', log_freq=1), "
            "TensorBoard's histograms of activations, parameters and gradients, and JSON of every output "
            "record every step; "
            "the probe watched "
            + " and ".join(
                f"{one['watched']:.0%} of the passes of the {name}" for name, one in overheads.items()
            )
            + ". A call of the model that is not recorded takes "
            + ", ".join(f"{one['skipped pass']:.1f} µs ({name})" for name, one in overheads.items())
            + ". Of the short epochs, "
            + ", ".join(
                f"{short['without a pass']} of {short['probe']['rounds']} ({name})"
                for name, short in ((name, one["short epochs"]) for name, one in overheads.items())
            )
            + " had no recorded pass.\n",
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure and write results/probing.md and .json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=30)
    chosen = parser.parse_args(arguments)
    if MONITORS.exists() and Path(sys.prefix).resolve() != MONITORS.parent.parent.resolve():
        subprocess.run([MONITORS, "-m", "benchmarks.probing", *sys.argv[1:]], check=True)
        return
    torch.set_num_threads(1)
    with harness.sink() as port:
        models = {"CNN": cnn, "transformer": transformer}
        found = {name: overhead(make, port, chosen.rounds, chosen.steps) for name, make in models.items()}
        for name, make in models.items():
            found[name]["short epochs"] = short_epochs(make, port, chosen.epochs)
            found[name]["skipped pass"] = skipped_pass(make, port)
    data = {"overhead": found, "wire": wire(), "machine": harness.machine()}
    harness.write("probing", report(found, data["wire"]), data)


if __name__ == "__main__":
    main()
