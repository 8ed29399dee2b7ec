"""GGUF files that the gguf package writes: our parser finds what the package's own reader does."""

import gguf
import numpy as np
import pytest

from intus.reading import read
from intus.reading.gguf import _TYPES, read_header


def test_types_are_those_of_the_library():
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        name = {"F32": "float32", "F16": "float16", "F64": "float64", "BF16": "bfloat16"}.get(kind.name)
        name = name or (
            f"int{kind.name[1:]}" if kind.name[0] == "I" and kind.name[1:].isdigit() else kind.name.lower()
        )
        if kind.value in _TYPES:
            assert _TYPES[kind.value] == (name, block, size)
    assert {kind.value for kind in gguf.GGML_QUANT_SIZES} <= set(_TYPES)


@pytest.mark.parametrize("order", [gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG])
def test_file_of_the_library(tmp_path, order):
    path = tmp_path / "net.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("rope.scale", 0.25)
    writer.add_bool("flag", True)
    writer.add_array("tokens", [f"word {n}" for n in range(40)])
    writer.add_array("few", [1, 2, 3])
    quantize = gguf.quants.quantize
    data = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    writer.add_tensor("blk.0.plain", data[:3, :5])
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0):
        writer.add_tensor(f"blk.0.{kind.name}", quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header, theirs = read_header(path), gguf.GGUFReader(path)
    assert header.tensors == [
        (one.name, tuple(one.shape.tolist()[::-1]), _TYPES[one.tensor_type.value][0], one.n_bytes)
        for one in theirs.tensors
    ]
    assert header.metadata["few"] == theirs.fields["few"].contents()
    assert header.metadata["tokens"] == "40 strings"
    for key in ("general.architecture", "llama.block_count", "rope.scale", "flag"):
        assert header.metadata[key] == theirs.fields[key].contents()
    assert {param.address for param in read(path).graph.params} == {one.name for one in theirs.tensors}
