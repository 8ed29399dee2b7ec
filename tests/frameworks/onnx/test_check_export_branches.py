"""``check_export`` of models with ``torch.cond``, both branches of which a file has."""

import pytest
import torch
from torch import nn

import intus

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)) - 0.5


class Branches(nn.Module):
    """A model that multiplies in one branch, which inputs whose sum is not above a number do not take."""

    def __init__(self, factor, above):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.factor, self.above = nn.Linear(4, 4), factor, above

    def forward(self, x):
        return torch.cond(
            x.sum() > self.above, lambda x: self.layer(x) * self.factor, lambda x: self.layer(x) - 1, (x,)
        )


def exported(net, path):
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(net, (X,)), path)
    else:
        torch.onnx.export(net, (X,), path, dynamo=True, verbose=False)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_branch_that_the_inputs_do_not_take_is_compared(ending, tmp_path):
    path = tmp_path / f"net.{ending}"
    model = Branches(3.0, 0.5).eval()
    check = intus.check_export(model, exported(model, path), X)
    assert check.verdict == "equal", check
    check = intus.check_export(model, exported(Branches(2.0, 0.5).eval(), path), X)
    assert not check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_branch_that_no_tried_inputs_take_is_not_proven(ending, tmp_path):
    model = Branches(3.0, 1e9).eval()
    check = intus.check_export(model, exported(model, tmp_path / f"net.{ending}"), X)
    assert check.verdict == "not proven"
    assert any("cond_1_3 takes one of its branches" in one for one in check.unproven), check


class Cases(nn.Module):
    """A model one of whose branches ends in a step with cases that no number reaches, or not with it."""

    def __init__(self, step, *, has_step=True, is_nested=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.layer = nn.Linear(4, 4), nn.Linear(4, 4)
        self.step = step if has_step else lambda x: x
        self.is_nested = is_nested

    def rare(self, x):
        y = self.layer(x)
        return self.step(y) - 1

    def other(self, x):
        if self.is_nested:
            return torch.cond(x.mean() > 0.1, lambda x: self.layer(x) * 3, self.rare, (x,))
        return self.rare(x)

    def forward(self, x):
        h = self.first(x)
        return torch.cond(h.sum() > 0, lambda x: self.layer(x) * 2, self.other, (h,))


STEPS = {
    "clamp": lambda y: y.clamp(-5000, 5000),
    "relu": lambda y: (y + 5000).relu() - 5000,
    "maximum": lambda y: torch.maximum(y, torch.tensor(-5000.0)),
    "where": lambda y: torch.where(y > 5000, y * 0, y),
    "abs": lambda y: (y + 5000).abs() - 5000,
}


def signs(model):
    """Return inputs by which a model takes each of its branches, the first the one without the step."""
    with torch.no_grad():
        return sorted((X, -X), key=lambda x: float(model.first(x).sum()), reverse=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("ending", "name"), [("onnx", "clamp"), ("onnx", "where"), *(("pt2", name) for name in STEPS)]
)
def test_step_with_cases_in_a_branch_is_not_proven(ending, name, tmp_path):
    model, without = (Cases(STEPS[name], has_step=has_step).eval() for has_step in (True, False))
    if name in ("relu", "abs"):  # beside the sums
        without.step = lambda y: (y + 5000) - 5000
    for x in signs(model):
        path = exported(without, tmp_path / f"net.{ending}")
        with torch.no_grad():
            torch.testing.assert_close(model(x), without(x))
            assert not torch.allclose(model(x * 1e5) - model(-x * 1e5), without(x * 1e5) - without(-x * 1e5))
        assert intus.check_export(model, path, x).verdict == "not proven"
    assert intus.check_export(without, path, x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_other_bound_in_a_branch_is_not_proven(ending, tmp_path):
    model, other = (Cases(lambda y, most=most: y.clamp(-5, most)).eval() for most in (5, 600))
    path = exported(other, tmp_path / f"net.{ending}")
    for x in signs(model):
        check = intus.check_export(model, path, x)
        assert check.verdict == "not proven"
        assert any("clamp" in one for one in check.unproven), check.unproven
    assert intus.check_export(other, path, x)


@pytest.mark.filterwarnings("ignore")
def test_step_in_a_branch_of_a_branch_is_not_proven(tmp_path):
    model = Cases(STEPS["clamp"], is_nested=True).eval()
    without = Cases(STEPS["clamp"], has_step=False, is_nested=True).eval()
    for x in signs(model):
        right, wrong = (exported(one, tmp_path / f"{one.step is model.step}.pt2") for one in (model, without))
        assert not intus.check_export(model, wrong, x)
        check = intus.check_export(model, right, x)
        assert check or any("inside of another" in one for one in check.unproven), check
