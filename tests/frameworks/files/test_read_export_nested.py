"""Graphs inside of operations in files of torch.export, judged by torch's interpreter of its own graphs."""

import operator

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from torch import nn

import intus

#: Operations that take a tensor; few, so that each graph has the names of the others.
OPERATIONS = {
    "mul": lambda x: x * 3,
    "add": lambda x: x + 1,
    "sub": lambda x: x - 2,
    "neg": torch.neg,
    "sin": torch.sin,
}


class Program(nn.Module):
    """Runs steps in order: the name of an operation, or the steps of the two branches of a ``cond``."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        return self.run(self.steps, x)

    def run(self, steps, x):
        for step in steps:
            if isinstance(step, str):
                x = OPERATIONS[step](x)
            else:
                then, other = step
                x = torch.cond(
                    x.sum() > 0, lambda x, s=then: self.run(s, x), lambda x, s=other: self.run(s, x), (x,)
                )
        return x


class Interpreter(torch.fx.Interpreter):
    """Runs a program as torch does, and notes the result of every operation by the graph that it is in."""

    def __init__(self, module, address="", found=None):
        super().__init__(module)
        self.address, self.found = address, {} if found is None else found

    def run_node(self, node):
        result = super().run_node(node)
        if (
            node.op == "call_function"
            and node.target is not operator.getitem
            and isinstance(result, torch.Tensor)
        ):
            self.found.setdefault(self.address, []).append(result.detach().numpy().copy())
        return result

    def call_function(self, target, args, kwargs):
        if str(target) != "cond":
            return super().call_function(target, args, kwargs)
        condition, then, other, operands = args
        number = self.found.setdefault((self.address, "conds"), [])
        call = "cond" if not number else f"cond_{len(number)}"
        branch, graph = ("true", then) if condition else ("false", other)
        name = f"{branch}_graph_{len(number)}"
        number.append(call)
        inside = f"{self.address}.{call}.{name}".lstrip(".")
        self.found.setdefault(inside, [])
        return Interpreter(graph, inside, self.found).run(*operands)


def assert_same_as_torch(path, x):
    program = torch.export.load(path)
    theirs = Interpreter(program.graph_module)
    (end,) = theirs.run(*program.state_dict.values(), x)
    trace = intus.read(path, x)
    ours: dict[str, list] = {}
    for op in trace.ops:
        if op.type != "cond":
            ours.setdefault(op.module, []).append(op.value if op.saved else None)
    for address, values in ours.items():
        expected = theirs.found.get(address)
        if expected is None:  # in a branch that was not taken
            assert values == [None] * len(values), address
            continue
        assert len(values) == len(expected), address
        for value, one in zip(values, expected, strict=True):
            assert value is not None, address
            assert np.array_equal(value, one), address
    assert np.array_equal(trace.outputs[0].value, end.detach().numpy())


def saved(net, folder, *x):
    path = folder / "net.pt2"
    torch.export.save(torch.export.export(net.eval(), x), path)
    return path


NAMES = st.sampled_from(sorted(OPERATIONS))
BRANCH = st.recursive(
    st.lists(NAMES, min_size=1, max_size=3),
    lambda inner: st.lists(st.one_of(NAMES, st.tuples(inner, inner)), min_size=1, max_size=3),
    max_leaves=3,
)


@pytest.mark.long
@given(
    before=st.lists(NAMES, min_size=1, max_size=3),
    branches=st.tuples(BRANCH, BRANCH),
    after=st.lists(NAMES, max_size=2),
    start=st.sampled_from([-1.5, 0.5]),
)
@example(["neg"], (["add"], [(["add"], ["add"]), (["add"], ["add"]), "add"]), [], 0.5)  # two in a branch
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_values_of_branches_are_those_of_torch(tmp_path_factory, before, branches, after, start):
    net, x = Program([*before, branches, *after]), torch.full((2, 2), start)
    path = saved(net, tmp_path_factory.mktemp("nested"), x)
    assert_same_as_torch(path, x)


@pytest.mark.parametrize("sign", [1, -1])
def test_branch_that_was_not_taken_has_no_value_of_another_graph(tmp_path, sign):
    x = sign * torch.ones(2, 2)
    path = saved(Program(["mul", "add", (["mul"], ["sub"])]), tmp_path, x)
    trace = intus.read(path, x)
    assert np.array_equal(trace["mul_1"].value, 3 * x.numpy())
    assert trace["mul_2"].saved == (sign > 0)
    assert_same_as_torch(path, x)


class Weighted(nn.Module):
    """Two branches that take their weights in opposite order."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return torch.cond(
            x.sum() > 0,
            lambda x: self.second(self.first(x)),
            lambda x: self.first(self.second(x)),
            (x,),
        )


@pytest.mark.parametrize("sign", [1, -1])
def test_weights_of_branches_are_known(tmp_path, sign):
    x = sign * torch.ones(2, 2)
    path = saved(Weighted(), tmp_path, x)
    trace = intus.read(path, x)
    inside = [
        [one.address for one in op.params]
        for op in trace.ops
        if op.type == "linear" and "true_graph" in op.module
    ]
    assert inside == [["first.weight"], ["second.weight"]]
    assert_same_as_torch(path, x)


class Loop(nn.Module):
    def forward(self, x):
        y = x * 3
        (z,) = torch._higher_order_ops.while_loop(lambda i: i.sum() < 100, lambda i: (i * 2 + 1,), (y,))
        return z * 5


def test_names_in_a_loop_are_not_those_outside(tmp_path):
    x = torch.ones(2)
    path = saved(Loop(), tmp_path, x)
    trace = intus.read(path, x)
    assert np.array_equal(trace["mul_1"].value, 3 * x.numpy())
    assert all(not op.saved for op in trace.ops if op.module)
