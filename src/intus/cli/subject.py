"""What a command line names: a model in a Python file, or a saved trace."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..core.errors import CodecError, InputError, did_you_mean
from .choice import choice

if TYPE_CHECKING:
    from ..tracing.results.trace import Trace

_HOW = "Write FILE.py:NAME, or the path of a saved trace."
_RUN = "__intus_view__"  # the __name__ of a file that is run
_SUCH = '--inputs "randn(1, 3, 8, 8), ones(2)"'
_WEIGHTS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".onnx", ".h5", ".keras")


@dataclass(frozen=True)
class Subject:
    """A model with the ``names`` of its file, or a trace; ``name`` is what the caller wrote."""

    name: str
    what: Callable[..., Any] | Trace
    names: Mapping[str, Any]

    def traced(self, values: Any, written: str | None, *, save: str) -> Trace:
        """The trace, read or taken now; where the model raises, as far as it came.

        Raises InputError where it did not begin; ``written`` is what stood after ``--inputs``.
        """
        from ..tracing.results.trace import Trace
        from ..tracing.run import trace

        if isinstance(self.what, Trace):
            return self.what
        found = trace(self.what, values, save=save, seed=0, on_error="keep")
        if not found.graph.error or len(found.ops):
            return found
        on = "without --inputs" if written is None else f"on --inputs {written!r}"
        raised = found.graph.facts.get("raised")
        if raised:  # in the model's own code
            more = f" ({raised['file']}, line {raised['line']})"
        else:
            more = f". It takes {_signature(self.what)}: {_advice(self)}"
        raise InputError(f"{self.name} cannot run {on}: {found.graph.error}{more}.")


def subject(written: str) -> Subject:
    """What ``FILE.py:NAME`` or a trace's path means; raises InputError with what to write instead."""
    path, colon, name = written.partition(".py:")
    source = Path(f"{path}.py" if colon else written)
    if not source.exists():
        raise InputError(f"There is no file {str(source)!r}. {_near(source)}{_HOW}")
    if not colon and source.suffix != ".py":
        return Subject(written, _loaded(source), {})
    with _seeded():
        names = _names_of(source)
        if not name:
            raise InputError(choice(source, names, _callables(names)))
        return Subject(written, _model(source, name, names), names)


def inputs(written: str | None, *subjects: Subject) -> Any:
    """The value of ``--inputs``, with the names of torch and of the files, the first before the second."""
    import torch

    from ..tracing.results.trace import Trace

    if written is None:
        return ()
    if all(isinstance(one.what, Trace) for one in subjects):
        raise InputError(f"--inputs {written!r}: no model runs, a trace was recorded before. Leave it out.")
    names = {**vars(torch), "torch": torch}
    for one in reversed(subjects):
        names |= one.names
    with _seeded():
        return _evaluate(written, names, f"--inputs {written!r}", f"Write Python, such as {_SUCH}.")


def _loaded(source: Path) -> Trace:
    from ..tracing.load import load

    try:
        return load(source)
    except CodecError as error:
        advice = f"A model is written FILE.py:NAME. {error}"
        if source.suffix in _WEIGHTS:
            advice = (
                f"It may hold weights; the model is in the code that loads them: write FILE.py:NAME. {error}"
            )
        raise InputError(f"{source} is no trace that this intus can read. {advice}") from None


def _model(source: Path, name: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    import torch

    written = f"{source}:{name}"
    known = _callables(names)
    if name.isidentifier() and name not in names:
        raise InputError(f"{source} has no {name!r}. {did_you_mean(name, known)}")
    model = _evaluate(name, names, written, f"Write {source}:NAME, or {source}:'NAME(…)' with arguments.")
    if isinstance(model, type):
        takes = f"{model.__name__} takes {_signature(model)}: write {source}:'{name}(…)' with its arguments."
        model = _evaluate(f"({name})()", names, written, takes)
    if isinstance(model, ModuleType | torch.Tensor) or not callable(model):
        kind = type(model).__name__
        raise InputError(f"{written} is of type {kind}, and not a model to run. {did_you_mean(name, known)}")
    return model  # type: ignore[no-any-return]


def _callables(names: Mapping[str, Any]) -> list[str]:
    """Names of what might be run, those that the file itself defines."""
    return [
        key
        for key, value in names.items()
        if callable(value) and not key.startswith("_") and getattr(value, "__module__", _RUN) == _RUN
    ]


def _names_of(source: Path) -> dict[str, Any]:
    """What a file defines, run with its own folder to import from, as ``python FILE.py`` would."""
    import runpy

    from ..tracing.failure import raised_at

    folder = str(source.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(source), run_name=_RUN)
    except (Exception, SystemExit) as error:
        at = None if isinstance(error, SyntaxError) else raised_at(error, None)  # which says it itself
        where = f" ({at['file']}, line {at['line']})" if at else ""
        lacks = isinstance(error, ModuleNotFoundError)
        advice = f" Install it for {sys.executable}, or run intus where it is." if lacks else ""
        raise InputError(f"{source} does not run: {type(error).__name__}: {error}{where}.{advice}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _near(source: Path) -> str:
    """What lies in that folder under a similar name."""
    module = Path(str(source).partition(":")[0] + ".py")
    if ":" in source.name and module.is_file():
        return f"Did you mean {module}:{source.name.partition(':')[2]}? "
    folder = source.parent
    if not folder.is_dir():
        return f"Nor is there a folder {str(folder)!r}. "
    there = [one.name for one in folder.iterdir() if one.suffix in (".py", ".trace")]
    near = did_you_mean(source.name, there) if there else ""
    return f"{near} " if near.startswith("Did") else ""


def _signature(what: Any) -> str:
    """The arguments as its definition has them."""
    try:
        forward = getattr(what, "forward", what) if not isinstance(what, type) else what
        return str(inspect.signature(forward))
    except (TypeError, ValueError):
        return "(…)"


def _advice(subject: Subject) -> str:
    """How to write what a model takes."""
    every = f"write a value for each, such as {_SUCH}"
    try:
        what: Any = getattr(subject.what, "forward", subject.what)
        taken = inspect.signature(what).parameters.values()
    except (TypeError, ValueError):
        return every
    if not taken:
        return f"if it makes the model, write {subject.name}()"
    by_name = any(one.kind is one.KEYWORD_ONLY for one in taken)
    named = ", ".join(f"{one.name}=…" for one in taken)
    return f'{every}, or by name: "dict({named})"' if by_name else every


def _evaluate(expression: str, names: Mapping[str, Any], what: str, advice: str) -> Any:
    """The value of what the caller wrote as Python, or what is wrong with it in a sentence."""
    try:
        return eval(expression.strip(), dict(names))
    except (Exception, SystemExit) as error:
        raise InputError(f"{what} does not work: {type(error).__name__}: {error}. {advice}") from None


@contextmanager
def _seeded() -> Iterator[None]:
    """Random numbers from seed 0, so that a model built twice is the same twice."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
