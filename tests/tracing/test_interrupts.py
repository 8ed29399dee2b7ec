"""Interrupts at random times leave the model, torch's modes and the random state as they were."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import Module

import intus
from intus.tracing.capture.context.interrupts import interrupts_deferred

VERBS: dict[str, tuple[Callable[..., Any], float]] = {
    "trace": (intus.trace, 0.012),
    "decompose": (lambda *args: intus.trace(*args, decompose=True), 0.02),
    "validate": (intus.validate, 0.06),
    "why_nan": (intus.why_nan, 0.03),
}
pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    parts = (nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.5))
    return nn.Sequential(*[nn.Sequential(*parts) for _ in range(6)])


def interrupt(number: int, frame: Any) -> None:
    """Be Ctrl-C: a timer can send no other signal."""
    signal.raise_signal(signal.SIGINT)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts in destructors
@pytest.mark.parametrize("verb", VERBS)
def test_interrupt_at_any_time_leaves_all_as_it_was(verb: str) -> None:
    function, span = VERBS[verb]
    model, x, chance = make_model(), torch.randn(3, 4), random.Random(1)
    state = {name: t.clone() for name, t in model.state_dict().items()}
    code, interrupted, end = Module.__call__.__code__, 0, time.monotonic() + 30
    function(model, x)  # what is imported on the first call is no part of this test
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while interrupted < 60 and time.monotonic() < end:
            random_state = torch.get_rng_state()
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.random() * span + 1e-5)
                    function(model, x)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            assert torch._C._len_torch_function_stack() == 0
            assert torch.is_grad_enabled()
            assert Module.__call__.__code__ is code
            assert torch.equal(torch.get_rng_state(), random_state)
            assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 5
    assert len(intus.trace(model, x).ops) == 30


def test_deferred_interrupt_is_raised_at_the_end() -> None:
    reached = []

    def section() -> None:
        with interrupts_deferred() as interrupts:
            with pytest.raises(KeyboardInterrupt):
                interrupts.run(signal.raise_signal, signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        section()
    assert reached == ["the end"]


def test_handler_of_the_caller_is_called_and_stays() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    mine = signal.getsignal(signal.SIGINT)
    try:
        t = intus.trace(lambda x: signal.raise_signal(signal.SIGINT) or x + 1, torch.ones(1))
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [signal.SIGINT]
    assert [op.type for op in t.ops] == ["add"]


def test_interrupted_model_gives_a_partial_trace() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        signal.raise_signal(signal.SIGINT)
        return y

    with pytest.raises(KeyboardInterrupt) as caught:
        intus.trace(model, torch.ones(1))
    assert [op.type for op in caught.value.intus_trace.ops] == ["add"]
