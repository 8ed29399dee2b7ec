"""Find out whether the arguments of a call matter: whether random values in place of one change the result.

An argument that does not matter is no error of the graph, but exempt: many operations ignore an argument on
some values (a clamp, a mask, a factor of zero). That the argument is the right one is checked otherwise, by
comparing it with what the call received.

Calls that are alike (same function, same non-tensor arguments, tensors of the same shapes and dtypes) are
checked once: an argument that has an effect in one call counts as mattering in the others, whose checks name
that call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.errors import InputError
from ..capture.containers import ATOMS, is_wrapped
from ..capture.invocation import Invocation
from ..capture.memory import inner_of, local_of, wrapping
from ..replaying.replay import equal, is_autograd, run_call
from ..replaying.transforms import outside_transforms, unwrapped, wrappers
from .exemptions import WITHOUT_EFFECT, Case, reason
from .report import EXEMPT

_PERIOD = 65_537  # prime, so that the repetition in a tensor does not coincide with its shape
_LARGE = 1 << 20  # elements beyond which the replacement of a tensor repeats along its first axes
_SAMPLE = 1024  # elements that are compared first


class ArgumentResults(NamedTuple):
    """The results for the arguments of one call.

    Attributes:
        statuses: For each argument that was not shown to matter, by its number, a status and the reason.
        alike: The other calls on which arguments were shown to matter.
    """

    statuses: dict[int, tuple[str, str]]
    alike: tuple[Any, ...]


class Perturbations:
    """Checks the arguments of one call after another.

    Args:
        names: The names of arguments, by number.
        every: Whether to check each call; otherwise one of those that are alike.
    """

    def __init__(self, names: Sequence[str], *, every: bool) -> None:
        self._names, self._every, self._noise = names, every, Noise()
        self._mattered: dict[Hashable, Any] = {}  # the call on which an argument was shown to matter

    def check(
        self, call_id: Any, type_: str, call: Invocation, given: list[Tensor], out: list[Tensor]
    ) -> ArgumentResults:
        """Replace each argument of a call by random values, run it, and compare.

        Args:
            call_id: What ``ArgumentResults.alike`` of other calls names this call by.
            type_: The type of the operation.
            call: The call.
            given: Its tensors.
            out: What it returned on them.
        """
        signature = None if self._every else _signature(call, given)
        statuses: dict[int, tuple[str, str]] = {}
        alike: dict[Any, None] = {}
        # Of a ``DTensor`` the rules read the part of this process, which needs no communication.
        own_given, own_out = [*map(local_of, given)], [*map(local_of, out)]
        for number, tensor_arg in enumerate(call.tensor_args):
            name = f"argument {self._names[tensor_arg.arg]!r}: "
            if tensor_arg.trimmed_value is not None:
                statuses[number] = EXEMPT, name + NOT_IN_GRAPH_REASON
                continue
            if not (given[number].is_floating_point() or given[number].is_complex()):
                statuses[number] = EXEMPT, name + "integers, indices and masks are not replaced"
                continue
            if signature is not None and (signature, number) in self._mattered:
                alike[self._mattered[signature, number]] = None
                continue
            effect, refused = self._effect(call, number, given, out)
            case = Case(type_, call, own_given, number, self._names[tensor_arg.arg], own_out)
            if refused and is_autograd(call):  # it needs the history of this very tensor
                effect = CLEARLY
            why = None if effect == CLEARLY else reason(case)
            if why is None and effect == SAME:
                why = f"it raises on random values ({refused})" if refused else WITHOUT_EFFECT
            if why is not None:
                statuses[number] = EXEMPT, name + why
            else:
                self._mattered[signature, number] = call_id
        return ArgumentResults(statuses, tuple(alike))

    def _effect(
        self, call: Invocation, number: int, given: list[Tensor], out: list[Tensor]
    ) -> tuple[int, str]:
        """Run a call with random values in place of one argument.

        Returns:
            How the result differs (``SAME``, ``ROUNDING`` or ``CLEARLY``), and the first exception if all
            random values raised, else ``""``.
        """
        refused: list[str] = []
        tried, effect = 0, SAME
        t = given[number]
        stays = t.device.type != "cpu" and has_domain(call.func)
        for value in self._noise.smaller(t) if stays else self._noise.replacements(t):
            try:
                other = run_call(call, [value if n == number else t for n, t in enumerate(given)])
            except Exception as error:
                refused.append(one_line(error))
                continue
            tried += 1
            effect = max([effect, *map(_differ, out, other)]) if len(other) == len(out) else CLEARLY
            if effect == CLEARLY:
                break
        return effect, "" if tried else refused[0]


#: How a result differs. A difference within rounding does not show that an argument matters, if a rule says
#: that it need not.
SAME, ROUNDING, CLEARLY = range(3)


def _differ(a: Tensor, b: Tensor) -> int:
    """Return how two results differ: ``SAME``, ``ROUNDING`` or ``CLEARLY``."""
    if is_wrapped(a) or is_wrapped(b):
        with outside_transforms():
            return _differ(unwrapped(a)[-1], unwrapped(b)[-1]) if wrappers(a) == wrappers(b) else CLEARLY
    a, b = local_of(a), local_of(b)
    if (
        a.is_nested
        or b.is_nested
        or a.shape != b.shape
        or a.dtype != b.dtype
        or not a.is_floating_point()
        or a.layout != torch.strided
    ):
        return SAME if equal(a, b) else CLEARLY
    if a.numel() > _SAMPLE and _apart(a.flatten()[:_SAMPLE], b.flatten()[:_SAMPLE], 1e-3):
        return CLEARLY  # most results differ clearly, and a sample of elements shows it
    if equal(a, b):
        return SAME
    return CLEARLY if _apart(a, b, 16 * torch.finfo(a.dtype).eps) else ROUNDING


def _apart(a: Tensor, b: Tensor, share: float) -> bool:
    """Return whether two tensors differ anywhere by more than ``share`` of the largest magnitude."""
    greatest = a.abs().nan_to_num(0.0, 0.0, 0.0).max()
    return bool(((a - b).abs() > share * greatest).any() or (a.isnan() != b.isnan()).any())


#: The reason for an argument whose op is not in the graph.
NOT_IN_GRAPH_REASON = "it came from an op that is not in the graph, because no output depends on it"


class Noise:
    """Random values, the same in every run: slices of one precomputed period, which needs no drawing."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self._normal = torch.randn(_PERIOD, generator=generator).repeat(2)
        self._uniform = torch.rand(_PERIOD, generator=generator).repeat(2)
        self._offset = 0

    def replacements(self, t: Tensor) -> Iterator[Tensor]:
        """Yield values in place of ``t``: normal, uniform in (0, 1), ``t`` times 1 to 2, and wide ones."""
        if t.is_nested:  # it has no common shape, so the tensors inside it are replaced one by one
            for parts in zip(*map(self.replacements, t.detach().unbind()), strict=True):
                yield torch.nested.as_nested_tensor(list(parts), layout=t.layout)
            return
        if inner_of(t) is not None:  # of a ``DTensor`` this process replaces its own part
            wrap = wrapping(t)
            yield from (wrap(part) for part in self.replacements(local_of(t)))
            return
        if is_wrapped(t):
            start = torch.zeros_like(t)  # wrapped in the same way
            yield start + self._like(t, self._normal)
            yield start + self._like(t, self._uniform)
            yield start + self._like(t, self._normal * 1e4)
            return
        yield self._like(t, self._normal)
        yield self._like(t, self._uniform)
        yield t.detach() * (1 + self._like(t, self._uniform))
        yield self._like(t, self._normal * 1e4)

    def smaller(self, t: Tensor) -> Iterator[Tensor]:
        """Yield values between 0 and those of ``t``: probabilities in place of probabilities."""
        yield t.detach() * 0.5
        if not (t.is_nested or is_wrapped(t) or inner_of(t) is not None):
            yield t.detach() * self._like(t, self._uniform)

    def _like(self, t: Tensor, source: Tensor) -> Tensor:
        axis = 0
        while prod(t.shape[axis:]) > _LARGE and axis < t.dim() - 1:
            axis += 1
        values = self._cut(prod(t.shape[axis:]), source)
        if t.is_complex():
            values = torch.complex(values, self._cut(len(values), source))
        return values.to(device=t.device, dtype=t.dtype).view(t.shape[axis:]).expand(t.shape)

    def _cut(self, count: int, source: Tensor) -> Tensor:
        """Return ``count`` values, different ones each time."""
        self._offset = (self._offset + 7919) % _PERIOD
        period = source.narrow(0, self._offset, _PERIOD)
        return period[:count] if count <= _PERIOD else period.repeat(-(-count // _PERIOD))[:count]


#: Functions of torch whose arguments must be probabilities. Others end all use of a GPU by the process.
_OF_PROBABILITIES = frozenset({"bernoulli", "bernoulli_", "binary_cross_entropy", "multinomial", "binomial"})


def has_domain(func: Any) -> bool:
    """Return whether a function may stop the device on some values; functions from elsewhere are assumed to.

    Example:
        >>> has_domain(torch.bernoulli), has_domain(torch.relu), has_domain(torch.Tensor.bernoulli_)
        (True, False, True)
    """
    name = getattr(func, "__name__", "")
    own = (getattr(func, "__module__", None) or "torch").partition(".")[0] == "torch"
    return not own or name in _OF_PROBABILITIES


def one_line(error: BaseException) -> str:
    """Return an exception as one line."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def _signature(call: Invocation, given: Sequence[Tensor]) -> Hashable:
    """Return what calls that are alike share, also which of their tensors are the same object."""
    order: dict[int, int] = {}
    tensors = tuple((_shape(t), t.dtype, t.device, order.setdefault(id(t), len(order))) for t in given)
    args, kwargs = _hashable(call.args), _hashable(call.kwargs)
    return call.func, args, kwargs, tensors, call.context, call.picks


def _shape(t: Tensor) -> Hashable:
    return tuple(part.shape for part in t.unbind()) if t.is_nested else t.shape


def _hashable(value: Any) -> Hashable:
    """Return an argument in a form that can be compared; an unknown object equals only itself.

    Example:
        >>> _hashable((1, [2.0])) == _hashable((1, [2.0])), _hashable(1) == _hashable(True)
        (True, False)
    """
    if type(value) in ATOMS:
        return type(value), value
    if isinstance(value, tuple | list):
        return type(value), *map(_hashable, value)
    if isinstance(value, dict):
        return dict, *((key, _hashable(part)) for key, part in value.items())
    if isinstance(value, slice):
        return slice, *map(_hashable, (value.start, value.stop, value.step))
    return object, id(value)  # the call keeps the object alive, so the id is not reused


def perturbs_every(perturb: str) -> bool:
    """Return whether ``perturb`` requests random values on every op.

    Raises:
        InputError: If it is not ``"alike"`` or ``"all"``.
    """
    if perturb not in ("alike", "all"):
        raise InputError(f"perturb={perturb!r} is not one of 'alike', 'all'.")
    return perturb == "all"
