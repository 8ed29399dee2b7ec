"""Whether the arguments of a call matter: with random values in its place, each must give another result.

Calls that are alike (the same function, the same arguments that are no tensors, tensors of the same shapes
and dtypes) need be asked once: what was seen to matter there matters in the others, which say so.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.errors import InputError
from ..capture.containers import ATOMS
from ..capture.invocation import Invocation
from ..replaying.replay import equal, run
from .exemptions import Case, reason
from .report import EXEMPT, FAILED

_PERIOD = 65_537  # prime, so that what repeats in a tensor does not fall on its shape
_LARGE = 1 << 20  # numbers in a tensor beyond which its stand-in repeats along the first axes


_GLANCE = 1024


class Asked(NamedTuple):
    """What is to be said of a call's arguments: for those that are not seen to matter a status and why, by
    their number; and the other calls on which some were seen to matter."""

    said: dict[int, tuple[str, str]]
    alike: tuple[Any, ...]


class Perturbations:
    """Asks call after call. ``names`` are the arguments' names by number; ``every`` asks each call anew."""

    def __init__(self, names: Sequence[str], *, every: bool) -> None:
        self._names, self._every, self._noise = names, every, Noise()
        self._shown: dict[Hashable, Any] = {}  # on which call an argument was seen to matter

    def ask(self, who: Any, type_: str, call: Invocation, given: list[Tensor], out: list[Tensor]) -> Asked:
        """Ask of a call that returned ``out`` on ``given``; ``who`` names it to those alike."""
        situation = None if self._every else _situation(call, given)
        said: dict[int, tuple[str, str]] = {}
        alike: dict[Any, None] = {}
        for number, tensor_arg in enumerate(call.tensor_args):
            name = f"argument {self._names[tensor_arg.arg]!r}: "
            if tensor_arg.trimmed_value is not None:
                said[number] = EXEMPT, name + NOWHERE
                continue
            if not (given[number].is_floating_point() or given[number].is_complex()):
                said[number] = EXEMPT, name + "whole numbers, indices and masks are not replaced"
                continue
            if situation is not None and (situation, number) in self._shown:
                alike[self._shown[situation, number]] = None
                continue
            mattered, refused = self._matters(call, number, given, out)
            case = Case(type_, call, given, number, self._names[tensor_arg.arg], out)
            why = None if mattered == CLEARLY else reason(case)
            if why is None and refused and mattered == NOT:
                why = f"random values are refused ({refused})"
            if why is not None:
                said[number] = EXEMPT, name + why
            elif mattered == NOT:
                said[number] = FAILED, name + "random values give the same result"
            else:
                self._shown[situation, number] = who
        return Asked(said, tuple(alike))

    def _matters(
        self, call: Invocation, number: int, given: list[Tensor], out: list[Tensor]
    ) -> tuple[int, str]:
        """Whether other values give another result, and why none could be tried ("" if some were)."""
        refused: list[str] = []
        tried, most = 0, NOT
        for value in self._noise.stand_ins(given[number]):
            try:
                other = run(call, [value if n == number else t for n, t in enumerate(given)])
            except Exception as error:
                refused.append(told(error))
                continue
            tried += 1
            most = max([most, *map(_differ, out, other)]) if len(other) == len(out) else CLEARLY
            if most == CLEARLY:
                break
        return most, "" if tried else refused[0]


#: Whether a result differs: by no more than rounding is no proof that an argument matters, where a rule says
#: that it need not.
NOT, ROUNDING, CLEARLY = range(3)


def _differ(a: Tensor, b: Tensor) -> int:
    if a.shape != b.shape or a.dtype != b.dtype or not a.is_floating_point() or a.layout != torch.strided:
        return NOT if equal(a, b) else CLEARLY
    if a.numel() > _GLANCE and _apart(a.flatten()[:_GLANCE], b.flatten()[:_GLANCE], 1e-3):
        return CLEARLY  # most do, and a few numbers tell
    if equal(a, b):
        return NOT
    return CLEARLY if _apart(a, b, 16 * torch.finfo(a.dtype).eps) else ROUNDING


def _apart(a: Tensor, b: Tensor, share: float) -> bool:
    """Whether two tensors differ anywhere by more than that share of the greatest number."""
    greatest = a.abs().nan_to_num(0.0, 0.0, 0.0).max()
    return bool(((a - b).abs() > share * greatest).any() or (a.isnan() != b.isnan()).any())


#: Said of an argument whose op was trimmed.
NOWHERE = "it came from an op that leads nowhere and is not in the graph"


class Noise:
    """Random values, the same in every run: cut out of one period of them, which costs no drawing."""

    def __init__(self) -> None:
        chance = torch.Generator().manual_seed(0)
        self._normal = torch.randn(_PERIOD, generator=chance).repeat(2)
        self._uniform = torch.rand(_PERIOD, generator=chance).repeat(2)
        self._at = 0

    def stand_ins(self, t: Tensor) -> Iterator[Tensor]:
        """Values in the place of ``t``: normal, of (0, 1), its own times 1 to 2, and wide ones."""
        yield self._like(t, self._normal)
        yield self._like(t, self._uniform)
        yield t.detach() * (1 + self._like(t, self._uniform))
        yield self._like(t, self._normal * 1e4)

    def _like(self, t: Tensor, source: Tensor) -> Tensor:
        axis = 0
        while prod(t.shape[axis:]) > _LARGE and axis < t.dim() - 1:
            axis += 1
        values = self._cut(prod(t.shape[axis:]), source)
        if t.is_complex():
            values = torch.complex(values, self._cut(len(values), source))
        return values.to(device=t.device, dtype=t.dtype).view(t.shape[axis:]).expand(t.shape)

    def _cut(self, count: int, source: Tensor) -> Tensor:
        """``count`` values, others each time."""
        self._at = (self._at + 7919) % _PERIOD
        period = source.narrow(0, self._at, _PERIOD)
        return period[:count] if count <= _PERIOD else period.repeat(-(-count // _PERIOD))[:count]


def told(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def _situation(call: Invocation, given: Sequence[Tensor]) -> Hashable:
    """What calls that are alike share; also which of their tensors are one."""
    order: dict[int, int] = {}
    tensors = tuple((t.shape, t.dtype, t.device, order.setdefault(id(t), len(order))) for t in given)
    args, kwargs = _frozen(call.args), _frozen(call.kwargs)
    return call.func, args, kwargs, tensors, call.context, call.picks


def _frozen(value: Any) -> Hashable:
    """An argument to compare others with; what is not known is itself alone.

    >>> _frozen((1, [2.0])) == _frozen((1, [2.0])), _frozen(1) == _frozen(True)
    (True, False)
    """
    if type(value) in ATOMS:
        return type(value), value
    if isinstance(value, tuple | list):
        return type(value), *map(_frozen, value)
    if isinstance(value, dict):
        return dict, *((key, _frozen(part)) for key, part in value.items())
    if isinstance(value, slice):
        return slice, *map(_frozen, (value.start, value.stop, value.step))
    return object, id(value)  # held by the call, so that its id stays its own


def asks_every(perturb: str) -> bool:
    """Whether random values are to be tried on each op; InputError for what means nothing."""
    if perturb not in ("alike", "all"):
        raise InputError(f"perturb={perturb!r} is not one of 'alike', 'all'.")
    return perturb == "all"
