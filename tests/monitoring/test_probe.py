"""``probe`` on real training: the records are right, the training is unaffected, whatever the server does."""

from __future__ import annotations

import contextlib
import copy
import gc
import logging
import math
import pickle
import random
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from intus.core.errors import InputError
from intus.core.graph import Calls, Edges, Graph, Ops
from intus.core.record import KINDS
from intus.monitoring import Probe, flush, probe
from intus.monitoring.sender import get_sender
from intus.storage.codec import decode_graph
from intus.tracing.capture.recording import ROW

HOST = "127.0.0.1"
IMAGES = torch.tensor(load_digits().images[:192], dtype=torch.float32)[:, None] / 16
LABELS = torch.tensor(load_digits().target[:192])
#: The kinds of a pass without an optimizer step.
UNSTEPPED = {kind for kind in KINDS if "update" not in kind}


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten()
        )
        self.classifier = nn.Linear(6 * 36, 10)

    def forward(self, x):
        return self.classifier(self.features(x))


def train(model, watch=None, epochs=2):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        if watch is not None:
            watch.epoch = epoch
        model.train()
        for start in range(0, len(IMAGES), 64):
            optimizer.zero_grad()
            output = model(IMAGES[start : start + 64])
            F.cross_entropy(output, LABELS[start : start + 64]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(IMAGES[:64])


def digits_model():
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    return Cnn()


def states():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


def test_probe_records_every_operation_of_every_pass(server):
    model = digits_model()
    watch = probe(model, HOST, server.port, budget=1000)  # it skips nothing on a busy machine
    train(model, watch)
    assert flush(HOST, server.port)
    records = server.records()
    assert {one.address for one in records} == {
        "",
        *(f"features.{k}" for k in range(5)),
        "features",
        "classifier",
    }
    assert {one.model for one in records} == {"Cnn"}
    assert {one.run for one in records} == {watch.run}
    assert {one.kind for one in records} == {"output"}
    conv = [one for one in records if one.address == "features.0"]
    assert [(one.epoch, one.step, one.mode) for one in conv] == [
        (0, 0, "train"), (0, 1, "train"), (0, 2, "train"), (0, 3, "eval"),
        (1, 4, "train"), (1, 5, "train"), (1, 6, "train"), (1, 7, "eval"),
    ]  # fmt: skip
    assert {one.array.shape for one in conv} == {(64, 6, 6, 6)}
    assert {one.batch_axis for one in conv} == {0}
    assert len([sent for sent, _ in server.batches() if sent]) == 8  # one request with records per pass
    status = watch.status()
    assert 0 < status.pop("spent") < 1
    assert status.pop("next_s") >= 0
    assert status == {
        "passes": 8, "skipped": 0, "skipped_epochs": 0, "recorded": 64, "troubles": 0, "never_called": [],
        "sent": 64, "dropped": 0, "failed": 0, "waiting": 0, "log_waiting": 0, "server": "up", "silent": [],
        "epochs": "set by the script", "items": "not found", "ledger": None, "faults": [],
    }  # fmt: skip
    last = model(IMAGES[:64]).detach().numpy()
    assert np.array_equal([one for one in records if one.address == ""][-1].array, last)


@pytest.mark.parametrize(
    "situation", ["up", "absent", "dying", "refusing", "failing", "full", "broken choices"]
)
def test_training_is_bitwise_identical_in_any_situation(server, unused_port, situation):
    model = digits_model()
    train(model)
    plain, plain_rng = copy.deepcopy(model.state_dict()), states()

    model = digits_model()
    options = {"kinds": KINDS, "queue_mb": 0.05 if situation == "full" else 256}
    if situation == "broken choices":
        options |= {"when": lambda model, operation: 1 / 0, "budget": float("inf")}  # each pass raises
    server.answer = lambda path: {"refusing": 400, "failing": 500}.get(situation, 200)
    with probe(model, HOST, unused_port if situation == "absent" else server.port, **options) as watch:
        if situation == "dying":
            train_a_little = iter(range(3))
            model.register_forward_pre_hook(
                lambda *args: server.die() if next(train_a_little, None) == 1 else None
            )
        train(model, watch)
    probed = model.state_dict()
    assert all(torch.equal(plain[name], probed[name]) for name in plain)
    assert states() == plain_rng
    if situation == "dying":
        server.start()
    if situation == "full":
        assert watch.status()["dropped"] > 0
    assert watch.status()["troubles"] == (8 * 8 if situation == "broken choices" else 0)


def test_absent_server_is_logged_once_and_raises_nothing(unused_port, caplog):
    model = digits_model()
    start = time.perf_counter()
    with probe(model, HOST, unused_port, budget=float("inf")) as watch:
        train(model, watch)
        assert not flush(HOST, unused_port)
        train(model, watch)
    assert time.perf_counter() - start < 10
    warnings = [entry for entry in caplog.records if "nothing is recorded" in entry.message]
    assert len(warnings) == 1
    assert f"{HOST}:{unused_port}" in warnings[0].message
    status = watch.status()
    assert status["server"] == "down"
    assert status["dropped"] >= 64
    assert status["sent"] == 0


@pytest.mark.long
def test_slow_server_does_not_slow_training(server):
    server.delay = 8.0
    model = digits_model()
    with probe(model, HOST, server.port, queue_mb=0.5, budget=math.inf) as watch:
        start = time.perf_counter()
        train(model, watch, epochs=1)
        assert time.perf_counter() - start < server.delay  # shorter than a single answer
        server.delay = 0.0
    assert flush(HOST, server.port)
    status = watch.status()
    assert status["sent"] + status["dropped"] == 4 * 8
    assert min(status["sent"], status["dropped"]) > 0
    assert server.batches()[-1][1]["dropped"] == status["dropped"]


def test_block_drops_nothing(server):
    model = digits_model()
    with probe(model, HOST, server.port, queue_mb=0.3, block=True) as watch:
        train(model, watch)
    assert flush(HOST, server.port)
    assert watch.status()["sent"] == 64
    assert watch.status()["dropped"] == 0


def test_gradients_have_tags_of_their_pass(server):
    model = digits_model()
    with probe(model, HOST, server.port, kinds=("grad_output", "parameter_grad")) as watch:
        for epoch in range(2):
            watch.epoch = epoch
            output = model(IMAGES[:8])
            watch.epoch = epoch + 1  # the following gradients belong to the pass above
            output.square().sum().backward()
    assert flush(HOST, server.port)
    bias = [one for one in server.records() if one.address == "classifier.bias"]
    assert [(one.epoch, one.step, one.batch_axis, one.kind) for one in bias] == [
        (0, 0, None, "parameter_grad"),
        (1, 1, None, "parameter_grad"),
    ]
    assert np.array_equal(bias[-1].array, model.classifier.bias.grad.numpy())


def test_which_and_when_select(server):
    calls = []

    def which(m, operation):
        assert m is model
        return isinstance(operation.module, nn.Linear)

    def when(m, operation):
        calls.append((watch.step, operation.address, operation.type))
        return watch.epoch == 1

    model = digits_model()
    with probe(model, HOST, server.port, which=which, when=when, budget=1000) as watch:
        train(model, watch)
    assert flush(HOST, server.port)
    assert watch.operations == ("classifier",)
    assert len(calls) == 8
    assert {(address, type_) for _, address, type_ in calls} == {("classifier", "Linear")}
    assert {(one.address, one.epoch) for one in server.records()} == {("classifier", 1)}


def test_raising_which_and_when_count_as_false_and_warn_once(server, caplog):
    model = digits_model()

    def which(m, operation):
        if operation.address == "features.2":
            raise KeyError("dropout_rate")
        return True

    def when(m, operation):
        return operation.rate > 1

    with probe(model, HOST, server.port, which=which, when=when, budget=1000) as watch:
        train(model, watch)
    assert "features.2" not in watch.operations
    assert len(watch.operations) == 7
    warnings = [entry.message for entry in caplog.records]
    assert [("which" in one, "when" in one) for one in warnings] == [(True, False), (False, True)]
    assert "KeyError" in warnings[0]
    assert "'features.2'" in warnings[0]
    assert flush(HOST, server.port)
    assert not server.records()


def test_which_that_selects_nothing_warns(server, caplog):
    probe(Cnn(), HOST, server.port, which=lambda m, operation: False)
    assert "selects no operation of Cnn" in caplog.text


def test_items_are_ids_of_next_pass(server):
    model = digits_model().eval()
    with probe(model, HOST, server.port, rows=4) as watch:
        watch.items = torch.tensor([9, 7, 5, 3, 1, 0])
        model(IMAGES[:6])
        assert watch.items is None
        model(IMAGES[:6])
        watch.items = [1, 2]  # another number of rows: they are refused
        model(IMAGES[:6])
    assert flush(HOST, server.port)
    rows = [one for one in server.records() if one.address == "classifier"]
    assert [rows[0].items.tolist(), rows[1].items] == [[9, 7, 5, 3], None]
    assert (rows[2].items < 0).all()
    assert watch.status()["troubles"] == 1
    assert {one.array.shape for one in rows} == {(4, 10)}
    assert np.array_equal(rows[0].array, model(IMAGES[:6]).detach().numpy()[:4])


def test_batch_axis_and_scalars(server):
    class Odd(nn.Module):
        def forward(self, x):
            return x.sum()

    model = nn.Sequential(nn.LSTM(3, 5), Odd())
    model[1].forward = lambda pair: pair[0].sum()
    with probe(model, HOST, server.port, batch_axis=1) as watch:
        watch.items = [4, 5]
        model(torch.randn(7, 2, 3))
    assert flush(HOST, server.port)
    by = {one.address: one for one in server.records()}
    assert by["0"].array.shape == (7, 2, 5)
    assert (by["0"].batch_axis, by["0"].items.tolist(), by["0"].rows) == (1, [4, 5], 2)
    assert (by["1"].batch_axis, by["1"].array.shape, by["1"].items) == (None, (), None)


def test_step_epoch_and_mode_can_be_set(server):
    model = digits_model()
    with probe(
        model, HOST, server.port, name="net", run="first", which=lambda m, op: op.address == ""
    ) as watch:
        assert watch.mode == "train"
        watch.epoch, watch.step, watch.mode = np.float64(1.5), np.int64(100), "dev"
        model(IMAGES[:2])
        watch.mode = None
        watch.epoch = torch.tensor(2)
        model(IMAGES[:2])
        assert watch.step == 102
    assert flush(HOST, server.port)
    assert [(one.run, one.model, one.epoch, one.step, one.mode) for one in server.records()] == [
        ("first", "net", 1.5, 100, "dev"),
        ("first", "net", 2, 101, "train"),
    ]
    assert repr(watch) == f"<Probe of net: 1 operations to {HOST}:{server.port}, run 'first'>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 0}, "port must be .*, got 0"),
        ({"host": ""}, "host must be .*, got ''"),
        ({"kinds": ("outputs",)}, "kinds must be one or more of .*, got 'outputs'"),
        ({"which": 5}, "which must be .*, got 5"),
        ({"which": ["0", None]}, "which must be .*, got None"),
        ({"when": 5}, "when must be .*, got 5"),
        ({"rows": 0}, "rows must be .*, got 0"),
        ({"batch_axis": -1}, "batch_axis must be .*, got -1"),
        ({"queue_mb": 0}, "queue_mb must be .*, got 0"),
        ({"name": ""}, "name must be .*, got ''"),
        ({"run": 3}, "run must be .*, got 3"),
        ({"model": [1]}, "builtins.list cannot be observed"),
    ],
)
def test_invalid_arguments_are_refused_before_attaching(options, message):
    model = Cnn()
    with pytest.raises(InputError, match=message):
        probe(**{"model": model, **options})
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", "two"), ("epoch", None), ("epoch", float("nan")), ("step", True), ("mode", 3),
        ("items", [1.5]), ("items", [[1]]), ("items", 5), ("items", ["a"]), ("items", [[1], [2, 3]]),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(unused_port, name, value):
    with probe(Cnn(), HOST, unused_port) as watch, pytest.raises(InputError, match=name):
        setattr(watch, name, value)


def test_remove_restores_model(server):
    model = digits_model()
    before = {name: {k: copy.copy(v) for k, v in vars(m).items()} for name, m in model.named_modules()}
    watch = probe(model, HOST, server.port, kinds=KINDS)
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 3, 8, 8))
    model(IMAGES[:4]).sum().backward()
    watch.remove()
    watch.remove()
    for name, module in model.named_modules():
        assert list(vars(module)) == list(before[name])
        for key, value in vars(module).items():
            assert "hooks" not in key or value == before[name][key]
    sent = watch.status()["recorded"]
    model(IMAGES[:4]).sum().backward()
    assert watch.status()["recorded"] == sent


def test_copies_of_probed_model_are_not_probed(server):
    model = digits_model().eval()
    with probe(model, HOST, server.port, kinds=KINDS) as watch:
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(twin(IMAGES[:4]), twin(IMAGES[:4]))
        assert watch.status()["passes"] == 0


@pytest.mark.long
def test_probe_keeps_no_reference_to_model(server, caplog):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    weights = {f"0.{name}": value.detach().numpy().copy() for name, value in model[0].named_parameters()}
    watch = probe(model, HOST, server.port, kinds=KINDS)
    gc.collect()
    gc.disable()
    try:
        model(torch.ones(1, 3)).sum().backward()
        ref = weakref.ref(model)
        del model
        assert ref() is None
    finally:
        gc.enable()
    assert watch.status()["passes"] == 1
    assert watch.mode == ""
    watch.remove()
    assert flush(HOST, server.port)
    assert {one.kind for one in server.records()} == UNSTEPPED
    found = {one.address: one.array for one in server.records() if one.kind == "parameter"}
    assert found.keys() == weights.keys()  # the epoch ends with the model, and they are as they were then
    assert all(np.array_equal(found[address], weights[address]) for address in weights)
    assert "are not recorded as they were at the end of epoch 0" not in caplog.text


@pytest.mark.long
def test_two_models_share_a_sender(server):
    first, second = digits_model(), nn.Sequential(nn.Linear(3, 2))
    with probe(first, HOST, server.port, run="r"), probe(second, HOST, server.port, run="r", kinds=KINDS):
        first(IMAGES[:2])
        second(torch.ones(1, 3)).sum().backward()
        first(IMAGES[:2])
    assert flush(HOST, server.port)
    assert {envelope["client"] for _, envelope in server.batches()} == {get_sender(HOST, server.port)._id}
    records = server.records()
    assert {one.step for one in records if one.model == "Cnn"} == {0, 1}
    assert {one.kind for one in records if one.model == "Sequential"} == UNSTEPPED - {"grad_input"}


def test_never_called_lists_unused_operations(server):
    model = digits_model()
    model.spare = nn.Linear(2, 2)
    with probe(model, HOST, server.port) as watch:
        assert len(watch.status()["never_called"]) == 9
        model(IMAGES[:2])
        assert watch.status()["never_called"] == ["spare"]


def test_compiled_model_is_unaffected_and_warns(server, caplog):
    model = digits_model().eval()
    expected = model(IMAGES[:4])
    with probe(model, HOST, server.port):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.equal(compiled(IMAGES[:4]), expected)
    assert "Cnn was never called while it was probed, so nothing is recorded. Modules inside" in caplog.text
    assert "The model was compiled" not in caplog.text
    caplog.clear()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with probe(compiled, HOST, server.port):
        for _ in range(3):
            assert torch.equal(compiled(IMAGES[:4]), expected)
    assert caplog.text.count("The model was compiled") == 1
    assert caplog.text.count("did not run in its first call") == 1
    torch._dynamo.reset()


def test_complex_outputs_are_counted_and_logged_once(server, caplog):
    class Complex(nn.Module):
        def forward(self, x):
            return torch.fft.fft(x)

    model = nn.Sequential(Complex(), nn.Identity())
    with probe(model, HOST, server.port) as watch:
        for _ in range(3):
            model(torch.ones(2, 4))
    assert watch.status()["troubles"] == 9
    assert len([entry for entry in caplog.records if "complex tensors" in entry.message]) == 1
    assert flush(HOST, server.port)
    assert get_sender(HOST, server.port)._bytes == 0


def test_model_without_values_is_named_with_what_to_do(server):
    """Before, the fault was "Cannot copy out of meta tensor"."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 2))
    rows = torch.ones(20, 4), {"y": [0, 1] * 10}
    with probe(model, HOST, server.port, probe_set=rows) as watch:
        watch.run_probe_set()
    faults = " ".join(watch.status()["faults"])
    assert "'0' is on the meta device, where tensors have no values. Give the model its weights" in faults
    assert "Cannot copy" not in faults
    assert "scalarType" not in faults


def test_nan_and_inf_are_sent(server):
    model = nn.Sequential(nn.Identity())
    with probe(model, HOST, server.port):
        model(torch.tensor([[float("nan"), float("inf"), 1.0]]))
    assert flush(HOST, server.port)
    assert np.isnan(server.records()[0].array).tolist() == [[True, False, False]]


def empty_graph(name):
    none = np.zeros(0, np.int64)
    pairs = np.zeros((0, 2), np.int64)
    ops, edges, calls = Ops(0), Edges(*[none] * 3), Calls(*[none] * 5)
    return Graph(name, (), (), (), (), (), (), ops, edges, calls, pairs, pairs)


class Sketch:
    """A fake recorder of graphs."""

    def __init__(self, fail=""):
        self.log, self.fail = [], fail

    def begin(self, model, inputs):
        assert inputs[0][0].ndim == 4
        self.log.append("begin")
        if self.fail == "begin":
            raise RuntimeError("cannot begin")

    def end(self, output):
        assert output is None or output.shape[1] == 10
        self.log.append("end")
        if self.fail == "end":
            raise RuntimeError("cannot end")
        return None if self.fail == "none" else empty_graph("Cnn")


def test_graph_of_first_pass_is_sent_once(server):
    model, sketch = digits_model(), Sketch()
    with probe(model, HOST, server.port, run="a b", structure=sketch):
        model(IMAGES[:2])
        model(IMAGES[:2])
    assert flush(HOST, server.port)
    ((path, body),) = [(path, body) for path, body in server.got if path.startswith("/graph")]
    assert path == "/graph?run=a+b&model=Cnn"
    assert decode_graph(body)[0].model == "Cnn"
    assert sketch.log == ["begin", "end"]


def test_graph_recording_ends_if_pass_raises(server):
    model, sketch = digits_model(), Sketch()
    with probe(model, HOST, server.port, structure=sketch):
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 5, 8, 8))
        assert sketch.log == ["begin", "end"]
        model(IMAGES[:2])
    assert sketch.log == ["begin", "end"]


def test_calls_of_several_threads_are_never_mixed(server):
    """Each call has a number of its own, which all layers return: a step has that of one call."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    model = nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity())

    def work(first):
        for number in range(first, first + 60):
            model(torch.full((2, 4), float(number)))

    try:
        with probe(model, HOST, server.port, budget=math.inf, structure=False) as watch:
            threads = [threading.Thread(target=work, args=(100 * each,)) for each in range(4)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert flush(HOST, server.port)
            assert watch.status()["passes"] == 240
    finally:
        sys.setswitchinterval(before)
    steps = {}
    for one in server.records():
        steps.setdefault(one.step, {})[one.address] = set(one.array.ravel().tolist())
    assert steps
    for values in steps.values():
        assert values.keys() == {"", "0", "1", "2"}
        assert len(set.union(*values.values())) == 1


class Interruptible(nn.Module):
    """A model whose second call is interrupted."""

    def __init__(self):
        super().__init__()
        self.layer, self.is_interrupted = nn.Linear(3, 2), False

    def forward(self, x):
        out = self.layer(x)
        if self.is_interrupted:
            raise KeyboardInterrupt
        return out


@pytest.mark.parametrize("on", ["this thread", "a thread that ends"])
def test_interrupted_call_does_not_keep_later_ones_from_being_recorded(server, on):
    model = Interruptible()

    def interrupt():
        model.is_interrupted = True
        with contextlib.suppress(KeyboardInterrupt):
            model(torch.ones(2, 3))
        model.is_interrupted = False

    with probe(model, HOST, server.port, budget=math.inf, structure=False) as watch:
        model(torch.ones(2, 3))
        if on == "this thread":
            interrupt()
        else:
            other = threading.Thread(target=interrupt)
            other.start()
            other.join()
        model(torch.full((2, 3), 7.0))
        assert not any("another thread" in fault for fault in watch.status()["faults"])
    assert flush(HOST, server.port)
    last = [one.array for one in server.records() if one.address == "layer"][-1]
    np.testing.assert_array_equal(last, model.layer(torch.full((2, 3), 7.0)).detach().numpy())


@pytest.mark.parametrize("fail", ["begin", "end", "none"])
def test_failed_graph_recording_has_no_effect(server, fail):
    model, sketch = digits_model(), Sketch(fail)
    with probe(model, HOST, server.port, structure=sketch, budget=1000) as watch:
        model(IMAGES[:2])
        model(IMAGES[:2])
    assert flush(HOST, server.port)
    assert len(server.records()) == 16
    status = watch.status()
    assert status["troubles"] == 0  # all layers were recorded
    assert [f"RuntimeError: cannot {fail}" in each for each in status["faults"]] == [True] * (fail != "none")


def process_state():
    return nn.Module.__call__.__code__, torch._C._len_torch_function_stack()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupted_first_pass_restores_process(server, error):
    class Interrupted(nn.Module):
        def forward(self, x):
            raise error

    before, model = process_state(), nn.Sequential(nn.Linear(3, 3), Interrupted())
    watch = probe(model, HOST, server.port, budget=1000)
    with pytest.raises(error):
        model(torch.ones(1, 3))
    assert process_state() == before
    model[1].forward = lambda x: x + 1
    model(torch.ones(1, 3))
    watch.remove()
    assert process_state() == before
    assert watch.status()["troubles"] == 0
    assert watch.status()["recorded"] == 1 + 3  # the outputs of both passes


def test_remove_during_call_restores_process(server):
    before, model = process_state(), nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    watch = probe(model, HOST, server.port, budget=1000)
    model[0].register_forward_hook(lambda *args: watch.remove())
    model(torch.ones(1, 3))
    assert process_state() == before


@pytest.mark.parametrize("first_out", ["first in", "last in"])
@pytest.mark.parametrize("removed", [False, True])
def test_concurrent_calls_are_traced_separately(server, first_out, removed):
    """The pass of one thread is traced; a pass on another thread, and the probe, may end first."""
    inside, go_on, left = threading.Event(), threading.Event(), {}

    class Meeting(nn.Module):
        def forward(self, x):
            if threading.current_thread().name == "a":
                inside.set()
                go_on.wait(10)  # no assert: the code that pytest generates for it reaches compiled code
            elif first_out == "first in":
                go_on.set()
                a.join(10)
            return x * 2

    def work():
        model(torch.ones(1, 3))
        left[threading.current_thread().name] = torch._C._len_torch_function_stack()

    model, before = nn.Sequential(nn.Linear(3, 3), Meeting()), process_state()
    watch = probe(model, HOST, server.port, run="r")
    a, b = (threading.Thread(target=work, name=name) for name in "ab")
    a.start()
    assert inside.wait(10)
    b.start()
    if first_out == "last in":
        b.join(10)
        if removed:
            watch.remove()
        go_on.set()
    a.join(10)
    b.join(10)
    assert left == {"a": 0, "b": 0}
    assert process_state() == before
    watch.remove()
    (fault,) = [each for each in watch.status()["faults"] if "another thread" in each]
    assert "is not recorded while another thread's call of it is" in fault
    assert flush(HOST, server.port)
    ((_, body),) = [(path, body) for path, body in server.got if path.startswith("/graph")]
    graph = decode_graph(body)[0]
    types = [graph.types[k] for k in graph.ops.type]
    assert types == ["input", "linear", "mul"] + ["output"] * (not removed or first_out == "first in")


def test_too_long_pass_has_no_graph(server, monkeypatch):
    class Long(nn.Module):
        def forward(self, x):
            for _ in range(100):
                x = x + 1
            sizes.append(len(watch._tap._graph.traced._capture.recording.rows))
            return x

    sizes = []
    monkeypatch.setattr("intus.tracing.first_pass_graph.MOST", 10)
    long = Long()
    with probe(long, HOST, server.port) as watch:
        assert long(torch.ones(1)).item() == 101
    assert sizes == [10 * len(ROW)]
    assert flush(HOST, server.port)
    paths = [path for path, _ in server.got]  # removing the probe may send a request of its own
    assert set(paths) == {"/records", "/flush"}
    assert paths[-1] == "/flush"


def test_import_needs_no_framework_or_server_package():
    code = (
        "import sys, intus.monitoring\n"
        "heavy = {'torch', 'sklearn', 'scipy', 'pandas', 'sqlalchemy', 'starlette', 'uvicorn'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_probe_returns_probe_and_leaves_logging_level(unused_port):
    assert isinstance(probe(Cnn(), HOST, unused_port), Probe)
    assert logging.getLogger("intus.monitoring").level == logging.NOTSET


def test_through_of_a_torch_model_is_refused(unused_port):
    with (
        probe(digits_model(), HOST, unused_port) as watch,
        pytest.raises(InputError, match=r"through is for JAX\. .*, a model of torch, .* leave it out\."),
    ):
        watch.through(lambda x: x)


class Encoder(nn.Module):
    """A model that scripts train by its methods."""

    def __init__(self):
        super().__init__()
        self.enc, self.head, self.spare = nn.Linear(6, 6), nn.Linear(6, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.enc(x))

    def encode(self, x):
        return self.enc(x)


def test_layers_that_run_outside_of_a_call_of_the_model_are_told(server, caplog):
    """Before, they were never called, and the warning was of torch.compile."""
    model = Encoder()
    with probe(model, HOST, server.port) as watch:
        for _ in range(3):
            model.head(model.encode(torch.ones(4, 6))).sum().backward()
        assert watch.status()["never_called"] == ["", "spare"]
    (fault,) = watch.status()["faults"]
    assert "2 of 4 layers of Encoder ran outside of a call of it, for example 'enc'" in fault
    assert "torch.compile" not in caplog.text
    assert server.records() == []


def test_layers_of_skipped_and_recomputed_calls_are_not_outside_of_them(server):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 6)

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Checkpointed()
    with probe(model, HOST, server.port, when=lambda model, operation: False, budget=1000) as watch:
        model(torch.rand(4, 6)).sum().backward()
        with pytest.raises(RuntimeError):
            model(torch.rand(4, 5))
        model(torch.rand(4, 6)).sum().backward()
        assert watch._tap.coverage.outside == set()
        model.inner(torch.rand(4, 6))
        assert watch._tap.coverage.outside == {"inner"}
    assert not watch.status()["faults"]


@pytest.mark.parametrize(
    ("name", "value"), [("epoch", 3), ("step", 3), ("mode", "eval"), ("items", [0, 1]), ("items", None)]
)
def test_setting_of_a_removed_probe_is_told_once(name, value, caplog):
    model = nn.Linear(4, 4)
    watch = probe(model, run=f"removed {name}", name="Removed", structure=False)
    setattr(watch, name, value)
    said = "The probe of Removed records no more passes"
    assert not [fault for fault in watch.status()["faults"] if fault.startswith(said)]
    watch.remove()
    caplog.clear()
    setattr(watch, name, value)
    setattr(watch, name, value)
    assert len([one for one in caplog.messages if said[4:] in one]) == 1
    assert len([fault for fault in watch.status()["faults"] if fault.startswith(said)]) == 1
    assert torch.equal(model(torch.ones(2, 4)), F.linear(torch.ones(2, 4), model.weight, model.bias))
