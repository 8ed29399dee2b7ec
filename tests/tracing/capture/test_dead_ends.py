"""Operations that lead to no output: auxiliary losses, statistics, writes into state."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import intus
from intus.core.errors import AddressError, CaptureError


class ContentLoss(nn.Module):
    """The auxiliary loss of pytorch.org's style transfer tutorial."""

    def __init__(self, target: Tensor) -> None:
        super().__init__()
        self.target = target

    def forward(self, x: Tensor) -> Tensor:
        self.loss = F.mse_loss(x, self.target)
        return x


class Average(nn.Module):
    """Counts its steps and averages its weight, in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("average", torch.zeros(4, 4))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps.add_(1)
        self.average.mul_(0.9).add_(self.linear.weight.detach(), alpha=0.1)
        return self.linear(x)


def test_loss_kept_on_the_module_has_both_operands() -> None:
    model = nn.Sequential(nn.Linear(4, 4), ContentLoss(torch.randn(2, 4)), nn.ReLU())
    t = intus.trace(model, torch.randn(2, 4))
    assert [parent.label for parent in t["mse_loss"].parents] == ["linear_1_1", "constant_1"]
    assert t.constants == [t["constant_1"]]
    assert t["mse_loss"].args == ("linear_1_1", "constant_1")
    assert t.validate()


def test_writes_into_buffers_are_operations() -> None:
    t = intus.trace(Average(), torch.randn(2, 4))
    assert [op.label for op in t] == ["add_1_1", "mul_1_2", "detach_1_3", "add_2_4", "linear_1_5"]
    assert {op.buffer_address for op in t.buffers} == {"average", "steps"}
    assert [parent.label for parent in t["add_2"].parents] == ["mul_1_2", "detach_1_3"]
    assert t.validate()
    assert intus.validate(Average(), torch.randn(2, 4))


def test_batchnorm_counts_its_batches_by_an_operation() -> None:
    t = intus.trace(nn.BatchNorm1d(4), torch.randn(3, 4))
    assert [op.type for op in t] == ["add", "batch_norm"]
    assert [op.type for op in intus.trace(nn.BatchNorm1d(4).eval(), torch.randn(3, 4))] == ["batch_norm"]


def test_memory_written_through_a_view_and_not_returned() -> None:
    def forward(x: Tensor) -> Tensor:
        statistics = torch.zeros(4)
        statistics[:2].add_(x[0, :2])
        _ = statistics * 2
        return x.relu()

    x = torch.randn(2, 4)
    t = intus.trace(forward, x)
    assert t.validate()
    assert intus.validate(forward, x)
    assert t.rerun({"input_1": torch.zeros(2, 4)}).outputs[0].value.sum() == 0


def test_rerun_passes_over_what_leads_nowhere() -> None:
    def forward(x: Tensor) -> Tensor:
        _ = torch.vmap(torch.sin)(x) * 2  # what ran inside of vmap cannot be run again
        return x.relu()

    t = intus.trace(forward, torch.ones(3))
    changed = t.rerun({"input_1": torch.zeros(3)})
    assert changed.outputs[0].value.tolist() == [0, 0, 0]
    assert changed["relu_1"].saved
    if not changed["sin_1"].saved:
        with pytest.raises(AddressError, match="no output depends on it"):
            _ = changed["sin_1"].value


def test_rerun_still_refuses_what_the_output_needs() -> None:
    def forward(x: Tensor) -> Tensor:
        y = x * 2
        z = y + 1
        y.untyped_storage().resize_(0)
        return z.relu()

    t = intus.trace(forward, torch.ones(3))
    with pytest.raises(CaptureError, match="mul_1_1"):
        t.rerun({"mul_1": 0, "relu_1": torch.zeros(3)})


@pytest.mark.parametrize("name", ["batch_norm", "native_batch_norm"])
def test_statistics_that_no_schema_declares_are_restored(name: str) -> None:
    mean, variance = torch.zeros(4), torch.ones(4)
    function = getattr(torch.ops.aten, name)
    rest = (True,) if name == "batch_norm" else ()

    def forward(x: Tensor) -> Tensor:
        out = function(x, None, None, mean, variance, True, 0.1, 1e-5, *rest)
        return out if isinstance(out, Tensor) else out[0]

    intus.trace(forward, torch.randn(5, 4))
    assert mean.tolist() == [0, 0, 0, 0]
    assert variance.tolist() == [1, 1, 1, 1]


def test_exported_batchnorm_keeps_its_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    x = torch.randn(2, 1, 6, 6)
    exported = torch.export.export(model.train(), (x,)).module()
    before = {name: value.clone() for name, value in exported.state_dict().items()}
    intus.trace(exported, x)
    assert all(torch.equal(value, before[name]) for name, value in exported.state_dict().items())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("options", [{}, {"decompose": True}, {"grads": True}])
def test_sparse_csr_matrix(options: dict[str, bool]) -> None:
    matrix = torch.eye(3).to_sparse_csr().requires_grad_()
    t = intus.trace(lambda a: a @ torch.ones(3, 2), matrix, **options)
    assert torch.equal(t.outputs[0].value, torch.ones(3, 2))
    if options.get("grads"):
        t.output.sum().backward()
        assert torch.equal(t["matmul"].grad, torch.ones(3, 2))
