"""Tests of the gradients of ops after ``backward``, and of the bytes that autograd saves."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.utils.checkpoint import checkpoint
from zoo_models import make

import intus
from intus.core.errors import CaptureError, InputError


class Retained(torch.overrides.TorchFunctionMode):
    """Calls torch's ``retain_grad`` on what every call returned; the reference."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in ("__get__", "__set__"):
            for t in out if isinstance(out, tuple) else (out,):
                if isinstance(t, torch.Tensor) and t.grad_fn is not None:
                    t.retain_grad()
                    self.made.append(t)
        return out


class Net(nn.Module):
    """A residual network with batch norm, a frozen layer, and a partly used LSTM output."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.frozen = nn.Conv2d(4, 4, 3, padding=1).requires_grad_(False)
        self.lstm, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        x = x + F.gelu(self.frozen(x))
        a, b = self.lstm(x.flatten(2).transpose(1, 2))[0].chunk(2, dim=1)
        return self.head(a[:, -1]), b.mean()


def net():
    torch.manual_seed(0)
    return Net(), torch.randn(2, 1, 4, 4, requires_grad=True)


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    ids = torch.arange(10)[None] % 50
    return lambda ids: model(input_ids=ids, labels=ids, use_cache=False).loss, ids


def unrolled():
    model, x = make("loop_lstm")
    return model, x.requires_grad_()


def loss_of(out):
    parts = out if isinstance(out, tuple) else (out,)
    return sum((part.sin() * torch.arange(1.0, part.numel() + 1).reshape(part.shape)).sum() for part in parts)


@pytest.mark.parametrize("made", [net, gpt2, unrolled])
def test_gradients_equal_retain_grad(made):
    model, x = made()
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    with torch.random.fork_rng(), Retained() as oracle:
        torch.manual_seed(5)
        out = model(x)
    loss_of(out).backward()
    expected = [p.grad for p in (*parameters, x)]
    for t in (*parameters, x):
        t.grad = None

    model, x = (model, x.detach().clone().requires_grad_()) if x.requires_grad else (model, x)
    t = intus.trace(model, x, grads=True, seed=5)
    ops = [op for op in t.ops if op.grad_fn is not None]
    assert len(ops) == len(oracle.made)
    assert all(op.grad is None for op in ops)
    loss_of(t.output).backward()
    for op, retained in zip(ops, oracle.made, strict=True):
        assert op.grad_fn == retained.grad_fn.name() or op.in_place
        assert op.grad is None if retained.grad is None else torch.equal(op.grad, retained.grad), op
        assert op.grad is None or tuple(op.grad.shape) == op.shape
    for p, grad in zip((*parameters, x), expected, strict=True):
        assert p.grad is None if grad is None else torch.equal(p.grad, grad)
    if x.requires_grad:
        assert torch.equal(t.inputs[0].grad, x.grad)
    assert t.validate()


def test_gradients_of_inplace_writes_through_views():
    def model(x):
        a = x * 2
        a.mul_(3)
        b = a[0]
        b.mul_(5)
        c = a.T
        c.add_(1)
        return (a * torch.arange(6.0).reshape(2, 3)).sum()

    x = torch.randn(2, 3, requires_grad=True)
    t = intus.trace(model, x, grads=True)
    t.output.backward()
    w = torch.arange(6.0).reshape(2, 3)
    scaled = w * torch.tensor([[5.0], [1.0]])
    assert torch.equal(t["add_1"].grad, w.T)
    assert torch.equal(t["mul_3"].grad, w[0])
    assert torch.equal(t["mul_2"].grad, scaled)
    assert torch.equal(t["mul_1"].grad, 3 * scaled)
    assert torch.equal(t["input_1"].grad, 6 * scaled)
    assert torch.equal(x.grad, 6 * scaled)


def test_gradients_sum_over_backward_passes():
    def model(x):
        a, b, c = (x * 2).split(1)
        return a.exp(), b.sin(), c.cos()

    x = torch.randn(3, 2, requires_grad=True)
    t = intus.trace(model, x, grads=True)
    first, second, _ = t.output
    first.sum().backward(retain_graph=True)
    assert t["sin_1"].grad is None
    once = t["split_1"].grad.clone()
    first.sum().backward(retain_graph=True)
    second.sum().backward()
    assert torch.equal(t["split_1"].grad, 2 * once)
    assert torch.equal(t["sin_1"].grad, torch.ones(1, 2))
    assert t["cos_1"].grad is None
    assert torch.equal(t["input_1"].grad, x.grad)


def test_input_gradient_is_of_its_own_pass_only():
    model, x = nn.Linear(2, 1), torch.randn(3, 2, requires_grad=True)
    one, other = (intus.trace(model, x, grads=True) for _ in range(2))
    (one.output.sum() + 10 * other.output.sum() + x.sum()).backward()
    assert torch.equal(other["input_1"].grad, 10 * one["input_1"].grad)
    assert torch.allclose(x.grad, 11 * one["input_1"].grad + 1)
    made = x * 2  # an input with autograd history
    third = intus.trace(model, made, grads=True)
    (third.output.sum() + made.sum()).backward()
    assert torch.equal(third["input_1"].grad, one["input_1"].grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_with_checkpointing(reentrant):
    torch.manual_seed(0)
    inner, head = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Linear(3, 1)

    def model(x):
        return head(checkpoint(inner, x * 2, use_reentrant=reentrant) * 3)

    x = torch.randn(4, 3, requires_grad=True)
    (head(inner(x * 2) * 3)).sum().backward()
    expected, x.grad = x.grad, None
    t = intus.trace(model, x, grads=True)
    t.output.sum().backward()
    assert torch.equal(x.grad, expected)
    assert torch.equal(t["mul_1"].grad, expected / 2)
    assert torch.equal(t["tanh_1"].grad, t["mul_2"].grad * 3)
    assert t["mul_1"].saved_bytes + t["tanh_1"].saved_bytes <= (x.numel() * 4 if reentrant else 0)


def test_gradients_under_autocast():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)), torch.randn(3, 4)

    def cast(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    cast(x).float().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    t = intus.trace(cast, x, grads=True)
    t.output.float().sum().backward()
    assert [op.grad.dtype for op in t.ops] == [op.value.dtype for op in t.ops]
    before = t["linear_1"].grad.clone()
    for p, grad in zip(model.parameters(), expected, strict=True):
        assert torch.equal(p.grad, grad)
        p.grad.fill_(7)  # must not change the gradients of ops
    assert torch.equal(t["linear_1"].grad, before)


def test_gradient_shares_no_memory_with_parameter_gradient():
    class Bias(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return (x.exp() + self.bias) * 1.0

    model = Bias()
    t = intus.trace(model, torch.zeros(3), grads=True)
    t.output.sum().backward(retain_graph=True)
    model.bias.grad.zero_()
    t.output.sum().backward()
    assert t["add_1"].grad.tolist() == [2, 2, 2]
    assert model.bias.grad.tolist() == [1, 1, 1]


def test_gradients_of_selected_ops():
    model, x = net()
    t = intus.trace(model, x, save="none", grads=["stem", "linear"])
    loss_of(t.output).backward()
    assert [op.label for op in t.ops if op.grad is not None] == ["conv2d_1_1", "linear_1_18"]
    assert not t.values


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


def test_gradients_with_custom_autograd_function():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    t = intus.trace(lambda x: (Cube.apply(x * 2) * 5).sum(), x, grads=True)
    t.output.backward()
    assert {op.label: None if op.grad is None else op.grad.tolist() for op in t.ops} == {
        "mul_1_1": [60.0, 240.0],
        "mul_2_2:1": None,  # inside forward, where gradients are disabled
        "mul_2_2:2": [5.0, 5.0],  # returned by the function
        "mul_3_3": [1.0, 1.0],
        "sum_1_4": 1.0,
    }
    assert t["mul_2:2"].grad_fn == "CubeBackward"
    assert t["mul_2:2"].saved_bytes == 8


def test_gradients_of_constants_and_double_backward():
    prompt = torch.ones(2, requires_grad=True)
    t = intus.trace(lambda x: (x * prompt).pow(3).sum(), torch.full((2,), 2.0), grads=True)
    (first,) = torch.autograd.grad(t.output, prompt, create_graph=True)
    assert t["constant_1"].grad.tolist() == first.tolist() == [24, 24]
    assert not t["mul_1"].grad.requires_grad
    first.sum().backward()
    assert prompt.grad.tolist() == [48, 48]


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_grads_without_autograd_raises(off):
    with off(), pytest.raises(InputError, match=rf"needs autograd, which torch\.{off.__name__}"):
        intus.trace(nn.Linear(2, 1), torch.ones(1, 2), grads=True)


def test_invalid_grads_and_missing_gradients_raise():
    model, x = nn.Linear(2, 1), torch.ones(1, 2)
    with pytest.raises(InputError, match="A selection must be a name"):
        intus.trace(model, x, grads=None)
    t = intus.trace(model, x)
    with pytest.raises(InputError, match="'linear_1_1' has no gradient: trace with grads=True"):
        _ = t["linear_1"].grad
    with pytest.raises(InputError, match="Trace with grads=True"):
        _ = t.output
    assert t["linear_1"].saved_bytes is None
    assert t["linear_1"].grad_fn is None


def test_grads_with_restored_memory_raises():
    with pytest.raises(CaptureError, match="give the model a clone"):
        intus.trace(
            lambda x, w: (x.mul_(2) * w).sum(), (torch.ones(2), torch.ones(2, requires_grad=True)), grads=True
        )
    config = transformers.RwkvConfig(
        hidden_size=16, attention_hidden_size=16, num_hidden_layers=2, vocab_size=32, intermediate_size=32
    )
    rwkv = transformers.RwkvForCausalLM(config).eval()  # it divides weights in place
    with pytest.raises(CaptureError, match=r"writes into rwkv.blocks.0.attention.output.weight, .* and "):
        intus.trace(rwkv, torch.arange(4)[None], grads=True)
    model, x = net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    intus.trace(model.train(), x, grads=True).output[
        1
    ].backward()  # backward does not need running statistics
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_hooks_are_removed_with_the_trace():
    gc.collect()
    gc.disable()
    try:
        model, x = net()
        t = intus.trace(model, x, grads=True)
        loss = loss_of(t.output)
        loss.backward(retain_graph=True)
        refs = [weakref.ref(t), weakref.ref(t.gradients), weakref.ref(t["relu_1"].grad)]
        del t
        assert [ref() for ref in refs] == [None] * 3
        loss.backward()  # its hooks have been removed
    finally:
        gc.enable()


def test_copies_and_pickles_have_the_gradients():
    model, x = net()
    t = intus.trace(model, x, grads=True)
    loss_of(t.output).backward()
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert torch.equal(other["relu_1"].grad, t["relu_1"].grad)
        assert torch.equal(other["relu_1"].value, t["relu_1"].value)
        assert other["relu_1"].saved_bytes == t["relu_1"].saved_bytes
        with pytest.raises(InputError, match=r"does not hold what the model returned"):
            _ = other.output


@pytest.mark.parametrize("made", [net, gpt2, unrolled])
def test_saved_bytes_equal_saved_tensor_hooks(made):
    model, x = made()
    owner = model if isinstance(model, nn.Module) else model.__closure__[0].cell_contents
    own = {t.untyped_storage().data_ptr() for t in (*owner.parameters(), *owner.buffers())}
    seen = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        torch.manual_seed(5)
        out = model(x)
    t = intus.trace(model, x, grads=True, seed=5)
    assert sum(op.saved_bytes for op in t.ops) == sum(seen.values())
    assert t.saved_bytes == sum(seen.values())
    del out


def test_saved_bytes_count_each_memory_once():
    def model(x):
        a = x.exp()  # saves its result
        return a.sin() + a.cos() + (a + 1).tanh() + a.view(-1).reshape(2, 3)[:, :1]  # already saved

    t = intus.trace(model, torch.ones(2, 3, requires_grad=True), grads=True)
    assert {op.label: op.saved_bytes for op in t.ops if op.saved_bytes} == {"exp_1_1": 24, "tanh_1_6": 24}
    view = t.show(overlay="autograd")
    assert view.overlay["exp_1_1"] == 24
    with pytest.raises(InputError, match="overlay='autograd' needs a trace taken with grads=True"):
        intus.trace(nn.ReLU(), torch.ones(1)).show(overlay="autograd")


def test_gradient_overlay_has_gradient_norms():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    t = intus.trace(net, torch.ones(2, 3), grads=True)
    with pytest.raises(InputError, match=r"needs gradients.*backward"):
        t.show(overlay="gradient")
    t.output.sum().backward()
    painted = t.show(overlay="gradient").overlay
    assert painted["relu_1_2"] == painted["1"] == pytest.approx(float(t["1"].grad.norm()))
    assert painted["2"] == pytest.approx(2**0.5)
    with pytest.raises(InputError, match="grads"):
        intus.trace(net, torch.ones(2, 3)).show(overlay="gradient")


class ReadsScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.module.scale, None


class Stateful(nn.Module):
    """Changes state in forward that its backward pass may read."""

    def __init__(self, changes, backward):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(()))
        self.scale, self.seen = 0.0, []
        self.changes, self.backward = changes, backward

    def forward(self, x):
        if self.changes == "count":
            self.count += 1
        elif self.changes == "scale":
            self.scale = 2.0
        elif self.changes == "seen":
            self.seen.append(1)
        y = self.norm(self.linear(x))
        if self.backward == "Function":
            return ReadsScale.apply(y, self)
        if self.backward == "checkpoint":
            return checkpoint(
                lambda z: z.tanh() / (self.count + self.scale + len(self.seen)), y, use_reentrant=False
            )
        return y.tanh()


@pytest.mark.parametrize("backward", ["Function", "checkpoint"])
@pytest.mark.parametrize("changes", ["count", "scale", "seen"])
def test_state_that_code_in_backward_may_read_is_refused(changes, backward):
    model, x = Stateful(changes, backward), torch.randn(3, 4)
    for function in (lambda: intus.trace(model, x, grads=True), lambda: intus.why_nan(model, x)):
        with pytest.raises(CaptureError, match=f"changes {changes}, and its backward pass runs code"):
            function()


@pytest.mark.parametrize(("changes", "backward"), [("", "Function"), ("", "checkpoint"), ("seen", "")])
def test_gradients_with_code_in_backward_or_changed_state(changes, backward):
    torch.manual_seed(0)
    model, x = Stateful(changes, backward), torch.randn(3, 4)
    model.scale = 3.0
    model(x).sum().backward()
    expected = model.linear.weight.grad.clone()
    model.zero_grad()
    intus.trace(model, x, grads=True).output.sum().backward()
    assert torch.equal(model.linear.weight.grad, expected)
