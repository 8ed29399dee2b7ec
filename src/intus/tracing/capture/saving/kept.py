"""The saved values of a finished pass that are in memory, without those that were overwritten since."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, MutableMapping

from torch import Tensor

from .sample import is_unchanged, sample

#: The version of a value that has memory of its own, or has none that torch counts.
_UNCHECKED = -1


class Kept(MutableMapping[int, Tensor]):
    """Saved values by row.

    A saved value may share its memory with a parameter, a buffer, an input or a tensor that the model
    returned. When the caller writes there after the pass (an optimizer step), the value is lost: it is no
    longer in the mapping. Most writes change the version of the tensor. Those that do not (a fused optimizer,
    ``Tensor.data``, numpy) are noticed if they change an element of a sample.

    Args:
        values: The values.
        shared: The rows whose value may share its memory.
        exposed: Those of them whose memory the caller has, of which a sample is taken now.
    """

    __slots__ = ("_samples", "_values", "_versions")

    def __init__(
        self, values: Mapping[int, Tensor], shared: Iterable[int] = (), exposed: Iterable[int] = ()
    ) -> None:
        self._values = dict(values)
        self._samples = {row: taken for row in exposed if (taken := sample(self._values[row])) is not None}
        self._versions = array("q", [_UNCHECKED]) * (1 + max(self._values, default=-1))
        for row in shared:
            self._versions[row] = self._values[row]._version

    def is_overwritten(self, row: int) -> bool:
        """Return whether a value was saved, and something wrote to its memory after the pass."""
        return row in self._values and not self._is_intact(row)

    def only(self, rows: set[int]) -> Kept:
        """Return the values of the given rows."""
        kept = Kept({row: value for row, value in self._values.items() if row in rows})
        for row in kept._values:
            kept._versions[row] = self._versions[row]
        kept._samples = {row: taken for row, taken in self._samples.items() if row in rows}
        return kept

    def for_replay(self) -> Kept:
        """Return an independent copy, of which values may be replaced."""
        return self.only(set(self._values))

    def _is_intact(self, row: int) -> bool:
        version = self._versions[row]
        if version != _UNCHECKED and version != self._values[row]._version:
            return False
        taken = self._samples.get(row)
        return taken is None or is_unchanged(self._values[row], taken)

    def __getitem__(self, row: int) -> Tensor:
        value = self._values[row]
        if not self._is_intact(row):
            raise KeyError(row)
        return value

    def __setitem__(self, row: int, value: Tensor) -> None:
        missing = row + 1 - len(self._versions)
        self._versions.extend([_UNCHECKED] * missing)
        self._values[row], self._versions[row] = value, _UNCHECKED
        self._samples.pop(row, None)

    def __delitem__(self, row: int) -> None:
        del self._values[row]
        self._samples.pop(row, None)

    def __iter__(self) -> Iterator[int]:
        return iter([row for row in self._values if self._is_intact(row)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, row: object) -> bool:
        return row in self._values and self._is_intact(row)

    def __getstate__(self) -> dict[int, Tensor]:
        return dict(self)

    def __setstate__(self, state: dict[int, Tensor]) -> None:
        Kept.__init__(self, state)
