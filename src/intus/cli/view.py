"""``intus view``: show a model's graph as a page or a picture, or two graphs side by side."""

from __future__ import annotations

import argparse
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError, check_folder
from ..reading import ENDINGS
from ..viewing.overlay import BUILT_IN, OF_VALUES, to_save
from .subject import inputs, subject

if TYPE_CHECKING:
    from ..viewing.html import View


def add(verbs: Any) -> None:
    """Add the command to the command line."""
    verb = verbs.add_parser(
        "view",
        help="show a model's graph as a page or a picture",
        description="Runs FILE.py, or imports MODULE, and runs the model in it once. Writes the graph as a "
        "page that works offline, or as a picture. Also shows a model file (ONNX, …), of which no code runs, "
        "and a trace that Trace.save wrote. With --beside, "
        "shows two of them on one page and marks the differences. Random numbers start at seed 0. A page or "
        "SVG is opened in the browser if there is one.",
    )
    verb.add_argument(
        "what",
        metavar="FILE.py:NAME",
        help="a module, a class ('Net(width=8)' with arguments), or a function; also MODULE:NAME, such as "
        f"torchvision.models:resnet18, a model file ({', '.join(ENDINGS)}), or FILE.trace",
    )
    verb.add_argument(
        "more", nargs="*", default=[], help=argparse.SUPPRESS
    )  # _run refuses more with a message
    verb.add_argument(
        "--inputs",
        metavar="EXPR",
        help='inputs in Python, with the names of torch and of the file, such as "randn(1, 3, 224, 224)"; '
        "a model file needs them only for values",
    )
    verb.add_argument(
        "--beside",
        metavar="OTHER",
        help="a second model, model file or trace to show beside it; models run on the same inputs",
    )
    verb.add_argument(
        *("-o", "--out", "--output"),
        dest="output",
        type=Path,
        metavar="FILE",
        help="file to write: .html, .svg, .png, .pdf, .dot or .json (default: a page in a temporary folder)",
    )
    verb.add_argument(
        "--depth",
        type=_levels,
        help="levels of modules that are open, or all (default: as many as stay readable)",
    )
    verb.add_argument("--overlay", help=f"what colors the boxes: {', '.join((*BUILT_IN, *OF_VALUES))}")
    verb.add_argument(
        "--rolled",
        action=argparse.BooleanOptionalAction,
        help="show the passes of a recurrent layer as one box (default: if there are too many to read)",
    )
    verb.add_argument(
        "--details",
        help="full: on every box its labels, shapes, sizes, parameters and address; parameters: also every "
        "parameter as a box",
    )
    verb.add_argument(
        "--direction", help="direction of the data flow, down or right (pictures; default: down)"
    )
    verb.add_argument("--dark", action="store_true", help="the dark theme (pictures)")
    verb.add_argument("--no-open", dest="open", action="store_false", help="do not open a browser")
    verb.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    if chosen.more:
        raise InputError(
            f"intus view shows one model or trace at a time, but {1 + len(chosen.more)} are named. For two "
            f"on one page write: intus view {chosen.what} --beside {chosen.more[0]}"
        )
    if chosen.output is not None:  # before the model runs, which may take long
        try:
            check_folder(chosen.output)
        except FileNotFoundError as error:
            raise InputError(f"--out {error}") from None
    shown = _two(chosen) if chosen.beside else _one(chosen)
    options = {name: value for name in ("direction", "dark") if (value := getattr(chosen, name))}
    output = chosen.output or Path(tempfile.mkdtemp(prefix="intus-"), f"{shown.title}.html")
    try:
        shown.save(output, rolled=chosen.rolled, **options)
    except OSError as error:
        raise InputError(f"--out {output} cannot be written: {error.strerror}.") from None
    print(f"{shown.title}: {output}")
    if chosen.open and output.suffix in (".html", ".svg"):
        webbrowser.open(output.resolve().as_uri())
    if shown.graph.error and not Path(chosen.what).exists():  # not for a saved trace
        raise InputError(f"{chosen.what} raised an exception; {output} shows where: {shown.graph.error}")
    return 0


def _one(chosen: argparse.Namespace) -> View:
    """Return the view of the model or trace; of a model that raises, up to the exception."""
    one = subject(chosen.what)
    found = one.traced(inputs(chosen.inputs, one), chosen.inputs, save=to_save(chosen.overlay))
    return found.show(depth=chosen.depth, overlay=chosen.overlay, details=chosen.details)


def _two(chosen: argparse.Namespace) -> View:
    """Return the view of two models or traces; models run on the same inputs."""
    from ..tracing.view import view

    both = subject(chosen.what), subject(chosen.beside)
    values = inputs(chosen.inputs, *both)
    a, b = (one.traced(values, chosen.inputs, save="all") for one in both)
    for one, found in zip(both, (a, b), strict=True):
        if found.graph.error:
            raise InputError(f"{one.name} raised an exception: {found.graph.error}")
    return view(a, depth=chosen.depth, overlay=chosen.overlay, details=chosen.details, beside=b)


def _levels(text: str) -> int | str:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of levels, 0 or more, or all")
    return text if text == "all" else int(text)
