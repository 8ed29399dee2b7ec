"""Inspecting on Ray's workers: the results of one process, also if a worker dies."""

import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from intus import inspect
from intus.core.errors import ServeError

pytestmark = pytest.mark.ray
NUMBERS = ["value", "low", "high", "baseline", "p", "q", "n"]


class Net(nn.Module):
    """A small net that may kill the worker that runs it, once."""

    def __init__(self, flag: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.flag, self.parent = nn.Conv2d(1, 4, 3, padding=1), flag, os.getpid()

    def forward(self, x):
        if self.flag and os.getpid() != self.parent and not os.path.exists(self.flag):
            with open(self.flag, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.relu(self.conv(x))


def ink(image):
    return image[0] > 0.5


@pytest.mark.parametrize("dies", [False, True])
def test_ray_gives_the_results_of_one_process(tmp_path, dies):
    from sklearn.datasets import load_digits

    images = (load_digits().images[:600, None] / 16).astype(np.float32)
    asked = ink, ["correlation", "iou_max", "mean_difference"], images, "conv"
    flag = tmp_path / "died"
    here = inspect(Net(), *asked, batch=50)
    there = inspect(Net(str(flag) if dies else ""), *asked, batch=50, engine="ray")
    assert flag.exists() == dies
    pd.testing.assert_frame_equal(here.drop(columns=NUMBERS), there.drop(columns=NUMBERS))
    for name in NUMBERS:
        np.testing.assert_allclose(
            here[name].astype(float), there[name].astype(float), rtol=1e-12, atol=1e-12
        )


def test_address_where_nobody_listens():
    began = time.monotonic()
    with pytest.raises(ServeError, match=r"127\.0\.0\.1:9"):
        inspect(
            Net(), ink, "correlation", np.zeros((4, 1, 8, 8), np.float32), "conv", engine="ray://127.0.0.1:9"
        )
    assert time.monotonic() - began < 10
