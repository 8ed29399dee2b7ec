"""Models whose parameters are split over several processes: how to recognize them, and what is refused.

``FullyShardedDataParallel`` (FSDP1) and ``fully_shard`` (FSDP2) gather a layer's parameters just before it
runs, so that every process computes whole layers, but only if all processes run the model together; so
does ``fully_shard`` over a mesh of two dimensions (HSDP). Under tensor parallelism a process computes a part
of a layer's features, under sequence parallelism some of its positions.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ...core.address import Address

_INNER = "_fsdp_wrapped_module"
_DTENSOR = "torch.distributed.tensor", "DTensor"
OF_STEPS = ("parameter_grad", "update")
OF_PARAMETERS = ("parameter", *OF_STEPS)


def is_wrapper(module: nn.Module) -> bool:
    """Return whether a module is a wrapper of FSDP1."""
    return isinstance(module, _loaded("torch.distributed.fsdp", "FullyShardedDataParallel"))


def is_sharded(model: nn.Module) -> bool:
    """Return whether processes gather the parameters of a model, or of a part of it, while it runs."""
    return any(is_wrapper(module) or _is_fully_sharded(module) for module in model.modules()) or any(
        map(_is_flattened, model.parameters())
    )


def address_of(name: str) -> str:
    """Return the address of a module by its name in ``named_modules``, without the wrappers of FSDP1.

    >>> address_of("_fsdp_wrapped_module.layers.0._fsdp_wrapped_module.fc")
    'layers.0.fc'
    """
    return str(Address(".".join(part for part in name.split(".") if part != _INNER)))


def class_name(module: nn.Module) -> str:
    """Return the name of a module's class; of sharded modules, that of the module before."""
    if is_wrapper(module):
        return class_name(module._modules[_INNER] or module)
    mro = type(module).__mro__
    if _is_fully_sharded(module):  # its class is made by torch: (FSDPNet, FSDPModule, Net, ...)
        return mro[2].__name__
    return mro[0].__name__


def refusal(model: nn.Module, kinds: Collection[str]) -> str | None:
    """Return the reason why this process cannot record a model; see ``backends.sharding.Shards``."""
    name = class_name(model)
    if found := _parallelized(model):
        parameter, how = found
        return (
            f"{name} is split by {how}, which scores would take for all; its parameter {parameter!r} shows "
            "it. It cannot be probed. Models of fully_shard and DistributedDataParallel can."
        )
    wrong = [kind for kind in kinds if kind in OF_PARAMETERS]
    if wrong and is_sharded(model):
        return (
            f"kinds may not be {', '.join(map(repr, wrong))} for {name}, whose parameters are sharded: each "
            "process has a part of them. Leave them out; outputs, inputs and their gradients are recorded."
        )
    return None


def ungathered(model: nn.Module) -> str | None:
    """Return the reason why a part of a model of FSDP1 cannot run alone: the wrapper around it gathers it."""
    inside = {id(one) for module in model.modules() if is_wrapper(module) for one in module.parameters()}
    for name, parameter in model.named_parameters():
        if _is_flattened(parameter) and id(parameter) not in inside:
            return (
                f"{class_name(model)} is inside of a FullyShardedDataParallel, which gathers its parameters, "
                f"as {name!r} shows, so it cannot run a probe set alone. Pass the FullyShardedDataParallel "
                "to probe(), in every process."
            )
    return None


def ranks_of(model: nn.Module) -> tuple[int, ...]:
    """Return the ranks of the processes that must run a model together; () if there is none but this one."""
    from torch import distributed

    ranks: set[int] = set()
    for module in model.modules():
        if is_wrapper(module):
            ranks.update(distributed.get_process_group_ranks(module.process_group))  # type: ignore[arg-type]
        if _is_fully_sharded(module):
            for parameter in filter(_is_distributed, module.parameters()):
                ranks.update(parameter.device_mesh.mesh.flatten().tolist())  # type: ignore[attr-defined]
    return tuple(sorted(ranks)) if len(ranks) > 1 else ()


def has_gradients_of_another() -> bool:
    """Return whether ``DistributedDataParallel`` makes the call under way, and not in its first process.

    Each of its processes has the same mean of all gradients, and steps with it. Torch marks such calls for
    its compiler.
    """
    for kind in _loaded("torch.nn.parallel", "DistributedDataParallel"):
        wrapper = getattr(kind, "_active_ddp_module", None)
        return wrapper is not None and wrapper.process_group.rank() > 0
    return False


@contextmanager
def resharded(model: nn.Module) -> Iterator[None]:
    """Shard at the end what is sharded now: without a backward pass, the outer layers stay gathered."""
    sharded: list[Any] = [
        module
        for module in model.modules()
        if _is_fully_sharded(module) and all(map(_is_distributed, module.parameters()))
    ]
    try:
        yield
    finally:
        for module in sharded:
            module.reshard()


def _loaded(module: str, name: str) -> tuple[type, ...]:
    """Return a class; () if its module was not imported, so that there is no object of it."""
    found = getattr(sys.modules.get(module), name, None)
    return (found,) if isinstance(found, type) else ()


def _is_fully_sharded(module: nn.Module) -> bool:
    return isinstance(module, _loaded("torch.distributed.fsdp", "FSDPModule"))


def _is_distributed(parameter: Any) -> bool:
    return isinstance(parameter, _loaded(*_DTENSOR))


def _is_flattened(parameter: Any) -> bool:
    """Return whether FSDP1 keeps the values of a parameter in a flat one, or it is the flat one."""
    return getattr(parameter, "_fsdp_flattened", False)


def _parallelized(model: nn.Module) -> tuple[str, str] | None:
    """Return a parameter that ``parallelize_module`` distributed, and what processes then compute.

    FSDP2 gathers a parameter along one axis, the last dimension of its own mesh; a parameter that is split
    along another one, or has another dimension of the mesh behind it, was parallelized.
    """
    if not _loaded(*_DTENSOR):  # the usual case, in each recorded pass
        return None
    distributed: list[tuple[str, Any]] = [one for one in model.named_parameters() if _is_distributed(one[1])]
    gathered = [name for name, one in model.named_modules() if _is_fully_sharded(one)] if distributed else []
    for name, parameter in distributed:
        inside = any(not prefix or name.startswith(f"{prefix}.") for prefix in gathered)
        if sum(not placement.is_replicate() for placement in parameter.placements) > inside:
            return name, "tensor parallelism: layers compute a part of their features in each process"
        if parameter.placements[-1].is_replicate():
            return name, "sequence parallelism: layers compute some of their positions in each process"
    return None
