"""Find out which framework runs what a caller wants to trace, without importing one."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from ..backends import base
from ..backends.tracing import Traces
from ..core.errors import InputError, MissingExtraError, missing_packages
from .results.trace import Trace

if TYPE_CHECKING:
    from .front_door import Arguments


def is_module(value: Any) -> bool:
    """Return whether a value is a module of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_script(value: Any) -> bool:
    """Return whether a value is a module that ``torch.jit`` compiled."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.jit.ScriptModule)


def is_module_class(value: Any) -> bool:
    """Return whether a value is a class of modules of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, type) and issubclass(value, torch.nn.Module)


def is_model_class(value: Any) -> bool:
    """Return whether a value is a class of modules of PyTorch, or any class of another framework."""
    if is_module_class(value):
        return True
    return isinstance(value, type) and bool(set(base.frameworks_of(value)) - {"torch"})


def backend_of(verb: str, model: Any, given: Arguments) -> Traces | None:
    """Return the backend that traces a model of another framework; None for what PyTorch runs.

    Args:
        verb: The function that the caller called.
        model: Its first argument.
        given: The arguments for the model, which may hold the model by mistake.

    Raises:
        InputError: If ``model`` is nothing to run, or its framework cannot be traced.
    """
    if (inner := _wrapped_model(model)) is not None:
        raise InputError(
            f"{verb} runs a model itself, got a function around a {type(inner).__name__} (jit, vmap or "
            f"another). Pass the {type(inner).__name__}: {verb}(model, inputs)."
        )
    backend = _other(model)
    if backend is None:
        _must_run(verb, model, given)
        return None
    if isinstance(model, MethodType):
        raise InputError(
            f"{verb} runs a model of {backend.name} as a whole, got its method {model.__name__!r}. Pass the "
            "model."
        )
    if not isinstance(backend, Traces):
        raise InputError(
            f"{verb} cannot run a model of {backend.name}, because its backend records no graph. probe and "
            "inspect take it."
        )
    return backend


def require_torch(verb: str) -> None:
    """Raise MissingExtraError if PyTorch, which runs functions, is not installed.

    Args:
        verb: The function that the caller called.
    """
    if find_spec("torch") is None:
        message = missing_packages(f"intus.{verb}", ["torch"], "torch")
        if others := [framework for framework in base.known() if find_spec(framework) is not None]:
            message = (
                f"{verb} got a function, which only PyTorch runs, and torch is not installed. Pass the model "
                f"itself, of {' or '.join(others)}: {verb}(model, inputs)."
            )
        raise MissingExtraError(message)


def must_be_torch(verb: str, model: Any, given: Arguments) -> None:
    """Raise InputError if ``model`` is nothing that PyTorch runs.

    Args:
        verb: The function that the caller called.
        model: Its first argument.
        given: The arguments for the model.
    """
    backend = _other(model)
    if backend is not None:
        raise InputError(f"{verb} takes models of PyTorch, and this is one of {backend.name}.")
    _must_run(verb, model, given)


def _other(model: Any) -> base.Backend | None:
    """Return the backend of a model, or of the model of a method; None for PyTorch's and for functions."""
    if isinstance(model, MethodType):
        model = model.__self__
    if isinstance(model, FunctionType | BuiltinFunctionType) or _is_of_torch_alone(model):
        return None
    return base.find(model)


def _is_of_torch_alone(value: Any) -> bool:
    """Return whether a value is a module of PyTorch, and of no framework that runs on it, as Keras does."""
    return is_module(value) and base.frameworks_of(type(value))[0] == "torch"


def _wrapped_model(function: Any) -> Any:
    """Return the model of another framework than PyTorch that a function was made of, or None."""
    if is_module(function) or isinstance(function, type):
        return None
    while (inner := getattr(function, "__wrapped__", None)) is not None and inner is not function:
        if _other(inner) is not None and not isinstance(inner, MethodType):
            return inner
        function = inner
    return None


def _must_run(verb: str, model: Any, given: Arguments) -> None:
    """Raise InputError if ``model`` is neither a module nor a function."""
    if is_model_class(model):
        raise InputError(
            f"{verb} needs a module, and {model.__name__} is a class: write {model.__name__}(…) to make one."
        )
    base.refuse_functions(model)
    if callable(model):
        return
    message = f"{verb} needs a module or a function to run, got {_described(model)}."
    modules = [one for one in given.args if is_module(one)]
    if isinstance(model, Trace):
        message = (
            f"{verb} runs a model, got a trace, whose pass ran already. A trace has methods of its own, such "
            "as validate() and show()."
        )
    elif modules:
        message += f" The model comes first: write {verb}({type(modules[0]).__name__.lower()}, inputs)."
    elif isinstance(model, Mapping) and any(hasattr(one, "shape") for one in model.values()):
        message += " Weights do not run: make the model, call its load_state_dict, and pass the model."
    elif isinstance(model, str | Path):
        message += (
            " To read a saved trace, write load(path), and a model file read(path). A model is passed "
            "itself, not by its name."
        )
    elif not hasattr(model, "shape"):
        message += f" It is a model of none of these frameworks: {', '.join(base.known())}."
    raise InputError(message)


def _described(value: Any) -> str:
    """Describe a value in less than a line.

    >>> _described(torch.ones(2, 3)), _described({"weight": 1}), _described("resnet50")
    ('a Tensor of shape (2, 3)', 'a dict of 1', "'resnet50'")
    """
    kind = type(value).__name__
    if hasattr(value, "shape"):
        return f"a {kind} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping | list | tuple | set):
        return f"a {kind} of {len(value)}"
    if isinstance(value, str | bytes | int | float | None):
        return reprlib.repr(value)
    return f"{'an' if kind[:1].lower() in 'aeio' else 'a'} {kind}"
