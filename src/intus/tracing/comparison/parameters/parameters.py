"""Compare the parameters of operations of two passes that need not be of one framework."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.graph import BUFFER, CONSTANT, Param
from ....core.vocabularies import common_type
from ....core.vocabularies.families import CONVOLUTIONS
from ....core.vocabularies.roles import role_of
from ....viewing.repr_text import listed
from ..values.differences import Difference, difference, rounding
from ..values.elements import Elements, plain, value_of
from .orientation import TRANSPOSED, Turn, turn
from .recurrent import unpacked

if TYPE_CHECKING:
    from ...results.trace import Trace
    from ..pairing.modules import ModulePair

#: Operations that add a parameter.
_SUMS = frozenset({"add", "sub", "subtract", "add_to_channels"})
#: The beginning of the sentence on parameters that cannot be compared one by one.
COMBINED = "other parameters are combined there"


class UsedParameters:
    """The parameters of operations of two passes that compute the same.

    They correspond if they have the same address, or else if no others have the same role or name in their
    modules or, if their names tell no two roles, the same lengths.

    Attributes:
        both: The addresses of those that correspond.
        left_a: The addresses of the others of ``a``.
        left_b: The addresses of the others of ``b``.

    Args:
        a: The first trace.
        rows_a: The rows of its operations.
        b: The second trace.
        rows_b: The rows of its operations.
    """

    def __init__(self, a: Trace, rows_a: Iterable[int], b: Trace, rows_b: Iterable[int]) -> None:
        self._a, self._b, self._rows_a, self._rows_b = a, b, [*rows_a], [*rows_b]
        self.both, self.left_a, self.left_b = _partners(_used(a, self._rows_a), _used(b, self._rows_b))

    def different(self) -> list[str]:
        """Return how they differ, as sentences.

        Where one side has combined several (a batch norm folded into a convolution), that is all that is
        said. Frameworks store weights in other orders of their axes: a square matrix is compared in the order
        in which both use it, as far as that is known, and anything else in the nearest.
        """
        a, b, left_a, left_b = self._a, self._b, self.left_a, self.left_b
        if (of_layers := _different_of_layers(a, left_a, b, left_b)) is not None:
            return of_layers
        sides = [f"{listed(names)} in {name}" for name, names in (("a", left_a), ("b", left_b)) if names]
        combined = [f"{COMBINED} ({', '.join(sides)}), so they are not compared one by one"] if sides else []
        left = left_a or left_b
        # If the other side uses no parameters at all, and is no file, it has combined none.
        is_alone = not self.both and not {"format"} & {*a.graph.facts, *b.graph.facts}
        if len(sides) == 2 or not (is_alone or all(_own_name(address) == "bias" for address in left)):
            return combined
        values = [(one, other, value_of(a, one), value_of(b, other)) for one, other in self.both]
        sentences = (
            _difference(one, b, other, x, y, _turn(a, one, b, other, x))
            for one, other, x, stored in values
            if x is not None and stored is not None and x.is_float == stored.is_float
            for y in _as_stored(a, x, b, stored)
        )
        found = [sentence for sentence in sentences if sentence]
        own, other, with_it, without = ("a", "b", a, b) if left_a else ("b", "a", b, a)
        is_unknown = any(x is None or y is None for *_, x, y in values)
        if left and (found or is_unknown or not all(_lacks(without, with_it, address) for address in left)):
            return combined
        return [*found, *(f"{address} of {own} has no counterpart in {other}" for address in left)]

    def are_apart(self) -> bool:
        """Return whether any that correspond are known to differ by more than rounding."""
        values = ((value_of(self._a, one), value_of(self._b, other)) for one, other in self.both)
        return any(_are_others(x, y) for x, y in values if x is not None and y is not None)

    def unknown(self) -> list[str]:
        """Return those whose values are not known, as sentences; none if not all correspond."""
        if self.left_a or self.left_b:
            return []
        found = []
        for one, other in self.both:
            unknown = [
                name
                for name, trace, address in (("a", self._a, one), ("b", self._b, other))
                if value_of(trace, address) is None
            ]
            if unknown:
                holds = (
                    "neither trace holds its values"
                    if len(unknown) == 2
                    else f"the trace of {unknown[0]} does not hold its values"
                )
                found.append(f"{_both(one, other)} may differ: {holds}")
        return found

    def without_counterpart(self) -> tuple[list[str], list[str]]:
        """Return the addresses of those that only one side has, of either side.

        Empty if both sides have such, or others of their parameters differ: one may have combined several, as
        a batch norm is folded into a convolution. Where values of others are unknown, only what is added
        counts.
        """
        left = self.left_a or self.left_b
        if not left or (self.left_a and self.left_b):
            return [], []
        values = [(value_of(self._a, one), value_of(self._b, other)) for one, other in self.both]
        known = [(x, y) for x, y in values if x is not None and y is not None]
        if any(_are_others(x, y) for x, y in known):
            return [], []
        sides = (self._a, self._rows_a), (self._b, self._rows_b)
        (own, rows), (other, _) = sides if self.left_a else sides[::-1]
        if len(known) < len(values) and not all(_is_added(own, rows, address) for address in left):
            return [], []
        found = [address for address in left if _has_fewer(other, own, address)]
        return (found, []) if self.left_a else ([], found)


def _is_added(trace: Trace, rows: Iterable[int], address: str) -> bool:
    """Return whether some operations only add a parameter, as far as its name or their types tell."""
    users = [row for row in rows if address in {param.address for param in _used(trace, [row])}]
    return _own_name(address) == "bias" or all(common_type(trace.graph, row) in _SUMS for row in users)


def _are_others(x: Elements, y: Elements) -> bool:
    apart = nearest(x, y)
    return apart is not None and apart.relative > rounding(x, y)


def _has_fewer(trace: Trace, other: Trace, address: str) -> bool:
    """Return whether a pass has fewer parameters of the values that one of another pass has, or may have."""
    own = value_of(other, address)
    if own is None:
        return True
    counts = [
        sum(
            (value := value_of(one, param.address)) is not None
            and (apart := nearest(own, value)) is not None
            and apart.relative <= rounding(own, value)
            for param in one.graph.params
        )
        for one in (trace, other)
    ]
    return counts[0] < counts[1]


def _different_of_layers(a: Trace, left_a: list[str], b: Trace, left_b: list[str]) -> list[str] | None:
    """Return how the parameters of recurrent layers differ, which a file packs, as sentences.

    Args:
        a: The first trace.
        left_a: The addresses of its parameters that none of the other's corresponds to.
        b: The second trace.
        left_b: The addresses of the other's.

    Returns:
        The sentences; None if not all of these are those of recurrent layers.
    """
    if not (left_a and left_b):
        return None
    if a.graph.facts.get("format") == "ONNX":
        packed = {
            (name, address): (value_of(b, address), one) for address, (name, one) in unpacked(b, a).items()
        }
    else:
        packed = {
            (address, name): (value_of(a, address), one) for address, (name, one) in unpacked(a, b).items()
        }
    pairs = [pair for pair in packed if pair[0] in left_a and pair[1] in left_b]
    if {one for one, _ in pairs} != {*left_a} or {other for _, other in pairs} != {*left_b}:
        return None
    values = [(pair, packed[pair][0], plain(packed[pair][1])) for pair in pairs]
    if any(x is None or y is None for _, x, y in values):
        return None
    sentences = (
        _difference(one, b, other, x, y, _as_it_is(x))
        for (one, other), x, y in values
        if x is not None and y is not None
    )
    return [sentence for sentence in sentences if sentence]


def _lacks(other: Trace, trace: Trace, address: str) -> bool:
    """Return whether another pass has no parameter of an address or of its values, and is none of a file.

    A file may have combined it with others.
    """
    own = value_of(trace, address)
    names = [param.address for param in other.graph.params]
    if own is None or address in names or "format" in other.graph.facts:
        return False
    values = (value_of(other, name) for name in names)
    same_shape = [one for one in values if one is None or one.array.shape == own.array.shape]
    return all(one is not None and difference(own, one).relative > rounding(own, one) for one in same_shape)


def _as_stored(a: Trace, x: Elements, b: Trace, y: Elements) -> list[Elements]:
    """Return a value of ``b`` in the shape in which the framework of ``a`` stores it; none if it is unknown.

    Others store a bias with axes of length 1, and the kernels of the channels as one.
    """
    if a.graph.facts.get("framework") == b.graph.facts.get("framework"):
        return [y]
    if x.array.ndim != y.array.ndim and x.array.squeeze().shape == y.array.squeeze().shape:
        return [y._replace(array=y.array.reshape(x.array.shape))]
    return [] if x.array.size == y.array.size and nearest(x, y) is None else [y]


class Changed(NamedTuple):
    """Parameters of a model, compared with those of its export.

    Attributes:
        sentences: How they differ, by the row of the model that uses them, or the number of rows for one that
            none uses.
        pairs: The addresses of those that differ, in the model and in the export, by the same rows.
        compared: The addresses of those that were compared.
        unknown: What is said of those that may be others.
    """

    sentences: dict[int, list[str]]
    pairs: dict[int, list[tuple[str, str]]]
    compared: set[str]
    unknown: list[str]


def changed_parameters(a: Trace, b: Trace, modules: Iterable[ModulePair]) -> Changed:
    """Return the parameters of a model that are others in its export, also where that has no effect.

    Parameters correspond as in ``UsedParameters``, in modules that both have, and those of recurrent
    layers as ``unpacked`` says. Those that the export has combined with others are left out.

    Args:
        a: The trace of the model.
        b: The trace of the file.
        modules: The modules that correspond to each other.
    """
    found: dict[int, list[str]] = {}
    apart: dict[int, list[tuple[str, str]]] = {}
    users: dict[int, int] = {}
    for row, used in sorted(a.graph.row_params.items()):
        for number in used:
            users.setdefault(number, row)
    numbers = {param.address: number for number, param in enumerate(a.graph.params)}
    combined = set(_combined(b))
    compared: set[str] = set()
    unknown: list[str] = []
    packed = unpacked(a, b)
    known = {param.address for param in b.graph.params}
    same = [(address, address) for address in numbers if address in b._param_values]
    of_modules = [
        pair
        for module in modules
        for pair in _partners_inside(a, module.a, b, module.b)
        if a.graph.type_of(users[numbers[pair[0]]]) in _DIRECT
    ]
    of_layers = [(address, name) for address, (name, _) in packed.items()]
    for address, other in (*same, *of_layers, *of_modules):
        row = users.get(numbers[address], len(a.graph.ops))
        if address in compared or other in combined or (row < len(a.graph.ops) and is_folded(a, row, known)):
            continue
        x = value_of(a, address)
        y = plain(packed[address][1]) if address in packed else value_of(b, other)
        if x is None or y is None or x.is_float != y.is_float:
            continue
        compared.add(address)
        way = _as_it_is(x) if address in packed else _turn(a, address, b, other, x)
        if sentence := _difference(address, b, other, x, y, way):
            found.setdefault(row, []).append(sentence)
            apart.setdefault(row, []).append((address, other))
        elif way is None and x.is_square and _difference(address, b, other, x, y, _as_it_is(x)):
            both = _both(address, other)
            unknown.append(f"{both} are transposes of each other, and it is not known how b uses it")
    return Changed(dict(sorted(found.items())), apart, compared, unknown)


#: Operations whose parameter an export stores as it is, but for the order of its axes.
_DIRECT = frozenset({"linear", *CONVOLUTIONS, "addmm", "embedding", "layer_norm", "group_norm"})


def _partners_inside(a: Trace, call: int, b: Trace, other: int) -> list[tuple[str, str]]:
    """Return the parameters that correspond in two module calls, without the calls inside of them."""
    rows_a, rows_b = (np.flatnonzero(t.graph.ops.call == n).tolist() for t, n in ((a, call), (b, other)))
    used = UsedParameters(a, rows_a, b, rows_b)
    return [] if used.left_a or used.left_b else used.both


def _combined(trace: Trace) -> Iterator[str]:
    """Yield the addresses of parameters that an exporter says it has computed from others."""
    for row in trace.graph.row_params:
        if "rewritten=" in trace.graph.setting(row) or "weights=" in trace.graph.setting(row):
            yield from (param.address for param in _used(trace, [row]))


def is_folded(a: Trace, row: int, known: Container[str]) -> bool:
    """Return whether a batch norm follows an operation whose parameters are not ``known`` to the file."""
    following = (child for child in a.graph.children(row) if a.graph.type_of(child) == "batch_norm")
    return any(param.address not in known for child in following for param in _used(a, [child]))


def _both(address: str, other: str) -> str:
    return f"{address} of a and of b" if address == other else f"{address} of a and {other} of b"


def _difference(address: str, b: Trace, other: str, x: Elements, y: Elements, way: Turn | None) -> str:
    """Return how a parameter of ``a`` and one of ``b`` differ, as a sentence; ``""`` if they do not.

    Args:
        address: The address of the first.
        b: The second trace.
        other: The address of the second.
        x: The first value.
        y: The second value.
        way: How ``y`` is turned to correspond to ``x``; None if that is not known.
    """
    both, exact = _both(address, other), address == other and _is_exact(b)
    apart = nearest(x, y, way)
    if apart is None:
        return f"{both} are of shapes {x.array.shape} and {y.array.shape}"
    if not _is_other(apart, x, y, exact=exact):
        return ""
    is_known = way is not None and x.is_square
    if is_known and (other_way := nearest(x, y)) and not _is_other(other_way, x, y, exact=exact):
        return (
            f"{both} are equal, but b uses it transposed"
            if way == TRANSPOSED
            else f"{both} are transposes of each other"
        )
    return f"{both} {apart_in_words(apart)}"


def _turn(a: Trace, address: str, b: Trace, other: str, x: Elements) -> Turn | None:
    """Return how to turn ``b``'s parameter to correspond to ``a``'s value; None if it is not known.

    Lengths that are all others tell it themselves.
    """
    if address == other and _is_exact(b):
        return _as_it_is(x)
    return turn(a, address, b, other) if len({*x.array.shape}) < x.array.ndim else None


def _as_it_is(x: Elements) -> Turn:
    return Turn(tuple(range(x.array.ndim)))


def _is_exact(file: Trace) -> bool:
    """Return whether a file has the model's state under its names, bit for bit, as torch.export stores it."""
    return bool(file.graph.facts.get("framework") == "torch.export")


def _is_other(apart: Difference, x: Elements, y: Elements, *, exact: bool) -> bool:
    if exact and x.dtype == y.dtype:
        return apart.fraction_different > 0
    return apart.relative > rounding(x, y) or apart.lopsided


def changed_buffers(a: Trace, b: Trace, pairs: Iterable[tuple[int, int]]) -> dict[int, list[str]]:
    """Return the buffers and constants of a model that are others in its export; see ``changed_parameters``.

    Buffers correspond if they have the same address. Constants have none: in a file of torch.export, whose
    operations are those of the model, they correspond as ``pairs`` says; in other files they are left out.

    Args:
        a: The trace of the model.
        b: The trace of the file.
        pairs: The rows that correspond to each other; -1 where there is none.
    """
    own = {b.graph.state_address(row): b.values.get(row) for row in b.graph.rows_of(BUFFER)}
    values = dict(b._param_values) | own
    found: dict[int, list[str]] = {}
    named = ((row, a.graph.state_address(row)) for row in a.graph.rows_of(BUFFER))
    compared = [(row, f"{name} of a and of b", values[name]) for row, name in named if name in values]
    ends = set(a.graph.rows_of(CONSTANT)), set(b.graph.rows_of(CONSTANT))
    compared += [
        (i, f"{a.graph.label(i)} of a and {b.graph.label(j)} of b", b.values.get(j))
        for i, j in pairs
        if _is_exact(b) and i in ends[0] and j in ends[1]
    ]
    for row, both, value in compared:
        x, y = (None if one is None else plain(one) for one in (a.values.get(row), value))
        if x is None or y is None or x.is_float != y.is_float:
            continue
        if x.array.shape != y.array.shape:
            found[row] = [f"{both} are of shapes {x.array.shape} and {y.array.shape}"]
        elif _is_other(apart := difference(x, y), x, y, exact=_is_exact(b)):
            found[row] = [f"{both} {apart_in_words(apart)}"]
    return found


def different_state(a: Trace, row: int, b: Trace, other: int) -> list[str]:
    """Return how two buffers or parameters that are tensors of a pass differ, as a sentence.

    Empty if they do not, are not known, are of two shapes, or of two roles, so that they do not correspond.

    Args:
        a: The first trace.
        row: The row of the buffer or parameter.
        b: The second trace.
        other: That of the other.
    """
    address, name = a.graph.state_address(row), b.graph.state_address(other)
    x, y = plain(a.values.get(row)), plain(b.values.get(other))
    apart = None if x is None or y is None or _are_of_two_roles(address, name) else nearest(x, y)
    return [f"{_both(address, name)} {apart_in_words(apart)}"] if apart and apart.fraction_different else []


def _are_of_two_roles(address: str, other: str) -> bool:
    roles = {role_of(address), role_of(other)} - {""}
    return len(roles) == 2


def apart_in_words(apart: Difference) -> str:
    """Return words for the difference of two parameters, after their names."""
    if apart.nan != apart.other_nan:
        return f"have {apart.nan} and {apart.other_nan} NaN"
    return f"differ by {apart.relative:.2g} of their norm"


def _partners(
    params_a: list[Param], params_b: list[Param]
) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Return the addresses of parameters that correspond to each other, and those left on each side."""
    left_a, left_b, found = list(params_a), list(params_b), []
    for key in (_address, _name, _lengths):
        counts = Counter(map(key, left_a)), Counter(map(key, left_b))
        single = {name for name, number in counts[0].items() if number == 1 == counts[1][name]}
        others = {key(param): param.address for param in left_b if key(param) in single}
        own = {key(param): param.address for param in left_a if key(param) in single}
        single = {name for name in single if not _are_of_two_roles(own[name], others[name])}
        found += [(own[name], others[name]) for name in own if name in single]
        left_a, left_b = ([p for p in left if key(p) not in single] for left in (left_a, left_b))
    return found, [param.address for param in left_a], [param.address for param in left_b]


def _used(trace: Trace, rows: Iterable[int]) -> list[Param]:
    graph = trace.graph
    numbers = [number for row in rows for number in graph.row_params.get(row, ())]
    return [graph.params[number] for number in dict.fromkeys(numbers)]


def _address(param: Param) -> Hashable:
    return param.address


def _name(param: Param) -> Hashable:
    return _own_name(param.address)


def _own_name(address: str) -> str:
    return role_of(address) or address.rpartition(".")[2]


def _lengths(param: Param) -> Hashable:
    return tuple(sorted(param.shape))


def nearest(x: Elements, y: Elements, way: Turn | None = None) -> Difference | None:
    """Return the difference in the order of y's axes in which it is least; None if no order fits.

    A matrix may be transposed, and the kernel of a convolution has its channels first (PyTorch) or last.

    Args:
        x: The first value.
        y: The second value.
        way: How ``y`` is turned to correspond to ``x``; None if it may be in any of these orders. It tells
            of lengths that are equal which is which.
    """
    orders = [y.array, y.array.T]
    if y.array.ndim > 2:
        orders += [np.moveaxis(y.array, (-1, -2), (0, 1)), np.moveaxis(y.array, (0, 1), (-1, -2))]
    if way is not None and len(way.axes) == y.array.ndim:
        known = way.of(y.array)
        orders = [known] if known.shape == x.array.shape else orders
    found = [difference(x, y._replace(array=one)) for one in orders if one.shape == x.array.shape]
    return min(found, key=lambda apart: apart.relative, default=None)
