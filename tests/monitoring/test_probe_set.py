"""A probe set is scored as it should be, and the training never notices it."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from intus.core.errors import InputError
from intus.monitoring import flush, probe, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.images[:128], dtype=torch.float32)[:, None] / 16
LABELS = torch.tensor(DIGITS.target[:128])
SET = (IMAGES[:32], {"digit": LABELS[:32]})


class Net(nn.Module):
    """Everything that a careless look would disturb."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)
        self.frozen, self.drop = nn.BatchNorm2d(6), nn.Dropout(0.3)
        self.head = nn.Linear(6 * 36, 10)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("rebound", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.rebound = self.rebound + 1
        np.random.rand()
        x = self.frozen(self.norm(self.conv(x))) + 0.01 * torch.rand(()) + 0.01 * random.random()
        return self.head(self.drop(x.relu()).flatten(1))


def train(model, watch=None, epochs=2):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.frozen.eval()
    for epoch in range(epochs):
        if watch is not None:
            watch.epoch = epoch
        for start in range(0, 128, 32):
            optimizer.zero_grad()
            F.cross_entropy(model(IMAGES[start : start + 32]), LABELS[start : start + 32]).backward()
            optimizer.step()


def seeded():
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    return Net()


def states():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


@pytest.mark.parametrize("every", [None, 1, 3])
def test_the_training_is_the_same_to_the_last_bit(server, every):
    model = seeded()
    train(model)
    plain, rng = copy.deepcopy(model.state_dict()), states()
    model = seeded()
    with probe(model, HOST, server.port, probe_set=SET, every=every) as watch:
        train(model, watch)
    assert all(torch.equal(plain[name], value) for name, value in model.state_dict().items())
    assert states() == rng
    assert [module.training for module in (model, model.norm, model.frozen)] == [True, True, False]
    assert watch.status()["troubles"] == 0
    assert watch.status()["passes"] == 8
    assert flush(HOST, server.port)
    at = [one.epoch for one in server.records() if one.address == "head"]
    assert at == {None: [0, 1], 1: [0, 1, 2, 3, 4, 5, 6, 7, 8], 3: [0, 3, 6, 7]}[every]


def test_what_is_sent_is_what_the_model_says_in_eval_mode(server):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout())
    with probe(model, HOST, server.port, run="r (1)", probe_set=SET) as watch:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(IMAGES).sum().backward()
        optimizer.step()
        expected = model.eval()(SET[0]).detach().numpy()
        model.train()
        assert flush(HOST, server.port)  # the last epoch is looked at, no more is to come
        assert watch.status()["recorded"] == 4
    records = {one.address: one for one in server.records()}
    assert np.array_equal(records[""].array, expected)
    assert records[""].items.tolist() == list(range(32))
    assert records[""].mode == "probe"
    (target,) = server.messages("/targets")
    assert (target["name"], target["targets"]) == ("digit", LABELS[:32].tolist())
    assert (target["run_pattern"], target["model_pattern"]) == (r"^r\ \(1\)$", "^Sequential$")
    assert len([path for path, _ in server.got if path.startswith("/graph")]) == 1


def test_gradients_under_autocast_survive_a_look(server):
    """Autocast keeps the weights it has cast: those cast without gradients must not be found again."""

    def gradient(**options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        with probe(model, HOST, server.port, **options), torch.autocast("cpu", dtype=torch.bfloat16):
            model(IMAGES).square().mean().backward()
        return model[1].weight.grad

    assert torch.equal(gradient(probe_set=SET, every=1), gradient())


def test_a_look_in_the_midst_of_accumulation_leaves_the_gradients(server):
    model = seeded()
    with probe(model, HOST, server.port, probe_set=SET) as watch:
        model(IMAGES[:8]).sum().backward()
        before = {name: p.grad.clone() for name, p in model.named_parameters()}
        watch.run_probe_set()
        assert all(torch.equal(before[name], p.grad) for name, p in model.named_parameters())
        assert all(p.requires_grad for p in model.parameters())


def test_a_model_that_is_compiled_is_looked_at_as_it_was_written(server):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    with probe(compiled, HOST, server.port, probe_set=SET) as watch:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(3):
            watch.epoch = epoch
            compiled(IMAGES).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert watch.status()["troubles"] == 0
    torch._dynamo.reset()
    assert flush(HOST, server.port)
    assert [(one.epoch, one.address) for one in server.records()] == [
        (epoch, address) for epoch in range(3) for address in ("0", "1", "2", "")
    ]


def test_an_epoch_is_looked_at_once_and_a_second_look_is_said(server, caplog):
    model = seeded()
    with probe(model, HOST, server.port, probe_set=SET) as watch:
        watch.run_probe_set()
        train(model, watch, epochs=1)
    assert flush(HOST, server.port)
    assert [one.epoch for one in server.records() if one.address == "head"] == [0]
    assert "number the epochs of the training from 1" in caplog.text


def test_another_probe_of_the_model_does_not_see_it(server):
    model = seeded()
    with (
        probe(model, HOST, server.port, run="set", probe_set=SET) as watch,
        probe(model, HOST, server.port, run="own") as own,
    ):
        train(model, watch, epochs=2)
        assert own.status()["passes"] == 8
    assert flush(HOST, server.port)
    assert {(one.run, one.mode) for one in server.records()} == {("set", "probe"), ("own", "train")}


def test_keywords_and_tuples_are_passed_on(server):
    class Two(nn.Module):
        def forward(self, x, *, scale):
            return x * scale

    model = Two()
    with probe(model, HOST, server.port, probe_set=({"x": torch.ones(3, 2), "scale": 2.0}, {})) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    assert server.records()[0].array.tolist() == [[2.0, 2.0]] * 3


def test_a_probe_set_that_fails_is_counted_and_harms_nothing(server, caplog):
    model = seeded()
    with probe(model, HOST, server.port, probe_set=(torch.ones(3, 7), {})) as watch:
        train(model, watch, epochs=1)
    assert watch.status()["troubles"] == 1
    assert "goes on without: RuntimeError" in caplog.text
    assert model.training


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"probe_set": IMAGES}, "must be a pair"),
        ({"probe_set": (IMAGES[:3], {"digit": [1, 2]})}, "2 labels of 'digit' for 3 rows"),
        ({"probe_set": (IMAGES[:3], {"digit": []})}, "'digit'"),
        ({"probe_set": (IMAGES[:0], {})}, "at least one row"),
        ({"probe_set": (3, {})}, "without a tensor that has rows"),
        ({"probe_set": (IMAGES[:3], {"": [1, 2, 3]})}, "under ''"),
        ({"probe_set": SET, "every": 0}, "every=0"),
        ({"every": 5}, "give one"),
        ({"probe_set": SET, "kinds": ("output", "grad_output")}, "'grad_output'"),
    ],
)
def test_a_wrong_probe_set_is_said_at_once(options, says):
    with pytest.raises(InputError, match=says):
        probe(Net(), **options)


def test_there_is_nothing_to_look_at_without_one(nobody):
    with probe(Net(), HOST, nobody) as watch, pytest.raises(InputError, match="no probe set"):
        watch.run_probe_set()


def test_labels_of_the_training_and_of_the_set_are_never_mixed_up(tmp_path):
    """Both have a "digit" and rows 0 to 31; the set's rows are other images than the training's."""
    with Server(database=tmp_path / "x.db", port=0) as server:
        place = server.host, server.port
        assert register_targets(*place, name="digit", targets=LABELS)
        assert register_targets(*place, name="even", targets=LABELS % 2 == 0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        fixed = IMAGES[96:], {"digit": ["a", "b"] * 16, "side": [0, 1] * 16}
        with (
            probe(model, *place, run="own", which=lambda model, operation: operation.address == "1"),
            probe(model, *place, run="set", probe_set=fixed),
        ):
            model(IMAGES).sum().backward()
        assert flush(*place)
    with Database(tmp_path / "x.db") as database:
        targets = {
            run: set(database.points(run, "Sequential").where(address="1")["target"].tolist()) - {""}
            for run in ("own", "set")
        }
        told = [notice["code"] for notice in database.notices()]
    assert targets == {"own": {"digit", "even"}, "set": {"digit", "side"}}
    assert "target_replaced" not in told
