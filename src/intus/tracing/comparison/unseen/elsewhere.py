"""Run a model and its file on other inputs, and compare what they return.

What both compute the same on these inputs only, a plain call of each on others shows: the numbers in another
order, larger ones, other masks. The values in between are not looked at, so that it takes little time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....core.errors import IntusError
from ....core.graph import Graph
from ....viewing.repr_text import listed
from ..values.differences import SAME, SAME_HALF, difference, smaller_relative
from ..values.elements import Elements, plain
from .made_inputs import made_inputs

if TYPE_CHECKING:
    import torch

    from .other_inputs import Called

#: Runs the file on the tensors that the model is called with, and returns its outputs.
RunFile = Callable[[Sequence["torch.Tensor"]], list[Elements]]

#: How many characters of an error's message are said.
_LONGEST = 120
#: How often a model is run with its numbers rounded otherwise, and by how many eps.
_ROUNDED, _BY = 4, 8.0
#: The part of a difference that the rounding of the model alone may make.
_OWN = 0.1


class Elsewhere(NamedTuple):
    """Results of running a model and its file on other inputs.

    Attributes:
        apart: What is said of the first inputs for which the file returns something else, or of all if none
            shows anything; ``""`` for none.
        others: For how many other inputs both returned the same.
        left: Why they were not run on others, or not on all, as a sentence; ``""`` if they were.
    """

    apart: str = ""
    others: int = 0
    left: str = ""

    def also(self, more: Elsewhere) -> Elsewhere:
        """Return the same with what others showed, which were made of other inputs."""
        return Elsewhere(self.apart or more.apart, self.others + more.others, self.left or more.left)


class _Refused(NamedTuple):
    """Other inputs that show nothing.

    Attributes:
        number: How many.
        why: Why the first of them do not; ``""`` if there are none.
    """

    number: int = 0
    why: str = ""

    def also(self, why: str) -> _Refused:
        """Return the same with others, which show nothing for a reason."""
        return _Refused(self.number + 1, self.why or why)


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


def elsewhere(
    called: Called,
    run: RunFile,
    names: Sequence[str],
    graphs: tuple[Graph, Graph],
    given: Sequence[torch.Tensor] | None = None,
) -> Elsewhere:
    """Run a model and its file on other inputs of the same shapes and dtypes.

    Inputs that the model or the file refuses, or that the model returns no finite numbers for, show nothing.
    So do those for which the model itself returns something else if its numbers are rounded otherwise: where
    two numbers tie, or rounding is amplified.

    Args:
        called: The call of the model.
        run: Runs the file, and returns its outputs in the places of those of the model.
        names: The names of the inputs.
        graphs: The graphs of the model and of the file.
        given: Inputs by which another branch is taken, of which others are made; None for those of the call.
    """
    of = "" if given is None else ", of inputs that take another branch"
    given = called.inputs if given is None else given
    if not called.can_change:
        return Elsewhere(left="Not run on other inputs: the model cannot be called on others.")
    bound = SAME_HALF if any(_is_half(graph) for graph in graphs) else SAME
    try:
        is_same = _apart(called.returned(given), run(given), bound) is None
    except Exception:  # of the model or of onnxruntime, of a type for each cause
        is_same = False
    if not is_same:
        return Elsewhere(left="Not run on other inputs: a plain call does not return what the trace did.")
    count, refused = 0, _Refused()
    for made in made_inputs(given, is_half=bound == SAME_HALF):
        words = f"{listed([names[n] for n in made.changed])} {made.way}{of}"
        copies = [t.clone() for t in made.tensors]
        try:
            expected = called.returned(made.tensors)
        except Exception as error:  # of the model, which may not take such inputs
            refused = refused.also(f"for {words}, the model raises {_named(error)}")
            continue
        try:
            found = run(copies)
        except IntusError as error:  # of a file that states which inputs it takes
            refused = refused.also(f"for {words}, the file refuses them: {_first_line(error)}")
            continue
        except Exception as error:
            if _is_valid(expected):
                return Elsewhere(f"For {words}, the file cannot be run, and the model can", count)
            refused = refused.also(f"for {words}, the file cannot be run: {_named(error)}")
            continue
        apart = _apart(expected, found, bound)
        if apart is None:
            count += 1
        elif not _is_valid(expected, found):
            refused = refused.also(f"for {words}, the model returns numbers that are not finite")
        elif _is_by_rounding(called, copies, expected, apart):
            refused = refused.also(f"for {words}, rounding decides what the model returns")
        else:
            return Elsewhere(f"For {words}, {_said(apart, len(expected))}", count)
    every = count + refused.number
    if not every:
        return Elsewhere(left="Not run on other inputs: no input has numbers that can be changed.")
    if not count:
        how_many = "the one other input" if every == 1 else f"any of {every} other inputs"
        return Elsewhere(f"They are not shown to agree on {how_many}: {refused.why}")
    left = f"{refused.number} of {every} other inputs show nothing. The first: {refused.why.rstrip('.')}."
    return Elsewhere(others=count, left=left if refused.number else "")


def _named(error: Exception) -> str:
    line = _first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _first_line(error: Exception) -> str:
    """Return the first sentence of a message, as far as it fits into a sentence."""
    line = next(iter(str(error).strip().splitlines()), "")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


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
        try:
            rounded = called.returned(
                [_rounded(t, generator) for t in tensors], partial(_rounded, generator=generator)
            )
        except Exception:  # of the model, which may not take such inputs
            return True
        if rounded[apart.number].array.shape != x.array.shape:
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


# -- the file ------------------------------------------------------------------------------------------------


def session(
    path: str, runtime: object, names: Sequence[str]
) -> Callable[[Sequence[np.ndarray]], list[Elements]] | None:
    """Return what runs an ONNX file as a whole, on arrays in the order of names; None if it takes not all.

    In a file of version 3 or less, onnxruntime takes an input that has a default for a constant.

    Args:
        path: The file.
        runtime: The module ``onnxruntime``.
        names: The names of its inputs that are given.
    """
    from ....reading.onnx import watched  # which imports onnx

    options = runtime.SessionOptions()  # type: ignore[attr-defined]
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL  # type: ignore[attr-defined]
    options.log_severity_level = 4  # it raises what it logs
    made = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])  # type: ignore[attr-defined]
    if {*names} - {one.name for one in (*made.get_inputs(), *made.get_overridable_initializers())}:
        return None

    def run(arrays: Sequence[np.ndarray]) -> list[Elements]:
        results = watched.run(made, runtime, dict(zip(names, arrays, strict=True)))
        found = [plain(one) for one in results]
        if any(one is None for one in found):
            raise ValueError("an output is no tensor")
        return [one for one in found if one is not None]

    return run
