"""Floating point operations, compared with torch's counter where it counts, and with formulas elsewhere."""

import pytest
import torch
import transformers
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import intus
from intus.core.analysis.flops import UNKNOWN, flops, products

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
IDS = {"input_ids": torch.arange(14).reshape(2, 7)}
IMAGE = {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)}


def resnet():
    shape = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 2, 1, 1]}
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(**shape, layer_type="basic"))


def vit():
    return transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **SMALL))


def bert(attention):
    return transformers.BertModel(
        transformers.BertConfig(vocab_size=99, attn_implementation=attention, **SMALL)
    )


def gpt2(attention):
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation=attention, **shape))


def llama(attention):
    shape = {"num_key_value_heads": 2, "vocab_size": 99, "attn_implementation": attention}
    return transformers.LlamaModel(transformers.LlamaConfig(**shape, **SMALL))


def mobilenet():
    return transformers.MobileNetV2Model(transformers.MobileNetV2Config(image_size=32, depth_multiplier=0.35))


class Products(nn.Module):
    """Every way to write a matrix product, with parameters on either side."""

    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.ones(5, 3)), nn.Parameter(torch.ones(3))

    def forward(self, x):
        w = self.w
        batch = torch.bmm(x[None], w[None])
        return (
            *(x @ w, torch.addmm(self.b, x, w), torch.mm(x, w), x.matmul(other=w), torch.mm(input=x, mat2=w)),
            *(w.t() @ x.t(), torch.matmul(w.mT, x.mT), torch.baddbmm(batch, x[None], w[None])),
            *(
                torch.einsum("ij,jk->ik", x, w),
                torch.einsum("...j,jk", x, w),
                torch.einsum("jk,ij->ik", w, x),
            ),
            *(torch.einsum("ij,jk", [x, w]), nn.functional.linear(x, w.t(), self.b)),
        )


MODELS = {
    "resnet": (resnet, IMAGE),
    "mobilenet": (mobilenet, IMAGE),
    "vit": (vit, IMAGE),
    **{
        f"{m.__name__} {a}": ((lambda m=m, a=a: m(a)), IDS)
        for m in (bert, gpt2, llama)
        for a in ("eager", "sdpa")
    },
    "convolutions": (
        lambda: nn.Sequential(
            *(
                nn.Conv2d(4, 8, 3, stride=2, groups=2, padding=1),
                nn.ConvTranspose2d(8, 6, 3, stride=2, groups=2),
            ),
            nn.Conv2d(6, 6, 3, dilation=2, groups=6),
        ),
        torch.ones(2, 4, 17, 19),
    ),
    "one axis": (
        lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.ConvTranspose1d(8, 4, 4, 2)),
        torch.ones(2, 4, 17),
    ),
    "three axes": (
        lambda: nn.Sequential(nn.Conv3d(4, 8, 3), nn.ConvTranspose3d(8, 4, 4)),
        torch.ones(2, 4, 5, 6, 7),
    ),
    "no batch": (lambda: nn.Conv2d(4, 8, 3), torch.ones(4, 9, 9)),
    "products": (Products, torch.ones(7, 5)),
    "transformer": (
        lambda: nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True).train(),
        (torch.ones(2, 5, 16), torch.ones(2, 6, 16)),
    ),
    "gru": (lambda: nn.GRU(5, 7, 2, bidirectional=True), torch.ones(11, 3, 5)),
    "rnn": (lambda: nn.RNN(5, 7, batch_first=True), torch.ones(3, 11, 5)),
    "lstm cell": (lambda: nn.LSTMCell(5, 7), torch.ones(3, 5)),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_products_equal_torch_flop_counter(name):
    build, inputs = MODELS[name]
    torch.manual_seed(0)
    model = build()
    graph = intus.trace(model, inputs, save="none").graph
    with (
        FlopCounterMode(display=False) as counter,
        sdpa_kernel(SDPBackend.MATH),
    ):  # the others are not counted
        model(**inputs) if isinstance(inputs, dict) else model(
            *(inputs if isinstance(inputs, tuple) else (inputs,))
        )
    counts = flops(graph)
    assert (counts >= 0).all()
    assert counts[products(graph)].sum() == counter.get_total_flops() > 0


@pytest.mark.parametrize(
    ("equation", "shapes", "count"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)], 2 * 2 * 3 * 4 * 6 * 5),
        ("b...i,...ij->b...j", [(2, 3, 4), (3, 4, 5)], 2 * 2 * 3 * 4 * 5),
        ("ij,jk", [(2, 3), (3, 4)], 2 * 2 * 3 * 4),
        ("ij,ij->ij", [(3, 4), (3, 4)], 12),
        ("i,j->ij", [(3,), (4,)], 12),
        ("bij->b", [(2, 3, 4)], 24),
        ("ij->ji", [(2, 3)], 0),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], None),
    ],
)
def test_einsum(equation, shapes, count):
    t = intus.trace(lambda *xs: torch.einsum(equation, *xs), tuple(map(torch.ones, shapes)))
    assert t["einsum_1"].flops == count


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_lstm_equals_formula():
    for layers, bidirectional, size in ((1, False, 0), (2, True, 0), (2, False, 3)):
        lstm = nn.LSTM(5, 7, layers, bidirectional=bidirectional, proj_size=size)
        t = intus.trace(lstm, torch.ones(11, 3, 5), save="none")
        weights = sum(p.numel() for p in lstm.parameters() if p.dim() == 2)
        assert t["lstm_1"].flops == 2 * 11 * 3 * weights  # every matrix once for each item of each step
        assert (t["lstm_2"].flops, t["lstm_3"].flops) == (0, 0)  # counted at the first output
        assert t["lstm_1"].macs * 2 == t["lstm_1"].flops


X = torch.ones(2, 4, 6, 6)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: torch.relu(x), 288),
        (lambda x: x.add_(1), 288),
        (lambda x: x.reshape(2, -1).transpose(0, 1)[0].contiguous(), 0),
        (lambda x: x.sum(), 288),
        (lambda x: x.softmax(1), 5 * 288),
        (nn.MaxPool2d(2), 72 * 4),
        (nn.AvgPool2d((3, 1)), 96 * 3),
        (nn.AdaptiveAvgPool2d(1), 288),
        (nn.BatchNorm2d(4).eval(), 2 * 288),
        (nn.BatchNorm2d(4, affine=False).eval(), 288),
        (nn.GroupNorm(2, 4), 5 * 288),
        (nn.LayerNorm(6, elementwise_affine=False), 4 * 288),
        (nn.Dropout(0.5).eval(), 0),
        (nn.Dropout(0.5), 288),
        (nn.Upsample(scale_factor=2), 0),
        (nn.Upsample(scale_factor=2, mode="bilinear"), 2 * 4 * 4 * 288),
        (nn.GLU(1), 2 * 144),
        (lambda x: x + torch.rand(6), 288),
        (lambda x: torch.copysign(x, -x), 2 * 288),
        (lambda x: torch.isclose(x, x), 288),
        (lambda x: torch.lerp(x, x, 0.5), 2 * 288),
        (lambda x: x.conj().short().hsplit(2)[0].positive(), 0),
    ],
)
def test_other_operations_follow_documented_convention(function, count):
    t = intus.trace(function, X.clone(), save="none")
    assert t.flops == count
    assert t.macs == 0
    assert t.flops_unknown == {}


def test_types_without_rule_are_reported_and_not_counted():
    t = intus.trace(lambda x: torch.fft.rfft(x.sort().values * 2).abs(), torch.ones(8), save="none")
    assert t.flops_unknown == {"sort": 1, "fft_rfft": 1}
    assert t["sort_1"].flops is None
    assert t["sort_1"].macs is None
    assert t.flops == 8 + 5


def test_failed_op_has_unknown_count():
    t = intus.trace(lambda x: x @ x, torch.ones(2, 3), on_error="keep")
    assert flops(t.graph).tolist() == [0, UNKNOWN]


def test_module_flops_are_sum_of_operations():
    net = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 2))
    net.append(net[1])
    net[2] = nn.Linear(2, 4)
    net.append(net[1])
    t = intus.trace(net, torch.ones(5, 3), save="none")
    assert t.modules["0"].flops == 2 * 5 * 3 * 4 + 5 * 4
    assert t.modules["1"].flops == 2 * (2 * 5 * 4 * 2)
    assert t.modules[""].flops == t.flops == sum(op.flops for op in t)
    assert t.modules["1"].calls[1].flops == 2 * 5 * 4 * 2


def test_mixture_of_experts_counts_chosen_experts():
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.MixtralConfig(num_key_value_heads=2, num_local_experts=4, vocab_size=99, **shape)
    t = intus.trace(transformers.MixtralModel(config).eval(), IDS, save="none")
    experts = sum(op.flops for op in t.find(type="grouped_mm"))
    assert experts == 14 * config.num_experts_per_tok * 2 * (
        3 * 32 * 64
    )  # up, gate and down, for each choice
