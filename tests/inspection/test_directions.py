"""Directions and dictionaries as units, judged by numpy, scikit-learn and a reference encoder in torch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.decomposition import PCA
from torch import nn

import intus
from intus import inspect
from intus.core.errors import InputError
from intus.inspection.units import RANDOM

WIDTH = 12


@pytest.fixture(scope="module")
def planted():
    """Return a model, its data, a concept along one direction of its layer, and the layer's output."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, WIDTH)).astype(np.float32)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Identity())
    hidden = net[0](torch.from_numpy(x)).detach().numpy()
    direction = rng.normal(size=WIDTH)
    return net, x, hidden @ direction, direction, hidden


def test_directions_equal_products_and_have_a_random_baseline(planted):
    net, x, concept, direction, hidden = planted
    matrix = np.stack([direction, np.eye(WIDTH)[3]])
    units = [("0", intus.Directions(matrix, names=["planted", "axis"])), ("0", [3])]
    table = inspect(net, {"c": concept}, "correlation", x, units)
    assert table.address.tolist() == ["0 (directions)"] * 2 + ["0 (random directions)"] * 2 + ["0"]
    found = table[table.address == "0 (directions)"]
    expected = [np.corrcoef(hidden @ row, concept)[0, 1] for row in matrix]
    assert found.value.tolist() == pytest.approx(expected, abs=1e-5)
    assert [note.split(", ")[-1] for note in found.note] == ["planted", "axis"]
    assert found.value.iloc[0] > 0.999
    assert found.value.iloc[1] == pytest.approx(table.value.iloc[-1], abs=1e-6)  # an axis is the unit itself
    random = table[table.address == "0 (random directions)"]
    assert random.value.abs().max() < 0.99
    assert random.note.eq(RANDOM).all()
    assert random.p.isna().all()  # a baseline is no finding, and does not enter the q-values
    alone = inspect(net, {"c": concept}, "correlation", x, [("0", [3])])
    assert alone.p[0] == table.p.iloc[-1]


def test_random_directions_keep_norms_and_angles():
    directions = intus.Directions(np.random.default_rng(0).normal(size=(4, 9)))
    one, other, again = (directions.randomized(seed).matrix for seed in (1, 2, 1))
    gram = directions.matrix @ directions.matrix.T
    assert np.allclose(one @ one.T, gram)
    assert np.array_equal(one, again)
    assert np.abs(one - other).max() > 0.1


def test_random_baseline_follows_the_seed(planted):
    net, x, concept, direction, _ = planted
    values = [
        inspect(net, {"c": concept}, "correlation", x, ("0", intus.Directions([direction])), seed=seed).value
        for seed in (0, 1, 0)
    ]
    assert values[0][0] == pytest.approx(values[1][0])
    assert values[0][1] == values[2][1] != values[1][1]


def test_directions_of_channels_at_every_position():
    maps = torch.randn(40, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    labels = np.random.default_rng(0).normal(size=(40, 6, 5))
    table = inspect(
        nn.Sequential(nn.Identity()),
        {"c": labels},
        "correlation",
        maps,
        ("0[:@1]", intus.Directions([[1.0, -2.0, 0.5]])),
        inputs=lambda records: torch.stack(records),
    )
    expected = np.corrcoef(np.tensordot([1.0, -2.0, 0.5], maps.numpy(), (0, 1)).ravel(), labels.ravel())[0, 1]
    assert table.value[0] == pytest.approx(expected, abs=1e-6)


def test_pca_equals_scikit_learn(planted):
    net, x, concept, _, hidden = planted
    pca = PCA(5, whiten=True).fit(hidden + 3)
    table = inspect(net, {"c": concept}, "correlation", x, ("0", intus.Dictionary(pca)))
    expected = [np.corrcoef(column, concept)[0, 1] for column in pca.transform(hidden).T]
    assert table.value[:5].tolist() == pytest.approx(expected, abs=1e-5)
    assert table.address.tolist() == ["0 (dictionary)"] * 5 + ["0 (random dictionary)"] * 5


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop = nn.Linear(WIDTH, 30), nn.Dropout(0.5)

    def encode(self, x):
        return self.drop(self.inner(x)).relu()


def test_module_with_encode_runs_in_evaluation_mode(planted):
    net, x, concept, _, hidden = planted
    sae = Autoencoder()
    table = inspect(net, {"c": concept}, "correlation", x, ("0", intus.Dictionary(sae)))
    with torch.no_grad():
        features = sae.inner(torch.from_numpy(hidden)).relu().numpy()
    rows = table[table.address == "0 (dictionary)"]
    assert rows.value.tolist() == pytest.approx(
        [np.corrcoef(column, concept)[0, 1] for column in features.T], abs=1e-5
    )
    assert sae.training
    assert all(p.grad is None for p in sae.parameters())


# -- SAELens ---------------------------------------------------------------------------------------------


def reference(architecture, w, x, options):
    """Encode as SAELens does, in torch (its documentation of each architecture)."""
    x = x - w["b_dec"] if options["apply_b_dec_to_input"] else x
    if architecture == "gated":
        gate = (x @ w["W_enc"] + w["b_gate"] > 0).float()
        return gate * torch.relu(x @ (w["W_enc"] * w["r_mag"].exp()) + w["b_mag"])
    before = x @ w["W_enc"] + w["b_enc"]
    if architecture == "jumprelu":
        return torch.relu(before) * (before > w["threshold"])
    if architecture == "topk":
        top = torch.topk(before, options["k"], dim=-1)
        return torch.zeros_like(before).scatter_(-1, top.indices, torch.relu(top.values))
    return torch.relu(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("architecture", ["standard", "gated", "jumprelu", "topk"])
def test_saelens_files(tmp_path, architecture, centered, dtype):
    torch.manual_seed(0)
    shapes = {"W_enc": (WIDTH, 20), "W_dec": (20, WIDTH), "b_dec": (WIDTH,)}
    more = {"gated": ["b_gate", "b_mag", "r_mag"], "jumprelu": ["b_enc", "threshold"]}.get(
        architecture, ["b_enc"]
    )
    weights = {name: torch.randn(shape) for name, shape in {**shapes, **dict.fromkeys(more, (20,))}.items()}
    options = {
        "architecture": architecture,
        "d_in": WIDTH,
        "d_sae": 20,
        "apply_b_dec_to_input": centered,
        "k": 4,
    }
    weights = {name: weight.to(dtype) for name, weight in weights.items()}
    save_file(weights, tmp_path / "sae_weights.safetensors")
    weights = {name: weight.float() for name, weight in weights.items()}
    (tmp_path / "cfg.json").write_text(json.dumps({**options, "normalize_activations": "none"}))
    x = torch.randn(50, WIDTH)
    expected = reference(architecture, weights, x, options)
    for path in (tmp_path, tmp_path / "sae_weights.safetensors"):
        sae = intus.Dictionary.load(path)
        assert np.allclose(sae.features(x.double().numpy(), "layer"), expected.numpy(), atol=1e-5)
    decoded = expected @ weights["W_dec"] + weights["b_dec"]
    assert np.allclose(sae.reconstruct(expected.numpy()), decoded.numpy(), atol=1e-5)
    assert (expected > 0).any()


def test_saelens_options_that_are_not_known(tmp_path):
    save_file({"W_enc": torch.ones(2, 2)}, tmp_path / "sae_weights.safetensors")
    for options, text in (
        (
            {"architecture": "temporal"},
            "of the architecture 'temporal'. Known are standard, topk, jumprelu, gated",
        ),
        ({"normalize_activations": "layer_norm"}, "normalize_activations='layer_norm'"),
        ({"architecture": "standard"}, "lacks 'b_enc'"),
    ):
        (tmp_path / "cfg.json").write_text(json.dumps(options))
        with pytest.raises(InputError, match=text):
            intus.Dictionary.load(tmp_path)
    save_file({"W_enc": torch.ones(2, 2, dtype=torch.int32)}, tmp_path / "sae_weights.safetensors")
    with pytest.raises(InputError, match="has numbers of type I32; known are F64, F32, F16, BF16"):
        intus.Dictionary.load(tmp_path)
    (tmp_path / "cfg.json").write_text("{")
    with pytest.raises(InputError, match=r"cfg.json' is damaged"):
        intus.Dictionary.load(tmp_path)
    with pytest.raises(InputError, match="There is no file or folder"):
        intus.Dictionary.load(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: intus.Directions(np.ones((2, 7))), "have 7 entries each, but the layer has 12 units"),
        (lambda: intus.Directions(np.ones((12, 5))), r"It fits transposed: write Directions\(matrix.T\)"),
        (lambda: intus.Dictionary(np.ones((7, 9))), "has width 7, but the layer has 12 units"),
        (lambda: intus.Dictionary(nn.Linear(7, 9).forward), "dictionary failed for '0' of 12 units"),
        (lambda: intus.Directions(np.ones(3)), "must be a matrix, got shape"),
        (lambda: intus.Directions([[np.nan, 1.0]]), "NaN or infinite"),
        (lambda: intus.Directions(np.ones((2, 12)), names=["a"]), "one name for each of the 2 directions"),
        (lambda: intus.Dictionary(np.ones((12, 9)), np.ones((12, 9))), r"decoder must have shape \(9, 12\)"),
        (lambda: intus.Dictionary("sae"), "must be a matrix of numbers, got a str"),
    ],
)
def test_directions_that_do_not_fit(planted, make, text):
    net, x, concept, *_ = planted
    with pytest.raises(InputError, match=text):
        inspect(net, {"c": concept}, "correlation", x, ("0", make()))


def test_two_dictionaries_of_one_layer_need_names(planted):
    net, x, concept, *_ = planted
    one, other = (intus.Directions(np.eye(WIDTH)[[k]]) for k in (0, 1))
    with pytest.raises(InputError, match=r"would be called '0 \(directions\)'"):
        inspect(net, {"c": concept}, "correlation", x, [("0", one), ("0", other)])
    other = intus.Directions(np.eye(WIDTH)[[1]], name="others")
    table = inspect(net, {"c": concept}, "correlation", x, [("0", one), ("0", other)])
    assert set(table.address) >= {"0 (directions)", "0 (others)", "0 (random others)"}
