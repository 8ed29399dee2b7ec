"""The operations of a graph of TensorFlow 1 that can be observed, and those that a run computes anyway."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import tensorflow as tf
from tensorflow.python.client.session import _FetchHandler, _FetchMapper
from tensorflow.python.ops.control_flow_util import GetOutputContext

from ...core.address import Address, of_call
from ...core.nested import named
from ...core.vocabularies.tensorflow import DRAWING
from ..base import Operation
from .fusion import APART, inner_members
from .loops import before
from .purpose import OF_SHAPE, counts_a_metric, ends_data, is_source, is_update, leading_to_results

_SEVERAL = (
    "The graph has several gradients of {} operations, one for each tf.gradients or minimize. Of {!r}, {} is "
    "recorded, in the runs that compute it."
)
_UNCLEAR = (
    "grad_output of {} operations is not recorded, for example of {!r}: their gradient functions read "
    "several gradients, or one that cannot be fetched. Fetch tf.gradients of what you need."
)
#: Operations that run functions, whose own operations are in other graphs.
_CALLS = frozenset({"While", "If", "Case", "PartitionedCall"})


class Watched(NamedTuple):
    """A tensor to fetch.

    Attributes:
        operation: The operation that it belongs to.
        kind: ``"output"`` or ``"grad_output"``.
        tensor: The tensor.
        number: Of several gradients of an operation, which of them, from 1.
    """

    operation: Operation
    kind: str
    tensor: Any
    number: int = 1


class Plan(NamedTuple):
    """The observed tensors that a run with certain fetches and feeds computes anyway.

    Attributes:
        outputs: The outputs of the observed operations.
        gradients: Their gradients, as far as the graph has them.
        trains: Whether the run changes variables, besides those of metrics.
    """

    outputs: list[Watched]
    gradients: list[Watched]
    trains: bool


def observable(graph: Any) -> list[Operation]:
    """Return the operations that compute floating-point tensors with axes from data.

    Initializers, constants, variables and the optimizer's slots are not computed from data. Gradients, and
    what is computed from them, are left out, and so is what runs only if a condition holds, what cannot be
    fetched, and what only writes: to variables, files or summaries. Members of a chain that TensorFlow fuses
    are observed only where they are selected.

    Args:
        graph: The graph.
    """
    operations = forward(graph)
    inner = inner_members(operations, OF_SHAPE)
    found = []
    for op in _of_model(operations):
        if _is_float(op) and can_fetch(op.outputs[0]):
            address = str(Address(op.name))
            found.append(Operation(address, op.type, op, APART % address if op in inner else ""))
    return found


def closed(graph: Any) -> list[str]:
    """Return the names of the loops, branches and functions that compute with data, which hide what they do.

    Args:
        graph: The graph.
    """
    found: dict[str, None] = {}
    for op in _of_model(forward(graph)):
        if op.type.removeprefix("Stateless").removeprefix("Stateful") in _CALLS:
            found.setdefault(op.name)
        elif _is_float(op) and not can_fetch(op.outputs[0]):
            found.setdefault(_around(op))
    return list(found)


def _around(op: Any) -> str:
    """Return the name of the outermost loop or branch of version 1 that an operation is in."""
    context = op._get_control_flow_context()
    while context is not None and context.outer_context is not None:
        context = context.outer_context
    name = str(op.name if context is None else context.name)  # import_graph_def keeps no contexts
    return name.rpartition("/")[0] or name


def _of_model(operations: Sequence[Any]) -> list[Any]:
    """Return those of the sorted operations of a graph that compute results with data, not with its shape."""
    if not operations:
        return []
    everything = operations[0].graph.get_operations()
    leading = leading_to_results(everything, filter(_is_of_gradient, everything))
    of_data: set[Any] = set()
    found = []
    for op in operations:
        if is_source(op):
            of_data.add(op)
        elif (
            op.type not in OF_SHAPE
            and any(tensor.op in of_data for tensor in before(op))
            and not ends_data(op)
        ):
            of_data.add(op)
            found += [op] if op in leading else []
    return found


def _is_of_gradient(op: Any) -> bool:
    """Return whether a function of a gradient made an operation; an imported one is told by its name."""
    return op._original_op is not None or "_grad/" in op.name


def forward(graph: Any) -> list[Any]:
    """Return the operations of a graph without gradients, and without what is computed from them.

    Every operation follows those that it reads; in a loop, those of the first iteration. The gradient of a
    loop of version 2 makes the loop itself read what is to keep its values: that is no gradient.
    """
    operations = _sorted(graph.get_operations())
    scopes = tuple({scope for op in operations if (scope := _gradient_scope(op)) is not None})
    of_gradient: set[Any] = set()
    for op in operations:
        is_of_gradient = op._original_op is not None or op.name.startswith(scopes)
        read = (tensor.op for tensor in op.inputs if tensor.op._original_op is not op)
        if is_of_gradient or not of_gradient.isdisjoint(read):
            of_gradient.add(op)
    return [op for op in operations if op not in of_gradient]


def _sorted(operations: list[Any]) -> list[Any]:
    """Sort operations such that each follows those that it reads, as far as possible as they were created.

    A branch of ``tf.cond`` is created before what switches its inputs.
    """
    found: dict[Any, None] = {}
    entered: set[Any] = set()
    for op in operations:
        todo = [op]
        while todo:
            one = todo[-1]
            if one not in entered:
                entered.add(one)
                todo += [tensor.op for tensor in reversed(before(one)) if tensor.op not in entered]
            else:
                found.setdefault(todo.pop())
    return list(found)


def _is_float(op: Any) -> bool:
    """Return whether the first output of an operation is a floating-point tensor with axes."""
    if not op.outputs:
        return False
    output = op.outputs[0]
    return bool(output.dtype.is_floating and not output.dtype._is_ref_dtype and output.shape.rank != 0)


def can_fetch(tensor: Any) -> bool:
    """Return whether a tensor can be fetched whichever branches a run takes."""
    op = tensor.op
    is_inside = GetOutputContext(op) is not None or op in _branches(op.graph)
    return bool(op.graph.is_fetchable(tensor)) and not is_inside


#: By graph: its version, and the operations in branches and loops.
_known: WeakKeyDictionary[Any, tuple[int, frozenset[Any]]] = WeakKeyDictionary()


def _branches(graph: Any) -> frozenset[Any]:
    """Return the operations of a graph that are in a branch or loop, by its Switch and Enter operations.

    Operations that ``import_graph_def`` made have no control flow context, but a dead one ends a run.
    """
    version = graph.version
    if graph not in _known or _known[graph][0] != version:
        _known[graph] = (
            version,
            frozenset(op for op, depth in _depths(graph.get_operations()).items() if depth),
        )
    return _known[graph][1]


def _depths(operations: list[Any]) -> dict[Any, int]:
    """Return the number of branches and loops around each operation; nothing if there are none."""
    if not any(op.type.removeprefix("Ref") in ("Switch", "Enter") for op in operations):
        return {}
    found: dict[Any, int] = {}
    entered: set[Any] = set()
    for op in operations:
        todo = [op]
        while todo:
            one = todo[-1]
            read = [tensor.op for tensor in one.inputs]
            first = [two for two in (*read, *one.control_inputs) if two.type != "NextIteration"]
            if one not in entered:
                entered.add(one)
                todo += [two for two in first if two not in entered]
                continue
            todo.pop()
            if one in found:
                continue
            depth = max((found.get(two, 0) for two in first), default=0)
            closes_loop = len(first) < len(read)  # the Merge at the beginning of a loop
            kind = one.type.removeprefix("Ref")
            if kind == "Enter" or (kind == "Switch" and all(two.type != "LoopCond" for two in read)):
                depth += 1
            elif kind == "Exit" or (kind == "Merge" and not closes_loop):
                depth -= 1
            found[one] = max(0, depth)
    return found


def _gradient_scope(op: Any) -> str | None:
    """Return the name scope that ``tf.gradients`` made an operation in (``gradients/``), or None."""
    if op._original_op is None:
        return None
    scope, found, _ = op.name.partition(f"{op._original_op.name}_grad/")
    return scope if found and scope else None


def elements(graph: Any, fetches: Any) -> list[Any]:
    """Return the tensors and operations that the fetches of a run name, in whatever structure.

    Args:
        graph: The Session's graph.
        fetches: What the user passed to ``run``.
    """
    with graph.as_default():
        found = _FetchMapper.for_fetch(fetches).unique_fetches()
        return [graph.as_graph_element(one) for one in found]


def fetched_tensors(graph: Any, fetches: Any) -> list[Any]:
    """Return the tensors that a run returns the values of, in its order: one that is fetched twice, twice.

    Args:
        graph: The Session's graph.
        fetches: What the user passed to ``run``.
    """
    with graph.as_default():
        mapper = _FetchMapper.for_fetch(fetches)
        found = [graph.as_graph_element(one) for one in mapper.unique_fetches()]
    tensors = [one for one in found if isinstance(one, tf.Tensor)]
    return [tensor for _, tensor in named(mapper.build_results(found), tensors)]


def is_random(op: Any) -> bool:
    """Return whether an operation draws from a generator whose state the Session keeps."""
    return bool(op.op_def.is_stateful) and DRAWING.match(op.type) is not None


def check_fetches(graph: Any, tensors: list[Any]) -> None:
    """Raise what ``run`` would raise before it runs anything if it cannot fetch these tensors."""
    _FetchHandler(graph, tensors, {})


def ancestors(ends: Iterable[Any], fed: Collection[Any] = ()) -> set[Any]:
    """Return the operations that tensors and operations are computed by.

    Args:
        ends: The tensors and operations.
        fed: Names of tensors whose values are given, so that they are not computed.
    """
    found: set[Any] = set()
    todo = [end for end in ends if not (isinstance(end, tf.Tensor) and end.name in fed)]
    while todo:
        end = todo.pop()
        op = end.op if isinstance(end, tf.Tensor) else end
        if op not in found:
            found.add(op)
            todo += [tensor for tensor in op.inputs if tensor.name not in fed]
            todo += op.control_inputs
    return found


def plan(operations: Sequence[Operation], ends: Collection[Any], fed: Collection[str]) -> Plan:
    """Return what a run computes anyway.

    Args:
        operations: The observed operations.
        ends: The tensors and operations that the run fetches.
        fed: The names of the tensors that it feeds.
    """
    computed = ancestors(ends, fed)
    outputs = [
        Watched(operation, "output", tensor)
        for operation in operations
        if operation.module in computed
        and (tensor := operation.module.outputs[0]).name not in fed
        and can_fetch(tensor)
    ]
    groups = _gradient_groups(operations[0].module.graph) if operations else {}
    gradients = [
        Watched(one.operation, "grad_output", gradient, number)
        for one in outputs
        for number, (scope, group) in enumerate(groups.get(one.operation.module, {}).items(), 1)
        if not computed.isdisjoint(group)
        and (gradient := _gradient(one.operation.module, scope, group & computed, fed)) is not None
    ]
    return Plan(outputs, gradients, any(is_update(op) and not counts_a_metric(op) for op in computed))


def gradient_notes(operations: Sequence[Operation]) -> Iterator[str]:
    """Yield sentences on the operations of a graph that have several gradients, or one that is not known.

    Args:
        operations: The observed operations.
    """
    groups = _gradient_groups(operations[0].module.graph) if operations else {}
    found = [(one.address, one.module, scopes) for one in operations if (scopes := groups.get(one.module))]
    if several := [(address, scopes) for address, _, scopes in found if len(scopes) > 1]:
        address, scopes = several[0]
        names = [
            f"that of {scope.rstrip('/')!r} as {of_call(address, number)!r}"
            for number, scope in enumerate(scopes, 1)
        ]
        yield _SEVERAL.format(len(several), address, ", ".join(names))
    unclear = [
        address
        for address, op, scopes in found
        if any(_gradient(op, scope, group, ()) is None for scope, group in scopes.items())
    ]
    if unclear:
        yield _UNCLEAR.format(len(unclear), unclear[0])


def _gradient_groups(graph: Any) -> dict[Any, dict[str, set[Any]]]:
    """Return by operation the operations that its gradient functions made, by name scope as they were made.

    Each computation of gradients (``tf.gradients``, ``minimize``) has a name scope of its own, so that the
    order of the scopes numbers the gradients, whichever of them a run computes.
    """
    groups: dict[Any, dict[str, set[Any]]] = {}
    for op in graph.get_operations():
        if op._get_control_flow_context() is None and (scope := _gradient_scope(op)) is not None:
            groups.setdefault(op._original_op, {}).setdefault(scope, set()).add(op)
    return groups


def _gradient(op: Any, scope: str, group: Collection[Any], fed: Collection[str]) -> Any | None:
    """Return the gradient of an operation's output that the operations of its gradient function read.

    Args:
        op: The operation.
        scope: The name scope of the gradients.
        group: The operations that its gradient function made there, as far as the run computes them.
        fed: The names of the tensors that the run feeds.

    Returns:
        The tensor; None if the graph has none, or several that cannot be told apart.
    """
    found = {
        tensor.name: tensor
        for one in group
        for tensor in one.inputs
        if tensor.op not in group
        and tensor.name.startswith(scope)
        and tensor.dtype == op.outputs[0].dtype
        and tensor.name not in fed
        and can_fetch(tensor)
        and tensor.shape.is_compatible_with(op.outputs[0].shape)
    }
    return next(iter(found.values())) if len(found) == 1 else None
