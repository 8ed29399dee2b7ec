"""Run a model and its file on other inputs, and compare what they return.

What both compute the same on these inputs only, a plain call of each on others shows: the numbers in another
order, larger ones, other masks. The values in between are not looked at, so that it takes little time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.errors import IntusError
from ....core.graph import Graph
from ....viewing.repr_text import listed
from ..values.differences import SAME, SAME_HALF, difference, smaller_relative
from ..values.elements import Elements, plain

if TYPE_CHECKING:
    import torch

    from .other_inputs import Called

#: Runs the file on the tensors that the model is called with, and returns its outputs.
RunFile = Callable[[Sequence["torch.Tensor"]], list[Elements]]

#: How many ways to change one input alone are tried, and of how many inputs.
_ALONE, _MOST_ALONE = 4, 8
#: How often a model is run with its numbers rounded otherwise, and by how many eps.
_ROUNDED, _BY = 4, 8.0
#: The part of a difference that the rounding of the model alone may make.
_OWN = 0.1


class Elsewhere(NamedTuple):
    """Results of running a model and its file on other inputs.

    Attributes:
        apart: What is said of the first inputs for which the file returns something else; ``""`` for none.
        others: For how many other inputs both returned the same.
        left: Why they were not run on others, as a sentence; ``""`` if they were.
    """

    apart: str = ""
    others: int = 0
    left: str = ""


class _Apart(NamedTuple):
    """An output that differs.

    Attributes:
        number: Its number.
        relative: The norm of the difference divided by the larger norm; infinite where only the file's is
            not finite.
        is_smaller: Whether these are the norms of elements that are much smaller than others, which do not
            differ.
    """

    number: int
    relative: float
    is_smaller: bool = False


def elsewhere(called: Called, run: RunFile, names: Sequence[str], graphs: tuple[Graph, Graph]) -> Elsewhere:
    """Run a model and its file on other inputs of the same shapes and dtypes.

    Inputs that the model does not take, or returns no finite numbers for, are left out. So are those for
    which the model itself returns something else if its numbers are rounded otherwise: where two numbers tie,
    or rounding is amplified.

    Args:
        called: The call of the model.
        run: Runs the file.
        names: The names of the inputs.
        graphs: The graphs of the model and of the file.
    """
    bound = SAME_HALF if any(_is_half(graph) for graph in graphs) else SAME
    given = called.returned(called.inputs)
    if given is None:
        return Elsewhere(left="Not run on other inputs: the model cannot be called on others.")
    try:
        is_same = _apart(given, run(called.inputs), bound) is None
    except Exception:  # of onnxruntime, of a type for each cause
        is_same = False
    if not is_same:
        return Elsewhere(left="Not run on other inputs: a plain call does not return what the trace did.")
    count = 0
    for words, tensors in _others(called.inputs, names, bound):
        copies = [t.clone() for t in tensors]
        expected = called.returned(tensors)
        if expected is None:
            continue
        try:
            found = run(copies)
        except Exception as error:
            if isinstance(error, IntusError) or not _is_valid(expected):
                continue
            return Elsewhere(f"For {words}, the file cannot be run, and the model can", count)
        apart = _apart(expected, found, bound)
        if apart is None:
            count += 1
        elif _is_valid(expected, found) and not _is_by_rounding(called, copies, expected, apart):
            return Elsewhere(f"For {words}, {_said(apart, len(expected))}", count)
    return Elsewhere(others=count)


def _said(apart: _Apart, count: int) -> str:
    output = "the output" if count == 1 else f"output_{apart.number + 1}"
    if apart.relative == float("inf"):
        return f"{output} of the file is not finite, and the model's is"
    norm = "the norm of its smaller numbers" if apart.is_smaller else "its norm"
    return f"{output} of the file is {apart.relative:.2g} of {norm} away from the model's"


def _is_half(graph: Graph) -> bool:
    return any(meta.dtype in ("float16", "bfloat16") or "float8" in meta.dtype for meta in graph.metas)


def _is_valid(expected: Sequence[Elements], found: Sequence[Elements] | None = None) -> bool:
    """Return whether all that a model returned is finite, or the same infinity as in the file."""
    for number, x in enumerate(expected):
        if x.is_float:
            bad = ~np.isfinite(x.array)
            other = found[number].array if found is not None else None
            if other is not None and other.shape == x.array.shape:
                bad &= x.array != other
            if bad.any():
                return False
    return True


def _apart(expected: Sequence[Elements], found: Sequence[Elements], bound: float) -> _Apart | None:
    """Return the output that differs the most beyond a bound; None if none does."""
    worst: _Apart | None = None
    for number, (x, y) in enumerate(zip(expected, found, strict=False)):
        if x.array.shape != y.array.shape:
            return _Apart(number, 1.0)
        one = difference(x, y)
        relative = float("inf") if one.lopsided else one.relative
        is_smaller = relative <= bound
        relative = smaller_relative(x, y) if is_smaller else relative
        if relative > bound and (worst is None or relative > worst.relative):
            worst = _Apart(number, relative, is_smaller)
    return worst


def _is_by_rounding(
    called: Called, tensors: Sequence[torch.Tensor], expected: Sequence[Elements], apart: _Apart
) -> bool:
    """Return whether the model returns something as far away if its numbers are rounded otherwise.

    It does where two numbers tie, of which a sort or a maximum takes either.
    """
    import torch

    x = expected[apart.number]
    for seed in range(_ROUNDED):
        generator = torch.Generator().manual_seed(seed)
        rounded = called.returned(
            [_rounded(t, generator) for t in tensors], partial(_rounded, generator=generator)
        )
        if rounded is None or rounded[apart.number].array.shape != x.array.shape:
            return True
        own = difference(x, rounded[apart.number])
        relative = smaller_relative(x, rounded[apart.number]) if apart.is_smaller else own.relative
        if own.lopsided or relative > _OWN * apart.relative:
            return True
    return False


def _rounded(t: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return floats that differ from others by rounding alone."""
    import torch

    if not t.is_floating_point() or not t.numel():
        return t
    size = t.detach().abs()
    size = torch.where(size > 0, size, size.max() if size.max() > 0 else torch.ones_like(size))
    noise = (torch.rand(t.shape, generator=generator) * 2 - 1).to(t.device, t.dtype)
    return t.detach() + _BY * torch.finfo(t.dtype).eps * size * noise


# -- the inputs ----------------------------------------------------------------------------------------------


_Ways = Mapping[str, Callable[["torch.Tensor"], "torch.Tensor"]]


def _others(
    given: Sequence[torch.Tensor], names: Sequence[str], bound: float
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield other inputs, with words for what was changed: every input in one way, and each alone."""
    ways = [_ways(t, is_half=bound == SAME_HALF) for t in given]
    every = [*range(len(given))]
    sets = [(words, every) for words in dict.fromkeys(words for some in ways for words in some)]
    if 1 < len(given) <= _MOST_ALONE:
        sets += [(words, [n]) for n in every for words in [*ways[n]][:_ALONE]]
    seen: list[list[torch.Tensor]] = [list(given)]
    for words, numbers in sets:
        tensors = [
            ways[n][words](t.detach()).clone() if n in numbers and words in ways[n] else t.detach().clone()
            for n, t in enumerate(given)
        ]
        if any(all(_equal(x, y) for x, y in zip(tensors, others, strict=True)) for others in seen):
            continue
        seen.append(tensors)
        changed = [names[n] for n, t in enumerate(given) if not _equal(t, tensors[n])]
        yield f"{listed(changed)} {words}", [t.clone() for t in tensors]


def _equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.dtype == y.dtype and bool((x == y).all())


def _ways(t: torch.Tensor, *, is_half: bool) -> _Ways:
    """Return ways to change a tensor by words, the likeliest to show something first."""
    if not t.numel():
        return {}
    if not t.is_floating_point() and t.ndim and t.numel() > 1 and bool(((t == 0) | (t == 1)).all()):
        padding = _padding(t)
        if padding is not None:
            return padding
    orders: _Ways = {"in the opposite order": lambda t: t.flip(tuple(range(t.ndim)))} | {
        f"rolled along axis {axis}": partial(_rolled, axis) for axis in range(t.ndim)
    }
    if t.is_floating_point():
        large = 3.0 if is_half else 1000.0
        return {
            "in the opposite order": orders.get("in the opposite order", lambda t: t),
            "times 3": lambda t: t * 3,
            "with the other sign": lambda t: -t,
            "of zeros": lambda t: t * 0,
            f"times {large:g}": lambda t: t * large,
            "times 0.01": lambda t: t * 0.01,
            **orders,
        }
    if t.is_complex() or str(t.dtype) == "torch.bool":
        return orders
    ways = {"in the opposite order": orders["in the opposite order"], "drawn from its numbers": _drawn}
    if t.device.type == "cpu":  # an index that is too large ends the process's use of a GPU
        ways |= {"plus 1": lambda t: t + 1, "times 2 plus 1": lambda t: t * 2 + 1}
    return {**ways, **orders}


def _padding(t: torch.Tensor) -> _Ways | None:
    """Return other masks of padding at the end of the rows; None if a mask is another one."""
    whole = t.long()
    steps = whole[..., 1:] - whole[..., :-1]
    is_inverse = bool((whole == 0).all()) or bool((steps > 0).any())
    if bool((steps > 0).any()) and bool((steps < 0).any()):
        return None
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


def _drawn(t: torch.Tensor) -> torch.Tensor:
    import torch

    places = torch.randint(t.numel(), t.shape, generator=torch.Generator().manual_seed(0))
    return t.reshape(-1)[places.to(t.device)]


# -- the file ------------------------------------------------------------------------------------------------


def session(path: str, runtime: object) -> Callable[[Sequence[np.ndarray]], list[Elements]]:
    """Return what runs an ONNX file as a whole, on arrays in the order of its inputs.

    Args:
        path: The file.
        runtime: The module ``onnxruntime``.
    """
    options = runtime.SessionOptions()  # type: ignore[attr-defined]
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL  # type: ignore[attr-defined]
    options.log_severity_level = 4  # it raises what it logs
    made = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])  # type: ignore[attr-defined]
    names = [one.name for one in made.get_inputs()]

    def run(arrays: Sequence[np.ndarray]) -> list[Elements]:
        results = made.run(None, dict(zip(names, arrays, strict=True)))
        found = [plain(one) for one in results]
        if any(one is None for one in found):
            raise ValueError("an output is no tensor")
        return [one for one in found if one is not None]

    return run
