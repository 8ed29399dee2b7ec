"""Saved activations: each stays what it was at its moment.

A reference is held, not a copy; only when something is about to write to that memory is the value copied
(copy on write). What was written to by something unseen is named in ``maybe_modified``. Which are kept
``choose.py`` tells, in what form ``form.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ....core.graph import INPLACE, OP
from ..call_log import CallLog
from ..containers import is_wrapped
from ..memory import copied
from ..recording import ROW, Recording
from .choose import Chooser
from .form import Form
from .gradients import Nodes
from .store import Store, unstorable

_FLAGS = ROW.index("flags")

#: Where a tensor lies: its dtype, shape, strides and offset; None where it has no plain memory.
_Place = tuple[torch.dtype, torch.Size, tuple[int, ...], int] | None


class Values:
    """The activations of one pass, by row.

    ``wanted`` chooses them; None keeps nothing. ``nodes`` notes where their gradients will arrive.
    With a ``store`` they wait in ``kept`` until there are enough to be written.
    ``trouble`` is the first exception that keeping one raised, with its row: from then on no more are kept,
    and the model runs on.
    """

    def __init__(
        self,
        wanted: Chooser | None,
        form: Form | None = None,
        nodes: Nodes | None = None,
        store: Store | None = None,
    ) -> None:
        self.wanted = wanted
        self.form = None if form is None or form.plain else form
        self.nodes, self.store = nodes, store
        self.nested = False
        self.busy = False  # whether what runs is no part of the model's pass
        self.kept: dict[int, Tensor] = {}
        self.trouble: tuple[int, Exception] | None = None
        self._versions: dict[int, int] = {}
        self._by_storage: dict[int, list[int]] = {}
        self._new: list[int] = []  # rows that are not in ``_by_storage`` yet: most passes write to nothing
        self._written: dict[int, _Place] = {}  # where what an operation wrote in place lies
        self._asks = wanted is not None and not wanted.everything
        self.modules = wanted is not None and wanted.modules

    def begin(self, recording: Recording) -> None:
        """The pass that ``recording`` notes begins."""
        self._recording = recording
        if self.wanted is not None:
            self.wanted.begin(recording)

    def offer(self, row: int, kind: int, type_: str, t: Tensor) -> None:
        """Keep what an operation returned if it is wanted."""
        if self.wanted is None or is_wrapped(t):
            return  # what a transform looks through is gone when the transform ends
        if self.nodes is not None:
            with torch._C.DisableTorchFunction():
                self.nodes.note(self._recording, row, kind, t)
        if self._asks:
            if self.modules and self._recording.rows[row + _FLAGS] & INPLACE:
                self._written[row] = _place(t)
            if not self._asked(row, self.wanted.offered, row, kind, type_, t):
                return
        if self.form is None and self.store is None:
            self._keep(row, t)
        else:
            self._attempt(row, self._keep, row, t)

    def returned(self, row: int, call: int, t: Tensor) -> None:
        """Keep what a module's call returns if it is wanted: ``t`` holds what ``row`` made."""
        if self.wanted is None or is_wrapped(t):
            return
        if self._asked(row, self.wanted.returned, row, call) and row not in self.kept:
            with torch._C.DisableTorchFunction():
                self._attempt(row, self._keep, row, self._as_written(row, t))

    def _asked(self, row: int, question: Callable[..., bool], *args: Any) -> bool:
        """The answer to whether something is wanted; what is not wanted any more is let go."""
        answer = bool(self._attempt(row, question, *args))
        dropped = self.wanted.dropped if self.wanted is not None else []
        while dropped:
            self._drop(dropped.pop())
        return answer

    def _drop(self, row: int) -> None:
        if self.store is not None:
            self.store.forget(row)
        self._let_go(row)

    def _let_go(self, row: int) -> None:
        held = self.kept.pop(row, None)
        if held is not None and self._versions.pop(row, None) is not None and self._by_storage:
            rows = self._by_storage.get(held.untyped_storage()._cdata, [])
            if row in rows:
                rows.remove(row)

    def call_log(self, recording: Recording) -> CallLog | None:
        """What notes the calls of the pass, so that they can be run again; None where nothing is kept."""
        return None if self.wanted is None else CallLog()

    def handed_out(self, t: Tensor) -> None:
        """The memory of ``t`` goes out of sight, where it may be written to."""
        self.before_writing(t)

    def before_writing(self, t: Tensor) -> None:
        """Copy every kept value that lives in the memory of ``t``, which is about to change."""
        self._place_new()
        if not self._by_storage:
            return
        try:
            rows = self._by_storage.pop(t.untyped_storage()._cdata, ())
        except (RuntimeError, NotImplementedError, ValueError):  # it has none: sparse, not initialised yet
            return
        for row in rows:
            self.kept[row] = copied(self.kept[row])
            self._versions.pop(row, None)
            if self.store is not None:
                self.store.hold(self.kept[row])

    def settled(self, row: int, t: Tensor | None) -> None:
        """Autograd has finished with what an operation of torch's own code returned: its node is known, and
        it was not written to since it was kept, whatever its count of writes says."""
        if self.nodes is not None and t is not None:
            self.nodes.note(self._recording, row, OP, t)
        if row in self._versions:
            self._versions[row] = self.kept[row]._version

    def maybe_modified(self) -> set[int]:
        """Rows whose memory was written to by something the recorder did not see."""
        changed = {row for row, version in self._versions.items() if self.kept[row]._version != version}
        return (
            changed | self.store.maybe_modified if self.store is not None and self.store.places else changed
        )

    def _keep(self, row: int, t: Tensor) -> None:
        if self.nested or self.form is not None:  # a trace around this one must not see our own work
            with torch._C.DisableTorchFunction():
                held = t.detach() if self.form is None else self.form.apply(t.detach())
        else:
            held = t.detach()
        self.kept[row] = held
        try:
            self._versions[row] = held._version
        except RuntimeError:  # nothing tells when it is written to: a copy is the safe way
            self.kept[row] = held.clone()
        else:
            self._new.append(row)
        if self.store is not None:
            self._wait(row, self.store)

    def _wait(self, row: int, store: Store) -> None:
        why = unstorable(self.kept[row])
        if why:
            store.skipped[row] = why
            self._let_go(row)
        elif store.hold(self.kept[row]):
            self.write()

    def write(self) -> None:
        """Write what waits for it; an exception (a full disk) is noted as ``trouble``."""
        if self.store is None or self.trouble is not None or not self.kept:
            return
        self.store.maybe_modified |= self.maybe_modified()
        with torch._C.DisableTorchFunction():
            self._attempt(next(iter(self.kept)), self.store.write, self.kept, self._recording.type_of)
        for row in list(self.kept):
            self._let_go(row)

    def _place_new(self) -> None:
        """Note in which memory the values lie that were kept since the last write."""
        for row in self._new:
            held = self.kept.get(row)
            if held is None:
                continue
            try:
                self._by_storage.setdefault(held.untyped_storage()._cdata, []).append(row)
            except (RuntimeError, NotImplementedError):  # it has no memory to go by
                self.kept[row] = held.clone()
                del self._versions[row]
        self._new.clear()

    def _as_written(self, row: int, t: Tensor) -> Tensor:
        """What the operation of ``row`` wrote, of which ``t`` may be a base or another view."""
        place = self._written.get(row)
        if place is None or place == _place(t):
            return t
        dtype, shape, stride, offset = place
        return (
            torch.empty(0, dtype=dtype, device=t.device)
            .set_(t.detach().untyped_storage(), offset, shape, stride)
            .clone()
        )

    def _attempt(self, row: int, do: Callable[..., Any], *args: Any) -> Any:
        """What ``do`` returns, None where it raised now or before: the caller's code ends no pass."""
        if self.trouble is not None:
            return None
        self.busy = True
        try:
            return do(*args)
        except Exception as error:
            self.trouble = (row, error)
            return None
        finally:
            self.busy = False


def _place(t: Tensor) -> _Place:
    try:
        return t.dtype, t.shape, t.stride(), int(t.storage_offset())
    except (RuntimeError, NotImplementedError):
        return None
