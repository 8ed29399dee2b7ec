"""Tests of ``decompose=True``: the same outputs, with composite functions recorded by their operations."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformer_models import gpt2
from zoo_models import ZOO, make, tensors

import intus
from intus.core.analysis import walks


def einsums(a, b):
    return torch.einsum("bij,bkj->bki", a, b) * 2


def rms(x):
    return F.rms_norm(x, (4,)) + 1


def written(x):
    y = x.clone()
    F.normalize(y, out=y)
    y.addcmul_(y, y)
    return y + 1


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)


CASES = {
    "gpt2": gpt2,
    "encoder": lambda: (encoder(), torch.randn(5, 2, 8)),
    "einsum": lambda: (einsums, (torch.randn(2, 5, 3), torch.randn(2, 4, 3))),
    "lstm": lambda: (nn.LSTM(3, 4, num_layers=2, dropout=0.5), torch.randn(5, 2, 3)),
    "gru": lambda: (nn.GRU(3, 4, bidirectional=True), torch.randn(5, 2, 3)),
    "rms": lambda: (rms, torch.randn(2, 4)),
    "loss": lambda: (F.cross_entropy, (torch.randn(2, 3), torch.tensor([1, 0]))),
    "sparse": lambda: (lambda x: torch.sparse.mm(x.to_sparse(), x.T) + 1, torch.randn(3, 4)),
    "written": lambda: (written, torch.randn(2, 4)),
    "distance": lambda: (lambda a, b: F.cosine_similarity(a, b) + 1, (torch.randn(2, 4), torch.randn(2, 4))),
}


def case(name, grad):
    torch.manual_seed(0)
    model, inputs = CASES[name]()
    return model, inputs, torch.set_grad_enabled(grad)


def rerun(model, inputs):
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", list(CASES))
def test_decomposed_outputs_and_random_state(name, grad):
    model, inputs, setting = case(name, grad)
    with setting:
        plain, state = intus.trace(model, inputs, seed=1), torch.get_rng_state()
        nested = intus.trace(model, inputs, seed=1, decompose=True)
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(plain.outputs, nested.outputs, strict=True):
        assert torch.equal(one.value, other.value)
    assert len(nested) >= len(plain)
    for out in nested.outputs:
        kinds = {op.kind for op in out.ancestors}
        assert "input" in kinds
        assert not {op.type for op in out.ancestors if op.kind == "constant"}
    report = nested.validate()
    assert report, str(report)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", list(ZOO))
def test_decomposed_zoo_is_valid(name, training):
    model, x = make(name, training)
    plain, nested = intus.trace(model, x, seed=0), intus.trace(model, x, seed=0, decompose=True)
    for one, other in zip(plain.outputs, nested.outputs, strict=True):
        assert torch.equal(one.value, other.value)
    assert nested.validate(), str(nested.validate())


class Dispatched(TorchDispatchMode):
    """Records every ATen operation with the memory and strides of its tensors, which it keeps alive."""

    def __init__(self):
        super().__init__()
        self.operations, self.tensors = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        into = [place(t) for t in tensors(list(args))]
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.detach.default:  # how autograd saves tensors
            return out
        self.tensors += tensors(out)
        self.operations.append(
            (func.overloadpacket.__name__.strip("_"), into, [place(t) for t in tensors(out)])
        )
        return out


def place(t):
    return t.untyped_storage().data_ptr(), t.storage_offset(), tuple(t.shape), t.stride()


def dispatched_edges(operations, inputs, outputs):
    """Return the types and edges of the operations that descend from an input or lead to an output.

    The producer of a tensor is the operation that last returned the same place in memory.
    """
    last, edges, from_input = {}, set(), set()
    for number, (_, into, out) in enumerate(operations):
        edges |= {(last[p], number) for p in into if p in last}
        if set(into) & inputs or any(last.get(p) in from_input for p in into):
            from_input.add(number)
        last |= dict.fromkeys(out, number)
    to_output = {last[p] for p in outputs if p in last}
    for src, dst in sorted(edges, key=lambda edge: -edge[1]):
        if dst in to_output:
            to_output.add(src)
    kept = sorted(from_input | to_output)
    number = {old: new for new, old in enumerate(kept)}
    return [operations[n][0] for n in kept], {(number[a], number[b]) for a, b in edges if {a, b} <= set(kept)}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", ["einsum", "lstm", "gru", "loss", "distance"])
def test_operations_and_edges_equal_those_dispatched(name, grad):
    model, inputs, setting = case(name, grad)
    with setting:
        trace = intus.trace(model, inputs, seed=1, decompose=True)
        torch.manual_seed(1)
        with Dispatched() as dispatched, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = rerun(model, inputs)
    places = [{place(t) for t in tensors(value)} for value in (inputs, out)]
    types, edges = dispatched_edges(dispatched.operations, *places)
    ops = trace.graph.ops
    events = list(dict.fromkeys(int(ops.event[op.row]) for op in trace.ops if op.type in types))
    rows = [int((ops.event == event).argmax()) for event in events]
    assert [trace.graph.types[ops.type[row]] for row in rows] == types
    number = {event: n for n, event in enumerate(events)}
    pairs = zip(trace.graph.edges.src, trace.graph.edges.dst, strict=True)
    recorded = {(number.get(ops.event[src]), number.get(ops.event[dst])) for src, dst in pairs}
    assert {edge for edge in recorded if None not in edge} == edges


def test_composite_function_is_a_module_call():
    torch.manual_seed(0)
    model, x = make("attention")
    trace = intus.trace(model, x, decompose=True)
    name = "mha.multi_head_attention_forward"
    assert trace.modules[name].type == "multi_head_attention_forward"
    inside = trace.find(inside=name)
    assert {"linear", "scaled_dot_product_attention"} <= {op.type for op in inside}
    assert trace[name].output_of[0] == name
    assert [op.label for op in trace.ops if op.module == ""] == ["add_2_" + str(len(trace))]
    assert name in str(trace)
    assert "linear" in {op.type for op in intus.trace(nn.Linear(2, 2), torch.ones(1, 2), decompose=True)}


def test_calls_in_a_loop_are_passes():
    def forward(x):
        for _ in range(3):
            x = F.normalize(x) * 2
        return x

    trace = intus.trace(forward, torch.randn(2, 4), decompose=True)
    assert torch.equal(trace["normalize:3"].children[0].value, trace["output_1"].value)
    assert {op.module for op in trace.find(inside="normalize")} == {
        "normalize:1",
        "normalize:2",
        "normalize:3",
    }
    assert trace["normalize:1"].pass_number == 1
    assert trace["normalize:3"].label.endswith(":3")


def test_rerun_with_a_change_inside():
    x = torch.randn(2, 4)
    trace = intus.trace(lambda x: F.cosine_similarity(x, x * 2) + 1, x, decompose=True)
    inner = trace.find(inside="cosine_similarity")[-1]
    after = trace.rerun({inner.label: 0})
    assert after["output_1"].value.tolist() == [1, 1]
    assert trace["output_1"].row in walks.descendants(trace.graph, [inner.row])


def test_exception_inside_a_composite_function():
    with pytest.raises(RuntimeError, match="einsum") as error:
        intus.trace(torch.einsum, ("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 5)), decompose=True)
    assert error.value.intus_trace.graph.error
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0


def test_decompose_is_off_by_default_and_has_no_side_effects():
    model, x = make("attention")
    assert "multi_head_attention_forward" in {op.type for op in intus.trace(model, x)}
    before = [p.grad for p in model.parameters()], dict(vars(model))
    intus.trace(model, x, decompose=True)
    assert ([p.grad for p in model.parameters()], dict(vars(model))) == before


def test_parameter_gradients_with_decompose():
    torch.manual_seed(0)
    model, x = make("encoder", training=True)
    outs = []

    def forward(x):
        outs.append(model(x))
        return outs[-1]

    grads = []
    for decompose in (False, True):
        intus.trace(forward, x, decompose=decompose, seed=0)
        grads.append(torch.autograd.grad(outs[-1].square().sum(), list(model.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_gradients_inside_a_composite_function():
    torch.manual_seed(0)
    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    trace = intus.trace(torch.einsum, ("ij,kj->ik", a, b), decompose=True, grads=True)
    weight = torch.randn(2, 4)
    (trace.output * weight).sum().backward()
    product = trace.find(type="bmm")[0]
    assert torch.equal(product.grad.flatten().sort().values, weight.flatten().sort().values)
    torch.testing.assert_close(a.grad, weight @ b.detach())
    assert all(op.grad is not None for op in trace.ops)


def test_decompose_with_default_device_and_nested_trace():
    x = torch.randn(2, 4)
    with torch.device("cpu"):
        trace = intus.trace(F.normalize, x, decompose=True)
    assert [op.type for op in trace.ops] == ["norm", "clamp_min", "expand_as", "div"]
    inner = []

    def forward(x):
        inner.append(intus.trace(F.normalize, x, decompose=True))
        return F.normalize(x)

    outer = intus.trace(forward, x)
    assert [op.type for op in outer.ops].count("normalize") == 2
    assert len(inner[0]) == 1  # a trial run would appear in the outer trace
