"""List what a Python file contains that ``intus view`` can show, if the caller named nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..backends import base

MOST = 12  # names that are listed


def choice(source: Path, names: Mapping[str, Any], functions: list[str]) -> str:
    """Return the message that lists the models of a file and the arguments to write for each.

    Args:
        source: The file.
        names: What it defines.
        functions: The names of its own functions and classes.

    Example:
        >>> import torch
        >>> print(choice(Path("net.py"), {"head": torch.nn.Linear(2, 1)}, []))
        net.py needs the name of its model: write
          net.py:head --inputs "input"  a Linear
        with a value for each input, in Python, such as --inputs "randn(1, 3, 8, 8), ones(2)".
    """
    found = list(_modules(source, names))
    if found:
        width = max(len(argument) for argument, _ in found[:MOST])
        lines = [f"  {argument:{width}}  {kind}" for argument, kind in found[:MOST]]
        if len(found) > MOST:
            lines.append(f"  and {len(found) - MOST} more")
        models = f"one of its {len(found)} models" if len(found) > 1 else "its model"
        end = 'with a value for each input, in Python, such as --inputs "randn(1, 3, 8, 8), ones(2)".'
        return "\n".join([f"{source} needs the name of {models}: write", *lines, end])
    if functions:
        listed = ", ".join(functions[:MOST])
        return (
            f"{source} defines no model (torch.nn.Module, …), neither a class nor an instance. If a function "
            f"of it makes the model, write {source}:'{functions[0]}()'. To show the function itself, write "
            f"{source}:{functions[0]}. Its functions and classes: {listed}."
        )
    nothing = f"{source} defines nothing to show: no model (torch.nn.Module, …) and no function."
    if "__main__" not in source.read_text(encoding="utf-8", errors="replace"):
        return nothing
    guarded = "Code below `if __name__ == '__main__'` does not run here"
    return f"{nothing} {guarded}: make the model above it, or in a function."


def _modules(source: Path, names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the argument to write for each model and each class of models, and what it is; models first."""
    from ..tracing.models import is_model_class, is_module

    public = {name: value for name, value in names.items() if not name.startswith("_")}
    for name, value in public.items():
        if is_module(value) or base.find(value) is not None:
            yield f"{source}:{name}{_inputs(getattr(value, 'forward', value))}", f"a {type(value).__name__}"
    for name, value in public.items():
        if is_model_class(value) and value.__module__.partition(".")[0] not in base.known():
            takes = ", ".join(_required(value))
            called = f"'{name}({takes})'" if takes else name
            forward = _inputs(getattr(value, "forward", value.__call__), skip=1)
            yield f"{source}:{called}{forward}", f"a class that takes {takes}" if takes else "a class"


def _inputs(forward: Callable[..., Any], skip: int = 0) -> str:
    names = ", ".join(_required(forward)[skip:])
    return f' --inputs "{names}"' if names else ""


def _required(call: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that have no default."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return []
    needed = [one for one in parameters if one.default is one.empty]
    return [
        f"{one.name}=…" if one.kind is one.KEYWORD_ONLY else one.name
        for one in needed
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
