"""Check an operator or module on torch's own test inputs; every step counts what agreed."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import intus
from intus.core.errors import InputError

from .check import difference, message, state_of, tensors
from .judges.edges import judge
from .torch_inputs import Case, Subject, copies

#: What each step proves, in the order of the table.
STEPS = {
    "equal": "same outputs as without intus, bit for bit",
    "unchanged": "inputs, state and random state unchanged",
    "valid": "`Trace.validate` and `intus.validate`: nothing failed, nothing unproven",
    "rerun": "`rerun({})` gives the same outputs",
    "saved": "saved and loaded, or refused as documented",
    "gradients": "gradients through `trace(grads=True)` equal to those without intus, bit for bit",
    "edges": "edges agree with autograd",
}


@dataclass
class InputsOutcome:
    """The result of checking an operator or a module.

    Attributes:
        family: ``"operators"`` or ``"modules"``.
        name: The name in torch's table.
        counts: How many cases there were (``cases``), how many run without intus and give equal outputs
            twice (``ran``), and of each step how often it was tried (``equal``) and agreed (``equal ok``).
            Also the numbers of operations, of proven and exempt rows, and of pairs that autograd judged.
        wrong: What did not agree: ``step | case | why``.
        refused: Why ``save`` refused, with counts.
        seconds: Seconds of the whole check.
    """

    family: str
    name: str
    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True if something did not agree, or the process ended early."""
        return bool(self.wrong) or any(not why.startswith("torch gives") for why in self.reasons)


def check_inputs(one: Subject, report: Callable[[dict[str, Any]], None]) -> None:
    """Check an operator or a module, and report after each case."""
    began, checker = time.perf_counter(), _Checker(InputsOutcome(one.family, one.name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for case in one.cases():
                checker.check(case)
                checker.outcome.counts = dict(checker.counts)
                checker.outcome.seconds = time.perf_counter() - began
                report(asdict(checker.outcome))
        except Exception as error:  # torch's own generator of samples
            checker.outcome.reasons.append(f"torch gives no inputs: {message(error)}")
        report(asdict(checker.outcome))


class _Checker:
    def __init__(self, outcome: InputsOutcome) -> None:
        self.outcome, self.counts = outcome, Counter[str]()

    def check(self, case: Case) -> None:
        """Check one case: each step by itself, so that a failure of one does not hide another."""
        self.counts["cases"] += 1
        try:
            expected, again = _plain(case), _plain(case)
        except Exception:  # torch refuses this form of the call
            self.counts["refused by torch"] += 1
            return
        if not expected:
            self.counts["no tensor"] += 1
            return
        if "empty" in self.outcome.name or not all_equal(expected, again):
            self.counts["not reproducible"] += 1
            return
        self.counts["ran"] += 1
        trace = self._step("equal", case, lambda: self._equal(case, expected))
        if trace is None:
            return
        self._step("valid", case, lambda: self._valid(case, trace))
        self._step("rerun", case, lambda: self._rerun(trace, expected))
        self._step("saved", case, lambda: self._saved(trace))
        if case.differentiable:
            grads = _gradients(case)
            if grads is not None:
                self._step("gradients", case, lambda: self._gradients(case, grads))
            self._step("edges", case, lambda: self._edges(case))

    def _step(self, name: str, case: Case, run: Callable[[], Any]) -> Any:
        self.counts[name] += 1
        try:
            result = run()
        except Exception as error:
            self.outcome.wrong.append(f"{name} | {case.name} | {message(error)}")
            return None
        self.counts[f"{name} ok"] += 1
        return result

    def _equal(self, case: Case, expected: list[Tensor]) -> Any:
        model, inputs, kwargs = _fresh(case)
        before, state, rng = copies((inputs, kwargs)), state_of(model), torch.get_rng_state()
        trace = intus.trace(model, inputs, kwargs=kwargs, seed=1)
        got = [op.value for op in trace.outputs]
        if not all_equal(expected, got):
            raise AssertionError("the outputs differ")
        if trace.maybe_modified:
            raise AssertionError(f"{len(trace.maybe_modified)} values are maybe_modified")
        self.counts["operations"] += len(trace)

        def unchanged() -> bool:
            if not all_equal(tensors(before), tensors((inputs, kwargs))):
                raise AssertionError("the inputs changed")
            if changed := difference(state, state_of(model)):
                raise AssertionError(f"the model changed: {changed}")
            if not torch.equal(rng, torch.get_rng_state()):
                raise AssertionError("the random state changed")
            return True

        self._step("unchanged", case, unchanged)
        return trace

    def _valid(self, case: Case, trace: Any) -> bool:
        report = trace.validate()
        self.counts["proven"] += len(report.proven)
        self.counts["exempt"] += len(report.exempt)
        model, inputs, kwargs = _fresh(case)
        online = intus.validate(model, inputs, kwargs=kwargs, seed=1)
        bad = [
            f"{one.status} {one.label}: {'; '.join(one.reasons)}"
            for one in (*report.failed, *report.unproven)
        ]
        bad += [
            f"online {one.status} {one.label}: {'; '.join(one.reasons)}"
            for one in (*online.failed, *online.unproven)
        ]
        if bad:
            raise AssertionError(bad[0])
        return True

    def _rerun(self, trace: Any, expected: list[Tensor]) -> bool:
        if not all_equal(expected, [op.value for op in trace.rerun({}).outputs]):
            raise AssertionError("the outputs differ")
        return True

    def _saved(self, trace: Any) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.trace"
            try:
                trace.save(path)
            except InputError as error:  # documented: sparse, complex128 …
                why = " ".join(str(error).split(" is ", 1)[-1].split(" and ", 1)[0].split())
                self.outcome.refused[why] = self.outcome.refused.get(why, 0) + 1
                return True
            back = intus.load(path)
            if back.graph.labels != trace.graph.labels or back.values.keys() != trace.values.keys():
                raise AssertionError("the loaded trace has other rows")
            for row in trace.values:
                if not equal(trace.values[row], back.values[row]):
                    raise AssertionError(f"the loaded value of {back.graph.label(row)} differs")
        return True

    def _gradients(self, case: Case, expected: list[Tensor | None]) -> bool:
        model, (inputs, kwargs) = _fresh(case)[0], _leaves(case)
        trace = intus.trace(model, inputs, kwargs=kwargs, seed=1, grads=True)
        _loss(tensors(trace.output)).backward()
        for number, (want, got) in enumerate(zip(expected, _grads_of(model, inputs, kwargs), strict=True)):
            if (want is None) != (got is None) or (want is not None and not equal(want, got)):
                raise AssertionError(f"gradient {number} differs")
        return True

    def _edges(self, case: Case) -> bool:
        found = judge(case.model, case.inputs, case.kwargs)
        self.counts["pairs"] += found.pairs + found.parameters
        self.counts["followed"] += found.operations
        for what in ("lost", "invented", "unmatched"):
            if names := getattr(found, what):
                raise AssertionError(f"{what}: {'; '.join(names[:3])}")
        return True


# -- runs without intus -----------------------------------------------------------------------------------


def _fresh(case: Case) -> tuple[Any, Any, Any]:
    """Return copies of the model and its arguments."""
    model = copies(case.model) if isinstance(case.model, nn.Module) else case.model
    return model, *copies((case.inputs, case.kwargs))


def _plain(case: Case) -> list[Tensor]:
    model, inputs, kwargs = _fresh(case)
    torch.manual_seed(1)
    return tensors(model(*inputs, **kwargs))


def _leaves(case: Case) -> Any:
    inputs, kwargs = copies((case.inputs, case.kwargs))
    for tensor in tensors((inputs, kwargs)):
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.requires_grad_()
    return inputs, kwargs


def _gradients(case: Case) -> list[Tensor | None] | None:
    """Return the gradients of inputs and parameters; None if torch gives none."""
    model, (inputs, kwargs) = _fresh(case)[0], _leaves(case)
    torch.manual_seed(1)
    try:
        _loss(tensors(model(*inputs, **kwargs))).backward()
    except Exception:
        return None
    return _grads_of(model, inputs, kwargs)


def _grads_of(model: Any, inputs: Any, kwargs: Any) -> list[Tensor | None]:
    params = list(model.parameters()) if isinstance(model, nn.Module) else []
    return [tensor.grad for tensor in (*tensors((inputs, kwargs)), *params)]


def _loss(outputs: list[Tensor]) -> Tensor:
    """Return a scalar that weighs every element of every differentiable output differently."""
    generator, total = torch.Generator().manual_seed(2), torch.zeros(())
    for out in outputs:
        if out.requires_grad:
            dense = out.to_dense() if out.layout is not torch.strided else out
            weights = torch.rand(dense.shape, generator=generator, dtype=torch.float32)
            product = (dense * weights.to(dense.dtype)).sum()
            total = total + (product.real + product.imag if product.is_complex() else product)
    return total


def equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of any layout are equal, bit for bit up to the payload of NaN."""
    if a.dtype != b.dtype or a.layout != b.layout:
        return False
    if a.is_nested:
        return all_equal(list(a.unbind()), list(b.unbind()))
    if a.shape != b.shape:
        return False
    a, b = (t.detach().resolve_conj().resolve_neg() for t in (a, b))
    if a.is_quantized:
        a, b = a.dequantize(), b.dequantize()
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def all_equal(some: list[Tensor], others: list[Tensor]) -> bool:
    """Return whether two lists of tensors are equal."""
    return len(some) == len(others) and all(map(equal, some, others))
