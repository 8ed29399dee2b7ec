"""Modules of a training that have their rows in another order have no ids; all others have them.

Where a function hides the order, and rows have moved elsewhere in the pass, there are no ids either.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset

from intus.backends.torch.order import final_states
from intus.monitoring import flush, probe

HOST = "127.0.0.1"
ROWS = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
ROWS[:, 0] = torch.arange(48)
LABELS = torch.arange(48) % 2
STEPS = ["layer", "sort", "shuffle", "back", "dropout", "relu"]


class Steps(nn.Module):
    """A model that may move its rows before a layer, and notes where each layer has them."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.truth = steps, {}
        kinds = {"dropout": lambda: nn.Dropout(0.3), "relu": nn.ReLU}
        self.layers = nn.ModuleList([kinds.get(step, lambda: nn.Linear(4, 4))() for step in steps])
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        own = ids = torch.arange(len(x))
        orders = []
        for number, (step, layer) in enumerate(zip(self.steps, self.layers, strict=True)):
            order = own
            if step == "sort":
                order = x.sum(1).argsort()
            elif step == "shuffle":
                order = torch.randperm(len(x))
            elif step == "back" and orders:
                order = orders.pop().argsort()
            if step in ("sort", "shuffle"):
                orders.append(order)
            x = torch.tanh(x) if step == "function" else x
            ids, x = ids[order], layer(x[order])
            name = f"layers.{number}"
            self.truth[name] = self.truth.get(name, True) and bool((ids == own).all())
        return self.head(x[ids.argsort()])


def known_of(server, model, data=None):
    """Return which layers of a training have ids, and the faults."""
    data = data or TensorDataset(ROWS, LABELS)
    server.got.clear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for _ in range(2):
            for *x, y in DataLoader(data, batch_size=16, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(*x), y).backward()
                optimizer.step()
    assert flush(HOST, server.port)
    known = {}
    for one in server.records():
        known[one.address] = known.get(one.address, True) and bool((one.items >= 0).all())
    return known, watch.status()["faults"]


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=5), seed=st.integers(0, 99))
@example(steps=["layer", "sort", "dropout", "back", "dropout"], seed=1)  # two rows that are dropped whole
def test_moved_rows_have_no_ids_and_all_others_have(server, steps, seed):
    torch.manual_seed(seed)
    model = Steps(steps)
    known, faults = known_of(server, model)
    assert known == {**model.truth, "head": True, "": True}
    assert bool(faults) == (not all(model.truth.values()))


@example(steps=["function", "sort", "layer"], seed=0)  # moved against rows whose order is assumed
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from([*STEPS, "function"]), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_no_layer_behind_functions_has_ids_of_other_rows(server, steps, seed):
    """The effect of a function is not known: layers behind it are refused once rows have moved."""
    torch.manual_seed(seed)
    model = Steps(steps)
    known, faults = known_of(server, model)
    in_order = {**model.truth, "head": True, "": True}
    assert all(in_order[name] for name, has_ids in known.items() if has_ids)
    if all(model.truth.values()):
        assert all(known.values())
        assert faults == []
    refused = [name for name, has_ids in known.items() if not has_ids]
    assert all(any(repr(name) in fault for fault in faults) or len(refused) > 3 for name in refused)


LENGTHS = torch.randint(2, 7, (48,), generator=torch.Generator().manual_seed(1))
WORDS = torch.randint(1, 9, (48, 6), generator=torch.Generator().manual_seed(2)) * (
    torch.arange(6) < LENGTHS[:, None]
)
SEQUENCES = TensorDataset(WORDS, LENGTHS, LABELS)


class Packing(nn.Module):
    """A model that packs its rows as the options say, and notes where each layer has them."""

    def __init__(self, *, sort, enforce, function, first, state, cell, back):
        super().__init__()
        self.sort, self.enforce, self.function, self.first, self.state = sort, enforce, function, first, state
        self.back, self.truth = back, {}
        self.embed, self.rnn, self.head = nn.Embedding(9, 4), cell(4, 5, batch_first=first), nn.Linear(5, 2)

    def forward(self, words, lengths):
        own = torch.arange(len(words))
        order = lengths.argsort(descending=True) if self.sort else own
        words = words[order] if self.sort == "before" else words
        x = self.embed(words if self.first else words.T)
        if self.sort == "between":
            x = x[order] if self.first else x[:, order]
        x = x * 2 if self.function else x
        packed = pack_padded_sequence(x, lengths[order], self.first, self.enforce)
        made, states = self.rnn(packed)
        padded = pad_packed_sequence(made, batch_first=True)[0]
        states = states[0] if isinstance(states, tuple) else states
        made = self.head(states[-1] if self.state == "final" else padded.amax(1))
        ends = {
            "embed": self.sort == "before",
            "rnn": self.sort,
            "head": self.sort,
            "": self.sort and not self.back,
        }
        for name, moves in ends.items():
            self.truth[name] = self.truth.get(name, True) and not (moves and bool((order != own).any()))
        return made[order.argsort()] if self.back else made


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("first", [True, False], ids=["batch first", "time first"])
@pytest.mark.parametrize("sort", ["before", "between"])
def test_rows_sorted_for_packing_have_no_ids_until_their_order_is_back(server, sort, first, cell):
    torch.manual_seed(0)
    options = {"function": False, "state": "final", "back": True, "enforce": True}
    model = Packing(sort=sort, first=first, cell=cell, **options)
    known, faults = known_of(server, model, SEQUENCES)
    assert known == model.truth == {"embed": sort != "before", "rnn": False, "head": False, "": True}
    assert any("'rnn'" in fault for fault in faults)


@pytest.mark.parametrize("function", [True, False])
def test_rows_that_torch_sorts_for_packing_have_ids(server, function):
    torch.manual_seed(0)
    options = {"first": True, "cell": nn.LSTM, "state": "final", "back": False, "enforce": False}
    known, faults = known_of(server, Packing(sort=None, function=function, **options), SEQUENCES)
    assert all(known.values())
    assert faults == []


def test_packed_rows_that_are_said_to_be_sorted_behind_a_function_have_no_ids(server):
    torch.manual_seed(0)
    options = {"first": True, "cell": nn.LSTM, "state": "final", "back": True, "enforce": True}
    known, faults = known_of(server, Packing(sort="between", function=True, **options), SEQUENCES)
    assert known == {"embed": True, "rnn": False, "head": False, "": False}
    (fault,) = faults
    assert "'rnn', 'head' and ''" in fault
    assert "enforce_sorted=True" in fault


def test_recurrent_layer_that_returns_something_else_has_no_states():
    class Last(nn.LSTM):
        def forward(self, x):
            return super().forward(x)[0]

    layer = Last(2, 3, batch_first=True)
    assert final_states(layer, layer(torch.zeros(1, 4, 2))) == []


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([None, "before", "between"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["final", "largest"]),
    st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]),
    st.booleans(),
)
def test_no_layer_of_a_packing_model_has_ids_of_other_rows(
    server, sort, enforce, function, first, state, cell, back
):
    """Only a function that hides a sort is not seen, of rows that are not said to be sorted."""
    assume(enforce or not function or sort != "between")
    torch.manual_seed(0)
    model = Packing(
        sort=sort,
        enforce=enforce and sort is not None,
        function=function,
        first=first,
        state=state,
        cell=cell,
        back=back,
    )
    known, _ = known_of(server, model, SEQUENCES)
    assert all(model.truth[name] for name, has_ids in known.items() if has_ids)
    if sort is None:
        assert all(known.values())
