"""No function that takes a file runs code from it, wherever the code stands, whatever the file is called."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn

import intus
from intus.core.errors import IntusError
from intus.reading import ENDINGS

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")
X = torch.ones(1, 3)
LOOKED_AT = [intus.read, lambda path: intus.read(path, X), intus.view, intus.load]


class Planted:
    """An object whose pickle makes a folder when it is loaded."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.fixture
def marker(tmp_path):
    """Return a folder that exists if code has run."""
    folder = tmp_path / "code ran"
    yield folder
    assert not folder.exists()


def pickles(marker):
    """Return the forms in which pickled objects are written, by name."""
    bare = pickle.dumps(Planted(marker), protocol=2)
    archive, arrays = io.BytesIO(), io.BytesIO()
    torch.save({"weight": Planted(marker)}, archive)
    np.savez(arrays, weight=np.array([Planted(marker)], dtype=object))
    return {"pickle": bare, "torch": archive.getvalue(), "npz": arrays.getvalue()}


def look_at(path):
    for look in LOOKED_AT:
        with suppress(IntusError):
            look(path)


def test_planted_code_runs_where_a_pickle_is_loaded(tmp_path):
    pickle.loads(pickles(tmp_path / "ran")["pickle"])
    assert (tmp_path / "ran").is_dir()


@pytest.mark.parametrize("form", ["pickle", "torch", "npz"])
def test_pickles_under_any_name(tmp_path, marker, form):
    endings = [
        *ENDINGS,
        ".pth",
        ".bin",
        ".ckpt",
        ".pkl",
        ".npz",
        ".npy",
        ".h5",
        ".keras",
        ".trace",
        ".params",
    ]
    for ending in endings:
        path = tmp_path / f"net{ending}"
        path.write_bytes(pickles(marker)[form])
        for look in LOOKED_AT:
            with pytest.raises(IntusError):
                look(path)


def exported(path):
    torch.export.save(torch.export.export(nn.Linear(3, 2), (X,)), path)


def scripted(path):
    torch.jit.save(torch.jit.script(nn.Linear(3, 2)), path)


def of_torch_2_6(path):
    exported(path)
    with zipfile.ZipFile(path) as source:
        (model,) = [source.read(name) for name in source.namelist() if name.endswith("models/model.json")]
    weights = io.BytesIO()
    torch.save(nn.Linear(3, 2).state_dict(), weights)
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("serialized_exported_program.json", model)
        for name in ("serialized_state_dict.pt", "serialized_constants.pt", "serialized_example_inputs.pt"):
            target.writestr(name, weights.getvalue())
        target.writestr("version", "8.1")


@pytest.mark.parametrize("write", [exported, scripted, of_torch_2_6])
def test_a_pickle_in_place_of_any_part(tmp_path, marker, write):
    path = tmp_path / ("net.pt" if write is scripted else "net.pt2")
    write(path)
    intus.read(path)  # before it is changed
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert len(members) > 4
    for name in members:
        for data in pickles(marker).values():
            with zipfile.ZipFile(path, "w") as archive:
                for other, content in (members | {name: data}).items():
                    archive.writestr(other, content)
            look_at(path)
