"""``intus compare`` of a model with its export."""

import subprocess
import sys
import warnings

import torch

MODEL = """
import torch
from torch import nn
def net(eps=1e-5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8, eps=eps), nn.Linear(8, 2)).eval()
good, bad = net(), net(0.01)
"""


def run(folder, *arguments):
    command = [sys.executable, "-m", "intus", "compare", *arguments, "--inputs", "randn(2, 4)"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_compare_model_with_its_export(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    names = {}
    exec(MODEL, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(
            names["good"], (torch.randn(2, 4),), tmp_path / "net.onnx", dynamo=True, verbose=False
        )
    good = run(tmp_path, "net.py:good", "net.onnx")
    assert (good.returncode, good.stderr) == (0, "")
    assert "net.onnx computes what Sequential does" in good.stdout
    for order in (("net.py:bad", "net.onnx"), ("net.onnx", "net.py:bad")):
        bad = run(tmp_path, *order)
        assert (bad.returncode, bad.stderr) == (1, "")
        assert "The first difference is in 1." in bad.stdout
        assert "eps=0.01" in bad.stdout
    two = run(tmp_path, "net.py:good", "net.py:bad")
    assert two.returncode == 1
    assert "They diverge at layer_norm_1_2 in 1" in two.stdout
    assert run(tmp_path, "net.py:good", "net.py:good").returncode == 0
    assert "no 'none'" in run(tmp_path, "net.py:none", "net.onnx").stderr
