"""Compare the branches of each ``torch.cond`` of a model, step by step, with those of its file.

In a trace a ``torch.cond`` is one operation. What its branches return does not show a bound that no number
reaches, so the model is traced once more with the operations of the branch that is taken, for each branch on
inputs by which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ....core.errors import IntusError
from .made_inputs import made_inputs

if TYPE_CHECKING:
    import torch

    from ...capture.context.branches import Branching
    from ...results.trace import Trace
    from .other_inputs import Called


class Branches(NamedTuple):
    """Results of comparing branches.

    Attributes:
        apart: What is not shown to agree inside of them, as sentences.
        inputs: Other inputs, by which other branches are taken.
    """

    apart: list[str]
    inputs: list[list[torch.Tensor]]


def compare_branches(
    called: Called | None, model: Trace, unlike: Callable[[Trace, Trace], list[str]]
) -> Branches:
    """Compare what is inside of the branches of a model and of its file.

    Args:
        called: The call; None if the model cannot be called again.
        model: The trace of the model.
        unlike: Returns what is said of a trace of the model and one of the file on the same inputs.
    """
    if called is None or not called.can_change or "cond" not in model.graph.types:
        return Branches([], [])
    from ...capture.context.branches import inlined

    seen: dict[Branching, set[bool]] = {}
    apart: dict[str, None] = {}
    inputs: list[list[torch.Tensor]] = []
    for tensors in _inputs(called):
        with inlined() as ways:
            traced = called.on(lambda number, _, tensors=tensors: tensors[number])  # type: ignore[misc]
        if traced is None or all(way in seen.get(one, ()) for one, way in ways.items()):
            continue
        try:
            file = called.run(traced)
        except IntusError:  # of a file that does not take these inputs
            continue
        for one, way in ways.items():
            seen.setdefault(one, set()).add(way)
        apart |= dict.fromkeys(f"With torch.cond inlined, {one}" for one in unlike(traced, file))
        inputs.append(tensors)
        if all(len(some) == 2 for some in seen.values()):
            break
    if any(len(some) < 2 and one.depth for one, some in seen.items()):  # others are among the decisions
        apart[_ONE_WAY] = None
    return Branches([*apart], inputs[1:])


#: What is said of a ``torch.cond`` inside of another.
_ONE_WAY = (
    "A torch.cond inside of another takes one of its branches on all inputs that were tried, so the other "
    "was not compared"
)


def _inputs(called: Called) -> Iterator[list[torch.Tensor]]:
    """Yield the inputs of a call, and others."""
    yield called.inputs
    yield from (made.tensors for made in made_inputs(called.inputs, every=True))
