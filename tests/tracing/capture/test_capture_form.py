"""Tests of converting saved values by device, dtype, copy or function, and of the random state of ops."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from zoo_models import make

import intus
from intus.core.errors import InputError


def model_of_all_kinds(x):
    y = x * 1.001
    mask, ids = y > 0, (y * 1000).long()
    y.mul_(2)
    return torch.where(mask, y, ids.float()) + torch.fft.fft(y).real


@pytest.mark.parametrize(
    "to", [torch.float16, ("cpu", torch.float16), {"dtype": torch.float16}, torch.ones(1).half()]
)
def test_to_converts_only_floating_point(to):
    x = torch.randn(2, 3)
    whole, t = intus.trace(model_of_all_kinds, x), intus.trace(model_of_all_kinds, x, to=to)
    for row, value in whole.values.items():
        kept = t.values[row]
        assert torch.equal(kept, value.half() if value.is_floating_point() else value)
    assert t["mul_1"].dtype == "float32"
    assert t["mul_1"].value.dtype == torch.float16


@pytest.mark.parametrize("to", ["cpu", torch.device("cpu"), torch.float32, ("cpu", torch.float32)])
def test_to_without_effect_can_be_validated(to):
    t = intus.trace(model_of_all_kinds, torch.randn(2, 3), to=to)
    assert t.validate()


def test_copy_is_made_at_once():
    x = torch.randn(2, 3)
    whole, t = intus.trace(model_of_all_kinds, x), intus.trace(model_of_all_kinds, x, copy=True)
    assert all(torch.equal(t.values[row], value) for row, value in whole.values.items())
    memories = [value.untyped_storage().data_ptr() for value in t.values.values()]
    assert len(set(memories)) == len(memories)
    assert t.validate()

    def unseen(x):
        y = x + 1
        with torch._C.DisableTorchFunction():
            y.add_(5)
        return y

    assert intus.trace(unseen, x, copy=True)["add_1"].value.equal(x + 1)


def test_transform_result_is_saved():
    model, x = make("cnn")
    t = intus.trace(model, x, transform=lambda t: t.flatten(1).mean(1), save=["conv2d", "linear"])
    whole = intus.trace(model, x)
    for row, value in t.values.items():
        assert torch.equal(value, whole.values[row].flatten(1).mean(1))
    assert t["conv1"].shape == (2, 4, 6, 6)
    assert t["conv1"].value.shape == (2,)
    with pytest.raises(
        InputError, match=r"cannot be validated: its values were kept with transform=.*lambda"
    ):
        t.validate()
    with pytest.raises(InputError, match=r"cannot be run again: .*Trace again without"):
        t.rerun({"conv1": 0})
    with pytest.raises(InputError, match=r"kept with to=torch\.float16"):
        intus.trace(model, x, to=torch.float16).validate()


def test_transform_to_a_view_saves_only_the_view():
    t = intus.trace(nn.ReLU(), torch.randn(100, 100), transform=lambda t: t[:, -1])
    assert t["relu_1"].value.untyped_storage().nbytes() == 400


def test_transform_is_not_recorded_and_has_no_side_effects():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)), torch.randn(3, 4)
    encoder = nn.Sequential(nn.Linear(4, 9), nn.Dropout())  # like a sparse autoencoder

    def transform(t):
        code = encoder(t)
        t.fill_(7)
        assert not code.requires_grad
        return code + torch.rand(1)

    plain = intus.trace(model, x, seed=3)
    inner = intus.trace(lambda x: intus.trace(model, x, transform=transform).values and x + 1, x)
    # the operations of the transform are not recorded
    assert [op.type for op in inner.ops] == ["linear", "dropout", "linear", "add"]
    t = intus.trace(model, x, seed=3, transform=transform)
    assert [op.label for op in t.ops] == [op.label for op in plain.ops]
    assert list(t.modules) == list(plain.modules)
    kept = []
    again = intus.trace(model, x, seed=3, transform=lambda t: kept.append(t.clone()) or transform(t))
    assert all(torch.equal(a, b) for a, b in zip(kept, plain.values.values(), strict=True))
    assert all(value.shape == (3, 9) and not value.requires_grad for value in again.values.values())
    assert all(p.grad is None for p in encoder.parameters())


def test_transform_errors():
    model, x = make("mlp")
    with pytest.raises(InputError, match=r"passed as save= or transform= failed at 'relu_1_2': KeyError"):
        intus.trace(model, x, save="relu", transform=lambda t: {}["a"])
    with pytest.raises(InputError, match=r"transform must return a tensor, .* returned float"):
        intus.trace(model, x, transform=lambda t: float(t.mean()))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"to": "cpuu"}, "to='cpuu' cannot be passed to Tensor.to"),
        ({"to": ("cpu", 3.5)}, "Write a device"),
        ({"to": torch.int8}, "use transform=lambda"),
        ({"transform": "mean"}, "transform must be a function of a tensor, got 'mean'"),
        ({"copy": "yes"}, "copy must be True or False, got 'yes'"),
    ],
)
def test_invalid_form_raises_before_the_pass(wrong, message):
    ran = []
    with pytest.raises(InputError, match=message):
        intus.trace(lambda x: ran.append(x), torch.ones(1), **wrong)
    assert not ran


def test_random_state_of_ops_that_draw():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = torch.Generator().manual_seed(5)

        def forward(self, x):
            a = F.dropout(x, 0.5) + torch.rand(4)
            b = F.dropout(a, 0.5, training=False)
            return torch.bernoulli(b.sigmoid()) + torch.randn(4, generator=self.own)

    before = torch.get_rng_state()
    t = intus.trace(Noisy(), torch.ones(4), seed=11)
    assert torch.equal(torch.get_rng_state(), before)
    drew = {op.label: op.rng_state for op in t.ops}
    assert [label.split("_")[0] for label, state in drew.items() if state is not None] == [
        "dropout", "rand", "bernoulli", "randn",
    ]  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(11)
        assert torch.equal(drew["dropout_1_1"], torch.get_rng_state())
        torch.set_rng_state(drew["rand_1_2"])
        assert torch.equal(torch.rand(4), t["rand_1"].value)
        torch.set_rng_state(drew["bernoulli_1_6"])
        assert torch.equal(torch.bernoulli(t["sigmoid_1"].value), t["bernoulli_1"].value)
    generator = torch.Generator()
    generator.set_state(t["randn_1"].rng_state)
    assert torch.equal(torch.randn(4, generator=generator), t["randn_1"].value)
    assert t.validate()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(t.rerun({"input_1": torch.ones(4)})["output_1"].value, t["output_1"].value)


def test_seed_reproduces_a_pass():
    model = nn.Sequential(nn.Dropout(), nn.Dropout())
    one, other = (intus.trace(model, torch.ones(99), seed=4) for _ in range(2))
    assert torch.equal(one["output_1"].value, other["output_1"].value)
    seen = []
    for _ in range(2):
        intus.view(lambda x: seen.append(F.dropout(x)) or seen[-1], torch.ones(99), seed=4)
    assert torch.equal(*seen)
    assert intus.validate(model, torch.ones(9), seed=4)
