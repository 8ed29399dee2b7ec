"""Digits and a small CNN with its checkpoints."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn


class Small(nn.Module):
    """A CNN for digits with state that inspect must restore: batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1, stride=2)
        self.relu = nn.ReLU()
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.conv1(x)))
        x = self.relu(self.conv2(x))
        return self.head(self.drop(x.flatten(1)))


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    """Return images (600, 1, 8, 8), float32 from 0 to 1."""
    return (load_digits().images[:600, None] / 16).astype(np.float32)


@pytest.fixture(scope="session")
def digit() -> np.ndarray:
    return load_digits().target[:600]


@pytest.fixture(scope="session")
def checkpoints(images, digit) -> list[nn.Module]:
    """Return the CNN before training and after each of two epochs."""
    torch.manual_seed(0)
    model, x, y = Small(), torch.from_numpy(images), torch.from_numpy(digit)
    optimizer, kept = torch.optim.Adam(model.parameters(), 0.01), [copy.deepcopy(model)]
    for _ in range(2):
        for rows in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        kept.append(copy.deepcopy(model))
    return kept


@pytest.fixture
def model(checkpoints) -> nn.Module:
    return checkpoints[-1]


@pytest.fixture(scope="session")
def linear() -> nn.Module:
    """Return six linear units of all pixels, layer ``"1"``."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6))


@pytest.fixture(scope="session")
def outputs(linear, images) -> np.ndarray:
    """Return the units of all images, (600, 6)."""
    with torch.no_grad():
        return linear(torch.from_numpy(images)).numpy()


@pytest.fixture(scope="session")
def seven(digit) -> np.ndarray:
    return (digit == 7).astype(float)
