"""Describe torch functions by name: operation type, whether it writes into arguments, whether it has a row.

The rules use only names, never a list of torch's functions. A function that torch adds later is therefore
recorded like any other.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from .containers import tensors

#: Properties that return a tensor. All others return facts about one (shape, dtype …).
_TENSOR_PROPERTIES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
#: Calls made by torch or Python for bookkeeping, never part of what a model computes.
_BOOKKEEPING = frozenset(
    {
        "__len__", "__hash__", "__dir__", "__reduce_ex__", "__setstate__",
        "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "storage",
        "element_size",
        "data_ptr", "is_contiguous", "is_floating_point", "is_complex",
        "get_device", "is_same_size", "has_names", "retain_grad", "_is_view",
        "_set_grad_enabled", "is_tensor",
        "result_type", "can_cast", "is_inference", "type_promotion",
    }
)  # fmt: skip
#: Calls that return a tensor's plain value to Python, which may branch on it.
_VALUE_READS = frozenset(
    {
        "__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__",
        "item", "tolist", "is_nonzero", "equal", "allclose",
    }
)  # fmt: skip
#: Calls that give a tensor's content to Python in another form, also of a tensor on ``meta``. ``pickle``,
#: ``copy.copy`` and ``torch.save`` take the storage.
_CONTENT_READS = frozenset({"__repr__", "__format__", "untyped_storage"})
#: Calls that pass a tensor's memory or data to other libraries.
_HOST_EXPORTS = frozenset({"numpy", "__array__", "__dlpack__"})
#: Calls that change how autograd treats a tensor, and not its value.
_FLAGS = frozenset({"requires_grad_", "register_hook", "register_post_accumulate_grad_hook"})
_OPERATORS = (
    *("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)
_IN_PLACE_OPERATORS = {f"__i{name}__": name for name in _OPERATORS}
_REFLECTED = frozenset(f"__r{name}__" for name in _OPERATORS)
_SYNONYMS = {
    "truediv": "div",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
}
#: Names of the first argument, in case it is passed by keyword: torch's, and those of torch.nn.init.
_FIRST_NAMES = ("input", "self", "tensor")
#: Keywords of the running statistics that normalization functions write into.
_STATISTICS = ("running_mean", "running_var")
#: The types of functions that write running statistics if a flag is set, which no schema tells, with the
#: keyword of the flag. The flag is argument 5 of all of them.
_WRITE_WHEN_TRAINING = {
    "batch_norm": "training",
    "native_batch_norm": "training",
    "native_batch_norm_legit": "training",
    "cudnn_batch_norm": "training",
    "miopen_batch_norm": "training",
    "instance_norm": "use_input_stats",
}
_FLAG = 5
#: The argument that each function of ``torch.distributed`` writes into.
_RECEIVES = {
    **dict.fromkeys(("all_reduce", "broadcast", "irecv", "recv", "reduce", "scatter"), "tensor"),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor"), "output"),
    **dict.fromkeys(("all_gather_into_tensor", "all_gather_single"), "output_tensor"),
    "all_gather": "tensor_list",
    "all_gather_coalesced": "output_tensor_lists",
    "all_reduce_coalesced": "tensors",
    "all_to_all": "output_tensor_list",
    "all_to_all_single": "output",
    "gather": "gather_list",
}
#: Functions without a schema that write into the arguments at these positions.
_WRITES_INTO = {"fused_moving_avg_obs_fake_quant": (3, 4, 5, 6)}


class Function(NamedTuple):
    """The facts about a torch function that the recorder needs.

    Attributes:
        type: The type of its operations: ``"conv2d"``.
        record: Whether its calls are operations, with a row for each returned tensor.
        writes: Whether it writes into its first argument.
        by_index: Whether its arguments are an index. Such calls are compared by source line instead of by
            their arguments when loops are found.
        effect: What a call without a row changes: ``"read"`` if it returns a tensor's plain value to Python,
            ``"content"`` if in another form, ``"copy"`` if it copies one, ``"host"`` if it passes memory to
            numpy, ``"backward"`` if it computes gradients, ``"grad"`` if it reads one, ``"flag"`` if it
            changes how autograd treats a tensor, ``""`` if nothing.
        statistics: The positions of running statistics that it may write into; see ``written``.
        mutates: Positions and names of other arguments that it writes into. These are results of the call,
            in addition to what it returns.
        unversioned: Whether what is written there later, or by it, does not change the versions of tensors.
    """

    type: str
    record: bool
    writes: bool
    by_index: bool = False
    effect: str = ""
    mutates: tuple[int | str, ...] = ()
    statistics: slice | None = None
    unversioned: bool = False


def describe(func: Any) -> Function:
    """Describe a torch function from its name, or from its schema if it is an operator of ``torch.ops``."""
    if isinstance(func, torch.jit.ScriptFunction):
        return Function(str(func.name).strip("_").lower() or "script", True, False)
    name = getattr(func, "__name__", None) or type(func).__name__
    if name in ("__get__", "__set__", "__delete__"):
        return _describe_property(name, getattr(getattr(func, "__self__", None), "__name__", ""))
    if name in _VALUE_READS:
        return Function(name.strip("_"), False, False, effect="read")
    if name in _CONTENT_READS:
        return Function(name.strip("_"), False, False, effect="content")
    if name == "__deepcopy__":
        return Function(name.strip("_"), False, False, effect="copy")
    if name in _HOST_EXPORTS:
        return Function(name.strip("_"), False, False, effect="host")
    if name == "backward":
        return Function(name, False, False, effect=name)
    if name in _FLAGS:
        return Function(name, False, False, effect="flag")
    if name in _BOOKKEEPING or name.startswith("_record_function"):
        return Function(name, False, False)
    if name in _IN_PLACE_OPERATORS:
        return Function(_canonical(_IN_PLACE_OPERATORS[name]), True, True)
    if name in _REFLECTED:
        return Function(_canonical(name[3:-2]), True, False)
    if name.startswith("__") and name.endswith("__"):
        inner = name[2:-2]
        return Function(_canonical(inner), True, inner == "setitem", inner in ("getitem", "setitem"))
    if isinstance(func, OpOverload | OpOverloadPacket):
        return _with_statistics(_describe_operator(func), func)
    if getattr(func, "__module__", None) == "torch.distributed.distributed_c10d":
        return _describe_collective(name)
    if "." in name:
        name = name.partition(".")[0]
    in_place = name.endswith("_") and not name.endswith("__")
    if in_place and name.startswith("_") and hasattr(torch.ops.aten, name):  # a fused optimizer step
        return _describe_operator(getattr(torch.ops.aten, name))
    about = Function(_canonical(name.strip("_") or name), True, in_place, mutates=_WRITES_INTO.get(name, ()))
    return _with_statistics(about, func)


def _describe_collective(name: str) -> Function:
    """Describe a function of ``torch.distributed``, which returns nothing or a handle to wait for."""
    receives = _RECEIVES.get(name)
    mutates = () if receives is None else (1 if name == "gather" else 0, receives)
    return Function(name, True, False, mutates=mutates, unversioned=True)


def _with_statistics(about: Function, func: Any) -> Function:
    """Add the positions of running statistics: arguments 1 and 2 of torch.nn.functional, else 3 and 4."""
    if about.type not in _WRITE_WHEN_TRAINING:
        return about
    return about._replace(statistics=slice(1, 3) if isinstance(func, FunctionType) else slice(3, 5))


def _describe_operator(func: OpOverload | OpOverloadPacket) -> Function:
    """Describe an operator of ``torch.ops``, whose schema declares what it writes into."""
    packet = func.overloadpacket if isinstance(func, OpOverload) else func
    names = [] if isinstance(func, OpOverload) else packet.overloads()
    mutates: dict[int | str, None] = {}
    for overload in [getattr(packet, name) for name in names] or [func]:
        for position, argument in enumerate(overload._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                mutates[argument.name] = None
                if not argument.kwarg_only:
                    mutates[position] = None
    name = packet.__name__
    if mutates.keys() <= {0, "self"}:
        return Function(_canonical(name.strip("_") or name), True, bool(mutates))
    return Function(_canonical(name.strip("_") or name), True, False, mutates=tuple(mutates))


def _describe_property(access: str, name: str) -> Function:
    if access == "__get__":
        effect, unversioned = "grad" if name == "grad" else "", name == "data"
        return Function(name, name in _TENSOR_PROPERTIES, False, effect=effect, unversioned=unversioned)
    effect = "flag" if name in ("requires_grad", "grad") else ""
    return Function(f"set_{name}", name in ("data", "real", "imag"), True, effect=effect)


def _canonical(name: str) -> str:
    return _SYNONYMS.get(name, name)


def written(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the arguments that one call writes into, each once.

    These may be the first argument, ``out=``, running statistics, and embedding weights that ``max_norm``
    renormalizes.

    Args:
        func: The description of the function.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    targets: list[Any] = []
    if func.writes or kwargs.get("inplace") is True:
        targets += args[:1] or [kwargs.get(name) for name in _FIRST_NAMES]
    for key in func.mutates:
        targets += args[key : key + 1] if isinstance(key, int) else [kwargs.get(key)]
    if kwargs.get("max_norm") is not None and func.type in ("embedding", "embedding_bag"):
        targets.append(kwargs["weight"] if "weight" in kwargs else args[1])
    out = kwargs.get("out")
    if out is not None:
        targets.append(out)
    if func.statistics is not None:
        flag = _WRITE_WHEN_TRAINING[func.type]
        if kwargs.get(flag, args[_FLAG] if len(args) > _FLAG else flag == "use_input_stats"):
            targets.extend(args[func.statistics])
            targets.extend(kwargs[name] for name in _STATISTICS if name in kwargs)
    found = tensors(targets)
    return [t for n, t in enumerate(found) if all(t is not other for other in found[:n])]


def results(func: Function, out: Any, written_to: list[Tensor]) -> list[Tensor]:
    """Return the tensors that a call produced.

    Args:
        func: The description of the function.
        out: What it returned.
        written_to: The arguments it wrote into. They are results if the function returned None or if its
            description lists them in ``mutates``.
    """
    if out is None:
        return written_to
    returned = tensors(out)
    if not func.mutates:
        return returned
    return returned + [t for t in written_to if all(t is not other for other in returned)]
