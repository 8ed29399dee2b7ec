"""Matching of labels to rows."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_help import point, record, target_of

from intus.core.errors import CodecError, InputError
from intus.serving.decoding import decode
from intus.serving.errors import MisfitError
from intus.serving.evaluation.targets import Target, coverage, fit
from intus.serving.messages import TargetRequest
from intus.storage.codec import decode_records, encode_records


def target(labels, **facts):
    return target_of({"name": "digit", "targets": labels} | facts)


def test_labels_matched_by_order_of_arrival():
    blocks, *_ = fit(target([5, 6, 7, 8, 9]), point(record(2), record(3)))
    assert [block.tolist() for block in blocks] == [[5, 6], [7, 8, 9]]


def test_different_number_of_rows_and_labels_is_refused():
    with pytest.raises(
        MisfitError,
        match=r"'digit' has 3 labels, but 'fc1' of 'm' \(output in mode train\) sent 4 rows without item ids",
    ):
        fit(target([1, 2, 3]), point(record(4)))


def test_several_epochs_as_one_name_the_epoch():
    with pytest.raises(MisfitError, match=r"probe_set.*If these are 4 epochs.*watch\.epoch in range\(4\)"):
        fit(target([1, 2, 3]), point(*(record(3) for _ in range(4))))


def test_labels_matched_by_item_id():
    blocks, *_ = fit(
        target(list("abcd")), point(record(2, items=np.array([3, 0])), record(1, items=np.array([3])))
    )
    assert [block.tolist() for block in blocks] == [["d", "a"], ["d"]]


def test_item_id_beyond_labels_is_refused():
    with pytest.raises(
        MisfitError,
        match=r"2 labels, for items 0 to 1, but 'fc1' of 'm' \(output in mode train\) sent item ids 1 to 7",
    ):
        fit(target([1, 2]), point(record(2, items=np.array([1, 7]))))
    with pytest.raises(
        MisfitError, match=r"1 of the 2 rows of 'fc1' of 'm' \(output in mode train\) have no item ids"
    ):
        fit(target([1, 2]), point(record(2, items=np.array([-1, 0]))))


def test_item_ids_on_some_records_only_are_refused():
    with pytest.raises(
        MisfitError, match=r"1 of the 2 arrays of 'fc1' of 'm' \(output in mode train\) have item ids"
    ):
        fit(target([1, 2]), point(record(1, items=np.array([0])), record(1)))


@given(st.permutations(range(12)), st.sets(st.integers(1, 11), max_size=4))
def test_shuffled_item_ids_match_labels(order, cuts):
    batches = np.split(np.array(order), sorted(cuts))
    labels = [f"label {number}" for number in range(12)]
    blocks, *_ = fit(target(labels), point(*(record(len(ids), items=ids) for ids in batches)))
    assert [label for block in blocks for label in block] == [f"label {number}" for number in order]


@given(st.text(max_size=40))
def test_pattern_from_re_escape_matches_name(name):
    name = name.replace("\0", "")
    chosen = target([1] * 4, run_pattern=f"^{re.escape(name)}$")
    assert chosen.applies(point(record(run=name)))
    assert not chosen.applies(point(record(run=f"{name}!")))


def test_exponential_pattern_ends_in_bounded_time():
    chosen = target([1] * 4, layer_pattern="(a+)+$", model_pattern="(a|a)*$", run_pattern="(.*)*!")
    long = "a" * 999 + "!"  # of 40 letters Python's own engine would take hours
    assert not chosen.applies(point(record(address=long, run=long)))


def test_patterns_select_models_and_layers():
    chosen = target([1] * 4, model_pattern="^m$", layer_pattern="conv|fc")
    assert chosen.applies(point(record(address="features.conv1")))
    assert not chosen.applies(point(record(address="relu")))
    assert not chosen.applies(point(record(model="mm")))
    assert not chosen.applies(point(record(kind="parameter", batch_axis=None)))


def test_label_per_position():
    words = target([["a", "b", None], ["c"], None])
    array = np.zeros((3, 3, 5), np.float32)
    ((block,), *_) = fit(words, point(record(array=array)))
    assert block.tolist() == [["a", "b", None], ["c", None, None], [None, None, None]]
    ((block,), *_) = fit(
        words, point(record(array=np.zeros((3, 3, 5), np.float32), batch_axis=1, items=np.array([1, 1, 0])))
    )
    assert block.tolist() == [["c", None, None], ["c", None, None], ["a", "b", None]]
    for positions in (1, 2, 4, 6):  # a layer of another length, whatever is missing at the end
        with pytest.raises(MisfitError, match="'digit' has labels for"):
            fit(words, point(record(array=np.zeros((3, positions, 5), np.float32))))


def test_groups_and_types_follow_item_ids_and_positions():
    words = target([["a", "b"], ["c"], None], groups=["x", "y", "x"], types=[[7, 8], [9], []])
    array = np.zeros((3, 2, 5), np.float32)
    (_, (groups,), (types,)) = fit(words, point(record(array=array, items=np.array([1, 0, 2]))))
    assert groups[1] == groups[2] != groups[0]
    assert types.tolist() == [[9, -1], [7, 8], [-1, -1]]
    again = Target.parse(words.request())
    assert again.says_the_same(words)
    assert again.hold_out == words.hold_out
    assert not target([["a", "b"], ["c"], None], groups=[0, 1, 1]).says_the_same(words)
    assert fit(target([1, 2, 3]), point(record(3)))[1:] == (None, None)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"groups": [1]}, r"labels of shape \(3,\), but 1 groups, single ids. Give one for each item"),
        ({"groups": [1, None, 2]}, r"no id in groups at \[1\]"),
        ({"types": [1, 2]}, r"labels of shape \(3,\), but 2 types, single ids. Give one for each label"),
        ({"types": [1, None, 3]}, r"no id in types at \[1\]"),
        ({"targets": [["a", "b"], [], []], "types": [[1], [], []]}, r"no id in types at \[0, 1\]"),
        ({"targets": [["a"], [], []], "types": [[1, 2], [], []]}, "for 1 positions, but types for 2"),
        ({"targets": [["a", "b"], [], []], "types": [1, 2, 3]}, "3 types, single ids"),
        ({"groups": [1.5, 2, 3]}, "an id: a whole number or a string"),
    ],
)
def test_groups_and_types_that_do_not_fit(facts, message):
    with pytest.raises((InputError, CodecError), match=message):
        target_of({"name": "digit", "targets": [1, 2, 3]} | facts)


def test_labels_of_fewer_positions_are_refused_unless_none_is_written_for_the_others():
    """Labels of a translation do not fit the source, nor labels of tokens a layer with a token in front."""
    where = point(record(array=np.ones((2, 4, 3)), items=np.arange(2)))
    with pytest.raises(
        MisfitError, match=r"for 3 positions of every item, but 'fc1' of 'm' \(output in mode train\) has 4"
    ):
        fit(target([["a", "b", "c"], ["b", "c", "a"]]), where)
    for missing in (
        [["a", "b", "c"], ["b", "c"]],
        [["a", "b", "c"], ["b", "c", None]],
        [[1, 0, 1], [0, 1, -100]],
    ):
        with pytest.raises(MisfitError, match="for 3 positions of every item, but 'fc1'"):
            fit(target(missing), where)
    full = target([["a", "b", "c", None], ["b", "c", "a", None]])
    assert fit(full, where).labels[0].tolist() == [["a", "b", "c", None], ["b", "c", "a", None]]
    by_number = "positions are matched by their number alone: no label at the last of 4"
    assert coverage(full, where) == by_number
    assert coverage(target([["a", "b", "c", "a"], ["b"]]), where) == ""


@pytest.mark.parametrize("shape", [(3, 1, 5), (3, 5), (3, 2, 2, 2)])
def test_labels_for_more_positions_are_refused(shape):
    with pytest.raises(
        MisfitError,
        match=r"up to 2 positions of an item, but 'fc1' of 'm' \(output in mode train\) sent arrays of shape",
    ):
        fit(target([["a", "b"], ["c"], ["d"]]), point(record(array=np.zeros(shape, np.float32))))


@pytest.mark.parametrize(
    ("labels", "kind"), [([1, 2], "i"), ([0.5, 1.0], "f"), ([True, False], "b"), (["a", "bc"], "U"),
                         ([1, None], "O"), ([2**70, 1], "O"), ([1, "a"], "O"), ([True, 2], "O")],
)  # fmt: skip
def test_label_types_are_kept(labels, kind):
    parsed = target(labels)
    assert parsed.labels.dtype.kind == kind
    assert parsed.labels.tolist() == labels


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({"targets": []}, "targets must be a list of labels, .*not empty, got a list of 0"),
        ({"targets": "abc"}, "targets must be a list of labels, .*, got 'abc'"),
        ({"targets": None}, "targets must be a list of labels, .*, got null"),
        ({"targets": [None, None]}, "2 labels, and all of them are null"),
        ({"targets": [[], [None]]}, "all of them are null"),
        ({"targets": [1, [2]]}, "mixes single labels with lists"),
        ({"targets": [[[1]]]}, r"targets\[0\]\[0\] must be a label \(a number, .*, got a list of 1"),
        ({"targets": [{}]}, r"targets\[0\] must be a label \(.*, got an object of 0"),
        ({"targets": ["a\0"]}, "'digit' has a label with a NUL character"),
        ({"targets": [["a"], ["b\0"]]}, "'digit' has a label with a NUL character"),
        ({"name": ""}, r"name must be a string .* that is not empty \(the target's name.*, got ''"),
        ({"name": 3}, r"name must be a string .*, got 3\.$"),
        ({"name": "x" * 1001}, "name must be a string of at most 1,000 characters .* of 1,003 characters"),
        ({"model_pattern": "("}, r"model_pattern='\(' of target 'digit' is not a regular expression"),
        ({"layer_pattern": None}, r"layer_pattern must be a string .*RE2's syntax\), got null"),
        ({"run_pattern": "a(?!b)"}, r"bounded time: invalid perl operator: \(\?!\. Lookarounds"),
        ({"layer_pattern": "(x{1000}){1000}"}, "layer_pattern=.* invalid repetition size"),
    ],
)
def test_invalid_targets_are_refused(facts, complaint):
    with pytest.raises(InputError, match=complaint):
        target_of({"name": "digit", "targets": [1]} | facts)


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        (b"[1, 1e999]", r"targets\[1\] must be a label .*, got inf"),
        (b"[1, NaN]", "NaN is not JSON; write null"),
        (b"[-Infinity]", "-Infinity is not JSON; write null"),
        (rb'["\ud800"]', "half a surrogate pair"),
        (b"[1,", "Malformed JSON: Expecting value"),
    ],
)
def test_malformed_json_labels_are_refused(labels, complaint):
    with pytest.raises((InputError, CodecError), match=complaint):
        decode(b'{"name": "digit", "targets": ' + labels + b"}", TargetRequest)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([3, -100, 0, None], [3, None, 0, None]),
        ([[1, -100], [-100, 0]], [[1, None], [None, 0]]),
        ([3, -100, -1], [3, -100, -1]),  # a measurement: classes are numbered from 0
        ([3.0, -100.0, 0.0], [3.0, None, 0.0]),
        ([3.5, -100.0], [3.5, -100.0]),
        (["a", "-100"], ["a", "-100"]),
        ([True, -100], [True, -100]),
    ],
)
def test_ignore_index_is_no_label(given, kept):
    assert target(given).labels.tolist() == kept
    again = target(target(given).labels.tolist())
    assert again.labels.tolist() == kept


def test_target_of_ignored_labels_only_is_refused():
    with pytest.raises(InputError, match="all of them are null"):
        target([-100, -100])


RAGGED = [["a", "b", "c"], ["b"], [], ["c", "a"]]


def arrays(*shapes_and_items):
    return point(*(record(array=np.ones(shape), items=np.array(ids)) for shape, ids in shapes_and_items))


def test_lists_of_different_lengths_belong_to_the_first_positions():
    words = target(RAGGED, exact=True, types=[[1, 2, 3], [2], [], [3, 1]])
    where = arrays(((2, 3, 5), [1, 0]), ((2, 2, 5), [3, 2]))
    blocks, _, types = fit(words, where)
    assert [block.tolist() for block in blocks] == [
        [["b", None, None], ["a", "b", "c"]],
        [["c", "a"], [None, None]],
    ]
    assert types is not None
    assert types[0].tolist() == [[2, -1, -1], [1, 2, 3]]
    again = Target.parse(words.request())
    assert again.says_the_same(words)
    assert words.request().targets == RAGGED
    assert not target(RAGGED).says_the_same(words)
    fit(words, arrays(((1, 3, 5), [1]), ((2, 2, 5), [3, 2])))  # a part of the first batch alone


@pytest.mark.parametrize(
    "where",
    [
        arrays(((2, 5, 4), [1, 0]), ((2, 4, 4), [3, 2])),  # two special tokens
        arrays(((4, 8, 4), [0, 1, 2, 3])),  # padded to a fixed length
        arrays(((2, 3, 4), [1, 0]), ((1, 1, 4), [3])),  # cut
        arrays(((4, 3), [0, 1, 2, 3])),  # no positions
    ],
)
def test_lists_that_are_not_as_long_as_the_items_are_refused(where):
    with pytest.raises(MisfitError, match=r"'digit' has lists of labels of different lengths, up to \d for"):
        fit(target(RAGGED, exact=True), where)


PADDED = [["a", "b", "c"], ["b", None, None], [None, None, None], ["c", "a", None]]


def test_lists_of_one_length_fit_batches_that_are_padded_to_their_longest_item():
    where = arrays(((2, 3, 5), [1, 0]), ((2, 2, 5), [3, 2]))
    blocks, *_ = fit(target(PADDED), where)
    assert [block.tolist() for block in blocks] == [
        [["b", None, None], ["a", "b", "c"]],
        [["c", "a"], [None, None]],
    ]
    assert coverage(target(PADDED), where) == ""


@pytest.mark.parametrize(
    ("where", "positions"),
    [
        (arrays(((2, 4, 5), [1, 0]), ((2, 3, 5), [3, 2])), "3 to 4"),  # a token in front
        (arrays(((1, 2, 5), [1]), ((2, 3, 5), [3, 2])), "2 to 3"),  # the same without the longest item
        (arrays(((1, 1, 5), [1]), ((2, 2, 5), [3, 2])), "1 to 2"),  # without the longest item, as they are
        (arrays(((3, 2, 5), [1, 2, 3])), "2"),
        (arrays(((4, 6, 5), [0, 1, 2, 3])), "6"),  # doubled
    ],
)
def test_lists_of_one_length_do_not_fit_other_widths(where, positions):
    with pytest.raises(
        MisfitError, match=rf"for 3 positions of every item, but 'fc1' .* has {positions}, and nobody"
    ):
        fit(target(PADDED), where)


@pytest.mark.parametrize("exact", [True, False])
def test_probe_set_is_one_batch(exact):
    """Take the first rows of a batch, which are padded to the longest item of all."""
    words = target(RAGGED, exact=exact, client="me/probe set of r")
    assert fit(words, arrays(((2, 3, 5), [1, 3]))).labels[0].tolist() == [["b", None, None], ["c", "a", None]]
    with pytest.raises(MisfitError, match="'digit' has l"):
        fit(words, arrays(((2, 2, 5), [1, 3])))  # a layer without the first position


def test_axis_that_is_as_long_as_that_of_positions_is_noted():
    words = target([["a", "b", "c"]] * 4)
    square = "positions are assumed to be along axis {}: axis {} is as long"
    assert coverage(words, arrays(((4, 3, 3), [0, 1, 2, 3]))) == square.format(1, 2)
    assert coverage(words, arrays(((4, 3, 5), [0, 1, 2, 3]))) == ""
    time_first = record(array=np.ones((3, 4, 3)), batch_axis=1, items=np.arange(4))
    assert coverage(words, point(time_first)) == square.format(0, 2)


def test_channels_first_have_no_positions():
    words, conv = target([["a", "b", "c"]] * 4), record(array=np.ones((4, 3, 5)), channels_first=True)
    again, _ = decode_records(encode_records([conv]))
    for where in (point(conv), point(*again)):
        with pytest.raises(
            MisfitError, match=r"'fc1' of 'm' .* has channels along axis 1.*transpose\(1, 2\)"
        ):
            fit(words, where)
        assert fit(target([1, 2, 3, 4]), where).labels[0].tolist() == [1, 2, 3, 4]
    assert point(conv).digest() != point(record(array=np.ones((4, 3, 5)))).digest()
