"""The options of ``serve`` on a command line; apart, so that asking for help loads no server."""

from __future__ import annotations

import argparse
import os

ENGINES = ("local", "ray")
ROLES = ("all", "aggregator", "evaluator", "frontend")


def one_thread() -> None:
    """Let scoring take one core, so that it does not get in a training's way. Numerical libraries read these
    variables when they are loaded, some only when the first score needs them: call it before anything."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def port(text: str) -> int:
    """A port, for argparse."""
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: write a number from 0 to 65535")
    return int(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; ``serve(**vars(parser.parse_args()))`` runs what they say."""
    add = parser.add_argument
    add("--role", default="all", choices=ROLES, help="which part to run (default: all three in one process)")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=port, metavar="N", help="everything on this one port; 0 picks a free one")
    for name, number, who in (
        ("aggregator", 8082, "where probe() sends"),
        ("evaluator", 8081, "between the two others"),
        ("frontend", 8080, "the page"),
    ):
        add(f"--{name}-port", type=port, default=number, metavar="N", help=f"{who} (default: %(default)s)")
    add("--database", default="intus.db", metavar="FILE",
        help="where scores are kept, or postgresql://user@host/name (default: %(default)s)")  # fmt: skip
    add("--token", help="asked of every request; needed to listen beyond this machine")
    add("--evaluator-url", metavar="URL", help="where an aggregator alone finds the evaluator")
    add("--frontend-url", metavar="URL", help="where an evaluator alone finds the frontend")
    add("--engine", default="local", choices=ENGINES,
        help="what scores: this process, or Ray's workers (default: %(default)s)")  # fmt: skip
    add("--workers", type=int, metavar="N", help="how many of Ray's (default: as many as it has CPUs)")
    add("--ray-address", metavar="HOST:PORT", help="a Ray cluster (default: one of this machine, begun here)")
    add("--max-bytes", type=int, default=1 << 30, metavar="N",
        help="arrays held until their epoch ends (default: 1 GiB)")  # fmt: skip
    add("--trigger", default="epoch", metavar="FIELDS",
        help="fields whose change completes a data point, by comma (default: %(default)s)")  # fmt: skip
    add("--grace", type=float, default=60.0, metavar="SECONDS",
        help="how long an epoch is waited for of which not all has come (default: 60)")  # fmt: skip
    add("--journal", metavar="FOLDER",
        help="keeps what is not scored yet (default: DATABASE.journal, or intus.journal)")  # fmt: skip
    add("--journal-bytes", type=int, default=4 << 30, metavar="N", help="its largest size (default: 4 GiB)")
    add("--fsync", action="store_true", help="outlast a power cut too, and not only the server's death")
