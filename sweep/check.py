"""Check one architecture: run it without intus, trace, validate, save and load it."""

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
from intus.core.errors import InputError

from .architecture import Architecture


@dataclass
class Outcome:
    """The result of checking an architecture.

    Attributes:
        family: The family of the architecture.
        name: The name of the architecture.
        plain: Whether the model runs without intus, and gives equal outputs twice.
        traced: Whether the trace is correct and leaves the model unchanged.
        validated: Whether ``intus.validate`` proves every operation, and ``Trace.validate`` every one whose
            values can be saved.
        saved: Whether the loaded trace equals the saved one.
        ops: The number of operations.
        proven: The number of proven rows.
        exempt: The number of exempt rows.
        parameters: The number of parameters.
        plain_seconds: CPU seconds of a run without intus.
        trace_seconds: CPU seconds of a trace with all values saved.
        seconds: Seconds of the whole check.
        reasons: What failed.
        exemptions: Why rows are exempt: ``type | reason``.
        running: The number of rows that only ``intus.validate`` proves, because it runs them again while the
            pass runs: those inside ``vmap``, and gradients.
        refused: Why ``save`` refused the values, as documented: the format cannot hold them.
    """

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
    running: int = 0
    refused: str = ""

    @property
    def failed(self) -> bool:
        """True if the model runs and a check of its trace failed."""
        return self.plain and not (self.traced and self.validated and (self.saved or self.refused))


def check(one: Architecture, report: Callable[[dict[str, Any]], None]) -> None:
    """Check one architecture.

    Args:
        one: The architecture.
        report: Called with the outcome so far after each step, so that it survives a crash or the time limit.
    """
    began, outcome = time.perf_counter(), Outcome(one.family, one.name)

    def report_outcome() -> None:
        outcome.seconds = time.perf_counter() - began
        report(asdict(outcome))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case: Any = one
        for step in (_plain, _trace, _validate, _save):
            try:
                case = step(case, outcome)
            except Exception as error:
                outcome.reasons.append(f"{step.__name__[1:]}: {message(error)}")
                report_outcome()
                return
            report_outcome()


def message(error: BaseException) -> str:
    """Format an exception on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class _Pass:
    """A model with its inputs, and the outputs and CPU time of a run without intus."""

    def __init__(self, model: Any, inputs: Any) -> None:
        self.model, self.inputs = model, inputs
        self.expected: list[Tensor] = []
        self.seconds = 0.0  # CPU seconds of the last run
        self.trace: Any = None

    def run(self) -> list[Tensor]:
        """Run a copy of the model, so that its state is unchanged, and return the tensors of the output."""
        try:
            model = copy.deepcopy(self.model)
        except RuntimeError:  # weights that a hook computes cannot be copied
            model = self.model
        return self.run_itself(model)

    def run_itself(self, model: Any) -> list[Tensor]:
        """Run the model and return the tensors of the output."""
        torch.manual_seed(1)
        inputs = copied(self.inputs)  # a pass may write into a cache among the inputs
        args = inputs if isinstance(inputs, tuple) else () if _named(inputs) else (inputs,)
        began = time.process_time()
        out = model(*args, **(inputs if _named(inputs) else {}))
        self.seconds = time.process_time() - began
        return tensors(out)


def copied(inputs: Any) -> Any:
    """Return a copy of the inputs, or the inputs themselves if they cannot be copied."""
    try:
        return copy.deepcopy(inputs)
    except (RuntimeError, TypeError):
        return inputs


def _named(inputs: Any) -> bool:
    return isinstance(inputs, Mapping)


def build(one: Architecture) -> tuple[Any, Any]:
    """Return the model in eval mode, and its inputs.

    A first pass has run, because it may create lazy layers and caches.
    """
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model, inputs = one.build()
    if isinstance(model, nn.Module):
        model.eval()
    _Pass(model, inputs).run_itself(model)
    return model, inputs


def _plain(one: Architecture, outcome: Outcome) -> Any:
    model, inputs = build(one)
    case = _Pass(model, inputs)
    if isinstance(model, nn.Module):
        outcome.parameters = sum(p.numel() for p in model.parameters())
    first = case.run()
    case.expected = case.run()
    outcome.plain_seconds = case.seconds
    if not case.expected:
        raise ValueError("the model returns no tensor")
    if not _all_equal(first, case.expected):
        raise ValueError("two runs without intus with the same seed differ")
    outcome.plain = True
    return case


def _trace(case: _Pass, outcome: Outcome) -> _Pass:
    before, rng_state = state_of(case.model), torch.get_rng_state()
    given = copied(case.inputs)
    intus.trace(case.model, case.inputs, seed=1)
    began = time.process_time()
    case.trace = intus.trace(case.model, case.inputs, seed=1)
    outcome.trace_seconds = time.process_time() - began
    if not torch.equal(rng_state, torch.get_rng_state()):
        raise AssertionError("the trace changed the random state")
    changed = difference(before, state_of(case.model))
    if changed:
        raise AssertionError(f"the trace changed the model: {changed}")
    if not _all_equal(tensors(given), tensors(case.inputs)):
        raise AssertionError("the trace changed the inputs")
    got = [op.value for op in case.trace.outputs]
    if not _all_equal(case.expected, got):
        raise AssertionError(f"outputs differ: {_shapes(case.expected)} without intus, {_shapes(got)} traced")
    if not _all_equal(case.expected, case.run()):
        raise AssertionError("a run after the trace gives another output")
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
    online = intus.validate(case.model, case.inputs, seed=1)  # validates while the pass runs
    proven_online = {check.label for check in (*online.proven, *online.exempt)}
    running = [check for check in report.unproven if check.label in proven_online]
    outcome.running = len(running)
    bad = [("", check) for check in (*report.failed, *report.unproven) if check not in running]
    bad += [("online: ", check) for check in (*online.failed, *online.unproven)]
    outcome.reasons += [
        f"{prefix}{check.status} {check.label}: {'; '.join(check.reasons)}" for prefix, check in bad
    ]
    if not bad and not online:
        outcome.reasons.append(f"online: {online.fidelity}")
    outcome.validated = not bad and bool(online)
    return case


def _save(case: _Pass, outcome: Outcome) -> _Pass:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.trace"
        try:
            case.trace.save(path)
        except InputError as error:
            if not any(value.is_quantized or value.layout is not torch.strided for value in _values(case)):
                raise
            outcome.refused = message(error)
            return case
        back = intus.load(path)
        if back.graph.labels != case.trace.graph.labels or str(back) != str(case.trace):
            raise AssertionError("the loaded graph differs")
        if back.values.keys() != case.trace.values.keys():
            raise AssertionError("the loaded trace has other values")
        for row in case.trace.values:
            if not _equal(case.trace.values[row], back.values[row]):
                raise AssertionError(f"the loaded value of {back.graph.label(row)} differs")
    outcome.saved = True
    return case


def _values(case: _Pass) -> list[Tensor]:
    return [case.trace.values[row] for row in case.trace.values]


# -- comparing models and values without intus ------------------------------------------------------------


def tensors(value: Any) -> list[Tensor]:
    """Return every tensor in nested tuples, lists, mappings, dataclasses and caches, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for part in value.values() for t in tensors(part)]
    if isinstance(value, tuple | list):
        return [t for part in value for t in tensors(part)]
    if hasattr(value, "__dataclass_fields__"):
        return [t for name in value.__dataclass_fields__ for t in tensors(getattr(value, name, None))]
    if type(value).__module__.startswith("transformers.") and not isinstance(value, type):
        return tensors(list(vars(value).values()))
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
    """Return a snapshot of a model: its tensors and the identity of its attributes."""
    if not isinstance(model, nn.Module):
        return {}
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            found[f"{name}.{key}"] = _snapshot(value)
        for key, value in {**module._parameters, **module._buffers}.items():
            found[f"{name}.{key}"] = _snapshot(value)
    return found


def _snapshot(value: Any) -> Any:
    if isinstance(value, Tensor):
        return id(value), value._version, value.detach().clone()
    if type(value) in (list, dict, set):
        return id(value), len(value)
    return (id(value),)


def difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return the names of what changed, at most five."""
    names = [name for name in {**before, **after} if not _is_same(before.get(name), after.get(name))]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _is_same(one: Any, other: Any) -> bool:
    if one is None or other is None or one[:2] != other[:2] or len(one) != len(other):
        return False
    return len(one) < 3 or _equal(one[2], other[2])
