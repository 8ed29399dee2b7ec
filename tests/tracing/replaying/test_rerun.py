"""Trace.rerun, bit for bit against the changed model."""

import contextlib
import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformer_models import gpt2
from zoo_models import ZOO, Cnn, make

import intus
from intus.core.errors import CaptureError


def hooked(model, x, name, change):
    """Return the model's output with a forward hook that changes what one module returns."""
    module = dict(model.named_modules())[name]
    handle = module.register_forward_hook(lambda module, args, out: change(out))
    try:
        return model(x)
    finally:
        handle.remove()


@pytest.fixture
def cnn():
    torch.manual_seed(0)
    model, x = Cnn().eval(), torch.randn(2, 1, 8, 8)
    return model, x, intus.trace(model, x)


def ablated(unit):
    def change(out):
        out = out.clone()
        out[:, unit] = 0
        return out

    return change


CHANGES = {
    "zero": ({"conv2": 0}, "conv2", lambda out: out * 0),
    "scale": ({"conv2": lambda value: value * 3}, "conv2", lambda out: out * 3),
    "tensor": ({"conv1": torch.ones(2, 4, 6, 6)}, "conv1", torch.ones_like),
    "one unit": ({"conv1[3]": 0}, "conv1", ablated(3)),
    "unit of the last axis": ({"head[1]": 0.0}, "head", ablated(1)),
    "unit by function": (
        {"conv1[2]": lambda unit: unit - unit},
        "conv1",
        ablated(2),
    ),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_rerun_equals_forward_hook(cnn, name):
    model, x, trace = cnn
    changes, module, change = CHANGES[name]
    after = trace.rerun(changes)
    assert torch.equal(after["output_1"].value, hooked(model, x, module, change))
    assert not torch.equal(after["output_1"].value, trace["output_1"].value)
    assert torch.equal(trace["output_1"].value, model(x))  # the trace itself is unchanged


def test_swap_function(cnn):
    model, x, trace = cnn
    after = trace.rerun(swap={"relu_1": torch.tanh, "relu_2": torch.tanh})
    model.relu = nn.Tanh()
    assert torch.equal(after["output_1"].value, model(x))
    assert after.graph.facts["changed"] == ["relu_1_3", "relu_2_5"]


def test_only_dependents_run_again(cnn):
    _, _, trace = cnn

    ran, functions = [], trace._replays._call_log._functions
    for number, function in enumerate(functions):

        def counted(*args, _function=function, **kwargs):
            ran.append(_function)
            return _function(*args, **kwargs)

        functions[number] = counted
    after = trace.rerun({"conv2": 0})
    downstream = trace["conv2"].descendants
    assert len(ran) == sum(op.kind == "op" for op in downstream)
    for op in trace.ops:
        assert (after.values[op.row] is trace.values[op.row]) == (op not in [*downstream, trace["conv2"]])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", list(ZOO))
def test_identity_change_of_input(name, training):
    model, x = make(name, training)
    trace = intus.trace(model, x)
    after = trace.rerun({"input_1": lambda value: value})
    for row, value in trace.values.items():
        assert torch.equal(after.values[row], value)
    assert after.validate()


@pytest.mark.parametrize("name", list(ZOO))
def test_rerun_with_another_input_equals_model(name):
    model, x = make(name)
    other = torch.randn_like(x)
    after, fresh = intus.trace(model, x).rerun({"input_1": other}), intus.trace(model, other)
    for op in fresh.outputs:
        assert torch.equal(after[op.label].value, op.value)
    assert after.validate()


def test_patch_value_from_another_trace():
    torch.manual_seed(0)
    model, inputs = gpt2()
    model.eval()
    one = intus.trace(model, inputs)
    two = intus.trace(model, {"input_ids": inputs["input_ids"].flip(1)})
    after = one.rerun({"transformer.ln_f": two["transformer.ln_f"].value})
    assert torch.equal(after["lm_head"].value, two["lm_head"].value)


def test_rerun_follows_writes_through_views():
    def forward(x, scale=2):
        y = x * scale
        y[:2].mul_(10)
        return y + F.dropout(torch.ones(4), 0.5)

    x = torch.arange(1.0, 5)
    trace = intus.trace(forward, x, seed=1)
    after = trace.rerun({"mul_1": lambda value: value / 2})
    assert torch.equal(
        after["output_1"].value, intus.trace(lambda x: forward(x, 1), x, seed=1)["output_1"].value
    )
    assert after.validate()["mul_1_1"].reasons == ("it was changed by rerun",)


def test_rerun_errors(cnn):
    _, _, trace = cnn
    with pytest.raises(intus.IntusError, match=r"Did you mean 'conv2'") as error:
        trace.rerun({"conv22": 0})
    assert isinstance(error.value, KeyError)
    with pytest.raises(KeyError, match=r"'conv1\[4\]' is out of range: there are 4 units"):
        trace.rerun({"conv1[4]": 0})
    with pytest.raises(ValueError, match="is of shape"):
        trace.rerun({"conv1": torch.ones(3)})
    with pytest.raises(ValueError, match="must be a tensor or a number"):
        trace.rerun({"conv1": lambda value: "no"})
    for change in (lambda value: value.double(), torch.zeros((), dtype=torch.int64)):
        for place in ("conv1", "conv1[1]", "conv1.weight"):
            with pytest.raises(ValueError, match=r"torch.float32. A rerun keeps shapes and dtypes"):
                trace.rerun({place: change})
    with pytest.raises(ValueError, match="keeps shapes and dtypes"):
        trace.rerun(swap={"relu_2": lambda x: x[:1]})
    with pytest.raises(ValueError, match="Trace the model again"):
        intus.trace(nn.Linear(2, 1), torch.ones(1, 2), save="none").rerun({"linear_1": 0})


def test_changed_branch_is_refused():
    def forward(x):
        y = x * 2
        return y + 1 if y.sum() > 0 else y - 1

    trace = intus.trace(forward, torch.ones(3))
    assert trace.rerun({"mul_1": 5})["output_1"].value.tolist() == [6, 6, 6]
    with pytest.raises(RuntimeError, match="might have run other operations"):
        trace.rerun({"mul_1": -5})


READS = {
    "contains": lambda x: x * 3 if 1.0 in x else x,
    "element of contains": lambda x: x * 3 if x[0] in torch.ones(1) else x,
    "format": lambda x: x * float(f"{x.max():.3f}"),
    "repr": lambda x: x * len(repr(x)),
    "str": lambda x: x if "-" in str(x) else x * 3,
    "complex": lambda x: x * abs(complex(x[0])),
    "numpy": lambda x: x * 3 if x.numpy().sum() > 4 else x,
    "asarray": lambda x: x * float(np.asarray(x).max()),
    "tolist": lambda x: x * max(x.tolist()),
    "pickle": lambda x: x * pickle.loads(pickle.dumps(x)).max().item(),
    "copy": lambda x: x * copy.copy(x).max().item(),
    "storage": lambda x: x * len(set(x.untyped_storage())),
    "second argument of equal": lambda x: x * 3 if torch.equal(torch.tensor([1.0, -2, 2]), x) else x,
    "arguments by keyword": lambda x: x * 3 if torch.equal(input=torch.tensor([1.0, -2, 2]), other=x) else x,
}
SHAPES = {
    "nonzero": lambda x: x * len(x.gt(0).nonzero()),
    "mask": lambda x: x * x[x > 0].shape[0],
    "masked_select": lambda x: x * x.masked_select(x > 0).numel(),
    "unique": lambda x: x * x.unique().numel(),
    "where": lambda x: x * torch.where(x > 0)[0].numel(),
    "bincount": lambda x: x * x.abs().long().bincount().numel(),
    "one_hot": lambda x: x * nn.functional.one_hot(x.abs().long()).shape[1],
    "repeat_interleave": lambda x: x * torch.repeat_interleave(x.abs().long()).numel(),
}


@pytest.mark.parametrize("name", [*READS, *SHAPES])
def test_changed_read_is_refused(name):
    model, x = (READS | SHAPES)[name], torch.tensor([1.0, -2.0, 2.0])
    trace = intus.trace(model, x)
    other = torch.tensor([5.0, 7.0, 5.0])
    assert not torch.equal(
        model(other), trace.rerun({"input_1": other}, on_branch_change="ignore")["output_1"].value
    )
    with pytest.raises(CaptureError, match="might have run other operations"):
        trace.rerun({"input_1": other})
    assert torch.equal(trace.rerun({"input_1": x.clone()})["output_1"].value, model(x))


@pytest.mark.parametrize("name", READS)
def test_read_is_a_conditional(name):
    trace = intus.trace(READS[name], torch.tensor([1.0, -2.0, 2.0]))
    assert "input_1" in {one.label for read in trace.conditionals for one in (read.op, *read.op.parents)}


def test_changed_read_of_a_parameter_is_refused():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return x * self.scale.item()

    trace = intus.trace(Scale(), torch.ones(3))
    assert trace.rerun({"scale": 2.0})["output_1"].value.tolist() == [2, 2, 2]
    with pytest.raises(CaptureError, match=r"value of 'scale' \(item\), which differs"):
        trace.rerun({"scale": 5.0})


def test_changed_read_behind_a_write_through_a_view_is_refused():
    def forward(x):
        y = x * 2
        y[:1].mul_(0)
        return x * y.tolist()[-1]

    trace = intus.trace(forward, torch.ones(3))
    with pytest.raises(CaptureError, match=r"\(tolist\), which differs"):
        trace.rerun({"input_1": 5.0})


def test_read_that_was_not_saved_is_refused():
    def forward(x):
        y = x * 2
        return y + 1 if y.sum() > 0 else y - 1

    trace = intus.trace(forward, torch.ones(3), save=["mul_1"])
    with pytest.raises(CaptureError, match=r"'gt_1_3'.*was not saved and may differ"):
        trace.rerun({"mul_1": 5.0})


def test_call_without_output_that_raises_is_refused():
    def forward(x):
        nn.functional.one_hot(x.long())
        return x * 2

    trace = intus.trace(forward, torch.ones(3))
    with pytest.raises(CaptureError, match="'one_hot_1_2' raised RuntimeError"):
        trace.rerun({"input_1": -1.0})
    assert trace.rerun({"input_1": -1.0}, on_branch_change="ignore")["output_1"].value.tolist() == [-2] * 3


def test_rerun_with_caught_exception():
    def forward(x):
        y = x * 2
        with contextlib.suppress(RuntimeError):
            y @ torch.ones(5)
        return y + 1

    trace = intus.trace(forward, torch.ones(3))
    assert trace.rerun({"mul_1": 5})["output_1"].value.tolist() == [6, 6, 6]


def test_rerun_of_output_written_through_view():
    def forward(x):
        y = x * 2
        y[:2].mul_(10)
        return y

    trace = intus.trace(forward, torch.ones(4))
    assert trace.rerun({"mul_1": 3.0})["output_1"].value.tolist() == [30, 30, 3, 3]
    assert trace.rerun({"mul_2": 0.0})["output_1"].value.tolist() == [0, 0, 2, 2]
