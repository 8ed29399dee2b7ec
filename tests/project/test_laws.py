"""Laws of the whole package: nothing stays changed, training is bit-identical, nothing is kept alive."""

import contextlib
import gc
import random
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import intus


class Stateful(nn.Module):
    """Changes what a forward pass can change: statistics, a cache, a plain tensor, random state."""

    def __init__(self, fails=False):
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.head = nn.Linear(4, 3)
        self.register_buffer("cache", torch.zeros(2, 4))
        self.plain, self.fails = torch.zeros(4), fails
        self.conv.register_forward_hook(lambda module, args, out: out * 2)

    def forward(self, x):
        x = self.drop(F.relu(self.bn(self.conv(x)), inplace=True)).mean((2, 3))
        self.cache[0].copy_(x[0].detach())
        self.cache[1:] += 1
        self.plain.add_(1)
        x = x + torch.rand(4) + float(np.random.rand()) + random.random()
        if self.fails:
            raise ValueError("on purpose")
        return self.head(x)


def attributes(thing):
    return {name: id(value) for name, value in vars(thing).items()}


def state_of(model):
    """Return everything to compare of a model: dicts, hooks, values, gradients."""
    modules = dict(model.named_modules())
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers()), "plain": model.plain}
    return {
        "dicts": {n: {k: id(v) for k, v in vars(m).items()} for n, m in modules.items()},
        "inner": {
            n: {k: list(v) for k, v in vars(m).items() if isinstance(v, dict)} for n, m in modules.items()
        },
        "classes": {n: type(m) for n, m in modules.items()},
        "training": {n: m.training for n, m in modules.items()},
        "tensors": {n: (id(t), t.detach().clone().tolist(), t.requires_grad) for n, t in tensors.items()},
        "tensor dicts": {n: dict(vars(t)) for n, t in tensors.items()},
        "grads": {n: None if p.grad is None else p.grad.tolist() for n, p in model.named_parameters()},
        "state_dict": {k: v.tolist() for k, v in model.state_dict().items()},
    }


def state_of_the_process():
    return {
        "torch": attributes(torch),
        "Tensor": attributes(torch.Tensor),
        "Module": attributes(nn.Module),
        "a module's call": (nn.Module.__call__.__code__, nn.Module.__call__.__kwdefaults__),
        "functional": attributes(F),
        "TensorBase": attributes(torch._C.TensorBase),
        "modes": torch._C._len_torch_function_stack(),
        "grad": torch.is_grad_enabled(),
        "rng": torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy": [np.asarray(part).tolist() for part in np.random.get_state()[1:]],
        "global hooks": (
            len(torch.nn.modules.module._global_forward_hooks),
            len(torch.nn.modules.module._global_forward_pre_hooks),
        ),
    }


IMAGES = torch.rand(2, 1, 6, 6)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("save", ["all", "none", "conv"])
def test_trace_restores_model_and_process(training, fails, save):
    torch.manual_seed(3)
    model = Stateful(fails).train(training)
    loss = model.head(torch.ones(1, 4)).sum()
    loss.backward()  # gradients that must survive
    image = IMAGES.clone()
    before = state_of(model), state_of_the_process()
    if fails:
        with pytest.raises(ValueError, match="on purpose"):
            intus.trace(model, image, save=save, seed=1)
    else:
        intus.trace(model, image, save=save)
        assert len(intus.trace(model, image, seed=5)) > 5
    after = state_of(model), state_of_the_process()
    for one, other in zip(before, after, strict=True):
        for name in one:
            assert other[name] == one[name], name
    assert torch.equal(image, IMAGES)


def test_inputs_written_in_place_are_restored():
    x = torch.arange(4.0)
    trace = intus.trace(lambda x: x[:2].mul_(10).sum() + x.add_(1), x)
    assert x.tolist() == [0, 1, 2, 3]
    assert trace.inputs[0].value.tolist() == [0, 1, 2, 3]
    assert trace["add_1"].value.tolist() == [1, 11, 3, 4]


def test_training_with_traces_between_is_bit_identical():
    def train(traced):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            x = torch.randn(16, 4)
            if traced:
                intus.trace(model, x)
            optimizer.zero_grad()
            F.mse_loss(model(x), x[:, :1]).backward()
            if traced:
                intus.trace(model, x, save="none")
            optimizer.step()
        return model.state_dict()

    for one, other in zip(train(False).values(), train(True).values(), strict=True):
        assert torch.equal(one, other)


class Moving(nn.Module):
    """Scales by a running mean and by a plain tensor that it updates."""

    def __init__(self):
        super().__init__()
        self.bn, self.kept = nn.BatchNorm1d(3), torch.ones(3)
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
            self.kept[1:] += 1
        return self.bn(x) * self.mean * self.bn.running_mean * self.kept


def test_backward_through_restored_buffers():
    """A restored buffer must not count as changed for an autograd graph that uses it."""

    def gradient(traced):
        torch.manual_seed(0)
        model, x = Moving().eval(), torch.randn(4, 3, requires_grad=True)
        model(x + 1).sum().backward()  # changes no buffer
        out = model(x).sum()  # keeps the buffers for backward
        if traced:
            before = [one.clone() for one in (*model.buffers(), model.kept)]
            trace = intus.trace(model.train(), torch.randn(8, 3) + 5)
            assert not torch.equal(trace["add_1"].value, before[-2])  # the trace updated it while it ran
            assert all(map(torch.equal, (*model.buffers(), model.kept), before))
        out.backward()
        return x.grad

    assert torch.equal(gradient(True), gradient(False))


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_trace_is_freed_without_gc(no_collector):
    model = Stateful()
    trace = intus.trace(model, IMAGES)
    refs = [weakref.ref(trace), weakref.ref(trace.graph), weakref.ref(trace["conv2d_1"].value)]
    trace.ops, trace.layers, trace.to_pandas(), str(trace), trace.show()._repr_html_()  # caches filled
    del trace
    assert [ref() for ref in refs] == [None, None, None]


def test_model_is_freed_with_save_none(no_collector):
    model = Stateful()
    ref = weakref.ref(model.head.weight)
    graph = intus.trace(model, IMAGES, save="none").graph
    del model
    assert ref() is None
    assert len(graph) > 0


def test_trace_is_freed_after_an_exception(no_collector):
    refs = []
    try:
        intus.trace(Stateful(fails=True), IMAGES)
    except ValueError as error:
        refs.append(weakref.ref(error.intus_trace))
    kept = intus.trace(Stateful(fails=True), IMAGES, on_error="keep")
    refs.append(weakref.ref(kept))
    del kept
    assert [ref() for ref in refs] == [None, None]


def test_memory_does_not_grow(no_collector):
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    for _ in range(3):
        intus.trace(model, x)
    before = len(gc.get_objects())
    for _ in range(10):
        intus.trace(model, x)
    assert len(gc.get_objects()) - before < 50


def test_other_patch_of_module_call_is_kept():
    plain = nn.Module.__call__

    def patched(self, *args, **kwargs):
        return plain(self, *args, **kwargs)

    nn.Module.__call__ = patched
    try:
        assert len(intus.trace(nn.Linear(2, 2), torch.ones(1, 2))) == 1
        assert nn.Module.__call__ is patched
    finally:
        nn.Module.__call__ = plain


def probe_without_server(model):
    """Return a probe whose server is down."""
    return intus.probe(model, port=9, name="laws", kinds=("output", "grad_output", "parameter"))


def train(probed):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with probe_without_server(model) if probed else contextlib.nullcontext():
        for _ in range(4):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            F.mse_loss(model(x), x[:, :1]).backward()
            optimizer.step()
    return model.state_dict()


@pytest.mark.filterwarnings("ignore")  # the probe warns once that no server is up
def test_training_under_a_probe_is_bit_identical():
    for one, other in zip(train(False).values(), train(True).values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore")
def test_probe_restores_model_and_process():
    plain, model = (Stateful() for _ in range(2))
    model.load_state_dict(plain.state_dict())
    for one in (plain, model):  # includes what the model's own passes leave, such as a cache of autograd
        one.eval()(IMAGES)
    before = state_of(model), state_of_the_process()
    rng = torch.get_rng_state(), np.random.get_state(), random.getstate()

    def two_passes(model):
        torch.set_rng_state(rng[0])
        np.random.set_state(rng[1])
        random.setstate(rng[2])
        model.train()(IMAGES).sum().backward()
        with pytest.raises(TypeError):
            model("no tensor")
        return model.eval()

    two_passes(plain)
    expected = state_of(plain), state_of_the_process()
    with probe_without_server(model):
        two_passes(model)
    after = state_of(model), state_of_the_process()
    for name in ("tensors", "state_dict", "grads"):
        expected_, got = expected[0][name], after[0][name]
        if name == "tensors":
            expected_, got = ({k: v[1:] for k, v in side.items()} for side in (expected_, got))
        assert got == expected_, name
    for name in ("dicts", "inner", "classes", "training", "tensor dicts"):
        assert after[0][name] == before[0][name], name
    before, after = (expected[1],), (after[1],)
    for one, other in zip(before, after, strict=True):
        for name in one:
            assert other[name] == one[name], name
