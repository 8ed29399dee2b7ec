"""Ask why a model cannot be recorded as processes share it now: at ``probe``, and again before each pass.

A script may split a model after ``probe``, and then layers compute a part of what they computed before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..backends.base import Backend
from ..backends.sharding import Shards

_SINCE = (
    "Several processes share {} since probe(): they can run it only together, and have not agreed on a probe "
    "set, so it is not run. Call probe() after fully_shard and FullyShardedDataParallel, in every process."
)


def refusal(backend: Backend, model: Any, kinds: Collection[str], *, has_set: bool) -> str | None:
    """Return the reason why this process cannot record a model; None if it can.

    Args:
        backend: The backend of the model.
        model: The model.
        kinds: The kinds of tensors to record.
        has_set: Whether it has to run a probe set.
    """
    without = getattr(backend, "without_probe_set", None)
    reason = without(model) if has_set and without is not None else None
    if reason is None and isinstance(backend, Shards):
        reason = backend.refusal(model, kinds)
    return reason


def refusal_since(
    backend: Backend, model: Any, kinds: Collection[str], *, has_set: bool, is_agreed: bool
) -> str | None:
    """Return the reason why a model that is probed cannot be recorded any more; None if it can.

    Args:
        backend: The backend of the model.
        model: The model.
        kinds: The kinds of tensors to record.
        has_set: Whether it has to run a probe set.
        is_agreed: Whether the processes that share the model have agreed to run it together.
    """
    if not isinstance(backend, Shards):
        return None
    reason = refusal(backend, model, kinds, has_set=has_set)
    if reason is None and has_set and not is_agreed and backend.is_shared(model):
        reason = _SINCE.format(backend.class_name(model))
    return reason
