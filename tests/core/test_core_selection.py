"""Resolution of addresses and selections in a graph."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intus.core.errors import AddressError, InputError
from intus.core.selection import resolve, select


@pytest.mark.parametrize(
    ("selection", "rows"),
    [
        ("all", list(range(8))),
        ("none", []),
        ("conv2d_1_1", [1, 3]),
        ("conv2d_1", [1, 3]),
        ("conv2d_1:2", [3]),
        ("body", [2, 4]),
        ("body:2", [4]),
        ("relu", [2, 4]),
        ("conv*", [1, 3]),
        ("body.*", [1, 3]),
        ("r???_1", [2, 4, 5]),
        (0, [1]),
        (-1, [6]),
        (slice(1, 3), [2, 3]),
        (lambda row: row % 2 == 0, [0, 2, 4, 6]),
        (["relu", 0, ["body:2"]], [1, 2, 4]),
        ((), []),
    ],
)
def test_select_accepts_every_form(graph, selection, rows):
    assert select(graph, selection) == rows


def test_predicates_receive_handle(graph):
    assert select(graph, lambda label: label.startswith("rand"), handle=graph.label) == [5]


def test_unknown_name_suggests_nearest_names(graph):
    with pytest.raises(AddressError, match=r"Net has no 'conv2d_2'\. Did you mean 'conv2d_1"):
        select(graph, "conv2d_2")
    with pytest.raises(AddressError, match=r"'body\.conv'"):
        resolve(graph, "body.convs")
    with pytest.raises(AddressError, match=r"has no 'xyz\*'"):
        select(graph, "xyz*")
    with pytest.raises(KeyError):
        resolve(graph, "zzz")


def test_ordinal_out_of_range_names_valid_range(graph):
    with pytest.raises(
        AddressError, match=r"\[6\] is out of range: there are 6 operations, so write -6 to 5"
    ):
        resolve(graph, 6)
    assert resolve(graph, -6) == [1]
    with pytest.raises(AddressError):
        resolve(graph, -7)


@pytest.mark.parametrize("key", [True, 1.5, None, b"relu"])
def test_invalid_key_type_is_refused(graph, key):
    with pytest.raises(InputError, match="An address must be a string or an int"):
        resolve(graph, key)


@pytest.mark.parametrize("selection", [1.5, None, [None]])
def test_invalid_selection_type_is_refused(graph, selection):
    with pytest.raises(InputError, match="A selection is"):
        select(graph, selection)


@given(st.data())
def test_list_selects_sorted_union(graph, data):
    names = st.sampled_from([*graph.names(), "relu", "add", "b*"])
    parts = data.draw(st.lists(names | st.integers(-6, 5), max_size=6))
    assert select(graph, parts) == sorted({row for part in parts for row in select(graph, part)})
