"""Shard the parameters again that FSDP gathered for a pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module


class ShardedParameters:
    """Frees the gathered parameters at the end of a pass, if they were not gathered before it.

    FSDP gathers them in the forward pass and frees them in the backward pass, at the latest. A trace has no
    backward pass, and it restores the modules: gathered parameters would be used by the next forward pass,
    also if the optimizer has changed them in between.
    """

    def __init__(self) -> None:
        #: Of each part of the model that was not gathered: what gathered tensors it has, and what frees them.
        self._parts: list[tuple[Callable[[], list[Tensor]], Callable[[], None]]] = []

    def remember(self, module: Module) -> None:
        """Remember a module if it is one of FSDP whose parameters are not gathered."""
        if not is_fsdp(module):
            return
        if hasattr(module, "_handle"):  # FullyShardedDataParallel
            handle: Any = module._handle
            if handle is not None and handle.uses_sharded_strategy and not _gathered(handle):
                self._parts.append((lambda: _gathered(handle), lambda: handle.reshard(True)))
        else:  # what ``fully_shard`` returns
            state: Any = module._get_fsdp_state()  # type: ignore[operator]
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            groups = [group for group in groups if group is not None]
            if groups and all(group.is_sharded for group in groups):
                self._parts.append((lambda: _gathered_by(groups), module.reshard))  # type: ignore[arg-type]

    def gathered(self) -> list[Tensor]:
        """Return the tensors whose memory ``restore`` will free."""
        return [t for tensors, _ in self._parts for t in tensors()]

    def restore(self) -> None:
        """Free what was gathered since."""
        for tensors, free in self._parts:
            if tensors():
                free()
        self._parts.clear()


def is_fsdp(module: Module) -> bool:
    """Return whether a module is one of FSDP, of either version."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return False
    return isinstance(module, (fsdp.FullyShardedDataParallel, getattr(fsdp, "FSDPModule", ())))


def _gathered(handle: Any) -> list[Tensor]:
    """Return the gathered tensor of a handle of FullyShardedDataParallel."""
    full = getattr(handle.flat_param, "_full_param_padded", None)
    return [] if full is None or not full.untyped_storage().nbytes() else [full]


def _gathered_by(groups: list[Any]) -> list[Tensor]:
    """Return the gathered tensors of groups of parameters of ``fully_shard``."""
    unsharded = [group for group in groups if group.is_unsharded]
    return [t for group in unsharded for param in group.fsdp_params for t in param.all_gather_outputs]
