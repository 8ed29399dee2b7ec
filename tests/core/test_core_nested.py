"""Search in nested containers, compared with a second implementation on random containers."""

from collections import OrderedDict, UserDict, deque, namedtuple
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


class Slots:
    __slots__ = ("first", "second")

    def __init__(self, first, second):
        self.first, self.second = first, second


def reference(value):
    """Return the integers in a container, one type of container after another."""
    if isinstance(value, int):
        return [value]
    if isinstance(value, Box | Slots):
        return reference(value.first) + reference(value.second)
    if isinstance(value, dict | UserDict):
        return [one for part in value.values() for one in reference(part)]
    if isinstance(value, tuple | list | deque):
        return [one for part in value for one in reference(part)]
    return []


containers = st.recursive(
    st.integers() | st.text(max_size=2) | st.none() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Box, inner, inner)
        | st.lists(inner, max_size=3).map(deque)
        | st.builds(Slots, inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(UserDict)
    ),
    max_leaves=8,
).filter(lambda value: depth(value) < 8)


def depth(value):
    if isinstance(value, Box | Slots):
        value = (value.first, value.second)
    if isinstance(value, dict | UserDict):
        value = tuple(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, tuple | list | deque) else 0


@given(containers)
def test_leaves_are_found_in_order(value):
    assert leaves(value, int) == reference(value)


@pytest.mark.parametrize("foreign", [{1, 2}, iter([1]), Box, "1", range(3), print])
def test_foreign_objects_are_not_searched(foreign):
    assert leaves([foreign], int) == []


class Sequence:
    """A sequence in all but name, as a cache of keys and values is."""

    def __init__(self):
        self.layers, self.size = [SimpleNamespace(keys=1), SimpleNamespace(keys=2)], 2.0

    def __len__(self):
        return len(self.layers)


def test_paths_of_objects():
    value = {"cache": Sequence(), "data": SimpleNamespace(x=3, _store={"y": 4})}
    assert list(paths(value, int)) == [
        ("cache.0.keys", 1),
        ("cache.1.keys", 2),
        ("data.x", 3),
        ("data.y", 4),
    ]


def test_objects_that_refer_to_each_other_are_searched_once():
    one, other = SimpleNamespace(n=1), SimpleNamespace(n=2)
    one.other, other.other = other, one
    assert leaves(one, int) == [1, 2]


def test_self_containing_list_terminates():
    endless: list = [1]
    endless.append(endless)
    assert set(leaves(endless, int)) == {1}


def test_unset_dataclass_field_is_none():
    box = Box(1, 2)
    del box.second
    assert leaves(OrderedDict(box=box), int) == [1]


def test_fields_are_read_without_running_code_of_the_class():
    """A configuration of transformers may raise when a field is read that differs between layers."""

    @dataclass
    class Config:
        size: int

        def __getattribute__(self, name):
            if name == "size":
                raise RuntimeError("it differs between layers")
            return super().__getattribute__(name)

    assert leaves({"config": Config(3)}, int) == [3]


@given(containers)
def test_paths_lead_to_leaves(value):
    assert [one for _, one in paths(value, int)] == leaves(value, int)
    if all(key and "." not in key for key in keys(value)):
        assert all(follow(value, path) == one for path, one in paths(value, int))


def keys(value):
    """Return every key: paths with an empty key, or a dot in a key, are ambiguous."""
    if isinstance(value, Box | Slots):
        value = [value.first, value.second]
    if isinstance(value, dict | UserDict):
        return [*value, *(key for part in value.values() for key in keys(part))]
    return [key for part in value for key in keys(part)] if isinstance(value, tuple | list | deque) else []


def follow(value, path):
    for step in path.split(".") if path else ():
        if isinstance(value, Box | Slots):
            value = getattr(value, step)
        else:
            value = value[step if isinstance(value, dict | UserDict) else int(step)]
    return value
