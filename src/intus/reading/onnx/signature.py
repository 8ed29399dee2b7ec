"""Find what the initializers of a file are in the model of PyTorch that torch.onnx exported it from."""

from __future__ import annotations

import re

import onnx

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


def targets(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the kind of each parameter, buffer and constant of the model, by name; empty if not known."""
    props = {entry.key: entry.value for entry in graph.metadata_props}
    return {name: kind for kind, name in _TARGET.findall(props.get(_SIGNATURE, ""))}


def made_constants(graph: onnx.GraphProto, kinds: dict[str, str]) -> set[str]:
    """Return the initializers that stand for no parameter or buffer, such as a state of zeros.

    The exporter writes which tensors it computed a constant from. If it computed several from a parameter
    that the file lacks, those stand for the parameter that an operation takes as weights, or else those
    that are computed from the fewest parameters: a product of weights with zeros is no weight.

    Args:
        graph: The graph of the file.
        kinds: What ``targets`` returns of it.
    """
    names = {tensor.name for tensor in graph.initializer}
    lost = {name for name, kind in kinds.items() if kind == "PARAMETER"} - names
    unknown = names - kinds.keys()
    sources: dict[str, set[str]] = {}
    for value in graph.value_info:
        for entry in value.metadata_props:
            if entry.key == _FOLDED and value.name in unknown:
                sources[value.name] = lost.intersection(re.findall(r"'([^']+)'", entry.value))
    weights = {
        node.input[position]
        for node in graph.node
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
    return constants | (sources.keys() - standing)
