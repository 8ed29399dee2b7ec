"""``intus compare`` of a model with its export."""

import re
import runpy
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from intus import check_export, load, trace
from intus.cli import main

MODEL = """
import torch
from torch import nn
def net(eps=1e-5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8, eps=eps), nn.Linear(8, 2)).eval()
good, bad = net(), net(0.01)
"""


def written(*arguments, inputs="randn(2, 4)"):
    return ["compare", *arguments, *([] if inputs is None else ["--inputs", inputs])]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command in the folder of the test, without a process that imports torch each time."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **inputs):
        command, out, err = written(*arguments, **inputs), StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(command)
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    return run


def test_compare_command_in_a_process_of_its_own(tmp_path, run):
    (tmp_path / "net.py").write_text(MODEL)
    command = written("net.py:good", "net.py:bad")
    alone = subprocess.run(
        [sys.executable, "-m", "intus", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    here = run("net.py:good", "net.py:bad")
    assert (alone.returncode, alone.stdout, alone.stderr) == (1, here.stdout, "")


def test_compare_model_with_its_export(tmp_path, run):
    (tmp_path / "net.py").write_text(MODEL)
    names = {}
    exec(MODEL, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(
            names["good"], (torch.randn(2, 4),), tmp_path / "net.onnx", dynamo=True, verbose=False
        )
    good = run("net.py:good", "net.onnx")
    assert (good.returncode, good.stderr) == (0, "")
    assert "net.onnx computes what Sequential does" in good.stdout
    for order in (("net.py:bad", "net.onnx"), ("net.onnx", "net.py:bad")):
        bad = run(*order)
        assert (bad.returncode, bad.stderr) == (1, "")
        assert "The first difference is in 1." in bad.stdout
        assert "eps=0.01" in bad.stdout
    two = run("net.py:good", "net.py:bad")
    assert two.returncode == 1
    assert "They diverge at layer_norm_1_2 in 1" in two.stdout
    assert run("net.py:good", "net.py:good").returncode == 0
    assert "no 'none'" in run("net.py:none", "net.onnx").stderr
    for subjects in (("net.py:good", "net.onnx"), ("net.onnx", "net.onnx")):
        asked = run(*subjects, inputs=None)
        assert asked.returncode == 1
        assert 'net.onnx takes input: write a value for each, such as --inputs "randn(2, 4)".' in asked.stderr


def test_dtypes_and_open_lengths_of_suggested_inputs(tmp_path, run):
    """The suggestion of the message can be passed as it is."""
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 3]),
        helper.make_tensor_value_info("half", TensorProto.FLOAT16, [2, 3]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
    ]
    nodes = [
        helper.make_node("Cast", ["ids"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["half"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Sum", ["a", "b", "x"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save_model(model, tmp_path / "net.onnx")
    asked = run("net.onnx", "net.onnx", inputs=None)
    suggested = re.search(r'--inputs "(.*)"\.', asked.stderr)[1]
    assert suggested == "ones((2, 3), dtype=int64), ones((2, 3), dtype=float16), randn(3)"
    assert run("net.onnx", "net.onnx", inputs=suggested).returncode == 0


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")
def test_files_without_inputs_have_nothing_to_compare(tmp_path, run):
    model = torch.jit.script(torch.nn.Linear(2, 2))
    torch.jit.save(model, tmp_path / "net.pt")
    found = run("net.pt", "net.pt", inputs=None)
    assert "Trace a has no values to compare. Read the file with inputs: read(path, x)." in found.stderr


RECURRENT = """
import torch
from torch import nn
class Tag(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.fc, self.dead = nn.Linear(12, 4), None
    def forward(self, x):
        if self.dead is not None:
            self.dead(x).sum().item()  # Python may compute otherwise with what it read
        return self.fc(self.lstm(x)[0][:, -1])
good, bad, more = Tag(), Tag(), Tag()
bad.lstm.weight_hh_l0_reverse.data.zero_()
more.dead = nn.Linear(8, 2)
"""


def test_exit_code_is_not_0_where_a_module_differs_or_was_not_compared(tmp_path, run):
    (tmp_path / "net.py").write_text(RECURRENT)
    names = {}
    exec(RECURRENT, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(
            names["good"].eval(), (torch.randn(2, 7, 8),), tmp_path / "net.onnx", dynamo=True, verbose=False
        )
    assert run("net.py:good", "net.onnx", inputs="randn(2, 7, 8)").returncode == 0
    bad = run("net.py:bad", "net.onnx", inputs="randn(2, 7, 8)")
    assert bad.returncode == 1
    assert "The first difference is in lstm." in bad.stdout
    more = run("net.py:more", "net.onnx", inputs="randn(2, 7, 8)")
    assert more.returncode == 1
    assert "Not proven that net.onnx computes what Tag does" in more.stdout


RIGHT_AND_WRONG = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)
    def forward(self, x):
        return self.layer(x) / x.shape[0]
class ForThree(Net):
    def forward(self, x):
        return self.layer(x) / 3
class Branch(Net):
    def forward(self, x):
        y = self.layer(x)
        return y.relu() if x.sum() > 100 else y
class Unbounded(Net):
    def forward(self, x):
        return self.layer(x).clamp(-1000, 1000)
class Named(Net):
    def forward(self, x, scale):
        return self.layer(x) * scale
class Twice(Net):
    def forward(self, x, y):
        return self.layer(x) - y
class Raises(Net):
    def forward(self, x):
        raise ValueError("this one raises")
"""
CASES = {
    "equal": ("Net", "Net", "randn(3, 4)"),
    "equal, a keyword": ("Named", "Named", "dict(x=randn(3, 4), scale=rand(3))"),
    "a number of rows that the file fixed": ("Net", "ForThree", "randn(3, 4)"),
    "a branch that the file fixed": ("Branch", "Branch", "randn(3, 4)"),
    "a bound that the file lacks": ("Unbounded", "ForThree", "randn(3, 4)"),
    "a difference": ("Unbounded", "Net", "randn(3, 4)"),
}


def export(model, *args, kwargs=None, dynamic_axes=None):
    """Export with the older exporter, as the file that it writes is soon there."""
    names = ["x", "y"][: len(args)] or [*kwargs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            args,
            "net.onnx",
            kwargs=kwargs,
            dynamo=False,
            input_names=names,
            dynamic_axes=dynamic_axes,
        )


@pytest.mark.parametrize("case", CASES)
def test_command_says_what_check_export_does(case, tmp_path, run):
    own, exported, expression = CASES[case]
    (tmp_path / "net.py").write_text(RIGHT_AND_WRONG)
    names = runpy.run_path("net.py")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        given = eval(expression, {**vars(torch), "dict": dict})
    args, kwargs = ((), given) if isinstance(given, dict) else ((given,), {})
    export(names[exported](), *args, kwargs=kwargs, dynamic_axes={"x": {0: "rows"}} if args else None)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        check = check_export(names[own]().eval(), "net.onnx", *args, **kwargs)
    assert (check.verdict == "equal") == case.startswith("equal"), check
    for order in ((f"net.py:{own}", "net.onnx"), ("net.onnx", f"net.py:{own}")):
        found = run(*order, inputs=expression)
        assert (found.returncode, found.stdout, found.stderr) == (0 if check else 1, f"{check}\n", "")


def test_command_says_where_a_model_raises_and_what_one_takes(tmp_path, run):
    (tmp_path / "net.py").write_text(RIGHT_AND_WRONG)
    export(runpy.run_path("net.py")["Net"](), torch.randn(3, 4))
    raised = run("net.py:Raises", "net.onnx", inputs="randn(3, 4)")
    assert (raised.returncode, raised.stdout) == (1, "")
    assert "net.py:Raises" in raised.stderr
    assert "this one raises" in raised.stderr
    wrong = run("net.py:Net", "net.onnx", inputs="randn(3, 4), 1")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "It takes (x)" in wrong.stderr


def test_one_tensor_in_a_tuple_twice_is_that_tensor_twice(tmp_path, run):
    """The file has two inputs, and the trace of the model would have one."""
    (tmp_path / "net.py").write_text(RIGHT_AND_WRONG)
    model, x = runpy.run_path("net.py")["Twice"]().eval(), torch.randn(3, 3)
    model.layer = torch.nn.Linear(3, 3)
    export(model, x, torch.randn(3, 3))
    assert check_export(model, "net.onnx", (x, x)).verdict == check_export(model, "net.onnx", x, x).verdict


def test_saved_trace_with_a_file_is_compared_on_its_inputs_alone(tmp_path, run):
    (tmp_path / "net.py").write_text(RIGHT_AND_WRONG)
    model, x = runpy.run_path("net.py")["Net"]().eval(), torch.randn(3, 4)
    export(model, x)
    trace(model, x).save("net.trace")
    for order in (("net.trace", "net.onnx"), ("net.onnx", "net.trace")):
        found = run(*order, inputs=None)
        assert found.stdout == f"{check_export(load('net.trace'), 'net.onnx')}\n"
        assert "Not run on other inputs: a trace is of a pass that ran already." in found.stdout
        refused = run(*order)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "net.onnx is run on the inputs of the trace net.trace. Leave it out." in refused.stderr
