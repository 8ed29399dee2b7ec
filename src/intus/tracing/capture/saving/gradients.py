"""Save the gradients of activations, and measure what autograd saves; see ``trace(…, grads=True)``.

During the pass only the autograd node of each tensor is recorded. When it is over, hooks are registered on
the nodes, which save the gradients of later backward passes. The hooks refer to the gradients weakly: keeping
the loss does not keep the trace alive, and the hooks are removed with the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import finalize, ref

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from ....core.graph import INPLACE, OP, OUTPUT
from ..memory import memory_of
from ..recording import ROW, Recording
from .gradients_by_row import Gradients

_FLAGS = ROW.index("flags")

#: Shape, strides and offset of a view, and shape and strides of its base.
_Part = tuple[torch.Size, tuple[int, ...], int, torch.Size, tuple[int, ...]]
#: A tensor in autograd's graph: a node, which of its outputs, and the part of that output; None for all of
#: it.
_NodeOutput = tuple[Node, int, _Part | None]


class Nodes:
    """The autograd nodes of the tensors of one pass, by offset.

    Attributes:
        computed: The nodes of tensors that operations returned.
        external: The nodes and output numbers of inputs, buffers and constants.
        hooked: The tensors whose saved tensors are handled by saved-tensor hooks (checkpointing,
            ``save_on_cpu``), so that their memory is not counted.
        recomputes: Whether checkpointing will run parts of the model again in the backward pass.
    """

    def __init__(self) -> None:
        self.computed: dict[int, _NodeOutput] = {}
        self.external: dict[int, tuple[Node, int]] = {}
        self.hooked: set[int] = set()
        self.recomputes = False
        self._pending: list[tuple[ref[Tensor], int]] = []

    def add(self, recording: Recording, offset: int, kind: int, t: Tensor) -> None:
        """Record the node of a tensor that was just returned.

        Args:
            recording: The recording.
            offset: The offset of the tensor.
            kind: Index into ``OP_KINDS``.
            t: The tensor.
        """
        if self._pending and torch.is_grad_enabled():
            self._add_pending()
        if not t.requires_grad:
            if not torch.is_grad_enabled():  # in the forward of a Function, whose result gets a node later
                self._pending.append((ref(t), offset))
        elif kind in (OP, OUTPUT):
            if t.grad_fn is not None:
                in_place = recording.rows[offset + _FLAGS] & INPLACE
                self.computed[offset] = _written(t) if in_place else (t.grad_fn, t.output_nr, None)
                hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
                if hooks is not None:
                    self.hooked.add(offset)
                    self.recomputes |= hooks[0].__module__ == "torch.utils.checkpoint"
        else:
            self.external[offset] = _edge(t)

    def _add_pending(self) -> None:
        """Record the nodes of results of an ``autograd.Function``, which exist once it has returned."""
        for reference, offset in self._pending:
            t = reference()
            if t is not None and t.grad_fn is not None:
                self.computed[offset] = (t.grad_fn, t.output_nr, None)
        self._pending.clear()

    def end(self) -> None:
        """Finish recording when the pass is over."""
        self._add_pending()


def _edge(t: Tensor) -> Any:
    """Return the node at which the gradient of an earlier tensor arrives, and its input number."""
    if t.layout == torch.strided or t.grad_fn is not None:
        edge = get_gradient_edge(t)
        return edge.node, edge.output_nr
    node = t.clone().grad_fn  # a sparse tensor has no views, which ``get_gradient_edge`` needs
    assert node is not None
    return node.next_functions[0]


def _add(gradients: Gradients, row: int, grad: Tensor, part: _Part | None = None) -> None:
    """Add one gradient of a row to the sum of those of earlier backward passes.

    Args:
        gradients: The gradients.
        row: The row in the graph.
        grad: The gradient of the row's tensor, or of the base of the view that the tensor is.
        part: The view; None if ``grad`` is the gradient of the tensor itself.
    """
    with torch._C.DisableTorchFunction():
        # The tensor itself is stored, not an alias: autograd then does not accumulate into its memory.
        stored = grad.detach() if grad.requires_grad else grad
        if part is not None:
            stored = _part_of(stored, part)
        before = gradients.by_row.get(row)
        gradients.by_row[row] = stored if before is None else before + stored


def register_hooks(nodes: Nodes, graph_row: Callable[[int], int], rows: Iterable[int]) -> Gradients:
    """Register the hooks that save gradients.

    Args:
        nodes: The nodes of the pass.
        graph_row: Returns the row in the graph of an offset, -1 if it has none.
        rows: The rows of the graph whose gradients to save.

    Returns:
        The gradients, empty until a backward pass. The hooks are removed when it is deleted.
    """
    store, wanted = Gradients(), set(rows)
    computed = {
        graph_row(offset): out for offset, out in nodes.computed.items() if graph_row(offset) in wanted
    }
    external = {
        graph_row(offset): out for offset, out in nodes.external.items() if graph_row(offset) in wanted
    }
    by_node: dict[Node, list[tuple[int, int, _Part | None]]] = {}
    for row, (node, number, part) in computed.items():
        by_node.setdefault(node, []).append((row, number, part))
    handles = [node.register_prehook(_prehook(ref(store), outputs)) for node, outputs in by_node.items()]
    if external:
        targets: dict[tuple[Node | None, int], list[int]] = {}
        for row, node_output in external.items():
            targets.setdefault(node_output, []).append(row)
        for _, node in nodes_of_pass(nodes):
            inputs = [
                (number, row)
                for number, edge in enumerate(node.next_functions)
                for row in targets.get(edge, ())
            ]
            if inputs:
                handles.append(node.register_hook(_posthook(ref(store), inputs)))
    finalize(store, _remove, handles).atexit = False
    return store


def nodes_of_pass(nodes: Nodes) -> Iterator[tuple[int, Node]]:
    """Yield every autograd node of the pass with the offset of the first tensor that leads to it."""
    visited: set[Node] = {node for node, _ in nodes.external.values()}
    for offset in sorted(nodes.computed):
        todo: list[Any] = [nodes.computed[offset][0]]
        while todo:
            node = todo.pop()
            if node is None or node in visited:
                continue
            visited.add(node)
            if not _accumulates(node):
                yield offset, node
                todo += [after for after, _ in node.next_functions]


def code_in_backward(nodes: Nodes) -> str:
    """Return what runs code of the model in its backward pass; ``""`` if nothing does."""
    if nodes.recomputes:
        return "torch.utils.checkpoint"
    for _, node in nodes_of_pass(nodes):
        function = getattr(node, "_forward_cls", None)  # a custom ``autograd.Function``
        module = getattr(function, "__module__", "torch.")
        if module == "torch.utils.checkpoint" or not module.startswith(("torch.", "intus.")):
            return f"the autograd.Function {function.__name__}"  # type: ignore[union-attr]
    return ""


def saved_bytes(nodes: Nodes, own: Iterable[Tensor]) -> tuple[dict[int, int], bool]:
    """Measure the memory that autograd saves for the backward pass.

    Args:
        nodes: The nodes of the pass.
        own: The model's parameters and buffers, whose memory is not counted.

    Returns:
        The bytes saved for each tensor, by offset, where each memory is counted once, for the first tensor
        that saves it; and whether some of the saved tensors were written to since.
    """
    counted = {memory_of(t) for t in own}
    sizes: dict[int, int] = {}
    attributes: dict[type, list[str]] = {}
    stale = False
    for offset, node in nodes_of_pass(nodes):
        sizes.setdefault(offset, 0)
        if offset in nodes.hooked:
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
                sizes[offset] += t.untyped_storage().nbytes()
    return sizes, stale


def _saved(node: Node, attributes: list[str]) -> tuple[list[Tensor], bool]:
    """Return the tensors that a node saved for backward, and whether one was written to since."""
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
    """Return whether torch made a tensor from a Python number: the 2 in ``x * 2``."""
    return (
        t.dim() == 0 and t.device.type == "cpu" and t.dtype in (torch.float64, torch.int64, torch.complex128)
    )


def _written(t: Tensor) -> _NodeOutput:
    """Return the node of a tensor written in place; for a view it is the node of its base."""
    base = t._base
    if base is not None and base.grad_fn is not None and base.grad_fn.name().endswith("CopySlices"):
        offset = int(t.storage_offset()) - int(base.storage_offset())
        part = (t.shape, t.stride(), offset, base.shape, base.stride())
        return base.grad_fn, base.output_nr, part
    assert t.grad_fn is not None
    return t.grad_fn, t.output_nr, None


def _part_of(grad: Tensor, part: _Part) -> Tensor:
    shape, stride, offset, whole, strides = part
    base = torch.empty_strided(whole, strides, dtype=grad.dtype, device=grad.device).copy_(grad)
    return base.as_strided(shape, stride, offset).clone()


def _accumulates(node: Node) -> bool:
    return node.name().endswith("AccumulateGrad")


def _prehook(store: ref[Gradients], outputs: list[tuple[int, int, _Part | None]]) -> Callable[..., None]:
    """Return a hook that saves the gradients of a node's outputs: pairs of row, output number and part."""

    def hook(grads: tuple[Tensor | None, ...]) -> None:
        gradients = store()
        if gradients is not None:
            for row, number, part in outputs:
                grad = grads[number]
                if grad is not None:
                    _add(gradients, row, grad, part)

    return hook


def _posthook(store: ref[Gradients], inputs: list[tuple[int, int]]) -> Callable[..., None]:
    """Return a hook that saves the gradients of a node's inputs: pairs of input number and row."""

    def hook(grads: tuple[Tensor | None, ...], _outputs: Any) -> None:
        gradients = store()
        if gradients is not None:
            for number, row in inputs:
                grad = grads[number]
                if grad is not None:
                    _add(gradients, row, grad)

    return hook


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
