"""Hypotheses of records, of batches, of one parse, and of tables: labels against scipy and pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from intus.core.errors import InputError
from intus.inspection import hypotheses as labels_module
from intus.inspection import hypothesis, inspect
from intus.inspection.hypotheses import Labels, as_hypotheses

WORDS = ["the cat sat", "a dog ran off", "the end", "dogs and cats", "a b c d e f"] * 10
DETERMINERS = ("the", "a")


def encode(texts):
    longest = max(map(len, texts))
    return torch.tensor([[ord(c) for c in text.ljust(longest)] for text in texts])


def embedding():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(128, 4))


def labels_of(given, records, block=None):
    """Return the labels of all records, and the names, computed block by block."""
    labels = Labels(as_hypotheses(given, len(records)))
    size = block or len(records)
    parts = np.split(np.arange(len(records)), range(size, len(records), size))
    blocks = [labels.of(part, lambda part=part: [records[i] for i in part]) for part in parts]
    return blocks, labels.names


def is_vowel(text):
    return [c in "aeiou" for c in text]


def parse(text):
    """Return two hypotheses of the characters, of which a record may lack one."""
    found = {"vowel": is_vowel(text)}
    if "the" in text:
        found["the"] = [int(text.find("the") <= i < text.find("the") + 3) for i in range(len(text))]
    return found


def test_dict_is_many_hypotheses_and_a_missing_name_is_not_annotated():
    frame = inspect(embedding(), parse, "correlation", WORDS, "0", inputs=encode, batch=7)
    assert frame.target.drop_duplicates().tolist() == ["vowel", "the"]
    weight = embedding()[0].weight.detach().numpy().astype(float)
    for name in ("vowel", "the"):
        texts = [text for text in WORDS if name in parse(text)]
        truth = np.concatenate([parse(text)[name] for text in texts])
        for unit in range(4):
            got = frame[(frame.target == name) & (frame.unit == unit)].iloc[0]
            values = weight[[ord(c) for text in texts for c in text], unit]
            assert got.value == pytest.approx(stats.pearsonr(values, truth).statistic, abs=1e-6)
            assert got.n == len(truth)


@pytest.mark.parametrize("batch", [1, 3])
def test_blocks_without_an_annotation(batch):
    """A key that is missing in whole blocks, whose texts are shorter or longer than those before."""

    def some(text):
        return {"vowel": is_vowel(text)} if text[0] in "ta" and text != "the end" else {}

    frame = inspect(embedding(), [some, is_vowel], "correlation", WORDS, "0", inputs=encode, batch=batch)
    weight = embedding()[0].weight.detach().numpy().astype(float)
    for name, texts in (("vowel", [text for text in WORDS if some(text)]), ("is_vowel", WORDS)):
        truth = np.concatenate([is_vowel(text) for text in texts])
        values = weight[[ord(c) for text in texts for c in text], 2]
        got = frame[(frame.target == name) & (frame.unit == 2)].iloc[0]
        assert got.n == len(truth)
        assert got.value == pytest.approx(stats.pearsonr(values, truth).statistic, abs=1e-6)


def test_given_names_a_key_of_a_dict():
    model = embedding()
    frame = inspect(model, parse, "correlation", WORDS, "0", inputs=encode, given="vowel")
    assert set(frame.target) == {"the"}
    with pytest.raises(InputError, match=r"given='vowels' names no hypothesis\. Did you mean 'vowel'"):
        inspect(model, parse, "correlation", WORDS, "0", inputs=encode, given="vowels")


def test_names_that_clash_have_the_name_of_their_function():
    def other(text):
        return {"vowel": [0] * len(text), "space": [c == " " for c in text]}

    _, names = labels_of([parse, other, is_vowel], WORDS)
    assert names == ["parse.vowel", "the", "other.vowel", "space", "is_vowel"]
    _, names = labels_of({"p": parse, "space": is_vowel, "q": other}, WORDS)
    assert names == ["p.vowel", "the", "space", "q.vowel", "q.space"]
    with pytest.raises(InputError, match=r"Two hypotheses are called 'parse\.vowel'"):
        labels_of([parse, parse], WORDS)


def test_name_that_the_first_records_lack_is_refused():
    def rare(text):
        return {"vowel": is_vowel(text)} | ({"late": is_vowel(text)} if text.startswith("dogs") else {})

    with pytest.raises(InputError, match=r"'rare' returned 'late' for record 3, .* of the first records"):
        labels_of(rare, WORDS, block=2)
    declared = hypothesis(names=["vowel", "late"])(rare)
    blocks, names = labels_of(declared, WORDS, block=2)
    assert names == ["vowel", "late"]
    late = np.concatenate([part for block in blocks for part in block["late"]])
    assert np.nansum(late) == 10 * np.sum(is_vowel("dogs and cats"))
    assert np.isfinite(late).sum() == 10 * len("dogs and cats")
    wrong = hypothesis(names=["vowels", "late"])(lambda text: {"vowel": is_vowel(text)})
    with pytest.raises(InputError, match=r"not among the names that it declares\. Did you mean 'vowels'"):
        labels_of(wrong, WORDS)


def test_rows_for_declared_names():
    @hypothesis(names=["vowel", "space"])
    def rows(text):
        return np.array([is_vowel(text), [c == " " for c in text]])

    found, _ = labels_of(rows, WORDS, block=9)
    want, _ = labels_of({"vowel": is_vowel, "space": lambda text: [c == " " for c in text]}, WORDS, block=9)
    for ours, theirs in zip(found, want, strict=True):
        assert list(ours) == list(theirs) == ["vowel", "space"]
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
    with pytest.raises(InputError, match=r"declares 3 names, but returned an array of shape \(2, 11\)"):
        labels_of(hypothesis(names=["a", "b", "c"])(lambda text: rows(text)), WORDS)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda text: parse(text) if "the" in text else is_vowel(text),
            "a dict of labels for record 0 and no",
        ),
        (lambda text: {}, "an empty dict for each of the first 50 records"),
        (lambda text: None, "annotates none of the first records"),
        (lambda text: [[1, 2], [3]], "no regular shape for record 0"),
        (lambda text: {"a": {"b": 1}}, "'a' gave dict objects as labels for record 0"),
        (lambda text: 1 if text == "the end" else [1, 0], r"shape \(2,\) for record 0 and \(\) for record 2"),
    ],
)
def test_impossible_answers(function, words):
    with pytest.raises(InputError, match=words):
        labels_of(function, WORDS)


def test_labels_and_dicts_in_turn_are_refused():
    def changing(text):
        return is_vowel(text) if text != "the end" else {"vowel": is_vowel(text)}

    with pytest.raises(
        InputError, match="'changing' returned labels at first and a dict of labels for record 2"
    ):
        labels_of(changing, WORDS, block=1)


@pytest.mark.parametrize("block", [50, 7])
def test_batch_function_gives_the_labels_of_a_record_function(images, block):
    asked = []

    @hypothesis("ink", kind="binary", batch=True)
    def ink(batch):
        asked.append(batch.shape)
        return batch[:, 0] > 0.5

    found, _ = labels_of(ink, list(images[:50]), block)
    want, _ = labels_of({"ink": lambda image: image[0] > 0.5}, list(images[:50]), block)
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_array_equal(ours["ink"], theirs["ink"])
    assert sum(shape[0] for shape in asked) == 50
    assert len(asked) == -(-50 // block)


def test_batch_function_of_texts_with_many_hypotheses():
    @hypothesis(batch=True)
    def both(texts):
        return {"vowel": [is_vowel(text) for text in texts], "length": [len(text) for text in texts]}

    (found,), names = labels_of(both, WORDS)
    assert names == ["vowel", "length"]
    np.testing.assert_array_equal(found["length"], [len(text) for text in WORDS])
    np.testing.assert_array_equal(found["vowel"], labels_of({"vowel": is_vowel}, WORDS)[0][0]["vowel"])
    table = hypothesis(batch=True)(
        lambda texts: pd.DataFrame({"n": map(len, texts), "t": ["x"] * len(texts)})
    )
    (found,), names = labels_of(table, WORDS)
    assert names == ["n", "t"]
    np.testing.assert_array_equal(found["n"], [len(text) for text in WORDS])


def test_wrong_batch_functions_are_named():
    @hypothesis(batch=True)
    def short(texts):
        return [0] * (len(texts) - 1)

    with pytest.raises(
        InputError, match=r"'short' must return the labels of 7 records \(records 0 to 6\), got .* 6"
    ):
        labels_of(short, WORDS, 7)

    @hypothesis(batch=True)
    def broken(texts):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        labels_of(broken, WORDS, 7)
    assert error.value.__notes__ == ["in the hypothesis 'broken', on records 0 to 6"]


def test_batch_function_with_declared_names_must_return_a_dict():
    array = hypothesis(batch=True, names=["a", "b"])(lambda texts: np.zeros((len(texts), 2)))
    with pytest.raises(InputError, match="declares 2 names, but returned labels without names for record 0"):
        labels_of(array, WORDS)


def test_classes_of_blocks_of_different_types_are_one():
    """Booleans in one block, floats in the next, where a shorter record is padded."""
    texts = ["abcd"] * 40 + ["abc", "abca"] * 40
    frame = inspect(
        embedding(),
        {"a": lambda text: [c == "a" for c in text]},
        "linear_accuracy",
        texts,
        "0",
        inputs=encode,
        batch=40,
    )
    assert frame.value[0] == 1
    labels = Labels(as_hypotheses(lambda text: [c == "a" for c in text], 120))
    kinds = [
        labels.of(np.arange(i, i + 40), lambda i=i: texts[i : i + 40])["lambda_0"].dtype.kind for i in (0, 40)
    ]
    assert kinds == ["b", "f"]


def test_labels_take_a_name_and_a_kind():
    digit = hypothesis("digit", kind="categorical")(np.arange(50) % 3)
    (found,), names = labels_of(digit, WORDS)
    assert (names, found["digit"][:4].tolist()) == (["digit"], ["0", "1", "2", "0"])
    (found,), _ = labels_of({"d": hypothesis(kind="categorical")([1, None] * 25)}, WORDS)
    assert found["d"][:2].tolist() == ["1", None]
    with pytest.raises(InputError, match="'digit' is binary, but records 0 to 49 got more than 0 and 1"):
        labels_of(hypothesis("digit", kind="binary")(np.arange(50)), WORDS)
    with pytest.raises(InputError, match="'t' is real, but records 0 to 49 got strings"):
        labels_of(hypothesis("t", kind="real")(["x"] * 50), WORDS)


def test_name_of_a_whole_number_is_the_same_with_and_without_nan():
    """A record with a NaN has floats, one without has integers."""

    def digit(text):
        return [3, 4, np.nan] if text == "the end" else [3, 4, 5]

    (found,), _ = labels_of(hypothesis("d", kind="categorical")(digit), WORDS)
    assert {x for row in found["d"] for x in row} == {"3", "4", "5", None}


def test_nan_among_strings_is_not_annotated():
    (found,), _ = labels_of({"t": ["x", float("nan"), None, "nan", "y"] * 10}, WORDS)
    assert found["t"][:5].tolist() == ["x", None, None, "nan", "y"]

    def mixed(text):
        return [np.nan] * 3 if text == "the end" else ["a", "b", None]

    (found,), _ = labels_of(mixed, WORDS)
    assert {x for row in found["mixed"] for x in row} == {"a", "b", None}


@pytest.mark.parametrize(
    ("series", "want"),
    [
        (pd.Series([1, 2, 3, 4, 5] * 10, name="s"), [1, 2, 3, 4, 5]),
        (pd.Series([1, None, 3, 4, 5] * 10, name="s"), [1, np.nan, 3, 4, 5]),
        (pd.Series([1, None, 3, 4, 5] * 10, name="s", dtype="Int64"), [1, np.nan, 3, 4, 5]),
        (pd.Series([True, None, False, True, True] * 10, name="s", dtype="boolean"), [1, np.nan, 0, 1, 1]),
        (pd.Series(["a", None, "b", "c", "d"] * 10, name="s"), ["a", None, "b", "c", "d"]),
        (pd.Series(["a", None, "b", "c", "d"] * 10, name="s", dtype=object), ["a", None, "b", "c", "d"]),
        (pd.Series([7, None, 8, 8, 7] * 10, name="s", dtype="category"), ["7", None, "8", "8", "7"]),
        (pd.Series(["a", None, "b", "b", "a"] * 10, name="s", dtype="category"), ["a", None, "b", "b", "a"]),
    ],
    ids=["int", "float", "Int64", "boolean", "str", "object", "numbers as category", "category"],
)
def test_pandas_series(series, want):
    for given in (series, [series], {"s": series}, series.sample(frac=1, random_state=0).sort_index()):
        (found,), names = labels_of(given, WORDS)
        assert names == ["s"]
        np.testing.assert_array_equal(found["s"][:5], np.array(want, dtype=found["s"].dtype))
    (found,), _ = labels_of({"s": series.to_frame()}, WORDS)
    np.testing.assert_array_equal(found["s"][:5], np.array(want, dtype=found["s"].dtype))


def test_pandas_frame_is_a_hypothesis_for_each_column():
    records = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    frame = pd.DataFrame(
        {"low": records[:, 0] < 0, "b": records[:, 1], "c": records[:, 2] ** 2}, index=range(9, 69)
    )
    frame.loc[9:18, "b"] = np.nan
    net = nn.Sequential(nn.Linear(4, 3))
    got = inspect(net, frame, "correlation", records, "0")
    assert got.target.drop_duplicates().tolist() == ["low", "b", "c"]
    want = pd.DataFrame(net(torch.from_numpy(records)).detach().numpy().astype(float), index=frame.index)
    for row in got.itertuples():
        assert row.value == pytest.approx(want[row.unit].corr(frame[row.target].astype(float)), abs=1e-6)
        assert row.n == frame[row.target].count()
    with pytest.raises(InputError, match="'labels_0' have 60 entries, but there are 50 records"):
        inspect(net, frame, "correlation", records[:50], "0")
    with pytest.raises(InputError, match="columns of different names"):
        inspect(net, pd.concat([frame, frame], axis=1), "correlation", records, "0")


def test_labels_of_different_length_as_a_list():
    tags = [["D" if word in DETERMINERS else "N" for word in text.split()] for text in WORDS]
    (found,), _ = labels_of({"tag": tags}, WORDS)
    assert [[x for x in row if x is not None] for row in found["tag"]] == tags
    (found,), names = labels_of({"parse": [parse(text) for text in WORDS]}, WORDS)
    assert names == ["vowel", "the"]
    with pytest.raises(InputError, match="'tag' have 49 entries"):
        labels_of({"tag": tags[1:]}, WORDS)


def test_methods_and_builtins_take_a_declaration():
    (found,), names = labels_of([hypothesis("length")(len), hypothesis("up")(str.isupper)], WORDS)
    assert names == ["length", "up"]
    np.testing.assert_array_equal(found["length"], [len(text) for text in WORDS])


def test_cache_is_bounded_and_what_does_not_fit_is_computed_again(monkeypatch):
    monkeypatch.setattr(labels_module, "_CACHE", 2 * 10 * 5 * 8)  # two blocks of ten records
    asked = []

    def five(text):
        asked.append(text)
        return np.arange(5)

    labels = Labels(as_hypotheses(five, 50))
    for _ in range(3):
        for start in range(0, 50, 10):
            block = labels.of(np.arange(start, start + 10), lambda start=start: WORDS[start : start + 10])
            np.testing.assert_array_equal(block["five"], np.tile(np.arange(5), (10, 1)))
    assert len(asked) == 50 + 2 * 30
    assert sum(one.values.nbytes for block in labels._blocks.values() for one in block.values()) == 800


def test_types_of_several_names_are_refused():
    with pytest.raises(
        InputError, match=r"types must give one type per symbol, got several: \['vowel', 'the'\]"
    ):
        inspect(embedding(), is_vowel, "linear_selectivity", WORDS, "0", inputs=encode, types=parse)


def test_masked_array_of_labels(linear, images, seven, outputs):
    masked = np.ma.array(seven, mask=np.arange(len(seven)) % 2 == 0)
    table = inspect(linear, {"seven": masked}, "correlation", images, "1")
    expected = [np.corrcoef(unit[1::2], seven[1::2])[0, 1] for unit in outputs.T]
    np.testing.assert_allclose(table.value, expected, atol=1e-6)
    assert table.n.eq(len(seven) // 2).all()


def test_pandas_labels_with_another_index(linear, images, seven, outputs):
    frame = pd.DataFrame(images.reshape(len(images), -1))
    labels = pd.Series(seven).sample(frac=1, random_state=0)
    with pytest.raises(InputError, match=r"another index than data. Write labels.loc\[data.index\]"):
        inspect(linear, {"seven": labels}, "correlation", frame, "1")
    table = inspect(linear, {"seven": labels.loc[frame.index]}, "correlation", frame, "1")
    expected = [np.corrcoef(unit, seven)[0, 1] for unit in outputs.T]
    np.testing.assert_allclose(table.value, expected, atol=1e-6)
