"""A small zoo of models, with inputs."""

import warnings
from collections import namedtuple
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.relu, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.5)
        self.conv2, self.head = nn.Conv2d(4, 4, 3), nn.Linear(16, 3)

    def forward(self, x):
        x = self.relu(self.bn(self.conv1(x)))
        x = self.relu(self.conv2(x))
        return self.head(self.drop(F.max_pool2d(x, 2).flatten(1)))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class SharedTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(torch.tanh(self.fc(x)))


class LoopLstm(nn.Module):
    """An LSTM cell as a Python loop of plain operations."""

    def __init__(self):
        super().__init__()
        self.w, self.u = nn.Linear(3, 16), nn.Linear(4, 16)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 4)
        for t in range(x.shape[1]):
            i, f, g, o = (self.w(x[:, t]) + self.u(h)).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.mha(x, x, x, need_weights=False)[0] + x


Pair = namedtuple("Pair", "first second")


@dataclass
class Answer:
    logits: torch.Tensor
    aux: list


class Nested(nn.Module):
    """Returns tensors in every kind of container."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, *, scale=2.0):
        y = self.fc(x) * scale
        return {"answer": Answer(y, [y + 1, (y + 2, "text", None)]), "pair": Pair(y.sum(), y.max(1))}


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.Linear(4, 4)
        with warnings.catch_warnings():  # deprecated, but still in use
            warnings.simplefilter("ignore", DeprecationWarning)
            self.inner = torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(1, 4))

    def forward(self, x):
        return self.inner(self.before(x)) * 2


def alexnet():
    """Return the convolutional layers of AlexNet with few channels."""
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(4, 4, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
    )


class AlexNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.classifier = alexnet(), nn.Linear(4, 2)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def encoder_layer():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


#: By name: functions that make the model and its inputs.
ZOO = {
    "mlp": (mlp, lambda: torch.randn(2, 4)),
    "cnn": (Cnn, lambda: torch.randn(2, 1, 8, 8)),
    "residual": (Residual, lambda: torch.randn(2, 4)),
    "shared": (SharedTwice, lambda: torch.randn(2, 4)),
    "loop_lstm": (LoopLstm, lambda: torch.randn(2, 5, 3)),
    "lstm": (lambda: nn.LSTM(3, 4, batch_first=True), lambda: torch.randn(2, 5, 3)),
    "attention": (Attention, lambda: torch.randn(2, 5, 8)),
    "encoder": (encoder_layer, lambda: torch.randn(2, 5, 8)),
    "nested": (Nested, lambda: torch.randn(2, 4)),
    "scripted": (Scripted, lambda: torch.randn(2, 4)),
    "alexnet": (AlexNet, lambda: torch.randn(2, 3, 63, 63)),
}


def make(name, training=False):
    torch.manual_seed(0)
    build, inputs = ZOO[name]
    return build().train(training), inputs()


def tensors(value):
    """Return every tensor in nested containers, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, name) for name in value.__dataclass_fields__]
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, tuple | list) or type(value).__name__ == "dict_values":
        return [t for part in value for t in tensors(part)]
    return []
