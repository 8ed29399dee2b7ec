"""Saved activations: which are wanted, and how each stays what it was at its moment.

A reference is held, not a copy; only when something is about to write to that memory is the value copied
(copy on write). What was written to by something unseen is named in ``unverified``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..core.graph import OP
from ..core.selection import is_glob
from .containers import is_wrapped


class Values:
    """The activations of one pass, by row.

    ``wanted`` is None (keep nothing) or a function ``(kind, type) -> bool`` that may say yes too often, never
    no wrongly: what a selection means exactly is known when the pass is over.
    """

    def __init__(self, wanted: Callable[[int, str], bool] | None) -> None:
        self.wanted = wanted
        self.nested = False
        self.kept: dict[int, Tensor] = {}
        self._versions: dict[int, int] = {}
        self._by_storage: dict[int, list[int]] = {}

    def offer(self, row: int, kind: int, type_: str, t: Tensor) -> None:
        """Keep a tensor if it is wanted."""
        if self.wanted is None or not self.wanted(kind, type_) or is_wrapped(t):
            return  # what a transform looks through is gone when the transform ends
        if self.nested:  # a trace around this one must not see our own work
            with torch._C.DisableTorchFunction():
                held = t.detach()
        else:
            held = t.detach()
        self.kept[row] = held
        try:
            self._versions[row] = held._version
            self._by_storage.setdefault(held.untyped_storage()._cdata, []).append(row)
        except (RuntimeError, NotImplementedError):
            self.kept[row] = held.clone()  # no version or no storage to watch: a copy is the safe way

    def before_writing(self, t: Tensor) -> None:
        """Copy every kept value that lives in the memory of ``t``, which is about to change."""
        if not self._by_storage:
            return
        try:
            rows = self._by_storage.pop(t.untyped_storage()._cdata, ())
        except (RuntimeError, NotImplementedError):
            return
        for row in rows:
            self.kept[row] = copied(self.kept[row])
            self._versions.pop(row, None)

    def unverified(self) -> set[int]:
        """Rows whose memory was written to by something the recorder did not see."""
        return {row for row, version in self._versions.items() if self.kept[row]._version != version}


def copied(t: Tensor) -> Tensor:
    """A copy that lies in memory as ``t`` does: a kernel may round by the strides it is given."""
    span = 1 + sum((length - 1) * stride for length, stride in zip(t.shape, t.stride(), strict=True))
    if t.numel() == 0 or t.layout != torch.strided or t.is_quantized or span > 2 * t.numel():
        return t.clone()
    return t.as_strided((span,), (1,)).clone().as_strided(t.shape, t.stride())


def wanted(selection: Any, modules: Iterable[str]) -> Callable[[int, str], bool] | None:
    """Turn what the user asked to save into a quick test for the pass; see ``Values``.

    Labels name an operation's type, which is known at once; anything that needs the finished graph
    (modules, globs, ordinals, predicates) keeps all and is cut when the graph stands.
    """
    if isinstance(selection, str) and selection == "none":
        return None
    types = _types_of_labels(selection, set(modules))
    if types is None:
        return lambda kind, type_: True
    return lambda kind, type_: kind != OP or type_ in types


def _types_of_labels(selection: Any, modules: set[str]) -> set[str] | None:
    """The types of the operations that a selection's labels name; None if it holds more than labels.

    >>> sorted(_types_of_labels(["conv2d_3_7", "relu_1:2"], set()))
    ['conv2d', 'conv2d_3', 'relu']
    """
    if isinstance(selection, str):
        name = selection.partition(":")[0]
        short, _, number = name.rpartition("_")
        if is_glob(selection) or name in modules or not (short and number.isdigit()):
            return None
        stem, _, number = short.rpartition("_")
        return {short, stem} if stem and number.isdigit() else {short}
    if isinstance(selection, Iterable) and not isinstance(selection, str | bytes):
        parts = [_types_of_labels(part, modules) for part in selection]
        return None if None in parts else set().union(*parts)  # type: ignore[arg-type]
    return None
