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
    """The part of a tensor that is copied.

    Attributes:
        axis: Its batch axis; None if it has none.
        rows: The number of rows; None for all.
        nbytes: The bytes of the copy.
        projected_from: The number of features to project; None if they are not projected.
    """

    axis: int | None
    rows: int | None
    nbytes: int
    projected_from: int | None


def width_of(shape: tuple[int, ...], axis: int) -> int:
    """Return the number of features of a row that can be projected; 0 for other layouts.

    For (rows, positions, features) these are the features of a position, since labels may be per position.

    Example:
        >>> width_of((8, 32, 16, 16), 0), width_of((8, 512, 128), 0), width_of((9, 8, 50000), 1)
        (8192, 128, 50000)
    """
    if len(shape) == 3:
        return shape[2] if axis < 2 else 0
    return math.prod(shape[1:]) if axis == 0 and len(shape) > 1 else 0


class Schedule:
    """The caller's choice of what to record.

    Args:
        which: A function ``which(model, operation)``, called once for each operation, or a selection of
            module addresses (``"h.*.attn"``, ``["fc1", "Linear"]``); None for all operations whose
            observation changes nothing.
        when: A function ``when(model, operation)``, called at each call; None for always.
        rows: The maximum number of rows of a batch to copy, from its start; None for all.
        batch_axis: The axis of the rows.
        troubles: The log for errors in ``which`` or ``when``, which then count as False.
        width: Rows with more features than this are projected.

    Raises:
        InputError: If an argument is invalid.
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
            raise InputError(f"when must be a function when(model, operation), got {when!r}.")
        if which is not None and not callable(which):
            _check_selection(which)
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise InputError(f"rows must be a number of rows of at least 1, or None for all, got {rows!r}.")
        if isinstance(batch_axis, bool) or not isinstance(batch_axis, int) or batch_axis < 0:
            raise InputError(f"batch_axis must be an integer of at least 0, got {batch_axis!r}.")
        if isinstance(width, bool) or not isinstance(width, int | float) or not width >= PROJECTED:
            raise InputError(
                f"width must be at least {PROJECTED}, got {width!r}. Wider rows are projected to {PROJECTED} "
                "features. Write math.inf to send all rows in full."
            )
        self._which, self._when, self._troubles = which, when, troubles
        self.rows, self.batch_axis, self.width = rows, batch_axis, width

    def chosen(self, model: Any, operations: Sequence[Operation], graph: Graph) -> list[Operation]:
        """Return the operations to attach to.

        Args:
            model: The model.
            operations: The operations known before the first call.
            graph: Their ``backends.base.modules_graph``.

        Raises:
            AddressError: If an address of ``which`` matches no module, or not a whole one.
        """
        if self._which is None:
            return [op for op in operations if not op.apart]
        if callable(self._which):
            return [op for op in operations if self._call("which", self._which, model, op)]
        wanted = {
            address
            for part in _parts(self._which)
            for address in (_modules(graph, part) if operations else ())
        }
        return [op for op in operations if op.address in wanted]

    def chooses(self, model: Any, operation: Operation) -> bool:
        """Return whether to attach to an operation that was not known before the first call."""
        if self._which is None:
            return not operation.apart
        if callable(self._which):
            return self._call("which", self._which, model, operation)
        graph = Graph.of_modules("", [(operation.address, operation.type)])
        for part in _parts(self._which):
            with suppress(AddressError):
                if _modules(graph, part):
                    return True
        return False

    def wants(self, model: Any, operation: Operation) -> bool:
        """Return whether to record this call of an operation."""
        return self._call("when", self._when, model, operation)

    def cut(self, tensor: CapturedTensor, max_rows: int | None) -> Cut:
        """Return the part of a tensor to copy, with at most ``max_rows`` rows."""
        axis = self.batch_axis if tensor.batch_axis is None else tensor.batch_axis
        if not tensor.has_batch or axis >= len(tensor.shape):
            return Cut(None, None, tensor.nbytes, None)
        length = tensor.shape[axis]
        rows = min((bound for bound in (self.rows, max_rows) if bound is not None), default=length)
        features = width_of(tensor.shape, axis)
        nbytes = tensor.nbytes
        if features > self.width:
            nbytes = math.prod(tensor.shape) // features * (PROJECTED + len(SUMMARY)) * _FLOAT
        return Cut(
            axis,
            rows if rows < length else None,
            math.ceil(nbytes * min(rows, length) / max(length, 1)),
            features if features > self.width else None,
        )

    def _call(self, name: str, choice: Choice | None, model: Any, operation: Operation) -> bool:
        if choice is None:
            return True
        try:
            return bool(choice(model, operation))
        except Exception as error:
            self._troubles.count(
                name,
                f"intus: {name}(model, operation) raised %s: %s for %r. This counts as False.",
                type(error).__name__,
                error,
                operation.address,
            )
            return False


def _check_selection(which: Any) -> None:
    """Raise InputError unless ``which`` is an address or a collection of addresses."""
    for part in _parts(which):
        if not isinstance(part, str | Address):
            raise InputError(
                "which must be a function which(model, operation), a module's address such as 'features.0', "
                f"a pattern such as 'h.*', a class such as 'Linear', or a list of these, got {part!r}."
            )


def _parts(which: Any) -> list[Any]:
    return list(which) if isinstance(which, list | tuple | set | frozenset) else [which]


def _modules(graph: Graph, part: str | Address) -> list[str]:
    """Return the addresses of the modules that a part of a selection matches."""
    text = str(part)
    modules = {module.address for module in graph.modules}
    try:
        found = match(graph, text)
    except AddressError as error:
        raise AddressError(
            f"which={text!r}: {error} A probe selects modules, whose addresses are known before the model "
            "runs, unlike labels such as 'conv2d_3_7' and calls such as 'fc:2'."
        ) from None
    if found.units or found.params:
        part_of = "units" if found.units else "a parameter"
        raise AddressError(
            f"which={text!r} names {part_of}, but a probe records whole operations. Write the module's "
            "address. kinds=('parameter',) records the parameters of the selected modules."
        )
    if not is_pattern(text) and Address.parse(text).call is not None:
        raise AddressError(
            f"which={text!r} names one call of a module, but a probe attaches to the module. Write "
            f"{str(Address(Address.parse(text).name))!r}, and select calls with when=."
        )
    return [name for name in found.names if name in modules]
