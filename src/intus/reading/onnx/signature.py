"""Find what the initializers of a file are in the model of PyTorch that torch.onnx exported it from."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from .inlining import nested

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_TARGET = re.compile(r"^\w+: (PARAMETER|BUFFER|CONSTANT_TENSOR) target='([^']+)'", re.MULTILINE)
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
#: The positions at which operations take weights.
_WEIGHTS = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "InstanceNormalization"), (1, 2)),
    **dict.fromkeys(("BatchNormalization", "GroupNormalization", "LayerNormalization"), (1, 2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3)),
    **dict.fromkeys(("MatMul", "Einsum"), (0, 1)),
    **dict.fromkeys(("PRelu", "RMSNormalization"), (1,)),
    "Gather": (0,),
}
#: The positions at which operations take numbers that are settings, whoever wrote the file.
_SETTINGS = {
    **dict.fromkeys(("Resize", "Pad"), (1, 2, 3)),
    **dict.fromkeys(("Clip", "OneHot", "Dropout"), (1, 2)),
    **dict.fromkeys(("Upsample", "TopK"), (1,)),
    "NonMaxSuppression": (2, 3, 4),
    "Range": (0, 1, 2),
}


def targets(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the kind of each parameter, buffer and constant of the model, by name; empty if not known."""
    props = {entry.key: entry.value for entry in graph.metadata_props}
    return {name: kind for kind, name in _TARGET.findall(props.get(_SIGNATURE, ""))}


def setting_constants(graph: onnx.GraphProto) -> set[str]:
    """Return the initializers that operations take as settings alone, such as the scales of a ``Resize``.

    Args:
        graph: The graph of the file.
    """
    as_setting: set[str] = set()
    otherwise = {value.name for one in _graphs(graph) for value in one.output}
    for node in (node for one in _graphs(graph) for node in one.node):
        positions = () if node.domain else _SETTINGS.get(node.op_type, ())
        for position, name in enumerate(node.input):
            (as_setting if position in positions else otherwise).add(name)
    return _initializers(graph) & (as_setting - otherwise)


def made_constants(graph: onnx.GraphProto, kinds: dict[str, str]) -> set[str]:
    """Return the initializers that stand for no parameter or buffer, such as a state of zeros.

    The exporter writes which tensors it computed a constant from. If it computed several from a parameter
    that the file lacks, those stand for the parameter that an operation takes as weights, or else those
    that are computed from the fewest parameters: a product of weights with zeros is no weight. Of a constant
    of which it writes nothing, none stands for a parameter if the file has them all.

    Args:
        graph: The graph of the file.
        kinds: What ``targets`` returns of it.
    """
    names = _initializers(graph)
    lost = {name for name, kind in kinds.items() if kind == "PARAMETER"} - names
    unknown = names - kinds.keys()
    sources: dict[str, set[str]] = {}
    for value in (value for one in _graphs(graph) for value in one.value_info):
        for entry in value.metadata_props:
            if entry.key == _FOLDED and value.name in unknown:
                sources[value.name] = lost.intersection(re.findall(r"'([^']+)'", entry.value))
    weights = {
        node.input[position]
        for one in _graphs(graph)
        for node in one.node
        for position in _WEIGHTS.get(node.op_type, ())
        if position < len(node.input)
    }
    standing: set[str] = set()
    for parameter in lost:
        computed = [name for name, of in sources.items() if parameter in of]
        computed = [name for name in computed if name in weights] or computed
        fewest = min((len(sources[name]) for name in computed), default=0)
        standing.update(name for name in computed if len(sources[name]) == fewest)
    constants = {name for name in names if kinds.get(name) == "CONSTANT_TENSOR"}
    constants |= unknown if kinds and not lost else setting_constants(graph) & unknown
    return constants | (sources.keys() - standing)


def _initializers(graph: onnx.GraphProto) -> set[str]:
    return {tensor.name for one in _graphs(graph) for tensor in one.initializer}


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and those inside of it."""
    yield graph
    for node in graph.node:
        for inner in nested(node).values():
            yield from _graphs(inner)
