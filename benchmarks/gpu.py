"""Measure on a GPU what a look at a large model, a probed training and a trace take, beside running without.

The large model has the shape of Llama 7B and random weights in bfloat16; a look is one pass of its probe set.
Times are wall-clock times after the device has finished; those of the device are sums over its kernels. A
training and the same one with a probe take turns in blocks of steps, which nothing waits for in between.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import intus
from intus import probe
from intus.monitoring.budget import SHARE

from . import harness
from .probing import Turn, long_run
from .statistics import CLASSES, MOST_BYTES_7B, MOST_OWN, TOKENS, counted

#: The most that a probe may take of a training with its default budget, as a ratio.
MOST_BUDGET = 1.03
PARTS = ("look", "traces", "budget")


def wait(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed(run: Callable[[], object], device: str) -> float:
    """Return the seconds of a call, until the device has finished."""
    wait(device)
    began = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - began


def llama(layers: int, device: str, small: bool) -> nn.Module:
    """Return a model of the shape of Llama 7B with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = (64, 172, 2, 100) if small else (4096, 11008, 32, 32000)
    config = LlamaConfig(
        hidden_size=sizes[0],
        intermediate_size=sizes[1],
        num_attention_heads=sizes[2],
        vocab_size=sizes[3],
        num_hidden_layers=layers,
        use_cache=False,
    )
    with torch.device(device):
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def on_device(run: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of each kind of kernel of a call."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    return {one.key: one.self_device_time_total / 1e6 for one in found.key_averages()}


def look(layers: int, device: str, small: bool, looks: int = 3) -> dict[str, Any]:
    """Return the seconds of a look and of its forward, its bytes, and the peak of the device's memory."""
    rows = 52 if small else TOKENS // 128
    torch.manual_seed(0)
    model = llama(layers, device, small)
    ids = torch.randint(0, 100, (rows, 128))
    there = ids.to(device)

    def forward() -> None:
        with torch.no_grad():
            model(there)

    def peak() -> float:
        return torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else math.nan

    forward()
    print("made", file=sys.stderr)
    found: dict[str, Any] = {
        "layers": layers,
        "forward": statistics.median(timed(forward, device) for _ in range(5)),
    }
    found["parameters"] = sum(p.numel() for p in model.parameters())
    found["forward peak GB"] = peak()
    with counted() as sent:
        options: dict[str, Any] = {"probe_set": (ids, {"tag": ids % CLASSES}), "structure": False}
        with probe(model, queue_mb=40_000, **options) as watch:
            taken, processor, all_sent = [], [], []
            kernels = on_device(forward) if device == "cuda" else {}
            for number in range(looks):
                watch.epoch = number
                began, wall = time.process_time(), time.perf_counter()
                taken.append(timed(watch.run_probe_set, device))
                watch._tap.sender.drain(600)
                processor.append(time.process_time() - began)
                all_sent.append(time.perf_counter() - wall)
                print(
                    f"look {number}: {taken[-1]:.2f} s, sent after {all_sent[-1]:.2f} s, "
                    f"{processor[-1]:.2f} CPU s",
                    file=sys.stderr,
                )
            if device == "cuda":
                watch.epoch = looks
                of_look = on_device(watch.run_probe_set)
                found["device forward"] = sum(kernels.values())
                found["device look"] = sum(of_look.values())
                own = {name: seconds - kernels.get(name, 0.0) for name, seconds in of_look.items()}
                found["kernels"] = dict(sorted(own.items(), key=lambda one: -one[1])[:24])
            assert not watch.status()["troubles"], watch.status()
            watch._tap.sender.drain(600)
            made = looks + (device == "cuda")  # one more was timed kernel by kernel
            found["arrays"] = watch.status()["recorded"] / made
        found["bytes"] = sent["/records"] / made
    found |= {"looks": taken, "sent after": all_sent, "processor": processor, "look peak GB": peak()}
    return found


class Gpt(nn.Module):
    """A decoder of token ids of about a hundred million parameters."""

    def __init__(self, width: int = 768, layers: int = 12, vocabulary: int = 32_000) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits for each token."""
        size = ids.shape[1]
        x = self.embed(ids) + self.place(torch.arange(size, device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(size, device=ids.device)
        out: torch.Tensor = self.head(self.blocks(x, mask=mask, is_causal=True))
        return out


class Cnn(nn.Module):
    """A residual CNN of the size of ResNet-18."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width), nn.ReLU())
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()),
                *(nn.Conv2d(b, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU()),
                *(nn.Conv2d(b, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU()),
            )
            for a, b in pairwise(sizes)
        )
        self.head = nn.Linear(sizes[-1], 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        out: torch.Tensor = self.head(x.mean((2, 3)))
        return out


def training(name: str, device: str, small: bool) -> tuple[nn.Module, torch.Tensor, Callable[[], None]]:
    """Return a model, a batch, and a function that trains for one step without waiting for it."""
    torch.manual_seed(0)
    if name == "GPT":
        model: nn.Module = Gpt(64, 2, 100) if small else Gpt()
        x = torch.randint(0, 100, (2, 32) if small else (16, 512))
        y = x.roll(-1, 1)
    else:
        model = Cnn(8 if small else 64)
        x = torch.randn((4, 3, 32, 32) if small else (128, 3, 224, 224))
        y = torch.randint(0, 1000, (len(x),))
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=device == "cuda")

    def step() -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            out = model(x)
            loss = F.cross_entropy(out.flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, x, step


def budget(name: str, device: str, small: bool, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the ratio of a training with a probe to one without, by wall-clock and processor time."""
    runs = {who: training(name, device, small) for who in ("plain", "plain again", "probe")}
    for _, _, step in runs.values():
        for _ in range(5):
            step()
    step_s = timed(lambda: [runs["plain"][2]() for _ in range(10)], device) / 10
    steps = max(int(seconds / step_s), 5)
    taken: dict[str, dict[str, list[float]]] = {"wall": {}, "processor": {}}
    with harness.sink() as port, probe(runs["probe"][0], port=port, structure=False) as watch:
        for _ in range(2 * steps):
            runs["probe"][2]()
        wait(device)
        long_run(watch)
        before, spent = watch.status(), watch._tap.budget.spent
        turn = Turn(watch)
        for _ in range(rounds):
            for who, (_, _, step) in runs.items():
                with turn if who == "probe" else nullcontext():
                    wait(device)
                    wall, processor = time.perf_counter(), time.process_time()
                    for _ in range(steps):
                        step()
                    wait(device)
                    if who == "probe":
                        watch._tap.sender.drain(10)
                    taken["wall"].setdefault(who, []).append(time.perf_counter() - wall)
                    taken["processor"].setdefault(who, []).append(time.process_time() - processor)
        after = watch.status()
        rows = watch._tap.budget.rows
        charged = [now - then for now, then in zip(watch._tap.budget.spent, spent, strict=True)]
        unseen = [account.unseen for account in watch._tap.budget._accounts]
    passes = after["passes"] - before["passes"]
    one = cost_of_a_pass(name, device, small)
    skipped = after["skipped"] - before["skipped"]
    return {
        "step": step_s,
        "steps": steps,
        "watched": 1 - skipped / passes,
        "rows": rows,
        "charged": charged,
        "unseen": [None if one != one else one for one in unseen],
        "troubles": after["troubles"],
        "pass": one,
        **{clock: harness.paired(some, "plain") for clock, some in taken.items()},
    }


def cost_of_a_pass(name: str, device: str, small: bool, steps: int = 25) -> dict[str, float]:
    """Return the seconds that a recorded pass takes of the training, and those that the budget charges."""
    _, _, plain = training(name, device, small)
    model, _, step = training(name, device, small)
    with harness.sink() as port, probe(model, port=port, structure=False, budget=1000) as watch:
        for _ in range(5):
            plain()
            step()
        watch._tap.sender.drain(20)
        least = timed(lambda: [plain() for _ in range(steps)], device)
        before = watch._tap.budget.spent.wall

        def recorded() -> None:
            for _ in range(steps):
                step()
            watch._tap.sender.drain(20)

        taken = timed(recorded, device)
        charged = watch._tap.budget.spent.wall - before
        rows = watch._tap.budget.rows
    return {"taken": (taken - least) / steps, "charged": charged / steps, "rows": rows or math.nan}


def traces(name: str, device: str, small: bool) -> dict[str, float]:
    """Return the milliseconds of a forward, with hooks, and traced, and the number of operations."""
    model, x, _ = training(name, device, small)
    model.eval()

    def hooked() -> None:
        held: list[Any] = []
        handles = [one.register_forward_hook(lambda _m, _a, out: held.append(out)) for one in model.modules()]
        model(x)
        for handle in handles:
            handle.remove()

    runs: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "hooks": hooked,
        "structure": lambda: intus.trace(model, x, save="none"),
        "values": lambda: intus.trace(model, x),
    }
    cast = torch.autocast(device, dtype=torch.bfloat16) if device == "cuda" else nullcontext()
    with torch.no_grad(), cast:
        operations = len(intus.trace(model, x, save="none"))
        taken = {who: [timed(run, device) for _ in range(8)] for who, run in runs.items()}
    found = {who: statistics.median(times[2:]) * 1e3 for who, times in taken.items()}
    return found | {"operations": operations}


def seconds_of(times: list[float]) -> str:
    """Return times as text."""
    return ", ".join(f"{each:.2f} s" for each in times)


def report(found: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    goals, parts = [], [f"On {found['card']}."]
    if one := found.get("look"):
        own = one.get("device look", math.nan) / one.get("device forward", math.nan) - 1
        whole = min(one["looks"]) / one["forward"] - 1
        goals += [
            ("own part of a look, to its forward", MOST_OWN, whole),
            ("own part of a look on the device, to its forward", MOST_OWN, own),
            ("GB of a look", MOST_BYTES_7B / 1e9, one["bytes"] / 1e9),
        ]
        parts.append(
            harness.table(
                ["a look at a model", ""],
                [
                    ["parameters", f"{one['parameters'] / 1e9:.2f} G in {one['layers']} blocks"],
                    ["arrays", f"{one['arrays']:.0f}"],
                    ["forward", f"{one['forward']:.2f} s"],
                    ["looks", seconds_of(one["looks"])],
                    ["everything is sent after", seconds_of(one.get("sent after", []))],
                    ["processor seconds of the looks, until then", seconds_of(one["processor"])],
                    ["forward on the device", f"{one.get('device forward', math.nan):.2f} s"],
                    ["look on the device", f"{one.get('device look', math.nan):.2f} s"],
                    ["sent", f"{one['bytes'] / 1e9:.2f} GB"],
                    ["peak memory of the forward", f"{one['forward peak GB']:.1f} GB"],
                    ["peak memory of a look", f"{one['look peak GB']:.1f} GB"],
                ],
            )
        )
    rows, rows_of_pass = [], []
    for name, one in found.get("budget", {}).items():
        if "pass" in one:
            share = SHARE * one["pass"]["taken"] / one["pass"]["charged"]
            goals.append(
                (f"{name} with a probe, from what a pass takes and is charged", MOST_BUDGET, 1 + share)
            )
            rows_of_pass.append(
                [name, *(f"{one['pass'][part] * 1e3:.0f} ms" for part in ("taken", "charged"))]
            )
        for clock in ("wall", "processor"):
            ratio = one[clock]["probe"]
            goals.append(
                (
                    f"{name} with a probe, {clock} time of {ratio['seconds']:.0f} s",
                    MOST_BUDGET,
                    ratio["ratio"],
                )
            )
            again = one[clock]["plain again"]["ratio"]
            rows.append(
                [
                    f"{name}, {clock}",
                    f"{one['step'] * 1e3:.1f} ms",
                    f"{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]",
                    f"{again:.3f}",
                    f"{one['watched']:.0%}",
                    str(one["rows"]),
                ]
            )
    if rows:
        heads = ["training", "step", "with a probe", "plain again", "recorded passes", "rows"]
        parts.append(harness.table(heads, rows))
        parts.append(
            "A pass is recorded when the budget has saved for it. What it costs more is repaid by the steps "
            "after it, in some tens of seconds."
        )
    if rows_of_pass:
        parts.append(harness.table(["a recorded pass", "takes", "is charged"], rows_of_pass))
    rows = []
    for name, one in found.get("traces", {}).items():
        each = {who: (one[who] - one["plain"]) / one["operations"] * 1e3 for who in ("structure", "values")}
        rows.append(
            [
                name,
                f"{one['operations']}",
                *(f"{one[who]:.1f} ms" for who in ("plain", "hooks", "structure", "values")),
                f"{each['structure']:.0f} µs",
                f"{each['values']:.0f} µs",
            ]
        )
    if rows:
        heads = ["forward of", "operations", "plain", "hooks", "structure", "values"]
        parts.append(harness.table([*heads, "each, structure", "each, values"], rows))
    met = [
        [what, f"≤ {most:g}", f"{value:.3g}", "met" if value <= most else "missed"]
        for what, most, value in goals
    ]
    return "\n\n".join([parts[0], harness.table(["goal", "", "figure", ""], met), *parts[1:]]) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Measure and write results/gpu.md and .json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--models", nargs="*", default=["GPT", "CNN"], help="of the trainings and traces")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, to try the benchmark itself")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5, help="of each training in a round")
    chosen, began = parser.parse_args(arguments), time.perf_counter()
    device, small = chosen.device, chosen.small
    card = torch.cuda.get_device_name() if device == "cuda" else "a processor"
    earlier = harness.RESULTS / "gpu.json"  # of the other parts, if they were measured on the same card
    found: dict[str, Any] = json.loads(earlier.read_text()) if earlier.exists() else {}
    found = (found if found.get("card") == card else {}) | {"card": card, "machine": harness.machine()}
    measures: dict[str, Callable[[str], dict[str, Any]]] = {
        "traces": lambda name: traces(name, device, small),
        "budget": lambda name: budget(name, device, small, chosen.rounds, chosen.seconds),
    }
    for part in chosen.parts:  # each is written as soon as it is measured
        for name in chosen.models if part in measures else [part]:
            if part in measures:
                found[part] = found.get(part, {}) | {name: measures[part](name)}
            else:
                found[part] = look(2 if small else chosen.layers, device, small)
            print(f"{part} {name}: {time.perf_counter() - began:.0f} s so far", file=sys.stderr)
            harness.write("gpu", report(found), found)
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
