"""The command ``intus`` with its subcommands: compare, demo, examples, export, serve, verify, view."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..core.errors import SERVER, InputError, IntusError, check_installed
from ..serving.options import ServerOptions, add_options, one_thread, port
from . import compare, export, verify, view

_EXAMPLES = """\
examples:
  intus demo                                   train a small network on real digits and watch it learn
  intus demo --no-wait                         the same, but exit when it is done
  intus examples --epochs 5                    train three networks and send their layers to a server
  intus examples pacman                        train an agent, and ask which of its units see the ghost
  intus serve                                  the page on port 8080, the server for probe() on 8082
  intus serve --port 9000 --database runs.db   everything on one port, scores in runs.db
  intus serve --role evaluator --port 8081     only one of the three servers
  intus view net.py:Net --inputs "randn(1, 3, 224, 224)"
  intus view torchvision.models:resnet18 --inputs "randn(1, 3, 224, 224)"
  intus view saved.trace --out net.svg --rolled
  intus view net.onnx                          a model file, of which no code runs
  intus view before.trace --beside after.trace
  intus compare net.py:Net net.onnx --inputs "randn(1, 3, 224, 224)"    does the file compute the same?
  intus export runs.db --score linear_f1 --out scores.csv    scores of recorded trainings as a table
  intus verify saved.trace                     compare each tensor with its checksum

exit codes: 0 success, 1 failure (the reason is printed), 2 invalid command line, 130 interrupted by Ctrl+C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The command line, without the name of the program. Default: ``sys.argv[1:]``.

    Returns:
        The exit code: 0 success, 1 failure with a reason on standard error, 2 no command, 130 interrupted.

    Raises:
        SystemExit: With code 2 if the command line is invalid, and with 0 after ``--help`` and ``--version``.
    """
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
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="intus",
        description="See inside any neural network: what runs, what layers learn, what units respond to.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"intus {__version__}")
    verbs = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _demo(verbs)
    _examples(verbs)
    _serve(verbs)
    view.add(verbs)
    compare.add(verbs)
    export.add(verbs)
    verify.add(verbs)
    return top


def _demo(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "demo",
        "train a small network on real digits and watch it learn",
        "Trains a small convolutional network on scikit-learn's 1,797 handwritten digits, with probe, "
        "register_targets and flush in its script. Scores every layer after every epoch on three targets, "
        "and shows the colored graph and the curves on a page. Then inspects which units respond to three "
        "hypotheses about the stroke. Nothing is downloaded.",
    )
    verb.add_argument("--host", default="127.0.0.1", help="address to serve on (default: %(default)s)")
    verb.add_argument(
        "--port", type=port, default=8080, help="port; a free one is used if it is taken (default: 8080)"
    )
    verb.add_argument(
        "--epochs", type=int, default=6, metavar="N", help="number of epochs to train (default: %(default)s)"
    )
    verb.add_argument("--database", help="file for the scores (default: a temporary one)")
    verb.add_argument(
        "--no-wait", dest="wait", action="store_false", help="exit when done instead of keeping the page up"
    )
    verb.set_defaults(run=_run_demo)


def _run_demo(chosen: argparse.Namespace) -> int:
    check_installed("intus demo", ["torch", "pandas", *SERVER], "all")
    from ..demo.run import demo

    if chosen.epochs < 1:
        raise InputError(f"--epochs {chosen.epochs} trains nothing. Write 1 or more.")
    return demo(
        host=chosen.host, port=chosen.port, epochs=chosen.epochs, database=chosen.database, wait=chosen.wait
    )


def _examples(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "examples",
        "run scripts that use probe or inspect",
        "Each is a script with a few lines of intus (intus/examples). mlp and lstm train on scikit-learn's "
        "handwritten digits, transformer on the characters of Python's standard library, translation on "
        "sentences by a grammar; trainer and lightning use the training loops of Hugging Face and Lightning, "
        "if these are installed. These six send their layers to a running `intus serve`. The others need no "
        "server: they train a network, ask which of its units respond to an idea, and write network, tables "
        "and pictures into a folder. Nothing is downloaded.",
    )
    known = (
        "mlp, lstm, transformer (these three by default), translation, trainer, lightning; without a server: "
        "pacman, python, minilm, dissection, translator, sae, tcav"
    )
    verb.add_argument("names", nargs="*", metavar="NAME", help=known)
    verb.add_argument(
        "--framework",
        metavar="NAME",
        help="instead of NAMEs, one network in torch, session (TensorFlow 1), keras, gluon (MXNet) or nnx "
        "(JAX), each in its environment (.venvs), or all of them",
    )
    verb.add_argument("--host", default="127.0.0.1", help="host of the server (default: %(default)s)")
    verb.add_argument("--port", type=port, default=8082, help="the server's port for probes (default: 8082)")
    verb.add_argument(
        "--epochs", type=int, metavar="N", help="number of epochs for each (default: 5, or the example's own)"
    )
    verb.add_argument("--folder", help="where the examples of inspect keep their files (default: intus-NAME)")
    verb.set_defaults(run=_run_examples)


def _run_examples(chosen: argparse.Namespace) -> int:
    from ..examples.run import examples, framework_examples

    check_installed("intus examples", ["torch", "sklearn"], "all")
    if chosen.epochs is not None and chosen.epochs < 1:
        raise InputError(f"--epochs {chosen.epochs} trains nothing. Write 1 or more.")
    if chosen.framework is not None:
        if chosen.names:
            raise InputError(f"--framework has its own example. Leave out {chosen.names[0]!r}.")
        return framework_examples(chosen.framework, chosen.host, chosen.port, chosen.epochs)
    return examples(chosen.names, chosen.host, chosen.port, chosen.epochs, chosen.folder)


def _serve(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "serve",
        "receive the records of probe(), score them, and show the page",
        "Runs the aggregator (port 8082, receives from probe()), the evaluator (8081) and the frontend "
        "(8080, the page) in one process, or only one of them. Scores are stored in a SQLite file, "
        "activations are not stored.",
    )
    verb.add_argument("file", nargs="?", metavar="DATABASE", help="the same as --database DATABASE")
    add_options(verb)
    verb.set_defaults(run=_run_serve)


def _run_serve(chosen: argparse.Namespace) -> int:
    check_installed("intus serve", SERVER, "server")
    one_thread()
    from ..serving.run import serve

    options = {name: value for name, value in vars(chosen).items() if name not in ("run", "file")}
    if chosen.file is not None:
        if options["database"] not in (chosen.file, ServerOptions.database):
            raise InputError(
                f"Two databases are given, {chosen.file!r} and --database {options['database']!r}. Name one."
            )
        options["database"] = chosen.file
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("intus.serving").setLevel(logging.INFO)  # what is found in a training, for example
    serve(**options)
    return 0


def _verb(verbs: Any, name: str, line: str, text: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=line, description=text)
    return verb
