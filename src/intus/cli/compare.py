"""``intus compare``: find where two models, model files or traces diverge."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError, IntusError
from .subject import Subject, inputs, seeded, subject

if TYPE_CHECKING:
    from ..tracing.comparison.check_export import ExportCheck


def add(verbs: Any) -> None:
    """Add the command to the command line."""
    verb = verbs.add_parser(
        "compare",
        help="find where two models, model files or traces diverge",
        description="Runs both on the same inputs and compares their tensors: a model with its export "
        "(FILE.py:NAME net.onnx) as check_export does, two models, or two traces. Models run in evaluation "
        "mode. Prints the first "
        "operation that makes a difference, its module and the reason. The exit code is 0 if nothing differs "
        "that rounding does not explain, and 1 if something does or not every output could be compared.",
    )
    for name in ("a", "b"):
        verb.add_argument(
            name, metavar=name.upper(), help="FILE.py:NAME, MODULE:NAME, a model file or FILE.trace"
        )
    verb.add_argument(
        "--inputs",
        metavar="EXPR",
        help='inputs in Python, with the names of torch and of the files, such as "randn(1, 3, 224, 224)"',
    )
    verb.add_argument("--train", action="store_true", help="run models in the mode in which they are made")
    verb.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    from ..tracing.comparison.compare import compare
    from ..tracing.models import is_module
    from ..tracing.results.trace import Trace

    both = subject(chosen.a), subject(chosen.b)
    files = [isinstance(one.what, Path) for one in both]
    is_check = files[0] != files[1]
    model, file = both if files[1] else both[::-1]
    if is_check and isinstance(model.what, Trace):
        if chosen.inputs is not None:
            raise InputError(
                f"--inputs {chosen.inputs!r}: {file.name} is run on the inputs of the trace {model.name}. "
                "Leave it out."
            )
    else:
        for one in both:
            one.check_given(chosen.inputs)
    values = inputs(chosen.inputs, *both)
    for one in both:
        if not chosen.train and is_module(one.what):
            one.what.eval()  # type: ignore[union-attr]
    if is_check:
        check = _checked(model, file, values, chosen.inputs)
        print(check)
        return 0 if check else 1
    table = compare(*(_traced(one, values, chosen.inputs) for one in both))
    print(table)
    return 0 if table.agree else 1


def _checked(model: Subject, file: Subject, values: Any, written: str | None) -> ExportCheck:
    """Return the check of a model, or of a trace of one, with its file; random numbers start at seed 0."""
    from ..tracing.comparison.check_export import check_export
    from ..tracing.results.trace import Trace

    what: Any = model.what
    if isinstance(what, Trace):
        return check_export(what, file.name)  # type: ignore[arg-type]
    try:
        with seeded():
            return check_export(what, file.name, values, kwargs={})
    except IntusError:
        raise
    except Exception:
        _traced(model, values, written)  # which says on which inputs the model raised, and what it takes
        raise


def _traced(one: Subject, values: Any, written: str | None) -> Any:
    found = one.traced(values, written, save="all")
    if found.graph.error:
        raise InputError(f"{one.name} raised an exception: {found.graph.error}")
    return found
