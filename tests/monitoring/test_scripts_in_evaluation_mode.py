"""Scripts that train a model in evaluation mode have the records of the same scripts in training mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import flush, probe

HOST = "127.0.0.1"
KINDS = "output", "input", "grad_output", "parameter", "parameter_grad", "update"
ROWS = torch.randn(90, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
DATA, OTHERS = TensorDataset(ROWS[:60], LABELS[:60]), TensorDataset(ROWS[60:], LABELS[60:])
SET = {"probe_set": (ROWS[60:], {"y": LABELS[60:]}), "kinds": ("output",)}


class Net(nn.Module):
    """A model of which no layer depends on its mode; ``gives`` makes what a call returns."""

    def __init__(self, gives: Callable = lambda model, h, out: out) -> None:
        super().__init__()
        self.a, self.act, self.b = nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)
        self.gives = gives

    def forward(self, x):
        h = self.act(self.a(x))
        return self.gives(self, h, self.b(h))


def loaded():
    return DataLoader(DATA, 10, shuffle=True)


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1)


def run(server, script, *, trains, make=Net, **options):
    """Return what the server has of a script, by epoch, mode, step and place; and the status."""
    before = len(server.records())
    torch.manual_seed(0)
    model = make().train(trains)
    options = {"kinds": KINDS, "structure": False, "block": True, "budget": math.inf} | options
    with probe(model, HOST, server.port, **options) as watch:
        script(model, watch)
    assert flush(HOST, server.port)
    records = {
        (one.epoch, one.mode, one.step, one.kind, one.model, one.address): (
            one.array.tobytes(),
            None if one.items is None else one.items.tolist(),
            one.of_pass,
        )
        for one in server.records()[before:]
    }
    return records, watch.status()


def equal(server, script, **options):
    expected, found = (run(server, script, trains=trains, **options) for trains in (True, False))
    assert expected[0]
    assert found[0] == expected[0]
    for key in ("epochs", "items", "faults", "passes"):
        assert found[1][key] == expected[1][key]


def mostly_long(names, *quick):
    """Return parameters for a test, of which all but these are long."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in names]


# -- what the loss is computed from -------------------------------------------------------------------------


def by(loss):
    """Return a script that trains by a loss of a model and a batch."""

    def script(model, watch):
        optimizer = sgd(model)
        for _ in range(3):
            for x, y in loaded():
                optimizer.zero_grad()
                loss(model, x, y).backward()
                optimizer.step()

    return script


@dataclass
class Output:
    """Outputs of which only a nested one has gradients."""

    logits: torch.Tensor
    more: dict


def keeps(name, returns):
    """Return what keeps a tensor in an attribute of the model, and returns something else."""

    def gives(model, h, out):
        model.kept = {"h": h, "out": out}[name]
        return returns(out)

    return gives


def hooked():
    """Return a model with a hook of the script's that keeps features."""
    model = Net()
    model.act.register_forward_hook(lambda module, given, made: setattr(model, "kept", made))
    return model


def loss_of_kept(model, x, y):
    model(x)
    return model.kept.pow(2).sum()


OUTPUTS = {
    "features": (lambda: Net(keeps("h", lambda out: out)), loss_of_kept),
    "detached": (lambda: Net(keeps("out", torch.detach)), loss_of_kept),
    "nothing": (lambda: Net(keeps("out", lambda out: None)), loss_of_kept),
    "hook": (hooked, loss_of_kept),
    "dataclass": (
        lambda: Net(lambda model, h, out: Output(out.detach(), {"deep": [{"x": out}]})),
        lambda model, x, y: F.cross_entropy(model(x).more["deep"][0]["x"], y),
    ),
    "object": (
        lambda: Net(lambda model, h, out: SimpleNamespace(out=out)),
        lambda model, x, y: F.cross_entropy(model(x).out, y),
    ),
    "function": (
        lambda: Net(lambda model, h, out: lambda: out),
        lambda model, x, y: F.cross_entropy(model(x)(), y),
    ),
}


@pytest.mark.parametrize("name", mostly_long(OUTPUTS, "features", "hook"))
def test_loss_of_what_the_model_does_not_return(server, name):
    """Before, all was an evaluation, whose epochs were counted from 0, and no word said that it trains."""
    make, loss = OUTPUTS[name]
    equal(server, by(loss), make=make)


def test_training_whose_gradients_are_not_seen_is_said(server):
    """Only the module that is recorded is observed, and no gradient comes through it."""
    make, loss = OUTPUTS["features"]
    for which, is_said in (("a", False), ("b", True)):
        faults = run(server, by(loss), trains=False, make=make, which=which, kinds=("output",))[1]["faults"]
        assert any("An optimizer steps Net in evaluation mode" in one for one in faults) == is_said


# -- when the optimizer is made -----------------------------------------------------------------------------


def warmed(calls, *, over=1):
    """Return a script that makes the optimizer after some calls in evaluation mode with gradients."""

    def script(model, watch):
        before = model.training
        model.eval()
        for _ in range(calls):
            model(ROWS[60:70])
        model.train(before)
        optimizer = sgd(model)
        for _ in range(3):
            for number, (x, y) in enumerate(loaded(), 1):
                F.cross_entropy(model(x), y).backward()
                if number % over == 0:
                    optimizer.step()
                    optimizer.zero_grad()

    return script


@pytest.mark.parametrize(
    ("calls", "over"),
    [(5, 1), *(pytest.param(calls, over, marks=pytest.mark.long) for calls in (0, 2, 4) for over in (1, 3))],
)
def test_optimizer_that_is_made_after_calls(server, calls, over):
    """Before, it was looked for in the calls 1, 2, 4 and 8, so that the first batch was of an evaluation."""
    equal(server, warmed(calls, over=over))


def test_optimizer_that_is_found_too_late_is_said(server):
    """Other passes with gradients came before, and none was looked for since."""

    def script(model, watch):
        for _ in range(3):
            model.zero_grad()
            model(ROWS[60:70]).sum().backward()
        optimizer = sgd(model)
        for number, (x, y) in enumerate(loaded(), 1):
            F.cross_entropy(model(x), y).backward()
            if number % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()

    status = run(server, script, trains=False)[1]
    assert any("before a step of an optimizer could show" in one for one in status["faults"])


# -- when it is known whether a pass trains -----------------------------------------------------------------


def noisy(model, watch):
    """Call the model with what no loader gave, and leave gradients to the next epoch."""
    optimizer = sgd(model)
    for _ in range(3):
        for number, (x, y) in enumerate(loaded(), 1):
            F.cross_entropy(model(x + torch.randn_like(x)), y).backward()
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()


def written(model, watch):
    """Write to the batch before the step that follows."""
    optimizer = sgd(model)
    for _ in range(3):
        for x, y in loaded():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            x.zero_()
            optimizer.step()


def closures(kind):
    """Return a script whose optimizer calls the model."""

    def script(model, watch):
        optimizer = kind(model.parameters(), 0.1)
        for _ in range(3):
            for x, y in loaded():

                def closure(x=x, y=y):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(x), y)
                    loss.backward()
                    return loss

                optimizer.step(closure)

    return script


def scaled(*overflows):
    """Return a script in which a scaler skips the steps of some batches, as it may do at the beginning."""

    def script(model, watch):
        optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=256.0)
        for epoch in range(3):
            for number, (x, y) in enumerate(loaded()):
                optimizer.zero_grad()
                factor = math.inf if epoch * 6 + number in overflows else 1.0
                scaler.scale(F.cross_entropy(model(x), y) * factor).backward()
                scaler.step(optimizer)
                scaler.update()

    return script


def discriminated(model, watch):
    """Train a discriminator, and a generator through it, whose passes the next step may apply or not."""
    generator = nn.Linear(6, 6)
    of_model, of_generator = sgd(model), sgd(generator)
    for _ in range(3):
        for x, _ in loaded():
            fake = generator(x)
            of_model.zero_grad()
            (model(x).mean() - model(fake.detach()).mean()).backward()
            of_model.step()
            of_generator.zero_grad()
            model(fake).mean().backward()
            of_generator.step()


def shuffled_rows():
    """Return a model of which a layer has its rows in another order."""

    class Reversed(nn.Module):
        def forward(self, h):
            return h.flip(0)

    return nn.Sequential(nn.Linear(6, 5), Reversed(), nn.Linear(5, 2))


def normalized():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


def with_frozen_statistics(model, watch):
    model[1].eval()
    by(cross_entropy)(model, watch)


def cross_entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def of_mode(model, watch):
    watch.mode = "finetune"
    by(cross_entropy)(model, watch)


SCRIPTS = {
    "noise": (noisy, {}),
    "written": (written, {}),
    "closure": (closures(torch.optim.SGD), {}),
    "lbfgs": (closures(lambda parameters, lr: torch.optim.LBFGS(parameters, lr, max_iter=3)), {}),
    "overflow first": (scaled(0, 1), {}),
    "overflow": (scaled(5, 6, 7, 17), {}),
    "discriminator": (discriminated, {}),
    "moved rows": (by(cross_entropy), {"make": shuffled_rows}),
    "frozen statistics": (with_frozen_statistics, {"make": normalized}),
    "named mode": (of_mode, {}),
    "noise, set": (noisy, SET),
    "closure, set": (closures(torch.optim.SGD), SET),
    "lbfgs, set": (closures(lambda parameters, lr: torch.optim.LBFGS(parameters, lr, max_iter=3)), SET),
}


@pytest.mark.parametrize("name", mostly_long(SCRIPTS, "noise", "closure", "named mode"))
def test_pass_that_is_decided_later_is_that_of_its_call(server, name):
    """Before, one whose step came late was of the batch that had come by then, or of the model by then."""
    script, options = SCRIPTS[name]
    equal(server, script, **options)


@pytest.mark.parametrize("way", mostly_long(["no_grad", "frozen", "detached", "gradients"], "gradients"))
def test_teacher_that_never_trains_is_not_waited_for(server, way):
    """A distillation calls it for another model's training, whose steps are none of its own."""
    waiting = []

    def script(teacher, watch):
        teacher.requires_grad_(way != "frozen")
        student = Net()
        optimizer = sgd(student)
        for _ in range(3):
            for x, _ in loaded():
                with torch.set_grad_enabled(way != "no_grad"):
                    target = teacher(x)
                target = target.detach() if way == "detached" else target
                optimizer.zero_grad()
                F.mse_loss(student(x), target).backward()
                optimizer.step()
                waiting.append(len(waiting) + 1 - watch.status()["passes"])

    records, status = run(server, script, trains=False, kinds=("output",))
    assert max(waiting) <= (0 if way in ("no_grad", "frozen") else 1)
    assert {(epoch, mode) for epoch, mode, *_ in records} == {(0, "eval")}
    assert len(records) == 18 * 4
    assert not status["faults"]


def test_generator_in_evaluation_mode_is_evaluated_where_it_does_not_train(server):
    """Its calls for a discriminator are told from those that train it, as they are under ``no_grad``."""

    def script(model, watch, *, without=False):
        discriminator = nn.Linear(2, 1)
        of_model, of_others = sgd(model), sgd(discriminator)
        for _ in range(3):
            for x, _ in loaded():
                before = model.training
                model.eval()
                with torch.set_grad_enabled(not (without and before)):
                    fake = model(x).detach()
                model.train(before)
                of_others.zero_grad()
                discriminator(fake).mean().backward()
                of_others.step()
                of_model.zero_grad()
                discriminator(model(x)).mean().backward()
                of_model.step()

    expected = run(server, lambda *given: script(*given, without=True), trains=True, kinds=("output",))
    found = run(server, script, trains=False, kinds=("output",))
    assert found[0] == expected[0]
    assert {mode for _, mode, *_ in found[0]} == {"train", "eval"}


def test_two_probes_of_a_training_in_evaluation_mode(server):
    """The probe of a part and that of the whole decide for themselves."""

    def script(model, watch):
        with probe(model.a, HOST, server.port, name="part", run=watch.run, structure=False, block=True):
            by(cross_entropy)(model, watch)

    equal(server, script, run="both", name="whole")
    modes = {(one.model, one.mode, one.epoch) for one in server.records()}
    assert modes == {(name, "train", epoch) for name in ("whole", "part") for epoch in (1, 2, 3)}


def test_items_that_the_script_names_are_those_of_their_passes(server):
    def script(model, watch):
        optimizer = sgd(model)
        for watch.epoch in (1, 2, 3):
            for items in np.arange(60).reshape(6, 10):
                watch.items = items
                optimizer.zero_grad()
                F.cross_entropy(model(ROWS[items]), LABELS[items]).backward()
                optimizer.step()

    equal(server, script)
