"""Compare outputs of modules in ONNX files, which do not state them, with what torch's modules return."""

import logging
import warnings

import pytest
import torch
import transformer_outputs
from returned_outputs import counted, generated, judged
from torch import nn

import intus


def exported(model, args, path, dynamo):
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(model, args, path, dynamo=dynamo, verbose=False)
    logging.disable(logging.NOTSET)
    return intus.read(path, *args)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, mask):
        allowed = mask[:, None, :].to(torch.float32) * -1e4
        return self.out(torch.softmax(self.query(x) @ x.transpose(1, 2) + allowed, -1) @ x)


class Layers(nn.Module):
    """Layers that compute a mask alike, which the newer exporter computes in the first alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Attention() for _ in range(3))

    def forward(self, x, mask):
        for layer in self.layers:
            x = x + layer(x, mask)
        return x


def test_a_mask_that_the_exporter_shares_is_not_the_output_of_a_layer(tmp_path):
    torch.manual_seed(0)
    model, args = Layers().eval(), (torch.randn(2, 5, 8), torch.randint(0, 2, (2, 5)))
    t = exported(model, args, tmp_path / "net.onnx", True)
    leaving = {child.module for op in t.find(inside="layers.0") for child in op.children}
    assert any(module and module.startswith("layers.1") for module in leaving)  # the exporter shares it
    found = judged(t, model, args)
    assert set(found["first"]) == {address for address, _ in model.named_modules() if address != "layers"} - {
        ""
    }


def test_the_output_of_a_convolution_with_a_folded_norm_is_not_known(tmp_path):
    model, args = (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(),
        (torch.randn(1, 3, 8, 8),),
    )
    model[1].running_mean.normal_()
    found = judged(exported(model, args, tmp_path / "net.onnx", False), model, args)
    assert (found["first"], found["unknown"], found["absent"]) == (["2"], ["0"], ["1"])


@pytest.mark.parametrize(
    ("dynamo", "seed"), [*((False, seed) for seed in range(8)), *((True, seed) for seed in range(2))]
)
def test_generated_modules_have_no_wrong_output(dynamo, seed, tmp_path):
    model, args = generated(seed)
    found = judged(exported(model, args, tmp_path / "net.onnx", dynamo), model, args)
    assert not found["wrong"]
    assert counted(found)["first"] > counted(found)["unknown"]


@pytest.mark.long
@pytest.mark.parametrize("dynamo", [False, True], ids=["older", "newer"])
@pytest.mark.parametrize("name", transformer_outputs.NAMES)
def test_modules_of_transformers_have_no_wrong_output(name, dynamo, tmp_path):
    if (name, dynamo) in (("llama", False), ("t5", True), ("swin", True)):
        pytest.skip("torch's exporter refuses it")
    model, args = transformer_outputs.made(name)
    found = judged(exported(model, args, tmp_path / "net.onnx", dynamo), model, args)
    assert not found["wrong"]
    assert counted(found)["first"] > 18
    assert counted(found)["unknown"] <= 2
