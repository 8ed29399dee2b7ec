"""intus.validate: equal to the offline report, detects every error, keeps no activations."""

import copy
import ctypes
import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from zoo_models import ZOO, make

import intus
from intus.tracing import record
from intus.tracing.capture.call_log import CallLog
from intus.tracing.capture.recording import ROW


def statuses(report):
    return [(check.label, check.status) for check in report]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", list(ZOO))
def test_online_report_equals_offline_report(name, training):
    model, x = make(name, training)
    trace = intus.trace(model, x)
    assert statuses(intus.validate(model, x)) == statuses(trace.validate(perturb="all"))
    assert statuses(intus.validate(model, x, perturb="all")) == statuses(trace.validate())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = torch.relu(self.a(x))
        return torch.sub(self.b(y), y, alpha=2)


SUB, RELU = "sub_1_4", "relu_1_2"


def validated():
    torch.manual_seed(0)
    return intus.validate(Net(), torch.randn(3, 4))


def failed(report):
    return [check.label for check in report.failed]


def test_net_is_valid():
    assert len(validated().proven) == 5


# -- wrong graphs ---------------------------------------------------------------------------------------


@pytest.fixture
def altered_graph(monkeypatch):
    """Return a function that changes the edges or parameters of the graph of the next pass."""

    def alter(edges=None, params=None):
        def assemble(*args):
            graph, where = plain(*args)
            graph = copy.copy(graph)
            if edges is not None:
                rows = zip(graph.edges.src, graph.edges.dst, graph.edges.arg, strict=True)
                rows = edges([[int(n) for n in row] for row in rows], graph.labels.index)
                columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
                object.__setattr__(graph, "edges", type(graph.edges)(*columns))
            if params is not None:
                object.__setattr__(graph, "op_params", params(graph.op_params))
            return graph, where

        plain = record.assemble
        monkeypatch.setattr(record, "assemble", assemble)

    return alter


def test_wrong_edge_fails(altered_graph):
    altered_graph(
        lambda edges, at: [[at("linear_1_1") if (d, a) == (at(SUB), 0) else s, d, a] for s, d, a in edges]
    )
    report = validated()
    assert failed(report) == [SUB]
    assert "it came from linear_2_3, the graph has another parent" in report[SUB].reasons[0]


def test_swapped_edges_fail(altered_graph):
    altered_graph(lambda edges, at: [[s, d, 1 - a if d == at(SUB) else a] for s, d, a in edges])
    assert failed(validated()) == [SUB]


@pytest.mark.parametrize("label", ["linear_2_3", SUB, "output_1"])
def test_lost_edge_fails(altered_graph, label):
    def lose(edges, at):
        lost = next(edge for edge in edges if edge[1] == at(label))
        return [edge for edge in edges if edge is not lost]

    altered_graph(lose)
    assert failed(validated()) == [label]


def test_additional_edge_fails(altered_graph):
    altered_graph(lambda edges, at: sorted([*edges, [0, at(RELU), 1]], key=lambda edge: edge[1]))
    assert failed(validated()) == [RELU]


def test_additional_edge_into_a_taken_argument_fails(altered_graph):
    altered_graph(lambda edges, at: sorted([*edges, [0, at(SUB), 1]], key=lambda edge: edge[1]))
    (check,) = validated().failed
    assert (check.label, check.reasons) == (SUB, ("argument '1': it did not come from input_1",))


def test_lost_parameter_fails(altered_graph):
    altered_graph(params=lambda pairs: pairs[1:])
    (check,) = validated().failed
    assert (check.label, "a.weight" in check.reasons[0]) == ("linear_1_1", True)


def test_wrong_output_fails(altered_graph):
    altered_graph(lambda edges, at: [[at(RELU) if d == at("output_1") else s, d, a] for s, d, a in edges])
    assert not validated()


# -- wrong recordings ------------------------------------------------------------------------------------


@pytest.fixture
def altered_note(monkeypatch):
    """Return a function that changes the notes of the calls of one function, given as a list."""

    def alter(func, change):
        def noted(self, *args):
            note = plain(self, *args)
            if args[0] is func:
                note = list(note)
                change(note)
                if callable(note[0]):  # functions are noted by their numbers
                    note[0] = self._learn(note[0])[0]
            return tuple(note)

        plain = CallLog.logged_call
        monkeypatch.setattr(CallLog, "logged_call", noted)

    return alter


def swap(note):
    (first, a, second, b) = note[3]
    note[3] = (second, a, first, b)


def first_twice(note):
    (first, a, _, b) = note[3]
    note[3] = (first, a, first, b)


def other_number(note):
    note[2] = (("alpha", 3),)


def other_function(note):
    note[0] = torch.add


def ignoring_function(note):
    note[0] = lambda a, b, alpha: a - 2 * b.detach().sign() * b.abs() if b.sum() > 1e9 else None


@pytest.mark.parametrize("alter", [swap, first_twice, other_number, other_function, ignoring_function])
def test_altered_note_fails(altered_note, alter):
    altered_note(torch.sub, alter)
    assert failed(validated()) == [SUB]


def test_ignored_argument_fails(altered_note):
    def ignore(note):
        note[0] = lambda x, y: x + 1

    altered_note(torch.add, ignore)
    (check,) = intus.validate(torch.add, (torch.ones(3), torch.ones(3))).failed
    assert check.reasons == ("the call was of '<lambda>', the graph has 'add'",)


def test_ignored_argument_of_a_function_with_the_same_name_fails(altered_note):
    def add(x, y):
        return x + 1

    altered_note(torch.add, lambda note: note.__setitem__(0, add))
    (check,) = intus.validate(torch.add, (torch.ones(3), torch.ones(3))).failed
    assert check.reasons == ("another function was noted than was called",)


#: Functions of two tensors of equal shape, the first of which has no effect on these values.
WITHOUT_EFFECT = {
    "clamped": lambda a, b: torch.minimum(a + 1e9, b),
    "times 0": lambda a, b: torch.addcmul(b, a, torch.zeros(3)),
    "overwritten": lambda a, b: torch.slice_scatter(a, b),
    "weight 0": lambda a, b: torch.lerp(b, a, 0.0),
    "satisfied margin": lambda a, b: F.margin_ranking_loss(b + 1e9, b, torch.ones(3)) + a * 0,
    "one key": lambda a, b: F.scaled_dot_product_attention(a[None, None], b[None, None], b[None, None]),
}


EXP = 2 * len(ROW)  # the offset of the first call, after those of two inputs


@pytest.mark.parametrize("change", ["wrong", "swapped"])
@pytest.mark.parametrize("name", list(WITHOUT_EFFECT))
def test_wrong_parent_without_effect_fails(name, change, monkeypatch):
    """The recorder takes one tensor for another of equal shape, so that the graph and the notes agree."""

    def forward(a, b):
        kept.append(a.exp())
        return WITHOUT_EFFECT[name](a.sin(), b.cos())

    def noted(self, func, args, kwargs, inputs):
        if len(inputs) >= 4:
            inputs[0], inputs[2] = (EXP, inputs[2]) if change == "wrong" else (inputs[2], inputs[0])
        return plain(self, func, args, kwargs, inputs)

    given, kept = (torch.rand(3), torch.rand(3)), []
    assert intus.validate(forward, given)
    plain = CallLog.logged_call
    monkeypatch.setattr(CallLog, "logged_call", noted)
    report = intus.validate(forward, given)
    assert report.failed, str(report)
    assert "not the tensor that the call received" in report.failed[0].reasons[0]


def test_value_before_in_place_write_differs(altered_note):
    """``y`` before and after are one tensor object; the earlier value must not pass as the parent."""

    def forward(x):
        y = x * 2
        y.add_(1)
        return torch.tanh(y)

    def earlier(note):
        note[3] = (rows[0], *note[3][1:])

    rows = []
    altered_note(torch.Tensor.add_, lambda note: rows.append(note[3][0]))
    altered_note(torch.tanh, earlier)
    assert failed(intus.validate(forward, torch.ones(3))) == ["tanh_1_3"]


# -- side effects and memory ----------------------------------------------------------------------------


def test_activations_are_not_kept():
    refs, most = [], 0

    def forward(x):
        nonlocal most
        for number in range(50):
            x = torch.tanh(x) if number % 2 else F.relu(x + 1, inplace=True)
            refs.append(weakref.ref(x))
            most = max(most, sum(ref() is not None for ref in refs))
        return x

    gc.disable()
    try:
        report = intus.validate(forward, torch.ones(4))
        assert not any(ref() is not None for ref in refs)
    finally:
        gc.enable()
    assert report
    assert most <= 2


def test_reads_through_views_after_writes():
    def forward(x):
        y = x * 2
        first, second = y[:2], y[1:]
        z = second + 0
        first.mul_(10)  # writes into the memory of ``second``
        y[0], kept = x[0], second * 3
        y.numpy()
        return y.sum() + kept.sum() + z.sum() + torch.sin(y).sum()

    trace = intus.trace(forward, torch.arange(1.0, 5))
    assert statuses(intus.validate(forward, torch.arange(1.0, 5))) == statuses(trace.validate())


def test_validate_restores_model_and_random_state():
    model, x = make("cnn", training=True)
    model.zero_grad()
    before = copy.deepcopy(model.state_dict())
    given, state = x.clone(), torch.get_rng_state()
    out, after = model(x), torch.get_rng_state()
    model.load_state_dict(before)
    torch.set_rng_state(state)
    assert intus.validate(model, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, given)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(model(x), out)
    assert torch.equal(torch.get_rng_state(), after)


def test_validate_does_not_change_what_the_model_computes():
    seen = []

    def forward(x):
        x = F.dropout(x * torch.rand(4), 0.5)
        x.add_(torch.randn(4))[:2].mul_(3)
        seen.append(x.clone())
        return x

    torch.manual_seed(3)
    forward(torch.ones(4))
    torch.manual_seed(3)
    intus.validate(forward, torch.ones(4), fidelity=False)
    assert torch.equal(*seen)


def test_exception_of_the_model_is_raised():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        intus.validate(nn.Linear(2, 2), torch.ones(1, 3))


def test_script_module_is_validated_as_one_op():
    torch.manual_seed(0)
    with pytest.warns(DeprecationWarning, match="deprecated"):
        inner = torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(1, 4))
    model = nn.Sequential(nn.Linear(4, 4), inner, nn.Dropout(0.5))
    trace = intus.trace(model, torch.ones(1, 4))
    report = intus.validate(model, torch.ones(1, 4))
    assert report
    assert statuses(report) == statuses(trace.validate())
    assert "topleveltracedmodule_1_2" in [check.label for check in report.proven]


def test_inference_mode_with_in_place_writes():
    x = torch.ones(4)
    with torch.inference_mode():
        report = intus.validate(lambda x: x.mul_(3).add_(1)[:2].mul_(2) + x[:2], x)
    assert report, str(report)
    assert torch.equal(x, torch.ones(4))


# -- ops that are alike ----------------------------------------------------------------------------------


def twice(x, y):
    return torch.sub(torch.sub(x, y), y) - (x * 0) - (y * 0)


@pytest.mark.parametrize("by", [lambda *given, **how: intus.trace(*given).validate(**how), intus.validate])
def test_report_names_the_alike_op(by):
    given = twice, (torch.randn(3), torch.randn(3))
    report, full = by(*given), by(*given, perturb="all")
    assert [check.alike for check in report] == [(), ("sub_1_1:1",), (), (), (), ("sub_2_3:1",), ()]
    assert ["zero" in check.reasons[0] for check in report.exempt] == [True, True]
    assert "5 of 7 ops proven (2 with random values tried on an op that is alike), 2 exempt" in str(report)
    assert statuses(report) == statuses(full)
    assert not any(check.alike for check in full)


def test_argument_is_tried_again_until_it_mattered():
    """The first ``where`` selects nothing of ``x``, the second all of it."""

    def forward(x):
        none, all_ = torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
        return torch.where(none, x, 1.0) + torch.where(all_, x, 1.0)

    report = intus.validate(forward, torch.ones(3))
    first, second = (check for check in report if check.label.startswith("where"))
    assert "argument '1': the mask selects none of it" in first.reasons
    assert [why for why in second.reasons if "argument '1'" in why] == []


@pytest.mark.parametrize("perturb", ["some", True])
def test_invalid_perturb_is_refused(perturb):
    with pytest.raises(intus.IntusError, match="is not one of 'alike', 'all'"):
        intus.validate(Net(), torch.ones(1, 4), perturb=perturb)
    with pytest.raises(intus.IntusError, match="is not one of 'alike', 'all'"):
        intus.trace(Net(), torch.ones(1, 4)).validate(perturb=perturb)


def through_the_storage(x):
    y, z = x * 2, torch.zeros(len(x))
    z.untyped_storage().copy_(y.untyped_storage())
    return z + 1


def by_the_address(x):
    y, z = x * 2, torch.zeros(len(x))
    ctypes.memmove(z.data_ptr(), y.data_ptr(), z.nbytes)
    return z + 1


def in_another_order(x):
    y = x.sin()
    y.untyped_storage().copy_(y.flip(0).untyped_storage())
    return y + 1


@pytest.mark.parametrize("size", [3, 100_003])
@pytest.mark.parametrize("forward", [through_the_storage, by_the_address, in_another_order])
def test_write_that_changes_no_version_is_detected(forward, size):
    x = torch.linspace(0.5, 1.5, size)
    assert intus.trace(forward, x).validate().failed
    report = intus.validate(forward, x)
    (check,) = report.unproven
    assert check.label.startswith("add_1")
    assert check.reasons == ("an argument was written to by something that was not recorded",)
