"""Zip files that unpack to far more than they are: refused by their directory, without unpacking them."""

import io
import tracemalloc
import warnings
import zipfile

import pytest
import torch

import intus
from intus.core.errors import CodecError
from intus.reading.pickled_weights import places

#: As zeros, or spaces, they compress a thousandfold.
BYTES = 1 << 26


def repacked(path, copy, change, compression=zipfile.ZIP_DEFLATED):
    with (
        zipfile.ZipFile(path) as source,
        zipfile.ZipFile(copy, "w", compression, compresslevel=1) as target,
    ):
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)))
    return copy


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("bombs") / "net.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(4, 3), (torch.ones(1, 4),)), path)
    return path


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    path = tmp_path_factory.mktemp("bombs") / "net.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(torch.nn.Linear(4, 3), torch.ones(1, 4)), path)
    return path


def padded(ending):
    return lambda name, data: data + b" " * BYTES if name.endswith(ending) else data


def refused(path, *inputs):
    """Return why a file is refused, if that takes little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(CodecError) as found:
            intus.read(path, *inputs)
        assert tracemalloc.get_traced_memory()[1] < BYTES / 8
    finally:
        tracemalloc.stop()
    return str(found.value)


def test_graph_of_an_exported_program(exported, tmp_path):
    bomb = repacked(exported, tmp_path / "bomb.pt2", padded("models/model.json"))
    assert "more than 100 times as many" in refused(bomb)


def test_code_of_torchscript(scripted, tmp_path):
    bomb = repacked(scripted, tmp_path / "bomb.pt", padded(".py"))
    assert "more than 100 times as many" in refused(bomb)


def test_members_that_share_their_bytes(exported, tmp_path):
    copy = tmp_path / "shared.pt2"
    copy.write_bytes(exported.read_bytes())
    with zipfile.ZipFile(copy, "a") as archive:
        first = max(archive.infolist(), key=lambda one: one.file_size)
        for number in range(1000):
            archive.filelist.append(one := zipfile.ZipInfo(f"{number}"))
            for field in ("header_offset", "compress_size", "file_size", "CRC", "compress_type"):
                setattr(one, field, getattr(first, field))
        archive._didModify = True
    assert "longer than the whole file" in refused(copy)


def test_weights_in_an_archive_inside():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("archive/data.pkl", b" " * BYTES)
    data = data.getvalue()
    tracemalloc.start()
    try:
        assert places(data) == {}
        assert tracemalloc.get_traced_memory()[1] < BYTES / 8
    finally:
        tracemalloc.stop()


def test_compressed_and_large_files_that_are_models_are_read(exported, tmp_path):
    copy = repacked(exported, tmp_path / "deflated.pt2", lambda _, data: data)
    assert np_equal(intus.read(copy, torch.ones(1, 4)), intus.read(exported, torch.ones(1, 4)))
    large = repacked(
        exported,
        tmp_path / "large.pt2",
        lambda name, data: bytes(BYTES) if name.endswith("weight_0") else data,
        zipfile.ZIP_STORED,
    )
    tracemalloc.start()
    try:
        assert intus.read(large).num_params == 15
        assert tracemalloc.get_traced_memory()[1] < BYTES / 8
    finally:
        tracemalloc.stop()


def np_equal(one, two):
    return (one.outputs[0].value == two.outputs[0].value).all()
