"""``check_export`` names a module that one side lacks and that changes the shape, not the layer after it."""

import copy
import warnings

import pytest
import torch
from torch import nn

import intus


def exported(net, x, path, dynamo):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        options = {"verbose": False} if dynamo else {}
        torch.onnx.export(net.eval(), (x,), path, dynamo=dynamo, **options)
    return path


#: Modules that change the shape, with the beginning of the labels of their operations in model and file.
MODULES = {
    "max pool": (lambda: nn.MaxPool2d(2), ("max_pool",)),
    "average pool": (lambda: nn.AvgPool2d(2), ("avg_pool", "average_pool")),
    "stretched": (lambda: nn.Upsample(scale_factor=2), ("interpolate", "resize")),
    "adaptive pool": (lambda: nn.AdaptiveAvgPool2d(4), ("adaptive_avg_pool", "average_pool")),
}


def network(module, place):
    """Return a network of three convolutions with a module at one of its places."""
    layers = {
        "first": nn.Conv2d(3, 4, 3, padding=1),
        "act": nn.ReLU(),
        "drop": nn.Dropout(0.3),
        "second": nn.Conv2d(4, 4, 3, padding=1),
        "norm": nn.BatchNorm2d(4),
        "bend": nn.GELU(),
        "third": nn.Conv2d(4, 2, 3, padding=1),
    }
    names = [*layers]
    names.insert(names.index(place), "p")
    net = nn.Sequential()
    for name in names:
        net.add_module(name, layers.get(name) or module())
    with torch.no_grad():
        layers["norm"].running_mean.normal_()
    return net.eval()


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("place", ["first", "drop", "second", "bend"])
@pytest.mark.parametrize("name", MODULES)
def test_module_that_changes_the_shape_is_named_where_it_is_missing(name, place, dynamo, tmp_path):
    module, labels = MODULES[name]
    torch.manual_seed(0)
    net, x = network(module, place), torch.randn(1, 3, 8, 8)
    without = copy.deepcopy(net)
    without.p = nn.Identity()
    for model, file in ((net, without), (without, net)):
        check = intus.check_export(model, exported(file, x, tmp_path / "net.onnx", dynamo), x)
        assert check.verdict == "differs"
        first = check.first
        assert first["module"] in (("p",) if model is net else ("p", "")), str(check)
        assert (first["a"] or first["b"]).startswith(labels), str(check)
        assert any(f"ran only in {'a' if model is net else 'b'}" in why for why in first["why"]), first
    assert intus.check_export(net, exported(net, x, tmp_path / "net.onnx", dynamo), x).verdict == "equal"


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize(
    "before", [nn.Dropout(0.3), nn.Identity(), nn.MaxPool2d(1)], ids=["drop", "none", "one"]
)
def test_other_stride_is_named_behind_a_step_that_changes_nothing(before, dynamo, tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), before, nn.Conv2d(4, 2, 3, padding=1)).eval()
    x, other = torch.randn(1, 3, 8, 8), copy.deepcopy(net)
    other[2], other[3].stride = nn.Identity(), (2, 2)
    check = intus.check_export(net, exported(other, x, tmp_path / "net.onnx", dynamo), x)
    assert check.verdict == "differs"
    assert check.first["module"] == "3", str(check)
    assert "stride is (1, 1) in a, [2, 2] in b" in check.first["why"]
