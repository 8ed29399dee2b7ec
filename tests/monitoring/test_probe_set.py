"""Probe sets: right records and scores, without any effect on the training."""

from __future__ import annotations

import contextlib
import copy
import random
import time

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.backends.torch import eval_forward
from intus.core.errors import InputError
from intus.monitoring import clear, flush, probe, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.images[:128], dtype=torch.float32)[:, None] / 16
LABELS = torch.tensor(DIGITS.target[:128])
SET = (IMAGES[:32], {"digit": LABELS[:32]})


class Net(nn.Module):
    """A model with all state that running it could disturb."""

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
def test_training_is_bitwise_identical(server, every):
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
    assert at == {None: [0, 1], 1: [0, 1, 2, 3, 4, 5, 6, 7, 8], 3: [0, 3, 6, 8]}[every]


GLOBAL = random.Random(0)
DRAWS = {
    "torch.Generator": lambda net: torch.rand((), generator=net.torch),
    "RandomState": lambda net: net.kept["state"].rand(),
    "default_rng": lambda net: net.kept["rng"].random(),
    "random.Random": lambda net: net.noise.python.random(),
    "closure": lambda net: net.drawn(),
    "global": None,
}


class Noise:
    __slots__ = ("python",)

    def __init__(self):
        self.python = random.Random(0)


class Drawing(nn.Module):
    """A model that draws from a generator of its own."""

    def __init__(self, of):
        super().__init__()
        self.head, self.of = nn.Linear(64, 10), of
        self.torch = torch.Generator().manual_seed(0)
        self.kept = {"state": np.random.RandomState(0), "rng": np.random.default_rng(0)}
        self.noise, inner = Noise(), np.random.default_rng(0)
        self.drawn = lambda: inner.random()
        GLOBAL.seed(0)

    @staticmethod
    def of_global():
        return GLOBAL.random()

    def draw(self):
        return self.of_global() if self.of == "global" else DRAWS[self.of](self)

    def forward(self, x):
        return self.head(x.flatten(1)) * (1 + self.draw())


class Stateful(nn.Module):
    """A model whose forward depends on what earlier calls have left in its attributes."""

    def __init__(self, of):
        super().__init__()
        self.head, self.of = nn.Linear(64, 10), of
        self.words = nn.Embedding(8, 10, max_norm=0.5)
        self.calls, self.seen, self.hidden, self.sum = 0, [], None, torch.zeros(10)

    def forward(self, x):
        self.calls, before = self.calls + 1, self.sum.clone()
        self.seen.append(self.calls)
        out = self.head(x.flatten(1))
        self.sum += out.detach().mean(0)
        self.hidden = out.detach()[:1] if self.hidden is None else self.hidden * 0.9
        found = {
            "counter": out * self.calls,
            "list": out * len(self.seen),
            "hidden state": out + self.hidden,
            "tensor": out + before,
            "embedding with a limit": out + self.words.weight.sum(0) + self.words(torch.tensor(0)),
        }
        return found[self.of]


class Momentum(nn.Module):
    """A model whose forward writes to its own parameters, as a momentum encoder or a codebook does."""

    def __init__(self, how):
        super().__init__()
        self.query, self.key, self.how = nn.Linear(64, 10), nn.Linear(64, 10), how
        self.register_buffer("calls", torch.ones(()))

    @torch.no_grad()
    def follow(self):
        self.calls.data.add_(1)
        for key, query in zip(self.key.parameters(), self.query.parameters(), strict=True):
            match self.how:
                case "in place":
                    key.mul_(0.9).add_(query, alpha=0.1)
                case "in place of data":
                    key.data.mul_(0.9).add_(query.data, alpha=0.1)
                case "as new data":
                    key.data = key.data * 0.9 + query.data * 0.1
                case "lerp":
                    torch.lerp(key, query, 0.1, out=key)

    def forward(self, x):
        self.follow()
        return self.query(x.flatten(1)) / self.calls + self.key(x.flatten(1)).detach()


@pytest.mark.parametrize(
    "build",
    [pytest.param(lambda of=of: Drawing(of), id=of) for of in DRAWS]
    + [
        pytest.param(lambda how=how: Momentum(how), id=f"parameters written {how}")
        for how in ("in place", "in place of data", "as new data", "lerp")
    ]
    + [
        pytest.param(lambda of=of: Stateful(of), id=of)
        for of in ("counter", "list", "hidden state", "tensor", "embedding with a limit")
    ],
)
def test_training_of_a_model_with_a_state_of_its_own_is_bitwise_identical(server, build):
    losses = {}
    for is_probed in (False, True):
        torch.manual_seed(0)
        model, of = build(), losses.setdefault(is_probed, [])
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        watch = probe(model, HOST, server.port, probe_set=SET) if is_probed else contextlib.nullcontext()
        with watch:
            for epoch in range(2):
                if is_probed:
                    watch.epoch = epoch
                for start in range(0, 128, 32):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(IMAGES[start : start + 32]), LABELS[start : start + 32])
                    loss.backward()
                    optimizer.step()
                    of.append(loss.item())
                if is_probed:
                    watch.run_probe_set()
    assert losses[True] == losses[False]
    assert watch.status()["troubles"] == 0


@pytest.mark.parametrize("how", ["in place", "in place of data"])
def test_pass_between_forward_and_backward_changes_no_gradient(server, how):
    """The backward needs the buffer and the parameters, which the pass of the probe set writes to."""
    gradients = []
    for is_probed in (False, True):
        torch.manual_seed(0)
        model = Momentum(how)
        watch = probe(model, HOST, server.port, probe_set=SET) if is_probed else contextlib.nullcontext()
        with watch:
            loss = F.cross_entropy(model(IMAGES[:32]), LABELS[:32])
            if is_probed:
                watch.run_probe_set()
            loss.backward()
        gradients.append([p.grad for p in model.query.parameters()])
    assert all(map(torch.equal, *gradients))


def test_records_are_outputs_in_eval_mode(server):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout())
    with probe(model, HOST, server.port, run="r (1)", probe_set=SET) as watch:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(IMAGES).sum().backward()
        optimizer.step()
        expected = model.eval()(SET[0]).detach().numpy()
        model.train()
        assert flush(HOST, server.port)  # runs the probe set for the last epoch
        assert watch.status()["recorded"] == 8
    assert [one.epoch for one in server.records()] == [0] * 4 + [1] * 4  # epoch 0 is the untrained model
    records = {one.address: one for one in server.records()}
    assert np.array_equal(records[""].array, expected)
    assert records[""].items.tolist() == list(range(32))
    assert records[""].mode == "probe"
    (target,) = server.messages("/targets")
    assert (target["name"], target["targets"]) == ("digit", LABELS[:32].tolist())
    assert (target["run_pattern"], target["model_pattern"]) == (r"^r\ \(1\)$", "^Sequential$")
    assert len([path for path, _ in server.got if path.startswith("/graph")]) == 1


def test_gradients_under_autocast_are_unchanged(server):
    """Weights that were cast without gradients must not stay in autocast's cache."""

    def gradient(**options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        with probe(model, HOST, server.port, **options), torch.autocast("cpu", dtype=torch.bfloat16):
            model(IMAGES).square().mean().backward()
        return model[1].weight.grad

    assert torch.equal(gradient(probe_set=SET, every=1), gradient())


class Settings(nn.Module):
    """A model whose output shows the settings of torch that it ran in."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        settings = (
            torch.is_autocast_enabled("cpu"),
            torch.get_default_dtype() == torch.float64,
            torch.is_inference_mode_enabled(),
            torch.get_default_device().type == "meta",
        )
        return self.fc(x).sum(1, keepdim=True).double() + torch.tensor([settings], device="cpu").double()


@contextlib.contextmanager
def other_settings():
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("first", [other_settings, contextlib.nullcontext])
@pytest.mark.parametrize("later", [other_settings, contextlib.nullcontext, torch.inference_mode])
def test_every_pass_has_the_settings_of_the_first(server, first, later):
    """A difference between two epochs is then learned, and not an effect of the script's autocast."""
    torch.manual_seed(0)
    model = Settings()
    rows = 300 + torch.randn(16, 4)  # whose differences bfloat16 cannot represent
    with first(), torch.no_grad():
        expected = model(rows).numpy()
    with probe(model, HOST, server.port, probe_set=(rows, {})) as watch:
        with first():
            watch.run_probe_set()
        with later():
            before = torch.is_autocast_enabled("cpu"), torch.get_default_dtype()
            watch.epoch = 1
            watch.run_probe_set()
            assert before == (torch.is_autocast_enabled("cpu"), torch.get_default_dtype())
        assert watch.status()["troubles"] == 0
    assert flush(HOST, server.port)
    outputs = {one.epoch: one.array for one in server.records() if one.address == ""}
    assert outputs.keys() == {0, 1}
    assert all(np.array_equal(array, expected) for array in outputs.values())


@pytest.mark.parametrize("first", [torch.device("meta"), torch.device("cpu"), contextlib.nullcontext()])
def test_every_pass_has_the_default_device_of_the_first(server, first):
    rows = torch.randn(16, 4)
    model = Settings()
    with first, torch.no_grad():
        expected = model(rows).numpy()
    with probe(model, HOST, server.port, probe_set=(rows, {})) as watch:
        with first:
            watch.run_probe_set()
        try:
            torch.set_default_device("meta")
            watch.epoch = 1
            watch.run_probe_set()
            assert torch.get_default_device() == torch.device("meta")
        finally:
            torch.set_default_device(None)
        assert watch.status()["faults"] == []
    assert flush(HOST, server.port)
    outputs = {one.epoch: one.array for one in server.records() if one.address == ""}
    assert outputs.keys() == {0, 1}
    assert all(np.array_equal(array, expected) for array in outputs.values())


def test_settings_of_kernels_that_the_training_changes_are_said_once(server):
    model = nn.Linear(4, 2)
    with probe(model, HOST, server.port, probe_set=(torch.randn(16, 4), {})) as watch:
        watch.run_probe_set()
        before = torch.get_float32_matmul_precision()
        try:
            with torch.backends.cudnn.flags(benchmark=True):  # which is nothing to a model on a CPU
                watch.epoch = 1
                watch.run_probe_set()
            assert watch.status()["faults"] == []
            torch.use_deterministic_algorithms(True)
            torch.set_float32_matmul_precision("medium")
            for watch.epoch in (2, 3):
                watch.run_probe_set()
            assert torch.get_float32_matmul_precision() == "medium"
        finally:
            torch.use_deterministic_algorithms(False)
            torch.set_float32_matmul_precision(before)
        (fault,) = watch.status()["faults"]
    assert "deterministic algorithms from False to True" in fault
    assert "seen in epoch 2" in fault
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        assert "the float32 precision of mkldnn matmul from 'ieee' to 'bf16'" in fault


def test_training_of_which_only_steps_run_under_autocast(server):
    """Epoch 0 runs in the first step, inside the script's autocast, the others outside."""
    torch.manual_seed(0)
    rows = 300 + torch.randn(96, 8)
    model = nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), 1e-6)
    loader = DataLoader(TensorDataset(rows[32:]), 32, shuffle=True)
    with probe(model, HOST, server.port, probe_set=(rows[:32], {})):
        for _ in range(2):
            for (batch,) in loader:
                with torch.autocast("cpu", torch.bfloat16):
                    loss = model(batch).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    assert flush(HOST, server.port)
    frozen = {one.epoch: one.array for one in server.records() if one.address == "0"}
    assert frozen.keys() == {0, 1, 2}
    assert all(np.array_equal(array, frozen[0]) for array in frozen.values())


@pytest.mark.parametrize(
    "options",
    [
        {"probe_set": (torch.ones(4, 6), {})},
        *({"kinds": ("output", kind)} for kind in ("parameter", "parameter_grad", "update")),
    ],
    ids=lambda options: "-".join(map(str, options.get("kinds", ("probe_set",)))),
)
def test_lazy_model_that_was_never_called_is_refused_in_one_sentence(unused_port, options):
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    with pytest.raises(InputError, match=r"'0.weight' of Sequential is not initialized.* before probe\(\)"):
        probe(model, HOST, unused_port, **options)
    model(torch.ones(4, 6))
    probe(model, HOST, unused_port, **options).remove()


def test_lazy_model_is_recorded_from_its_first_call_on(server):
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    with probe(model, HOST, server.port) as watch:
        for (rows,) in DataLoader(TensorDataset(torch.ones(32, 6)), 16):
            model(rows).sum().backward()
    assert flush(HOST, server.port)
    assert watch.status()["faults"] == []
    assert {one.address for one in server.records()} == {"", "0", "1"}


def test_inputs_of_another_dtype_than_the_model(server, caplog):
    model = nn.Sequential(nn.Linear(4, 4)).to(torch.bfloat16)
    with probe(model, HOST, server.port, probe_set=(torch.ones(3, 4), {})) as watch:
        watch.run_probe_set()
    (fault,) = watch.status()["faults"]
    assert "parameters are bfloat16" in fault
    assert "inputs are float32" in fault
    assert ".to(torch.bfloat16)" in fault


def test_accumulated_gradients_are_unchanged(server):
    model = seeded()
    with probe(model, HOST, server.port, probe_set=SET) as watch:
        model(IMAGES[:8]).sum().backward()
        before = {name: p.grad.clone() for name, p in model.named_parameters()}
        watch.run_probe_set()
        assert all(torch.equal(before[name], p.grad) for name, p in model.named_parameters())
        assert all(p.requires_grad for p in model.parameters())


def test_compiled_model_is_recorded_uncompiled(server):
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


def test_second_run_in_an_epoch_warns(server, caplog):
    model = seeded()
    with probe(model, HOST, server.port, probe_set=SET) as watch:
        watch.run_probe_set()
        train(model, watch, epochs=1)
    assert flush(HOST, server.port)
    assert [one.epoch for one in server.records() if one.address == "head"] == [0]
    assert "number the epochs of the training from 1" in caplog.text


def test_other_probe_of_model_ignores_probe_set(server):
    model = seeded()
    with (
        probe(model, HOST, server.port, run="set", probe_set=SET) as watch,
        probe(model, HOST, server.port, run="own") as own,
    ):
        train(model, watch, epochs=2)
        assert own.status()["passes"] == 8
    assert flush(HOST, server.port)
    assert {(one.run, one.mode) for one in server.records()} == {("set", "probe"), ("own", "train")}


def test_inputs_as_keyword_arguments(server):
    class Two(nn.Module):
        def forward(self, x, *, scale):
            return x * scale

    model = Two()
    with probe(model, HOST, server.port, probe_set=({"x": torch.ones(3, 2), "scale": 2.0}, {})) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    assert server.records()[0].array.tolist() == [[2.0, 2.0]] * 3


def test_failing_probe_set_is_counted(server, caplog):
    model = seeded()
    with probe(model, HOST, server.port, probe_set=(torch.ones(3, 7), {})) as watch:
        train(model, watch, epochs=1)
    assert watch.status()["troubles"] == 1
    assert "continues without it: RuntimeError" in caplog.text
    assert model.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probe_set": IMAGES}, "must be a pair"),
        ({"probe_set": (IMAGES[:3], {"digit": [1, 2]})}, "2 labels of 'digit' for 3 rows"),
        ({"probe_set": (IMAGES[:3], {"digit": []})}, "'digit'"),
        ({"probe_set": (IMAGES[:0], {})}, "at least one row"),
        ({"probe_set": (3, {})}, "a tensor with at least one row"),
        ({"probe_set": (IMAGES[:3], {"": [1, 2, 3]})}, "got ''"),
        ({"probe_set": SET, "every": 0}, "every must be .*, got 0"),
        ({"every": 5}, "every=5 requires a probe set"),
        ({"probe_set": SET, "kinds": ("output", "grad_output")}, "'grad_output'"),
    ],
)
def test_invalid_probe_set_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        probe(Net(), **options)


def test_run_probe_set_without_one_is_refused(unused_port):
    with probe(Net(), HOST, unused_port) as watch, pytest.raises(InputError, match="no probe set"):
        watch.run_probe_set()


@pytest.mark.long
def test_labels_of_training_and_probe_set_are_separate(tmp_path):
    """Both have a "digit" and rows 0 to 31, but the set's rows are other images."""
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
        codes = [notice["code"] for notice in database.notices()]
    assert targets == {"own": {"digit", "even"}, "set": {"digit", "side"}}
    assert "target_replaced" not in codes


@pytest.mark.parametrize("build", [lambda: nn.Linear(64, 10), lambda: nn.Sequential(nn.Linear(64, 10))])
def test_model_that_nobody_calls_is_looked_at_once(server, caplog, build):
    model, rows = build(), IMAGES[:32].flatten(1)
    with probe(model, HOST, server.port, probe_set=(rows, SET[1])) as watch:
        pass
    assert flush(HOST, server.port)
    assert {one.epoch for one in server.records()} == {0}
    with torch.no_grad():
        for one in server.records():
            np.testing.assert_array_equal(one.array, model(rows).numpy())
    assert watch.status()["faults"] == []
    assert "never called" not in caplog.text


def test_untrained_model_is_not_looked_at_as_a_later_epoch(server):
    model = nn.Linear(64, 10)
    with probe(model, HOST, server.port, probe_set=(IMAGES[:32].flatten(1), SET[1])) as watch:
        watch.epoch = 3  # and the script raises before it trains
    assert flush(HOST, server.port)
    assert server.records() == []


class Closing(nn.Linear):
    """A model of which no twin can be made when it dies."""

    def __del__(self):
        """Do nothing."""


def test_model_that_is_gone_is_said(server):
    watch = probe(Closing(64, 10), HOST, server.port, probe_set=(IMAGES[:32].flatten(1), SET[1]))
    watch.run_probe_set()
    assert not server.records()
    watch.remove()
    (fault,) = watch.status()["faults"]
    assert "the model no longer exists" in fault


def test_failed_probe_set_is_not_called_a_model_that_was_never_called(server):
    model = nn.Linear(64, 10).double()
    with probe(model, HOST, server.port, probe_set=(IMAGES[:32].flatten(1), SET[1])) as watch:
        watch.run_probe_set()
    (fault,) = watch.status()["faults"]
    assert "must have the same dtype" in fault


@pytest.mark.parametrize("order", ["targets first", "probe first"])
def test_pattern_that_matches_no_layer_is_told_to_the_client(server, caplog, order):
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())

    def register(name, **patterns):
        register_targets(HOST, server.port, name=name, targets=[0, 1], **patterns)

    def all_targets():
        register("typo", layer_pattern="^conv")
        register("fits", layer_pattern="^0$")
        register("other model", layer_pattern="^conv", model_pattern="^Cnn$")
        register("other run", layer_pattern="^conv", run_pattern="^z$")

    if order == "targets first":
        all_targets()
    with probe(model, HOST, server.port, run="r") as watch:
        if order == "probe first":
            all_targets()
        model(torch.rand(2, 4))
    (fault,) = watch.status()["faults"]
    assert "layer_pattern of the target 'typo', '^conv', matches none of the 3 layers of Sequential" in fault
    assert "'^conv', matches none" in caplog.text
    with probe(model, HOST, server.port, probe_set=(torch.rand(2, 4), {"y": [0, 1]})) as other:
        pass  # which has labels of its own
    assert other.status()["faults"] == []
    clear(HOST, server.port)
    with probe(model, HOST, server.port) as later:
        model(torch.rand(2, 4))
    assert later.status()["faults"] == []


@pytest.mark.parametrize(
    ("numbers", "epochs"),
    [((1, 2), [0, 1, 2]), ((0, 1), [0, 1]), ((5, 6), [5, 6])],
    ids=["from 1", "from 0", "resumed"],
)
def test_untrained_model_is_epoch_0_if_the_script_counts_from_1(server, numbers, epochs):
    model = seeded() or Net()
    head = copy.deepcopy(model.head.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"which": "head", "kinds": ("parameter",), "block": True, "structure": False}
    with probe(model, HOST, server.port, probe_set=SET, **options) as watch:
        for watch.epoch in numbers:
            F.cross_entropy(model(IMAGES[:32]), LABELS[:32]).backward()
            optimizer.step()
    assert flush(HOST, server.port)
    sent = [one for one in server.records() if one.address == "head.weight"]
    assert [one.epoch for one in sent] == epochs
    untrained = [one.epoch for one in sent if np.array_equal(one.array, head["weight"].numpy())]
    assert untrained == [0] * (numbers[0] == 1)


@pytest.mark.long
def test_what_a_probe_set_takes_is_counted_with_its_forward(server, caplog):
    """Before, the forward was not counted, and nobody said that the set took most of the training."""

    class Slow(nn.Linear):
        def forward(self, x):
            until = time.process_time() + (0.5 if len(x) == 64 else 0.05)
            while time.process_time() < until:
                pass
            return super().forward(x)

    caplog.set_level("INFO", "intus.monitoring")
    for rows, takes in ((64, True), (8, False)):
        model = Slow(4, 2)
        given = torch.randn(rows, 4), {"any": torch.arange(rows) % 2}
        caplog.clear()
        with probe(model, HOST, server.port, run=f"{rows}", probe_set=given) as watch:
            for watch.epoch in (1, 2):
                for _ in range(4):
                    model(torch.randn(2, 4))
        spent = watch.status()["spent"]
        assert spent >= 3 * (0.5 if takes else 0.05)  # one pass more on the untrained model
        said = [one.message for one in caplog.records if "of the processor time" in one.message]
        assert len(said) == takes
    assert watch.status()["troubles"] == 0


@pytest.mark.parametrize("are_named", [True, False], ids=["epochs named", "epochs found"])
def test_parameters_are_read_once_for_each_look(server, monkeypatch, are_named):
    """Count reads, of which one takes some 30 ms for a model of 50 million parameters."""
    reads = []
    read = eval_forward._sum
    monkeypatch.setattr(eval_forward, "_sum", lambda values: reads.append(1) or read(values))
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=True)
    loader = DataLoader(TensorDataset(torch.randn(32, 4)), 16)
    looks = []
    with probe(model, HOST, server.port, probe_set=(torch.randn(8, 4), {}), structure=False) as watch:
        for epoch in range(5):
            if are_named:
                watch.epoch = epoch
            for (rows,) in loader:
                model(rows).square().mean().backward()
                optimizer.step()
            looks.append(len(reads))
    assert np.diff(looks)[1:].tolist() == [1, 1, 1]
    assert flush(HOST, server.port)
    assert {one.epoch for one in server.records()} == set(range(5 if are_named else 6))
