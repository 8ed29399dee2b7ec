"""Compare the arguments of operations that graphs store as text, which files and other frameworks have."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ....core.analysis.modules import same_modules
from ....core.graph import Graph
from ....core.vocabularies import common_type, is_translated
from ....core.vocabularies.families import AVERAGE_POOLS, CONVOLUTIONS, MAX_POOLS, SOFTMAXES
from ....viewing.repr_text import listed
from .torch_arguments import Named, are_one_operator, from_zero, is_turned, named_arguments

#: Arguments without effect in evaluation mode.
_UNUSED = frozenset({"p", "dropout_p", "momentum"})
#: Arguments that do not change values, besides those, or change them in training alone.
_WITHOUT_VALUES = _UNUSED | {
    *("device", "dtype", "layout", "inplace", "training", "memory_format", "copy"),
    "enable_gqa",  # allows fewer heads of keys, which the other pass may repeat itself
    *("dropout", "train"),  # of recurrent layers
}
NOT_GIVEN = "not given"
#: The relative difference of numbers that are one, and the absolute one: below it numbers are 0 in float16.
_EXACT = (1e-6, 0.0)
_PRECISIONS = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 0.0)}
#: Arguments of ONNX that are true or false, or that scale by 1.
_FLAGS = frozenset(
    {"allowzero", "alpha", "beta", "ceil_mode", "keepdim", "largest", "noop_with_empty_axes", "sorted"}
    | {"stash_type", "storage_order", "transA", "transB"}
)
#: Arguments that what is known of the result shows, and that each framework writes in its own way. A file may
#: remove the axes of a reduction afterwards.
_SHOWN_OTHERWISE = frozenset(
    {"keepdim", "device", "dtype", "layout", "memory_format", "pin_memory", "output_size"}
)
#: The version of ONNX's operators from which on a softmax is along the last axis by default.
_LAST_AXIS = 13
#: Words that mean the same: of interpolation the numbers of axes tell them apart; of padding ONNX has others.
_WORDS = {
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
    "replicate": "edge",
    "circular": "wrap",
}
_WHOLE = re.compile(r"[(\[]?-?\d+(\.0)?(, -?\d+)*,?[)\]]?")
_CONV, _BINARY, _ALONG = ("stride", "padding", "dilation", "groups"), ("other",), ("dim",)
_POOL = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
#: The names of PyTorch for arguments that are given by position, after those that are tensors.
_POSITIONS = {
    **dict.fromkeys(CONVOLUTIONS, _CONV),
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "true_divide", "maximum", "minimum"), _BINARY),
    **dict.fromkeys(("softmax", "log_softmax", "cat", "cumsum", "mean", "sum", "amax", "amin"), _ALONG),
    **dict.fromkeys(MAX_POOLS, ("kernel_size",)),
    **dict.fromkeys(AVERAGE_POOLS, _POOL),
    "pad": ("pad", "mode", "value"),
    "clamp": ("min", "max"),
    "clamp_min": ("min",),
    "clamp_max": ("max",),
    "topk": ("k", "dim"),
    "group_norm": ("num_groups",),
    "hardtanh": ("min_val", "max_val"),
    "softplus": ("beta", "threshold"),
    "threshold": ("threshold", "value"),
    "leaky_relu": ("negative_slope",),
    **dict.fromkeys(("elu", "celu"), ("alpha",)),
    **dict.fromkeys(("hardshrink", "softshrink"), ("lambd",)),
    "multi_head_attention_forward": ("embed_dim", "num_heads", "add_zero_attn", "dropout_p"),
}
#: The beginnings of operations of PyTorch that are given None in the place of a tensor, such as a bias.
_WITH_OPTIONAL = ("conv", "multi_head_attention")
#: The beginnings of recurrent operations, whose settings a file has in the operations around its own.
RECURRENT = ("gru", "lstm", "rnn")
#: Operations whose numbers are the shape of what they return.
_TO_SHAPES = frozenset({"view", "reshape", "_unsafe_view", "flatten", "expand"})
#: Operations whose numbers are those that they compute with, in every framework.
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "pow", "maximum", "minimum", "clamp"})
#: The names of PyTorch for arguments of ONNX.
_ONNX_NAMES = {
    "strides": "stride",
    "pads": "padding",
    "dilations": "dilation",
    "group": "groups",
    "kernel_shape": "kernel_size",
    "axis": "dim",
    "axes": "dim",
    "keepdims": "keepdim",
    "B": "other",
    "Y": "other",
    "K": "k",
    "epsilon": "eps",
}
#: Names of PyTorch for what it names otherwise in most operations.
_COMMON_NAMES = {"exponent": "other", "min_val": "min", "max_val": "max"}
#: The names of PyTorch for arguments of some types of ONNX alone.
_OWN_NAMES = {"leaky_relu": {"alpha": "negative_slope"}}
_MXNET = {
    "BatchNorm": {
        "eps": "0.001",
        "momentum": "0.9",
        "fix_gamma": "True",
        "use_global_stats": "False",
        "axis": "1",
    },
    "LayerNorm": {"eps": "1e-05", "axis": "-1"},
    "GroupNorm": {"eps": "1e-05", "num_groups": "1"},
    "InstanceNorm": {"eps": "0.001"},
    "L2Normalization": {"eps": "1e-10"},
    "LeakyReLU": {"act_type": "leaky", "slope": "0.25"},
    "softmax": {"axis": "-1"},
    "log_softmax": {"axis": "-1"},
    "Convolution": {"num_group": "1", "no_bias": "False"},
    "Deconvolution": {"num_group": "1", "no_bias": "True"},
    "Pooling": {"pool_type": "max", "global_pool": "False", "pooling_convention": "valid"},
    "FullyConnected": {"no_bias": "False", "flatten": "True"},
    "Dropout": {"p": "0.5", "mode": "training"},
    "Concat": {"dim": "1"},
}
#: The layouts of MXNet by default, by the number of axes of the kernel.
_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
#: What operations do by default that they may be told to do otherwise, where their framework leaves it out.
_DEFAULTS: dict[str, dict[str, dict[str, str]]] = {
    "ONNX": {
        "average_pool": {"count_include_pad": "0", "ceil_mode": "0"},
        **{f"{kind}_pool": {"ceil_mode": "0"} for kind in ("max", "lp")},
        **{
            f"{kind}_normalization": {"epsilon": "1e-05"}
            for kind in ("batch", "instance", "layer", "group", "rms")
        },
        **{kind: {"alpha": "1.0"} for kind in ("elu", "celu")},
        "leaky_relu": {"alpha": "0.01"},
        "gelu": {"approximate": "'none'"},
        "pad": {"mode": "'constant'"},
        "resize": {"mode": "'nearest'", "coordinate_transformation_mode": "'half_pixel'"},
        "grid_sample": {"mode": "'linear'", "padding_mode": "'zeros'", "align_corners": "0"},
    },
    "mxnet": _MXNET,
    "MXNet symbol": _MXNET,
}
#: The operations of ``torch.export`` for an interpolation, which have the mode in their names.
_UPSAMPLING = re.compile(r"upsample_([a-z]+)\dd")
#: The bounds of operations that have no others.
_BOUNDS = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0)}
#: The types of ONNX for operations of PyTorch whose arguments mean the same under these names.
_ONNX_TYPES = {
    **dict.fromkeys(CONVOLUTIONS, "conv"),
    **dict.fromkeys(MAX_POOLS, "max_pool"),
    **dict.fromkeys(AVERAGE_POOLS, "average_pool"),
    "cat": "concat",
    "mean": "reduce_mean",
    "sum": "reduce_sum",
    "clamp": "clip",
    "hardtanh": "clip",
    "layer_norm": "layer_normalization",
    "interpolate": "resize",
}


def different_settings(a: Graph, row: int, b: Graph, other: int) -> list[str]:
    """Return how the arguments of two operations of one type differ, as sentences.

    Of different frameworks only the arguments that both name are compared.

    Args:
        a: The first graph.
        row: A row of it.
        b: The second graph.
        other: A row of it.

    Example:
        >>> from intus.core.building import GraphBuilder
        >>> def norm(setting):
        ...     builder = GraphBuilder("Net")
        ...     builder.op("norm", (1,), "float32", setting=setting)
        ...     return builder.graph()[0]
        >>> different_settings(norm("3, eps=1e-05"), 0, norm("3, eps=0.001"), 0)
        ['eps is 1e-05 in a, 0.001 in b']
    """
    return [f"{name} is {x} in a, {y} in b" for name, x, y in different_arguments(a, row, b, other)]


def stated_apart(a: Graph, row: int, b: Graph, other: int) -> Iterator[tuple[str, str, str]]:
    """Yield the constants that two operations both state and that differ: a name, and both texts.

    Constants are numbers and words, not the lists of sizes, nor what has no effect on the values. A number
    of half precision may be the other one rounded.

    Args:
        a: The first graph.
        row: A row of it.
        b: The second graph.
        other: A row of it.
    """
    dtypes = {graph.dtype_of(i) for graph, i in ((a, row), (b, other))}
    for name, *texts in different_arguments(a, row, b, other):
        is_constant = all(text[:1] not in "([{" and text != NOT_GIVEN for text in texts)
        x, y = map(number_of, texts)
        is_same = x is not None and y is not None and same_number(x, y, dtypes)
        if is_constant and name not in _WITHOUT_VALUES and not is_same:
            yield name, texts[0], texts[1]


def same_number(x: float, y: float, dtypes: Iterable[str]) -> bool:
    """Return whether two constants are one in a precision: either may be the other one rounded.

    Args:
        x: The first.
        y: The second.
        dtypes: The dtypes of what is computed with them.

    Example:
        >>> same_number(0.1, 0.0999755859375, ["float32"]), same_number(0.1, 0.0999755859375, ["float16"])
        (False, True)
    """
    near, least = max((_PRECISIONS.get(dtype, _EXACT) for dtype in dtypes), default=_EXACT)
    return math.isclose(x, y, rel_tol=near, abs_tol=least)


def different_arguments(a: Graph, row: int, b: Graph, other: int) -> Iterator[tuple[str, str, str]]:
    """Yield the arguments that differ, as ``different_settings`` does: the name and both texts."""
    is_foreign = a.facts.get("framework") != b.facts.get("framework")
    kinds = a.type_of(row), b.type_of(other)
    is_upsampling = kinds[0] == "interpolate" and bool(_UPSAMPLING.fullmatch(kinds[1]))
    is_translation = kinds[1] == _ONNX_TYPES.get(kinds[0]) or is_upsampling
    if kinds[0] != kinds[1] and not (is_foreign and is_translation):
        return
    if not is_foreign and (known := different_of_torch(a, row, b, other)) is not None:
        yield from known
        return
    if is_foreign:
        one, two = stated_arguments(a, row), stated_arguments(b, other)
    else:
        one, two = (
            {**_defaults(g, i), **without_absent(g, i, arguments(g.setting(i)))}
            for g, i in ((a, row), (b, other))
        )
    names = list(dict.fromkeys((*one, *two)))
    if is_foreign:
        names = [name for name in names if name in one and name in two and name not in _SHOWN_OTHERWISE]
        if is_translated(a) or is_translated(b):  # which take their arguments in another order
            names = [name for name in names if not _is_position(name)]
        if not re.search("[1-9]", one.get("padding", "0")):  # there is nothing to count
            names = [name for name in names if name != "count_include_pad"]
    texts = [(name, one.get(name, NOT_GIVEN), two.get(name, NOT_GIVEN)) for name in names]
    shapes = [a.metas[int(a.ops.meta[one])].shape for one in (row, *a.parents(row)[:1])]
    is_one_notation = not is_foreign or are_one_operator(a, row, b, other)
    rank = None if is_one_notation else max(map(len, shapes))
    for name, x, y in texts:
        if not _alike(name, x, y, rank):
            if name == "dim" and rank is not None:
                x, y = from_zero(name, x, rank), from_zero(name, y, rank)
            yield name, x, y


def different_shared(a: Graph, row: int, b: Graph, other: int) -> list[str]:
    """Return how the arguments differ that two operations of PyTorch of different types both have.

    Args:
        a: The first graph.
        row: A row of it.
        b: The second graph.
        other: A row of it.
    """
    found = _both_named(a, row, b, other, (None, None))
    if found is None:
        return []
    one, two = (each.given for each in found)
    shared = [name for name in one if name in two and not _alike(name, one[name], two[name])]
    return [f"{name} is {one[name]} in a, {two[name]} in b" for name in shared]


def _both_named(
    a: Graph, row: int, b: Graph, other: int, tensors: tuple[Iterable[str] | None, Iterable[str] | None]
) -> tuple[Named, Named] | None:
    """Return the arguments of two operations of PyTorch by name; None if their names are not known."""
    one = named_arguments(a, row, arguments(a.setting(row)), tensors[0])
    two = named_arguments(b, other, arguments(b.setting(other)), tensors[1])
    return None if one is None or two is None else (one, two)


def different_of_torch(
    a: Graph,
    row: int,
    b: Graph,
    other: int,
    tensors: tuple[Iterable[str] | None, Iterable[str] | None] = (None, None),
) -> list[tuple[str, str, str]] | None:
    """Return the arguments of two operations of PyTorch that differ; None if the names are not known.

    A method, a function and a module of one operation have the names and defaults of torch's function. An
    argument that only one of them has says nothing where it is as by default.

    Args:
        a: The first graph.
        row: A row of it.
        b: The second graph.
        other: A row of it of the same type.
        tensors: The arguments of each that are tensors, also parameters, by name or position. Without them
            nothing is said of tensors.
    """
    found = _both_named(a, row, b, other, tensors)
    if found is None:
        return None
    one, two = found
    left_out = {"batch_first"} if is_turned(a, row, b, other) else set()
    if None in tensors:
        left_out |= one.tensors.keys() | two.tensors.keys()
    texts = [each.given | {name: _tensors(n) for name, n in each.tensors.items()} for each in found]
    return [
        (name, x, y)
        for name in dict.fromkeys((*texts[0], *texts[1]))
        if name not in left_out
        for x, y in [[text.get(name, NOT_GIVEN) for text in texts]]
        if not _alike(name, x, y)
        and not (name not in texts[1] and x in ("None", one.defaults.get(name)))
        and not (name not in texts[0] and y in ("None", two.defaults.get(name)))
    ]


def _tensors(count: int) -> str:
    return "a tensor" if count == 1 else f"{count} tensors"


def different_constants(a: Graph, rows_a: Iterable[int], b: Graph, rows_b: Iterable[int]) -> list[str]:
    """Return the fractions among the arguments that the other side does not have, as a sentence.

    If only one side has such constants, they explain nothing. Constants inside of a module that both have
    are compared with those inside of the same module.

    Args:
        a: The first graph.
        rows_a: The rows of the operations of ``a``.
        b: The second graph.
        rows_b: The rows of the operations of ``b`` that compute the same.
    """
    sides = _by_module(a, rows_a, b, rows_b)
    only: tuple[list[str], list[str]] = [], []
    for module in (one for one in sides[0] if one in sides[1]):
        one, two = (list(_fractions(graph, side[module])) for graph, side in zip((a, b), sides, strict=True))
        found = [
            [f"{text} ({label})" for text, label in some if not any(_equal(text, x) for x, _ in others)]
            for some, others in ((one, two), (two, one))
        ]
        if all(found):
            only[0].extend(found[0])
            only[1].extend(found[1])
    return [f"its constants are {listed(only[0])} in a, {listed(only[1])} in b"] if all(only) else []


def _by_module(
    a: Graph, rows_a: Iterable[int], b: Graph, rows_b: Iterable[int]
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return rows of two graphs by the innermost module around them that both have, ``""`` if none is.

    The epsilon of a layer norm has no counterpart in what the other pass computes outside of the layer. A
    file may have moved an operation out of its module, so that of a file all are taken together.
    """
    found: tuple[dict[str, list[int]], dict[str, list[int]]] = {}, {}
    is_file = "format" in a.facts or "format" in b.facts
    names = {} if is_file else same_modules(a, b)
    both = (
        set()
        if is_file
        else {module.address for module in a.modules}
        & {names.get(module.address, module.address) for module in b.modules}
    )
    for graph, rows, other_names, by_module in ((a, rows_a, {}, found[0]), (b, rows_b, names, found[1])):
        for row in rows:
            calls = graph.enclosing_calls(row) if both else ()
            addresses = [graph.modules[int(graph.calls.module[call])].address for call in calls]
            around = [other_names.get(address, address) for address in addresses]
            module = next((address for address in reversed(around) if address in both), "")
            by_module.setdefault(module, []).append(row)
    return found


def bounds(graph: Graph, row: int) -> tuple[float, float] | None:
    """Return the bounds that an operation limits numbers to; None if it does not, or they are not known.

    Args:
        graph: The graph.
        row: A row of it.

    Example:
        >>> from intus.core.building import GraphBuilder
        >>> builder = GraphBuilder("Net")
        >>> x = builder.input("x", (1,), "float32")
        >>> row = builder.op("clamp", (1,), "float32", parents=[(x, "0")], setting="min=0.5")
        >>> bounds(builder.graph()[0], row)
        (0.5, inf)
    """
    kind = common_type(graph, row)
    if kind in _BOUNDS:
        return _BOUNDS[kind]
    one = {"maximum": "max", "minimum": "min"}.get(kind, "") if is_translated(graph) else kind
    if one in ("max", "min") and (is_translated(graph) or graph.facts.get("format") == "ONNX"):
        number = number_of(graph.setting(row))  # 0.1=100.0: the second of its tensors
        if number is None or len(graph.parents(row)) != 1:
            return None
        return (number, math.inf) if one == "max" else (-math.inf, number)
    if kind not in ("clamp", "clamp_min", "clamp_max", "clip", "hardtanh") or len(graph.parents(row)) != 1:
        return None
    stated = stated_arguments(graph, row)
    found = []
    for name, default in (("min", -math.inf), ("max", math.inf)):
        text = stated.get(name, "None")
        number = default if text in ("None", str(default)) else number_of(text)
        if number is None:
            return None
        found.append(number)
    return found[0], found[1]


def whole_numbers(a: Graph, rows_a: Iterable[int], b: Graph, rows_b: Iterable[int]) -> list[str]:
    """Return the whole numbers among the arguments of both sides, as a sentence.

    They are axes, sizes and counts, of which those of one side need not correspond to those of the other. So
    they are stated, and it is not said which of them differ. What the other side has too is left out. If only
    one has some, they explain nothing. A file has those of a recurrent layer in the operations around it.

    Args:
        a: The first graph.
        rows_a: The rows of the operations of ``a``.
        b: The second graph.
        rows_b: The rows of the operations of ``b`` that compute the same.
    """
    rows_a, rows_b = list(rows_a), list(rows_b)
    if any(g.type_of(row).startswith(RECURRENT) for g, rows in ((a, rows_a), (b, rows_b)) for row in rows):
        return []
    if is_translated(a) or is_translated(b):
        rows_a, rows_b = _of_one_kind(a, rows_a, b, rows_b)
    one, two = list(_whole(a, rows_a)), list(_whole(b, rows_b))
    sides = [
        f"{listed([f'{_assigned(*argument)} ({label})' for argument, label in found])} in {name}"
        for name, some, others in (("a", one, two), ("b", two, one))
        if (found := [(x, label) for x, label in some if _is_other_number(x, [y for y, _ in others])])
    ]
    return [f"its whole numbers are {', '.join(sides)}"] if len(sides) == 2 else []


def _of_one_kind(
    a: Graph, rows_a: Iterable[int], b: Graph, rows_b: Iterable[int]
) -> tuple[list[int], list[int]]:
    """Return the rows of arithmetic that both sides have: of other operations, settings mean other things."""
    kinds = [{row: common_type(graph, row) for row in rows} for graph, rows in ((a, rows_a), (b, rows_b))]
    both = {*kinds[0].values()} & {*kinds[1].values()} & _ARITHMETIC
    one, two = ([row for row, kind in some.items() if kind in both] for some in kinds)
    return one, two


def _defaults(graph: Graph, row: int) -> dict[str, str]:
    """Return the arguments that an operation has by default where its file or trace leaves them out.

    Those of PyTorch are found by ``named_arguments``.
    """
    framework, kind = graph.facts.get("framework", ""), graph.type_of(row)
    known = _DEFAULTS.get(framework, {}).get(kind, {})
    if framework == "ONNX" and kind in SOFTMAXES:
        return {"axis": "-1" if graph.facts.get("opsets", {}).get("ai.onnx", 0) >= _LAST_AXIS else "1"}
    kernel = arguments(graph.setting(row)).get("kernel") if known else None
    return known if kernel is None else {**known, **_window_by_default(len(re.findall(r"\d+", kernel)))}


def _window_by_default(axes: int) -> dict[str, str]:
    """Return what a convolution or pooling of MXNet has by default, along so many axes."""
    ones, zeros = (str((number,) * axes) for number in (1, 0))
    return {"stride": ones, "dilate": ones, "pad": zeros, "layout": _LAYOUTS.get(axes, "None")}


def stated_arguments(graph: Graph, row: int) -> dict[str, str]:
    """Return the arguments of an operation by the names of PyTorch, also those that it has by default."""
    given = arguments(graph.setting(row))
    named = named_arguments(graph, row, given)
    return common(graph, row, {**_defaults(graph, row), **given} if named is None else named.given)


@lru_cache(maxsize=4096)  # the layers of a model repeat a few texts, each of which is compared several times
def arguments(setting: str) -> Mapping[str, str]:
    """Return the arguments in a text by name, or by position from 1; empty if it is cut or no Python."""
    try:
        call = ast.parse(f"f({setting})", mode="eval").body
    except SyntaxError:
        return {}
    if not isinstance(call, ast.Call):
        return {}
    positional = {f"argument {number}": _text(arg) for number, arg in enumerate(call.args, 1)}
    return positional | {word.arg: _text(word.value) for word in call.keywords if word.arg}


def _text(argument: ast.expr) -> str:
    """Return the text of an argument, of a ``torch.Size`` that of its list, of a device that of its name."""
    match argument:
        case ast.Call(func=ast.Attribute(attr="Size"), args=[sizes]):
            return ast.unparse(sizes)
        case ast.Call(func=ast.Name(id="device"), keywords=[kind]):
            return ast.unparse(kind.value)
    return ast.unparse(argument)


def without_absent(graph: Graph, row: int, arguments: Mapping[str, str]) -> Mapping[str, str]:
    """Return arguments without the None that stands for a tensor, which has no position among the others.

    Example:
        >>> from intus.core.building import GraphBuilder
        >>> builder = GraphBuilder("Net")
        >>> row = builder.op("conv2d", (1, 4, 8, 8), "float32", setting="None, (2, 2)")
        >>> graph = builder.graph()[0]
        >>> without_absent(graph, row, arguments(graph.setting(row)))
        {'argument 1': '(2, 2)'}
    """
    if not graph.type_of(row).startswith(_WITH_OPTIONAL):
        return arguments
    texts = [text for name, text in arguments.items() if _is_position(name) and text != "None"]
    named = {name: text for name, text in arguments.items() if not _is_position(name)}
    return {f"argument {number}": text for number, text in enumerate(texts, 1)} | named


def common(graph: Graph, row: int, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return arguments by the names of PyTorch; those without one keep theirs."""
    if graph.facts.get("format") == "ONNX":
        own = _OWN_NAMES.get(graph.type_of(row), {})
        if graph.type_of(row) == "resize":
            mode = arguments.get("coordinate_transformation_mode")
            arguments = {**arguments, "align_corners": str(mode == "'align_corners'")}
        return {own.get(name, _ONNX_NAMES.get(name, name)): text for name, text in arguments.items()}
    arguments = without_absent(graph, row, arguments)
    kind = graph.type_of(row)
    # An operation of another framework may have the name, and its arguments in another order, as jax.lax.pad.
    has_positions = kind in _ARITHMETIC or not is_translated(graph)
    names = _POSITIONS.get(kind, ()) if has_positions else ()
    by_position = {f"argument {number}": name for number, name in enumerate(names, 1)}
    named = {by_position.get(name, name): text for name, text in arguments.items()}
    if upsampling := _UPSAMPLING.fullmatch(graph.type_of(row)):
        named["mode"] = repr(upsampling[1])
    if named.get("align_corners") == "None":
        named["align_corners"] = "False"
    return {_COMMON_NAMES.get(name, name): text for name, text in named.items()}


def _fractions(graph: Graph, rows: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Yield the fractions among the arguments of operations as text, with the labels of the operations."""
    for row in rows:
        own = _DEFAULTS.get(graph.facts.get("framework", ""), {}).get(graph.type_of(row), {})
        for name, text in {**own, **arguments(graph.setting(row))}.items():
            number = number_of(text)
            if number is not None and number != round(number) and name not in _UNUSED:
                yield _assigned(name, text), graph.label(row)


def _whole(graph: Graph, rows: Iterable[int]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the arguments that are whole numbers or lists of them, with the labels of the operations.

    The size of a kernel is that of the weight, so a convolution need not state it.
    """
    for row in rows:
        kind = graph.type_of(row)
        given = common(graph, row, arguments(graph.setting(row)))
        implied = {"kernel_size"} if "conv" in kind else set()
        for name, text in _as_lists(graph, row, given).items():
            if _WHOLE.fullmatch(text) and name not in _FLAGS | implied:
                yield (name, text), graph.label(row)


def _as_lists(graph: Graph, row: int, given: dict[str, str]) -> dict[str, str]:
    """Return the shape or the order of axes that an operation moves elements to, as ONNX has it.

    Of any other operation, return the arguments as they are.
    """
    kind, shape = graph.type_of(row), graph.metas[int(graph.ops.meta[row])].shape
    if kind in _TO_SHAPES and given:
        return {"shape": str(list(shape))}
    texts = [text for name, text in given.items() if _is_position(name) or name in ("dim0", "dim1", "dims")]
    values = [number_of(text) for text in texts]
    if kind == "permute" and len(texts) == 1:
        return {"perm": texts[0]}
    if kind != "transpose" or len(values) != 2 or None in values:
        return given
    order = list(range(len(shape)))
    one, other = (int(value or 0) for value in values)
    order[one], order[other] = order[other], order[one]
    return {"perm": str(order)}


def _is_other_number(x: tuple[str, str], others: list[tuple[str, str]]) -> bool:
    """Return whether an argument may be another one on the other side, which does not have it as it is.

    One that is given by position may be any.
    """
    same_name = [y for y in others if x[0] == y[0] or _is_position(x[0]) or _is_position(y[0])]
    return not any(_alike(x[0], x[1], y[1], sys.maxsize) for y in same_name)  # axes as they are written


def _is_position(name: str) -> bool:
    return name.startswith("argument ")


def _assigned(name: str, text: str) -> str:
    return text if _is_position(name) else f"{name}={text}"


def number_of(text: str) -> float | None:
    """Return the finite number that a text is, or that it assigns; None if there is none."""
    value = constant_of(text.rpartition("=")[2])
    return value if value is not None and math.isfinite(value) else None


def constant_of(text: str) -> float | None:
    """Return the number that a text is, also an infinity; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def _alike(name: str, one: str, two: str, rank: int | None = None) -> bool:
    """Return whether two texts mean the same: ``(1, 1)`` and ``[1, 1, 1, 1]`` are one padding.

    Args:
        name: The argument.
        one: The first text.
        two: The second text.
        rank: The number of axes of the result, which an axis may be counted from, of two notations; None
            for one.
    """
    if _equal(one, two) or rank is None:
        return _equal(one, two) or _is_repeated(one, two)
    both = []
    for text in (one, two):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return False
        numbers: list[Any] = [
            _WORDS.get(n, n) for n in (found if isinstance(found, list | tuple) else [found])
        ]
        numbers = [int(n) if isinstance(n, bool) else n for n in numbers]
        if name == "dim" and rank:
            numbers = sorted(n % rank if isinstance(n, int) else -1 for n in numbers)
        both.append(numbers[:1] if len(set(map(str, numbers))) == 1 else numbers)
    if both[0] == both[1]:
        return True
    words = [not numbers or isinstance(numbers[0], str | None) for numbers in both]
    if words[0] != words[1]:
        return True  # "same", or None for a default: not known to be another number
    if name == "padding" and len(both[0]) * 2 == len(both[1]):  # ONNX has the beginnings, then the ends
        both[0] = both[0] * 2
    return len(both[0]) == len(both[1]) and all(_equal(str(x), str(y)) for x, y in zip(*both, strict=True))


def _is_repeated(one: str, two: str) -> bool:
    """Return whether two texts are one list, or a number and a list of it alone, as of a window.

    >>> _is_repeated("2", "(2, 2)"), _is_repeated("[2, 2]", "(2, 2)"), _is_repeated("(2,)", "(2, 2)")
    (True, True, False)
    """
    x, y = _elements(one), _elements(two)
    if x is None and y and number_of(one) is not None:
        x = [one] * len(y)
    if y is None and x and number_of(two) is not None:
        y = [two] * len(x)
    return x is not None and y is not None and len(x) == len(y) and all(map(_equal, x, y))


def _elements(text: str) -> list[str] | None:
    """Return the elements of a list as text; None for anything else."""
    try:
        found = ast.literal_eval(text) if text[:1] in ("(", "[") else None
    except (ValueError, SyntaxError):
        return None
    return [repr(one) for one in found] if isinstance(found, list | tuple) else None


def _equal(one: str, two: str) -> bool:
    """Return whether two texts are the same, or numbers that float32 does not tell apart."""
    x, y = number_of(one), number_of(two)
    return one == two if x is None or y is None else same_number(x, y, ())
