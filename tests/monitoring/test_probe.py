"""``probe`` on real training: the records are right, the training is untouched, whatever the server does."""

from __future__ import annotations

import copy
import gc
import logging
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

from intus.core.errors import InputError
from intus.core.graph import Calls, Edges, Graph, Ops
from intus.core.record import KINDS
from intus.monitoring import Probe, flush, probe
from intus.monitoring.sender import line
from intus.storage.codec import decode_graph
from intus.tracing.capture.recording import ROW

HOST = "127.0.0.1"
IMAGES = torch.tensor(load_digits().images[:192], dtype=torch.float32)[:, None] / 16
LABELS = torch.tensor(load_digits().target[:192])
#: The kinds of a pass that no optimizer's step follows.
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


def test_two_lines_record_every_operation_of_every_pass(server):
    model = digits_model()
    watch = probe(model, HOST, server.port)
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
    assert len(server.batches()) == 8  # one request a pass
    status = watch.status()
    assert status == {
        "passes": 8, "skipped": 0, "recorded": 64, "troubles": 0, "never_called": [],
        "sent": 64, "dropped": 0, "failed": 0, "waiting": 0, "server": "up",
    }  # fmt: skip
    last = model(IMAGES[:64]).detach().numpy()
    assert np.array_equal([one for one in records if one.address == ""][-1].array, last)


@pytest.mark.parametrize("world", ["up", "absent", "dying", "refusing", "failing", "full", "broken choices"])
def test_training_is_the_same_to_the_last_bit_whatever_happens(server, nobody, world):
    model = digits_model()
    train(model)
    plain, plain_rng = copy.deepcopy(model.state_dict()), states()

    model = digits_model()
    options = {"kinds": KINDS, "queue_mb": 0.05 if world == "full" else 256}
    if world == "broken choices":
        options |= {"when": lambda model, operation: 1 / 0}
    server.answer = lambda path: {"refusing": 400, "failing": 500}.get(world, 200)
    with probe(model, HOST, nobody if world == "absent" else server.port, **options) as watch:
        if world == "dying":
            train_a_little = iter(range(3))
            model.register_forward_pre_hook(
                lambda *args: server.die() if next(train_a_little, None) == 1 else None
            )
        train(model, watch)
    probed = model.state_dict()
    assert all(torch.equal(plain[name], probed[name]) for name in plain)
    assert states() == plain_rng
    if world == "dying":
        server.start()
    if world == "full":
        assert watch.status()["dropped"] > 0
    assert watch.status()["troubles"] == (8 * 8 if world == "broken choices" else 0)


def test_no_server_up_says_so_once_and_raises_nothing(nobody, caplog):
    model = digits_model()
    start = time.perf_counter()
    with probe(model, HOST, nobody) as watch:
        train(model, watch)
        assert not flush(HOST, nobody)
        train(model, watch)
    assert time.perf_counter() - start < 10
    said = [entry for entry in caplog.records if "nothing is recorded" in entry.message]
    assert len(said) == 1
    assert f"{HOST}:{nobody}" in said[0].message
    status = watch.status()
    assert status["server"] == "down"
    assert status["dropped"] >= 64
    assert status["sent"] == 0


def test_a_slow_server_does_not_slow_the_training(server):
    server.delay = 2.0
    model = digits_model()
    with probe(model, HOST, server.port, queue_mb=0.5) as watch:
        start = time.perf_counter()
        train(model, watch, epochs=1)
        assert time.perf_counter() - start < server.delay  # not even one answer was waited for
        server.delay = 0.0
    assert flush(HOST, server.port)
    status = watch.status()
    assert status["sent"] + status["dropped"] == 4 * 8
    assert min(status["sent"], status["dropped"]) > 0
    assert server.batches()[-1][1]["dropped"] == status["dropped"]


def test_blocking_drops_nothing(server):
    model = digits_model()
    with probe(model, HOST, server.port, queue_mb=0.3, block=True) as watch:
        train(model, watch)
    assert flush(HOST, server.port)
    assert watch.status()["sent"] == 64
    assert watch.status()["dropped"] == 0


def test_gradients_travel_with_the_tags_of_their_pass(server):
    model = digits_model()
    with probe(model, HOST, server.port, kinds=("grad_output", "parameter_grad")) as watch:
        for epoch in range(2):
            watch.epoch = epoch
            output = model(IMAGES[:8])
            watch.epoch = epoch + 1  # the gradients that follow belong to the pass above
            output.square().sum().backward()
    assert flush(HOST, server.port)
    bias = [one for one in server.records() if one.address == "classifier.bias"]
    assert [(one.epoch, one.step, one.batch_axis, one.kind) for one in bias] == [
        (0, 0, None, "parameter_grad"),
        (1, 1, None, "parameter_grad"),
    ]
    assert np.array_equal(bias[-1].array, model.classifier.bias.grad.numpy())


def test_which_and_when_choose(server):
    asked = []

    def which(m, operation):
        assert m is model
        return isinstance(operation.module, nn.Linear)

    def when(m, operation):
        asked.append((watch.step, operation.address, operation.type))
        return watch.epoch == 1

    model = digits_model()
    with probe(model, HOST, server.port, which=which, when=when) as watch:
        train(model, watch)
    assert flush(HOST, server.port)
    assert watch.operations == ("classifier",)
    assert len(asked) == 8
    assert {(address, type_) for _, address, type_ in asked} == {("classifier", "Linear")}
    assert {(one.address, one.epoch) for one in server.records()} == {("classifier", 1)}


def test_choices_that_raise_mean_no_and_are_said_once(server, caplog):
    model = digits_model()

    def which(m, operation):
        if operation.address == "features.2":
            raise KeyError("dropout_rate")
        return True

    with probe(model, HOST, server.port, which=which, when=lambda m, operation: operation.rate > 1) as watch:
        train(model, watch)
    assert "features.2" not in watch.operations
    assert len(watch.operations) == 7
    said = [entry.message for entry in caplog.records]
    assert [("which" in one, "when" in one) for one in said] == [(True, False), (False, True)]
    assert "KeyError" in said[0]
    assert "'features.2'" in said[0]
    assert flush(HOST, server.port)
    assert not server.records()


def test_choosing_nothing_is_said(server, caplog):
    probe(Cnn(), HOST, server.port, which=lambda m, operation: False)
    assert "chose no operation of Cnn" in caplog.text


def test_items_are_the_ids_of_the_next_passs_rows(server):
    model = digits_model().eval()
    with probe(model, HOST, server.port, rows=4) as watch:
        watch.items = torch.tensor([9, 7, 5, 3, 1, 0])
        model(IMAGES[:6])
        assert watch.items is None
        model(IMAGES[:6])
        watch.items = [1, 2]  # not the rows of what comes: no tensor has them
        model(IMAGES[:6])
    assert flush(HOST, server.port)
    rows = [one for one in server.records() if one.address == "classifier"]
    assert [None if one.items is None else one.items.tolist() for one in rows] == [[9, 7, 5, 3], None, None]
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
    ("options", "says"),
    [
        ({"port": 0}, "port=0"),
        ({"host": ""}, "host=''"),
        ({"kinds": ("outputs",)}, "kinds must be one or more of .*, got 'outputs'"),
        ({"which": 5}, "which has 5"),
        ({"which": ["0", None]}, "which has None"),
        ({"when": 5}, "when=5"),
        ({"rows": 0}, "rows=0"),
        ({"batch_axis": -1}, "batch_axis=-1"),
        ({"queue_mb": 0}, "queue_mb=0"),
        ({"name": ""}, "name=''"),
        ({"run": 3}, "run=3"),
        ({"model": [1]}, "builtins.list cannot be observed"),
    ],
)
def test_wrong_arguments_are_said_at_once_and_nothing_is_attached(options, says):
    model = Cnn()
    with pytest.raises(InputError, match=says):
        probe(**{"model": model, **options})
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", "two"), ("epoch", None), ("epoch", float("nan")), ("step", True), ("mode", 3),
        ("items", [1.5]), ("items", [[1]]), ("items", 5), ("items", ["a"]), ("items", [[1], [2, 3]]),
    ],
)  # fmt: skip
def test_wrong_settings_are_said_where_they_are_written(nobody, name, value):
    with probe(Cnn(), HOST, nobody) as watch, pytest.raises(InputError, match=name):
        setattr(watch, name, value)


def test_nothing_stays_on_the_model_after_remove(server):
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


def test_a_probed_model_can_be_copied_and_pickled_and_the_copy_is_not_probed(server):
    model = digits_model().eval()
    with probe(model, HOST, server.port, kinds=KINDS) as watch:
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(twin(IMAGES[:4]), twin(IMAGES[:4]))
        assert watch.status()["passes"] == 0


def test_a_probe_keeps_no_model_alive(server):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
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
    assert {one.kind for one in server.records()} == UNSTEPPED  # gradients of a model that is gone, too


def test_two_models_share_a_line_and_stay_apart(server):
    first, second = digits_model(), nn.Sequential(nn.Linear(3, 2))
    with probe(first, HOST, server.port, run="r"), probe(second, HOST, server.port, run="r", kinds=KINDS):
        first(IMAGES[:2])
        second(torch.ones(1, 3)).sum().backward()
        first(IMAGES[:2])
    assert flush(HOST, server.port)
    assert {envelope["client"] for _, envelope in server.batches()} == {line(HOST, server.port)._id}
    records = server.records()
    assert {one.step for one in records if one.model == "Cnn"} == {0, 1}
    assert {one.kind for one in records if one.model == "Sequential"} == UNSTEPPED - {"grad_input"}


def test_operations_that_never_run_are_named(server):
    model = digits_model()
    model.spare = nn.Linear(2, 2)
    with probe(model, HOST, server.port) as watch:
        assert len(watch.status()["never_called"]) == 9
        model(IMAGES[:2])
        assert watch.status()["never_called"] == ["spare"]


def test_a_compiled_model_is_not_harmed_and_says_what_is_missing(server, caplog):
    model = digits_model().eval()
    expected = model(IMAGES[:4])
    with probe(model, HOST, server.port):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.equal(compiled(IMAGES[:4]), expected)
    assert "Cnn was never called while it was probed. Modules inside torch.compile" in caplog.text
    caplog.clear()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with probe(compiled, HOST, server.port):
        for _ in range(3):
            assert torch.equal(compiled(IMAGES[:4]), expected)
    assert caplog.text.count("did not run in its first call") == 1
    torch._dynamo.reset()


def test_numbers_that_cannot_be_recorded_are_counted_and_said_once(server, caplog):
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
    assert line(HOST, server.port)._bytes == 0


def test_not_a_number_travels(server):
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
    """Stands for what records a graph on the side."""

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


def test_the_graph_of_the_first_pass_is_sent_once(server):
    model, sketch = digits_model(), Sketch()
    with probe(model, HOST, server.port, run="a b", structure=sketch):
        model(IMAGES[:2])
        model(IMAGES[:2])
    assert flush(HOST, server.port)
    ((path, body),) = [(path, body) for path, body in server.got if path.startswith("/graph")]
    assert path == "/graph?run=a+b&model=Cnn"
    assert decode_graph(body)[0].model == "Cnn"
    assert sketch.log == ["begin", "end"]


def test_the_graphs_recording_ends_when_the_pass_raises(server):
    model, sketch = digits_model(), Sketch()
    with probe(model, HOST, server.port, structure=sketch):
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 5, 8, 8))
        assert sketch.log == ["begin", "end"]
        model(IMAGES[:2])
    assert sketch.log == ["begin", "end"]


@pytest.mark.parametrize("fail", ["begin", "end", "none"])
def test_a_graph_that_cannot_be_recorded_harms_nothing(server, fail):
    model, sketch = digits_model(), Sketch(fail)
    with probe(model, HOST, server.port, structure=sketch) as watch:
        model(IMAGES[:2])
        model(IMAGES[:2])
    assert flush(HOST, server.port)
    assert len(server.records()) == 16
    assert watch.status()["troubles"] == (0 if fail == "none" else 1)


def of_the_process():
    return nn.Module.__call__.__code__, torch._C._len_torch_function_stack()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupted_first_pass_is_undone_at_once(server, error):
    class Interrupted(nn.Module):
        def forward(self, x):
            raise error

    before, model = of_the_process(), nn.Sequential(nn.Linear(3, 3), Interrupted())
    watch = probe(model, HOST, server.port)
    with pytest.raises(error):
        model(torch.ones(1, 3))
    assert of_the_process() == before
    model[1].forward = lambda x: x + 1
    model(torch.ones(1, 3))
    watch.remove()
    assert of_the_process() == before
    assert watch.status()["troubles"] == 0
    assert watch.status()["recorded"] == 1 + 3  # the passes' outputs


def test_a_removed_probe_leaves_nothing_in_a_call_that_goes_on(server):
    before, model = of_the_process(), nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    watch = probe(model, HOST, server.port)
    model[0].register_forward_hook(lambda *args: watch.remove())
    model(torch.ones(1, 3))
    assert of_the_process() == before


@pytest.mark.parametrize("first_out", ["first in", "last in"])
@pytest.mark.parametrize("removed", [False, True])
def test_calls_on_several_threads_do_not_meet(server, first_out, removed):
    """One thread's pass is traced; the other's comes and goes meanwhile, and so may the probe."""
    inside, go_on, left = threading.Event(), threading.Event(), {}

    class Meeting(nn.Module):
        def forward(self, x):
            if threading.current_thread().name == "a":
                inside.set()
                go_on.wait(10)  # no assert: what pytest makes of it leads to all that it has collected
            elif first_out == "first in":
                go_on.set()
                a.join(10)
            return x * 2

    def work():
        model(torch.ones(1, 3))
        left[threading.current_thread().name] = torch._C._len_torch_function_stack()

    model, before = nn.Sequential(nn.Linear(3, 3), Meeting()), of_the_process()
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
    assert of_the_process() == before
    watch.remove()
    assert watch.status()["troubles"] == 0
    assert flush(HOST, server.port)
    ((_, body),) = [(path, body) for path, body in server.got if path.startswith("/graph")]
    graph = decode_graph(body)[0]
    types = [graph.types[k] for k in graph.ops.type]
    assert types == ["input", "linear", "mul"] + ["output"] * (not removed or first_out == "first in")


def test_a_pass_of_too_many_operations_is_recorded_up_to_a_bound_and_has_no_graph(server, monkeypatch):
    class Long(nn.Module):
        def forward(self, x):
            for _ in range(100):
                x = x + 1
            sizes.append(len(watch._tap._traced._capture.recording.rows))
            return x

    sizes = []
    monkeypatch.setattr("intus.tracing.first_pass_graph.MOST", 10)
    long = Long()
    with probe(long, HOST, server.port) as watch:
        assert long(torch.ones(1)).item() == 101
    assert sizes == [10 * len(ROW)]
    assert flush(HOST, server.port)
    paths = [path for path, _ in server.got]  # a removed probe says so in a request of its own if it must
    assert set(paths) == {"/records", "/flush"}
    assert paths[-1] == "/flush"


def test_importing_it_needs_no_framework_and_no_server_package():
    code = (
        "import sys, intus.monitoring\n"
        "heavy = {'torch', 'sklearn', 'scipy', 'pandas', 'sqlalchemy', 'starlette', 'uvicorn'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_handle_is_a_probe(nobody):
    assert isinstance(probe(Cnn(), HOST, nobody), Probe)
    assert logging.getLogger("intus.monitoring").level == logging.NOTSET
