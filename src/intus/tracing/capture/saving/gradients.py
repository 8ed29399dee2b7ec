"""Gradients of what a pass computed, and what autograd keeps to compute them; see ``trace(…, grads=True)``.

While the pass runs the node of autograd's graph that made each tensor is noted; nothing is hooked. When it is
over, hooks on these nodes wait for the gradients that a backward pass brings. A hook knows the trace weakly:
who holds the loss does not hold the trace, and when the trace goes its hooks go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any
from weakref import finalize, ref

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from ....core.graph import INPLACE, OP, OUTPUT
from ..memory import memory_of
from ..recording import ROW, Recording

_FLAGS = ROW.index("flags")

#: Shape, strides and offset of a view, and shape and strides of its base.
_Part = tuple[torch.Size, tuple[int, ...], int, torch.Size, tuple[int, ...]]
#: Where a gradient arrives: a node and which of its outputs, and which part of that output is meant.
_Place = tuple[Node, int, _Part | None]


class Nodes:
    """The autograd node of each row of a pass under way: ``made`` by operations, or ``given`` from outside.

    ``hooked`` are the rows whose saved tensors are in others' hands (checkpointing, ``save_on_cpu``).
    """

    def __init__(self) -> None:
        self.made: dict[int, _Place] = {}
        self.given: dict[int, tuple[Node, int]] = {}
        self.hooked: set[int] = set()
        self._late: list[tuple[ref[Tensor], int]] = []

    def note(self, recording: Recording, row: int, kind: int, t: Tensor) -> None:
        """Note the node of what has just been returned."""
        if self._late and torch.is_grad_enabled():
            self._look_again()
        if not t.requires_grad:
            if not torch.is_grad_enabled():  # within a Function's forward; its result gets a node later
                self._late.append((ref(t), row))
        elif kind in (OP, OUTPUT):
            if t.grad_fn is not None:
                in_place = recording.rows[row + _FLAGS] & INPLACE
                self.made[row] = _written(t) if in_place else (t.grad_fn, t.output_nr, None)
                if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
                    self.hooked.add(row)
        else:
            edge = get_gradient_edge(t)
            self.given[row] = edge.node, edge.output_nr

    def _look_again(self) -> None:
        """The result of an ``autograd.Function`` has its node once the Function has returned."""
        for reference, row in self._late:
            t = reference()
            if t is not None and t.grad_fn is not None:
                self.made[row] = (t.grad_fn, t.output_nr, None)
        self._late.clear()

    def end(self) -> None:
        """The pass is over."""
        self._look_again()


class Gradients:
    """The gradients that have arrived, by row: the sum of all backward passes, as in a tensor's ``grad``."""

    def __init__(self, by_row: MutableMapping[int, Tensor] | None = None) -> None:
        self.by_row: MutableMapping[int, Tensor] = {} if by_row is None else by_row

    def add(self, row: int, grad: Tensor, part: _Part | None = None) -> None:
        """One more gradient of a row."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            if part is not None:
                grad = _part_of(grad, part)
            before = self.by_row.get(row)
            # The tensor itself is held, not an alias: autograd sees that and writes into memory of its own.
            held = grad.detach() if grad.requires_grad else grad
            self.by_row[row] = held if before is None else before + held


def waiting(nodes: Nodes, where: Callable[[int], int], rows: Iterable[int]) -> Gradients:
    """Gradients for these rows of the graph, to be filled by backward passes."""
    store, wanted = Gradients(), set(rows)
    made = {where(row): place for row, place in nodes.made.items() if where(row) in wanted}
    given = {where(row): place for row, place in nodes.given.items() if where(row) in wanted}
    by_node: dict[Node, list[tuple[int, int, _Part | None]]] = {}
    for row, (node, number, part) in made.items():
        by_node.setdefault(node, []).append((row, number, part))
    handles = [node.register_prehook(_arriving(ref(store), places)) for node, places in by_node.items()]
    if given:
        targets: dict[tuple[Node | None, int], list[int]] = {}
        for row, place in given.items():
            targets.setdefault(place, []).append(row)
        for _, node in own_nodes(nodes):
            leads = [
                (number, row)
                for number, edge in enumerate(node.next_functions)
                for row in targets.get(edge, ())
            ]
            if leads:
                handles.append(node.register_hook(_leaving(ref(store), leads)))
    finalize(store, _remove, handles).atexit = False
    return store


def own_nodes(nodes: Nodes) -> Iterator[tuple[int, Node]]:
    """Every node of the pass with the row whose operation made it: the first that leads to it."""
    seen: set[Node] = {node for node, _ in nodes.given.values()}
    for row in sorted(nodes.made):
        todo: list[Any] = [nodes.made[row][0]]
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if not _accumulates(node):
                yield row, node
                todo += [after for after, _ in node.next_functions]


def saved_bytes(nodes: Nodes, own: Iterable[Tensor]) -> tuple[dict[int, int], bool]:
    """How many bytes autograd keeps for each row's backward, each memory counted once, where it is first
    kept, and what is the model's ``own`` not at all; and whether some were written to since."""
    counted = {memory_of(t) for t in own}
    sizes: dict[int, int] = {}
    attributes: dict[type, list[str]] = {}
    stale = False
    for row, node in own_nodes(nodes):
        sizes.setdefault(row, 0)
        if row in nodes.hooked:
            continue
        cls = type(node)
        if cls not in attributes:
            attributes[cls] = [name for name in dir(cls) if name.startswith("_saved_")] or ["saved_tensors"]
        kept, written = _saved(node, attributes[cls])
        stale = stale or written
        for t in kept:
            memory = memory_of(t)
            if memory is not None and memory not in counted:
                counted.add(memory)
                sizes[row] += t.untyped_storage().nbytes()
    return sizes, stale


def _saved(node: Node, attributes: list[str]) -> tuple[list[Tensor], bool]:
    """The tensors that a node holds for its backward, and whether one was written to since."""
    found, stale = list[Any](), False
    for name in attributes:
        try:
            value = getattr(node, name, None)
        except RuntimeError:
            stale = True
        else:
            found += value if isinstance(value, tuple | list) else (value,)
    return [t for t in found if isinstance(t, Tensor) and not _is_number(t)], stale


def _is_number(t: Tensor) -> bool:
    """Whether torch made a tensor of a Python number: the 2 in ``x * 2``."""
    return (
        t.dim() == 0 and t.device.type == "cpu" and t.dtype in (torch.float64, torch.int64, torch.complex128)
    )


def _written(t: Tensor) -> _Place:
    """The place of what was written into a tensor: a view's gradient arrives at its base."""
    base = t._base
    if base is not None and base.grad_fn is not None and base.grad_fn.name().endswith("CopySlices"):
        offset = int(t.storage_offset()) - int(base.storage_offset())
        part = (t.shape, t.stride(), offset, base.shape, base.stride())
        return base.grad_fn, base.output_nr, part
    assert t.grad_fn is not None
    return t.grad_fn, t.output_nr, None


def _part_of(grad: Tensor, part: _Part) -> Tensor:
    shape, stride, offset, whole, strides = part
    laid = torch.empty_strided(whole, strides, dtype=grad.dtype, device=grad.device).copy_(grad)
    return laid.as_strided(shape, stride, offset).clone()


def _accumulates(node: Node) -> bool:
    return node.name().endswith("AccumulateGrad")


def _arriving(store: ref[Gradients], places: list[tuple[int, int, _Part | None]]) -> Callable[..., None]:
    def hook(grads: tuple[Tensor | None, ...]) -> None:
        gradients = store()
        if gradients is not None:
            for row, number, part in places:
                grad = grads[number]
                if grad is not None:
                    gradients.add(row, grad, part)

    return hook


def _leaving(store: ref[Gradients], leads: list[tuple[int, int]]) -> Callable[..., None]:
    def hook(inputs: tuple[Tensor | None, ...], _outputs: Any) -> None:
        gradients = store()
        if gradients is not None:
            for number, row in leads:
                grad = inputs[number]
                if grad is not None:
                    gradients.add(row, grad)

    return hook


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
