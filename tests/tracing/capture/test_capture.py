"""What a pass may hold: every way to call torch, to write, to fail, and to run beside others."""

import contextlib
import functools
import re
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch import relu as bound_before
from zoo_models import Residual, make

import intus
from intus.core.address import Address
from intus.core.errors import InputError


def edges(trace):
    labels, args = trace.graph.labels, trace.graph.args
    columns = (trace.graph.edges.src, trace.graph.edges.dst, trace.graph.edges.arg)
    return [(labels[s], labels[d], args[a]) for s, d, a in zip(*(c.tolist() for c in columns), strict=True)]


def run(function, *inputs):
    return intus.trace(function, inputs)


def types(trace):
    return [op.type for op in trace.ops]


x = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x + 1 - x, ["add", "sub"]),
        (lambda x: 2 / (1 - x), ["sub", "div"]),
        (lambda x: (x @ x.T) ** 2, ["T", "matmul", "pow"]),
        (lambda x: -abs(x) // 2 % 3, ["abs", "neg", "floordiv", "remainder"]),
        (lambda x: (x > 1) & ~(x > 2), ["gt", "gt", "bitwise_not", "bitwise_and"]),
        (lambda x: x[0, 1:][None], ["getitem", "getitem"]),
        (lambda x: torch.cat([x, x * 2], dim=1), ["mul", "cat"]),
        (lambda x: torch.einsum("ij,kj->ik", x, x), ["einsum"]),
        (lambda x: torch.fft.fft(x).real, ["fft_fft", "real"]),
        (lambda x: torch.special.expit(x), ["special_expit"]),
        (lambda x: torch.linalg.norm(x), ["linalg_norm"]),
        (lambda x: torch.ops.aten.add.Tensor(x, x), ["add"]),
        (lambda x: bound_before(x), ["relu"]),
        (lambda x: functools.partial(torch.add, other=1)(x), ["add"]),
        (lambda x: {"f": torch.tanh}["f"](x), ["tanh"]),
        (lambda x: F.dropout(x, 0.5, False) + 1, ["dropout", "add"]),
        (lambda x: x + torch.ones(3) + torch.arange(3), ["ones", "add", "arange", "add"]),
        (lambda x: x.max(dim=1).values + 1, ["max", "max", "add"]),
        (lambda x: sum(row for row in x), ["unbind", "unbind", "add", "add"]),
        (lambda x: x.detach().clone().data + 1, ["detach", "clone", "data", "add"]),
        (lambda x: torch.where(x > 1, x, 0), ["gt", "where"]),
        (lambda x: F.scaled_dot_product_attention(x, x, x), ["scaled_dot_product_attention"]),
    ],
)
def test_every_way_to_call_torch_is_an_operation(function, expected):
    trace = run(function, x)
    assert types(trace) == expected
    assert torch.equal(trace.outputs[0].value, function(x))


def test_telling_something_about_a_tensor_is_no_operation():
    trace = run(lambda x: x.reshape(x.shape[0] * x.size(1)) * (1 if x.dtype == torch.float32 else len(x)), x)
    assert types(trace) == ["reshape", "mul"]


class Doubler(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_a_custom_autograd_function_stays_connected():
    trace = run(lambda x: Doubler.apply(x + 1) - 1, x)
    assert trace.ops[-1].type == "sub"
    assert trace.inputs[0] in ancestors(trace.outputs[0])
    assert torch.equal(trace.outputs[0].value, (x + 1) * 2 - 1)


def ancestors(op):
    found, todo = set(), [op]
    while todo:
        new = todo.pop()
        if new not in found:
            found.add(new)
            todo += new.parents
    return found


# -- writing in place ------------------------------------------------------------------------------------


def test_a_write_through_a_view_is_the_parent_of_what_is_read_from_the_base():
    def model(x):
        y = x * 2
        view = y[0]
        view.add_(1)
        return y + 0

    trace = run(model, x)
    assert [parent.type for parent in trace.ops[-1].parents] == ["add"]
    assert trace["add_1"].in_place
    assert not trace["mul_1"].in_place


def test_the_same_under_inference_mode_where_tensors_keep_no_version():
    def model(x):
        with torch.inference_mode():
            y = x * 2
            y[0].add_(1)
            return y * 3

    trace = run(model, x)
    assert [parent.label for parent in trace["mul_2"].parents] == ["add_1_3"]
    assert torch.equal(trace["mul_1"].value, x * 2)


def test_assignment_to_an_index_is_a_write():
    def model(x):
        y = torch.zeros(2, 3)
        y[x > 2] = 5.0
        y[0] = x[1]
        return y

    trace = run(model, x)
    assert types(trace) == ["zeros", "gt", "setitem", "getitem", "setitem"]
    assert [parent.label for parent in trace.outputs[0].parents] == [trace.ops[-1].label]
    assert ("getitem_1_4", "setitem_2_5", "2") in edges(trace)


def test_out_is_a_write():
    def model(x):
        y = torch.empty(2, 3)
        torch.add(x, 1, out=y)
        return y * 2

    assert ("add_1_2", "mul_1_3", "0") in edges(run(model, x))


def test_augmented_assignment_and_functional_inplace():
    def model(x):
        y = x + 0
        y *= 2
        F.relu(y, True)
        return y - 1

    trace = run(model, x)
    assert types(trace) == ["add", "mul", "relu", "sub"]
    assert [op.parents[0].type for op in trace.ops[1:]] == ["add", "mul", "relu"]
    assert torch.equal(trace["add_1"].value, x)


def test_foreach_writes_into_its_list_and_returns_what_it_did():
    returned = []

    def model(x):
        parts = [x * 1, x * 2]
        returned.append(torch._foreach_add_(parts, 1))
        return parts[1] * 3

    plain = torch._foreach_add_([x.clone()], 1)
    trace = run(model, x)
    assert type(returned[0]) is type(plain)
    assert trace.outputs[0].parents[0].parents[0].type == "foreach_add"
    assert torch.equal(trace["mul_2"].value, x * 2)


def test_an_argument_handed_through_is_still_itself_to_others():
    """A norm that only casts must not become the source of the residual around it."""

    class Norm(nn.Module):
        def forward(self, x):
            x = x.to(torch.float32)  # the same tensor
            return x * 2

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = Norm(), nn.Dropout()

        def forward(self, x):
            return x + self.drop(self.norm(x))

    trace = intus.trace(Block().eval(), x)
    assert edges(trace) == [
        ("input_1", "to_1_1", "0"),
        ("to_1_1", "mul_1_2", "0"),
        ("mul_1_2", "dropout_1_3", "0"),
        ("input_1", "add_1_4", "0"),
        ("dropout_1_3", "add_1_4", "1"),
        ("add_1_4", "output_1", "0"),
    ]


def test_a_cast_that_casts_nothing_does_not_hide_a_parameter():
    class Cast(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight.to(x.dtype), self.bias)

    trace = intus.trace(Cast(3, 2), x)
    assert [param.address for param in trace["linear_1"].params] == ["weight", "bias"]


# -- where tensors come from ------------------------------------------------------------------------------


def test_closures_plain_attributes_buffers_and_parameters():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.plain = nn.Parameter(torch.ones(3)), torch.ones(3)
            self.register_buffer("shift", torch.ones(3))

        def forward(self, x):
            return x * self.scale + self.shift - self.plain

    trace = intus.trace(Model(), x)
    kinds = [[parent.kind for parent in op.parents] for op in trace.ops]
    assert kinds == [["input"], ["op", "buffer"], ["op", "constant"]]
    assert [param.address for param in trace["mul_1"].params] == ["scale"]
    assert trace["shift"].kind == "buffer"
    assert trace["buffer_1"] == trace["shift"]


def test_memory_shared_out_of_sight_keeps_its_edge():
    def model(x):
        y = x * 2
        return torch.from_numpy(y.numpy()) + 1

    trace = run(model, x)
    assert [parent.type for parent in trace["add_1"].parents] == ["mul"]


def test_a_parameter_that_is_returned_is_an_output_of_its_own_shape():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(5, 7))

        def forward(self, x):
            return self.w

    trace = intus.trace(Model(), x)
    assert trace.outputs[0].shape == (5, 7)
    assert [param.address for param in trace.outputs[0].params] == ["w"]


def test_an_opaque_module_is_one_operation_with_its_edges():
    model, inputs = make("scripted")
    trace = intus.trace(model, inputs)
    (opaque,) = [op for op in trace.ops if op.output_of == ["inner"]]
    assert [parent.type for parent in opaque.parents] == ["linear"]
    assert [child.type for child in opaque.children] == ["mul"]


def test_a_function_that_uses_modules_knows_their_parameters():
    body, head = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 2)
    trace = intus.trace(lambda x: head(body(x)), x)
    assert [op.module for op in trace.ops] == ["Sequential.0", "Sequential.1", "Linear"]
    assert [param.address for param in trace["Linear"].params] == ["Linear.weight", "Linear.bias"]


def test_two_modules_of_one_class_met_in_a_function_are_two():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    trace = intus.trace(lambda x: second(first(x)), x)
    assert [op.label for op in trace.ops] == ["linear_1_1", "linear_2_2"]
    assert [op.module for op in trace.ops] == ["Linear", "Linear_2"]


def test_a_module_made_while_the_model_runs():
    class Model(nn.Module):
        def forward(self, x):
            return nn.Tanh()(nn.ReLU()(x))

    assert [op.module for op in intus.trace(Model(), x).ops] == ["ReLU", "Tanh"]


def test_awkward_names_are_addresses_that_parse():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"a:2": nn.Linear(3, 3), "b[0]": nn.BatchNorm1d(3)})

        def forward(self, x):
            return self.heads["b[0]"](self.heads["a:2"](x))

    trace = intus.trace(Model().eval(), x)
    assert [op.module for op in trace.ops] == [r"heads.a\:2", r"heads.b\[0\]"]
    assert trace[r"heads.a\:2"].params[0].address == r"heads.a\:2.weight"
    assert trace[r"heads.b\[0\].running_mean"].kind == "buffer"
    assert Address.parse(trace.ops[1].module) == Address("heads.b[0]")


def test_a_module_made_inside_an_awkward_one_is_named_under_it():
    class Maker(nn.Module):
        def forward(self, x):
            return nn.Tanh()(x)

    trace = intus.trace(nn.ModuleDict({"a:2": Maker()})["a:2"], x)
    assert [op.module for op in trace.ops] == ["Tanh"]
    holder = nn.Module()
    holder.add_module("a:2", Maker())
    holder.forward = lambda x: holder.get_submodule("a:2")(x)
    assert [op.module for op in intus.trace(holder, x).ops] == [r"a\:2.Tanh"]


def test_a_bound_method_takes_its_names_from_its_module():
    model = Residual()
    trace = intus.trace(model.forward, torch.ones(2, 4))
    assert [op.module for op in trace.ops] == ["a", None, "b", None]
    assert trace["a"].params[0].address == "a.weight"


def test_a_function_of_nothing():
    trace = intus.trace(lambda: torch.ones(2) * 2)
    assert types(trace) == ["ones", "mul"]
    assert trace["ones_1"].is_factory
    assert not trace["mul_1"].is_factory


def test_orphans_are_left_out():
    def model(x):
        torch.ones(3) * 5  # leads nowhere and comes from nowhere
        return x + 1

    assert types(run(model, x)) == ["add"]


def test_the_users_own_hooks_and_modes_are_kept():
    class Plus(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out + 1 if func is torch.relu else out

    net = nn.ReLU()
    net.register_forward_hook(lambda module, args, out: out * 10)
    with Plus():
        trace = run(lambda x: torch.relu(net(x)), x)
        expected = torch.relu(net(x))
    assert torch.equal(trace.outputs[0].value, expected)


# -- inputs -----------------------------------------------------------------------------------------------


class Keywords(nn.Module):
    def forward(self, a, *, b, name="", extra=None):
        return a + b * len(name)


@pytest.mark.parametrize(
    ("inputs", "kwargs"),
    [
        ({"a": x, "b": x, "name": "xy"}, None),
        (x, {"b": x, "name": "xy"}),
        ((x,), {"b": x, "name": "xy", "extra": {"deep": [x]}}),
        ({"a": x}, {"b": x, "name": "xy"}),
    ],
)
def test_inputs_by_position_and_by_keyword(inputs, kwargs):
    trace = intus.trace(Keywords(), inputs, kwargs)
    assert torch.equal(trace.outputs[0].value, x + x * 2)


def test_a_list_is_one_argument():
    assert torch.equal(intus.trace(lambda parts: parts[0] + parts[1], [x, x]).outputs[0].value, x * 2)


def test_unusable_arguments_are_named():
    with pytest.raises(InputError, match="a module or a function"):
        intus.trace("resnet50", x)
    with pytest.raises(InputError, match="on_error='ignore'"):
        intus.trace(nn.ReLU(), x, on_error="ignore")
    with pytest.raises(InputError, match=r"\['a'\] are given in both"):
        intus.trace(Keywords(), {"a": x}, {"a": x})


# -- failing ----------------------------------------------------------------------------------------------


def failing(x):
    y = x * 2
    return y.view(100)


def test_an_exception_is_the_models_own_and_carries_the_partial_trace():
    with pytest.raises(RuntimeError) as plain:
        failing(x)
    with pytest.raises(RuntimeError) as caught:
        run(failing, x)
    assert str(caught.value) == str(plain.value)
    trace = caught.value.intus_trace
    assert [(op.label, op.failed) for op in trace.ops] == [("mul_1_1", False), ("view_1_2", True)]
    assert trace["view_1"].parents == [trace["mul_1"]]
    assert torch.equal(trace["mul_1"].value, x * 2)
    assert "invalid for input of size 6" in trace.graph.error
    assert "stopped by RuntimeError" in repr(trace)


class Failing(torch.nn.Module):
    """Its second block is too narrow for what comes, or its Python asks for what is not there."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(4, 3))

    def forward(self, x, *, ask=False):
        return {"y": self.blocks[0](x)}["z"] if ask else self.blocks(x)


class FromDict(torch.nn.Module):
    def forward(self, batch):
        return batch["x"] * 2


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        (Failing(), torch.ones(2, 3), "Raised in blocks.1 at linear_2_2 while intus traced Failing"),
        (Failing(), {"x": torch.ones(2, 3), "ask": True}, "Raised while intus traced Failing"),
        (lambda x: x.flatten().view(100), torch.ones(2, 3), "Raised at view_1_2 while"),
        (FromDict(), {"x": torch.ones(1)}, r"To pass it as one argument, write \(inputs,\)"),
        (lambda x: x.sum().item(), torch.ones(2, device="meta"), "Pass meta_value=True"),
    ],
)
def test_a_note_says_where_an_exception_was_raised_and_what_helps(model, inputs, said):
    with pytest.raises((RuntimeError, KeyError, TypeError)) as caught:
        intus.trace(model, inputs)
    (note,) = caught.value.__notes__
    assert re.search(said, note)
    assert "error.intus_trace" in note
    where = re.match(r"Raised(.*) while", note)[1]
    assert f"Failed{where}: " in str(caught.value.intus_trace)


@pytest.mark.parametrize("verb", [intus.trace, intus.view, intus.validate])
def test_a_class_is_not_taken_for_a_module(verb):
    with pytest.raises(ValueError, match=r"ReLU is a class: write ReLU\(…\)"):
        verb(torch.nn.ReLU, torch.ones(2))


def test_the_partial_trace_can_be_asked_for():
    trace = intus.trace(failing, x, on_error="keep")
    assert trace.graph.error.startswith("RuntimeError: shape")
    assert types(trace) == ["mul", "view"]


def test_an_exception_the_model_catches_is_no_failure():
    def model(x):
        with contextlib.suppress(RuntimeError):
            x.view(100)
        return x + 1

    trace = run(model, x)
    assert trace.graph.error == ""
    assert not any(op.failed for op in trace.ops)
    assert trace.outputs[0].parents[0].type == "add"


def test_an_interrupt_is_never_kept():
    def model(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        intus.trace(model, x, on_error="keep")


def test_an_exception_that_refuses_attributes_is_raised_all_the_same():
    class Frozen(Exception):  # noqa: N818
        def __setattr__(self, name, value):
            raise TypeError("frozen")

    def model(x):
        raise Frozen("mine")

    with pytest.raises(Frozen, match="mine"):
        run(model, x)


# -- beside others ----------------------------------------------------------------------------------------


def test_four_threads_at_once_see_their_own_pass_alone():
    models = [make(name) for name in ("mlp", "cnn", "residual", "loop_lstm")]
    alone = [intus.trace(model, inputs).graph for model, inputs in models]
    found = {number: [] for number in range(4)}
    start = threading.Barrier(4)

    def work(number):
        model, inputs = models[number]
        start.wait()
        for _ in range(5):
            found[number].append(intus.trace(model, inputs).graph)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, graph in enumerate(alone):
        assert len(found[number]) == 5
        for other in found[number]:
            assert other.labels == graph.labels
            np.testing.assert_array_equal(other.edges.src, graph.edges.src)


def test_a_thread_beside_a_trace_is_never_recorded():
    other_ran = threading.Event()

    def model(x):
        thread = threading.Thread(target=lambda: (torch.tanh(x), nn.ReLU()(x), other_ran.set()))
        y = x + 1
        thread.start()
        thread.join()
        return y

    assert types(run(model, x)) == ["add"]
    assert other_ran.is_set()


def test_a_trace_inside_a_trace():
    inner_model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    inner = []

    def model(x):
        inner.append(intus.trace(inner_model, x))
        return inner_model(x) + 1

    outer = run(model, x)
    assert types(inner[0]) == ["linear", "relu"]
    assert types(outer) == ["linear", "relu", "linear", "relu", "add"]
    assert all("intus" not in op.source.file for op in outer.ops)
    assert torch.equal(outer.outputs[0].value, inner_model(x) + 1)


def test_the_source_line_is_the_users():
    (op,) = intus.trace(failing, x, on_error="keep").find(type="mul")
    assert op.source.file == __file__
    assert op.source.function == "failing"
    assert op.source.line == failing.__code__.co_firstlineno + 1


def test_one_tensor_given_twice_is_one_input():
    trace = run(lambda a, b: a + b, x, x)
    assert edges(trace)[:2] == [("input_1", "add_1_1", "0"), ("input_1", "add_1_1", "1")]
    assert len(trace.inputs) == 1


def test_what_a_library_module_runs_counts_as_the_line_that_called_it():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, x):
            return self.body(x)

    assert {op.source.function.rpartition(".")[2] for op in intus.trace(Model(), x).ops} == {"forward"}


def test_a_write_through_one_view_is_no_parent_of_another_that_shares_none_of_it():
    def model(x):
        y = x + 0
        first, second = y[:2], y[2:]
        first.mul_(2)
        return second + 1, y.sum()

    t = intus.trace(model, torch.ones(4))
    assert [op.label for op in t["add_2"].parents] == ["getitem_2_3"]
    assert [op.label for op in t["sum_1"].parents] == ["mul_1_4"]


def test_a_module_path_wins_over_a_label_of_the_same_name():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear_1, self.linear_2 = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.linear_1(self.linear_2(x))

    t = intus.trace(Net(), torch.ones(1, 2))
    assert t["linear_1"].output_of[0] == "linear_1"  # as probe, inspect and the page mean it
    assert [op.label for op in t.find("linear_1")] == ["linear_2_2"]
    assert list(intus.trace(Net(), torch.ones(1, 2), save="linear_1").values) == [t["linear_1"].row]
    assert t["linear_1_1"].output_of[0] == "linear_2"  # the full label stays the operation's
