"""Writes in place, also through views, in files of PyTorch and in traces, judged by torch.

Programs of random operations run, and so does the program that torch loads from their file.
"""

import random
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx import Interpreter

import intus
from intus.core.analysis.walks import ancestors
from intus.core.errors import InputError
from intus.core.graph import INPUT, OP, OUTPUT
from intus.reading.exported_memory import is_in_place, shared_by, written_by

pytestmark = pytest.mark.filterwarnings("ignore:.*non-writable")

_MASK, _PLACES = torch.arange(24).reshape(4, 6) % 3 == 0, torch.tensor([0, 2])
#: New tensors of 4×6, made of another of 4×6 and a number.
_NEW = {
    "scaled": lambda z, k: z * k,
    "copied": lambda z, _: z.clone(),
    "zeros": lambda z, _: torch.zeros(4, 6),
    "turned": lambda z, _: z.t().contiguous().reshape(4, 6),
    "relu": lambda z, _: torch.relu(z),
    "stacked": lambda z, _: torch.cat([z[:2], z[2:]]),
}
#: What may be a view of a tensor of 4×6, or is one.
_VIEWS = {
    "columns": lambda z: z[:, 1:3],
    "column": lambda z: z[:, 0],
    "row": lambda z: z[2],
    "rows": lambda z: z[1:3],
    "flat": lambda z: z.view(-1),
    "flattened": lambda z: z.t().reshape(-1),  # a copy
    "turned": lambda z: z.t(),
    "part": lambda z: z.chunk(2, dim=1)[1],
    "split": lambda z: z.split([2, 4], dim=1)[0].unsqueeze(0),
    "diagonal": lambda z: z.diagonal(),
    "unbound": lambda z: z.unbind(0)[3],
    "narrow": lambda z: z.narrow(0, 0, 2).reshape(3, 4),
    "same": lambda z: z.to(torch.float32).contiguous(),
    "dropout": lambda z: nn.functional.dropout(z, 0.5, False),
    "all": lambda z: z,
}


def _set(v, k):
    v[..., 0] = k


def _to_places(z, k):
    if z.shape == (4, 6):
        z[:, _PLACES] = k
    else:
        z.sub_(k)


def _masked(z, k):
    if z.shape == (4, 6):
        z.masked_fill_(_MASK, k)
    else:
        z.zero_()


def _without_gradients(v, k):
    with torch.no_grad():
        v.mul_(k)


#: What writes a number into a tensor.
_WRITES = {
    "mul_": lambda v, k: v.mul_(k),
    "add_": lambda v, k: v.add_(k),
    "fill_": lambda v, k: v.fill_(k),
    "zero_": lambda v, _: v.zero_(),
    "copy_": lambda v, k: v.copy_(v.flip(0) * k),
    "relu_": lambda v, _: v.relu_(),
    "clamp_": lambda v, k: v.clamp_(max=abs(k)),
    "inplace": lambda v, _: nn.functional.leaky_relu(v, 0.1, True),
    "setitem": _set,
    "places": _to_places,
    "masked": _masked,
    "no_grad": _without_gradients,
}


class Program(nn.Module):
    """A program of random operations.

    Args:
        seed: Chooses them.
        factor: What the number of the last write is multiplied with.
    """

    def __init__(self, seed, factor=1.0):
        super().__init__()
        torch.manual_seed(seed)
        self.linear = nn.Linear(6, 6).requires_grad_(False)  # autograd forbids writes into some views
        self.register_buffer("state", torch.randn(4, 6))
        self.initial = self.state.clone()
        draw = random.Random(seed)
        self.steps = []
        for _ in range(draw.randint(4, 9)):
            kind = draw.choice(["new", "view", "write", "write", "write"])
            table = {"new": _NEW, "view": _VIEWS, "write": _WRITES}[kind]
            number = round(draw.uniform(0.5, 3), 2)
            self.steps.append(
                [kind, draw.choice(list(table)), draw.random(), draw.choice(list(_VIEWS)), number]
            )
        writes = [step for step in self.steps if step[0] == "write"]
        if writes:
            writes[-1][-1] *= factor
        self.returned = [draw.random() for _ in range(3)]

    def forward(self, x, *numbers):
        whole = [self.linear(x), self.state, x]
        every = [*whole]
        for place, (kind, name, which, view, number) in enumerate(self.steps):
            number = numbers[place] if numbers else number
            z = whole[int(which * len(whole))]
            if kind == "new":
                whole.append(_NEW[name](z, number))
                every.append(whole[-1])
            elif kind == "view":
                every.append(_VIEWS[name](z))
            else:
                _WRITES[name](_VIEWS[view](z), number)
        return tuple(every[int(one * len(every))] for one in self.returned), whole[-1] + 0


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a function that returns the file of the program of a seed, which is exported once."""
    folder = tmp_path_factory.mktemp("exported")

    def file_of(seed):
        program, path = Program(seed), folder / f"{seed}.pt2"
        if not path.exists():
            with torch.no_grad():
                torch.export.save(torch.export.export(program, (torch.zeros(4, 6),)), path)
        return path

    return file_of


def outputs_of(path, x):
    with torch.no_grad():
        return torch.utils._pytree.tree_leaves(torch.export.load(path).module()(x.clone()))


class Watched(Interpreter):
    """Runs a program, keeps each result when it is made, and changes one."""

    def __init__(self, program, changed=None):
        super().__init__(program)
        self.made, self.changed = {}, changed

    def run_node(self, node):
        result = super().run_node(node)
        if node.name == self.changed:
            with torch.no_grad():
                result.add_(torch.rand_like(result) + 1)
        if node.op == "call_function" and isinstance(result, torch.Tensor):
            self.made[node.name] = result.detach().clone()
        return result


def watched(program, initial, x, changed=None):
    """Run a program from its initial state; return what it made, and what it returned."""
    program.load_state_dict(initial)
    watcher = Watched(program, changed)
    with torch.no_grad():
        outputs = torch.utils._pytree.tree_leaves(watcher.run(x.clone()))
    return watcher.made, [one.clone() for one in outputs]


_SEEDS = range(30)


@pytest.mark.parametrize("seed", _SEEDS)
def test_outputs_are_those_of_the_program_that_torch_loads(seed, exported):
    path, x, other = exported(seed), torch.randn(4, 6), torch.randn(4, 6)
    trace = intus.read(path, x)
    assert "notes" not in trace.graph.facts
    for found, expected in zip(trace.outputs, outputs_of(path, x), strict=True):
        assert found.shape == tuple(expected.shape)
        assert np.array_equal(found.value, expected.numpy())
    graph = trace.graph
    rows = [row for row in range(len(graph.ops)) if graph.ops.kind[row] in (OP, OUTPUT)]
    for end, expected in zip(graph.rows_of(OUTPUT), outputs_of(path, other), strict=True):
        found = trace._parts.computed(rows, end, {graph.rows_of(INPUT)[0]: other.numpy()})
        assert np.array_equal(found, expected.numpy()), "run again on another input"


def rows_by_order(trace, nodes):
    """Return the rows of the operations of a program by the names of its nodes, which are in order."""
    names = [
        node.name
        for node in nodes
        if node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and isinstance(node.meta.get("val"), torch.Tensor)
    ]
    rows = [op.row for op in trace.ops if op.type not in ("unbind", "split_with_sizes", "chunk", "split")]
    return dict(zip(names, rows, strict=True)) if len(names) == len(rows) else None


def test_results_and_edges_are_those_of_torch(exported):
    """A change of one result must be seen at no output that does not descend from it in the graph."""
    compared = changed = 0
    for seed in _SEEDS:
        path, x = exported(seed), torch.randn(4, 6)
        trace = intus.read(path, x)
        program = torch.export.load(path).module()
        initial, nodes = (
            {name: one.clone() for name, one in program.state_dict().items()},
            program.graph.nodes,
        )
        made, outputs = watched(program, initial, x)
        rows = rows_by_order(trace, nodes)
        if rows is None:  # a part ran without gradients, as a graph of its own
            continue
        types = {node.name: node.target for node in nodes if node.op == "call_function"}
        for name, row in rows.items():
            assert np.array_equal(trace.values[row], made[name])
            compared += 1
            if has_own_values(types[name]):
                _, others = watched(program, initial, x, name)
                for end, one, other in zip(trace.graph.rows_of(OUTPUT), outputs, others, strict=True):
                    if not torch.equal(one, other):
                        changed += 1
                        assert row in ancestors(trace.graph, [end]), (seed, name, trace.graph.label(end))
    assert compared > 100
    assert changed > 100


def has_own_values(operator):
    """Return whether an operator computes, or writes: it returns no view of a tensor that is given to it."""
    returned = [one.alias_info for one in operator._schema.returns]
    name = operator._schema.name.partition("::")[2]
    return all(one is None or one.is_write for one in returned) and name not in ("dropout", "reshape")


def changed_by(program, x, numbers):
    """Return, for each of the numbers of a program, which outputs another number changes."""
    with torch.no_grad():
        outputs = []
        for place in (None, *range(len(numbers))):
            program.state.copy_(program.initial)
            given = [one + 0.25 if place == at else one for at, one in enumerate(numbers)]
            outputs.append(
                [one.clone() for one in torch.utils._pytree.tree_leaves(program(x.clone(), *given))]
            )
        program.state.copy_(program.initial)
    return [
        {
            at
            for at, (one, other) in enumerate(zip(outputs[0], some, strict=True))
            if not torch.equal(one, other)
        }
        for some in outputs[1:]
    ]


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:.*Trace", "ignore:Converting a tensor")
def test_outputs_descend_from_all_that_changes_them(tmp_path):
    """Check ``.pt2`` files, TorchScript, and traces of both kinds of models."""
    found = 0
    for seed in _SEEDS:
        program, x = Program(seed), torch.randn(4, 6)
        numbers = [torch.tensor(step[-1]) for step in program.steps]
        changed = changed_by(program, x, numbers)
        path = tmp_path / "net.pt2"
        torch.export.save(torch.export.export(program, (x.clone(), *numbers)), path)
        program.state.copy_(program.initial)
        script = torch.jit.trace(program, (x.clone(), *numbers), check_trace=False)
        script.save(tmp_path / "net.pt")
        program.state.copy_(program.initial)
        traces = {
            "pt2": intus.read(path),
            "torchscript": intus.read(tmp_path / "net.pt"),
            "of torchscript": intus.trace(script, x.clone(), *numbers),
            "trace": intus.trace(program, x.clone(), *numbers),
        }
        for kind, trace in traces.items():
            ends = trace.graph.rows_of(OUTPUT)
            inputs = trace.graph.rows_of(INPUT)[1:]
            for number, outputs in zip(inputs, changed, strict=True):
                for output in outputs:
                    assert number in ancestors(trace.graph, [ends[output]]), (seed, kind, number)
                    found += 1
    assert found > 200


@pytest.mark.parametrize("seed", _SEEDS[::2])
def test_check_export_of_writes(seed, exported):
    """A right file never differs, and one whose outputs differ is never equal."""
    path, x = exported(seed), torch.randn(4, 6)
    expected = outputs_of(path, x)
    assert intus.check_export(Program(seed), path, x.clone()).verdict != "differs"
    other = Program(seed, factor=1.5)
    with torch.no_grad():
        found = torch.utils._pytree.tree_leaves(other(x.clone()))
    apart = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    if apart > 1e-2:
        assert intus.check_export(Program(seed, factor=1.5), path, x.clone()).verdict == "differs"


class Computes(nn.Module):
    """A module that computes a function of an input, and of a buffer of six zeros."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("state", torch.zeros(6))

    def forward(self, x):
        return self.function(self, x)


def _part(_, x):
    z = x * 1.0
    z[:, 1:3].mul_(3)
    return z


def _after_a_view(_, x):
    z = x * 1.0
    v = z[:, :3]
    z.add_(2)
    return v


def _filled(_, x):
    o = torch.empty(4, 6)
    o[:, :3] = x[:, :3]
    o[:, 3:] = 2 * x[:, 3:]
    return o


def _buffer(module, x):
    module.state[1:3] = 3.0
    return module.state.clone() + x, module.state


def _input(_, x):
    x[:, 0] = 5.0
    return x


def _several(_, x):
    z = [x.clone(), x * 2]
    torch._foreach_add_(z, 1.0)
    return z[0] * z[1], z[0]


def _out(_, x):
    z = torch.zeros(4, 6)
    torch.add(x, x, out=z)
    return z


_WRITTEN = [_part, _after_a_view, _filled, _buffer, _input, _several, _out]


@pytest.mark.parametrize("function", _WRITTEN)
def test_written_tensors_that_are_returned(function, tmp_path):
    """The edge of the output is from what wrote last, as in a trace, and the values are those of torch."""
    x = torch.randn(4, 6)
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Computes(function), (x.clone(),)), path)
    model, found = Computes(function), intus.read(path, x)
    live = intus.trace(Computes(function), x.clone())
    for output, expected in zip(found.outputs, outputs_of(path, x), strict=True):
        assert np.array_equal(output.value, expected.numpy())
    for graph in (found.graph, live.graph, intus.read(path).graph):
        for end in graph.rows_of(OUTPUT):
            (writer, *_) = graph.parents(end)
            assert graph.ops.kind[writer] == OP, graph.label(writer)
            assert graph.rows_of(INPUT)[0] in ancestors(graph, [end]) or function is _buffer
    assert intus.check_export(model, path, x.clone()).verdict != "differs"


@pytest.mark.parametrize(
    "activation",
    [
        nn.ReLU(True),
        nn.ReLU6(True),
        nn.Hardtanh(inplace=True),
        lambda x: x.clamp_(min=0),
        lambda x: x.relu_(),
        nn.SiLU(True),
        nn.LeakyReLU(0.1, True),
    ],
    ids=["relu", "relu6", "hardtanh", "clamp_", "relu_", "silu", "leaky_relu"],
)
def test_activations_in_place_are_equal(activation, tmp_path):
    """A file has other operators of these, ``relu_``, which are none of the model alone."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
            self.act = activation

        def forward(self, x):
            return self.act(self.norm(self.layer(x))).mean((2, 3))

    torch.manual_seed(0)
    net, x = Block().eval(), torch.randn(2, 3, 8, 8)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    check = intus.check_export(net, tmp_path / "net.pt2", x)
    assert check.verdict == "equal", str(check)
    types = [[op.type for op in one.ops] for one in (intus.read(tmp_path / "net.pt2"), intus.trace(net, x))]
    assert types[0] == types[1]


def test_graphs_in_which_writes_are_to_another_length(tmp_path):
    """A length that is open may be any: what overlaps then depends on it."""
    x, batch = torch.randn(4, 6), torch.export.Dim("batch")
    path = tmp_path / "net.pt2"
    for function in (_part, _after_a_view):
        program = torch.export.export(Computes(function), (x,), dynamic_shapes={"x": {0: batch}})
        torch.export.save(program, path)
        for rows in (4, 7):
            other = torch.randn(rows, 6)
            found = intus.read(path, other)
            assert np.array_equal(found.outputs[0].value, outputs_of(path, other)[0].numpy())
            assert found.graph.type_of(found.graph.parents(found.outputs[0].row)[0]) in ("mul", "add")


def operators():
    """Yield the name of each operator of torch, and its schema."""
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        packet = getattr(torch.ops.aten, name, None) if full.startswith("aten::") else None
        operator = getattr(packet, overload or "default", None)
        if isinstance(operator, torch._ops.OpOverload):
            yield f"torch.ops.aten.{name}.{overload or 'default'}", operator._schema


def node_of(target, schema):
    """Return a node that calls an operator on tensors named as its arguments are."""
    inputs = [
        {"name": one.name, "kind": 2 if one.kwarg_only else 1, "arg": {"as_tensor": {"name": one.name}}}
        for one in schema.arguments
        if "Tensor" in str(one.type)
    ]
    outputs = [{"as_tensor": {"name": f"made {place}"}} for place, _ in enumerate(schema.returns)]
    return {"target": target, "inputs": inputs, "outputs": outputs}


#: Operators that exporting a model does not leave: of sparse, nested and quantized tensors, and of tests.
_RARE = re.compile(
    r"_?(autocast|fw_primal|indices|make_dual|nested|sparse|test|unpack_dual|values|coalesce|pin_memory"
    r"|slice_inverse|(c?col|c?row)_indices|crow|ccol).*"
)


def test_operators_that_write_or_return_views_are_those_of_the_schemas_of_torch():
    written = views = 0
    for target, schema in operators():
        name = target.split(".")[3]
        node = node_of(target, schema)
        stated = [one.name for one in schema.arguments if one.alias_info and one.alias_info.is_write]
        if is_in_place(name):
            assert stated[:1] == written_by(node), target
            written += 1
        if any(one.alias_info and not one.alias_info.is_write for one in schema.returns) and not _RARE.match(
            name
        ):
            assert dict(shared_by(node, name, {})), target
            views += 1
    assert written > 200
    assert views > 60


def test_dropout_in_evaluation_mode_counts_no_operations(tmp_path):
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout(0.5)).eval()
    x = torch.randn(2, 3, 6, 6)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    assert intus.read(tmp_path / "net.pt2").flops == intus.trace(net, x).flops > 0


@pytest.mark.parametrize("wrong", [lambda x: x.double(), lambda x: x.double().numpy(), lambda x: x.int()])
def test_input_of_another_dtype(wrong, tmp_path):
    x = torch.randn(2, 6)
    torch.export.save(torch.export.export(nn.Linear(6, 6), (x,)), tmp_path / "net.pt2")
    with pytest.raises(InputError) as raised:
        intus.read(tmp_path / "net.pt2", wrong(x))
    assert str(raised.value).startswith("The input 'input' of net.pt2 must be float32, 2×6, got ")
    assert str(raised.value).endswith(" Convert it to float32.")
    assert ".." not in str(raised.value)
