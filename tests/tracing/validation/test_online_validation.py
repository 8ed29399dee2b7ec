"""Proof while the model runs: it says what saved values say, catches every lie, and keeps nothing."""

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from zoo_models import ZOO, make

import intus
from intus.tracing import run
from intus.tracing.capture.call_log import CallLog


def told(report):
    return [(check.label, check.status) for check in report]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", list(ZOO))
def test_it_says_what_the_saved_values_say(name, training):
    model, x = make(name, training)
    trace = intus.trace(model, x)
    assert told(intus.validate(model, x)) == told(trace.validate(perturb="all"))
    assert told(intus.validate(model, x, perturb="all")) == told(trace.validate())


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


def test_the_net_itself_is_valid():
    assert len(validated().proven) == 5


# -- a graph that lies -----------------------------------------------------------------------------------


@pytest.fixture
def lying(monkeypatch):
    """Makes the graph of the next pass another: its edges, its parameters."""

    def lie(edges=None, params=None):
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

        plain = run.assemble
        monkeypatch.setattr(run, "assemble", assemble)

    return lie


def test_a_wrong_edge_is_caught(lying):
    lying(lambda edges, at: [[at("linear_1_1") if (d, a) == (at(SUB), 0) else s, d, a] for s, d, a in edges])
    report = validated()
    assert failed(report) == [SUB]
    assert "it came from linear_2_3, not as the graph has it" in report[SUB].reasons[0]


def test_swapped_edges_are_caught(lying):
    lying(lambda edges, at: [[s, d, 1 - a if d == at(SUB) else a] for s, d, a in edges])
    assert failed(validated()) == [SUB]


@pytest.mark.parametrize("label", ["linear_2_3", SUB, "output_1"])
def test_a_lost_edge_is_caught(lying, label):
    def lose(edges, at):
        lost = next(edge for edge in edges if edge[1] == at(label))
        return [edge for edge in edges if edge is not lost]

    lying(lose)
    assert failed(validated()) == [label]


def test_an_edge_too_many_is_caught(lying):
    lying(lambda edges, at: sorted([*edges, [0, at(RELU), 1]], key=lambda edge: edge[1]))
    assert failed(validated()) == [RELU]


def test_a_lost_parameter_is_caught(lying):
    lying(params=lambda pairs: pairs[1:])
    (check,) = validated().failed
    assert (check.label, "a.weight" in check.reasons[0]) == ("linear_1_1", True)


def test_an_output_of_something_else_is_caught(lying):
    lying(lambda edges, at: [[at(RELU) if d == at("output_1") else s, d, a] for s, d, a in edges])
    assert not validated()


# -- a recorder that lies --------------------------------------------------------------------------------


@pytest.fixture
def misnoted(monkeypatch):
    """Notes the calls of one function as others than they were: ``change`` gets the note as a list."""

    def lie(func, change):
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

    return lie


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


def deaf(note):
    note[0] = lambda a, b, alpha: a - 2 * b.detach().sign() * b.abs() if b.sum() > 1e9 else None


@pytest.mark.parametrize("lie", [swap, first_twice, other_number, other_function, deaf])
def test_a_call_that_was_misnoted_is_caught(misnoted, lie):
    misnoted(torch.sub, lie)
    assert failed(validated()) == [SUB]


def test_a_function_that_ignores_an_argument_is_caught(misnoted):
    def ignore(note):
        note[0] = lambda x, y: x + 1

    misnoted(torch.add, ignore)
    (check,) = intus.validate(torch.add, (torch.ones(3), torch.ones(3))).failed
    assert check.reasons == ("argument '1': random values give the same result",)


def test_the_value_before_a_write_in_place_is_not_the_one_after(misnoted):
    """``y`` of before and ``y`` of after are one tensor: a parent that is the earlier must not pass."""

    def forward(x):
        y = x * 2
        y.add_(1)
        return torch.tanh(y)

    def earlier(note):
        note[3] = (rows[0], *note[3][1:])

    rows = []
    misnoted(torch.Tensor.add_, lambda note: rows.append(note[3][0]))
    misnoted(torch.tanh, earlier)
    assert failed(intus.validate(forward, torch.ones(3))) == ["tanh_1_3"]


# -- what it leaves and what it takes --------------------------------------------------------------------


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


def test_what_is_read_through_a_view_is_what_it_was():
    def forward(x):
        y = x * 2
        first, second = y[:2], y[1:]
        z = second + 0
        first.mul_(10)  # writes into what ``second`` sees
        y[0], kept = x[0], second * 3
        y.numpy()
        return y.sum() + kept.sum() + z.sum() + torch.sin(y).sum()

    trace = intus.trace(forward, torch.arange(1.0, 5))
    assert told(intus.validate(forward, torch.arange(1.0, 5))) == told(trace.validate())


def test_a_model_is_left_as_it_was():
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


def test_what_the_model_computes_while_it_is_proven_is_what_it_computes():
    seen = []

    def forward(x):
        x = F.dropout(x * torch.rand(4), 0.5)
        x.add_(torch.randn(4))[:2].mul_(3)
        seen.append(x.clone())
        return x

    torch.manual_seed(3)
    forward(torch.ones(4))
    torch.manual_seed(3)
    intus.validate(forward, torch.ones(4))
    assert torch.equal(*seen)


def test_an_exception_of_the_model_is_its_own():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        intus.validate(nn.Linear(2, 2), torch.ones(1, 3))


def test_a_module_out_of_sight_is_proven_as_one():
    torch.manual_seed(0)
    with pytest.warns(DeprecationWarning, match="deprecated"):
        inner = torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(1, 4))
    model = nn.Sequential(nn.Linear(4, 4), inner, nn.Dropout(0.5))
    trace = intus.trace(model, torch.ones(1, 4))
    report = intus.validate(model, torch.ones(1, 4))
    assert report
    assert told(report) == told(trace.validate())
    assert "topleveltracedmodule_1_2" in [check.label for check in report.proven]


def test_inference_mode_and_inputs_written_to():
    x = torch.ones(4)
    with torch.inference_mode():
        report = intus.validate(lambda x: x.mul_(3).add_(1)[:2].mul_(2) + x[:2], x)
    assert report, str(report)
    assert torch.equal(x, torch.ones(4))


# -- ops that are alike ----------------------------------------------------------------------------------


def twice(x, y):
    return torch.sub(torch.sub(x, y), y) - (x * 0) - (y * 0)


@pytest.mark.parametrize("by", [lambda *given, **how: intus.trace(*given).validate(**how), intus.validate])
def test_the_report_says_on_which_op_random_values_were_tried(by):
    given = twice, (torch.randn(3), torch.randn(3))
    report, full = by(*given), by(*given, perturb="all")
    assert [check.alike for check in report] == [(), ("sub_1_1:1",), (), (), (), ("sub_2_3:1",), ()]
    assert ["zero" in check.reasons[0] for check in report.exempt] == [True, True]
    assert "5 of 7 ops proven (2 with random values tried on an op alike), 2 exempt" in str(report)
    assert told(report) == told(full)
    assert not any(check.alike for check in full)


def test_what_mattered_nowhere_yet_is_asked_anew():
    """The first ``where`` takes nothing of ``x``, the second all of it."""

    def forward(x):
        none, all_ = torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
        return torch.where(none, x, 1.0) + torch.where(all_, x, 1.0)

    report = intus.validate(forward, torch.ones(3))
    first, second = (check for check in report if check.label.startswith("where"))
    assert "argument '1': the mask selects none of it" in first.reasons
    assert [why for why in second.reasons if "argument '1'" in why] == []


@pytest.mark.parametrize("perturb", ["some", True])
def test_a_wrong_choice_is_told(perturb):
    with pytest.raises(intus.IntusError, match="is not one of 'alike', 'all'"):
        intus.validate(Net(), torch.ones(1, 4), perturb=perturb)
    with pytest.raises(intus.IntusError, match="is not one of 'alike', 'all'"):
        intus.trace(Net(), torch.ones(1, 4)).validate(perturb=perturb)
