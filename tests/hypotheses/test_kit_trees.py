"""Hypotheses of parse trees against nltk's own trees."""

from __future__ import annotations

import logging
import re
import sys

import nltk
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.core.errors import InputError, MissingExtraError
from intus.hypotheses import grammar

RULES = """
S -> NP VP
NP -> Det N | NP PP
VP -> V NP | VP PP
PP -> P NP
Det -> 'the' | 'a'
N -> 'dog' | 'park' | 'telescope'
V -> 'saw'
P -> 'in' | 'with'
"""
SENTENCES = [
    "the dog saw a park",
    "a dog saw the dog in the park",
    "the dog saw a dog in a park with the telescope",
]
CFG = nltk.CFG.fromstring(RULES)
SYMBOLS = ["S", "NP", "VP", "PP", "Det", "N", "V", "P"]


def spans_of(tree):
    """Return the label and the leaves' range of each node, by nltk's own positions of leaves."""
    leaves = tree.treepositions("leaves")
    for position in tree.treepositions():
        if isinstance(tree[position], nltk.Tree):
            under = [i for i, leaf in enumerate(leaves) if leaf[: len(position)] == position]
            if under:
                yield tree[position].label(), under[0], under[-1]


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("rules", [RULES, CFG], ids=["text", "CFG"])
def test_labels_equal_spans_of_the_first_parse_by_nltk(sentence, rules):
    words = sentence.split()
    tree = next(nltk.ChartParser(CFG).parse(words))
    found = grammar(rules)(words)
    assert list(found) == [f"{symbol} {how}" for symbol in SYMBOLS for how in ("inside", "boundary")]
    for symbol in SYMBOLS:
        spans = [(first, last) for label, first, last in spans_of(tree) if label == symbol]
        inside = {i for first, last in spans for i in range(first, last + 1)}
        assert set(np.flatnonzero(found[f"{symbol} inside"])) == inside
        assert set(np.flatnonzero(found[f"{symbol} boundary"])) == {i for span in spans for i in span}
    assert list(grammar(rules, "inside")(sentence)) == SYMBOLS
    np.testing.assert_array_equal(grammar(rules, "inside")(sentence)["NP"], found["NP inside"])


def test_characters_of_words_and_spaces_between_them():
    sentence = SENTENCES[1]
    found = grammar(CFG, "inside", characters=True)(sentence)
    for symbol in SYMBOLS:
        assert found[symbol].shape == (len(sentence),)
    assert [
        sentence[slice(*m.span())] for m in re.finditer("1+", "".join(map(str, found["PP"].astype(int))))
    ] == ["in the park"]
    painted = re.sub(r"\b(dog|park)\b", lambda match: "#" * len(match[0]), sentence)
    np.testing.assert_array_equal(found["N"], [c == "#" for c in painted])


def test_characters_as_terminals():
    """Luigi's Boolean expressions, and balanced brackets, against their definition."""
    rules = "S -> '(' S ')' | S S | 'x'"
    found = grammar(rules, characters=True, encoding="boundary")("((x)x)")
    np.testing.assert_array_equal(found["S"], [1, 1, 1, 1, 1, 1])
    inside = grammar("S -> '(' S ')' | 'x'", "inside", characters=True)
    np.testing.assert_array_equal(inside("( x )")["S"], np.ones(5))
    assert inside.unparsed == 0
    assert np.isnan(inside("(x")["S"]).all()
    assert inside.unparsed == 1


def test_record_without_a_parse_is_not_annotated_and_counted(caplog):
    parser = grammar(RULES, "inside")
    with caplog.at_level(logging.WARNING):
        rows = [parser(sentence) for sentence in [*SENTENCES, "the dog saw", "the cat saw a dog", ""]]
    assert (parser.read, parser.unparsed) == (6, 3)
    assert [np.isnan(row["NP"]).all() and bool(len(row["NP"])) for row in rows] == [False] * 3 + [
        True
    ] * 2 + [False]
    assert [len(row["NP"]) for row in rows[3:]] == [3, 5, 0]
    assert [r.message for r in caplog.records] == [
        "grammar: a record has no parse and is not annotated: 'the dog saw'"
    ]


def random_trees():
    leaf = st.sampled_from(["x", "yy", "(", "z1"])
    return st.recursive(
        leaf,
        lambda inner: st.tuples(st.sampled_from("ABC"), st.lists(inner, min_size=0, max_size=3)).map(
            lambda pair: (pair[0], *pair[1])
        ),
        max_leaves=12,
    ).map(lambda tree: ("S", tree))


def as_nltk(node):
    return node if isinstance(node, str) else nltk.Tree(node[0], [as_nltk(child) for child in node[1:]])


@settings(max_examples=120, deadline=None)
@given(tree=random_trees())
def test_function_that_returns_trees(tree):
    """Nested tuples, lists and nltk's trees are one; the judge is nltk's positions of leaves."""
    judge = as_nltk(tree)
    words = judge.leaves()
    found = grammar(lambda record: tree, names=["S", "A", "B"])(words)
    same = grammar(lambda record: judge, names=["S", "A", "B"])(words)
    for name, row in found.items():
        symbol, how = name.split()
        want = np.zeros(len(words))
        for label, first, last in spans_of(judge):
            if label == symbol:
                want[[first, last] if how == "boundary" else slice(first, last + 1)] = 1
        np.testing.assert_array_equal(row, want, err_msg=name)
        np.testing.assert_array_equal(same[name], want, err_msg=name)


def test_deep_trees():
    tree = "x"
    for _ in range(5000):
        tree = ("A", tree)
    assert grammar(lambda record: tree, "inside", names=["A"])(["x"])["A"].tolist() == [1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: grammar("S -> "), "(?s).*"),
        (lambda: grammar("no rules"), "are no grammar in nltk's notation"),
        (lambda: grammar(7), "are no grammar in nltk's notation"),
        (
            lambda: grammar(RULES, names=["NP", "XP"]),
            "'XP' is no non-terminal of the grammar. It has S, NP, VP",
        ),
        (lambda: grammar(RULES, names="NP"), "must be a list of non-terminals"),
        (lambda: grammar(RULES, "outside"), "encoding='outside' of grammar"),
        (lambda: grammar(lambda record: None), "needs names="),
        (
            lambda: grammar(lambda r: ("S", "a"), names=["S"])(["a", "b"]),
            "1 leaves, but the record has 2 tokens",
        ),
        (lambda: grammar(lambda r: ("S", 1), names=["S"])(["a"]), "must be an nltk.Tree or a tuple"),
        (
            lambda: grammar(lambda r: ("S", "b"), names=["S"], characters=True)("a b"),
            "leaf 'b' of the parse tree does not follow",
        ),
    ][1:],
)
def test_refusals(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_without_nltk(monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'intus\[hypotheses\]'"):
        grammar(RULES)
    assert grammar(lambda words: ("S", *words), "inside", names=["S"])(["a"])["S"].tolist() == [1]
