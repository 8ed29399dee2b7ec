"""Hypotheses about text against re, tokenize and the shape of generated texts."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize as python
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.core.errors import InputError
from intus.hypotheses import lexicon, nesting, regex, tokenize
from intus.hypotheses.code import PYTHON
from intus.hypotheses.source import as_source

PATTERNS = ["[0-9]+", "a*", r"\bthe\b", "b|ab", "(a)(b)?", "(?i)x.y", ".", "^a|b$", r"\s"]
texts = st.text(alphabet="ab the01xXyY\n(", max_size=40)


def runs(labels):
    """Return the runs of ones as (start, end)."""
    padded = np.concatenate([[0], np.asarray(labels, int), [0]])
    return list(zip(np.flatnonzero(np.diff(padded) == 1), np.flatnonzero(np.diff(padded) == -1), strict=True))


@settings(max_examples=150, deadline=None)
@given(text=texts, pattern=st.sampled_from(PATTERNS), encoding=st.sampled_from(["inside", "boundary"]))
def test_regex_equals_spans_of_finditer(text, pattern, encoding):
    inside, ends = set(), set()
    for match in re.finditer(pattern, text):
        inside |= set(range(*match.span()))
        ends |= {match.start(), match.end() - 1} if match.end() > match.start() else set()
    labels = regex(pattern, encoding=encoding)(text)
    assert labels.shape == (len(text),)
    assert set(np.flatnonzero(labels)) == (inside if encoding == "inside" else ends)


def test_regex_replaces_matches_of_its_own_substitution():
    """An independent judge: re.sub paints the same characters."""
    text = (Path(python.__file__)).read_text()[:20_000]
    painted = re.sub(r"[A-Z]\w+", lambda match: "\0" * len(match[0]), text)
    np.testing.assert_array_equal(regex(r"[A-Z]\w+")(text), [c == "\0" for c in painted])


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="ab=1 2\n", max_size=40))
def test_regex_groups_are_hypotheses(text):
    pattern = r"(?P<key>[ab]+)=(?P<value>\d+)?"
    labels = regex(pattern, re.MULTILINE)(text)
    assert list(labels) == ["key", "value"]
    for name, row in labels.items():
        want = [i for match in re.finditer(pattern, text) for i in range(*match.span(name))]
        assert np.flatnonzero(row).tolist() == want
    rows = as_source(regex(pattern)).answers(np.array([0]), [text])[0]
    np.testing.assert_array_equal(rows, list(labels.values()))


def test_regex_names_and_refusals():
    assert as_source(regex("a+")).name == "a+"
    assert as_source(regex("a+", name="as")).name == "as"
    assert as_source(regex("(?P<x>a)")).names == ("x",)
    with pytest.raises(InputError, match=r"'\(a' is no regular expression: missing \)"):
        regex("(a")
    with pytest.raises(InputError, match="encoding='start' of regex must be 'inside' or 'boundary'"):
        regex("a", encoding="start")
    with pytest.raises(InputError, match="regex reads text, but the record is a list"):
        regex("a")(["a"])


# --- tokenize


def modules():
    folder = Path(python.__file__).parent
    return [folder / name for name in ("tokenize.py", "textwrap.py", "csv.py", "ast.py", "dis.py")]


def test_tokens_equal_those_of_the_standard_library():
    """Every token of real files, by the rows and columns that tokenize gives."""
    labels_of = tokenize()
    for path in modules():
        text = path.read_text(encoding="utf-8")
        found = labels_of(text)
        assert list(found) == list(PYTHON)
        lines = text.split("\n")
        want = {kind: [np.zeros(len(line) + 1) for line in lines] for kind in PYTHON}
        before = ""
        for token in python.generate_tokens(io.StringIO(text).readline):
            kind = {python.COMMENT: "comment", python.NUMBER: "number", python.OP: "operator"}.get(
                token.type, ""
            )
            if python.tok_name[token.type] in ("STRING", "FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END"):
                kind = "string"
            if token.type == python.NAME:
                kind = "keyword" if keyword.iskeyword(token.string) else "name"
            (first, left), (last, right) = token.start, token.end
            for line in range(first, last + 1) if kind else ():
                part = slice(left if line == first else 0, right if line == last else None)
                want[kind][line - 1][part] = 1
                if kind == "name" and before in ("def", "class"):
                    want["definition"][line - 1][part] = 1
            before = token.string
        for kind in PYTHON:
            np.testing.assert_array_equal(found[kind], np.concatenate(want[kind])[:-1], err_msg=kind)
        named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, named)]
        assert found["definition"].sum() == sum(map(len, names)) > 100


@settings(max_examples=150, deadline=None)
@given(start=st.integers(0, 20_000), length=st.integers(0, 200), number=st.integers(0, 4))
def test_windows_of_code_are_labelled_up_to_an_error(start, length, number):
    """Any window, mostly broken code: no error, one length, not annotated only from some place to the end."""
    text = modules()[number].read_text(encoding="utf-8")
    window = text[start % len(text) :][:length]
    found = tokenize()(window)
    missing = np.isnan(found["name"])
    assert len(missing) == len(window)
    assert not np.diff(missing.astype(int)).min(initial=0) < 0
    for kind, row in found.items():
        np.testing.assert_array_equal(np.isnan(row), missing, err_msg=kind)
        assert np.isin(row[~missing], (0, 1)).all()
    kinds = np.stack([row for kind, row in found.items() if kind != "definition"])
    assert np.nansum(kinds, axis=0).max(initial=0) <= 1
    for first, end in runs(found["number"] == 1):
        assert re.search(r"\d", window[first:end])
    for first, end in runs(found["keyword"] == 1):
        assert keyword.iskeyword(window[first:end]) or " " not in window[first:end]


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="a1 'é\"#\\\n\r\t\x0c(){}[]$?:=ﬁ𝄞\0", max_size=30))
def test_any_text_is_labelled_without_an_error(text):
    found = tokenize()(text)
    assert {len(row) for row in found.values()} == {len(text)}
    for first, end in runs(found["comment"] == 1):
        assert text[first] == "#"
        assert "\n" not in text[first:end]


@pytest.mark.parametrize(
    ("text", "annotated"),
    [
        ("def f(): 'abc", "def f(): "),
        ("x = (1, 2", "x = (1, 2"),
        ("x = 1\ny = '''ab\ncd", "x = 1\ny = "),
        ("if a:\n    b\n  c = 1", "if a:\n    b\n  "),
    ],
)
def test_broken_code(text, annotated):
    row = tokenize()(text)["name"]
    assert np.isfinite(row).sum() == len(annotated)
    assert np.isnan(row[len(annotated) :]).all()


def test_tokenize_by_a_function():
    def words(text):
        for match in re.finditer(r"\S+", text):
            yield ("upper" if match[0].isupper() else None if match[0] == "?" else "lower"), *match.span()

    found = tokenize(words, ["upper", "lower", "digit"])("AB cd ? e")
    np.testing.assert_array_equal(found["upper"], [1, 1, 0, 0, 0, 0, np.nan, 0, 0])
    np.testing.assert_array_equal(found["lower"], [0, 0, 0, 1, 1, 0, np.nan, 0, 1])
    np.testing.assert_array_equal(found["digit"], [0, 0, 0, 0, 0, 0, np.nan, 0, 0])
    assert list(tokenize(kinds=["comment"])("a")) == ["comment"]
    with pytest.raises(InputError, match=r"no kind 'keywords' for Python\. Did you mean 'keyword'"):
        tokenize(kinds=["keywords"])
    with pytest.raises(InputError, match="got 'ruby'"):
        tokenize("ruby")
    with pytest.raises(InputError, match="needs kinds="):
        tokenize(words)


# --- nesting

nested = st.recursive(
    st.text(alphabet="ab ", max_size=3),
    lambda inner: st.tuples(st.sampled_from(["()", "[]", "{}"]), st.lists(inner, max_size=3)).map(
        lambda pair: pair[0][0] + "".join(pair[1]) + pair[0][1]
    ),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None)
@given(parts=st.lists(nested, max_size=4))
def test_depth_equals_the_number_of_enclosing_pairs(parts):
    """The judge peels the innermost pairs off, one layer at a time."""
    text = "".join(parts)
    depth, kinds = np.zeros(len(text), int), {pair: np.zeros(len(text), int) for pair in ("()", "[]", "{}")}
    left = text
    while pairs := list(re.finditer(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}", left)):
        for pair in pairs:
            depth[slice(*pair.span())] += 1
            kinds[pair[0][0] + pair[0][-1]][slice(*pair.span())] = 1
            left = left[: pair.start()] + "." * len(pair[0]) + left[pair.end() :]
    found = nesting()(text)
    np.testing.assert_array_equal(found["depth"], depth)
    np.testing.assert_array_equal(found["inside"], depth > 0)
    for pair, row in kinds.items():
        np.testing.assert_array_equal(found[f"inside {pair}"], row)
    np.testing.assert_array_equal(nesting()(list(text))["depth"], depth)  # of tokens


def test_depth_of_code_equals_that_of_its_tokens():
    """Brackets in strings and comments do not count; the judge counts the tokens of tokenize."""
    text = modules()[1].read_text(encoding="utf-8")
    triple = r"(?s:\"\"\"(?:\\.|[^\\])*?\"\"\")|(?s:'''(?:\\.|[^\\])*?''')"
    ignored = triple + r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*"""
    found = nesting(ignore=ignored)(text)["depth"]
    starts = np.concatenate([[0], np.cumsum([len(line) for line in text.splitlines(keepends=True)])])
    depth, want = 0, np.zeros(len(text) + 1)
    for token in python.generate_tokens(io.StringIO(text).readline):
        if token.type == python.OP and token.string in "([{":
            depth += 1
            want[starts[token.start[0] - 1] + token.start[1]] += 1
        if token.type == python.OP and token.string in ")]}":
            want[starts[token.end[0] - 1] + token.end[1]] -= 1
    np.testing.assert_array_equal(found, np.cumsum(want)[:-1])
    assert found.max() >= 3


def test_unmatched_brackets():
    assert nesting("(", ")")("a)b(c")["depth"].tolist() == [0, 0, 0, 1, 1]
    assert nesting()("(]a)")["depth"].tolist() == [1, 1, 1, 1]
    for wrong in [("(", ")]"), ("", ""), ("((", "))"), ("|", "|")]:
        with pytest.raises(InputError, match="as many closing as opening brackets"):
            nesting(*wrong)


# --- lexicon


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(st.sampled_from(["a", "ab", "ba", "c", "B"]), min_size=1, max_size=3),
    tokens=st.lists(st.sampled_from(["a", "A", "ab", "aB", "abc", "ba", "c", "b"]), max_size=12),
    case=st.booleans(),
)
def test_lexicon_of_words_in_texts_and_in_tokens(words, tokens, case):
    def fold(word):
        return word if case else word.lower()

    want = [fold(token) in map(fold, words) for token in tokens]
    found = lexicon(words, case=case)
    np.testing.assert_array_equal(found(tokens), want)
    text = " ".join(tokens)
    of_characters = [
        flag for token, hit in zip(tokens, want, strict=True) for flag in [*[hit] * len(token), False]
    ][:-1]
    np.testing.assert_array_equal(found(text), of_characters)


def test_entries_of_several_words():
    cities = lexicon({"city": ["New York", "York"], "paper": "york times", "code": "C++"}, name="w")
    text = "the New York Times, yorker, C++"
    found = {
        name: "".join(c for c, hit in zip(text, row, strict=True) if hit)
        for name, row in cities(text).items()
    }
    assert found == {"city": "New York", "paper": "York Times", "code": "C++"}
    tokens = text.replace(",", " ,").split()
    found = {
        name: [t for t, hit in zip(tokens, row, strict=True) if hit] for name, row in cities(tokens).items()
    }
    assert found == {"city": ["New", "York"], "paper": ["York", "Times"], "code": ["C++"]}
    for wrong in ([], [""], [3], {"a": []}):
        with pytest.raises(InputError, match="lexicon needs words"):
            lexicon(wrong)
