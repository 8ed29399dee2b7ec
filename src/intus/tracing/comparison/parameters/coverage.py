"""Find the parameters of a model that nothing shows to be in its export."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.analysis.walks import ancestors, descendants
from ....core.graph import INPUT, OP, OUTPUT, Graph, Param
from ....core.vocabularies.families import CONVOLUTIONS, DROPOUTS, ELEMENTWISE, SOFTMAXES
from ....viewing.repr_text import listed
from ..judging.pairs import AGREE
from ..values.differences import difference, rounding
from ..values.elements import Elements, plain, value_of
from .orientation import is_turned

if TYPE_CHECKING:
    from ...results.trace import Trace
    from ..table import Comparison

#: Operations whose result has a shape that no value decides, so that Python learns nothing of them by it.
_OF_FIXED_SHAPE = (
    (ELEMENTWISE - {"where"})
    | DROPOUTS
    | {
        *("linear", "matmul", "bmm", "addmm", *CONVOLUTIONS, *SOFTMAXES),
        *("layer_norm", "group_norm", "rms_norm", "mean", "sum", "view", "reshape", "flatten", "transpose"),
        *("permute", "squeeze", "unsqueeze", "contiguous", "scaled_dot_product_attention"),
    }
)


#: The axis of the channels of what layers are given and return, by the beginning of their type.
_CHANNELS = {"linear": -1, "addmm": -1, "matmul": -1, "conv": 1, "batch_norm": 1}
_ARE = ("is", "are")


class Missing(NamedTuple):
    """A parameter that was found nowhere in a file, and whose effect was not compared.

    Attributes:
        address: Its address in the model.
        row: The first row that uses it.
        module: The address of the module around that row.
        differs: The relative difference of what the module returns; None if it was not compared, or is given
            what differs already.
        is_hidden: Whether all that shows its effect is given what differs already.
        is_read: Whether an output depends on it, as far as the operations show. If none does, it may still
            have been read in Python, or have decided a shape.
    """

    address: str
    row: int
    module: str
    differs: float | None
    is_hidden: bool
    is_read: bool

    @property
    def reason(self) -> str:
        """The reason for which its effect is not known."""
        if not self.is_read:
            return "no output of the model depends on it"
        where = f"what {self.module} returns" if self.module else "the result of its operation"
        if self.differs is not None:
            return f"{where} differs by {self.differs:.2g} of its norm"
        if self.is_hidden:
            return f"what {self.module or 'its operation'} is given differs already, which hides its effect"
        return f"{where} was not compared"

    @property
    def sentence(self) -> str:
        """A sentence that names what is missing, with the reason."""
        return f"{self.address} is not in the file, and {self.reason}"


class Coverage(NamedTuple):
    """Findings on the parameters that were not compared one by one.

    Attributes:
        missing: Those that nothing shows to be the same in the file.
        by_effect: The addresses of those that only their effect shows to be the same.
        hidden: What parts of these have no effect on these inputs, as sentences.
        idle: The addresses of those that cannot have an effect on an output.
    """

    missing: list[Missing]
    by_effect: list[str]
    hidden: list[str]
    idle: list[str]


def missing_parameters(a: Trace, b: Trace, table: Comparison, compared: Collection[str]) -> Coverage:
    """Return which parameters that the pass used are found in the file, and in what way.

    An exporter renames, transposes, joins and folds parameters, and drops zeros. A parameter counts as found
    if the file has its values in the same module, or if all results that it has an effect on first were
    compared and agree. The result of an operation further on does not count: it may be a part only.

    Args:
        a: The trace of the model.
        b: The trace of the file.
        table: Their comparison.
        compared: The addresses of parameters of the model that were compared one by one.
    """
    users: dict[int, list[int]] = {}
    for row, numbers in a.graph.row_params.items():
        for number in numbers:
            users.setdefault(number, []).append(row)
    left = [
        (a.graph.params[number], rows)
        for number, rows in sorted(users.items(), key=lambda one: one[1])
        if a.graph.params[number].address not in compared
    ]
    if not left:
        return Coverage([], [], [], [])
    effects, weights = _Effects(a, b, table), _Weights(b, a, compared)
    found: list[Missing] = []
    by_effect: list[str] = []
    idle: list[str] = []
    hidden: dict[int, list[str]] = {}
    for param, rows in left:
        if weights.have(a, param):
            continue
        live = [row for row in rows if row in effects.live]
        if live and all(map(effects.agree, live)):
            by_effect.append(param.address)
            for row in live:
                hidden.setdefault(row, []).append(param.address)
            continue
        if effects.are_idle(rows):
            idle.append(param.address)
            continue
        shown = {row: effects.apart(row) for row in live}
        apart = max((max(some) for some in shown.values() if some), default=None)
        is_hidden = apart is None and any(some is not None for some in shown.values())
        if is_hidden and all(effects.agree(row) or effects.are_folded(row) for row in live):
            continue
        found.append(
            Missing(param.address, rows[0], module_of(a.graph, rows[0]), apart, is_hidden, bool(live))
        )
    parts = [
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} compared by the effect, and {part}"
        for row, names in hidden.items()
        for part in effects.hidden(a, row)
    ]
    return Coverage(found, by_effect, list(dict.fromkeys(parts)), idle)


class _Effects:
    """The results of operations of a model that were compared with the file's.

    Attributes:
        live: The rows that an output depends on.
    """

    def __init__(self, a: Trace, b: Trace, table: Comparison) -> None:
        self._a, self._b, self._graph = a, b, (graph := a.graph)
        self._partner = {i: j for i, j in table.pairs if i >= 0 and j >= 0}
        verdicts, relatives = table["verdict"].tolist(), table["relative"].tolist()
        self._verdict = {i: verdicts[n] for n, (i, j) in enumerate(table.pairs) if i >= 0 and j >= 0}
        self._relative = {i: relatives[n] for n, (i, _) in enumerate(table.pairs) if i >= 0}
        self._inner = {int(parent) for parent in graph.calls.parent}
        inputs, outputs = graph.rows_of(INPUT), graph.rows_of(OUTPUT)
        self._of_inputs = {*inputs, *descendants(graph, inputs)}
        self.live = {*outputs, *ancestors(graph, outputs)}

    def agree(self, row: int) -> bool:
        """Return whether all that a row's parameter has an effect on first was compared and agrees."""
        return all(any(self._agrees(one) for one in self._witnesses(end)) for end in self._ends(row))

    def hidden(self, a: Trace, row: int) -> Iterator[str]:
        """Yield why a part of the parameters of a layer has no effect on what was compared."""
        kind, label = self._graph.type_of(row), self._graph.label(row)
        axis = next((axis for name, axis in _CHANNELS.items() if kind.startswith(name)), None)
        given = dict(self._graph.parents_by_argument(row)).get("0")
        if axis is None or given is None:
            return
        if zeros := _zero_channels(a, given, axis):
            yield f"{_channels(zeros)} of what {label} is given {_ARE[len(zeros) > 1]} zero on these inputs"
        for end in self._ends(row):
            shown = next((rows for rows in self._witnesses(end) if self._agrees(rows)), [])
            if row not in shown and len(shown) == 1 and (zeros := _zero_channels(a, shown[0], axis)):
                label = self._graph.label(shown[0])
                yield f"{_channels(zeros)} of {label} {_ARE[len(zeros) > 1]} zero on these inputs"

    def are_idle(self, rows: Collection[int]) -> bool:
        """Return whether rows cannot have an effect on an output: not by operations, and not by Python.

        Python may read values, or the shape of a result that values decide, and compute otherwise then.
        """
        graph = self._graph
        reached = {*rows, *descendants(graph, rows)}
        return (
            reached.isdisjoint(self.live)
            and reached.isdisjoint(branch.row for branch in graph.branches)
            and all(graph.ops.kind[row] == OP and graph.type_of(row) in _OF_FIXED_SHAPE for row in reached)
        )

    def apart(self, row: int) -> list[float] | None:
        """Return the relative differences of what shows the effect of a row's parameter first.

        What is computed of other tensors that differ tells nothing of it.

        Returns:
            The differences; empty if all that differ are given other tensors that do, and None if none does.
        """
        of_it = {row, *descendants(self._graph, [row])}
        calls = self._graph.enclosing_calls(row)
        is_inside = bool(calls) and bool(module_of(self._graph, row))
        rows = [row, *self._graph.call_outputs.get(calls[-1], ())] if is_inside else [*self._ends(row)]
        differing = [one for one in rows if self._verdict.get(one) == "differs"]
        found = [self._relative[one] for one in differing if not self._is_given_other(one, of_it)]
        return found if differing else None

    def _is_given_other(self, row: int, of_it: Collection[int]) -> bool:
        """Return whether a row is computed of a tensor that differs, besides those of some rows."""
        waiting, seen = [row], {row}
        while waiting:
            for parent in set(self._graph.parents(waiting.pop())) - seen:
                seen.add(parent)
                verdict = None if parent in of_it else self._verdict.get(parent)
                if verdict is None:
                    waiting.append(parent)
                elif verdict not in AGREE:
                    return True
        return False

    def are_folded(self, row: int) -> bool:
        """Return whether the file holds the constants that the model computes of a row's parameter.

        An exporter computes ``p.exp()`` beforehand. They count where the operation that takes them is paired.
        """
        of_it = {row, *descendants(self._graph, [row])}
        for end in self._ends(row):
            constants = (of_it & {end, *self._graph.parents(end)}) - self._of_inputs
            held = [*self._held(self._partner.get(end, -1))]
            for one in constants:
                value = plain(self._a.values.get(one))
                if value is None or not any(_is_same(value, other) for other in held):
                    return False
            if not constants:
                return False
        return True

    def _held(self, row: int) -> Iterator[Elements]:
        """Yield what an operation of the file is given that no input has an effect on."""
        graph = self._b.graph
        params = (graph.params[number].address for number in graph.row_params.get(row, ()))
        constants = (
            parent for parent in (graph.parents(row) if row >= 0 else ()) if not graph.parents(parent)
        )
        values = [value_of(self._b, address) for address in params]
        values += [plain(self._b.values.get(parent)) for parent in constants]
        yield from (value for value in values if value is not None)

    def _agrees(self, rows: Collection[int]) -> bool:
        return bool(rows) and all(self._verdict.get(one) in AGREE for one in rows)

    def _ends(self, row: int) -> Iterator[int]:
        """Yield the first rows on the ways from a row that depend on an input: what is before is constant."""
        waiting, seen = [row], {row}
        while waiting:
            one = waiting.pop()
            if one in self._of_inputs or self._verdict.get(one) in AGREE:
                yield one
                continue
            following = [n for n in self._graph.children(one) if n in self.live and n not in seen]
            if not following:
                yield one
            seen.update(following)
            waiting += following

    def _witnesses(self, row: int) -> Iterator[list[int]]:
        """Yield rows that together show the effect of an operation."""
        graph = self._graph
        yield [row]
        calls = graph.enclosing_calls(row)
        if (
            calls and calls[-1] not in self._inner
        ):  # of a module with others inside, an output may be of those
            returned = graph.call_outputs.get(calls[-1], ())
            yield [one for one in returned if one in self.live]
        norms = [child for child in graph.children(row) if child in self.live]
        if all(graph.type_of(child) == "batch_norm" for child in norms):  # into which it is folded
            yield norms
        yield self._fused(row)

    def _fused(self, row: int) -> list[int]:
        """Return the first compared row that an operation and those without a partner after it lead to.

        A file may have one operation in place of a convolution, a batch norm and an activation.
        """
        graph, shape = self._graph, self._graph.metas[int(self._graph.ops.meta[row])].shape
        while row not in self._verdict:
            following = [child for child in graph.children(row) if child in self.live]
            if len(following) != 1 or graph.metas[int(graph.ops.meta[following[0]])].shape != shape:
                return []
            (row,) = following
        return [row]


def _is_same(x: Elements, y: Elements) -> bool:
    """Return whether two values are of one shape, and differ by no more than rounding."""
    return x.array.shape == y.array.shape and difference(x, y).relative <= rounding(x, y)


def _zero_channels(trace: Trace, row: int, axis: int) -> list[int]:
    """Return the channels of a value that are zero everywhere."""
    value = plain(trace.values.get(row))
    if value is None or not -value.array.ndim <= axis < value.array.ndim:
        return []
    others = tuple(n for n in range(value.array.ndim) if n != axis % value.array.ndim)
    return [int(n) for n in np.flatnonzero(~value.array.any(axis=others))]


def _channels(numbers: Sequence[int]) -> str:
    return f"channel{'s' if len(numbers) > 1 else ''} {listed([str(n) for n in numbers])}"


class _Weights:
    """The weights of a file that do not correspond to others already, to be found by their values."""

    def __init__(self, b: Trace, a: Trace, compared: Collection[str]) -> None:
        self._trace = b
        self._known = {module.address for module in a.graph.modules}
        self._modules: dict[str, set[str]] = {}
        for row, numbers in b.graph.row_params.items():
            module = module_of(b.graph, row)
            for number in numbers:
                self._modules.setdefault(b.graph.params[number].address, set()).add(module)
        self._compared = compared
        self._arrays: dict[str, Elements | None] = {}

    def have(self, a: Trace, param: Param) -> bool:
        """Return whether the file has the values of a parameter in its module, or it is of zeros alone."""
        own = value_of(a, param.address)
        if own is None:
            return False
        module = param.address.rpartition(".")[0]
        # A scope that the model does not have, such as the name of an operation, tells nothing.
        near = [
            name
            for name, modules in self._modules.items()
            if any(one not in self._known or _around(one, module) for one in modules)
        ]
        for name in near:
            value = self._array(name)
            # Of a square matrix the values alone do not tell whether it is the transpose.
            turned = is_turned(a, param.address, self._trace, name) or False if own.is_square else None
            if value is not None and _holds(value, own, turned):
                return True
        # An exporter drops zeros. Another vector in their place would be a weight of the file in that module.
        others = (name for name in near if name not in self._compared and module in self._modules[name])
        found = [value for value in map(self._array, others) if value is not None]
        return not own.array.any() and all(value.array.ndim != own.array.ndim for value in found)

    def _array(self, name: str) -> Elements | None:
        if name not in self._arrays:
            self._arrays[name] = value_of(self._trace, name)
        return self._arrays[name]


def module_of(graph: Graph, row: int) -> str:
    """Return the address of the innermost module around a row, without the number of its call."""
    calls = graph.enclosing_calls(row)
    return graph.modules[int(graph.calls.module[calls[-1]])].address if calls else ""


def _around(module: str, other: str) -> bool:
    """Return whether one address is that of a module around the other, or the same."""
    return (
        not module
        or not other
        or f"{module}.".startswith(f"{other}.")
        or f"{other}.".startswith(f"{module}.")
    )


def _holds(stored: Elements, own: Elements, turned: bool | None = None) -> bool:
    """Return whether an array has another as a part along one axis, whatever the order of its axes.

    Args:
        stored: The array.
        own: The other.
        turned: Whether it has to be transposed there; None if either may be.

    Example:
        >>> q, k = np.eye(2), np.ones((2, 2))
        >>> _holds(Elements(np.concatenate([k, q]).T, "float64"), Elements(q, "float64"))
        True
    """
    whole = np.squeeze(stored.array)
    part = np.squeeze(own.array)
    if not part.size or stored.is_float != own.is_float:
        return False
    for one in (part, part.T) if turned is None else (part.T,) if turned else (part,):
        if one.ndim != whole.ndim:
            continue
        longer = [n for n in range(whole.ndim) if whole.shape[n] != one.shape[n]]
        if not longer and _same(stored, whole, own, one):
            return True
        if len(longer) == 1 and whole.shape[longer[0]] > one.shape[longer[0]]:
            axis, length = longer[0], one.shape[longer[0]]
            step = np.gcd(whole.shape[axis], length)
            for start in range(0, whole.shape[axis] - length + 1, step):
                if _same(stored, whole.take(range(start, start + length), axis), own, one):
                    return True
    return False


def _same(stored: Elements, x: np.ndarray, own: Elements, y: np.ndarray) -> bool:
    one, two = stored._replace(array=x), own._replace(array=y)
    apart = difference(one, two)
    return apart.relative <= rounding(one, two) and not apart.lopsided
