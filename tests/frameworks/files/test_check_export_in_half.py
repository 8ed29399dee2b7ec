"""``check_export`` where rounding hides what differs: constants, and a precision of one side alone."""

import pytest
import torch
from torch import nn

import intus


class Net(nn.Module):
    def __init__(self, eps=1e-5, approximate="none"):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.norm, self.act = nn.Linear(8, 8), nn.LayerNorm(8, eps=eps), nn.GELU(approximate)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.act(self.norm(self.fc(x))))


class Rounded(nn.Linear):
    def forward(self, x):
        return super().forward(x).bfloat16().float()


@pytest.fixture(scope="module", params=[torch.float16, torch.bfloat16, torch.float32], ids=str)
def case(request, tmp_path_factory):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)).to(request.param)
    path = tmp_path_factory.mktemp("half") / "net.pt2"
    torch.export.save(torch.export.export(Net().to(request.param).eval(), (x,)), path)
    return request.param, path, x


def test_same_constants_are_equal(case):
    dtype, path, x = case
    check = intus.check_export(Net().to(dtype), path, x)
    assert check, str(check)
    assert check.notes == []


@pytest.mark.parametrize(
    ("settings", "module", "said"),
    [
        ({"eps": 1.1e-5}, "norm", "is 1.1e-05 in a, 1e-05 in b"),
        ({"eps": 1e-6}, "norm", "is 1e-06 in a, 1e-05 in b"),
        ({"approximate": "tanh"}, "act", "is 'tanh' in a, 'none' in b"),
    ],
    ids=["eps", "eps_smaller", "gelu"],
)
def test_other_constants(case, settings, module, said):
    dtype, path, x = case
    check = intus.check_export(Net(**settings).to(dtype), path, x)
    assert check.verdict == "differs"
    assert check.first["module"] == module
    assert any(said in one for one in check.first["why"])
    assert any(said in one for one in check.constants)
    assert not check.table.agree
    assert said in str(check.table)


class Softplus(nn.Softplus):
    def forward(self, x):
        return nn.functional.softplus(x, beta=self.beta)


def test_constant_that_only_a_framework_knows_is_not_proven(tmp_path):
    dtype = torch.bfloat16
    net, x, path = Softplus(beta=1.002), torch.linspace(-1, 1, 8)[None].to(dtype), tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (x,)), path)
    assert intus.check_export(net, path, x)
    net.beta = 1.007
    check = intus.check_export(net, path, x)
    assert check.verdict == "not proven"
    said = (
        "beta is 1.007 in the model, 1.002 in the file, at softplus_1_1, which rounding hides on these inputs"
    )
    assert check.unproven == [said]


def test_cast_of_the_model_alone_is_not_proven(tmp_path):
    net, x, path = Net().eval(), torch.randn(4, 8), tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (x,)), path)
    net.head.__class__ = Rounded
    check = intus.check_export(net, path, x)
    said = "The model computes in bfloat16 in head, the file in a higher precision"
    assert check.verdict == "not proven"
    assert [one.startswith(said) for one in check.unproven] == [True], check.unproven
    assert not check.table.agree
    assert "nothing differs that rounding does not explain" not in str(check)


def test_cast_of_the_file_alone_is_not_proven(tmp_path):
    net, x, path = Net().eval(), torch.randn(4, 8), tmp_path / "net.pt2"
    net.head.__class__ = Rounded
    torch.export.save(torch.export.export(net, (x,)), path)
    net.head.__class__ = nn.Linear
    check = intus.check_export(net, path, x)
    said = "The file computes in bfloat16 in head, the model in a higher precision"
    assert check.verdict == "not proven"
    assert [one.startswith(said) for one in check.unproven] == [True], check.unproven
    assert not check.table.agree
    assert "nothing differs that rounding does not explain" not in str(check)


@pytest.mark.parametrize("bounds", [(), (-torch.inf, 2.0), (0.5, 3.0)])
def test_bounds_of_a_hardtanh(bounds, tmp_path):
    net, x, path = (
        nn.Sequential(nn.Linear(4, 4), nn.Hardtanh(*bounds)),
        torch.rand(3, 4) / 9,
        tmp_path / "a.pt2",
    )
    torch.export.save(torch.export.export(net, (x,)), path)
    check = intus.check_export(net, path, x)
    assert check, str(check)
    net[1].max_val = 9.0
    assert not intus.check_export(net, path, x)


class Hidden(nn.Module):
    """A network whose weight has no effect, which no operation is known to hide."""

    def __init__(self):
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.eye(8)), nn.Linear(8, 3)

    def forward(self, x):
        return self.head((x @ self.weight) * 0 + x)


def test_tables_do_not_agree_if_a_tensor_differs_that_the_outputs_do_not_show(tmp_path):
    net, x, path = Hidden(), torch.linspace(-1, 1, 8)[None], tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (x,)), path)
    assert intus.compare(intus.trace(net, x), intus.read(path, x)).agree
    with torch.no_grad():
        net.weight *= 1.01
    table = intus.compare(intus.trace(net, x), intus.read(path, x))
    assert (table.verdict == "differs").any()
    assert not table.agree
    assert "which has no effect on the outputs" in str(table)
