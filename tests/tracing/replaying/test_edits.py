"""Changes of units, parameters and several values by rerun, against models with hooks."""

import copy

import pytest
import torch
from torch import nn
from transformer_models import gpt2
from zoo_models import Cnn

import intus


@pytest.fixture(scope="module")
def language():
    torch.manual_seed(0)
    model, inputs = gpt2()
    model.eval()
    return model, inputs, intus.trace(model, inputs)


@pytest.fixture
def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    x = torch.randn(3, 4)
    return model, x, intus.trace(model, x)


def hooked(model, inputs, changes):
    """Return the logits or output of a model whose modules' outputs are changed by hooks."""
    modules = dict(model.named_modules())
    handles = [
        modules[name].register_forward_hook(lambda module, args, out, change=change: change(out))
        for name, change in changes.items()
    ]
    try:
        out = model(**inputs) if isinstance(inputs, dict) else model(inputs)
        return getattr(out, "logits", out)
    finally:
        for handle in handles:
            handle.remove()


def at(*place):
    """Return a change that sets an index to zero."""

    def change(out):
        out = out.clone()
        out[place] = 0
        return out

    return change


PARTS = {
    "3": at(..., 3),
    "3,5,7": at(..., [3, 5, 7]),
    "2:6": at(..., slice(2, 6)),
    "0,4:8,-1": at(..., [0, 4, 5, 6, 7, -1]),
    "-1@1": at(slice(None), -1),
    "1:3@1": at(slice(None), slice(1, 3)),
    "-1@1][3,5": at(slice(None), -1, [3, 5]),
    "0,2@1][1:3": lambda out: at(slice(None), 2, slice(1, 3))(at(slice(None), 0, slice(1, 3))(out)),
}


@pytest.mark.parametrize("several", ["transformer.h.*.mlp", "GPT2MLP"])
def test_change_several_modules_by_pattern_or_class(language, several):
    model, inputs, trace = language
    every = {f"transformer.h.{n}.mlp": torch.zeros_like for n in range(2)}
    assert torch.equal(trace.rerun({several: 0})["logits"].value, hooked(model, inputs, every))
    other = intus.trace(model, {"input_ids": inputs["input_ids"].flip(1)})
    changed = trace.rerun({several: other})
    assert all(torch.equal(changed[name].value, other[name].value) for name in every)


def test_change_parameters_by_pattern_and_tied_name(language):
    model, inputs, trace = language
    changed = copy.deepcopy(model)
    for block in changed.transformer.h:
        torch.nn.init.zeros_(block.mlp.c_fc.weight)
    assert torch.equal(trace.rerun({"**.c_fc.weight": 0})["logits"].value, changed(**inputs).logits)
    tied = trace.rerun({"lm_head.weight": lambda weight: weight * 2})
    doubled = copy.deepcopy(model)
    with torch.no_grad():
        doubled.lm_head.weight *= 2
    assert torch.equal(tied["logits"].value, doubled(**inputs).logits)


@pytest.mark.parametrize("part", list(PARTS))
def test_change_units_of_residual_stream(language, part):
    model, inputs, trace = language
    after = trace.rerun({f"transformer.ln_f[{part}]": 0})
    assert torch.equal(after["lm_head"].value, hooked(model, inputs, {"transformer.ln_f": PARTS[part]}))
    assert not torch.equal(after["lm_head"].value, trace["lm_head"].value)


def test_change_channels_of_conv1d():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv1d(2, 5, 3), nn.ReLU(), nn.Conv1d(5, 2, 3)), torch.randn(2, 2, 10)
    after = intus.trace(model, x).rerun({"0[1,3]": 0})
    assert torch.equal(after["output_1"].value, hooked(model, x, {"0": at(slice(None), [1, 3])}))


def test_ablate_attention_head(language):
    model, inputs, trace = language
    [heads] = trace.find(inside="transformer.h.0", type="scaled_dot_product_attention")
    after = trace.rerun({f"{heads.label}[1]": 0})
    projection = model.transformer.h[0].attn.c_proj
    handle = projection.register_forward_pre_hook(lambda module, args: (at(..., slice(8, 16))(args[0]),))
    try:
        expected = model(**inputs).logits
    finally:
        handle.remove()
    assert torch.equal(after["lm_head"].value, expected)


FUNCTIONS = {
    "scale": (lambda v: v * 0.5, lambda out: out * 0.5),
    "clamp": (lambda v: v.clamp(-1, 1), lambda out: out.clamp(-1, 1)),
    "mean": (lambda v: v.mean(0, keepdim=True), lambda out: out.mean(0, keepdim=True).expand_as(out)),
    "direction": (lambda v: v + 3 * torch.arange(6.0), lambda out: out + 3 * torch.arange(6.0)),
    "row": (torch.arange(6.0), lambda out: torch.arange(6.0).expand_as(out)),
    "noise": (
        lambda v: v + torch.randn(6, generator=torch.Generator().manual_seed(1)),
        lambda out: out + torch.randn(6, generator=torch.Generator().manual_seed(1)),
    ),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_change_by_function_or_tensor(net, name):
    model, x, trace = net
    change, oracle = FUNCTIONS[name]
    assert torch.equal(trace.rerun({"2": change})["output_1"].value, hooked(model, x, {"2": oracle}))


def test_patch_from_another_trace_or_op(language):
    model, inputs, clean = language
    other = intus.trace(model, {"input_ids": inputs["input_ids"].flip(1)})
    after = other.rerun({"transformer.h.0[-1@1]": clean})

    def changed(out):
        out = out.clone()
        out[:, -1] = clean["transformer.h.0"].value[:, -1]
        return out

    flipped = {"input_ids": inputs["input_ids"].flip(1)}
    expected = hooked(model, flipped, {"transformer.h.0": changed})
    assert torch.equal(after["lm_head"].value, expected)
    same = other.rerun({"transformer.h.0[-1@1]": clean["transformer.h.0"]})
    assert torch.equal(same["lm_head"].value, expected)


def test_chained_reruns_keep_earlier_changes(net):
    model, x, trace = net
    first = trace.rerun({"2[1,4]": 0}, swap={"relu_2": torch.tanh})
    both = first.rerun({"0[0]": 5})
    model = copy.deepcopy(model)
    model[3] = nn.Tanh()

    def five(out):
        out = out.clone()
        out[:, 0] = 5
        return out

    assert torch.equal(both["output_1"].value, hooked(model, x, {"0": five, "2": at(slice(None), [1, 4])}))
    assert both.graph.facts["changed"] == ["linear_1_1", "linear_2_3", "relu_2_4"]
    again = both.rerun({"2": lambda value: value + 1})  # the earlier change is not applied twice
    assert torch.equal(again["2"].value, both["2"].value + 1)
    assert both.validate()["linear_2_3"].reasons == ("it was changed by rerun",)


def test_chained_reruns_apply_each_change_once(net):
    _, _, trace = net
    doubled = trace.rerun({"2": lambda value: value * 2})
    assert torch.equal(doubled.rerun({"2": lambda value: value * 2})["2"].value, trace["2"].value * 4)
    assert torch.equal(doubled.rerun({"0": lambda value: value})["2"].value, trace["2"].value * 2)


PARAMETERS = {
    "zero": ({"2.weight": 0}, lambda m: m[2].weight.zero_()),
    "a unit": ({"2.weight[3]": 0, "2.bias[3]": 0}, lambda m: (m[2].weight[3].zero_(), m[2].bias[3].zero_())),
    "along the inputs": ({"2.weight[1:3@1]": 0}, lambda m: m[2].weight[:, 1:3].zero_()),
    "a function": ({"0.bias": lambda bias: bias + 1}, lambda m: m[0].bias.add_(1)),
    "a tensor": ({"4.weight": torch.ones(2, 6)}, lambda m: m[4].weight.fill_(1)),
}


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_change_parameters(net, name):
    model, x, trace = net
    changes, oracle = PARAMETERS[name]
    before = copy.deepcopy(model.state_dict())
    after = trace.rerun(changes)
    changed = copy.deepcopy(model)
    with torch.no_grad():
        oracle(changed)
    assert torch.equal(after["output_1"].value, changed(x))
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())
    assert after.validate()
    chained = after.rerun({"input_1": lambda value: value + 1})  # the changed parameters remain
    assert torch.equal(chained["output_1"].value, changed(x + 1))
    first = intus.compare(trace, after).attrs["first"]
    assert any("differ" in reason for reason in first["why"])


def test_patch_parameters_from_another_trace(net):
    model, x, trace = net
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(torch.randn_like(p))
    theirs = intus.trace(other, x)
    every = {param.address: theirs for param in trace.graph.params}
    assert torch.equal(trace.rerun(every)["output_1"].value, theirs["output_1"].value)


def test_parameter_change_reruns_only_dependents(net):
    _, _, trace = net
    after = trace.rerun({"4.bias": 0})
    assert after["2"].value is trace["2"].value
    assert after["4"].value is not trace["4"].value


def test_on_branch_change_ignore():
    def forward(x):
        y = x * 2
        return y + 1 if y.sum() > 0 else y - 1

    trace = intus.trace(forward, torch.ones(3))
    with pytest.raises(RuntimeError, match="on_branch_change='ignore'"):
        trace.rerun({"mul_1": -5})
    assert trace.rerun({"mul_1": -5}, on_branch_change="ignore")["output_1"].value.tolist() == [-4, -4, -4]
    with pytest.raises(ValueError, match="on_branch_change='no'"):
        trace.rerun({"mul_1": 5}, on_branch_change="no")


def test_rerun_errors_of_addresses_and_changes(net):
    _, _, trace = net
    with pytest.raises(KeyError, match=r"Did you mean '2.weight'"):
        trace.rerun({"2.weigh": 0})
    with pytest.raises(KeyError, match="there are 6 units, counted from 0"):
        trace.rerun({"2[1,6]": 0})
    with pytest.raises(KeyError, match="there are 3 units along axis 0"):
        trace.rerun({"2[3@0]": 0})
    with pytest.raises(KeyError, match="has 2 axes"):
        trace.rerun({"2[0@2]": 0})
    with pytest.raises(ValueError, match="twice"):
        trace.rerun({"2[0][1]": 0})
    with pytest.raises(ValueError, match=r"Write \[3\]"):
        trace.rerun({"2[one]": 0})
    with pytest.raises(ValueError, match=r"is of shape \(5,\), which cannot be broadcast to \(3, 6\)"):
        trace.rerun({"2": torch.ones(5)})
    with pytest.raises(ValueError, match="rerun takes a dict"):
        trace.rerun("2")
    with pytest.raises(TypeError) as raised:
        trace.rerun(swap={"Linear": torch.tanh})
    assert raised.value.__notes__ == [
        "The function was called with the 3 tensors of 'linear_1_1', in whose place it runs."
    ]
    with pytest.raises(ValueError, match=r"does not hold the value of .2.weight"):
        trace.rerun({"2.weight": copy.deepcopy(trace)})
    with pytest.raises(KeyError, match=r"has no parameter '0.weight'"):
        trace.rerun({"0.weight": intus.trace(Cnn().eval(), torch.randn(1, 1, 8, 8))})


def test_rerun_error_names_the_operation(language):
    _, _, trace = language
    with pytest.raises(RuntimeError, match="After the change 'embedding_1_2' raised IndexError"):
        trace.rerun({"input_1": 99})


def test_compare_reports_change_by_rerun(net):
    _, _, trace = net
    first = intus.compare(trace, trace.rerun({"2[1]": 0})).attrs["first"]
    assert (first["module"], first["why"]) == ("2", ["it was changed by rerun in b"])
