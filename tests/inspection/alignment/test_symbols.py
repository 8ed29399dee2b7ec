"""symbols=: subwords aligned with words and characters, on a real tokenizer and a small BERT."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from transformers import BertConfig, BertModel, BertTokenizerFast

import intus
from intus.core.errors import InputError
from intus.hypotheses import Symbols, lexicon, regex
from intus.inspection import inspect
from intus.inspection.alignment.align import reduce_positions
from intus.inspection.alignment.symbols import SymbolPositions

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s sat on un ##happi ##ly a mat . ##b b dog"
TEXTS = [
    "the cats sat unhappily",
    "a dog",
    "unhappily the dogs sat on a mat .",
    "cats",
    "  the   dog sat  .",
    "abbb sat on the xyz mat",
] * 5
WORDS = [text.split() for text in TEXTS]
REDUCE = {"mean": np.mean, "max": np.max, "first": lambda x, axis: x[0], "last": lambda x, axis: x[-1]}


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizerFast(vocab={piece: i for i, piece in enumerate(PIECES.split())})


@pytest.fixture(scope="module")
def bert(tokenizer):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    return BertModel(config).eval()


@pytest.fixture(scope="module")
def inputs(tokenizer):
    def of(records):
        split = not isinstance(records[0], str)
        return dict(tokenizer(list(records), is_split_into_words=split, padding=True, return_tensors="pt"))

    return of


@pytest.fixture(scope="module")
def hidden(bert, tokenizer):
    """Return the output of the first layer for each text or list of words, run alone."""

    def of(record):
        split = not isinstance(record, str)
        with torch.no_grad():
            ids = tokenizer(record, is_split_into_words=split, return_tensors="pt")
            return bert(**ids, output_hidden_states=True).hidden_states[1][0].numpy()

    return of


def is_long(words):
    return [len(word) > 3 for word in words]


def check(frame, values, labels):
    """Compare correlations of all units with scipy's."""
    values, labels = np.array(values, dtype=float), np.array(labels, dtype=float)
    assert frame.n.eq(len(labels)).all()
    assert set(frame.note) == {""}
    assert len(frame) == values.shape[1]
    for row in frame.itertuples():
        want = stats.pearsonr(values[:, row.unit], labels).statistic
        assert row.value == pytest.approx(want, abs=2e-5)


@pytest.mark.parametrize("reduce", list(REDUCE))
@pytest.mark.parametrize("batch", [7, 30])
def test_words_of_subwords(bert, tokenizer, inputs, hidden, reduce, batch):
    """The judge loops over the words of each record, which runs alone, without padding."""

    def word_ids(words):
        return tokenizer(words, is_split_into_words=True).word_ids()

    symbols = Symbols(word_ids, reduce) if reduce != "mean" else word_ids
    frame = inspect(
        bert, is_long, "correlation", WORDS, "encoder.layer.0", inputs=inputs, symbols=symbols, batch=batch
    )
    values, labels = [], []
    for words in WORDS:
        states, ids = hidden(words), word_ids(words)
        for number, word in enumerate(words):
            pieces = [states[position] for position, i in enumerate(ids) if i == number]
            values.append(REDUCE[reduce](pieces, axis=0))
            labels.append(len(word) > 3)
    check(frame, values, labels)
    assert max(np.bincount([i for i in word_ids(WORDS[2]) if i is not None])) == 3


@pytest.mark.parametrize("how", ["function", "list", "batch"])
def test_characters_of_subwords_by_offsets(bert, tokenizer, inputs, hidden, how):
    """Each character has the behavior of the position that covers it; spaces are left out."""

    def offsets(text):
        return tokenizer(text, return_offsets_mapping=True)["offset_mapping"]

    given = {
        "function": offsets,
        "list": [offsets(text) for text in TEXTS],
        "batch": intus.hypothesis(batch=True)(
            lambda texts: tokenizer(list(texts), return_offsets_mapping=True, padding=True)["offset_mapping"]
        ),
    }[how]
    vowel = regex("[aeiou]")
    frame = inspect(
        bert, vowel, "correlation", TEXTS, "encoder.layer.0", inputs=inputs, symbols=given, batch=8
    )
    values, labels = [], []
    for text in TEXTS:
        states = hidden(text)
        for position, (start, end) in enumerate(offsets(text)):
            for place in range(start, end):
                values.append(states[position])
                labels.append(text[place] in "aeiou")
    assert len(labels) == sum(len(text.replace(" ", "")) for text in TEXTS)
    check(frame, values, labels)


def test_symbols_without_positions_are_no_rows(bert, tokenizer, inputs):
    """Spaces and padding are neither counted as rows nor as rows with NaN."""

    def offsets(text):
        return tokenizer(text, return_offsets_mapping=True)["offset_mapping"]

    frame = inspect(bert, regex("[aeiou]"), "r2", TEXTS, "encoder.layer.0", inputs=inputs, symbols=offsets)
    letters = sum(len(text.replace(" ", "")) for text in TEXTS)
    assert not frame.note.str.contains("left out").any()
    assert 0.1 * letters < frame.n[0] < 0.4 * letters  # those held out


def test_label_of_a_record_is_for_the_mean_without_special_tokens_and_padding(
    bert, tokenizer, inputs, hidden
):
    def word_ids(words):
        return tokenizer(words, is_split_into_words=True).word_ids()

    frame = inspect(
        bert, {"n": len}, "correlation", WORDS, "encoder.layer.0", inputs=inputs, symbols=word_ids, batch=8
    )
    check(frame, [hidden(words)[1:-1].mean(axis=0) for words in WORDS], [len(words) for words in WORDS])


def test_words_with_kit_types_and_groups(bert, tokenizer, inputs):
    frame = inspect(
        bert,
        lexicon({"article": ["the", "a"], "animal": ["dog", "cats", "dogs"]}),
        ["correlation", "linear_selectivity"],
        WORDS,
        "encoder.layer.*",
        inputs=inputs,
        symbols=lambda words: tokenizer(words, is_split_into_words=True).word_ids(),
        types=lambda words: words,
        groups=np.arange(len(WORDS)) // 2,
    )
    assert set(frame.target) == {"article", "animal"}
    assert frame[frame.score == "correlation"].n.eq(sum(map(len, WORDS))).all()
    assert frame[frame.score == "linear_selectivity"].value.notna().all()


def test_left_padding(bert, tokenizer):
    """Lists of positions may leave out the padding, or have None for it."""
    left = BertTokenizerFast(vocab=tokenizer.get_vocab(), padding_side="left")

    def inputs(records):
        return dict(left(list(records), is_split_into_words=True, padding=True, return_tensors="pt"))

    def word_ids(words):
        return left(words, is_split_into_words=True).word_ids()

    arguments = (bert, is_long, "correlation", WORDS, "embeddings.word_embeddings")

    @intus.hypothesis(batch=True)
    def of_batch(records):
        found = left(list(records), is_split_into_words=True, padding=True)
        return [found.word_ids(i) for i in range(len(records))]

    weight = bert.embeddings.word_embeddings.weight.detach().numpy()
    values = []
    for words in WORDS:
        for word in words:
            values.append(weight[tokenizer(word, add_special_tokens=False)["input_ids"]].mean(axis=0))
    for symbols in (word_ids, of_batch):
        frame = inspect(*arguments, inputs=inputs, symbols=symbols)
        check(frame, values, [flag for words in WORDS for flag in is_long(words)])

    def without_special_tokens(words):
        return word_ids(words)[1:-1]

    with pytest.raises(
        InputError, match=r"gives 7 positions for record 0, which has 9 by the attention_mask, of"
    ):
        inspect(*arguments, inputs=inputs, symbols=without_special_tokens)


def offsets_of_words(tokenizer):
    return lambda words: tokenizer(words, is_split_into_words=True, return_offsets_mapping=True)[
        "offset_mapping"
    ]


@pytest.mark.parametrize(
    ("labels", "symbols", "words"),
    [
        (
            lambda words: [0] * (len(words) + 1),
            "ids",
            r"gives 5 labels for record 0, but symbols counts 4 symbols",
        ),
        (
            lambda words: [0] * (len(words) - 1),
            "ids",
            r"gives 3 labels for record 0, but symbols counts 4 symbols",
        ),
        (
            is_long,
            lambda words: [None, *range(len(words))],
            r"gives 5 positions for record 0, which has \d+ by the attention_mask, of 1",
        ),
        (is_long, lambda words: [0, "a"], r"symbols gives 'a' for position 1 of record 0"),
        (is_long, lambda words: [0, 1.5], r"symbols gives 1\.5 for position 1 of record 0"),
        (is_long, lambda words: [0, (1, 2)], r"numbers for some positions of record 0 and spans for others"),
        (is_long, lambda words: [0, -3], r"symbols gives -3"),
        (is_long, lambda words: [0, 1, None, 0, 1], r"goes back from 1 to 0 at position 3 of record 0"),
        (is_long, "offsets", r"goes back from 3 to 0 at position 3 of record 0|goes back"),
        (is_long, [[0]] * 3, r"symbols has 3 entries, but there are 30 records"),
        (is_long, 7, r"must be a function of a record or a list for each record, got 7"),
    ],
)
def test_impossible_symbols(bert, tokenizer, inputs, labels, symbols, words):
    if symbols == "ids":
        symbols = lambda record: tokenizer(record, is_split_into_words=True).word_ids()  # noqa: E731
    if symbols == "offsets":
        symbols = offsets_of_words(tokenizer)
    with pytest.raises(InputError, match=words):
        inspect(bert, labels, "correlation", WORDS, "encoder.layer.0", inputs=inputs, symbols=symbols)


def test_labels_of_characters_must_be_as_many(bert, tokenizer, inputs):
    def offsets(text):
        return tokenizer(text, return_offsets_mapping=True)["offset_mapping"]

    with pytest.raises(InputError, match="gives 23 labels for record 0, but symbols counts 22 characters"):
        inspect(
            bert,
            lambda text: [0] * (len(text) + 1),
            "correlation",
            TEXTS,
            "encoder.layer.0",
            inputs=inputs,
            symbols=offsets,
        )


def test_labels_that_are_not_annotated_may_follow(bert, tokenizer, inputs, hidden):
    """Words that truncation cut off."""

    def short(records):
        records = [words[:2] for words in records]
        return dict(tokenizer(records, is_split_into_words=True, padding=True, return_tensors="pt"))

    def two(words):
        return [float(flag) if i < 2 else np.nan for i, flag in enumerate(is_long(words))]

    def word_ids(words):
        return tokenizer(words[:2], is_split_into_words=True).word_ids()

    frame = inspect(bert, two, "correlation", WORDS, "encoder.layer.0", inputs=short, symbols=word_ids)
    assert frame.n.eq(sum(len(words[:2]) for words in WORDS)).all()


@pytest.mark.parametrize("batch", [1, 7])
def test_records_that_are_not_annotated(bert, tokenizer, inputs, hidden, batch):
    """None for a record or a whole block, also where it has more or fewer words than others."""

    def word_ids(words):
        return tokenizer(words, is_split_into_words=True).word_ids()

    def some(words):
        return None if words[0] in ("a", "cats", "unhappily") else is_long(words)

    table = inspect(
        bert,
        [some, is_long],
        "correlation",
        WORDS,
        "encoder.layer.0",
        inputs=inputs,
        symbols=word_ids,
        batch=batch,
    )
    values, labels, every = [], [], []
    for words in WORDS:
        places = np.array([-1 if i is None else i for i in word_ids(words)])
        of_words = [hidden(words)[places == number].mean(axis=0) for number in range(len(words))]
        every += of_words
        if some(words) is not None:
            values += of_words
            labels += is_long(words)
    check(table[table.target == "some"], values, labels)
    check(table[table.target == "is_long"], every, [flag for words in WORDS for flag in is_long(words)])


def test_wrong_reduction():
    with pytest.raises(
        InputError, match="reduce='median' of Symbols is not one of 'mean', 'first', 'last', 'max'"
    ):
        Symbols(len, reduce="median")


def test_error_names_the_record(bert, inputs):
    def broken(words):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        inspect(bert, is_long, "correlation", WORDS, "encoder.layer.0", inputs=inputs, symbols=broken)
    assert error.value.__notes__ == ["in symbols, on record 0"]


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(-1, 5), min_size=7, max_size=7).map(sorted), min_size=1, max_size=4),
    how=st.sampled_from(list(REDUCE)),
    seed=st.integers(0, 99),
)
def test_reduction_equals_a_loop(rows, how, seed):
    behaviours = np.random.default_rng(seed).normal(size=(len(rows), 3, 7))
    index = SymbolPositions(rows, len(rows)).of(np.arange(len(rows)), lambda: rows).index
    found = reduce_positions(behaviours, index, how)
    assert found.shape[2] == max(max(row) for row in rows) + 1
    for record, row in enumerate(rows):
        for symbol in range(found.shape[2]):
            pieces = [behaviours[record, :, p] for p, s in enumerate(row) if s == symbol]
            want = REDUCE[how](pieces, axis=0) if pieces else np.full(3, np.nan)
            np.testing.assert_allclose(found[record, :, symbol], want, atol=1e-12)
