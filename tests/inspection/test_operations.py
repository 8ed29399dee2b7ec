"""Units of functional operations, of inputs and of attention heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from intus import inspect
from intus.core.errors import AddressError, CaptureError, InputError


class Residual(nn.Module):
    """Two blocks whose activations no module returns; the second writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.relu(self.first(x))
        b = self.second(a) + a
        F.relu(b, inplace=True)
        return b * 2


@pytest.fixture
def data():
    x = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    return x, x[:, 0].numpy()


def values_by_hand(net, x):
    with torch.no_grad():
        a = F.relu(net.first(x))
        b = net.second(a) + a
        return {"relu_1": a, "add_1": b, "relu_2": F.relu(b), "x": x}


def test_functional_operations_and_inputs(data):
    x, y = data
    torch.manual_seed(0)
    net = Residual()
    table = inspect(net, {"y": y}, "correlation", x, ["relu_1", "add_1", "relu_2", "x"], batch=64)
    expected = values_by_hand(net, x)
    assert set(table.address) == set(expected)
    for row in table.itertuples():
        unit = expected[row.address][:, row.unit].numpy()
        assert row.value == pytest.approx(np.corrcoef(unit, y)[0, 1], abs=1e-5), (row.address, row.unit)


def test_types_and_patterns_mean_all_operations(data):
    x, y = data
    net = Residual()
    for wrote in ("relu", "relu_*"):
        assert list(inspect(net, {"y": y}, "correlation", x, wrote).address.unique()) == ["relu_1", "relu_2"]
    brackets = inspect(net, {"y": y}, "correlation", x, ["relu_1[1,3]", ("relu_2", [0])])
    assert list(zip(brackets.address, brackets.unit, strict=True)) == [
        ("relu_1", 1), ("relu_1", 3), ("relu_2", 0),
    ]  # fmt: skip


def test_passes_of_a_repeated_operation(data):
    """A label of several passes stands for all of them, and each keeps its own values."""

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = torch.tanh(self.cell(x)) + 0.1
            return x

    x, y = data
    torch.manual_seed(1)
    net = Loop()
    table = inspect(net, {"y": y}, "correlation", x, "tanh")
    h, expected = x, []
    for _ in range(3):
        h = torch.tanh(net.cell(h))
        expected.append(np.corrcoef(h[:, 2].detach().numpy(), y)[0, 1])
        h = h + 0.1
    assert len(table.address.unique()) == 3
    assert table[table.unit == 2].value.tolist() == pytest.approx(expected, abs=1e-5)


class Branching(nn.Module):
    """Runs one more operation for records of large sum, so that ``relu_1`` is not always the same."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        early = self.fc(x).sigmoid()
        if x.sum() > 1000:
            x = F.relu(-x)
        return early.sum() + F.relu(self.fc(x))


def test_label_that_means_another_operation_later_is_refused():
    x = torch.zeros(64, 4)
    x[40:] = 100
    y = np.arange(64) % 2
    with pytest.raises(CaptureError, match=r"'relu_1' may mean another operation .* runs 'neg_1_5' where"):
        inspect(Branching(), {"y": y}, "mean_difference", x, "relu_1", batch=32)
    before = inspect(Branching(), {"y": y}, "mean_difference", x, "fc:2", batch=32)  # a module is unambiguous
    assert len(before) == 3


def test_operations_before_a_branch_are_read():
    class Late(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.tanh(x) * 1
            return F.relu(out) if x.sum() > 1000 else out

    x = torch.randn(64, 4)
    x[40:] += 100
    y = x[:, 0].numpy()
    table = inspect(Late(), {"y": y}, "correlation", x, "tanh_1", batch=32)
    assert table.value[0] == pytest.approx(np.corrcoef(np.tanh(y), y)[0, 1], abs=1e-5)


def test_parameters_have_no_behavior(data):
    with pytest.raises(AddressError, match=r"'first.weight' is a parameter, which has no behavior"):
        inspect(Residual(), {"y": data[1]}, "correlation", data[0], "first.weight")


# -- attention heads -------------------------------------------------------------------------------------


def bert(attention):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        attn_implementation=attention,
    )
    return transformers.BertModel(config).eval()


TOKENS = torch.randint(0, 30, (24, 10), generator=torch.Generator().manual_seed(0))


def test_attention_probabilities_are_units_over_pairs_of_positions():
    model = bert("eager")
    previous = np.eye(10, k=-1)
    table = inspect(
        model, {"previous": lambda ids: previous}, "correlation", TOKENS, "softmax_2[0:4@1]", batch=7
    )
    with torch.no_grad():
        attention = model(TOKENS, output_attentions=True).attentions[1].numpy()
    labels = np.broadcast_to(previous, (24, 10, 10)).ravel()
    expected = [np.corrcoef(attention[:, head].ravel(), labels)[0, 1] for head in range(4)]
    assert table.unit.tolist() == [0, 1, 2, 3]
    assert table.value.tolist() == pytest.approx(expected, abs=1e-5)
    with pytest.raises(InputError, match=r"10 × 10 numbers per unit.*either axis may be theirs"):
        inspect(model, {"token": lambda ids: ids}, "correlation", TOKENS, "softmax_2[0:4@1]")


@pytest.mark.parametrize("labels", ["token", "record"])
def test_heads_of_fused_attention_are_the_lengths_of_their_vectors(labels, monkeypatch):
    model, outputs, plain = bert("sdpa"), [], F.scaled_dot_product_attention

    def spy(*args, **kwargs):
        outputs.append(plain(*args, **kwargs))
        return outputs[-1]

    with torch.no_grad(), monkeypatch.context() as patched:
        patched.setattr(F, "scaled_dot_product_attention", spy)
        model(TOKENS)
    heads = outputs[1].norm(dim=-1).numpy()  # (records, heads, positions)
    idea = {"token": lambda ids: ids.astype(float), "record": lambda ids: float(ids.sum())}[labels]
    label = np.array([idea(ids) for ids in TOKENS.numpy()])
    behaviour = heads if labels == "token" else heads.mean(-1)
    table = inspect(model, {"idea": idea}, "correlation", TOKENS, "scaled_dot_product_attention_2[0,3]")
    expected = [np.corrcoef(behaviour[:, head].ravel(), label.ravel())[0, 1] for head in (0, 3)]
    assert table.unit.tolist() == [0, 3]
    assert table.value.tolist() == pytest.approx(expected, abs=1e-4)
    assert table.note.str.contains("the length of a vector of 4 features").all()
