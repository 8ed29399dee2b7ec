"""A probe set shows models that the training had, in their order, and the last of them is the final one."""

from __future__ import annotations

import copy
import gc
import io
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import probe
from intus.serving.run import Server

SETS = [
    TensorDataset(rows, (rows[:, 0] > 0).long())
    for rows in (torch.randn(size, 6, generator=torch.Generator().manual_seed(size)) for size in (40, 30, 60))
]
ROWS = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Return a function that probes a model."""
    with Server(database=tmp_path_factory.mktemp("shown") / "x.db", port=0, scores="mean") as server:
        yield partial(probe, host=server.host, port=server.port, block=True)


class Training:
    """A model in training, and what it was at the end of each iteration over a loader."""

    def __init__(self, watched, **options):
        torch.manual_seed(0)
        self.model = self.build()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.watch = watched(self.model, **(options or {"probe_set": (ROWS, {"y": ROWS[:, 0] > 0})}))
        self.models = [self.state()]

    def build(self):
        return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))

    def state(self):
        first = self.model[0]
        return F.linear(ROWS, first.weight, first.bias).detach().numpy().copy()

    def keep(self):
        self.models.append(self.state())

    def step(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()

    def epoch(self, data, *, fresh=True):
        for x, y in loader_of(data, fresh=fresh):
            self.step(x, y)
        self.keep()

    def validate(self, data):
        self.model.eval()
        with torch.no_grad():
            for x, _ in loader_of(data):
                self.model(x)
        self.model.train()


LOADERS = [DataLoader(data, batch_size=10, shuffle=True) for data in SETS]


def loader_of(data, *, fresh=True):
    return DataLoader(SETS[data], batch_size=10, shuffle=True) if fresh else LOADERS[data]


def shown(kept, address="0"):
    return [(one.epoch, one.array) for one in kept if one.address == address]


def check(kept, models, address="0"):
    """Check that each model was shown once, in order, under a number of its own, by every value."""
    found = shown(kept, address)
    numbers = [epoch for epoch, _ in found]
    assert numbers == list(range(len(models)))
    for (_, array), model in zip(found, models, strict=True):
        torch.testing.assert_close(torch.as_tensor(array), torch.as_tensor(model), rtol=1e-6, atol=1e-7)


SOME = st.integers(0, len(SETS) - 1)
PART = st.one_of(
    st.tuples(st.just("epoch"), SOME),
    st.tuples(
        st.sampled_from(["epoch of a kept loader", "validation", "new optimizer", "weights in and out"]), SOME
    ),
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(st.lists(PART, min_size=1, max_size=8))
def test_models_of_generated_trainings_are_shown(watched, kept, parts):
    kept.clear()
    training = Training(watched)
    for kind, data in parts:
        if kind == "validation":
            training.validate(data)
        elif kind == "new optimizer":
            training.optimizer = torch.optim.Adam(training.model.parameters(), 0.02)
        elif kind == "weights in and out":
            state = copy.deepcopy(training.model.state_dict())
            with torch.no_grad():
                training.model[0].weight.mul_(0.5)
            training.validate(data)
            training.model.load_state_dict(state)
        else:
            training.epoch(data, fresh=kind == "epoch")
    training.watch.remove()
    if len(training.models) > 1:
        check(kept, training.models)
        assert training.watch.status()["faults"] == []
    else:  # nobody trained it
        assert len(shown(kept)) <= 1


def restored(training, data):
    """Load the weights of another time, as the best ones, after the end of an epoch or before the next."""
    training.model.load_state_dict(training.best)


def head_restored(training, data):
    training.model[2].load_state_dict({name: training.best[f"2.{name}"] for name in ("weight", "bias")})


def loaded_and_back(training, data):
    state = copy.deepcopy(training.model.state_dict())
    training.model.load_state_dict(training.best)
    training.validate(data)
    training.model.load_state_dict(state)


def broken_off(training, data, *, looks=()):
    """Train for some steps of a loader, or of slices of a tensor that begin with the same one."""
    loader = loader_of(data) if data else SETS[0][:30][0].split(10)
    for number, batch in enumerate(loader):
        for look in looks:
            look(training, data)
        x, y = batch if data else (batch, (batch[:, 0] > 0).long())
        training.step(x, y)
        if number == 1:
            break
    training.keep()
    if len(training.models) == 2:
        training.best = copy.deepcopy(training.model.state_dict())


class OfState(Training):
    """A model of which all that is loaded shows in the output."""

    def __init__(self, watched, **options):
        super().__init__(watched, **options)
        self.best = copy.deepcopy(self.model.state_dict())

    def state(self):
        with torch.no_grad():
            rows = ROWS
            for layer in self.model:
                rows = layer(rows)
        return rows.numpy().copy()


@pytest.mark.long
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    st.integers(0, 2),
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([loaded_and_back, Training.validate]), max_size=1),
            st.lists(
                st.sampled_from([restored, head_restored, loaded_and_back, Training.validate]), max_size=3
            ),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_epochs_are_shown_as_they_were_trained_whatever_is_loaded_after_them(watched, kept, data, epochs):
    """Before, weights that were loaded after a loop that was broken off were shown as its epoch, silently."""
    kept.clear()
    training = OfState(watched)
    kept.clear()  # the passes of ``state``
    for inside, after in epochs:
        broken_off(training, data, looks=inside)
        for one in after:
            one(training, data)
    if not np.array_equal(training.state(), training.models[-1]):
        training.keep()
    training.watch.remove()
    check(kept, training.models, "2")
    faults = training.watch.status()["faults"]
    assert [one for one in faults if data or "the first batch never came again" not in one] == []


@pytest.mark.parametrize("by", ["remove", "flush", "run_probe_set"])
def test_loaded_weights_are_another_epoch_than_the_trained_model(watched, kept, by):
    training = OfState(watched)
    for _ in range(3):
        broken_off(training, 1)
    restored(training, 1)
    training.keep()
    for _ in range(2):
        getattr(training.watch, by)()
    training.watch.remove()
    check(kept, training.models, "2")
    assert training.watch.status()["faults"] == []


def test_loaded_weights_are_not_the_last_of_a_number_of_calls(watched, kept):
    training = OfState(watched, probe_set=(ROWS, {"y": ROWS[:, 0] > 0}), every=2)
    for _ in range(3):
        broken_off(training, 1)
    restored(training, 1)
    training.keep()
    training.watch.remove()
    calls = [epoch for epoch, _ in shown(kept, "2")]
    assert calls == [0, 2, 4, 6, 7]
    for (_, array), model in zip(shown(kept, "2"), training.models, strict=True):
        np.testing.assert_allclose(array, model, rtol=1e-6, atol=1e-7)


def test_trained_model_is_shown_after_the_end_of_the_function_that_loaded_others(watched, kept):
    training = OfState(watched)
    broken_off(training, 1)
    broken_off(training, 1)
    restored(training, 1)
    training.keep()
    models, watch = training.models, training.watch
    del training
    gc.collect()
    watch.flush()
    check(kept, models, "2")


def test_weights_that_are_loaded_in_an_epoch_that_the_script_names_are_not_shown_as_it(watched, kept):
    training = OfState(watched)
    for epoch in (1, 2):
        training.watch.epoch = epoch
        broken_off(training, 1)
    restored(training, 1)
    training.watch.remove()
    check(kept, training.models, "2")
    (fault,) = training.watch.status()["faults"]
    assert "already run in epoch 2, so later changes in that epoch are not shown" in fault


def test_weights_are_shown_where_the_script_asks_for_them_in_an_epoch_that_it_names(watched, kept):
    training = OfState(watched)
    training.watch.epoch = 1
    broken_off(training, 1)
    restored(training, 1)
    training.models[-1] = training.state()  # averaged weights, as of an evaluation of these
    training.watch.run_probe_set()
    training.watch.remove()
    check(kept, training.models, "2")
    assert training.watch.status()["faults"] == []


def test_search_for_a_learning_rate_that_is_undone_is_no_epoch(watched, kept):
    training = OfState(watched)
    start = copy.deepcopy(training.model.state_dict())
    broken_off(training, 1)
    training.model.load_state_dict(start)
    training.models.pop()
    for _ in range(2):
        broken_off(training, 1)
    training.watch.remove()
    check(kept, training.models, "2")


def test_weights_that_are_loaded_before_the_training_are_its_epoch_0(watched, kept):
    training = OfState(watched)
    with torch.no_grad():
        training.model[0].weight.mul_(2)
    training.model.load_state_dict({name: 2 * one for name, one in training.best.items()})
    training.models = [training.state()]
    kept.clear()
    broken_off(training, 1)
    training.watch.remove()
    check(kept, training.models, "2")
    assert training.watch.status()["faults"] == []


def test_epoch_whose_model_cannot_be_restored_is_said_and_not_shown(watched, kept):
    training = OfState(watched)
    broken_off(training, 1)
    broken_off(training, 1)
    training.model.load_state_dict({name: one.double() for name, one in training.best.items()}, assign=True)
    training.watch.flush()
    training.watch.remove()
    check(kept, training.models[:-1], "2")
    (fault,) = training.watch.status()["faults"]
    assert "The model that epoch 2 of Sequential has trained is not shown" in fault
    assert "run_probe_set() before you load weights" in fault


def test_copies_of_a_probed_model_load_weights_without_its_probe(watched, kept):
    training = OfState(watched)
    broken_off(training, 1)
    buffer = io.BytesIO()
    torch.save(training.model, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(training.model), torch.load(buffer, weights_only=False)):
        other.load_state_dict(training.best)
        torch.testing.assert_close(other.state_dict(), dict(training.best))
    broken_off(training, 1)
    training.watch.remove()
    check(kept, training.models, "2")
    assert not any(one._load_state_dict_pre_hooks for one in training.model.modules())


PIECES = [
    "epoch",
    "broken off",
    "some of a kept iterator",
    "two side by side",
    "without a loader",
    "write",
    "validation",
    "asked for",
    "flushed",
]


@pytest.mark.long
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(st.lists(st.tuples(st.sampled_from(PIECES), SOME), min_size=1, max_size=8))
def test_final_model_of_any_training_is_shown_or_said_not_to_be(watched, kept, parts):
    """No model is shown under two numbers or after a later one, and the last that is shown is final."""
    kept.clear()
    training = Training(watched)
    iterators = [iter(loader_of(data)) for data in range(len(SETS))]

    def step(x, y):
        training.step(x, y)
        training.keep()

    for kind, data in parts:
        if kind == "write":
            with torch.no_grad():
                training.model[0].weight.mul_(0.9)
            training.keep()
        elif kind == "validation":
            training.validate(data)
        elif kind == "asked for":
            training.watch.run_probe_set()
        elif kind == "flushed":
            training.watch.flush()
        elif kind == "two side by side":
            for one, other in zip(loader_of(data), loader_of((data + 1) % 3), strict=False):
                step(*other)
                step(*one)
        elif kind == "without a loader":
            step(*SETS[data][:10])
        elif kind == "some of a kept iterator":
            for x, y in islice(iterators[data], 2):
                step(x, y)
        else:
            for number, (x, y) in enumerate(loader_of(data)):
                step(x, y)
                if number == 1 and kind == "broken off":
                    break
    training.watch.remove()
    at = [
        min(range(len(training.models)), key=lambda one: abs(training.models[one] - array).max())
        for _, array in shown(kept)
    ]
    assert all(
        abs(training.models[one] - a).max() < 1e-6 for one, (_, a) in zip(at, shown(kept), strict=True)
    )
    assert at == sorted(set(at))
    assert [epoch for epoch, _ in shown(kept)] == sorted({epoch for epoch, _ in shown(kept)})
    if not training.watch.status()["faults"]:
        assert at[-1] == len(training.models) - 1


def beside(training, *, first):
    """A short loader that begins anew within the epochs of a long one."""

    def endless():
        while True:
            yield from loader_of(1)

    others = endless()
    for _ in range(4):
        for x, y in loader_of(2):
            other = next(others)
            for batch in (other, (x, y)) if first else ((x, y), other):
                training.step(*batch)
        training.keep()


def step_after_the_data(training):
    for _ in range(3):
        training.optimizer.zero_grad()
        for number, (x, y) in enumerate(loader_of(0)):
            F.cross_entropy(training.model(x), y).backward()
            if number == 1:
                training.optimizer.step()
                training.optimizer.zero_grad()
        training.optimizer.step()
        training.keep()


def whole_data_in_a_step(training):
    for _ in range(3):
        training.optimizer.zero_grad()
        for x, y in loader_of(0):
            F.cross_entropy(training.model(x), y).backward()
        training.optimizer.step()
        training.keep()


def chained(training):
    for _ in range(2):
        for data in (0, 1, 2):
            training.epoch(data, fresh=False)


def pruned_at_the_end(training):
    training.epoch(0)
    with torch.no_grad():
        training.model[0].weight.mul_(0.5)
    training.keep()


def pruned_and_asked_for(training):
    pruned_at_the_end(training)
    training.watch.run_probe_set()
    training.watch.run_probe_set()  # nothing changed, so there is nothing to show
    training.epoch(1)
    training.watch.run_probe_set()


def broken_off_then_another(training):
    for x, y in loader_of(0):
        training.step(x, y)
    training.keep()
    for number, (x, y) in enumerate(loader_of(1)):
        training.step(x, y)
        if number == 1:
            break
    training.keep()


def evaluated_as_in_training(training):
    """A last evaluation over the loader of the training, with gradients and in training mode."""
    for _ in range(3):
        training.epoch(0, fresh=False)
        for x, _ in loader_of(0, fresh=False):
            training.model(x)


LOOPS = [
    evaluated_as_in_training,
    partial(beside, first=False),
    partial(beside, first=True),
    step_after_the_data,
    whole_data_in_a_step,
    chained,
    pruned_at_the_end,
    pruned_and_asked_for,
    broken_off_then_another,
]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: getattr(loop, "__name__", str(loop)[-14:-1]))
def test_models_of_loops_are_shown(watched, kept, loop):
    """Before, what another loader trained, and a last step or write, were missing without a word."""
    training = Training(watched)
    loop(training)
    training.watch.remove()
    check(kept, training.models)
    assert training.watch.status()["faults"] == []


def test_model_that_changed_in_an_epoch_that_the_script_names_is_said(watched, kept):
    training = Training(watched)
    training.watch.epoch = 1
    training.epoch(0)
    training.watch.run_probe_set()
    training.watch.run_probe_set()
    assert training.watch.status()["faults"] == []
    training.epoch(1)
    training.watch.remove()
    check(kept, training.models[:2])
    (fault,) = training.watch.status()["faults"]
    assert "later changes in that epoch are not shown" in fault


def test_further_epoch_is_said(watched, kept):
    training = Training(watched)
    training.epoch(0)
    training.epoch(1)
    training.watch.remove()
    assert "Epoch 2 is the model after it changed further in epoch 1" in training.watch.status()["epochs"]


class Normalized(Training):
    """A model with buffers of several kinds, and one that its state does not have."""

    def build(self):
        layer = nn.Linear(5, 5, bias=False)
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), layer, Masked())

    def state(self):
        first, norm, last, rest = self.model
        with torch.no_grad():
            x = F.linear(ROWS, first.weight, first.bias)
            x = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)
            return (F.linear(x, last.weight) * rest.mask * rest.levels).numpy()


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(5, dtype=torch.bool))
        self.register_buffer("levels", torch.ones(5, dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(5), persistent=False)

    def forward(self, x):
        self.cache.add_(1)
        return x * self.mask * self.levels


def estimated_anew(training):
    torch.optim.swa_utils.update_bn(loader_of(0), training.model)


def averaged(training):
    """Copy an average of the weights and buffers into the model."""
    average = torch.optim.swa_utils.AveragedModel(training.model)
    average.update_parameters(training.model)
    training.epoch(0)
    average.update_parameters(training.model)
    training.model.load_state_dict(average.module.state_dict())


def best_loaded(training):
    best = copy.deepcopy(training.model.state_dict())
    training.epoch(0)
    training.model.load_state_dict(best)


def statistics_loaded(training):
    best = copy.deepcopy(training.model[1].state_dict())
    training.epoch(0)
    training.model[1].load_state_dict(best)


def pruned(training):
    prune.l1_unstructured(training.model[2], "weight", 0.5)


def masked(training):
    training.model[3].mask[2] = False


def levelled(training):
    training.model[3].levels[4] = 3


def called_in_training_mode(training):
    training.model(SETS[0][:10][0])


CHANGES = [
    estimated_anew,
    averaged,
    best_loaded,
    statistics_loaded,
    pruned,
    masked,
    levelled,
    called_in_training_mode,
]


@pytest.mark.parametrize("by", ["remove", "flush", "run_probe_set"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_last_epoch_is_the_model_as_it_is_at_the_end(watched, kept, change, by):
    """Before, what changed buffers alone after the last epoch was not shown, and nothing said so."""
    training = Normalized(watched)
    training.epoch(0)
    change(training)
    training.keep()
    for _ in range(2):  # the second time there is nothing new
        getattr(training.watch, by)()
    check(kept, training.models, "3")
    training.watch.remove()
    check(kept, training.models, "3")
    assert training.watch.status()["faults"] == []


def evaluated(training):
    training.validate(0)


def swapped_in_and_out(training):
    """Evaluate an average of weights and buffers, and go back."""
    state = copy.deepcopy(training.model.state_dict())
    estimated_anew(training)
    training.validate(0)
    training.model.load_state_dict(state)


@pytest.mark.parametrize("use", [evaluated, swapped_in_and_out], ids=lambda one: one.__name__)
def test_model_that_is_the_same_at_the_end_is_not_shown_again(watched, kept, use):
    training = Normalized(watched)
    training.epoch(0)
    use(training)
    training.watch.flush()
    training.watch.remove()
    check(kept, training.models, "3")


def test_request_that_shows_nothing_is_said(watched, kept, caplog):
    """A probe does not see all that a model may be changed by, and has no hooks once it was removed."""
    caplog.set_level("INFO", logger="intus")
    training = Normalized(watched)
    training.epoch(0)
    training.watch.run_probe_set()
    assert "ran nothing in epoch 1" in caplog.text
    training.watch.remove()
    assert training.watch.status()["faults"] == []
    training.watch.run_probe_set()
    (fault,) = training.watch.status()["faults"]
    assert "was not run, because its probe records nothing more" in fault
    check(kept, training.models, "3")


def test_statistics_that_changed_in_an_epoch_that_the_script_names_are_said(watched, kept):
    training = Normalized(watched)
    training.watch.epoch = 1
    training.epoch(0)
    training.watch.run_probe_set()
    estimated_anew(training)
    training.watch.remove()
    check(kept, training.models, "3")
    (fault,) = training.watch.status()["faults"]
    assert "later changes in that epoch are not shown" in fault


def rows_of_epochs(kept):
    rows = {}
    for record in kept:
        if record.address == "0":
            rows[record.epoch, record.mode] = rows.get((record.epoch, record.mode), 0) + record.rows
    return rows


@pytest.mark.parametrize(
    ("datasets", "rows", "are_shared"),
    [
        ([0, 0, 1, 1, 1], [40, 70, 30, 30], True),
        ([0, 1, 0, 1], [70, 70], False),
        ([0, 1, 2, 0, 1, 2], [130, 130], False),
        ([0, 1, 2], [130], True),
        ([0, 0, 0], [40, 40, 40], False),
    ],
)
def test_passes_over_several_datasets(watched, kept, datasets, rows, are_shared):
    """Before, all that followed the last epoch of the first dataset was in that epoch, without a word."""
    training = Training(watched, structure=False)
    for data in datasets:
        training.epoch(data)
    training.watch.remove()
    assert rows_of_epochs(kept) == {(epoch, "train"): count for epoch, count in enumerate(rows, 1)}
    faults = training.watch.status()["faults"]
    assert sum("passes of several datasets" in one for one in faults) == are_shared
    assert sum("have no labels, although they train" in one for one in faults) == (len(set(datasets)) > 1)


@pytest.mark.parametrize("fresh", [True, False])
def test_average_that_is_only_evaluated_has_epochs(watched, kept, fresh):
    """Before, three different models were one epoch 0."""
    training = Training(watched, structure=False, name="trained")
    average = copy.deepcopy(training.model).eval().requires_grad_(requires_grad=False)
    kept.clear()
    watch = watched(average, structure=False, name="average")
    for epoch in range(3):
        training.epoch(0)
        with torch.no_grad():
            for mine, other in zip(average.parameters(), training.model.parameters(), strict=True):
                mine.lerp_(other, 0.3)
        for x, _ in loader_of(1, fresh=fresh):
            average(x)
        assert watch.epoch == epoch
    watch.remove()
    training.watch.remove()
    rows = {}
    for one in kept:
        if (one.model, one.address) == ("average", "0"):
            rows[one.epoch] = rows.get(one.epoch, 0) + one.rows
    assert rows == {0: 30, 1: 30, 2: 30}
    assert "called in evaluation mode or without gradients alone" in watch.status()["epochs"]
