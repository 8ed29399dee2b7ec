"""What watching a training costs: CPU of the training process, its threads included, beside no probe.

The models are a CNN (batch 64 of 3 x 32 x 32) and a transformer (4 blocks of 128, 64 tokens, batch 32). The
probe has spent what is free at the start, so the figures are those of a long training. Beside it stands the
way of the Vivisect paper's code: every output of every step as JSON, one request each.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from intus import Record, probe
from intus.monitoring.client import Client
from intus.storage.codec import decode_records, encode_records

from . import harness

_SINK = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *args): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def cnn() -> tuple[nn.Module, torch.Tensor]:
    """Eleven modules."""
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
    """Four blocks."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True)
        self.embed, self.blocks = (
            nn.Embedding(1000, 128),
            nn.TransformerEncoder(block, 4, enable_nested_tensor=False),
        )
        self.say = nn.Linear(128, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.say(self.blocks(self.embed(tokens)).mean(1))


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """Thirty modules and more."""
    torch.manual_seed(0)
    return Transformer(), torch.randint(0, 1000, (32, 64))


def training(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> tuple[nn.Module, Callable[[], None]]:
    """A model and one step of its training."""
    model, x = make()
    labels = torch.arange(len(x)) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    return model, step


def as_json(model: nn.Module, port: int) -> None:
    """Send every output as nested lists, one request each, over one connection."""
    client = Client("127.0.0.1", port)

    def send(module: nn.Module, given: Any, out: Any) -> None:
        if isinstance(out, torch.Tensor):
            client.post("/activation_output", json.dumps({"array": out.tolist()}).encode())

    for module in model.modules():
        module.register_forward_hook(send)


def overhead(
    make: Callable[[], tuple[nn.Module, torch.Tensor]], port: int, rounds: int, steps: int
) -> dict[str, Any]:
    """CPU of ``steps`` steps, in ``rounds`` interleaved rounds; with JSON one step, once."""
    runs = {name: training(make) for name in ("plain", "plain again", "probe", "when false")}
    slow, one_step = training(make)
    watch = probe(runs["probe"][0], port=port, structure=False)
    probe(runs["when false"][0], port=port, when=lambda model, operation: False, structure=False)
    as_json(slow, port)

    def block(name: str) -> Callable[[], None]:
        def run() -> None:
            if name == "probe":  # what was saved up while others ran is no part of a long training
                account = watch._tap.budget
                account._saved, account._at = min(account._saved, 0.0), math.nan
            for _ in range(steps):
                runs[name][1]()

        return run

    for _ in range(2 * steps):  # the step's time must be known before rows are chosen
        runs["probe"][1]()
    taken = harness.measure({name: block(name) for name in runs}, seconds=1e9, least=rounds, most=rounds)
    began = time.process_time()
    one_step()
    taken["JSON"] = [(time.process_time() - began) * steps]
    watch.remove()
    status = watch.status()
    return harness.summary(taken, "plain") | {
        "watched": status["passes"] - status["skipped"],
        "status": status,
    }


def wire() -> float:
    """How many times as fast as JSON a record of 256 x 768 numbers is packed and unpacked."""
    array = np.random.default_rng(0).normal(size=(256, 768)).astype(np.float32)
    record = Record(array, "fc1", run="r", model="m", epoch=0)
    contenders = {
        "JSON": lambda: np.array(json.loads(json.dumps({"array": array.tolist()}))["array"], np.float32),
        "binary": lambda: [decode_records(encode_records([record])) for _ in range(20)],
    }
    found = harness.summary(harness.measure(contenders, seconds=5, least=5, most=9), "JSON")
    return 20 / found["binary"]["ratio"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=30)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sink = subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True)
    assert sink.stdout is not None
    try:
        port = int(sink.stdout.readline())
        models = {"CNN": cnn, "transformer": transformer}
        found = {name: overhead(make, port, chosen.rounds, chosen.steps) for name, make in models.items()}
    finally:
        sink.kill()
        sink.wait()
    data = {"overhead": found, "wire": wire(), "machine": harness.machine()}
    columns = ("plain again", "probe", "when false", "JSON")
    rows = [[name, *(f"{one[column]['ratio']:.3f}" for column in columns)] for name, one in found.items()]
    text = harness.table(["CPU of a training step, to plain", *columns], rows)
    text += (
        f"\n\nA record of 256 x 768 numbers, packed and unpacked: {data['wire']:.0f} times as fast as JSON.\n"
    )
    harness.write("probing", text, data)


if __name__ == "__main__":
    main()
