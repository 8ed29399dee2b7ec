"""The names of the arguments of torch's functions, with torch's own keyword calls as the judge."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from intus import trace
from intus.tracing.capture.argument_names import of_functions
from intus.tracing.capture.functions import describe
from intus.viewing.scene import scene

X = torch.arange(12.0).reshape(3, 4) + 1
INDEX = torch.tensor([[0, 2, 1, 0]])

#: Functions with operands of which none can be exchanged for another.
CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (torch.sub, (X, X * 3)),
    (torch.div, (X, X + 7)),
    (torch.pow, (X, X.sin())),
    (torch.atan2, (X, X * X)),
    (torch.where, (X > 4, X, -X)),
    (torch.matmul, (X, X.T * 2)),
    (torch.bmm, (X[None], X.T[None] * 2)),
    (torch.addmm, (X[:, :3], X, X.T * 2)),
    (torch.baddbmm, (X[None, :, :3], X[None], X.T[None])),
    (torch.addcdiv, (X, X * 2, X + 3)),
    (torch.lerp, (X, X * 2, X.cos())),
    (torch.gather, (X, 0, INDEX)),
    (torch.index_add, (X, 1, INDEX[0], X * 2)),
    (torch.scatter_add, (X, 0, INDEX, X * 2)),
    (torch.masked_fill, (X, X > 4, torch.tensor(0.5))),
    (torch.searchsorted, (X, X * 1.5)),
    (torch.cdist, (X, X[:2] * 2)),
    (torch.linalg.solve, (X[:, :3] + torch.eye(3) * 9, X)),
    (torch.polar, (X, X * 0.1)),
    (torch.lstm_cell, (X, (X, X * 2), *(torch.ones(16, 4) * k for k in (0.1, 0.2)), torch.ones(16), None)),
    (F.scaled_dot_product_attention, (X, X * 0.1, X * 2, torch.zeros(3, 3))),
    (F.linear, (X, X * 2, torch.ones(3))),
    (F.bilinear, (X, X * 2, torch.ones(2, 4, 4), torch.ones(2))),
    (F.embedding, (INDEX, X)),
    (F.conv2d, (X[None, None], torch.ones(2, 1, 2, 2), torch.ones(2))),
    (F.grid_sample, (X[None, None], torch.zeros(1, 2, 2, 2), "nearest", "zeros", False)),
    (F.layer_norm, (X, (4,), torch.ones(4) * 3, torch.ones(4))),
    (F.cross_entropy, (X, INDEX[0, :3], torch.ones(4) * 0.3)),
    (F.cosine_similarity, (X, X.sin())),
    (F.multi_margin_loss, (X, INDEX[0, :3])),
]


@pytest.mark.parametrize(("function", "arguments"), CALLS, ids=lambda value: getattr(value, "__name__", ""))
def test_call_by_these_names_equals_call_by_position(function: Any, arguments: tuple[Any, ...]) -> None:
    names = of_functions(describe(function).type, [function])
    tensors = [n for n, value in enumerate(arguments) if isinstance(value, Tensor)]
    assert all(names[n] for n in tensors)
    first = max(n for n, value in enumerate(arguments) if not (n in tensors or value is None) or n == 0)
    last = first if first > 0 and not isinstance(arguments[first], Tensor) else -1
    whole, named = arguments[: last + 1], dict(zip(names[last + 1 :], arguments[last + 1 :], strict=False))
    given = function(*whole, **{name: value for name, value in named.items() if value is not None})
    torch.testing.assert_close(given, function(*arguments), rtol=0, atol=0)


def test_method_takes_its_tensor_first() -> None:
    assert of_functions("where", [Tensor.where]) == ("input", "condition", "other")
    assert torch.equal(X.where(X > 4, -X), torch.where(condition=X > 4, input=X, other=-X))


def test_position_with_several_names_has_none() -> None:
    assert of_functions("where", [torch.where, Tensor.where])[:2] == ("", "")
    assert of_functions("lstm", [torch.lstm])[:3] == ("", "", "")
    assert of_functions("unknown", [lambda *tensors: tensors]) == ()


def edges_of(function: Any, *inputs: Tensor) -> list[str]:
    """Return the names of the arguments of a function's last operation, as pictures show them."""
    shown = scene(trace(function, inputs).graph)
    edges = shown["edges"]
    last = max(row for row, kind in enumerate(shown["ops"]["kind"]) if kind == 0)
    pairs = zip(edges["dst"], edges["arg"], strict=True)
    return [shown["args"][arg] for row, arg in pairs if row == last]


def test_scene_names_arguments_of_operators_lists_and_indices() -> None:
    assert edges_of(lambda x, y: x.sin() / y.cos(), X, X) == ["input", "other"]
    assert edges_of(lambda x, y: x - y * 2, X, X) == ["input", "other"]
    assert edges_of(lambda x, y: torch.cat([x, y]), X, X) == ["0", "1"]
    assert edges_of(lambda x, i: x[:, i], X, INDEX[0]) == ["input", "indices.1"]
    assert edges_of(lambda q, k: F.scaled_dot_product_attention(q, k, value=k), X, X) == [
        "query",
        "key",
        "value",
    ]


def test_saved_graph_without_names_has_positions() -> None:
    graph = trace(torch.sub, (X, X * 2)).graph
    del graph.facts["arguments"]
    assert scene(graph)["args"] == ["0", "1"]
