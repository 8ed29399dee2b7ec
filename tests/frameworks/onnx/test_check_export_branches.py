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
