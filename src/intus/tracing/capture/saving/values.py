"""Save activations so that each keeps the value it had when it was computed.

A saved value is a reference, not a copy. Only when something is about to write to its memory is the value
copied (copy on write). Values whose memory was written by something the recorder did not see are reported by
``maybe_modified``. ``choose.py`` decides which activations are saved, ``form.py`` how they are converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ....core.graph import INPLACE, OP
from ..call_log import CallLog
from ..containers import is_wrapped
from ..memory import copied, is_freed, memory_of, settled
from ..recording import ROW, Recording
from .choose import Chooser
from .form import Form
from .gradients import Nodes
from .store import Store, unstorable

_FLAGS = ROW.index("flags")

#: A tensor's dtype, shape, strides and storage offset; None if it has no plain memory.
_Geometry = tuple[torch.dtype, torch.Size, tuple[int, ...], int] | None


class Values:
    """The saved activations of one pass, by offset.

    Args:
        chooser: Decides which activations to save; None to save none.
        form: Converts them; None to save them unchanged. A form that changes nothing counts as None.
        nodes: Records the autograd node of each tensor; None if no gradients are saved.
        store: Writes the values to disk; None to keep them in memory.

    Attributes:
        kept: The saved values; with a store, those that are not written yet.
        error: The first exception that saving a value raised, with its offset. From then on nothing is saved,
            but the model runs on.
        nested: Whether another trace runs around this one and must not see the operations of saving.
        on_alias: Tells the traces around this one that a saved value is a tensor that they know; None if
            there are none.
        busy: Whether the code that runs now is not part of the pass, so that it is not recorded.
        freed: The offsets of values that are lost, because the model freed their memory.
        by_module: Whether the tensors that module calls return need to be reported to ``on_module_output``.
    """

    def __init__(
        self,
        chooser: Chooser | None,
        form: Form | None = None,
        nodes: Nodes | None = None,
        store: Store | None = None,
    ) -> None:
        self.chooser = chooser
        self.form = None if form is None or form.plain else form
        self.nodes, self.store = nodes, store
        self.nested = False
        self.on_alias: Callable[[Tensor, Tensor], None] | None = None
        self.busy = False
        self.kept: dict[int, Tensor] = {}
        self.error: tuple[int, Exception] | None = None
        self.freed: set[int] = set()
        self._versions: dict[int, int] = {}
        self._by_storage: dict[int | None, list[int]] = {}
        self._unindexed: list[
            int
        ] = []  # offsets not in ``_by_storage`` yet, because most passes write nothing
        self._written: dict[int, _Geometry] = {}  # the geometry of tensors that operations wrote in place
        self._selective = chooser is not None and not chooser.everything
        self.by_module = chooser is not None and chooser.by_module

    def begin(self, recording: Recording) -> None:
        """Begin a pass that ``recording`` records."""
        self._recording = recording
        if self.chooser is not None:
            self.chooser.begin(recording)

    def on_tensor(self, offset: int, kind: int, type_: str, t: Tensor) -> None:
        """Save the tensor of a new row if it is selected.

        Args:
            offset: The offset of the row.
            kind: Index into ``OP_KINDS``.
            type_: The name of the row's type.
            t: The tensor.
        """
        if self.chooser is None or is_wrapped(t):
            return  # the value of a wrapper does not outlive its transform
        if self.nodes is not None:
            with torch._C.DisableTorchFunction():
                self.nodes.add(self._recording, offset, kind, t)
        if self._selective:
            if self.by_module and self._recording.rows[offset + _FLAGS] & INPLACE:
                self._written[offset] = _geometry(t)
            if not self._selected(offset, self.chooser.wants_tensor, offset, kind, type_, t):
                return
        if self.form is None and self.store is None:
            self._save(offset, t)
        else:
            self._guarded(offset, self._save, offset, t)

    def on_module_output(self, offset: int, call: int, t: Tensor) -> None:
        """Save a tensor that a module call returns if it is selected.

        Args:
            offset: The producer of the tensor.
            call: The number of the module call.
            t: The tensor.
        """
        if self.chooser is None or is_wrapped(t):
            return
        wanted = self._selected(offset, self.chooser.wants_module_output, offset, call)
        if wanted and offset not in self.kept:
            with torch._C.DisableTorchFunction():
                self._guarded(offset, self._save, offset, self._as_written(offset, t))

    def _selected(self, offset: int, wants: Callable[..., bool], *args: Any) -> bool:
        """Return what the chooser decides, and discard the values that it no longer needs."""
        wanted = bool(self._guarded(offset, wants, *args))
        dropped = self.chooser.dropped if self.chooser is not None else []
        while dropped:
            self._drop(dropped.pop())
        return wanted

    def _drop(self, offset: int) -> None:
        if self.store is not None:
            self.store.discard(offset)
        self._forget(offset)

    def _forget(self, offset: int) -> None:
        """Remove a value from ``kept``."""
        value = self.kept.pop(offset, None)
        if value is not None and self._versions.pop(offset, None) is not None and self._by_storage:
            offsets = self._by_storage.get(memory_of(value), [])
            if offset in offsets:
                offsets.remove(offset)

    def call_log(self, recording: Recording) -> CallLog | None:
        """Return a log for the calls of the pass; None if no activations are saved."""
        return None if self.chooser is None else CallLog()

    def before_unseen_writes(self, t: Tensor) -> None:
        """Prepare for writes to the memory of ``t`` that the recorder will not see, for example by numpy."""
        self.before_writing(t)

    def before_writing(self, t: Tensor) -> None:
        """Copy every saved value in the memory of ``t``, which is about to be written."""
        self._index_by_storage()
        if not self._by_storage:
            return
        for offset in self._by_storage.pop(memory_of(t), ()):
            if is_freed(self.kept[offset]):
                continue  # ``end`` discards it
            self.kept[offset] = copied(self.kept[offset])
            self._versions.pop(offset, None)
            if self.store is not None:
                self.store.count(self.kept[offset])

    def add_alias(self, offset: int, alias: Tensor) -> None:
        """Record another tensor with the memory and value of the row at ``offset``; here it is not needed."""

    def refresh(self, offset: int, t: Tensor | None) -> None:
        """Update the autograd node and the version of a tensor once autograd is done with it.

        Autograd sets both after an ATen operation has returned. Nothing else can have written to the tensor
        since it was saved.

        Args:
            offset: The producer of the tensor.
            t: The tensor; None if it no longer exists.
        """
        if self.nodes is not None and t is not None:
            self.nodes.add(self._recording, offset, OP, t)
        if offset in self._versions:
            self._versions[offset] = self.kept[offset]._version

    def end(self) -> None:
        """Finish the values once the pass is over.

        Discard those whose memory the model freed (an offloader, a pool), and wait for collectives.
        """
        for offset, value in list(self.kept.items()):
            if is_freed(value):
                self.freed.add(offset)
                self._forget(offset)
            elif type(value) is not Tensor:
                self.kept[offset] = settled(value)

    def maybe_modified(self) -> set[int]:
        """Return the offsets of values whose memory was written by something the recorder did not see."""
        changed = {
            offset for offset, version in self._versions.items() if self.kept[offset]._version != version
        }
        return (
            changed | self.store.maybe_modified if self.store is not None and self.store.places else changed
        )

    def is_shared(self, offset: int) -> bool:
        """Return whether a value is no copy: it has the memory of a tensor that the model computed or has."""
        return offset in self._versions

    def _save(self, offset: int, t: Tensor) -> None:
        if self.nested or self.form is not None:  # a trace around this one must not see these operations
            with torch._C.DisableTorchFunction():
                value = t.detach() if self.form is None else self.form.apply(t.detach())
                if self.form is None and self.on_alias is not None:
                    self.on_alias(t, value)
        else:
            value = t.detach()
        self.kept[offset] = value
        try:
            self._versions[offset] = value._version
        except RuntimeError:  # an inference tensor has no version by which to detect writes, so it is copied
            self.kept[offset] = value.clone()
        else:
            self._unindexed.append(offset)
        if self.store is not None:
            self._enqueue(offset, self.store)

    def _enqueue(self, offset: int, store: Store) -> None:
        why = unstorable(self.kept[offset])
        if why:
            store.skipped[offset] = why
            self._forget(offset)
        elif store.count(self.kept[offset]):
            self.write()

    def write(self) -> None:
        """Write the waiting values to the store; an exception (a full disk) is stored in ``error``."""
        if self.store is None or self.error is not None or not self.kept:
            return
        self.store.maybe_modified |= self.maybe_modified()
        with torch._C.DisableTorchFunction():
            self._guarded(next(iter(self.kept)), self.store.write, self.kept, self._recording.type_of)
        for offset in list(self.kept):
            self._forget(offset)

    def _index_by_storage(self) -> None:
        """Add the values saved since the last call to ``_by_storage``."""
        for offset in self._unindexed:
            value = self.kept.get(offset)
            if value is None:
                continue
            memory = memory_of(value)
            if memory is not None:
                self._by_storage.setdefault(memory, []).append(offset)
            else:
                self.kept[offset] = value.clone()
                del self._versions[offset]
        self._unindexed.clear()

    def _as_written(self, offset: int, t: Tensor) -> Tensor:
        """Return what the operation at ``offset`` wrote, if ``t`` is its base or another view of it."""
        written = self._written.get(offset)
        if written is None or written == _geometry(t):
            return t
        dtype, shape, stride, start = written
        return (
            torch.empty(0, dtype=dtype, device=t.device)
            .set_(t.detach().untyped_storage(), start, shape, stride)
            .clone()
        )

    def _guarded(self, offset: int, do: Callable[..., Any], *args: Any) -> Any:
        """Run code that may be the user's; store its exception in ``error`` instead of raising it.

        Returns None if it raises now or an earlier run did.
        """
        if self.error is not None:
            return None
        self.busy = True
        try:
            return do(*args)
        except Exception as error:
            self.error = (offset, error)
            return None
        finally:
            self.busy = False


def _geometry(t: Tensor) -> _Geometry:
    try:
        return t.dtype, t.shape, t.stride(), int(t.storage_offset())
    except (RuntimeError, NotImplementedError):
        return None
