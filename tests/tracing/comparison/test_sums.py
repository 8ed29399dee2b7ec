"""``compare`` of sums and products of residual branches that are written in another order or grouping.

Random programs are the judge: each is written twice, and once with a planted fault; float64 tells that the
twins are the same and the other is not.
"""

import pytest
import torch
from sums_of_branches import Net, program

from intus import compare, trace


def nets(seed):
    """Return the program of a seed, a right twin, a wrong one, and the block of its fault."""
    *texts, at, _ = program(seed)
    return [Net(text) for text in texts], at


def relative(x, y):
    return float((x - y).norm() / max(x.norm(), y.norm()))


@torch.no_grad()
def check(seed, dtype=torch.float32):
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed))
    models, at = nets(seed)
    results = [model.double()(x.double()) for model in models]
    assert relative(results[0], results[1]) < 1e-12
    a, right, wrong = (trace(model.to(dtype), x.to(dtype)) for model in models)
    for some in ((a, right), (right, a)):
        comparison = compare(*some)
        assert comparison.agree, comparison.attrs["summary"]
    if relative(results[0], results[2]) < 100 * torch.finfo(dtype).eps:
        return
    for some in ((a, wrong), (wrong, right)):
        comparison = compare(*some)
        first = comparison.attrs["first"]
        assert not comparison.agree, comparison.attrs["summary"]
        assert first is not None, comparison.attrs["summary"]
        assert first["module"].startswith(f"blocks.{at}"), first
        assert first["why"], first


@pytest.mark.parametrize("seed", range(3))
def test_sums_in_another_order_agree_and_planted_faults_do_not(seed):
    check(seed)


#: Of the seeds of programs, all but a few are for the sweeps.
SEEDS = [
    pytest.param(seed, marks=pytest.mark.slow if seed % 4 else pytest.mark.long) for seed in range(100, 200)
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_many_sums_in_another_order_agree_and_planted_faults_do_not(seed, dtype):
    check(seed, dtype)


def both_ways(f, g):
    """Return the comparisons of two sums of the tensors of a block, in both orders."""
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    a, b = (trace(Net([text]), x) for text in (f, g))
    return [compare(a, b), compare(b, a)]


#: A sum, the same in another order, and another one with the reason.
CASES = {
    "residual": (
        "(x + attention) + mlp",
        "x + (attention + mlp)",
        "x + (attention - mlp)",
        "the factor of linear_3_5 is 1 in a, -1 in b",
    ),
    "factor of a branch": (
        "((x + attention) + mlp) + gate",
        "(x + gate) + (attention + mlp)",
        "(x + gate) + (attention + 2 * mlp)",
        "the factor of linear_3_5 is 1 in a, 2 in b|(2) ran only in b",
    ),
    "missing": (
        "((x + attention) + mlp) + gate",
        "x + (attention + (mlp + gate))",
        "(x + gate) + attention",
        "the term linear_3_5 is only in a",
    ),
    "difference": (
        "attention * 3 - attention * 2 - mlp",
        "attention * 3 - (attention * 2 + mlp)",
        "attention * 3 - (attention * 2 - mlp)",
        "the factor of linear_3_5 is -1 in a, 1 in b",
    ),
    "bias": (
        "(x + attention) + bias",
        "x + (attention + bias)",
        "x + (attention - bias)",
        "the constant term is -1 times that of a in b",
    ),
    "scale": (
        "0.5 * (x + attention + mlp)",
        "0.5 * x + 0.5 * attention + 0.5 * mlp",
        "0.5 * x + 0.6 * attention + 0.5 * mlp",
        "the factor of linear_1_2 is 0.5 in a, 0.6 in b",
    ),
    "product": (
        "x + (gate * attention) * mlp",
        "(mlp * attention) * gate + x",
        "(mlp * attention) * (2 * gate) + x",
        "the factor of linear_1_2 * linear_3_5 * sigmoid_1_7 is 1 in a, 2 in b|(2) ran only in b",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_reason_is_the_term_that_differs(case):
    f, right, wrong, why = CASES[case]
    for comparison in both_ways(f, right):
        assert comparison.agree, comparison.attrs["summary"]
    comparison, turned = both_ways(f, wrong)
    first = comparison.attrs["first"]
    assert first["module"] == "blocks.0", first
    assert any(one in reason for one in why.split("|") for reason in first["why"]), first
    assert not turned.agree
    assert turned.attrs["first"]["module"] == "blocks.0"


def test_step_that_is_used_otherwise_too_differs():
    f, g = "x + (x + attention) * 0 + mlp * 0 + (x + attention).sin() * 1e-9", None
    g = f.replace("(x + attention).sin()", "(x + mlp).sin()")
    comparison, turned = both_ways(f, g)
    assert not comparison.agree
    assert not turned.agree


class Rotated(torch.nn.Module):
    """Linear layers with rotary positions, whose frequencies are a buffer or computed."""

    def __init__(self, base, *, is_buffer):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.out, self.base = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4), base
        if is_buffer:
            self.register_buffer("frequencies", self.computed())

    def computed(self):
        return self.base ** (-torch.arange(0, 8, 2).float() / 8)

    def forward(self, x):
        known = dict(self.named_buffers())
        angles = torch.arange(x.shape[1]).float()[:, None] * known.get("frequencies", self.computed())
        x, y = self.q(x).chunk(2, -1)
        return self.out(
            torch.cat((x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()), -1)
        )


def test_first_number_of_other_frequencies_is_the_reason():
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    a, same, b = (
        trace(Rotated(base, is_buffer=is_buffer), x)
        for base, is_buffer in ((1e4, True), (1e4, False), (5e5, False))
    )
    assert compare(a, same).agree
    first = compare(a, b).attrs["first"]
    assert "is 0.1 in a, 0.0376" in str(first["why"]), first
