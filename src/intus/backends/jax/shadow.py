"""The shadow of a step: a program of our own that computes what is observed in it, and nothing else.

The step's Python function is traced once more, with modules that mark their results. The jaxpr is cut down
to what the marked values need and compiled apart from the step. The user's program is never touched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from ...core.address import of_call
from ...core.errors import CaptureError
from ...core.restoring import python_kept
from ...core.vocabularies.jax import DRAWING
from .arrays import array_names, main_array, mapped
from .interception import Intercepted, Interceptor, intercepting
from .internals import batched, bind
from .jaxprs import Frame, evaluate
from .library import Library, Opened
from .model_calls import DATA, END, MEMBERS, SAME, STATE, ModelCalls, mark_all
from .parameters import Entry, Parameters, entries_of, gradient_of
from .tap_primitive import GRADIENT, VALUE, Mark, tap, tap_p

#: The kind of the mark of a parameter that shows which state a module was made of, and of the result of a
#: module that the step itself calls, which shows whether the step takes gradients.
_ORIGIN, _OUTER = "origin", "outer"
#: The kind of the gradient of each kind of marked value.
_GRADIENTS = {"output": "grad_output", "input": "grad_input", "parameter": "parameter_grad"}


class ModelCall(NamedTuple):
    """The first call of the model in a step.

    Attributes:
        args: Its positional arguments; of arrays only shapes and dtypes.
        kwargs: Its keyword arguments, likewise.
        bound: The model with its variables if it has none itself, likewise.
        axes: ``in_axes`` of the arguments if the call is inside of ``jax.vmap``, and then these have the
            batch in front; else None.
        axis_name: The name of that axis; None if it has none.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    bound: Any = None
    axes: Any = None
    axis_name: Any = None

    @classmethod
    def of(cls, args: Any, kwargs: Any, bound: Any, is_leaf: Callable[[Any], bool]) -> ModelCall:
        """Describe a call that is being traced."""
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_leaf)
        batches = [batched(leaf) for leaf in leaves]
        args, kwargs = mapped(abstract, (args, kwargs), is_leaf)
        names = [batch.axis_name for batch in batches if batch is not None]
        return cls(
            args,
            kwargs,
            jax.tree.map(abstract, bound, is_leaf=is_leaf),
            jax.tree.unflatten(tree, [None if batch is None else 0 for batch in batches]) if names else None,
            names[0] if names else None,
        )


class Taps(Interceptor):
    """The interceptor that marks the arrays of module calls; see ``interception.Interceptor``.

    Args:
        kinds: The kinds of tensors to observe.
        addresses: The modules to observe; None for all.
        library: The library of the model.

    Attributes:
        classes: The class of each module that was called, by address.
        model_call: The first call of the model; None if there was none.
        returned: By address, the paths of the arrays that the first call returned, and the main one's number.
        within: By the address and number of a call, the number of the call of the model that it is part of; 0
            if it is part of none.
        trains: ``Intercepted.trains`` of all calls of which it is known.
    """

    origins = True

    def __init__(self, kinds: Collection[str], addresses: Collection[str] | None, library: Library) -> None:
        self._inputs = not {"input", "grad_input"}.isdisjoint(kinds)
        self._outputs = "output" in kinds
        self.parameters = not {"parameter", "parameter_grad"}.isdisjoint(kinds)
        self._addresses, self._is_leaf, self._is_state = addresses, library.is_leaf, library.is_state
        self._calls: dict[str, int] = defaultdict(int)
        self._entered: dict[tuple[str, str], int] = defaultdict(int)
        self.classes: dict[str, type] = {}
        self.model_call: ModelCall | None = None
        self.returned: dict[str, tuple[list[str], int]] = {}
        self.within: dict[tuple[str, int], int] = {}
        self.trains: set[bool] = set()
        self._call = self._depth = 0

    def call(self, call: Intercepted) -> Any:
        """Mark the main array of the result, and that of the arguments; of the model all, and its state."""
        address, args, kwargs = call.address, call.args, call.kwargs
        observed = self._addresses is None or address in self._addresses
        self._calls[address] += 1
        number = self._calls[address]
        self.classes.setdefault(address, call.cls)
        before, self._call = self._call, self._call if address else number
        self.within[address, number] = self._call
        if not address and self.model_call is None:
            self.model_call = ModelCall.of(args, kwargs, call.bound, self._is_leaf)
        if not address:
            mark_all(call.state, STATE, number, self._is_leaf)
            args, kwargs = mark_all((args, kwargs), DATA, number, self._is_no_data)
        if observed and self._inputs:
            args, kwargs = self._marked((args, kwargs), Mark(address, "input", number))
        if call.trains is not None:
            self.trains.add(call.trains)
        self._depth += 1
        try:
            result = call.run(*args, **kwargs)
        finally:
            self._call = before
            self._depth -= 1
        if not address or not self._depth:
            result = self._marked(result, Mark(address, _OUTER if address else END, number))
        if not observed:
            return result
        if self._outputs and (main := main_array(result, self._is_leaf)) is not None:
            self.returned.setdefault(address, (array_names(result, self._is_leaf), main[0]))
        return self._marked(result, Mark(address, "output", number))

    def parameter(self, address: str, name: str, value: Any) -> Any:
        """Mark a parameter on its way into a call; one without a name as what the module was made of."""
        if not name:  # inside of a call, a module may have computed it
            return value if self._depth else tap(value, Mark(address, _ORIGIN, self._calls[address] + 1))
        self._entered[address, name] += 1
        return tap(value, Mark(address, "parameter", self._entered[address, name], 0, name))

    def _is_no_data(self, value: Any) -> bool:
        return self._is_leaf(value) or self._is_state(value)

    def _marked(self, value: Any, mark: Mark) -> Any:
        main = main_array(value, self._is_leaf)
        if main is None:
            return value
        index, array, replaced = main
        return replaced(tap(array, mark._replace(which=index)))


def abstract(value: Any) -> Any:
    """Return the shape and dtype of an array, with the batch of ``jax.vmap``; other values unchanged."""
    batch = batched(value)
    if batch is not None:
        return jax.ShapeDtypeStruct(batch.shape, value.dtype)
    if isinstance(value, jax.Array | np.ndarray):
        return jax.ShapeDtypeStruct(value.shape, value.dtype)
    return value


class Item(NamedTuple):
    """One array that a shadow computes.

    Attributes:
        kind: One of ``core.record.KINDS``.
        address: The operation with its call, or the parameter.
        which: The index among several arrays of the call.
        position: The position among the outputs of the program.
        without_rows: Why its batch axis cannot be known, as under several ``jax.vmap``; "" if it can.
    """

    kind: str
    address: str
    which: int
    position: int
    without_rows: str


class Visit(NamedTuple):
    """One call of one module.

    Attributes:
        address: The module's address.
        items: What is observed of it.
        has_other_rows: Whether its rows are not known to be those of the first call of the model.
    """

    address: str
    items: tuple[Item, ...]
    has_other_rows: bool


class Shadow:
    """The compiled shadow of a step for one set of shapes.

    Args:
        library: The library of the model.
        model: The model.
        function: The step's Python function.
        opened: Its arguments.
        kinds: The kinds of tensors to observe.
        addresses: The modules to observe; None for all.

    Attributes:
        classes: The class of each module that was called, by address.
        model_call: The first call of the model; None if there was none.
        visits: The calls of modules in order.
        avals: Shape and dtype of each output.
        several: What several gradients were computed of, so that only the first is observed.
        derived: Modules of which maybe a derivative is computed, and no gradient of the loss.
        changed: By kind, the parameters of which only what the step computed of them is known.
        lacking: The parameters by which the step differentiates, and whose gradient was not found.
        partly: The modules that also ran inside of a loop or a branch, where they are not observed.
        takes_gradients: Whether the step takes gradients through the model.
        trains: Whether a dropout was active in it, or a normalization used its batch; None if nothing tells.
        given: The positions, among the arrays of the arguments, of those of the model in each of its calls.
        calls: The calls of the model in the step.

    Raises:
        CaptureError: If a module needs values that only the host knows, or one graph definition is called
            with several states.
    """

    def __init__(
        self,
        library: Library,
        model: Any,
        function: Callable[..., Any],
        opened: Opened,
        kinds: Collection[str],
        addresses: Collection[str] | None,
    ) -> None:
        taps = Taps(kinds, addresses, library)
        flat = _flat(traced(function, library, model, opened, taps))
        self.classes, self.model_call, self.returned = taps.classes, taps.model_call, taps.returned
        _check_origins(flat)
        self.calls = ModelCalls(flat, taps.within)
        found = _Visits(flat, kinds, self.calls, taps.classes)
        self.visits, outputs = found.visits, found.variables
        self.several, self.derived = sorted(found.several), sorted(found.derived)
        self.changed, self.lacking = found.changed, sorted(found.lacking)
        inner = [one for equation in flat.jaxpr.eqns for one in _taps_inside(equation)]
        inside = {one.params["mark"].address for one in inner if _is_mark(one, "output", VALUE)}
        self.partly = sorted(inside & {visit.address for visit in self.visits})
        outer = [one for one in flat.jaxpr.eqns if one.primitive is tap_p]
        self.takes_gradients = any(one.params["stage"] == GRADIENT for one in outer + inner)
        self.trains = True in taps.trains if taps.trains else None
        self.given = _given(flat)
        kept, self._inputs = _cut(flat, outputs)
        self._data, self._data_error = _data(flat, self.calls.data)
        self.avals = [variable.aval for variable in outputs]
        program = partial(_run, kept, [flat.jaxpr.invars[at] for at in self._inputs], outputs, _consts(flat))
        arguments = [opened.arrays[at] for at in self._inputs]
        self._program = jax.jit(program).lower(*arguments).compile() if outputs else lambda *_: []

    def __call__(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Compute the observed arrays from the arrays of the step's arguments."""
        outputs: Sequence[Any] = self._program(*[arrays[at] for at in self._inputs])
        return outputs

    def data(self, arrays: Sequence[Any]) -> list[Any] | str:
        """Return the arrays that the first call of the model gets, or why they cannot be computed."""
        if self._data is None:
            return self._data_error
        inputs, program = self._data
        found: list[Any] = program(*[arrays[at] for at in inputs])
        return found


def traced(
    function: Callable[..., Any], library: Library, model: Any, opened: Opened, interceptor: Any
) -> ClosedJaxpr:
    """Return the jaxpr of a function in which calls of the model's modules are intercepted.

    What its code changes in Python is restored: it runs once more than without a probe.
    """

    def run(arrays: list[Any]) -> list[Any]:
        args, kwargs = opened.rebuild(arrays)
        result = function(*args, **kwargs)
        leaves = jax.tree.leaves(result, is_leaf=library.is_leaf)
        return [leaf for leaf in leaves if isinstance(leaf, jax.Array)]

    with python_kept(model, library.parts), intercepting(interceptor), library.tracing(model):
        jaxpr: ClosedJaxpr = jax.make_jaxpr(run)(opened.arrays)
    return jaxpr


def _flat(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Inline all calls, and drop the marks of values that a backward pass computes again."""

    def visit(equation: Any, given: list[Any], frame: Frame) -> list[Any]:
        if frame.recomputed and equation.primitive is tap_p and equation.params["stage"] == VALUE:
            return given
        return bind(equation, given)

    def run(*inputs: Any) -> list[Any]:
        return evaluate(closed, inputs, visit)

    flat: ClosedJaxpr = jax.make_jaxpr(run)(*closed.in_avals)
    return flat


def _consts(flat: ClosedJaxpr) -> dict[Any, Any]:
    return dict(zip(flat.jaxpr.constvars, flat.consts, strict=True))


def _run(
    equations: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    consts: Mapping[Any, Any],
    *arrays: Any,
) -> list[Any]:
    """Evaluate equations of a flat jaxpr."""
    known = {**consts, **dict(zip(inputs, arrays, strict=True))}

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else known[variable]

    for equation in equations:
        known.update(zip(equation.outvars, bind(equation, list(map(read, equation.invars))), strict=True))
    return [read(variable) for variable in outputs]


def _cut(flat: ClosedJaxpr, outputs: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the equations that outputs need, and the positions of the inputs.

    Raises:
        CaptureError: If one of them has effects, such as a callback to the host, which must not run twice.
    """
    needed = {variable for variable in outputs if not isinstance(variable, Literal)}
    kept = []
    for equation in reversed(flat.jaxpr.eqns):
        if needed.isdisjoint(equation.outvars):
            continue
        if equation.effects:
            raise CaptureError(
                f"The step calls {equation.primitive.name} on the way to a module, which cannot run twice."
            )
        kept.append(equation)
        needed.update(variable for variable in equation.invars if not isinstance(variable, Literal))
    return kept[::-1], [at for at, variable in enumerate(flat.jaxpr.invars) if variable in needed]


def _data(flat: ClosedJaxpr, data: Sequence[Any]) -> tuple[tuple[list[int], Callable[..., Any]] | None, str]:
    """Return the positions of the inputs that data are computed from, and how; or None and the reason."""
    if not data:
        return None, "the step does not call the model itself, with data"
    try:
        kept, inputs = _cut(flat, data)
    except CaptureError as error:
        return None, str(error)
    if any(equation.primitive.name in DRAWING for equation in kept):  # perhaps with one seed for all epochs
        return None, "the step draws random numbers on the way to what the model gets"
    program = partial(_run, kept, [flat.jaxpr.invars[at] for at in inputs], data, _consts(flat))
    return (inputs, jax.jit(program)), ""


def _check_origins(flat: ClosedJaxpr) -> None:
    """Raise CaptureError if calls at one address use the parameters of several states."""
    made_by = {variable: equation for equation in flat.jaxpr.eqns for variable in equation.outvars}
    found: dict[str, Any] = {}
    for equation in flat.jaxpr.eqns:
        if not _is_mark(equation, _ORIGIN, VALUE):
            continue
        variable, address = equation.invars[0], equation.params["mark"].address
        while variable in made_by and len(made_by[variable].invars) == 1:  # a copy, or another dtype
            variable = made_by[variable].invars[0]
        if found.setdefault(address, variable) is not variable:
            raise CaptureError(
                "The step merges one graph definition with several states, such as those of a student and a "
                "target network, so intus cannot tell which of them is the probed model and records none. "
                "Pass the modules themselves to a step that nnx.jit compiled."
            )


def _is_mark(equation: Any, kind: str, stage: str) -> bool:
    params = equation.params
    return equation.primitive is tap_p and params["mark"].kind == kind and params["stage"] == stage


def _taps_inside(equation: Any) -> Iterator[Any]:
    """Yield the equations of marks inside of an equation, which is a loop or a branch."""
    for value in equation.params.values():
        for body in value if isinstance(value, tuple | list) else (value,):
            for inner in getattr(getattr(body, "jaxpr", body), "eqns", ()):
                if inner.primitive is tap_p:
                    yield inner
                yield from _taps_inside(inner)


def _given(flat: ClosedJaxpr) -> list[list[int]]:
    """Return the positions of the inputs that are arrays of the model, in each of its calls."""
    inputs = {variable: at for at, variable in enumerate(flat.jaxpr.invars)}
    calls: dict[int, list[int]] = defaultdict(list)
    for equation in flat.jaxpr.eqns:
        if equation.primitive is not tap_p and equation.primitive.name not in SAME:
            continue
        variable = equation.invars[0]
        at = None if isinstance(variable, Literal) else inputs.get(variable)
        if _is_mark(equation, STATE, VALUE):
            calls[equation.params["mark"].call].extend([] if at is None else [at])
        if at is not None:
            inputs[equation.outvars[0]] = at
    return list(calls.values())


def _outermost(flat: ClosedJaxpr) -> tuple[list[Any], set[Mark]]:
    """Return the equations of marks without the gradients of derivatives of which the step takes a gradient.

    If it takes no gradient of any derivative, they are kept: in a product with a Hessian, the outer
    derivative is no gradient. A value that what is trained does not change, as of a frozen part before it,
    may have a derivative alone and no gradient of the loss. So what is a step on the way from derivatives
    that are left out, not by gradients of the loss, or a step to these, is left out too.

    Args:
        flat: The step.

    Returns:
        The equations, and the marks of values that may have a derivative alone.
    """
    taps = [one for one in flat.jaxpr.eqns if one.primitive is tap_p]
    values = [one for one in taps if one.params["stage"] == VALUE]
    gradients = [one for one in taps if one.params["stage"] == GRADIENT]
    levels: dict[Mark, int] = {}
    for one in values:
        levels[one.params["mark"]] = max(one.params["level"], levels.get(one.params["mark"], 0))
    inner = [one for one in gradients if one.params["level"] < levels.get(one.params["mark"], 0)]
    if len(inner) == len(gradients):
        return taps, set()
    top = max((levels[one.params["mark"]] for one in inner), default=0)
    left_out = {id(one) for one in inner}
    others = [one for one in gradients if id(one) not in left_out and one.params["level"] < top]
    alone = set[Mark]()
    if others:
        outer = {id(one) for one in gradients if one.params["level"] >= top}
        after, past, into = _after(flat, left_out), _after(flat, outer), _before(flat, outer)
        # What a step computes with updated parameters comes after derivatives too, or before the values.
        later = {one.params["mark"] for one in values if one.outvars[0] in after}
        earlier = _before(flat, {id(one) for one in values if one.params["level"] >= top})
        for one in others:
            mark, variable = one.params["mark"], one.outvars[0]
            # A parameter has no derivative by the data, and so one level less.
            is_inner = mark.kind != "parameter" and variable in after and variable not in past
            if mark not in later and variable not in earlier and (is_inner or variable in into):
                left_out.add(id(one))
                alone.add(mark)
    return [one for one in taps if id(one) not in left_out], alone


def _after(flat: ClosedJaxpr, equations: Collection[int]) -> set[Any]:
    """Return the variables that are computed from equations, which are given by identity."""
    found = set[Any]()
    for one in flat.jaxpr.eqns:
        if id(one) in equations or not found.isdisjoint(_read(one)):
            found.update(one.outvars)
    return found


def _before(flat: ClosedJaxpr, equations: Collection[int]) -> set[Any]:
    """Return the variables that equations, which are given by identity, are computed from."""
    found = set[Any]()
    for one in reversed(flat.jaxpr.eqns):
        if id(one) in equations or not found.isdisjoint(one.outvars):
            found.update(_read(one))
    return found


def _read(equation: Any) -> list[Any]:
    return [one for one in equation.invars if not isinstance(one, Literal)]


class _Visits:
    """The marked module calls of a step, with what is observed.

    Args:
        flat: The step.
        kinds: The kinds of tensors to observe.
        calls: The calls of the model.
        classes: The modules that were called, by address.

    Attributes:
        visits: The calls in order.
        variables: The variables that are observed, in the order of ``Item.position``.
        several: As ``Shadow.several``; ``derived``, ``changed`` and ``lacking`` likewise.
    """

    def __init__(
        self,
        flat: ClosedJaxpr,
        kinds: Collection[str],
        calls: ModelCalls,
        classes: Collection[str],
    ) -> None:
        self._kinds, self._calls, self._parameters = kinds, calls, Parameters(flat)
        self.visits, self.variables = list[Visit](), list[Any]()
        self.several, self.lacking = set[str](), set[str]()
        self.changed: dict[str, list[str]] = defaultdict(list)  # by kind
        self._marked: dict[tuple[Mark, str], list[Any]] = defaultdict(list)
        self._batches: dict[Any, int] = {}  # how many jax.vmap a value is under
        levels: dict[Any, int] = {}
        order: list[tuple[Mark, int]] = []
        taps, alone = _outermost(flat)
        for equation in taps:
            mark, stage, result = equation.params["mark"], equation.params["stage"], equation.outvars[0]
            self._marked[mark, stage].append(result)
            self._batches[result], levels[result] = equation.params["batches"], equation.params["level"]
            if mark.kind == "output" and stage == VALUE:
                order.append((mark, len(self._marked[mark, stage]) - 1))
        # In a loss of derivatives of the model, a parameter without a gradient is no surprise, as a bias.
        takes_gradients = any(stage == GRADIENT for _, stage in self._marked)
        self._tells_lacking = takes_gradients and max(levels.values(), default=0) == 1
        self.derived = {one.address for one in alone if _GRADIENTS.get(one.kind) in kinds}
        marks_of: dict[tuple[str, int], list[Mark]] = defaultdict(list)
        for mark, stage in self._marked:
            if stage == VALUE and mark.kind in ("input", "output"):
                marks_of[mark.address, mark.call].append(mark)
        entries: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        for mark, entry in entries_of(self._marked, levels):
            entries[mark.address, mark.name].append(entry)
        owned: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for address, name in entries:
            owned[_owner(address, classes)].append((address, name))
        counts: dict[str, int] = defaultdict(int)
        for output, repeat in order:
            counts[output.address] += 1
            number = counts[output.address]
            items = [
                item
                for mark in marks_of[output.address, output.call]
                for item in self._tensors(mark, repeat, number)
            ]
            for address, name in owned[output.address] if number == 1 else ():
                found = entries[address, name]
                # Of a part that was never called, such as a layer in a branch, only what is used.
                if address == output.address or self._parameters.is_used(found):
                    items += self._parameter(address, name, found)
            self.visits.append(Visit(output.address, tuple(items), calls.has_other_rows(output, repeat)))

    def _tensors(self, mark: Mark, repeat: int, number: int) -> Iterator[Item]:
        """Yield a tensor of a call of a module, and its gradient, that are observed."""
        values, gradients = self._marked[mark, VALUE], self._marked.get((mark, GRADIENT), [])
        if repeat >= len(values):
            return
        value = values[repeat]
        gradient = gradient_of(value, gradients, len(values), repeat)
        address = of_call(mark.address, number)
        if len(gradients) > len(values) and _GRADIENTS[mark.kind] in self._kinds:
            self.several.add(address)
        if mark.kind != "output":  # what enters may also be used elsewhere
            gradient = self._parameters.total(gradient)
        why = self._calls.without_rows(mark, self._batches[value])
        for kind, variable in (mark.kind, value), (_GRADIENTS[mark.kind], gradient):
            yield from self._item(kind, address, mark.which, variable, why)

    def _parameter(self, module: str, name: str, entries: Sequence[Entry]) -> Iterator[Item]:
        """Yield a parameter, and its gradient, that are observed."""
        found = self._parameters.of(entries)
        address = f"{module}.{name}" if module else name
        why = MEMBERS if self._batches[entries[0].value] else ""
        yield from self._item("parameter", address, 0, found.value, why)
        yield from self._item("parameter_grad", address, 0, found.gradient, why)
        if found.value is None:
            self.changed["parameter"].append(address)
        if found.is_changed:
            self.changed["parameter_grad"].append(address)
        if "parameter_grad" not in self._kinds:
            return
        if found.has_several:
            self.several.add(address)
        if found.lacks and self._tells_lacking and module not in self.derived:
            self.lacking.add(address)

    def _item(self, kind: str, address: str, which: int, variable: Any, why: str) -> Iterator[Item]:
        if kind in self._kinds and variable is not None:
            yield Item(kind, address, which, len(self.variables), why)
            self.variables.append(variable)


def _owner(address: str, classes: Collection[str]) -> str:
    """Return the innermost module around an address, or at it, that was called; "" if there is none."""
    while address and address not in classes:
        address = address.rpartition(".")[0]
    return address
