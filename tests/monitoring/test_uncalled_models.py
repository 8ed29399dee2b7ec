"""A model that is trained without a call of it, as in compiled code, is shown as it was, or not at all."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import probe
from intus.serving.run import Server

ROWS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
DATA = TensorDataset(ROWS, LABELS)
SET = (ROWS[:30], {"y": LABELS[:30]})


class Net(nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 2)

    def encode(self, x):
        return self.body(self.norm(x)).relu()

    def forward(self, x):
        return self.head(self.encode(x))


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Return a function that probes a model with a probe set."""
    with Server(database=tmp_path_factory.mktemp("uncalled") / "x.db", port=0, scores="mean") as server:
        yield partial(probe, host=server.host, port=server.port, block=True, probe_set=SET)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_in_place(model):
    model.compile(backend="eager")
    return model


CALLS = {
    "by methods": lambda model: lambda x: model.head(model.encode(x)),
    "by forward": lambda model: model.forward,
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "compiled in place": compiled_in_place,
    "called": lambda model: model,
}


def epoch_of(call, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(call(x), y).backward()
        optimizer.step()


def loaded(shuffle=True):
    return DataLoader(DATA, batch_size=20, shuffle=shuffle)


def mean_of(model):
    """Return the mean of the first layer without a call of the model."""
    with torch.no_grad():
        return float(F.linear(model.norm(ROWS[:30]), model.body.weight, model.body.bias).double().mean())


def shown(kept):
    """Return the mean of the first layer by epoch, as recorded."""
    return {one.epoch: float(one.array.mean(dtype="float64")) for one in kept if one.address == "body"}


def checked(kept, means):
    assert shown(kept) == pytest.approx(dict(enumerate(means)), abs=1e-6)


@pytest.mark.parametrize("how", list(CALLS))
@pytest.mark.parametrize("validates", [False, True])
def test_epochs_of_a_model_that_is_not_called(watched, kept, how, validates):
    """Before, one look at the end was shown as epoch 0, which is the model before its training."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    call, means = CALLS[how](model), [mean_of(model)]
    with watched(model) as watch:
        for _ in range(3):
            model.train()
            epoch_of(call, optimizer, loaded())
            means.append(mean_of(model))
            if validates:
                with torch.no_grad():
                    model.eval()(ROWS[30:])
    checked(kept, means)
    status = watch.status()
    assert (status["faults"], status["never_called"], watch.epoch) == ([], [], 3)
    assert ("No call of the model itself came before a step" in status["epochs"]) == (how != "called")


def test_training_without_calls_is_bitwise_identical(watched):
    def train(*, watch):
        torch.manual_seed(0)
        model = Net(norm=True)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        probed = watched(model) if watch else None
        for _ in range(3):
            epoch_of(CALLS["by methods"](model), optimizer, loaded())
        if probed is not None:
            probed.remove()
        return [*model.state_dict().values(), torch.get_rng_state()]

    plain, probed = train(watch=False), train(watch=True)
    assert all(torch.equal(one, other) for one, other in zip(plain, probed, strict=True))


def test_buffers_that_the_first_batch_wrote_are_said(watched, kept):
    model = Net(norm=True)
    with watched(model) as watch:
        epoch_of(CALLS["by methods"](model), torch.optim.SGD(model.parameters(), 0.05), loaded())
    (fault,) = watch.status()["faults"]
    assert "after its first batch, which has written to its buffers" in fault
    assert set(shown(kept)) == {0, 1}


def by_hand(model, batches):
    for x, y in batches:
        F.cross_entropy(model.forward(x), y).backward()
        for one in model.parameters():
            one.data.add_(one.grad, alpha=-0.05)
            one.grad = None


@pytest.mark.parametrize("when", ["remove", "flush", "epoch"])
def test_trained_model_is_not_shown_as_untrained(watched, kept, when):
    """Nothing of PyTorch steps here, so that no epoch is known."""
    model = Net()
    with watched(model) as watch:
        by_hand(model, loaded())
        if when == "flush":
            assert watch.flush()
        elif when == "epoch":
            watch.epoch = 4
    assert set(shown(kept)) == ({4} if when == "epoch" else set())
    (fault,) = watch.status()["faults"]
    assert "its parameters changed before anything showed a training" in fault
    assert "Set watch.epoch = number" in fault


def test_epoch_0_that_the_script_names_is_shown(watched, kept):
    model = Net()
    with watched(model) as watch:
        for watch.epoch in (0, 1):
            by_hand(model, loaded())
    assert set(shown(kept)) == {0, 1}
    assert watch.status()["faults"] == []


def test_epochs_named_after_the_first_have_no_untrained_model_made_up(watched, kept):
    torch.manual_seed(0)
    model = Net()
    optimizer, means = torch.optim.SGD(model.parameters(), 0.05), [mean_of(model)]
    with watched(model) as watch:
        for number in (1, 2):
            epoch_of(model.forward, optimizer, loaded())
            means.append(mean_of(model))
            watch.epoch = number
    checked(kept, means)


def test_weights_that_are_loaded_are_no_training(watched, kept):
    model = Net()
    with watched(model) as watch:
        model.load_state_dict(Net().state_dict())
        means = [mean_of(model)]
        epoch_of(model.forward, torch.optim.SGD(model.parameters(), 0.05), loaded())
        means.append(mean_of(model))
    checked(kept, means)
    assert watch.status()["faults"] == []


@pytest.mark.parametrize("count", [1, 2])
def test_call_before_the_training_leaves_epoch_0(watched, kept, count):
    """A call in training mode before there is an optimizer shows no training."""
    model = Net()
    means = [mean_of(model)]
    with watched(model):
        for _ in range(count):
            model(ROWS)
        epoch_of(model.forward, torch.optim.SGD(model.parameters(), 0.05), [(ROWS, LABELS)])
        means.append(mean_of(model))
    checked(kept, means)


def test_steps_without_a_loader_are_one_epoch(watched, kept):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        for _ in range(3):
            epoch_of(model.forward, optimizer, zip(ROWS.split(20), LABELS.split(20), strict=True))
    assert set(shown(kept)) == {0, 1}
    (fault,) = watch.status()["faults"]
    assert "All passes of Net are in epoch 1" in fault


@pytest.mark.parametrize("calls", [True, False])
def test_closure_that_makes_the_gradients_is_a_step(watched, kept, calls):
    """Before, the status said of a model that the closure calls that nothing calls it."""
    model = Net()
    forward = model if calls else model.forward
    optimizer, means = torch.optim.LBFGS(model.parameters(), max_iter=2), [mean_of(model)]
    with watched(model) as watch:
        for _ in range(2):
            for x, y in loaded():

                def closure(x=x, y=y):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(forward(x), y)
                    loss.backward()
                    return loss

                optimizer.step(closure)
            means.append(mean_of(model))
        assert "not called to train it" not in watch.status()["epochs"]
    checked(kept, means)


def test_two_optimizers_of_one_model(watched, kept):
    model = Net()
    first, second = (torch.optim.SGD(part.parameters(), 0.05) for part in (model.body, model.head))
    means = [mean_of(model)]
    with watched(model) as watch:
        for _ in range(3):
            for x, y in loaded():
                F.cross_entropy(model.forward(x), y).backward()
                first.step()
                second.step()
            means.append(mean_of(model))
    checked(kept, means)
    assert watch.status()["faults"] == []


def test_accumulated_gradients_step_once_for_several_batches(watched, kept):
    model = Net()
    optimizer, means = torch.optim.SGD(model.parameters(), 0.05), [mean_of(model)]
    with watched(model) as watch:
        for _ in range(3):
            for number, (x, y) in enumerate(DataLoader(DATA, batch_size=15, shuffle=True)):
                F.cross_entropy(model.forward(x), y).backward()
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            means.append(mean_of(model))
    checked(kept, means)
    assert watch.status()["faults"] == []


def test_several_loaders_between_steps_are_said(watched):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        for _ in range(2):
            for (x, y), (other, _) in zip(loaded(), loaded(), strict=True):
                (F.cross_entropy(model.forward(x), y) + model.forward(other).sum()).backward()
                optimizer.step()
    assert any("several loaders give batches between two steps" in one for one in watch.status()["faults"])


def test_kept_batches_of_a_model_that_is_not_called_are_said(watched):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model) as watch:
        batches = list(loaded())
        for _ in range(3):
            epoch_of(model.forward, optimizer, batches)
    assert any("All passes of Net are in epoch 1, because no end" in one for one in watch.status()["faults"])


def test_every_counts_calls_that_there_must_be(watched, kept):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with watched(model, every=2) as watch:
        epoch_of(model.forward, optimizer, loaded())
    assert shown(kept) == {}
    (fault,) = watch.status()["faults"]
    assert "every=2 counts calls of the model itself" in fault
