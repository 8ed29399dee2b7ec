"""Decide what is recorded: which operations (once), when (at each call), and how many rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ..backends.base import CapturedTensor, Operation
from ..core.address import Address, is_pattern
from ..core.errors import AddressError, InputError
from ..core.graph import Graph
from ..core.projection import PROJECTED, SUMMARY
from ..core.selection import match
from .warn_once import WarningLog

Choice = Callable[[Any, Operation], Any]
Which = Choice | str | Address | Sequence[str | Address]
_FLOAT = 4  # bytes


class Cut(NamedTuple):
    """What is copied of a tensor.

    Attributes:
        axis: Its batch axis; None if it has none.
        rows: How many rows; None for all.
        nbytes: The bytes that they take.
        projected_from: The number of features that are projected; None if they stay.
    """

    axis: int | None
    rows: int | None
    nbytes: int
    projected_from: int | None


def width_of(shape: tuple[int, ...], axis: int) -> int:
    """Return how many numbers of a row can be projected; 0 if the rows lie otherwise.

    Of (rows, positions, features) it is a position's features, since labels may be of positions.

    >>> width_of((8, 32, 16, 16), 0), width_of((8, 512, 128), 0), width_of((9, 8, 50000), 1)
    (8192, 128, 50000)
    """
    if len(shape) == 3:
        return shape[2] if axis < 2 else 0
    return math.prod(shape[1:]) if axis == 0 and len(shape) > 1 else 0


class Schedule:
    """What the caller wants recorded.

    Args:
        which: A function ``which(model, operation)``, asked once for each operation, or a selection of
            module addresses (``"h.*.attn"``, ``["fc1", "Linear"]``); None for all operations.
        when: A function ``when(model, operation)``, asked at each call; None for always.
        rows: The most rows of a batch that are copied, the first ones; None for all.
        batch_axis: The axis of the rows.
        troubles: Where a ``which`` or ``when`` that raises is reported; it then counts as no.
        width: Rows of more numbers than this are projected.

    Raises:
        InputError: If an argument cannot be used.
    """

    def __init__(
        self,
        which: Which | None,
        when: Choice | None,
        rows: int | None,
        batch_axis: int,
        troubles: WarningLog,
        width: float = math.inf,
    ) -> None:
        if when is not None and not callable(when):
            raise InputError(f"when={when!r} cannot be called. Write a function when(model, operation).")
        if which is not None and not callable(which):
            _check_selection(which)
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise InputError(f"rows={rows!r} is not a number of rows. Write 1 or more, or None for all.")
        if isinstance(batch_axis, bool) or not isinstance(batch_axis, int) or batch_axis < 0:
            raise InputError(f"batch_axis={batch_axis!r} is not an axis. Write 0 or more.")
        if isinstance(width, bool) or not isinstance(width, int | float) or not width >= PROJECTED:
            raise InputError(
                f"width={width!r} cannot be the most numbers of a row. Wider rows are projected to "
                f"{PROJECTED}: write that or more, or math.inf to send all rows as they are."
            )
        self._which, self._when, self._troubles = which, when, troubles
        self.rows, self.batch_axis, self.width = rows, batch_axis, width

    def chosen(self, model: Any, operations: Sequence[Operation], graph: Graph) -> list[Operation]:
        """Return the operations to attach to.

        Args:
            model: The model.
            operations: Those known before the first call.
            graph: Their ``backends.base.modules_graph``.

        Raises:
            AddressError: If an address of ``which`` means no module, or not a whole one.
        """
        if self._which is None or callable(self._which):
            return [op for op in operations if self._ask("which", self._which, model, op)]
        wanted = {
            address
            for part in _parts(self._which)
            for address in (_modules(graph, part) if operations else ())
        }
        return [op for op in operations if op.address in wanted]

    def chooses(self, model: Any, operation: Operation) -> bool:
        """Return whether an operation that was not known before the first call is attached to."""
        if self._which is None or callable(self._which):
            return self._ask("which", self._which, model, operation)
        graph = Graph.of_modules("", [(operation.address, operation.type)])
        for part in _parts(self._which):
            with suppress(AddressError):
                if _modules(graph, part):
                    return True
        return False

    def wants(self, model: Any, operation: Operation) -> bool:
        """Return whether this call is recorded; asked each time, before any work on tensors."""
        return self._ask("when", self._when, model, operation)

    def cut(self, seen: CapturedTensor, most: int | None) -> Cut:
        """Return what is copied of a tensor, at most ``most`` rows."""
        axis = self.batch_axis if seen.batch_axis is None else seen.batch_axis
        if not seen.has_batch or axis >= len(seen.shape):
            return Cut(None, None, seen.nbytes, None)
        length = seen.shape[axis]
        rows = min((bound for bound in (self.rows, most) if bound is not None), default=length)
        features = width_of(seen.shape, axis)
        nbytes = seen.nbytes
        if features > self.width:
            nbytes = math.prod(seen.shape) // features * (PROJECTED + len(SUMMARY)) * _FLOAT
        return Cut(
            axis,
            rows if rows < length else None,
            math.ceil(nbytes * min(rows, length) / max(length, 1)),
            features if features > self.width else None,
        )

    def _ask(self, name: str, choice: Choice | None, model: Any, operation: Operation) -> bool:
        if choice is None:
            return True
        try:
            return bool(choice(model, operation))
        except Exception as error:
            self._troubles.count(
                name,
                f"intus: {name}(model, operation) raised %s: %s at %r; that counts as no.",
                type(error).__name__,
                error,
                operation.address,
            )
            return False


def _check_selection(which: Any) -> None:
    for part in _parts(which):
        if not isinstance(part, str | Address):
            raise InputError(
                f"which has {part!r}. Write a function which(model, operation), a module's address such as "
                "'features.0', a pattern such as 'h.*', a class such as 'Linear', or a list of these."
            )


def _parts(which: Any) -> list[Any]:
    return list(which) if isinstance(which, list | tuple | set | frozenset) else [which]


def _modules(graph: Graph, part: str | Address) -> list[str]:
    """The addresses of the modules that a part of a selection means."""
    text = str(part)
    modules = {module.address for module in graph.modules}
    try:
        found = match(graph, text)
    except AddressError as error:
        raise AddressError(
            f"which={text!r}: {error} A probe selects modules, whose addresses are known before the model "
            "runs; labels such as 'conv2d_3_7' and calls such as 'fc:2' are not."
        ) from None
    if found.units or found.params:
        whole = "units" if found.units else "a parameter"
        raise AddressError(
            f"which={text!r} names {whole}, and a probe records whole operations. Write the module's "
            "address; kinds=('parameter',) records the parameters of the modules chosen."
        )
    if not is_pattern(text) and Address.parse(text).call is not None:
        raise AddressError(
            f"which={text!r} names one call of a module, and a probe attaches to the module. Write "
            f"{str(Address(Address.parse(text).name))!r}, and choose calls with when=."
        )
    return [name for name in found.names if name in modules]
