"""Symbol files of MXNet where MXNet is not installed: the graph, damaged files, and inputs."""

import json
import struct

import numpy as np
import pytest

import intus
from intus.core.errors import CodecError, InputError

WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)
SYMBOL = {
    "nodes": [
        {"op": "null", "name": "data", "inputs": []},
        {
            "op": "null",
            "name": "net0_a_dense0_weight",
            "inputs": [],
            "attrs": {"__lr_mult__": "1.0", "__shape__": "(3, 0)"},
        },
        {
            "op": "FullyConnected",
            "name": "net0_a_dense0_fwd",
            "inputs": [[0, 0, 0], [1, 0, 0]],
            "attrs": {"num_hidden": "3"},
        },
        {"op": "null", "name": "net0_a_dense1_weight", "inputs": [], "attrs": {"__lr_mult__": "1.0"}},
        {"op": "FullyConnected", "name": "net0_a_dense1_fwd", "inputs": [[2, 0, 0], [3, 0, 0]]},
        {"op": "elemwise_add", "name": "net0__plus0", "inputs": [[2, 0, 0], [4, 0, 0]]},
    ],
    "arg_nodes": [0, 1, 3],
    "heads": [[5, 0, 0]],
    "attrs": {"mxnet_version": ["int", 10901]},
}


def params(arrays):
    """Return the bytes of a file of parameters, by the format's definition."""
    data = struct.pack("<QQQ", 0x112, 0, len(arrays))
    for one in arrays.values():
        data += (
            struct.pack(f"<IiI{one.ndim}qiii", 0xF993FAC9, 0, one.ndim, *one.shape, 1, 0, 0) + one.tobytes()
        )
    data += struct.pack("<Q", len(arrays))
    return data + b"".join(struct.pack("<Q", len(name)) + name.encode() for name in arrays)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "net-symbol.json"
    path.write_text(json.dumps(SYMBOL))
    return path


def test_graph_without_parameters(path):
    trace = intus.read(path)
    assert [op.type for op in trace.ops] == ["FullyConnected", "FullyConnected", "elemwise_add"]
    assert [op.module or "" for op in trace.ops] == ["a.dense0", "a.dense1", ""]
    assert {param.address: param.shape for param in trace.params}["a.dense0.weight"] == (3, -1)
    assert trace.graph.setting(trace.ops[0].row) == "num_hidden=3"
    assert [parent.label for parent in trace.ops[2].parents] == [op.label for op in trace.ops[:2]]
    assert "no file of parameters" in trace.summary()
    assert intus.view(path).graph.labels == trace.graph.labels


def test_parameters_beside_it(path):
    arrays = {"arg:net0_a_dense0_weight": WEIGHT, "arg:net0_a_dense1_weight": np.ones((3, 3), np.float32)}
    path.with_name("net-0003.params").write_bytes(params(arrays))
    trace = intus.read(path)
    assert {param.address: param.shape for param in trace.params} == {
        "a.dense0.weight": (3, 2),
        "a.dense1.weight": (3, 3),
    }
    assert np.array_equal(trace._parameter("a.dense0.weight"), WEIGHT)
    whole = path.with_name("net-0003.params").read_bytes()
    for cut in (3, 30, 60, len(whole) - 3):
        path.with_name("net-0003.params").write_bytes(whole[:cut])
        with pytest.raises(CodecError, match=r"net-0003.params.*(damaged|truncated)"):
            intus.read(path)


def test_inputs_need_mxnet(path):
    with pytest.raises(InputError, match="MXNet, which is not installed here"):
        intus.read(path, np.ones((1, 2), np.float32))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("nodes"),
        lambda s: s.pop("heads"),
        lambda s: s["nodes"][2].pop("name"),
        lambda s: s["nodes"][2].update(inputs=[[7, 0, 0]]),
        lambda s: s["nodes"][2].update(inputs=[[4, 0, 0]]),
        lambda s: s["nodes"][2].update(inputs=[["a", 0, 0]]),
        lambda s: s["nodes"][2].update(inputs=[[-1, 0, 0]]),
        lambda s: s["nodes"][2].update(attrs=[1]),
        lambda s: s["nodes"][2].update(op=None),
        lambda s: s.update(heads=[[9, 0, 0]]),
        lambda s: s.update(heads=[[5, 10**9, 0]]),
        lambda s: s.update(nodes=[3]),
        lambda s: s.update(attrs={"mxnet_version": 3}),
        lambda s: s["nodes"][1]["attrs"].update(__shape__="(" * 5000),
        lambda s: s["nodes"][1]["attrs"].update(__shape__="__import__('os').abort()"),
    ],
)
def test_damaged_symbols_are_refused_or_drawn(path, change):
    symbol = json.loads(json.dumps(SYMBOL))
    change(symbol)
    path.write_text(json.dumps(symbol))
    refusal = ""
    try:
        assert len(intus.read(path)) in (3, 4)  # one more for an output that only it names
    except CodecError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert not refusal or str(path) in refusal


@pytest.mark.parametrize("operator", ["_Native", "_NDArray", "Custom", "_cvimread"])
@pytest.mark.parametrize("is_inside", [False, True])
def test_operators_that_call_what_a_text_names_are_not_run(operator, is_inside, path):
    symbol = json.loads(json.dumps(SYMBOL))
    if is_inside:
        symbol["nodes"][5] |= {"op": "_foreach", "subgraphs": [{"nodes": [{"op": operator, "name": "a"}]}]}
    else:
        symbol["nodes"][5] |= {
            "op": operator,
            "attrs": {"info": "0x1", "op_type": "x", "filename": "/etc/passwd"},
        }
    path.write_text(json.dumps(symbol))
    assert len(intus.read(path))
    with pytest.raises(CodecError, match=f"is not run: its operator {operator} takes"):
        intus.read(path, np.ones((1, 2), np.float32))


@pytest.mark.parametrize(
    ("heads", "reason"), [([], "it returns nothing: its list of heads is empty"), (None, "it has no 'heads'")]
)
def test_a_symbol_that_returns_nothing_is_refused(path, heads, reason):
    symbol = {key: one for key, one in SYMBOL.items() if key != "heads"}
    path.write_text(json.dumps(symbol if heads is None else {**symbol, "heads": heads}))
    with pytest.raises(CodecError, match=f"is no symbol of MXNet, or is damaged: {reason}"):
        intus.read(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"nodes": ' + "[" * 100_000, "\x80\x04"])
def test_files_that_are_no_symbol(path, text):
    path.write_text(text)
    with pytest.raises(CodecError):
        intus.read(path)


def test_number_of_parameters_of_unknown_shape(path):
    operation = {"op": "FullyConnected", "name": "fc", "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]}
    variables = [{"op": "null", "name": name, "inputs": []} for name in ("data", "fc_weight", "fc_bias")]
    variables[2]["attrs"] = {"__shape__": "(3,)"}
    symbol = {"nodes": [*variables, operation], "arg_nodes": [0, 1, 2], "heads": [[3, 0, 0]]}
    path.write_text(json.dumps(symbol))
    trace = intus.read(path)
    assert {param.address: param.shape for param in trace.params} == {"fc.weight": (-1,), "fc.bias": (3,)}
    assert trace.summary().splitlines()[0].endswith("? parameters")
    assert (
        trace.num_params is trace.num_trainable is trace.param_bytes is trace.modules["fc"].num_params is None
    )
    assert (trace.num_frozen, trace.modules["fc"].own_params[1].nbytes) == (0, 12)
    assert trace.to_pandas()["parameters"].isna().tolist() == [False, True, False]
    assert "?" in next(line for line in trace.summary().splitlines() if line.startswith("fc")).split()
    assert "? parameters" in repr(trace.modules["fc"])
    assert trace.show()
