"""Call a model in evaluation mode without any effect on its training.

Gradients are disabled. Training flags, parameters, buffers, attributes, random states, also of generators of
the model's own, and autocast's cache are restored. Every module runs as such: compiled code runs uncompiled,
and attention without the fast path that calls no modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.parameter import is_lazy

from ...core.errors import InputError
from ...core.nested import leaves
from ...core.restoring import global_restorers
from .sharding import is_sharded, resharded

#: Most parameters of which values are compared, and most values of them.
_TENSORS, _VALUES = 256, 1 << 14
#: Devices whose values are compared: others may not know the dtypes for it.
_READ = "cpu", "cuda"
_PLAIN = nn.Parameter, Tensor
_INTEGERS = torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
_PARALLEL = (nn.parallel.DistributedDataParallel, nn.DataParallel)


@contextmanager
def evaluation(model: nn.Module) -> Iterator[Callable[[Any], Any]]:
    """Put a model into evaluation mode, without gradients, and restore everything at the end.

    Args:
        model: The model.

    Yields:
        A function that calls the model with a tensor, a tuple of positional arguments or a mapping of keyword
        arguments, moved to the device of its parameters, and returns the output.

    Example:
        >>> net = nn.Dropout()
        >>> with evaluation(net) as run:
        ...     run(torch.ones(3)).tolist()
        [1.0, 1.0, 1.0]
        >>> net.training
        True
    """
    device = next((p.device for p in model.parameters()), None)

    def run(inputs: Any) -> Any:
        given = _moved(inputs, device)
        with torch._C._EnableTorchFunction():  # disabled inside intus's hooks, where this may run
            try:
                if isinstance(given, Mapping):
                    return model(**given)
                return model(*given if isinstance(given, tuple) else (given,))
            except RuntimeError as error:
                if (reason := _other_dtype(model, given)) is not None:
                    raise InputError(f"{reason} PyTorch says: {error}.") from error
                raise

    with (
        resharded(model),
        _restored(model),
        torch.no_grad(),
        _without_autocast_cache(),
        _without_fast_path(),
        _uncompiled(),
    ):
        yield run


def settings() -> Callable[[], AbstractContextManager[None]]:
    """Return a function that returns a context with the settings of torch that this thread has now.

    They are autocast, the default dtype and the default device. Inference mode is off, because what a model
    keeps of such a pass could not be used in its training. For settings of kernels see ``kernels``.
    """
    from ...tracing.capture.context.execution_context import ExecutionContext, current_context, within

    context = ExecutionContext(*current_context())._replace(grad=False, inference=False)
    device = torch.get_default_device()

    @contextmanager
    def first() -> Iterator[None]:
        with within(context), device if torch.get_default_device() != device else nullcontext():
            yield

    return first


def kernels(model: nn.Module) -> dict[str, Any]:
    """Return the settings of the process by which torch chooses kernels for a model, by name.

    They are compared and not set: to set them for a while, where torch has an old and a new interface, makes
    the old one raise inside the model.
    """
    from ...tracing.capture.context.kernel_settings import named_kernel_settings

    return named_kernel_settings(next((p.device.type for p in model.parameters()), "cpu"))


def uninitialized(model: nn.Module) -> str | None:
    """Return the reason why a model is not ready: a lazy module of it has not been called; None if it is.

    A pass that initializes it advances random states, of which the training would then begin with others.
    """
    for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(parameter):
            return (
                f"The parameter {name!r} of {type(model).__name__} is not initialized: its lazy module was "
                "never called. Call the model once, as with model(inputs[:2]), before probe()."
            )
    return None


def as_inputs(model: nn.Module, data: Any) -> Any:
    """Return data as inputs of the model: arrays become tensors on its device, floats in its dtype.

    Args:
        model: The model.
        data: An array or tensor, a tuple of positional arguments, or a mapping of keyword arguments.
    """
    if isinstance(data, Mapping):
        return {name: as_inputs(model, value) for name, value in data.items()}
    if isinstance(data, tuple):
        return tuple(as_inputs(model, value) for value in data)
    if isinstance(data, np.ndarray):
        data = torch.from_numpy(np.ascontiguousarray(data))
    if not isinstance(data, Tensor):
        return data
    parameter = next(iter(model.parameters()), None)
    if parameter is None:
        return data
    floats = data.is_floating_point() and parameter.is_floating_point()
    return data.to(parameter.device, parameter.dtype if floats else None)


def unwrapped(model: nn.Module, *, compiled: bool) -> nn.Module:
    """Return the module inside a wrapper.

    A wrapper for data parallelism may communicate with other processes in every call, so that a call in a
    single process would wait for them.

    Args:
        model: The module, or a wrapper around it.
        compiled: Whether to unwrap ``torch.compile`` too, and not only data parallelism.
    """
    inner = model._modules.get("module" if isinstance(model, _PARALLEL) else "_orig_mod")
    if inner is None or not (compiled or isinstance(model, _PARALLEL)):
        return model
    return unwrapped(inner, compiled=compiled)


def is_capturing() -> bool:
    """Return whether this thread records a CUDA graph, in which no value can be read."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def version(model: nn.Module) -> int:
    """Return a number that changes if the parameters do, also by writes that torch does not count.

    Fused optimizers, writes through ``.data`` and CUDA graphs are not counted, so it reads all values. Of a
    sharded model it is always the same: its processes must not differ in what they find.
    """
    return _version(model, _sum)


def version_by_sample(model: nn.Module) -> int:
    """Return what ``version`` does, but read at most some thousand values, spread over the parameters."""
    return _version(model, _sample)


def fingerprint(model: nn.Module) -> int:
    """Return a number of the values of the parameters, which is the same again once they are.

    Unlike ``version`` it does not count writes, such as those of weights that are swapped in and out again,
    except to parameters whose values it does not read. It is 0 if it is not known, as of a sharded model.
    """
    return _fingerprint(model, _parameters(model))


def buffer_fingerprint(model: nn.Module) -> int:
    """Return what ``fingerprint`` does, of the buffers that the state of a model has."""
    return _fingerprint(model, _buffers(model))


def values_by_sample(model: nn.Module, last: int = 0) -> int:
    """Return a number of some thousand values of the parameters: if it differs, ``fingerprint`` does too.

    Args:
        model: The model.
        last: How many of the last parameters to read; 0 for all.
    """
    if is_sharded(model) or is_capturing():
        return 0
    return hash(tuple(_read(_readable(_parameters(model)[-last:]), _sample)))


def buffer_writes(model: nn.Module) -> int:
    """Return how often the buffers of a model were written to."""
    return sum(one._version for one in model.buffers() if not one.is_inference())


def gradients(model: nn.Module) -> int:
    """Return a number that changes with each backward pass, while gradients are kept; 0 if none are."""
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return sum(id(one) + one._version for one in found)


def _fingerprint(model: nn.Module, tensors: Sequence[Tensor]) -> int:
    if is_sharded(model) or is_capturing():
        return 0
    values, others = _readable(tensors), [one for one in tensors if not _readable([one])]
    return hash((_writes(others), *_read(values, _sum), *_read(values, _sample))) or 1


def _version(model: nn.Module, read: Callable[[list[Tensor]], list[Tensor]]) -> int:
    if is_sharded(model):
        return 0
    parameters = _parameters(model)
    counted, values = _writes(parameters), _readable(parameters)
    return counted if not values or is_capturing() else hash((counted, *_read(values, read)))


def _parameters(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if not (p.is_meta or is_lazy(p))]


def _buffers(model: nn.Module) -> list[Tensor]:
    """Return the buffers that the state of a model has: others are made anew, such as a cache."""
    found = {
        id(one): one
        for module in model.modules()
        for name, one in module._buffers.items()
        if one is not None and name not in module._non_persistent_buffers_set
    }
    return [one for one in found.values() if not (one.is_meta or one.is_inference() or is_lazy(one))]


def _writes(tensors: Sequence[Tensor]) -> int:
    return sum(one._version + (one.data_ptr() if one.layout == torch.strided else 0) for one in tensors)


def _readable(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the values of parameters and buffers that can be read at little cost."""
    plain = [one.detach() for one in tensors if type(one) in _PLAIN and one.layout == torch.strided]
    known = [one for one in plain if one.is_floating_point() or one.dtype in _INTEGERS]
    return [one for one in known if one.numel() and one.device.type in _READ]


def _read(values: list[Tensor], read: Callable[[list[Tensor]], list[Tensor]]) -> list[bytes]:
    """Return what ``read`` makes of values on each device, as bytes, since NaN does not equal itself."""
    found = read(values) if values else []
    parts = [[one for one in found if one.device == device] for device in {one.device: 0 for one in found}]
    return [torch.cat(part).cpu().numpy().tobytes() for part in parts]


def _sum(values: list[Tensor]) -> list[Tensor]:
    return [_sum_of(one).reshape(1) for one in values]


def _sum_of(values: Tensor) -> Tensor:
    """Return the sum of the bits of a tensor, or its norm."""
    before = values.storage_offset() * values.element_size()
    if values.is_contiguous() and not (values.is_cuda or values.nbytes % 8 or before % 8):
        return values.view(-1).view(torch.int64).sum().view(torch.float64)
    has_norm = values.is_floating_point() and values.element_size() > 1
    norm: Tensor = torch.linalg.vector_norm(values if has_norm else values.double(), dtype=torch.float64)
    return norm


def _sample(values: list[Tensor]) -> list[Tensor]:
    some = values[:: 1 + len(values) // _TENSORS]
    each = _VALUES // len(some)
    # An odd step, so that in a matrix of an even width it does not stay in one column, whose input may be 0.
    return [one.reshape(-1)[:: (one.numel() // each) | 1].double() for one in some]


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode; at the end restore flags, parameters, buffers, attributes and random states."""
    from ...tracing.capture.context.attributes import Attributes
    from ...tracing.capture.context.reachable import generators_of
    from ...tracing.capture.context.written_parameters import parameters_restored
    from ...tracing.replaying.replay import same

    modules = list(model.modules())
    flags = [module.training for module in modules]
    buffers = [dict(module._buffers) for module in modules]
    sharded = is_sharded(model)  # its wrappers keep what their first call builds, and views of what they free
    found = model.buffers() if sharded else _kept(modules)
    values = {
        id(one): (one, one.detach().clone())
        for one in found
        if not (is_lazy(one) or one.is_inference() or one.is_meta)
    }
    restorers = global_restorers()
    attributes = Attributes()
    for generator in generators_of(model):
        attributes.remember_generator(generator)
    for module in () if sharded else modules:
        attributes.remember(module)
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    unsharded = [] if sharded else [p for p in model.parameters() if not is_lazy(p)]
    # a backward that is still to come refuses tensors that it needs if they look modified
    versions = _unsafe_preserve_version_counter(tuple(one for one, _ in values.values()))
    with torch.random.fork_rng(devices), parameters_restored(unsharded), versions:
        for module in modules:
            module.training = False  # not ``eval()``, which a model may override
        try:
            yield
        finally:
            for module, flag, module_buffers in zip(modules, flags, buffers, strict=True):
                module.training = flag
                if any(module._buffers.get(name) is not buffer for name, buffer in module_buffers.items()):
                    module._buffers.update(module_buffers)
            for one, value in values.values():
                if not same(one, value):
                    one.data.copy_(value)
            for restore in restorers:
                restore()
            attributes.restore()


def _kept(modules: list[nn.Module]) -> Iterator[Tensor]:
    """Yield the tensors that modules keep beside their parameters: buffers and other attributes."""
    for module in modules:
        found = [*module._buffers.values(), *vars(module).values()]
        yield from (one for one in found if isinstance(one, Tensor))


@contextmanager
def _without_autocast_cache() -> Iterator[None]:
    """Keep weights cast without gradients out of the cache that training uses."""
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Make ``nn.TransformerEncoder`` call its modules: its fast path fuses them, and nests padded tensors."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _uncompiled() -> AbstractContextManager[Any]:
    """Run what ``torch.compile`` and ``Module.compile`` compiled without compilation, so that hooks run."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled; importing it takes seconds
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _other_dtype(model: nn.Module, inputs: Any) -> str | None:
    """Return a sentence if the inputs have floats of a dtype that no parameter has, outside of autocast."""
    known = {p.dtype: 0 for p in model.parameters() if p.is_floating_point()}
    others = [x.dtype for x in leaves(inputs, Tensor) if x.is_floating_point() and x.dtype not in known]
    if not known or not others or torch._C._is_any_autocast_enabled():
        return None
    names = " and ".join(str(dtype).removeprefix("torch.") for dtype in known)
    return (
        f"The model's parameters are {names}, and its inputs are {str(others[0]).removeprefix('torch.')}. "
        f"Cast the inputs, as with x.to({next(iter(known))})."
    )


def _moved(value: Any, device: torch.device | None) -> Any:
    if isinstance(value, Tensor):
        return value if device is None or value.device == device else value.to(device)
    if isinstance(value, Mapping):
        return {key: _moved(part, device) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(part, device) for part in value)
    return value
