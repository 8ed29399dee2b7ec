"""A trace runs what ``torch.compile`` made uncompiled, and says which parts these are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import intus


def plain(x):
    return torch.relu(x) * 2


doubled = torch.compile(plain, backend="eager")


def helper(x):
    return doubled(x) + 1


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return helper(self.fc(x))


class Holds(Calls):
    def __init__(self):
        super().__init__()
        self.function = torch.compile(plain, backend="eager")

    def forward(self, x):
        return self.function(self.fc(x))


class Decorated(Calls):
    @torch.compile(backend="eager")
    def forward(self, x):
        return self.fc(x) + 1


def compiled_in_place():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].compile(backend="eager")
    return model


X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (Calls, ["the function 'plain'"]),
        (Holds, ["the function 'plain'"]),
        (Decorated, ["the function 'forward'"]),
        (compiled_in_place, ["'0'"]),
        (lambda: nn.Sequential(torch.compile(nn.Linear(3, 3), backend="eager")), ["'0'"]),
        (lambda: torch.compile(nn.Linear(3, 3), backend="eager"), ["the model"]),
        (lambda: doubled, ["the function 'plain'"]),
        (lambda: helper, ["the function 'plain'"]),
        (lambda: Calls().forward, ["the function 'plain'"]),
    ],
)
def test_compiled_parts_are_named(make, parts):
    model = make()
    trace = intus.trace(model, X)
    (note,) = trace.graph.facts["notes"]
    assert note.startswith(f"Made by torch.compile, and run uncompiled in a trace: {', '.join(parts)}.")
    assert note in trace.summary()
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(trace.outputs[0].value, model(X))


def test_what_is_not_compiled_has_no_note():
    for model in (nn.Sequential(nn.Linear(3, 3), nn.ReLU()), plain, torch.compiler.disable(plain)):
        assert "notes" not in intus.trace(model, X).graph.facts
