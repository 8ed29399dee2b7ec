"""Safetensors files written tensor by tensor, read by the safetensors library."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from intus.core.errors import CodecError
from intus.storage.tensors import CheckedFile, array_entry, rename_tensors, write_tensors

KINDS = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"])
ARRAYS = arrays.arrays(KINDS, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))


@given(
    st.dictionaries(st.text(min_size=1, max_size=9).filter(lambda s: s != "__metadata__"), ARRAYS, max_size=5)
)
def test_written_tensors_are_read_and_renamed(tmp_path_factory, named):
    path = tmp_path_factory.mktemp("t") / "a.safetensors"
    try:
        [name.encode() for name in named]
    except UnicodeEncodeError:  # a lone surrogate cannot be encoded
        return
    write_tensors(path, [array_entry(name, array) for name, array in named.items()], {"a": "b"}, spare=100)
    read = load_file(path)
    assert read.keys() == named.keys()
    for name, array in named.items():
        assert read[name].dtype == array.dtype
        assert read[name].tobytes() == array.tobytes()
        assert read[name].shape == array.shape
    rename_tensors(path, {name: name + "!" for name in named})
    with safe_open(path, "numpy") as file:
        assert sorted(file.keys()) == sorted(name + "!" for name in named)
        assert file.metadata()["a"] == "b"
    checked = CheckedFile(path)
    assert checked.metadata == {"a": "b"}
    for name, array in named.items():
        checked.check(name + "!")
        start, stop = checked.spans[name + "!"]
        assert path.read_bytes()[start:stop] == array.tobytes()


def test_rename_in_a_file_of_another_program(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"a": np.ones(3)}, path)
    rename_tensors(path, {"a": "b"})
    assert load_file(path)["b"].tolist() == [1, 1, 1]
    assert not CheckedFile(path).has_checksums


def test_rename_without_room_changes_nothing(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, [array_entry("a", np.ones(3))])
    before = path.read_bytes()
    with pytest.raises(CodecError, match="no room"):
        rename_tensors(path, {"a": "b" * 99})
    assert path.read_bytes() == before


def test_failed_write_leaves_old_file(tmp_path):
    def fails():
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.safetensors"
    write_tensors(path, [array_entry("a", np.ones(3))])
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space"):
        write_tensors(path, [array_entry("b", np.ones(9)), array_entry("a", np.ones(3))._replace(data=fails)])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_unsupported_dtype_is_refused():
    with pytest.raises(CodecError, match="'a' has dtype complex128"):
        array_entry("a", np.ones(2, complex))
    with pytest.raises(CodecError, match="'a' has dtype <U1"):
        array_entry("a", np.array(["b"]))


def test_header_and_data_are_aligned(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, [array_entry("b", np.ones(3, np.uint8)), array_entry("a", np.ones(2))])
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert length % 8 == 0
    header = json.loads(raw[8 : 8 + length])
    assert header["a"]["data_offsets"] == [0, 16]  # aligned to the item size
    path.write_bytes(raw[:-1])
    with pytest.raises(SafetensorError):
        load_file(path)
