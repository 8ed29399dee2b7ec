"""Second opinions: what others say of the values, edges and FLOPs of a model, against what a trace says.

Each function returns how many things it compared and, in words, those on which it disagrees.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import intus
from intus.core.analysis.flops import flops, products

from .observe import tensors_in

#: The outputs of Hugging Face's models that hold what is computed inside.
_STATES = ("hidden_states", "attentions", "cross_attentions")
#: Functions whose second argument gives only a shape or dtype, which torch.export has as a constant.
_SHAPES = frozenset({"expand_as", "view_as", "reshape_as", "type_as"})
#: ATen operations with products that torch's counter does not count.
_UNCOUNTED = frozenset(
    {"mv", "dot", "vdot", "addmv", "addr", "mkldnn_rnn_layer", "_trilinear", "addbmm", "_grouped_mm"}
)


class Opinion(NamedTuple):
    """The result of a judge.

    Attributes:
        compared: The number of values or pairs that were compared.
        wrong: Those that differ, in words.
    """

    compared: int
    wrong: list[str]


def forward_hooks(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: intus.Trace
) -> Opinion:
    """Compare the outputs of every module call with what forward hooks receive."""
    hooked = copy.deepcopy(model)
    seen, calls, running = dict[str, list[Tensor]](), dict[str, int](), list[str]()

    def before(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any) -> None:
            calls[name] = calls.get(name, 0) + 1
            running.append(f"{name}:{calls[name]}")

        return hook

    def after(module: nn.Module, given: Any, out: Any) -> None:
        with torch._C.DisableTorchFunction():  # not part of the pass
            seen[running.pop()] = [t.detach().clone() for t in tensors_in(out)]

    for name, module in hooked.named_modules():
        if not isinstance(module, torch.jit.ScriptModule):
            module.register_forward_pre_hook(before(name))
            module.register_forward_hook(after)
    if any(isinstance(module, nn.TransformerEncoderLayer) for module in model.modules()):
        trace = intus.trace(
            hooked, args, kwargs=kwargs, seed=1
        )  # torch's fused kernel is not used with hooks
    else:
        torch.manual_seed(1)
        hooked(*args, **kwargs)
    compared, wrong = 0, []
    for call, values in seen.items():
        rows = trace.graph.rows(call)
        if rows is None:
            if values:
                wrong.append(f"{call}: the trace has no outputs of it")
            continue
        recorded = _Values(trace.values[row] for row in rows)
        compared += len(values)
        wrong += [f"{call}: another value" for value in values if value not in recorded]
    return Opinion(compared, wrong)


def hidden_states(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: intus.Trace
) -> Opinion:
    """Find the hidden states and attentions of Hugging Face among the values of the trace.

    The trace is one of a run that does not return them.
    """
    torch.manual_seed(1)
    out = copy.deepcopy(model)(*args, **kwargs, output_hidden_states=True, output_attentions=True)
    recorded, compared, wrong = _Values(trace.values.values()), 0, []
    for name, value in out.items():
        if name.removeprefix("encoder_").removeprefix("decoder_") in _STATES:
            for number, state in enumerate(tensors_in(value)):
                compared += 1
                # Some models transpose or reshape states only to return them.
                turned = state.transpose(0, 1) if state.ndim > 1 else state
                if not (recorded.has_elements(state) or recorded.has_elements(turned)):
                    wrong.append(f"{name}.{number}: no operation of the trace has this value")
    return Opinion(compared, wrong)


def feature_extraction(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: intus.Trace
) -> Opinion:
    """Compare with torchvision's feature extraction, which rewrites the model by ``torch.fx``."""
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    model = copy.deepcopy(model)
    for module in model.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # what is overwritten later cannot be extracted
    names = get_graph_node_names(model)[1]
    extracted = create_feature_extractor(model, return_nodes={name: name for name in names})(*args, **kwargs)
    everywhere, compared, wrong = _Values(trace.values.values()), 0, []
    addresses = set(dict(model.named_modules()))
    for name, out in extracted.items():
        base, _, number = name.rpartition("_")
        if name in addresses:
            rows = trace.graph.rows(f"{name}:1")
        elif base in addresses and number.isdigit():
            rows = trace.graph.rows(f"{base}:{int(number) + 1}")
        else:
            rows = None
        recorded = everywhere if rows is None else _Values(trace.values[row] for row in rows)
        for value in tensors_in(out):
            compared += 1
            if value not in recorded:
                wrong.append(f"{name}: {'another value' if rows else 'no operation has this value'}")
    return Opinion(compared, wrong)


def exported(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: intus.Trace
) -> Opinion:
    """Compare the edges with those of ``torch.export``, contracted to the operations that take parameters.

    ``torch.export`` has the operations inside of ``multi_head_attention_forward``, so they are traced as
    well.
    """
    with torch.enable_grad():  # without gradients, encoder layers are one operation that torch cannot export
        if any(isinstance(module, nn.MultiheadAttention) for module in model.modules()):
            trace = intus.trace(model, args, kwargs=kwargs, seed=1, decompose=True)
        program = torch.export.export(copy.deepcopy(model), args, dict(kwargs), strict=False)
    program = program.run_decompositions({})  # writes in place become values, so that edges show them
    canonical = _canonical_names(model)
    parameters = program.graph_signature.inputs_to_parameters
    theirs = [
        _Node(
            node,
            [one for one in _computed_from(node) if one.name not in parameters],
            {
                _module(canonical[parameters[one.name]])
                for one in _computed_from(node)
                if one.name in parameters
            },
        )
        for node in program.graph.nodes
        if node.op == "call_function"
    ]
    ours = [
        _Node(
            op.row,
            [parent.row for parent in (op.parents[:1] if op.type in _SHAPES else op.parents)],
            {_module(canonical[param.address]) for param in op.params},
        )
        for op in trace.ops
    ]
    returned = set(program.graph_signature.user_outputs)  # the others are the new values of buffers
    their_ends = [node for node in program.graph.nodes if node.name in returned]
    our_ends = [parent.row for op in trace.outputs for parent in op.parents]
    expected, got = _contracted(theirs, their_ends), _contracted(ours, our_ends)
    wrong = [f"only in torch.export: {_words(pair)}" for pair in sorted(expected - got, key=str)]
    wrong += [f"only in the trace: {_words(pair)}" for pair in sorted(got - expected, key=str)]
    return Opinion(len(expected | got), wrong)


def flop_counter(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], trace: intus.Trace
) -> Opinion:
    """Compare the FLOPs of products with ``torch.utils.flop_counter``.

    Nothing is compared where torch does not count the products, or intus does not see them.
    """
    torch.manual_seed(1)
    with _Names() as ran, FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        copy.deepcopy(model)(*args, **kwargs)
    if ran.names & _UNCOUNTED or any(map(_is_unseen, model.modules())):
        return Opinion(0, [])
    counts = flops(trace.graph)
    ours, theirs = int(counts[products(trace.graph)].clip(0).sum()), counter.get_total_flops()
    return Opinion(1, [] if ours == theirs else [f"{ours:,}, torch counts {theirs:,}"])


# -- helpers ------------------------------------------------------------------------------------------------


def _computed_from(node: Any) -> list[Any]:
    """Return the inputs of a node of an exported graph, without those that give only a shape or type."""
    name = str(node.target).removeprefix("aten.").partition(".")[0]
    return list(node.all_input_nodes[:1] if name in _SHAPES else node.all_input_nodes)


def _is_unseen(module: nn.Module) -> bool:
    """Return whether intus (a script) or torch (a quantized layer) does not see the products of a module."""
    return isinstance(module, torch.jit.ScriptModule) or ".quantized." in type(module).__module__


class _Names(TorchDispatchMode):
    """Notes the names of the ATen operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names = set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class _Values:
    """A set of tensors by value."""

    def __init__(self, values: Iterable[Tensor]) -> None:
        self._keys = {_key(value) for value in values}
        self._elements = {key[1:] for key in self._keys}

    def __contains__(self, value: Tensor) -> bool:
        return _key(value) in self._keys

    def has_elements(self, value: Tensor) -> bool:
        """Return whether a tensor of any shape has these elements in this order."""
        return _key(value)[1:] in self._elements


def _key(value: Tensor) -> Any:
    if value.is_nested or value.layout is not torch.strided or value.is_quantized or value.is_meta:
        return str(value)
    plain = value.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    raw = plain.reshape(-1).view(torch.uint8) if plain.numel() else plain.new_empty(0)
    return tuple(value.shape), value.dtype, raw.numpy().tobytes()


class _Node(NamedTuple):
    """An operation: its key, the keys of its parents, and the parameters that it takes."""

    key: Any
    parents: list[Any]
    params: set[str]


def _contracted(nodes: list[_Node], ends: list[Any]) -> set[tuple[frozenset[str], frozenset[str]]]:
    """Return which operations with parameters feed which, as pairs of the modules that have these parameters.

    An operation on parameters alone (``weight.t()``, ``cls_token.expand(…)``) belongs to the operation that
    takes its result. An empty set stands for the outputs.
    """
    by_key = {node.key: node for node in nodes}
    needed, todo = set[Any](), list(ends)
    while todo:
        key = todo.pop()
        if key in by_key and key not in needed:
            needed.add(key)
            todo += by_key[key].parents
    pure: dict[Any, set[str]] = {}
    near: dict[Any, set[frozenset[str]]] = {}
    pairs = set[tuple[frozenset[str], frozenset[str]]]()
    for node in nodes:
        if node.key not in needed:
            continue
        params = node.params.union(*(pure.get(parent, set()) for parent in node.parents))
        if params and all(parent in pure for parent in node.parents):
            pure[node.key] = params
            continue
        before = set[frozenset[str]]().union(*(near.get(parent, set()) for parent in node.parents))
        if params:
            pairs |= {(one, frozenset(params)) for one in before - {frozenset(params)}}
            near[node.key] = {frozenset(params)}
        else:
            near[node.key] = before
    for end in ends:
        pairs |= {(one, frozenset()) for one in near.get(end, set())}
    return pairs


def _canonical_names(model: nn.Module) -> dict[str, str]:
    """Return one name for every parameter that has several."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(param), name)
        for name, param in model.named_parameters(remove_duplicate=False)
    }


def _module(param: str) -> str:
    """Return the module that has a parameter: a linear layer may be one operation, or a product and a sum."""
    return param.rpartition(".")[0] or "the model"


def _words(pair: tuple[frozenset[str], frozenset[str]]) -> str:
    return " -> ".join(" ".join(sorted(one)) or "output" for one in pair)
