"""Find what module calls return where only the modules of operations are stated, or say it is not known."""

import pytest

from intus.core.building import GraphBuilder, Scope
from intus.core.errors import AddressError
from intus.core.selection import match, resolve

SHAPE = (2, 3), "float32"


class Net:
    """A graph that is built row by row, each row under a name."""

    def __init__(self):
        self.builder = GraphBuilder("net.pt2")
        self.rows = {"x": self.builder.input("x", *SHAPE)}

    def op(self, name, type, *parents, scope=(), params=(), meta=SHAPE):
        for param in params:
            self.builder.param(param, (3,), "float32")
        scopes = [one if isinstance(one, Scope) else Scope(one) for one in scope]
        given = [(self.rows[parent], str(n)) for n, parent in enumerate(parents)]
        self.rows[name] = self.builder.op(type, *meta, scope=scopes, parents=given, params=params)

    def finish(self, *outputs):
        for name in outputs:
            self.builder.output(name, self.rows[name])
        graph, rows = self.builder.graph()
        names = {int(rows[row]): name for name, row in self.rows.items()}
        return graph, {
            graph.call_address(call): [names[row] for row in some]
            for call, some in graph.call_outputs.items()
        }


def test_one_tensor_that_leaves_a_call_is_its_output():
    net = Net()
    net.op("h", "linear", "x", scope=["a"])
    net.op("y", "relu", "h", scope=["a"])
    net.op("z", "add", "y", "x")
    graph, outputs = net.finish("z")
    assert outputs == {"": ["z"], "a": ["y"]}
    assert not graph.unknown_outputs


@pytest.mark.parametrize("type", ["to", "identity", "contiguous", "view", "cast"])
def test_what_a_call_was_given_is_not_its_output(type):
    net = Net()
    net.op("same", type, "x", scope=["a"])
    net.op("y", "mul", "same", scope=["a"])
    net.op("z", "add", "y", "same")
    graph, outputs = net.finish("z")
    assert outputs["a"] == ["y"]
    assert not graph.unknown_outputs


def test_a_cast_to_another_dtype_is_a_tensor_of_its_own():
    net = Net()
    net.op("half", "to", "x", scope=["a"], meta=((2, 3), "float16"))
    net.op("y", "mul", "half", scope=["a"])
    net.op("z", "add", "y", "half")
    graph, outputs = net.finish("z")
    assert outputs["a"] == ["half", "y"]
    assert graph.unknown_outputs == {1}


def test_a_call_that_returns_what_it_was_given_alone_returns_that():
    net = Net()
    net.op("same", "identity", "x", scope=["a"])
    net.op("z", "add", "same", "x")
    assert net.finish("z")[1]["a"] == ["same"]


@pytest.mark.parametrize("before", [(), ("n",)], ids=["constant", "of a shape"])
def test_a_tensor_without_the_numbers_of_an_input_is_not_returned_beside_one_with(before):
    net = Net()
    net.op("n", "shape", "x", scope=["a"], meta=((2,), "int64"))
    net.op("mask", "arange", *before, scope=["a"])
    net.op("y", "mul", "x", "mask", scope=["a"])
    net.op("z", "add", "y", "mask")
    assert net.finish("z")[1]["a"] == ["y"]


def test_a_tensor_that_an_inner_call_does_not_return_does_not_leave_those_around_it():
    net = Net()
    net.op("same", "to", "x", scope=["a", "a.norm"])
    net.op("h", "mul", "same", scope=["a", "a.norm"])
    net.op("y", "linear", "h", scope=["a"])
    net.op("z", "add", "y", "same")
    assert {name: some for name, some in net.finish("z")[1].items() if name} == {"a": ["y"], "a.norm": ["h"]}


def layers(*, second_leaves):
    """Return a graph of two layers; a step of the first is read by the second or another later row."""
    net = Net()
    for n, given in enumerate("xy"):
        scope = [Scope(f"layer.{n}", "Layer")]
        if n == 0 or second_leaves:
            net.op(f"step{n}", "exp", given, scope=scope)
        net.op("y" if n == 0 else "z", "mul", given, "step0", scope=scope)
    net.op("end", "add", "z", *(["step1"] if second_leaves else []))
    return net.finish("end")


def test_a_step_that_leaves_the_first_of_equal_layers_is_not_its_output():
    graph, outputs = layers(second_leaves=False)
    assert outputs == {"": ["end"], "layer.0": ["y"], "layer.1": ["z"]}
    assert not graph.unknown_outputs


def test_steps_that_leave_all_equal_layers_make_their_outputs_unknown():
    graph, outputs = layers(second_leaves=True)
    assert outputs["layer.0"] == ["step0", "y"]
    assert graph.unknown_outputs == {1, 2}
    for name in ("layer.0", "layer.1", "layer.0:1"):
        for read in (resolve, match):
            with pytest.raises(AddressError, match=f"'{name[:7]}' is not known, because net.pt2"):
                read(graph, name)
    assert len(match(graph, "layer.*").rows) == len(match(graph, "Layer").rows) == 4
    with pytest.raises(AddressError, match="Write the label"):
        match(graph, "layer.*[0]")


def parts(params):
    net = Net()
    net.op("h", "linear", "x", scope=["a"], params=params[:1])
    net.op("between", "tanh", "h")
    net.op("y", "mul", "between", scope=["a"], params=params[1:])
    net.op("z", "exp", "y")
    return net.finish("z")


def test_parts_of_a_call_return_what_leaves_them_together():
    graph, outputs = parts(["a.v", "a.w"])
    assert outputs == {"": ["z"], "a:2": ["y"]}
    assert not graph.unknown_outputs


def test_parts_that_may_be_calls_have_unknown_outputs():
    graph, outputs = parts([])
    assert outputs == {"": ["z"], "a:1": ["h"], "a:2": ["y"]}
    assert len(graph.unknown_outputs) == 2


def test_a_row_with_what_a_later_module_computes_is_the_output_of_the_module_around_both_alone():
    net = Net()
    net.op("y", "conv", "x", scope=["block", "block.conv"])
    net.op("z", "relu", "y")
    net.builder.merged(net.rows["y"])
    graph, outputs = net.finish("z")
    assert outputs == {"": ["z"], "block": ["y"], "block.conv": ["y"]}
    assert [graph.call_address(call) for call in graph.unknown_outputs] == ["block.conv"]


def test_the_model_returns_its_outputs_in_their_order():
    net = Net()
    net.op("first", "exp", "x")
    net.op("second", "sin", "x")
    graph, outputs = net.finish("second", "first")
    assert outputs[""] == ["second", "first"]
    assert not graph.unknown_outputs
