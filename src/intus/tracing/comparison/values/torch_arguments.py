"""Name the arguments of PyTorch's operations, with their defaults and what None stands for.

The names and defaults are torch's own: the signatures of its Python functions, and the schemas of its
operators. So ``max_pool2d(x, 2)`` and ``max_pool2d(x, 2, stride=2)`` have the same arguments.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ....core.graph import Graph
from ....core.vocabularies.families import RECURRENT
from .elements import eps_of

#: What None or an empty list stands for, by the name of the argument: a text, or another argument.
_NONE_MEANS = {
    "stride": "kernel_size",
    "value": "0",
    "align_corners": "False",
    "correction": "1",
    "min": "-inf",
    "max": "inf",
}
#: What the numbers of torch's operators mean that its functions have words for.
_REDUCTIONS = {"0": "'none'", "1": "'mean'", "2": "'sum'"}
#: Names that torch accepts besides its own, which are numpy's.
_ALIASES = {"axis": "dim", "keepdims": "keepdim"}
#: Arguments that are axes, counted from either end.
_AXES = frozenset({"dim", "dims", "dim0", "dim1", "start_dim", "end_dim", "source", "destination"})
#: Operations whose axis is one of the result, which has one more.
_ADDING = frozenset({"unsqueeze", "stack"})
_TURNS = frozenset({"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis"})


class Parameter(NamedTuple):
    """A parameter of a function of torch.

    Attributes:
        name: Its name; ``input`` where the schema has ``self``.
        default: The default as text; None if there is none.
        by_position: Whether it can be given by position.
        type_: Its type, as text; ``""`` if it is not stated.
        is_list: Whether it takes all numbers that are given by position, as the sizes of a view.
    """

    name: str
    default: str | None
    by_position: bool
    type_: str
    is_list: bool

    @property
    def is_tensor(self) -> bool:
        """True if it takes a tensor or None."""
        return "Tensor" in self.type_

    @property
    def is_needed(self) -> bool:
        """True if it takes a tensor, which has to be given."""
        return self.is_tensor and self.default is None and "Optional" not in self.type_

    def fits(self, text: str) -> bool:
        """Return whether it takes what a text is, as far as the types tell overloads apart."""
        if self.is_tensor or not self.type_ or text == "None":
            return text == "None" or not self.is_tensor
        if self.type_ in ("bool", "Optional[bool]"):
            return text in ("True", "False")
        return text not in ("True", "False") and ("str" in self.type_ or text[:1] not in "\"'")


class Named(NamedTuple):
    """The arguments of an operation by the names of torch.

    Attributes:
        given: What each argument that is no tensor is, also those that are left out.
        defaults: What each is if all that may be are left out.
        tensors: How many tensors each argument is.
    """

    given: dict[str, str]
    defaults: dict[str, str]
    tensors: dict[str, int]


def named_arguments(
    graph: Graph, row: int, given: Mapping[str, str], tensors: Iterable[str] | None = None
) -> Named | None:
    """Return the arguments of an operation by the names of torch, with the defaults of those left out.

    Args:
        graph: A graph of PyTorch, or of a ``.pt2`` file.
        row: A row of it.
        given: The arguments in the text of the row, by name or position.
        tensors: The arguments that are tensors, also parameters; those that are edges by default.

    Returns:
        The arguments; None if no signature of torch has these.
    """
    framework = graph.facts.get("framework")
    if framework not in ("torch", "torch.export") or (graph.setting(row) and not given):
        return None
    signatures = _signatures(graph.type_of(row), only_operators=framework == "torch.export")
    names = [name for name, _ in graph.parents_by_argument(row)] if tensors is None else list(tensors)
    named = Counter(re.split(r"[.\[]", name)[0] for name in names)
    # A tensor that is no edge is a parameter of a module. Overloads without such are tried first.
    for parameters in sorted(signatures, key=lambda one: sum(x.is_needed for x in one) > len(named)):
        bound = _bound(parameters, named, given)
        if bound is not None:
            of_tensors = {name: named[text] for text, name in _places(parameters, named).items()}
            defaults = {one.name: one.default for one in parameters if one.default is not None}
            both = {one.name: (defaults | bound).get(one.name) for one in parameters}
            given_or_not = {
                name: text for name, text in both.items() if text is not None and name not in of_tensors
            }
            left_out = _meant(graph, row, given_or_not | defaults)
            required = bound.keys() - defaults.keys()
            return Named(
                _meant(graph, row, given_or_not),
                {name: text for name, text in left_out.items() if name not in required},
                of_tensors,
            )
    return None


def is_turned(a: Graph, row: int, b: Graph, other: int) -> bool:
    """Return whether two recurrent layers are given the same axes, one the steps first, one the batch."""
    inputs = [graph.parents(n)[:1] for graph, n in ((a, row), (b, other))]
    if not all(inputs) or not a.type_of(row).startswith(RECURRENT):
        return False
    one, two = (
        tuple(graph.metas[int(graph.ops.meta[rows[0]])].shape)
        for graph, rows in zip((a, b), inputs, strict=True)
    )
    if len(one) != 3 or one != (two[1:2] + two[:1] + two[2:]):
        return False
    turns = [graph.type_of(rows[0]) in _TURNS for graph, rows in zip((a, b), inputs, strict=True)]
    return one[:2] != (1, 1) or turns[0] != turns[1]  # shapes of one step and one row do not tell


def are_one_operator(a: Graph, row: int, b: Graph, other: int) -> bool:
    """Return whether two operations of PyTorch, or of a ``.pt2`` file, are calls of one operator itself.

    A function of Python may call it with something else where it is given None itself.
    """
    frameworks = {graph.facts.get("framework") for graph in (a, b)}
    kind = a.type_of(row)
    return frameworks <= {"torch", "torch.export"} and kind == b.type_of(other) and not _of_python(kind)


def _of_python(kind: str) -> list[Callable[..., Any]]:
    """Return the functions of torch of a name that are written in Python."""
    torch = sys.modules.get("torch")
    modules = () if torch is None else (torch.nn.functional, torch.functional)
    functions = [getattr(module, kind, None) for module in modules]
    return [one for one in functions if inspect.isfunction(one)]


@lru_cache(maxsize=1024)
def _signatures(kind: str, *, only_operators: bool) -> tuple[tuple[Parameter, ...], ...]:
    """Return the parameters of the functions and operators of torch of a name, for each overload."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ()
    of_python = [] if only_operators else _of_python(kind)
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{kind}")
    of_tensors = [one for one in schemas if any("Tensor" in str(x.type) for x in one.arguments[:1])]
    return (*map(_of_function, of_python), *map(_of_schema, of_tensors))


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, also of one of torch that chooses between two by a flag.

    ``max_pool2d`` is such a function, which itself takes any arguments.

    Raises:
        TypeError: The function is none that has a signature.
        ValueError: It is written in C and has none.
    """
    torch = sys.modules.get("torch")
    both = None if torch is None else torch._jit_internal.boolean_dispatched.get(function)
    if both is None:
        return inspect.signature(function)
    signature = inspect.signature(both["if_false"])
    return signature.replace(
        parameters=[
            one.replace(default=both["default"]) if one.name == both["arg_name"] else one
            for one in signature.parameters.values()
        ]
    )


def _of_function(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            "input" if one.name == "self" else one.name,
            None if one.default is one.empty else repr(one.default),
            one.kind is not one.KEYWORD_ONLY,
            str(one.annotation) if "Tensor" in str(one.annotation) else "",
            one.kind is one.VAR_POSITIONAL,
        )
        for one in signature_of(function).parameters.values()
        if one.kind is not one.VAR_KEYWORD
    )


def _of_schema(schema: Any) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            "input" if one.name == "self" else one.name,
            repr(one.default_value) if one.has_default_value() else None,
            not one.kwarg_only,
            str(one.type),
            str(one.type) == "List[int]",
        )
        for one in schema.arguments
    )


def _bound(
    parameters: Iterable[Parameter], tensors: Iterable[str], given: Mapping[str, str]
) -> dict[str, str] | None:
    """Return given arguments by the names of a signature; None if it has no place for one of them.

    Args:
        parameters: The parameters of the signature.
        tensors: The arguments that are tensors, by name or position.
        given: The others, by name or position.
    """
    parameters = list(parameters)
    by_name = {one.name: one for one in parameters}
    places = {*_places(parameters, tensors).values()}
    if not all(name in by_name and (by_name[name].is_tensor or not by_name[name].type_) for name in places):
        return None
    texts = [text for name, text in given.items() if name.startswith("argument ")]
    named = {
        name if name in by_name else _ALIASES.get(name, name): text
        for name, text in given.items()
        if not name.startswith("argument ")
    }
    free = [one for one in by_name.values() if one.by_position and one.name not in places | named.keys()]
    for one in free:
        if one.is_needed or (one.is_tensor and texts[:1] != ["None"]):
            continue  # a parameter of a module, which is no edge of the graph
        if one.is_list and len(texts) > 1 and sum(not x.is_tensor for x in free) == 1:
            texts = [f"({', '.join(texts)})"]  # the sizes of a view
        if texts:
            named[one.name] = texts.pop(0)
    is_whole = not texts and all(
        one.is_tensor or one.name in places | named.keys() for one in by_name.values() if one.default is None
    )
    fits = all(name in by_name and by_name[name].fits(text) for name, text in named.items())
    return named if fits and is_whole else None


def _places(parameters: Iterable[Parameter], tensors: Iterable[str]) -> dict[str, str]:
    """Return the names in a signature of arguments that are given by name or position."""
    names = [one.name for one in parameters]
    return {name: names[int(name)] if name.isdigit() and int(name) < len(names) else name for name in tensors}


def _meant(graph: Graph, row: int, named: Mapping[str, str]) -> dict[str, str]:
    """Return what arguments mean: the axes from 0, and the number that None stands for."""
    found = {name: text for name, text in named.items() if not name.startswith("_")}
    if "unbiased" in found:
        found["correction"] = str(int(found.pop("unbiased") == "True"))
    if "reduction" in found:
        found["reduction"] = _REDUCTIONS.get(found["reduction"], found["reduction"])
    for name, text in found.items():
        if text in ("None", "[]", "()") and name in _NONE_MEANS:
            meant = _NONE_MEANS[name]
            found[name] = found.get(meant, meant)
    given = graph.parents(row)[:1]
    if not given:
        return found
    meta = graph.metas[int(graph.ops.meta[given[0]])]
    shape, out = tuple(meta.shape), tuple(graph.metas[int(graph.ops.meta[row])].shape)
    rank = len(shape) + (graph.type_of(row) in _ADDING)
    found |= {name: from_zero(name, found[name], rank) for name in _AXES & found.keys()}
    if graph.type_of(row) == "interpolate":
        found |= _size(found, shape, out)
    if graph.type_of(row) == "scaled_dot_product_attention" and found.get("scale") == "None" and shape:
        found["scale"] = repr(1 / math.sqrt(shape[-1]))
    if graph.type_of(row) == "rms_norm" and found.get("eps") == "None":
        found["eps"] = repr(eps_of(meta.dtype))
    return found


def from_zero(name: str, text: str, rank: int) -> str:
    """Return axes counted from 0, those of ``dim`` in order.

    Args:
        name: The argument.
        text: What it is.
        rank: How many axes there are.

    Example:
        >>> from_zero("dim", "(-1, 1)", 4), from_zero("dims", "(-1, 1)", 4), from_zero("dim", "None", 4)
        ('(1, 3)', '(3, 1)', 'None')
    """
    try:
        axes = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    listed = list(axes) if isinstance(axes, list | tuple) else [axes]
    if not rank or not all(type(axis) is int for axis in listed):
        return text
    listed = [axis % rank for axis in listed]
    return str(tuple(sorted(listed) if name == "dim" else listed)) if len(listed) != 1 else str(listed[0])


def _size(found: Mapping[str, str], shape: tuple[int, ...], out: tuple[int, ...]) -> dict[str, str]:
    """Return the size of an interpolation for the factor that gives exactly that; nothing for another."""
    sizes = out[2:]
    try:
        factors, size = (ast.literal_eval(found[name]) for name in ("scale_factor", "size"))
    except (KeyError, ValueError, SyntaxError):
        return {}
    each = factors if isinstance(factors, list | tuple) else [factors] * len(sizes)
    if size is None and (
        factors is None or any(n * factor != m for n, factor, m in zip(shape[2:], each, sizes, strict=False))
    ):
        return {}
    return {"size": str(sizes), "scale_factor": "None", "recompute_scale_factor": "None"}
