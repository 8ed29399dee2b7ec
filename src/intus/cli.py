"""The ``intus`` command: demo, serve, view."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .core.errors import InputError, IntusError, did_you_mean
from .serving.options import add_options, one_thread
from .viewing.overlay import BUILT_IN

_EXAMPLES = """\
examples:
  intus demo                                   train a small network on real digits and watch it learn
  intus demo --no-wait                         the same, and end
  intus examples --epochs 5                    train three networks that fill the page of a server
  intus serve                                  the page on 8080, the server that probe() sends to on 8082
  intus serve --port 9000 --database runs.db   everything on one port, scores in runs.db
  intus serve --role evaluator --port 8081     one of the three alone
  intus view net.py:Net --inputs "randn(1, 3, 224, 224)"
  intus view saved.trace --out net.svg --rolled

exit codes: 0 done, 1 it could not be done (the reason is printed), 2 the command was not understood
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 0 done, 1 refused with a reason, 2 not understood."""
    chosen = parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen) or 0)
    except IntusError as error:
        print(f"intus: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = argparse.ArgumentParser(
        prog="intus",
        description="See inside any neural network: what runs, what layers learn, what units mean.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"intus {__version__}")
    verbs = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _demo(verbs)
    _examples(verbs)
    _serve(verbs)
    _view(verbs)
    return top


def _demo(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "demo",
        "train a small network on real digits and watch it learn",
        "Trains a small convolutional network on scikit-learn's 1,797 handwritten digits with probe, "
        "register_targets and flush in its script; scores every layer after every epoch on three targets; "
        "shows the graph, painted, and the curves on a page; then asks which units answer to three ideas "
        "about the stroke. Nothing is downloaded.",
    )
    verb.add_argument("--host", default="127.0.0.1", help="address to serve on (default: %(default)s)")
    verb.add_argument(
        "--port", type=int, default=8080, help="port, or a free one if it is taken (default: 8080)"
    )
    verb.add_argument("--epochs", type=int, default=10, help="how long to train (default: %(default)s)")
    verb.add_argument("--database", help="keep the scores in this file (default: a temporary one)")
    verb.add_argument(
        "--no-wait", dest="wait", action="store_false", help="end when done instead of serving on"
    )
    verb.set_defaults(run=_run_demo)


def _run_demo(chosen: argparse.Namespace) -> int:
    from .demo.run import demo

    if chosen.epochs < 1:
        raise InputError(f"--epochs {chosen.epochs} trains nothing; write 1 or more.")
    return demo(
        host=chosen.host, port=chosen.port, epochs=chosen.epochs, database=chosen.database, wait=chosen.wait
    )


def _examples(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "examples",
        "run training scripts that fill the page of a server",
        "Trains, beside `intus serve`: mlp and lstm on scikit-learn's handwritten digits, and a small "
        "transformer on the characters of Python's standard library, each with a few lines of intus in its "
        "script (intus/examples). trainer and lightning do it in the loops of Hugging Face and Lightning, "
        "where these are installed. Nothing is downloaded.",
    )
    known = "mlp, lstm, transformer (these by default), trainer, lightning"
    verb.add_argument("names", nargs="*", metavar="NAME", help=known)
    verb.add_argument("--host", default="127.0.0.1", help="where the server is (default: %(default)s)")
    verb.add_argument("--port", type=int, default=8082, help="the port that probes send to (default: 8082)")
    verb.add_argument("--epochs", type=int, default=5, help="how long each trains (default: %(default)s)")
    verb.set_defaults(run=_run_examples)


def _run_examples(chosen: argparse.Namespace) -> int:
    from .examples.run import examples

    if chosen.epochs < 1:
        raise InputError(f"--epochs {chosen.epochs} trains nothing; write 1 or more.")
    return examples(chosen.names, chosen.host, chosen.port, chosen.epochs)


def _serve(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "serve",
        "receive what probe() sends, score it, and show the page",
        "Runs the aggregator (8082, where probe() sends), the evaluator (8081) and the frontend (8080, the "
        "page) as one process, or one of them alone. Scores are kept in a SQLite file; activations are not.",
    )
    add_options(verb)
    verb.set_defaults(run=_run_serve)


def _run_serve(chosen: argparse.Namespace) -> int:
    one_thread()
    from .serving.run import serve

    options = {name: value for name, value in vars(chosen).items() if name != "run"}
    serve(**options)
    return 0


def _view(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "view",
        "show a model's graph as a page or a picture",
        "Runs FILE.py and the model in it once, and writes the graph as one page that works offline or as a "
        "picture; or shows a trace that Trace.save wrote. A page or SVG is opened in the browser where there "
        "is one.",
    )
    verb.add_argument(
        "what",
        metavar="FILE.py:NAME",
        help="a module, its class, such as 'Net(width=8)' with arguments, or a function; or FILE.trace",
    )
    verb.add_argument(
        "--inputs",
        default="()",
        metavar="EXPR",
        help='such as "randn(1, 3, 224, 224)": Python, with the names of torch and of the file',
    )
    verb.add_argument(
        "--out",
        "--output",
        dest="output",
        type=Path,
        metavar="FILE",
        help="file to write: .html, .svg, .png, .pdf, .dot or .json (default: NAME.html here)",
    )
    verb.add_argument(
        "--depth",
        type=_levels,
        help="levels of modules that stand open, or all (default: what stays readable)",
    )
    verb.add_argument("--overlay", help=f"what colours the boxes: {', '.join(BUILT_IN)}")
    verb.add_argument("--rolled", action="store_true", help="a recurrent layer's passes as one box")
    verb.add_argument(
        "--direction", default="down", help="where the data flows, down or right (pictures; default: down)"
    )
    verb.add_argument("--dark", action="store_true", help="the dark theme (pictures)")
    verb.add_argument("--no-open", dest="open", action="store_false", help="do not open a browser")
    verb.set_defaults(run=_run_view)


def _run_view(chosen: argparse.Namespace) -> int:
    path, _, name = chosen.what.partition(".py:")
    source = Path(f"{path}.py" if name else path)
    if not source.is_file():
        raise InputError(
            f"There is no file {str(source)!r}. Write FILE.py:NAME, or the path of a saved trace."
        )
    if source.suffix == ".py" and not name:
        raise InputError(
            f"{source} may hold several models: write {source}:NAME, the module, its class or a function."
        )
    if isinstance(chosen.depth, int) and chosen.depth < 0:
        raise InputError(f"--depth {chosen.depth} is less than none; write 0 or more.")
    look = {"depth": chosen.depth, "overlay": chosen.overlay}
    if name:
        shown = _view_of_model(source, name, chosen.inputs, look)
    else:
        from .tracing.files import load

        shown = load(source).show(**look)
    output = chosen.output or Path(f"{shown.title}.html")
    try:
        shown.save(output, rolled=chosen.rolled or None, direction=chosen.direction, dark=chosen.dark)
    except OSError as error:
        raise InputError(f"--output {output} cannot be written: {error.strerror}.") from None
    print(f"{shown.title}: {output}")
    if chosen.open and output.suffix in (".html", ".svg"):
        webbrowser.open(output.resolve().as_uri())
    return 0


def _levels(text: str) -> int | str:
    return text if text == "all" else int(text)


def _view_of_model(source: Path, name: str, inputs: str, look: dict[str, Any]) -> Any:
    import torch

    from .tracing.run import view

    names = _names_of(source)
    if name.isidentifier() and name not in names:
        known = [key for key, value in names.items() if callable(value) and not key.startswith("_")]
        raise InputError(f"{source} has no {name!r}. {did_you_mean(name, known)}")
    model = _evaluate(name, names, f"{source}:{name}")
    if isinstance(model, type):
        model = _evaluate(
            f"{name}()", names, f"{source}:{name}", f"Write {source}:'{name}(...)' with its arguments."
        )
    values = _evaluate(inputs, {**vars(torch), "torch": torch, **names}, f"--inputs {inputs!r}")
    try:
        return view(model, values, **look)
    except IntusError:
        raise
    except Exception as error:
        raise InputError(
            f"{name} cannot run on --inputs {inputs!r}: {type(error).__name__}: {error}"
        ) from None


def _names_of(source: Path) -> dict[str, Any]:
    """What a file defines, run with its own folder to import from, as ``python FILE.py`` would."""
    import runpy

    folder = str(source.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(source), run_name="__intus_view__")
    except (Exception, SystemExit) as error:
        raise InputError(f"{source} does not run: {type(error).__name__}: {error}.") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _evaluate(expression: str, names: dict[str, Any], what: str, advice: str = "") -> Any:
    """The value of what the caller wrote as Python, or what is wrong with it in a sentence."""
    try:
        return eval(expression, dict(names))
    except Exception as error:
        raise InputError(
            f"{what} does not work: {type(error).__name__}: {error}. {advice}".rstrip()
        ) from None


def _verb(verbs: Any, name: str, line: str, text: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=line, description=text)
    return verb
