"""Resolve what a command line names: a model in a Python file or module, a model file, or a saved trace."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import base
from ..core.errors import InputError, IntusError, check_installed, did_you_mean
from ..reading import ENDINGS
from .choice import choice
from .numpy_names import numpy_names

if TYPE_CHECKING:
    from ..tracing.results.trace import Trace

_HOW = "Write FILE.py:NAME, MODULE:NAME, or the path of a model file or a saved trace."
#: ``MODULE:NAME``, such as ``torchvision.models:resnet18``.
_IN_MODULE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):(?!:)(.+)", re.DOTALL)
_RUN = "__intus_view__"  # __name__ of the file while it runs
_EXAMPLE = '--inputs "randn(1, 3, 8, 8), ones(2)"'


@dataclass(frozen=True)
class Subject:
    """A model of a Python file or module, a model file, or a trace.

    Attributes:
        name: What the caller wrote.
        what: The model, the path of the model file, or the trace.
        names: What the Python file or module defines; empty for others.
    """

    name: str
    what: Callable[..., Any] | Path | Trace
    names: Mapping[str, Any]

    def traced(self, values: Any, written: str | None, *, save: str) -> Trace:
        """Return the trace: the one that was read, or one taken now, up to an exception of a torch model.

        Args:
            values: The inputs of the model.
            written: What the caller wrote after ``--inputs``; None if nothing.
            save: What to save, as in ``trace``.

        Raises:
            InputError: If the model raised before it ran any operation.
        """
        from ..tracing.front_door import arguments
        from ..tracing.models import backend_of
        from ..tracing.read import read
        from ..tracing.results.trace import Trace
        from ..tracing.run import trace

        if isinstance(self.what, Trace):
            return self.what
        given = arguments((values,), None)
        if isinstance(self.what, Path):
            return read(self.what, *given.args, **given.kwargs)
        on = "without --inputs" if written is None else f"on --inputs {written!r}"
        if backend_of("intus view", self.what, given) is not None:
            try:
                return trace(self.what, given, save=save, kwargs={})
            except IntusError:
                raise
            except Exception as error:  # of the model
                raise InputError(
                    f"{self.name} cannot run {on}: {type(error).__name__}: {error}. It takes "
                    f"{_signature(self.what)}: {_advice(self)}."
                ) from error
        result = trace(self.what, given, save=save, seed=0, on_error="keep", kwargs={})
        if not result.graph.error or len(result.ops):
            return result
        raised = result.graph.facts.get("raised")
        if raised:  # in the model's own code
            more = f" ({raised['file']}, line {raised['line']})"
        else:
            more = f". It takes {_signature(self.what)}: {_advice(self)}"
        raise InputError(f"{self.name} cannot run {on}: {result.graph.error}{more}.")

    def check_given(self, written: str | None) -> None:
        """Raise InputError if this is a model file that takes inputs, and there are none.

        Args:
            written: What the caller wrote after ``--inputs``; None if nothing.
        """
        if written is not None or not isinstance(self.what, Path):
            return
        from ..tracing.read import read

        trace = read(self.what)
        names = trace.graph.facts.get("inputs", ())
        if names and all(op.dtype for op in trace.inputs):  # TorchScript has none, and takes no inputs
            values = ", ".join(_example(op.shape, op.dtype) for op in trace.inputs)
            raise InputError(
                f'{self.name} takes {", ".join(names)}: write a value for each, such as --inputs "{values}".'
            )


def subject(written: str) -> Subject:
    """Return what ``FILE.py:NAME``, ``MODULE:NAME`` or the path of a model file or a trace means.

    Args:
        written: What the caller wrote.

    Raises:
        InputError: If it means nothing; the message says what to write instead.
        MissingExtraError: If it is a model, and no framework is installed.
    """
    from ..tracing.read import is_model_file

    path, colon, name = written.partition(".py:")
    source = Path(f"{path}.py" if colon else written)
    is_code = bool(colon) or source.suffix == ".py" or not source.exists()
    if is_code and not is_model_file(source) and not any(map(importlib.util.find_spec, base.known())):
        check_installed("intus view", ["torch"], "torch")
    if not (colon or source.exists()) and (in_module := _IN_MODULE.fullmatch(written)):
        with seeded():
            names = _names_of_module(in_module[1])
            return Subject(written, _model(in_module[1], in_module[2], names), names)
    if not source.exists():
        raise InputError(f"There is no file {str(source)!r}. {_near(source)}{_HOW}")
    if is_model_file(source):
        return Subject(written, source, {})
    if not colon and source.suffix != ".py":
        return Subject(written, _loaded(source), {})
    with seeded():
        names = _names_of(source)
        if not name:
            raise InputError(choice(source, names, _callables(names)))
        return Subject(written, _model(str(source), name, names), names)


def inputs(written: str | None, *subjects: Subject) -> Any:
    """Evaluate ``--inputs`` with the names of torch and of the files, of which the first takes precedence.

    Where torch is not installed, the names are those of numpy and ``numpy.random``; see ``numpy_names``.

    Args:
        written: The expression; None if there is none.
        *subjects: The models, model files or traces.

    Returns:
        The inputs, as ``trace`` takes them.

    Raises:
        InputError: If the expression does not work, or there is no model to run.
    """
    from ..tracing.results.trace import Trace

    if written is None:
        return ()
    if all(isinstance(one.what, Trace) for one in subjects):
        raise InputError(f"--inputs {written!r}: no model runs, a trace was recorded before. Leave it out.")
    if importlib.util.find_spec("torch") is None:
        names = numpy_names()
    else:
        torch = importlib.import_module("torch")
        names = {**vars(torch), "torch": torch, "np": np}
    for one in reversed(subjects):
        names |= one.names
    with seeded():
        return _evaluate(written, names, f"--inputs {written!r}", f"Write Python, such as {_EXAMPLE}.")


def _loaded(source: Path) -> Trace:
    from ..tracing.load import load_to_show

    try:
        return load_to_show(source)
    except IntusError as error:
        what = f"{source} is no trace that this version of intus can read. " * (source.suffix == ".trace")
        raise InputError(f"{what}{error} A model in Python is written FILE.py:NAME.") from None


def _model(source: str, name: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    written = f"{source}:{name}"
    known = _callables(names)
    if name.isidentifier() and name not in names:
        raise InputError(f"{source} has no {name!r}. {did_you_mean(name, known)}")
    model = _evaluate(name, names, written, f"Write {source}:NAME, or {source}:'NAME(…)' with arguments.")
    if isinstance(model, type):
        takes = _signature(model)
        advice = f"{model.__name__} takes {takes}: write {source}:'{name}(…)' with its arguments."
        model = _evaluate(f"({name})()", names, written, advice)
    elif _makes_module(model):
        advice = f"It makes the model and takes {_signature(model)}: write {source}:'{name}(…)'."
        model = _evaluate(f"({name})()", names, written, advice)
    if isinstance(model, ModuleType) or not callable(model):
        kind = type(model).__name__
        raise InputError(f"{written} is of type {kind}, not a model to run. {did_you_mean(name, known)}")
    return model  # type: ignore[no-any-return]


def _makes_module(function: Any) -> bool:
    """Return whether a function is declared to return a module, as those of torchvision are."""
    from ..tracing.models import is_model_class

    if not inspect.isfunction(function):
        return False
    try:
        made = inspect.signature(function, eval_str=True).return_annotation
    except Exception:  # an annotation that cannot be evaluated
        return False
    return is_model_class(made)


def _callables(names: Mapping[str, Any]) -> list[str]:
    """Return the names of callables that the file or module itself, or its package, defines."""
    own = names.get("__name__", _RUN).partition(".")[0]
    return [
        key
        for key, value in names.items()
        if callable(value)
        and not key.startswith("_")
        and str(getattr(value, "__module__", own)).partition(".")[0] == own
    ]


def _names_of_module(module: str) -> dict[str, Any]:
    """Import a module as ``python -m`` would, from the current folder too, and return what it defines."""
    sys.path.insert(0, "")
    try:
        return dict(vars(importlib.import_module(module)))
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise InputError(f"There is no module {error.name!r} for {sys.executable}. {_HOW}") from None
        raise InputError(f"{module} does not import: {type(error).__name__}: {error}.") from error
    finally:
        if "" in sys.path:
            sys.path.remove("")


def _names_of(source: Path) -> dict[str, Any]:
    """Run a file as ``python FILE.py`` would, with its folder on the path, and return what it defines."""
    import runpy

    from ..tracing.failure import raised_at

    folder = str(source.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(source), run_name=_RUN)
    except (Exception, SystemExit) as error:
        at = None if isinstance(error, SyntaxError) else raised_at(error, None)  # SyntaxError has the line
        where = f" ({at['file']}, line {at['line']})" if at else ""
        is_missing = isinstance(error, ModuleNotFoundError)
        advice = (
            f" Install it for {sys.executable}, or run intus where it is installed." if is_missing else ""
        )
        raise InputError(f"{source} does not run: {type(error).__name__}: {error}{where}.{advice}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _near(source: Path) -> str:
    """Return a sentence that suggests files of a similar name, or ``""``."""
    module = Path(str(source).partition(":")[0] + ".py")
    if ":" in source.name and module.is_file():
        return f"Did you mean {module}:{source.name.partition(':')[2]}? "
    folder = source.parent
    if not folder.is_dir():
        return f"There is no folder {str(folder)!r} either. "
    files = [one.name for one in folder.iterdir() if one.name.endswith((".py", ".trace", *ENDINGS))]
    suggestion = did_you_mean(source.name, files) if files else ""
    return f"{suggestion} " if suggestion.startswith("Did") else ""


def _signature(what: Any) -> str:
    """Return the signature of a model's forward, a function or a class, as text."""
    try:
        forward = getattr(what, "forward", what) if not isinstance(what, type) else what
        return str(inspect.signature(forward))
    except (TypeError, ValueError):
        return "(…)"


def _advice(subject: Subject) -> str:
    """Return how to write the inputs that a model takes."""
    advice = f"write a value for each, such as {_EXAMPLE}"
    try:
        what: Any = getattr(subject.what, "forward", subject.what)
        parameters = inspect.signature(what).parameters.values()
    except (TypeError, ValueError):
        return advice
    if not parameters:
        return f"if it makes the model, write {subject.name}()"
    by_name = any(one.kind is one.KEYWORD_ONLY for one in parameters)
    named = ", ".join(f"{one.name}=…" for one in parameters)
    return f'{advice}, or by name: "dict({named})"' if by_name else advice


def _example(shape: Sequence[int], dtype: str) -> str:
    """Return an expression for an input of a model file; lengths that the file leaves open are 2.

    >>> _example((1, 3), "float32"), _example((-1, 8), "int64")
    ('randn(1, 3)', 'ones((2, 8), dtype=int64)')
    """
    lengths = tuple(2 if length < 0 else length for length in shape)
    if dtype == "float32":
        return f"randn{lengths if len(lengths) != 1 else f'({lengths[0]})'}"
    return f"ones({lengths}, dtype={dtype})"


def _evaluate(expression: str, names: Mapping[str, Any], what: str, advice: str) -> Any:
    """Return the value of a Python expression, or raise InputError with the exception and the advice."""
    try:
        return eval(expression.strip(), dict(names))
    except (Exception, SystemExit) as error:
        raise InputError(f"{what} does not work: {type(error).__name__}: {error}. {advice}") from None


@contextmanager
def seeded() -> Iterator[None]:
    """Seed torch with 0, so that a model that is built twice is the same twice; restore the state on exit.

    Where torch is not installed, numpy's global generator is seeded.
    """
    if importlib.util.find_spec("torch") is None:
        state = np.random.get_state()
        np.random.seed(0)
        try:
            yield
        finally:
            np.random.set_state(state)
        return
    torch = importlib.import_module("torch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
