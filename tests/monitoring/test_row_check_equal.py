"""Moved rows are noticed among rows that are equal or hardly differ, and only where a model moves them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from seeds import seeds
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from intus.core.fingerprints import fingerprints
from intus.monitoring import flush, probe
from intus.monitoring.row_check import compare, permutation
from intus.monitoring.sender import Sender

HOST = "127.0.0.1"
NOTED: list[bool] = []  # not an attribute, for those of a model are restored after a pass


def recorded(model, server, inputs, passes=1):
    """Return whether each layer's rows have their ids after the last pass, and the faults of all."""
    kept, rows = {}, len(inputs[0] if isinstance(inputs, tuple) else inputs)
    gather = Sender.gather

    def keep(self, record, nbytes, contents=None):
        kept[record.address] = bool((record.items >= 0).all())
        gather(self, record, nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sender, "gather", keep)
        labels = {"y": torch.arange(rows) % 2}
        with probe(model, HOST, server.port, probe_set=(inputs, labels), structure=False) as watch:
            for watch.epoch in range(passes):
                watch.run_probe_set()
        return kept, watch.status()["faults"]


def copies(x, draw):
    """Return rows of which some, here and there, are copies of one."""
    some = torch.randperm(len(x), generator=draw)[: len(x) // 10 + 2]
    x[some] = x[some[0]].clone()
    return x


def zeros(x, draw):
    """Return rows of which some are all zero."""
    return x * (torch.rand(len(x), 1, generator=draw) > 0.3)


def large(x, draw):
    """Return rows that hardly differ, seen from zero."""
    return x * 0.01 + 1e4


DATA = {
    "different": lambda x, draw: x,
    "copies": copies,
    "zeros": zeros,
    "mostly zeros": lambda x, draw: x * (torch.arange(len(x))[:, None] % 10 == 3),
    "binary": lambda x, draw: (x > 0).float(),
    "grid": lambda x, draw: (x[:, :1] * 2).round().expand(-1, 6).contiguous(),
    "large": large,
    "outlier": lambda x, draw: x.index_fill(0, torch.tensor([3]), 1e9),
    "half": lambda x, draw: copies(x, draw).half(),
    "bfloat16": lambda x, draw: zeros(x, draw).bfloat16(),
}
ORDERS = {
    "none": lambda x, key: torch.arange(len(x)),
    "sort": lambda x, key: key.sort(stable=True)[1],
    "argsort": lambda x, key: x[:, 1].argsort(descending=True),
    "flip": lambda x, key: torch.arange(len(x)).flip(0),
    "roll": lambda x, key: torch.arange(len(x)).roll(3),
    "shuffle": lambda x, key: torch.randperm(len(x)),
    "experts": lambda x, key: torch.cat([(key == one).nonzero()[:, 0] for one in (2, 0, 3, 1)]),
}


class Mover(nn.Module):
    """A model that moves its rows between two layers, and back; notes whether a row is not at its place."""

    def __init__(self, order):
        super().__init__()
        self.order, self.seen, self.moved, self.back = order, nn.Identity(), nn.Identity(), nn.Linear(6, 2)

    def forward(self, x, key):
        x = self.seen(x)
        order = self.order(x, key)
        NOTED.append(not torch.equal(x[order], x))  # equal rows may stand for each other
        return self.back(self.moved(x[order])[order.argsort()].float())


@pytest.mark.parametrize("seed", seeds(12, quick=1))
@pytest.mark.parametrize("rows", [40, pytest.param(203, marks=pytest.mark.long)])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("order", ORDERS)
def test_moved_rows_are_noticed_among_equal_ones(server, order, data, rows, seed):
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    x = DATA[data](torch.randn(rows, 6, generator=draw), draw)
    key = (x[:, :2].float() - x[:, :2].float().mean(0) > 0).long() @ torch.tensor(
        [1, 2]
    )  # equal for equal rows
    kept, faults = recorded(Mover(ORDERS[order]), server, (x, key))
    assert kept == {"": True, "seen": True, "moved": not NOTED[-1], "back": True}
    assert bool(faults) == NOTED[-1]


class Behind(nn.Module):
    """A model whose layers compute with moved rows, many of which come to be zero."""

    def __init__(self, width):
        super().__init__()
        self.before, self.after = nn.Linear(6, width), nn.Linear(width, width)
        self.moved, self.deep, self.back = (
            nn.ReLU(),
            nn.Sequential(nn.Linear(width, 8), nn.ReLU()),
            nn.Identity(),
        )

    def forward(self, x):
        x = self.moved(self.after(self.before(x).flip(0)) - 0.4)
        return self.back(self.deep(x).flip(0))


@pytest.mark.parametrize("seed", seeds(12, quick=3))
def test_rows_that_become_equal_behind_a_layer_show_their_order(server, seed):
    torch.manual_seed(seed)
    model, x, alike = Behind(2 + seed % 3), torch.randn(61 + 20 * seed, 6), {}
    for name, layer in model.named_modules():
        layer.register_forward_hook(
            lambda _, args, made, name=name: alike.update({name: made.flip(0).equal(made)})
        )
    model(x)
    kept, _ = recorded(model, server, x)
    assert kept == {one: one in ("", "before", "back") or alike[one] for one in alike}


class Packs(nn.Module):
    """A model that sorts items by their lengths, packs them, and gives back their order."""

    def __init__(self, words, **options):
        super().__init__()
        self.options = options
        self.words, self.rnn = nn.Embedding(words, 4), nn.GRU(4, 5, batch_first=True, **options)
        self.out = nn.Linear(5 * (1 + bool(options.get("bidirectional"))), 3)

    def forward(self, ids, lengths):
        lengths, order = lengths.sort(descending=True)
        packed = pack_padded_sequence(self.words(ids)[order], lengths, batch_first=True)
        made, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(made[order.argsort()])


@pytest.mark.parametrize("seed", seeds(8, quick=1))
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}], ids=["one way", "both"])
@pytest.mark.parametrize("words", [3, 7, 5000])
def test_items_that_a_model_sorts_to_pack_them_have_no_labels(server, words, options, seed):
    torch.manual_seed(seed)
    lengths = torch.randint(1, 9, (120,))
    lengths[0] = 8
    ids = torch.randint(1, words, (120, 8)) * (torch.arange(8) < lengths[:, None])
    kept, _ = recorded(Packs(words, **options), server, (ids, lengths))
    assert kept == {"": True, "words": True, "rnn": False, "out": True}


def convolutional():
    """Return a network of convolutions and batch norm, which has seen data."""
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(32, 3)),
    )
    model(torch.randn(50, 1, 10, 10))
    return model


class Recurrent(nn.Module):
    """An LSTM, of whose states the last one is used."""

    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(6, 16, num_layers=2, batch_first=True, dropout=0.3), nn.Linear(16, 2)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


class Centered(nn.Module):
    """A model whose rows depend on all others of the batch, but not on their order."""

    def __init__(self):
        super().__init__()
        self.layer, self.centered, self.ranked = nn.Linear(6, 6), nn.Identity(), nn.Identity()

    def forward(self, x):
        x = self.centered(self.layer(x) - self.layer(x).mean(0)) / x.std(0)
        return self.ranked(x.softmax(0).cumsum(1))


class Queries(nn.Module):
    """A model with rows that are all alike, as of queries that it has learned."""

    def __init__(self):
        super().__init__()
        self.queries, self.project, self.zero = nn.Embedding(4, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        nn.init.zeros_(self.zero.weight)
        nn.init.zeros_(self.zero.bias)

    def forward(self, x):
        queries = self.queries(torch.arange(4).expand(len(x), 4))
        return self.zero(x) + self.project(queries).mean(1) + x


def encoder():
    """Return a transformer."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 16, batch_first=True), 3)


PLAIN = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 64), nn.Tanh()),
        (6,),
    ),
    "norms": (lambda: nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Linear(32, 2)), (6,)),
    "deep": (lambda: nn.Sequential(*(nn.Linear(6, 6) for _ in range(12)), nn.LayerNorm(6)), (6,)),
    "convolutions": (convolutional, (1, 10, 10)),
    "transformer": (encoder, (5, 6)),
    "lstm": (Recurrent, (5, 6)),
    "of others": (Centered, (6,)),
    "all alike": (Queries, (6,)),
}


@pytest.mark.parametrize("seed", seeds(8, quick=1))
@pytest.mark.parametrize("data", ["different", "zeros", "copies", "large", "binary", "outlier"])
@pytest.mark.parametrize("name", PLAIN)
def test_models_that_move_no_rows_stay_proven(server, caplog, name, data, seed):
    caplog.set_level("INFO", "intus.monitoring")
    torch.manual_seed(seed)
    make, shape = PLAIN[name]
    model, draw = make(), torch.Generator().manual_seed(seed)
    x = DATA[data](torch.randn(30 + 29 * seed, int(np.prod(shape)), generator=draw), draw).reshape(-1, *shape)
    kept, faults = recorded(model, server, x, passes=2)
    assert all(kept.values())
    assert faults == []
    if data != "large":  # which rounds as much as it differs
        assert "not proven" not in caplog.text


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_rows_that_rounding_hides_are_not_proven(seed):
    draw = np.random.default_rng(seed)
    order = permutation(100)
    values = 1e3 + 1e-5 * draw.normal(size=(100, 8))
    one, other = (
        fingerprints(each + 1e-4 * draw.normal(size=each.shape), 0) for each in (values, values[order])
    )
    assert compare(one, other, order) == "alike"
    exact = fingerprints(values, 0)
    assert compare(exact, fingerprints(values[order], 0), order) == "kept"
    assert compare(exact, exact, order) == "reordered"


@pytest.mark.parametrize("seed", seeds(100, quick=10))
@pytest.mark.parametrize("kinds", [2, 3, 10, 0], ids=["two kinds", "three", "ten", "all different"])
def test_noise_that_a_model_draws_is_no_other_order(kinds, seed):
    draw = np.random.default_rng(seed)
    rows = int(draw.choice([20, 100, 5000]))
    order, scale = permutation(rows), 10.0 ** draw.uniform(-1.5, 0.5)
    means = draw.normal(size=(rows, int(draw.choice([1, 2, 8]))))

    def noisy(values):
        drawn = values + scale * draw.normal(size=values.shape)
        if not kinds:
            return fingerprints(drawn, 0)
        sure = values[:, :1] * 20 + draw.logistic(size=(rows, 1))  # few rows change their kind
        return fingerprints(np.eye(kinds)[np.digitize(sure, np.linspace(-9, 9, kinds - 1))[:, 0]], 0)

    assert compare(noisy(means), noisy(means[order]), order) != "reordered"


class Turns(nn.Module):
    """A model whose layer draws noise, and later sorts its rows."""

    def __init__(self):
        super().__init__()
        self.sorts, self.layer = False, nn.Identity()

    def forward(self, x):
        return self.layer(x[x[:, 0].argsort()] if self.sorts else x + torch.randn_like(x))


def test_layer_that_was_not_proven_before_it_is_seen_to_sort_is_in_doubt_from_the_start(server):
    model, x = Turns(), torch.randn(40, 6)
    with probe(model, HOST, server.port, probe_set=(x, {"y": torch.arange(40)}), structure=False) as watch:
        for watch.epoch in (0, 1):
            watch.run_probe_set()
        assert watch.status()["faults"] == []
        model.sorts = True
        for watch.epoch in (2, 3):
            model(x)
            watch.run_probe_set()
        (fault,) = watch.status()["faults"]
    assert flush(HOST, server.port)
    assert "'layer' and '' of Turns do not keep the order of rows" in fault or "'' and 'layer'" in fault
    doubts = [json.loads(body) for path, body in server.got if path == "/doubts"]
    assert {(one["address"], one.get("after"), one["until"]) for one in doubts} == {
        ("", None, 3),
        ("layer", None, 3),
    }
