"""Let judges that know nothing of intus say what they think of the trace of an architecture."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

import intus

from .architecture import Architecture
from .check import build, message
from .judges import opinions
from .judges.edges import judge


@dataclass
class OpinionsOutcome:
    """The results of the judges for one architecture.

    Attributes:
        family: The family of the architecture.
        name: Its name.
        plain: Whether it runs without intus.
        compared: By judge: how many values or pairs it compared.
        wrong: What it disagrees with: ``judge | why``.
        absent: Why a judge says nothing, by judge.
        seconds: Seconds of the whole check.
        reasons: What stopped the check.
    """

    family: str
    name: str
    plain: bool = False
    compared: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True if something did not agree."""
        return bool(self.wrong)


def check_opinions(one: Architecture, report: Callable[[dict[str, Any]], None]) -> None:
    """Ask every judge that can say something about an architecture."""
    began, outcome = time.perf_counter(), OpinionsOutcome(one.family, one.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.no_grad():  # a cache of computed tensors could not be copied with its history
                model, inputs = build(one)
        except Exception as error:
            outcome.reasons.append(message(error))
            report(asdict(outcome))
            return
        outcome.plain = True
        args, kwargs = _arguments(inputs)
        with torch.no_grad():
            trace = intus.trace(model, args, kwargs=kwargs, seed=1)
        for name, ask in _judges(one, model, args, kwargs, trace).items():
            try:
                opinion = ask()
            except Exception as error:
                outcome.absent[name] = message(error)[:200]
                continue
            outcome.compared[name] = opinion.compared
            outcome.wrong += [f"{name} | {why}" for why in opinion.wrong[:20]]
            outcome.seconds = time.perf_counter() - began
            report(asdict(outcome))
    report(asdict(outcome))


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), {str(name): value for name, value in inputs.items()}
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def _judges(
    one: Architecture, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trace: intus.Trace
) -> dict[str, Callable[[], opinions.Opinion]]:
    """Return the judges that can say something about the architecture, by name."""

    def autograd() -> opinions.Opinion:
        found = judge(model, args, kwargs)
        wrong = [f"lost {one}" for one in found.lost] + [f"invented {one}" for one in found.invented]
        return opinions.Opinion(
            found.pairs + found.parameters, wrong + [f"no call equals {one}" for one in found.unmatched]
        )

    def asked(judge_: Callable[..., opinions.Opinion]) -> Callable[[], opinions.Opinion]:
        def ask() -> opinions.Opinion:
            with torch.no_grad():
                return judge_(model, args, kwargs, trace)

        return ask

    def states() -> opinions.Opinion:
        model.set_attn_implementation("eager")
        with torch.no_grad():
            return opinions.hidden_states(
                model, args, kwargs, intus.trace(model, args, kwargs=kwargs, seed=1)
            )

    def exported() -> opinions.Opinion:
        cached = getattr(getattr(model, "config", None), "use_cache", False)
        given = {**kwargs, "use_cache": False} if cached else kwargs  # torch cannot export a cache
        with torch.no_grad():
            return opinions.exported(model, args, given, intus.trace(model, args, kwargs=given, seed=1))

    found: dict[str, Callable[[], opinions.Opinion]] = {"autograd": autograd}
    if isinstance(model, nn.Module):
        found["forward hooks"] = asked(opinions.forward_hooks)
        found["FlopCounterMode"] = asked(opinions.flop_counter)
        found["torch.export"] = exported
        if one.family == "torchvision":
            found["torchvision.feature_extraction"] = asked(opinions.feature_extraction)
        if one.family.startswith("transformers"):
            found["output_hidden_states"] = states
    return found
