"""Files of torch.export: read without being loaded, with the values that torch computes."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from residual_block import Block
from torch import nn

import intus
from intus.core.errors import CodecError, InputError
from intus.core.nested import paths
from intus.reading import bounds, read


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.blocks = nn.ModuleList([Block("tanh") for _ in range(2)])
        self.register_buffer("scale", torch.tensor(0.5, dtype=torch.bfloat16))

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x))).mean((2, 3)) * self.scale
        left, right = x.chunk(2, dim=1)
        for block in self.blocks:
            x = block(torch.cat([right, left], 1))
        return x.reshape(x.shape[0], -1, 2)


class Branches(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() + 1, (x,))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    path = tmp_path_factory.mktemp("export") / "net.pt2"
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)), path)
    return net, path


def changed(path, folder, change):
    """Copy a file with another graph."""
    copy = folder / "changed.pt2"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("models/model.json"):
                program = json.loads(data)
                change(program)
                data = json.dumps(program).encode()
            target.writestr(name, data)
    return copy


def test_values_have_the_bits_of_torch(exported):
    net, path = exported
    x = torch.randn(3, 3, 8, 8)
    theirs = intus.trace(net, x)
    graph, values, *_ = read(path, (x,))
    assert set(values) == set(range(len(graph.ops)))
    for address in theirs.modules:
        rows = graph.rows(address)
        if address and rows:
            assert np.array_equal(values[rows[-1]], theirs.value(f"{address}").detach().numpy()), address
    assert {"conv", "bn", "blocks.0", "blocks.1.norm"} <= {m.address for m in graph.modules}
    assert np.array_equal(values[graph.rows_of(2)[0]], net(x).detach().numpy())


def test_structure_is_that_of_torch(exported):
    net, path = exported
    graph, values, *_ = read(path)
    assert values == {}
    ours = {p.address: (p.shape, p.dtype, p.trainable) for p in graph.params}
    assert ours == {
        name: (tuple(p.shape), str(p.dtype).removeprefix("torch."), p.requires_grad)
        for name, p in net.named_parameters()
    }
    assert {b.address for b in graph.buffers} == dict(net.named_buffers()).keys()
    assert graph.modules[0].type == "Net"
    traced = intus.trace(net, torch.randn(2, 3, 8, 8)).graph
    assert [graph.type_of(row) for row in graph.rows_of(0)][:4] == [
        traced.type_of(row) for row in traced.rows_of(0)
    ][:4]
    assert graph.metas[graph.ops.meta[0]].shape == (-1, 3, 8, 8)
    assert "approximate='tanh'" in graph.settings


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_of_cond(tmp_path, sign):
    x = sign * torch.ones(3)
    path = tmp_path / "branches.pt2"
    torch.export.save(torch.export.export(Branches(), (x,)), path)
    graph, values, *_ = read(path, (x,))
    (end,) = graph.rows_of(2)
    assert np.array_equal(values[end], Branches()(x).numpy())
    without = {graph.type_of(row) for row in range(len(graph.ops)) if row not in values}
    assert without == ({"cos", "add"} if sign > 0 else {"sin"})
    assert graph.facts["notes"] == ["Of cond, the operations of the branch that was not taken have no value."]


def test_transformer(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        vocab_size=50,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    net, ids = transformers.BertModel(config).eval(), torch.randint(0, 50, (2, 7))
    path = tmp_path / "bert.pt2"
    torch.export.save(torch.export.export(net, (), {"input_ids": ids}), path)
    graph, values, *_ = read(path, (), {"input_ids": ids})
    theirs = intus.trace(net, input_ids=ids)
    for address in ("embeddings", "encoder.layer.0.attention.self.query", "encoder.layer.1", "pooler"):
        row = graph.rows(address)[0]
        assert np.array_equal(values[row], theirs.value(address).detach().numpy()), address


def test_functions_that_a_file_names_are_not_called(exported, tmp_path):
    _, path = exported
    trap = tmp_path / "trap"
    code = f"__import__('pathlib').Path({str(trap)!r}).touch()"

    def change(program):
        graph = program["graph_module"]["graph"]
        relu = next(node for node in graph["nodes"] if "relu" in node["target"])
        relu["target"] = "os.system"
        relu["inputs"] = [{"name": "command", "arg": {"as_string": f"touch {trap}"}, "kind": 1}]
        for meta in graph["tensor_values"].values():
            for size in meta["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["expr_str"] = code
        program["range_constraints"] = {code: {"min_val": 0, "max_val": None}}

    graph, values, *_ = read(changed(path, tmp_path, change), (torch.randn(3, 3, 8, 8),))
    assert not trap.exists()
    assert graph.facts["notes"] == [
        "os.system is no operator of torch, so it is not called: what depends on it has no value."
    ]
    assert graph.rows("system_1")
    assert graph.rows_of(2)[0] not in values
    assert graph.rows("batch_norm_1")[0] in values


@pytest.mark.parametrize(
    "target",
    [
        *("torch.ops.aten.__class__.mro", "torch.ops.aten.__class__.__subclasses__"),
        *("torch.ops.aten._dir.clear", "torch.ops.aten.__dict__.clear", "torch.ops.aten.relu.__class__"),
        *(
            "torch.ops.aten.relu.overloads",
            "torch.ops.aten.from_file.default",
            "torch.ops.aten.from_file.out",
        ),
        *("torch.ops.aten.warn.default", "torch.ops.aten.list.t", "torch.ops.prims.__dict__.clear"),
        *("torch.ops.higher_order.cond", "torch.ops.aten.no_such.default", "_operator.__name__"),
    ],
)
def test_attributes_that_are_no_operators_are_not_called(target, exported, tmp_path):
    def change(program):
        nodes = program["graph_module"]["graph"]["nodes"]
        relu = next(node for node in nodes if "relu" in node["target"])
        relu["target"], relu["inputs"] = target, []

    before = [dict(vars(namespace)) for namespace in (torch.ops, torch.ops.aten, torch.ops.prims)]
    graph, *_ = read(changed(exported[1], tmp_path, change), (torch.randn(3, 3, 8, 8),))
    (note,) = graph.facts["notes"]
    assert note.startswith(f"{target} is no operator of torch, so it is not called")
    after = [vars(namespace) for namespace in (torch.ops, torch.ops.aten, torch.ops.prims)]
    assert all(known.items() <= vars_.items() for known, vars_ in zip(before, after, strict=True))


def test_arguments_that_an_operator_does_not_take(exported, tmp_path):
    def change(program):
        nodes = program["graph_module"]["graph"]["nodes"]
        relu = next(node for node in nodes if "relu" in node["target"])
        relu["inputs"][0]["arg"] = {"as_ints": [1, 2]}

    with pytest.raises(
        CodecError, match=r"version of torch: relu\w* takes other arguments than the file gives"
    ):
        read(changed(exported[1], tmp_path, change), (torch.randn(3, 3, 8, 8),))


def test_program_that_makes_far_more_than_its_bytes_is_stopped(tmp_path, monkeypatch):
    class Grows(nn.Module):
        def forward(self, x):
            for _ in range(9):
                x = x.repeat(8)
            return x

    monkeypatch.setattr(bounds, "_FEW", 1 << 20)
    torch.export.save(torch.export.export(Grows(), (torch.zeros(2),)), tmp_path / "net.pt2")
    with pytest.raises(
        CodecError, match=r"operations make tensors of [\d,]+ bytes of 8, more than 1,000 times"
    ):
        intus.read(tmp_path / "net.pt2", torch.zeros(2))


def test_inputs_are_not_written_into(tmp_path):
    class Adds(nn.Module):
        def forward(self, x):
            return x.add_(1)

    x = torch.zeros(2)
    with torch.no_grad():
        program = torch.export.export(Adds(), (torch.zeros(2),))
    torch.export.save(program, tmp_path / "net.pt2")
    assert intus.read(tmp_path / "net.pt2", x).outputs[0].value.tolist() == [1, 1]
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize("weights", [b"no pickle", b"\x80\x04K\x01.", b"cposix\nsystem\n(S'true'\ntR."])
def test_pickled_weights_that_are_damaged_are_refused_without_advice(weights, tmp_path):
    program = torch.export.export(Tied().eval(), (torch.ones(2, 3, dtype=torch.long),))
    torch.export.save(program, tmp_path / "net.pt2")
    with pytest.raises(CodecError) as found:
        intus.read(older(tmp_path / "net.pt2", weights), torch.ones(2, 3, dtype=torch.long))
    assert "damaged" in str(found.value)
    assert str(found.value).count(". ") <= 1
    assert "weights_only" not in str(found.value) + str(found.value.__cause__)
    assert "Error" not in str(found.value)


@pytest.mark.parametrize(
    ("inputs", "named", "message"),
    [
        ((), {"y": 1}, "net.pt2 has no input 'y'. Known names: 'x'"),
        ((torch.ones(2, 3, 8, 8).double(),), {}, r"must be float32, \?×3×8×8, got float64"),
        ((torch.ones(2, 3, 8),), {}, r"got the shape \(2, 3, 8\)"),
        ((1, 2), {}, "takes 1 input, got 2"),
    ],
)
def test_inputs_that_do_not_fit(exported, inputs, named, message):
    with pytest.raises(InputError, match=message):
        read(exported[1], inputs, named)


@pytest.mark.parametrize("keep", [30, 0.5, 0.99])
def test_truncated(exported, tmp_path, keep):
    data = Path(exported[1]).read_bytes()
    path = tmp_path / "net.pt2"
    path.write_bytes(data[: keep if keep > 1 else int(len(data) * keep)])
    with pytest.raises(CodecError, match="damaged or truncated"):
        read(path)


def test_graph_that_is_no_graph(exported, tmp_path):
    path = changed(exported[1], tmp_path, lambda program: program.pop("graph_module"))
    with pytest.raises(CodecError, match=r"is damaged, or of a version that intus does not know\.$"):
        read(path)


def test_pickled_weights_in_a_zip_file(tmp_path):
    path = tmp_path / "net.pt"
    torch.save(nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(CodecError, match="has pickled weights, which can run code when they are loaded"):
        read(path)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.fc, self.head = nn.Embedding(8, 4), nn.Linear(4, 4), nn.Linear(4, 8, bias=False)
        self.head.weight = self.table.weight
        self.other = nn.Linear(4, 8, bias=False)

    def forward(self, x):
        x = self.fc(self.table(x))
        return self.head(x) + self.other(x)


def older(path, weights):
    """Copy a file as torch 2.1 to 2.6 wrote it, with pickled weights."""
    copy = path.with_name("older.pt2")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w") as target:
        (member,) = [name for name in source.namelist() if name.endswith("models/model.json")]
        target.writestr("serialized_exported_program.json", source.read(member))
        target.writestr("serialized_state_dict.pt", weights)
        target.writestr("version", "8.1")
    return copy


@pytest.mark.parametrize(
    "prepare", [dict, lambda state: {name: nn.Parameter(one) for name, one in state.items()}]
)
def test_tied_weights_of_an_older_file_count_once(tmp_path, prepare):
    model, x = Tied().eval(), torch.randint(0, 8, (2, 3))
    program = torch.export.export(model, (x,))
    torch.export.save(program, tmp_path / "net.pt2")
    state = io.BytesIO()
    torch.save(prepare(program.state_dict), state)
    loaded = torch.load(io.BytesIO(state.getvalue()))
    assert loaded["head.weight"].data_ptr() == loaded["table.weight"].data_ptr()
    for given in ((), (x.numpy(),)):
        trace = intus.read(older(tmp_path / "net.pt2", state.getvalue()), *given)
        assert trace.num_params == sum(one.numel() for one in model.parameters())
        assert [param.shape for param in trace.modules["head"].params] == [(8, 4)]
        assert "is not known" not in trace.summary()
    assert np.array_equal(trace.outputs[0].value, model(x).detach().numpy())


def test_weights_that_may_be_tied_are_said_to_be(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (Path(tmp_path / "ran").touch, ())

    program = torch.export.export(Tied().eval(), (torch.ones(2, 3, dtype=torch.long),))
    torch.export.save(program, tmp_path / "net.pt2")
    for content in ({**program.state_dict, "harmful": Harmful()}, None):
        state = io.BytesIO()
        torch.save(content, state)
        trace = intus.read(older(tmp_path / "net.pt2", state.getvalue()))
        assert "Whether 'table.weight' and 'head.weight' are one weight is not known" in trace.summary()
    assert not (tmp_path / "ran").exists()


class Sum(nn.Module):
    def forward(self, x, y):
        return x.sum() + y.sum()


_BATCH, _ANY = torch.export.Dim("batch", min=2, max=8), torch.export.Dim("any")


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (_BATCH, None),
        (_ANY, None),
        (torch.export.Dim("batch", min=4), None),
        (_BATCH, _BATCH),
        (_BATCH, _ANY),
        (_BATCH, 2 * _BATCH),
        (torch.export.Dim("half", min=2, max=4) * 2, None),
    ],
)
def test_lengths_outside_of_the_range_of_a_file_are_refused(x, y, tmp_path):
    """The judge is torch, which loads the file and runs it."""
    path = tmp_path / "net.pt2"
    given = torch.ones(4, 3), torch.ones(8 if y is not None and y is not _BATCH else 4, 3)
    shapes = ({0: x}, {} if y is None else {0: y})
    torch.export.save(torch.export.export(Sum(), given, dynamic_shapes=shapes), path)
    program = torch.export.load(path).module()
    seen = set()
    for rows in range(1, 12):
        for others in {4, rows, 2 * rows, rows + 1} if y is not None else (4,):
            inputs = torch.randn(rows, 3), torch.randn(others, 3)
            try:
                expected = program(*inputs)
            except (RuntimeError, AssertionError):
                with pytest.raises(InputError, match=r"The length of axis 0 of the input '[xy]' of net\.pt2"):
                    intus.read(path, *inputs)
                seen.add("refused")
            else:
                assert torch.equal(torch.tensor(intus.read(path, *inputs)["output_1"].value), expected)
                seen.add("run")
    assert "run" in seen
    assert ("refused" in seen) == (x is not _ANY)


def test_range_of_a_file_is_in_the_message(tmp_path):
    net = nn.Linear(4, 3).eval()
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (torch.ones(4, 4),), dynamic_shapes=({0: _BATCH},)), path)
    for run in (lambda x: intus.read(path, x), lambda x: intus.check_export(net, path, x)):
        with pytest.raises(InputError) as raised:
            run(torch.ones(20, 4))
        assert "The length of axis 0 of the input 'input' of net.pt2 must be 2 to 8, got 20." in str(
            raised.value
        )


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class Recurrent(nn.Module):
    def __init__(self, type_):
        super().__init__()
        self.layer = type_(4, 4, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize(
    "make",
    [Attention, lambda: Recurrent(nn.GRU), lambda: Recurrent(nn.LSTM), lambda: Recurrent(nn.RNN)],
    ids=["attention", "gru", "lstm", "rnn"],
)
@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("frozen", [False, True])
def test_values_have_the_bits_of_the_program_that_torch_loads(make, frozen, tmp_path):
    torch.manual_seed(3)
    net, x = make().eval().requires_grad_(not frozen), torch.randn(2, 5, 4)
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (x,)), path)
    with torch.no_grad():
        expected = torch.export.load(path).module()(x)
    assert np.array_equal(intus.read(path, x).outputs[0].value, expected.numpy())


class Computes(nn.Module):
    """A module that computes a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def checked_length(x):
    """Return a slice of a length that only the values tell, which export guards by assertions."""
    length = (x > 0).sum().item()
    torch._check(length >= 0)
    torch._check(length <= x.shape[0])
    return x.flatten()[:length].sum() + torch.zeros(length).sum()


def added_in_place(x):
    y = [x.clone(), x * 2]
    torch._foreach_add_(y, 1.0)
    return y[0] * y[1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to(torch.float16).float() * 2,
        lambda x: x.half().double().to(torch.float32),
        lambda x: x.bfloat16().float().type_as(x),
        checked_length,
        lambda x: x[x > 0].sum() + x.nonzero().sum(),
        added_in_place,
        lambda x: torch.zeros_like(x).copy_(x).add_(1),
    ],
    ids=["to", "half", "type_as", "checked_length", "nonzero", "foreach", "copy_"],
)
def test_operators_that_return_nothing(function, tmp_path):
    bits_are_those_of_torch(Computes(function), torch.linspace(-2, 3, 8), tmp_path)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.masked_fill(x > 0, -torch.inf).softmax(-1),
        lambda x: (x + torch.full((8, 8), -torch.inf).triu(1)).softmax(-1),
        lambda x: torch.clamp(x, min=-torch.inf, max=1.0),
        lambda x: torch.nan_to_num(x.masked_fill(x > 1, torch.nan), nan=2.0, posinf=torch.inf),
        lambda x: torch.where(x > 0, x, torch.inf) - torch.scalar_tensor(torch.nan),
        lambda x: torch.ops.aten.upsample_bilinear2d.vec(x[None, None, None], None, False, [1.5, 2.0]),
        lambda x: torch.view_as_real(x * (1 + 2j)),
        lambda x: torch.view_as_real(torch.full((8,), complex(torch.inf, 1)) + x),
    ],
    ids=["masked", "causal", "clamp", "nan", "where", "floats", "complex", "complex_inf"],
)
def test_numbers_that_json_lacks(function, tmp_path):
    bits_are_those_of_torch(Computes(function), torch.linspace(-2, 3, 8), tmp_path)


def bits_are_those_of_torch(net, x, folder):
    path = folder / "net.pt2"
    torch.export.save(torch.export.export(net, (x,)), path)
    expected = torch.export.load(path).module()(x)
    found = intus.read(path, x)
    assert "notes" not in found.graph.facts
    assert np.array_equal(found.outputs[0].value, expected.numpy(), equal_nan=True)


def test_infinity_is_shown_as_a_number(tmp_path):
    path = tmp_path / "net.pt2"
    net = Computes(lambda x: x.masked_fill(x > 0, -torch.inf))
    torch.export.save(torch.export.export(net, (torch.ones(2),)), path)
    graph = intus.read(path).graph
    assert "value=-inf" in [graph.setting(row) for row in range(len(graph.ops))]


@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # of torch itself
def test_labels_of_operations_whose_name_begins_with_an_underscore(tmp_path):
    class Underscored(nn.Module):
        def forward(self, x):
            larger = nn.functional.interpolate(x, scale_factor=2, mode="nearest-exact")
            return larger.softmax(-1).log_softmax(0).double()

    x = torch.randn(1, 2, 3, 3)
    program = torch.export.export(Underscored(), (x,)).run_decompositions()
    torch.export.save(program, tmp_path / "net.pt2")
    trace = intus.read(tmp_path / "net.pt2", x)
    assert {"_softmax", "_log_softmax"} <= {op.type for op in trace.ops}
    for op in trace.ops:
        assert trace[op.label].row == trace[op.label.rpartition("_")[0]].row == op.row


class Several(nn.Module):
    """Returns what it computes in another order, and what it is given."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 3), nn.Linear(4, 2), nn.LayerNorm(3)

    def forward(self, x):
        late = self.second(x).relu()
        first = self.norm(self.first(x))
        return first, {"late": late, "x": x, "rest": [first.softmax(-1)]}


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.several, self.after = nn.Linear(4, 4), Several(), nn.Linear(2, 4)

    def forward(self, x):
        first, found = self.several(self.before(x).relu())
        again, others = self.several(self.after(found["late"]))
        return found["rest"][0] * first + others["rest"][0] * again, found["x"] + others["x"], others["late"]


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning")  # of torch itself
@pytest.mark.parametrize("is_decomposed", [False, True])
def test_module_of_a_preserved_signature_is_what_it_returns_in_that_order(is_decomposed, tmp_path):
    """A hook of the model in Python is the judge."""
    torch.manual_seed(0)
    net, x, returned = Twice().eval(), torch.randn(5, 4), []
    hook = net.several.register_forward_hook(lambda *given: returned.append(given[2]))
    net(x)
    hook.remove()
    program = torch.export.export(net, (x,), preserve_module_call_signature=("several",))
    torch.export.save(program.run_decompositions() if is_decomposed else program, tmp_path / "net.pt2")
    calls = intus.read(tmp_path / "net.pt2", x).modules["several"].calls
    for call, result in zip(calls, returned, strict=True):
        expected = [value.detach() for _, value in paths(result, torch.Tensor)]
        for op, value in zip(call.outputs, expected, strict=True):
            assert np.allclose(op.value, value, atol=1e-6)
