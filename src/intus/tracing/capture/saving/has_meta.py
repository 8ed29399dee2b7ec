"""Shape, dtype and size, shared by an op of a finished pass and one of a pass that still runs."""

from __future__ import annotations

from ....core.graph import Meta


class HasMeta:
    """Mixin that makes the fields of ``meta`` properties."""

    __slots__ = ()

    @property
    def meta(self) -> Meta:
        """Shape, dtype, device and size in bytes; known even if the value was not saved."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.meta.shape

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of this process's part of the tensor; ``shape`` if it is not distributed."""
        return self.meta.local_shape if self.meta.placement else self.meta.shape

    @property
    def placement(self) -> str:
        """Return its distribution over processes: ``"tp=2: Shard(dim=0)"``; ``""`` if it is not."""
        return self.meta.placement

    @property
    def dtype(self) -> str:
        """The tensor's dtype: ``"float32"``."""
        return self.meta.dtype

    @property
    def nbytes(self) -> int:
        """The tensor's size in bytes."""
        return self.meta.nbytes
