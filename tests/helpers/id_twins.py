"""Compare the pass of an embedding of ids that are floats with twins in PyTorch; see ``float_ids.py``."""

import json
import sys

import numpy as np
import torch
from float_ids import CASES, IDS, KERNEL, TABLE
from planted_twins import both_orders

import intus


class Twin(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.emb, self.head = torch.nn.Embedding(*TABLE.shape), torch.nn.Linear(*KERNEL.shape, bias=False)
        self.emb.weight.data = torch.tensor(TABLE)
        self.emb.weight.data[IDS[0, 0]] *= factor
        self.head.weight.data = torch.tensor(KERNEL.T.copy())

    def forward(self, ids):
        return self.head(self.emb(ids.long() if ids.is_floating_point() else ids))


def compared(other, factor, floats):
    """Return the largest difference of the outputs, and what is said of both in both orders."""
    net, ids = Twin(factor), torch.tensor(IDS)
    own = intus.trace(net, ids.float() if floats else ids)
    apart = float((net(ids) - torch.tensor(np.asarray(other["output_1"].value))).abs().max())
    return apart, both_orders(own, other)


def main():
    """Print what is said of the trace whose path is the only argument, for each case, as JSON."""
    other = intus.load(sys.argv[1])
    print(json.dumps([compared(other, *case) for case in CASES]))
