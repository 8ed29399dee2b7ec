"""Tests of the address grammar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intus.core.address import Address, UnitRange, Units, is_pattern, matches, split_units, tokens
from intus.core.errors import InputError, IntusError

calls = st.none() | st.integers(1, 10**6)
ends = st.none() | st.integers(-(10**6), 10**6)
ranges = st.builds(UnitRange, ends, ends, st.none() | st.integers(1, 9) | st.integers(-9, -1))
which = st.lists(st.integers(-(10**6), 10**6) | ranges, min_size=1, max_size=3).map(tuple)
units = st.lists(st.builds(Units, which, st.none() | st.integers(-5, 5)), max_size=3).map(tuple)


@pytest.mark.long
@given(st.text(), calls, units)
def test_parse_inverts_str_for_any_name(name, call, unit):
    address = Address(name, call, unit)
    assert Address.parse(str(address)) == address
    assert hash(Address.parse(str(address))) == hash(address)
    assert split_units(str(address)) == (address.place, unit)


@given(st.text(alphabet="ab:[]\\0123\n.,@-", max_size=12))
def test_str_of_parsed_address_parses_to_equal_address(text):
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
def test_distinct_addresses_have_distinct_strings(call, unit, other_call, other_unit, name, other_name):
    one, two = Address(name, call, unit), Address(other_name, other_call, other_unit)
    assert (one == two) == (str(one) == str(two))


def unit(*numbers, axis=None):
    return (Units(numbers, axis),)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("conv2d_3_7", ("conv2d_3_7",)),
        ("conv2d_3:2", ("conv2d_3", 2)),
        ("features.6[14]", ("features.6", None, unit(14))),
        ("features.6:2[0]", ("features.6", 2, unit(0))),
        ("conv1[3,5:8]", ("conv1", None, unit(3, UnitRange(5, 8)))),
        ("conv1[-1]", ("conv1", None, unit(-1))),
        ("ln_f[-1@1][:64]", ("ln_f", None, (*unit(-1, axis=1), *unit(UnitRange(None, 64))))),
        ("fc[::2@-1]", ("fc", None, unit(UnitRange(None, None, 2), axis=-1))),
        ("features.0.weight", ("features.0.weight",)),
        ("", ("",)),
        (":2", ("", 2)),
        (r"heads.a\:b:2", ("heads.a:b", 2)),
        (r"heads.a\[0\][3]", ("heads.a[0]", None, unit(3))),
    ],
)
def test_grammar_examples(text, parts):
    assert Address.parse(text) == Address(*parts)
    assert str(Address(*parts)) == text


@pytest.mark.parametrize(
    ("text", "position"), [("a:0", 1), ("a:b", 1), ("a[", 1), ("a[1]x", 4), ("a]", 1), ("a\\", 1)]
)
def test_syntax_error_names_text_and_position(text, position):
    with pytest.raises(InputError) as caught:
        Address.parse(text)
    assert repr(text) in str(caught.value)
    assert f"at character {position}." in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, IntusError)


@pytest.mark.parametrize("text", ["a[x]", "a[1@x]", "a[]", "a[1,]", "a[1:2:0]", "a[1.5]"])
def test_invalid_units_in_brackets_are_refused(text):
    for parse in (Address.parse, split_units):
        with pytest.raises(InputError, match=r"does not name units. Write \[3\]"):
            parse(text)


@pytest.mark.parametrize("text", ["a[", "a[1][", "a]1[", "a[1]x"])
def test_unbalanced_brackets_are_refused(text):
    with pytest.raises(InputError, match=r"is not an address. Write"):
        split_units(text)


NAMES = ["h", "h.0", "h.0.attn", "h.1.attn", "h.10", "a*b", "relu_1", "fc:2", ""]


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        ("*", ["h", "a*b", "relu_1", "fc:2", ""]),
        ("**", NAMES),
        ("h.*", ["h.0", "h.10"]),
        ("h.?", ["h.0"]),
        ("h.**", ["h.0", "h.0.attn", "h.1.attn", "h.10"]),
        ("h.*.attn", ["h.0.attn", "h.1.attn"]),
        ("**.attn", ["h.0.attn", "h.1.attn"]),
        ("**attn", ["h.0.attn", "h.1.attn"]),
        (r"a\*b", ["a*b"]),
        ("fc:*", ["fc:2"]),
        ("relu_?", ["relu_1"]),
        ("[hr]*", []),
    ],
)
def test_pattern_matching(pattern, want):
    assert [name for name in NAMES if matches(pattern, name)] == want


@given(st.lists(st.sampled_from(["a", "b", ".", "*", "**", "?"]), max_size=6), st.text("ab.", max_size=8))
def test_pattern_matching_equals_naive_matcher(parts, name):
    pattern = "".join(parts)

    def naive(rest, text):
        if not rest:
            return not text
        head, tail = rest[0], rest[1:]
        if head == "**.":  # nothing, or anything that ends with a dot
            return any(naive(tail, text[n:]) for n in range(len(text) + 1) if n == 0 or text[n - 1] == ".")
        if head in ("*", "**"):
            stop = len(text) if head == "**" else (text + ".").index(".")
            return any(naive(tail, text[n:]) for n in range(stop + 1))
        fits = text[:1] != "." if head == "?" else text[:1] == head
        return bool(text) and fits and naive(tail, text[1:])

    assert matches(pattern, name) == naive(tokens(pattern), name)


def test_escaped_wildcard_is_not_a_pattern():
    assert [is_pattern(text) for text in ("a*", "a?", r"a\*", r"a\\*", "a[1]")] == [
        True,
        True,
        False,
        True,
        False,
    ]
