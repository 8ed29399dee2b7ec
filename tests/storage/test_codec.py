"""Records and graphs as bytes: round trips, and hostile input is refused with CodecError."""

import json
from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

from intus.core.errors import CodecError
from intus.core.graph import OP_COLUMNS, Calls, Edges, Graph, Meta, ModuleInfo, Ops, Param, Source
from intus.core.projection import PROJECTED, SUMMARY
from intus.core.record import KINDS, Record
from intus.storage.codec import (
    decode_graph,
    decode_records,
    encode_graph,
    encode_records,
    graph_parts,
)

dtypes = st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "?"])


@st.composite
def records(draw):
    dtype = np.dtype(draw(dtypes))
    array = draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
    axis = draw(st.none() | st.integers(0, max(array.ndim, 1) - 1))
    record = Record(
        array,
        draw(st.text(max_size=8)),
        kind=draw(st.sampled_from(KINDS)),
        run=draw(st.text(max_size=4)),
        model=draw(st.text(max_size=4)),
        step=draw(st.none() | st.integers(0, 2**53)),
        epoch=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        mode=draw(st.sampled_from(["", "train", "eval"])),
        batch_axis=axis,
        index=draw(st.integers(0, 9)),
    )
    if draw(st.booleans()):
        items = draw(hnp.arrays(np.int64, record.rows))
        record = replace(record, items=items)
    return record


def assert_same(one, other):
    for field in fields(Record):
        before, after = getattr(one, field.name), getattr(other, field.name)
        if isinstance(before, np.ndarray):
            assert before.dtype == after.dtype
            np.testing.assert_array_equal(before, after)
        else:
            assert before == after
            assert type(before) is type(after)


@given(
    st.lists(records(), max_size=4), st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4))
)
def test_records_round_trip(sent, envelope):
    got, beside = decode_records(encode_records(sent, envelope))
    assert beside == envelope
    assert len(got) == len(sent)
    for one, other in zip(sent, got, strict=True):
        assert_same(one, other)


@given(st.lists(records(), min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=6))
def test_shared_arrays_round_trip(own, of):
    """Records with the arrays of others, in any order, come back equal and still share them."""
    shared = [replace(own[number % len(own)], address=f"again {at}") for at, number in enumerate(of)]
    sent = own + shared
    blob = encode_records(sent)
    got, _ = decode_records(blob)
    for before, after in zip(sent, got, strict=True):
        assert_same(before, after)
    for at, number in enumerate(of):
        assert got[len(own) + at].array is got[number % len(own)].array
    assert len(encode_records(got)) == len(blob)


def test_noncontiguous_array_round_trip():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1)[::2]
    (record,), _ = decode_records(encode_records([Record(array, "a", items=np.arange(4)[::2])]))
    np.testing.assert_array_equal(record.array, array)
    assert record.items.tolist() == [0, 2]


@given(st.data())
def test_corrupted_records_raise_only_codec_error(data):
    blob = bytearray(
        encode_records([Record(np.ones((2, 3), np.float32), "fc1", items=np.arange(2))], {"seq": 1})
    )
    if data.draw(st.booleans()):
        blob = blob[: data.draw(st.integers(0, len(blob) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    for decode in (decode_records, decode_graph):
        with suppress(CodecError):
            decode(bytes(blob))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(blob):
    for decode in (decode_records, decode_graph):
        with pytest.raises(CodecError):
            decode(blob)


FACT = {
    "address": "a", "kind": "output", "run": "", "model": "", "step": None, "epoch": None, "mode": "",
    "batch_axis": 0, "index": 0,
}  # fmt: skip


def blob_of(facts, *, arrays=None, envelope="{}"):
    arrays = {"0": np.zeros((2, 2), np.float32)} if arrays is None else arrays
    return save(
        arrays,
        {
            "intus": "1",
            "records": facts if isinstance(facts, str) else json.dumps(facts),
            "envelope": envelope,
        },
    )


def test_handmade_blob_is_valid():
    assert decode_records(blob_of([FACT]))[0][0].address == "a"


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xff" * 8,
        (2**63).to_bytes(8, "little") + b"{}",
        blob_of("[NaN]"),
        blob_of("[{]"),
        blob_of(DEEP),
        blob_of([FACT], envelope=DEEP),
        blob_of([FACT], envelope="[1]"),
        blob_of([FACT], envelope='{"seq": Infinity}'),
        blob_of({"0": FACT}),
        blob_of([FACT, FACT]),
        blob_of([None]),
        blob_of([{}]),
        *(blob_of([{name: value for name, value in FACT.items() if name != gone}]) for gone in FACT),
        blob_of([FACT | {"statistics": 5}]),
        *(blob_of([FACT, FACT | {"same_as": wrong}]) for wrong in (1, 2, -1, "0", 0.0, True, [0])),
        blob_of([FACT | {"same_as": 0}]),
        blob_of([FACT | {"address": 5}]),
        blob_of([FACT | {"kind": "outputs"}]),
        blob_of([FACT | {"step": 1.5}]),
        blob_of([FACT | {"step": True}]),
        blob_of([FACT | {"epoch": "1"}]),
        blob_of([FACT | {"batch_axis": 2}]),
        blob_of([FACT | {"batch_axis": -1}]),
        blob_of([FACT], arrays={"0": np.zeros((2, 2), np.float32), "0.items": np.zeros(3, np.int64)}),
        blob_of([FACT], arrays={"0": np.zeros((2, 2), np.float32), "0.items": np.zeros(2, np.float32)}),
        blob_of([FACT], arrays={"0": np.zeros((2, 2), np.complex64)}),
        save({"0": np.zeros(2, np.float32)}),
        save({"0": np.zeros(2, np.float32)}, {"intus": "4", "records": "[]"}),
        encode_records([])[:-1],
    ],
    ids=lambda blob: str(len(blob)),  # the bytes themselves vary: safetensors' metadata has no order
)
def test_invalid_records_are_refused_with_a_sentence(blob):
    with pytest.raises(CodecError) as caught:
        decode_records(blob)
    assert str(caught.value).endswith(".")


# -- graphs ----------------------------------------------------------------------------------------------


def column(*values):
    return np.array(values, dtype=np.int64)


def small_graph(**changes):
    graph = Graph(
        model="Net",
        types=("input", "relu"),
        metas=(Meta((1, 3), "float32", "cpu", 12),),
        sites=(Source("net.py", 7, "forward"),),
        args=("0",),
        params=(Param("w", (3,), "float32", 12, True),),
        modules=(ModuleInfo("", "Net", "a=1"),),
        ops=Ops(2, kind=column(1, 0), type=[0, 1], layer=[0, 1], call=[-1, 0], site=[0, 0], event=[0, 0]),
        edges=Edges(column(0), column(1), column(0)),
        calls=Calls(column(0), column(1), column(-1), column(1), column(2)),
        op_params=np.array([[1, 0]]),
        exits=np.array([[1, 0]]),
        error="ValueError: no",
        facts={"seconds": 0.5, "seed": None},
    )
    return replace(graph, **changes)


def test_graph_round_trip():
    graph = small_graph()
    got, arrays = decode_graph(encode_graph(graph, {"1": np.ones((1, 3), np.float32)}))
    assert arrays["1"].tolist() == [[1, 1, 1]]
    for field in fields(Graph):
        before, after = getattr(graph, field.name), getattr(got, field.name)
        if field.name == "ops":
            for name, column in before.columns().items():
                np.testing.assert_array_equal(column, getattr(after, name))
        elif field.name in ("edges", "calls"):
            for part in fields(before):
                np.testing.assert_array_equal(getattr(before, part.name), getattr(after, part.name))
        elif isinstance(before, np.ndarray):
            np.testing.assert_array_equal(before, after)
        else:
            assert before == after
            assert type(before) is type(after)
    assert got.labels == graph.labels
    assert isinstance(got.metas[0], Meta)


def with_column(table, name, values, dtype=np.int64):
    """Return the bytes of a graph with one column replaced."""
    columns, meta = graph_parts(small_graph())
    columns[f"{table}/{name}"] = np.array(values, dtype=dtype)
    return save(columns, meta)


@pytest.mark.parametrize(
    "graph",
    [
        with_column("ops", "kind", [1, 6]),
        with_column("ops", "kind", [-1, 0]),
        with_column("ops", "type", [0, 2]),
        with_column("ops", "layer", [0, 10**9]),
        with_column("ops", "layer", [-1, 0]),
        with_column("ops", "layer", [0, 0.5], np.float64),
        with_column("ops", "layer", [[0], [1]]),
        with_column("ops", "call", [0, 1]),
        with_column("ops", "meta", [0, 1]),
        with_column("ops", "site", [-2, 0]),
        with_column("ops", "passno", [1]),
        with_column("ops", "passno", [1, -5]),
        with_column("ops", "time", [0.0, float("nan")], np.float64),
        with_column("edges", "src", [2]),
        with_column("edges", "dst", [-1]),
        with_column("edges", "arg", [1]),
        with_column("calls", "module", [1]),
        with_column("calls", "parent", [0]),
        with_column("calls", "start", [9]),
        with_column("calls", "stop", [-1]),
        small_graph(op_params=np.array([[1, 1]])),
        small_graph(op_params=np.array([1, 0])),
        small_graph(op_params=np.array([[0.5, 0.0]])),
        small_graph(exits=np.array([[2, 0]])),
        small_graph(exits=np.array([[-1, 0]])),
        small_graph(types=("input", 5)),
        small_graph(metas=(Meta((1, "x"), "float32", "cpu", 12),)),
        small_graph(metas=(("scalar",),)),
        small_graph(sites=(("net.py",),)),
        small_graph(sites=(("net.py", "seven", "f"),)),
        small_graph(params=((),)),
        small_graph(modules=((1, 2, 3),)),
        small_graph(model=5),
        small_graph(error=None),
    ],
)  # fmt: skip
def test_graphs_with_invalid_indices_are_refused(graph):
    with pytest.raises(CodecError) as caught:
        decode_graph(graph if isinstance(graph, bytes) else encode_graph(graph))
    assert str(caught.value).endswith(".")


def test_missing_optional_column_takes_default():
    columns, meta = graph_parts(small_graph())
    del columns["ops/setting"]
    graph, _ = decode_graph(save(columns, meta))
    assert graph.ops.setting.tolist() == [-1, -1]
    columns["op_settings"] = np.array([-1, 0], np.int32)  # its name in older versions
    meta["graph"] = meta["graph"].replace('"settings":[]', '"settings":["dim=1"]')
    graph, _ = decode_graph(save(columns, meta))
    assert [graph.setting(row) for row in range(2)] == ["", "dim=1"]


@pytest.mark.parametrize("name", [column.name for column in OP_COLUMNS if column.required])
def test_missing_required_column_is_named(name):
    columns, meta = graph_parts(small_graph())
    del columns[f"ops/{name}"]
    with pytest.raises(CodecError, match=f"has no column ops/{name}.*written by another version"):
        decode_graph(save(columns, meta))


def test_missing_fields_at_the_end_take_defaults():
    """Files of older versions lack the placements of tensors and parameters."""
    columns, meta = graph_parts(small_graph())
    graph = json.loads(meta["graph"])
    graph["metas"] = [row[:4] for row in graph["metas"]]
    graph["params"] = [row[:5] for row in graph["params"]]
    meta["graph"] = json.dumps(graph)
    decoded, _ = decode_graph(save(columns, meta))
    assert (decoded.metas, decoded.params) == (small_graph().metas, small_graph().params)
    graph["metas"] = [row[:3] for row in graph["metas"]]
    meta["graph"] = json.dumps(graph)
    with pytest.raises(CodecError):
        decode_graph(save(columns, meta))


def test_unknown_columns_are_ignored():
    columns, meta = graph_parts(small_graph())
    columns["ops/allocated"] = np.array([5, 6])
    graph, _ = decode_graph(save(columns, meta))
    assert graph.labels == small_graph().labels


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"model": NaN}', DEEP, '"x"'])
def test_graph_without_metadata_object_is_refused(text):
    with pytest.raises(CodecError):
        decode_graph(save({"op_params": np.zeros((0, 2), np.int64)}, {"intus": "1", "graph": text}))


@pytest.mark.parametrize(("src", "dst"), [((0, 0), (2, 1)), ((1, 2), (1, 2)), ((2, 1), (1, 2))])
def test_unsorted_or_backward_edges_are_refused(src, dst):
    ops = Ops(3, layer=[0, 1, 2], call=[0, 0, 0])
    graph = small_graph(ops=ops, edges=Edges(column(*src), column(*dst), column(0, 0)))
    with pytest.raises(CodecError, match="edges/dst"):
        decode_graph(encode_graph(graph))


@given(st.data())
def test_corrupted_graph_raises_codec_error_or_is_usable(data):
    blob = bytearray(encode_graph(small_graph()))
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        graph, _ = decode_graph(bytes(blob))
    except CodecError:
        return
    assert len(graph.labels) == len(graph.ops)
    assert sum(1 for _ in graph.names()) > 0
    for row in range(len(graph.ops)):
        graph.parents(row), graph.children(row), graph.enclosing_calls(row)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"projected_from": True}, "projected from True"),
        ({"projected_from": -4}, "projected from -4"),
        ({"projected_from": "9"}, "projected from '9'"),
        ({"array": np.zeros((2, 8), np.float32)}, r"shape \(2, 8\), cannot be projected from 9000"),
        ({"summary": np.zeros((3, 8), np.float32)}, r"must have shape \(2, 8\), got \(3, 8\)"),
        ({"summary": np.zeros((2, 8))}, "must be float32, got float64"),
    ],
)
def test_projected_record_round_trip_and_invalid_facts_refused(wrong, message):
    array, measured = np.ones((2, PROJECTED), np.float32), np.ones((2, len(SUMMARY)), np.float32)
    record = Record(array, "x", projected_from=9000, summary=measured)
    blob = encode_records([record])
    (back,), _ = decode_records(blob)
    assert back.projected_from == 9000
    assert np.array_equal(back.summary, measured)
    arrays = {"0": wrong.get("array", array), "0.summary": wrong.get("summary", measured)}
    meta = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]
    facts = json.loads(meta["records"])
    facts[0]["projected_from"] = wrong.get("projected_from", 9000)
    with pytest.raises(CodecError, match=message):
        decode_records(save(arrays, meta | {"records": json.dumps(facts)}))
