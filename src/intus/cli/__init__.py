"""The ``intus`` command: demo, serve, view."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..core.errors import InputError, IntusError
from ..serving.options import add_options, one_thread, port
from . import view

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
  intus view before.trace --beside after.trace

exit codes: 0 done, 1 it could not be done (the reason is printed), 2 the command was not understood,
130 interrupted by Ctrl+C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 0 done, 1 refused with a reason, 2 not understood, 130
    interrupted."""
    grammar = parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        grammar.print_help(sys.stderr)
        return 2
    chosen = grammar.parse_args(arguments)
    try:
        return int(chosen.run(chosen) or 0)
    except IntusError as error:
        print(f"intus: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
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
    view.add(verbs)
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
        "--port", type=port, default=8080, help="port, or a free one if it is taken (default: 8080)"
    )
    verb.add_argument(
        "--epochs", type=int, default=10, metavar="N", help="how long to train (default: %(default)s)"
    )
    verb.add_argument("--database", help="keep the scores in this file (default: a temporary one)")
    verb.add_argument(
        "--no-wait", dest="wait", action="store_false", help="end when done instead of serving on"
    )
    verb.set_defaults(run=_run_demo)


def _run_demo(chosen: argparse.Namespace) -> int:
    from ..demo.interrupt import interruptible

    with interruptible():
        from ..demo.run import demo

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
    verb.add_argument("--port", type=port, default=8082, help="the port that probes send to (default: 8082)")
    verb.add_argument(
        "--epochs", type=int, default=5, metavar="N", help="how long each trains (default: %(default)s)"
    )
    verb.set_defaults(run=_run_examples)


def _run_examples(chosen: argparse.Namespace) -> int:
    from ..examples.run import examples

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
    from ..serving.run import serve

    options = {name: value for name, value in vars(chosen).items() if name != "run"}
    serve(**options)
    return 0


def _verb(verbs: Any, name: str, line: str, text: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=line, description=text)
    return verb
