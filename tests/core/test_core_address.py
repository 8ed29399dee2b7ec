"""One grammar for every place in a network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intus.core.address import Address
from intus.core.errors import InputError, IntusError

calls = st.none() | st.integers(1, 10**6)
units = st.none() | st.integers(0, 10**6)


@given(st.text(), calls, units)
def test_parse_undoes_str_for_any_name(name, call, unit):
    address = Address(name, call, unit)
    assert Address.parse(str(address)) == address


@given(st.text(alphabet="ab:[]\\0123\n.", max_size=12))
def test_whatever_parses_prints_as_something_that_parses_the_same(text):
    try:
        address = Address.parse(text)
    except InputError:
        return
    assert Address.parse(str(address)) == address


@given(
    calls,
    units,
    calls,
    units,
    st.text(alphabet="a:[]\\1", max_size=6),
    st.text(alphabet="a:[]\\1", max_size=6),
)
def test_different_addresses_never_look_the_same(call, unit, other_call, other_unit, name, other_name):
    one, two = Address(name, call, unit), Address(other_name, other_call, other_unit)
    assert (one == two) == (str(one) == str(two))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("conv2d_3_7", ("conv2d_3_7", None, None)),
        ("conv2d_3:2", ("conv2d_3", 2, None)),
        ("features.6[14]", ("features.6", None, 14)),
        ("features.6:2[0]", ("features.6", 2, 0)),
        ("features.0.weight", ("features.0.weight", None, None)),
        ("", ("", None, None)),
        (":2", ("", 2, None)),
        (r"heads.a\:b:2", ("heads.a:b", 2, None)),
        (r"heads.a\[0\][3]", ("heads.a[0]", None, 3)),
    ],
)
def test_examples_of_the_grammar(text, parts):
    assert Address.parse(text) == Address(*parts)
    assert str(Address(*parts)) == text


@pytest.mark.parametrize(
    ("text", "place"), [("a:0", 1), ("a:b", 1), ("a[", 1), ("a[-1]", 1), ("a[1]x", 4), ("a]", 1), ("a\\", 1)]
)
def test_an_error_names_the_text_and_the_place(text, place):
    with pytest.raises(InputError) as caught:
        Address.parse(text)
    assert repr(text) in str(caught.value)
    assert f"at character {place} stands" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, IntusError)
