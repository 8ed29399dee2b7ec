"""``check_export``: real exports agree, and every planted change is named at its module with its reason."""

import copy
import itertools
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from onnxruntime.transformers import float16
from torch import nn

import intus
from intus.core.errors import CodecError, InputError


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc, self.act, self.out = (
            nn.LayerNorm(16),
            nn.Linear(16, 32),
            nn.GELU(),
            nn.Linear(32, 16),
        )

    def forward(self, x):
        return x + self.out(self.act(self.fc(self.norm(x))))


class Net(nn.Module):
    """A convolution whose batch norm the exporter folds, and two blocks of a transformer."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(16, 4)

    def forward(self, image, scale=None):
        x = torch.relu(self.bn(self.conv(image))).flatten(2).transpose(1, 2)
        x = self.head(self.blocks(x).mean(1))
        return x if scale is None else x * scale


def network():
    torch.manual_seed(0)
    net = Net().eval()
    with torch.no_grad():
        net.bn.running_mean.normal_()
        net.bn.running_var.uniform_(0.5, 2)
    return net


def exported(model, args, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(model.eval(), args, path, **{"dynamo": True, "verbose": False, **options})
    return path


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Return (the model, its input, its export)."""
    net, x = network(), torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return net, x, exported(net, (x,), tmp_path_factory.mktemp("onnx") / "net.onnx")


def test_export_agrees_in_every_module(case):
    net, x, file = case
    check = intus.check_export(net, file, x)
    assert check, str(check)
    assert check.first is None
    assert "net.onnx computes what Net does" in str(check)
    modules = check.table.modules.set_index("a")
    assert {"bn", "blocks.0.norm", "blocks.1.act", "head"} <= set(modules.index)
    assert modules.verdict.isin(["equal", "close"]).all()


def tanh(net):
    net.blocks[1].act = nn.GELU(approximate="tanh")
    return "blocks.1.act", "approximate is 'tanh' in a, 'none' in b"


def eps(net):
    net.blocks[0].norm.eps = 1e-2
    return "blocks.0.norm", "eps=0.01 (layer_norm_1_6) in a, epsilon=1e-05"


def weight(net):
    net.blocks[0].fc.weight.data[0] *= 1.1
    return "blocks.0.fc", "blocks.0.fc.weight of a and val_"


def statistics(net):
    net.bn.running_mean += 0.5
    return "bn", "other parameters are combined there (bn.weight, bn.bias in a)"


def head(net):
    net.head.bias.data[1] += 0.01
    return "head", "head.bias of a and of b differ by"


@pytest.mark.parametrize("change", [tanh, eps, weight, statistics, head])
def test_change_since_the_export_is_named(case, change):
    net, x, file = case
    other = copy.deepcopy(net)
    module, why = change(other)
    check = intus.check_export(other, file, x)
    assert not check
    assert check.first["module"] == module
    assert any(why in reason for reason in check.first["why"]), check.first
    assert f"net.onnx does not compute what Net does. The first difference is in {module}." in str(check)


def without_modules(file, path):
    """Write a file anew without what it says of the modules that its operations ran in."""
    model = onnx.load(file)
    for node in model.graph.node:
        node.ClearField("name")
        node.ClearField("metadata_props")
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("has_modules", [True, False])
@pytest.mark.parametrize("change", [tanh, eps, weight, statistics, head])
def test_module_of_the_model_is_named_whichever_comes_first(case, change, has_modules, tmp_path):
    net, x, file = case
    other = copy.deepcopy(net)
    module, _ = change(other)
    file = file if has_modules else without_modules(file, tmp_path / "plain.onnx")
    passes = intus.trace(other, x), intus.read(file, x)
    for table in (intus.compare(*passes), intus.compare(*passes[::-1])):
        assert table.attrs["first"]["module"] == module, str(table)
        assert f" in {module}" in table.attrs["summary"].split("\n")[1]


def test_training_mode_is_said(case):
    net, x, file = case
    check = intus.check_export(copy.deepcopy(net).train(), file, x)
    assert not check
    assert "The model is in training mode, in which BatchNorm2d compute otherwise." in str(check)


def test_half_precision_export_agrees(case, tmp_path):
    net, x, _ = case
    half = exported(copy.deepcopy(net).half(), (x.half(),), tmp_path / "half.onnx")
    check = intus.check_export(copy.deepcopy(net).half(), half, x.half())
    assert check, str(check)


class LastStates(nn.Module):
    """An LSTM of two layers in both directions, of which the steps and the hidden states are used."""

    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(12, 10, 2, batch_first=True, bidirectional=True), nn.Linear(20, 4)

    def forward(self, x):
        steps, (hidden, _) = self.lstm(x)
        return self.out(steps), hidden


@pytest.mark.parametrize("dynamo", [True, False])
def test_state_that_nothing_uses_is_no_result_of_a_file_in_float16(dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = LastStates().eval(), torch.randn(2, 7, 12)
    file = exported(net, (x,), tmp_path / "net.onnx", dynamo=dynamo)
    half = tmp_path / "half.onnx"
    onnx.save(float16.convert_float_to_float16(onnx.load(file), keep_io_types=True), half)
    session = onnxruntime.InferenceSession(half)
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for one, expected in zip(found, net(x), strict=True):
        assert abs(one - expected.detach().numpy()).max() < 1e-3
    check = intus.check_export(net, half, x)
    assert check, str(check)
    with torch.no_grad():
        net.lstm.weight_hh_l1.mul_(1.2)
    check = intus.check_export(net, half, x)
    assert check.first["module"] == "lstm", str(check)


def test_older_exporter_agrees(case, tmp_path):
    net, x, _ = case
    check = intus.check_export(net, exported(net, (x,), tmp_path / "old.onnx", dynamo=False), x)
    assert check, str(check)
    other = copy.deepcopy(net)
    tanh(other)
    assert not intus.check_export(other, tmp_path / "old.onnx", x)


def bert():
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=50
    )
    return transformers.BertModel(config)


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50)
    )


@pytest.mark.parametrize(
    ("build", "norm"), [(bert, "encoder.layer.1.output.LayerNorm"), (gpt2, "transformer.h.1.ln_2")]
)
def test_transformers_export(build, norm, tmp_path):
    torch.manual_seed(0)
    model = build().eval()
    model.config.use_cache = False
    ids = torch.arange(12).reshape(2, 6) + 1
    file = exported(model, (ids,), tmp_path / "net.onnx")
    check = intus.check_export(model, file, ids)
    assert check, str(check)
    other = copy.deepcopy(model)
    other.get_submodule(norm).eps = 1e-1
    check = intus.check_export(other, file, ids)
    assert not check
    assert check.first["module"] == norm, str(check)


def test_inputs_are_matched_by_name(tmp_path):
    class Sub(nn.Module):
        def forward(self, left, right):
            return left - right

    x, y = torch.randn(3), torch.randn(3)
    file = exported(Sub(), (x, y), tmp_path / "sub.onnx")
    assert intus.check_export(Sub(), file, kwargs={"right": y, "left": x})
    assert intus.check_export(intus.trace(Sub(), x, y), file)


def test_quantized_file_is_named(case, tmp_path):
    """The judge knows which layer was damaged: its weights are rounded to 4 bits in the file."""
    net, x, file = case
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        if tensor.name == "head.weight":
            array = onnx.numpy_helper.to_array(tensor)
            scale = np.abs(array).max() / 7
            tensor.CopyFrom(onnx.numpy_helper.from_array((array / scale).round() * scale, tensor.name))
    onnx.save(model, tmp_path / "quantized.onnx")
    check = intus.check_export(net, tmp_path / "quantized.onnx", x)
    assert check.first["module"] == "head"
    assert any("head.weight of a and of b differ by" in why for why in check.first["why"])


def test_refusals(case, tmp_path):
    net, x, file = case
    with pytest.raises(
        InputError, match=r"net\.onnx takes 1 inputs \(image\), and the model was called with 2"
    ):
        intus.check_export(lambda picture, other: net(picture) + other.sum(), file, x, torch.ones_like(x))
    with pytest.raises(InputError, match="Leave the inputs out"):
        intus.check_export(intus.trace(net, x), file, x)
    with pytest.raises(InputError, match="no saved values"):
        intus.check_export(intus.trace(net, x, save="none"), file)
    (tmp_path / "bad.onnx").write_bytes(file.read_bytes()[:500])
    with pytest.raises(CodecError, match=r"bad\.onnx"):
        intus.check_export(net, tmp_path / "bad.onnx", x)
    with pytest.raises(InputError, match="no file"):
        intus.check_export(net, tmp_path / "none.onnx", x)


class Renamed(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, picture, factor):
        return self.net(picture, factor)


class Layout(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.conv, self.last = nn.Conv2d(4, 4, 1), last

    def forward(self, x):
        y = self.conv(x)
        return y.permute(0, 2, 3, 1) if self.last else y


@pytest.mark.parametrize("size", [4, 6])  # with 4 all shapes are equal
def test_other_layout_of_the_output_is_a_difference(size, tmp_path):
    torch.manual_seed(0)
    model, x = Layout(True), torch.randn(2, 4, size, size)
    file = exported(model, (x,), tmp_path / "last.onnx")
    assert intus.check_export(model, file, x)
    model.last = False
    assert not intus.check_export(model, file, x)


def test_changed_weight_within_the_rounding_of_half_precision_is_named(tmp_path):
    torch.manual_seed(0)
    layers = [layer for _ in range(20) for layer in (nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU())]
    model, x = nn.Sequential(*layers, nn.Linear(16, 4)).eval().half(), torch.randn(2, 16).half()
    file = exported(model, (x,), tmp_path / "half.onnx")
    assert intus.check_export(model, file, x)
    with torch.no_grad():
        model[60].weight.mul_(1.02)
    check = intus.check_export(model, file, x)
    assert not check
    assert check.first["module"] == "60"
    assert "60.weight of a and of b differ by 0.02" in str(check)


@pytest.mark.parametrize("seed", range(3))
def test_weight_of_little_effect_is_named(seed, tmp_path):
    torch.manual_seed(seed)
    model = bert().eval()
    ids = torch.arange(12).reshape(2, 6) + 1
    file = exported(model, (ids,), tmp_path / "bert.onnx")
    with torch.no_grad():
        model.encoder.layer[1].attention.self.key.weight.mul_(1.5)
    check = intus.check_export(model, file, ids)
    assert not check
    assert check.first["module"] == "encoder.layer.1.attention.self.key"


def test_parameters_of_two_changed_layers_are_named(case):
    net, x, file = case
    other = copy.deepcopy(net)
    weight(other)
    head(other)
    check = intus.check_export(other, file, x)
    assert [sentence.partition(" ")[0] for sentence in check.parameters] == [
        "blocks.0.fc.weight",
        "head.bias",
    ]


@pytest.mark.parametrize("dynamo", [True, False])
def test_change_after_a_folded_norm_is_named_there(dynamo, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    x = torch.randn(4, 3, 8, 8)
    model.train()(x)  # so that the statistics are not those of a new norm
    file = exported(model, (x,), tmp_path / "net.onnx", dynamo=dynamo)
    assert intus.check_export(model, file, x)
    other = copy.deepcopy(model)
    other[2] = nn.LeakyReLU(0.3)
    assert intus.check_export(other, file, x).first["module"] == "2"
    other = copy.deepcopy(model)
    other[1].running_mean += 0.5
    assert intus.check_export(other, file, x).first["module"] == "1"


def test_outputs_of_other_dtypes_and_numbers(tmp_path):
    class Ends(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.kind = kind

        def forward(self, x):
            y = (x * 4).round()
            return (y, y + 1) if self.kind == "two" else y.to(getattr(torch, self.kind))

    x = torch.randn(5)
    float32 = intus.trace(Ends("float32"), x)
    files = {
        kind: exported(Ends(kind), (x,), tmp_path / f"{kind}.onnx") for kind in ("int64", "float16", "two")
    }
    whole = intus.check_export(float32, files["int64"])
    assert not whole
    assert "output_1 is float32 in the model, int64 in the file." in str(whole)
    half = intus.check_export(float32, files["float16"])
    assert half
    assert half.notes == [
        "output_1 is float32 in the model, float16 in the file.",
        "The file computes in float16, the model in a higher precision: a difference that the rounding of "
        "float16 explains is not seen.",
        "Not run on other inputs: a trace is of a pass that ran already.",
    ]
    two = intus.check_export(float32, files["two"])
    assert two.verdict == "differs"
    assert "Ends (a) has 1 output (output_1), two.onnx (b) has 2 outputs (output_1" in str(two)
    assert not intus.check_export(intus.trace(Ends("two"), x), files["float16"])


def test_input_without_axes(tmp_path):
    class Scaled(nn.Module):
        def forward(self, x, factor):
            return x * factor

    x, factor = torch.randn(3), torch.tensor(2.0)
    assert intus.check_export(Scaled(), exported(Scaled(), (x, factor), tmp_path / "s.onnx"), x, factor)


def test_half_precision_file_of_a_float32_model(case, tmp_path):
    net, x, _ = case
    file = exported(copy.deepcopy(net).half(), (x.half(),), tmp_path / "half.onnx")
    check = intus.check_export(net, file, x)
    assert check, str(check)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x):
        left, right = self.left(x), self.right(x)
        return left, right, *(left + right).split(2, dim=1)


@pytest.fixture(scope="module", params=[True, False], ids=["dynamo", "older exporter"])
def heads(request, tmp_path_factory):
    """Return the model, its inputs and its file."""
    torch.manual_seed(0)
    model, x, path = Heads().eval(), torch.randn(2, 3), tmp_path_factory.mktemp("heads") / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), path, dynamo=request.param)
    return model, x, path


@pytest.mark.parametrize("places", list(itertools.permutations(range(4))), ids=str)
def test_order_of_outputs(heads, places, tmp_path):
    model, x, path = heads
    file, path = onnx.load(path), tmp_path / path.name
    outputs = list(file.graph.output)
    del file.graph.output[:]
    file.graph.output.extend(outputs[place] for place in places)
    onnx.save(file, path)
    check = intus.check_export(model, path, x)
    swapped = [
        f"Output {was + 1} of Heads is output {now + 1} of net.onnx."
        for was, now in enumerate(places.index(place) for place in range(4))
        if was != now
    ]
    assert check.verdict == ("differs" if swapped else "equal")
    assert [line for line in str(check).splitlines() if " is output " in line] == swapped


class CalledTwice(nn.Module):
    """One layer called on two branches, which the exporter's scopes put side by side."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.shared = nn.Linear(4, 8), nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, x, y):
        one = self.shared(torch.tanh(self.a(x)))
        return one * self.shared(torch.relu(self.b(y)))


@pytest.mark.parametrize("dynamo", [True, False])
def test_calls_of_a_module_are_paired_by_what_they_were_called_on(dynamo, tmp_path):
    torch.manual_seed(0)
    net, args = CalledTwice().eval(), (torch.randn(3, 4), torch.randn(3, 6))
    path = exported(net, args, tmp_path / "twice.onnx", dynamo=dynamo)
    with torch.no_grad():
        net.shared.weight *= 1.001
    table = intus.compare(intus.trace(net, *args), intus.read(path, *args))
    calls = table[table.module_a.str.startswith("shared")]
    assert len(calls) == 2
    assert (calls.relative < 0.01).all(), str(table)
    assert table.attrs["first"]["module"] == "shared:1"
