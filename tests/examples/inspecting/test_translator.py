"""The translator: a grammar that labels what it makes, and what its encoder knows of it."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from intus.examples.inspecting.language import BOTH, LENGTH, sentences
from intus.examples.inspecting.translator import encode, new_translator, tags_of


def test_sentences_have_a_label_for_each_word():
    made = sentences(300, seed=5)
    assert len({tuple(s.words) for s in made}) == 300
    for s in made:
        assert len(s.words) == len(s.tags) == len(s.phrases) <= LENGTH
        assert s.tags.count("verb") == 1 + s.words.count("that")
        assert ("relative" in s.rules) == ("that" in s.words)
        assert ("question" in s.rules) == (s.words[0] == "do") == (s.other[0] == "ka")
        assert all("PP" in p for p, tag in zip(s.phrases, s.tags, strict=True) if tag == "preposition")
        assert {tag for word, tag in zip(s.words, s.tags, strict=True) if word in BOTH} <= {"noun", "verb"}


@pytest.fixture(scope="module")
def translator(run_example):
    return run_example("translator")


@pytest.mark.slow
def test_part_of_speech_by_layer(translator):
    speech = translator.table("translator-speech")
    last = speech[speech.epoch == speech.epoch.max()].set_index(["target", "score", "address"])
    value, high = last.value, last.high
    either = ("noun or verb", "linear_accuracy")
    assert value[(*either, "embed")] < 0.75  # the word alone does not say
    assert value[(*either, "first")] > 0.95
    control = ("part of speech", "linear_selectivity")
    assert high[(*control, "embed")] < 0.05  # embeddings know words, not parts of speech
    assert last.low[(*control, "second")] > 0
    assert value[(*control, "second")] > value[(*control, "first")]


@pytest.mark.slow
def test_grammar_by_layer(translator):
    rules = translator.table("translator-summary").set_index("rule")
    assert set(rules.index) == {"in NP", "in VP", "in PP", "in clause", "question"}
    assert (rules["f1 second"] > rules["f1 embed"]).all()
    assert (rules["f1 second"] > rules["f1 untrained"]).all()
    assert (rules["f1 second"] > rules.chance + 0.3).all()
    assert (rules.q < 0.01).all()
    assert rules.r.abs().max() > 0.5
    assert translator.pictures()["translator"] > 5000


@pytest.mark.slow
def test_noun_or_verb_equals_scikit_learn(translator):
    model = new_translator()
    model.load_state_dict(torch.load(translator.folder / "translator.pt", weights_only=True)[-1])
    made = sentences(600, seed=3)
    labels = tags_of(made)["noun or verb"]
    with torch.no_grad():
        embed = model.embed(torch.tensor(encode(made)[0]))
        layers = {"embed": embed, "first": model.first(embed)[0]}
    speech = translator.table("translator-speech")
    ours = speech[speech.epoch == speech.epoch.max()].set_index(["target", "score", "address"]).value
    known = labels != None  # noqa: E711  (element by element)
    learn = known.copy()
    learn[400:] = False
    test = known & ~learn
    for address, states in layers.items():
        judge = LogisticRegression(max_iter=1000).fit(states[torch.tensor(learn)], labels[learn].astype(str))
        theirs = judge.score(states[torch.tensor(test)], labels[test].astype(str))
        assert ours["noun or verb", "linear_accuracy", address] == pytest.approx(theirs, abs=0.08)
