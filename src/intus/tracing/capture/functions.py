"""What is known of a torch function by its name: its type, whether it writes, whether it is worth a row.

Only names are looked at, never a hand-kept list of torch's functions: a function that is new tomorrow is
recorded like any other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from .containers import tensors

#: Properties that return a tensor; every other property tells something about one (shape, dtype …).
_TENSOR_PROPERTIES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
#: Calls that are bookkeeping of torch or of Python, never part of what a model computes.
_BOOKKEEPING = frozenset(
    {
        "__repr__", "__format__", "__len__", "__hash__", "__dir__", "__reduce_ex__", "__setstate__",
        "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "storage",
        "element_size",
        "untyped_storage", "data_ptr", "is_contiguous", "is_floating_point", "is_complex",
        "get_device", "is_same_size", "has_names", "requires_grad_", "retain_grad", "register_hook",
        "register_post_accumulate_grad_hook", "_is_view", "_set_grad_enabled", "is_tensor",
        "result_type", "can_cast", "is_inference", "__deepcopy__", "__contains__", "type_promotion",
    }
)  # fmt: skip
#: Calls by which Python learns a tensor's plain value, and may decide something on it.
_ASKS = frozenset(
    {"__bool__", "__int__", "__float__", "__index__", "item", "tolist", "is_nonzero", "equal", "allclose"}
)
#: Calls that hand a tensor's memory, or what it holds, to what is not torch.
_TO_HOST = frozenset({"numpy", "__array__", "__dlpack__"})
_OPERATORS = (
    *("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)
_IN_PLACE_OPERATORS = {f"__i{name}__": name for name in _OPERATORS}
_REFLECTED = frozenset(f"__r{name}__" for name in _OPERATORS)
_SAME = {
    "truediv": "div",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
}
#: What a function calls its first argument, where it is given by name: torch's own, and torch.nn.init's.
_FIRST = ("input", "self", "tensor")
#: Functions that write into an argument only when told to: argument positions, and the flag that tells.
_STATISTICS = ("running_mean", "running_var")
_WRITE_WHEN_TRAINING = {"batch_norm": (5, "training"), "instance_norm": (5, "use_input_stats")}
#: Functions without a schema to ask that write into arguments at these positions.
_WRITES_INTO = {"fused_moving_avg_obs_fake_quant": (3, 4, 5, 6)}


class Function(NamedTuple):
    """``type`` names the operation; ``record`` is whether it makes rows; ``writes`` whether its first
    argument is written into; what ``mutates`` names is written into whatever else is returned, and is a
    result too. A function that makes no row may be noted otherwise: ``note`` is ``"read"`` if it gives Python
    a tensor's plain value, ``"host"`` if it gives numpy its memory, ``"backward"`` if it computes gradients,
    ``"grad"`` if it reads one."""

    type: str
    record: bool
    writes: bool
    by_index: bool = False  # its arguments are an index: loops compare the source line instead
    note: str = ""
    mutates: tuple[int | str, ...] = ()  # positions and names of other arguments that are written into


def describe(func: Any) -> Function:
    """Tell what a torch function is, from its name."""
    name = getattr(func, "__name__", None) or type(func).__name__
    if name in ("__get__", "__set__", "__delete__"):
        return _describe_property(name, getattr(getattr(func, "__self__", None), "__name__", ""))
    if name in _ASKS:
        return Function(name.strip("_"), False, False, note="read")
    if name in _TO_HOST:
        return Function(name.strip("_"), False, False, note="host")
    if name == "backward":
        return Function(name, False, False, note=name)
    if name in _BOOKKEEPING or name.startswith("_record_function"):
        return Function(name, False, False)
    if name in _IN_PLACE_OPERATORS:
        return Function(_plain(_IN_PLACE_OPERATORS[name]), True, True)
    if name in _REFLECTED:
        return Function(_plain(name[3:-2]), True, False)
    if name.startswith("__") and name.endswith("__"):
        inner = name[2:-2]
        return Function(_plain(inner), True, inner == "setitem", inner in ("getitem", "setitem"))
    if isinstance(func, OpOverload | OpOverloadPacket):
        return _describe_operator(func)
    if "." in name:
        name = name.partition(".")[0]
    in_place = name.endswith("_") and not name.endswith("__")
    return Function(_plain(name.strip("_") or name), True, in_place, mutates=_WRITES_INTO.get(name, ()))


def _describe_operator(func: OpOverload | OpOverloadPacket) -> Function:
    """An operator of ``torch.ops``, torch's own or a user's, says in its schema what it writes into."""
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
        return Function(_plain(name.strip("_") or name), True, bool(mutates))
    return Function(_plain(name.strip("_") or name), True, False, mutates=tuple(mutates))


def _describe_property(access: str, name: str) -> Function:
    if access == "__get__":
        return Function(name, name in _TENSOR_PROPERTIES, False, note="grad" if name == "grad" else "")
    return Function(f"set_{name}", name in ("data", "real", "imag"), True)


def _plain(name: str) -> str:
    return _SAME.get(name, name)


def written(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The arguments this very call writes into: the first one, ``out=``, running statistics, weights that
    ``max_norm`` shortens."""
    targets: list[Any] = []
    if func.writes or kwargs.get("inplace") is True:
        targets += args[:1] or [kwargs.get(name) for name in _FIRST]
    for key in func.mutates:
        targets += args[key : key + 1] if isinstance(key, int) else [kwargs.get(key)]
    if kwargs.get("max_norm") is not None and func.type in ("embedding", "embedding_bag"):
        targets.append(kwargs["weight"] if "weight" in kwargs else args[1])
    out = kwargs.get("out")
    if out is not None:
        targets.append(out)
    if func.type in _WRITE_WHEN_TRAINING:
        position, flag = _WRITE_WHEN_TRAINING[func.type]
        if kwargs.get(flag, args[position] if len(args) > position else False):
            # torch.nn.functional takes the statistics second and third, torch itself fourth and fifth
            targets.extend(args[1:3] if flag in kwargs or len(args) < 9 else args[3:5])
            targets.extend(kwargs[name] for name in _STATISTICS if name in kwargs)
    found = [
        t
        for target in targets
        for t in (target if isinstance(target, tuple | list) else (target,))
        if isinstance(t, Tensor)
    ]
    return [t for n, t in enumerate(found) if all(t is not other for other in found[:n])]


def results(func: Function, out: Any, written_to: list[Tensor]) -> list[Tensor]:
    """The tensors that come of a call: what it returned, and what it wrote into where that is a result."""
    if out is None:
        return written_to
    returned = tensors(out)
    if not func.mutates:
        return returned
    return returned + [t for t in written_to if all(t is not other for other in returned)]
