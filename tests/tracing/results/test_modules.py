"""Modules, calls, buffers, factory ops and orphans of a trace."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformer_models import gpt2

import intus
from intus.core.errors import AddressError, InputError


class Noisy(nn.Module):
    """Creates tensors at several depths; no output depends on some of them."""

    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("unread", torch.zeros(2))

    def forward(self, x):
        torch.ones(7) * 2  # an orphan
        noise = torch.rand(3)
        scaled = noise * 0.5
        if self.inner is not None:
            x = self.inner(x)
        self.seen += 1
        return x + scaled + self.seen


def nested():
    return nn.Sequential(nn.Linear(3, 3), Noisy(Noisy(Noisy())))


def labels(ops):
    return [op.label for op in ops]


def test_factory_ops_belong_to_their_module():
    t = intus.trace(nested(), torch.ones(2, 3))
    deep = ["1", "1.inner", "1.inner.inner"]
    assert [op.module for op in t.factory_ops] == deep
    assert [op.module for op in t.find(type="mul")] == deep  # also what is computed only from them
    assert not any(op.has_input_ancestor for op in t.find(type="mul"))
    assert [op.modules for op in t.factory_ops] == [["", *deep[:n]] for n in (1, 2, 3)]
    assert [op.module for op in t.buffers] == deep[::-1]  # where each was read
    assert [op.buffer_address for op in t.buffers] == [f"{address}.seen" for address in deep[::-1]]


def test_orphans_are_removed():
    t = intus.trace(nested(), torch.ones(2, 3))
    assert t.ops_per_type == {"add": 9, "rand": 3, "mul": 3, "linear": 1}
    assert all(op.has_input_ancestor or op.is_output_ancestor for op in t)
    assert t.modules[""].ops == t.ops


def test_call_inputs_come_from_outside():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(torch.ones(3) + torch.rand(3)) + x

    t = intus.trace(Outer(), torch.ones(3))
    call = t.modules["act"].calls[0]
    assert labels(call.inputs) == ["add_1_3"]
    assert labels(call.ops) == ["relu_1_4"]
    assert [op.module for op in t.find(type="add")] == ["", ""]
    assert t["add_1_3"].modules_entered == ["act"]
    assert labels(t["relu_1_4"].factory_ancestors) == ["ones_1_1", "rand_1_2"]


def test_buffer_writers():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            x = x * self.count
            self.count.mul_(2)
            return x + self.count

    t = intus.trace(Counting(), torch.ones(1))
    (buffer,) = t.buffers
    assert labels(buffer.writers) == ["add_1_1", "mul_2_3"]
    assert [float(op.value) for op in [buffer, *buffer.writers]] == [0, 1, 2]
    assert buffer.value == 0


def test_module_facts_match_torch():
    net = nested()
    net[0].bias.requires_grad_(False)
    t = intus.trace(net, torch.ones(2, 3))
    for address, module in net.named_modules():
        ours = t.modules[address]
        assert ours.type == type(module).__name__
        assert [p.address for p in ours.params] == [
            ".".join(filter(None, (address, n))) for n, _ in module.named_parameters()
        ]
        assert [b.shape for b in ours.buffers] == [tuple(b.shape) for b in module.buffers()]
        assert [child.address.rpartition(".")[2] for child in ours.children] == [
            n for n, _ in module.named_children()
        ]
        assert ours.num_params == sum(p.numel() for p in module.parameters())
        assert ours.num_trainable == sum(p.numel() for p in module.parameters() if p.requires_grad)
        assert ours.num_trainable + ours.num_frozen == ours.num_params
        assert ours.param_bytes == 4 * ours.num_params
        assert ours.parent is None if not address else ours in ours.parent.children
        assert ours.depth == len(address.split(".")) * bool(address)
        assert ours.seconds == pytest.approx(sum(op.seconds for op in ours.ops))
    assert t.modules["0"].own_params == t.modules["0"].params
    assert t.modules[""].own_params == []


def test_module_called_twice():
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    net.append(net[0])
    t = intus.trace(net, torch.ones(1, 2))
    module = t.modules["0"]
    assert (
        repr(module)
        == "<Module 0: Linear(in_features=2, out_features=2, bias=True), 6 parameters, called 2 times>"
    )
    assert [call.address for call in module.calls] == ["0:1", "0:2"]
    assert [labels(call.ops) for call in module.calls] == [["linear_1_1:1"], ["linear_1_1:2"]]
    assert labels(module.outputs) == ["linear_1_1:1", "linear_1_1:2"]
    assert [call.pass_number for call in module.calls] == [1, 2]
    assert module.calls[0].parent == t.modules[""].calls[0]
    assert module.calls[0].parent.parent is None
    assert t.modules[""].calls[0].children == [module.calls[0], *t.modules["1"].calls, module.calls[1]]
    assert repr(module.calls[1]) == "<Call 0:2: Linear, 1 operation>"
    assert module.calls[1].module == module
    assert len({module, t.modules["0"], *module.calls}) == 3


def test_module_never_called_and_module_made_in_forward():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(2, 2), nn.Linear(2, 2).eval()

        def forward(self, x):
            return nn.ReLU()(self.used(x))

    t = intus.trace(Odd(), torch.ones(1, 2))
    spare = t.modules["spare"]
    assert "never called" in repr(spare)
    assert (spare.num_calls, spare.outputs, spare.num_params) == (0, [], 6)
    assert [address for address, module in t.modules.items() if module.type == "ReLU"] == ["ReLU"]
    assert (t.modules["used"].training, spare.training) == (True, False)
    source = t.modules[""].source
    assert source.file == __file__
    assert "def forward" in Path(__file__).read_text().splitlines()[source.line - 1]


def test_source_of_decorated_forward():
    model, inputs = gpt2()
    t = intus.trace(model.eval(), inputs)
    assert t.modules[""].source.function == "GPT2LMHeadModel.forward"
    assert t.modules["transformer.h"].source is None  # a ModuleList has none


def test_identity_module_is_entered_and_output_of():
    t = intus.trace(nn.Sequential(nn.Tanh(), nn.Identity(), nn.ReLU()), torch.ones(2))
    assert t["tanh_1"].modules_entered == ["1", "2"]
    assert t["tanh_1"].output_of == ["1", "0"]
    assert t["tanh_1"].is_whole_module
    assert t["relu_1"].modules_entered == []


def test_function_without_modules_and_failing_model():
    t = intus.trace(lambda x: x + 1, torch.ones(2))
    assert (t.modules, t["add_1"].module, t["add_1"].in_submodule) == ({}, None, False)
    t = intus.trace(nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3)), torch.ones(1, 2), on_error="keep")
    assert [call.outputs for call in t.modules["1"].calls] == [[]]
    assert labels(t.modules["1"].ops) == ["linear_2_2"]
    assert t.outputs == []
    assert t["linear_1"].min_distance_from_output is None


def test_conditionals():
    def choose(x):
        big = x.sum() > 1
        unused = x.mean()
        assert (x < 99).all()
        return x * 2 if big else x + unused

    t = intus.trace(choose, torch.ones(3))
    assert t.has_conditionals
    assert labels(op for op in t if op.in_condition) == ["sum_1_1", "gt_1_2"]
    assert labels(op for op in t if op.is_terminal) == ["gt_1_2", "mean_1_3", "all_1_5"]
    assert labels(t.terminal_bools) == ["gt_1_2", "all_1_5"]
    t = intus.trace(lambda x: x * float(x.max()), torch.ones(3))
    assert not t.has_conditionals
    assert t.terminal_bools == []


def test_is_branching_counts_operations():
    assert not intus.trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)).is_branching
    assert not intus.trace(lambda x: x * x, torch.ones(2)).is_branching
    assert not intus.trace(lambda x: torch.cat(x.chunk(2)), torch.ones(2)).is_branching
    assert intus.trace(lambda x: torch.tanh(x) + x, torch.ones(2)).is_branching


def test_is_branching_counts_buffers_and_constants_but_not_parameters():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(2))
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x, *, what):
            return (x * getattr(self, what)).cos() * getattr(self, what)

    constant = torch.ones(2)
    assert intus.trace(Masked(), torch.ones(2), kwargs={"what": "mask"}).is_branching
    assert not intus.trace(Masked(), torch.ones(2), kwargs={"what": "weight"}).is_branching
    assert intus.trace(lambda x: (x * constant).cos() * constant, torch.ones(2)).is_branching
    assert not intus.trace(nn.BatchNorm1d(2), torch.ones(3, 2)).is_branching


def test_type_of_a_buffer_is_buffer():
    t = intus.trace(nn.BatchNorm1d(2).eval(), torch.ones(3, 2))
    assert [(op.type, op.func_name, op.buffer_address) for op in t.buffers] == [
        ("buffer", "buffer", "running_mean"),
        ("buffer", "buffer", "running_var"),
    ]
    assert labels(t.find("buffer")) == ["buffer_1", "buffer_2"]
    assert t["running_var"].label == "buffer_2"
    for save in ("buffer", "running_*", ["running_mean", "running_var"], lambda op: op.type == "buffer"):
        t = intus.trace(nn.BatchNorm1d(2).eval(), torch.ones(3, 2), save=save)
        assert labels(op for op in t.buffers if op.saved) == ["buffer_1", "buffer_2"]
        assert not t["batch_norm_1"].saved


def test_value_of_a_module():
    net = nested()
    t = intus.trace(net, torch.ones(2, 3))
    for address, module in t.modules.items():
        if module.outputs:
            assert module.value is t[address].value
    net.add_module("unused", nn.Linear(1, 1))
    net.forward = lambda x: net[0](x)
    with pytest.raises(AddressError, match=r"^'unused' did not run in this pass.$"):
        intus.trace(net, torch.ones(2, 3)).modules["unused"].value  # noqa: B018


def test_slice_of_a_trace():
    t = intus.trace(nested(), torch.ones(2, 3))
    assert t[1:3] == t.ops[1:3]
    assert t[-2:] == t.ops[-2:]
    assert t[99:] == []
    only = intus.trace(nested(), torch.ones(2, 3), save=["linear"])
    assert only[:] == [op for op in only.ops if op.saved]  # ordinals count the saved ones
    with pytest.raises(InputError, match=r"needs ordinals, as in t\[1:3\], got slice\('a', 'b', None\)"):
        t["a":"b"]


def test_op_as_array():
    t = intus.trace(nn.Linear(2, 3), torch.ones(4, 2))
    assert np.asarray(t["linear_1"]).tobytes() == t["linear_1"].value.numpy().tobytes()
    assert np.asarray(t["linear_1"], dtype=np.float64).dtype == np.float64
    assert np.array(t["linear_1"]).shape == (4, 3)
    copied = np.array(t["linear_1"], copy=True)
    copied[:] = 0
    assert t["linear_1"].value.any()
    with pytest.raises(AddressError, match="was not saved"):
        np.asarray(intus.trace(nn.Linear(2, 3), torch.ones(4, 2), save="none")["linear_1"])


@pytest.mark.long
def test_completion_in_ipython():
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    t = intus.trace(nested(), torch.ones(2, 3))
    shell.user_ns |= {"t": t, "modules": t.modules}
    completer = shell.Completer

    def offered(text):
        with provisionalcompleter():
            return [one.text for one in completer.completions(text, len(text))]

    assert {"ops", "modules", "find", "draw"} <= set(offered("t."))
    assert offered("t.is_rec") == ["is_recurrent"]
    keys = offered('t["')
    assert set(keys) == {*t.graph.labels, *t.graph.ends, *(a for a, m in t.modules.items() if a and m.calls)}
    assert all(t[key] for key in keys)
    assert set(offered('modules["')) == set(t.modules)
    assert offered("t[0].is_fac") == ["is_factory"]


def test_module_and_summary_errors():
    t = intus.trace(nested(), torch.ones(2, 3))
    with pytest.raises(AddressError, match=r"There is no module '1\.iner'\. Did you mean '1\.inner'"):
        t.modules["1.iner"]
    assert t.modules.get("9") is None
    with pytest.raises(InputError, match=r"depth=-1 must be a whole number from 0 on, or None"):
        t.summary(-1)
    with pytest.raises(InputError, match=r"most='all' must be a whole number from 1 on"):
        t.summary(most="all")
