"""Models that free memory during a pass: offloaders, pools, FSDP."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import intus
from intus.backends.torch.captured_tensor import to_numpy
from intus.core.errors import AddressError


def free(t: Tensor) -> None:
    t.untyped_storage().resize_(0)


class FreesBuffer(nn.Module):
    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.writes = writes
        self.register_buffer("pool", torch.arange(8.0))

    def forward(self, x: Tensor) -> Tensor:
        if self.writes:
            self.pool.add_(1)
        y = x + self.pool.sum()
        free(self.pool)
        return y


@pytest.mark.parametrize("save", ["none", "all"])
def test_written_and_freed_buffer_is_restored(save: str) -> None:
    model = FreesBuffer(writes=True)
    trace = intus.trace(model, torch.ones(1), save=save)
    assert torch.equal(model.pool, torch.arange(8.0))
    assert trace.not_restored == []
    assert intus.trace(model, torch.ones(1)).outputs[0].value.item() == 37


def test_freed_buffer_that_was_not_written_is_reported() -> None:
    model = FreesBuffer(writes=False)
    trace = intus.trace(model, torch.ones(1))
    assert model.pool.untyped_storage().nbytes() == 0, "as after a plain pass"
    assert trace.not_restored == ["pool: the model freed its memory."]
    assert "pool: the model freed its memory." in str(trace)


def test_value_in_freed_memory_is_not_read() -> None:
    def forward(x: Tensor) -> Tensor:
        y = x * 2
        z = y[1:] + 1
        free(y)
        return z

    trace = intus.trace(forward, torch.ones(4))
    assert trace["add_1"].value.tolist() == [3, 3, 3]
    for label in ("mul_1", "getitem_1"):
        assert not trace[label].saved
        with pytest.raises(AddressError, match="memory that the model freed during the pass"):
            _ = trace[label].value
    report = trace.validate()
    assert {check.label for check in report.unproven} >= {"getitem_1_2", "add_1_3"}
    assert not report.failed
    kept = intus.trace(forward, torch.ones(4), copy=True)
    assert kept["mul_1"].value.tolist() == [2, 2, 2, 2]
    assert kept.validate()
    assert intus.view(trace).html()


def test_memory_allocated_and_freed_within_the_pass_stays_free() -> None:
    whole = torch.empty(4)

    class Gathers(nn.Module):
        """Works like FSDP: the whole weight exists during the forward pass alone."""

        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            whole.untyped_storage().resize_(16)
            with torch.no_grad():
                whole.copy_(self.part)
            y = (x * whole).clone()
            free(whole)
            return y

    free(whole)
    model = Gathers()
    for _ in range(2):
        trace = intus.trace(model, torch.ones(4))
        assert trace.outputs[0].value.tolist() == [1, 1, 1, 1]
        assert whole.untyped_storage().nbytes() == 0
        assert intus.validate(model, torch.ones(4)).failed == []


@pytest.mark.parametrize("what", ["trace", "validate", "view", "save", "record"])
def test_storages_stay_resizable(what: str, tmp_path: Path) -> None:
    model, x = nn.Linear(2, 2), torch.ones(3, 2)
    if what == "validate":
        assert intus.validate(model, x)
        assert intus.trace(model, x).validate()
    elif what == "save":
        intus.trace(model, x).save(tmp_path / "a.trace")
    elif what == "view":
        intus.view(intus.trace(model, x)).save(tmp_path / "a.html")
    elif what == "record":
        recorded = to_numpy(x)
        assert recorded.shape == (3, 2)
    for t in (x, *model.parameters()):
        assert t.untyped_storage().resizable()


@pytest.mark.parametrize("save", ["none", "all"])
def test_memory_that_a_model_offloads_and_fetches_keeps_its_contents(save: str) -> None:
    class Offloads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("pool", torch.arange(4096.0))

        def forward(self, x: Tensor) -> Tensor:
            y = x + self.pool.sum()
            copy, storage = self.pool.clone(), self.pool.untyped_storage()
            size = storage.nbytes()
            storage.resize_(0)
            other = torch.full((4096,), 7.0)  # may take the memory
            storage.resize_(size)
            self.pool.fill_(-1)
            self.pool.copy_(copy)
            return y + self.pool.sum() + other[0]

    model, x = Offloads(), torch.ones(2)
    plain = model(x)
    trace = intus.trace(model, x, save=save)
    assert torch.equal(model.pool, torch.arange(4096.0))
    assert torch.equal(model(x), plain)
    assert trace.not_restored == ["pool: the model freed its memory."]
    assert "resize_" not in vars(torch.UntypedStorage)
