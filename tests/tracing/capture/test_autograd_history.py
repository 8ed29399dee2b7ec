"""Gradients after a traced pass that wrote in place are those of a training without traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import intus

ACTIVATIONS = [
    nn.LeakyReLU(0.2, inplace=True),
    nn.SiLU(inplace=True),
    nn.ELU(inplace=True),
    nn.Hardswish(inplace=True),
]
LOOKS: dict[str, Callable[..., Any]] = {
    "trace": intus.trace,
    "save none": lambda model, *args: intus.trace(model, *args, save="none"),
    "copy": lambda model, *args: intus.trace(model, *args, copy=True),
    "decompose": lambda model, *args: intus.trace(model, *args, decompose=True),
    "validate": intus.validate,
}


class Encoder(nn.Module):
    """Returns a tensor with a history: a plain one, a view, or a view of a view."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.linear, self.form = nn.Linear(4, 4), form

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x) + 1
        if self.form == "view":
            return x.view(-1, 2)
        return x.flatten()[4:].view(-1, 4) if self.form == "view of a view" else x


class Recurrent(nn.Module):
    """Keeps its state on itself, without detaching it."""

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        if buffer:
            self.register_buffer("state", torch.zeros(8, 4))
        else:
            self.state = torch.zeros(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.state.mul_(0.9).add_(self.linear(x))
        return torch.tanh(self.state)


def two_steps(enc: nn.Module, dec: nn.Module, x: Tensor, look: Callable[..., Any] | None) -> list[Tensor]:
    """Train two steps, with a traced pass between forward and backward; return the gradients and weights."""
    optimizer = torch.optim.SGD([*enc.parameters(), *dec.parameters()], 0.1)
    for _ in range(2):
        h = enc(x)
        if look:
            look(dec, h)
        (dec(h) ** 2).sum().backward()
        optimizer.step()
    return [t for p in (*enc.parameters(), *dec.parameters()) for t in (p.grad.clone(), p.detach().clone())]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("form", ["plain", "view", "view of a view"])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_gradients_after_inplace_write_to_input(
    look: Callable[..., Any], activation: nn.Module, form: str
) -> None:
    x = torch.randn(8, 4)

    def gradients(look: Callable[..., Any] | None) -> list[Tensor]:
        torch.manual_seed(0)
        width = 2 if form == "view" else 4
        return two_steps(Encoder(form), nn.Sequential(activation, nn.Linear(width, 1)), x, look)

    assert equal(gradients(look), gradients(None))


@pytest.mark.parametrize("buffer", [False, True])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_gradients_after_inplace_write_to_state(look: Callable[..., Any], buffer: bool) -> None:
    x, y = torch.randn(8, 4), torch.randn(8, 4)

    def gradients(look: Callable[..., Any] | None) -> list[Tensor]:
        torch.manual_seed(0)
        model = Recurrent(buffer)
        model(x)
        if look:
            look(model, y)
        model(y).sum().backward()
        return [p.grad for p in model.parameters()]

    assert equal(gradients(look), gradients(None))


def test_history_of_a_view_and_its_base_is_restored() -> None:
    leaf = torch.randn(4, 4, requires_grad=True)
    base = leaf * 2
    row, column = base[0], base[:, 1]
    nodes = [base.grad_fn, row.grad_fn]

    def forward(row: Tensor, column: Tensor) -> Tensor:
        row.mul_(2)
        column.add_(row)
        return base.sum()

    intus.trace(forward, (row, column))
    assert [base.grad_fn, row.grad_fn] == nodes
    assert row._base is base
    assert base._version == 0
    assert torch.equal(torch.autograd.grad(column.sum(), leaf)[0][:, 1], torch.full((4,), 2.0))


def test_gradients_inside_the_pass_follow_its_writes() -> None:
    w = torch.tensor([2.0, 3.0], requires_grad=True)
    h = w * 3

    def forward(h: Tensor) -> Tensor:
        h.mul_(5)
        return torch.autograd.grad(h.sum(), w, retain_graph=True)[0]

    expected = forward(w * 3)
    assert torch.equal(intus.trace(forward, h).outputs[0].value, expected)
    assert torch.equal(torch.autograd.grad(h.sum(), w)[0], torch.tensor([3.0, 3.0]))


def test_history_is_restored_after_an_exception() -> None:
    h = torch.randn(3, requires_grad=True).exp()
    node = h.grad_fn

    def forward(h: Tensor) -> Tensor:
        h.mul_(2)
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        intus.trace(forward, h)
    assert h.grad_fn is node
    assert h._version == 0


@pytest.mark.parametrize("form", ["plain", "view"])
@pytest.mark.parametrize("decoder", [nn.SiLU(inplace=True), nn.Tanh()], ids=["in place", "plain"])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_gradient_of_input_stays_retained(look: Callable[..., Any], decoder: nn.Module, form: str) -> None:
    torch.manual_seed(0)
    encoder, x = Encoder(form), torch.randn(8, 4)

    def gradients(look: Callable[..., Any] | None) -> list[Tensor]:
        encoder.zero_grad()
        h = encoder(x)
        h.retain_grad()
        if look:
            look(decoder, h)
        decoder(h).square().sum().backward()
        assert h.retains_grad
        return [h.grad, encoder.linear.weight.grad]

    assert equal(gradients(look), gradients(None))


def septuple(p: Tensor) -> None:
    p.grad.mul_(7)


WAYS = {
    "requires_grad_",
    "requires_grad",
    "freeze",
    "zero_grad",
    "backward",
    "hook",
    "retain_grad",
    "detach_",
}


class Flagging(nn.Module):
    """Changes how autograd treats tensors that it did not make, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.linear, self.way = nn.Linear(4, 1), way

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        if self.way == "requires_grad_":
            x.requires_grad_()
        elif self.way == "requires_grad":
            x.requires_grad = True
        elif self.way == "freeze":
            self.linear.requires_grad_(False)
        elif self.way == "zero_grad":
            self.zero_grad()
        elif self.way == "backward":
            self.zero_grad()
            self.linear(x).sum().backward()
        elif self.way == "hook":
            h.register_hook(lambda grad: 3 * grad)
            self.linear.bias.register_hook(lambda grad: 5 * grad)
            self.linear.weight.register_post_accumulate_grad_hook(septuple)
        elif self.way == "retain_grad":
            h.retain_grad()
        elif self.way == "detach_":
            h.detach_()
        return self.linear(x + h)


@pytest.mark.parametrize(
    ("way", "grad_mode"),
    [*((way, True) for way in sorted(WAYS)), *((way, False) for way in sorted(WAYS - {"backward"}))],
)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_flags_hooks_and_gradients_are_restored(look: Callable[..., Any], way: str, grad_mode: bool) -> None:
    def gradients(look: Callable[..., Any] | None) -> list[Tensor]:
        torch.manual_seed(0)
        model, w, x = Flagging(way), torch.randn(8, 4, requires_grad=True), torch.randn(8, 4)
        model.linear(x).sum().backward()
        h = w * 2
        if look:
            with torch.set_grad_enabled(grad_mode):
                look(model, x, h)
        assert not x.requires_grad
        own = model.linear(x + h)  # without another call of ``forward``
        own.square().sum().backward(retain_graph=True)
        grads = [w.grad.clone(), *(p.grad.clone() for p in model.parameters())]
        model(x, h)  # hooks and flags that ``forward`` sets from here on count as ever
        own.sum().backward()
        return grads + [torch.zeros(8, 4) if t is None else t for t in (w.grad, model.linear.bias.grad)]

    assert equal(gradients(look), gradients(None))


def test_write_through_view_under_no_grad() -> None:
    w = torch.randn(4, 2, requires_grad=True)
    h = w * 2
    before = h.detach().clone()

    def forward(h: Tensor) -> Tensor:
        return h.view(-1).exp_() * 2

    with torch.no_grad():
        t = intus.trace(forward, h)
    assert torch.equal(t.outputs[0].value, before.view(-1).exp() * 2)
    assert torch.equal(h, before)
    h.sum().backward()
    assert torch.equal(w.grad, torch.full((4, 2), 2.0))


def test_detach_in_place_is_proven_and_rerun() -> None:
    def forward(x: Tensor) -> Tensor:
        h = x.sin()
        h.detach_()
        return h * 2

    x = torch.randn(3, requires_grad=True)
    t = intus.trace(forward, x)
    assert t.validate()
    assert intus.validate(forward, x)
    assert torch.equal(t.rerun({"input_1": torch.ones(3)}).outputs[0].value, torch.ones(3).sin() * 2)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_expanded_input(look: Callable[..., Any]) -> None:
    leaf = torch.randn(1, 4, requires_grad=True)
    before = leaf.detach().clone()
    for x in (before.expand(3, 4), leaf.expand(3, 4), (leaf * 1).expand(3, 4)):
        result = look(nn.Linear(4, 2), x)
        assert isinstance(result, intus.Trace) or result
        assert torch.equal(x, before.expand(3, 4))
    (leaf * 2).sum().backward()
    assert torch.equal(leaf.grad, torch.full((1, 4), 2.0))
