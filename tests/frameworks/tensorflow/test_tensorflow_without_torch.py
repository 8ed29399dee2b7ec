"""Nothing that reads, compares or shows traces imports torch where no model of it takes part."""

from __future__ import annotations

import sys

import keras
import numpy as np
import pytest

import intus
from intus.cli import main

L = keras.layers
IMAGES = np.random.default_rng(0).normal(size=(2, 6, 6, 3)).astype(np.float32)


class Refuses:
    """An import hook that refuses torch, and says so in a way that nobody expects."""

    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] != "torch", f"{name} was imported"


@pytest.fixture
def refused(monkeypatch):
    for name in [one for one in sys.modules if one.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Refuses(), *sys.meta_path])


def net(*, wide=False, relu=True, norm=True):
    keras.utils.set_random_seed(1)
    x = keras.Input((6, 6, 3))
    y = L.Conv2D(5 if wide else 4, 3, name="conv")(x)
    y = L.BatchNormalization(name="norm")(y) if norm else y
    y = L.Dropout(0.5)(L.ReLU()(y) if relu else y)
    y = L.GRU(4, name="gru")(L.Reshape((16, -1))(y))
    return keras.Model(x, L.Dense(3, name="out")(y))


def scaled(name):
    def edit(model):
        layer, _, variable = name.partition(".")
        held = getattr(model.get_layer(layer), variable)
        held.assign(held * 1.1 + 0.1)

    return edit


def other_eps(model):
    model.get_layer("norm").epsilon = 0.1


def not_a_number(model):
    model.get_layer("conv").kernel.assign(model.get_layer("conv").kernel * np.nan)


EDITS = {
    "same": ({}, None),
    "kernel": ({}, scaled("conv.kernel")),
    "gamma": ({}, scaled("norm.gamma")),
    "mean": ({}, scaled("norm.moving_mean")),
    "variance": ({}, scaled("norm.moving_variance")),
    "eps": ({}, other_eps),
    "nan": ({}, not_a_number),
    "shape": ({"wide": True}, None),
    "type": ({"relu": False}, None),
    "missing": ({"norm": False}, None),
}


@pytest.mark.parametrize("edit", EDITS)
def test_comparison_imports_no_torch(edit, refused, tmp_path):
    options, change = EDITS[edit]
    model, other = net(), net(**options)
    if change is not None:
        change(other)
    a, b = intus.trace(model, IMAGES), intus.trace(other, IMAGES)
    found = intus.compare(a, b)
    assert found.agree == (edit == "same")
    assert str(found)
    assert found._repr_html_()
    assert len(found.modules)
    if edit in ("mean", "eps"):
        intus.view(a, beside=b).save(tmp_path / "page.html")
        a.save(tmp_path / "a.trace")
        loaded = intus.load(tmp_path / "a.trace")
        assert intus.compare(loaded, b).attrs["first"]["module"] == "norm"
        assert loaded["conv"].value.shape == (2, 4, 4, 4)
        assert str(loaded)


def test_selected_values_are_compared_without_torch(refused):
    a, b = intus.trace(net(), IMAGES, save="conv"), intus.trace(net(), IMAGES, save=["conv", "out"])
    assert len(intus.compare(a, b))


def test_command_line_makes_inputs_as_torch_does(tmp_path, capsys):
    """The expressions of the documentation work where torch is not installed."""
    source = tmp_path / "net.py"
    source.write_text("""
import keras
net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="out")])
""")
    for written in ("ones(2, 4)", "randn(2, 4)", "randint(5, (2, 4))"):
        out = tmp_path / "net.json"
        assert main(["view", f"{source}:net", "--inputs", written, "-o", str(out), "--no-open"]) == 0
        assert capsys.readouterr().err == ""
