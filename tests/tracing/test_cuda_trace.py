"""Traces of models on a GPU: what is recorded, that it is proven, and that nothing is changed or waits."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch
from cuda_models import CASES, DEVICE, ON_GPU, Decoder, Residual, images, made, tokens, wait
from torch import nn
from torch.nn import functional as F

import intus
from intus.core.errors import CaptureError
from intus.tracing.capture.context.kernel_settings import full_float32

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method"),  # torch's own, when it compiles
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:RNN module weights"),  # of a copied LSTM
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]


class Hooks:
    """Clones what every module returns; the reference."""

    def __init__(self, model):
        self.values = {}
        for name, module in model.named_modules():
            module.register_forward_hook(lambda _m, _a, out, name=name: self._keep(name, out))

    def _keep(self, name, out):
        if isinstance(out, torch.Tensor):
            self.values.setdefault(name, []).append(out.detach().clone())


def equal_trees(a, b):
    pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
    return all(torch.equal(one, other) for one, other in pairs)


def random_states():
    cuda = torch.cuda.get_rng_state() if ON_GPU else torch.zeros(1)
    return torch.get_rng_state(), cuda


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_hooks_and_proven(name):
    model, x, within = made(name)
    plain = copy.deepcopy(model)
    hooks = Hooks(plain)
    with within(), torch.no_grad():
        torch.manual_seed(7)
        expected = plain(x)
        before = [t.clone() for t in model.state_dict().values()]
        states = random_states()
        t = intus.trace(model, x, seed=7)
        assert all(map(torch.equal, states, random_states()))
        outputs = tuple(t[f"output_{number}"].value for number in range(1, len(t.outputs) + 1))
        assert equal_trees(outputs, expected if isinstance(expected, tuple) else (expected,))
        assert all(map(torch.equal, before, model.state_dict().values()))
        for address, values in hooks.values.items():
            if address and not address.endswith("relu"):  # which writes in place
                for call, value in enumerate(values, 1):
                    found = t[f"{address}:{call}" if len(values) > 1 else address].value
                    assert torch.equal(found, value), address
        report = t.validate()
        assert not report.failed, report
        assert report, report
        live = intus.validate(model, x, seed=7)
        assert live, live
        assert live.fidelity.status == "same"


@pytest.mark.parametrize("name", ["cnn train", "transformer train", "transformer autocast bfloat16"])
def test_gradients_are_autograds(name):
    model, x, within = made(name)
    plain, grads = copy.deepcopy(model), {}
    for address, module in plain.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.LayerNorm):

            def keep(_module, _args, out, address=address):
                out.register_hook(lambda grad: grads.__setitem__(address, grad.clone()))

            module.register_forward_hook(keep)
    with within():
        torch.manual_seed(3)
        plain(x).float().square().mean().backward()
        t = intus.trace(model, x, seed=3, grads=True)
        t.output.float().square().mean().backward()
    assert len(grads) > 3
    for address, grad in grads.items():
        assert torch.equal(t[address].grad, grad), address
    report = intus.validate(model, x, against="autograd", seed=3)
    assert report.autograd.missing == ()


def test_settings_of_kernels_are_those_of_the_pass():
    """A pass with TF32 is proven although the process computes with all digits by now."""
    model, x = (
        nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256)).to(DEVICE),
        torch.randn(64, 256),
    )
    torch.set_float32_matmul_precision("high")
    try:
        t = intus.trace(model, x.to(DEVICE))
    finally:
        torch.set_float32_matmul_precision("highest")
    exact = intus.trace(model, x.to(DEVICE))
    assert not ON_GPU or not torch.equal(t[-1].value, exact[-1].value)
    assert t.validate(), t.validate()
    assert torch.get_float32_matmul_precision() == "highest"


def test_kernels_that_do_not_repeat_themselves_do_not_fail():
    """Sums by atomic additions have another rounding each time."""

    class Scatter(nn.Module):
        def forward(self, x, at):
            return torch.zeros(7, device=x.device).index_add_(0, at, x).exp()

    torch.manual_seed(0)
    x, at = torch.randn(200_000, device=DEVICE), torch.randint(0, 7, (200_000,), device=DEVICE)
    report = intus.trace(Scatter(), x, at).validate()
    live = intus.validate(Scatter(), x, at, fidelity=False)
    for found in (report, live):
        assert not found.failed, found
        assert not ON_GPU or "does not repeat itself" in str(found)


def test_random_values_do_not_stop_the_device():
    """A kernel that is given no probabilities ends every use of the GPU in the process."""

    class Draws(nn.Module):
        def forward(self, x, y):
            p = x.sigmoid()
            a = torch.bernoulli(p) + p.clone().bernoulli_(p)
            b = torch.multinomial(p, 2, replacement=True)
            return a.sum() + b.sum() + F.binary_cross_entropy(p, y.sigmoid())

    x, y = torch.randn(6, 9, device=DEVICE), torch.randn(6, 9, device=DEVICE)
    t = intus.trace(Draws(), x, y, seed=0)
    assert not t.validate().failed, t.validate()
    assert not intus.validate(Draws(), x, y, seed=0).failed
    wait()


@pytest.mark.parametrize("name", ["cnn train", "transformer bfloat16", "two devices"])
def test_saved_traces_open_without_a_gpu(tmp_path, name):
    model, x, _ = made(name)
    with torch.no_grad():
        t = intus.trace(model, x, seed=1)
    t.save(tmp_path / "x.trace")
    again = intus.load(tmp_path / "x.trace")
    for op in t.ops:
        value = again[op.label].value
        assert torch.equal(value.to(op.value.device), op.value)
    code = (
        "import sys, torch, intus\n"
        "assert not torch.cuda.is_available()\n"
        "t = intus.load(sys.argv[1])\n"
        "print(*(float(op.value.double().sum()) for op in t.ops))\n"
        "print(len(t.to_pandas()), t)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "x.trace"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    sums = [float(one) for one in done.stdout.splitlines()[0].split()]
    assert sums == [float(op.value.cpu().double().sum()) for op in t.ops]


def test_reruns_with_changes():
    model, x, _ = made("transformer eval")
    with torch.no_grad():
        t = intus.trace(model, x)
        changed = t.rerun({"blocks.0.up[3]": 0, "blocks.1.out": torch.zeros(64)})
        model.blocks[0].up.register_forward_hook(
            lambda _m, _a, out: out.index_fill(-1, torch.tensor([3], device=DEVICE), 0)
        )
        model.blocks[1].out.register_forward_hook(lambda _m, _a, out: torch.zeros_like(out))
        assert torch.equal(changed["output_1"].value, model(x))
        assert changed["output_1"].value.device.type == DEVICE


def test_other_verbs_of_traces():
    model, x, _ = made("cnn eval")
    with torch.no_grad():
        on_gpu = intus.trace(model, x, decompose=True)
        assert on_gpu.validate()
        kept = intus.trace(model, x, to="cpu")
        assert {op.value.device.type for op in kept.ops} == {"cpu"}
        half = intus.trace(model, x, to=torch.float16)
        assert half["head"].value.dtype == torch.float16
        on_cpu = intus.trace(copy.deepcopy(model).cpu(), x.cpu())
        with full_float32():  # convolutions have 11 digits otherwise
            found = intus.compare(on_cpu, intus.trace(model, x))
    assert found.agree, found
    assert intus.view(kept).html


def test_trace_without_values_takes_no_memory():
    model, x = Decoder(256, 6).to(DEVICE).eval(), tokens(16, 200).to(DEVICE)
    if not ON_GPU:
        return

    def peak(run):
        with torch.no_grad():
            run()
            wait()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            kept = run()
            wait()
            del kept
            return torch.cuda.max_memory_allocated() - before

    plain = peak(lambda: model(x))
    traced = peak(lambda: intus.trace(model, x, save="none"))
    assert traced <= 1.05 * plain + (1 << 20), (traced, plain)
    assert peak(lambda: model(x)) == plain


@pytest.mark.parametrize("save", ["none", "all", "blocks.*"])
def test_trace_does_not_wait_for_the_device(save):
    model, x = Decoder().to(DEVICE), tokens().to(DEVICE)
    model(x).sum().backward()
    intus.trace(model, x, save=save)
    try:
        if ON_GPU:
            torch.cuda.set_sync_debug_mode("error")
        t = intus.trace(model, x, save=save)
    finally:
        if ON_GPU:
            torch.cuda.set_sync_debug_mode("default")
    assert len(t.ops) > 20


def test_training_goes_on_as_without_traces():
    def train(traced):
        torch.manual_seed(0)
        model, x = Residual().to(DEVICE), images().to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        losses = []
        for step in range(6):
            if traced and step % 2:
                intus.trace(model, x, grads=True).output.sum().backward()
                optimizer.zero_grad()
            loss = F.cross_entropy(model(x), torch.arange(8, device=DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.clone() for p in model.parameters()]

    torch.use_deterministic_algorithms(True)
    try:
        (one, weights), (other, others) = train(False), train(True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert one == other
    assert all(map(torch.equal, weights, others))


def test_traces_while_a_graph_is_captured_are_refused():
    """A graph that is being captured has no values yet."""
    model, x = nn.Linear(8, 8).to(DEVICE), torch.randn(4, 8, device=DEVICE)
    if not ON_GPU:
        return
    model(x)
    wait()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        with pytest.raises(CaptureError, match="CUDA graph"):
            intus.trace(model, x)
        out = model(x)
    graph.replay()
    assert torch.equal(out, model(x))


def test_replayed_graphs_are_constants():
    """A replay runs no function of torch: its outputs enter as constants, with the values that they have."""
    if not ON_GPU:
        return
    inner, x = nn.Linear(8, 8).to(DEVICE), torch.randn(4, 8, device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad():
        with torch.cuda.stream(side):
            inner(x)
        torch.cuda.current_stream().wait_stream(side)
        graph, given = torch.cuda.CUDAGraph(), x.clone()
        with torch.cuda.graph(graph):
            held = inner(given)

        def forward(x):
            given.copy_(x)
            graph.replay()
            return held * 2

        for factor in (1, 3):
            t = intus.trace(forward, factor * x)
            assert torch.equal(t["output_1"].value, inner(factor * x) * 2)
            assert not t.validate().failed, t.validate()


def test_compiled_models_run_eagerly():
    model, x, _ = made("transformer eval")
    with torch.no_grad():
        compiled = torch.compile(model) if ON_GPU else model
        compiled(x)
        t = intus.trace(compiled, x)
        assert torch.equal(t["output_1"].value, model(x))
        assert t.validate()


def test_first_nan_on_a_gpu():
    class Log(nn.Module):
        def forward(self, x):
            return (torch.log(x) * 0).sum()

    found = intus.why_nan(Log(), torch.tensor([1.0, 0.0, -1.0], device=DEVICE))
    assert "log" in str(found)
