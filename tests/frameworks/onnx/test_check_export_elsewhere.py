"""``check_export`` runs the model and the file on other inputs, and says where they differ there."""

import pytest
import torch
from torch import nn

import intus

TABLE = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])
X = torch.rand(3, 4, generator=torch.Generator().manual_seed(1)) + 0.2
PLACES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4], [5, 4, 3, 2]])


class Net(nn.Module):
    def __init__(self, f):
        super().__init__()
        torch.manual_seed(3)
        self.f, self.layer = f, nn.Linear(4, 4)

    def forward(self, *inputs):
        return self.f(self.layer, *inputs)


#: What the model computes, what the file computes, the inputs, and what is said.
PLANTED = {
    "mask": (
        lambda layer, x, m: layer(x).masked_fill(m == 0, -1e9).softmax(1),
        lambda layer, x, m: layer(x).masked_fill(m != 1, -1e9).softmax(1),
        (X, torch.tensor([[1, 1, 0, 1]] * 3)),
        "plus 1",
    ),
    "end of text": (
        lambda layer, i: layer(TABLE[i])[torch.arange(2), i.argmax(1)],
        lambda layer, i: layer(TABLE[i])[:, -1],
        (IDS,),
        "in the opposite order",
    ),
    "cast": (
        lambda layer, x: layer(x.long().float()),
        lambda layer, x: layer(x.to(torch.int8).float()),
        (X * 3,),
        "times 1000",
    ),
    "scatter": (
        lambda layer, x, i: torch.zeros(3, 6).scatter_add(1, i, layer(x)),
        lambda layer, x, i: torch.zeros(3, 6).scatter(1, i, layer(x)),
        (X, PLACES),
        "drawn from its numbers",
    ),
    "step 0": (
        lambda layer, x, t: layer(x) + t.float().sin()[:, None],
        lambda layer, x, t: layer(x) + t.float().tanh()[:, None],
        (X, torch.zeros(3, dtype=torch.long)),
        "away from the model's",
    ),
    "overflow": (
        lambda layer, x: layer(x).softmax(1),
        lambda layer, x: layer(x).exp() / layer(x).exp().sum(1, keepdim=True),
        (X,),
        "the output of the file is not finite, and the model's is",
    ),
    "epsilon": (
        lambda layer, x, y: nn.functional.cosine_similarity(layer(x), y),
        lambda layer, x, y: (layer(x) * y).sum(1) / (layer(x).norm(dim=1) * y.norm(dim=1)),
        (X, X.flip(0)),
        "the output of the file is not finite, and the model's is",
    ),
}
#: What differs on other inputs only where two numbers tie, or rounding is amplified, and right exports.
RIGHT = {
    "ties": (lambda layer, x: (x @ layer.weight).topk(2)[1], (X,)),
    "sort of zeros": (lambda layer, x: layer((x * 2).sort(1, descending=True)[1].float()), (X,)),
    "norm without epsilon": (lambda layer, x: nn.functional.layer_norm(layer(x), (4,), eps=1e-12), (X,)),
    "infinite": (lambda layer, x: layer(x).exp(), (X,)),
    "padded": (
        lambda layer, x, m: (layer(x) * m).sum(1) / m.sum(1, keepdim=True),
        (X, torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])),
    ),
    "ids": (lambda layer, i: layer(TABLE[i]), (IDS,)),
}


def exported(f, inputs, path):
    suffix = path.suffix
    if suffix == ".pt2":
        torch.export.save(torch.export.export(Net(f).eval(), inputs), path)
    else:
        torch.onnx.export(Net(f).eval(), inputs, path, dynamo=True, verbose=False)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
@pytest.mark.parametrize("case", PLANTED)
def test_file_that_differs_on_other_inputs_is_not_proven(case, ending, tmp_path):
    right, wrong, inputs, said = PLANTED[case]
    check = intus.check_export(
        Net(right).eval(), exported(wrong, inputs, tmp_path / f"net.{ending}"), *inputs
    )
    assert check.verdict == "not proven"
    assert any(one.startswith("For ") and said in one for one in check.unproven), check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
@pytest.mark.parametrize("case", RIGHT)
def test_right_export_is_equal_on_others(case, ending, tmp_path):
    f, inputs = RIGHT[case]
    model = Net(f).eval()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    check = intus.check_export(model, exported(f, inputs, tmp_path / f"net.{ending}"), *inputs)
    assert check.verdict == "equal", check
    assert check.others > 3
    assert f"On these inputs and {check.others} others" in str(check)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def only(limit):
    """Return a model that raises for numbers that are not below a limit, and for negative ones."""

    def run(layer, x):
        if not torch.compiler.is_compiling():
            low, high = x.detach().cpu().numpy().min(), x.detach().cpu().numpy().max()
            if low < 0 or high >= limit:
                raise ValueError("the numbers are out of range")
        return layer(x)

    return run


@pytest.mark.filterwarnings("ignore")
def test_refused_inputs_are_counted(tmp_path):
    net = Net(only(2.0)).eval()
    check = intus.check_export(net, exported(only(2.0), (X,), tmp_path / "net.pt2"), X)
    assert check.verdict == "equal", check
    (note,) = [note for note in check.notes if "show nothing" in note]
    refused, every = int(note.split()[0]), int(note.split()[2])
    assert refused > 0
    assert check.others == every - refused > 0
    assert note.endswith(
        "The first: for inputs.0 times 3, the model raises ValueError: the numbers are out of range."
    )


@pytest.mark.filterwarnings("ignore")
def test_file_that_no_other_inputs_show_is_not_proven(tmp_path):
    def run(layer, x):
        if not torch.compiler.is_compiling():
            assert bool((x == X).all()), "only these"
        return layer(x)

    check = intus.check_export(Net(run).eval(), exported(run, (X,), tmp_path / "net.pt2"), X)
    assert check.verdict == "not proven"
    assert check.others == 0
    (said,) = check.unproven
    assert said.startswith("They are not shown to agree on any of "), said
    assert said.endswith("for inputs.0 in the opposite order, the model raises AssertionError: only these"), (
        said
    )


@pytest.mark.filterwarnings("ignore")
def test_infinite_results_are_counted(tmp_path):
    def run(layer, x):
        return layer(x).abs().sqrt() + (x / x - 1)

    check = intus.check_export(Net(run).eval(), exported(run, (X,), tmp_path / "net.pt2"), X)
    assert check.verdict == "equal", check
    assert check.others > 3


@pytest.mark.filterwarnings("ignore")
def test_model_is_left_as_it_was(tmp_path):
    model, x, path = (
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
        torch.randn(5, 4),
        tmp_path / "net.pt2",
    )
    torch.export.save(torch.export.export(model, (x,)), path)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    state = torch.get_rng_state()
    intus.check_export(model, path, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
