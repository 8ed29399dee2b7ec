"""One rule for where values are found, against a second implementation on random containers."""

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intus.core.nested import leaves, paths

Pair = namedtuple("Pair", "first second")


@dataclass
class Box:
    first: object
    second: object


def slowly(value):
    """By the rule as it is written down, one case after another."""
    if isinstance(value, int):
        return [value]
    if isinstance(value, Box):
        return slowly(value.first) + slowly(value.second)
    if isinstance(value, dict | UserDict):
        return [one for part in value.values() for one in slowly(part)]
    if isinstance(value, tuple | list):
        return [one for part in value for one in slowly(part)]
    return []


containers = st.recursive(
    st.integers() | st.text(max_size=2) | st.none() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Box, inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(UserDict)
    ),
    max_leaves=8,
).filter(lambda value: depth(value) < 8)


def depth(value):
    if isinstance(value, Box):
        value = (value.first, value.second)
    if isinstance(value, dict | UserDict):
        value = tuple(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, tuple | list) else 0


@given(containers)
def test_everything_is_found_in_order(value):
    assert leaves(value, int) == slowly(value)


@pytest.mark.parametrize("foreign", [SimpleNamespace(a=1), {1, 2}, iter([1]), Box, "1", range(3)])
def test_foreign_objects_are_not_looked_into(foreign):
    assert leaves([foreign], int) == []


def test_a_container_that_holds_itself_has_an_end():
    endless: list = [1]
    endless.append(endless)
    assert set(leaves(endless, int)) == {1}


def test_a_field_that_was_never_set_is_none():
    box = Box(1, 2)
    del box.second
    assert leaves(OrderedDict(box=box), int) == [1]


@given(containers)
def test_a_path_leads_to_each(value):
    assert [one for _, one in paths(value, int)] == leaves(value, int)
    if all(key and "." not in key for key in keys(value)):
        assert all(follow(value, path) == one for path, one in paths(value, int))


def keys(value):
    """Every key in it: an empty one, or a dot in one, would be read otherwise."""
    if isinstance(value, Box):
        value = [value.first, value.second]
    if isinstance(value, dict | UserDict):
        return [*value, *(key for part in value.values() for key in keys(part))]
    return [key for part in value for key in keys(part)] if isinstance(value, tuple | list) else []


def follow(value, path):
    for step in path.split(".") if path else ():
        if isinstance(value, Box):
            value = getattr(value, step)
        else:
            value = value[step if isinstance(value, dict | UserDict) else int(step)]
    return value
