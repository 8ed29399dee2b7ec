"""``check_export`` names the place of a change where values or numbers of calls lead to another."""

import copy
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import intus

DYNAMO = pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])


def exported(net, x, path, dynamo=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        options = {"verbose": False} if dynamo else {}
        torch.onnx.export(net.eval(), (x,), path, dynamo=dynamo, **options)
    return path


class StateSpace(nn.Module):
    """Steps of which an exporter computes a factor or summand beforehand."""

    def __init__(self, step, made):
        super().__init__()
        self.step, self.made = step, made
        self.A, self.B, self.C = nn.Parameter(-torch.rand(4)), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = torch.zeros(2, 4)
        for t in range(3):
            h = self.step(h, self.made(self.A), self.B(x[:, t]))
        return self.C(h)


STEPS = {
    "factor": (lambda h, a, b: h * a + b, torch.exp),
    "factor of the input": (lambda h, a, b: torch.tanh(h + a * b), nn.functional.softplus),
    "summand": (lambda h, a, b: torch.tanh(h + b) + a, torch.sigmoid),
}


@pytest.mark.parametrize("name", ["A", "B.bias", "B.weight", "C.weight"])
@pytest.mark.parametrize("step", STEPS)
def test_parameter_that_the_file_has_folded_is_not_blamed_for_another(step, name, tmp_path):
    torch.manual_seed(0)
    net, x = StateSpace(*STEPS[step]).eval(), torch.randn(2, 3, 4)
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.get_parameter(name)[0] += 0.5
    assert intus.check_export(net, exported(net, x, tmp_path / "net.onnx"), x).verdict == "equal"
    check = intus.check_export(net, exported(other, x, tmp_path / "net.onnx"), x)
    assert check.verdict == "differs"
    if name == "A":
        assert check.first["module"] == "", str(check)
        assert any("A" in sentence for sentence in check.parameters), check.parameters
    else:
        assert check.first["module"].partition(":")[0] == name[0], str(check)
        assert check.parameters[0].startswith(f"{name} of a and of b")
        assert all("hides its effect" in sentence for sentence in check.parameters[1:])


def test_folded_parameter_that_cannot_be_told_apart_from_an_earlier_change_is_not_named_first(tmp_path):
    torch.manual_seed(0)
    net, x = StateSpace(*STEPS["factor"]).eval(), torch.randn(2, 3, 4)
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.A[0] += 0.5
        other.B.bias[0] += 0.5
    check = intus.check_export(net, exported(other, x, tmp_path / "net.onnx"), x)
    assert check.first["module"] == "B:1"
    hidden = "A is not in the file, and what its operation is given differs already, which hides its effect"
    assert hidden in check.parameters


class Flow(nn.Module):
    """Pieces that are computed of each other, joined in another order, and split again."""

    def __init__(self, steps, pieces, swapped=-1, compensated=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(steps))
        self.pieces, self.swapped, self.compensated = pieces, swapped, compensated

    def forward(self, x):
        for n, layer in enumerate(self.layers):
            first, *rest = x.chunk(self.pieces, -1)
            if self.compensated and n == self.swapped + 1:
                first, rest[0] = rest[0], first
            joined = [rest[0] + layer(first).tanh(), *rest[1:], first]
            if n == self.swapped:
                joined[0], joined[1] = joined[1], joined[0]
            x = torch.cat(joined, -1)
        return x


@DYNAMO
@pytest.mark.parametrize(("steps", "swapped"), [(2, 0), (2, 1), (4, 0), (4, 2)])
@pytest.mark.parametrize("pieces", [2, 3])
def test_pieces_that_are_joined_in_another_order_are_named_where_they_are_joined(
    pieces, steps, swapped, dynamo, tmp_path
):
    torch.manual_seed(0)
    net, x = Flow(steps, pieces).eval(), torch.randn(5, 4 * pieces)
    file = Flow(steps, pieces, swapped)
    file.load_state_dict(net.state_dict())
    check = intus.check_export(net, exported(file, x, tmp_path / "net.onnx", dynamo), x)
    assert check.verdict == "differs"
    assert check.first["module"] == "", str(check)
    assert check.first["a"].startswith(f"cat_{swapped + 1}_"), str(check)
    (why,) = check.first["why"]
    assert why.startswith("its inputs are in another order: "), check.first


@DYNAMO
@pytest.mark.parametrize("pieces", [2, 3])
def test_pieces_in_another_order_that_are_taken_so_are_equal(pieces, dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = Flow(3, pieces).eval(), torch.randn(5, 4 * pieces)
    file = Flow(3, pieces, 0, compensated=True)
    file.load_state_dict(net.state_dict())
    path = exported(file, x, tmp_path / "net.onnx", dynamo)
    assert intus.check_export(net, path, x).verdict == "equal"


class Apart(nn.Module):
    """One operation on the pieces of a tensor."""

    def __init__(self, swapped):
        super().__init__()
        self.swapped, self.first, self.last = swapped, nn.Linear(6, 8), nn.Linear(4, 2)

    def forward(self, x):
        u, v = self.first(x).chunk(2, -1)
        return self.last(v - u if self.swapped else u - v)


@DYNAMO
def test_operation_that_takes_pieces_in_another_order_is_named_itself(dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = Apart(False).eval(), torch.randn(5, 6)
    file = copy.deepcopy(net)
    file.swapped = True
    check = intus.check_export(net, exported(file, x, tmp_path / "net.onnx", dynamo), x)
    assert check.verdict == "differs"
    assert (check.first["a"], check.first["module"]) == ("sub_1_4", ""), str(check)


class Equilibrium(nn.Module):
    """A layer that is called again and again, whose first call an exporter computes beforehand."""

    def __init__(self, calls):
        super().__init__()
        self.calls, self.l, self.u = calls, nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        z = torch.zeros_like(x)
        for _ in range(self.calls):
            z = torch.tanh(0.5 * self.l(z) + self.u(x))
        return z


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_bound_without_effect_behind_a_call_of_a_repeated_layer_is_not_proven(place, tmp_path):
    torch.manual_seed(0)
    net, x = Equilibrium(5).eval(), torch.randn(2, 6)
    path = exported(net, x, tmp_path / "net.onnx")
    assert intus.check_export(net, path, x).verdict == "equal"
    model = onnx.load(path)
    node = [node for node in model.graph.node if node.op_type == "Gemm"][place]
    bounds = (
        numpy_helper.from_array(np.float32(bound), name) for bound, name in ((-100, "low"), (100, "high"))
    )
    model.graph.initializer.extend(bounds)
    for user in model.graph.node:
        for n, given in enumerate(user.input):
            if given == node.output[0]:
                user.input[n] = "bounded"
    clip = helper.make_node("Clip", [node.output[0], "low", "high"], ["bounded"])
    clip.metadata_props.extend(node.metadata_props)
    model.graph.node.insert(list(model.graph.node).index(node) + 1, clip)
    onnx.save(model, path)
    check = intus.check_export(net, path, x)
    assert check.verdict == "not proven", str(check)
    assert any(one.startswith("clip_1_") and "ran only in the file" in one for one in check.unproven)


@DYNAMO
@pytest.mark.parametrize("name", ["u.weight", "u.bias", "l.weight", "l.bias"])
def test_changed_parameter_of_a_repeated_layer_is_named_there(name, dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = Equilibrium(5).eval(), torch.randn(2, 6)
    file = copy.deepcopy(net)
    with torch.no_grad():
        value = file.get_parameter(name)
        value.copy_(value.T.clone() if value.dim() == 2 else value.flip(0))
    check = intus.check_export(net, exported(file, x, tmp_path / "net.onnx", dynamo), x)
    assert check.verdict == "differs"
    assert check.first["module"].partition(":")[0] == name[0], str(check)
    assert all(sentence.startswith(f"{name} of a and of b") for sentence in check.parameters)


class Recurrent(nn.Module):
    """An LSTM of which one result, or a part of it, is used."""

    def __init__(self, take):
        super().__init__()
        self.lstm, self.fc, self.take = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3), take

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return self.fc(self.take(y, h, c))


TAKES = {"mean": lambda y, h, c: y.mean(1), "first": lambda y, h, c: y[:, 0], "cell": lambda y, h, c: c[-1]}


@pytest.mark.parametrize(("dynamo", "take"), [*((True, take) for take in TAKES), (False, "cell")])
def test_lstm_of_which_another_result_is_used_is_not_named(dynamo, take, tmp_path):
    torch.manual_seed(0)
    x, last = torch.randn(2, 6, 4), Recurrent(lambda y, h, c: h[-1])
    path, other = exported(last, x, tmp_path / "net.onnx", dynamo), Recurrent(TAKES[take]).eval()
    other.load_state_dict(last.state_dict())
    check = intus.check_export(other, path, x)
    assert not check
    assert check.first["module"] == "", check
    pair = intus.trace(other, x), intus.read(path, x)
    for some in (pair, pair[::-1]):
        assert intus.compare(*some).attrs["first"]["module"] == ""
