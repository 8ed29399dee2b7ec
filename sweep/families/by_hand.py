"""Handwritten models: torch's recurrent layers, unusual models of the literature, models of the tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..architecture import Architecture

_TESTS = Path(__file__).parents[2] / "tests" / "tracing"
_OURS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}


def architectures() -> Iterator[Architecture]:
    """Yield the models of this file, then those of the tests."""
    for name, (make, given) in _OURS.items():
        yield Architecture("by hand", name, partial(_both, make, given))
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
    from zoo_models import ZOO

    for name, (make, given) in ZOO.items():
        yield Architecture("by hand", f"zoo: {name}", partial(_both, make, given))


def _both(make: Callable[[], Any], given: Callable[[], Any]) -> tuple[Any, Any]:
    return make(), given()


def _model(name: str, *shape: int, given: Callable[[], Any] | None = None) -> Callable[[Any], Any]:
    """Add the decorated function or class to the catalogue, with an input of a shape or from ``given``."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        _OURS[name] = make, given or (lambda: torch.randn(shape))
        return make

    return register


# -- recurrent --------------------------------------------------------------------------------------------

_model("RNN", 2, 5, 4)(lambda: nn.RNN(4, 6, batch_first=True))
_model("RNN, ReLU, two layers", 2, 5, 4)(lambda: nn.RNN(4, 6, 2, nonlinearity="relu", batch_first=True))
_model("GRU", 2, 5, 4)(lambda: nn.GRU(4, 6, batch_first=True))
_model("GRU, bidirectional, two layers", 2, 5, 4)(
    lambda: nn.GRU(4, 6, 2, batch_first=True, bidirectional=True)
)
_model("LSTM, bidirectional", 2, 5, 4)(lambda: nn.LSTM(4, 6, batch_first=True, bidirectional=True))
_model("LSTM with projection", 2, 5, 4)(lambda: nn.LSTM(4, 6, proj_size=3, batch_first=True))


@_model("LSTM on packed sequences", 3, 5, 4)
class Packed(nn.Module):
    """An LSTM on sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


@_model("GRUCell in a loop", 2, 6, 4)
class Cell(nn.Module):
    """A cell called step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(2, 6)
        return torch.stack([h := self.cell(step, h) for step in x.unbind(1)], 1)


@_model("encoder and decoder with attention", 2, 6, 4)
class SequenceToSequence(nn.Module):
    """Bahdanau's attention (2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.GRU(4, 6, batch_first=True), nn.GRUCell(6, 6)
        self.query, self.score = nn.Linear(12, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        states, last = self.encoder(x)
        h, out = last[0], []
        for _ in range(4):
            pairs = torch.cat([states, h[:, None].expand_as(states)], -1)
            weight = self.score(torch.tanh(self.query(pairs))).softmax(1)
            h = self.decoder((weight * states).sum(1), h)
            out.append(h)
        return torch.stack(out, 1)


@_model("echo state network", 2, 8, 3)
class EchoState(nn.Module):
    """A fixed random reservoir kept in a buffer that is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inner", torch.randn(10, 10) * 0.1)
        self.register_buffer("state", torch.zeros(10))
        self.into, self.out = nn.Linear(3, 10), nn.Linear(10, 2)

    def forward(self, x: Tensor) -> Tensor:
        for step in x.mean(0):
            self.state.mul_(0.5).add_(torch.tanh(self.into(step) + self.inner @ self.state).detach())
        return self.out(self.state)


@_model("adaptive computation time", 4, 5)
class Adaptive(nn.Module):
    """Adaptive computation time (Graves, 2016): steps until every row has halted."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.halt = nn.GRUCell(5, 5), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        h, done, out = torch.zeros_like(x), torch.zeros(len(x), 1), torch.zeros_like(x)
        for _ in range(8):
            h = self.step(x, h)
            p = torch.sigmoid(self.halt(h)) * (1 - done)
            out, done = out + p * h, done + p
            if bool((done > 0.9).all()):
                break
        return out


@_model("tree LSTM", given=lambda: ([torch.randn(1, 4) for _ in range(5)],))
class Tree(nn.Module):
    """Recursion over a tree of leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.join = nn.Linear(8, 4)

    def forward(self, leaves: list[Tensor]) -> Tensor:
        if len(leaves) == 1:
            return leaves[0]
        middle = len(leaves) // 2
        return torch.tanh(self.join(torch.cat([self(leaves[:middle]), self(leaves[middle:])], 1)))


# -- convolutional ----------------------------------------------------------------------------------------


@_model("WaveNet", 1, 1, 32)
class WaveNet(nn.Module):
    """Gated dilated convolutions with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 4, 1)
        self.layers = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=2**n) for n in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x, skip = self.first(x), 0
        for n, layer in enumerate(self.layers):
            a, b = layer(F.pad(x, (2**n, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            x, skip = x + y, skip + y
        return skip


@_model("U-Net", 1, 1, 16, 16)
class UNet(nn.Module):
    """Downsampling, upsampling and skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(1, 4, 3, 1, 1), nn.Conv2d(4, 8, 3, 1, 1), nn.Conv2d(12, 4, 3, 1, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.a(x), inplace=True)
        return self.c(torch.cat([a, self.up(F.relu(self.b(F.max_pool2d(a, 2))))], 1))


@_model("squeeze and excitation", 2, 4, 8, 8)
class Squeeze(nn.Module):
    """Channels weighted by their content (squeeze and excitation)."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))[..., None, None]


@_model("capsules", 2, 4, 8)
class Capsules(nn.Module):
    """Routing by agreement (Sabour, 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 8, 6) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        votes = torch.einsum("bid,ijde->bije", x, self.weight)
        logits = votes.new_zeros(votes.shape[:3])
        for _ in range(3):
            s = (logits.softmax(2)[..., None] * votes).sum(1)
            v = s * s.norm(dim=-1, keepdim=True) / (1 + s.square().sum(-1, keepdim=True))
            logits = logits + (votes * v[:, None]).sum(-1)
        return v


# -- CORnet: models of the ventral visual stream (Kubilius et al., 2018, 2019), an eighth as wide ------------

_AREAS = (3, 8, 16, 32, 64)  # the image, V1, V2, V4 and IT


class Decoder(nn.Sequential):
    """The behavioral read-out of every CORnet: an average over places, then a linear layer."""

    def __init__(self) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_AREAS[-1], 10))


@_model("CORnet-Z", 1, 3, 64, 64)
def _cornet_z() -> nn.Module:
    """Each area is a convolution, a rectifier and a maximum over neighbors."""
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(_AREAS)):
        kernel, stride = (3, 1) if number else (7, 2)
        layers += [nn.Conv2d(before, after, kernel, stride, kernel // 2), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*layers, Decoder())


class RecurrentArea(nn.Module):
    """A cortical area of CORnet-R and CORnet-RT, which adds its last output to what comes from below."""

    def __init__(self, before: int, after: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.below = nn.Conv2d(before, after, kernel, stride, kernel // 2)
        self.own = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_below, self.norm_own = nn.GroupNorm(4, after), nn.GroupNorm(4, after)

    def forward(self, x: Tensor, state: Tensor | None) -> Tensor:
        h = F.relu(self.norm_below(self.below(x)))
        return F.relu(self.norm_own(self.own(h if state is None else h + state)))


class RecurrentCortex(nn.Module):
    """Four recurrent areas for five steps of time.

    In biological time a signal rises by one area per step (CORnet-RT). Otherwise it passes all areas in one
    step (CORnet-R).
    """

    def __init__(self, *, is_biological: bool) -> None:
        super().__init__()
        sizes = ((7, 4), (3, 2), (3, 2), (3, 2))
        self.areas = nn.ModuleList(
            RecurrentArea(*ends, *size) for ends, size in zip(pairwise(_AREAS), sizes, strict=True)
        )
        self.decoder, self.is_biological = Decoder(), is_biological

    def forward(self, image: Tensor) -> Tensor:
        states: list[Tensor | None] = [None] * len(self.areas)
        for _ in range(5):
            earlier = [image, *states] if self.is_biological else []
            for number, area in enumerate(self.areas):
                below = earlier[number] if earlier else ([image, *states])[number]
                if below is not None:
                    states[number] = area(below, states[number])
        return self.decoder(states[-1])


_model("CORnet-RT", 1, 3, 64, 64)(lambda: RecurrentCortex(is_biological=True))
_model("CORnet-R", 1, 3, 64, 64)(lambda: RecurrentCortex(is_biological=False))


class BottleneckArea(nn.Module):
    """An area of CORnet-S: a bottleneck that runs several times, with norms of its own for every time."""

    def __init__(self, before: int, after: int, times: int) -> None:
        super().__init__()
        self.times, wide = times, 4 * after
        self.below = nn.Conv2d(before, after, 1, bias=False)
        self.skip, self.norm_skip = nn.Conv2d(after, after, 1, 2, bias=False), nn.BatchNorm2d(after)
        self.widen = nn.Conv2d(after, wide, 1, bias=False)
        self.mix_half = nn.Conv2d(wide, wide, 3, 2, 1, bias=False)  # the first time halves the resolution
        self.narrow = nn.Conv2d(wide, after, 1, bias=False)
        self.norms = nn.ModuleList(
            nn.ModuleList(nn.BatchNorm2d(size) for size in (wide, wide, after)) for _ in range(times)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.below(x)
        for time, (first, second, third) in enumerate(self.norms):
            skip = x if time else self.norm_skip(self.skip(x))
            h = F.relu(first(self.widen(x)), inplace=True)
            h = F.conv2d(h, self.mix_half.weight, stride=1 if time else 2, padding=1)
            h = third(self.narrow(F.relu(second(h), inplace=True)))
            x = F.relu(h.add_(skip), inplace=True)
        return x


@_model("CORnet-S", 1, 3, 64, 64)
def _cornet_s() -> nn.Module:
    """V1 without recurrence; V2, V4 and IT run 2, 4 and 2 times."""
    first = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)]
    first += [nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)]
    areas = [
        BottleneckArea(*ends, times) for ends, times in zip(pairwise(_AREAS[1:]), (2, 4, 2), strict=True)
    ]
    return nn.Sequential(*first, nn.ReLU(inplace=True), *areas, Decoder())


# -- attention and mixtures -------------------------------------------------------------------------------

_model("nn.Transformer", given=lambda: (torch.randn(2, 5, 8), torch.randn(2, 3, 8)))(
    lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
)
_model("TransformerEncoder with a padding mask", given=lambda: {
    "src": torch.randn(2, 5, 8), "src_key_padding_mask": torch.arange(5)[None] >= torch.tensor([[5], [3]])
})(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2))  # fmt: skip


@_model("mixture of experts", 6, 4)
class Mixture(nn.Module):
    """Each row is sent to the two experts with the highest scores."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            if len(rows):
                out.index_add_(0, rows, expert(x[rows]) * weight[rows, place, None])
        return out


@_model("linear attention", 1, 6, 8)
class LinearAttention(nn.Module):
    """Linear attention (Katharopoulos, 2020) with a running sum."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = (k[..., None] * v[..., None, :]).cumsum(1)
        return (q[..., None] * state).sum(-2) / (q * k.cumsum(1)).sum(-1, keepdim=True)


@_model("MLP-Mixer", 1, 6, 8)
class Mixer(nn.Module):
    """Mixing across positions, then across channels."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.channels = nn.Linear(6, 6), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = x + F.gelu(self.places(x.mT)).mT
        return x + F.gelu(self.channels(x))


@_model("memory network", given=lambda: (torch.randint(0, 20, (2, 5, 4)), torch.randint(0, 20, (2, 4))))
class Memory(nn.Module):
    """An end-to-end memory network (Sukhbaatar, 2015) with three hops over sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = nn.EmbeddingBag(20, 6, mode="sum"), nn.Embedding(20, 6, padding_idx=0)

    def forward(self, story: Tensor, question: Tensor) -> Tensor:
        u = self.c(question).sum(1)
        memory = self.a(story.reshape(-1, 4)).reshape(2, 5, 6)
        for _ in range(3):
            p = (memory @ u[..., None]).softmax(1)
            u = u + (p * self.c(story).sum(2)).sum(1)
        return u @ self.c.weight.T


# -- graphs and sets --------------------------------------------------------------------------------------


@_model("graph convolution by hand", given=lambda: (torch.randn(6, 4), torch.randint(0, 6, (2, 14))))
class GraphConvolution(nn.Module):
    """Messages aggregated with scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = torch.zeros(len(x)).scatter_add_(0, target, torch.ones(len(target))).clamp_(min=1)
        for layer in (self.one, self.two):
            h = layer(x)
            x = torch.zeros_like(h).index_add(0, target, h[source]) / degree[:, None]
        return x.log_softmax(-1)


@_model("PointNet", 2, 16, 3)
class PointNet(nn.Module):
    """A learned rotation of points, then the maximum over all points."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.point, self.head = nn.Linear(3, 9), nn.Linear(3, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        turn = self.turn(x).amax(1).view(-1, 3, 3) + torch.eye(3)
        return self.head(F.relu(self.point(torch.bmm(x, turn))).max(1).values)


# -- probabilistic and implicit ---------------------------------------------------------------------------


@_model("variational autoencoder", 3, 8)
class Variational(nn.Module):
    """An autoencoder with random noise in the latent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 4), nn.Linear(2, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log = self.encode(x).chunk(2, -1)
        z = torch.distributions.Normal(mean, (0.5 * log).exp()).rsample()
        return torch.sigmoid(self.decode(z)), -0.5 * (1 + log - mean**2 - log.exp()).sum()


@_model("vector quantisation, straight through", 3, 8)
class Quantised(nn.Module):
    """The nearest entry of a codebook, with a straight-through gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.codes = nn.Linear(8, 4), nn.Embedding(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.encode(x)
        nearest = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        return z + (nearest - z).detach()


@_model("normalizing flow", 3, 4)
class Flow(nn.Module):
    """Affine couplings (Dinh, 2017), written through views."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Linear(2, 4) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, total = x.clone(), x.new_zeros(len(x))
        for net in self.nets:
            scale, shift = net(x[:, :2]).chunk(2, 1)
            x[:, 2:] = x[:, 2:] * torch.tanh(scale).exp() + shift
            total += torch.tanh(scale).sum(1)
            x = x.roll(2, 1)
        return x, total


@_model("neural ordinary differential equation", 2, 4)
class NeuralOde(nn.Module):
    """Eight steps of the Runge-Kutta method."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(8):
            a = self.f(x)
            b = self.f(x + a / 16)
            c = self.f(x + b / 16)
            x = x + (a + 2 * b + 2 * c + self.f(x + c / 8)) / 48
        return x


@_model("deep equilibrium", 2, 4)
class Equilibrium(nn.Module):
    """Steps until a fixed point, then one step with a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.into = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        nn.init.normal_(self.inner.weight, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(50):
                z, old = torch.tanh(self.inner(z) + self.into(x)), z
                if (z - old).norm() < 1e-4:
                    break
        return torch.tanh(self.inner(z) + self.into(x))


@_model("modern Hopfield network", 2, 6)
class Hopfield(nn.Module):
    """Retrieval by softmax, repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("patterns", torch.randn(5, 6).sign())

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = (x @ self.patterns.T * 2).softmax(-1) @ self.patterns
        return x


@_model("spiking neurons", 2, 6, 4)
class Spiking(nn.Module):
    """Leaky integrate-and-fire neurons that are reset through a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        v, spikes = torch.zeros(2, 8), []
        for step in x.unbind(1):
            v = v * 0.9 + self.into(step)
            fired = v > 0.3
            v = v.masked_fill(fired, 0.0)
            spikes.append(fired.float())
        return self.out(torch.stack(spikes).mean(0))


# -- generated, shared and pruned weights -----------------------------------------------------------------


@_model("hypernetwork", 3, 4)
class Hyper(nn.Module):
    """One layer computes the weights of another, applied with functional_call."""

    def __init__(self) -> None:
        super().__init__()
        self.make, self.layer = nn.Linear(4, 20), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        made = self.make(x.mean(0))
        return torch.func.functional_call(
            self.layer, {"weight": made[:16].view(4, 4), "bias": made[16:]}, (x,)
        )


_model("spectral norm", 2, 4)(
    lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Tanh())
)
_model("weight norm", 2, 4)(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
_model("orthogonal weights", 2, 4)(lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)))


@_model("pruned", 2, 4)
def _pruned() -> nn.Module:
    from torch.nn.utils import prune

    return prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)  # type: ignore[no-any-return]


@_model("autoencoder with tied weights", 2, 6)
class Tied(nn.Module):
    """The decoder is the encoder's transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.sigmoid(self.encode(x)), self.encode.weight.t())


@_model("lazy layers", 2, 3, 8, 8)
def _lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5))


@_model("stochastic depth and dropout, in training", 4, 6)
class Stochastic(nn.Module):
    """Always in training mode: dropout, batch statistics, random branches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        self.norm.train()
        for layer in self.layers:
            if torch.rand(()) < 0.7:
                x = x + F.dropout(F.relu(layer(x)), 0.3, training=True)
        return self.norm(x)


@_model("Kolmogorov-Arnold network", 3, 4)
class KolmogorovArnold(nn.Module):
    """A learned piecewise linear function on every edge."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.linspace(-1, 1, 7))
        self.weight = nn.Parameter(torch.randn(2, 4, 7))

    def forward(self, x: Tensor) -> Tensor:
        basis = F.relu(1 - (torch.tanh(x)[..., None] - self.grid).abs() * 3)
        return torch.einsum("bik,oik->bo", basis, self.weight)


@_model("Fourier neural operator", 1, 2, 16)
class FourierOperator(nn.Module):
    """Complex weights on the lowest frequencies (Li, 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2, 5, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        low = torch.fft.rfft(x)
        out = torch.zeros_like(low)
        out[..., :5] = torch.einsum("bik,iok->bok", low[..., :5], self.weight)
        return torch.fft.irfft(out, n=x.shape[-1]) + x


@_model("neural Turing machine", 1, 4, 3)
class Turing(nn.Module):
    """A memory read and written by content (Graves, 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.control, self.key, self.write = nn.GRUCell(7, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        memory, read, h = torch.full((6, 4), 0.1), torch.zeros(1, 4), torch.zeros(1, 8)
        for step in x.unbind(1):
            h = self.control(torch.cat([step, read], 1), h)
            weight = F.cosine_similarity(memory, self.key(h), dim=1).softmax(0)[:, None]
            memory = memory * (1 - weight) + weight * torch.tanh(self.write(h))
            read = (weight * memory).sum(0, keepdim=True)
        return read


@_model("differentiable sort and top-k", 3, 6)
def _sorting() -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        values, order = x.sort(-1, descending=True)
        return torch.gather(x.cumsum(-1), 1, order)[:, :3] + values.topk(3).values

    return forward


@_model("a gradient step inside", 4, 3)
class Meta(nn.Module):
    """Model-agnostic meta-learning: one step of descent, then the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = dict(self.net.named_parameters())
        with torch.enable_grad():
            loss = torch.func.functional_call(self.net, weights, (x,)).square().mean()
            steps = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        fast = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), steps, strict=True)}
        return torch.func.functional_call(self.net, fast, (x,))
