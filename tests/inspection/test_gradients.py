"""Gradients and attributions as behaviors, judged by torch.autograd and by captum called directly."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from intus import Dictionary, Directions, inspect
from intus.core.errors import AddressError, CaptureError, InputError
from intus.inspection.running.feed import BlockFeed

RECORDS = 40


class Cnn(nn.Module):
    """A CNN with an in-place ReLU, batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.relu1 = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(inplace=True)
        self.norm, self.drop = nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.conv2, self.relu2 = nn.Conv2d(4, 3, 3, stride=2), nn.ReLU()
        self.head = nn.Linear(27, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.norm(self.relu1(self.conv1(x))))
        return self.head(self.relu2(self.conv2(x)).flatten(1))


@pytest.fixture
def cnn():
    torch.manual_seed(0)
    net = Cnn()
    net(torch.randn(20, 1, 8, 8))  # statistics of the norm that are not 0 and 1
    return net


X = torch.randn(RECORDS, 1, 8, 8, generator=torch.Generator().manual_seed(1))
LABEL = np.random.default_rng(0).normal(size=RECORDS)
CLASSES = np.random.default_rng(1).integers(0, 5, RECORDS)


def by_hand(net, choose):
    """Return activations and gradients of conv1, record by record, without in-place operations."""
    net.eval()
    values, gradients = [], []
    for number, record in enumerate(X):
        h = net.conv1(record[None]).detach().requires_grad_()
        after = net.relu2(net.conv2(net.norm(F.relu(h)))).flatten(1)
        (gradient,) = torch.autograd.grad(choose(net.head(after), number), h)
        values.append(h.detach()[0])
        gradients.append(gradient[0])
    net.train()
    return torch.stack(values).numpy(), torch.stack(gradients).numpy()


def correlations(behaviour):
    means = behaviour.reshape(RECORDS, behaviour.shape[1], -1).mean(-1)
    return [np.corrcoef(column, LABEL)[0, 1] for column in means.T]


@pytest.mark.parametrize("batch", [RECORDS, 7])
@pytest.mark.parametrize(
    ("output", "choose"),
    [
        (3, lambda out, number: out[0, 3]),
        (-1, lambda out, number: out[0, 4]),
        (CLASSES, lambda out, number: out[0, CLASSES[number]]),
        (torch.from_numpy(CLASSES), lambda out, number: out[0, CLASSES[number]]),
        (lambda out: out.logsumexp(1), lambda out, number: out.logsumexp(1)[0]),
    ],
    ids=["class", "from the end", "labels", "tensor", "function"],
)
def test_gradients_equal_autograd(cnn, output, choose, batch):
    values, gradients = by_hand(cnn, choose)
    for behavior, expected in (("gradient", gradients), ("activation*gradient", values * gradients)):
        table = inspect(
            cnn, {"y": LABEL}, "correlation", X, "conv1", behavior=behavior, output=output, batch=batch
        )
        assert table.value.tolist() == pytest.approx(correlations(expected), abs=1e-4)


def test_gradients_of_operations_and_inputs():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(self.fc(x)).pow(2).sum(-1)

    net, x = Net(), torch.randn(RECORDS, 6)
    given = x.clone().requires_grad_()
    h = F.relu(net.fc(given))
    h.retain_grad()
    h.pow(2).sum().backward()
    net.zero_grad()
    table = inspect(net, {"y": LABEL}, "correlation", x, ["x", "relu_1"], behavior="gradient")
    expected = [*given.grad.numpy().T, *h.grad.numpy().T]
    assert table.value.tolist() == pytest.approx([np.corrcoef(e, LABEL)[0, 1] for e in expected], abs=1e-4)


def test_frozen_models_and_integer_inputs():
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(9, 4), nn.Linear(4, 1)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.out(torch.tanh(self.embed(ids)).sum(1))

    torch.manual_seed(0)
    net, ids = Reader().requires_grad_(False), torch.randint(0, 9, (RECORDS, 6))
    table = inspect(net, {"y": LABEL}, "correlation", ids, "embed", behavior="gradient")
    h = net.embed(ids)
    gradients = ((1 - torch.tanh(h) ** 2) * net.out.weight[0]).numpy()
    assert table.value.tolist() == pytest.approx(correlations(gradients.transpose(0, 2, 1)), abs=1e-4)
    assert not any(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize(
    "behavior", ["gradient", "smoothgrad", "guided_backprop", "gradcam", "guided_gradcam"]
)
def test_model_is_restored(cnn, behavior):
    for p in cnn.parameters():
        p.grad = torch.ones_like(p)
    cnn.conv2.weight.requires_grad_(False)
    before = {name: value.clone() for name, value in cnn.state_dict().items()}
    flags = [(m.training, dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in cnn.modules()]
    state, x = torch.get_rng_state(), X.clone()
    inspect(cnn, {"y": LABEL}, "correlation", x, "conv1", behavior=behavior, output=0)
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in cnn.parameters())
    assert [name for name, p in cnn.named_parameters() if not p.requires_grad] == ["conv2.weight"]
    assert all(torch.equal(value, before[name]) for name, value in cnn.state_dict().items())
    assert [(m.training, dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in cnn.modules()] == flags
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, X)
    assert not x.requires_grad


def test_gradients_under_no_grad(cnn):
    with torch.no_grad():
        inside = inspect(cnn, {"y": LABEL}, "correlation", X, "conv1", behavior="gradient", output=1)
    outside = inspect(cnn, {"y": LABEL}, "correlation", X, "conv1", behavior="gradient", output=1)
    assert inside.value.tolist() == outside.value.tolist()


# -- captum ----------------------------------------------------------------------------------------------


def captum_says(behavior, net):
    """Return what captum computes for conv1, called as its own documentation does."""
    attr = pytest.importorskip("captum.attr")
    x = X.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.eval()
        if behavior == "gradcam":
            found = attr.LayerGradCam(net, net.conv1).attribute(x, target=2)
        elif behavior == "guided_gradcam":
            found = attr.GuidedGradCam(net, net.conv1).attribute(x, target=2)
        else:  # guided backprop of what follows the layer
            rest = nn.Sequential(nn.ReLU(), net.norm, net.conv2, net.relu2, nn.Flatten(), net.head).eval()
            found = attr.GuidedBackprop(rest).attribute(net.conv1(x).detach().requires_grad_(), target=2)
        net.train()
    return found.detach().numpy()


@pytest.fixture
def maps_of(monkeypatch):
    """Return a function that returns the behavior itself, (records, units, height, width)."""
    seen, update = [], BlockFeed.update

    def keep(feed, array, block):
        seen.append(array.copy())
        update(feed, array, block)

    def read(net, behavior, x=X, layer="conv1", **output):
        seen.clear()
        inspect(net, {"y": LABEL}, "correlation", x, layer, behavior=behavior, **output)
        return np.concatenate(seen)

    monkeypatch.setattr(BlockFeed, "update", keep)
    return read


def test_guided_backprop_equals_captum(cnn, maps_of):
    assert np.allclose(
        maps_of(cnn, "guided_backprop", output=2), captum_says("guided_backprop", cnn), atol=1e-6
    )


def test_gradcam_units_add_up_to_captum(cnn, maps_of):
    units = maps_of(cnn, "gradcam", output=2)
    assert units.shape[1] == 4
    assert np.allclose(units.sum(1, keepdims=True), captum_says("gradcam", cnn), atol=1e-6)


def test_guided_gradcam_units_add_up_to_captum(cnn, maps_of):
    """Captum drops where the map of all units together is negative."""
    units = maps_of(cnn, "guided_gradcam", output=2).sum(1, keepdims=True)
    expected = captum_says("guided_gradcam", cnn)
    positive = captum_says("gradcam", cnn) > 0
    assert 0.1 < positive.mean() < 0.9
    assert np.allclose(units[positive], expected[positive], atol=1e-6)


def test_smoothgrad_is_the_mean_gradient_of_noisy_records(maps_of):
    """A linear model's gradient does not depend on noise; that of a ReLU is its share of open gates."""
    layer = nn.Linear(3, 1, bias=False)
    net = nn.Sequential(nn.Identity(), nn.Linear(3, 3), nn.ReLU(), layer)
    with torch.no_grad():
        net[1].weight.copy_(torch.eye(3))
        net[1].bias.copy_(torch.tensor([0.0, 50.0, -50.0]))
        layer.weight.fill_(2.0)
    x = torch.tensor([[0.0, 1.0, -1.0]]).repeat(RECORDS, 1)
    found = maps_of(net, "smoothgrad", x, "1")
    assert found[:, 1] == pytest.approx(2.0)
    assert found[:, 2] == pytest.approx(0.0)
    assert found[:, 0].mean() == pytest.approx(1.0, abs=0.15)  # half of the noise opens the gate
    assert found[:, 0].std() > 0.05


# -- refusals --------------------------------------------------------------------------------------------


class Mixing(nn.Module):
    """Normalizes over the batch, so that records influence each other."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.fc(x)
        return ((h - h.mean(0)) ** 2).sum(1)


def test_records_that_influence_each_other_are_refused():
    net, x = Mixing(), torch.randn(RECORDS, 4)
    with pytest.raises(CaptureError, match=r"depends on 'fc' of other records of its block.*Pass batch=1"):
        inspect(net, {"y": LABEL}, "correlation", x, "fc", behavior="gradient")
    assert len(inspect(net, {"y": LABEL}, "correlation", x, "fc", behavior="gradient", batch=1)) == 2


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused = nn.Linear(64, 8), nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.a(x.flatten(1)))
        self.unused(h)
        return self.b(h)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"behavior": "gradients"}, InputError, "behavior='gradients' is not known. Did you mean"),
        ({"behavior": "activation"}, InputError, "output=1 is the number that gradients are of"),
        ({"output": None}, InputError, r"shape \(40, 5\) for 40 records, so gradients need output="),
        ({"output": 7}, InputError, "output= names class 7.*has 5 classes"),
        ({"output": [1, 2]}, InputError, r"one class for each of the 40 records.*got \[1, 2\]"),
        ({"output": 0.5}, InputError, "output must be a class.*got 0.5"),
        ({"output": lambda out: out}, InputError, r"one number per record.*\(40, 5\)"),
        ({"output": lambda out: out.sum()}, InputError, r"of shape \(40,\) here, got shape \(\)"),
        ({"output": lambda out: out.detach()[:, 0]}, CaptureError, "do not depend on the model's inputs"),
        ({"units": "unused"}, CaptureError, "do not depend on 'unused' through differentiable operations"),
        ({"behavior": "guided_backprop"}, InputError, "'relu_1_3' is a function.*with torch.nn.ReLU"),
        ({"behavior": "gradcam", "units": "relu_1"}, InputError, "'relu_1' is an operation"),
        ({"units": "nothing"}, AddressError, "has no 'nothing'"),
    ],
)  # fmt: skip
def test_refusals(change, error, text):
    asked = {"units": "a", "behavior": "gradient", "output": 1, **change}
    with pytest.raises(error, match=text):
        inspect(Functional(), {"y": LABEL}, "correlation", X, **asked)


def test_gradcam_of_a_sequence_is_refused():
    net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
    with pytest.raises(InputError, match=r"units of '0' are on axis 2 of \(40, 8, 4\)"):
        inspect(net, {"y": LABEL}, "correlation", X[:, 0], "0", behavior="gradcam", output=1)


def test_units_that_are_no_gradients(linear, images, seven):
    basis = Dictionary(np.random.default_rng(0).normal(size=(6, 9)))
    wrong = [(basis, "gradient"), (Directions(np.eye(6)), "activation*gradient")]
    for units, behavior in wrong:
        with pytest.raises(
            InputError, match=f"behavior='{behavior.replace('*', '.')}' is not defined for the units"
        ):
            inspect(
                linear, {"seven": seven}, "correlation", images, [("1", units)], behavior=behavior, output=3
            )
