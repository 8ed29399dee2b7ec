"""Find the first difference of tensors or parameters, and say where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..results.trace import Trace


def first_of(
    model: Trace,
    first: dict[str, Any] | None,
    changed: Mapping[int, list[str]],
    shown: int = -1,
    also: Callable[[int], list[str]] = lambda row: [],
) -> dict[str, Any] | None:
    """Return the first difference of tensors or, if that is earlier, of parameters.

    Args:
        model: The trace of the model.
        first: The first difference of tensors.
        changed: How parameters differ, by the row that uses them.
        shown: The row of the model that shows the first difference of tensors, which the file's own
            operations may make before it.
        also: Returns what else is said of the parameters that a row uses.
    """
    if not changed:
        return first
    row, sentences = next(iter(changed.items()))
    if first is not None and (model[first["a"]].row if first["a"] else shown) <= row:
        return first
    sentences = [*sentences, *also(row)]
    if row == len(model.graph.ops):  # no operation uses it
        return {"a": "", "b": "", "module": sentences[0].split(" ")[0].rpartition(".")[0], "why": sentences}
    op = model._handles([row])[0]
    return {"a": op.label, "b": "", "module": op.module or "", "why": sentences}


def joined(*found: Mapping[int, list[str]]) -> dict[int, list[str]]:
    """Return the sentences on each row of several kinds of differences, in the order of the rows."""
    rows = sorted({row for sentences in found for row in sentences})
    return {row: [one for sentences in found for one in sentences.get(row, ())] for row in rows}


def place(first: Mapping[str, Any]) -> str:
    """Return where a difference is: ``in fc``, or ``at add_1_3`` outside of all modules.

    Args:
        first: The first difference.
    """
    if first["module"]:
        return f"in {first['module']}"
    if first["a"]:
        return f"at {first['a']}"
    return f"at {first['b']} of the file" if first["b"] else "in its state"
