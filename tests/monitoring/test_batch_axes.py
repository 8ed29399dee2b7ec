"""Rows of models with time first: each row with an id is of its item, also if time is as long as the batch.

The judge is the model itself: what it computes for one item alone.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from torch import nn

from intus.core.address import without_call
from intus.core.nested import leaves
from intus.monitoring import flush, probe, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
WIDTH = 6
STEPS = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "norm": lambda: nn.LayerNorm(WIDTH),
    "relu": nn.ReLU,
    "gru": lambda: nn.GRU(WIDTH, WIDTH),
    "lstm": lambda: nn.LSTM(WIDTH, WIDTH),
    "attention": lambda: nn.MultiheadAttention(WIDTH, 2),
    "encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0), 1, enable_nested_tensor=False
    ),
    "decoder": lambda: nn.TransformerDecoderLayer(WIDTH, 2, 8, dropout=0.0),
    "function": nn.Identity,  # behind one
}


class TimeFirst(nn.Module):
    """A model of (items, positions, features) whose steps have time first, and a head for whole items."""

    def __init__(self, steps, shifted=False):
        super().__init__()
        self.steps, self.shifted = steps, shifted
        self.embed = nn.Linear(3, WIDTH)
        self.layers = nn.ModuleList([STEPS[step]() for step in steps])
        self.head, self.out = nn.Linear(WIDTH, 5), nn.Linear(5, 2)

    def forward(self, x):
        x = self.embed(x)
        x = (torch.tanh(x) if self.shifted else x).transpose(0, 1)
        for step, layer in zip(self.steps, self.layers, strict=True):
            if step == "attention":
                x = layer(x, x, x)[0]
            elif step == "decoder":
                x = layer(x, x)
            elif step in ("gru", "lstm"):
                x = layer(x)[0]
            else:
                x = layer(torch.tanh(x) if step == "function" else x)
        return self.out(self.head(x).mean(0))


def alone(model, inputs):
    """Return what each layer computes for each item alone, as (items, features)."""
    found = {}
    hooks = [
        module.register_forward_hook(
            lambda _, __, made, name=name: found.setdefault(name, []).append(
                next(one for one in leaves(made, torch.Tensor) if one.ndim).detach().numpy().ravel()
            )
        )
        for name, module in model.named_modules()
    ]
    with torch.no_grad():
        for one in inputs:
            model(one[None])
    for hook in hooks:
        hook.remove()
    return {name: np.stack(rows) for name, rows in found.items()}


def recorded(server, model, inputs, batch, *, of_set, grad=True):
    """Return the addresses with and without ids, after each row with an id was compared, and the faults."""
    server.got.clear()
    truth = alone(model, inputs)
    labels = (torch.arange(len(inputs)) % 2).tolist()
    options = {"probe_set": (inputs, {"half": labels})} if of_set else {"block": True}
    if not of_set:
        register_targets(HOST, server.port, name="half", targets=labels)
    with probe(model, HOST, server.port, structure=False, **options) as watch:
        if of_set:
            watch.run_probe_set()
        for ids in torch.arange(len(inputs)).split(batch) if not of_set else ():
            watch.items = ids
            with torch.set_grad_enabled(grad):
                model(inputs[ids])
    assert flush(HOST, server.port)
    named, unnamed = set(), set()
    for record in server.records():
        name = without_call(record.address)
        known = record.items is not None and bool((record.items >= 0).all())
        (named if known else unnamed).add(name)
        if known:
            rows = np.moveaxis(record.array, record.batch_axis, 0).reshape(len(record.items), -1)
            np.testing.assert_allclose(rows, truth[name][record.items], atol=1e-4, err_msg=record.address)
    return named, unnamed, watch.status()["faults"]


def sequences(items, length, seed=0):
    """Return sequences that have nothing in common."""
    return torch.randn(items, length, 3, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    batch=st.integers(3, 7),
    length=st.integers(3, 7),
    passes=st.integers(1, 3),
    rest=st.integers(0, 2),
    shifted=st.booleans(),
    of_set=st.booleans(),
    grad=st.booleans(),
)
def test_row_with_an_id_is_of_its_item(server, steps, batch, length, passes, rest, shifted, of_set, grad):
    torch.manual_seed(0)
    model = TimeFirst([*steps, "gru"], shifted)
    inputs = sequences(passes * batch + rest, length)
    named, unnamed, faults = recorded(server, model, inputs, batch, of_set=of_set, grad=grad)
    assert "embed" in named
    if of_set:
        assert not unnamed
        assert not faults
    assert bool(unnamed) == bool(faults)
    for name in unnamed - named:
        assert any(f"{name!r}" in fault or "more of" in fault for fault in faults), faults


@pytest.mark.parametrize("of_set", [False, True], ids=["own passes", "probe set"])
@pytest.mark.parametrize("length", [6, 9], ids=["as long as the batch", "longer"])
@pytest.mark.parametrize("step", sorted(set(STEPS) - {"function", "linear", "norm", "relu"}))
def test_layers_in_and_behind_modules_with_time_first_have_ids(server, step, length, of_set):
    torch.manual_seed(0)
    model = TimeFirst([step, "linear", "norm"])
    named, unnamed, faults = recorded(
        server, model, sequences(12 if not of_set else 6, length), 6, of_set=of_set
    )
    assert {"embed", "layers.0", "layers.1", "layers.2", "head"} <= named - unnamed
    assert (unnamed, faults) == (set(), [])
    if length == 6 and not of_set:  # behind a mean, over batch or time, that nothing has recorded
        _, unnamed, faults = recorded(server, model, sequences(12, 6), 6, of_set=False, grad=False)
        assert unnamed == {"out", ""}
        assert "'out' and '' of TimeFirst" in faults[0]


def test_last_batch_of_another_size_tells_the_axis_from_then_on(server):
    torch.manual_seed(0)
    model = TimeFirst(["gru", "function", "linear"])
    first = recorded(server, model, sequences(12, 6), 6, of_set=False, grad=False)
    assert {"layers.1", "layers.2", "out", ""} <= first[1]
    assert first[2]
    named, _, _ = recorded(server, model, sequences(16, 6), 6, of_set=False, grad=False)
    assert {"layers.1", "layers.2", "out", ""} <= named


class Transposed(nn.Module):
    """A model without modules that have time first, which transposes its rows."""

    def __init__(self, shifted):
        super().__init__()
        self.shifted = shifted
        self.embed, self.layer, self.behind = (
            nn.Linear(3, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.LayerNorm(WIDTH),
        )

    def forward(self, x):
        x = self.embed(x)
        x = x + 1 if self.shifted else x
        return self.behind(x.transpose(0, 1) + self.layer(x.transpose(0, 1))).transpose(0, 1)


@pytest.mark.parametrize("of_set", [False, True], ids=["own passes", "probe set"])
@pytest.mark.parametrize("length", [6, 9], ids=["as long as the batch", "longer"])
@pytest.mark.parametrize("shifted", [False, True], ids=["as they are", "behind a function"])
def test_transposed_rows_are_read_along_their_axis(server, length, of_set, shifted):
    named, unnamed, faults = recorded(server, Transposed(shifted), sequences(6, length), 6, of_set=of_set)
    assert (named, unnamed, faults) == ({"", "embed", "layer", "behind"}, set(), [])


class BatchFirstLayer(nn.TransformerEncoderLayer):
    """A layer with time first inside, and the batch outside."""

    def forward(self, x, *others, **options):
        return super().forward(x.transpose(0, 1), *others, **options).transpose(0, 1)


@pytest.mark.parametrize("of_set", [False, True], ids=["own passes", "probe set"])
@pytest.mark.parametrize("grad", [False, True], ids=["without gradients", "with gradients"])
def test_layer_of_another_class_may_move_its_axes(server, of_set, grad):
    model = nn.Sequential(nn.Linear(3, WIDTH), BatchFirstLayer(WIDTH, 2, 8, dropout=0.0), nn.LayerNorm(WIDTH))
    named, unnamed, faults = recorded(server, model, sequences(6, 6), 6, of_set=of_set, grad=grad)
    assert {"0", "1.self_attn"} <= named
    assert bool(unnamed) == bool(faults)
    assert not (of_set and unnamed)


class Pooled(nn.Module):
    """A model with a layer whose rows are positions of all items together."""

    def __init__(self):
        super().__init__()
        self.embed, self.flat, self.out = nn.Linear(3, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x):
        hidden = self.embed(x)
        return self.out(self.flat(hidden.flatten(0, 1)).unflatten(0, hidden.shape[:2]).mean(1))


@pytest.mark.parametrize("of_set", [False, True], ids=["own passes", "probe set"])
def test_layers_without_rows_of_the_batch_are_named(server, of_set):
    named, unnamed, faults = recorded(server, Pooled(), sequences(6, 9), 6, of_set=of_set)
    assert (named, unnamed) == ({"", "embed", "out"}, {"flat"})
    assert len(faults) == 1
    assert "1 of 4 layers of Pooled have no scores with labels" in faults[0]
    assert "'flat'" in faults[0]


class Spoken(nn.Module):
    """A transformer with time first, as it is by default, and a head for whole items."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.embed = nn.Embedding(20, 8)
        self.inner = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head, self.out = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, words):
        return self.out(self.head(self.inner(self.embed(words).transpose(0, 1))).mean(0))


@pytest.mark.long
def test_scores_are_those_of_scikit_learn_on_the_rows_of_items(tmp_path):
    """Each label is that of half of the words of its item, and of no position."""
    torch.manual_seed(0)
    labels = torch.arange(240) % 2
    words = torch.where(torch.rand(240, 12) < 0.5, labels[:, None], torch.randint(2, 20, (240, 12)))
    model, path = Spoken(), tmp_path / "x.db"
    with Server(database=path, port=0, scores="linear_f1") as server:
        register_targets(HOST, server.port, name="half", targets=labels.tolist())
        register_targets(HOST, server.port, name="word", targets=words.tolist())
        with probe(model, HOST, server.port, run="r", name="m", structure=False, block=True) as watch:
            for ids in torch.randperm(240).split(12):
                watch.items = ids
                model(words[ids])
        assert flush(HOST, server.port)
    with Database(path) as database:
        points = database.points("r", "m").where(score="linear_f1", target="half")
        notices = [one["text"] for one in database.notices("r")]
    scores = dict(zip(points["address"], points["value"], strict=True))
    assert set(scores) == {name for name, module in model.named_modules() if name != "inner.layers"} - {
        "inner.layers.0.self_attn.out_proj"  # a parameter holder, which is not called
    }
    of_items = alone(model, words)
    for name in ("inner.layers.0.linear1", "inner.layers.0.norm2", "inner", "head"):
        judge = LogisticRegression(max_iter=2000)
        judged = cross_val_score(judge, of_items[name], labels.numpy(), cv=4, scoring="f1_macro").mean()
        assert judged > 0.9
        assert scores[name] == pytest.approx(judged, abs=0.1)
    assert any(
        "The target 'word' has no scores of the output in mode train at 2 of" in text and "'out'" in text
        for text in notices
    )


@pytest.mark.parametrize(
    "transformed",
    [
        lambda model, x: torch.func.vmap(model)(x),
        lambda model, x: torch.func.grad(lambda rows: model(rows).sum())(x),
        lambda model, x: torch.func.jvp(model, (x,), (x,)),
    ],
    ids=["vmap", "grad", "jvp"],
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_call_inside_of_a_transform_is_refused_in_one_sentence(server, transformed):
    model, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.ones(4, 3)
    expected = transformed(model, x)
    with probe(model, HOST, server.port, block=True) as watch:
        found = transformed(model, x)
        assert torch.equal(torch.stack(list(found)), torch.stack(list(expected)))
        model(x)
    assert flush(HOST, server.port)
    (fault,) = watch.status()["faults"]
    assert "inside of a transform of torch.func" in fault
    assert watch.status()["passes"] == 2
    assert {one.step for one in server.records()} == {1}


@pytest.mark.parametrize("transformed", [False, True])
def test_calls_of_a_training_that_cannot_be_recorded_leave_a_probe_set_complete(transformed, tmp_path):
    """The calls of the training are not recorded beside a probe set, so that nothing is missing."""
    model, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(40, 3)
    path = tmp_path / "scores.db"
    with Server(database=path, port=0, scores="norm") as server:
        held_out = (x, {"sign": (x[:, 0] > 0).long().tolist()})
        with probe(model, HOST, server.port, run="r", name="m", probe_set=held_out, block=True) as watch:
            for watch.epoch in (1, 2):
                torch.func.vmap(model)(x) if transformed else model(x)
        assert flush(HOST, server.port)
        assert (watch.status()["faults"], watch.status()["troubles"]) == ([], 0)
    with Database(path) as database:
        scores = database.points("r", "m").where(score="norm")
    assert set(scores["epoch"]) == {0, 1, 2}
    assert not any("incomplete" in note for note in scores["note"])
