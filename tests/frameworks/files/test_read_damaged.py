"""A damaged file is read or refused in one sentence, never with another exception."""

import zipfile

import pytest
import torch
from safetensors.torch import save_file
from test_read_weights import gguf

from damaged_files import damaged, is_read, outcomes


@pytest.fixture
def exported(tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)).eval()
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (torch.ones(1, 1, 5, 5),)), path)
    return path


def test_safetensors(tmp_path):
    path = tmp_path / "net.safetensors"
    save_file(torch.nn.Linear(3, 2).state_dict(), path, metadata={"a": "b"})
    done, refused = outcomes(path, path.read_bytes(), 400)
    assert min(done, refused) > 10


def test_gguf(tmp_path):
    tensors = [("blk.0.weight", (2, 32), 8, 68), ("blk.0.norm", (3,), 0, 12)]
    done, refused = outcomes(tmp_path / "net.gguf", gguf(tensors, metadata=[("few", 7, b"\1")]), 400)
    assert min(done, refused) > 50


def test_export(exported):
    _, refused = outcomes(exported, exported.read_bytes(), 200)
    assert refused > 100


@pytest.mark.parametrize("inputs", [(), (torch.ones(1, 1, 5, 5),)], ids=["graph", "values"])
def test_graph_of_export(exported, inputs):
    """The checksums of a zip file find every damage, so they are written anew."""
    with zipfile.ZipFile(exported) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    graph = next(name for name in members if name.endswith("models/model.json"))
    done = 0
    for data in damaged(members[graph], 150):
        with zipfile.ZipFile(exported, "w") as archive:
            for name, content in (members | {graph: data}).items():
                archive.writestr(name, content)
        done += is_read(exported, inputs)
    assert 10 < done < 140
