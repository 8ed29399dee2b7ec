"""Compare the windows of convolutions and poolings, which each framework writes in its own way.

A stride is ``stride=(2, 2)`` in PyTorch, ``window_strides=(2, 2)`` in JAX and ``strides=[1, 2, 2, 1]`` in
TensorFlow, whose padding ``"SAME"`` are numbers that depend on the lengths.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ....core.graph import Graph
from .settings import arguments, without_absent

Lengths = tuple[int, ...]

_POOLS = ("kernel_size", "stride", "padding")
_POSITIONS = {
    "conv": ("stride", "padding", "dilation", "groups"),
    "conv_transpose": ("stride", "padding", "output_padding", "groups", "dilation"),
    "max_pool": (*_POOLS, "dilation", "ceil_mode"),
    "avg_pool": (*_POOLS, "ceil_mode", "count_include_pad"),
}
_OF_TORCH = re.compile(r"(conv_transpose|conv|max_pool|avg_pool)([123])d$")
#: The families of windows; those of one family are compared.
_FAMILIES = {
    **dict.fromkeys(("conv", "conv_general_dilated", "Conv2D", "Conv3D", "Convolution"), "conv"),
    "DepthwiseConv2dNative": "conv",
    "Deconvolution": "conv_transpose",
    **dict.fromkeys(("max_pool", "average_pool", "MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), "pool"),
    **dict.fromkeys(("reduce_window_max", "reduce_window_min", "reduce_window_sum", "Pooling"), "pool"),
}


def different_windows(a: Graph, rows_a: Iterable[int], b: Graph, rows_b: Iterable[int]) -> list[str]:
    """Return how the windows of convolutions and poolings of two frameworks differ, as sentences.

    Args:
        a: The first graph.
        rows_a: The rows of its operations.
        b: The second graph.
        rows_b: The rows of its operations that compute the same.

    Returns:
        The sentences; none if the two sides have not as many windows.

    Example:
        >>> from intus.core.building import GraphBuilder
        >>> def conv(framework, kind, setting):
        ...     builder = GraphBuilder("Net")
        ...     x = builder.input("x", (1, 2, 8, 8), "float32")
        ...     builder.op(kind, (1, 4, 4, 4), "float32", parents=[(x, "0")], setting=setting)
        ...     return builder.graph({"framework": framework})[0]
        >>> one = conv("torch", "conv2d", "(2, 2), (1, 1), (1, 1), 1")
        >>> two = conv("mxnet", "Convolution", "kernel=(3, 3), num_filter=4, pad=(1, 1)")
        >>> different_windows(one, [1], two, [1])
        ['stride is (2, 2) in a, (1, 1) in b']
    """
    sides = [
        [(family(graph, row), window(graph, row)) for row in rows if family(graph, row)]
        for graph, rows in ((a, rows_a), (b, rows_b))
    ]
    if [kind for kind, _ in sides[0]] != [kind for kind, _ in sides[1]]:
        return []
    return list(
        dict.fromkeys(
            f"{name} is {one[name]} in a, {two[name]} in b"
            for (_, one), (_, two) in zip(*sides, strict=True)
            for name in one
            if name in two and one[name] != two[name]
        )
    )


def family(graph: Graph, row: int) -> str:
    """Return ``"conv"``, ``"pool"``, or ``""`` for a row whose operation has no window that is known here."""
    kind = graph.type_of(row)
    found = _OF_TORCH.match(kind)
    if found:
        return found[1] if found[1].startswith("conv") else "pool"
    is_spread = set(_value(arguments(graph.setting(row)), "lhs_dilation") or (1,)) != {1}  # of JAX
    return "conv_transpose" if is_spread else _FAMILIES.get(kind, "")


def window(graph: Graph, row: int) -> dict[str, Any]:
    """Return the stride, the padding, the dilation and the groups of a window, as far as they are known.

    A padding is one pair for each axis, and includes that of an operation that pads before with zeros.
    """
    kind, given = graph.type_of(row), arguments(graph.setting(row))
    if graph.setting(row) and not given:  # a text that is cut
        return {}
    if found := _OF_TORCH.match(kind):
        own = _of_torch(graph, row, found[1], int(found[2]))
    elif graph.facts.get("format") == "ONNX":
        own = _named(given, ("strides", "pads", "dilations", "group", "kernel_shape"), _axes(graph, row))
        pads = own.get("padding", ())
        half = len(pads) // 2
        own["padding"] = tuple(zip(pads[:half], pads[half:], strict=True)) or ((0, 0),) * len(own["stride"])
        if given.get("auto_pad", "'NOTSET'") != "'NOTSET'":
            del own["padding"]
    elif kind in ("Convolution", "Deconvolution", "Pooling"):
        if given.get("global_pool") == "True":
            return {}
        own = _named(given, ("stride", "pad", "dilate", "num_group", "kernel"), _axes(graph, row))
        pads = own.get("padding") or (0,) * len(own["stride"])
        ends = _value(given, "adj") or (0,) * len(pads)
        own["padding"] = tuple((n, n - end) for n, end in zip(pads, ends, strict=True))
    elif kind == "conv_general_dilated":
        names = ("window_strides", "padding", "rhs_dilation", "feature_group_count", "")
        own = _named(given, names, _axes(graph, row))
        if _value(given, "batch_group_count") != 1:
            return {}
        if family(graph, row) == "conv_transpose":
            own = _of_spread(graph, row, own, _value(given, "lhs_dilation"), _value(given, "rhs_spec"))
    elif kind.startswith("reduce_window"):
        own = _of_reduction(given)
    else:
        own = _of_tensorflow(graph, row, given)
    own, before = _of_spaced_batch(graph, row, own)
    return _with_pad_before(graph, before, own)


def _of_spread(
    graph: Graph, row: int, own: dict[str, Any], strides: Lengths, spec: Lengths
) -> dict[str, Any]:
    """Return the window of a transposed convolution, which JAX runs as one on pixels that are spread.

    PyTorch takes its padding away from the result.
    """
    kernel = _kernel(graph, row)
    found = {"stride": strides, "dilation": own["dilation"], "groups": own["groups"]}
    if kernel is None or set(own["stride"]) != {1}:
        return found
    columns = zip((kernel[n] for n in spec[2:]), own["dilation"], own["padding"], strict=True)
    return found | {"padding": tuple(((k - 1) * d - lo, (k - 1) * d - hi) for k, d, (lo, hi) in columns)}


def _of_spaced_batch(graph: Graph, row: int, own: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a window with the operations around it that move pixels into the batch, and its first row.

    So TensorFlow dilates a convolution, from ``SpaceToBatchND`` to ``BatchToSpaceND``.
    """
    before = next(iter(graph.parents(row)), row)
    after = next(iter(graph.children(row)), row)
    if (graph.type_of(before), graph.type_of(after)) != ("SpaceToBatchND", "BatchToSpaceND"):
        return own, row
    given = arguments(graph.setting(before)), arguments(graph.setting(after))
    blocks, pads, crops = (
        _value(given[0], "block_shape"),
        _value(given[0], "paddings"),
        _value(given[1], "crops"),
    )
    if not blocks or not pads or not crops or set(own.get("padding", ())) != {(0, 0)}:
        return {}, before
    padding = tuple((x[0] - y[0], x[1] - y[1]) for x, y in zip(pads, crops, strict=True))
    return own | {"dilation": blocks, "padding": padding}, before


def _value(given: Mapping[str, str], name: str) -> Any:
    """Return a number, a word or a list of numbers as tuples; None if there is none."""
    try:
        found = ast.literal_eval(given[name])
    except (KeyError, ValueError, SyntaxError):
        return given.get(name)  # a word without quotes
    return _as_tuple(found) if isinstance(found, list | tuple) else found


def _as_tuple(found: Any) -> Any:
    return tuple(map(_as_tuple, found)) if isinstance(found, list | tuple) else found


def _axes(graph: Graph, row: int) -> int:
    """Return the number of axes of a window: all but the rows and the channels."""
    return len(graph.metas[int(graph.ops.meta[row])].shape) - 2


def _named(given: Mapping[str, str], names: tuple[str, str, str, str, str], axes: int) -> dict[str, Any]:
    """Return settings by the names of PyTorch; those that are not given are 1, but for the padding."""
    stride, padding, dilation, groups, kernel = (_value(given, name) for name in names)
    found = {"stride": stride or (1,) * axes, "dilation": dilation or (1,) * axes, "groups": groups or 1}
    found |= {"padding": padding} if padding else {}
    return found | ({"kernel_size": kernel} if kernel else {})


def _of_torch(graph: Graph, row: int, kind: str, axes: int) -> dict[str, Any]:
    given = without_absent(graph, row, arguments(graph.setting(row)))
    texts = [text for name, text in given.items() if name.startswith("argument ")]
    given = {**given, **dict(zip(_POSITIONS[kind], texts, strict=False))}

    def each(name: str, default: Any) -> Any:
        value = _value(given, name)
        value = default if value is None or value == () else value
        if isinstance(value, tuple):
            return value * axes if len(value) == 1 else value
        return value if isinstance(value, str) else (value,) * axes

    own: dict[str, Any] = {"dilation": each("dilation", 1)}
    if kind.startswith("conv"):
        own["groups"] = int(_value(given, "groups") or 1)
    else:
        own["kernel_size"] = each("kernel_size", None)
    own["stride"] = each("stride", own.get("kernel_size", 1))
    padding = each("padding", 0)
    kernel = _kernel(graph, row)
    if padding == "valid":
        padding = (0,) * axes
    if padding != "same":
        ends = each("output_padding", 0)
        own["padding"] = tuple((n, n - end) for n, end in zip(padding, ends, strict=True))
    elif kernel is not None:
        totals = [n * (length - 1) for n, length in zip(own["dilation"], kernel[2:], strict=True)]
        own["padding"] = tuple((total // 2, total - total // 2) for total in totals)
    return own


def _of_reduction(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the window of JAX, which also has the axes of rows and channels, along which it is 1."""
    lengths, strides, pads, dilation = (
        _value(given, name) for name in ("window_dimensions", "window_strides", "padding", "window_dilation")
    )
    if not lengths or set(_value(given, "base_dilation") or ()) - {1}:
        return {}
    strides = strides or (1,) * len(lengths)
    at = [n for n, length in enumerate(lengths) if length > 1 or strides[n] > 1]
    columns = {"kernel_size": lengths, "stride": strides, "padding": pads, "dilation": dilation}
    return {name: tuple(column[n] for n in at) for name, column in columns.items() if column}


def _of_tensorflow(graph: Graph, row: int, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the window of TensorFlow, whose lists are of all axes."""
    rank = len(graph.metas[int(graph.ops.meta[row])].shape)
    is_last = not str(given.get("data_format", "N")).startswith("NC")
    at = range(1, rank - 1) if is_last else range(2, rank)
    strides, dilations, sizes = (_value(given, name) for name in ("strides", "dilations", "ksize"))
    own: dict[str, Any] = {
        "stride": tuple((strides or (1,) * rank)[n] for n in at),
        "dilation": tuple((dilations or (1,) * rank)[n] for n in at),
    }
    kernel, given_shape = _kernel(graph, row), _shape_given(graph, row)
    if sizes:
        own["kernel_size"] = lengths = tuple(sizes[n] for n in at)
    else:
        lengths = kernel[:-2] if kernel is not None else ()
        if kernel is not None and len(given_shape) == rank and graph.type_of(row) != "DepthwiseConv2dNative":
            own["groups"] = given_shape[-1 if is_last else 1] // kernel[-2]
    padding, explicit = given.get("padding"), _value(given, "explicit_paddings")
    if padding == "VALID":
        own["padding"] = ((0, 0),) * len(at)
    elif padding == "EXPLICIT" and explicit:
        own["padding"] = tuple(explicit[2 * n : 2 * n + 2] for n in at)
    elif padding == "SAME" and len(lengths) == len(at) and len(given_shape) == rank:
        columns = zip((given_shape[n] for n in at), lengths, own["stride"], own["dilation"], strict=True)
        totals = [max((-(-x // s) - 1) * s + (k - 1) * d + 1 - x, 0) for x, k, s, d in columns]
        own["padding"] = tuple((total // 2, total - total // 2) for total in totals)
    return own


def _kernel(graph: Graph, row: int) -> Lengths | None:
    """Return the shape of the kernel of a convolution, if it is a parameter."""
    shapes = [tuple(graph.params[n].shape) for n in graph.row_params.get(row, ())]
    return next((shape for shape in shapes if len(shape) > 2), None)


def _shape_given(graph: Graph, row: int) -> Lengths:
    return next((tuple(graph.metas[int(graph.ops.meta[n])].shape) for n in graph.parents(row)), ())


def _with_pad_before(graph: Graph, row: int, own: dict[str, Any]) -> dict[str, Any]:
    """Return a window whose padding includes that of an operation before, which pads with zeros."""
    parents = graph.parents(row)
    kind = graph.type_of(parents[0]) if parents else ""
    if kind not in ("Pad", "pad", "PadV2", "MirrorPad") or "padding" not in own:
        return own
    given, axes = arguments(graph.setting(parents[0])), len(own["padding"])
    pairs: Any = None
    if kind == "Pad":
        pairs = (_value(given, "paddings") or ())[1:-1]
    elif kind == "pad" and graph.facts.get("framework") == "torch":
        sizes = _value(given, "argument 1" if "argument 1" in given else "pad") or ()
        others = [text for name, text in given.items() if name not in ("argument 1", "pad")]
        if set(others) <= {"'constant'", "None", "0", "0.0"}:
            pairs = tuple(zip(sizes[::2], sizes[1::2], strict=True))[::-1]
    if not pairs or len(pairs) != axes:
        return {name: value for name, value in own.items() if name != "padding"}
    both = zip(own["padding"], pairs, strict=True)
    return own | {"padding": tuple((x[0] + y[0], x[1] + y[1]) for x, y in both)}
