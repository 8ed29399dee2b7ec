"""Tests of writing values to disk during the pass, and of reading them back."""

import copy
import json
import os
import pickle
import resource
import shutil

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from test_capture_values import overwriting
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from zoo_models import ZOO, make

import intus
from intus.core.errors import AddressError, CaptureError, CodecError, InputError


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and (torch.equal(a, b) or bool(a.isnan().any()))


def read_plainly(folder):
    """Read the folder with safetensors only."""
    index = json.loads((folder / "index.json").read_text())
    found = {}
    for name in index["weight_map"].values():
        with safe_open(folder / name, framework="pt") as file:
            found |= {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    assert index["weight_map"].keys() <= found.keys()
    return {key: found[key] for key in index["weight_map"]}


@pytest.mark.parametrize("name", list(ZOO))
def test_stored_values_equal_values_in_memory(name, tmp_path):
    model, x = make(name)
    whole = intus.trace(model, x, seed=1)
    t = intus.trace(model, x, seed=1, store=tmp_path / "s", shard_bytes=2000)
    plain = read_plainly(tmp_path / "s")
    assert plain.keys() == {whole.graph.label(row) for row in whole.values}
    back = intus.load(tmp_path / "s")
    assert back.graph.labels == t.graph.labels
    for row, value in whole.values.items():
        assert same(t.values[row], value)
        assert same(back.values[row], value)
        assert same(plain[whole.graph.label(row)], value)
    assert bool(t.validate()) == bool(whole.validate())


def test_values_are_split_into_shards(tmp_path):
    t = intus.trace(*make("alexnet"), store=tmp_path, shard_bytes=20_000)
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("values-*.safetensors"))]
    assert len(sizes) == 3
    assert max(sizes) < 120_000
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["metadata"]["total_size"] == sum(sizes)
    assert index["weight_map"]["conv2d_1_1"] == "values-00002.safetensors"
    assert torch.equal(t.rerun({"conv2d_1": 0})["conv2d_1"].value, torch.zeros(t["conv2d_1"].shape))


@pytest.mark.parametrize("limit", [1, 40, 2**20])
def test_stored_values_before_later_inplace_writes(limit, tmp_path):
    x = torch.randn(2, 3)
    whole, t = intus.trace(overwriting, x), intus.trace(overwriting, x, store=tmp_path, shard_bytes=limit)
    assert all(torch.equal(t.values[row], value) for row, value in whole.values.items())

    def unseen(x):
        y = x + 1
        with torch._C.DisableTorchFunction():
            y.add_(1)
        return y * 2

    assert intus.trace(unseen, x, store=tmp_path / "u").maybe_modified == {1}
    assert intus.load(tmp_path / "u")["add_1"].maybe_modified


ALIVE = []


def test_at_most_one_shard_is_in_memory(tmp_path):
    def chain(x):
        refs = []
        for _ in range(40):
            x = F.softplus(x)
            refs.append(StorageWeakRef(x.untyped_storage()))
            ALIVE.append(sum(not ref.expired() for ref in refs))
        return x

    ALIVE.clear()
    x = torch.randn(250_000)  # a megabyte each
    with torch.no_grad():
        t = intus.trace(chain, x, store=tmp_path, shard_bytes=4_000_000)
    assert max(ALIVE) <= 5
    assert len(list(tmp_path.glob("values-*"))) == 11
    ALIVE.clear()
    with torch.no_grad():
        whole = intus.trace(chain, x)
    assert max(ALIVE) == 40
    assert torch.equal(t[39].value, whole[39].value)


def test_views_count_with_their_whole_memory(tmp_path):
    def corners(x):
        total = x.new_zeros(())
        for _ in range(10):
            x = F.softplus(x)
            total = total + x[0]
            ALIVE.append(StorageWeakRef(x.untyped_storage()))
        return total

    ALIVE.clear()
    with torch.no_grad():
        intus.trace(corners, torch.randn(250_000), save="getitem", store=tmp_path, shard_bytes=3_000_000)
    assert len(list(tmp_path.glob("values-*"))) >= 3


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_values_that_cannot_be_stored_have_a_reason(tmp_path):
    def model(x):
        a = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()
        b = (x.to_sparse() * 2).to_dense()
        return a + b + x.double().to(torch.complex128).real.float()

    x = torch.ones(2, 2)
    t = intus.trace(model, x, store=tmp_path)
    assert torch.equal(t["output_1"].value, model(x))
    reasons = {
        "quantize_per_tensor_1": "it is quantized",
        "to_sparse_1": r"it is torch\.sparse_coo",
        "to_1": "it is complex128, which",
    }
    for name, why in reasons.items():
        with pytest.raises(AddressError, match=f"was not stored: {why}"):
            _ = t[name].value
    meta = intus.trace(nn.Linear(2, 1, device="meta"), torch.ones(1, 2, device="meta"), store=tmp_path / "m")
    with pytest.raises(AddressError, match="was not stored: it is on meta"):
        _ = meta["linear_1"].value
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert intus.trace(lambda x: x * 2, jagged, store=tmp_path / "j")["mul_1"].saved is False


def test_store_with_selection_and_dtype(tmp_path):
    model, x = make("alexnet")
    whole = intus.trace(model, x)
    for number, save in enumerate((["conv2d", "linear_1"], -2, slice(-3, None), lambda op: bool(op.params))):
        expected = intus.trace(model, x, save=save)
        t = intus.trace(model, x, save=save, store=tmp_path / str(number), shard_bytes=1, to=torch.float16)
        assert list(t.values) == list(expected.values)
        plain = read_plainly(tmp_path / str(number))
        assert plain.keys() == {op.label for op in t.ops if op.saved}
        for row in t.values:
            assert torch.equal(t.values[row], whole.values[row].half())
            assert torch.equal(plain[t.graph.label(row)], whole.values[row].half())


def test_store_after_model_exception(tmp_path):
    def model(x):
        y = torch.relu(x) + 1
        raise ValueError(str(y.shape))

    with pytest.raises(ValueError, match="Size") as caught:
        intus.trace(model, torch.ones(2), store=tmp_path, shard_bytes=1)
    assert caught.value.intus_trace["add_1"].value.tolist() == [2, 2]
    assert read_plainly(tmp_path)["relu_1_1"].tolist() == [1, 1]
    back = intus.load(tmp_path)
    assert back["add_1"].value.tolist() == [2, 2]
    assert "ValueError" in back.graph.error


def test_store_on_full_disk(tmp_path):
    ran = []

    def model(x):
        for size in (10, 20, 100_000, 30):
            ran.append(x.new_ones(size) * 2)
        return x + sum(part.sum() for part in ran)

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))  # writing more raises OSError
    try:
        with pytest.raises(
            CaptureError, match=r"from 'mul_3_\d' on could not be written to .*File too large"
        ):
            intus.trace(model, torch.ones(1), store=tmp_path, save="mul", shard_bytes=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(ran) == 4
    assert [value.numel() for value in read_plainly(tmp_path).values()] == [10, 20]
    assert not list(tmp_path.glob("*.partial"))


def test_store_when_the_disk_is_full_at_the_end(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (2_000, before[1])
    )  # enough for the values, but not for the graph
    try:
        with pytest.raises(
            CaptureError, match=r"could not be completed: .*File too large.*Its values were written"
        ):
            intus.trace(nn.ReLU(), torch.ones(3), store=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_plainly(tmp_path)["relu_1_1"].tolist() == [1, 1, 1]


def test_invalid_store_raises_before_the_pass(tmp_path):
    ran = []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="store must be a folder, got the file"):
        intus.trace(ran.append, torch.ones(1), store=tmp_path / "file")
    with pytest.raises(InputError, match="shard_bytes must be a positive integer, got 0"):
        intus.trace(ran.append, torch.ones(1), store=tmp_path / "s", shard_bytes=0)
    with pytest.raises(InputError, match="store must be the path of a folder, got 3"):
        intus.trace(ran.append, torch.ones(1), store=3)
    intus.trace(nn.ReLU(), torch.ones(1), store=tmp_path / "s")
    with pytest.raises(InputError, match="has the values of another trace"):
        intus.trace(ran.append, torch.ones(1), store=tmp_path / "s")
    assert not ran
    with pytest.raises(CodecError, match="is a folder, but none that"):
        intus.load(tmp_path)
    (tmp_path / "s" / "index.json").write_text("{}")
    with pytest.raises(CodecError, match=r"index\.json' cannot be read"):
        intus.load(tmp_path / "s")


@pytest.mark.parametrize("stored", [True, False])
def test_copies_pickles_and_files_of_a_trace(stored, tmp_path):
    model, x = make("cnn")
    t = intus.trace(model, x.requires_grad_(), store=tmp_path / "s" if stored else None, grads=True)
    t.output.sum().backward()
    t.save(tmp_path / "t")
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t)), intus.load(tmp_path / "t")):
        assert other.graph.labels == t.graph.labels
        assert all(torch.equal(other.values[row], value) for row, value in t.values.items())
        assert torch.equal(other["conv1"].grad, t["conv1"].grad)
        assert other["conv1"].saved_bytes == t["conv1"].saved_bytes
        with pytest.raises(InputError, match="no calls to run again"):
            other.validate()
        other.values[0] = torch.zeros(1)
        assert other.values[0].tolist() == [0]
        assert t.values[0].shape == x.shape
    assert len(pickle.dumps(t)) < 200_000 + sum(v.nbytes for v in t.values.values()) * (not stored)
    again = intus.load(tmp_path / "t")
    again.save(tmp_path / "t")  # over the file that its values are read from
    assert torch.equal(intus.load(tmp_path / "t")["conv1"].value, again["conv1"].value)


@pytest.mark.skipif(os.name == "nt", reason="Windows does not replace a file that is mapped")
def test_loaded_trace_outlives_its_file(tmp_path):
    """Epochs that are saved under one name: each loaded trace keeps its own values and gradients."""
    net, x, path = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4), tmp_path / "epoch.trace"
    loaded, expected, grads = [], [], []
    for epoch in range(3):
        t = intus.trace(net, x * (epoch + 1), grads=True)
        (t.output * (epoch + 1)).sum().backward()
        t.save(path)
        loaded.append(intus.load(path))
        expected.append(t["0"].value.clone())
        grads.append(t["1"].grad.clone())
    for one, value, grad in zip(loaded, expected, grads, strict=True):
        assert torch.equal(one["0"].value, value)
        assert torch.equal(one["1"].grad, grad)
    copied = copy.deepcopy(loaded[0])  # it opens the file again
    with pytest.raises(CodecError, match=r"epoch\.trace was replaced since it was loaded"):
        _ = copied["1"].value
    last = copy.deepcopy(loaded[2])
    assert torch.equal(last["0"].value, expected[2])
    path.unlink()
    assert torch.equal(loaded[1]["1"].value, expected[1].relu())


def test_file_overwritten_in_place_is_refused(tmp_path):
    net, x = nn.Linear(4, 4), torch.randn(3, 4)
    intus.trace(net, x).save(tmp_path / "a.trace")
    intus.trace(net, x * 2).save(tmp_path / "b.trace")
    loaded = intus.load(tmp_path / "a.trace")
    (tmp_path / "a.trace").write_bytes((tmp_path / "b.trace").read_bytes() + b" ")
    with pytest.raises(CodecError, match=r"a\.trace was replaced since it was loaded"):
        _ = loaded["linear_1"].value


def test_replaced_store_folder_is_refused(tmp_path):
    net, x, folder = nn.Linear(4, 4), torch.randn(3, 4), tmp_path / "store"
    first = intus.trace(net, x, store=folder)
    loaded = intus.load(folder)
    expected = intus.load(folder)["linear_1"].value.clone()
    read = intus.load(folder)
    assert torch.equal(read["input_1"].value, x)
    shutil.rmtree(folder)
    intus.trace(net, x * 7, store=folder)
    for t in (first, loaded):
        with pytest.raises(CodecError, match=r"values-00001\.safetensors was replaced since it was loaded"):
            _ = t["linear_1"].value
    assert torch.equal(read["linear_1"].value, expected)  # its file was opened before
