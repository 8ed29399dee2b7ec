"""Files of weights are read from their headers: names, shapes, dtypes, metadata; no graph."""

import json
import struct
import time

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from intus.core.errors import CodecError, InputError
from intus.reading import read
from intus.viewing.html import View
from intus.viewing.outline import outline, summary


def state():
    layers = [torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), *(torch.nn.Linear(2, 2) for _ in range(9))]
    return {f"layers.{name}": value for name, value in torch.nn.Sequential(*layers).state_dict().items()}


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(tensors, *, metadata=(), version=3, data=None):
    """Return a GGUF file: tensors are (name, shape, number of the type, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, kind, value in metadata:
        head += text(key) + struct.pack("<I", kind) + value
    offset = 0
    for name, shape, kind, size in tensors:
        head += text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", length) for length in reversed(shape))
        head += struct.pack("<IQ", kind, offset)
        offset += -(-size // 32) * 32
    head += b"\0" * (-len(head) % 32)
    return head + (b"\0" * offset if data is None else data)


def test_safetensors(tmp_path):
    path, tensors = tmp_path / "net.safetensors", state()
    tensors["half"] = torch.ones(2, dtype=torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})
    graph, values, *_ = read(path)
    assert values == {}
    assert {p.address: (p.shape, p.dtype, p.nbytes, p.trainable) for p in graph.params} == {
        name: (tuple(t.shape), str(t.dtype).removeprefix("torch."), t.nbytes, t.is_floating_point())
        for name, t in tensors.items()
    }
    assert [m.address for m in graph.modules if m.address.count(".") == 1] == [
        f"layers.{n}" for n in range(11)
    ]
    assert len(graph) == len(graph.edges) == 0
    assert graph.facts["metadata"] == {"format": "pt"}


def test_page_and_text_say_that_there_is_no_graph(tmp_path):
    path = tmp_path / "net.safetensors"
    save_file(state(), path)
    graph = read(path).graph
    assert outline(graph).startswith("net.safetensors (weights only, no graph): 0 operations, 12 modules")
    assert "layers.10.bias parameter 2 2" in " ".join(outline(graph).split())
    assert summary(graph).endswith("not in it, nor which are buffers: all count as parameters.")
    View(graph).save(tmp_path / "net.html")
    assert "net.safetensors (weights only, no graph)" in (tmp_path / "net.html").read_text()
    View(graph, depth="all").save(tmp_path / "net.svg")
    drawn = (tmp_path / "net.svg").read_text()
    assert "weights only, no graph" in drawn
    assert "running_mean" in drawn


def test_sharded_safetensors(tmp_path):
    tensors = state()
    names = sorted(tensors)
    shards = {"model-1-of-2.safetensors": names[:5], "model-2-of-2.safetensors": names[5:]}
    for file, some in shards.items():
        save_file({name: tensors[name] for name in some}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {name: file for file, some in shards.items() for name in some}
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    assert {p.address for p in read(index).graph.params} == set(tensors)
    index.write_text(json.dumps({"weight_map": weight_map | {"more": "model-1-of-2.safetensors"}}))
    with pytest.raises(
        CodecError, match=r"names 'more' as a tensor of 'model-1-of-2.safetensors', which has"
    ):
        read(index)
    index.write_text(json.dumps({"weight_map": {"a": "../net.safetensors"}}))
    with pytest.raises(CodecError, match=r"'../net.safetensors', which is not in its folder"):
        read(index)
    index.write_text(json.dumps({"weight_map": {"a": "model-3-of-2.safetensors"}}))
    with pytest.raises(CodecError, match=r"'model-3-of-2.safetensors', but there is none beside it"):
        read(index)
    index.write_text("[1]")
    with pytest.raises(CodecError, match="it has no weight_map"):
        read(index)


def test_gguf(tmp_path):
    path = tmp_path / "net.gguf"
    words = b"".join(text(f"word {n}") for n in range(20))
    metadata = [
        ("general.architecture", 8, text("llama")),
        ("llama.block_count", 4, struct.pack("<I", 2)),
        ("rope.scale", 6, struct.pack("<f", 0.5)),
        ("few", 9, struct.pack("<IQ3i", 5, 3, 1, 2, 3)),
        ("tokenizer.tokens", 9, struct.pack("<IQ", 8, 20) + words),
    ]
    tensors = [("blk.0.attn_q.weight", (4, 256), 12, 576), ("blk.0.norm.weight", (3,), 0, 12)]
    path.write_bytes(gguf(tensors, metadata=metadata))
    graph = read(path).graph
    assert [(p.address, p.shape, p.dtype, p.nbytes) for p in graph.params] == [
        ("blk.0.attn_q.weight", (4, 256), "q4_k", 576),
        ("blk.0.norm.weight", (3,), "float32", 12),
    ]
    assert [m.address for m in graph.modules] == ["", "blk", "blk.0", "blk.0.attn_q", "blk.0.norm"]
    assert graph.facts["metadata"] == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "rope.scale": 0.5,
        "few": [1, 2, 3],
        "tokenizer.tokens": "20 strings",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGUF\x03\0\0\0", "truncated: it ends in its header"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9 of GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "is damaged: it has .* tensors"),
        (gguf([("a", (2, 2), 0, 16)], data=b""), "is truncated: 'a' ends at byte"),
        (gguf([], metadata=[("a", 77, b"")]), "unknown type 77"),
    ],
)
def test_damaged_gguf(tmp_path, content, message):
    path = tmp_path / "net.gguf"
    path.write_bytes(content)
    with pytest.raises(CodecError, match=message):
        read(path)


def test_file_of_a_hundred_gigabytes_opens_at_once(tmp_path):
    size = 100 * 2**30
    shape = [size // 4]
    header = json.dumps({"big.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    safetensors = tmp_path / "big.safetensors"
    safetensors.write_bytes(struct.pack("<Q", len(header)) + header)
    ours = tmp_path / "big.gguf"
    ours.write_bytes(gguf([("big.weight", tuple(shape), 0, 0)]))
    for path in (safetensors, ours):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size + size)
        before = time.process_time()
        graph = read(path).graph
        assert time.process_time() - before < 0.5
        assert graph.params[0].nbytes == size


def test_truncated_safetensors(tmp_path):
    path = tmp_path / "net.safetensors"
    save_file(state(), path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CodecError, match="damaged or truncated"):
        read(path)


def test_inputs_are_refused(tmp_path):
    path = tmp_path / "net.safetensors"
    save_file(state(), path)
    with pytest.raises(InputError, match=r"net.safetensors holds weights only, so it cannot run on inputs"):
        read(path, (np.ones(2),))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("net.onnx", b"", "is empty"),
        ("net.pt", b"\x80\x02}q\0.", "is a pickle, which can run code"),
        ("net.h5", b"\x89HDF\r\n\x1a\n", "is an HDF5 file. Load it with Keras"),
        ("net.tflite", b"\x1c\0\0\0TFL3" + bytes(20), "is a TFLite file"),
        ("net.txt", b"hello, this is a text", "is in no format that intus reads"),
    ],
)
def test_other_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(CodecError, match=message):
        read(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        read(tmp_path / "net.onnx")
    with pytest.raises(InputError, match=r"is a folder. Name a file that ends in .onnx"):
        read(tmp_path)
