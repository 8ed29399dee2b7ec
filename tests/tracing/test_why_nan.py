"""The first NaN or infinity of a pass, against planted truth, torch functions and autograd's own detector."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import intus
from intus.core.errors import CaptureError, InputError, NonFiniteError

INF = float("inf")


class FirstNan(TorchFunctionMode):
    """The name of the first torch function that returned NaN while no argument had one."""

    name = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            given = [a for a in (*args, *(kwargs or {}).values()) if isinstance(a, torch.Tensor)]
            made = (
                isinstance(out, torch.Tensor)
                and out.isnan().any()
                and not any(a.isnan().any() for a in given)
            )
            if self.name is None and made:
                self.name = func.__name__
        return out


def attention(x, mask):
    scores = x @ x.transpose(-2, -1)
    scores = scores.masked_fill(mask, -INF)
    return torch.softmax(scores, -1) @ x


def normalize(x):
    centred = x - x.mean(1, keepdim=True)
    return centred / centred.norm(dim=1, keepdim=True)


X = torch.tensor([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0], [0.5, -1.0, 2.0]])
NAN = {
    "0/0": (normalize, (X,), "div_1_4", (1,)),
    "log": (lambda x: x.log().sum(1), (X,), "log_1_1", (2,)),
    "sqrt": (lambda x: (x * 2).sqrt() + 1, (X,), "sqrt_1_2", (2,)),
    "inf - inf": (lambda x: (x * 1e37 * 100) - (x.abs() * 1e37 * 100), (X,), "mul_2_2", (0, 1, 2)),
    "overflow of half": (lambda x: (x * 5e4).half().float().softmax(-1), (X,), "half_1_2", (0, 1, 2)),
    "0 * inf": (lambda x: (x - 3) * (1 / (x - 3)), (X,), "div_1_3", (1,)),
    "masked row": (
        attention, (X[None], torch.tensor([[[False] * 3, [True] * 3, [False] * 3]])), "softmax_1_4", (0,)
    ),
    "sum of infinities given by hand": (
        lambda x: torch.full_like(x, INF) - torch.full_like(x, INF), (X,), "sub_1_3", (0, 1, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAN)
def test_forward_origin(name):
    model, args, label, rows = NAN[name]
    origin = intus.trace(model, *args).first_nan()
    assert (origin.op.label, origin.direction, origin.rows) == (label, "forward", rows)
    assert origin.op.source.file == __file__
    again = intus.why_nan(model, *args)
    assert (again.op.label, str(again)) == (label, str(origin))
    if "inf" not in name and "half" not in name:  # there, an infinity came before the first NaN
        with FirstNan() as judge:
            model(*args)
        assert judge.name.strip("_").endswith(origin.op.type) or judge.name.strip("_").endswith("truediv")


FINE = {
    "masked_fill": (attention, (X[None], torch.eye(3).bool()[None])),
    "where": (lambda x: torch.where(x > 0, x, -INF).softmax(-1), (X,)),
    "setitem": (lambda x: _with(x, -INF).softmax(-1), (X,)),
    "full": (lambda x: (x + torch.full((3, 3), -INF).triu(1)).softmax(-1), (X,)),
    "mask as input": (lambda x, mask: (x + mask).softmax(-1), (X, torch.full((3, 3), -INF).triu(1))),
    "maximum from -inf": (lambda x: torch.full((3,), -INF).maximum(x.amax(1)), (X,)),
    "clamp to inf": (lambda x: x.clamp(max=INF), (X,)),
    "topk filter": (lambda x: x.masked_fill(x < x.topk(2).values[:, -1:], -INF).softmax(-1), (X,)),
    "empty": (lambda x: torch.empty(3, 3).fill_(1) * x, (X,)),
    "causal attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (X[None],)
    ),
    "integers": (lambda x: x.argmax(1) + 1, (X,)),
}  # fmt: skip


def _with(x, value):
    x = x.clone()
    x[:, 0] = value
    return x


@pytest.mark.parametrize("name", FINE)
def test_infinity_on_purpose_is_no_origin(name):
    model, args = FINE[name]
    assert intus.trace(model, *args).first_nan() is None
    assert intus.why_nan(model, *args) is None


@pytest.mark.parametrize(
    "model",
    [
        BertModel(
            BertConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, vocab_size=50)
        ).eval(),
        GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50)).eval(),
    ],
    ids=["bert", "gpt2"],
)
def test_transformer_with_attention_mask(model):
    batch = {"input_ids": torch.arange(8).view(2, 4), "attention_mask": torch.tensor([[1] * 4, [0, 1, 1, 1]])}
    assert intus.why_nan(model, batch) is None
    assert intus.why_nan(model, **batch) is None
    parameter = dict(model.named_parameters())
    name = next(name for name in parameter if re.search(r"1\.(output\.dense|mlp\.c_proj)\.weight", name))
    with torch.no_grad():
        parameter[name][0, 0] = float("nan")
    origin = intus.why_nan(model, batch)
    assert origin.op.module == name.removesuffix(".weight")
    assert [(one.name.removesuffix(".weight"), one.nan) for one in origin.inputs if one.nan] == [
        (name.removesuffix(".weight"), 1)
    ]


def test_input_that_already_has_nan():
    x = X.clone()
    x[2, 1] = float("nan")
    origin = intus.why_nan(nn.Linear(3, 2), x)
    assert (origin.op.label, origin.nan, origin.rows) == ("input_1", 1, (2,))
    assert str(origin).startswith("input_1 already has 1 NaN of 9 numbers, in rows 2.")


def test_text_and_ranges():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3, bias=False)
            nn.init.eye_(self.inner.weight)

        def forward(self, x):
            return torch.sqrt(self.inner(x))

    origin = intus.why_nan(Net(), X)
    assert str(origin).splitlines() == [
        "sqrt_1_2 made 1 NaN of 9 numbers, in rows 2.",
        f"  test_why_nan.py:{origin.op.source.line} in {Net.forward.__qualname__}: "
        "return torch.sqrt(self.inner(x))",
        "  from linear_1_1 (3×3): -1 to 4",
    ]
    assert repr(origin) == "<Origin: sqrt_1_2 made 1 NaN of 9 numbers>"


class Rooted(nn.Module):
    """The square root of 0 is 0, and its derivative is infinite."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        y = self.linear(x)
        return (y.abs().sqrt() * 2).cos().mean()


BACKWARD = {
    "sqrt at 0": (Rooted(), X, "sqrt_1_3", "abs_1_2"),
    "norm of 0": (lambda x: ((x * 0).pow(2).sum(1).sqrt() + 1).log().sum(), X, "sqrt_1_4", "sum_1_3"),
    "where over a bad branch": (
        lambda x: torch.where(x.detach() > 3.5, (x * 0 + 1e-30).pow(-3).sin(), x * 2).sum(), X, None, None
    ),
    "shared by two": (
        lambda x: ((y := x * 0).abs().sqrt() + y.cos()).sum(), X, "sqrt_1_3", "abs_1_2"
    ),
    "one of two consumers": (
        lambda x: ((y := (x * 0).abs()).sqrt() + y.cos()).sum(), X, "sqrt_1_3", "abs_1_2"
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")
@pytest.mark.parametrize("name", BACKWARD)
def test_backward_origin(name):
    model, x, label, tensor = BACKWARD[name]
    if label is None:  # here the forward pass has it
        assert intus.why_nan(model, x).direction == "forward"
        return
    origin = intus.why_nan(model, x.clone().requires_grad_())
    assert (origin.op.label, origin.direction, origin.tensor) == (label, "backward", tensor)
    assert origin.alternatives == ()
    assert "made" in str(origin)
    assert f"in the gradient of {tensor}" in str(origin)
    # Autograd's own detector sees NaN only: 0 * inf, one step after the infinity.
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan values"):
        model(x.clone().requires_grad_()).backward()


def test_gradient_of_a_parameter():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.power = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return (x.detach().abs() * 0).pow(self.power).sum() + self.power.abs().sqrt().sum()

    model = Scaled()
    origin = intus.why_nan(model, X)
    assert origin.direction == "backward"
    model(X).backward()
    assert not model.power.grad.isfinite().all()  # plain torch agrees that there is one


def test_model_and_gradients_are_unchanged():
    model = Rooted()
    model(X).backward()
    before = {name: (p.clone(), p.grad.clone()) for name, p in model.named_parameters()}
    x = torch.ones(3, 3, requires_grad=True)
    h = x * 2
    assert intus.why_nan(model, h).direction == "backward"
    for name, p in model.named_parameters():
        torch.testing.assert_close((p.detach(), p.grad), before[name], rtol=0, atol=0, equal_nan=True)
    h.sum().backward()  # the graph behind the input is intact
    assert x.grad.tolist() == [[2.0] * 3] * 3


def test_loss_and_raise():
    linear = nn.Linear(3, 1)
    assert intus.why_nan(linear, X) is None
    origin = intus.why_nan(linear, X, loss=lambda out: (out * 0).abs().sqrt().sum())
    assert origin.direction == "backward"
    assert str(origin).startswith("the gradient that the loss sent to output_1 has 3 NaN of 3 numbers")
    with pytest.raises(NonFiniteError, match="sqrt_1_2 made 1 NaN"):
        intus.why_nan(lambda x: (x * 1).sqrt(), X, on_nan="raise")
    with pytest.raises(InputError, match="on_nan='warn' is not one of 'return', 'raise'"):
        intus.why_nan(linear, X, on_nan="warn")
    with torch.no_grad():
        assert intus.why_nan(Rooted(), X) is None  # no backward pass


def test_infinity_that_disappears_comes_last():
    vanishing = lambda x: 1 / (1 + (x * 1000).exp())  # noqa: E731
    assert intus.why_nan(vanishing, X).op.type == "exp"
    both = intus.why_nan(lambda x: vanishing(x) + (x - 9).log(), X)
    assert both.op.type == "log"


def test_loaded_trace(tmp_path):
    t = intus.trace(normalize, X)
    t.save(tmp_path / "a.trace")
    assert str(intus.load(tmp_path / "a.trace").first_nan()) == str(t.first_nan())
    for fine in FINE.values():
        intus.trace(fine[0], *fine[1]).save(tmp_path / "a.trace")
        assert intus.load(tmp_path / "a.trace").first_nan() is None


def test_missing_values_are_refused():
    with pytest.raises(
        InputError, match="first_nan needs the value of every operation, and this trace lacks mean_1_1"
    ):
        intus.trace(normalize, X, save=["div"]).first_nan()
    with pytest.raises(InputError, match="cannot be searched for NaN: its values were kept with"):
        intus.trace(normalize, X, to=torch.float16).first_nan()


def test_pass_that_raised():
    def fails(x):
        y = x.log()
        return y @ torch.ones(7)

    t = intus.trace(fails, X, on_error="keep")
    assert t.first_nan().op.label == "log_1_1"


def test_gradients_are_restored():
    model, w = torch.nn.Linear(2, 1), torch.randn(3, 2, requires_grad=True)
    h = w * 2
    h.retain_grad()
    intus.why_nan(model, h)
    assert (h.grad, w.grad, model.weight.grad) == (None, None, None)


def test_input_that_forward_lets_require_a_gradient():
    x = torch.randn(3, 2)

    def field(x):
        return torch.autograd.grad(x.requires_grad_().log().sum(), x, create_graph=True)[0]

    assert intus.why_nan(field, x.abs() + 1) is None
    assert intus.why_nan(field, x * 0).op.type in ("log", "grad")
    assert not x.requires_grad


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant):
        super().__init__()
        self.linear, self.norm, self.reentrant = nn.Linear(3, 3), nn.BatchNorm1d(3), reentrant

    def forward(self, x):
        return checkpoint(lambda y: self.norm(self.linear(y)), x, use_reentrant=self.reentrant)


def test_checkpointing_leaves_statistics():
    model = Checkpointed(reentrant=False)
    before = {name: (t.clone(), t._version) for name, t in model.state_dict().items()}
    random_state = torch.get_rng_state()
    assert intus.why_nan(model, X) is None
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name][0])
        assert t._version == before[name][1]
    assert torch.equal(torch.get_rng_state(), random_state)
    rooted = intus.why_nan(model, X, loss=lambda out: (out * 0).abs().sqrt().sum())
    assert rooted.direction == "backward"


def test_reentrant_checkpointing_is_refused():
    x = X.clone().requires_grad_()
    with pytest.raises(CaptureError, match="use_reentrant=False"):
        intus.why_nan(Checkpointed(reentrant=True), x)
    assert intus.why_nan(Checkpointed(reentrant=True), x * torch.nan).direction == "forward"


def test_loss_that_is_not_finite():
    linear = nn.Linear(3, 1)
    origin = intus.why_nan(linear, X, loss=lambda out: (out.detach() * 0 + 1 - 1).log().sum())
    assert (origin.op.type, origin.direction) == ("log", "forward")
    assert intus.why_nan(linear, X, loss=lambda out: (out * 0).sum() / 0).op.type in ("div", "truediv")
    with pytest.raises(InputError, match="loss returned inf"):
        intus.why_nan(linear, X, loss=lambda out: torch.tensor(INF))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"loss": 3}, "loss=3 must be a function"),
        ({"loss": lambda out: None}, "loss must return a scalar tensor, got None"),
        ({"loss": lambda out: out}, r"loss must return a scalar tensor, got a tensor of shape \(3, 1\)"),
        ({"seed": "a"}, "seed must be an integer of at most 63 bits, or None, got 'a'"),
    ],
)
def test_options_that_are_refused(option, message):
    with pytest.raises(InputError, match=message):
        intus.why_nan(nn.Linear(3, 1), X, **option)


def test_model_that_raises_because_of_a_nan():
    def checked(x):
        y = (x - 3).log()
        if not y.isfinite().all():
            raise ValueError("loss is NaN")
        return y

    assert intus.why_nan(checked, X).op.type == "log"
    with pytest.raises(NonFiniteError) as caught:
        intus.why_nan(checked, X, on_nan="raise")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="for another reason"):
        intus.why_nan(raising, X)


def raising(x):
    raise ValueError("for another reason")
