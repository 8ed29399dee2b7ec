"""A multilayer perceptron in PyTorch."""

from collections import OrderedDict

import numpy as np
import torch
from torch import nn

from intus import flush, probe, register_targets
from intus.examples.frameworks.problem import batches, start


def train(problem: str, host: str, port: int, epochs: int, run: str) -> list[float]:
    """Train in PyTorch, and return the loss of each step."""
    data = np.load(problem)
    images, labels = torch.tensor(data["images"]), torch.tensor(data["labels"])
    model = nn.Sequential(OrderedDict(hidden=nn.Linear(64, 32), act=nn.ReLU(), head=nn.Linear(32, 10)))
    with torch.no_grad():
        for parameter, name in zip(model.parameters(), ("w1", "b1", "w2", "b2"), strict=True):
            parameter.copy_(torch.tensor(data[name].T))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    register_targets(host, port, name="digit", targets=data["labels"], model_pattern="^torch$")
    losses, kinds = [], ("output", "grad_output")
    with probe(model, host, port, name="torch", run=run, kinds=kinds, block=True) as watch:
        for watch.epoch in range(1, epochs + 1):
            for items in batches(watch.epoch, len(images)):
                watch.items = items
                loss = nn.functional.cross_entropy(model(images[items]), labels[items])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"torch, epoch {watch.epoch}: loss {losses[-1]:.3f}", flush=True)
    flush(host, port)
    return losses


if __name__ == "__main__":
    start(train)
