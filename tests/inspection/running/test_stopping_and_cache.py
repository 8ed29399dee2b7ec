"""Inspecting with less work: early stopping, permutations on request, and the cache."""

import os

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from intus import Dictionary, inspect
from intus.core.errors import InputError

N, T = 3000, 8


class Counted(nn.Module):
    """A layer with planted units. A file counts passes of the newest, for attributes are restored."""

    def __init__(self, features: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(features, 24)
        open(os.environ["PASSES"], "w").close()

    def forward(self, x):
        with open(os.environ["PASSES"], "a") as file:
            file.write(".")
        return torch.tanh(self.layer(x))

    @property
    def passes(self):
        return os.path.getsize(os.environ["PASSES"])


@pytest.fixture(autouse=True)
def file_of_passes(tmp_path, monkeypatch):
    monkeypatch.setenv("PASSES", str(tmp_path / "passes"))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, T, 6)).astype(np.float32)
    labels = {f"h{k}": x[:, :, k] + rng.normal(size=(N, T)) * (k + 1) > 0.3 for k in range(6)}
    return torch.tensor(x), labels


def test_stops_when_intervals_are_narrow(data):
    x, labels = data
    whole = inspect(Counted(6), labels, ["correlation", "auroc"], x, "layer", batch=100)
    model = Counted(6)
    table = inspect(model, labels, ["correlation", "auroc"], x, "layer", batch=100, eps=0.05)
    assert 4 < model.passes < 25
    read = (model.passes - 1) * 100  # one pass records the graph
    assert table.n.eq(read * T).all()
    assert table.note.str.endswith(f"stopped at eps=0.05 after {read:,} of 3,000 records").all()
    assert ((table.high - table.low) / 2 <= 0.0501).mean() >= 0.99
    assert (np.abs(table.value - whole.value) <= 0.05).mean() >= 0.99
    again = inspect(Counted(6), labels, ["correlation", "auroc"], x, "layer", batch=100, eps=0.05)
    pd.testing.assert_frame_equal(table, again)


def test_stopping_reads_whole_groups_in_random_order(data):
    """Records in the order of their labels would give constant labels at first."""
    x, _ = data
    document = np.arange(N) // 30
    late = {"late": np.arange(N) > 2000}
    table = inspect(Counted(6), late, "correlation", x, "layer", batch=300, eps=0.2, groups=document)
    assert np.isfinite(table.value).all()
    assert "stopped at eps=0.2" in table.note[0]


def test_stops_when_the_strongest_units_are_known(data):
    x, _ = data
    model = Counted(6)
    with torch.no_grad():
        model.layer.weight[5] = 3 * torch.eye(6)[0]
    labels = {"first": x[:, :, 0].numpy() > 0}
    table = inspect(model, labels, "correlation", x, "layer", batch=100, top=1)
    assert model.passes < 31
    assert table.value.abs().idxmax() == 5
    assert "stopped at top=1" in table.note[0]


def test_records_that_are_read_to_the_end_have_no_note(data):
    x, labels = data
    few = {name: column[:200] for name, column in labels.items()}
    table = inspect(Counted(6), few, "correlation", x[:200], "layer", batch=100, eps=1e-6)
    assert table.note.eq("").all()
    assert table.n.eq(200 * T).all()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"eps": 0}, "eps=0 must be a positive half-width"),
        ({"eps": -0.1}, "eps=-0.1 must be a positive half-width"),
        ({"top": 0}, "top=0 must be 1 or more"),
        ({"null": -1}, "null=-1 must be a number of permutations"),
        ({"cache_outputs": True}, "cache_outputs=True needs a folder"),
    ],
)
def test_wrong_options(data, wrong, text):
    x, labels = data
    with pytest.raises(InputError, match=text):
        inspect(Counted(6), labels, "correlation", x, "layer", **wrong)


def test_p_of_permutations(data):
    x, labels = data
    few, part = x[:400], {name: column[:400] for name, column in labels.items()}
    part["noise"] = np.random.default_rng(1).random((400, T)) > 0.5
    table = inspect(Counted(6), part, "correlation", few, "layer", null=99)
    assert np.allclose(np.round(table.p * 100) / 100, table.p)
    assert table.p.min() == pytest.approx(0.01)
    assert table[table.target == "noise"].p.min() > 0.05
    # A unit that no permutation reaches is as clear to scipy, for all units of the hypothesis together.
    clear = table[(table.p <= 0.01) & (table.target == "h0")]
    assert len(clear)
    with torch.no_grad():
        outputs = Counted(6)(few).numpy().reshape(-1, 24)
    for unit in clear.unit:
        assert stats.pearsonr(outputs[:, unit], part["h0"].reshape(-1)).pvalue * 24 < 0.05


# -- the cache ----------------------------------------------------------------------------------------


def test_same_question_is_answered_from_the_cache(data, tmp_path):
    x, labels = data
    first = inspect(Counted(6), labels, "correlation", x, "layer", cache=tmp_path / "new" / "folder")
    model = Counted(6)
    again = inspect(model, labels, "correlation", x, "layer", cache=tmp_path / "new" / "folder")
    assert model.passes == 0
    pd.testing.assert_frame_equal(first, again)
    with torch.no_grad():
        model.layer.weight[0] += 1  # another model
    inspect(model, labels, "correlation", x, "layer", cache=tmp_path / "new" / "folder")
    assert model.passes > 0


def test_outputs_in_the_cache_serve_other_hypotheses(data, tmp_path):
    x, labels = data
    asked = x, "layer"
    inspect(Counted(6), labels, "correlation", *asked, cache=tmp_path, cache_outputs=True)
    model = Counted(6)
    other = {"other": ~labels["h0"]}
    table = inspect(model, other, ["iou", "linear_f1"], *asked, cache=tmp_path, cache_outputs=True)
    assert model.passes == 1  # that of the graph
    pd.testing.assert_frame_equal(table, inspect(Counted(6), other, ["iou", "linear_f1"], *asked))
    moved = inspect(model, other, "iou", x + 1, "layer", cache=tmp_path, cache_outputs=True)
    pd.testing.assert_frame_equal(moved, inspect(Counted(6), other, "iou", x + 1, "layer"))


def test_damaged_cache_is_computed_again(data, tmp_path):
    x, labels = data
    first = inspect(Counted(6), labels, "correlation", x, "layer", cache=tmp_path, cache_outputs=True)
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged" + path.read_bytes()[:20])
    with pytest.warns(UserWarning, match=r"cannot be read .* The table is complete"):
        again = inspect(Counted(6), labels, "correlation", x, "layer", cache=tmp_path, cache_outputs=True)
    pd.testing.assert_frame_equal(first, again)


def test_cache_that_cannot_be_written(data, tmp_path):
    x, labels = data
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(UserWarning, match=r"nothing can be kept there .* The table is complete"):
        table = inspect(Counted(6), labels, "correlation", x, "layer", cache=tmp_path / "file")
    assert np.isfinite(table.value).all()


def test_bfloat16_is_answered_from_the_cache(data, tmp_path):
    x, labels = data[0][:50], {"h0": data[1]["h0"][:50]}
    first = inspect(Counted(6).bfloat16(), labels, "correlation", x, "layer", cache=tmp_path)
    model = Counted(6).bfloat16()
    assert inspect(model, labels, "correlation", x, "layer", cache=tmp_path).equals(first)
    assert model.passes == 0
    inspect(model, labels, "correlation", x * 2, "layer", cache=tmp_path)
    assert model.passes > 0


def parts(outputs):
    return np.maximum(outputs[:, :2] - SHIFT[0], 0)


SHIFT = {0: 0.0}


def test_function_as_dictionary_is_computed_again(data, tmp_path, monkeypatch):
    x, labels = data[0][:50], {"h0": data[1]["h0"][:50]}

    def ask(**options):
        return inspect(Counted(6), labels, "correlation", x, ("layer", Dictionary(parts)), **options)

    before = ask(cache=tmp_path)
    monkeypatch.setitem(SHIFT, 0, 0.5)
    assert not ask().value.equals(before.value)
    assert ask(cache=tmp_path).value.equals(ask().value)


def test_early_stop_waits_for_a_rare_hypothesis(linear, images):
    """4 positives in 10,000 records: no block so far may have had one."""
    rng = np.random.default_rng(0)
    many = images[rng.integers(0, len(images), 10_000)]
    rare = np.zeros(10_000)
    rare[[4000, 5000, 6000, 7000]] = 1
    for option in ({"eps": 0.05}, {"top": 1}):
        table = inspect(linear, {"rare": rare}, "correlation", many, "1", batch=64, **option)
        assert np.isfinite(table.value).all()
        assert table.n[0] > 500
