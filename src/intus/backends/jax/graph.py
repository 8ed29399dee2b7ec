"""The graph of a model's call, from its jaxpr: one row for each equation, with the values if they are wanted.

The jaxpr is interpreted one equation at a time, as JAX itself runs a model that is not compiled. One program
that returns all values would be no faster, and fusion would change the last bits of half of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import jax
import numpy as np

from ...core.building import GraphBuilder, Scope
from ...core.errors import CaptureError, IntusError
from ...core.graph import CREATED, Graph
from ...core.nested import named
from ...core.shortest import shortest
from ...core.traced import Traced
from ..host_arrays import OnAccess, whole
from .arrays import is_array, mapped, ordered_as
from .interception import Intercepted, Interceptor
from .internals import bind, name_stack, site
from .jaxprs import Frame, evaluate
from .library import Library, StateArray
from .shadow import ModelCall, traced
from .tap_primitive import returned, returned_p

#: Equations that only arrange an array: of a parameter alone they return what is still that parameter.
_ARRANGING = frozenset({
    "broadcast_in_dim", "convert_element_type", "copy", "expand_dims", "reshape", "squeeze", "transpose",
})  # fmt: skip
_LONGEST = 60  # characters of one setting
_NUMPY = re.compile(r"np\.int\d+\((-?\d+)\)")  # an axis that was computed
_SCOPE = re.compile(r"intus(\d+)")


class Scopes(Interceptor):
    """The interceptor that names the scope of each module call; see ``interception.Interceptor``.

    It also marks the arrays that a call returns: some were computed before the call, or in a loop.

    Args:
        is_leaf: ``Library.is_leaf``.

    Attributes:
        calls: The address and class of each call.
    """

    def __init__(self, is_leaf: Callable[[Any], bool]) -> None:
        self.calls: list[tuple[str, str]] = []
        self._is_leaf = is_leaf

    def call(self, call: Intercepted) -> Any:
        """Run a call in a scope whose name is the number of the call."""
        number = len(self.calls)
        self.calls.append((call.address, call.cls.__name__))
        with jax.named_scope(f"intus{number}"):
            result = super().call(call)
            return self._marked(result, number) if call.address else result

    def _marked(self, result: Any, number: int) -> Any:
        """Return the result of a call with its arrays marked, in the order in which it has them."""
        leaves = jax.tree.leaves(result, is_leaf=self._is_leaf)
        # What is no tracer is known to Python, which may read it.
        arrays = [leaf for leaf in leaves if isinstance(leaf, jax.core.Tracer) and is_array(leaf)]
        marked = {id(array): returned(array, number) for _, array in named(result, arrays)}
        if not marked:
            return result
        return mapped(lambda leaf: marked.get(id(leaf), leaf), result, self._is_leaf)

    def of(self, equation: Any, frame: Frame) -> tuple[Scope, ...]:
        """Return the module calls that an equation ran in.

        A function that JAX traced once and calls twice has the same name stack in both: the number of the
        inlined call makes them different.
        """
        stacks = [*frame.names, (name_stack(equation), frame.names[-1][1] if frame.names else -1)]
        scopes: list[Scope] = []
        around = -1
        for text, inlined in stacks:
            for number in map(int, _SCOPE.findall(text)):
                address, type_ = self.calls[number]
                if address and all(scope.address != address for scope in scopes):
                    scopes.append(Scope(address, type_, (number, around)))
            around = inlined
        return tuple(scopes)


class Cell(NamedTuple):
    """A value on its way through the jaxpr.

    Attributes:
        value: The array; None if the graph alone is wanted.
        row: Its row; None if it has none (yet).
        state: The array of the model that it is; None if it is computed.
        text: The number that it is, which the graph shows as a setting; ``""`` if it is none.
    """

    value: Any
    row: int | None = None
    state: StateArray | None = None
    text: str = ""


def trace(library: Library, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
    """Run a call of a model; see ``backends.tracing.Traces``."""
    return _interpreted(library, model, model, ModelCall(args, dict(kwargs)), values=True)


def structure(library: Library, model: Any, call: ModelCall) -> Graph:
    """Return the graph of a call of a model without running it."""
    target = model if call.bound is None else call.bound
    return _interpreted(library, model, target, call, values=False).graph


def _interpreted(library: Library, model: Any, target: Any, call: ModelCall, *, values: bool) -> Traced:
    function, given = library.forward(target, call.args, call.kwargs)
    if call.axes is not None:
        function = _over_batch(function, call)
    scopes = Scopes(library.is_leaf)
    opened = library.open(target, given, {}, numbers=False)
    ends: list[str] = []

    def named_ends(*args: Any) -> Any:
        result = function(*(ordered_as(one, arg) for one, arg in zip(given, args, strict=True)))
        leaves = jax.tree.leaves(result, is_leaf=library.is_leaf)
        outputs = named(result, [leaf for leaf in leaves if isinstance(leaf, jax.Array)])
        ends[:] = [name for name, _ in outputs]
        return [array for _, array in outputs]

    try:
        closed = traced(named_ends, library, target, opened, scopes)
    except IntusError:
        raise
    except Exception as error:
        raise CaptureError(f"JAX could not trace the call: {type(error).__name__}: {error}") from error
    rows = _Rows(type(model).__name__, scopes, values)
    rows.declare(library, model, target)
    names = dict(_input_names(model, call.args, call.kwargs))
    cells = [rows.argument(array, names.get(id(array), "")) for array in opened.arrays]
    outputs = evaluate(closed, cells, rows.visit, rows.literal, rows.constant)
    return rows.traced(outputs, ends)


def _over_batch(function: Callable[..., Any], call: ModelCall) -> Callable[..., Any]:
    """Return a function of ``Library.forward`` under ``jax.vmap``, over its last two arguments."""

    def over_batch(*given: Any) -> Any:
        *model, args, kwargs = given
        mapped = jax.vmap(partial(function, *model), in_axes=call.axes, axis_name=call.axis_name)
        return mapped(args, kwargs)

    return over_batch


class _Rows:
    """Collects the rows of a graph while a jaxpr is evaluated."""

    def __init__(self, name: str, scopes: Scopes, values: bool) -> None:
        self._builder = GraphBuilder(name, device=jax.default_backend())
        self._scopes, self._wants_values = scopes, values
        self._state: dict[int, StateArray] = {}
        self._buffers: dict[str, int] = {}
        self._values: dict[int, Any] = {}
        self._placed: dict[int, tuple[Scope, ...]] = {}  # the scopes of each row
        self._events = count()

    def declare(self, library: Library, model: Any, target: Any) -> None:
        """Declare the modules, parameters and buffers of a model."""
        training = library.training(model)()
        for operation in library.operations(model):
            self._builder.module(operation.address, operation.type, training=training)
        for array in library.state(target):
            self._state.setdefault(id(array.value), array)
            declare = self._builder.param if array.trained else self._builder.buffer_of
            declare(array.address, array.value.shape, str(array.value.dtype))

    def argument(self, array: Any, name: str) -> Cell:
        """Return the cell of an argument: an array of the model, or an input."""
        state = self._state.get(id(array))
        if state is not None:
            return Cell(array, state=state)
        return self._stored(array, self._builder.input(name, array.shape, str(array.dtype)))

    def literal(self, value: Any) -> Cell:
        """Return the cell of a number."""
        return Cell(value, text=str(shortest(value)))

    def constant(self, value: Any) -> Cell:
        """Return the cell of an array that the model closed over."""
        if not np.ndim(value):
            return self.literal(value) if is_array(value) else Cell(value)
        return self._stored(value, self._builder.constant(value.shape, str(value.dtype)))

    def visit(self, equation: Any, given: list[Cell], frame: Frame) -> list[Cell]:
        """Evaluate an equation and add the rows of its results."""
        if equation.primitive is returned_p:
            return [self._returned(given[0], equation, frame)]
        name = equation.primitive.name
        avals = [variable.aval for variable in equation.outvars]
        results: list[Any] = [None] * len(avals)
        if self._wants_values:
            results = bind(equation, [cell.value for cell in given])
        if (
            name in _ARRANGING
            and len(given) == 1
            and given[0].row is None
            and (given[0].state or given[0].text)
        ):
            return [given[0]._replace(value=result) for result in results]
        scope = self._scopes.of(equation, frame)
        cells = [self._with_row(cell, scope) for cell in given]
        parents = [(cell.row, str(at)) for at, cell in enumerate(cells) if cell.row is not None]
        event = next(self._events)
        rows = [
            self._builder.op(
                name,
                aval.shape,
                str(aval.dtype),
                scope=scope,
                parents=parents,
                params=[
                    cell.state.address for cell in cells if cell.state is not None and cell.state.trained
                ],
                setting=_setting(equation, cells),
                event=event,
                output=at if len(avals) > 1 else -1,
                site=site(frame.call or equation),
                flags=0 if parents or any(cell.state for cell in cells) else CREATED,
            )
            for at, aval in enumerate(avals)
        ]
        self._placed |= dict.fromkeys(rows, scope)
        return [self._stored(result, row) for result, row in zip(results, rows, strict=True)]

    def _returned(self, given: Cell, equation: Any, frame: Frame) -> Cell:
        """State that a module call returned a cell. What it was given or holds gets a row inside of it."""
        address = self._scopes.calls[equation.params["call"]][0]
        scopes = self._scopes.of(equation, frame)
        depth = next((at for at, scope in enumerate(scopes, 1) if scope.address == address), 0)
        if not depth:
            return given
        scope = scopes[:depth]
        cell = self._with_row(given, scope)
        if cell.row is not None and self._placed.get(cell.row, ())[:depth] == scope:
            self._builder.returns(cell.row, scope)
            return cell
        aval, state = equation.outvars[0].aval, given.state
        row = self._builder.op(
            "identity",
            aval.shape,
            str(aval.dtype),
            scope=scope,
            parents=[] if cell.row is None else [(cell.row, "0")],
            params=[state.address] if state is not None and state.trained else [],
            setting=given.text,
            event=next(self._events),
            site=site(frame.call or equation),
        )
        self._placed[row] = scope
        self._builder.returns(row, scope)
        kept = self._stored(given.value, row)
        return kept if given.row is not None else given

    def traced(self, outputs: Sequence[Cell], names: Sequence[str]) -> Traced:
        """Return the graph, with the values of its rows.

        Args:
            outputs: What the model returned.
            names: The names of the outputs.
        """
        for address, type_ in self._scopes.calls:
            self._builder.called(address, type_)
        for cell, name in zip(outputs, names, strict=True):
            cell = self._with_row(cell, ())
            if cell.row is None:
                row = self._builder.constant(np.shape(cell.value), str(cell.value.dtype))
                cell = self._stored(cell.value, row)
            assert cell.row is not None
            self._stored(cell.value, self._builder.output(name, cell.row))
        graph, rows = self._builder.graph({"framework": "jax", "version": jax.__version__})
        arrays = {row: value for row, value in self._values.items() if is_array(value)}
        values = {int(rows[row]): whole(np.asarray(value)) for row, value in arrays.items()}
        state = {
            one.address: one.value for one in self._state.values() if one.trained and is_array(one.value)
        }
        return Traced(graph, values, OnAccess(state, np.asarray) if self._wants_values else {})

    def _with_row(self, cell: Cell, scope: tuple[Scope, ...]) -> Cell:
        """Return a cell with the row of its buffer, if it is one."""
        if cell.row is not None or cell.state is None or cell.state.trained:
            return cell
        address = cell.state.address
        if address not in self._buffers:
            shape, dtype = cell.state.value.shape, str(cell.state.value.dtype)
            self._buffers[address] = self._builder.buffer(address, shape, dtype, scope)
            self._stored(cell.state.value, self._buffers[address])
        return cell._replace(row=self._buffers[address])

    def _stored(self, value: Any, row: int) -> Cell:
        if self._wants_values and value is not None:
            self._values[row] = value
        return Cell(value, row)


def _input_names(model: Any, args: Any, kwargs: Any) -> Iterator[tuple[int, str]]:
    """Yield the ids of arrays among the arguments of a call with the names that the model gives to them."""
    try:
        called = list(inspect.signature(type(model).__call__).parameters)[1:]  # without the model
    except (TypeError, ValueError):
        called = []
    for path, value in jax.tree_util.tree_flatten_with_path((args, kwargs))[0]:
        first, *rest = [
            str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path[1:]
        ]
        if path[0].idx == 0 and int(first) < len(called):
            first = called[int(first)]
        yield id(value), ".".join([first, *rest])


def _setting(equation: Any, cells: Sequence[Cell]) -> str:
    """Return the numbers and settings of an equation as text."""
    numbers = [cell.text for cell in cells if cell.text]
    settings = [
        f"{name}={text}"
        for name, value in _flat_settings(equation.params)
        if _is_setting(name, value)
        and len(text := _NUMPY.sub(r"\1", " ".join(str(value).split()))) <= _LONGEST
    ]
    return ", ".join(numbers + settings)


def _flat_settings(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings with their names; of records, such as the axes of a convolution, their fields."""
    for name, value in params.items():
        yield from value._asdict().items() if hasattr(value, "_asdict") else [(name, value)]


def _is_setting(name: str, value: Any) -> bool:
    hidden = value is None or value is False or (isinstance(value, tuple) and not value) or callable(value)
    return not (hidden or "jaxpr" in name or "sharding" in name or name in ("name", "effect", "branches"))
