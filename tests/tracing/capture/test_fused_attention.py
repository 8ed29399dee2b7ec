"""A traced transformer computes what the model computes: torch's fused attention stays in use."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import intus
from intus.tracing.capture.context.kernel_settings import kernel_settings
from intus.tracing.replaying.replay import run_call

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[False, False, True], [False, True, True]])
HIDDEN = torch.tensor([[False, False, True], [True, True, True]])  # one row sees nothing


def encoder(layers: int, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
    return nn.TransformerEncoder(layer, layers) if layers > 1 else layer


MODELS = {
    "encoder": lambda: encoder(2),
    "layer": lambda: encoder(1),
    "norm first": lambda: encoder(1, norm_first=True, activation="gelu"),
    "attention": lambda: nn.MultiheadAttention(8, 2, batch_first=True),
}


def arguments(name: str, mask: Tensor | None) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    if name == "attention":
        return (X, X, X), {} if mask is None else {"key_padding_mask": mask}
    return (X,), {} if mask is None else {"src_key_padding_mask": mask}


def flat(out: Any) -> list[Tensor]:
    return [t for t in (out if isinstance(out, tuple) else (out,)) if t is not None]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mask", [None, MASK, HIDDEN], ids=["no mask", "mask", "hidden row"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_equal_the_plain_model(name: str, mask: Tensor | None, training: bool, grad: bool) -> None:
    model = MODELS[name]().train(training)
    args, kwargs = arguments(name, mask)
    with nullcontext() if grad else torch.no_grad():
        torch.manual_seed(1)
        plain = flat(model(*args, **kwargs))
        t = intus.trace(model, *args, seed=1, **kwargs)
        report = t.validate()
        assert intus.validate(model, *args, seed=1, **kwargs).unproven == []
    for value, expected in zip([out.value for out in t.outputs], plain, strict=True):
        torch.testing.assert_close(value, expected.detach(), rtol=0, atol=0, equal_nan=True)
    assert not report.failed
    assert not report.unproven


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fused_layer_is_one_operation() -> None:
    with torch.no_grad():
        t = intus.trace(encoder(2).eval(), X)
    assert [op.type for op in t] == ["transformer_encoder_layer_fwd"] * 2
    assert "layers.0.self_attn.in_proj_weight" in [param.address for param in t[0].params]


def test_decompose_opens_the_layer() -> None:
    with torch.no_grad():
        t = intus.trace(encoder(2).eval(), X, decompose=True)
    assert {"linear", "layer_norm", "scaled_dot_product_attention"} <= {op.type for op in t}


def test_function_of_torch_is_restored() -> None:
    before = torch.overrides.has_torch_function
    intus.trace(encoder(1), X)
    assert torch.overrides.has_torch_function is before


@pytest.mark.parametrize("kernel", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_attention_is_run_again_with_the_kernel_of_the_pass(kernel):
    """Another kernel, which the process would choose by itself, rounds differently."""

    def forward(q):
        with sdpa_kernel(kernel):
            out = F.scaled_dot_product_attention(q, q, q)
        return out * 2

    torch.manual_seed(0)
    q = torch.randn(2, 4, 33, 16)
    with sdpa_kernel(SDPBackend.MATH):
        other = F.scaled_dot_product_attention(q, q, q) * 2
    assert torch.equal(forward(q), other) == (kernel is SDPBackend.MATH)
    report = intus.trace(forward, q).validate()
    assert report, report
    assert intus.validate(forward, q)
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.math_sdp_enabled()


def test_precision_of_the_pass_is_that_of_its_replays():
    """A pass is run again with the settings that it had, and the process keeps its own."""
    seen = []

    class Sees(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(kernel_settings().precisions[0])
            return func(*args, **(kwargs or {}))

    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    torch.set_float32_matmul_precision("high")
    try:
        t = intus.trace(model, x)
        torch.set_float32_matmul_precision("highest")
        call = t._replays.call(t.graph.ops.event[t[0].row])
        with Sees():
            run_call(call, [x, model.weight, model.bias])
    finally:
        torch.set_float32_matmul_precision("highest")
    assert "tf32" in seen
    assert kernel_settings().precisions[0] != "tf32"
