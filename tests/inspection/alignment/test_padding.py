"""inspect on padded texts: each text alone, without padding, is the judge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, BertTokenizerFast

from intus.core.errors import CaptureError, InputError
from intus.inspection import inspect

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "the", "a", "cat", "##s", "sat", "un", "##happi", "##ly", "dog", "ran"]
WORDS = ["the", "a", "cats", "cat", "sat", "unhappily", "dogs", "ran"]
_RANDOM = np.random.default_rng(0)
TEXTS = [" ".join(_RANDOM.choice(WORDS, _RANDOM.integers(2, 9))) for _ in range(60)]
MANY = np.array([len(text.split()) > 5 for text in TEXTS])
LAYER = "encoder.layer.0"


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    return BertModel(
        BertConfig(
            vocab_size=len(PIECES),
            hidden_size=12,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    ).eval()


def tokenizer(side="right"):
    return BertTokenizerFast(vocab={piece: i for i, piece in enumerate(PIECES)}, padding_side=side)


def encode(texts, side="right", **options):
    return dict(tokenizer(side)(list(texts), padding=True, return_tensors="pt") | options)


def ids(text):
    return tokenizer()(text)["input_ids"]


@pytest.fixture(scope="module")
def alone(bert):
    """Return the outputs of the layer for each text alone."""
    with torch.no_grad():
        return [bert(**encode([text])).last_hidden_state[0].numpy().astype(float) for text in TEXTS]


def correlations(values, labels):
    return [np.corrcoef(values[:, unit], labels)[0, 1] for unit in range(values.shape[1])]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch", [1, 7, 60])
def test_label_of_a_record_leaves_padding_out(bert, alone, batch, side):
    """BERT counts positions from the padding, so that on the left only a layer before that has a judge."""
    layer = LAYER if side == "right" else "embeddings.word_embeddings"
    table = inspect(
        bert, {"many": MANY}, "correlation", TEXTS, layer, inputs=lambda t: encode(t, side), batch=batch
    )
    weight = bert.embeddings.word_embeddings.weight.detach().numpy()
    values = alone if side == "right" else [weight[ids(text)] for text in TEXTS]
    want = correlations(np.array([one.mean(axis=0) for one in values]), MANY)
    np.testing.assert_allclose(table.value, want, atol=2e-5)
    assert set(table.note) == {""}


@pytest.mark.parametrize("engine", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_result_does_not_depend_on_the_order_of_records(bert, engine):
    order = np.random.default_rng(1).permutation(len(TEXTS))
    tables = [
        inspect(
            bert, {"many": MANY[at]}, "correlation", [TEXTS[i] for i in at], LAYER,
            inputs=encode, batch=16, engine=engine,
        )
        for at in (np.arange(len(TEXTS)), order)
    ]  # fmt: skip
    np.testing.assert_allclose(tables[0].value, tables[1].value, atol=2e-5)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch", [1, 7, 60])
def test_labels_of_tokens_are_put_on_the_positions_of_the_mask(bert, side, batch):
    table = inspect(
        bert,
        lambda text: [float(i) for i in ids(text)],
        "correlation",
        TEXTS,
        "embeddings.word_embeddings",
        inputs=lambda texts: encode(texts, side),
        batch=batch,
    )
    tokens = np.concatenate([ids(text) for text in TEXTS])
    want = correlations(bert.embeddings.word_embeddings.weight.detach().numpy()[tokens], tokens)
    np.testing.assert_allclose(table.value, want, atol=2e-5)
    assert table.n.eq(len(tokens)).all()


def test_types_are_put_on_the_positions_of_the_mask(bert):
    """The types are the labels, so that a control task of these types can be learned as well."""
    tables = [
        inspect(
            bert, lambda text: [float(i > 6) for i in ids(text)], "linear_selectivity", TEXTS,
            "embeddings.word_embeddings", types=ids, inputs=lambda t, side=side: encode(t, side),
        )
        for side in ("right", "left")
    ]  # fmt: skip
    assert tables[0].n.eq(tables[1].n).all()
    for table in tables:
        assert table.value.abs().max() < 0.1  # a layer with a vector of its own for each token


@pytest.mark.parametrize(
    "labels",
    [
        lambda text: [len(word) > 3 for word in text.split()],
        lambda text: [1] * (len(ids(text)) - 1),
        lambda text: [1] * (len(ids(text)) - 2),
    ],
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_labels_of_words_without_symbols_are_refused(bert, labels, side):
    with pytest.raises(InputError, match=r"by the attention_mask.*special tokens too\. Or pass symbols="):
        inspect(bert, labels, "correlation", TEXTS, LAYER, inputs=lambda texts: encode(texts, side))


def test_scores_of_a_whole_layer_of_padded_texts(bert):
    with pytest.raises(InputError, match=r"scores of the whole layer read the padding.*depend on batch="):
        inspect(bert, {}, "norm", TEXTS, LAYER, inputs=encode, batch=7)
    table = inspect(bert, {}, "norm", TEXTS, LAYER, inputs=encode)
    assert set(table.note) == {"padding counts as positions"}


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(128, 8), nn.LSTM(8, 6, batch_first=True)

    def forward(self, ids):
        return self.lstm(self.embed(ids))[0]


def pad(texts, side="ljust", length=None):
    length = length or max(map(len, texts))
    return torch.tensor([[ord(c) for c in getattr(text, side)(length)] for text in texts])


def is_vowel(text):
    return [c in "aeiou" for c in text]


@pytest.mark.parametrize("length", [None, 64])
def test_labels_of_characters_padded_at_the_end(length):
    torch.manual_seed(0)
    net = Reader()
    table = inspect(
        net, is_vowel, "correlation", TEXTS, "lstm", inputs=lambda texts: pad(texts, length=length), batch=7
    )
    with torch.no_grad():
        values = np.concatenate([net(pad([text]))[0].numpy() for text in TEXTS])
    np.testing.assert_allclose(
        table.value, correlations(values, np.concatenate([is_vowel(text) for text in TEXTS])), atol=2e-5
    )


def test_labels_of_characters_padded_at_the_start_are_refused():
    with pytest.raises(InputError, match=r"after the first .* are not all the same, as padding would be"):
        inspect(
            Reader(), is_vowel, "correlation", TEXTS, "lstm", inputs=lambda texts: pad(texts, side="rjust")
        )


@pytest.mark.parametrize("labels", [lambda text: [1, *is_vowel(text)][:-2], lambda text: text.split()])
def test_labels_of_another_length_than_their_record_are_refused(labels):
    with pytest.raises(
        InputError, match=r"labels for record 0, whose length is \d+, but 'lstm' has \d+ posi"
    ):
        inspect(Reader(), labels, "linear_f1", TEXTS, "lstm", inputs=pad)


def test_mean_over_positions_without_a_mask():
    with pytest.raises(InputError, match=r"means over positions include the padding.*depend on batch="):
        inspect(Reader(), {"many": MANY}, "correlation", TEXTS, "lstm", inputs=pad, batch=7)
    fixed = inspect(
        Reader(), {"many": MANY}, "correlation", TEXTS, "lstm", inputs=lambda texts: pad(texts, length=64)
    )
    assert set(fixed.note) == {"padding counts as positions"}


def test_mean_over_positions_of_single_records():
    """Records that run alone are not padded."""
    torch.manual_seed(0)
    net = Reader()
    table = inspect(net, {"many": MANY}, "correlation", TEXTS, "lstm", inputs=pad, batch=1)
    with torch.no_grad():
        values = np.array([net(pad([text]))[0].numpy().mean(axis=0) for text in TEXTS])
    np.testing.assert_allclose(table.value, correlations(values, MANY), atol=2e-5)
    assert set(table.note) == {""}


class Parts(nn.Module):
    """A model with a table of positions without records, and a layer that never runs."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 4), nn.Embedding(64, 4)
        self.unused, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, ids):
        return self.head(self.words(ids) + self.places(torch.arange(ids.shape[1])[None]))


@pytest.mark.parametrize("engine", [None, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("units", [None, ["words", "p*", "head"]])
def test_layers_that_cannot_be_read_are_left_out_unless_named(units, engine):
    net, ids = Parts(), np.random.default_rng(0).integers(0, 20, (40, 7))
    asked = {"small": lambda record: record < 9}, ["correlation"], ids
    table = inspect(net, *asked, units, batch=10, engine=engine)
    left = table[table.unit == -1]
    assert left.address.tolist() == ["places"] + ["unused"] * (units is None)
    assert left.value.isna().all()
    assert left.score.eq("correlation").all()
    assert left.note.str.startswith("left out: '").all()
    assert "has shape (1, 7, 4) for 10 records" in left.note.iloc[0]
    assert set(table[table.unit >= 0].address) == {"words", "head"}
    assert table[table.unit >= 0].n.eq(280).all()
    for named in ("places", ["words", "places"], "unused"):
        with pytest.raises((InputError, CaptureError), match=r"places|unused"):
            inspect(net, *asked, named, batch=10)


def test_labels_that_fit_no_layer_are_an_error():
    ids = np.random.default_rng(0).integers(0, 20, (40, 7))
    with pytest.raises(
        InputError, match=r"shape \(5,\) per record, but 'words' has positions of shape \(7,\)"
    ):
        inspect(Parts(), lambda record: record[:5], "correlation", ids)


def test_all_layers_of_bert(bert):
    table = inspect(bert, {"many": MANY}, "correlation", TEXTS, inputs=encode)
    assert table[table.unit < 0].address.tolist() == ["embeddings.position_embeddings"]
    missing = table[(table.unit >= 0) & table.value.isna()]
    assert set(missing.address) == {"embeddings.token_type_embeddings"}  # a constant


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 2, 16, 60])
def test_gradients_of_padded_texts(bert, batch):
    """A block without padding, such as a single record, runs other operations than one with padding."""
    table = inspect(
        bert,
        {"many": MANY},
        "correlation",
        TEXTS,
        LAYER,
        inputs=encode,
        batch=batch,
        behavior="gradient",
        output=lambda out: out.pooler_output[:, 0],
    )
    values = []
    for text in TEXTS:
        found = bert(**encode([text]), output_hidden_states=True)
        states = found.hidden_states[-1]
        gradient = torch.autograd.grad(found.pooler_output[0, 0], states)[0]
        values.append(gradient[0].double().numpy().mean(axis=0))
    np.testing.assert_allclose(table.value, correlations(np.array(values), MANY), atol=1e-4)


@pytest.mark.long
def test_tcav_of_padded_texts_does_not_depend_on_the_batch(bert):
    tables = [
        inspect(
            bert,
            {"many": MANY},
            "tcav",
            TEXTS,
            "encoder.layer.0.intermediate",
            inputs=encode,
            batch=batch,
            output=lambda out: out.pooler_output[:, 0],
        )
        for batch in (1, 16, 60)
    ]
    for table in tables[1:]:
        assert table.value.tolist() == pytest.approx(tables[0].value.tolist(), abs=1e-6)
        assert table.baseline.tolist() == pytest.approx(tables[0].baseline.tolist(), abs=1e-6)


def test_symbols_of_characters_padded_at_the_start_are_refused():
    def numbers(text):
        return list(range(len(text)))

    asked = Reader(), is_vowel, "correlation", TEXTS, "lstm"
    assert inspect(*asked, inputs=pad, symbols=numbers).n.eq(sum(map(len, TEXTS))).all()
    with pytest.raises(InputError, match=r"symbols gives \d+ positions for record \d+ and \d+ for another"):
        inspect(*asked, inputs=lambda texts: pad(texts, side="rjust"), symbols=numbers)
