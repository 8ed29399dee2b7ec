"""intus.validate compares the traced pass with passes of the plain model."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from zoo_models import ZOO, make

import intus
from intus.tracing.capture.interpose import Capture


def is_traced():
    return torch._C._len_torch_function_stack() > 0


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", list(ZOO))
def test_zoo_is_the_same_as_plain(name, training):
    model, x = make(name, training)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    report = intus.validate(model, x)
    assert report.fidelity.status == "same", str(report)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_changed_state_is_counted():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    report = intus.validate(model, torch.randn(4, 3), seed=1)
    assert str(report.fidelity) == (
        "fidelity: the same as the untraced model, before and after "
        "(1 output, 3 changed in the model or the inputs, random state)"
    )


def test_other_computation_under_a_trace_differs():
    report = intus.validate(lambda x: x + 1 if is_traced() else x + 3, torch.ones(2))
    assert not report
    assert not report.failed
    assert report.fidelity == ("differs", ("the output differs by up to 2",), 0, 0)
    assert str(report) == (
        "failed: 2 of 2 ops proven\n"
        "fidelity: the traced pass differs from the untraced model\n"
        "  the output differs by up to 2"
    )


def test_other_random_numbers_under_a_trace_differ():
    def forward(x):
        if is_traced():
            torch.rand(1)
        return x + 1

    report = intus.validate(forward, torch.ones(2))
    assert report.fidelity.reasons == ("other random numbers are drawn from the generator of torch (cpu)",)


def test_other_state_under_a_trace_differs():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = 0
            self.register_buffer("total", torch.zeros(()))

        def forward(self, x):
            self.steps += 1 + is_traced()
            self.total.add_(1 + is_traced())
            return x + 1

    report = intus.validate(Counter(), torch.ones(2))
    assert report.fidelity.status == "differs"
    assert report.fidelity.reasons == (
        "'steps' is left with another value (1, then 2)",
        "'total' is left with another value by up to 1",
    )


def test_state_that_is_not_restored_differs(monkeypatch):
    monkeypatch.setattr(Capture, "_undo_writes", lambda self: None)
    report = intus.validate(nn.BatchNorm1d(3), torch.randn(4, 3))
    assert report.fidelity.status == "differs"
    assert "'running_mean' is not restored after the trace by up to" in report.fidelity.reasons[0]


def test_hidden_state_that_the_trace_moves_differs():
    moved = []

    def forward(x):
        out = x + len(moved)
        moved.extend([1] * is_traced())
        return out

    report = intus.validate(forward, torch.ones(2))
    assert report.fidelity.reasons == ("after the trace, the output differs by up to 1",)


def test_model_that_is_not_deterministic():
    count = itertools.count()
    report = intus.validate(lambda x: x + next(count), torch.ones(2))
    assert report, str(report)
    assert report.fidelity.status == "not deterministic"
    assert "not decided, because the untraced model differs from itself" in str(report)


def test_model_whose_first_pass_differs():
    memo = []

    def forward(x):
        if not memo:
            memo.append(1)
            return x
        return x * 2

    report = intus.validate(forward, torch.ones(2))
    assert report.fidelity == (
        "not deterministic",
        ("only in the first pass, the output differs by up to 1",),
        0,
        0,
    )


def test_outputs_that_are_not_tensors_are_compared():
    report = intus.validate(
        lambda x: {"loss": x.sum(), "n": 3 + is_traced(), "nan": float("nan")}, torch.ones(2)
    )
    assert report.fidelity.reasons == ("output 'n' differs (3, then 4)",)


def test_inputs_with_history_and_in_place_writes():
    encoder = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    hidden = encoder(torch.randn(2, 3))
    history, value = hidden.grad_fn, hidden.clone()
    report = intus.validate(lambda x: F.silu(x, inplace=True) * 2, hidden)
    assert report, str(report)
    assert report.fidelity.status == "same"
    assert hidden.grad_fn is history
    assert torch.equal(hidden, value)


GLOBAL = torch.zeros(2)


def writes_to_global(x):
    return GLOBAL.add_(x) * 1


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.states = {"last": [torch.zeros(2)]}

    def forward(self, x):
        return self.states["last"][0].add_(x) * 1


def test_tensors_that_plain_passes_write_into_are_restored():
    closure = torch.zeros(2)
    module = Remembering()
    written = {
        writes_to_global: GLOBAL,
        (lambda x: closure.add_(x) * 1): closure,
        module: module.states["last"][0],
    }
    for function, state in written.items():
        report = intus.validate(function, torch.ones(2))
        assert report.fidelity.status == "same", str(report)
        assert not state.any()


@pytest.mark.parametrize(
    ("function", "given", "reason"),
    [
        (nn.LazyLinear(2), torch.ones(1, 3), "lazy module"),
        (lambda parts: sum(parts), (iter([torch.ones(2), torch.ones(2)]),), "iterator"),
        (lambda x: x * 2, torch.ones(2, device="meta"), "without values of their own"),
        (torch.empty_like, torch.ones(2), "uninitialized memory"),
    ],
)
def test_not_compared(function, given, reason):
    fidelity = intus.validate(function, given).fidelity
    assert fidelity.status == "not compared"
    assert reason in str(fidelity)


def test_fidelity_inside_a_trace_is_not_compared():
    reports = []

    def forward(x):
        reports.append(intus.validate(lambda y: y * 2, x))
        return x + 1

    trace = intus.trace(forward, torch.ones(2))
    assert [op.type for op in trace.ops].count("mul") <= 1
    assert [report.fidelity.status for report in reports] == ["not compared"]


def test_fidelity_can_be_left_out():
    runs = []
    report = intus.validate(lambda x: runs.append(1) or x * 2, torch.ones(2), fidelity=False)
    assert (report.fidelity, len(runs), bool(report)) == (None, 1, True)
    assert str(report) == "valid: 2 of 2 ops proven"


def test_exception_of_the_plain_model_restores_the_state():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            self.norm(x)
            raise RuntimeError("broken")

    model = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        intus.validate(model, torch.randn(4, 3))
    assert not model.norm.running_mean.any()
    assert model.norm.num_batches_tracked == 0


def test_compiled_model_is_not_compared():
    model = torch.compile(nn.Linear(2, 2), backend="eager")
    report = intus.validate(model, torch.ones(1, 2))
    assert report, str(report)
    assert "torch.compile" in report.fidelity.reasons[0]


def test_expanded_inputs():
    """torch refuses to write to an expanded tensor, also to restore it."""
    mask = torch.zeros(1, 4).expand(3, 4)
    report = intus.validate(lambda x, mask: x + mask, torch.randn(3, 4), mask)
    assert report.fidelity.status == "same", str(report)
    assert mask.stride() == (0, 1)


def test_state_of_a_model_that_a_function_reaches_is_compared(monkeypatch):
    model = nn.BatchNorm1d(3)
    assert intus.validate(lambda x: model(x), torch.randn(4, 3)).fidelity.status == "same"
    monkeypatch.setattr(Capture, "_undo_writes", lambda self: None)
    report = intus.validate(lambda x: model(x), torch.randn(4, 3))
    assert report.fidelity.status == "differs"
    assert "'BatchNorm1d.running_mean' is not restored after the trace" in report.fidelity.reasons[0]
