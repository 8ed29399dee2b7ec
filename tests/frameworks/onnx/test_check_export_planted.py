"""``check_export`` of models of which one parameter or buffer was changed after the export.

The judge is the model itself: if its output is another, the file cannot be equal to it. Of a change without
an effect on these inputs it is said if only the effect was compared.
"""

import copy
import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import intus


class Net(nn.Module):
    def __init__(self, run, **modules):
        super().__init__()
        self.run = run
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.run(self, x)


def recurrent(layer, run, **options):
    net = layer(5, 6, batch_first=True, **options)
    return Net(run, rnn=net, fc=nn.Linear(6 * (1 + net.bidirectional), 3)), torch.randn(2, 4, 5)


def last(self, x):
    return self.fc(self.rnn(x)[0][:, -1])


def whole(self, x):
    return self.fc(self.rnn(x)[0])


def first_and_last(self, x):
    return self.fc(torch.relu(self.rnn(x)[0])[:, ::3])


def hidden(self, x):
    return self.fc(self.rnn(x)[1][0][-1])


def sequence_first():
    net = Net(lambda self, x: self.fc(self.rnn(x)[0][0]), rnn=nn.RNN(5, 6), fc=nn.Linear(6, 3))
    return net, torch.randn(4, 2, 5)


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)  # the bias of self_attn.out_proj is 0
    net = Net(
        lambda self, x: self.fc(self.enc(x)[:, 0]), enc=nn.TransformerEncoder(layer, 2), fc=nn.Linear(8, 3)
    )
    return net, torch.randn(2, 4, 8)


def attention():
    att = nn.MultiheadAttention(8, 2, batch_first=True)
    return Net(lambda self, x: self.fc(self.att(x, x, x)[0][:, 0]), att=att, fc=nn.Linear(8, 3)), torch.randn(
        2, 4, 8
    )


def convolution():
    net = Net(
        lambda self, x: self.fc(torch.relu(self.bn(self.conv(x)))[..., -1]),
        conv=nn.Conv1d(3, 6, 3),
        bn=nn.BatchNorm1d(6),
        fc=nn.Linear(6, 3),
    )
    with torch.no_grad():
        net.bn.running_mean.normal_()
        net.bn.running_var.uniform_(0.5, 2)
        net.bn.weight.uniform_(0.5, 2)
    return net, torch.randn(2, 3, 8)


def tied():
    net = Net(
        lambda self, ids: self.head(torch.tanh(self.emb(ids) + self.pos[:, : ids.shape[1]])),
        emb=nn.Embedding(12, 6),
        pos=nn.Parameter(torch.randn(1, 7, 6)),
        head=nn.Linear(6, 12, bias=False),
    )
    net.head.weight = net.emb.weight
    return net, torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


#: Those that run in every suite.
FEW = ("lstm last", "encoder")
MODELS = {
    "lstm last": lambda: recurrent(nn.LSTM, last, bidirectional=True),
    "lstm whole": lambda: recurrent(nn.LSTM, whole, num_layers=2, bidirectional=True),
    "lstm some": lambda: recurrent(nn.LSTM, first_and_last, num_layers=2),
    "lstm hidden": lambda: recurrent(nn.LSTM, hidden),
    "lstm without bias": lambda: recurrent(nn.LSTM, last, bias=False),
    "gru last": lambda: recurrent(nn.GRU, last, bidirectional=True),
    "gru whole": lambda: recurrent(nn.GRU, whole, num_layers=2),
    "rnn last": lambda: recurrent(nn.RNN, last, nonlinearity="relu"),
    "rnn whole": lambda: recurrent(nn.RNN, whole, bidirectional=True),
    "rnn sequence first": sequence_first,
    "encoder": encoder,
    "attention": attention,
    "convolution": convolution,
    "tied": tied,
}


def scale(value):
    value.mul_(1.5).add_(0.01)


def one_element(value):
    value.view(-1)[value.numel() // 2] += 0.05


def zero(value):
    value.zero_()


def reverse(value):
    value.copy_(value.flip(0))


def transpose(value):
    if value.dim() == 2 and value.shape[0] == value.shape[1]:
        value.copy_(value.T.clone())


def exported(name, dynamo, path):
    torch.manual_seed(0)
    net, x = MODELS[name]()
    net.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        options = {"verbose": False} if dynamo else {}
        torch.onnx.export(net, (x,), path, dynamo=dynamo, **options)
    return net, x


def state(net):
    return {**dict(net.named_parameters()), **{n: b for n, b in net.named_buffers() if b.is_floating_point()}}


def check_changes(name, dynamo, path, changes, step=1):
    net, x = exported(name, dynamo, path)
    check = intus.check_export(net, path, x)
    assert check.verdict == "equal", str(check)
    assert check.parameters == []
    for changed in list(state(net))[::step]:
        for change in changes:
            other = copy.deepcopy(net)
            with torch.no_grad():
                change(state(other)[changed])
            if torch.equal(state(other)[changed], state(net)[changed]):
                continue
            check = intus.check_export(other, path, x)
            apart = float((other(x) - net(x)).detach().abs().max() / net(x).detach().abs().max())
            if check:  # the bias of a key has no effect on any input
                assert apart < 1e-6, (changed, change.__name__)
                assert any(changed in note for note in check.notes), (changed, change.__name__)
                continue
            assert check.verdict == "differs", (changed, change.__name__, str(check))
            owner = changed.rpartition(".")[0].removesuffix(".out_proj")
            named = check.first["module"]
            others = {"convolution": ["bn"]}  # a folded convolution has no output of its own
            assert named in (owner, *others.get(name, [])), (changed, change.__name__)


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("name", FEW)
def test_changed_parameter_is_not_equal(name, dynamo, tmp_path):
    check_changes(name, dynamo, tmp_path / "net.onnx", [scale], step=3)


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("layer", [0, 1])
def test_change_before_a_dropout_is_named_at_the_layer(layer, dynamo, tmp_path):
    """In evaluation mode a dropout returns what it is given, and the file lacks it."""
    net, x = exported("encoder", dynamo, tmp_path / "net.onnx")
    with torch.no_grad():
        net.enc.layers[layer].linear2.bias.zero_()
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.first["module"] == f"enc.layers.{layer}.linear2"
    assert f"The first difference is in enc.layers.{layer}.linear2." in str(check)


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("name", MODELS)
def test_any_change_of_a_parameter_is_not_equal(name, dynamo, tmp_path):
    check_changes(name, dynamo, tmp_path / "net.onnx", [scale, one_element, zero, reverse, transpose])


class Dead(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.dead, self.never = nn.Linear(4, 3), nn.Linear(4, 2), nn.Linear(2, 2)

    def forward(self, x):
        self.dead(x)
        return self.fc(x)


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
def test_parameters_without_effect_that_the_file_lacks_are_noted(dynamo, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "dead", lambda: (Dead(), torch.randn(2, 4)))
    net, x = exported("dead", dynamo, tmp_path / "net.onnx")
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "equal", str(check)
    assert check.parameters == []
    assert "Not in the file, and without effect on any output: dead.weight, dead.bias." in check.notes
    assert "the model does not use never.weight, never.bias" in " ".join(check.notes)


@pytest.mark.parametrize(
    "read",
    [
        lambda y: 3 if y.tanh().sum() > -99 else 2,
        lambda y: 3 + 0 * int(y.mean().item()),
        lambda y: 3 + 0 * y.tolist()[0][0],
        lambda y: 3 + 0 * float(y.detach().numpy()[0, 0]),
        lambda y: 3 + 0 * len((y > 0).nonzero()),
        lambda y: 3 + 0 * y[y > 0].shape[0],
        lambda y: 3 + 0 * y.unique().numel(),
        lambda y: 3 + 0 * len(torch.where(y > 0)[0]),
    ],
    ids=["if", "item", "tolist", "numpy", "nonzero", "mask", "unique", "where"],
)
def test_parameters_that_python_may_have_read_are_not_proven(read, tmp_path, monkeypatch):
    class Reads(Dead):
        def forward(self, x):
            return self.fc(x) * (3 if torch.onnx.is_in_onnx_export() else read(self.dead(x)))

    monkeypatch.setitem(MODELS, "dead", lambda: (Reads(), torch.randn(2, 4)))
    net, x = exported("dead", False, tmp_path / "net.onnx")
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "not proven", str(check)
    assert check.first is None
    reason = "is not in the file, and no output of the model depends on it"
    assert check.parameters == [f"dead.weight {reason}", f"dead.bias {reason}"]
    assert "dead.weight, dead.bias are not in the file" in str(check)


def test_changed_bias_that_the_file_has_dropped(tmp_path):
    """A normalization takes away what the bias of all channels adds, so that the outputs agree."""
    net, x = exported("encoder", True, tmp_path / "net.onnx")
    bias = net.enc.layers[0].self_attn.out_proj.bias
    assert not bias.any()
    expected = net(x)
    with torch.no_grad():
        bias.fill_(0.7)
    assert torch.allclose(net(x), expected, atol=1e-5)
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "differs"
    assert check.first["module"] == "enc.layers.0.self_attn"
    name = "enc.layers.0.self_attn.out_proj.bias"
    assert any(one.startswith(f"{name} is not in the file, and what") for one in check.parameters)
    assert f"{name} is not in the file" in str(check)
    assert "all agree" not in str(check)


def test_recurrent_layer_without_its_whole_output_in_the_file(tmp_path):
    """The outputs of the pass agree although the layer does not: the last position sees no change."""
    net, x = exported("lstm last", True, tmp_path / "net.onnx")
    expected = net(x)
    with torch.no_grad():
        net.rnn.weight_hh_l0_reverse.zero_()
    assert torch.equal(net(x), expected)
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "differs"
    assert check.first["module"] == "rnn"
    assert check.table.modules.set_index("a").verdict["rnn"] == "differs"
    assert check.parameters[0].startswith("rnn.weight_hh_l0_reverse of a and")


class Gated(nn.Module):
    """The weights of ``square`` have no effect where the ReLU before it returns zeros."""

    def __init__(self, dead):
        super().__init__()
        self.first, self.square, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.first.bias.data.fill_(-100.0 if dead else 1.0)

    def forward(self, x):
        return self.last(self.square(torch.relu(self.first(x))))


def gated(dead, axes, dynamo, path, monkeypatch):
    """Return a model, its input, and its file with the values and the users of the weight of ``square``."""
    monkeypatch.setitem(MODELS, "gated", lambda: (Gated(dead), torch.randn(*[5, 3, 6][-axes:])))
    net, x = exported("gated", dynamo, path)
    assert intus.check_export(net, path, x).verdict == "equal"
    model, own = onnx.load(path), net.square.weight.detach().numpy()
    [stored] = [
        tensor
        for tensor in model.graph.initializer
        if list(tensor.dims) == [6, 6] and np.isin(onnx.numpy_helper.to_array(tensor), own).all()
    ]
    return net, x, model, stored


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("axes", [2, 3], ids=["gemm", "matmul"])
@pytest.mark.parametrize("dead", [True, False], ids=["without effect", "with effect"])
def test_transposed_square_weight_is_named(dead, axes, dynamo, tmp_path, monkeypatch):
    net, x, model, stored = gated(dead, axes, dynamo, tmp_path / "net.onnx", monkeypatch)
    turned = np.ascontiguousarray(onnx.numpy_helper.to_array(stored).T)
    stored.CopyFrom(onnx.numpy_helper.from_array(turned, stored.name))
    onnx.save(model, tmp_path / "turned.onnx")
    check = intus.check_export(net, tmp_path / "turned.onnx", x)
    assert check.verdict == "differs"
    assert check.first["module"] == "square"
    both = "and of b" if stored.name == "square.weight" else f"and {stored.name} of b"
    sentences = {
        f"square.weight of a {both} are transposes of each other",
        f"square.weight of a {both} are equal, but b uses it transposed",
    }
    assert len(check.parameters) == 1
    assert set(check.parameters) <= sentences
    assert set(check.parameters) <= set(check.first["why"])


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("change", ["both", "use"])
def test_use_of_a_square_weight_decides_on_its_transpose(change, dynamo, tmp_path, monkeypatch):
    """A weight that is stored transposed and used so is the same; one that is only used so is not."""
    net, x, model, stored = gated(True, 2, dynamo, tmp_path / "net.onnx", monkeypatch)
    [user] = [node for node in model.graph.node if stored.name in node.input]
    [order] = [attribute for attribute in user.attribute if attribute.name == "transB"]
    order.i = 0
    if change == "both":
        turned = np.ascontiguousarray(onnx.numpy_helper.to_array(stored).T)
        stored.CopyFrom(onnx.numpy_helper.from_array(turned, stored.name))
    onnx.save(model, tmp_path / "used.onnx")
    check = intus.check_export(net, tmp_path / "used.onnx", x)
    assert check.verdict == ("equal" if change == "both" else "differs")
    expected = [] if change == "both" else ["square.weight of a and of b are equal, but b uses it transposed"]
    assert check.parameters == expected


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
def test_transposed_square_weight_of_an_unknown_use_is_not_proven(dynamo, tmp_path, monkeypatch):
    net, x, model, stored = gated(True, 2, dynamo, tmp_path / "net.onnx", monkeypatch)
    [at] = [place for place, node in enumerate(model.graph.node) if stored.name in node.input]
    gemm = model.graph.node[at]
    product = onnx.helper.make_node(
        "Einsum", gemm.input[:2], ["product"], name=f"{gemm.name}_product", equation="bi,io->bo"
    )
    product.metadata_props.extend(gemm.metadata_props)
    bias = onnx.helper.make_node("Add", ["product", gemm.input[2]], gemm.output, name=gemm.name)
    bias.metadata_props.extend(gemm.metadata_props)
    del model.graph.node[at]
    for node in (bias, product):
        model.graph.node.insert(at, node)
    turned = np.ascontiguousarray(onnx.numpy_helper.to_array(stored).T)
    stored.CopyFrom(onnx.numpy_helper.from_array(turned, stored.name))
    onnx.save(model, tmp_path / "einsum.onnx")
    check = intus.check_export(net, tmp_path / "einsum.onnx", x)
    assert check.verdict == "not proven"
    assert check.unproven == [
        "square.weight of a and of b are transposes of each other, and it is not known how b uses it"
    ]


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
def test_square_weight_that_is_used_in_both_orders(dynamo, tmp_path, monkeypatch):
    def both(self, x):
        y = x @ self.w.t() + x @ self.w + torch.matmul(self.v, x.T).T
        return nn.functional.linear(y, self.w.T.contiguous())

    monkeypatch.setitem(
        MODELS,
        "both",
        lambda: (
            Net(both, w=nn.Parameter(torch.randn(6, 6)), v=nn.Parameter(torch.randn(6, 6))),
            torch.randn(5, 6),
        ),
    )
    net, x = exported("both", dynamo, tmp_path / "net.onnx")
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == "equal", str(check)


class Steps(nn.Module):
    """A function of ``forward`` between two layers, in a block."""

    def __init__(self, step, constant):
        super().__init__()
        self.step, self.constant = step, constant
        self.fc, self.norm, self.out = nn.Linear(6, 8), nn.LayerNorm(8, eps=1e-12), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.step(self, self.fc(x), self.constant))


def by_its_mean_square(self, y, k):
    y = y * k
    return y * torch.rsqrt((y * y).mean(-1, keepdim=True))


#: A step, two constants that its result does not depend on, the verdict, and the operation that differs.
HIDDEN = {
    "scale before a norm": (lambda self, y, k: self.norm(y * k), 0.5, 3.0, "differs", "mul_1_2"),
    "shift before a softmax": (lambda self, y, k: (y + k).softmax(-1), 0.5, 3.0, "differs", "add_1_2"),
    "shift before a relu": (lambda self, y, k: torch.relu(y - k), 100.0, 200.0, "differs", "sub_1_2"),
    "scale before arithmetic": (by_its_mean_square, 0.5, 3.0, "not proven", "mul_1_2"),
    # 6 * y whatever y is, and not on these inputs alone
    "other factors": (lambda self, y, k: y * k * (6 / k), 2.0, 3.0, "equal", ""),
}


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])
@pytest.mark.parametrize("inside", [False, True], ids=["model", "block"])
@pytest.mark.parametrize("name", HIDDEN)
def test_difference_that_a_later_operation_hides(name, inside, dynamo, tmp_path, monkeypatch):
    step, own, other, verdict, label = HIDDEN[name]

    def build(constant):
        torch.manual_seed(0)
        net = Steps(step, constant)
        return (nn.Sequential(net, nn.Linear(3, 2)) if inside else net).eval(), torch.randn(5, 6)

    monkeypatch.setitem(MODELS, "steps", lambda: build(other))
    changed, x = exported("steps", dynamo, tmp_path / "net.onnx")
    assert intus.check_export(changed, tmp_path / "net.onnx", x).verdict == "equal"
    net, _ = build(own)
    assert torch.allclose(net(x), changed(x), atol=1e-5)
    check = intus.check_export(net, tmp_path / "net.onnx", x)
    assert check.verdict == verdict, str(check)
    if verdict == "differs":
        assert (check.first["a"], check.first["module"]) == (label, "0" if inside else "")
        assert "because what follows hides the difference" in str(check)
    elif verdict == "equal":
        assert check.first is None
        assert not check.unproven
        assert not check.constants
    else:
        assert check.first is None
        [sentence] = check.unproven
        assert sentence.startswith(f"{label}{' in 0' if inside else ''} differs by")
        assert "tensors inside differ, which may have an effect on other inputs" in str(check)
        assert "all agree" not in str(check)


class Routed(nn.Module):
    """A choice of experts: which come first does not matter to a scatter, but does to what is returned."""

    def __init__(self, is_returned):
        super().__init__()
        self.router, self.is_returned = nn.Linear(6, 6), is_returned

    def forward(self, x):
        p = self.router(x).softmax(-1)
        values, places = p.topk(2, -1)
        mixed = x * torch.zeros_like(p).scatter(-1, places, values)
        return (mixed, values) if self.is_returned else mixed


@pytest.mark.parametrize(("is_returned", "verdict"), [(False, "not proven"), (True, "differs")])
def test_order_that_a_scatter_makes_up_for_is_not_said_to_differ(is_returned, verdict, tmp_path):
    torch.manual_seed(0)
    net, x, path = Routed(is_returned).eval(), torch.randn(5, 6), tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), path, dynamo=True, verbose=False)
    assert intus.check_export(net, path, x).verdict == "equal"
    model = onnx.load(path)
    topk = next(node for node in model.graph.node if node.op_type == "TopK")
    next(one for one in topk.attribute if one.name == "sorted").i = 0
    onnx.save(model, path)
    check = intus.check_export(net, path, x)
    assert check.verdict == verdict, str(check)


def test_any_number_but_zero_transposes_the_weight_of_a_gemm(tmp_path):
    torch.manual_seed(0)
    net, x, path = nn.Sequential(nn.Linear(4, 4)).eval(), torch.randn(2, 4), tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(net, (x,), path, dynamo=True, verbose=False)
    model = onnx.load(path)
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    next(one for one in gemm.attribute if one.name == "transB").i = 2
    onnx.save(model, path)
    check = intus.check_export(net, path, x)
    assert check.verdict == "equal", str(check)
