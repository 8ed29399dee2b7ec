"""ONNX files are read, shown and compared where PyTorch is not installed."""

import subprocess
import sys

import onnx
from onnx import TensorProto, helper

CODE = """
import sys; sys.modules["torch"] = None
import numpy as np, intus
from intus.cli import main
x = np.ones((2, 3), np.float32)
trace = intus.read("net.onnx", x)
assert np.allclose(trace["act"].value, np.tanh(-x))
assert intus.compare(trace, intus.read("net.onnx", x)).agree
changed = intus.compare(trace, intus.read("sign.onnx", x))
assert not changed.agree
assert changed.attrs["first"]["module"] == "neg", changed.attrs["first"]
print(changed)
intus.view(trace, beside=intus.read("sign.onnx", x)).save("both.html")
for subject in ("net.onnx", trace, trace.graph):
    assert len(intus.view(subject).graph) == 2
intus.view("net.onnx").save("net.html")
for ending in ("svg", "html", "json"):
    assert main(["view", "net.onnx", "--no-open", "-o", f"cli.{ending}"]) == 0
"""


def test_read_view_and_compare(tmp_path):
    def vector(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3])

    for file, operator in (("net", "Neg"), ("sign", "Sign")):
        nodes = [
            helper.make_node(operator, ["x"], ["h"], name="/neg/Neg"),
            helper.make_node("Tanh", ["h"], ["y"], name="/act/Tanh"),
        ]
        graph = helper.make_graph(nodes, "net", [vector("x")], [vector("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save_model(model, tmp_path / f"{file}.onnx")
    done = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cli.svg").read_text().count("<svg") == 1
