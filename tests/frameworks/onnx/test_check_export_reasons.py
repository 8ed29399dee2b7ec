"""``check_export`` says why a module differs, and does not blame it for what its parent computes."""

import copy
import warnings

import onnx
import pytest
import torch
from torch import nn

import intus


def exported(net, x, path, dynamo=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(
            net.eval(),
            x if isinstance(x, tuple) else (x,),
            path,
            dynamo=dynamo,
            **({"verbose": False} if dynamo else {}),
        )
    return path


class Between(nn.Module):
    """A step of ``forward`` between two layers, in a module."""

    def __init__(self, step, constant):
        super().__init__()
        self.step, self.constant = step, constant
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.step(self.first(x), self.constant))


class Outer(nn.Module):
    def __init__(self, step, constant):
        super().__init__()
        self.block, self.head = Between(step, constant), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.block(x))


#: A step of a parent, two constants, and what is said if the model has the first and the file the second.
STEPS = {
    "a factor, or none": (lambda y, k: y * k if k else y, 0, 1.1, "mul_1_", "ran only in"),
    "an activation, or none": (lambda y, k: torch.relu(y) if k else y, 0, 1, "relu_1_", "ran only in"),
    "another factor": (lambda y, k: y * k, 2, 3, "mul_1_", "other is 2 in a, 3.0 in b"),
    "another fraction": (lambda y, k: y * k, 1.5, 2.5, "mul_1_", "1.5 in a, 2.5 in b"),
    "another power": (lambda y, k: y.abs() ** k, 2, 3, "pow_1_", "other is 2 in a, 3.0 in b"),
    "another axis": (lambda y, k: y.softmax(k), -1, 0, "softmax_1_", "dim is {last} in a, 0 in b"),
}


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6)], ids=["gemm", "matmul"])
@pytest.mark.parametrize("name", STEPS)
def test_step_of_a_parent_is_named_there(name, shape, dynamo, tmp_path):
    step, one, two, label, why = STEPS[name]
    torch.manual_seed(0)
    net, x = Outer(step, one).eval(), torch.randn(shape)
    other = copy.deepcopy(net)
    other.block.constant = two
    for model, file in ((net, other), (other, net)):
        check = intus.check_export(model, exported(file, x, tmp_path / "net.onnx", dynamo), x)
        assert check.verdict == "differs"
        assert check.first["module"] == "block", str(check)
        assert (check.first["a"] or check.first["b"]).startswith(label), str(check)
        assert "The first difference is in block." in str(check)
        if model is net:
            assert any(why.format(last=len(shape) - 1) in reason for reason in check.first["why"]), (
                check.first
            )


class Folded(nn.Module):
    """An activation of ``forward`` between two convolutions, into the second of which a file folds a norm."""

    def __init__(self, act):
        super().__init__()
        self.act, self.b = act, nn.BatchNorm2d(4)
        self.c1, self.c2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.b(self.c2(self.act(self.c1(x))))


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("act", [torch.nn.functional.elu, lambda y: y], ids=["another", "none"])
def test_step_before_a_folded_norm_is_not_blamed_on_the_norm(act, dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = nn.Sequential(Folded(torch.relu), nn.Tanh()).eval(), torch.randn(2, 3, 6, 6)
    net[0].b.running_mean.normal_()
    assert intus.check_export(net, exported(net, x, tmp_path / "net.onnx", dynamo), x).verdict == "equal"
    file = copy.deepcopy(net)
    file[0].act = act
    check = intus.check_export(net, exported(file, x, tmp_path / "net.onnx", dynamo), x)
    assert check.verdict == "differs"
    assert (check.first["a"], check.first["module"]) == ("relu_1_2", "0"), str(check)


class Attention(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


IMAGES, ROWS = (2, 3, 8, 8), (2, 8, 5)
#: A module, one with other settings, the shape of the input, and the reason.
SETTINGS = {
    "padding": (
        lambda: nn.Conv2d(3, 3, 3, padding=1),
        lambda: nn.Conv2d(3, 3, 3, padding=2),
        IMAGES,
        "padding is (1, 1) in a, [2, 2, 2, 2] in b",
    ),
    "stride": (
        lambda: nn.Conv2d(3, 3, 3, stride=1),
        lambda: nn.Conv2d(3, 3, 3, stride=2),
        IMAGES,
        "stride is (1, 1) in a, [2, 2] in b",
    ),
    "kernel": (
        lambda: nn.MaxPool2d(3, 1, 1),
        lambda: nn.MaxPool2d(1, 1),
        IMAGES,
        "kernel_size is 3 in a, [1, 1] in b",
    ),
    "bound": (lambda: nn.Hardtanh(-1, 1), lambda: nn.Hardtanh(0, 1), ROWS, "min is -1 in a, 0.0 in b"),
    "slope": (
        lambda: nn.LeakyReLU(2.0),
        lambda: nn.LeakyReLU(3.0),
        ROWS,
        "negative_slope is 2.0 in a, 3.0 in b",
    ),
    "groups": (lambda: nn.GroupNorm(1, 8), lambda: nn.GroupNorm(4, 8), ROWS, "num_groups=1 (group_norm_1_2)"),
    "heads": (lambda: Attention(2), lambda: Attention(4), (2, 5, 8), "num_heads=2 (multi_head_attention"),
}


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("name", SETTINGS)
def test_whole_number_that_differs_is_the_reason(name, dynamo, tmp_path):
    one, two, shape, why = SETTINGS[name]
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Tanh(), one(), nn.Tanh()).eval(), torch.randn(shape)
    other = nn.Sequential(nn.Tanh(), two(), nn.Tanh()).eval()
    other.load_state_dict(net.state_dict())
    assert intus.check_export(net, exported(net, x, tmp_path / "same.onnx", dynamo), x)
    check = intus.check_export(net, exported(other, x, tmp_path / "net.onnx", dynamo), x)
    assert check.verdict == "differs"
    assert check.first["module"].partition(".")[0] == "1"
    assert any(why in reason for reason in check.first["why"]), check.first
    unequal = [reason for reason in check.first["why"] if " is " in reason and " in a, " in reason]
    assert not [reason for reason in unequal if "False in a, 0 in b" in reason]


def test_axis_counted_from_the_end_is_no_reason(tmp_path):
    """Both take the second axis, the file by its number from the start; only the factor differs."""

    class Net(nn.Module):
        def __init__(self, axis, factor):
            super().__init__()
            self.axis, self.factor = axis, factor

        def forward(self, x):
            return torch.cumsum(x * self.factor, self.axis)

    x = torch.randn(3, 4)
    assert intus.check_export(Net(-1, 2), exported(Net(1, 2), x, tmp_path / "net.onnx"), x)
    check = intus.check_export(Net(-1, 2), exported(Net(0, 2), x, tmp_path / "net.onnx"), x)
    assert check.first["why"] == ["dim is 1 in a, 0 in b"]


def foreign(model):
    model.graph.node[1].op_type, model.graph.node[1].domain = "Foo", "my.domain"


def newer(model):
    model.opset_import[0].version = 99


@pytest.mark.parametrize("change", [foreign, newer])
def test_what_a_file_cannot_run_is_the_reason(change, tmp_path):
    net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), torch.randn(1, 3)
    path = exported(net, x, tmp_path / "net.onnx")
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    check = intus.check_export(net, path, x)
    (note,) = intus.read(path, x).graph.facts["notes"]
    assert note in intus.read(path, x).summary()
    assert check.verdict == "not proven"
    assert note.removesuffix(".") in check.unproven
    assert str(check).count(note) == 1


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(6, 60), nn.Dropout(0.5), nn.Linear(60, 6)

    def forward(self, x):
        return self.second(self.drop(torch.relu(self.drop(self.first(x)))))


def test_dropout_that_a_file_has_left_on_is_the_reason(tmp_path):
    net, x = Dropping().train(), torch.randn(2, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        mode = torch.onnx.TrainingMode.TRAINING
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=False, training=mode)
    check = intus.check_export(net.eval(), tmp_path / "net.onnx", x)
    assert check.verdict == "differs"
    assert check.first["module"] == "drop:1"
    assert check.first["why"] == ["dropout_1_2 of b drops at random (training_mode=True)"]


class BeforeDropout(nn.Module):
    """A function between a layer and a dropout."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.first, self.drop, self.second = nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.drop(self.function(self.first(x))))


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
def test_step_of_a_parent_before_a_dropout_is_named_there(dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = BeforeDropout(torch.tanh).eval(), torch.randn(2, 3)
    other = copy.deepcopy(net)
    other.function = torch.relu
    check = intus.check_export(net, exported(other, x, tmp_path / "net.onnx", dynamo), x)
    assert (check.first["module"], check.first["a"]) == ("", "tanh_1_2")


class Normed(nn.Module):
    """A convolution without a bias, whose settings follow the place of the bias."""

    def __init__(self, **settings):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, bias=False, **settings), nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize(
    "settings", [{"padding": 2, "dilation": 2, "groups": 8}, {"padding": 1, "stride": 2}]
)
def test_settings_of_a_convolution_without_bias_are_no_reason(settings, dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = Normed(**settings).eval(), torch.randn(2, 8, 8, 8)
    nn.init.uniform_(net.norm.running_var, 0.5, 2)
    path = exported(net, x, tmp_path / "net.onnx", dynamo)
    assert intus.check_export(net, path, x)
    with torch.no_grad():
        net.conv.weight[0, 0, 0, 0] += 0.1
    check = intus.check_export(net, path, x)
    assert check.verdict == "differs"
    assert not [reason for reason in check.first["why"] if "whole numbers" in reason], check.first


class Recurrent(nn.Module):
    def __init__(self, layer, before):
        super().__init__()
        self.c, self.g, self.before = nn.Conv1d(4, 6, 3, padding=1), layer, before
        self.o = nn.Linear(10 if layer.bidirectional else 5, 2)

    def forward(self, x):
        h = self.before(self.c(x).transpose(1, 2))
        return self.o(self.g(h)[0].mean(1))


#: A recurrent layer on what a transposition returns, or on what a layer does.
BEFORE = {"transposed": lambda h: h, "computed": torch.tanh}


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("parameter", ["bias_ih_l0", "weight_hh_l0"])
@pytest.mark.parametrize("bidirectional", [True, False], ids=["both ways", "one way"])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_changed_parameter_of_a_recurrent_layer_is_the_only_reason(
    kind, bidirectional, parameter, before, dynamo, tmp_path
):
    torch.manual_seed(0)
    layer = kind(6, 5, batch_first=True, bidirectional=bidirectional)
    net, x = Recurrent(layer, BEFORE[before]).eval(), torch.randn(2, 4, 7)
    path = exported(net, x, tmp_path / "net.onnx", dynamo)
    assert intus.check_export(net, path, x)
    with torch.no_grad():
        getattr(net.g, parameter).view(-1)[0] += 0.1
    check = intus.check_export(net, path, x)
    assert check.verdict == "differs"
    assert check.first["module"] == "g", str(check)
    (why,) = check.first["why"]
    assert why.startswith(f"g.{parameter} of a and "), why
    assert why in check.parameters


class Masked(nn.Module):
    """Attention whose mask is along one axis or the other, with the same number in the place of infinity."""

    def __init__(self, along):
        super().__init__()
        self.q, self.k, self.along = nn.Linear(8, 8), nn.Linear(8, 8), along

    def forward(self, x, mask):
        q, k = (layer(x).view(2, 6, 2, 4).transpose(1, 2) for layer in (self.q, self.k))
        mask = mask[:, None, None, :] if self.along == "keys" else mask[:, None, :, None]
        return (q @ k.transpose(-1, -2)).masked_fill(~mask, -1e4).softmax(-1)


def test_number_that_both_have_is_no_reason(tmp_path):
    torch.manual_seed(0)
    net = Masked("queries").eval()
    file = copy.deepcopy(net)
    file.along = "keys"
    inputs = torch.randn(2, 6, 8), torch.arange(6)[None] < torch.tensor([[6], [4]])
    torch.export.save(torch.export.export(file, inputs), tmp_path / "net.pt2")
    paths = [tmp_path / "net.pt2"]
    paths += [exported(file, inputs, tmp_path / f"{dynamo}.onnx", dynamo) for dynamo in (True, False)]
    for path in paths:
        check = intus.check_export(net, path, *inputs)
        assert check.verdict == "differs"
        assert not [reason for reason in check.first["why"] if "10000" in reason], check.first


class Pair(nn.Module):
    """A function of what two layers return, and of the input."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second, self.function = nn.Linear(6, 6), nn.Linear(6, 6), function

    def forward(self, x):
        first = self.first(x)
        return torch.tanh(self.function(first, self.second(torch.tanh(first)), x))


#: Two functions of the same tensors, and what is said of their inputs.
INPUTS = {
    "another order": (lambda a, b, x: a - b, lambda a, b, x: b - a, "its inputs are in another order: "),
    "another tensor": (lambda a, b, x: x + b, lambda a, b, x: a + b, "its inputs are others: "),
    "an order without effect": (
        lambda a, b, x: (a + b) * 2,
        lambda a, b, x: (b + a) * 3,
        "other is 2 in a, 3",
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_do_not_correspond_are_the_reason(name, tmp_path):
    one, two, why = INPUTS[name]
    torch.manual_seed(0)
    net, x = Pair(one).eval(), torch.randn(3, 6)
    file = copy.deepcopy(net)
    file.function = two
    paths = [exported(file, x, tmp_path / f"{dynamo}.onnx", dynamo) for dynamo in (True, False)]
    torch.export.save(torch.export.export(file, (x,)), tmp_path / "net.pt2")
    for path in (*paths, tmp_path / "net.pt2"):
        check = intus.check_export(net, path, x)
        assert check.verdict == "differs"
        assert [reason for reason in check.first["why"] if reason.startswith(why)], check.first


class Hidden(nn.Module):
    """Two layers whose values could be each other's, without an effect on what the model returns."""

    def __init__(self, function, bias):
        super().__init__()
        self.first, self.second = (nn.Linear(6, 6, bias=bias) for _ in range(2))
        self.third, self.function = nn.Linear(6, 6), function

    def forward(self, x):
        return torch.tanh(self.third(self.function(self, x)))


#: Functions that return the same if two layers are each other's.
WITHOUT_EFFECT = {
    "a sum": lambda net, x: net.first(x) + net.second(x),
    "zeros": lambda net, x: net.second(net.first(x * 0)) + x,
}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_swapped_layers_without_effect_are_named_with_whose_values_they_have(name, tmp_path):
    torch.manual_seed(0)
    # The older exporter drops the name of a weight without a bias, and a sum does not tell them apart.
    net, x = Hidden(WITHOUT_EFFECT[name], bias=name == "a sum").eval(), torch.randn(3, 6)
    file = copy.deepcopy(net)
    file.first, file.second = file.second, file.first
    paths = [exported(file, x, tmp_path / f"{dynamo}.onnx", dynamo) for dynamo in (True, False)]
    torch.export.save(torch.export.export(file, (x,)), tmp_path / "net.pt2")
    for path in (*paths, tmp_path / "net.pt2"):
        check = intus.check_export(net, path, x)
        assert (check.verdict, check.first["module"]) == ("differs", "first"), str(check)
        said = [
            one for one in check.first["why"] if one.endswith(" of b has the values of second.weight of a")
        ]
        assert len(said) == 1, check.first


class Interpolated(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.c, self.settings = nn.Conv2d(2, 4, 3, padding=1), settings

    def forward(self, x):
        h = nn.functional.interpolate(self.c(x), scale_factor=2, **self.settings)
        return torch.tanh(h)


#: Settings of an interpolation, other ones of the file, and the beginning of the reason.
INTERPOLATIONS = {
    "align_corners": (
        {"mode": "bilinear", "align_corners": True},
        {"mode": "bilinear", "align_corners": False},
        "align_corners is True in a, False in b",
    ),
    "mode": ({"mode": "nearest"}, {"mode": "bilinear"}, "mode is 'nearest' in a, "),
}


@pytest.mark.parametrize("name", INTERPOLATIONS)
def test_setting_of_an_interpolation_is_the_reason(name, tmp_path):
    one, two, why = INTERPOLATIONS[name]
    torch.manual_seed(0)
    net, x = Interpolated(**one).eval(), torch.randn(1, 2, 5, 5)
    file = Interpolated(**two).eval()
    file.load_state_dict(net.state_dict())
    for model in (net, file):
        torch.export.save(torch.export.export(model, (x,)), tmp_path / "net.pt2")
        paths = [exported(model, x, tmp_path / f"{dynamo}.onnx", dynamo) for dynamo in (True, False)]
        for path in (*paths, tmp_path / "net.pt2"):
            check = intus.check_export(net, path, x)
            assert bool(check) == (model is net), str(check)
            if model is file:
                assert [reason for reason in check.first["why"] if reason.startswith(why)], check.first
                assert not [reason for reason in check.first["why"] if "whole numbers" in reason], check.first
