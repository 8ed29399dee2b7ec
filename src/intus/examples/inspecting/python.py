"""Inspect a character model of Python's standard library: what do its units know of strings and brackets?

An LSTM learns to predict the next character. The embedding before it sees one character only, so what it
knows of an idea can be read off the surface; what the LSTM knows beyond that it has learned. The ideas come
from Python's own tokenizer, the files are ones that it was not trained on.

Run:  intus examples python
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import torch
import torch.nn.functional as F
from torch import nn

from intus import inspect
from intus.examples.python_source import CHARACTERS, token_kinds

from . import pictures
from .training import trained

EPOCHS = 8
STEPS = 100  # of an epoch
WINDOW, START = 240, 32  # characters of a record; those that have no label, since the LSTM has seen too few
FILES = (
    "ast",
    "calendar",
    "csv",
    "difflib",
    "textwrap",
    "shlex",
    "queue",
    "heapq",
    "bisect",
    "configparser",
    "copy",
    "fractions",
    "gettext",
    "glob",
    "inspect",
    "json/decoder",
    "pprint",
    "random",
    "sched",
    "statistics",
    "string",
    "tempfile",
    "timeit",
    "trace",
)


def ask(
    model: nn.Module, records: np.ndarray, ideas: dict[str, np.ndarray], files: np.ndarray
) -> pandas.DataFrame:
    """Score every unit and both layers against every idea; files are held out whole."""
    scores = ["correlation", "linear_f1", "r2"]
    return inspect(model, ideas, scores, records, ["embed", "lstm"], groups=files)


class Reader(nn.Module):
    """A character model: an embedding, an LSTM, and the next character."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(CHARACTERS), 32)
        self.lstm = nn.LSTM(32, width, batch_first=True)
        self.next = nn.Linear(width, len(CHARACTERS))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, t, characters) of the next character for codes (n, t)."""
        return self.next(self.lstm(self.embed(codes))[0])


def new_reader() -> Reader:
    """Return the untrained model."""
    torch.manual_seed(0)
    return Reader()


def encode(source: str) -> np.ndarray:
    """Return the codes of the characters; unknown ones become spaces."""
    known = {character: number for number, character in enumerate(CHARACTERS)}
    return np.array([known.get(character, 0) for character in source])


def read(name: str) -> str:
    """Return a file of the standard library."""
    return (Path(re.__file__).parents[1] / f"{name}.py").read_text("ascii", errors="ignore").expandtabs(4)


def label(source: str) -> dict[str, np.ndarray]:
    """Return the ideas: a label for each character."""
    kinds = np.array(token_kinds(source))
    brackets = [
        (c in "([{") - int(c in ")]}") if k == "op" else 0 for c, k in zip(source, kinds, strict=True)
    ]
    selves = np.zeros(len(source), bool)
    for match in re.finditer(r"\bself\b", source):
        selves[match.start() : match.end()] = True
    ideas = {name: kinds == name for name in ("string", "comment", "keyword")}
    return ideas | {"self": selves & (kinds == "name"), "bracket depth": np.cumsum(brackets)}


def records() -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Return windows of files that the model is not trained on, their labels and the number of their file."""
    codes, ideas, files = [], [], []
    for number, name in enumerate(FILES):
        source = read(name)
        labels, code = label(source), encode(source)
        for start in range(0, min(len(source) - WINDOW, 24 * WINDOW), WINDOW):
            codes.append(code[start : start + WINDOW])
            ideas.append({name: of[start : start + WINDOW].astype(float) for name, of in labels.items()})
            files.append(number)
    together = {name: np.array([of[name] for of in ideas]) for name in ideas[0]}
    for of in together.values():
        of[:, :START] = np.nan
    return np.array(codes), together, np.array(files)


def learn(model: nn.Module, epochs: int) -> Iterator[str]:
    """Train on the rest of the library; yield the share of characters predicted in other files."""
    folder = Path(re.__file__).parents[1]
    names = [str(file.relative_to(folder))[:-3] for file in sorted(folder.glob("*.py"))]
    text = np.concatenate([encode(read(name)) for name in names if name not in FILES])
    test = torch.tensor(records()[0][:100])
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=epochs * STEPS)
    for _ in range(epochs):
        for _ in range(STEPS):
            starts = torch.randint(len(text) - 129, (64,)).tolist()
            batch = torch.tensor(np.stack([text[start : start + 129] for start in starts]))
            optimizer.zero_grad()
            F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            right = (model(test[:, :-1]).argmax(2) == test[:, 1:]).float().mean()
        yield f"{right:.1%} of the characters of other files"


def run(folder: Path, epochs: int | None = None) -> None:
    """Train the model, ask, and write the table and the picture into the folder."""
    models = trained(folder, "reader", new_reader, partial(learn, epochs=epochs or EPOCHS))
    codes, ideas, files = records()
    table = ask(models[max(models)], codes, ideas, files)
    untrained = ask(models[0], codes, ideas, files)
    table.to_csv(folder / "python.csv", index=False)
    summary = summarize(table, untrained)
    summary.to_csv(folder / "python-summary.csv", index=False)
    print(
        f"\n{len(codes)} windows of {WINDOW} characters from {len(FILES)} files that the model has not read."
    )
    print(pictures.text(summary))
    print(
        "r: of the best unit; its interval is over files. probe: linear_f1 of the whole layer (r2 for the\n"
        "depth), on files held out. What the embedding reaches follows from the character alone, and\n"
        "what the untrained LSTM reaches from the few before it: local ideas, such as self, need no learning."
    )
    drawn, (left, right) = pictures.figure(2)
    places = np.arange(len(summary))
    for panel, kind, title in (
        (left, "r", "|r| of the best unit"),
        (right, "probe", "linear probe of the layer"),
    ):
        for shift, layer in enumerate(("embed", "untrained", "lstm")):
            panel.bar(places + 0.27 * shift, summary[f"{kind} {layer}"].abs(), width=0.26, label=layer)
        panel.set(title=title, xticks=places + 0.27)
        panel.set_xticklabels(summary.idea, rotation=20, fontsize=8)
        panel.legend(fontsize=8)
    pictures.save(drawn, folder, "python")


def summarize(table: pandas.DataFrame, untrained: pandas.DataFrame) -> pandas.DataFrame:
    """Return for each idea the best unit and the probe of the LSTM, beside those of the embedding."""
    rows = []
    for idea, of in table.groupby("target", sort=False):
        new = untrained[(untrained.target == idea) & (untrained.address == "lstm")]
        layers = {"lstm": of[of.address == "lstm"], "embed": of[of.address == "embed"], "untrained": new}
        row: dict[str, object] = {"idea": idea}
        for name, layer in layers.items():
            units = layer[layer.score == "correlation"]
            best = units.loc[units.value.abs().idxmax()]
            probe = layer[layer.score == ("r2" if idea == "bracket depth" else "linear_f1")].iloc[0]
            if name == "lstm":
                row |= {"unit": best.unit, "low": best.low, "high": best.high, "q": best.q}
                row |= {"baseline": best.baseline, "probe chance": probe.baseline}
            row |= {f"r {name}": best.value, f"probe {name}": probe.value}
        rows.append(row)
    order = ["idea", "unit", "r lstm", "low", "high", "baseline", "q", "r embed", "r untrained"]
    return pandas.DataFrame(rows)[[*order, "probe lstm", "probe embed", "probe untrained", "probe chance"]]
