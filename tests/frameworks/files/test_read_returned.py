"""Compare outputs of modules in files that do not state them with what torch's modules return."""

import numpy as np
import pytest
import torch
import transformer_outputs
from returned_outputs import counted, generated, judged
from torch import nn

import intus
from intus.core.errors import AddressError


def exported(model, args, path, **how):
    torch.export.save(torch.export.export(model, args, **how), path)
    return intus.read(path, *args)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4) + 1)

    def forward(self, x):
        h = x.to(torch.float32)
        return self.weight * h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), Norm(), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        return x + self.last(self.norm(x))


class Masked(nn.Module):
    def forward(self, x, mask):
        return x.transpose(1, 2) @ (mask + 1.0)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Masked(), Masked()
        self.register_buffer("mask", torch.zeros(3, 3))

    def forward(self, x):
        return self.b(self.a(x, self.mask).transpose(1, 2), self.mask)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        aux = torch.sigmoid(x)
        return self.inner(x), aux


class OfPair(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair, self.last = Pair(), nn.Linear(4, 4)

    def forward(self, x):
        y, aux = self.pair(x)
        return self.last(y) + aux.mean()


@pytest.mark.parametrize(
    ("make", "x"), [(Normed, torch.randn(2, 4)), (Shared, torch.randn(2, 3, 8))], ids=["cast", "buffer"]
)
def test_what_a_module_was_given_and_buffers_are_not_its_output(make, x, tmp_path):
    model = make().eval()
    found = judged(exported(model, (x,), tmp_path / "net.pt2"), model, (x,))
    assert set(found["first"]) == {address for address, _ in model.named_modules() if address}


def test_unknown_outputs_are_named_by_every_verb(tmp_path):
    model, x = OfPair().eval(), torch.randn(2, 4)
    t = exported(model, (x,), tmp_path / "net.pt2")
    labels = [op.label for op in t.modules["pair"].outputs]
    values = [np.asarray(t[label].value) for label in labels]
    y, aux = model.pair(x)
    assert np.allclose(values[0], aux.numpy())
    assert np.allclose(values[1], y.detach().numpy(), atol=1e-6)
    for read in (
        lambda: t["pair"],
        lambda: t["pair:1"],
        lambda: t.find("pair"),
        lambda: t.value("pair"),
        lambda: t.value("pair[0]"),
        lambda: t.modules["pair"].value,
    ):
        with pytest.raises(AddressError, match="The output of 'pair' is not known"):
            read()
    with pytest.raises(AddressError) as error:
        t["pair"]
    assert str(error.value) == (
        f"The output of 'pair' is not known, because net.pt2 does not state what modules return. What it "
        f"may have returned: '{labels[0]}' (2×4), '{labels[1]}' (2×4). Write the label of the tensor "
        "that you mean."
    )
    assert [op.label for op in t.find("Pair")] == labels
    assert t.modules["pair"].has_unknown_output
    assert not t.modules["last"].has_unknown_output
    assert [op.output_of for op in t.modules["pair"].outputs] == [[], ["pair.inner"]]
    assert [op.maybe_output_of for op in t.modules["pair"].outputs] == [["pair"], ["pair"]]
    assert "does not state which of 2 it returned" in str(t.modules["pair"])
    assert "may be output of" in str(t[labels[0]])
    assert any("pair" in line and "not known" in line for line in t.summary().splitlines())


def test_unknown_outputs_survive_saving(tmp_path):
    x = torch.randn(2, 4)
    exported(OfPair().eval(), (x,), tmp_path / "net.pt2").save(tmp_path / "net.trace")
    again = intus.load(tmp_path / "net.trace")
    with pytest.raises(AddressError, match="'pair' is not known"):
        again["pair"]


def test_a_stated_signature_is_what_a_module_returns(tmp_path):
    model, x = OfPair().eval(), torch.randn(2, 4)
    t = exported(model, (x,), tmp_path / "net.pt2", preserve_module_call_signature=("pair",))
    assert np.allclose(t["pair"].value, model.pair(x)[0].detach().numpy(), atol=1e-6)
    assert not t.modules["pair"].has_unknown_output


@pytest.mark.parametrize("seed", range(12))
def test_generated_modules_have_no_wrong_output(seed, tmp_path):
    model, args = generated(seed)
    found = judged(exported(model, args, tmp_path / "net.pt2"), model, args)
    assert not found["wrong"]
    assert counted(found)["first"] > counted(found)["unknown"]
    several = {f"blocks.{n}" for n, block in enumerate(model.blocks) if block.returns != "one"}
    assert set(found["unknown"]) <= several


@pytest.mark.long
@pytest.mark.parametrize("name", transformer_outputs.NAMES)
def test_modules_of_transformers_have_no_wrong_output(name, tmp_path):
    model, args = transformer_outputs.made(name)
    found = judged(exported(model, args, tmp_path / "net.pt2"), model, args)
    assert not found["wrong"]
    assert counted(found)["first"] > 20
    assert counted(found)["unknown"] <= 2
