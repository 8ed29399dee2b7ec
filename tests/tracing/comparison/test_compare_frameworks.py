"""``compare`` of passes of two frameworks: values are numpy arrays, and the operations are others."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import intus
from intus import compare
from intus.core.building import GraphBuilder, Scope
from intus.tracing.comparison.values.settings import different_constants


class Net(nn.Module):
    """Two linear layers with a layer norm between them, and one more at the end on request."""

    def __init__(self, eps=1e-5, last=False):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8, eps=eps), nn.Linear(8, 4)
        self.last = nn.LayerNorm(4, eps=1e-12) if last else nn.Identity()

    def forward(self, x):
        return self.last(self.second(self.norm(self.first(x))))


class Twin:
    """The same network in numpy, whose operations are primitives as in XLA."""

    def __init__(self, net, x, eps, fault=""):
        self.builder, self.values, self.state = GraphBuilder("Twin"), {}, {}
        self.row = self.put(self.builder.input("x", x.shape, "float32"), x)
        state = {name: p.detach().numpy() for name, p in net.named_parameters()}
        if fault == "second":
            state = state | {"second.weight": state["second.weight"] * 1.01}
        for name, value in state.items():
            self.put_param(name, value)
        self.linear("first", state)
        self.norm("norm", state, eps)
        self.linear("second", state)
        if isinstance(net.last, nn.LayerNorm):
            self.norm("last", state, 1e-12)
        self.put(self.builder.output("y", self.row), self.values[self.row])

    def put(self, row, value):
        self.values[row] = value.astype(np.float32)
        return row

    def put_param(self, name, value):
        self.builder.param(name, value.shape, "float32")
        self.state[name] = value.astype(np.float32)

    def op(self, type_, scope, value, *parents, params=(), setting=""):
        parents = [(parent, str(number)) for number, parent in enumerate(parents)]
        row = self.builder.op(
            type_, value.shape, "float32", scope=[scope], parents=parents, params=params, setting=setting
        )
        return self.put(row, value)

    def linear(self, name, state):
        scope, x = Scope(name, "Dense"), self.values[self.row]
        y = self.op("dot_general", scope, x @ state[f"{name}.weight"].T, self.row, params=[f"{name}.weight"])
        self.row = self.op("add", scope, self.values[y] + state[f"{name}.bias"], y, params=[f"{name}.bias"])

    def norm(self, name, state, eps):
        scope, x = Scope(name, "LayerNorm"), self.values[self.row]
        mean = self.op("reduce_mean", scope, x.mean(-1, keepdims=True), self.row)
        centered = self.op("sub", scope, x - self.values[mean], self.row, mean)
        square = self.op("square", scope, self.values[centered] ** 2, centered)
        variance = self.op("reduce_mean", scope, self.values[square].mean(-1, keepdims=True), square)
        safe = self.op("add", scope, self.values[variance] + eps, variance, setting=repr(eps))
        scale = self.op("rsqrt", scope, 1 / np.sqrt(self.values[safe]), safe)
        scaled = self.op("mul", scope, self.values[centered] * self.values[scale], centered, scale)
        weighed = self.values[scaled] * state[f"{name}.weight"]
        product = self.op("mul", scope, weighed, scaled, params=[f"{name}.weight"])
        shifted = self.values[product] + state[f"{name}.bias"]
        self.row = self.op("add", scope, shifted, product, params=[f"{name}.bias"])

    def trace(self):
        graph, rows = self.builder.graph({"framework": "numpy"})
        values = {int(rows[row]): value for row, value in self.values.items()}
        return intus.Trace(graph, values, params=self.state)


def traces(eps=1e-5, last=False, fault=""):
    torch.manual_seed(0)
    net, x = Net(last=last).eval(), torch.randn(5, 6)
    return intus.trace(net, x), Twin(net, x.numpy(), eps, fault).trace()


@pytest.mark.parametrize("last", [False, True])
def test_equal_networks_agree(last):
    table = compare(*traces(last=last))
    assert table.agree, str(table)
    assert table.attrs["first"] is None
    assert table.modules.set_index("a").verdict[["first", "norm", "second"]].isin(["equal", "close"]).all()
    assert table.modules.set_index("a").ops_b["norm"] == 9


def test_steps_of_a_module_are_in_its_region():
    table = compare(*traces())
    only = table[table.verdict.isin(["only in a", "only in b"])]
    assert set(only.region) == {"first", "norm", "second"}


def test_other_eps_is_named_with_both_constants():
    table = compare(*traces(eps=1e-3))
    first = table.attrs["first"]
    assert not table.agree
    assert first["module"] == "norm"
    assert first["a"] == "layer_norm_1_2"
    assert any("eps=1e-05 (layer_norm_1_2) in a, 0.001 (add_2_7) in b" in why for why in first["why"]), first
    assert table.modules.set_index("a").is_source.to_dict() == {
        "": False,
        "first": False,
        "norm": True,
        "second": False,
    }


def test_difference_that_a_normalization_hides_is_named():
    torch.manual_seed(0)
    net = Net(last=True).eval()
    x = torch.randn(5, 6)
    twin = Twin(scaled(net, 4.0), x.numpy(), 1e-5)
    table = compare(intus.trace(net, x), twin.trace())
    assert table.attrs["first"]["module"] == "second", str(table)
    assert not table.agree
    assert "The outputs agree nevertheless" in str(table)


class Doubled(Net):
    def forward(self, x):
        return self.last(self.second(self.norm(self.first(x))) * 2)


@pytest.mark.parametrize("is_second", [False, True])
def test_factor_before_a_normalization_is_paired_with_no_step_of_it(is_second):
    torch.manual_seed(0)
    net, x = Doubled(last=True).eval(), torch.randn(5, 6)
    one, other = intus.trace(net, x), Twin(net, x.numpy(), 1e-5).trace()
    table = compare(other, one) if is_second else compare(one, other)
    of, name = ("b", "a") if is_second else ("a", "b")
    (row,) = table[table[of].str.startswith("mul_")].itertuples()
    assert (getattr(row, name), row.verdict) == ("", f"only in {of}")
    assert not table.agree
    assert "ast is given" in table.attrs["summary"]
    assert getattr(row, of) in table.attrs["summary"]


def scaled(net, factor):
    """Return a copy whose second layer is larger by a factor, which the normalization after it removes."""
    other = Net(last=True)
    other.load_state_dict(net.state_dict())
    with torch.no_grad():
        other.second.weight.mul_(factor)
        other.second.bias.mul_(factor)
    return other.eval()


def test_wrong_weight_is_named_at_its_layer():
    table = compare(*traces(fault="second"))
    assert table.attrs["first"]["module"] == "second"


@pytest.mark.parametrize("size", [5, 3])  # with 3 channels the shapes of both layouts are equal
def test_channels_last_is_compared_with_channels_first(size):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()), torch.randn(2, 3, size, size)
    trace = intus.trace(net, x)
    builder, values = GraphBuilder("Keras"), {}
    row = builder.input("x", (2, size, size, 3), "float32")
    values[row] = x.permute(0, 2, 3, 1).numpy()
    for name, type_ in (("0", "conv"), ("1", "relu")):
        value = trace[name].value.detach().permute(0, 2, 3, 1).numpy().copy()
        row = builder.op(type_, value.shape, "float32", scope=[Scope(name, type_)], parents=[(row, "0")])
        values[row] = value
    end = builder.output("y", row)
    values[end] = values[row]
    other = intus.Trace(builder.graph({"framework": "keras"})[0], values)
    table = compare(trace, other)
    assert table.agree, str(table)
    assert set(table.verdict) == {"equal"}
    values[row][0, 0, 0, 0] += 1
    assert compare(trace, intus.Trace(other.graph, values)).attrs["first"]["a"] == "relu_1_2"


class Normed(nn.Module):
    """Two linear layers with a batch norm between them, whose variances are those of a training."""

    def __init__(self):
        super().__init__()
        self.fc, self.bn, self.out = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.bn.running_mean.normal_()
        self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.out(self.bn(self.fc(x)))


def keras_twin(net, x, *, weight=1.0, gamma=1.0, statistics=None):
    """Return the trace of the steps that Keras takes, with some weights multiplied or other statistics."""
    twin = object.__new__(Twin)
    twin.builder, twin.values, twin.state = GraphBuilder("Twin"), {}, {}
    twin.row = twin.put(twin.builder.input("x", x.shape, "float32"), x)
    state = {name: value.detach().numpy() for name, value in net.state_dict().items()}
    state["fc.weight"], state["bn.gamma"] = state["fc.weight"] * weight, state["bn.weight"] * gamma
    state["bn.beta"] = state["bn.bias"]
    statistics = statistics or {name: state[f"bn.running_{name}"] for name in ("mean", "var")}
    for name in ("fc.weight", "fc.bias", "bn.gamma", "bn.beta", "out.weight", "out.bias"):
        twin.put_param(name, state[name])
    twin.linear("fc", state)
    x, scope = twin.row, Scope("bn", "BatchNormalization")
    values = twin.values
    var, mean = (
        twin.put(twin.builder.buffer(f"bn.{name}", (4,), "float32", [scope]), statistics[short])
        for name, short in (("moving_variance", "var"), ("moving_mean", "mean"))
    )
    safe = twin.op("add", scope, values[var] + 1e-5, var, setting="y=9.999999747378752e-06")
    scale = twin.op("rsqrt", scope, 1 / np.sqrt(values[safe]), safe)
    factor = twin.op("mul", scope, values[scale] * state["bn.gamma"], scale, params=["bn.gamma"])
    scaled = twin.op("mul", scope, values[x] * values[factor], x, factor)
    shift = twin.op("mul", scope, values[mean] * values[factor], mean, factor)
    rest = twin.op("sub", scope, state["bn.beta"] - values[shift], shift, params=["bn.beta"])
    twin.row = twin.op("add", scope, values[scaled] + values[rest], scaled, rest)
    twin.linear("out", state)
    twin.put(twin.builder.output("y", twin.row), values[twin.row])
    return twin.trace()


@pytest.fixture
def normed():
    torch.manual_seed(0)
    return Normed().eval(), torch.randn(5, 6)


def test_variance_is_not_what_is_computed_of_it(normed):
    net, x = normed
    table = compare(intus.trace(net, x), keras_twin(net, x.numpy()))
    assert table.agree
    assert not {"differs", "shape"} & set(table.verdict), str(table)


def test_module_that_passes_a_difference_on_is_no_origin_of_one(normed):
    net, x = normed
    table = compare(intus.trace(net, x), keras_twin(net, x.numpy(), weight=1.1))
    assert table.attrs["first"]["module"] == "fc"
    assert "also originate" not in str(table)


def test_parameters_are_known_by_the_names_of_the_other_framework(normed):
    net, x = normed
    table = compare(intus.trace(net, x), keras_twin(net, x.numpy(), weight=1.1, gamma=1.1))
    assert table.attrs["first"]["module"] == "fc"
    assert "also originate at batch_norm_1_2" in str(table)
    table = compare(intus.trace(net, x), keras_twin(net, x.numpy(), gamma=1.1))
    assert "bn.weight of a and bn.gamma of b differ by 0.091 of their norm" in str(table)


def state_of(net, mean="mean", var="var"):
    """Return the statistics of the batch norm of a network, or others in their place."""
    new = {"zeros": np.zeros(4, np.float32), "ones": np.ones(4, np.float32)}
    known = {name: getattr(net.bn, f"running_{name}").numpy() for name in ("mean", "var")}
    return {"mean": (new | known)[mean], "var": (new | known)[var]}


@pytest.mark.parametrize(
    ("mean", "var", "apart"),
    [
        ("zeros", "ones", {"mean", "var"}),  # forgotten
        ("zeros", "var", {"mean"}),
        ("mean", "ones", {"var"}),
        ("var", "mean", {"mean", "var"}),
    ],
)
def test_statistics_are_compared_with_those_of_their_role(normed, mean, var, apart):
    net, x = normed
    net.bn.running_mean.abs_()
    if var == "ones":
        net.bn.running_mean.fill_(1)  # so that the mean has the values of a new variance
    twin = keras_twin(net, x.numpy(), statistics=state_of(net, mean, var))
    own = intus.trace(net, x)
    for a, b in ((own, twin), (twin, own)):
        table = compare(a, b)
        said = " ".join(table.attrs["first"]["why"])
        assert not table.agree
        assert table.attrs["first"]["module"] == "bn"
        pairs = re.findall(r"bn\.\w+_(mean|var)\w* of a and bn\.\w+_(mean|var)\w* of b differ by", said)
        assert pairs, said
        assert all(one == other and one in apart for one, other in pairs), said


class Turned(nn.Module):
    """A tensor times the cosines of positions and frequencies, as rotary embeddings have them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 1 / 1e4 ** (torch.arange(0, 8, 2) / 8))

    def forward(self, x):
        positions = torch.arange(8) + 0
        return x * (positions[:, None] * self.inv_freq).cos()


def turned_twin(x, base, scale=1.0):
    """Return the trace of the steps that JAX takes, which add to the numbers of the frequencies."""
    twin, scope = object.__new__(Twin), Scope("", "Turned")
    twin.builder, twin.values, twin.state = GraphBuilder("Twin"), {}, {}
    row = twin.put(twin.builder.input("x", x.shape, "float32"), x)
    numbers = twin.op("iota", scope, np.arange(4))
    even = twin.op("mul", scope, 2 * twin.values[numbers], numbers, setting="2")
    begun = twin.op("add", scope, twin.values[even], even, setting="0")
    powers = twin.op("pow", scope, base ** (-twin.values[begun] / 8), begun)
    positions = twin.op("iota", scope, np.arange(8))
    angles = twin.op("outer", scope, np.outer(np.arange(8), twin.values[powers]), positions, powers)
    cosines = twin.op("cos", scope, np.cos(twin.values[angles]), angles)
    product = twin.op("mul", scope, x * twin.values[cosines] * scale, row, cosines)
    twin.put(twin.builder.output("y", product), twin.values[product])
    return twin.trace()


def test_steps_of_other_sizes_do_not_correspond_by_their_place():
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    own = intus.trace(Turned(), x)
    table = compare(own, turned_twin(x.numpy(), 1e4))
    assert table.attrs["outputs_agree"], str(table)
    assert set(table.verdict) <= {"equal", "close", "only in a", "only in b"}, str(table)
    for one, other in ((own, turned_twin(x.numpy(), 1e5)), (turned_twin(x.numpy(), 1e5), own)):
        table = compare(one, other)
        first = table.attrs["first"]
        assert not {first["a"], first["b"]} & {"add_1_2", "add_1_3"}, str(table)
        assert "its shape is" not in str(table)


class Whole(nn.Module):
    """A layer that is given what a function makes of whole numbers."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function, self.fc = function, nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(self.function(x))


#: Functions that return whole numbers as they are, and others for those that are rounded otherwise.
STEPS = {
    "floor": torch.floor,
    "trunc": torch.trunc,
    "long": lambda x: x.long().float(),
    "bound": lambda x: torch.where(x >= 2.0, x, x.new_tensor(2.0)),
    "maximum": lambda x: x * (x <= x.amax(-1, keepdim=True)),
    "remainder": lambda x: x - torch.remainder(x, 1.0),
}


@pytest.mark.parametrize("factor", [1.0, 1.01, -1.0, 50.0])
@pytest.mark.parametrize("name", STEPS)
def test_no_rounding_is_assumed_of_numbers_that_are_exact(name, factor):
    """The numbers are the same in both passes: a function that would jump if they were rounded does not."""
    net = Whole(STEPS[name])
    x = torch.tensor(np.random.default_rng(0).integers(2, 9, (5, 6))).float()
    assert torch.equal(net(x), net.fc(x))
    twin = object.__new__(Twin)
    twin.builder, twin.values, twin.state = GraphBuilder("Twin"), {}, {}
    twin.row = twin.put(twin.builder.input("x", x.shape, "float32"), x.numpy())
    weight = net.fc.weight.detach().numpy().copy()
    weight[:, 0] *= factor
    state = {"fc.weight": weight, "fc.bias": net.fc.bias.detach().numpy()}
    for key, value in state.items():
        twin.put_param(key, value)
    twin.linear("fc", state)
    twin.put(twin.builder.output("y", twin.row), twin.values[twin.row])
    own, other = intus.trace(net, x), twin.trace()
    for table in (compare(own, other), compare(other, own)):
        assert "amplified" not in str(table)
        assert (table.attrs["first"] or {"module": ""})["module"] == ("" if factor == 1.0 else "fc"), table
        sources = table.modules.a[table.modules.is_source].tolist()
        assert sources == ([] if factor == 1.0 else ["fc"]), table


#: The columns of each side.
SIDES = ("nan", "shape", "dtype", "module")


@pytest.mark.parametrize("fault", [{}, {"eps": 1e-3}, {"fault": "second"}, {"last": True, "fault": "second"}])
def test_both_orders_find_the_same_in_the_same_places(fault):
    """The table of one order is that of the other with a and b exchanged, in the order of its first pass."""
    one, other = traces(**fault)
    table, turned = compare(one, other), compare(other, one)
    exchanged = {"a": "b", "b": "a"}
    exchanged |= {f"{name}_{side}": f"{name}_{exchanged[side]}" for name in SIDES for side in "ab"}
    verdicts = {"only in a": "only in b", "only in b": "only in a"}
    back = turned.rename(columns=exchanged).replace({"verdict": verdicts})[table.columns]
    found, expected = (one.sort_values(["a", "b"]).reset_index(drop=True) for one in (back, table[:]))
    assert found.astype(str).equals(expected.astype(str))
    rows = [other.graph.labels.index(label) for label in turned.a if label]
    assert rows == sorted(rows)
    assert table.agree == turned.agree
    ends = [first and {first["a"], first["b"]} for first in (table.attrs["first"], turned.attrs["first"])]
    assert ends[0] == ends[1]


def dense_after(framework, activation):
    """Return a trace of an activation and a dense layer, as JAX or as Keras computes it on three axes."""
    random = np.random.default_rng(0)
    x, w, bias = (random.normal(size=size).astype(np.float32) for size in ((2, 3, 4), (4, 5), (5,)))
    builder, values, end = GraphBuilder(framework), {}, Scope("w", "Dense")

    def op(type_, value, parent, scope=(), params=()):
        parents = [(parent, "0")]
        row = builder.op(type_, value.shape, "float32", scope=scope, parents=parents, params=params)
        values[row] = value
        return row

    for name, value in (("w.kernel", w), ("w.bias", bias)):
        builder.param(name, value.shape, "float32")
    row = builder.input("x", x.shape, "float32")
    values[row] = x
    names = {"keras": ("Tanh", "Sigmoid", "Mul"), "jax": ("tanh", "logistic", "mul")}[framework]
    if activation == "tanh":
        row = op(names[0], np.tanh(x), row)
    else:
        gate = op(names[1], 1 / (1 + np.exp(-x)), row)
        row = builder.op(names[2], x.shape, "float32", parents=[(row, "0"), (gate, "1")])
        values[row] = x * values[gate]
    h = values[row]
    if framework == "keras":
        row = op("Reshape", h.reshape(6, 4), row, [end])
        row = op("MatMul", h.reshape(6, 4) @ w, row, [end], ["w.kernel"])
        row = op("Reshape", h @ w, row, [end])
        row = op("BiasAdd", h @ w + bias, row, [end], ["w.bias"])
    else:
        row = op("dot_general", h @ w, row, [end], ["w.kernel"])
        row = op("add", h @ w + bias, row, [end], ["w.bias"])
    last = builder.output("y", row)
    values[last] = values[row]
    graph, rows = builder.graph({"framework": framework})
    return intus.Trace(graph, {int(rows[row]): value for row, value in values.items()})


@pytest.mark.parametrize("frameworks", [("jax", "keras"), ("keras", "jax")])
@pytest.mark.parametrize("other", ["tanh", "silu"])
def test_product_on_the_rows_of_a_matrix_is_not_blamed_for_what_is_before_it(other, frameworks):
    table = compare(dense_after(frameworks[0], "tanh"), dense_after(frameworks[1], other))
    first = table.attrs["first"]
    if other == "tanh":
        assert table.agree, str(table)
    else:
        assert first["module"] == "", str(table)
        assert not [reason for reason in first["why"] if "shape" in reason], first


def padded(framework, setting, mode):
    """Return a trace of a padding of two steps at the beginning."""
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    builder = GraphBuilder(framework)
    row = builder.input("x", x.shape, "float32")
    values = {row: x}
    value = np.pad(x, ((0, 0), (2, 0), (0, 0)), mode)
    row = builder.op("pad", value.shape, "float32", parents=[(row, "0")], setting=setting)
    last = builder.output("y", row)
    values |= {row: value, last: value}
    graph, rows = builder.graph({"framework": framework})
    return intus.Trace(graph, {int(rows[row]): value for row, value in values.items()})


def test_settings_of_moves_are_stated_as_each_framework_writes_them():
    """JAX states first the value that it pads with, and PyTorch the widths."""
    of_jax, of_torch = "0, padding_config=((0, 0, 0), (2, 0, 0))", "(0, 0, 2, 0), mode='replicate'"
    one, other = padded("jax", of_jax, "constant"), padded("torch", of_torch, "edge")
    for (a, b), (x, y) in (((one, other), (of_jax, of_torch)), ((other, one), (of_torch, of_jax))):
        first = compare(a, b).attrs["first"]
        assert first["why"] == [f"it is given {x} in a, {y} in b"], first


def test_constant_of_a_layer_is_compared_with_none_outside_of_it():
    def graph(framework, *ops):
        builder = GraphBuilder(framework)
        for type_, scope, setting in ops:
            builder.op(type_, (2,), "float32", scope=[Scope("", "Net"), *scope], setting=setting)
        return builder.graph({"framework": framework})[0]

    norm = [Scope("norm", "Norm")]
    own = graph("keras", ("AddV2", norm, "y=0.001"), ("Square", [], ""))
    outside = graph("torch", ("layer_norm", norm, ""), ("normalize", [], "eps=1e-12"))
    inside = graph("torch", ("layer_norm", norm, "eps=1e-05"), ("normalize", [], ""))
    assert different_constants(own, range(2), outside, range(2)) == []
    (reason,) = different_constants(own, range(2), inside, range(2))
    assert "y=0.001 (AddV2_1_1) in a, eps=1e-05 (layer_norm_1_1) in b" in reason
