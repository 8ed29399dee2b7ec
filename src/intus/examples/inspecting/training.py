"""Train once: the checkpoints of an example are kept in its folder and loaded the next time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def trained(
    folder: Path, name: str, make: Callable[[], nn.Module], epochs: Callable[[nn.Module], Iterator[str]]
) -> dict[int, nn.Module]:
    """Return the checkpoints of a training, trained now or loaded from the folder.

    Args:
        folder: Where ``name.pt`` is or will be. Delete it to train again.
        name: The name of the file, without ``.pt``.
        make: Makes the untrained network, seeded.
        epochs: Trains the network it gets, and yields a line to print after each epoch.

    Returns:
        The networks by epoch; 0 is the untrained one.
    """
    file = folder / f"{name}.pt"
    if not file.exists():
        began, model = time.process_time(), make()
        states = [_copy(model)]
        for line in epochs(model):
            states.append(_copy(model))
            print(f"{name}, epoch {len(states) - 1}: {line}", flush=True)
        torch.save(states, file)
        print(f"{name}: trained in {time.process_time() - began:.0f} seconds of CPU time, kept in {file}")
    out = {}
    for epoch, state in enumerate(torch.load(file, weights_only=True)):
        out[epoch] = make()
        out[epoch].load_state_dict(state)
        out[epoch].eval()
    return out


def classify(
    model: nn.Module,
    examples: tuple[np.ndarray, np.ndarray],
    held_out: tuple[np.ndarray, np.ndarray],
    *,
    epochs: int,
    batch: int,
    rate: float,
) -> Iterator[float]:
    """Train a classifier with Adam; yield the share of held-out inputs that it gets right after each epoch.

    Args:
        model: The network.
        examples: The inputs to learn from, and the class of each.
        held_out: Other inputs, and the class of each.
        epochs: The number of epochs.
        batch: The number of inputs in a batch.
        rate: The learning rate.
    """
    inputs, classes, others, truth = map(torch.tensor, (*examples, *held_out))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for chosen in torch.randperm(len(inputs)).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[chosen]), classes[chosen]).backward()
            optimizer.step()
        with torch.no_grad():
            right = model(others).argmax(1) == truth
        yield right.float().mean().item()


def _copy(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
