"""Find the producer of each tensor: the row that computed it.

Tensors are identified by object identity: ``known[id(t)]`` is a weak reference, the producer and the version
that the tensor had. A different version means that something wrote to the tensor's memory. The last writer of
that memory is then its producer, so that a write through a view is seen by whatever reads the base.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
from torch import Tensor
from torch._C._functorch import get_unwrapped

from ...core.graph import BUFFER, CONSTANT, OP, PARAMETER
from .call_log import CallLog
from .containers import is_wrapped, walk
from .invocation import Patch
from .memory import (
    geometry_of,
    inner_of,
    is_foreign,
    memory_of,
    pointer_of,
    unwrapping,
    version_of,
    viewing,
    wrapping,
)
from .recording import POSITIONS, Recording
from .saving.values import Values
from .writes import Writes

#: A weak reference to a tensor, its producer, and its version at the time; None if it has no usable version.
KnownTensor = tuple[ref[Any], int, int | None]
_UNKNOWN: tuple[Any, int, None] = (None, -1, None)


class Producers:
    """The producers of the tensors met in one pass.

    A producer is an offset in ``Recording.rows``, or negative for a parameter (-1 - its number).

    Args:
        recording: Where rows are appended.
        values: Saves activations.
        call_log: Receives how tensors differ from what their producers returned; None to log nothing.

    Attributes:
        known: The tensors met so far, by id; see ``KnownTensor``. The hot path reads and fills it directly.
            For an entry without a version the writes to its memory are searched at every use.
        extra_producers: Pairs of a producer that ``producer_of`` returned and another producer of the same
            tensor, until ``add_extra_producers`` uses them.
        transformed: Empty until a tensor wrapped by ``vmap`` or another ``torch.func`` transform is met.
        forwarded_aliases: By module call, the arguments that operations in it returned unchanged: id,
            producer after the operation, and earlier entry in ``known``; see ``forward_alias``.
    """

    def __init__(self, recording: Recording, values: Values, call_log: CallLog | None = None) -> None:
        self.known: dict[int, KnownTensor] = {}
        self._call_log = call_log
        self._recording, self._values = recording, values
        self._writes = Writes(recording)
        self._unversioned_memory: set[int | None] = set()  # see ``mark_unversioned``
        self.extra_producers: list[tuple[int, int]] = []
        self.transformed: list[int] = []
        self._host_exports: list[int] = []  # tensors given to numpy, as inputs of what comes back from it
        self._losses: list[int] = []  # tensors that ``backward`` was called on, as inputs of gradients
        self.forwarded_aliases: dict[int, list[tuple[int, int, KnownTensor]]] = {}

    def add(
        self, t: Tensor, kind: int, type_: int, inputs: list[int] | tuple[int, ...] = (), **facts: int
    ) -> int:
        """Append a row for a new tensor.

        Args:
            t: The tensor.
            kind: Index into ``OP_KINDS``.
            type_: The number of the row's type.
            inputs: Pairs of a producer and an argument's number, as in ``Recording.inputs``.
            **facts: Values of other columns of the row.

        Returns:
            The offset of the row.
        """
        meta = self._recording.meta_number(t)
        offset = self._recording.add(inputs, kind=kind, type=type_, meta=meta, **facts)
        self.set_producer(t, offset)
        self._values.on_tensor(offset, kind, self._recording.types[type_], t)
        return offset

    def add_all(
        self, made: list[Tensor], type_: int, inputs: list[int], call_facts: tuple[int, ...], time: int
    ) -> None:
        """Append a row for each tensor that one call returned.

        Args:
            made: The tensors.
            type_: The number of the operation's type.
            inputs: Pairs of a producer and an argument's number, as in ``Recording.inputs``.
            call_facts: The columns of ``ROW`` that all tensors of the call share.
            time: The nanoseconds that the call took, stored in the first row.
        """
        recording, values = self._recording, self._values
        rows, several, call = recording.rows, len(made) > 1, recording.stack[-1]
        all_inputs = recording.inputs
        metas, on_tensor = recording.meta_numbers, values.on_tensor if values.chooser is not None else None
        event = len(rows)
        for number, t in enumerate(made):
            offset, output = len(rows), number if several else -1
            try:
                meta = metas[t.shape, t.dtype, t.device] if type(t) is Tensor else recording.meta_number(t)
            except (KeyError, RuntimeError):  # a new combination; or a nested tensor, which has no shape
                meta = recording.meta_number(t)
            rows += (OP, type_, call, meta, event, output, time, *call_facts)
            all_inputs += inputs
            time = 0
            self.set_producer(t, offset)
            if on_tensor is not None:
                on_tensor(offset, OP, recording.types[type_], t)

    def gather(self, value: Any, name: str, inputs: list[int], atoms: list[Any]) -> None:
        """Collect the tensors and the other values in one argument of a call.

        Args:
            value: The argument.
            name: Its position or keyword.
            inputs: Receives the producer and the argument number of each tensor.
            atoms: Receives the other values; see ``containers.walk``.
        """
        inputs += self._host_inputs(value)
        for t, path in walk(value, name, atoms):
            inputs += (self.producer_of(t), self._recording.arg_number(path))

    def set_producer(self, t: Tensor, producer: int) -> None:
        """Record that ``t`` now comes from ``producer``."""
        try:
            self.known[id(t)] = (ref(t), producer, t._version)
        except RuntimeError:  # inference tensors have no version
            self.known[id(t)] = (ref(t), producer, None)
        while self.transformed and is_wrapped(t):  # the inner tensor comes out when the transform ends
            t = get_unwrapped(t)
            self.known[id(t)] = (ref(t), producer, version_of(t))
        if type(t) is not Tensor:
            self._set_producer_of_inner(t, producer)

    def _set_producer_of_inner(self, t: Tensor, producer: int, *, written: bool = False) -> None:
        """Record that the tensor inside a wrapper subclass (``DTensor``) has the same producer.

        Args:
            t: The tensor.
            producer: Its producer.
            written: Whether ``producer`` wrote into ``t``, and so into the tensor inside.
        """
        inner, depth = inner_of(t), 1
        if inner is not None:  # a write to one of the two does not change the version of the other
            self._unversioned_memory.add(memory_of(t))
        while inner is not None:
            reference = self.known.get(id(inner), _UNKNOWN)[0]
            if not written and reference is not None and reference() is inner:
                return
            self.known[id(inner)] = (ref(inner), producer, version_of(inner))
            self._convert(inner, producer, unwrapping(depth))
            inner, depth = inner_of(inner), depth + 1

    def _convert(self, t: Tensor, producer: int, conversion: Callable[[Tensor], Tensor]) -> None:
        """Log that ``t`` is made by ``conversion`` from what ``producer`` returned."""
        if self._call_log is not None:
            patch = Patch(producer, (), None, unseen=False, conversion=conversion)
            self._call_log.patches[id(t), producer] = patch

    def is_known(self, t: Tensor) -> bool:
        """Return whether the tensor was met before, or is a parameter or buffer of the model."""
        entry = self.known.get(id(t))
        return (entry is not None and entry[0]() is t) or id(t) in self._recording.addresses.sources

    def unmodified_producer(self, t: Any) -> int:
        """Return the producer of a tensor that has not been written to since; -1 for anything else."""
        reference, producer, version = self.known.get(id(t), _UNKNOWN)
        return producer if version is not None and reference() is t and version == t._version else -1

    def producer_of(self, t: Tensor) -> int:
        """Return the producer of a tensor, appending a row for one that is met for the first time.

        If several calls wrote to parts of the tensor's memory and none descends from another, the last one is
        returned and the others are added to ``extra_producers``.
        """
        entry = self.known.get(id(t))
        if entry is not None and entry[0]() is t:
            if entry[2] is not None and entry[2] == version_of(t):
                return entry[1]
            writers = self._writes.writers(t, entry[1])
            producer = writers[0] if writers else entry[1]
            if self._call_log is not None:
                self._add_patch(self._call_log, t, entry, producer)
            if len(writers) > 1:
                self.extra_producers += [(producer, other) for other in writers[1:]]
                self.known[id(t)] = (entry[0], entry[1], None)  # every later use needs all writers again
            else:
                self.set_producer(t, producer)
            return producer
        return self._first_producer(t)

    def _first_producer(self, t: Tensor) -> int:
        """Return the producer of a tensor that is met for the first time."""
        recording = self._recording
        kind, number = recording.addresses.sources.get(id(t), ("", -1))
        owner = recording.addresses.owners.get(id(t))
        if owner is not None:  # ``t`` is inside a parameter or buffer of a wrapper subclass
            self.producer_of(owner)
            reference, producer, _ = self.known.get(id(t), _UNKNOWN)
            if reference is not None and reference() is t:
                return int(producer)
        if kind == "param":
            self.set_producer(t, -1 - number)
            if memory_of(t) in self._unversioned_memory:
                self.known[id(t)] = (ref(t), -1 - number, None)
                return self.producer_of(t)
            return -1 - number
        if kind == "buffer":
            return self.add(t, BUFFER, recording.type_number(recording.addresses.buffers[number][0]))
        if is_wrapped(t):
            self.transformed.append(1)
            producer = self.producer_of(get_unwrapped(t))
            self.set_producer(t, producer)
            return producer
        inner = None if type(t) is Tensor else inner_of(t)
        if inner is not None and self._has_source(inner):
            producer = self.producer_of(inner)
            self.set_producer(t, producer)
            self._convert(t, producer, wrapping(t))
            return producer
        number = recording.addresses.param_in(memory_of(t))
        if number >= 0:
            self.set_producer(t, -1 - number)
            self._convert(t, -1 - number, viewing(t))
            return -1 - number
        alias = self._find_alias(t)
        if alias >= 0:
            writers = self._writes.writers(t, alias)  # FSDP writes without changing versions
            alias = writers[0] if writers else alias
            if self._call_log is not None:
                self._call_log.patches[id(t), alias] = Patch(alias, (), None, unseen=True)
            self.set_producer(t, alias)
            return alias
        if self._host_exports and is_foreign(t):
            recording.exposed.add(memory_of(t))
            return self.add(t, OP, recording.type_number("host"), self._host_exports)
        recording.restorer.add(t, in_use=False)
        return self.add(t, CONSTANT, recording.type_number("constant"))

    def _has_source(self, t: Tensor) -> bool:
        """Return whether a tensor is known, or inside a parameter or buffer, or wraps one that is."""
        if self.is_known(t) or id(t) in self._recording.addresses.owners:
            return True
        inner = inner_of(t)
        return inner is not None and self._has_source(inner)

    def _find_alias(self, t: Tensor) -> int:
        """Return the producer of a known tensor at the same address (``from_numpy(x.numpy())``), else -1."""
        pointer = pointer_of(t)
        if not pointer:
            return -1
        for reference, producer, _ in reversed(list(self.known.values())):
            other: Tensor | None = reference() if producer >= 0 else None
            if other is not None and other.device == t.device and pointer_of(other) == pointer:
                return producer
        return -1

    def add_extra_producers(self, inputs: list[int]) -> None:
        """Add ``extra_producers`` to the inputs of a call, and clear them."""
        for producer, other in self.extra_producers:
            if producer in inputs[::2]:
                inputs += (other, inputs[2 * inputs[::2].index(producer) + 1])
        self.extra_producers.clear()

    # -- data that leaves torch and comes back -----------------------------------------------------------

    def add_host_export(self, t: Tensor) -> None:
        """Record that numpy was given the memory of ``t``: it may compute with it, and write to it."""
        producer = self.producer_of(t)
        if producer not in self._host_exports[::2]:
            self._host_exports += (producer, len(self._host_exports) // 2 % POSITIONS)
        self._values.before_unseen_writes(t)

    def _host_inputs(self, value: Any) -> list[int]:
        """Return the tensors that a numpy value among the arguments of a call may come from, as inputs."""
        return self._host_exports if self._host_exports and isinstance(value, np.ndarray | np.generic) else []

    def add_loss(self, t: Tensor) -> None:
        """Record a call of ``t.backward()``."""
        self._losses += (self.producer_of(t), 1)

    def add_gradient(self, grad: Tensor, of: Tensor) -> None:
        """Record a read of ``of.grad``: if it is new, it is computed from ``of`` and the losses."""
        if self._losses and not self.is_known(grad):
            inputs = [self.producer_of(of), 0, *self._losses]
            self.add(grad, OP, self._recording.type_number("grad"), inputs)

    # -- traces inside this one --------------------------------------------------------------------------

    def add_alias(self, t: Tensor, alias: Tensor) -> None:
        """Record that a trace inside this one saved ``t`` as the tensor ``alias``."""
        if self.is_known(t):
            producer = self.producer_of(t)
            self.extra_producers.clear()
            if producer >= 0:  # views of parameters are found by their memory
                self.set_producer(alias, producer)
                self._values.add_alias(producer, alias)

    def before_restoring(self, t: Tensor) -> None:
        """Copy the saved values in the memory of ``t``, which a trace inside this one restores unseen."""
        self._values.before_writing(t)

    # -- writes ------------------------------------------------------------------------------------------

    def mark_unversioned(self, t: Tensor) -> None:
        """Record that ``t.data`` was taken: writes through it do not change the version of ``t``."""
        self._unversioned_memory.add(memory_of(t))

    def add_writes(self, targets: list[Tensor], first: int, last: int) -> None:
        """Record that a call wrote into ``targets``.

        Args:
            targets: The tensors that were written into.
            first: The offset of the call's first row.
            last: The offset of its last row.
        """
        restorer = self._recording.restorer
        for target in targets:
            if restorer.existed(target):
                self._recording.state_writes.append(last)
            entry, memory = self.known.get(id(target)), memory_of(target)
            producer, is_value = last, False
            if entry is not None and entry[0]() is target and entry[1] >= first:
                producer, is_value = entry[1], True  # the call returned the target itself
            elif id(target) not in self._recording.addresses.sources:
                self.set_producer(target, last)
            else:  # parameters and buffers, such as running statistics, keep their producer
                continue
            self._writes.add(target, producer, is_value=is_value)
            if type(target) is not Tensor:
                self._set_producer_of_inner(target, producer, written=True)
            if not is_value and self._call_log is not None:
                self._call_log.patches[id(target), producer] = Patch(producer, (), None, unseen=True)
            if memory in self._unversioned_memory:
                self._forget_versions(memory, target)

    def _forget_versions(self, memory: int | None, target: Tensor) -> None:
        """Remove the versions of all tensors of a memory but ``target``, so that its writes are searched."""
        for key, (reference, producer, version) in list(self.known.items()):
            t = reference()
            if version is not None and t is not None and t is not target and memory_of(t) == memory:
                self.known[key] = (reference, producer, None)

    def _add_patch(self, call_log: CallLog, t: Tensor, entry: KnownTensor, producer: int) -> None:
        """Log the writes to the memory of ``t`` since its earlier producer returned it."""
        earlier = call_log.patches.get((id(t), entry[1]))
        base = earlier.base if earlier is not None else entry[1]
        writes, any_writes = self._writes.since(t, base)
        if producer != base or (entry[2] is not None and not any_writes):
            logged = tuple((write.offset, write.place) for write in writes)
            call_log.patches[id(t), producer] = Patch(base, logged, geometry_of(t), unseen=not any_writes)

    # -- calls that return what existed before ----------------------------------------------------------

    def add_returned_parameter(self, t: Tensor, producer: int) -> int:
        """Append a row for a parameter that a module call returns, as its output.

        Args:
            t: The parameter, or a view of it.
            producer: What ``producer_of`` returned: -1 - the number of the parameter.

        Returns:
            The offset of the row. As with ``forward_alias``, later reads depend on it only inside the calling
            module; elsewhere the parameter is used directly.
        """
        before = self.known[id(t)]
        name, _ = self._recording.addresses.params[-1 - producer]
        offset = self.add(t, PARAMETER, self._recording.type_number(name), (producer, 0))
        self.forward_alias(t, offset, before)
        return offset

    def forward_alias(self, t: Tensor, producer: int, before: KnownTensor) -> None:
        """Record that an operation returned its own argument (dropout in eval, ``to`` of the same dtype).

        Later reads of the tensor inside the calling module, or of what that module returns, depend on the
        operation. Reads elsewhere keep the earlier producer.

        Args:
            t: The tensor.
            producer: The offset of the operation.
            before: The earlier entry of ``t`` in ``known``.
        """
        self.forwarded_aliases.setdefault(self._recording.stack[-1], []).append((id(t), producer, before))

    def end_aliases(self, call: int) -> None:
        """Restore the earlier producers of a module call's forwarded aliases when the call is over.

        Aliases that the call returned are forwarded to the calling module instead.

        Args:
            call: The number of the call, a key of ``forwarded_aliases``.
        """
        exits, returned = self._recording.exits, set()
        for i in range(len(exits) - 2, -1, -2):  # the last exits are those of this call
            if exits[i + 1] != call:
                break
            returned.add(exits[i])
        parent = self._recording.stack[-1]
        for key, producer, before in reversed(self.forwarded_aliases.pop(call)):
            entry = self.known.get(key)
            if entry is None or entry[1] != producer:
                continue
            if producer in returned:
                self.forwarded_aliases.setdefault(parent, []).append((key, producer, before))
            else:
                self.known[key] = before
