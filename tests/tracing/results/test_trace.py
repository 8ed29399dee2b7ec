"""Indexing, finding, tables and text of Trace."""

import pytest
import torch
from torch import nn
from zoo_models import make

import intus
from intus.core.errors import AddressError, InputError


@pytest.fixture(scope="module")
def trace():
    model, x = make("cnn")
    return intus.trace(model, x)


def test_indexing(trace):
    assert trace["conv2d_1_1"] == trace["conv2d_1"] == trace["conv1"] == trace[0]
    assert trace[-1] == trace["head"] == trace["linear_1"]
    assert trace["relu:2"].label == "relu_2_5"
    assert "conv1" in trace
    assert "conv9" not in trace
    assert len(trace) == 9 == len(list(trace))


def test_unknown_name_suggests_the_nearest(trace):
    with pytest.raises(AddressError, match=r"Cnn has no 'conv2d_7'\. Did you mean 'conv2d_"):
        trace["conv2d_7"]
    with pytest.raises(AddressError, match=r"\[9\] is out of range: there are 9 operations"):
        trace[9]
    with pytest.raises(InputError):
        trace[1.5]


def test_find(trace):
    assert [op.label for op in trace.find(type="relu")] == ["relu_1_3", "relu_2_5"]
    assert [op.label for op in trace.find("conv*")] == ["conv2d_1_1", "conv2d_2_4"]
    assert [op.label for op in trace.find(lambda op: op.in_place)] == ["relu_1_3", "relu_2_5"]
    assert trace.find("all", type="nothing") == []
    assert len(trace.find()) == 9


def test_op_properties(trace):
    op = trace["conv1"]
    assert (op.type, op.kind, op.pass_number, op.shape, op.dtype, op.nbytes) == (
        "conv2d", "op", 1, (2, 4, 6, 6), "float32", 2 * 4 * 6 * 6 * 4,
    )  # fmt: skip
    assert [parent.label for parent in op.parents] == ["input_1"]
    assert [child.label for child in op.children] == ["batch_norm_1_2"]
    assert [param.address for param in op.params] == ["conv1.weight", "conv1.bias"]
    assert (op.module, op.modules, op.output_of) == ("conv1", ["", "conv1"], ["conv1"])
    assert op.seconds > 0
    assert op.saved
    assert repr(op) == "<Op conv2d_1_1: 2×4×6×6 float32 in conv1>"
    assert len({op, trace[0]}) == 1


def test_pandas(trace):
    frame = trace.to_pandas().set_index("label")
    assert list(frame.index) == trace.graph.labels
    assert frame.loc["linear_1_9", "parameters"] == 16 * 3 + 3
    assert frame.loc["relu_1_3", "parents"] == ["batch_norm_1_2"]
    assert frame.loc["conv2d_1_1", "module"] == "conv1"
    assert frame.loc["conv2d_1_1", "source"].startswith(torch.nn.__path__[0].rpartition("torch")[0]) is False
    assert (frame["kind"] == "op").sum() == 9


def test_networkx(trace):
    graph = trace.to_networkx()
    assert set(graph.nodes) == set(trace.graph.labels)
    assert {(a, b, d["arg"]) for a, b, d in graph.edges(data=True)} >= {
        ("input_1", "conv2d_1_1", "0"),
        ("buffer_1", "batch_norm_1_2", "1"),
        ("buffer_2", "batch_norm_1_2", "2"),
    }
    assert graph.nodes["conv2d_1_1"]["shape"] == "2×4×6×6"


def test_text(trace):
    assert repr(trace) == "<Trace of Cnn: 9 operations, 13 values saved>"
    text = str(trace)
    assert "Conv2d" in text
    assert "2×4×6×6" in text


def test_layers_and_modules(trace):
    assert list(trace.layers)[:2] == ["conv2d_1_1", "batch_norm_1_2"]
    assert trace.modules["conv1"].type == "Conv2d"
    assert trace.modules[""].type == "Cnn"


def test_draw_writes_html_and_refuses_unknown_extension(trace, tmp_path):
    page = trace.draw(tmp_path / "net.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(InputError, match=r"net\.gif"):
        trace.draw(tmp_path / "net.gif")


def test_view_of_model_and_trace(tmp_path):
    model, x = make("residual")
    assert "Residual" in repr(intus.view(model, x))
    assert "4 operations" in repr(intus.view(lambda x: model(x), x))
    ran = intus.trace(model, x)
    for args, keywords in (((x,), {}), ((), {"kwargs": {"x": x}}), ((), {"x": x}), ((), {"seed": 0})):
        with pytest.raises(InputError, match=r"A trace is of a pass that ran already.*view\(model, inputs\)"):
            intus.view(ran, *args, **keywords)
    with pytest.raises(InputError, match="A graph is of a pass"):
        intus.view(ran.graph, x)


def test_find_by_neighbors_and_module():
    net = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.MaxPool2d(2), torch.nn.ReLU()),
    )
    t = intus.trace(net, torch.ones(1, 1, 16, 16))
    assert [op.output_of[0] for op in t.find(type="max_pool2d", after="relu")] == ["0.2"]
    assert [op.output_of[0] for op in t.find("conv2d", before="max_pool2d")] == ["1.0"]
    assert [op.type for op in t.find(inside="1")] == ["conv2d", "max_pool2d", "relu"]
    with pytest.raises(AddressError, match="No module '2' ran"):
        t.find(inside="2")


def test_graph_settings():
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, stride=2), torch.nn.MaxPool2d(2, ceil_mode=True))
    graph = intus.trace(net, torch.ones(1, 1, 9, 9), save="none").graph
    settings = [graph.setting(row) for row in range(len(graph.ops))]
    assert settings == [
        "",
        "(2, 2), (0, 0), (1, 1), 1",
        "2, stride=2, padding=0, dilation=1, ceil_mode=True, return_indices=False",
        "",
    ]


def test_graph_modules_with_tied_parameters():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2)).eval()
    net[2].weight = net[0].weight
    net[0].train()
    graph = intus.trace(net, torch.ones(1, 2)).graph
    held = {m.address: [graph.params[p].address for p in m.params] for m in graph.modules}
    assert held == {
        "": [],
        "0": ["0.weight", "0.bias"],
        "1": ["1.weight", "1.bias"],
        "2": ["0.weight", "2.bias"],
    }
    assert [graph.buffers[b].address for b in graph.modules[2].buffers] == [
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ]
    assert [m.training for m in graph.modules] == [False, True, False, False]
    assert graph.sites[graph.modules[1].site].function == "Linear.forward"


class Ends(nn.Module):
    def forward(self, image, *more, mask=None, **rest):
        return {"logits": image + mask, "states": [more[0] * rest["scale"]["by"], more[1] + 1]}


def test_input_and_output_names():
    x = torch.ones(2)
    t = intus.trace(Ends(), x, x + 1, x + 2, mask=x + 3, scale={"by": x + 4})
    assert t.graph.facts["inputs"] == ["image", "more.0", "more.1", "mask", "scale.by"]
    assert t.graph.facts["outputs"] == ["logits", "states.0", "states.1"]
    lines = str(t).splitlines()
    assert any(line.split()[:2] == ["input_4", "mask"] for line in lines)
    assert any(line.split()[:2] == ["output_1", "logits"] for line in lines)


def test_tensor_passed_twice_is_one_input():
    x = torch.ones(2)
    t = intus.trace(lambda a, b, c: a + b + c, (x, x, x + 1))
    assert t.graph.facts["inputs"] == ["a", "c"]
    assert "outputs" not in t.graph.facts  # a lone output has no name


def test_invalid_arguments_raise_the_model_error():
    with pytest.raises(TypeError, match=r"forward\(\) got an unexpected keyword argument 'masks'"):
        intus.trace(nn.ReLU(), torch.ones(2), kwargs={"masks": torch.ones(2)})


def test_source_in_a_package_beside_torch_is_its_own():
    folder = torch.nn.__path__[0].rpartition("torch")[0]
    code = {}
    for name in ("torchvision", "torch"):
        scope = {}
        exec(compile("def body(x):\n    return x.cos()", f"{folder}{name}/models/net.py", "exec"), scope)
        code[name] = scope["body"]
    assert intus.trace(code["torchvision"], torch.ones(2))["cos_1"].source.line == 2
    assert intus.trace(lambda x: code["torch"](x), torch.ones(2))["cos_1"].source.file == __file__
