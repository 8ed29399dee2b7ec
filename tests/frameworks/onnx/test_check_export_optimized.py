"""``check_export`` of files that ONNX Runtime has optimized, against the model of torch.

The optimizer is the judge: what it writes computes the same, so no such file differs from its model. A model
that was changed afterwards does, as its own output shows.
"""

import copy
import warnings

import onnx
import onnxruntime
import pytest
import torch
from onnxruntime.transformers import optimizer
from test_check_export import network
from test_check_export_models import MODELS as TRANSFORMERS
from test_check_export_planted import MODELS as PLANTED
from test_check_export_planted import scale, state
from torch import nn

import intus

LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def of_transformers(name):
    import transformers

    class_ = getattr(transformers, name)
    model = class_(class_.config_class(**TRANSFORMERS[name]))
    model.config.use_cache = False
    for param in model.parameters():
        if param.dim() == 1:
            param.data += 0.3 * torch.randn_like(param)
    is_image = model.main_input_name == "pixel_values"
    return model, torch.randn(2, 3, 32, 32) if is_image else torch.arange(12).reshape(2, 6) + 2


def activations():
    """Return convolutions that end in an activation, which the optimizer includes in them."""
    layers = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.LeakyReLU(0.1)
    net = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 4))
    net[3].running_mean.normal_()
    net[3].running_var.uniform_(0.5, 2)
    return net, torch.randn(2, 3, 10, 10)


MODELS = {
    "conv and blocks": lambda: (network(), torch.randn(2, 3, 8, 8)),
    "activations": activations,
    "RobertaModel": lambda: of_transformers("RobertaModel"),
    "ViTModel": lambda: of_transformers("ViTModel"),
}
#: Those of the other tests, which take long.
MORE = {
    **PLANTED,
    **{name: lambda name=name: of_transformers(name) for name in TRANSFORMERS if name not in MODELS},
}


@pytest.fixture(scope="module")
def optimized(tmp_path_factory):
    """Return a function that returns a model, its input and its file at a level, which it makes once."""
    made = {}

    def get(name, level):
        if name not in made:
            torch.manual_seed(0)
            model, x = (MODELS | MORE)[name]()
            path = tmp_path_factory.mktemp("optimized") / "net.onnx"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the exporter
                torch.onnx.export(model.eval(), (x,), path, dynamo=True, verbose=False)
            made[name] = model, x, path
        model, x, path = made[name]
        file = path.with_name(f"{level}.onnx")
        if not file.exists():
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = LEVELS[level]
            options.optimized_model_filepath = str(file)
            options.log_severity_level = 4
            onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return model, x, file

    return get


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_optimized_file_is_equal(name, level, optimized):
    model, x, file = optimized(name, level)
    check = intus.check_export(model, file, x)
    assert check.verdict == "equal", str(check)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MORE)
def test_optimized_file_does_not_differ(name, level, optimized):
    model, x, file = optimized(name, level)
    check = intus.check_export(model, file, x)
    assert check.verdict in ("equal", "not proven"), str(check)
    assert check.first is None
    assert bool(check.unproven) == (check.verdict == "not proven")


def check_changes(model, x, file, step=1, *, named=True):
    """Change one parameter after another, and check that each change that the output shows is found.

    In large models several fused operations that follow each other have no result that both sides have, so
    that a later module may be named.
    """
    expected = outputs(model, x)
    for name in list(state(model))[::step]:
        other = copy.deepcopy(model)
        with torch.no_grad():
            scale(state(other)[name])
        apart = (outputs(other, x) - expected).norm() / expected.norm()
        check = intus.check_export(other, file, x)
        if apart > 1e-5:
            assert check.verdict == "differs", (name, float(apart), str(check))
            around = name.rpartition(".")[0]
            assert check.first["why"]
            assert not named or near(check.first["module"], around), (name, check.first)


def outputs(model, x):
    with torch.no_grad():
        result = model(x)
    return result if isinstance(result, torch.Tensor) else result[0]


def near(module, owner):
    """Return whether a module is that of a parameter, or one beside it that the optimizer fused with it."""
    return module == owner or module.rpartition(".")[0] == owner.rpartition(".")[0]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["conv and blocks", "activations"])
def test_changed_parameter_of_an_optimized_file_is_named(name, level, optimized):
    check_changes(*optimized(name, level), step=2)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["RobertaModel", "ViTModel", "ResNetModel", "ConvNextModel", "encoder"])
def test_changed_parameter_of_a_larger_optimized_file_differs(name, level, optimized):
    check_changes(*optimized(name, level), step=4, named=False)


@pytest.mark.parametrize("level", LEVELS)
def test_changed_setting_of_an_optimized_file_is_named(level, optimized):
    model, x, file = optimized("conv and blocks", level)
    other = copy.deepcopy(model)
    other.blocks[0].norm.eps = 1e-2
    check = intus.check_export(other, file, x)
    assert check.verdict == "differs"
    assert check.first["module"] == "blocks.0.norm"
    model, x, file = optimized("activations", level)
    other = copy.deepcopy(model)
    other[4] = nn.LeakyReLU(0.3)
    check = intus.check_export(other, file, x)
    assert check.verdict == "differs"
    assert check.first["module"] in ("3", "4")


class Fused(nn.Module):
    """Layers whose biases ONNX Runtime's optimizer for transformers adds in the operations after them."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.down, self.norm = (
            nn.Linear(16, 32),
            nn.GELU(),
            nn.Linear(32, 16),
            nn.LayerNorm(16),
        )

    def forward(self, x):
        return self.norm(x + self.down(self.act(self.up(x))))


@pytest.fixture(scope="module")
def fused(tmp_path_factory):
    torch.manual_seed(0)
    model, x, path = Fused().eval(), torch.randn(2, 5, 16), tmp_path_factory.mktemp("fused") / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(model, (x,), path, dynamo=False, opset_version=17)
        made = optimizer.optimize_model(
            str(path), model_type="bert", num_heads=2, hidden_size=16, opt_level=0
        )
    made.save_model_to_file(str(path))
    types = [node.op_type for node in onnx.load(path).graph.node]
    assert types == ["MatMul", "BiasGelu", "MatMul", "SkipLayerNormalization"]
    return model, x, path


def test_biases_in_the_operations_after_a_layer_are_equal(fused):
    model, x, file = fused
    assert intus.check_export(model, file, x).verdict == "equal"


def test_changed_parameter_beside_such_a_bias_is_named(fused):
    check_changes(*fused)


@pytest.mark.parametrize("name", ["up.bias", "down.bias"])
def test_dropped_bias_of_such_a_file_is_named(name, fused, tmp_path):
    """A layer without its bias is not one whose bias comes later, also where a norm hides it."""
    model, x, file = fused
    changed = onnx.load(file)
    (bias,) = [one for one in changed.graph.initializer if one.name == name]
    bias.CopyFrom(onnx.numpy_helper.from_array(0 * onnx.numpy_helper.to_array(bias), name))
    onnx.save(changed, tmp_path / "net.onnx")
    check = intus.check_export(model, tmp_path / "net.onnx", x)
    assert check.verdict == "differs", str(check)
    assert near(check.first["module"], name.partition(".")[0])


def test_hidden_bias_that_a_file_lacks_differs(tmp_path):
    """A norm hides a bias that is the same in all features; no operation of the file has it."""
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).eval()
    other = copy.deepcopy(model)
    with torch.no_grad():
        model[0].bias.fill_(0.5)
    other[0].bias = None
    x = torch.randn(4, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(other, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    assert intus.check_export(model, tmp_path / "net.onnx", x).verdict == "differs"


class Sequences(nn.Module):
    """Recurrent layers, whose results a file gives another layout, with an attention between them."""

    def __init__(self):
        super().__init__()
        self.enc = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.dec = nn.GRU(6, 5, batch_first=True)
        self.attn, self.out = nn.Linear(5, 10), nn.Linear(15, 4)

    def forward(self, x):
        memory, _ = self.enc(x)
        steps, _ = self.dec(x[:, :3])
        weights = (self.attn(steps) @ memory.transpose(1, 2)).softmax(-1)
        return self.out(torch.cat([steps, weights @ memory], -1))


class Masked(nn.Module):
    """An attention with a mask of infinities, twice, and activations after it."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))
        self.act = nn.ModuleList(nn.GELU("tanh") for _ in range(2))

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        for qkv, act in zip(self.qkv, self.act, strict=True):
            q, k, v = qkv(x).chunk(3, -1)
            x = act(x + (q @ k.transpose(-1, -2)).masked_fill(mask, float("-inf")).softmax(-1) @ v)
        return x


@pytest.fixture(scope="module", params=[True, False], ids=["dynamo", "script"])
def optimized_by_exporter(request, tmp_path_factory):
    """Return a function that returns a model, its input and the file of an exporter, optimized."""
    folder = tmp_path_factory.mktemp("exported")

    def get(class_):
        torch.manual_seed(0)
        model, x = class_().eval(), torch.randn(2, 7, 6 if class_ is Sequences else 8)
        path, file = folder / f"{class_.__name__}.onnx", folder / f"{class_.__name__}.optimized.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporters
            torch.onnx.export(model, (x,), path, dynamo=request.param, verbose=False)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = LEVELS["extended"]
        options.optimized_model_filepath = str(file)
        options.log_severity_level = 4
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return model, x, file

    return get


@pytest.mark.parametrize("class_", [Sequences, Masked])
def test_optimized_layouts_and_masks_are_equal(class_, optimized_by_exporter):
    model, x, file = optimized_by_exporter(class_)
    check = intus.check_export(model, file, x)
    assert check.verdict == "equal", str(check)


@pytest.mark.parametrize("name", ["enc.weight_hh_l1", "dec.bias_hh_l0", "attn.weight", "out.bias"])
def test_changed_parameter_after_another_layout_is_named(name, optimized_by_exporter):
    model, x, file = optimized_by_exporter(Sequences)
    with torch.no_grad():
        state(model)[name].mul_(1.1)
    check = intus.check_export(model, file, x)
    assert check.verdict == "differs"
    # The file runs the encoder last, after the rest of what the attention takes: then no module is named.
    changed = name.partition(".")[0]
    assert check.first["module"] in ({"enc", ""} if changed == "enc" else {changed}), str(check)
    assert changed != "enc" or any("enc." in one for one in check.first["why"])


@pytest.mark.parametrize("number", [0, 1])
def test_mask_before_a_changed_activation_is_not_named(number, optimized_by_exporter):
    model, x, file = optimized_by_exporter(Masked)
    model.act[number] = nn.GELU()
    check = intus.check_export(model, file, x)
    assert check.verdict == "differs"
    assert check.first["module"] == f"act.{number}", str(check)


@pytest.mark.parametrize("layer", ["from 3", "from 16", "depthwise", "groups"])
def test_square_weights_in_blocks_are_read_in_order(layer, tmp_path):
    """onnxruntime keeps the shape of a weight that it puts in blocks, so that only its numbers move."""
    make = {
        "from 3": lambda: nn.Conv2d(3, 32, 3),
        "from 16": lambda: nn.Conv2d(16, 32, 3),
        "depthwise": lambda: nn.Conv2d(32, 32, 3, groups=32),
        "groups": lambda: nn.Conv2d(32, 32, 3, groups=2),
    }[layer]
    torch.manual_seed(0)
    net = nn.Sequential(make(), nn.Sigmoid()).eval()
    x, path = torch.randn(2, net[0].in_channels, 5, 5), tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), path, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(tmp_path / "all.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    read = intus.read(tmp_path / "all.onnx", x)
    weights = [read.value(one.address) for one in read.graph.params if len(one.shape) == 4]
    assert [one.tolist() for one in weights] == [net[0].weight.tolist()]
    check = intus.check_export(net, tmp_path / "all.onnx", x)
    assert check.verdict == "equal", str(check)
