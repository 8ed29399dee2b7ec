"""Files with checksums: damage is refused when a value is read, and ``intus verify`` finds it."""

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import intus
from intus.cli import main
from intus.core.errors import CodecError, InputError
from intus.core.graph import OP_COLUMNS
from intus.core.record import Record
from intus.storage.codec import GRAPH_FORMAT, decode_records, encode_records
from intus.storage.tensors import CheckedFile
from intus.storage.verify import verify
from intus.tracing.collect import Collected

OLD = Path(__file__).parent / "files" / "format-1.trace"

#: The columns of operations in each format. Whoever changes them raises GRAPH_FORMAT and adds a line.
COLUMNS = {
    "2": "kind type layer passno call meta event output time site flags setting",
}


class Net(torch.nn.Module):
    """Linear, BatchNorm, and a scalar: a trace has values of several dtypes and shapes."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 5)
        self.norm = torch.nn.BatchNorm1d(5)

    def forward(self, x):
        y = self.norm(self.linear(x)).relu()
        return y, y.bfloat16(), y > 0, y.sum(), y.argmax(1)


def traced(**options):
    torch.manual_seed(0)
    t = intus.trace(Net(), torch.randn(4, 6), grads=True, **options)
    t.output[0].sum().backward()
    return t


def everything(path):
    """Return all that a loaded trace says, as comparable Python values."""
    t = intus.load(path)
    table = t.to_pandas().drop(columns=["seconds"]).astype(str).to_dict()
    values = {row: (str(v.dtype), v.float().tolist()) for row, v in t.values.items()}
    grads = {row: grad.tolist() for row, grad in t.gradients.by_row.items()}
    return table, values, grads, t.graph.params, t.graph.modules, dict(t.graph.facts)


def damaged(data, rng):
    """Return the bytes of a file with one seeded corruption, and what it is."""
    data, size = bytearray(data), len(data)
    kind = rng.choice(["flip", "flip", "truncate", "zero", "byte", "insert", "swap"])
    if kind == "flip":
        data[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif kind == "truncate":
        del data[rng.randrange(size) :]
    elif kind == "zero":
        start = rng.randrange(size)
        stop = min(size, start + rng.choice([1, 8, 64, 512]))
        data[start:stop] = bytes(stop - start)
    elif kind == "byte":
        data[rng.randrange(size)] = rng.randrange(256)
    elif kind == "insert":
        at = rng.randrange(size + 1)
        data[at:at] = rng.randbytes(rng.choice([1, 8]))
    else:  # two blocks of the file change places
        at, other = sorted(rng.sample(range(size - 16), 2))
        data[at : at + 16], data[other : other + 16] = data[other : other + 16], data[at : at + 16]
    return bytes(data), kind


@pytest.mark.long
def test_no_seeded_corruption_loads_as_data(tmp_path):
    whole = tmp_path / "whole.trace"
    traced().save(whole)
    original, expected = whole.read_bytes(), everything(whole)
    broken, changed = tmp_path / "broken.trace", 0
    for seed in range(540):
        data, kind = damaged(original, random.Random(seed))
        broken.write_bytes(data)
        if data == original:  # zeros over zeros
            assert everything(broken) == expected
            continue
        changed += 1
        with pytest.raises(CodecError) as caught:
            everything(broken)
        assert str(broken) in str(caught.value), (seed, kind)
        assert verify(broken).faults, (seed, kind)
    assert changed > 500
    assert not verify(whole).faults


def test_no_seeded_corruption_of_a_folder_loads_as_data(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    traced(store=whole)
    expected = everything(whole)
    files = sorted(os.listdir(whole))
    assert {"index.json", "graph.safetensors", "values-00001.safetensors"} == set(files)
    for seed in range(90):
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(whole, broken)
        name = files[seed % len(files)]
        original = (whole / name).read_bytes()
        data, kind = damaged(original, random.Random(seed))
        (broken / name).write_bytes(data)
        if data == original:
            continue
        if name == "index.json" and json_of(data) == json_of(original):
            continue  # whitespace
        with pytest.raises(CodecError):
            everything(broken)
        assert verify(broken).faults, (seed, kind, name)
    assert everything(whole) == expected
    assert not verify(whole).faults


def json_of(data):
    try:
        return json.loads(data)
    except ValueError:
        return None


def test_only_the_damaged_value_is_refused_and_named(tmp_path):
    path = tmp_path / "a.trace"
    t = traced()
    t.save(path)
    data = bytearray(path.read_bytes())
    start, stop = CheckedFile(path).spans[f"value/{t['relu_1'].row}"]
    assert data[start:stop] == t["relu_1"].value.numpy().tobytes()
    data[start] ^= 1
    path.write_bytes(data)
    loaded, label = intus.load(path), t["relu_1"].label
    assert torch.equal(loaded["linear_1"].value, t["linear_1"].value)
    for _ in range(2):
        with pytest.raises(CodecError, match=rf"a\.trace is damaged: the value of {label} is not as"):
            loaded["relu_1"].value  # noqa: B018
    assert [fault.count(label) for fault in verify(path).faults] == [1]


def test_files_remain_readable_by_safetensors(tmp_path):
    t = traced()
    t.save(tmp_path / "a.trace")
    read = load_file(tmp_path / "a.trace")
    assert {int(name[6:]) for name in read if name.startswith("value/")} == set(t.values)
    assert torch.equal(read[f"value/{t['relu_1'].row}"], t["relu_1"].value)


def test_file_of_format_1_loads_and_cannot_be_verified(capsys):
    t = intus.load(OLD)
    assert [op.label for op in t.ops] == ["linear_1_1", "batch_norm_1_2", "relu_1_3"]
    assert t["relu_1"].value.tolist() == [[0.0, pytest.approx(0.5450, abs=1e-4)], [0.0, 0.0]]
    assert t["linear_1"].grad is not None
    assert [op.buffer_address for op in t.buffers] == ["bn.running_mean", "bn.running_var"]
    assert "written by intus in format 1 and has no checksums" in verify(OLD).faults[0]
    assert main(["verify", str(OLD)]) == 1
    assert "no checksums" in capsys.readouterr().out


def test_file_without_its_checksums_is_refused(tmp_path):
    path = tmp_path / "a.trace"
    traced().save(path)
    path.write_bytes(path.read_bytes().replace(b'"header_crc32":"', b'"header_crc31":"'))
    with pytest.raises(CodecError, match="a file of format 2 has checksums, and it has none"):
        intus.load(path)


def test_file_of_a_later_format_names_it(tmp_path):
    path = tmp_path / "a.trace"
    traced().save(path)
    data = path.read_bytes().replace(b'"header_crc32":"', b'"header_crc31":"')
    path.write_bytes(data.replace(b'"intus":"2"', b'"intus":"9"'))
    with pytest.raises(CodecError, match="another version of intus, in format '9'; this version reads"):
        intus.load(path)


def test_format_rises_with_the_columns():
    assert COLUMNS[GRAPH_FORMAT] == " ".join(column.name for column in OP_COLUMNS)


def test_collected_file_is_verified(tmp_path, capsys):
    path = tmp_path / "a.safetensors"
    torch.manual_seed(0)
    acts = intus.collect(Net().eval(), torch.randn(8, 6).split(4), ["linear"], path)
    wanted = acts["linear"].numpy().tobytes()
    with safe_open(path, framework="pt") as file:
        assert file.get_tensor("linear").numpy().tobytes() == wanted
    assert main(["verify", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: 1 tensors (160 B) as they were written\n"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert main(["verify", str(path)]) == 1
    assert "the tensor 'linear' is not as it was written" in capsys.readouterr().out
    path.write_bytes(bytes(data).replace(b'"shape":[8,5]', b'"shape":[5,8]'))
    with pytest.raises(CodecError, match="header is not as it was written"):
        Collected(path)


def test_verify_names_what_it_cannot_read(tmp_path, capsys):
    assert main(["verify", str(tmp_path / "none.trace")]) == 1
    assert "none.trace cannot be read: No such file" in capsys.readouterr().err
    (tmp_path / "text.trace").write_text("hello")
    assert main(["verify", str(tmp_path / "text.trace")]) == 1
    assert "is not a safetensors file" in capsys.readouterr().out
    assert "folder, but none" in verify(tmp_path).faults[0]


def test_value_that_cannot_be_stored_is_refused(tmp_path):
    with pytest.raises(InputError, match="sparse"):
        intus.trace(lambda x: x.to_sparse() * 2, torch.ones(2)).save(tmp_path / "a.trace")


def test_lone_surrogate_in_names(tmp_path, capsys):
    net = torch.nn.Sequential()
    net.add_module("a\ud800b", torch.nn.Linear(2, 3))
    t = intus.trace(lambda mask: net(mask["k\udfff"]), {"mask": {"k\udfff": torch.ones(1, 2)}})
    t.save(tmp_path / "a.trace")
    assert t.inputs[0].shape == (1, 2)
    for t in (intus.trace(net, torch.ones(1, 2)), intus.trace(net, torch.ones(1, 2), store=tmp_path / "b")):
        t.save(tmp_path / "a.trace")
        loaded = intus.load(tmp_path / "a.trace")
        assert torch.equal(loaded["a\\ud800b"].value, t["linear_1"].value)
        assert loaded.graph.params == t.graph.params
        for suffix in ("html", "svg", "dot", "json"):
            t.draw(tmp_path / f"a.{suffix}")
            assert "ud800b" in (tmp_path / f"a.{suffix}").read_text(encoding="utf-8") or suffix == "html"
        print(t)
        assert "a\\ud800b" in capsys.readouterr().out
    assert not verify(tmp_path / "b").faults
    acts = intus.collect(net, torch.ones(4, 2).split(2), ["linear_1"], tmp_path / "c")
    assert acts["linear_1"].shape == (4, 3)


def test_lone_surrogate_in_records():
    record = Record(np.ones((2, 3), np.float32), "a\ud800b")
    (back,), envelope = decode_records(encode_records([record], {"run": "\udfff"}))
    assert (back.address, envelope) == ("a\ud800b", {"run": "\udfff"})
