"""Tests of recording: calls, in-place writes, sources of tensors, inputs, failures and concurrency."""

import contextlib
import contextvars
import functools
import inspect
import re
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch import relu as bound_before
from zoo_models import Residual, make

import intus
from intus.core.address import Address


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
def test_ways_to_call_torch_are_recorded(function, expected):
    trace = run(function, x)
    assert types(trace) == expected
    assert torch.equal(trace.outputs[0].value, function(x))


def test_tensor_metadata_is_not_recorded():
    trace = run(lambda x: x.reshape(x.shape[0] * x.size(1)) * (1 if x.dtype == torch.float32 else len(x)), x)
    assert types(trace) == ["reshape", "mul"]


class Doubler(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_custom_autograd_function_is_connected():
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


# -- in-place writes -------------------------------------------------------------------------------------


def test_inplace_write_through_view():
    def model(x):
        y = x * 2
        view = y[0]
        view.add_(1)
        return y + 0

    trace = run(model, x)
    assert [parent.type for parent in trace.ops[-1].parents] == ["add"]
    assert trace["add_1"].in_place
    assert not trace["mul_1"].in_place


def test_inplace_write_through_view_in_inference_mode():
    def model(x):
        with torch.inference_mode():
            y = x * 2
            y[0].add_(1)
            return y * 3

    trace = run(model, x)
    assert [parent.label for parent in trace["mul_2"].parents] == ["add_1_3"]
    assert torch.equal(trace["mul_1"].value, x * 2)


def test_setitem_is_an_inplace_write():
    def model(x):
        y = torch.zeros(2, 3)
        y[x > 2] = 5.0
        y[0] = x[1]
        return y

    trace = run(model, x)
    assert types(trace) == ["zeros", "gt", "setitem", "getitem", "setitem"]
    assert [parent.label for parent in trace.outputs[0].parents] == [trace.ops[-1].label]
    assert ("getitem_1_4", "setitem_2_5", "2") in edges(trace)


def test_out_argument_is_an_inplace_write():
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


def test_foreach_inplace_write_and_return_type():
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


def test_unchanged_argument_keeps_its_producer_outside_the_module():
    """The residual around a norm must not depend on the norm's no-op cast."""

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


def test_noop_cast_of_a_parameter():
    class Cast(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight.to(x.dtype), self.bias)

    trace = intus.trace(Cast(3, 2), x)
    assert [param.address for param in trace["linear_1"].params] == ["weight", "bias"]


# -- sources of tensors -----------------------------------------------------------------------------------


def test_kinds_of_closures_attributes_buffers_and_parameters():
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


def test_from_numpy_of_shared_memory_keeps_its_edge():
    def model(x):
        y = x * 2
        return torch.from_numpy(y.numpy()) + 1

    trace = run(model, x)
    assert [parent.type for parent in trace["add_1"].parents] == ["mul"]


def test_returned_parameter_is_an_output():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(5, 7))

        def forward(self, x):
            return self.w

    trace = intus.trace(Model(), x)
    assert trace.outputs[0].shape == (5, 7)
    assert [param.address for param in trace.outputs[0].params] == ["w"]


def test_scripted_module_is_one_operation():
    model, inputs = make("scripted")
    trace = intus.trace(model, inputs)
    (opaque,) = [op for op in trace.ops if op.output_of == ["inner"]]
    assert [parent.type for parent in opaque.parents] == ["linear"]
    assert [child.type for child in opaque.children] == ["mul"]


def test_modules_called_by_a_function_are_named_by_class():
    body, head = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 2)
    trace = intus.trace(lambda x: head(body(x)), x)
    assert [op.module for op in trace.ops] == ["Sequential.0", "Sequential.1", "Linear"]
    assert [param.address for param in trace["Linear"].params] == ["Linear.weight", "Linear.bias"]


def test_two_modules_of_one_class_in_a_function():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    trace = intus.trace(lambda x: second(first(x)), x)
    assert [op.label for op in trace.ops] == ["linear_1_1", "linear_2_2"]
    assert [op.module for op in trace.ops] == ["Linear", "Linear_2"]


def test_module_created_in_forward():
    class Model(nn.Module):
        def forward(self, x):
            return nn.Tanh()(nn.ReLU()(x))

    assert [op.module for op in intus.trace(Model(), x).ops] == ["ReLU", "Tanh"]


def test_module_names_with_special_characters_are_escaped():
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


def test_module_created_in_a_module_with_special_characters():
    class Maker(nn.Module):
        def forward(self, x):
            return nn.Tanh()(x)

    trace = intus.trace(nn.ModuleDict({"a:2": Maker()})["a:2"], x)
    assert [op.module for op in trace.ops] == ["Tanh"]
    holder = nn.Module()
    holder.add_module("a:2", Maker())
    holder.forward = lambda x: holder.get_submodule("a:2")(x)
    assert [op.module for op in intus.trace(holder, x).ops] == [r"a\:2.Tanh"]


def test_bound_method_uses_its_modules_addresses():
    model = Residual()
    trace = intus.trace(model.forward, torch.ones(2, 4))
    assert [op.module for op in trace.ops] == ["a", None, "b", None]
    assert trace["a"].params[0].address == "a.weight"


def test_function_without_arguments():
    trace = intus.trace(lambda: torch.ones(2) * 2)
    assert types(trace) == ["ones", "mul"]
    assert trace["ones_1"].is_factory
    assert not trace["mul_1"].is_factory


def test_orphans_are_dropped():
    def model(x):
        torch.ones(3) * 5  # not connected to an input or output
        return x + 1

    assert types(run(model, x)) == ["add"]


def test_user_hooks_and_modes_still_run():
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


# -- failures ---------------------------------------------------------------------------------------------


def failing(x):
    y = x * 2
    return y.view(100)


def test_model_exception_has_the_partial_trace():
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
    """A model whose second block has the wrong input size, or which reads a missing key."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(4, 3))

    def forward(self, x, *, ask=False):
        return {"y": self.blocks[0](x)}["z"] if ask else self.blocks(x)


class FromDict(torch.nn.Module):
    def forward(self, batch):
        return batch["x"] * 2


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (Failing(), torch.ones(2, 3), "Raised in blocks.1 at linear_2_2 while intus traced Failing"),
        (Failing(), {"x": torch.ones(2, 3), "ask": True}, "Raised while intus traced Failing"),
        (lambda x: x.flatten().view(100), torch.ones(2, 3), "Raised at view_1_2 while"),
        (FromDict(), {"x": torch.ones(1)}, r"To pass it as one argument, write \(inputs,\)"),
        (lambda x: x.sum().item(), torch.ones(2, device="meta"), "Pass meta_value=True"),
    ],
)
def test_exception_note_has_location_and_advice(model, inputs, message):
    with pytest.raises((RuntimeError, KeyError, TypeError)) as caught:
        intus.trace(model, inputs)
    (note,) = caught.value.__notes__
    assert re.search(message, note)
    assert "error.intus_trace" in note
    where = re.match(r"Raised(.*) while", note)[1]
    assert f"Failed{where}: " in str(caught.value.intus_trace)


@pytest.mark.parametrize("verb", [intus.trace, intus.view, intus.validate])
def test_module_class_instead_of_instance_raises(verb):
    with pytest.raises(ValueError, match=r"ReLU is a class: write ReLU\(…\)"):
        verb(torch.nn.ReLU, torch.ones(2))


def test_on_error_keep_returns_the_partial_trace():
    trace = intus.trace(failing, x, on_error="keep")
    assert trace.graph.error.startswith("RuntimeError: shape")
    assert types(trace) == ["mul", "view"]


def test_exception_caught_by_the_model_is_no_failure():
    def model(x):
        with contextlib.suppress(RuntimeError):
            x.view(100)
        return x + 1

    trace = run(model, x)
    assert trace.graph.error == ""
    assert not any(op.failed for op in trace.ops)
    assert trace.outputs[0].parents[0].type == "add"


def test_keyboard_interrupt_is_always_raised():
    def model(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        intus.trace(model, x, on_error="keep")


def test_exception_without_settable_attributes_is_raised():
    class Frozen(Exception):  # noqa: N818
        def __setattr__(self, name, value):
            raise TypeError("frozen")

    def model(x):
        raise Frozen("mine")

    with pytest.raises(Frozen, match="mine"):
        run(model, x)


# -- concurrency ------------------------------------------------------------------------------------------


def test_concurrent_traces_in_four_threads():
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


def test_other_threads_are_not_recorded():
    other_ran = threading.Event()

    def model(x):
        thread = threading.Thread(target=lambda: (torch.tanh(x), nn.ReLU()(x), other_ran.set()))
        y = x + 1
        thread.start()
        thread.join()
        return y

    assert types(run(model, x)) == ["add"]
    assert other_ran.is_set()


def test_module_calls_in_a_thread_with_the_same_context():
    """``asyncio.to_thread`` and others copy the context variables, by which a capture finds its thread."""

    def model(x):
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(nn.ReLU(), x))
        y = x + 1
        thread.start()
        thread.join()
        return y

    found = run(model, x)
    assert types(found) == ["add"]
    assert not found.graph.modules


def test_replaced_module_call_does_what_that_of_torch_does():
    """``interpose._call_module`` repeats the body of torch's function, so both must stay the same."""
    source = textwrap.dedent(inspect.getsource(nn.Module._wrapped_call_impl)).split(":", 1)[1]
    lines = [line.split("#")[0].strip() for line in source.splitlines()]
    assert [line for line in lines if line] == [
        "if self._compiled_call_impl is not None:",
        "return self._compiled_call_impl(*args, **kwargs)",
        "else:",
        "return self._call_impl(*args, **kwargs)",
    ]


def test_tensor_in_the_memory_of_a_parameter():
    class Tied(nn.Linear):
        def __init__(self):
            super().__init__(3, 3)
            self.row = self.weight.detach()[1]  # neither a parameter nor a buffer

        def forward(self, x):
            return x * self.row

    found = run(Tied(), x)
    assert [p.address for p in found["mul_1"].params] == ["weight"]
    assert not found.constants
    assert found.validate()


def test_nested_traces():
    inner_model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    inner = []

    def model(x):
        inner.append(intus.trace(inner_model, x))
        return inner_model(x) + 1

    outer = run(model, x)
    assert types(inner[0]) == ["linear", "relu"]
    assert types(outer) == ["linear", "relu", "linear", "relu", "add"]
    package = str(Path(intus.__file__).parent)
    assert not any(op.source.file.startswith(package) for op in outer.ops)
    assert torch.equal(outer.outputs[0].value, inner_model(x) + 1)


def test_source_line_is_in_user_code():
    (op,) = intus.trace(failing, x, on_error="keep").find(type="mul")
    assert op.source.file == __file__
    assert op.source.function == "failing"
    assert op.source.line == failing.__code__.co_firstlineno + 1


def test_tensor_passed_twice_is_one_input():
    trace = run(lambda a, b: a + b, x, x)
    assert edges(trace)[:2] == [("input_1", "add_1_1", "0"), ("input_1", "add_1_1", "1")]
    assert len(trace.inputs) == 1


def test_source_of_library_module_ops_is_the_calling_line():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, x):
            return self.body(x)

    assert {op.source.function.rpartition(".")[2] for op in intus.trace(Model(), x).ops} == {"forward"}


def test_inplace_write_to_disjoint_view_is_no_parent():
    def model(x):
        y = x + 0
        first, second = y[:2], y[2:]
        first.mul_(2)
        return second + 1, y.sum()

    t = intus.trace(model, torch.ones(4))
    assert [op.label for op in t["add_2"].parents] == ["getitem_2_3"]
    assert [op.label for op in t["sum_1"].parents] == ["mul_1_4"]


def test_module_address_takes_precedence_over_label():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear_1, self.linear_2 = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.linear_1(self.linear_2(x))

    t = intus.trace(Net(), torch.ones(1, 2))
    assert t["linear_1"].output_of[0] == "linear_1"  # as in probe, inspect and the page
    assert [op.label for op in t.find("linear_1")] == ["linear_2_2"]
    assert list(intus.trace(Net(), torch.ones(1, 2), save="linear_1").values) == [t["linear_1"].row]
    assert t["linear_1_1"].output_of[0] == "linear_2"  # the full label still refers to the operation
