"""Labels of positions in layers that have other positions than the inputs, or have them along another axis.

The labels are planted in the tokens, so that scikit-learn reads them from the activations that a hook of the
test's own has kept, wherever these are as many and in order.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from torch import nn
from torch.nn import functional as F

from intus.monitoring import flush, probe, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

T, N, WIDE = 8, 150, 16
RANDOM = torch.Generator().manual_seed(0)
LENGTHS = torch.randint(2, T + 1, (N,), generator=RANDOM)
LENGTHS[0] = T
REAL = torch.arange(T) < LENGTHS[:, None]
TOKENS = torch.randint(1, 7, (N, T), generator=RANDOM) * REAL
TAGS = torch.where(REAL, TOKENS % 3, -100)
SAID = [[tag if tag >= 0 else None for tag in row] for row in TAGS.tolist()]
ONE = [[None if (row, at) == (3, T - 1) else tag for at, tag in enumerate(tags)] for row, tags in
       enumerate((TOKENS % 3).tolist())]  # fmt: skip
FORMS = {
    "none": SAID,
    "ignored": TAGS,
    "one": ONE,
    "lists": [row[:length] for row, length in zip(SAID, LENGTHS.tolist(), strict=True)],
}

#: What layers do to the positions of their tokens.
CHANGES = {
    "nothing": lambda x: x,
    "token_in_front": lambda x: torch.cat([x[:, :1] * 0, x], 1),
    "prefix": lambda x: torch.cat([torch.zeros_like(x[:, :3]), x], 1),
    "token_behind": lambda x: torch.cat([x, x[:, :1] * 0], 1),
    "dropped": lambda x: x[:, 1:],
    "strided": lambda x: x[:, ::2],
    "doubled": lambda x: x.repeat_interleave(2, 1),
}
FITTING = {"", "embed", "encode.nothing"}


class Tagger(nn.Module):
    """Has an embedding, and for each change of the positions a layer behind it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(7, WIDE)
        self.encode = nn.ModuleDict({name: nn.Linear(WIDE, WIDE) for name in CHANGES})

    def forward(self, tokens):
        x = self.embed(tokens)
        return [self.encode[name](change(x)) for name, change in CHANGES.items()]


#: Modules of PyTorch whose tensors have the axes (rows, channels, positions).
OF_CHANNELS = {
    "conv": lambda: nn.Conv1d(T, T, 1),
    "transposed": lambda: nn.ConvTranspose1d(T, T, 1),
    "batch_norm": lambda: nn.BatchNorm1d(T),
    "instance_norm": lambda: nn.InstanceNorm1d(T),
    "group_norm": lambda: nn.GroupNorm(2, T),
    "max": lambda: nn.MaxPool1d(3, 1, 1),
    "mean": lambda: nn.AvgPool1d(1),
    "adaptive": lambda: nn.AdaptiveAvgPool1d(T),
    "upsample": lambda: nn.Upsample(T),
    "with_activation": lambda: nn.Sequential(nn.Conv1d(T, T, 1), nn.ReLU()),
    "alone": lambda: nn.Sequential(nn.Conv1d(T, T, 1)),
}


class Convolved(nn.Module):
    """Has modules with channels along axis 1 inside, as many as positions."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.out = nn.Embedding(7, T), nn.Linear(T, 12)
        self.inner = nn.ModuleDict({name: make() for name, make in OF_CHANNELS.items()})

    def forward(self, tokens):
        x = self.embed(tokens)
        mixed = sum(inner(x.transpose(1, 2)) for inner in self.inner.values())
        return self.out(mixed.transpose(1, 2))


def scores(database, watch, kind="output"):
    """Return (value, note) by target and layer, and the notices of targets that do not fit."""
    codes, found = ("target_partly", "target_misfit"), {}
    with Database(database) as opened:
        for row in opened.points(watch.run, watch.model, kind=kind, score="linear_f1"):
            found.setdefault(row["target"], {})[row["address"] or ""] = row["value"], row["note"] or ""
        told = [one for one in opened.notices() if one["run"] == watch.run and one["code"] in codes]
    return found, [one["text"] for one in told]


def read_by_scikit_learn(model):
    """Return the macro F1 on held-out rows of each layer with as many positions as tokens, in their order."""
    made, found = {}, {}
    hooks = [
        layer.register_forward_hook(lambda _, given, out, name=name: made.update({name: out}))
        for name, layer in model.named_modules()
    ]
    model(TOKENS)
    for hook in hooks:
        hook.remove()
    tags, kept, held = (TOKENS % 3).numpy(), REAL.numpy(), np.arange(N)[:, None] % 2 == 1
    made[""] = made[""][0]
    for name, out in made.items():
        x = out.detach().numpy()
        if x.shape[:2] == (N, T):
            fitted = LogisticRegression(max_iter=1000).fit(x[kept & ~held], tags[kept & ~held])
            found[name] = f1_score(tags[kept & held], fitted.predict(x[kept & held]), average="macro")
    return found


@pytest.mark.long
def test_probe_set_has_scores_where_positions_are_those_of_the_labels(tmp_path):
    model, watches = Tagger(), {}
    truth = read_by_scikit_learn(model)
    assert truth.keys() == FITTING
    assert min(truth.values()) > 0.95
    # layers send rows if the labels of one target do not fit statistics
    runs = {"rows": FORMS} | {name: {name: labels} for name, labels in FORMS.items()}
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        for run, labels in runs.items():
            chosen = {"probe_set": (TOKENS, labels), "statistics": run != "rows"}
            with probe(model, server.host, server.port, run=run, **chosen) as watches[run]:
                watches[run].run_probe_set()
        assert flush(server.host, server.port)
    for run, watch in watches.items():
        found, told = scores(tmp_path / "x.db", watch)
        for form in runs[run]:
            assert found[form].keys() == FITTING
            assert all(value > 0.95 and note == "" for value, note in found[form].values())
        assert told


@pytest.mark.long
def test_own_passes_in_batches_padded_to_their_longest_item(tmp_path):
    model = Tagger()
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        place = server.host, server.port
        with probe(model, *place, budget=np.inf) as watch:
            for name in ("none", "ignored", "lists"):
                assert register_targets(*place, name=name, targets=FORMS[name])
            for ids in torch.randperm(N, generator=torch.Generator().manual_seed(1)).split(10):
                watch.items = ids
                model(TOKENS[ids, : LENGTHS[ids].max()])
        assert flush(*place)
    found, _ = scores(tmp_path / "x.db", watch)
    for name in ("none", "ignored", "lists"):
        assert found[name].keys() == FITTING
        assert all(value > 0.95 and note == "" for value, note in found[name].values())


@pytest.mark.long
def test_batch_that_has_the_number_of_labels_by_itself_is_noted(tmp_path):
    """Take a batch of items of 7 tokens and one in front: 8 labels for 8 positions by chance."""
    short = torch.nonzero(LENGTHS < T).ravel()
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        place = server.host, server.port
        with probe(model := Tagger(), *place, budget=np.inf) as watch:
            assert register_targets(*place, name="none", targets=SAID)
            watch.items = short
            model(TOKENS[short, :7])
        assert flush(*place)
    found, told = scores(tmp_path / "x.db", watch)
    assert found["none"].keys() == {"encode.token_in_front", "encode.token_behind"}
    notes = [note for _, note in found["none"].values()]
    assert all(note.endswith("by their number alone: no label at the last of 8") for note in notes)
    assert "for 8 positions of every item, but ''" in told[0] or "but 'embed'" in told[0]


@pytest.mark.long
def test_modules_of_channels_have_no_scores_of_positions(tmp_path):
    model = Convolved()
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        place = server.host, server.port
        with probe(model, *place, kinds=["output", "input", "grad_output"], budget=np.inf) as watch:
            assert register_targets(*place, name="tag", targets=TAGS)
            watch.items = torch.arange(N)
            F.cross_entropy(model(TOKENS).reshape(-1, 12), TAGS.reshape(-1)).backward()
        assert flush(*place)
    found, told = scores(tmp_path / "x.db", watch)
    assert found["tag"].keys() == {"embed", "out", ""}
    assert found["tag"]["embed"][0] > 0.95
    assert found["tag"]["embed"][1] == "positions are assumed to be along axis 1: axis 2 is as long"
    assert found["tag"]["out"][1] == ""
    assert scores(tmp_path / "x.db", watch, "input")[0]["tag"].keys() == {"out"}
    assert scores(tmp_path / "x.db", watch, "grad_output")[0]["tag"].keys() == {"embed", "out", ""}
    assert "has channels along axis 1, and positions along axis 2" in told[0]


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [{"which": ["inner.alone", "inner.with_activation"]}, {"statistics": True}]
)
def test_sequence_has_the_axes_of_its_convolution(tmp_path, options):
    model, labelled = Convolved(), (TOKENS, {"tag": TAGS})
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        with probe(model, server.host, server.port, probe_set=labelled, **options) as watch:
            watch.run_probe_set()
        assert flush(server.host, server.port)
    found, told = scores(tmp_path / "x.db", watch)
    assert found.get("tag", {}).keys() == (set() if "which" in options else {"embed", "out", ""})
    assert "has channels along axis 1, and positions along axis 2" in told[0]
