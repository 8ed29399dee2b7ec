"""Turn operations of a TensorFlow graph into rows of a Graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...core.address import Address
from ...core.building import GraphBuilder, Scope
from ...core.shortest import shortest
from .loops import before
from .purpose import is_update

FACTS = {"framework": "tensorflow", "version": tf.__version__}
#: Constants with at most this many elements are settings of the operations that read them.
_SETTING = 16
#: Dtypes of tensors that stand for others (a list of tensors, a data set, a table). They have rows, since
#: values pass through them, and no values of their own.
HANDLES = (tf.resource, tf.variant)
_READS = frozenset({"ReadVariableOp", "Identity", "Cast", "Enter", "RefEnter"})
_VARIABLES = frozenset({"VariableV2", "Variable", "VarHandleOp"})
_INPUTS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "IteratorGetNext"})
#: Types of operations that may have no rows, or whose rows are in no module.
PASSIVE = frozenset({"Const"}) | _READS | _VARIABLES | _INPUTS


class Rows:
    """Adds operations to a builder, with the parameters they read and their other arguments as text.

    Args:
        builder: The builder.
        variables: The address of each variable by the name of the tensor that is its handle or its value.
        buffers: Those of the addresses that are no parameters.
        scope_of: Returns the module calls that an operation ran in.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        variables: Mapping[str, str],
        buffers: Mapping[str, Any],
        scope_of: Callable[[Any], Sequence[Scope]],
    ) -> None:
        self._builder, self._variables, self._buffers = builder, dict(variables), buffers
        self._scope_of = scope_of
        self.rows: dict[str, int] = {}  # by the name of a tensor
        self._texts: dict[str, str] = {}  # constants that are settings
        self.buffer_rows: dict[str, int] = {}  # by address
        self._written: set[str] = set()  # addresses

    def add(self, operations: Iterable[Any]) -> None:
        """Add operations, each of which follows those that it reads."""
        for op in operations:
            if _may_write(op):
                self._written |= {self._variables.get(tensor.name, "") for tensor in op.inputs}
            if not op.outputs or op.outputs[0].name in self.rows or op.outputs[0].name in self._variables:
                continue
            if op.type in _VARIABLES:
                continue
            if op.type in _INPUTS:
                for tensor in op.outputs:
                    self.rows[tensor.name] = self._builder.input(name_of(tensor), *meta_of(tensor))
            elif op.type == "Const":
                self._constant(op)
            elif not self._is_read(op):
                self._operation(op)

    def _is_read(self, op: Any) -> bool:
        """Return whether an operation only reads a variable, and note its value as that variable's."""
        if op.type not in _READS or len(op.inputs) != 1:
            return False
        address = self._variables.get(op.inputs[0].name)
        if address is None or (op.type == "Cast" and address in self._buffers):
            return False
        self._variables[op.outputs[0].name] = address
        return True

    def _constant(self, op: Any) -> None:
        value = tf.make_ndarray(op.get_attr("value"))
        name = op.outputs[0].name
        if value.size <= _SETTING:
            self._texts[name] = str(shortest(value))
        else:
            self.rows[name] = self._builder.constant(value.shape, str(value.dtype), self._scope_of(op))

    def _operation(self, op: Any) -> None:
        scope = self._scope_of(op)
        parents: list[tuple[int, str]] = []
        params: list[str] = []
        settings: list[str] = []
        for number, tensor in enumerate(before(op)):
            name = tensor.name
            address = self._variables.get(name)
            if address is not None and address not in self._buffers:
                params.append(address)
            elif address is not None:
                parents.append((self._buffer(address, scope), str(number)))
            elif name in self.rows:
                parents.append((self.rows[name], str(number)))
            elif name in self._texts:
                settings.append(f"{_argument(op, number)}={self._texts[name]}")
        computed = [one for one in op.outputs if one.name not in self.rows]  # the others are fed
        # A loop also returns the handles of what it only reads, which nothing reads in turn.
        read = [one for one in computed if one.dtype not in HANDLES or one.consumers()]
        tensors = read or computed
        event: int | None = None
        for tensor in tensors:
            row = self._builder.op(
                op.type,
                *meta_of(tensor),
                scope=scope,
                parents=parents,
                params=params,
                setting=", ".join([*settings, *_attributes(op)]),
                event=event,
                output=tensor.value_index if len(tensors) > 1 else -1,
            )
            event = row if event is None else event
            self.rows[tensor.name] = row

    def returned(self, tensor: Any) -> int:
        """Return the row of a tensor that the model or a layer returns.

        It is added if only settings of operations, or nothing, have the tensor: a constant, or a variable.
        """
        name = tensor.name
        if name not in self.rows:
            self.rows[name] = self._state(tensor.op, self._variables.get(name), meta_of(tensor))
        return self.rows[name]

    def _state(self, op: Any, address: str | None, meta: tuple[tuple[int, ...], str]) -> int:
        """Return the row of a constant, or of what an operation reads of the variable of an address."""
        scope = self._scope_of(op)
        if address is None:
            return self._builder.constant(*meta, scope)
        is_buffer = address in self._buffers
        if address in self._written or op.type == "Cast":  # not what the variable held before the call
            parents = [(self._buffer(address, scope), "0")] if is_buffer else []
            params = [] if is_buffer else [address]
            return self._builder.op(op.type, *meta, scope=scope, parents=parents, params=params)
        return self._buffer(address, scope) if is_buffer else self._builder.parameter(address, scope)

    def _buffer(self, address: str, scope: Sequence[Scope]) -> int:
        if address not in self.buffer_rows:
            variable = self._buffers[address]
            shape, dtype = tuple(variable.shape.as_list()), str(variable.dtype.base_dtype.name)
            self.buffer_rows[address] = self._builder.buffer(address, shape, dtype, scope)
        return self.buffer_rows[address]


def values_by_row(rows: Mapping[str, int], values: Mapping[str, Any], order: np.ndarray) -> dict[int, Any]:
    """Return values by row of the built graph.

    Args:
        rows: The rows that were added, by name of a tensor or address of a buffer.
        values: Arrays by the same names.
        order: For each row that was added the row of the graph.
    """
    return {int(order[row]): values[name] for name, row in rows.items() if name in values}


def name_of(tensor: Any) -> str:
    """Return the address of a tensor: its operation's name, of further outputs TensorFlow's, escaped."""
    return str(Address(tensor.name if tensor.value_index else tensor.op.name))


def meta_of(tensor: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape of a tensor, with -1 for unknown lengths, and its dtype."""
    shape = tensor.shape
    lengths = [] if shape.rank is None else shape.as_list()
    return tuple(-1 if one is None else one for one in lengths), str(tensor.dtype.base_dtype.name)


def _may_write(op: Any) -> bool:
    """Return whether an operation may write the variables that it is given: itself, or what it calls."""
    calls = op.op_def is not None and any("func" in attribute.type for attribute in op.op_def.attr)
    return is_update(op) or (calls and op.op_def.is_stateful)


def _argument(op: Any, number: int) -> str:
    """Return the name that an operation gives to its argument with a number."""
    names = [one.name for one in op.op_def.input_arg] if op.op_def is not None else []
    return names[number] if len(names) == len(op.inputs) else str(number)


def _attributes(op: Any) -> list[str]:
    """Return the attributes of an operation that are not types and differ from their defaults, as text."""
    if op.op_def is None:
        return []
    found = []
    for attribute in op.op_def.attr:
        if attribute.type in ("type", "list(type)", "func", "list(func)") or attribute.name.startswith("_"):
            continue
        given = op.node_def.attr[attribute.name]
        if attribute.HasField("default_value") and given == attribute.default_value:
            continue
        if attribute.type == "int" and attribute.name in ("N", "num"):
            continue
        value = op.get_attr(attribute.name)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if attribute.type in ("float", "list(float)"):
            value = shortest(np.array(value, np.float32))
        found.append(f"{attribute.name}={value}")
    return found
