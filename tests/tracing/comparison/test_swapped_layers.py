"""``compare`` of layers that were loaded with each other's weights, and which layers names tell."""

import copy

import pytest
import torch
from torch import nn

import intus
from intus.tracing.comparison.pairing.names import named_alike, rows_of_layers


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        return torch.softmax(self.q(x) @ self.k(x).transpose(1, 2), -1) @ self.v(x)


def test_first_of_two_layers_that_a_file_has_swapped_is_named(tmp_path):
    torch.manual_seed(0)
    right, x = Attention(), torch.randn(2, 6, 8)
    wrong = copy.deepcopy(right)
    wrong.q, wrong.k = wrong.k, wrong.q
    torch.export.save(torch.export.export(wrong, (x,)), tmp_path / "net.pt2")
    first = intus.compare(intus.trace(right, x), intus.read(tmp_path / "net.pt2", x)).attrs["first"]
    assert first["module"] == "q"
    assert "q.weight of b has the values of k.weight of a" in first["why"]


def test_weights_that_are_used_twice_are_told_from_the_side_that_has_both():
    torch.manual_seed(0)
    right, x = Attention(), torch.randn(2, 6, 8)
    wrong = copy.deepcopy(right)
    wrong.q.load_state_dict(right.k.state_dict())
    a, b = intus.trace(right, x), intus.trace(wrong, x)
    assert "q.weight of b has the values of k.weight of a" in intus.compare(a, b).attrs["first"]["why"]
    assert "q.weight of a has the values of k.weight of b" in intus.compare(b, a).attrs["first"]["why"]


ORDERED = [torch.stack, torch.hstack, torch.column_stack, torch.dstack]
PAIRWISE = [torch.divide, torch.subtract, torch.remainder, torch.fmod, torch.floor_divide, torch.float_power]


@pytest.mark.parametrize("call", [*ORDERED, *PAIRWISE, torch.matmul], ids=lambda call: call.__name__)
def test_order_of_the_inputs_is_the_reason(call):
    x, y = torch.rand(2, 3, 3) + torch.tensor([1.0, 2.0])[:, None, None]

    def run(x, y, *, turned):
        one, two = x.sin() + 3, y.cos() + 2
        u, v = (two, one) if turned else (one, two)
        return call([u, v]) if call in ORDERED else call(u, v)

    assert not torch.equal(run(x, y, turned=False), run(x, y, turned=True))
    a, b = (intus.trace(lambda x, y, t=t: run(x, y, turned=t), (x, y)) for t in (False, True))
    first = intus.compare(a, b).attrs["first"]
    assert first["why"][0].startswith("its inputs are in another order: "), first


def test_another_input_is_the_reason():
    x, y = torch.randn(2, 3), torch.randn(2, 3)

    def run(x, y, *, other):
        one, two, three = x.sin(), y.cos(), x.exp()
        return torch.stack([two.tanh(), one * (three if other else two), three.tanh()])

    a, b = (intus.trace(lambda x, y, t=t: run(x, y, other=t), (x, y)) for t in (False, True))
    first = intus.compare(a, b).attrs["first"]
    assert first["a"].startswith("mul_1"), first
    assert first["why"][0].startswith("its inputs are others: "), first


def layers(*sizes):
    return nn.Sequential(*(nn.Linear(4, 4) if size else nn.Tanh() for size in sizes))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (layers(1, 0, 1), layers(1, 0, 1), {"0", "2"}),
        (layers(1, 0, 1), layers(1, 0, 0, 1), set()),
        (layers(1, 1), layers(1, 1, 1), set()),
        (Attention(), Attention(), {"q", "k", "v"}),
    ],
)
def test_numbers_tell_layers_only_if_both_have_the_same(one, other, same):
    x = torch.ones(1, 8 if isinstance(one, Attention) else 4).unsqueeze(0)
    a, b = (intus.trace(net, x).graph for net in (one, other))
    assert named_alike(a, b) == {name: name for name in same}


def test_what_follows_a_single_layer_is_of_it():
    graph = intus.trace(Attention(), torch.randn(2, 6, 8)).graph
    rows, _ = rows_of_layers(graph, graph)
    found = dict(zip((label.rpartition("_")[0] for label in graph.labels), rows.tolist(), strict=True))
    assert found["transpose_1"] == found["linear_2"] != found["linear_1"]
    assert found["linear_1"] >= 0 > found["softmax_1"]
