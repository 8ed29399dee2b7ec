"""One architecture: run plainly, traced, validated, saved and loaded; what was found, as plain data."""

from __future__ import annotations

import copy
import math
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import intus

from .architecture import Architecture


@dataclass
class Outcome:
    """``plain`` is whether the model runs at all; ``reasons`` say what went wrong after that."""

    family: str
    name: str
    plain: bool = False
    traced: bool = False
    validated: bool = False
    saved: bool = False
    ops: int = 0
    proven: int = 0
    exempt: int = 0
    parameters: int = 0
    plain_seconds: float = 0.0
    trace_seconds: float = 0.0
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)
    exemptions: list[str] = field(default_factory=list)


def check(one: Architecture, tell: Callable[[dict[str, Any]], None]) -> None:
    """Check one architecture; ``tell`` is given what is known so far after each step, so that what is cut
    short by a crash or the time limit is not lost."""
    began, outcome = time.perf_counter(), Outcome(one.family, one.name)

    def told() -> None:
        outcome.seconds = time.perf_counter() - began
        tell(asdict(outcome))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case: Any = one
        for step in (_plain, _trace, _validate, _save):
            try:
                case = step(case, outcome)
            except Exception as error:
                outcome.reasons.append(f"{step.__name__[1:]}: {_said(error)}")
                told()
                return
            told()


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class _Pass:
    """A model, its inputs, and what it gives when it is run plainly."""

    def __init__(self, model: Any, inputs: Any) -> None:
        self.model, self.inputs = model, inputs
        self.expected: list[Tensor] = []
        self.seconds = 0.0  # of the last plain run
        self.trace: Any = None

    def run(self) -> list[Tensor]:
        """What a copy of the model gives, so that its own state is where it was."""
        try:
            model = copy.deepcopy(self.model)
        except RuntimeError:  # weights that a hook computes cannot be copied
            model = self.model
        return self.run_itself(model)

    def run_itself(self, model: Any) -> list[Tensor]:
        """What the model gives on the inputs."""
        torch.manual_seed(1)
        args = (
            self.inputs if isinstance(self.inputs, tuple) else () if _named(self.inputs) else (self.inputs,)
        )
        began = time.process_time()
        out = model(*args, **(self.inputs if _named(self.inputs) else {}))
        self.seconds = time.process_time() - began
        return tensors(out)


def _named(inputs: Any) -> bool:
    return isinstance(inputs, Mapping)


def _plain(one: Architecture, outcome: Outcome) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model, inputs = one.build()
    if isinstance(model, nn.Module):
        model.eval()
    case = _Pass(model, inputs)
    case.run_itself(model)  # what a first pass makes once (lazy layers, caches) is there from now on
    if isinstance(model, nn.Module):
        outcome.parameters = sum(p.numel() for p in model.parameters())
    first = case.run()
    case.expected = case.run()
    outcome.plain_seconds = case.seconds
    if not case.expected:
        raise ValueError("it returns no tensor")
    if not _all_equal(first, case.expected):
        raise ValueError("two plain runs of one seed differ")
    outcome.plain = True
    return case


def _trace(case: _Pass, outcome: Outcome) -> _Pass:
    before, chance = state_of(case.model), torch.get_rng_state()
    intus.trace(case.model, case.inputs, seed=1)
    began = time.process_time()
    case.trace = intus.trace(case.model, case.inputs, seed=1)
    outcome.trace_seconds = time.process_time() - began
    if not torch.equal(chance, torch.get_rng_state()):
        raise AssertionError("the random state is another after the trace")
    changed = difference(before, state_of(case.model))
    if changed:
        raise AssertionError(f"the model is changed: {changed}")
    got = [op.value for op in case.trace.outputs]
    if not _all_equal(case.expected, got):
        raise AssertionError(f"outputs differ: {_shapes(case.expected)} plainly, {_shapes(got)} traced")
    if not _all_equal(case.expected, case.run()):
        raise AssertionError("a plain run after the trace gives something else")
    if case.trace.maybe_modified:
        raise AssertionError(f"{len(case.trace.maybe_modified)} values are maybe_modified")
    outcome.ops, outcome.traced = len(case.trace), True
    return case


def _validate(case: _Pass, outcome: Outcome) -> _Pass:
    report = case.trace.validate()
    outcome.proven, outcome.exempt = len(report.proven), len(report.exempt)
    outcome.exemptions = sorted(
        f"{case.trace[check.label].type} | {why}" for check in report.exempt for why in check.reasons
    )
    passing = intus.validate(case.model, case.inputs, seed=1)  # the other way: as the pass runs
    outcome.validated = bool(report) and bool(passing)
    for how, one in (("", report), ("as it runs, ", passing)):
        for check in (*one.failed, *one.unproven):
            outcome.reasons.append(f"{how}{check.status} {check.label}: {'; '.join(check.reasons)}")
    return case


def _save(case: _Pass, outcome: Outcome) -> _Pass:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.trace"
        case.trace.save(path)
        back = intus.load(path)
        if back.graph.labels != case.trace.graph.labels or str(back) != str(case.trace):
            raise AssertionError("loaded, the graph is another")
        if back.values.keys() != case.trace.values.keys():
            raise AssertionError("loaded, other values are there")
        for row in case.trace.values:
            if not _equal(case.trace.values[row], back.values[row]):
                raise AssertionError(f"loaded, {back.graph.label(row)} is another")
    outcome.saved = True
    return case


# -- looking at models and values without intus ----------------------------------------------------------


def tensors(value: Any) -> list[Tensor]:
    """Every tensor in tuples, lists, mappings and dataclasses, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for part in value.values() for t in tensors(part)]
    if isinstance(value, tuple | list):
        return [t for part in value for t in tensors(part)]
    if hasattr(value, "__dataclass_fields__"):
        return [t for name in value.__dataclass_fields__ for t in tensors(getattr(value, name, None))]
    return []


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach().resolve_conj(), b.detach().resolve_conj()
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    return bool(torch.equal(a.nan_to_num(math.pi), b.nan_to_num(math.pi)))


def _all_equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(_equal, some, others))


def _shapes(values: list[Tensor]) -> str:
    return str([tuple(value.shape) for value in values])[:120]


def state_of(model: Any) -> dict[str, Any]:
    """What there is to compare of a model before and after: its tensors, and what its attributes are."""
    if not isinstance(model, nn.Module):
        return {}
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            found[f"{name}.{key}"] = _noted(value)
        for key, value in {**module._parameters, **module._buffers}.items():
            found[f"{name}.{key}"] = _noted(value)
    return found


def _noted(value: Any) -> Any:
    if isinstance(value, Tensor):
        return id(value), value._version, value.detach().clone()
    if type(value) in (list, dict, set):
        return id(value), len(value)
    return (id(value),)


def difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Names of what is not what it was."""
    names = [name for name in {**before, **after} if not _is_same(before.get(name), after.get(name))]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _is_same(one: Any, other: Any) -> bool:
    if one is None or other is None or one[:2] != other[:2] or len(one) != len(other):
        return False
    return len(one) < 3 or _equal(one[2], other[2])
