"""Observe a ``Module``: in an observed pass, its executor runs a twin, which reports every operation.

The twin shares all arrays of the executor. The monitor, which MXNet cannot remove, is installed on it alone.
"""

from __future__ import annotations

import ctypes
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mxnet import nd
from mxnet.base import NDArrayHandle
from mxnet.executor import Executor
from mxnet.module import Module
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ...core.address import Address
from ...core.errors import InputError
from ..base import Operation, Tap
from ..visit import Visit
from .arrays import to_numpy
from .session import Session
from .symbols import TAP, entries, nodes, with_taps

_NAME = re.compile(rf"({TAP})?(.+?)(_backward)?_(?:0|output0?)$")


class Node(NamedTuple):
    """An operation of a module's symbol.

    Attributes:
        type: The operation's type.
        settings: Its settings.
        parameters: The names of its parameters in the symbol, by their own name (``weight``).
    """

    type: str
    settings: Mapping[str, str]
    parameters: Mapping[str, str]


def check_bound(model: Module) -> None:
    """Raise InputError if a module is not bound, or runs on several devices."""
    if not model.binded:
        raise InputError("The Module is not bound. Call bind() on it before you pass it.")
    if len(model._exec_group.execs) > 1:
        raise InputError(
            f"The Module runs on {len(model._exec_group.execs)} devices, but only one can be observed. "
            "Bind it with one context."
        )


def operations(module: Module) -> list[Operation]:
    """Return the module, and every operation of its symbol by name."""
    found = [Operation("", type(module).__name__, module)]
    states = {*module._param_names, *module._aux_names}
    table = nodes(module.symbol)
    for node in table:
        if node["op"] != "null":
            used = [table[source]["name"] for source, *_ in node["inputs"]]
            own = {own_name(name, node["name"]): name for name in used if name in states}
            part = Node(node["op"], node.get("attrs", {}), own)
            found.append(Operation(str(Address(node["name"])), node["op"], part))
    return found


def own_name(name: str, operation: str) -> str:
    """Return the name of a parameter without the beginning that it shares with its operation.

    Example:
        >>> own_name("fc1_weight", "fc1"), own_name("net_fc_weight", "net_fc_fwd"), own_name("w", "fc1")
        ('weight', 'weight', 'w')
    """
    words, others = name.split("_"), operation.split("_")
    while len(words) > 1 and others and words[0] == others[0]:
        del words[0], others[0]
    return "_".join(words)


class Attachment:
    """The session of one ``attach`` to a module.

    Args:
        model: The module.
        operations: The operations to observe.
        kinds: The kinds of tensors to capture.
        tap: The observer.

    Raises:
        InputError: If the module is not bound, or runs on several devices.
    """

    def __init__(self, model: Module, operations: list[Operation], kinds: tuple[str, ...], tap: Tap) -> None:
        check_bound(model)
        self._watch = watch_of(model) or Watch(model)
        self._observer = Observer(Session(kinds, tap), operations)
        self._watch.observers.append(self._observer)

    def remove(self) -> None:
        """Stop observing. Calling it again has no effect."""
        self._observer.session.stop()
        self._watch.remove(self._observer)


class Observer:
    """Passes what the operations of a module compute to one session.

    Args:
        session: The session.
        operations: The operations to observe.
    """

    def __init__(self, session: Session, operations: list[Operation]) -> None:
        self.session = session
        self.operations = {one.address: one for one in operations}
        owned: set[str] = set()
        self._parameters: dict[str, dict[str, str]] = {}  # of each operation: symbol's name -> address
        for address, operation in self.operations.items():
            names = operation.module.parameters if address else {}
            self._parameters[address] = {
                name: f"{address}.{Address(short)}" for short, name in names.items() if name not in owned
            }
            owned.update(names.values())
        self.visits: dict[str, Visit] = {}
        self._before: dict[str, NDArray] = {}

    def on_value(self, executor: Executor, address: str, array: NDArray, names: Sequence[str]) -> None:
        """Capture the first output of an operation, and its parameters.

        Args:
            executor: The executor.
            address: The operation.
            array: The output.
            names: The names of all of its outputs.
        """
        operation = self.operations.get(address)
        visit = self.session.visit(operation) if operation and self.session.running else None
        if visit is None:
            return
        self.visits[address] = visit
        if "output" in self.session.kinds:
            self.session.several.tell(address, names, 0)
            self.session.capture(visit, "output", array)
        if "parameter" in self.session.kinds:
            for name, place in self._parameters[address].items():
                self.session.capture_parameter(visit, place, partial(_state, weakref.ref(executor), name))

    def on_gradient(self, address: str, array: NDArray) -> None:
        """Capture the gradient of an output."""
        visit = self.visits.get(address)
        if visit is not None and "grad_output" in self.session.kinds:
            self.session.capture(visit, "grad_output", array)

    def on_backward_end(self, executor: Executor) -> None:
        """Capture the gradients of parameters."""
        if "parameter_grad" in self.session.kinds:
            for visit, name, place in self._own():
                gradient = executor.grad_dict.get(name)
                if gradient is not None:
                    self.session.capture(visit, "parameter_grad", gradient, 0, place)

    def before_update(self, executor: Executor) -> None:
        """Copy the parameters before an optimizer's step."""
        if "update" in self.session.kinds and not self.session.removed:
            self._before = {name: executor.arg_dict[name].copy() for name in self._trained(executor)}

    def after_update(self, executor: Executor) -> None:
        """Capture the difference that an optimizer's step made."""
        before, self._before = self._before, {}
        for visit, name, place in self._own():
            if name in before:
                change = executor.arg_dict[name] - before[name]
                self.session.capture(visit, "update", change, 0, place)

    def _trained(self, executor: Executor) -> list[str]:
        return [name for _, name, _ in self._own() if executor.grad_dict.get(name) is not None]

    def _own(self) -> Iterator[tuple[Visit, str, str]]:
        """Yield the parameters of the last pass, with their call, name and address."""
        for address, visit in self.visits.items():
            for name, place in self._parameters[address].items():
                yield visit, name, place


class Watch:
    """Replaces ``forward``, ``backward`` and ``update`` of a module while it has observers.

    Args:
        model: The module.
    """

    def __init__(self, model: Module) -> None:
        self.observers: list[Observer] = []
        self.is_train = bool(model.for_training)
        self._model, self._group = model, model._exec_group
        self._outputs = _outputs(model.symbol)
        self._twins: dict[Executor, tuple[frozenset[str], Executor]] = {}
        self._in_backward: Executor | None = None  # whose last pass was observed
        self._own = self._group.forward, self._group.backward, model.update
        self._places = [(self._group, "forward"), (self._group, "backward"), (model, "update")]
        for (place, name), method in zip(
            self._places, (self.forward, self.backward, self.update), strict=True
        ):
            vars(place)[name] = method

    def remove(self, observer: Observer) -> None:
        """Remove an observer, and after the last one everything."""
        if observer in self.observers:
            self.observers.remove(observer)
        if not self.observers:
            for place, name in self._places:
                if getattr(vars(place).get(name), "__self__", None) is self:
                    del vars(place)[name]
            self._twins.clear()

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run a pass of the module."""
        self.is_train = bool(self._group.for_training if is_train is None else is_train)
        batches = data_batch if isinstance(data_batch, list) else [data_batch]
        inputs = tuple(array for batch in batches for array in batch.data)
        self._twins = {one: twin for one, twin in self._twins.items() if one in self._group.execs}
        (executor,) = self._group.execs
        self.run(executor, inputs, lambda: self._own[0](data_batch, is_train))

    def run(self, executor: Executor, inputs: Any, call: Callable[[], Any]) -> None:
        """Run a pass of an executor, and report it."""
        observers, outputs = list(self.observers), None
        for observer in observers:
            observer.visits = {}
            observer.session.begin((inputs, {}))
        running = [observer for observer in observers if observer.session.running]
        self._in_backward = None
        try:
            with ExitStack() as stack:
                if running:
                    running[0].session.safely(self._use_twin, executor, stack)
                    self._in_backward = executor
                call()
            for observer in running:
                observer.on_value(executor, "", executor.outputs[0], self._outputs[""])
            outputs = executor.outputs
        finally:
            for observer in observers:
                observer.session.end(outputs)

    def forget(self, executor: Executor) -> None:
        """Drop what is kept of an executor that is not the module's."""
        self._twins.pop(executor, None)
        self._in_backward = None

    def backward(self, out_grads: Any = None) -> None:
        """Run a backward pass of the module, of the twin if the pass was observed."""
        executor = self._in_backward
        with ExitStack() as stack:
            if executor in self._twins:
                stack.enter_context(_swapped(executor, self._twins[executor][1]))
            self._own[1](out_grads)
        if executor is not None:
            for observer in list(self.observers):
                observer.session.safely(observer.on_backward_end, executor)

    def update(self) -> None:
        """Run an optimizer's step of the module."""
        executor = self._in_backward
        observers = list(self.observers) if executor is not None else []
        for observer in observers:
            observer.session.safely(observer.before_update, executor)
        self._own[2]()
        for observer in observers:
            observer.session.safely(observer.after_update, executor)

    def _use_twin(self, executor: Executor, stack: ExitStack) -> None:
        """Let an executor run its twin until the stack is closed."""
        tapped = frozenset[str]().union(
            *(one.operations for one in self.observers if "grad_output" in one.session.kinds)
        )
        if self._twins.get(executor, (None,))[0] != tapped:
            self._twins[executor] = tapped, self._twin(executor, tapped)
        stack.enter_context(_swapped(executor, self._twins[executor][1]))

    def _twin(self, executor: Executor, tapped: frozenset[str]) -> Executor:
        symbol = executor._symbol
        if tapped:
            symbol = with_taps(symbol, {node["name"] for node in nodes(symbol)} if "" in tapped else tapped)
        twin = symbol.bind(
            executor._ctx,
            args=executor.arg_dict,
            args_grad={name: one for name, one in executor.grad_dict.items() if one is not None},
            grad_req=executor._grad_req,
            aux_states=executor.aux_dict,
            group2ctx=executor._group2ctx,
        )
        twin.set_monitor_callback(partial(self._on_operation, executor), False)
        return twin

    def _on_operation(self, executor: Executor, name: bytes, handle: int) -> None:
        array = NDArray(ctypes.cast(handle, NDArrayHandle), writable=False)  # it must be freed in any case
        match = _NAME.match(name.decode())
        if match is None:
            return
        is_tap, operation, is_gradient = match.groups()
        address = str(Address(operation))
        for observer in list(self.observers):
            if is_gradient and is_tap:
                observer.session.safely(observer.on_gradient, address, array)
            elif not is_gradient and not is_tap:
                observer.session.safely(
                    observer.on_value, executor, address, array, self._outputs.get(address, ())
                )


def _state(executor: weakref.ref[Executor], name: str) -> NDArray | None:
    """Return a parameter or auxiliary state as it is; None if the executor no longer exists."""
    owner = executor()
    if owner is None:
        return None
    return owner.aux_dict[name] if name in owner.aux_dict else owner.arg_dict[name]


def _outputs(symbol: Symbol) -> dict[str, list[str]]:
    """Return the names of the outputs of a symbol, and of its operations by address."""
    table, names = nodes(symbol), symbol.get_internals().list_outputs()
    found, places = {"": symbol.list_outputs()}, entries(symbol, table)
    if len(places) != len(names):  # names that begin alike: whose they are is not known
        return found
    for (node, _), name in zip(places, names, strict=True):
        found.setdefault(str(Address(table[node]["name"])), []).append(name)
    return found


def watch_of(model: Module) -> Watch | None:
    """Return what stands in for the methods of a module, or None."""
    watch = getattr(vars(model._exec_group).get("forward"), "__self__", None)
    return watch if isinstance(watch, Watch) else None


@contextmanager
def _swapped(executor: Executor, twin: Executor) -> Iterator[None]:
    """Let an executor run another one's graph."""
    own, executor.handle = executor.handle, twin.handle
    try:
        yield
    finally:
        executor.handle = own


def run_evaluation(model: Module, inputs: Mapping[str, NDArray]) -> Any:
    """Run a module on inputs in evaluation mode, by an executor of its own.

    Args:
        model: The module.
        inputs: Its data by name.

    Returns:
        The output; a list if there are several.
    """
    (bound,) = model._exec_group.execs
    executor = model.symbol.bind(
        bound._ctx,
        args=arguments(model, inputs),
        # With gradients, although none are computed: otherwise MXNet would fuse operations.
        args_grad={name: one for name, one in bound.grad_dict.items() if one is not None},
        grad_req=bound._grad_req,
        aux_states=bound.aux_dict,
    )
    call = partial(executor.forward, is_train=False)
    watch = watch_of(model)
    if watch is None:
        call()
    else:
        is_train, watch.is_train = watch.is_train, False
        try:
            watch.run(executor, tuple(inputs.values()), call)
        finally:
            watch.is_train = is_train
            watch.forget(executor)
    return executor.outputs[0] if len(executor.outputs) == 1 else executor.outputs


def arguments(model: Module, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Return the arguments of a module's symbol for inputs, which may have other rows than it was bound for.

    Args:
        model: The module.
        inputs: Its data by name.

    Raises:
        InputError: If a parameter does not fit the inputs.
    """
    (bound,) = model._exec_group.execs
    shapes = {name: tuple(array.shape) for name, array in inputs.items()}
    found, _, _ = model.symbol.infer_shape_partial(**shapes)
    arrays = {}
    for name, shape in zip(model.symbol.list_arguments(), found, strict=True):
        if name in inputs:
            arrays[name] = inputs[name]
        elif tuple(bound.arg_dict[name].shape) == tuple(shape):
            arrays[name] = bound.arg_dict[name]
        elif name in model._param_names:
            raise InputError(
                f"{name} of the Module is of shape {bound.arg_dict[name].shape}, and these inputs need shape "
                f"{tuple(shape)}. Pass inputs as it was bound for, but for the number of rows."
            )
        else:  # labels
            arrays[name] = nd.zeros(shape, ctx=bound._ctx, dtype=bound.arg_dict[name].dtype)
    return arrays


def as_dict(model: Module, data: Any) -> dict[str, Any]:
    """Return inputs by the names of the module's data.

    Raises:
        InputError: If their number is another.
    """
    if isinstance(data, Mapping):
        return dict(data)
    values = data if isinstance(data, tuple) else (data,)
    if len(values) != len(model.data_names):
        raise InputError(f"The Module has the inputs {', '.join(model.data_names)}, got {len(values)}.")
    return dict(zip(model.data_names, values, strict=True))


def values(model: Module) -> dict[str, np.ndarray]:
    """Return the parameters and auxiliary states of a module by name."""
    (executor,) = model._exec_group.execs
    arrays = {**{name: executor.arg_dict[name] for name in model._param_names}, **executor.aux_dict}
    return {name: to_numpy(array) for name, array in arrays.items()}
