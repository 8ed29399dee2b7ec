"""Convolutions and networks of ``torch_geometric`` that run without its compiled extensions, on one graph."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ..architecture import Architecture, NotPlainError

_NODES, _EDGES, _WIDE = 12, 40, 8
#: Values by name for constructor arguments without default.
_OPTIONS = {
    "in_channels": _WIDE,
    "out_channels": _WIDE,
    "hidden_channels": _WIDE,
    "channels": _WIDE,
    "num_layers": 2,
    "K": 2,
    "num_relations": 3,
    "heads": 2,
    "dim": 2,
    "kernel_size": 3,
    "edge_dim": 4,
    "num_timesteps": 2,
    "shared_weights": True,
    "eps": 0.1,
    "alpha": 0.1,
    "theta": 0.5,
    "depth": 2,
    "max_degree": 10,
    "aggregators": ["mean", "max"],
    "scalers": ["identity"],
    "deg": torch.ones(6),
    "num_nodes": _NODES,
    "embedding_dim": _WIDE,
    "propagate_dimensions": 4,
    "space_dimensions": 3,
    "k": 3,
    "edge_channels": 4,
    "num_blocks": 1,
    "num_bilinear": 2,
    "num_spherical": 2,
    "num_radial": 2,
    "num_classes": 3,
    "filter_size": 2,
    "num_edge_types": 3,
    "num_node_types": 2,
    "edge_type_emb_dim": 4,
    "edge_attr_emb_dim": 4,
    "num_features": _WIDE,
    "L": 3,
}


def architectures() -> Iterator[Architecture]:
    """Yield the convolutions, then the networks, that need only sizes to be constructed."""
    from torch_geometric.nn import conv, models

    for place in (conv, models):
        for name in sorted(place.__all__):
            cls = getattr(place, name)
            if inspect.isclass(cls) and issubclass(cls, torch.nn.Module) and _can_be_made(cls):
                yield Architecture("torch_geometric", name, partial(build, cls))


def _can_be_made(cls: type) -> bool:
    """Return whether a class can be constructed; some need other networks or compiled extensions."""
    try:
        return cls(**_options(cls)) is not None
    except Exception:
        return False


def build(cls: type) -> tuple[torch.nn.Module, Any]:
    """Return a model and the first inputs that it accepts."""
    model = cls(**_options(cls)).eval()
    problems = []
    for given in _given(model):
        try:
            with torch.no_grad():
                model(*given)
            return model, given
        except Exception as error:
            problems.append(f"{type(error).__name__}: {str(error)[:60]}")
    raise NotPlainError(" / ".join(problems))


def _options(cls: type) -> dict[str, Any]:
    mlp = partial(torch.nn.Linear, out_features=_WIDE)
    own = {
        "nn": {
            "EdgeConv": mlp(2 * _WIDE),
            "DynamicEdgeConv": mlp(2 * _WIDE),
            "NNConv": mlp(4, out_features=_WIDE**2),
        },
    }
    found = {}
    for name, about in inspect.signature(cls.__init__).parameters.items():
        if name in own:
            found[name] = own[name].get(cls.__name__, mlp(_WIDE))
        elif name in _OPTIONS and about.default is inspect.Parameter.empty:
            found[name] = _OPTIONS[name]
    return found


def _given(model: torch.nn.Module) -> Iterator[tuple[Any, ...]]:
    x = torch.randn(_NODES, _WIDE)
    edges = torch.randint(0, _NODES, (2, _EDGES))
    weights, attributes = torch.rand(_EDGES), torch.randn(_EDGES, 4)
    kinds, places = torch.randint(0, 3, (_EDGES,)), torch.randn(_NODES, 3)
    numbers, batch = torch.randint(1, 9, (_NODES,)), torch.zeros(_NODES, dtype=torch.long)
    wanted = list(inspect.signature(model.forward).parameters)
    if wanted[:2] == ["z", "pos"]:
        yield numbers, places, batch
    if "edge_type" in wanted:
        yield x, edges, kinds
        yield x, edges, torch.zeros(_NODES, dtype=torch.long), kinds, attributes
    if "x_0" in wanted:
        yield x, torch.randn(_NODES, _WIDE), edges
    if "batch" in wanted and "edge_attr" in wanted:
        yield x, edges, attributes, batch
    yield x, edges
    yield x, edges, attributes
    yield x, edges, torch.rand(_EDGES, 2)
    yield x, edges, weights
    yield x, places, edges
    yield x, places, torch.nn.functional.normalize(torch.randn(_NODES, 3)), edges
    yield (x,)
    yield (edges,)
    yield x, batch
    yield torch.randn(_NODES, 3, _WIDE), edges
