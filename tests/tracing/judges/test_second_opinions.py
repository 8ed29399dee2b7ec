"""Hugging Face, forward hooks, torch.export and torch's FLOP counter judge real architectures."""

import pytest
import torch
from sweep.judges.opinions import exported, flop_counter, forward_hooks, hidden_states
from torch import nn
from transformer_models import bert, gpt2, llama, mamba, t5, vit
from zoo_models import make

import intus

MODELS = {build.__name__: build for build in (gpt2, bert, vit, llama, t5, mamba)}
ZOO = ["cnn", "residual", "shared", "loop_lstm", "attention", "encoder", "alexnet"]


def traced(name):
    torch.manual_seed(0)
    if name in MODELS:
        model, kwargs = MODELS[name]()
        model.set_attn_implementation("eager")
        args = ()
        if name != "vit":
            kwargs = {**kwargs, "use_cache": False}
    else:
        model, x = make(name)
        args, kwargs = x if isinstance(x, tuple) else (x,), {}
    model.eval()
    with torch.no_grad():
        return model, args, kwargs, intus.trace(model, args, kwargs=kwargs, seed=1)


@pytest.mark.parametrize("name", [*MODELS, *ZOO])
def test_forward_hooks(name):
    with torch.no_grad():
        found = forward_hooks(*traced(name))
    assert found.wrong == []
    assert found.compared >= 2


@pytest.mark.parametrize(("name", "states"), [("gpt2", 5), ("bert", 5), ("vit", 5), ("llama", 5), ("t5", 12)])
def test_output_hidden_states_and_attentions(name, states):
    with torch.no_grad():
        found = hidden_states(*traced(name))
    assert found.wrong == []
    assert found.compared == states


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*MODELS, *ZOO])
def test_edges_of_torch_export(name):
    with torch.no_grad():
        found = exported(*traced(name))
    assert found.wrong == []
    assert found.compared >= 1


@pytest.mark.parametrize("name", [*MODELS, *ZOO])
def test_flop_counter(name):
    with torch.no_grad():
        assert flop_counter(*traced(name)) == (1, [])


class Swapped(nn.Module):
    def __init__(self, swapped):
        super().__init__()
        self.a, self.b, self.swapped = nn.Linear(4, 4), nn.Linear(4, 4), swapped

    def forward(self, x):
        return self.a(self.b(x)) if self.swapped else self.b(self.a(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("judge", [forward_hooks, exported])
def test_trace_of_another_model_is_rejected(judge):
    torch.manual_seed(0)
    one, x = Swapped(False), torch.randn(2, 4)
    other = Swapped(True)
    other.load_state_dict(one.state_dict())
    assert not judge(one, (x,), {}, intus.trace(one, x)).wrong
    assert judge(one, (x,), {}, intus.trace(other, x)).wrong


def test_wrong_flops_and_hidden_states_are_noticed():
    model, args, kwargs, trace = traced("bert")
    assert flop_counter(model, args, {"input_ids": kwargs["input_ids"][:, :3]}, trace).wrong
    trace.values.clear()
    assert len(hidden_states(model, args, kwargs, trace).wrong) == 5
