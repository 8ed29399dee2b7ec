"""The test for recurrence, on models whose truth is known."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F
from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel, GPT2Config, GPT2Model

import intus

torch.manual_seed(0)


class Loop(nn.Module):
    def __init__(self, body, times=3):
        super().__init__()
        self.body, self.times = body, times

    def forward(self, x):
        for _ in range(self.times):
            x = self.body(x)
        return x


class Cell(nn.Module):
    """A recurrent network over the rows of x; ``cell`` is an nn.RNNCell, GRUCell or LSTMCell."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = None
        for row in x:
            state = self.cell(row[None], state)
        return state


class Unrolled(nn.Module):
    """Three steps written out; what is between them has no weights."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, x):
        h = torch.tanh(self.step(x))
        h = torch.tanh(self.step(h))
        return torch.tanh(self.step(h))


class CorBlock(nn.Module):
    """As in CORnet-S: one convolution in a loop, with a norm of its own for each step and a skip."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))

    def forward(self, x):
        for norm in self.norms:
            x = F.relu(norm(self.conv(x)) + x)
        return x


class Residual(nn.Module):
    """A block of ResNet with one activation for both places."""

    def __init__(self, act):
        super().__init__()
        self.one, self.two, self.act = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), act
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.act(self.two(self.act(self.norm(self.one(x)))) + x)


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)

    def forward(self, x):
        y = x.mean(3, keepdim=True).mean(2, keepdim=True)
        return x * torch.sigmoid(self.up(torch.relu(self.down(y))))


class Dense(nn.Module):
    """A dense block: every layer gets all features before it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4 * n, 4, 1) for n in range(1, 5))

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, torch.relu(layer(x))], 1)
        return x


class Sppf(nn.Module):
    """Spatial pyramid pooling of YOLO: one pooling layer at three places."""

    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(3, 1, 1)

    def forward(self, x):
        y = self.pool(x)
        z = self.pool(y)
        return torch.cat([x, y, z, self.pool(z)], 1)


class Ensemble(nn.Module):
    """Branches of their own weights, summed in a loop."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        values = [branch(x) for branch in self.branches]
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total + sum(values)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x):
        return (self.tower(x) - self.tower(x.flip(0))).abs()


class Masked(nn.Module):
    """Fills a mask part by part, as Swin does."""

    def forward(self, x):
        mask = torch.zeros_like(x)
        for n in range(3):
            mask[n] = n
        return x * mask


class SharedPosition(nn.Module):
    """Blocks of their own weights that share one convolution, as in CoaT."""

    def __init__(self):
        super().__init__()
        self.position = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(Around(self.position) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Around(nn.Module):
    def __init__(self, position):
        super().__init__()
        self.position, self.own = position, nn.Linear(4, 4)

    def forward(self, x):
        x = x + self.position(x)
        return x + self.own(x)


def leaky(x):
    h = torch.zeros(4)
    for row in x:
        h = 0.9 * h + row
    return h


PRELU = nn.PReLU()


def joined(x):
    mask = x > 0
    for threshold in (1.0, 2.0, 3.0):
        mask = mask.to("cpu").view(-1) & (x < threshold).view(-1)
    return x * mask.view_as(x)


ROWS, IMAGE, TOKENS = torch.randn(5, 4), torch.randn(2, 4, 6, 6), torch.arange(7)[None]
SMALL = {"num_hidden_layers": 3, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}

RECURRENT = {
    "RNNCell": (Cell(nn.RNNCell(4, 4)), ROWS),
    "GRUCell": (Cell(nn.GRUCell(4, 4)), ROWS),
    "LSTMCell": (Cell(nn.LSTMCell(4, 4)), ROWS),
    "LSTM": (nn.LSTM(4, 4), ROWS),
    "GRU": (nn.GRU(4, 4, bidirectional=True), ROWS),
    "RNN": (nn.RNN(4, 4), ROWS),
    "linear in a loop": (Loop(nn.Linear(4, 4)), ROWS),
    "activation in a loop": (Loop(nn.Tanh()), ROWS),
    "function in a loop": (Loop(torch.cos), ROWS),
    "block in a loop": (Loop(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))), ROWS),
    "written out": (Unrolled(), ROWS),
    "CORnet": (CorBlock(), IMAGE),
    "leaky integration": (leaky, ROWS),
    "ALBERT": (AlbertModel(AlbertConfig(**SMALL, embedding_size=8, vocab_size=50)).eval(), TOKENS),
}
FEEDFORWARD = {
    "a+b+c+d": (lambda x: x.sin() + x.cos() + x.tanh() + x, ROWS),
    "ResNet": (nn.Sequential(Residual(nn.ReLU()), Residual(nn.ReLU())), IMAGE),
    "ResNet with one PReLU": (nn.Sequential(Residual(PRELU), Residual(PRELU)), IMAGE),
    "squeeze and excitation": (nn.Sequential(SqueezeExcite(), SqueezeExcite()), IMAGE),
    "DenseNet": (Dense(), IMAGE),
    "SPPF": (Sppf(), IMAGE),
    "sum of branches": (Ensemble(), ROWS),
    "siamese": (Siamese(), ROWS),
    "mask filled in a loop": (Masked(), ROWS),
    "conditions joined in a loop": (joined, ROWS),
    "shared between blocks": (SharedPosition(), ROWS),
    "activations in a row": (nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU()), ROWS),
    "activation function thrice": (lambda x: F.relu(F.relu(F.relu(x))), ROWS),
    "BERT": (BertModel(BertConfig(**SMALL, vocab_size=50)).eval(), TOKENS),
    "GPT-2": (GPT2Model(GPT2Config(n_layer=3, n_embd=16, n_head=2, vocab_size=50)).eval(), TOKENS),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent(name, tmp_path):
    t = intus.trace(*RECURRENT[name])
    assert t.is_recurrent
    t.save(tmp_path / "a.trace")
    assert intus.load(tmp_path / "a.trace").is_recurrent


@pytest.mark.parametrize("name", FEEDFORWARD)
def test_feedforward(name):
    assert not intus.trace(*FEEDFORWARD[name]).is_recurrent


#: Functions that only move numbers.
MOVING = {
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "clone": torch.clone,
    "transpose": lambda x: x.transpose(0, 1),
    "rot90": torch.rot90,
    "triu": torch.triu,
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0]), 2.0),
    "take_along_dim": lambda x: torch.take_along_dim(x, torch.zeros(4, 4, dtype=torch.long), 0),
}


@pytest.mark.parametrize("name", MOVING)
def test_loop_that_only_moves_numbers_is_not_recurrent(name):
    def loop(x, step):
        for _ in range(3):
            x = step(x)
        return x

    x = torch.randn(4, 4)
    assert not intus.trace(lambda x: loop(x, MOVING[name]), x).is_recurrent
    assert intus.trace(lambda x: loop(x, lambda y: MOVING[name](y).cos()), x).is_recurrent


def test_letter_of_the_rule_is_has_repeated_layers():
    repeated = {name for name, (model, x) in FEEDFORWARD.items() if intus.trace(model, x).has_repeated_layers}
    assert {"a+b+c+d", "SPPF", "sum of branches", "siamese", "shared between blocks"} <= repeated
    assert not {"ResNet", "DenseNet", "BERT"} & repeated
    t = intus.trace(*RECURRENT["LSTM"])
    assert (t.has_repeated_layers, t.max_passes) == (False, 1)  # one operation


def test_generation_is_recurrent():
    model = GPT2Model(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50)).eval()

    def generate(ids):
        for _ in range(3):
            logits = model(ids).last_hidden_state @ model.wte.weight.T
            ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], 1)
        return ids

    assert intus.trace(generate, TOKENS).is_recurrent


class While(nn.Module):
    def forward(self, x):
        return while_loop(lambda at, _: at < 3, lambda at, state: (at + 1, state * 2), (torch.tensor(0), x))[
            1
        ]


class Scripted(nn.Module):
    def forward(self, x):
        h = x[0]
        for at in range(x.shape[0]):
            h = torch.tanh(h + x[at])
        return h


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "make", [While, lambda: torch.jit.script(Scripted())], ids=["while_loop", "TorchScript"]
)
def test_operation_that_is_a_loop_is_recurrent(make):
    assert intus.trace(make(), torch.randn(5, 3)).is_recurrent
