"""``check_export`` of files in which a batch norm is folded into the layer before it.

The judges are the model and onnxruntime on other inputs: a weight that is multiplied with zeros on these is
another nevertheless.
"""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import intus

LAYERS = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, bias=False), (2, 4, 7, 7)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2), (2, 4, 7, 7)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 2), (2, 4, 5, 5)),
    "transposed in groups": (lambda: nn.ConvTranspose2d(4, 6, 2, groups=2), (2, 4, 5, 5)),
}


class Net(nn.Module):
    """A layer whose first channel is zero on inputs that are not negative."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        dims = layer.weight.ndim - 2
        self.norm = (nn.BatchNorm1d if dims == 1 else nn.BatchNorm2d)(6)
        for value, low, high in (
            (self.norm.running_mean, -1, 1),
            (self.norm.running_var, 0.5, 2),
            (self.norm.weight.data, 0.5, 2),
            (self.norm.bias.data, -1, 1),
        ):
            value.uniform_(low, high)
        self.register_buffer("sign", torch.tensor([-1.0, 1, 1, 1]).reshape(4, *[1] * dims))

    def forward(self, x):
        return self.norm(self.layer(torch.relu(x * self.sign)))


def exported(name, dynamo, path):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    net, x = Net(make()).eval(), torch.rand(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), path, dynamo=dynamo, verbose=False)
    return net, x


def outputs(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


#: The older exporter folds no norm into a transposed convolution.
CASES = [(name, dynamo) for name in LAYERS for dynamo in (True, False) if dynamo or "transposed" not in name]


@pytest.mark.parametrize(("name", "dynamo"), CASES)
def test_folded_weights_are_compared_exactly(name, dynamo, tmp_path):
    path = tmp_path / "net.onnx"
    net, x = exported(name, dynamo, path)
    assert "batch_normalization" not in intus.read(path).graph.types
    check = intus.check_export(net, path, x)
    assert check.verdict == "equal", str(check)
    assert not any("by their effect" in note for note in check.notes)
    model = onnx.load(path)
    weight = max(model.graph.initializer, key=lambda one: np.prod(one.dims))
    changed = onnx.numpy_helper.to_array(weight).copy()
    changed.reshape(-1)[1] += 0.1  # of the channel that is zero
    weight.CopyFrom(onnx.numpy_helper.from_array(changed, weight.name))
    onnx.save(model, path)
    with torch.no_grad():
        same, other = (np.abs(outputs(path, one) - net(one).numpy()).max() for one in (x, -x))
    assert same < 1e-5 < 1e-3 < other
    check = intus.check_export(net, path, x)
    assert check.verdict == "differs", str(check)
    assert check.first["module"] == "layer"
    assert check.parameters[0].startswith("layer.weight"), check.parameters
    assert "into which they are folded" in check.parameters[0]
