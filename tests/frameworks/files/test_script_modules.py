"""Models compiled by torch.jit: their graph with modules, and the values that torch computes."""

import importlib.util
import random

import numpy as np
import pytest
import torch
from torch import nn

import intus
from intus.core.errors import AddressError
from intus.core.nested import paths

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*is deprecated", "ignore::torch.jit.TracerWarning"
)


@pytest.fixture(autouse=True)
def _no_grad():
    # With gradients torch.jit itself refuses the ReLU that writes into the result of a Linear.
    with torch.no_grad():
        yield


class Block(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.norm, self.fc, self.act = nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(inplace=True)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        y = self.fc(self.norm(x))
        self.act(y)
        y += 1
        return x + self.drop(y)


class Net(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.block, self.lstm = Block(p), nn.LSTM(8, 4, batch_first=True)

    def forward(self, x: torch.Tensor, scale: float = 2.0):
        x = torch.relu(self.bn(self.conv(x))).flatten(2).transpose(1, 2)
        x = self.block(self.block(x)) * scale
        out, (h, _) = self.lstm(x)
        return out, h


class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor):
        x = self.a(x)
        if bool(x.sum() > 1e9):
            x = self.b(x) + 1
        return x.tanh()


x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
MAKE = {"scripted": torch.jit.script, "traced": lambda net: torch.jit.trace(net, x, check_trace=False)}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_values_are_those_of_the_model_in_python(make):
    net = Net().eval()
    script = make(net)
    with torch.no_grad():
        trace, python, output = intus.trace(script, x), intus.trace(net, x), script(x)
    for ours, theirs in zip(trace.outputs, output, strict=True):
        assert np.array_equal(ours.value, theirs.numpy())
    assert set(python.modules) <= set(trace.modules)
    for address in ("conv", "bn", "block:1", "block.norm:1", "block.fc:2", "block.act:1", "block:2"):
        ours, theirs = trace[address].value, python[address].value.detach().numpy()
        np.testing.assert_array_equal(ours, theirs, err_msg=address)
    added = next(op for op in trace.ops if op.type == "add" and op.module == "block:1")
    assert [parent.type for parent in added.parents] == ["relu"]
    # ``fc`` before the ReLU and the sum that write into its result
    assert (trace["block.fc:1"].value < 0).any()
    saved = [op for op in trace.ops if op.saved]
    assert [op.shape for op in saved] == [op.value.shape for op in saved]
    assert all("lstm" in op.module for op in trace.ops if not op.saved)  # it has conditions on shapes
    assert trace.framework == "TorchScript"


def test_state_and_arguments_are_restored():
    script = torch.jit.script(Net(0.5).train())
    before = {name: value.clone() for name, value in script.state_dict().items()}
    given, state = x.clone(), torch.get_rng_state()
    trace = intus.trace(script, given, seed=3)
    assert all(torch.equal(value, before[name]) for name, value in script.state_dict().items())
    assert torch.equal(given, x)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(3)
    with torch.no_grad():
        assert np.array_equal(trace.outputs[0].value, script(x)[0].numpy())


def test_random_numbers_inside_a_method_have_no_value():
    script = torch.jit.script(Net(0.5).train())
    trace = intus.trace(script, x, seed=3)
    dropped = [op for op in trace.ops if op.type == "dropout"]
    assert sum(op.saved for op in dropped) < len(dropped)
    assert any("returns something else" in note for note in trace.graph.facts["notes"])
    assert trace["block:2"].value.shape == (2, 16, 8)


def test_branch_on_a_value():
    script = torch.jit.script(Choice())
    trace = intus.trace(script, torch.ones(1, 4))
    assert np.array_equal(trace.outputs[0].value, script(torch.ones(1, 4)).detach().numpy())
    inside = trace["b"]
    with pytest.raises(AddressError, match="inside of a condition of TorchScript has no value"):
        _ = inside.value


def test_keywords_defaults_and_errors():
    script = torch.jit.script(Net().eval())
    trace = intus.trace(script, x, scale=0.5)
    with torch.no_grad():
        assert np.array_equal(trace.outputs[0].value, script(x, scale=0.5)[0].numpy())
    assert "scale" not in [op.label for op in trace.inputs]
    with torch.enable_grad():
        with_gradients = intus.trace(torch.jit.script(Choice()), torch.ones(1, 4), grads=True)
    assert len(with_gradients) == 1
    assert "The model is compiled by torch.jit" in with_gradients.summary()
    with pytest.raises(RuntimeError):
        intus.trace(script, torch.ones(1))


def test_view_with_and_without_inputs():
    script = torch.jit.script(Net().eval())
    with_inputs, without = intus.view(script, x), intus.view(script)
    for graph in (with_inputs.graph, without.graph):
        assert {name for name, _ in Net().named_modules()} <= {module.address for module in graph.modules}


def test_compiled_part_of_a_model_is_named():
    inner = torch.jit.script(Block().eval())
    trace = intus.trace(nn.Sequential(nn.Linear(8, 8), inner), torch.ones(1, 8))
    assert [note.partition(" is compiled")[0] for note in trace.graph.facts["notes"]] == ["'1'"]
    assert "Note: '1' is compiled by torch.jit" in trace.summary()
    assert "notes" not in intus.trace(nn.Sequential(nn.Linear(8, 8)), torch.ones(1, 8)).graph.facts


def test_compiled_function_in_a_model_is_named():
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    for compiled in (torch.jit.script(twice), torch.jit.trace(twice, torch.ones(2))):
        trace = intus.trace(lambda x, compiled=compiled: compiled(x).relu() + compiled(x), torch.ones(2))
        (note,) = trace.graph.facts["notes"]
        assert note.startswith(f"The function '{trace.ops[0].type}' is compiled by torch.jit, so each call")
        assert note in trace.summary()
    assert "notes" not in intus.trace(twice, torch.ones(2)).graph.facts


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 4), nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        self.count += 1
        return self.norm(self.fc(x)).relu() + self.count


@pytest.mark.parametrize("prepare", [torch.jit.freeze, torch.jit.optimize_for_inference])
@pytest.mark.parametrize(
    "compile_", [torch.jit.script, lambda model: torch.jit.trace(model, torch.ones(3, 8))]
)
def test_frozen_models(prepare, compile_):
    frozen = prepare(compile_(Counting().eval()))
    before = frozen.count.clone()
    x = torch.randn(3, 8)
    alone, part = intus.trace(frozen, x), intus.trace(nn.Sequential(frozen), x)
    kept = intus.trace(frozen, x, on_error="keep")
    assert torch.equal(frozen.count, before)
    expected = frozen(x).numpy()
    for trace in (alone, part, kept):
        assert np.array_equal(np.asarray(trace.outputs[0].value), expected)
        assert not trace.graph.facts["training"] or trace is part
    assert "relu" in [op.type for op in alone.ops]
    assert "torch.jit.freeze made the weights of this model constants" in alone.summary()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.fc, self.head = nn.Embedding(50, 8), nn.Linear(8, 8), nn.Linear(8, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(self.fc(self.table(x)).relu())


def test_shared_weights_count_once(tmp_path):
    model, x = Tied().eval(), torch.randint(0, 50, (2, 6))
    torch.jit.script(model).save(tmp_path / "tied.pt")
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "tied.pt2")
    traces = [
        intus.trace(torch.jit.script(model), x),
        intus.trace(torch.jit.trace(model, x), x),
        intus.read(tmp_path / "tied.pt"),
        intus.read(tmp_path / "tied.pt2", x.numpy()),
    ]
    for trace in traces:
        assert trace.num_params == sum(one.numel() for one in model.parameters()) == 472
        assert [param.shape for param in trace.modules["head"].params] == [(50, 8)]
        users = [op for op in trace.ops if op.num_params == 400]
        assert [op.type for op in users] == ["embedding", "linear"]
    for trace in (*traces[:2], traces[3]):
        assert np.array_equal(trace.outputs[0].value, model(x).detach().numpy())


def doubled(x):
    return torch.relu(x * 2) + 1


def test_compiled_functions_are_operations():
    function = torch.jit.script(doubled)
    x = torch.randn(3, 4)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    trace = intus.trace(lambda x: model[1](function(model[0](x))), x)
    assert [op.type for op in trace.ops if op.type not in ("input", "output", "parameter")] == [
        *("linear", "doubled", "linear"),
    ]
    made = trace["doubled_1"]
    assert [op.type for op in (*made.parents, *made.children)] == ["linear", "linear"]
    assert torch.equal(made.value, function(model[0](x)))
    alone = intus.trace(function, x)
    assert alone.outputs[0].parents[0].type == "doubled"
    assert intus.validate(function, x)
    traced = intus.trace(torch.jit.trace(lambda x: x.sin() + 1, x), x)
    assert traced.outputs[0].parents[0].parents == [traced.inputs[0]]
    assert torch.equal(traced.outputs[0].value, x.sin() + 1)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner = kind(6, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        y, h = self.inner(x)
        return y[:, -1], h


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        y, weights = self.inner(x, x, x)
        return y[:, -1], weights


#: A module that returns several tensors, in an order other than they are made in, and one that uses them.
_SOURCE = """
from typing import Dict, List, Tuple
import torch
from torch import Tensor, nn

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.linear = nn.Parameter(torch.randn(3, 4)), nn.Linear(4, 4)
        self.register_buffer("running", torch.randn(3, 4))

    def forward(self, x: Tensor) -> {type}:
        weight, running = self.weight, self.running
        {made}
        return {returned}

class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> {type}:
        return self.inner(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.middle = Middle()

    def forward(self, x: Tensor):
        found = self.middle(x.sin())
        return {used}
"""


def source_of(seed):
    """Return the source of a model whose modules return several tensors."""
    rng = random.Random(seed)
    ways = ["x.exp()", "self.linear(x)", "x * 3", "x.tanh()", "x - 2"]
    rng.shuffle(ways)
    made = "; ".join(f"y{number} = {way}" for number, way in enumerate(ways[: rng.randint(2, 5)]))
    names = [one.split(" = ")[0] for one in made.split("; ")]
    names += rng.sample(["x", "weight", "running"], rng.randint(0, 1))
    rng.shuffle(names)
    kind = rng.choice(["tuple", "nested", "list", "dict"])
    tensors = ", ".join(["Tensor"] * len(names))
    if kind == "dict":
        type_, returned = "Dict[str, Tensor]", ", ".join(f'"{name}": {name}' for name in names)
        returned, used = f"{{{returned}}}", [f'found["{name}"]' for name in names]
    elif kind == "nested":
        type_ = f"Tuple[Tuple[{', '.join(['Tensor'] * (len(names) - 1))}], Tensor]"
        returned = f"({', '.join(names[:-1])},), {names[-1]}"
        used = [f"found[0][{place}]" for place in range(len(names) - 1)] + ["found[1]"]
    else:
        type_ = "List[Tensor]" if kind == "list" else f"Tuple[{tensors}]"
        returned = f"[{', '.join(names)}]" if kind == "list" else ", ".join(names)
        used = [f"found[{place}]" for place in range(len(names))]
    rng.shuffle(used)
    used = ", ".join(f"{one} * {number + 2}" for number, one in enumerate(used))
    return _SOURCE.format(type=type_, made=made, returned=returned, used=used)


def generated(seed, folder):
    """Return a generated model; torch.jit reads its source from a file."""
    path = folder / "generated.py"
    path.write_text(source_of(seed))
    spec = importlib.util.spec_from_file_location(f"generated_{seed}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model()


RETURNING = {
    "gru": lambda _: Recurrent(nn.GRU),
    "rnn": lambda _: Recurrent(nn.RNN),
    "lstm": lambda _: Recurrent(nn.LSTM),
    "attention": lambda _: Attentive(),
    **{f"generated {seed}": lambda folder, seed=seed: generated(seed, folder) for seed in range(16)},
}


@pytest.mark.parametrize("name", RETURNING)
def test_module_is_what_it_returns_in_the_order_of_its_return(name, tmp_path):
    """A hook of the model in Python is the judge."""
    torch.manual_seed(0)
    net = RETURNING[name](tmp_path).eval()
    x = torch.randn(2, 3, 4) if name.startswith("generated") else torch.randn(2, 9, 6)
    returned = {}
    for address, module in net.named_modules():
        if address in ("inner", "middle", "middle.inner"):
            module.register_forward_hook(lambda *given, address=address: returned.update({address: given[2]}))
    net(x)
    for module in net.modules():
        module._forward_hooks.clear()
    script = torch.jit.script(net)
    traced, python = intus.trace(script, x), intus.trace(net, x)
    torch.jit.save(script, tmp_path / "script.pt")
    read = intus.read(tmp_path / "script.pt")
    for address, result in returned.items():
        expected = [value for _, value in paths(result, torch.Tensor)]
        outputs = traced.modules[address].calls[0].outputs
        for ours, theirs in zip(outputs, expected, strict=True):
            assert not ours.saved or np.allclose(ours.value, theirs, atol=1e-6)
        assert outputs[0].saved or name == "attention"  # which has conditions on shapes
        if outputs[0].saved:
            unit = f"{address}[0@-1]"
            assert np.allclose(traced.value(unit), python.value(unit), atol=1e-6)
        labels = [[op.label for op in one.modules[address].calls[0].outputs] for one in (traced, read)]
        assert labels[0] == labels[1] or name == "attention"  # the file has branches for either dtype


class Attention(nn.Module):
    """Attention of a tensor with itself, which it computes in another way for three equal tensors."""

    def __init__(self):
        super().__init__()
        self.m = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        """Return the attention."""
        return self.m(x, x, x, need_weights=False)[0]


def test_tensor_that_is_given_several_times_remains_one():
    torch.manual_seed(0)
    script, x = torch.jit.script(Attention().eval()), torch.randn(2, 3, 4)
    with torch.enable_grad():  # the fast path of attention computes without them
        found = intus.trace(script, x)
        expected = script(x).detach().numpy()
    assert np.array_equal(found.outputs[0].value, expected)
    assert not [note for note in found.graph.facts["notes"] if "each time" in note]
