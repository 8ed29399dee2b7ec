"""Observe calls of layers: what each call of the model passes to the tap, however the model is run."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import CaptureError
from ...core.nested import named
from ..base import OVERLAPS, Operation, Tap
from ..visit import Visit, gradient_address
from .observer import Observer
from .running import is_evaluated, is_unobserved
from .turns import Turns
from .values import LazyArguments

WITHOUT_GRADIENTS = ("output", "input", "parameter")
KINDS = (*WITHOUT_GRADIENTS, "grad_output", "grad_input")
_ELSEWHERE = (
    "A gradient was computed outside of the tf.function that called the model, where it cannot be recorded. "
    "Compute the loss and its gradients in the same tf.function."
)
_PARTLY = (
    "{} ran both inside and outside of a loop, a branch or another tf.function. Only the calls outside are "
    "recorded."
)
_VISITS = 64  # of how many of the last calls gradients may still come, if threads make them by turns
_modes: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def mode_of(model: Any) -> str:
    """Return the mode of the model's call in progress, or of its last one."""
    return _modes.get(model, "train")


class _Value(NamedTuple):
    """A tensor of a call.

    Attributes:
        kind: One of ``core.record.KINDS``.
        number: Its index among several.
        tensor: The tensor.
        address: Its address, if it is a parameter; else ``""``.
        get: Returns the value of the parameter as it is at any time, or None if it no longer exists.
    """

    kind: str
    number: int
    tensor: Any
    address: str = ""
    get: Callable[[], Any] = lambda: None


class _Visited(NamedTuple):
    """A call of a layer that ran, and its pass.

    Attributes:
        visit: The call.
        calls: The number of calls of each layer in the pass.
        gradients: How many of each kind were computed.
    """

    visit: Visit
    calls: dict[str, int]
    gradients: Counter[str]


class _Record:
    """One call of one layer."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.values: list[_Value] = []
        self.visits: dict[int, _Visited] = {}  # by the number of the model's call, of the last few


class _Step:
    """One call of the model; within a function of TensorFlow, one trace of it, which then runs many times."""

    def __init__(self, place: Any, go: Any) -> None:
        self.place, self.go = place, go
        self.records: list[_Record] = []
        self.with_parameters: set[str] = set()
        self.inside: set[str] = set()  # layers that ran inside of a loop, a branch or another function


class CallObserver:
    """Observes the calls of one model's layers for one attachment.

    Args:
        model: The model.
        gate: How the host is reached; see ``gate.TensorFlowGate``.
        parameters: Returns the own variables of a layer by name.
        kinds: The kinds of tensors to capture.
        tap: The observer.
    """

    def __init__(
        self,
        model: Any,
        gate: Any,
        parameters: Callable[[Any], Mapping[str, Any]],
        kinds: tuple[str, ...],
        tap: Tap,
    ) -> None:
        self.observer = Observer(kinds, tap)
        self.gate = gate
        self._model = weakref.ref(model)
        self._parameters = parameters
        self._owned: set[int] = set()  # variables that an earlier layer has
        self._local = threading.local()
        self._turns = Turns()

    @property
    def _step(self) -> _Step | None:
        return getattr(self._local, "step", None)

    def own_parameters(self, operation: Operation) -> dict[str, Any]:
        """Return the variables of an operation by address that no operation was found to have before."""
        found = {}
        for name, variable in self._parameters(operation.module).items():
            if id(variable) not in self._owned:
                self._owned.add(id(variable))
                found[f"{operation.address}.{name}" if operation.address else name] = variable
        return found

    # -- the model -------------------------------------------------------------------------------------

    def begin(self, args: Any, kwargs: Any) -> Any:
        """Handle the start of a call of the model; return what ``end`` needs."""
        before, self._local.step = self._step, None
        if (said := self.gate.left_out_of_export()) is not None:
            if said:
                self.observer.on_error(CaptureError(said))
            return before
        if reason := self.gate.refusal():
            self.observer.on_error(CaptureError(reason))
            return before
        flat = self.gate.nest.flatten((args, kwargs))
        at = [number for number, one in enumerate(flat) if self.gate.is_tensor(one)]
        # A functional model of Keras gets arrays of numpy as they are, and makes tensors of them itself.
        rest = [one if isinstance(one, np.ndarray) or not hasattr(one, "dtype") else None for one in flat]
        mode = "train" if self.gate.trains() or kwargs.get("training") is True else "eval"
        pack = partial(self.gate.nest.pack_sequence_as, (args, kwargs))

        take = partial(self._turns.take, is_eager=self.gate.place() is None, is_evaluation=is_evaluated())

        def start(*arrays: Any) -> int:
            model = self._model()
            if model is None:
                return 0
            turn = take()
            if not turn:
                self.observer.refuse(CaptureError(OVERLAPS))
                return 0
            _modes[model] = mode

            def nested() -> Any:
                given = list(rest)
                for number, array in zip(at, arrays, strict=True):
                    given[number] = array
                return pack(given)

            begun = False
            try:
                begun = self.observer.begin(LazyArguments(nested))
            finally:
                (self._turns.begun if begun else self._turns.give)(turn)
            return turn if begun else 0

        # Calls of another mode are reported even if those of the training are left out.
        leave_out = self.observer.leave_out if mode == "train" else None
        asked = self.observer.never_raising(start, 0)
        go = self._placed(partial(self.gate.ask, [flat[number] for number in at], asked, leave_out))
        if self.gate.place() is not None or go:
            self._local.step = _Step(self.gate.place(), go)
        return before

    def end(self, before: Any, output: Any) -> Any:
        """Handle the end of a call of the model, which returned ``output``, and return that."""
        step, self._local.step = self._step, before
        if step is None or step.place is not self.gate.place():
            return output
        if partly := sorted(step.inside & {record.operation.address for record in step.records}):
            self.observer.on_error(CaptureError(_PARTLY.format(", ".join(map(repr, partly)))))
        if step.place is None:
            self.observer.end((output,))
            self._turns.give(step.go)
            return output
        tensors = [value.tensor for record in step.records for value in record.values]

        def take(turn: Any, *arrays: Any) -> None:
            if not self._turns.has(int(turn)):
                self.observer.refuse(CaptureError(OVERLAPS))
                return
            rest = iter(arrays)
            for record in step.records:
                self._deliver(int(turn), record, [next(rest) for _ in record.values])
            self.observer.end(arrays)
            self._turns.give(int(turn))

        # The copies are computed between the output and what reads it: the clocks see their cost alone.
        output = self._replaced(output, partial(self.gate.after, step.go))
        ready = [one for one in self.gate.nest.flatten(output) if self.gate.is_tensor(one)]
        told = self._placed(
            partial(
                self.gate.tell_copies,
                step.go,
                ready,
                tensors,
                self.observer.work_begins,
                self.observer.never_raising(take),
            )
        )
        return self._replaced(output, partial(self.gate.after, told))

    def _placed(self, add: Callable[[], Any]) -> Any:
        """Return the result of a function. If it adds operations to a graph, its time is charged."""
        if self.gate.place() is None:
            return add()
        with self.observer.prepares():
            return add()

    def fail(self, before: Any) -> None:
        """Handle the end of a call of the model that raised."""
        step, self._local.step = self._step, before
        if step is not None and step.place is None:
            self.observer.end(None)
            self._turns.give(step.go)

    # -- layers ----------------------------------------------------------------------------------------

    def enter(self, operation: Operation, args: Any, kwargs: Any) -> tuple[_Record | None, Any, Any]:
        """Handle the start of a call of a layer; return what ``exit`` needs, and the arguments to use."""
        step = self._step
        if step is None or step.place is not self.gate.place():
            if step is not None:
                step.inside.add(operation.address)
            return None, args, kwargs
        record = _Record(operation)
        args, kwargs = self._offer(step, record, "input", (args, kwargs))
        return record, args, kwargs

    def exit(self, record: _Record | None, parameters: Callable[[], Mapping[str, Any]], output: Any) -> Any:
        """Handle the end of a call of a layer, which returned ``output``; return the output to use."""
        step = self._step
        if record is None or step is None:
            return output
        output = self._offer(step, record, "output", output)
        if "parameter" in self.observer.kinds and record.operation.address not in step.with_parameters:
            step.with_parameters.add(record.operation.address)
            for address, variable in parameters().items():
                get = partial(self._now, weakref.ref(variable))
                record.values.append(_Value("parameter", 0, self.gate.value(variable), address, get))
        step.records.append(record)
        if step.place is None:
            self._deliver(step.go, record, [value.tensor for value in record.values])
            record.values.clear()
        return output

    def _offer(self, step: _Step, record: _Record, kind: str, value: Any) -> Any:
        """Note the main tensor of a layer's inputs or outputs, and return them with its gradient tapped."""
        gradient = f"grad_{kind}"
        if self.observer.kinds.isdisjoint({kind, gradient}):
            return value
        flat = self.gate.nest.flatten(value)
        is_value: Callable[[Any], bool] = self.gate.is_tensor
        if step.place is None:  # see ``begin``

            def is_value(one: Any) -> bool:
                return isinstance(one, np.ndarray) or self.gate.is_tensor(one)

        found = named(value, [one for one in flat if is_value(one)])
        tensors = [one for _, one in found]
        if not tensors:
            return value
        main = next((index for index, one in enumerate(tensors) if len(one.shape)), 0)
        tensor = tensors[main]
        at = next(number for number, one in enumerate(flat) if one is tensor)
        if kind in self.observer.kinds:
            record.values.append(_Value(kind, main, tensor))
            if kind == "output":
                self.observer.several.tell(record.operation.address, [path for path, _ in found], main)
        if gradient in self.observer.kinds and self.gate.is_tensor(tensor) and self.gate.is_float(tensor):
            tell = partial(self._tell_gradient, step, record, gradient, main)
            flat[at] = self.gate.with_gradient(tensor, tell)
            return self.gate.nest.pack_sequence_as(value, flat)
        return value

    def _tell_gradient(self, step: _Step, record: _Record, kind: str, index: int, gradient: Any) -> None:
        """Handle a gradient: a tensor, in a graph a symbolic one."""

        def take(turn: Any, array: Any) -> None:
            visited = record.visits.get(int(turn))
            if visited is None:
                return
            visit, calls, gradients = visited
            gradients[kind] += 1
            of = record.operation.address
            address = gradient_address(of, visit.address, gradients[kind], calls[of])
            self.observer.show(visit.ticket, address, kind, array, index)

        try:
            if step.place is not self.gate.place():
                self.observer.on_error(CaptureError(_ELSEWHERE))
            else:
                taken = self.observer.never_raising(take)
                self.gate.tell(step.go, [self.gate.value(gradient)], taken)
        except Exception as error:
            self.observer.on_error(error)

    def _deliver(self, turn: int, record: _Record, arrays: Iterable[Any]) -> None:
        """Pass the tensors of a call of a layer to the tap, if it wants them."""
        visit = self.observer.visit(record.operation)
        if visit is None:
            return
        record.visits[turn] = _Visited(visit, self.observer.calls, Counter())
        while len(record.visits) > _VISITS:
            del record.visits[next(iter(record.visits))]
        for value, array in zip(record.values, arrays, strict=True):
            if value.address:
                self.observer.show_parameter(visit.ticket, value.address, array, value.get)
            else:
                self.observer.show(visit.ticket, visit.address, value.kind, array, value.number)

    def _now(self, variable: weakref.ref[Any]) -> Any:
        """Return the value of a variable as it is; None if it no longer exists."""
        alive = variable()
        return None if alive is None else self.gate.now(alive)

    def _replaced(self, value: Any, change: Callable[[Any], Any]) -> Any:
        flat = self.gate.nest.flatten(value)
        return self.gate.nest.pack_sequence_as(
            value, [change(one) if self.gate.is_tensor(one) else one for one in flat]
        )


class Watch:
    """Observes one layer for one attachment.

    Args:
        calls: Observes the calls.
        operation: The layer, if it is observed.
        is_model: Whether it is the model itself.
    """

    def __init__(self, calls: CallObserver, operation: Operation | None, is_model: bool) -> None:
        self._calls, self._operation, self._is_model = calls, operation, is_model
        self._parameters: dict[str, Any] = {}
        self.parameters()  # of a variable that several layers have, the first of them is the owner

    def parameters(self) -> Mapping[str, Any]:
        """Return the variables of the layer by address, also those that a call has built since."""
        if self._operation is not None:
            self._parameters.update(self._calls.own_parameters(self._operation))
        return self._parameters

    def on_error(self, error: Exception) -> None:
        """Pass an exception of our own to the tap."""
        self._calls.observer.on_error(error)

    def run(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the layer and observe it. What the layer raises is raised; nothing else is."""
        calls, before, record = self._calls, None, None
        begun = False
        try:
            if self._is_model:
                before = calls.begin(args, kwargs)
                begun = True
            if self._operation is not None:
                record, args, kwargs = calls.enter(self._operation, args, kwargs)
        except Exception as error:
            calls.observer.on_error(error)
        try:
            output = call(*args, **kwargs)
        except BaseException:
            if begun:
                calls.fail(before)
            raise
        for end in (
            partial(calls.exit, record, self.parameters),
            *([partial(calls.end, before)] if begun else []),
        ):
            try:
                output = end(output)
            except Exception as error:
                calls.observer.on_error(error)
        return output


class ObservedCall:
    """A function that calls a layer and is observed; it replaces the layer's own.

    Args:
        own: The layer's own function.
    """

    def __init__(self, own: Callable[..., Any]) -> None:
        self.own = own
        self.watches: list[Watch] = []
        self.undo: Callable[[], None] | None = None  # gives the layer back its own function
        self.evaluation: Any = None  # what evaluations call if it is not the layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer."""
        return self.run(self.own, args, kwargs)

    def run(
        self, call: Callable[..., Any], args: Any, kwargs: Any, prepared: Callable[[Any], Any] | None = None
    ) -> Any:
        """Call the layer by ``call``. What the layer raises is raised; nothing else is.

        Args:
            call: Calls the layer.
            args: The arguments.
            kwargs: The keyword arguments.
            prepared: Returns what is called in the place of ``call``, which is called itself if this raises.
        """
        if prepared is not None:
            try:
                call = prepared(call)
            except Exception as error:
                for watch in self.watches:
                    watch.on_error(error)
        if not is_unobserved():
            for watch in self.watches:
                call = partial(self._run, watch, call)
        return call(*args, **kwargs)

    @staticmethod
    def _run(watch: Watch, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return watch.run(call, args, kwargs)


class Attachment:
    """Attaches to the layers of one model; several may be attached at a time.

    Args:
        model: The model.
        operations: The layers to observe.
        calls: Observes the calls.
        observe: ``observe(layer, is_model)`` returns the observed call of a layer, which it gives the layer
            if it has none.
        changed: Called when the layers were changed or restored.
    """

    def __init__(
        self,
        model: Any,
        operations: Iterable[Operation],
        calls: CallObserver,
        observe: Callable[[Any, bool], ObservedCall],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._calls, self._changed = calls, changed
        self._watched: list[tuple[ObservedCall, Watch]] = []
        chosen: list[tuple[Any, Operation | None]] = [(one.module, one) for one in operations]
        if not any(layer is model for layer, _ in chosen):
            chosen.insert(0, (model, None))
        for layer, operation in chosen:
            watch = Watch(calls, operation, layer is model)
            observed = observe(layer, layer is model)
            observed.watches.append(watch)
            self._watched.append((observed, watch))
        changed()

    def remove(self) -> None:
        """Restore the layers. Calling it again has no effect."""
        self._calls.observer.stop()
        if not self._watched:
            return
        self._calls.gate.close()
        while self._watched:
            observed, watch = self._watched.pop()
            observed.watches.remove(watch)
            if not observed.watches and observed.undo is not None:
                observed.undo()
        self._changed()
