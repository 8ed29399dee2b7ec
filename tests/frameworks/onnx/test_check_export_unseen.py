"""``check_export`` says that one side alone has an operation whose effect the inputs do not show."""

import copy
import warnings

import onnxruntime
import pytest
import torch
from torch import nn

import intus


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.step = nn.Linear(6, 8), nn.Linear(8, 3), None

    def forward(self, x):
        y = torch.relu(self.first(x))
        return self.last(y if self.step is None else self.step(y, x))


#: The newer one takes seconds for each model.
EXPORTERS = [
    pytest.param(True, id="dynamo", marks=pytest.mark.long),
    pytest.param(False, id="older"),
]


def verdicts(step, dynamo, folder):
    """Return the verdict if model and file have a step, and the checks where one of them lacks it."""
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(5, 6)
    other = copy.deepcopy(net)
    other.step = step
    files = {}
    for name, model in (("with", other), ("without", net)):
        files[name] = folder / f"{name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporters
            torch.onnx.export(
                model, (x,), files[name], dynamo=dynamo, **({"verbose": False} if dynamo else {})
            )
    return (
        intus.check_export(other, files["with"], x).verdict,
        intus.check_export(net, files["with"], x),
        intus.check_export(other, files["without"], x),
    )


#: Steps that return what they are given here, and would not on other inputs.
STEPS = {
    "upper bound": lambda y, x: y.clamp(max=100),
    "both bounds": lambda y, x: nn.functional.hardtanh(y, -50, 100),
    "masked fill": lambda y, x: y.masked_fill(y > 1e6, 0.0),
    "where": lambda y, x: torch.where(y < 1e5, y, 0.0),
    "added mask": lambda y, x: y + (x[:, :1] > 1e6).float(),
    "factor of a mask": lambda y, x: y * (x[:, :1] < 1e6).float(),
    "maximum": lambda y, x: torch.maximum(y, x[:, :1] - 1e3),
}
#: Steps that no input has an effect of, which exporters drop.
NOTHING = {
    "dropout": lambda y, x: nn.functional.dropout(y, 0.5, False),
    "copy": lambda y, x: y.contiguous().to(torch.float32).clone(),
    "shapes": lambda y, x: y.reshape(-1, 8).expand(5, 8).T.T[:, :100],
    "neutral": lambda y, x: y * 1.0 + 0.0,
    "constant mask": lambda y, x: y.masked_fill(torch.zeros(5, 8).bool(), 1.0),
    "added to zeros": lambda y, x: torch.zeros_like(y) + y,
    "relu of a relu": lambda y, x: torch.relu(y),
    "bound of a relu": lambda y, x: y.clamp(min=0),
}


@pytest.mark.parametrize("dynamo", EXPORTERS)
@pytest.mark.parametrize("name", STEPS)
def test_step_without_effect_on_these_inputs_is_not_proven(name, dynamo, tmp_path):
    both, only_file, only_model = verdicts(STEPS[name], dynamo, tmp_path)
    assert both == "equal"
    for check, side in ((only_file, "the file"), (only_model, "the model")):
        assert check.verdict == "not proven", str(check)
        assert check.first is None
        sentence, *elsewhere = check.unproven
        assert all(one.startswith("For x ") for one in elsewhere)  # where larger numbers reach a bound
        assert sentence.endswith(f" ran only in {side}, and has no effect on these inputs")
        assert "only one of both has an operation, which may have an effect on other inputs" in str(check)
        assert f"ran only in {'ab'[side == 'the file']}, and has no effect" in check.table.attrs["summary"]


@pytest.mark.parametrize("dynamo", EXPORTERS)
@pytest.mark.parametrize("name", NOTHING)
def test_step_without_effect_on_any_input_agrees(name, dynamo, tmp_path):
    both, *others = verdicts(NOTHING[name], dynamo, tmp_path)
    assert both == "equal"
    for check in others:
        assert check.verdict == "equal", str(check)


#: A bound that is not reached, of which a file writes the operation with another name.
BOUNDS = {
    "clamp_min": lambda y, k: (-y).clamp_min(-k),
    "clamp_max": lambda y, k: y.clamp_max(k),
    "clamp": lambda y, k: y.clamp(-k, k),
}


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("name", BOUNDS)
def test_bound_with_another_name_in_the_file_is_the_same(name, dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(5, 6)
    net.step = lambda y, x: BOUNDS[name](y, 100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        options = {"verbose": False} if dynamo else {}
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=dynamo, **options)
    assert intus.check_export(net, tmp_path / "net.onnx", x).verdict == "equal"
    net.step = lambda y, x: BOUNDS[name](y, 50.0)
    assert intus.check_export(net, tmp_path / "net.onnx", x).verdict == "not proven"


@pytest.mark.parametrize("threshold", [20.0, 5.0])
def test_softplus_whose_threshold_the_file_writes_as_an_operation(threshold, tmp_path):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Softplus(threshold=threshold)).eval(), torch.randn(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "equal", str(check)
    net[1] = nn.Softplus(threshold=threshold + 1)
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "not proven", str(check)
    assert "ran only in the file" in str(check)


def test_softplus_that_is_given_no_threshold_has_that_of_the_file(tmp_path):
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(5, 6)
    net.step = lambda y, x: nn.functional.softplus(y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "equal", str(check)


@pytest.mark.parametrize("threshold", [20.0, 5.0])
def test_softplus_whose_threshold_the_exporter_dropped(threshold, tmp_path):
    """At 20 rounding explains what is dropped."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Softplus(threshold=threshold)).eval(), torch.randn(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=False)
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    if threshold == 20:
        assert check.verdict == "equal", str(check)
        return
    assert check.verdict == "not proven", str(check)
    [sentence] = check.unproven
    assert (
        sentence
        == "the threshold of softplus_1_2 in 1 is only in the model, and has no effect on these inputs"
    )


def test_constant_given_by_position_is_compared_with_one_by_name(tmp_path):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Softplus(1.002, 20.0)).eval(), torch.randn(2, 4)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    assert intus.check_export(net, tmp_path / "net.pt2", x).verdict == "equal"
    net[1] = nn.Softplus(1.002, 21.0)
    check = intus.check_export(net, tmp_path / "net.pt2", x)
    assert check.verdict == "differs", str(check)
    assert check.constants == ["threshold of softplus_1_2 is 21.0 in a, 20.0 in b"]


class Between(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return torch.lerp(x, x.flip(-1), self.weight)


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("weight", [0.3, 0.7])
def test_choice_by_a_constant_is_no_step_of_the_file_alone(weight, dynamo, tmp_path):
    """The exporters write two ways to compute ``lerp``, and choose one by a constant."""
    x = torch.randn(4, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(Between(weight), (x,), tmp_path / "net.onnx", dynamo=dynamo, verbose=False)
    assert intus.check_export(Between(weight), tmp_path / "net.onnx", x).verdict == "equal"
    assert intus.check_export(Between(0.4), tmp_path / "net.onnx", x).verdict == "differs"


#: Operations that exporters write as several, some of which have an effect on few numbers or on none.
COMPOSITE = {
    "lerp": lambda y, x: torch.lerp(y, y.flip(-1), y.sigmoid()),
    "nan_to_num": lambda y, x: torch.nan_to_num(y),
    "nansum": lambda y, x: torch.nansum(y, -1, keepdim=True) + y,
}
#: Steps that differ from these where the inputs do not show it.
NOT_COMPOSITE = {
    "lerp": lambda y, x: torch.where(y.sigmoid() > 0.999, y, torch.lerp(y, y.flip(-1), y.sigmoid())),
    "nan_to_num": lambda y, x: torch.nan_to_num(y, nan=2.0),
    "nansum": lambda y, x: torch.where(y.isnan(), 1.0, y).sum(-1, keepdim=True) + y,
}


@pytest.mark.parametrize("dynamo", EXPORTERS)
@pytest.mark.parametrize("name", COMPOSITE)
def test_composite_operation_that_the_file_writes_as_several_is_equal(name, dynamo, tmp_path):
    if name == "nansum" and not dynamo:
        pytest.skip("the older exporter has no nansum")
    assert verdicts(COMPOSITE[name], dynamo, tmp_path)[0] == "equal"


@pytest.mark.parametrize("name", NOT_COMPOSITE)
def test_step_that_differs_on_few_numbers_is_not_proven(name, tmp_path):
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(5, 6)
    net.step = NOT_COMPOSITE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    net.step = COMPOSITE[name]
    assert intus.check_export(net, tmp_path / "net.onnx", x).verdict == "not proven"


class Made(nn.Module):
    """A function of a layer, and a step after it."""

    def __init__(self, make, step=None):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.make, self.step = nn.Linear(8, 8), make, step

    def forward(self, x):
        y = self.make(self.layer(x))
        return y if self.step is None else self.step(y)


def written(net, x, folder, how):
    """Return the file that an exporter writes of a model."""
    path = folder / f"{type(net.step).__name__}.{'pt2' if how.startswith('program') else 'onnx'}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        if path.suffix == ".onnx":
            options = {"verbose": False} if how == "dynamo" else {}
            torch.onnx.export(net, (x,), path, dynamo=how == "dynamo", **options)
        else:
            program = torch.export.export(net, (x,))
            torch.export.save(program.run_decompositions() if how == "program of few" else program, path)
    return path


def others(net):
    """Yield inputs for which a layer returns numbers that are huge, equal, nearly 0 and no numbers."""
    x = torch.randn(2, 6, 8)
    yield from (x, x * 1e6, x * 1e-6)
    weight, bias = net.layer.weight.detach().double(), net.layer.bias.detach().double()
    for number in (0.0, 0.5, -0.5, 1e-5, torch.nan):
        row = torch.linalg.solve(weight, torch.full((8,), number, dtype=torch.float64) - bias)
        yield row.float().expand(2, 6, 8).contiguous()


def is_same_elsewhere(net, path):
    """Return whether onnxruntime, or torch of its own files, computes what a model does on other inputs."""
    if path.suffix == ".pt2":
        run = torch.export.load(path).module()
    else:
        session = onnxruntime.InferenceSession(path)

        def run(x):
            return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])

    return are_same_elsewhere(net, run)


def are_same_elsewhere(net, run):
    """Return whether a function returns what a model does on other inputs."""
    with torch.no_grad():
        return all(torch.allclose(run(x), net(x), rtol=1e-3, atol=0, equal_nan=True) for x in others(net))


def standard(step):
    return lambda y: (y - y.mean(-1, keepdim=True)) / step(y.std(-1, keepdim=True))


#: What torch's newer exporter drops: a constant up to 1e-8 that is added.
DROPPED = {
    "standard deviation": standard(lambda y: y + 1e-8),
    "logarithm of a square": lambda y: (y.square() + 1e-12).log(),
    "root of a square": lambda y: (y**2 + 1e-10).sqrt(),
}


@pytest.mark.parametrize("name", DROPPED)
def test_epsilon_that_the_exporter_dropped_is_not_proven(name, tmp_path):
    net, x = Made(DROPPED[name]).eval(), torch.randn(2, 6, 8)
    path = written(net, x, tmp_path, "dynamo")
    assert not is_same_elsewhere(net, path)
    check = intus.check_export(net, path, x)
    assert check.verdict == "not proven", str(check)
    assert any(one.startswith("add_1_") and "ran only in the model" in one for one in check.unproven)
    path = written(net, x, tmp_path, "older")  # which writes it
    check = intus.check_export(net, path, x)
    assert check.verdict == "equal", str(check)


#: A function that exporters write in another way, with a step after it, and without it.
LACKING = {
    "bound": (nn.functional.silu, lambda y: y.clamp(-1e4, 1e4)),
    "choice": (torch.square, lambda y: torch.where(y > 1e9, 0.0, y)),
    "lower bound": (lambda y: y.std(-1, keepdim=True), lambda y: y.clamp(min=1e-6)),
}


@pytest.mark.parametrize("name", LACKING)
def test_file_that_lacks_a_step_after_another_way_to_compute_is_not_proven(name, tmp_path):
    make, step = LACKING[name]
    net, x = Made(make, step).eval(), torch.randn(2, 6, 8)
    path = written(Made(make).eval(), x, tmp_path, "dynamo")
    assert not is_same_elsewhere(net, path)
    check = intus.check_export(net, path, x)
    assert check.verdict == "not proven", str(check)
    assert any("ran only in the model, and has no effect" in one for one in check.unproven)


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (torch.sigmoid, lambda y: y.clamp(0, 1)),
        (torch.square, lambda y: y.clamp(min=-1)),
        (lambda y: y.std(-1, keepdim=True), torch.relu),
    ],
    ids=["sigmoid", "square", "deviation"],
)
def test_bound_that_no_input_reaches_is_equal(make, step, tmp_path):
    net, x = Made(make, step).eval(), torch.randn(2, 6, 8)
    path = written(Made(make).eval(), x, tmp_path, "dynamo")
    check = intus.check_export(net, path, x)
    assert check.verdict == "equal", str(check)


F = nn.functional
#: Functions of which exporters write some in another way.
FUNCTIONS = {
    "relu6": F.relu6,
    "silu": F.silu,
    "gelu": F.gelu,
    "mish": F.mish,
    "elu": F.elu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": F.leaky_relu,
    "hardshrink": F.hardshrink,
    "sigmoid": torch.sigmoid,
    "square": torch.square,
    "cube": lambda y: y**3,
    "absolute": torch.abs,
    "exponential": torch.exp,
    "root": lambda y: y.abs().sqrt(),
    "inverse root": lambda y: (y.abs() + 1).rsqrt(),
    "reciprocal": lambda y: (y.abs() + 1).reciprocal(),
    "sinc": torch.sinc,
    "deviation": lambda y: y.std(-1, keepdim=True),
    "variance": lambda y: y.var(-1, keepdim=True),
    "norm": lambda y: y.norm(dim=-1, keepdim=True),
    "mean": lambda y: y.mean(-1, keepdim=True),
    "logarithm of a sum": lambda y: y.logsumexp(-1, keepdim=True),
    "softmax": lambda y: y.softmax(-1),
    "layer norm": lambda y: F.layer_norm(y, (8,)),
    "unit norm": lambda y: F.normalize(y, dim=-1),
    "product": lambda y: y * y.flip(-1),
    "quotient": lambda y: y / (1 + y.abs()),
    "matrix product": lambda y: y @ y.transpose(-1, -2),
    "choice": lambda y: torch.where(y > 0, y, y * 0.1),
    "lerp": lambda y: torch.lerp(y, y.flip(-1), 0.3),
    "gate": lambda y: F.glu(y, -1),
}
AFTER = {
    "bounds": lambda y: y.clamp(-1e4, 1e4),
    "upper bound": lambda y: y.clamp(max=1e4),
    "lower bound": lambda y: y.clamp(min=1e-6),
    "epsilon": lambda y: y + 1e-12,
    "choice": lambda y: torch.where(y.abs() > 1e6, 0.0, y),
    "mask": lambda y: y.masked_fill(y > 1e6, 0.0),
    "absolute": torch.abs,
    "relu": torch.relu,
}


@pytest.mark.long
@pytest.mark.parametrize("how", ["dynamo", "older", "program", "program of few"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_step_that_a_file_lacks_after_any_function_is_not_equal(name, how, tmp_path):
    """The judge is onnxruntime, or torch of its own files, on other inputs."""
    if (name, how) == ("sinc", "older"):
        pytest.skip("the older exporter has no sinc")
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    plain = Made(FUNCTIONS[name]).eval()
    path = written(plain, x, tmp_path, how)
    check = intus.check_export(plain, path, x)
    assert check.verdict == "equal", str(check)
    for step in AFTER.values():
        net = Made(FUNCTIONS[name], step).eval()
        if not torch.allclose(net(x), plain(x), rtol=1e-6, atol=0):
            continue
        # A file may compute a variance of equal numbers otherwise, without any step that it lacks.
        if is_same_elsewhere(net, path) or are_same_elsewhere(net, plain):
            continue
        check = intus.check_export(net, path, x)
        assert check.verdict != "equal", str(check)
