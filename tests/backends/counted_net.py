"""The tensors that a linear layer, batch normalization and a linear layer hold, in every framework and file.

Parameters are what a training may change, frozen or not; running statistics are buffers, as in PyTorch.
"""

from __future__ import annotations

from math import prod
from typing import Any

IN, MIDDLE, OUT = 3, 4, 2
PARAMETERS = (IN * MIDDLE + MIDDLE) + 2 * MIDDLE + (MIDDLE * OUT + OUT)
#: The mean and the variance.
STATISTICS = 2 * MIDDLE


def assert_counted(trace: Any, *, buffers: int = STATISTICS) -> None:
    """Check what a trace of the net counts.

    Args:
        trace: The trace.
        buffers: The numbers that its buffers hold.
    """
    held = trace.modules[""].buffers
    assert trace.num_params == PARAMETERS, [param.address for param in trace.graph.params]
    assert sum(prod(one.shape) for one in held) == buffers, [one.address for one in held]
