"""A framework unlike torch, used by ``probe`` and ``inspect`` through the backend protocol alone."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from toynet import Layer, Network, ToyBackend, Unordered

import intus
from intus.backends import base
from intus.core.errors import AddressError, CaptureError, InputError
from intus.core.projection import PROJECTED, project, summarize
from intus.serving.run import Server

DIGITS = load_digits()
IMAGES, LABELS = (DIGITS.data[:300] / 16).astype(np.float32), DIGITS.target[:300]


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    monkeypatch.setattr(base, "_BACKENDS", {**base._BACKENDS, "toynet": ToyBackend})


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(no_token=True, database=tmp_path_factory.mktemp("toy") / "toy.db", port=0) as running:
        yield running


def layers():
    rng = np.random.default_rng(0)
    weight, wide = (
        rng.normal(size=(64, 16)).astype(np.float32),
        rng.normal(size=(16, 5000)).astype(np.float32),
    )
    return [
        Layer("body.first", "dense", lambda x: x @ weight, {"weight": weight}),
        Layer("body.act", "tanh", np.tanh),
        Layer("wide", "dense", lambda x: x @ wide, {"weight": wide}),
        Layer("maps", "conv", lambda x: x[:, :4096].reshape(len(x), 4, 32, 32)),
        Layer("odd", "mystery", lambda x: x.reshape(len(x), 8, 512)),
    ]


def points(server, run, score, target=""):
    query = urllib.parse.urlencode({"run": run, "model": "Network", "score": score, "target": target})
    with urllib.request.urlopen(f"{server.page_url}api/points?{query}", timeout=20) as answer:
        return json.load(answer)


@pytest.mark.long
@pytest.mark.parametrize("eager", [True, False], ids=["known layers", "layers met in the first call"])
def test_probe(server, eager):
    run = f"toy-{eager}"
    network = Network(layers, eager=eager)
    plain = Network(layers)(IMAGES)
    watch = intus.probe(network, "127.0.0.1", server.port, run=run, which=["body.*", "dense"], block=True)
    intus.register_targets("127.0.0.1", server.port, name="digit", targets=LABELS)
    with watch:
        for watch.epoch in range(2):
            assert np.array_equal(network(IMAGES), plain)
    assert intus.flush("127.0.0.1", server.port)
    assert set(watch.operations) == {"body.first", "body.act", "wide"}
    assert watch.status()["never_called"] == []
    assert watch.status()["troubles"] == 0
    assert network.taps == []
    f1 = points(server, run, "linear_f1", "digit")
    assert set(f1["address"]) == {"body.first", "body.act", "wide"}
    assert min(f1["value"]) > 0.7
    norms = points(server, run, "mean_abs")
    wide = plain_outputs()["wide"]
    found = [v for v, a in zip(norms["value"], norms["address"], strict=True) if a == "wide"]
    assert found == pytest.approx([float(np.abs(wide).mean())] * 2, rel=1e-4)  # computed before projection


def plain_outputs(x=IMAGES):
    found = {}
    for layer in layers():
        x = found[layer.name] = layer.function(x)
    return found


def test_wide_rows_are_projected_with_numpy(server, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "intus.monitoring.sender.Sender.gather",
        lambda self, record, nbytes, contents=None: (sent.append(record), self.release(nbytes)),
    )
    with intus.probe(Network(layers), "127.0.0.1", server.port, which="wide") as watch:
        watch.epoch = 0
        watch._tap._model()(IMAGES[:10])
    (record,) = sent
    wide = plain_outputs(IMAGES[:10])["wide"]
    assert record.array.shape == (10, PROJECTED)
    assert record.projected_from == 5000
    np.testing.assert_array_equal(record.array, project(wide))
    np.testing.assert_array_equal(record.summary, summarize(wide))


@pytest.mark.long
def test_probe_set_runs_in_evaluation_mode(server):
    network = Network(layers)
    digits = {"digit": LABELS[:100]}
    with intus.probe(network, "127.0.0.1", server.port, run="set", probe_set=(IMAGES[:100], digits)) as watch:
        watch.run_probe_set()
        assert network.training
    assert intus.flush("127.0.0.1", server.port)
    assert points(server, "set", "linear_f1", "digit")["kind"]


def test_unknown_row_order_is_refused_with_reason(server, monkeypatch, caplog):
    monkeypatch.setattr(base, "_BACKENDS", {**base._BACKENDS, "toynet": Unordered})
    network = Network(layers)
    with intus.probe(network, "127.0.0.1", server.port, run="unordered", which="body.*"):
        network(IMAGES)
    assert "cannot be identified by their order of arrival: its framework cannot" in caplog.text


def test_never_called_warning_has_blind_spot_of_framework(server, caplog):
    with intus.probe(Network(layers), "127.0.0.1", server.port):
        pass
    assert "Toy networks hide nothing." in caplog.text
    assert "torch" not in caplog.text


def test_inspect():
    """Every unit's correlation equals numpy's; layers are selected by name, number, class and pattern."""
    bright = IMAGES.mean(1)
    hypotheses = {"bright": bright}
    outputs = plain_outputs()
    network = Network(layers)
    table = intus.inspect(network, hypotheses, "correlation", IMAGES, ["body.*", ("wide", [7, 3])])
    assert set(table.address) == {"body.first", "body.act", "wide"}
    for row in table.itertuples():
        behaviour = outputs[row.address][:, row.unit]
        assert row.value == pytest.approx(np.corrcoef(behaviour, bright)[0, 1], abs=1e-5)
    assert table[table.address == "wide"].unit.tolist() == [7, 3]
    numbered = intus.inspect(network, hypotheses, "correlation", IMAGES, [(2, [7, 3]), "tanh"])
    assert set(numbered.address) == {"wide", "body.act"}
    every = intus.inspect(network, hypotheses, "correlation", IMAGES)
    assert set(every.address) == {"body.first", "wide"}  # those with parameters
    assert network.training
    assert network.taps == []


def test_inspect_gets_unit_axis_from_backend():
    network, labels = Network(layers), {"odd": np.arange(300) % 2}
    assert len(intus.inspect(network, labels, "mean_difference", IMAGES, "maps")) == 4
    with pytest.raises(AddressError, match=r"'odd' has shape \(256, 8, 512\), and its operations do not"):
        intus.inspect(network, labels, "mean_difference", IMAGES, "odd")
    assert len(intus.inspect(network, labels, "mean_difference", IMAGES, "odd[:@1]")) == 8


def test_inspect_refuses_nonexistent_units():
    network, labels = Network(layers), {"odd": np.arange(300) % 2}
    for units, error, text in (
        ("body.second", AddressError, "has no 'body.second'"),
        ("wide.weight", AddressError, "is a parameter"),
        ((3, "*"), AddressError, r"layers with parameters are 1 \('.*'\) and 2 \('"),
        ("wide[9999]", AddressError, "there are 5000 units"),
        (3.5, InputError, "A layer is an address"),
    ):
        with pytest.raises(error, match=text):
            intus.inspect(network, labels, "mean_difference", IMAGES, units)


def test_inspect_stores_scores_without_graph(tmp_path):
    from intus.storage.database import Database

    network = Network(layers)
    labels = {"odd": np.arange(300) % 2}
    intus.inspect(network, labels, "correlation", IMAGES, "body.act", store=tmp_path / "x.db", run="r")
    with Database(tmp_path / "x.db") as database:
        assert len(database.points("r", "Network")) == 16
        assert database.graph("r", "Network") is None


def test_through_observes_a_step(server, monkeypatch):
    """A handle that has ``through`` gets the step; others refuse it."""
    network = Network(layers)
    with intus.probe(network, "127.0.0.1", server.port) as watch:
        with pytest.raises(InputError, match=r"through is for JAX\. The calls of Network, a model of toynet"):
            watch.through(network)
        monkeypatch.setattr(type(watch._attachment), "through", lambda _, step: [step], raising=False)
        assert watch.through(len) == [len]


@pytest.mark.long
def test_other_framework_does_not_load_torch():
    code = (
        "import sys, numpy as np; sys.path.insert(0, sys.argv[1])\n"
        "import intus, toynet, test_toy_framework as t\n"
        "from intus.backends import base; base.register('toynet', toynet.ToyBackend)\n"
        "net = toynet.Network(t.layers)\n"
        "intus.inspect(net, {'odd': np.arange(300) % 2}, 'correlation', t.IMAGES, 'body.act')\n"
        "with intus.probe(net, '127.0.0.1', 1): net(t.IMAGES)\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_inspect_of_layers_met_in_the_first_call():
    network = Network(layers, eager=False)
    table = intus.inspect(network, {"odd": np.arange(300) % 2}, "correlation", IMAGES, "body.act")
    known = intus.inspect(Network(layers), {"odd": np.arange(300) % 2}, "correlation", IMAGES, "body.act")
    assert table.value.tolist() == known.value.tolist()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"behavior": "gradient"}, CaptureError, "needs the graph of the model, and 'toynet' recorded none"),
        ({"twin": True}, None, "twin=True is not implemented for 'toynet'"),
        ({"units": "relu_1"}, AddressError, "has no 'relu_1'"),
    ],
)
def test_inspect_says_what_a_backend_lacks(options, error, text):
    asked = {"units": "body.act", **options}
    network, labels = Network(layers), {"odd": np.arange(300) % 2}
    if error is None:  # the model itself has been scored already
        table = intus.inspect(network, labels, "correlation", IMAGES, **asked)
        assert text in table.note.iloc[-1]
        assert table.value.notna().sum() == 16
    else:
        with pytest.raises(error, match=text):
            intus.inspect(network, labels, "correlation", IMAGES, **asked)


def test_directions_of_another_framework():
    outputs = plain_outputs()["body.act"]
    direction = np.random.default_rng(0).normal(size=16)
    units = ("body.act", intus.Directions([direction]))
    table = intus.inspect(Network(layers), {"c": outputs @ direction}, "correlation", IMAGES, units)
    assert table.value[0] > 0.999 > table.value[1]


@pytest.mark.long
def test_rows_of_inspect_without_a_graph():
    """Examples and perturbation need the protocol alone; ablation says that the backend has none."""
    network, outputs = Network(layers), plain_outputs()

    def bright(record):
        return record.mean() > 0.3

    table = intus.inspect(network, bright, "correlation", IMAGES, "wide")
    best = table.loc[table.value.idxmax()]
    top = table.examples(best, k=3)
    values = outputs["wide"][:, best.unit]
    assert top[top.kind == "top"].record.tolist() == np.argsort(-values)[:3].tolist()

    def change(record, random):
        return (record + random.choice([0.01, 0.5, -0.5])).astype(np.float32)

    found = table.verify(best, change=change, records=40)
    assert found.perturbation.flips.value > 0
    assert found.ablation is None
    assert "The backend 'toynet' cannot run a pass with a changed unit" in found.notes[0]
    assert network.training
    assert network.taps == []
