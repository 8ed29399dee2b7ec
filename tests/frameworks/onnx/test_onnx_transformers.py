"""ONNX files of transformers and recurrent nets: every module has torch's values."""

import logging
import warnings

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import intus
from intus.reading import read


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(self.lstm(x)[0])


def bert():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return transformers.BertModel(transformers.BertConfig(vocab_size=50, **sizes)), torch.randint(
        0, 50, (2, 7)
    )


def gpt2():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20}
    config = transformers.GPT2Config(vocab_size=50, use_cache=False, **sizes)
    return transformers.GPT2LMHeadModel(config), torch.randint(0, 50, (2, 7))


def recurrent():
    return Recurrent(), torch.randn(2, 5, 4)


@pytest.mark.parametrize(
    ("make", "at_least", "dynamo"),
    [(bert, 35, True), (gpt2, 22, True), (recurrent, 2, True), (recurrent, 2, False)],
)
def test_values_of_all_modules_in_the_file_are_those_of_torch(make, at_least, dynamo, tmp_path):
    torch.manual_seed(0)
    net, x = make()
    net.eval()
    for param in net.parameters():
        nn.init.normal_(param, std=0.2)
    path = tmp_path / "net.onnx"
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters
        torch.onnx.export(net, (x,), path, dynamo=dynamo, verbose=False)
    logging.disable(logging.NOTSET)
    theirs = intus.trace(net, x)
    graph, values, *_ = read(path, (x,))
    assert set(values) == set(range(len(graph.ops)))
    addresses = {module.address for module in graph.modules} - {""}
    assert addresses <= set(theirs.modules)
    compared = 0
    for address in addresses:
        rows = graph.rows(address)
        expected = theirs.value(address).detach().numpy()
        np.testing.assert_allclose(values[rows[-1]], expected, atol=1e-4, err_msg=address)
        compared += 1
    assert compared >= at_least
