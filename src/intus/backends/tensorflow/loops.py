"""The loops of TensorFlow 1, in whose graph each variable of a loop is a cycle: Merge reads NextIteration."""

from __future__ import annotations

from typing import Any

_EXIT, _NEXT, _ENTER, _MERGE = "Exit", "NextIteration", "Enter", "Merge"


def before(op: Any) -> list[Any]:
    """Return the tensors that an operation is computed from, without those that would close a cycle.

    The beginning of a loop reads what enters it. What later iterations compute arrives at the end: the exits
    read the variables of the next iteration that their value depends on.

    Args:
        op: The operation.
    """
    kind = _kind(op)
    if kind == _MERGE:
        return [tensor for tensor in op.inputs if _kind(tensor.op) != _NEXT]
    return [*op.inputs, *(_carried(op) if kind == _EXIT else ())]


def _carried(end: Any) -> list[Any]:
    """Return the variables of the next iteration, of its own loop, that an exit depends on."""
    found: list[Any] = []
    seen, waiting = {end}, list(end.inputs)
    while waiting:
        tensor = waiting.pop()
        kind = _kind(tensor.op)
        if tensor.op in seen or kind in (_ENTER, _EXIT):  # from around the loop, or from one inside of it
            continue
        seen.add(tensor.op)
        found += [tensor] if kind == _NEXT else []
        waiting += tensor.op.inputs
    return found


def _kind(op: Any) -> str:
    return str(op.type.removeprefix("Ref"))
