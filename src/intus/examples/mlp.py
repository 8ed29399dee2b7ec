"""A multilayer perceptron on shuffled handwritten digits: each batch declares the ids of its images.

Start ``intus serve``, then run:  python -m intus.examples.mlp
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from intus import flush, probe, register_targets


def train(host: str = "127.0.0.1", port: int = 8082, epochs: int = 5, run: str | None = None) -> None:
    """Train for some epochs, and send every layer with its gradients and updates to the server."""
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    model = nn.Sequential(
        OrderedDict(
            hidden1=nn.Linear(64, 64),
            relu1=nn.ReLU(),
            hidden2=nn.Linear(64, 32),
            relu2=nn.ReLU(),
            hidden3=nn.Linear(32, 16),
            relu3=nn.ReLU(),
            head=nn.Linear(16, 10),
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    kinds = ("output", "grad_output", "parameter", "update")
    # Training a small network may wait for the probe: with block=True no pass is left out.
    watch = probe(model, host, port, name="MLP", run=run, kinds=kinds, block=True)
    register_targets(host, port, name="digit", targets=labels, model_pattern="MLP")
    register_targets(host, port, name="even", targets=labels % 2 == 0, model_pattern="MLP")

    for watch.epoch in range(1, epochs + 1):
        for items in torch.randperm(len(images)).split(64):
            watch.items = items
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[items]), labels[items])
            loss.backward()
            optimizer.step()
        print(f"MLP, epoch {watch.epoch}: loss {loss.item():.3f}", flush=True)
    watch.remove()
    flush(host, port)


if __name__ == "__main__":
    train()
