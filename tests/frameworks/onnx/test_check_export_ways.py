"""``check_export`` of files that compute in another way, which agrees with the model's on the inputs.

The judge of a wrong file is onnxruntime: on other inputs it does not return what the model does. The right
ones are exports of the model itself by both exporters and by ``torch.export``.
"""

import contextlib
import io
import logging
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

import intus


class Net(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = step
        torch.manual_seed(0)
        self.embedding = nn.Embedding(30, 4)

    def forward(self, *x):
        return self.step(self, *x)


def export(net, x, path, how):
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        logging.disable(logging.WARNING)
        try:
            if how == "pt2":
                torch.export.save(torch.export.export(net, x), path)
            else:
                more = {"verbose": False} if how == "new" else {}
                torch.onnx.export(net, x, path, dynamo=how == "new", **more)
        finally:
            logging.disable(logging.NOTSET)
    return path


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


WHOLE, BELOW = torch.tensor([4, 7, 9]), torch.tensor([-1, -2, -4])
POSITIVE = drawn(9).abs() + 0.05
BLANK = F.pad(drawn(1, 1, 4, 4), (2, 2, 2, 2))
CONSTANT = torch.full((1, 1, 4, 4), 0.5)
#: The model, the model of which the file is made, the inputs, others on which they differ, and what is said.
WRONG = {
    "remainder": (
        lambda s, x: torch.remainder(x, 7),
        lambda s, x: torch.fmod(x, 7),
        (WHOLE,),
        (BELOW,),
        "remainder_1_1 rounds down in the model, toward zero in the file",
    ),
    "whole division": (
        lambda s, x: torch.div(x, 7, rounding_mode="floor"),
        lambda s, x: torch.div(x, 7, rounding_mode="trunc"),
        (WHOLE,),
        (BELOW,),
        "div_1_1 rounds down in the model, toward zero in the file",
    ),
    "nearest": (
        lambda s, x: torch.round(x) * 2,
        lambda s, x: torch.floor(x) * 2,
        (WHOLE + 0.2,),
        (WHOLE + 0.7,),
        "round_1_1 rounds to the nearest in the model, down in the file",
    ),
    "padding": (
        lambda s, x: F.pad(x, (1, 1, 1, 1)),
        lambda s, x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
        (BLANK,),
        (drawn(1, 1, 8, 8),),
        "mode is 'constant' in the model, 'edge' in the file",
    ),
    "padding that counts": (
        lambda s, x: F.avg_pool2d(x, 3, 2, 1),
        lambda s, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        (BLANK,),
        (drawn(1, 1, 8, 8),),
        "count_include_pad is True in the model, 0 in the file",
    ),
    "corners": (
        lambda s, x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        lambda s, x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True),
        (CONSTANT,),
        (drawn(1, 1, 4, 4),),
        "align_corners is False in the model, True in the file",
    ),
    "interpolation": (
        lambda s, x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        lambda s, x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
        (CONSTANT,),
        (drawn(1, 1, 4, 4),),
        "mode is 'bilinear' in the model, 'nearest' in the file",
    ),
    "epsilon by default": (
        lambda s, x: F.cosine_similarity(x, x + 1),
        lambda s, x: F.cosine_similarity(x, x + 1, eps=100.0),
        (drawn(3, 6) * 1e3,),
        (drawn(3, 6),),
        "the constants are 1e-08 in the model, 100 in the file",
    ),
    "epsilon elsewhere": (
        lambda s, x: x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt(),
        lambda s, x: x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6),
        (drawn(3, 6) * 9,),
        (drawn(3, 6) * 1e-3,),
        "1e-06 is added to mean_1_2 in the model at add_1_3, in the file to another tensor",
    ),
}
#: Models whose export is wrong, the exporters, the inputs, others on which it is, and what is said.
WRONG_EXPORTS = {
    "floor division": (
        lambda s, i: i // 3,
        ("old",),
        WHOLE,
        BELOW,
        "floordiv_1_1 rounds down in the model, toward zero in the file",
    ),
    "shift": (
        lambda s, i: i >> 1,
        ("old",),
        WHOLE,
        BELOW,
        "rshift_1_1 rounds down in the model, toward zero in the file",
    ),
    "floor division of fractions": (
        lambda s, x: x // 0.3,
        ("old",),
        POSITIVE,
        -POSITIVE,
        "floordiv_1_1 rounds down in the model, toward zero in the file",
    ),
    "index": (
        lambda s, i: s.embedding((i - 4) // 3 + 5),
        ("old",),
        WHOLE,
        torch.tensor([0, 1, 2]),
        "floordiv_1_2 rounds down in the model, toward zero in the file",
    ),
    "threshold": (
        lambda s, x: F.softplus(x, 2, 5),
        ("old",),
        POSITIVE * 0.5,
        torch.linspace(2.5, 4, 9),
        "the threshold of softplus_1_1 is only in the model",
    ),
    "logarithm": (
        lambda s, x: F.logsigmoid(x),
        ("old", "new"),
        POSITIVE,
        POSITIVE - 30,
        "log_sigmoid_1_1 is the logarithm of a sigmoid in the file, which is -inf where",
    ),
}


def returned(path, x):
    session = onnxruntime.InferenceSession(path)
    return session.run(None, {one.name: t.numpy() for one, t in zip(session.get_inputs(), x, strict=True)})[0]


@pytest.mark.parametrize("how", ["old", "new"])
@pytest.mark.parametrize("case", WRONG)
def test_another_way_to_compute_is_named(case, how, tmp_path):
    step, other, x, y, said = WRONG[case]
    model = Net(step).eval()
    path = export(Net(other).eval(), x, tmp_path / "net.onnx", how)
    assert not np.allclose(returned(path, y), model(*y).numpy(), rtol=1e-4, atol=1e-7)
    check = intus.check_export(model, path, *x)
    assert check.verdict in ("not proven", "differs")
    if check.verdict == "not proven":
        assert said in " ".join(check.unproven), check.unproven
    same = intus.check_export(Net(other).eval(), path, *x)
    if (case, how) == ("epsilon by default", "old"):  # which bounds the product of the norms, and torch each
        assert same.verdict == "not proven", str(same)
    else:
        assert same, str(same)


@pytest.mark.parametrize(
    ("case", "how"), [(case, how) for case, values in WRONG_EXPORTS.items() for how in values[1]]
)
def test_wrong_export_is_not_proven(case, how, tmp_path):
    step, _, x, y, said = WRONG_EXPORTS[case]
    model = Net(step).eval()
    path = export(model, (x,), tmp_path / "net.onnx", how)
    wanted = model(y).detach().numpy()
    assert not np.allclose(returned(path, (y,)), wanted, rtol=1e-4)
    check = intus.check_export(model, path, x)
    assert check.verdict == "not proven"
    assert said in " ".join(check.unproven), check.unproven


IMAGE = drawn(1, 3, 6, 6)
#: Steps whose exports are right, with their inputs and the exporters that write them.
RIGHT = {
    "floor division": (lambda s, i: i // 3, WHOLE, ("new", "pt2")),
    "truncating division": (
        lambda s, i: torch.div(i, 3, rounding_mode="trunc"),
        WHOLE,
        ("old", "new", "pt2"),
    ),
    "division of fractions": (
        lambda s, x: torch.div(x, 3, rounding_mode="floor"),
        POSITIVE,
        ("old", "new", "pt2"),
    ),
    "remainder": (lambda s, i: i % 3, WHOLE, ("old", "new", "pt2")),
    "fmod": (lambda s, i: torch.fmod(i, 3), WHOLE, ("old", "new", "pt2")),
    "cast": (lambda s, x: s.embedding((x * 3).long()), POSITIVE, ("old", "new", "pt2")),
    "round and cast": (lambda s, x: s.embedding((x * 3).round().long()), POSITIVE, ("old", "new", "pt2")),
    "threshold": (lambda s, x: F.softplus(x, 2, 5), POSITIVE, ("new", "pt2")),
    "log softmax": (lambda s, x: F.log_softmax(x, -1), POSITIVE, ("old", "new", "pt2")),
    "padding": (lambda s, x: F.pad(x, (1, 1, 1, 1), mode="reflect"), IMAGE, ("old", "new", "pt2")),
    "padding with a number": (lambda s, x: F.pad(x, (1, 1), value=2.0), IMAGE, ("old", "new", "pt2")),
    "pooling": (lambda s, x: F.avg_pool2d(x, 2), IMAGE, ("old", "new", "pt2")),
    "pooling without padding": (
        lambda s, x: F.avg_pool2d(x, 2, count_include_pad=False),
        IMAGE,
        ("old", "new", "pt2"),
    ),
    "padded pooling": (lambda s, x: F.avg_pool2d(x, 3, 2, 1), IMAGE, ("old", "new", "pt2")),
    "bilinear": (
        lambda s, x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        IMAGE,
        ("old", "new", "pt2"),
    ),
    "corners": (
        lambda s, x: F.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=True),
        IMAGE,
        ("old", "new", "pt2"),
    ),
    "nearest": (lambda s, x: F.interpolate(x, scale_factor=2.0), IMAGE, ("old", "new", "pt2")),
    "nearest exact": (
        lambda s, x: F.interpolate(x, scale_factor=2.0, mode="nearest-exact"),
        IMAGE,
        ("new", "pt2"),
    ),
    "area": (lambda s, x: F.interpolate(x, size=(3, 3), mode="area"), IMAGE, ("old", "new", "pt2")),
    "grid": (
        lambda s, x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False),
        IMAGE,
        ("old", "new", "pt2"),
    ),
    "cosine": (lambda s, x: F.cosine_similarity(x, x.flip(0)), IMAGE[0], ("old", "new", "pt2")),
    "roll over two axes": (lambda s, x: x.roll((3, 3), (2, 3)) * 2, IMAGE, ("old", "new", "pt2")),
    "roll over three axes": (lambda s, x: x.roll((-1, 2, 3), (1, 2, 3)) * 2, IMAGE, ("old", "new")),
    "lerp": (lambda s, x: torch.lerp(x, x.flip(0), 0.3), drawn(9), ("old", "new", "pt2")),
    "heaviside": (lambda s, x: torch.heaviside(x, x * 0 + 0.5), drawn(9), ("new", "pt2")),
}


@pytest.mark.parametrize(
    ("case", "how"), [(case, how) for case, values in RIGHT.items() for how in values[2]]
)
def test_right_export_is_equal(case, how, tmp_path):
    step, x, _ = RIGHT[case]
    model = Net(step).eval()
    path = export(model, (x,), tmp_path / ("net.pt2" if how == "pt2" else "net.onnx"), how)
    check = intus.check_export(model, path, x)
    assert check, str(check)


_SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
_TEXT = {**_SMALL, "vocab_size": 50, "num_key_value_heads": 2, "use_cache": False}
MODELS = {
    "LlamaForCausalLM": _TEXT,
    "Qwen2ForCausalLM": _TEXT,
    "GemmaForCausalLM": {**_TEXT, "head_dim": 8},
    "GPT2Model": {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 50, "use_cache": False},
}


@pytest.mark.parametrize("name", MODELS)
def test_attention_that_is_causal_by_its_mask_is_equal(name, tmp_path):
    torch.manual_seed(0)
    class_ = getattr(transformers, name)
    model = class_(class_.config_class(**MODELS[name])).eval()
    ids = torch.arange(12).reshape(2, 6) + 2
    check = intus.check_export(model, export(model, (ids,), tmp_path / "net.pt2", "pt2"), ids)
    assert check, str(check)


def attention(mask):
    def step(s, x):
        given = {"is_causal": True} if mask is None else {"attn_mask": mask(x)}
        return F.scaled_dot_product_attention(x, x, x, **given)

    return Net(step).eval()


def causal(x, dtype=torch.bool):
    seen = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    return seen if dtype is torch.bool else torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))


@pytest.mark.parametrize(
    ("mask", "verdict"),
    [
        (causal, "equal"),
        (lambda x: causal(x, torch.float32), "equal"),
        (lambda x: causal(x) & (x[0, 0].sum(-1) > -1e9), "not proven"),  # not causal on all inputs
    ],
)
def test_only_a_causal_mask_is_one(mask, verdict, tmp_path):
    x = drawn(1, 2, 5, 4) * 0.1
    path = export(attention(mask), (x,), tmp_path / "net.pt2", "pt2")
    assert intus.check_export(attention(None), path, x).verdict == verdict
