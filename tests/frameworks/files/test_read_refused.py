"""Files that are refused by what they are, and faults of the caller that are not the file's."""

import os
import struct
import sys
import time

import numpy as np
import pytest
import torch

import intus
from intus import reading
from intus.core.errors import CodecError, InputError, MissingExtraError


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("refused") / "net.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(4, 3), (torch.ones(1, 4),)), path)
    return path


@pytest.mark.parametrize("name", ["net.onnx", "net.pt2", "net.gguf", "net.safetensors", "net-symbol.json"])
def test_pipe_is_not_opened(name, tmp_path):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(InputError, match="is no regular file"):
        intus.read(path)


class Array:
    """An array of another framework, such as an NDArray of MXNet."""

    def __init__(self, array):
        self._array = array

    def asnumpy(self):
        return self._array

    def detach(self):
        return self


class Convertible:
    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array


class Broken:
    def __array__(self, dtype=None, copy=None):
        raise AttributeError("it has no attribute of that name")


@pytest.mark.parametrize("make", [Array, Convertible, list])
def test_arrays_of_other_frameworks_are_inputs(make, exported):
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    x.flags.writeable = False  # as an array of jax is
    expected = intus.read(exported, torch.tensor(x)).outputs[0].value
    assert np.array_equal(intus.read(exported, make(x)).outputs[0].value, expected)


def test_input_that_raises_is_not_the_fault_of_the_file(exported):
    with pytest.raises(InputError, match=r"The input 'input' of net\.pt2 is no array: it has no attribute"):
        intus.read(exported, Broken())


class InterruptedByHandlerError(Exception):
    """An exception that the handler of a signal raises."""


def test_exception_that_is_not_of_the_file_is_raised_as_it_is(exported, monkeypatch):
    def interrupted(*_, **__):
        raise InterruptedByHandlerError("time is over")

    monkeypatch.setattr("intus.reading.export.json.loads", interrupted)
    with pytest.raises(InterruptedByHandlerError):
        reading.read(exported)


def test_values_without_torch_name_the_extra(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"intus\[torch\]"):
        reading.read(exported, (np.ones((1, 4), np.float32),))


def gguf(*tensors):
    """Return a GGUF file of tensors of two numbers, by name and type."""
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0)
    for number, (name, kind) in enumerate(tensors):
        data += struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 2, kind, 32 * number)
    return data + bytes(-len(data) % 32) + bytes(32 * len(tensors))


def test_gguf_with_two_tensors_of_a_name(tmp_path):
    path = tmp_path / "two.gguf"
    path.write_bytes(gguf((b"a", 0), (b"a", 0)))
    with pytest.raises(CodecError, match="two tensors of the name 'a'"):
        intus.read(path)


def test_gguf_with_an_unknown_type_says_that_its_size_is_not_known(tmp_path):
    path = tmp_path / "unknown.gguf"
    path.write_bytes(gguf((b"a", 0), (b"b", 199)))
    notes = intus.read(path).graph.facts["notes"]
    assert notes[-1] == "The size of 'b' (type 199) is not known and not counted."


@pytest.mark.parametrize("data", [bytes(64), b"plain text, long enough", bytes(range(100, 164))])
def test_gguf_that_is_none(data, tmp_path):
    path = tmp_path / "none.gguf"
    path.write_bytes(data)
    with pytest.raises(CodecError, match="is no GGUF file"):
        intus.read(path)


def test_safetensors_with_a_name_in_too_many_modules(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "deep.safetensors"
    save_file({"a." * 20_000 + "w": np.ones(2, np.float32)}, path)
    began = time.process_time()
    with pytest.raises(CodecError, match="is inside of 20,000 modules, more than 200"):
        intus.read(path)
    assert time.process_time() - began < 5


class Constant(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))

    def forward(self):
        return self.weight * 2


def test_program_without_inputs_has_values(tmp_path):
    path = tmp_path / "constant.pt2"
    torch.export.save(torch.export.export(Constant(), ()), path)
    assert not intus.read(path).outputs[0].saved
    for given in ((), {}):
        assert np.array_equal(intus.read(path, given).outputs[0].value, [0, 2, 4])
