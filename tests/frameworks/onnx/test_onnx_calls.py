"""The calls of modules that ONNX files of torch tell: hooks of torch's model count them and see values."""

import logging
import random
import warnings
from collections import defaultdict

import numpy as np
import onnx
import pytest
import torch
import transformers
from torch import nn

import intus
from intus.core.errors import AddressError

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
EXPORTERS = pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "older"])


class Module(nn.Module):
    """A module with children, which calls them with a function."""

    def __init__(self, call, **children):
        super().__init__()
        self.call = call
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args, **named):
        return self.call(self, *args, **named)


def linear(into=8, *, bias=True):
    return nn.Linear(8, into, bias=bias)


def attention(parts):
    def call(own, x):
        query, key, value = parts(own.qkv(x))
        return own.out(torch.softmax(query @ key.transpose(-1, -2), -1) @ value)

    return Module(call, qkv=linear(24), out=linear())


def two(make):
    return Module(lambda own, x: own.b(own.a(x) + x) + x, a=make(), b=make())


def glu():
    def call(own, x):
        value, gate = own.fc(x).chunk(2, -1)
        return value * torch.sigmoid(gate)

    return Module(call, fc=linear(16))


def masked():
    """Return layers of which the first computes what both need, as the exporter finds."""

    def call(own, x, mask):
        query, key, value = own.qkv(x).split(8, -1)
        bias = torch.where(mask[:, None, :], 0.0, -1e4)
        return own.out(torch.softmax(query @ key.transpose(1, 2) + bias, -1) @ value)

    def all_of(own, x):
        mask = x[..., 0] > -1
        return own.b(x + own.a(x, mask), mask)

    return Module(
        all_of, a=Module(call, qkv=linear(24), out=linear()), b=Module(call, qkv=linear(24), out=linear())
    )


def block(**facts):
    return Module(lambda own, x: own.fc(x).relu(), fc=linear(**facts))


#: Models in which every call of every module is told.
TOLD = {
    "split": lambda: two(lambda: attention(lambda t: t.split(8, -1))),
    "chunk": lambda: two(lambda: attention(lambda t: t.chunk(3, -1))),
    "unbind": lambda: two(lambda: attention(lambda t: t.unflatten(-1, (3, 8)).unbind(-2))),
    "glu": lambda: two(glu),
    "nn.GLU": lambda: two(lambda: nn.Sequential(linear(16), nn.GLU())),
    "split of another's result": lambda: Module(
        lambda own, x: own.b(sum(own.a(x).chunk(2, -1))), a=linear(16), b=linear()
    ),
    "masked": masked,
    "lstm": lambda: Module(
        lambda own, x: own.out(own.rnn(x)[0]), rnn=nn.LSTM(8, 8, batch_first=True), out=linear()
    ),
    "attention of torch": lambda: Module(
        lambda own, x: own.a(x, x, x)[0] + x, a=nn.MultiheadAttention(8, 2, batch_first=True)
    ),
    "encoder of torch": lambda: Module(
        lambda own, x: own.a(x, src_key_padding_mask=x[..., 0] > 9),
        a=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        ),
    ),
    "in a row": lambda: Module(lambda own, x: own.fc(own.fc(own.fc(x))), fc=linear()),
    "in a row without bias": lambda: Module(lambda own, x: own.fc(own.fc(x)), fc=linear(bias=False)),
    "beside each other": lambda: Module(lambda own, x: own.fc(x) * own.fc(x + 1), fc=linear()),
    "apart": lambda: Module(
        lambda own, x: own.a(own.b(own.a(x))), a=nn.Sequential(linear(), nn.ReLU()), b=nn.LayerNorm(8)
    ),
}
#: Models with modules whose calls are in a row, with those that the newer and the older exporter do not tell.
UNTOLD = {
    "blocks in a row": (lambda: Module(lambda own, x: own.a(own.a(x)), a=block()), {"a"}, set()),
    "blocks without bias": (
        lambda: Module(lambda own, x: own.a(own.a(x)), a=block(bias=False)),
        {"a"},
        set(),
    ),
    "blocks beside each other": (
        lambda: Module(lambda own, x: own.a(x) * own.a(x + 1), a=block()),
        {"a"},
        set(),
    ),
    "a block that repeats what is in it": (
        lambda: Module(
            lambda own, x: own.a(x), a=Module(lambda own, x: own.fc(own.fc(x).relu()).relu(), fc=linear())
        ),
        {"a"},
        set(),
    ),
    "sequential": (
        lambda: Module(lambda own, x: own.a(own.a(x)), a=nn.Sequential(linear(), nn.ReLU())),
        {"a"},
        {"a"},
    ),
    "blocks in blocks": (
        lambda: Module(
            lambda own, x: own.a(own.a(x)), a=Module(lambda own, x: own.b(own.b(x)) * 2, b=block())
        ),
        {"a", "a.b"},
        set(),
    ),
}


def export(net, inputs, path, dynamo, **facts):
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(net, inputs, path, dynamo=dynamo, verbose=False, **facts)
    logging.disable(logging.NOTSET)


def hooked(net, *inputs):
    """Return the tensors that each module returned, in order; None for what is no tensor."""
    values = defaultdict(list)

    def note(address):
        def hook(module, given, out):
            first = out[0] if isinstance(out, tuple) else out
            values[address].append(first.clone() if isinstance(first, torch.Tensor) else None)

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in net.named_modules() if name]
    with torch.no_grad():
        net(*inputs)
    for handle in handles:
        handle.remove()
    return values


def is_close(one, other):
    return one.shape == other.shape and np.allclose(one, other, atol=1e-4)


def assert_told(net, path, *inputs, untold=frozenset(), valued=True):
    """Compare the calls that a file tells with those of the model; return how many modules were compared."""
    found, calls = intus.read(path, *inputs), hooked(net, *inputs)
    known = {address for address in calls if address in found.modules and found.modules[address].num_calls}
    assert set(found.modules) <= {name for name, _ in net.named_modules()}
    assert set(found.graph.facts.get("untold_calls", ())) == untold
    for address in known:
        module, values = found.modules[address], calls[address]
        if address in untold:
            assert module.num_calls <= len(values) <= module.most_calls
            assert f"called {module.num_calls} to {module.most_calls} times" in repr(module)
            assert "the file does not tell" in str(module)
            assert f"{address!r}" in found.summary()
            with pytest.raises(AddressError, match="the file does not tell calls in a row"):
                found[f"{address}:{module.num_calls + 1}"]
            assert module.has_unknown_output
            with pytest.raises(AddressError, match=r"What it may have returned: .*Write the label"):
                found[address]
            ours = [np.asarray(op.value) for op in module.outputs]
            assert all(any(is_close(one, value) for one in ours) for value in values), address
            continue
        assert (module.num_calls, module.most_calls) == (len(values), len(values)), address
        for call, value in zip(module.calls, values, strict=True) if valued else ():
            ours = [np.asarray(op.value) for op in call.outputs]
            assert any(is_close(one, value) for one in ours), address
    return len(known)


@EXPORTERS
@pytest.mark.parametrize("name", TOLD)
def test_calls_of_modules_are_those_of_torch(name, dynamo, tmp_path):
    torch.manual_seed(0)
    net = TOLD[name]().eval()
    export(net, (X,), tmp_path / "net.onnx", dynamo)
    assert assert_told(net, tmp_path / "net.onnx", X) >= 1


@EXPORTERS
@pytest.mark.parametrize("name", UNTOLD)
def test_calls_that_a_file_does_not_tell_apart_are_not_stated(name, dynamo, tmp_path):
    torch.manual_seed(0)
    make, newer, older = UNTOLD[name]
    net = make().eval()
    export(net, (X,), tmp_path / "net.onnx", dynamo)
    assert assert_told(net, tmp_path / "net.onnx", X, untold=newer if dynamo else older) >= 2


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
LAYERS = "encoder.albert_layer_groups.0"


def albert():
    config = transformers.AlbertConfig(vocab_size=50, embedding_size=8, **SIZES)
    return transformers.AlbertModel(config), torch.randint(0, 50, (2, 7))


def gpt2():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20}
    config = transformers.GPT2Config(vocab_size=50, use_cache=False, **sizes)
    return transformers.GPT2LMHeadModel(config), torch.randint(0, 50, (2, 7))


def vit():
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_labels=3, **SIZES)
    return transformers.ViTForImageClassification(config), torch.randn(2, 3, 16, 16)


@pytest.mark.parametrize(
    ("make", "dynamo", "untold"),
    [
        (gpt2, True, set()),
        (albert, True, {LAYERS, f"{LAYERS}.albert_layers.0"}),
        (albert, False, {LAYERS}),
        (vit, True, set()),
    ],
)
def test_calls_in_transformers_are_those_of_torch(make, dynamo, untold, tmp_path):
    """The batch of ViT is dynamic, for which torch's exporter inserts nodes that are in no module."""
    torch.manual_seed(0)
    net, x = make()
    net.eval()
    for param in net.parameters():
        nn.init.normal_(param, std=0.2)
    facts = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)} if make is vit else {}
    export(net, (x,), tmp_path / "net.onnx", dynamo, **facts)
    assert assert_told(net, tmp_path / "net.onnx", x, untold=untold, valued=False) >= 20


@EXPORTERS
@pytest.mark.parametrize("seed", range(4))
def test_calls_of_random_modules_are_those_of_torch(seed, dynamo, tmp_path):
    torch.manual_seed(seed)
    net = random_module(random.Random(seed), 3).eval()
    export(net, (X,), tmp_path / "net.onnx", dynamo)
    found, calls = intus.read(tmp_path / "net.onnx", X), hooked(net, X)
    assert set(found.modules) <= {name for name, _ in net.named_modules()}
    for address in calls.keys() & found.modules.keys():
        module = found.modules[address]
        assert module.num_calls <= len(calls[address]) <= module.most_calls, address
        if not module.has_unknown_output:
            assert is_close(np.asarray(module.value), calls[address][0]), address


def random_module(draw, depth):
    """Return a module that calls its children one after the other, some repeatedly, some split."""
    if not depth or draw.random() < 0.2:
        return draw.choice(
            [linear, glu, block, nn.Tanh, lambda: nn.LayerNorm(8), lambda: linear(bias=False)]
        )()
    children = {f"m{n}": random_module(draw, depth - 1) for n in range(draw.randint(1, 3))}
    steps = [*children, *draw.choices(list(children), k=draw.randint(0, 2))]
    draw.shuffle(steps)
    ways = [draw.choice(["plain", "residual", "split"]) for _ in steps]

    def call(own, x):
        for step, way in zip(steps, ways, strict=True):
            y = own.get_submodule(step)(x)
            x = {"plain": y, "residual": x + y}.get(way, torch.cat(y.chunk(2, -1)[::-1], -1))
        return x

    return Module(call, **children)


def test_node_without_a_module_is_where_what_it_reads_and_what_reads_it_are(tmp_path):
    """The metadata of all nodes but one in each module is taken away: the values of modules stay."""
    torch.manual_seed(0)
    net = two(lambda: attention(lambda t: t.split(8, -1))).eval()
    export(net, (X,), tmp_path / "net.onnx", True)
    whole, file = intus.read(tmp_path / "net.onnx", X), onnx.load(tmp_path / "net.onnx")
    for node in file.graph.node:
        if node.op_type in ("Softmax", "Transpose"):
            del node.metadata_props[:]
    onnx.save(file, tmp_path / "without.onnx")
    found = intus.read(tmp_path / "without.onnx", X)
    assert [op.module for op in found] == [op.module for op in whole]
    for address in ("a", "b"):
        np.testing.assert_array_equal(found[address].value, whole[address].value)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x):
        return torch.relu(x + self.bn(self.conv(x)))


IMAGES, ROWS = torch.ones(2, 3, 8, 8), torch.ones(2, 4)
#: Layers with the norms that an exporter may fold into them, and their inputs.
NORMS = {
    "conv": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), IMAGES),
    "conv without bias": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
        IMAGES,
    ),
    "linear": (lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU()), ROWS),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)), IMAGES),
    "alone": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()), IMAGES),
    "before": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)), IMAGES),
    "residual": (lambda: nn.Sequential(Residual(), Residual()), IMAGES),
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 3, 3, groups=3), nn.BatchNorm2d(3), nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6)
        ),
        IMAGES,
    ),
}


@EXPORTERS
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_layers_with_a_folded_norm_are_not_said_to_be_called_never(name, optimize, dynamo, tmp_path):
    torch.manual_seed(0)
    make, x = NORMS[name]
    net = make().eval()
    facts = {"optimize": optimize} if dynamo else {"do_constant_folding": optimize}
    export(net, (x,), tmp_path / "net.onnx", dynamo, **facts)
    found, calls = intus.read(tmp_path / "net.onnx", x), hooked(net, x)
    assert len(calls.keys() & found.modules.keys()) >= 2
    for address in calls.keys() & found.modules.keys():
        module = found.modules[address]
        assert module.num_calls <= len(calls[address]) <= module.most_calls, address
        if module.num_calls:
            continue
        assert "called 0 to 1 times" in repr(module)
        assert "the file does not state which operations are its own" in str(module)
        assert f"{address!r}" in found.summary()
        for refused in (lambda one=address: found[one], lambda one=module: one.value):
            with pytest.raises(AddressError, match=r"parameters are used in '(conv|gemm)"):
                refused()
        with pytest.raises(AddressError, match="does not state which operations are its own"):
            found[f"{address}:1"]


def test_a_module_whose_parameters_nothing_reads_is_called_never(tmp_path):
    """The file has a weight that no operation reads, which so is no module's that runs."""
    net = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 4)).eval()
    export(net, (ROWS,), tmp_path / "net.onnx", True)
    file = onnx.load(tmp_path / "net.onnx")
    last = file.graph.node[-1]
    file.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(last.input[0], 1, [2, 5]))
    file.graph.node.remove(last)
    onnx.save(file, tmp_path / "cut.onnx")
    module = intus.read(tmp_path / "cut.onnx").modules["1"]
    assert (module.num_calls, module.most_calls) == (0, 0)
    assert "never called" in repr(module)
