"""What a tensor looks like, by its Meta: of an op that runs and of one that ran."""

from __future__ import annotations

from ....core.graph import Meta


class HasMeta:
    """Shape, dtype and size of whatever has a ``meta``."""

    __slots__ = ()

    @property
    def meta(self) -> Meta:
        """Shape, dtype, device and bytes, known whether the value was saved or not."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.meta.shape

    @property
    def dtype(self) -> str:
        """The tensor's dtype, as ``"float32"``."""
        return self.meta.dtype

    @property
    def nbytes(self) -> int:
        """The tensor's size in bytes."""
        return self.meta.nbytes
