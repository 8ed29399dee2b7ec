"""intus: see inside any neural network.

Four verbs: ``trace`` and ``view`` show what runs in a model, ``probe`` shows what each layer learns during
training, ``inspect`` shows which units respond to a hypothesis. Names are loaded on first use: importing
intus imports no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .core.errors import Unavailable, missing_packages

if TYPE_CHECKING:
    from . import backends, hypotheses, scores
    from .core.address import Address
    from .core.errors import IntusError
    from .core.graph import Graph
    from .core.record import Record
    from .core.results import Results
    from .inspection import Dictionary, Directions, hypothesis, inspect
    from .inspection.query import query
    from .monitoring import clear, flush, probe, register_targets, remove
    from .reporting import runs
    from .serving.run import serve
    from .tracing.collect import collect
    from .tracing.comparison.check_export import check_export
    from .tracing.comparison.compare import compare
    from .tracing.load import load
    from .tracing.read import read
    from .tracing.results.op import Op
    from .tracing.results.trace import Trace
    from .tracing.run import trace
    from .tracing.validation.validate import validate
    from .tracing.view import view
    from .tracing.why_nan import why_nan
    from .viewing.html import View

__version__ = "0.1.0"

#: Every public name, and the module that defines it ("" for a name that is itself a module).
_MODULES = {
    "Address": ".core.address",
    "Dictionary": ".inspection",
    "Directions": ".inspection",
    "Graph": ".core.graph",
    "IntusError": ".core.errors",
    "Op": ".tracing.results.op",
    "Record": ".core.record",
    "Results": ".core.results",
    "Trace": ".tracing.results.trace",
    "View": ".viewing.html",
    "backends": "",
    "check_export": ".tracing.comparison.check_export",
    "clear": ".monitoring",
    "collect": ".tracing.collect",
    "compare": ".tracing.comparison.compare",
    "flush": ".monitoring",
    "hypotheses": "",
    "hypothesis": ".inspection",
    "inspect": ".inspection",
    "load": ".tracing.load",
    "probe": ".monitoring",
    "query": ".inspection.query",
    "read": ".tracing.read",
    "register_targets": ".monitoring",
    "remove": ".monitoring",
    "runs": ".reporting",
    "scores": "",
    "serve": ".serving.run",
    "trace": ".tracing.run",
    "validate": ".tracing.validation.validate",
    "view": ".tracing.view",
    "why_nan": ".tracing.why_nan",
}

#: The extra that installs what the modules of a folder import.
_EXTRAS = {"tracing": "torch", "serving": "server"}

__all__ = [
    "Address",
    "Dictionary",
    "Directions",
    "Graph",
    "IntusError",
    "Op",
    "Record",
    "Results",
    "Trace",
    "View",
    "backends",
    "check_export",
    "clear",
    "collect",
    "compare",
    "flush",
    "hypotheses",
    "hypothesis",
    "inspect",
    "load",
    "probe",
    "query",
    "read",
    "register_targets",
    "remove",
    "runs",
    "scores",
    "serve",
    "trace",
    "validate",
    "view",
    "why_nan",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'intus' has no attribute {name!r}")
    module = _MODULES[name]
    try:
        value = importlib.import_module(module or f".{name}", __name__)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(module.split(".")[1]) if module else None
        if extra is None or package in ("", __name__):
            raise
        return Unavailable(missing_packages(f"intus.{name}", [package], extra))  # tried again next time
    value = getattr(value, name) if module else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
