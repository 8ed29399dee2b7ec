"""``check_export`` of quantized files: only the quantization differs, or the planted fault is named."""

import copy
import logging
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from torch import nn

import intus


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.act, self.fc2 = (
            nn.Linear(16, 32),
            nn.LayerNorm(32),
            nn.GELU(),
            nn.Linear(32, 8),
        )

    def forward(self, x):
        return self.fc2(self.act(self.norm(self.fc1(x))))


class Convolutions(nn.Module):
    """A network in the way of torchvision's, without batch norm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.head(torch.relu(x + self.block(x)).mean((2, 3)))


class Attention(nn.Module):
    """A block in the way of transformers' GPT-2."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = torch.softmax(q @ k.transpose(1, 2) / 4, -1)
        return x + self.out(scores @ v)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(12, 20), nn.Linear(12, 20), nn.Linear(20, 12)
        self.norm = nn.RMSNorm(12)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


MODELS = {
    "mlp": (Mlp, (4, 16)),
    "convolutions": (Convolutions, (2, 3, 16, 16)),
    "attention": (Attention, (2, 5, 16)),
    "gated": (Gated, (3, 6, 12)),
}


class Data(CalibrationDataReader):
    def __init__(self, shape):
        generator = np.random.default_rng(0)
        arrays = [generator.normal(size=shape).astype(np.float32) for _ in range(16)]
        self._rest = iter([{"x": array} for array in arrays])

    def get_next(self):
        return next(self._rest, None)


@pytest.fixture(scope="module", params=[(name, way) for name in MODELS for way in ("dynamic", "static")])
def quantized(request, tmp_path_factory):
    name, way = request.param
    folder = tmp_path_factory.mktemp(f"{name}{way}")
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(model, (x,), folder / "net.onnx", dynamo=True, verbose=False, external_data=False)
        if way == "dynamic":
            quantize_dynamic(folder / "net.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
        else:
            quantize_static(
                folder / "net.onnx", folder / "int8.onnx", Data(shape), quant_format=QuantFormat.QDQ
            )
    logging.disable(logging.NOTSET)
    return model, folder / "int8.onnx", x


def change(file, name, factor, path):
    """Write a copy of a file with an initializer times a factor."""
    changed = onnx.ModelProto.FromString(file.SerializeToString())
    tensor = next(one for one in changed.graph.initializer if one.name == name)
    wrong = np.asarray(onnx.numpy_helper.to_array(tensor) * np.float32(factor))
    tensor.CopyFrom(onnx.numpy_helper.from_array(wrong, name))
    onnx.save(changed, path)


def test_quantized_file(quantized):
    model, path, x = quantized
    assert intus.check_export(model, path.with_name("net.onnx"), x).verdict == "equal"
    check = intus.check_export(model, path, x)
    assert check.verdict == "quantized", str(check)
    assert not check
    largest = max(check.quantization.differences.values())
    assert 0 < largest < 0.2
    assert "each within the rounding that its scale states" in str(check)


def test_trace_says_that_a_file_is_quantized(quantized):
    _, path, x = quantized
    for trace in (intus.read(path), intus.read(path, x)):
        assert "Note: The file is quantized: weights are whole numbers" in trace.summary()
    assert "quantized" not in intus.read(path.with_name("net.onnx")).summary()


def test_changed_weight_is_named(quantized):
    model, path, x = quantized
    for name in intus.check_export(model, path, x).quantization.weights:
        newer = copy.deepcopy(model)
        weight = newer.get_parameter(name)
        if weight.dim() < 2:
            continue
        with torch.no_grad():
            weight.view(-1)[weight.abs().argmax()] *= 1.1
        check = intus.check_export(newer, path, x)
        assert check.verdict == "differs"
        assert f"{name} is not what" in str(check)
        assert "1 of" in str(check)


def test_wrong_scale_is_named(quantized):
    model, path, x = quantized
    file = onnx.load(path)
    weights = [
        one.name for one in file.graph.initializer if one.name.endswith("_quantized") and len(one.dims) > 1
    ]
    assert weights
    for weight in weights[:3]:
        change(file, f"{weight.removesuffix('_quantized')}_scale", 1.05, path.with_name("wrong.onnx"))
        check = intus.check_export(model, path.with_name("wrong.onnx"), x)
        assert check.verdict == "differs"
        assert f"is not what {weight} holds" in check.quantization.faults[0]


def test_wrong_operation_is_named(quantized):
    model, path, x = quantized
    newer = copy.deepcopy(model)
    changed = ""
    for name, module in newer.named_modules():
        if isinstance(module, nn.LayerNorm) and not changed:
            module.eps, changed = 1e-2, name
        elif isinstance(module, nn.ReLU) and not changed:
            newer.block[1], changed = nn.LeakyReLU(0.02), name
        elif isinstance(module, nn.RMSNorm) and not changed:
            module.eps, changed = 1e-2, name
    check = intus.check_export(newer, path, x)
    assert check.verdict == "differs"
    # onnxruntime leaves out a ReLU before a range that begins at 0: then it is named with what is before it
    assert f"Without rounding the first difference is in {changed.split('.')[0]}" in str(check)


def test_range_that_does_not_fit_is_named(quantized):
    model, path, x = quantized
    file = onnx.load(path)
    node = next((node for node in file.graph.node if node.op_type == "QuantizeLinear"), None)
    for factor in () if node is None else (0.2, 10):
        change(file, node.input[1], factor, path.with_name("wrong.onnx"))
        check = intus.check_export(model, path.with_name("wrong.onnx"), x)
        assert "range" in " ".join(check.quantization.ranges)
        assert check.quantization.ranges[0] in str(check)


def test_folded_batch_norm_is_compared(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    with torch.no_grad():
        model[1].running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False, input_names=["x"])
    logging.disable(logging.WARNING)
    quantize_static(
        tmp_path / "net.onnx", tmp_path / "int8.onnx", Data((2, 3, 8, 8)), quant_format=QuantFormat.QDQ
    )
    logging.disable(logging.NOTSET)
    assert intus.check_export(model, tmp_path / "int8.onnx", x).verdict == "quantized"


def test_first_difference_is_not_that_of_rounding(quantized):
    model, path, x = quantized
    assert intus.check_export(model, path, x).first is None
    for name, param in list(model.named_parameters())[1::2]:
        newer = copy.deepcopy(model)
        with torch.no_grad():
            newer.get_parameter(name).view(-1)[param.abs().argmax()] += 0.3
        check = intus.check_export(newer, path, x)
        assert check.verdict == "differs", (name, str(check))
        assert check.first["module"] == name.rpartition(".")[0], (name, str(check))
        assert "diverge" not in str(check)


class Normed(nn.Sequential):
    """A network with batch norms, which the exporter folds into the convolutions."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(288, 5),
        )
        for norm in (self[1], self[4]):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.normal_(norm.bias)
            nn.init.uniform_(norm.weight, 0.5, 2)


class Words(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.table, self.fc = nn.Embedding(50, 32), nn.Linear(32, 32)
        self.out = nn.Linear(32, 50, bias=False)
        if tied:
            self.out.weight = self.table.weight

    def forward(self, ids):
        return self.out(torch.relu(self.fc(self.table(ids))))


def export(model, x, path, dynamo):
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(model, (x,), path, dynamo=dynamo, verbose=False, input_names=["x"])
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("dynamo", [True, False])
def test_batch_norm_that_is_folded(dynamo, tmp_path):
    torch.manual_seed(0)
    model, x = Normed().eval(), torch.randn(2, 3, 8, 8)
    export(model, x, tmp_path / "net.onnx", dynamo)
    data = Data((2, 3, 8, 8))
    quantize_static(tmp_path / "net.onnx", tmp_path / "int8.onnx", data, quant_format=QuantFormat.QDQ)
    check = intus.check_export(model, tmp_path / "int8.onnx", x)
    assert check.verdict == "quantized", str(check)
    for name in ("1.running_mean", "4.running_var", "3.weight", "4.bias", "7.weight"):
        newer = copy.deepcopy(model)
        newer.state_dict()[name].mul_(1.3)
        check = intus.check_export(newer, tmp_path / "int8.onnx", x)
        assert check.verdict != "quantized", name
        if check.first is not None:  # a layer and the norm folded into it are one in the file
            module = name.partition(".")[0]
            assert check.first["module"] in {"1": ("0", "1"), "4": ("3", "4"), "3": "34"}.get(module, module)


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_embedding_of_whole_numbers(tied, dynamo, tmp_path):
    torch.manual_seed(0)
    model, ids = Words(tied).eval(), torch.randint(0, 50, (2, 7))
    export(model, ids, tmp_path / "net.onnx", dynamo)
    quantize_dynamic(tmp_path / "net.onnx", tmp_path / "int8.onnx")
    check = intus.check_export(model, tmp_path / "int8.onnx", ids)
    assert check.verdict == "quantized", str(check)
    newer = copy.deepcopy(model)
    with torch.no_grad():
        newer.table.weight[3] += 0.5
    check = intus.check_export(newer, tmp_path / "int8.onnx", ids)
    assert check.verdict == "differs"
    assert check.first["module"] == "table"
