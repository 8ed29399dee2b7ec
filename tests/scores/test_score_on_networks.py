"""The default probe on layers of networks in training, compared with scikit-learn's logistic regression.

Two small networks are trained: a convolutional one on digits, and a masked language model on sentences of a
grammar whose words are ambiguous. Test data of the probe are the same rows that scikit-learn's are.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from score_help import fed, read
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.preprocessing import StandardScaler
from torch import nn

from intus.scores.statistics.split import places

pytestmark = pytest.mark.slow
SEEDS = (0, 1, 2, 3)


def theirs(x, y, items, seed):
    """Return macro F1 of scikit-learn's logistic regression on the held-out rows of a split."""
    held = places(items, seed).held
    scaler = StandardScaler().fit(x[~held])
    model = LogisticRegression(max_iter=3000).fit(scaler.transform(x[~held]), y[~held])
    return f1_score(y[held], model.predict(scaler.transform(x[held])), average="macro")


def ours(x, y, items, seed):
    return read(fed("linear_f1", x, {"y": y}, items, seed=seed), "linear_f1", "y").value


def layer_outputs(model, x, names):
    """Return the rows of layers (rows, features), in evaluation mode."""
    found = {}
    hooks = [
        model.get_submodule(name).register_forward_hook(
            lambda _m, _i, out, name=name: found.update({name: out})
        )
        for name in names
    ]
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()
    for hook in hooks:
        hook.remove()
    return {name: found[name].detach().numpy() for name in names}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads(), torch.backends.mha.get_fastpath_enabled()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.set_num_threads(before[0])
    torch.backends.mha.set_fastpath_enabled(before[1])


@pytest.fixture
def digit_layers(digits):
    """Yield the outputs of four layers in each of five epochs of a network on digits, (records, features)."""
    x, y = torch.tensor(digits[0].reshape(-1, 1, 8, 8) / 16), torch.tensor(digits[1])
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters(), 5e-4)
    found = []
    for _ in range(5):
        outputs = layer_outputs(model, x, ["0", "2", "5", "7"])
        found += [rows.reshape(len(rows), -1) for rows in outputs.values()]
        for block in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[block]), y[block]).backward()
            optimizer.step()
    return found


def test_order_of_digit_layers_is_as_sklearns(digits, digit_layers):
    """The probe orders layers and epochs as well as scikit-learn's on another split does."""
    y, items = digits[1], np.arange(len(digits[1]))
    mine = np.array([[ours(x, y, items, seed) for x in digit_layers] for seed in SEEDS])
    other = np.array([[theirs(x, y, items, seed) for x in digit_layers] for seed in SEEDS])
    ceiling = np.mean([spearmanr(a, b)[0] for a, b in combinations(other, 2)])
    agreement = np.mean([spearmanr(a, b)[0] for a, b in zip(mine, other, strict=True)])
    print(
        f"Spearman with LR {agreement:.3f}, LR on two splits {ceiling:.3f}, gap {np.mean(mine - other):+.4f}"
    )
    assert other.max() - other.min() > 0.03
    assert agreement >= 0.9
    assert agreement >= ceiling - 0.03
    assert abs(np.mean(mine - other)) < 0.01


WORDS = {
    "determiner": range(5, 10),
    "adjective": range(10, 60),
    "noun": range(40, 160),
    "verb": range(120, 220),
    "adverb": range(220, 250),
    "preposition": range(250, 256),
}
LENGTH, SENTENCES = 24, 300


def sentences(rng):
    """Return words (sentences, LENGTH) of a grammar and their parts of speech; classes share many words."""
    words, parts, kinds = [], [], list(WORDS)
    for _ in range(SENTENCES):
        line = []
        while len(line) < LENGTH:
            line += ["determiner"] + ["adjective"] * (rng.random() < 0.4) + ["noun", "verb"]
            line += ["adverb"] * (rng.random() < 0.15) + ["preposition"] * (rng.random() < 0.08)
            line += ["determiner", "noun"]
        words.append([rng.choice(list(WORDS[kind])) for kind in line[:LENGTH]])
        parts.append([kinds.index(kind) for kind in line[:LENGTH]])
    return torch.tensor(np.array(words)), np.array(parts).ravel()


class MaskedWords(nn.Module):
    """A small masked language model."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(300, 64), nn.Parameter(0.02 * torch.randn(LENGTH, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.out = nn.Linear(64, 300)

    def forward(self, x):
        return self.out(self.encoder(self.embed(x) + self.place))


def test_ambiguous_words_of_a_masked_language_model_are_as_sklearns():
    words, parts = sentences(np.random.default_rng(0))
    items = np.repeat(np.arange(SENTENCES), LENGTH)
    torch.manual_seed(0)
    model = MaskedWords()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    names = ["embed", "encoder.layers.0", "encoder.layers.1", "encoder.layers.3", "encoder.layers.2.linear1"]
    mine, other = [], []
    for _ in range(3):
        for output in layer_outputs(model, words, names).values():
            x = output.reshape(-1, output.shape[-1])
            mine.append(ours(x, parts, items, 0))
            other.append(theirs(x, parts, items, 0))
        for block in torch.randperm(SENTENCES).split(32):
            for _ in range(2):
                hidden = torch.rand(len(block), LENGTH) < 0.2
                optimizer.zero_grad()
                guess = model(words[block].masked_fill(hidden, 0))[hidden]
                nn.functional.cross_entropy(guess, words[block][hidden]).backward()
                optimizer.step()
    gap = np.array(mine) - other
    order = spearmanr(mine, other)[0]
    print(f"gap to LR: mean {gap.mean():+.4f}, worst {gap.min():+.4f}; Spearman {order:.3f}")
    assert max(other) < 0.95  # the words are ambiguous, so that there is something to lose
    assert gap.mean() >= -0.02
    assert gap.min() >= -0.06
    assert order >= 0.85
