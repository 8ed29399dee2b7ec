"""Measure statistics made in the training process beside sending rows: bytes and CPU seconds of a pass.

The models are a CNN on images of 8 x 8, an encoder like BERT (12 layers of width 256) and a decoder like
GPT-2 (12 layers of width 768, 97 million parameters). CPU seconds are those of the training process with all
its threads, without the forward pass. What a larger model would send and compute is counted on paper.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

from intus import probe
from intus.core.projection import PROJECTED
from intus.core.sketch import UNITS
from intus.monitoring.client import Answer, Client
from intus.scores.statistics.kept import BALANCED, HELD, UNIFORM, WHOLE

from . import harness

#: Layers of a block of Llama (7B and 70B), by width: how many there are.
PAPER = {
    "7B": (6.7e9, 32, {4096: 10, 11008: 3}),
    "70B": (69e9, 80, {8192: 10, 1024: 2, 28672: 3}),
}
TOKENS, CLASSES, STEP_TOKENS, EVERY = 25_600, 20, 4e6, 1000
#: The parts of the FLOPs and bytes of a pass that the goals bound.
MOST_OWN, MOST_OF_TRAINING, MOST_BYTES_7B = 0.5, 4e-6, 7e9

Made = tuple[nn.Module, Any, dict[str, Any]]


class Language(nn.Module):
    """A transformer of token ids, with or without a causal mask."""

    def __init__(self, layers: int, width: int, vocabulary: int, *, causal: bool) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary if causal else 32)
        self.causal = causal

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits for each token of (batch, length)."""
        size = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(size) if self.causal else None
        out: torch.Tensor = self.head(self.blocks(self.embed(tokens), mask=mask, is_causal=self.causal))
        return out


def cnn(rows: int) -> Made:
    """Return a CNN of small images, such images and their classes."""
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*body, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 64), nn.Linear(64, 10))
    return model, torch.randn(rows, 1, 8, 8), {"digit": torch.randint(0, 10, (rows,))}


def language(layers: int, width: int, vocabulary: int, causal: bool) -> Callable[[int], Made]:
    """Return a function that makes a transformer, sentences of 128 tokens and a label for each token."""

    def make(rows: int) -> Made:
        torch.manual_seed(0)
        tokens = torch.randint(0, vocabulary, (rows // 128, 128))
        return Language(layers, width, vocabulary, causal=causal), tokens, {"tag": tokens % 6}

    return make


MODELS = {
    "CNN": (cnn, (1797, 12_000)),
    "BERT 12 x 256": (language(12, 256, 3000, False), (2048,)),
    "GPT 12 x 768": (language(12, 768, 16_000, True), (2048,)),
}


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Answer the requests of senders without sending them; yield the bytes by path."""
    sent: dict[str, int] = {}

    def post(self: Client, path: str, body: bytes, *more: Any, **options: Any) -> Answer:
        sent[path] = sent.get(path, 0) + len(body)
        return Answer(200, {}, 0.0)

    with mock.patch.object(Client, "post", post):
        yield sent


def spent(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, of all threads."""
    before = time.process_time()
    run()
    return time.process_time() - before


def passed(watch: Any) -> None:
    """Run a probe set and wait until everything is sent."""
    watch.run_probe_set()
    watch._tap.sender.drain(600)


def measured(make: Callable[[int], Made], rows: int, repeats: int) -> dict[str, float]:
    """Return the CPU seconds and bytes of a pass, sent as rows and as statistics.

    Args:
        make: Returns a model, inputs and labels.
        rows: The number of rows of the probe set.
        repeats: The number of passes; the least is reported.
    """
    model, inputs, labels = make(rows)

    def step() -> None:
        some = inputs[:8] if inputs.ndim == 2 else inputs[:64]
        out = model(some)
        F.cross_entropy(out.flatten(0, -2), torch.zeros(out[..., 0].numel(), dtype=torch.long)).backward()
        model.zero_grad()

    def forward() -> None:
        with torch.no_grad():
            model.eval()(inputs)
            model.train()

    found = {
        "step": min(spent(step) for _ in range(repeats + 1)),
        "forward": min(spent(forward) for _ in range(repeats)),
    }
    for name, choice in (("rows", False), ("statistics", True)):
        with counted() as sent:
            options: dict[str, Any] = {"probe_set": (inputs, labels), "statistics": choice}
            with probe(model, queue_mb=8000, structure=False, **options) as watch:
                taken = []
                for watch.epoch in range(repeats + 1):  # the first one makes the sketches
                    taken.append(spent(partial(passed, watch)))
                assert not watch.status()["troubles"]
            watch._tap.sender.drain(600)
            found[name] = min(taken[1:]) - found["forward"]
            found[f"{name} bytes"] = sent["/records"] / (repeats + 1)
    return found


def on_paper(name: str, dense: bool = True) -> dict[str, float]:
    """Return the FLOPs and bytes of a pass of TOKENS tokens of a large model, all of which are on paper.

    Args:
        name: The model.
        dense: Whether the sketch is dense, as on a GPU.
    """
    parameters, blocks, layers = PAPER[name]
    trained, kept = 0.75 * TOKENS, UNIFORM + BALANCED + HELD
    flops = {"forward": 2 * parameters * TOKENS, "sketch": 0.0, "products": 0.0, "classes": 0.0}
    sizes = {"rows": 0.0, "statistics": 0.0}
    for width, count in layers.items():
        narrow, layer = min(width, PROJECTED), blocks * count
        if width > PROJECTED:
            flops["sketch"] += layer * 2 * TOKENS * width * (PROJECTED if dense else 8)
            flops["classes"] += layer * 2 * trained * width * CLASSES  # the choice of single units
            narrow += UNITS
        flops["products"] += layer * 2 * trained * narrow**2
        flops["classes"] += layer * 2 * trained * narrow * CLASSES
        sizes["rows"] += layer * 2 * TOKENS * width  # bfloat16
        sums = 2 * narrow * (narrow + 1) + 4 * CLASSES * narrow
        sizes["statistics"] += layer * (sums + kept * (2 * narrow + 24))
    own = sum(value for part, value in flops.items() if part != "forward")
    training = EVERY * STEP_TOKENS * 6 * parameters
    return {
        "own/forward": own / flops["forward"],
        "pass/training": (own + flops["forward"]) / training,
        **{f"TFLOP {part}": value / 1e12 for part, value in flops.items()},
        **{f"GB {part}": value / 1e9 for part, value in sizes.items()},
    }


def report(found: dict[str, dict[str, float]], paper: dict[str, dict[str, float]]) -> str:
    """Return the tables as Markdown."""
    heads = ["model, rows", "step s", "forward s", "rows s", "rows MB", "statistics s", "statistics MB"]
    rows = [
        [
            name,
            *(f"{one[part]:.3f}" for part in ("step", "forward", "rows")),
            f"{one['rows bytes'] / 1e6:.1f}",
            f"{one['statistics']:.3f}",
            f"{one['statistics bytes'] / 1e6:.1f}",
        ]
        for name, one in found.items()
    ]
    of_paper = ["own/forward", "pass/training", "TFLOP forward", "TFLOP sketch", "TFLOP products"]
    of_paper += ["GB rows", "GB statistics"]
    large = [[name, *(f"{one[part]:.2g}" for part in of_paper)] for name, one in paper.items()]
    own, training = (max(one[part] for one in paper.values()) for part in ("own/forward", "pass/training"))
    met = [
        ("own part of a pass, to its forward", MOST_OWN, own),
        ("a pass every 1,000 steps, to training", MOST_OF_TRAINING, training),
        ("GB of a pass of 7B", MOST_BYTES_7B / 1e9, paper["7B"]["GB statistics"]),
    ]
    goals = [
        [what, f"≤ {most:g}", f"{value:.2g}", "met" if value <= most else "missed"]
        for what, most, value in met
    ]
    return "\n\n".join(
        [
            harness.table(["on paper", "goal", "figure", ""], goals),
            harness.table(heads, rows),
            "CPU seconds of the training process beside the forward of the pass, on one thread. Up to "
            f"{WHOLE:,} rows all are kept, and no sums are made.",
            harness.table(["on paper", *of_paper], large),
            f"A pass of {TOKENS:,} tokens, bfloat16, {CLASSES} classes, a dense sketch.\n",
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure and write results/statistics.md and .json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = {
        f"{name}, {rows:,}": measured(make, rows, chosen.repeats)
        for name, (make, sizes) in MODELS.items()
        if name in chosen.models
        for rows in sizes
    }
    paper = {name: on_paper(name) for name in PAPER}
    data = {"measured": found, "paper": paper, "machine": harness.machine()}
    harness.write("statistics", report(found, paper), json.loads(json.dumps(data)))


if __name__ == "__main__":
    main()
