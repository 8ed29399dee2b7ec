"""Text and HTML of ops and modules."""

import numpy as np
import pytest
import torch
from torch import nn
from zoo_models import make

import intus
from intus.tracing.results.value_summary import compute_summary


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.float64])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 8, 8), (2, 70, 90), (0, 3)])
def test_compute_summary_equals_numpy(dtype, shape):
    torch.manual_seed(0)
    value = (torch.randn(shape) * 5).to(dtype)
    summary, plain = compute_summary(value), value.double().numpy()
    assert (summary.size, summary.nan, summary.infinite) == (plain.size, 0, 0)
    assert summary.zero == (plain == 0).sum()
    if plain.size:
        assert [summary.low, summary.mean, summary.high] == pytest.approx(
            [plain.min(), plain.mean(), plain.max()]
        )
        assert summary.std == pytest.approx(plain.std())
        assert sum(summary.counts) == plain.size
        if plain.min() < plain.max():
            assert list(summary.counts) == np.histogram(plain, 40, (plain.min(), plain.max()))[0].tolist()
    if summary.image is not None:
        assert max(summary.image.shape) <= 64
        assert np.isin(summary.image, plain).all()


def test_compute_summary_of_non_finite_values():
    summary = compute_summary(
        torch.tensor([1.0, 3.0, float("nan"), float("inf"), -float("inf"), float("nan")])
    )
    assert (summary.nan, summary.infinite, summary.low, summary.mean, summary.high) == (2, 2, 1.0, 2.0, 3.0)
    assert compute_summary(torch.full((2,), float("nan"))).low is None


def test_compute_summary_of_other_dtypes_and_layouts():
    assert compute_summary(torch.tensor([3 + 4j])).high == 5
    assert compute_summary(torch.tensor([True, False, True])).mean == pytest.approx(2 / 3)
    assert compute_summary(torch.ones(2, device="meta")) is None
    assert compute_summary(torch.eye(3).to_sparse()) is None
    t = intus.trace(lambda x: x.to_sparse(), torch.eye(3))
    assert "\n  values" not in str(t["to_sparse_1"])


def test_printing_has_no_side_effects(zoo):
    model, x = zoo
    t = intus.trace(model, x)
    before = {row: (value.clone(), value._version) for row, value in t.values.items()}
    state = torch.get_rng_state()
    shown = [*t, *t.inputs, *t.outputs, *t.buffers, *t.modules.values()]
    for thing in shown:
        assert str(thing).splitlines()[0] == str(thing).splitlines()[0].rstrip()
        assert thing._repr_html_().startswith("<div")
        assert "\n" not in repr(thing)
    assert torch.equal(state, torch.get_rng_state())
    for row, (value, version) in before.items():
        assert torch.equal(value, t.values[row])
        assert version == t.values[row]._version


def test_printing_inside_a_trace_is_not_recorded():
    def outer(x):
        inner = intus.trace(torch.tanh, x)
        str(inner["tanh_1"])
        inner["tanh_1"]._repr_html_()
        return x + 1

    assert [op.type for op in intus.trace(outer, torch.ones(3, 3))] == ["tanh", "add"]


def test_op_card():
    t = intus.trace(*make("cnn"))
    lines = dict(
        line.strip().split("   ", 1) for line in str(t["conv1"]).splitlines()[1:] if "   " in line.strip()
    )
    facts = {name: fact.strip() for name, fact in lines.items()}
    assert facts["output"] == "2×4×6×6 float32 on cpu, 1.1 KB"
    assert facts["parameters"] == "conv1.weight 4×1×3×3, conv1.bias 4"
    assert (facts["from"], facts["to"], facts["in module"]) == ("input_1", "batch_norm_1_2", "Cnn › conv1")
    assert facts["cost"].endswith("5.18 K FLOPs")
    assert facts["arguments"] == "(1, 1), (0, 0), (1, 1), 1"
    assert "x = self.relu(self.bn(self.conv1(x)))" in str(t["conv1"])
    assert "data:image/png" in t["conv1"]._repr_html_()
    assert "writes in place" in str(t["relu_1"])
    assert str(t["buffer_1"]).startswith("buffer_1: buffer bn.running_mean\n")
    assert "pass" in str(intus.trace(*make("loop_lstm"))["w:2"])


def test_card_of_unsaved_or_failed_op():
    t = intus.trace(nn.Linear(2, 2), torch.ones(1, 2), save="none")
    assert "\n  values" not in str(t["linear_1"])
    assert "<svg" not in t["linear_1"]._repr_html_()
    t = intus.trace(lambda x: x @ x, torch.ones(2, 3), on_error="keep")
    assert "also" in str(t["matmul_1"])
    assert "output " not in str(t["matmul_1"])


def test_module_card():
    t = intus.trace(*make("cnn"))
    card = str(t.modules[""])
    assert card.startswith("the model: Cnn\n")
    assert "conv1 Conv2d, bn BatchNorm2d, relu ReLU, drop Dropout, conv2 Conv2d, head Linear" in card
    assert "247 (988 B)" in card
    assert "2 times" in str(t.modules["relu"])


def test_html_is_escaped():
    class Evil(nn.ReLU):
        def extra_repr(self):
            return "<script>alert(1)</script>"

    net = nn.Sequential()
    net.add_module("<img src=x onerror=alert(2)>", Evil())
    t = intus.trace(net, torch.ones(2))
    for thing in (t["relu_1"], *t.modules.values()):
        assert "<script" not in thing._repr_html_()
        assert "<img src=x" not in thing._repr_html_()
