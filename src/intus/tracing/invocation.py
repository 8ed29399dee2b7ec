"""What is needed to run one function call again: the function, its arguments with holes where tensors went
in, the random state it drew from and the ambient state it ran in. Kept only when activations are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, get_default_dtype, is_grad_enabled, is_inference_mode_enabled
from torch._C import _is_any_autocast_enabled
from torch.nn import Parameter

from .containers import ATOMS, is_plain

#: Where a tensor lies in its memory: offset, shape, strides, in elements.
Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


class Patch(NamedTuple):
    """An argument that was not what its parent returned: its memory had been written to through a view.

    It was the value of row ``base``, with each of ``writes`` (the writer's row, and where it wrote; None
    where that is not known) put in its place. ``unseen`` means that something the recorder did not see wrote.
    """

    base: int
    writes: tuple[tuple[int, Geometry | None], ...]
    place: Geometry | None
    unseen: bool


class Hole(NamedTuple):
    """A place in the arguments where a tensor stood: ``arg`` is the number of the argument's name, ``source``
    the row it came from (below zero a parameter, -1 - its number), ``grad`` whether it required a gradient,
    ``left`` its value where its row is not in the graph."""

    arg: int
    source: int
    grad: bool
    patch: Patch | None
    left: Tensor | None = None


class Ambient(NamedTuple):
    """What a call depends on besides its arguments; ``autocast`` pairs a device type with its dtype."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    dtype: torch.dtype


class Invocation(NamedTuple):
    """One call. In ``args`` and ``kwargs`` a ``SLOT`` stands for each hole in turn; ``states`` are the
    generators it drew from with what they held before; ``picks`` says which of the returned tensors are
    rows, None for all; ``ambient`` is None where nothing was out of the ordinary."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    holes: tuple[Hole, ...]
    states: tuple[tuple[Any, Tensor], ...] = ()
    ambient: Ambient | None = None
    picks: tuple[int, ...] | None = None


USUAL = Ambient(True, False, (), torch.float32)


#: Stands in an argument where a tensor was; the holes are numbered in the order of their slots. A bare
#: object, so that the garbage collector need not walk what holds it.
SLOT: Any = object()
_NESTING = 8  # as deep as ``containers.walk`` looks

#: A call as it is noted while the pass runs: the function's number, arguments, keywords in pairs, pairs of a
#: row and an argument's number, whether each tensor required a gradient, their patches, states, the ambient
#: state's number. Tuples of numbers and texts: the garbage collector soon stops walking them.
Note = tuple[
    int,
    tuple[Any, ...],
    tuple[tuple[str, Any], ...],
    tuple[int, ...],
    tuple[bool, ...],
    tuple[Patch | None, ...] | None,
    tuple[tuple[Any, Tensor], ...],
    int,
]


class Keeper:
    """Notes the calls of one pass, by the row of the first tensor each returned. Runs once per operation, so
    it makes few objects; ``invocation`` makes sense of them when someone asks."""

    def __init__(self) -> None:
        self.calls: dict[int, Note] = {}
        self.picks: dict[int, tuple[int, ...]] = {}
        self.outputs: dict[int, Hole] = {}  # those that were written to after they had been returned
        #: Arguments written through a view, by the tensor's id and the row it came from.
        self.patches: dict[tuple[int, int], Patch] = {}
        self.nested = False
        self._functions: list[Any] = []
        self._met: dict[Any, tuple[int, bool]] = {}  # by function: its number, and whether it may draw
        self._ambients: dict[Any, int] = {USUAL: 0}
        self._last: tuple[Any, int] = (USUAL, 0)  # the ambient state of the last call, and its number

    def invocation(
        self,
        note: Note,
        hole: Callable[[int, int, bool, Patch | None], Hole],
        picks: tuple[int, ...] | None = None,
    ) -> Invocation:
        """A noted call; ``hole`` makes a hole of argument, source, ``grad`` and patch."""
        function, args, named, inputs, grads, patches, states, ambient = note
        holes = zip(inputs[1::2], inputs[::2], grads, patches or (None,) * len(grads), strict=True)
        return Invocation(
            self._functions[function],
            args,
            dict(named),
            tuple(hole(*one) for one in holes),
            states,
            list(self._ambients)[ambient] if ambient else None,
            picks,
        )

    def before(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, inputs: list[int]
    ) -> Any:
        """A call is about to run: what ``after`` is to be given of it, None where it cannot be noted."""
        if self.nested:  # a trace around this one must not see our own look at the tensors
            with torch._C.DisableTorchFunction():
                return self.noted(func, args, kwargs, inputs)
        return self.noted(func, args, kwargs, inputs)

    def noted(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, inputs: list[int]
    ) -> Note | None:
        """A call as it is noted; ``inputs`` pairs each tensor's row with its argument's number. None for
        arguments that cannot be kept (a container that cannot be made again). All in one, for on small
        tensors the calls of functions of our own are a good part of what saving costs."""
        try:
            found: list[Tensor] = []
            plain: list[Any] = []
            for value in args:
                cls = type(value)
                if cls is Tensor or cls is Parameter:
                    plain.append(SLOT)
                    found.append(value)
                elif cls in ATOMS:
                    plain.append(value)
                else:
                    plain.append(value if is_plain(value) else emptied(value, found))
            named = tuple([(name, emptied(value, found)) for name, value in kwargs.items()]) if kwargs else ()
            if 2 * len(found) != len(inputs):
                return None
            grads = tuple([t.requires_grad for t in found])
            patches = None
            if self.patches:
                patches = tuple(
                    [self.patches.get((id(t), row)) for t, row in zip(found, inputs[::2], strict=True)]
                )
            function, draws = self._met.get(func) or self._learn(func)
            states = tuple([(g, g.get_state()) for g in generators(dict(named))]) if draws else ()
            now = ambient()
            if now != self._last[0]:
                self._last = now, self._ambients.setdefault(Ambient(*now), len(self._ambients))
            return function, tuple(plain), named, tuple(inputs), grads, patches, states, self._last[1]
        except Exception:  # a foreign container may refuse anything; the pass goes on, unproven here
            return None

    def _learn(self, func: Any) -> tuple[int, bool]:
        known = self._met[func] = len(self._functions), may_draw(func)
        self._functions.append(func)
        return known

    def after(self, row: int, note: Any, out: Any) -> None:
        """The call has returned ``out``, whose first tensor is ``row``; ``note`` is what ``before`` gave."""
        if note[6]:
            try:
                with torch._C.DisableTorchFunction():
                    drawn = tuple((g, state) for g, state in note[6] if _moved(state, g.get_state()))
            except Exception:  # within ``torch.func`` or a fake mode a generator's state cannot be looked at
                return
            note = (*note[:6], drawn, note[7])
        self.calls[row] = note

    def whole(self, row: int, note: Any, picks: tuple[int, ...], out: list[Tensor]) -> None:
        """Note a module that ran out of sight: ``picks`` of what it returned are ``out``, from ``row`` on."""
        self.calls[row], self.picks[row] = note, picks

    def output(self, row: int, t: Tensor, source: int, arg: int) -> None:
        """The pass returns ``t``, which comes from the row ``source``."""
        patch = self.patches.get((id(t), source))
        if patch is not None:
            self.outputs[row] = Hole(arg, source, False, patch)


def ambient() -> tuple[bool, bool, tuple[tuple[str, torch.dtype], ...], torch.dtype]:
    """The ambient state as it is now, as a plain tuple, which an Ambient equals."""
    cast = _autocast() if _is_any_autocast_enabled() else ()
    return is_grad_enabled(), is_inference_mode_enabled(), cast, get_default_dtype()


def emptied(value: Any, found: list[Tensor], depth: int = 0) -> Any:
    """An argument with slots for its tensors, which are added to ``found`` in the order of ``walk``.

    >>> found = []
    >>> emptied((torch.ones(1), "mean"), found)[1], len(found)
    ('mean', 1)
    """
    if type(value) in ATOMS:
        return value
    if isinstance(value, Tensor):
        found.append(value)
        return SLOT
    return rebuilt(value, lambda part: emptied(part, found, depth + 1), depth)


def arguments(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], tensors: Iterable[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with ``tensors`` in their slots, in order."""
    rest = iter(tensors)
    return tuple([filled(value, rest) for value in args]), {k: filled(v, rest) for k, v in kwargs.items()}


def filled(value: Any, tensors: Iterator[Any], depth: int = 0) -> Any:
    """The argument again, with the next of ``tensors`` in each slot."""
    if value is SLOT:
        return next(tensors)
    if type(value) in ATOMS:
        return value
    return rebuilt(value, lambda part: filled(part, tensors, depth + 1), depth)


def rebuilt(value: Any, each: Callable[[Any], Any], depth: int) -> Any:
    """A container of the same kind with ``each`` of its parts; anything else as it is."""
    if isinstance(value, tuple | list) and depth < _NESTING:
        parts = [each(part) for part in value]
        if isinstance(value, list):
            return parts
        if type(value) is tuple or isinstance(value, torch.Size):
            return tuple(parts)
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict) and depth < _NESTING:
        return {key: each(part) for key, part in value.items()}
    if isinstance(value, slice):
        return slice(each(value.start), each(value.stop), each(value.step))
    return value


def may_draw(func: Any) -> bool:
    """Whether a function may draw random numbers: torch tags its own; of others it is not known.

    >>> may_draw(torch.add), may_draw(torch.rand), may_draw(torch.Tensor.normal_)
    (False, True, True)
    """
    if isinstance(func, FunctionType):
        return not func.__module__.startswith("torch.") or _names_what_draws(func)
    name = getattr(func, "__name__", "").partition(".")[0]
    if name.startswith("__"):
        return False
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return True
    return _is_seeded(packet)


@cache
def _names_what_draws(func: FunctionType) -> bool:
    """Whether a Python function of torch's, or one that it names in turn, names what draws."""
    todo, seen = [func], set[FunctionType]()
    while todo:
        one = todo.pop()
        if one in seen or one.__module__ == "torch.overrides":
            continue
        seen.add(one)
        near = [one.__globals__.get(name) for name in one.__code__.co_names]
        near += [cell.cell_contents for cell in one.__closure__ or ()]
        todo += [other for other in near if isinstance(other, FunctionType)]
    names = {name for one in seen for name in one.__code__.co_names}
    return any(_is_seeded(getattr(torch.ops.aten, name, None)) for name in names)


def _is_seeded(packet: Any) -> bool:
    overloads = packet.overloads() if hasattr(packet, "overloads") else ()
    return any(torch.Tag.nondeterministic_seeded in getattr(packet, o).tags for o in overloads)


def generators(kwargs: dict[str, Any]) -> Iterator[Any]:
    """The generators a call with these keywords may draw from."""
    own = kwargs.get("generator")
    if isinstance(own, torch.Generator):
        yield own
        return
    yield torch.default_generator
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        yield from torch.cuda.default_generators


def _moved(before: Tensor, after: Tensor) -> bool:
    return bytes(before.numpy().data) != bytes(after.numpy().data)


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    devices = ("cpu", "cuda", "mps", "xpu")
    return tuple(
        (device, torch.get_autocast_dtype(device)) for device in devices if torch.is_autocast_enabled(device)
    )
