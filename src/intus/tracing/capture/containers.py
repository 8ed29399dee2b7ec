"""Find tensors in what functions take and return; only tuples, lists, dicts and slices are searched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.parameter import is_lazy

from ...core.nested import leaves, paths

#: Immutable types whose values are compared directly when operations are compared.
ATOMS = frozenset(
    {int, float, bool, str, bytes, complex, type(None), type(...), torch.dtype, torch.device, torch.layout,
     torch.memory_format, torch.Size, torch.Generator}
)  # fmt: skip
#: Maximum depth of nested containers that are searched.
NESTING = 8
_SEQUENCES = (tuple, list)
_ONLY_TENSORS = {Tensor}


def walk(value: Any, name: str, atoms: list[Any], depth: int = 0) -> Iterator[tuple[Tensor, str]]:
    """Yield the tensors in one argument with their paths, and collect its other values in ``atoms``.

    Args:
        value: The argument.
        name: Its position or keyword; the paths start with it: ``"1.2"``.
        atoms: Receives the values other than tensors, for comparing calls. Each is a plain value or a pair:
            a keyword (``""`` if positional) and a whole argument, or None and a part of an argument.
        depth: The depth of ``value`` in its container.

    Yields:
        Pairs of a tensor and its path.

    Example:
        >>> atoms = []
        >>> [path for _, path in walk([torch.ones(1), 2], "0", atoms)], list(walk((3, 3), "stride", atoms))
        (['0.0'], [])
        >>> atoms
        [(None, 2), (None, 2), ('stride', (3, 3))]
    """
    if isinstance(value, Tensor):
        yield value, name
    elif isinstance(value, _SEQUENCES) and depth < NESTING:
        if not depth and all(type(part) in ATOMS for part in value):
            atoms.append(("" if name.isdigit() else name, tuple(value)))
            return
        atoms.append((None, len(value)))
        for number, part in enumerate(value):
            if type(part) in ATOMS:
                atoms.append((None, part))
            else:
                yield from walk(part, f"{name}.{number}", atoms, depth + 1)
    elif isinstance(value, dict) and depth < NESTING:
        for key, part in value.items():
            yield from walk(part, f"{name}.{key}", atoms, depth + 1)
    elif isinstance(value, slice):
        yield from walk((value.start, value.stop, value.step), name, atoms, depth + 1)
    else:
        atoms.append((None, value if type(value) in ATOMS else type(value).__name__))


def is_plain(value: Any) -> bool:
    """Return whether an argument is immutable and without tensors: an atom, or a slice or tuple of atoms.

    >>> is_plain((slice(None), 3)), is_plain([3])
    (True, False)
    """
    cls = type(value)
    if cls in ATOMS:
        return True
    if cls is slice:
        return type(value.start) in ATOMS and type(value.stop) in ATOMS and type(value.step) in ATOMS
    return cls is tuple and all(map(is_plain, value))


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors in what a function or module returned, in order.

    Uninitialized parameters of lazy modules are left out.
    """
    if type(value) is Tensor:
        return [value]
    if type(value) in _SEQUENCES and set(map(type, value)) == _ONLY_TENSORS:  # as chunk returns them
        return list(value)
    return [t for t in leaves(value, Tensor) if not is_lazy(t)]


def named_tensors(value: Any) -> list[tuple[str, Tensor]]:
    """Return the tensors in what a model took or returned, each with its path (``"states.0"``).

    A path that is only a number carries no information, so it becomes ``""``.

    >>> [name for name, _ in named_tensors({"logits": torch.ones(1), "states": (torch.ones(1),)})]
    ['logits', 'states.0']
    """
    return [("" if path.isdigit() else path, t) for path, t in paths(value, Tensor) if not is_lazy(t)]


#: Return whether a tensor is a wrapper made by ``vmap`` or another ``torch.func`` transform.
is_wrapped = is_functorch_wrapped_tensor
