"""Layers that recorded nothing, of a probe of parameters alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from intus.monitoring import probe


class Net(nn.Module):
    """A model with a tied head, and a layer that is never called."""

    def __init__(self):
        super().__init__()
        self.words, self.body, self.act = nn.Embedding(5, 4), nn.Linear(4, 4), nn.ReLU()
        self.unused, self.head = nn.Linear(4, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.words.weight
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.head(self.act(self.body(self.words(x))) * self.scale)


@pytest.mark.parametrize(
    "kinds", [("parameter",), ("update",), ("parameter_grad",), ("parameter", "parameter_grad", "update")]
)
def test_layers_with_parameters_that_recorded_none(server, kinds):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = probe(model, "127.0.0.1", server.port, kinds=kinds, block=True)
    for _ in range(2):
        model(torch.arange(5)).square().sum().backward()
        optimizer.step()
    watch.remove()
    assert watch.status()["silent"] == ["unused"]
