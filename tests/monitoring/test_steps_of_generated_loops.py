"""Parameters, gradients and updates of generated loops are the loop's own copies around its steps."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import flush, probe

HOST = "127.0.0.1"
KINDS = ("parameter", "parameter_grad", "update")
RUNS = itertools.count()
CLIPS = {
    "none": lambda model: None,
    "norm": lambda model: clip_grad_norm_(model.parameters(), 0.05),
    "value": lambda model: clip_grad_value_(model.parameters(), 0.01),
}
LOOPS = st.builds(
    SimpleNamespace,
    accumulation=st.integers(1, 4),
    steps=st.integers(1, 5),
    epochs=st.integers(1, 3),
    optimizer=st.sampled_from(["SGD", "Adam", "two", "SGD with a closure", "LBFGS"]),
    clip=st.sampled_from(sorted(CLIPS)),
    zero_grad=st.sampled_from(["before the backward passes", "after the step"]),
    set_to_none=st.booleans(),
    evaluates=st.sampled_from(["never", "after an epoch", "before a step"]),
    is_named=st.booleans(),
    keeps_rest=st.booleans(),
)


def optimizers_of(model, loop):
    first, second = model[0].parameters(), model[2].parameters()
    match loop.optimizer:
        case "two":
            return [torch.optim.SGD(first, 0.5), torch.optim.Adam(second, 0.1)]
        case "LBFGS":
            return [torch.optim.LBFGS(model.parameters(), 0.5, max_iter=3)]
        case "Adam":
            return [torch.optim.Adam(model.parameters(), 0.1)]
    return [torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)]


class Training:
    """A loop, which copies what a step of an optimizer gets and does."""

    def __init__(self, loop, address=None, **options):
        torch.manual_seed(0)
        self.loop, self.model = loop, nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        self.optimizers, self.seen = optimizers_of(self.model, loop), defaultdict(list)
        rest = loop.keeps_rest and loop.accumulation > 1
        rows = 5 * (loop.accumulation * loop.steps + rest)
        self.data = TensorDataset(torch.randn(rows, 4), torch.randint(0, 2, (rows,)))
        options |= {"kinds": KINDS, "budget": math.inf, "block": True, "structure": False}
        watch = nullcontext() if address is None else probe(self.model, *address, **options)
        with watch as self.watch:
            for epoch in range(1, loop.epochs + 1):
                if loop.is_named and self.watch is not None:
                    self.watch.epoch = epoch
                self.run(epoch)

    def run(self, epoch):
        loop = self.loop
        batches = []
        for batch in DataLoader(self.data, 5, shuffle=True):
            batches.append(batch)
            if "closure" not in loop.optimizer and loop.optimizer != "LBFGS":
                self.backward([batch], zero=len(batches) == 1 and loop.zero_grad.startswith("before"))
            if len(batches) == loop.accumulation:
                self.step(epoch, batches)
                batches = []
        if batches:
            self.step(epoch, batches)
        for name, parameter in self.model.named_parameters():
            self.seen["parameter", name, epoch] = [parameter.detach().clone()]
        if loop.evaluates == "after an epoch":
            self.evaluate()

    def backward(self, batches, zero):
        if zero:
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=self.loop.set_to_none)
        for x, y in batches:
            loss = nn.functional.cross_entropy(self.model(x), y) / self.loop.accumulation
            loss.backward()
        return loss

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            self.model(self.data.tensors[0])
        self.model.train()

    def step(self, epoch, batches):
        def closure():
            loss = self.backward(batches, zero=True)
            CLIPS[self.loop.clip](self.model)
            return loss

        has_closure = self.loop.optimizer in ("SGD with a closure", "LBFGS")
        if not has_closure:
            CLIPS[self.loop.clip](self.model)
            if self.loop.evaluates == "before a step":
                self.evaluate()
        for optimizer in self.optimizers:
            ids = {id(one) for group in optimizer.param_groups for one in group["params"]}
            own = {name: one for name, one in self.model.named_parameters() if id(one) in ids}
            before = {name: (one.detach().clone(), one.grad) for name, one in own.items()}
            before = {name: (one, None if g is None else g.clone()) for name, (one, g) in before.items()}
            optimizer.step(*[closure] * has_closure)
            for name, one in own.items():
                gradient = one.grad.clone() if has_closure else before[name][1]
                self.seen["parameter_grad", name, epoch].append(gradient)
                self.seen["update", name, epoch].append(one.detach() - before[name][0])
        if self.loop.zero_grad.startswith("after"):
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=self.loop.set_to_none)


@pytest.mark.long
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(loop=LOOPS)
def test_records_are_what_the_steps_of_the_loop_got_and_did(server, loop):
    run = f"{next(RUNS)}"
    watched, alone = Training(loop, (HOST, server.port), run=run), Training(loop)
    assert flush(HOST, server.port)
    for one, other in zip(watched.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(one, other)
    found = defaultdict(list)
    for record in server.records():
        if record.run == run and record.mode == "train":
            found[record.kind, record.address, record.epoch].append(record.array)
    for (kind, name, epoch), arrays in watched.seen.items():
        rows = found.pop((kind, name, epoch))
        if kind == "parameter":  # of which the last counts
            rows = rows[-1:]
        assert len(rows) == len(arrays), (kind, name, epoch)
        for row, array in zip(rows, arrays, strict=True):
            np.testing.assert_array_equal(row, array.numpy())
    assert not found


def rows_of(server, run, kind):
    """Return the arrays of the weight that were recorded, in order."""
    records = [one for one in server.records() if one.run == run and one.kind == kind]
    return [one.array for one in records if one.address == "weight"]


def watched(server, model, run, **options):
    return probe(model, HOST, server.port, run=run, budget=math.inf, block=True, structure=False, **options)


@pytest.mark.parametrize("fused", [False, True])
def test_gradients_of_a_scaled_loss_are_those_that_the_optimizer_applies(server, fused):
    model, scaler, applied = nn.Linear(3, 2), torch.amp.GradScaler("cpu", init_scale=1024.0), []
    optimizer = torch.optim.SGD(model.parameters(), 1.0, fused=fused)
    with watched(server, model, f"{fused}", kinds=("parameter_grad", "update")):
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 3)).square().mean() * (math.inf if step == 1 else 1)
            scaler.scale(loss).backward()
            before = model.weight.detach().clone()
            scaler.step(optimizer)
            scaler.update()
            if step != 1:  # which the scaler skips
                applied.append((before - model.weight.detach()).numpy())
    assert flush(HOST, server.port)
    for kind, sign in (("parameter_grad", 1), ("update", -1)):
        rows = rows_of(server, f"{fused}", kind)
        assert len(rows) == 3
        for row, array in zip(rows, applied, strict=True):
            np.testing.assert_allclose(sign * row, array, rtol=1e-5, atol=1e-6)


def test_training_without_an_optimizer_has_a_row_for_each_backward_pass_and_says_so(server, caplog):
    caplog.set_level("INFO", "intus")
    model, given = nn.Linear(3, 2), []
    kinds = ("parameter", "parameter_grad")
    with watched(server, model, "by hand", kinds=kinds) as watch:
        for watch.epoch in (1, 2):
            for _ in range(2):
                model(torch.randn(5, 3)).square().mean().backward()
                given.append(model.weight.grad.numpy().copy())
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
            model.zero_grad()
    assert flush(HOST, server.port)
    rows = rows_of(server, "by hand", "parameter_grad")
    np.testing.assert_array_equal(rows, given)
    np.testing.assert_array_equal(rows_of(server, "by hand", "parameter")[-1], model.weight.detach())
    assert watch.status()["troubles"] == 0
    assert caplog.text.count("No optimizer of torch has the parameters of this Linear") == 1


def test_parameters_that_are_loaded_after_the_last_epoch_are_not_those_of_it(server):
    torch.manual_seed(0)
    model, data = nn.Linear(3, 2), TensorDataset(torch.randn(20, 3))
    optimizer, best = torch.optim.SGD(model.parameters(), 0.1), None
    with watched(server, model, "best", kinds=("output", "parameter")):
        for _ in range(2):
            for (x,) in DataLoader(data, 5):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            best = best or {name: one.clone() for name, one in model.state_dict().items()}
        last = model.weight.detach().clone()
        model.load_state_dict(best)
    assert flush(HOST, server.port)
    first, second = rows_of(server, "best", "parameter")
    np.testing.assert_array_equal(first, best["weight"])
    np.testing.assert_array_equal(second, last)


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.fc, self.out, self.reentrant = nn.Linear(3, 4), nn.Linear(4, 2), reentrant

    def forward(self, x):
        return self.out(checkpoint(self.fc, x.requires_grad_(), use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [True, False])
def test_layers_whose_gradients_a_reentrant_checkpoint_hides_are_named(server, reentrant):
    model = Checkpointed(reentrant)
    with watched(server, model, f"checkpoint {reentrant}", kinds=("output", "grad_output")) as watch:
        for _ in range(2):
            model(torch.randn(5, 3)).sum().backward()
    faults = [fault for fault in watch.status()["faults"] if "use_reentrant=False" in fault]
    assert len(faults) == reentrant
    assert not faults or "1 of 3 layers of Checkpointed, for example 'fc'" in faults[0]
