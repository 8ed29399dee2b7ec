"""Examples of a unit against numpy on collected outputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from intus import inspect
from intus.core.errors import InputError


def ink(image):
    return image[0] > 0.5


@pytest.fixture(scope="module")
def maps(checkpoints, images):
    found = []
    model = checkpoints[-1].eval()
    handle = model.conv1.register_forward_hook(lambda module, inputs, output: found.append(output.numpy()))
    with torch.no_grad():
        model(torch.from_numpy(images))
    handle.remove()
    return found[0]


@pytest.mark.parametrize("unit", [0, 3])
@pytest.mark.parametrize("batch", [64, 600])
def test_examples_equal_numpy(checkpoints, images, maps, unit, batch):
    table = inspect(checkpoints[-1], ink, "correlation", images, "conv1", batch=batch)
    found = table.examples(table[table.unit == unit].iloc[0], k=4)
    values, labels = maps[:, unit], images[:, 0] > 0.5
    sign = 1 if values[labels].mean() > values[~labels].mean() else -1

    def best(allowed, of):
        masked = np.where(allowed, of, np.inf).reshape(len(of), -1)
        return np.argsort(masked.min(axis=1), kind="stable")[:4].tolist()

    for kind, allowed, of in (
        ("top", labels | True, -sign * values),
        ("active without the hypothesis", ~labels, -sign * values),
        ("silent with it", labels, sign * values),
    ):
        part = found[found.kind == kind]
        assert part.record.tolist() == best(allowed, of)
        for one in part.itertuples():
            assert one.behavior == pytest.approx(values[one.record][one.position], abs=1e-6)
            assert one.label == labels[one.record][one.position]
    drawn = found[found.kind == "random"]
    assert drawn.record.nunique() == 4
    assert not set(found.columns) & {"text"}


def test_random_examples_are_uniform():
    """Records of different length are equally likely, and so are the symbols of each."""
    texts = ["ab", "abcdefgh"] * 20
    net = nn.Sequential(nn.Embedding(128, 2))

    def encode(texts):
        return torch.tensor([[ord(c) for c in text.ljust(8)] for text in texts])

    table = inspect(net, lambda text: [c == "a" for c in text], "correlation", texts, "0", inputs=encode)
    drawn = pd.concat([table.examples(0, k=10, seed=seed) for seed in range(40)])
    drawn = drawn[drawn.kind == "random"]
    assert 0.42 < (drawn.record % 2).mean() < 0.58
    short = drawn[drawn.record % 2 == 0]
    assert short.position.max() == 1
    assert 0.38 < short.position.mean() < 0.62
    long = drawn[drawn.record % 2 == 1]
    assert 2.9 < long.position.mean() < 4.1


def test_text_marks_the_symbol():
    texts = ["if (x): pass", "print(1)", "no brackets here", "a\n(b"]
    net = nn.Sequential(nn.Embedding(128, 3))
    with torch.no_grad():
        net[0].weight[:, 1] = 0
        net[0].weight[ord("("), 1] = 1

    def encode(texts):
        return torch.tensor([[ord(c) for c in text.ljust(20)] for text in texts])

    def opens(text):
        return [c == "(" for c in text]

    table = inspect(net, opens, "correlation", texts, "0", inputs=encode)
    found = table.examples({"address": "0", "unit": 1, "target": "opens"}, k=3)
    assert found[found.kind == "top"].text.tolist() == ["if »(«x): pass", "print»(«1)", "a↵»(«b"]
    assert found[found.kind == "top"].position.tolist() == [3, 5, 2]
    assert (found[found.kind == "active without the hypothesis"].label == 0).all()


def test_one_label_per_record_and_several_models(checkpoints, images, digit):
    table = inspect(checkpoints, {"seven": digit == 7}, "mean_difference", images, "head")
    last = table[(table.epoch == 2) & (table.unit == 7)].iloc[0]
    found = table.examples(last, k=3)
    with torch.no_grad():
        logits = checkpoints[2].eval()(torch.from_numpy(images))[:, 7].numpy()
    assert found[found.kind == "top"].record.tolist() == np.argsort(-logits)[:3].tolist()
    assert found.position.isna().all()
    wrong = np.where(digit == 7, -np.inf, logits)
    without = found[found.kind == "active without the hypothesis"]
    assert without.record.tolist() == np.argsort(-wrong)[:3].tolist()


@pytest.mark.parametrize("sign", [1, -1])
def test_counterexamples_are_those_nearer_to_the_other_mean(sign):
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 4 == 0
    unit = np.where(labels, 5.0, -1.0) + rng.normal(size=200) * 0.1

    def kinds(unit):
        data = torch.tensor(sign * unit[:, None])
        table = inspect(nn.Sequential(nn.Identity()), {"h": labels}, "correlation", data, "0")
        found = table.examples(0, k=3)
        return {kind: part.record.tolist() for kind, part in found.groupby("kind") if kind != "random"}

    assert set(kinds(unit)) == {"top"}  # the unit follows the hypothesis everywhere
    unit[4], unit[7] = 1.7, 2.3  # the middle of the means is 2
    assert kinds(unit) == {
        "top": kinds(unit)["top"],
        "active without the hypothesis": [7],
        "silent with it": [4],
    }


def test_real_labels_have_no_counterexamples(checkpoints, images):
    table = inspect(checkpoints[-1], lambda image: image[0], "correlation", images, "conv1")
    assert set(table.examples(0, k=2).kind) == {"top", "random"}


@pytest.mark.parametrize("slope", [-2.0, 2.0])
def test_top_of_real_labels_is_on_the_side_of_the_correlation(slope):
    rng = np.random.default_rng(0)
    unit = 100 + rng.normal(size=300)
    labels = slope * unit + rng.normal(size=300)
    table = inspect(
        nn.Sequential(nn.Identity()), {"y": labels}, "correlation", torch.tensor(unit[:, None]), "0"
    )
    assert np.sign(table.value[0]) == np.sign(slope)
    found = table.examples(0, k=4)
    order = np.argsort(unit if slope < 0 else -unit)[:4]
    assert found[found.kind == "top"].record.tolist() == order.tolist()


def test_refusals(checkpoints, images):
    table = inspect(checkpoints[-1], ink, ["correlation", "linear_f1"], images, "conv1")
    with pytest.raises(InputError, match="k=0 must be 1 or more"):
        table.examples(5, k=0)
    with pytest.raises(InputError, match="as a whole"):
        table.examples(table[table.unit < 0].iloc[0])
    with pytest.raises(InputError, match="does not know its models"):
        pd.concat([table, table]).examples(5)
    with pytest.raises(InputError, match="must be a row of the table"):
        table.examples("best")
