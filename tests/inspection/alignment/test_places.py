"""Places of positions in the image: judged by receptive fields, from gradients, and on planted truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import ResNetConfig, ResNetModel

import intus
from intus.inspection import inspect
from intus.inspection.alignment.places import places_of

SIZE = 64
STACKS = {
    "conv": [nn.Conv2d(1, 1, 3)],
    "no bias": [nn.Conv2d(1, 1, 5, bias=False)],
    "stride and padding": [nn.Conv2d(1, 1, 7, stride=2, padding=3), nn.Conv2d(1, 1, 3, stride=2)],
    "dilation": [nn.Conv2d(1, 1, 3, dilation=(2, 3), padding=(0, 2))],
    "same": [nn.Conv2d(1, 1, 5, padding="same"), nn.Conv2d(1, 1, 3, padding="valid")],
    "average pooling": [nn.AvgPool2d(3, 2, 1), nn.Conv2d(1, 1, 2), nn.AvgPool2d(2)],
    "elementwise": [nn.Conv2d(1, 1, 3), nn.ReLU(), nn.BatchNorm2d(1), nn.Dropout(), nn.AvgPool2d(2)],
    "transposed": [nn.Conv2d(1, 1, 4, stride=4), nn.ConvTranspose2d(1, 1, 5, stride=2, padding=2)],
    "padded": [nn.ZeroPad2d((3, 1, 0, 5)), nn.Conv2d(1, 1, 3), nn.ReflectionPad2d(2)],
    "nearest": [nn.Conv2d(1, 1, 3, stride=2), nn.Upsample(scale_factor=3)],
    "bilinear": [nn.Conv2d(1, 1, 4, stride=4), nn.Upsample(scale_factor=2, mode="bilinear")],
    "aligned corners": [nn.AvgPool2d(4), nn.Upsample(31, mode="bilinear", align_corners=True)],
    "adaptive": [nn.Conv2d(1, 1, 3, padding=1), nn.AdaptiveAvgPool2d(16)],
}


def centers(model: nn.Module, axis: int) -> np.ndarray:
    """Return the center of the receptive field of each position along an axis, in the middle of the other."""
    for p in model.parameters():
        nn.init.ones_(p)
    x = torch.ones(1, 1, SIZE, SIZE, requires_grad=True)
    out = model.eval()(x)
    found = []
    for position in range(out.shape[2 + axis]):
        place = [out.shape[2] // 2, out.shape[3] // 2]
        place[axis] = position
        (field,) = torch.autograd.grad(out[0, 0, place[0], place[1]], x, retain_graph=True)
        weight = field[0, 0].sum(1 - axis)
        found.append(float((weight * torch.arange(SIZE)).sum() / weight.sum()))
    return np.array(found)


@pytest.mark.parametrize("name", STACKS)
def test_places_are_the_centers_of_receptive_fields(name: str) -> None:
    model = nn.Sequential(*STACKS[name])
    graph = intus.trace(model, torch.randn(1, 1, SIZE, SIZE), save="none").graph
    places = places_of(graph, len(graph.ops) - 1)
    assert places is not None
    for axis in (0, 1):
        judged = centers(model, axis)
        ours = places.start[axis] + places.step[axis] * np.arange(len(judged))
        inside = slice(len(judged) // 3, -(len(judged) // 3))  # a field that reaches over the edge is cut off
        near = {"nearest": 1.0, "bilinear": 0.3, "transposed": 0.5}.get(name, 0.0)  # neighbours share pixels
        np.testing.assert_allclose(ours[inside], judged[inside], atol=near * places.step[axis] + 1e-4)
        assert abs((ours - judged)[inside].mean()) < 0.1 * places.step[axis] + 1e-4


def test_places_of_a_residual_network() -> None:
    model = ResNetModel(ResNetConfig(embedding_size=4, hidden_sizes=[8, 8, 8], depths=[2, 2, 2])).eval()
    graph = intus.trace(model, torch.randn(1, 3, 64, 64), save="none").graph
    steps = {"embedder.embedder": 2, "embedder": 4, "encoder.stages.0": 4, "encoder.stages.2.layers.1": 16}
    for address, step in steps.items():
        places = places_of(graph, graph.rows(address)[0])
        assert places is not None
        assert places.step == (step, step)
        assert places.start == (0, 0)


class Cropped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)[:, :, 2:-2, 2:-2] * 1


class Mixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 3, 1, 1) + F.max_pool2d(x, 3, 1, 1)[:, :, :, :] + F.pad(x, (1, -1, 0, 0))


@pytest.mark.parametrize("model", [Cropped(), Mixed(), nn.Flatten()], ids=["sliced", "mixed", "flat"])
def test_places_that_the_graph_does_not_tell(model: nn.Module) -> None:
    graph = intus.trace(model, torch.randn(1, 1, 16, 16), save="none").graph
    assert places_of(graph, len(graph.ops) - 1) is None


def copying(stride: int = 1, padding: int = 0) -> nn.Conv2d:
    """Return a 3 × 3 convolution that copies the pixel in the middle."""
    conv = nn.Conv2d(1, 1, 3, stride=stride, padding=padding, bias=False)
    with torch.no_grad():
        conv.weight.zero_()[0, 0, 1, 1] = 1
    return conv


@pytest.mark.parametrize("padding", [0, 1])
def test_convolution_that_copies_its_pixel(padding: int) -> None:
    rng = np.random.default_rng(0)
    images = torch.tensor(rng.normal(size=(60, 1, 16, 16)), dtype=torch.float32)
    model = nn.Sequential(copying(padding=padding), copying(padding=padding))
    ideas = {"bright": lambda image: image[0] > 1, "pixel": lambda image: image[0]}
    frame = inspect(model, ideas, ["correlation", "iou_max"], images, ["0", "1"])
    found = frame.set_index(["address", "target", "score"])
    for address in ("0", "1"):
        assert found.value[address, "pixel", "correlation"] >= 0.999
        assert found.value[address, "bright", "iou_max"] == 1
        inside = 16 - (0 if padding else 2 * (1 + int(address)))
        assert found.n[address, "pixel", "correlation"] == 60 * inside**2
    assert not frame.note.str.contains("stretched").any()


def test_map_is_stretched_with_a_note_if_places_are_unknown() -> None:
    images = torch.randn(20, 1, 16, 16)
    model = nn.Sequential(Cropped(), nn.Conv2d(1, 1, 1))
    frame = inspect(model, {"pixel": lambda image: image[0]}, "correlation", images, "1")
    assert "the map was stretched over the image" in frame.note[0]
