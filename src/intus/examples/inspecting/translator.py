"""Inspect a translator: does its encoder learn parts of speech and grammar, which nobody teaches it?

A sequence-to-sequence LSTM translates a small English (``language``) into a language with another order of
words. Two published questions: which layer knows the part of speech of a word (Belinkov et al. 2017), and
which units and layers know the grammar that a sentence is made of (Shi et al. 2016).

Run:  intus examples translator
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import torch
import torch.nn.functional as F
from torch import nn

from intus import inspect

from . import pictures
from .language import BOTH, LENGTH, Sentence, sentences
from .training import trained

EPOCHS, TRAINED, TESTED = 12, 6000, 600
LAYERS = ["embed", "first", "second"]
_KNOWN = sentences(2000, seed=9)  # every word occurs in some of these
WORDS = {word: k + 1 for k, word in enumerate(sorted({word for s in _KNOWN for word in s.words}))}
OTHERS = {word: k + 2 for k, word in enumerate(sorted({word for s in _KNOWN for word in s.other}))}


def ask_speech(
    models: dict[int, nn.Module], ids: np.ndarray, tags: dict[str, np.ndarray]
) -> pandas.DataFrame:
    """Belinkov: probe each layer for the part of speech; the control is a random tag for each word."""
    scores = ["linear_accuracy", "linear_selectivity"]
    return inspect(models, tags, scores, ids, LAYERS, types=np.where(ids > 0, ids, np.nan))


def ask_grammar(
    models: dict[int, nn.Module], ids: np.ndarray, rules: dict[str, np.ndarray]
) -> pandas.DataFrame:
    """Shi: score units and layers of the encoder against the phrases that a word is in."""
    return inspect(models, rules, ["correlation", "linear_f1"], ids, LAYERS)


class Translator(nn.Module):
    """An encoder of two LSTMs and a decoder with attention."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(WORDS) + 1, 32)
        self.first = nn.LSTM(32, width, batch_first=True)
        self.second = nn.LSTM(width, width, batch_first=True)
        self.target = nn.Embedding(len(OTHERS) + 2, 32)
        self.decoder = nn.LSTM(32, width, batch_first=True)
        self.query = nn.Linear(width, width)
        self.word = nn.Linear(2 * width, len(OTHERS) + 2)

    def forward(self, ids: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
        """Return logits (n, u, words) of the translation of ids (n, t), given the words before (n, u)."""
        states, last = self.second(self.first(self.embed(ids))[0])
        if before is None:
            before = torch.ones_like(ids[:, :1])
        decoded, _ = self.decoder(self.target(before), last)
        match = (self.query(decoded) @ states.transpose(1, 2)).masked_fill((ids == 0)[:, None], -1e9)
        return self.word(torch.cat([decoded, match.softmax(2) @ states], dim=2))


def new_translator() -> Translator:
    """Return the untrained model."""
    torch.manual_seed(0)
    return Translator()


def encode(of: Sequence[Sentence]) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of words (n, t) and of their translation after a start (n, t + 1); 0 pads."""
    ids, others = np.zeros((len(of), LENGTH), int), np.zeros((len(of), LENGTH + 1), int)
    others[:, 0] = 1
    for row, sentence in enumerate(of):
        ids[row, : len(sentence.words)] = [WORDS[word] for word in sentence.words]
        others[row, 1 : len(sentence.other) + 1] = [OTHERS[word] for word in sentence.other]
    return ids, others


def learn(model: nn.Module, epochs: int) -> Iterator[str]:
    """Train the translator; yield the share of right words, each given the right ones before it."""
    ids, others = (torch.tensor(part) for part in encode(sentences(TRAINED, seed=1)))
    test = [torch.tensor(part) for part in encode(sentences(300, seed=2))]
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(epochs):
        for chosen in torch.randperm(len(ids)).split(64):
            optimizer.zero_grad()
            logits = model(ids[chosen], others[chosen, :-1]).flatten(0, 1)
            F.cross_entropy(logits, others[chosen, 1:].flatten(), ignore_index=0).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        with torch.no_grad():
            right = model(test[0], test[1][:, :-1]).argmax(2) == test[1][:, 1:]
        yield f"{right[test[1][:, 1:] > 0].float().mean():.1%} of the words of other sentences"


def tags_of(of: Sequence[Sentence]) -> dict[str, np.ndarray]:
    """Return the part of speech of each word, and that of the words that may be a noun or a verb."""
    every, both = np.full((len(of), LENGTH), None, object), np.full((len(of), LENGTH), None, object)
    for row, sentence in enumerate(of):
        every[row, : len(sentence.tags)] = sentence.tags
        for column, (word, tag) in enumerate(zip(sentence.words, sentence.tags, strict=True)):
            if word in BOTH:
                both[row, column] = tag
    return {"part of speech": every, "noun or verb": both}


def rules_of(of: Sequence[Sentence]) -> dict[str, np.ndarray]:
    """Return for each word which phrases it is in, and whether the sentence is a question."""
    out = {
        name: np.full((len(of), LENGTH), np.nan)
        for name in ("in NP", "in VP", "in PP", "in clause", "question")
    }
    names = {"in NP": "NP", "in VP": "VP", "in PP": "PP", "in clause": "S"}
    for row, sentence in enumerate(of):
        for name, values in out.items():
            labels = [names[name] in p if name in names else name in sentence.rules for p in sentence.phrases]
            values[row, : len(labels)] = labels
    return out


def run(folder: Path, epochs: int | None = None) -> None:
    """Train the translator, ask, and write tables and the picture into the folder."""
    models = trained(folder, "translator", new_translator, partial(learn, epochs=epochs or EPOCHS))
    last = max(models)
    asked = sentences(TESTED, seed=3)
    ids, _ = encode(asked)
    before_and_after = {0: models[0], last: models[last]}
    speech = ask_speech(before_and_after, ids, tags_of(asked))
    grammar = ask_grammar(before_and_after, ids, rules_of(asked))
    speech.to_csv(folder / "translator-speech.csv", index=False)
    grammar.to_csv(folder / "translator-grammar.csv", index=False)
    print(f"\nParts of speech (Belinkov et al.), {TESTED} sentences; epoch 0 is the untrained network.")
    print(pictures.text(speech[["epoch", "target", "score", "address", "value", "low", "high", "baseline"]]))
    print(
        "noun or verb: words that may be either. The embedding cannot know; an LSTM reads it off the words\n"
        "before, trained or not. linear_selectivity: accuracy less that on a random tag for each word."
    )
    print("\nGrammar (Shi et al.): a linear probe of each layer, and the best unit.")
    summary = summarize(grammar)
    summary.to_csv(folder / "translator-summary.csv", index=False)
    print(pictures.text(summary))
    drawn, panels = pictures.figure(2)
    for panel, idea in zip(panels, ("noun or verb", "in clause"), strict=True):
        table = speech if idea == "noun or verb" else grammar
        score = "linear_accuracy" if idea == "noun or verb" else "linear_f1"
        rows = table[(table.target == idea) & (table.score == score)]
        for epoch, layers in rows.groupby("epoch"):
            name = "trained" if epoch else "untrained"
            panel.errorbar(
                LAYERS, layers.value, [layers.value - layers.low, layers.high - layers.value], label=name
            )
        panel.plot(LAYERS, layers.baseline, ":", color="black", linewidth=1, label="baseline")
        panel.set(title=f"{idea}: {score} of each layer")
        panel.legend(fontsize=8)
    pictures.save(drawn, folder, "translator")


def summarize(grammar: pandas.DataFrame) -> pandas.DataFrame:
    """Return for each rule the probe of each layer before and after, and the best unit of the second LSTM."""
    rows = []
    last = grammar.epoch.max()
    for rule, of in grammar.groupby("target", sort=False):
        probes = of[of.score == "linear_f1"].set_index(["epoch", "address"])
        row = {"rule": rule} | {f"f1 {layer}": probes.value[last, layer] for layer in LAYERS}
        row |= {"f1 untrained": probes.value[0, "second"], "chance": probes.baseline[last, "second"]}
        units = of[(of.score == "correlation") & (of.epoch == last) & (of.address == "second")]
        best = units.loc[units.value.abs().idxmax()]
        rows.append(
            row | {"unit": best.unit, "r": best.value, "low": best.low, "high": best.high, "q": best.q}
        )
    return pandas.DataFrame(rows)
