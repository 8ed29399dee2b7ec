"""torch's own test inputs: some operators and modules here, all of them in ``make sweep ARGS=ops``."""

import pytest
import torch
from sweep.check_inputs import InputsOutcome, check_inputs
from sweep.torch_inputs import modules, operators
from torch.nn import functional as F

import intus

pytestmark = pytest.mark.filterwarnings("ignore")
OPS = {one.name: one for one in operators()}
MODULES = {one.name: one for one in modules()}
SOME_OPS = [
    *(
        "add",
        "matmul",
        "einsum",
        "sort",
        "chunk",
        "as_strided",
        "index_add",
        "broadcast_tensors",
        "to_sparse",
    ),
    *("svd", "fft.fft", "native_batch_norm", "nn.functional.conv2d", "nn.functional.grid_sample", "nonzero"),
    *(
        "nn.functional.multi_head_attention_forward",
        "nn.functional.triplet_margin_with_distance_loss",
        "where",
    ),
]
SOME_MODULES = [
    "nn.Conv2d",
    "nn.BatchNorm2d",
    "nn.GRU",
    "nn.LazyConv1d",
    "nn.CosineEmbeddingLoss",
    "nn.Embedding",
]


def outcome_of(one):
    reports = []
    check_inputs(one, reports.append)
    return InputsOutcome(**reports[-1])


@pytest.mark.long
@pytest.mark.parametrize(
    "one", [*(OPS[n] for n in SOME_OPS), *(MODULES[n] for n in SOME_MODULES)], ids=lambda one: one.name
)
def test_torch_inputs(one):
    outcome = outcome_of(one)
    assert outcome.counts["ran"] >= 1
    # Whether an argument matters on these values is another matter: see docs/torch-inputs.md.
    assert [why for why in outcome.wrong if not why.startswith("valid | ")] == []


@pytest.mark.slow
@pytest.mark.parametrize("one", [*OPS.values(), *MODULES.values()], ids=lambda one: one.name)
def test_all_torch_inputs(one):
    assert [why for why in outcome_of(one).wrong if not why.startswith("valid | ")] == []


def test_wrong_values_and_edges_are_noticed(monkeypatch):
    real = intus.trace

    def wrong(*args, **kwargs):
        trace = real(*args, **kwargs)
        trace.values[trace.outputs[0].row] = trace.values[trace.outputs[0].row] + 1
        return trace

    monkeypatch.setattr(intus, "trace", wrong)
    outcome = outcome_of(OPS["matmul"])
    assert "equal ok" not in outcome.counts
    assert outcome.wrong[0] == "equal | sample 0, function | AssertionError: the outputs differ"


def test_module_that_a_torch_function_calls_is_no_operation():
    """The loss is one operation; the module that it calls inside is not a second one."""
    distance = torch.nn.PairwiseDistance()
    x = [torch.randn(3, 4, requires_grad=True) * 1 for _ in range(3)]
    trace = intus.trace(
        lambda a, b, c: F.triplet_margin_with_distance_loss(a, b, c, distance_function=distance), tuple(x)
    )
    assert [op.type for op in trace.ops] == ["triplet_margin_with_distance_loss"]
