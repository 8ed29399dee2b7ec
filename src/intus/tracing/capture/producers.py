"""Which row each tensor comes from.

Tensors are known by identity: ``known[id(t)]`` is a weak reference, the row and the version the tensor had. A
version that moved means that something wrote to the tensor's memory; the last writer of that memory is then
its origin, so a write through a view is seen by whoever reads the base.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
from torch import Tensor
from torch._C._functorch import get_unwrapped

from ...core.graph import BUFFER, CONSTANT, OP
from .call_log import CallLog
from .containers import is_wrapped, walk
from .invocation import Patch
from .memory import geometry_of, is_foreign, memory_of, pointer_of, version_of
from .recording import POSITIONS, Recording
from .saving.values import Values
from .writes import Writes

Known = tuple[ref[Any], int, int | None]
_UNKNOWN: tuple[Any, int, None] = (None, -1, None)


class Producers:
    """The tensors of one pass. ``known`` is open to the recorder, which reads and fills it in its stride; a
    version of None means that the tensor keeps none, and its memory is asked every time."""

    def __init__(self, recording: Recording, values: Values, call_log: CallLog | None = None) -> None:
        self.known: dict[int, Known] = {}
        self._call_log = call_log
        self._recording, self._values = recording, values
        self._writes = Writes(recording)
        self._unversioned_memory: set[int | None] = (
            set()
        )  # memory whose writes move no version; see ``data_of``
        self.extra_producers: list[
            tuple[int, int]
        ] = []  # a row that ``row`` gave, and another; see ``add_extra_producers``
        self.transformed: list[int] = []  # not empty once ``vmap`` or ``torch.func`` has been met
        self._on_host: list[int] = []  # inputs of what comes back from numpy: what went there
        self._losses: list[int] = []  # inputs of gradients: what ``backward`` was called on
        self.forwarded_aliases: dict[
            int, list[tuple[int, int, Known]]
        ] = {}  # by module call; see ``forward_alias``

    def add(
        self, t: Tensor, kind: int, type_: int, inputs: list[int] | tuple[int, ...] = (), **facts: int
    ) -> int:
        """Append a row for a tensor that is new; returns the row."""
        meta = self._recording.meta_number(t)
        row = self._recording.add(inputs, kind=kind, type=type_, meta=meta, **facts)
        self.note(t, row)
        self._values.offer(row, kind, self._recording.types[type_], t)
        return row

    def add_all(
        self, made: list[Tensor], type_: int, inputs: list[int], call_facts: tuple[int, ...], time: int
    ) -> None:
        """Append a row for each tensor that one call returned.

        Args:
            made: The tensors.
            type_: The number of the operation's type.
            inputs: What went in, as ``Recording.inputs`` holds it.
            call_facts: What is the same for all of them: the rest of a ``ROW``.
            time: The nanoseconds that the call took, which the first row gets.
        """
        recording, values = self._recording, self._values
        rows, several, call = recording.rows, len(made) > 1, recording.stack[-1]
        metas, offer = recording.meta_numbers, values.offer if values.wanted is not None else None
        event = len(rows)
        for number, t in enumerate(made):
            row, output = len(rows), number if several else -1
            try:
                meta = metas[t.shape, t.dtype, t.device]
            except (KeyError, RuntimeError):  # met for the first time; or nested, which has no shape
                meta = recording.meta_number(t)
            rows += (OP, type_, call, meta, event, output, time)
            rows += call_facts
            recording.inputs += inputs
            time = 0
            self.note(t, row)
            if offer is not None:
                offer(row, OP, recording.types[type_], t)

    def gather(self, value: Any, name: str, inputs: list[int], atoms: list[Any]) -> None:
        """Find the tensors in one argument of a call, for its ``inputs``, and what is to be compared of the
        rest, for its ``atoms``."""
        inputs += self.from_host(value)
        for t, path in walk(value, name, atoms):
            inputs += (self.row(t), self._recording.arg_number(path))

    def note(self, t: Tensor, row: int) -> None:
        """From now on ``t`` comes from ``row``."""
        try:
            self.known[id(t)] = (ref(t), row, t._version)
        except RuntimeError:  # an inference tensor counts no writes
            self.known[id(t)] = (ref(t), row, None)
        while self.transformed and is_wrapped(t):  # what comes out when the transform ends is the inner one
            t = get_unwrapped(t)
            self.known[id(t)] = (ref(t), row, version_of(t))

    def is_known(self, t: Tensor) -> bool:
        """Whether the tensor has been met, or belongs to the model."""
        seen = self.known.get(id(t))
        return (seen is not None and seen[0]() is t) or id(t) in self._recording.addresses.sources

    def row_as_made(self, t: Any) -> int:
        """The row that made a tensor that has not been written to since; -1 for anything else."""
        reference, row, version = self.known.get(id(t), _UNKNOWN)
        return row if version is not None and reference() is t and version == t._version else -1

    def row(self, t: Tensor) -> int:
        """The row a tensor comes from; below zero a parameter, -1 - its number. Where several calls wrote to
        parts of its memory and none of them knew of the others, the last one's, and ``extra_producers`` has
        the rest."""
        seen = self.known.get(id(t))
        if seen is not None and seen[0]() is t:
            if seen[2] is not None and seen[2] == version_of(t):
                return seen[1]
            writers = self._writes.writers(t, seen[1])
            row = writers[0] if writers else seen[1]
            if self._call_log is not None:
                self._patch(self._call_log, t, seen, row)
            if len(writers) > 1:
                self.extra_producers += [(row, other) for other in writers[1:]]
                self.known[id(t)] = (seen[0], seen[1], None)  # all of them are asked for every time
            else:
                self.note(t, row)
            return row
        return self._stranger(t)

    def _stranger(self, t: Tensor) -> int:
        recording = self._recording
        kind, number = recording.addresses.sources.get(id(t), ("", -1))
        if kind == "param":
            self.note(t, -1 - number)
            if memory_of(t) in self._unversioned_memory:
                self.known[id(t)] = (ref(t), -1 - number, None)
                return self.row(t)
            return -1 - number
        if kind == "buffer":
            return self.add(t, BUFFER, recording.type_number(recording.addresses.buffers[number][0]))
        if is_wrapped(t):
            self.transformed.append(1)
            row = self.row(get_unwrapped(t))
            self.note(t, row)
            return row
        alias = self._alias_of(t)
        if alias >= 0:
            if self._call_log is not None:
                self._call_log.patches[id(t), alias] = Patch(alias, (), None, unseen=True)
            self.note(t, alias)
            return alias
        if self._on_host and is_foreign(t):
            return self.add(t, OP, recording.type_number("host"), self._on_host)
        recording.restorer.add(t)
        return self.add(t, CONSTANT, recording.type_number("constant"))

    def _alias_of(self, t: Tensor) -> int:
        """A tensor made out of our sight may share memory with one we know: ``from_numpy(x.numpy())``."""
        pointer = pointer_of(t)
        if not pointer:
            return -1
        for reference, row, _ in reversed(list(self.known.values())):
            other: Tensor | None = reference() if row >= 0 else None
            if other is not None and other.device == t.device and pointer_of(other) == pointer:
                return row
        return -1

    def add_extra_producers(self, inputs: list[int]) -> None:
        """Add to the inputs of a call the other writers of what its arguments see."""
        for row, other in self.extra_producers:
            if row in inputs[::2]:
                inputs += (other, inputs[2 * inputs[::2].index(row) + 1])
        self.extra_producers.clear()

    # -- what goes out of sight and comes back ---------------------------------------------------------

    def to_host(self, t: Tensor) -> None:
        """numpy was given the memory of ``t``: whatever it computes may come back, and it may write."""
        row = self.row(t)
        if row not in self._on_host[::2]:
            self._on_host += (row, len(self._on_host) // 2 % POSITIONS)
        self._values.handed_out(t)

    def from_host(self, value: Any) -> list[int]:
        """The inputs of a call that is given something of numpy's."""
        return self._on_host if self._on_host and isinstance(value, np.ndarray | np.generic) else []

    def differentiated(self, t: Tensor) -> None:
        """``t.backward()`` was called."""
        self._losses += (self.row(t), 1)

    def gradient(self, grad: Tensor, of: Tensor) -> None:
        """``of.grad`` was read: where that is news, it comes from ``of`` and what was differentiated."""
        if self._losses and not self.is_known(grad):
            inputs = [self.row(of), 0, *self._losses]
            self.add(grad, OP, self._recording.type_number("grad"), inputs)

    # -- writes --------------------------------------------------------------------------------------

    def data_of(self, t: Tensor) -> None:
        """``t.data`` was taken: what is written through it moves no version of ``t``."""
        self._unversioned_memory.add(memory_of(t))

    def wrote(self, targets: list[Tensor], first: int, last: int) -> None:
        """Note who wrote a memory last: the call whose rows are ``first`` to ``last``."""
        for target in targets:
            seen, memory = self.known.get(id(target)), memory_of(target)
            row, own = last, False
            if seen is not None and seen[0]() is target and seen[1] >= first:
                row, own = seen[1], True  # the row's value is what was written
            elif id(target) not in self._recording.addresses.sources:  # running statistics feed nothing here
                self.note(target, last)
            else:
                continue
            self._writes.add(target, row, own=own)
            if not own and self._call_log is not None:
                self._call_log.patches[id(target), row] = Patch(row, (), None, unseen=True)
            if memory in self._unversioned_memory:
                self._ask_again(memory, target)

    def _ask_again(self, memory: int | None, target: Tensor) -> None:
        """Let no tensor of a memory but ``target`` be taken for what it was by its version."""
        for key, (reference, row, version) in list(self.known.items()):
            t = reference()
            if version is not None and t is not None and t is not target and memory_of(t) == memory:
                self.known[key] = (reference, row, None)

    def _patch(self, call_log: CallLog, t: Tensor, seen: Known, row: int) -> None:
        """``t`` may not be what its row returned any more: note what was written to its memory since."""
        earlier = call_log.patches.get((id(t), seen[1]))
        base = earlier.base if earlier is not None else seen[1]
        writes, written = self._writes.since(t, base)
        if row != base or (seen[2] is not None and not written):
            put = tuple((write.row, write.place) for write in writes)
            call_log.patches[id(t), row] = Patch(base, put, geometry_of(t), unseen=not written)

    # -- operations that return what they were given -------------------------------------------------

    def forward_alias(self, t: Tensor, row: int, before: Known) -> None:
        """A call returned its own argument (dropout in eval, ``to`` of the same dtype). What reads that
        tensor from here on reads it after the call, but only within the module the call ran in, and
        wherever that module hands it to: to others it is still what it was before."""
        self.forwarded_aliases.setdefault(self._recording.stack[-1], []).append((id(t), row, before))

    def end_aliases(self, call: int) -> None:
        """Take back what was passed on in a module call that has ended (one in ``forwarded_aliases``) and did
        not return it."""
        exits, returned = self._recording.exits, set()
        for i in range(len(exits) - 2, -1, -2):  # what a call returned was noted just before it ended
            if exits[i + 1] != call:
                break
            returned.add(exits[i])
        parent = self._recording.stack[-1]
        for key, row, before in reversed(self.forwarded_aliases.pop(call)):
            seen = self.known.get(key)
            if seen is None or seen[1] != row:
                continue
            if row in returned:
                self.forwarded_aliases.setdefault(parent, []).append((key, row, before))
            else:
                self.known[key] = before
