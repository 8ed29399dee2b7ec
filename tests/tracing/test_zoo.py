"""Tests of every model of the zoo against forward hooks, autograd and the dispatcher."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from zoo_models import ZOO, make, tensors

import intus


def test_outputs_are_bit_equal(zoo):
    model, x = zoo
    expected = tensors(model(x))
    trace = intus.trace(model, x)
    assert len(trace.outputs) == len(expected)
    for op, value in zip(trace.outputs, expected, strict=True):
        assert torch.equal(op.value, value)
        assert (op.shape, op.dtype) == (tuple(value.shape), str(value.dtype).removeprefix("torch."))


def test_module_outputs_equal_forward_hooks(zoo):
    model, x = zoo
    seen, calls = {}, {}

    def hook_for(name):
        def hook(module, args, out):
            calls[name] = calls.get(name, 0) + 1
            seen[name, calls[name]] = [t.detach().clone() for t in tensors(out)]

        return hook

    hooks = [
        module.register_forward_hook(hook_for(name))
        for name, module in model.named_modules()
        if not isinstance(module, torch.jit.ScriptModule)
    ]
    trace = intus.trace(model, x)
    for hook in hooks:
        hook.remove()
    assert seen
    for (name, number), values in seen.items():
        found = [trace.graph.label(row) for row in trace.graph.rows(f"{name}:{number}")]
        assert len(found) == len(values), (name, number)
        for label, value in zip(found, values, strict=True):
            assert torch.equal(trace[label].value, value), (name, number, label)
    assert not trace.maybe_modified


class Ran(TorchDispatchMode):
    """Records every ATen operation that ran, and what it returned."""

    def __init__(self):
        super().__init__()
        self.names, self.values = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.names.append(func.__name__.partition(".")[0])
        self.values.append([t.detach().clone() for t in tensors(out)])
        return out


@pytest.mark.parametrize("name", ["mlp", "residual", "shared", "cnn", "loop_lstm", "nested"])
def test_dispatched_operations_are_in_the_trace(name):
    model, x = make(name)
    with torch.no_grad():
        with Ran() as ran:
            model(x)
        trace = intus.trace(model, x)
    counts = {kind: sum(op.type == kind for op in trace.ops) for kind in {op.type for op in trace.ops}}
    aten = {"linear": "addmm", "relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "conv2d": "convolution"}
    for type_, aten_name in aten.items():
        assert counts.get(type_, 0) == sum(n.strip("_") == aten_name for n in ran.names), type_
    recorded = [op.value for op in trace.ops]
    for names, values in zip(ran.names, ran.values, strict=True):
        if names in ("addmm", "convolution", "relu", "tanh", "sigmoid", "mul", "add"):
            assert any(torch.equal(values[0], value) for value in recorded if value.shape == values[0].shape)


@pytest.mark.parametrize("name", ["mlp", "residual", "shared", "loop_lstm", "attention", "cnn"])
def test_connections_equal_autograd(name):
    """The ops with a path to an output are those that autograd reaches from the output."""
    model, x = make(name)
    kept = []

    class Keep(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.grad_fn is not None:
                kept.append(out.grad_fn)
            return out

    with Keep():
        out = tensors(model(x))[0]
    trace = intus.trace(model, x)
    reachable, todo = set(), [out.grad_fn]
    while todo:  # the nodes that autograd reaches
        node = todo.pop()
        if node is not None and node not in reachable:
            reachable.add(node)
            todo += [parent for parent, _ in node.next_functions]
    leads_out, todo = set(), list(trace.outputs)
    while todo:
        op = todo.pop()
        if op not in leads_out:
            leads_out.add(op)
            todo += op.parents
    assert trace.inputs[0] in leads_out
    assert sum(op.kind == "op" for op in leads_out) == len(trace.ops)  # every op has a path to an output
    used = {param.address for op in leads_out for param in op.params}
    accumulated = {id(node.variable) for node in reachable if type(node).__name__ == "AccumulateGrad"}
    assert used == {n for n, p in model.named_parameters() if id(p) in accumulated}


@pytest.mark.parametrize("name", ["mlp", "residual", "shared"])
def test_edges_equal_autograd(name):
    """The parents of each operation are the nodes that its grad_fn points to."""
    model, x = make(name)
    made = {}

    class Keep(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                made[out.grad_fn] = len(made)
            return out

    with Keep():
        model(x)
    trace = intus.trace(model, x)
    assert len(made) == len(trace.ops)
    for number, (node, _) in enumerate(made.items()):
        expected, todo = set(), [parent for parent, _ in node.next_functions]
        while todo:  # skip nodes that autograd adds: transposed weights, accumulation
            parent = todo.pop()
            if parent in made:
                expected.add(made[parent])
            elif parent is not None:
                todo += [above for above, _ in parent.next_functions]
        recorded = {trace.ops.index(parent) for parent in trace.ops[number].parents if parent.kind == "op"}
        assert recorded == expected


@pytest.mark.parametrize("name", list(ZOO))
def test_save_and_load(name, tmp_path):
    model, x = make(name)
    trace = intus.trace(model, x)
    trace.save(tmp_path / "a.trace")
    back = intus.load(tmp_path / "a.trace")
    assert back.graph.labels == trace.graph.labels
    assert str(back) == str(trace)
    assert back.values.keys() == trace.values.keys()
    for row, value in trace.values.items():
        assert torch.equal(back.values[row], value)
        assert back.values[row].dtype == value.dtype


def test_save_a_view_of_one_element_with_a_stride(tmp_path):
    trace = intus.trace(lambda x: x[::6], torch.arange(6.0))
    trace.save(tmp_path / "a.trace")
    assert intus.load(tmp_path / "a.trace")["getitem_1"].value.tolist() == [0]


@pytest.mark.parametrize("name", list(ZOO))
def test_outputs_in_training_mode(name):
    model, x = make(name, training=True)
    torch.manual_seed(7)
    expected = tensors(model(x))
    model, x = make(name, training=True)
    trace = intus.trace(model, x, seed=7)
    for op, value in zip(trace.outputs, expected, strict=True):
        assert torch.equal(op.value, value)
    assert trace.graph.facts["training"] is True
