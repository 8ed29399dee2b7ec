"""``check_export`` of right and wrong files whose tensors have a few numbers much larger than others.

Such are masks of finite numbers, outliers and counts beside probabilities: a norm shows only them. The judge
of the right files is the exporter, that of the wrong ones the edit.
"""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import intus

LEAST = torch.finfo(torch.float32).min
MASKS = {
    "filled": lambda logits, hidden, number: logits.masked_fill(hidden, number),
    "added": lambda logits, hidden, number: logits + hidden.to(logits.dtype) * number,
    "chosen": lambda logits, hidden, number: torch.where(hidden, torch.tensor(number), logits),
}
#: ``added`` leaves no digits of logits that are hidden, and all of those that are not.
NUMBERS = {"-1e4": -1e4, "-1e9": -1e9, "least": LEAST}


class Attention(nn.Module):
    """Causal attention, with a fault in the logits."""

    def __init__(self, mask, number, fault=""):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.mask, self.number, self.fault = mask, number, fault

    def forward(self, x):
        steps = torch.arange(x.shape[1])
        hidden = steps[None] > steps[:, None]
        query, key = self.query(x), self.key(x)
        if self.fault == "swapped":
            query, key = key, query
        logits = query @ key.transpose(1, 2) * 0.75
        if self.fault == "scale":
            logits = logits * 1.001
        if self.fault == "bias":
            logits = logits + 1e-3 * (steps[None] - steps[:, None])
        return x + self.mask(logits, hidden, self.number).softmax(-1) @ self.value(x)


class Beside(nn.Module):
    """Numbers of other sizes in one tensor, of which a file may compute the smaller ones otherwise."""

    def __init__(self, kind, factor=1.0):
        super().__init__()
        self.linear, self.kind, self.factor = nn.Linear(16, 16), kind, factor

    def forward(self, x):
        small = torch.sigmoid(self.linear(x)) * self.factor
        if self.kind == "counts beside probabilities":
            return torch.cat([small, x.sum(-1, keepdim=True) * 1e6 + 1e7], -1)
        if self.kind == "outlier channel":
            scale = torch.ones(16)
            scale[3] = 1e7
            return small * scale + x
        return torch.cat([small, torch.full_like(small, -999999.0)], 1)  # rows of padding


BESIDE = ["counts beside probabilities", "outlier channel", "padding"]


def exported(model, x, path):
    """Write a file, and return its path."""
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(model, (x,)), path)
        return path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(model, (x,), path, dynamo=False)
    return path


def checked(model, x, path, **changes):
    """Check a file of the model with some attributes changed."""
    other = copy.deepcopy(model)
    for name, value in changes.items():
        setattr(other, name, value)
    return intus.check_export(model, exported(other, x, path), x)


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(2, 6, 16)


@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_fault_beside_a_mask_differs_and_the_right_file_is_equal(mask, number, suffix, x, tmp_path):
    model = Attention(mask, number).eval()
    right = checked(model, x, tmp_path / f"net.{suffix}")
    assert right.verdict == "equal", str(right)
    for fault in ("scale", "bias", "swapped"):
        check = checked(model, x, tmp_path / f"{fault}.{suffix}", fault=fault)
        assert check.verdict == "differs", f"{fault}: {check}"
        assert "within rounding error" not in str(check)
        assert "outputs agree" not in str(check).lower()


@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
@pytest.mark.parametrize("kind", BESIDE)
def test_fault_beside_large_numbers_differs_and_the_right_file_is_equal(kind, suffix, x, tmp_path):
    model = Beside(kind).eval()
    right = checked(model, x, tmp_path / f"net.{suffix}")
    assert right.verdict == "equal", str(right)
    check = checked(model, x, tmp_path / f"wrong.{suffix}", factor=1.001)
    assert check.verdict == "differs", str(check)


@pytest.mark.parametrize("seed", range(6))
def test_fault_beside_random_large_numbers_differs_and_the_right_file_is_equal(seed, x, tmp_path):
    random = np.random.default_rng(seed)
    large = 10.0 ** random.uniform(3, 30, (6, 6)) * random.choice((-1, 1), (6, 6))
    where = torch.from_numpy(random.random((6, 6)) < random.uniform(0.05, 0.7))
    number = torch.from_numpy(large).float()

    def mask(logits, hidden, _):
        return torch.where(where, number, logits)

    model = Attention(mask, 0.0).eval()
    right = checked(model, x, tmp_path / "net.onnx")
    assert right.verdict == "equal", str(right)
    check = checked(model, x, tmp_path / "wrong.onnx", fault="scale")
    assert check.verdict == "differs", str(check)


def test_rounding_that_is_left_beside_larger_numbers_does_not_differ(x, tmp_path):
    class Distances(nn.Module):
        """Squared distances, of which those of a vector to itself are only rounding."""

        def forward(self, x):
            squares = (x * x).sum(-1)
            apart = squares[:, :, None] + squares[:, None] - 2 * x @ x.transpose(1, 2)
            return torch.softmax(-apart, -1) @ x

    for dynamo in (False, True):
        path = tmp_path / f"net{dynamo}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(Distances().eval(), (3 * x,), path, dynamo=dynamo, verbose=False)
        check = intus.check_export(Distances().eval(), path, 3 * x)
        assert check.verdict == "equal", str(check)


def test_tail_of_a_sigmoid_does_not_differ(x, tmp_path):
    """ONNX Runtime rounds a sigmoid to eps of 1."""

    class Scores(nn.Module):
        def forward(self, x):
            return torch.sigmoid(x.sign() * 9 + x) * torch.tensor([1.0, 2.0])[:, None, None]

    model = Scores().eval()
    check = checked(model, x, tmp_path / "net.onnx")
    assert check.verdict == "equal", str(check)
