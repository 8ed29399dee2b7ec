"""Tests of small transformers: outputs, connections, layers and residuals."""

import pytest
import torch
from transformer_models import bert, gpt2, llama, mamba, t5, vit
from zoo_models import tensors

import intus


@pytest.fixture(scope="module", params=[gpt2, bert, vit, llama, t5, mamba], ids=lambda build: build.__name__)
def pass_of(request):
    torch.manual_seed(0)
    model, inputs = request.param()
    model.eval()
    with torch.no_grad():
        expected = tensors(dict(model(**inputs)))
        trace = intus.trace(model, inputs)
    return request.param.__name__, model, expected, trace


def test_outputs_are_bit_equal(pass_of):
    _, _, expected, trace = pass_of
    assert len(trace.outputs) >= len(expected) > 0
    for value in expected:
        assert any(torch.equal(op.value, value) for op in trace.outputs if op.shape == tuple(value.shape))


def test_output_descends_from_all_inputs_and_used_parameters(pass_of):
    _, model, _, trace = pass_of
    found, todo = set(), [trace.outputs[0]]
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            todo += op.parents
    assert set(trace.inputs) <= found
    used = {param.address for op in trace.ops for param in op.params}
    assert {param.address for op in found for param in op.params} >= {
        name for name in used if "pooler" not in name
    }
    assert len(used) >= 0.9 * len(list(model.named_parameters()))


def test_layers_with_different_parameters_are_separate(pass_of):
    """Layers with equal shapes but different parameters must not become passes of one layer."""
    _, _, _, trace = pass_of
    by_layer = {}
    for op in trace.ops:
        if op.params:
            by_layer.setdefault(op.label.partition(":")[0], set()).add(
                tuple(sorted(param.address for param in op.params))
            )
    assert all(len(params) == 1 for params in by_layer.values())


def test_residual_bypasses_the_norm():
    torch.manual_seed(0)
    model, inputs = llama()
    trace = intus.trace(model.eval(), inputs)
    (add,) = [op for op in trace.find(type="add") if op.module == "model.layers.0"][:1]
    assert [parent.module for parent in add.parents] == [
        "model.embed_tokens",
        "model.layers.0.self_attn.o_proj",
    ]
