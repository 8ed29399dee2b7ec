"""Models from paths, patterns and state dicts; newly initialized twins."""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from intus import inspect
from intus.core.errors import InputError
from intus.inspection.models import as_checkpoints
from intus.inspection.models.files import epochs


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2(self.norm(self.conv1(x)).relu())


@pytest.fixture(scope="module")
def checkpoints():
    """Return three models with different weights."""
    torch.manual_seed(0)
    return [Small() for _ in range(3)]


@pytest.fixture
def ask(images, digit):
    """Return a function that asks one question of models."""

    def ask(models, **options):
        return inspect(models, {"odd": digit[:80] % 2}, "correlation", images[:80], "conv2", **options)

    return ask


@pytest.fixture
def files(checkpoints, tmp_path):
    """Save state dicts in three forms, and return their folder."""
    states = [model.state_dict() for model in checkpoints]
    torch.save(states[0], tmp_path / "epoch_00.pt")
    torch.save({"model_state_dict": states[1], "epoch": 10, "lr": 0.1}, tmp_path / "epoch_10.pt")
    torch.save(states[2], tmp_path / "epoch_9.pt")
    return tmp_path


def scores(table):
    return table[["epoch", "unit", "value"]].reset_index(drop=True)


def test_pattern_of_state_dicts(checkpoints, files, ask):
    zero, ten, nine = checkpoints
    expected = ask({0: zero, 9: nine, 10: ten})
    template = Small()
    before = {name: value.clone() for name, value in template.state_dict().items()}
    found = ask(str(files / "epoch_*.pt"), model=template)
    pd.testing.assert_frame_equal(scores(found), scores(expected))
    assert all(torch.equal(value, before[name]) for name, value in template.state_dict().items())
    pd.testing.assert_frame_equal(scores(ask(files / "epoch_*.pt", model=Small)), scores(expected))


@pytest.mark.long
def test_load_makes_one_model_at_a_time(checkpoints, files, ask):
    alive, paths = [], []

    def load(path):
        gc.collect()
        assert not any(ref() for ref in alive)
        model = Small()
        state = torch.load(path)
        model.load_state_dict(state.get("model_state_dict", state))
        alive.append(weakref.ref(model))
        paths.append(path.name)
        return model

    found = ask(files / "epoch_*.pt", load=load)
    assert paths == ["epoch_00.pt", "epoch_9.pt", "epoch_10.pt"]
    pd.testing.assert_frame_equal(
        scores(found), scores(ask({0: checkpoints[0], 9: checkpoints[2], 10: checkpoints[1]}))
    )


def test_state_dicts_in_memory_and_safetensors(checkpoints, tmp_path, ask):
    state = checkpoints[1].state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, tmp_path / "w.safetensors")
    expected = ask(checkpoints[1]).value.tolist()
    assert ask(state, model=Small()).value.tolist() == expected
    assert ask(tmp_path / "w.safetensors", model=Small()).value.tolist() == expected
    table = ask({"first": checkpoints[0].state_dict(), "second": tmp_path / "w.safetensors"}, model=Small)
    assert table[table.model == "second"].value.tolist() == expected
    assert table.model.unique().tolist() == ["first", "second"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["epoch_03.pt", "epoch_10.pt"], [3, 10]),
        (["ckpt-200.pt", "ckpt-1200.pt"], [200, 1200]),
        (["v2-epoch=3-step=90.ckpt", "v2-epoch=4-step=120.ckpt"], [3, 4]),
        (["run1/model_5.pt", "run2/model_5.pt"], [0, 1]),
        (["a-1-2.pt", "a-3-4.pt"], [0, 1]),  # either number may be the epoch
        (["best.pt", "last.pt"], [0, 1]),
        (["epoch_3.pt", "epoch_03.pt"], [0, 1]),
        (["model-7.pt"], [7]),
        (["resnet18-v2.pt"], [np.nan]),
    ],
)
def test_epochs_of_file_names(names, expected):
    from pathlib import Path

    assert np.array_equal(epochs([Path(name) for name in names]), expected, equal_nan=True)


@pytest.mark.parametrize(
    ("models", "options", "text"),
    [
        ("epoch_00.pt", {}, r"is a path. Pass load=, .* or model="),
        ("nothing_*.pt", {"model": Small}, "No file matches the pattern"),
        ("nothing.pt", {"model": Small}, "There is no file"),
        ("state", {}, r"a state dict \('conv1.weight', …\), which is weights without a model"),
        ("state", {"load": Small}, "Pass model="),
        ("epoch_00.pt", {"model": Small, "load": Small}, "load= or model=, not both"),
        ("epoch_00.pt", {"load": "Small"}, "load must be a function"),
        ("epoch_00.pt", {"load": torch.load}, "load returned a state dict"),
        ("epoch_00.pt", {"model": nn.Linear(2, 2)}, "do not fit Linear: they lack 'weight' and 1 more"),
        ("whole.pt", {"model": Small}, "holds more than tensors, such as a pickled model"),
        ("text.pt", {"model": Small}, "cannot be read|more than tensors"),
        ("none.pt", {"model": Small}, "holds no state dict, but 'epoch'"),
        ("text.safetensors", {"model": Small}, "cannot be read"),
    ],
)
def test_refusals(models, options, text, files, checkpoints, ask):
    torch.save(checkpoints[0], files / "whole.pt")
    torch.save({"epoch": 3}, files / "none.pt")
    (files / "text.pt").write_text("no tensors")
    (files / "text.safetensors").write_text("no tensors")
    given = checkpoints[0].state_dict() if models == "state" else files / models
    with pytest.raises(InputError, match=text):
        ask(given, **options)


def test_damaged_checkpoint_is_a_row(files, ask):
    (files / "epoch_9.pt").write_bytes(b"damaged")
    table = ask(files / "epoch_*.pt", model=Small)
    assert table[table.epoch == 9].note.str.startswith("failed: InputError").tolist() == [True]
    assert len(table[table.epoch == 10]) == 8


# -- twins -----------------------------------------------------------------------------------------------


def test_twin_is_a_new_model_of_the_same_architecture(checkpoints, ask):
    trained = checkpoints[-1]
    before = copy.deepcopy(trained.state_dict())
    table = ask(trained, twin=True, seed=3)
    assert table.model.tolist() == ["Small"] * 8 + ["Small (new)"] * 8
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())
    torch.manual_seed(3)
    fresh = Small()  # its constructor draws in the order of the modules, as reset_parameters does
    assert table.value[8:].tolist() == pytest.approx(ask(fresh).value.tolist(), abs=1e-6)
    assert table.q[8:].isna().all()
    assert table.p[8:].notna().all()
    assert (
        table.q[:8].tolist() == ask(trained, seed=3).q.tolist()
    )  # the twin does not count among the findings


def test_twin_of_epochs_and_of_names(checkpoints):
    of_epochs = as_checkpoints({0: checkpoints[0], 5: checkpoints[1]}, twin=True)
    assert [one.open()[0] for one in of_epochs] == ["Small", "Small", "Small (new)"]
    of_names = as_checkpoints({"a": checkpoints[0], "b": nn.Linear(2, 2)}, twin=True)
    assert [one.open()[0] for one in of_names] == ["a", "b", "a (new)", "b (new)"]
    one, other, again = (as_checkpoints(checkpoints[0], twin=True, seed=s)[1].open()[1] for s in (0, 1, 0))
    assert torch.equal(one.conv2.weight, again.conv2.weight)
    assert not torch.equal(one.conv2.weight, other.conv2.weight)


def test_twin_of_parameters_that_cannot_be_initialized():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.fc = nn.Parameter(torch.ones(3)), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x * self.scale)

    model = nn.Sequential(Scaled())
    with pytest.raises(InputError, match="'0', a Scaled, has the parameter 'scale' but no reset_parameters"):
        as_checkpoints(model, twin=True)[1].open()
