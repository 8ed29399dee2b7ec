"""``check_export`` does not say "equal" of what a file computes on these inputs alone.

The judge of every case is onnxruntime on other inputs, on which the file does not return what the model does.
"""

import contextlib
import io
import logging
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import intus

ROWS = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
ONES = torch.ones(2, 6)
MASK = (ROWS > 0).float()
BATCH = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}


class Net(nn.Module):
    def __init__(self, step):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.step = nn.Linear(6, 6), step

    def forward(self, *x):
        return self.step(self.linear, *x)


def export(step, x, path, dynamo=False, **options):
    net = Net(step).eval()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        logging.disable(logging.WARNING)
        try:
            if path.suffix == ".pt2":
                torch.export.save(torch.export.export(net, x), path)  # which takes no dynamic_axes
            else:
                verbose = {"verbose": False} if dynamo else {}
                torch.onnx.export(net, x, path, dynamo=dynamo, **verbose, **options)
        finally:
            logging.disable(logging.NOTSET)
    return path


def is_same(net, path, x):
    """Return whether onnxruntime, or torch of its own files, computes what a model does."""
    expected = net(*x).detach().numpy()
    if path.suffix == ".pt2":
        found = torch.export.load(path).module()(*x).detach().numpy()
        return np.allclose(found, expected, rtol=1e-4, atol=1e-5)
    session = onnxruntime.InferenceSession(path)
    given = {one.name: value.numpy() for one, value in zip(session.get_inputs(), x, strict=False)}
    try:
        (found,) = session.run(None, given)
    except Exception:  # of a file that takes no such inputs
        return False
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-4, atol=1e-5)


def gelu_of_tanh(x):
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


#: The step of the model, that of the file, the inputs, others, and what is said.
OTHERS = {
    # Before, it was "equal": the formulas differ by less than 1e-3.
    "gelu": (
        lambda f, x: F.gelu(x),
        lambda f, x: gelu_of_tanh(x),
        (ROWS / 100,),
        (ROWS * 2,),
        "where they are given numbers near 1",
    ),
    "hardsigmoid": (
        lambda f, x: F.hardsigmoid(f(x)),
        lambda f, x: f(x) / 6 + 0.5,
        (ROWS,),
        (ROWS * 20,),
        "where they are given larger numbers",
    ),
    "hardswish": (
        lambda f, x: F.hardswish(f(x)),
        lambda f, x: f(x) * (f(x) / 6 + 0.5),
        (ROWS,),
        (ROWS * 20,),
        "where they are given larger numbers",
    ),
    "sort of what is in order": (
        lambda f, x: x.sort(-1)[0],
        lambda f, x: x * 1,
        (torch.arange(18.0).view(3, 6),),
        (ROWS[:1].repeat(3, 1),),
        "where they are given negative or shuffled numbers",
    ),
    "mean of abs": (
        lambda f, x: x.abs().mean(-1),
        lambda f, x: x.mean(-1),
        (ROWS.abs(),),
        (ROWS,),
        "abs_1_1 ran only in the model",
    ),
    "padding of a blank border": (
        lambda f, x: F.pad(x, (1, 1, 1, 1)),
        lambda f, x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
        (F.pad(torch.ones(1, 1, 4, 4), (2, 2, 2, 2)),),
        (torch.ones(1, 1, 8, 8),),
        "where they are given",
    ),
    "mask of the softmax": (
        lambda f, x, m: f(x).masked_fill(m == 0, -1e9).softmax(-1),
        lambda f, x, m: f(x).softmax(-1),
        (ROWS, ONES),
        (ROWS, MASK),
        "an input that the model computes with and the file does not",
    ),
    "summand of zeros": (
        lambda f, x, y: x * 2 + y,
        lambda f, x, y: x * 2,
        (ROWS, ONES * 0),
        (ROWS, ROWS),
        "an input that the model computes with and the file does not",
    ),
    "branch": (
        lambda f, x: f(x) * 2 if f(x).sum() > 0 else f(x) - 1,
        None,
        (ROWS + 3,),
        (ROWS - 3,),
        "the file does not return what the model does",
    ),
    "number that Python read": (
        lambda f, x: f(x) / float(f(x).abs().max()),
        None,
        (ROWS,),
        (ROWS * 9,),
        "the file does not return what the model does",
    ),
    "index that Python read": (
        lambda f, x: f(x)[int(x[:, 0].argmax())],
        None,
        (torch.eye(6)[:3],),
        (torch.eye(6)[:3].flip(0),),
        "The model reads the value of argmax_1",
    ),
    "size of the batch": (
        lambda f, x: f(x).sum(0) / x.shape[0],
        lambda f, x: f(x).sum(0) / 2.0,
        (ROWS,),
        (ROWS.repeat(3, 1),),
        "for 6 in place of 2",
    ),
    "rows of the batch": (
        lambda f, x: f(x) * 2,
        lambda f, x: f(x)[:2] * 2,
        (ROWS,),
        (ROWS.repeat(3, 1),),
        "for 6 in place of 2",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_difference_on_other_inputs_is_not_proven(case, tmp_path):
    step, other, x, others, said = OTHERS[case]
    options = BATCH if "batch" in case else {}
    # The older exporter leaves inputs out that it does not use, so that the file takes others.
    path = export(other or step, x, tmp_path / "net.onnx", dynamo=len(x) > 1, **options)
    net = Net(step).eval()
    assert is_same(net, path, x)
    assert not is_same(net, path, others)
    check = intus.check_export(net, path, *x)
    assert check.verdict == "not proven"
    assert said in str(check)


def without_gradients(f, x):
    with torch.no_grad():
        y = f(x) / 6 + 0.5
    return y * 2


def in_steps(count):
    def step(f, x):
        y = f(x) / 6 / count
        return sum([y] * (count - 1), y) + 0.5

    return step


#: The same in a program of torch.export; the judge is torch, which runs the file.
OF_PROGRAMS = {
    **{
        case: OTHERS[case]
        for case in ("gelu", "hardsigmoid", "hardswish", "sort of what is in order", "mean of abs")
    },
    "300 operations for one": (
        lambda f, x: F.hardsigmoid(f(x)),
        in_steps(300),
        (ROWS,),
        (ROWS * 20,),
        "where they are given larger numbers",
    ),
    "graph inside": (
        lambda f, x: F.hardsigmoid(f(x)) * 2,
        without_gradients,
        (ROWS,),
        (ROWS * 20,),
        "where they are given larger numbers",
    ),
}


@pytest.mark.parametrize("case", OF_PROGRAMS)
def test_program_that_differs_on_other_inputs_is_not_proven(case, tmp_path):
    step, other, x, others, said = OF_PROGRAMS[case]
    path = export(other, x, tmp_path / "net.pt2")
    net = Net(step).eval()
    assert is_same(net, path, x)
    assert not is_same(net, path, others)
    check = intus.check_export(net, path, *x)
    assert check.verdict == "not proven"
    assert said in str(check)


def test_program_with_a_graph_inside_is_equal(tmp_path):
    path = export(without_gradients, (ROWS,), tmp_path / "net.pt2")
    for step in (without_gradients, lambda f, x: (f(x) / 6 + 0.5) * 2):
        check = intus.check_export(Net(step).eval(), path, ROWS)
        assert check.verdict == "equal", str(check)


def harmless(f, x):
    """Return the same by two ways, of which the values of the input decide."""
    return f(x) if (x > 0).all() else f(x) * 1.0


def in_another_branch(f, x):
    if x[0, 0] > 0:
        return f(x)
    return f(x) * 2 if x.max() > 50 else f(x)


POSITIVE = ROWS.abs()
LENGTH = {"input_names": ["x"], "dynamic_axes": {"x": {1: "length"}}}
#: The step of the model, that of the file, the inputs, others, what is said, and options of the exporter.
#: The file agrees on some other inputs.
ON_FEW_INPUTS = {
    "second decision": (
        lambda f, x: harmless(f, x) * (2 if x.max() > 100 else 1),
        None,
        (POSITIVE,),
        (POSITIVE * 900,),
        "the file does not return what the model does",
        {},
    ),
    "decision in another branch": (
        in_another_branch,
        None,
        (POSITIVE,),
        (torch.tensor([[-1.0, 90, 0, 0, 0, 0]] * 2),),
        "The model decides by the value of gt_2",
        {},
    ),
    "decision that no input turns": (
        lambda f, x: harmless(f, x) * (2 if (x == 1.23456).any() else 1),
        None,
        (POSITIVE,),
        (torch.full((2, 6), 1.23456),),
        "The model decides by the value of any_1",
        {},
    ),
    "input beside a decision": (
        lambda f, x, y: harmless(f, x) + y,
        lambda f, x, y: f(x),
        (POSITIVE, ONES * 0),
        (POSITIVE, ONES),
        "y (input_2) is an input that the model computes with and the file does not",
        {"dynamo": True},
    ),
    "length that is no number of rows": (
        lambda f, x: x.sum(1) / x.shape[1],
        lambda f, x: x.sum(1) / 6.0,
        (ROWS,),
        (ROWS.repeat(1, 3),),
        "for 18 in place of 6 on axis 1",
        LENGTH,
    ),
    "length with few positions": (
        lambda f, x: x * (f(torch.eye(6))[0, : x.shape[1]] + x.shape[1]),
        lambda f, x: x * (f(torch.eye(6))[0, : x.shape[1]] + 6),
        (ROWS,),
        (ROWS[:, :3],),
        "for 3 in place of 6 on axis 1",
        LENGTH,
    ),
    "rows of a list": (
        lambda f, x: (f(x[0]) + x[1]) * x[0].shape[0],
        lambda f, x: (f(x[0]) + x[1]) * 2,
        ([ROWS, ROWS + 1],),
        None,
        "for 6 in place of 2",
        {"input_names": ["x", "y"], "dynamic_axes": {"x": {0: "batch"}, "y": {0: "batch"}}},
    ),
}


class Named(Net):
    def forward(self, x, y=None):
        return self.step(self.linear, x) if y is None else self.step(self.linear, x, y)


@pytest.mark.parametrize("case", ON_FEW_INPUTS)
def test_agreement_on_few_other_inputs_proves_nothing(case, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "Net", Named)
    step, other, x, others, said, options = ON_FEW_INPUTS[case]
    path = export(other or step, x, tmp_path / "net.onnx", **options)
    net = Named(step).eval()
    if others is not None:
        assert is_same(net, path, x)
        assert not is_same(net, path, others)
    check = intus.check_export(net, path, *x)
    assert check.verdict == "not proven"
    assert said in str(check)


def test_lengths_that_a_program_refuses_are_not_tried(tmp_path):
    net, x = Net(lambda f, x: f(x) * x.shape[0]).eval(), torch.randn(3, 6)
    rows = torch.export.Dim("rows", min=2, max=4)
    program = torch.export.export(net, (x,), dynamic_shapes={"x": ({0: rows},)})
    torch.export.save(program, tmp_path / "net.pt2")
    check = intus.check_export(net, tmp_path / "net.pt2", x)
    assert check.verdict == "equal", str(check)
    # As torch does, it takes one row, which torch.export takes for another case.
    assert check.notes == ["Lengths that were tried of axis 0 of x_0: 3, 4, 1."]


@pytest.mark.parametrize(
    ("step", "other"),
    [
        (lambda f, x: f(x) if x.shape[0] > 1 else f(x) * 2, 1),
        (lambda f, x: f(x) if x.shape[0] <= 16 else f(x) - x.mean(0), 66),
        (lambda f, x: f(x) if x.shape[0] <= 64 else f(x) * 2, 66),
    ],
    ids=["one row", "many rows", "more rows"],
)
def test_branch_by_a_length_is_not_proven(step, other, tmp_path):
    """A file has the branch of the length that it was exported with."""
    net, x = Net(step).eval(), torch.randn(3, 6)
    path = export(step, (x,), tmp_path / "net.onnx", **BATCH)
    assert not is_same(net, path, (torch.randn(other, 6),))
    check = intus.check_export(net, path, x)
    assert check.verdict == "not proven", str(check)
    assert f"for {other} in place of 3 it does not return what the model does" in str(check)


@pytest.mark.parametrize(
    ("rows", "tried"),
    [((3, 6), "3, 9, 1, 66"), ((1, 6), "1, 3, 65"), ((40, 6), "40, 120, 1"), ((3, 2000), "3, 9, 1")],
    ids=["few", "one", "many", "large"],
)
def test_lengths_that_were_tried_are_named(rows, tried, tmp_path):
    net, x = torch.nn.Tanh().eval(), torch.randn(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=False, **BATCH)
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "equal", str(check)
    assert check.notes == [f"Lengths that were tried of axis 0 of x: {tried}."]


def test_open_length_that_the_model_does_not_take_is_noted(tmp_path):
    net = Net(lambda f, x: f(x) + x.reshape(2, 6)).eval()
    options = {"input_names": ["x"], "dynamic_axes": {"x": {0: "rows"}}}
    path = export(net.step, (ROWS,), tmp_path / "net.onnx", **options)
    check = intus.check_export(net, path, ROWS)
    assert check.verdict == "equal", str(check)
    assert "No other length than 2 was tried of axis 0 of x: neither model nor file takes one." in check.notes
    check = intus.check_export(intus.trace(net, ROWS), path)
    assert check.verdict == "equal", str(check)
    assert "No other length than 2 was tried of axis 0 of x: the model is not called again." in check.notes


def test_operations_that_are_not_run_on_other_numbers_are_noted(tmp_path):
    path = export(in_steps(1100), (ROWS,), tmp_path / "net.onnx")
    net = Net(lambda f, x: f(x) / 6 + 0.5).eval()
    check = intus.check_export(net, path, ROWS)
    assert any(note.startswith("Not run on other numbers") for note in check.notes), str(check)
    trace = intus.trace(net, ROWS)
    trace.save(tmp_path / "net.trace")
    check = intus.check_export(intus.load(tmp_path / "net.trace"), path)
    assert any(note.startswith("No operation was run on other numbers") for note in check.notes), str(check)


RIGHT = {
    "length": (lambda f, x: x.sum(1) / x.shape[1], (ROWS,)),
    "decisions": (lambda f, x: harmless(f, x) + harmless(f, x - 2), (POSITIVE,)),
    "hardswish": (lambda f, x: F.hardswish(f(x)), (ROWS,)),
    "softmax of a ReLU": (lambda f, x: f(x).relu().relu().softmax(-1), (ROWS,)),
    "root of a variance": (lambda f, x: (f(x).var(-1) + 1e-5).sqrt(), (ROWS,)),
    "normalize": (lambda f, x: F.normalize(f(x)), (ROWS,)),
    "mask": (lambda f, x, m: f(x).masked_fill(m == 0, -1e9).softmax(-1), (ROWS, ONES)),
    "inverted mask": (lambda f, x, m: (f(x) + (1 - m) * -1e4).softmax(-1), (ROWS, ONES)),
    "batch": (lambda f, x: f(x).mean(0), (ROWS,)),
    "mask that is skipped": (
        lambda f, x, m: f(x) if not torch.jit.is_tracing() and bool(m.all()) else f(x) * m,
        (ROWS, MASK),
    ),
}


OPTIONS = {"batch": BATCH, "length": LENGTH}


@pytest.mark.parametrize("case", RIGHT)
def test_right_export_is_equal(case, tmp_path):
    step, x = RIGHT[case]
    for ending in ("onnx", "pt2")[: 1 if case in ("decisions", "mask that is skipped") else 2]:
        path = export(step, x, tmp_path / f"net.{ending}", **OPTIONS.get(case, {}))
        check = intus.check_export(Net(step).eval(), path, *x)
        assert check.verdict == "equal", str(check)


def test_program_that_ignores_an_input_is_not_proven(tmp_path):
    x = ROWS, ONES * 0
    path = export(lambda f, x, y: f(x) * 2, x, tmp_path / "net.pt2")
    check = intus.check_export(Net(lambda f, x, y: f(x) * 2 + y).eval(), path, *x)
    assert check.verdict == "not proven"
    assert "the file does not read" in str(check)
    reverse = export(lambda f, x, y: f(x) * 2 + y, x, tmp_path / "reverse.pt2")
    check = intus.check_export(Net(lambda f, x, y: f(x) * 2).eval(), reverse, *x)
    assert check.verdict == "not proven"


def test_trace_that_decides_by_a_value_is_not_proven(tmp_path):
    step = OTHERS["branch"][0]
    path = export(step, (ROWS + 3,), tmp_path / "net.onnx")
    check = intus.check_export(intus.trace(Net(step).eval(), ROWS + 3), path)
    assert check.verdict == "not proven"
    assert "decides by the value of gt_1" in str(check)


def test_comparison_of_two_passes_runs_them_on_other_numbers():
    steps = OTHERS["hardsigmoid"]
    a, b = (intus.trace(Net(step).eval(), ROWS) for step in steps[:2])
    table = intus.compare(a, b)
    assert not table.agree
    assert "where they are given larger numbers" in str(table)
    assert intus.compare(a, intus.trace(Net(steps[0]).eval(), ROWS)).agree


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_tensor_that_is_given_twice_is_two_inputs_of_the_file(ending, tmp_path):
    step = lambda f, x, y: f(x).exp() * y  # noqa: E731
    path = export(step, (ROWS, ROWS + 1), tmp_path / f"net.{ending}", dynamo=True)
    net = Net(step).eval()
    if ending == "onnx":
        assert is_same(net, path, (ROWS, ROWS))
    check = intus.check_export(net, path, ROWS, ROWS)
    assert check.verdict == "equal", str(check)
    assert "have equal values" in str(check)
    wrong = Net(lambda f, x, y: f(y).exp() * x).eval()
    assert intus.check_export(wrong, path, ROWS, ROWS).verdict == "not proven"
    # The exporters take a tensor that is given twice for one, so that the file reads one input for both.
    path = export(step, (ROWS, ROWS), tmp_path / f"one.{ending}", dynamo=True)
    if ending == "onnx":
        assert not is_same(net, path, (ROWS, ROWS + 1))
    assert intus.check_export(net, path, ROWS, ROWS).verdict == "not proven"


def test_tensor_that_is_given_twice_is_one_input_of_the_file(tmp_path):
    path = export(lambda f, x: f(x) * x, (ROWS,), tmp_path / "net.onnx")
    check = intus.check_export(Net(lambda f, x, y: f(x) * y).eval(), path, ROWS, ROWS)
    assert check.verdict == "equal", str(check)


class Encoder(nn.Module):
    """A transformer with as few positions as twice the tokens of the test."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.positions, self.out = nn.Embedding(20, 8), nn.Embedding(16, 8), nn.Linear(8, 3)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, ids, mask):
        x = self.table(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.out(self.layers(x, src_key_padding_mask=mask == 0).mean(1))


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
def test_open_lengths_of_a_transformer(dynamo, tmp_path):
    """The older exporter of torch fixes the number of tokens inside of the attention."""
    net, path = Encoder().eval(), tmp_path / "net.onnx"
    ids, mask = torch.randint(0, 20, (2, 8)), (torch.arange(16).view(2, 8) < 13).float()
    rows, tokens = torch.export.Dim("rows"), torch.export.Dim("tokens", max=16)
    axes = {0: "rows", 1: "tokens"}
    options = (
        {"dynamic_shapes": ({0: rows, 1: tokens},) * 2, "verbose": False}
        if dynamo
        else {"input_names": ["ids", "mask"], "dynamic_axes": {"ids": axes, "mask": axes}}
    )
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(net, (ids, mask), path, dynamo=dynamo, **options)
    assert is_same(net, path, (ids, mask))
    assert is_same(net, path, (ids.repeat(1, 2), mask.repeat(1, 2))) == dynamo
    check = intus.check_export(net, path, ids, mask)
    assert check.verdict == ("equal" if dynamo else "not proven"), str(check)
