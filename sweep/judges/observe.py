"""Observe a forward pass with torch alone: every call, what it returned, and its node of autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

#: Calls that are not computations, although they return tensors.
_NOT_CALLS = frozenset({"requires_grad_", "retain_grad", "register_hook", "__deepcopy__", "__set__"})
#: Properties that return another tensor; ``grad`` and others return facts about one.
_PROPERTIES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


@dataclass
class Result:
    """A tensor that a call returned or wrote.

    Attributes:
        call: The number of the call; a call may return several tensors.
        name: The name of the function.
        value: A copy of its value at that time.
        tensor: The tensor itself.
        node: Its node of autograd at that time; None if autograd does not follow it.
        output: The number of the output of the node.
        written: Whether the call wrote into it.
        is_view: Whether it is a view, and the call only made it.
    """

    call: int
    name: str
    value: Tensor
    tensor: Tensor
    node: Any
    output: int
    written: bool
    is_view: bool

    @property
    def edge(self) -> tuple[Any, int]:
        """The node with the number of its output."""
        return self.node, self.output


@dataclass
class Observed:
    """The observations of a pass.

    Attributes:
        results: The tensors that calls returned or wrote, in order.
        owner: The number of the result by its node of autograd and the number of the node's output; -1 - n
            for the input n.
        outputs: The tensors of the output.
        output_nodes: Their nodes of autograd, with the number of the node's output; None without one.
        names: The names of the parameters by ``id``.
    """

    results: list[Result] = field(default_factory=list)
    owner: dict[tuple[Any, int], int] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    output_nodes: list[Any] = field(default_factory=list)
    names: dict[int, set[str]] = field(default_factory=dict)


def observe(model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Observed:
    """Run a model and observe it.

    Args:
        model: A module or function.
        args: Its arguments. Give tensors that are no leaves of autograd, so that the model may write into
            them.
        kwargs: Its keyword arguments.
    """
    found = Observed()
    if isinstance(model, torch.nn.Module):
        for name, param in model.named_parameters(remove_duplicate=False):
            found.names.setdefault(id(param), set()).add(name)
    for number, tensor in enumerate(tensors_in((args, dict(kwargs)))):
        if tensor.grad_fn is not None:
            found.owner.setdefault((tensor.grad_fn, tensor.output_nr), -1 - number)
    with _Observer(found):
        out = model(*args, **kwargs)
    found.outputs = tensors_in(out)
    found.output_nodes = [
        None if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr) for tensor in found.outputs
    ]
    return found


class _Observer(TorchFunctionMode):
    def __init__(self, found: Observed) -> None:
        super().__init__()
        self.found, self.calls = found, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        versions = [_version(tensor) for tensor in given]
        out = func(*args, **kwargs)
        name = getattr(func, "__name__", type(func).__name__)
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
            if name not in _PROPERTIES:
                return out
        if name in _NOT_CALLS:
            return out
        with torch._C.DisableTorchFunction():
            written = {id(t) for t, v in zip(given, versions, strict=True) if _version(t) != v}
            results = tensors_in(out)
            if out is None or not results:
                results = [t for t in given if id(t) in written][:1]
            else:
                results += [t for t in given if id(t) in written and all(t is not other for other in results)]
            self.calls += 1
            for tensor in results:
                self._add(name, tensor, id(tensor) in written)
        return out

    def _add(self, name: str, tensor: Tensor, written: bool) -> None:
        number, node = len(self.found.results), tensor.grad_fn
        is_view = tensor._is_view()
        copy = tensor.detach().clone()
        self.found.results.append(
            Result(self.calls, name, copy, tensor, node, tensor.output_nr, written, is_view and not written)
        )
        if node is not None:
            self.found.owner.setdefault((node, tensor.output_nr), number)
        if is_view and written and (base := tensor._base) is not None and base.grad_fn is not None:
            self.found.owner.setdefault((base.grad_fn, base.output_nr), number)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def tensors_in(value: Any) -> list[Tensor]:
    """Return every tensor in nested tuples, lists, mappings and dataclasses, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for part in value.values() for t in tensors_in(part)]
    if isinstance(value, tuple | list):
        return [t for part in value for t in tensors_in(part)]
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return [t for name in value.__dataclass_fields__ for t in tensors_in(getattr(value, name, None))]
    return []
