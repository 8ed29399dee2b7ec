"""Make other inputs of the same shapes and dtypes for a model and its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

#: How many ways to change one input alone are tried, and of how many inputs, if not every one is.
_ALONE, _MOST_ALONE = 4, 8


class Made(NamedTuple):
    """Other inputs.

    Attributes:
        way: Words for how they were changed.
        changed: The numbers of those that are others.
        tensors: All inputs.
    """

    way: str
    changed: list[int]
    tensors: list[torch.Tensor]


def made_inputs(
    given: Sequence[torch.Tensor], *, is_half: bool = False, every: bool = False
) -> Iterator[Made]:
    """Yield other inputs: all of them in one way, the likeliest to show something first, and each alone.

    Args:
        given: The inputs.
        is_half: Whether a model computes in half precision, which large numbers overflow.
        every: Whether to change each input alone in every way, and to make unlikely ones too: of one number,
            or moved by a sum, for which an activation may return one number.
    """
    ways = [_ways(t.detach(), is_half=is_half, every=every) for t in given]
    numbers = range(len(given))
    sets = [(way, [*numbers]) for way in dict.fromkeys(way for some in ways for way in some)]
    if every or 1 < len(given) <= _MOST_ALONE:
        sets += [(way, [n]) for n in numbers for way in [*ways[n]][: None if every else _ALONE]]
    seen: list[Sequence[torch.Tensor]] = [given]
    for way, chosen in sets:
        tensors = [
            ways[n][way](t.detach()).clone() if n in chosen and way in ways[n] else t.detach().clone()
            for n, t in enumerate(given)
        ]
        if any(all(map(_equal, tensors, others)) for others in seen):
            continue
        seen.append(tensors)
        changed = [n for n in numbers if not _equal(given[n], tensors[n])]
        yield Made(way, changed, [t.clone() for t in tensors])


def _equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.dtype == y.dtype and bool((x == y).all())


_Ways = dict[str, Callable[["torch.Tensor"], "torch.Tensor"]]


def _ways(t: torch.Tensor, *, is_half: bool, every: bool) -> _Ways:
    """Return ways to change a tensor by words, the likeliest to show something first."""
    if not t.numel():
        return {}
    one_number: _Ways = {"of its highest number alone": _highest, "of its lowest number alone": _lowest}
    one_number = one_number if every and not t.is_complex() else {}
    is_mask = t.numel() > 1 and not t.is_complex() and bool(((t == 0) | (t == 1)).all())
    padding = _padding(t) if is_mask and t.ndim else {}
    masks = {**padding, **(one_number if is_mask else {})}
    if padding and not t.is_floating_point():
        return masks
    orders: _Ways = {"in the opposite order": lambda t: t.flip(tuple(range(t.ndim)))}
    rolls: _Ways = {f"rolled along axis {axis}": partial(_rolled, axis) for axis in range(t.ndim)}
    if t.is_floating_point():
        large = 3.0 if is_half else 1000.0
        sums: _Ways = {
            "made positive by a sum": partial(_moved, 2),
            "made negative by a sum": partial(_moved, -2),
        }
        ways: _Ways = {
            **orders,
            "times 3": lambda t: t * 3,
            "with the other sign": lambda t: -t,
            "of zeros": lambda t: t * 0,
            f"times {large:g}": lambda t: t * large,
            "times 0.01": lambda t: t * 0.01,
            **(sums if every and not is_mask else {}),
        }
    elif t.is_complex() or str(t.dtype) == "torch.bool":
        ways = orders
    else:
        ways = {**orders, "drawn from its numbers": _drawn}
        if t.device.type == "cpu":  # an index that is too large ends the process's use of a GPU
            ways |= {"plus 1": lambda t: t + 1, "times 2 plus 1": lambda t: t * 2 + 1}
    return {**masks, **ways, **rolls, **one_number}


def _padding(t: torch.Tensor) -> _Ways:
    """Return other masks of padding at the end of the rows; none if a mask is another one."""
    whole = t.long()
    steps = whole[..., 1:] - whole[..., :-1]
    is_inverse = bool((whole == 0).all()) or bool((steps > 0).any())
    if bool((steps > 0).any()) and bool((steps < 0).any()):
        return {}
    return {
        "with other padding": partial(_padded, 1, is_inverse),
        "with more padding": partial(_padded, 2, is_inverse),
        "without padding": partial(_padded, 0, is_inverse),
    }


def _padded(step: int, is_inverse: bool, t: torch.Tensor) -> torch.Tensor:
    """Return a mask with padding at the end of each row, of another length in each; none in steps of 0."""
    import torch

    length = t.shape[-1]
    rows = torch.arange(t.numel() // length).reshape(*t.shape[:-1], 1)
    kept = length - (1 + rows * step) % length if step else torch.full_like(rows, length)
    mask = torch.arange(length) < kept
    return (~mask if is_inverse else mask).to(t.device, t.dtype)


def _rolled(axis: int, t: torch.Tensor) -> torch.Tensor:
    return t.roll(1, axis)


def _moved(by: float, t: torch.Tensor) -> torch.Tensor:
    """Return floats with some of their largest number added."""
    return t + by * (1 + t.abs().max())


def _lowest(t: torch.Tensor) -> torch.Tensor:
    return t.amin().expand(t.shape)


def _highest(t: torch.Tensor) -> torch.Tensor:
    return t.amax().expand(t.shape)


def _drawn(t: torch.Tensor) -> torch.Tensor:
    import torch

    places = torch.randint(t.numel(), t.shape, generator=torch.Generator().manual_seed(0))
    return t.reshape(-1)[places.to(t.device)]
