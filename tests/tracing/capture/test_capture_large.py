"""Tests of models larger than memory, and of freeing the memory of a trace."""

import gc
import time
import weakref
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import intus


def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.long
def test_graph_of_a_model_with_seventy_billion_parameters():
    shape = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80}
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256}
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**shape, **heads)).eval()
        inputs = {"input_ids": torch.zeros(1, 512, dtype=torch.long)}
    with torch.no_grad():
        intus.trace(model.model.layers[0].mlp, torch.empty(1, 1, 8192, device="meta"))
        before, began = megabytes(), time.process_time()
        trace = intus.trace(model, inputs, save="none", meta_value=True)
        seconds, grown = time.process_time() - began, megabytes() - before
    assert sum(p.nbytes for p in trace.graph.params) > 280e9
    assert len(trace.find(type="scaled_dot_product_attention")) == 80
    assert len(trace.find(type="linear")) == 80 * 7 + 1
    assert trace["lm_head"].shape == (1, 512, 128256)
    assert trace.inputs[0] in trace["lm_head"].ancestors
    assert grown < 50
    assert seconds < 6  # 0.7 s on an idle core; the benchmark's limit is 2 s


def test_memory_is_freed_without_garbage_collection():
    def forward(x):
        for _ in range(20):
            x = torch.tanh(x)
        return x * 2

    gc.collect()
    gc.disable()  # without reference cycles it is not needed
    try:
        trace = intus.trace(forward, torch.ones(4))
        assert trace.validate()
        refs = [weakref.ref(trace), weakref.ref(trace.graph), *map(weakref.ref, trace.values.values())]
        del trace
        assert [ref() for ref in refs] == [None] * 25
    finally:
        gc.enable()
