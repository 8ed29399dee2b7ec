"""The options of a server, defined once for ``serve``, ``Server``, the command line and validation.

This module has light imports only, so that ``intus serve --help`` does not import the server.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import InputError, ServeError, did_you_mean
from ..engines import ENGINES
from ..storage.token_file import LOOPBACK, VARIABLE

ROLES = ("all", "aggregator", "evaluator", "frontend")
#: The journal that is none.
IN_MEMORY = "memory"
#: Fields of a record whose change may end a window.
TRIGGERS = ("epoch", "step", "mode")

_F = TypeVar("_F", bound=Callable[..., Any])


def port(text: str) -> int:
    """Parse a port, for argparse."""
    if not (text.isascii() and text.isdigit() and _is_port(int(text))):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: write a number from 0 to 65535")
    return int(text)


def _engine(text: str) -> str | int:
    """Parse the name of an engine or a number of processes, for argparse."""
    return int(text) if text.isascii() and text.isdigit() else text


def _is_port(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 16


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _is_positive_int(value: Any) -> bool:
    return isinstance(value, int) and _is_positive(value)


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and re.match(r"https?://[^/]", value) is not None


def _is_token(value: Any) -> bool:
    is_text = isinstance(value, str) and value.isascii() and value.isprintable()
    return is_text and value == value.strip() and value != "--"


def _are_triggers(value: Any) -> bool:
    return isinstance(value, str) and {*value.split(",")} <= {*TRIGGERS}


def _are_names(value: Any) -> bool:
    return isinstance(value, str) and all(name.strip() for name in value.split(","))


def _option(
    default: Any,
    text: str,
    *,
    parse: Callable[[str], Any] = str,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    valid: Callable[[Any], bool] = lambda value: isinstance(value, str | Path),
    must_be: str = "text",
    shown: str = "",
    secret: bool = False,
) -> Any:
    """Return the dataclass field of an option, with its description, parser and check as metadata.

    ``must_be`` describes what ``valid`` checks; ``shown`` is the default in the help text; the value of a
    ``secret`` is never printed.
    """
    if choices:
        valid, must_be = choices.__contains__, f"one of {', '.join(choices)}"
    if default is not None and default is not False:
        text += f" (default: {shown or default})"
    known = {"text": text, "parse": parse, "metavar": metavar, "choices": choices, "valid": valid}
    return field(default=default, repr=not secret, metadata=known | {"must_be": must_be})


def _port(default: int | None, text: str) -> Any:
    must_be = "a whole number from 0 to 65535"
    return _option(default, text, parse=port, metavar="N", valid=_is_port, must_be=must_be)


def _url(text: str) -> Any:
    return _option(None, text, metavar="URL", valid=_is_url, must_be="an address such as http://HOST:PORT")


def _bytes(default: int, text: str, shown: str) -> Any:
    must_be = "a positive number of bytes"
    return _option(default, text, parse=int, metavar="N", valid=_is_positive, must_be=must_be, shown=shown)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of a server; raises InputError or ServeError for invalid values."""

    role: str = _option("all", "role to run; 'all' runs the three in one process", choices=ROLES)
    host: str = _option("127.0.0.1", "address to listen on")
    port: int | None = _port(None, "one port for everything, 0 for a free one")
    aggregator_port: int = _port(8082, "port that probe() sends to")
    evaluator_port: int = _port(8081, "port of the evaluator")
    frontend_port: int = _port(8080, "port of the page")
    database: str | Path = _option(  # noqa: RUF009
        "intus.db", "file that keeps the scores, or postgresql://user@host/name", metavar="FILE"
    )
    token: str | None = _option(
        None,
        "secret that every request must bring (default: that of the environment variable INTUS_TOKEN, or "
        "else a new one); must be given to listen beyond this machine",
        valid=_is_token,
        must_be="of ASCII letters, digits and signs, with no space at an end, since it travels in a "
        "header, and not --, which ends the options of a command line",
        secret=True,
    )
    no_token: bool = _option(
        False,
        "let every user of this machine read the page, send and delete",
        valid=lambda value: isinstance(value, bool),
        must_be="True or False",
    )
    evaluator_url: str | None = _url(
        "where the aggregator finds the evaluator, if it runs alone (default: HOST and the evaluator's port)"
    )
    frontend_url: str | None = _url(
        "where the evaluator finds the frontend, if it runs alone (default: HOST and the frontend's port)"
    )
    engine: str | int | None = _option(
        None,
        "what computes scores: 'local' for this process, a number of processes, or 'ray' for Ray's workers "
        "(default: processes while there is much to score, half as many as there are cores and at most 4)",
        parse=_engine,
        metavar="ENGINE",
        valid=lambda value: value in ENGINES or (_is_positive_int(value) and value is not True),
        must_be=f"{', '.join(map(repr, ENGINES))} or a positive number of processes",
    )
    workers: int | None = _option(
        None,
        "number of Ray's workers (default: one for each of its CPUs)",
        parse=int,
        metavar="N",
        valid=_is_positive_int,
        must_be="a positive whole number",
    )
    ray_address: str | None = _option(
        None, "Ray cluster to use (default: one on this machine, started here)", metavar="HOST:PORT"
    )
    splits: int = _option(
        1,
        "number of seeded splits into training and held-out rows that classifiers are scored on",
        parse=int,
        metavar="N",
        valid=_is_positive_int,
        must_be="a positive whole number",
    )
    scores: str | None = _option(
        None,
        "names of the scores to compute, separated by commas; 'default' stands for all of layers but "
        "expensive ones, as in default,linear_selectivity (default: these alone)",
        metavar="NAMES",
        valid=_are_names,
        must_be="names of scores, separated by commas",
    )
    max_bytes: int = _bytes(
        1 << 30,
        "most bytes of arrays that wait for their epoch to end, as well as of those that wait to be scored, "
        "and of requests that are being received",
        "1 GiB",
    )
    trigger: str = _option(
        "epoch",
        "fields whose change completes a data point, separated by commas",
        metavar="FIELDS",
        valid=_are_triggers,
        must_be=f"some of {', '.join(TRIGGERS)}, separated by commas",
    )
    grace: float = _option(
        60.0,
        "how long to wait for the missing arrays of an epoch",
        parse=float,
        metavar="SECONDS",
        valid=_is_positive,
        must_be="a positive number of seconds",
        shown="60",
    )
    journal: str | Path | None = _option(  # noqa: RUF009
        None,
        "folder that keeps what is not scored yet (default: DATABASE.journal, or intus.journal), or 'memory' "
        "to write no activations to disk, so that a crash loses them",
        metavar="FOLDER",
    )
    journal_bytes: int = _bytes(4 << 30, "most bytes of the journal", "4 GiB")
    fsync: bool = _option(
        False,
        "wait for the disk before each acknowledgement, so that nothing is lost in a power cut",
        valid=lambda value: isinstance(value, bool),
        must_be="True or False",
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value, known = getattr(self, option.name), option.metadata
            if not (value is None and option.default is None) and not known["valid"](value):
                got = f", got {value!r}" if option.repr else ""
                raise InputError(f"{option.name} must be {known['must_be']}{got}.")
        if self.engine != "ray" and (self.workers is not None or self.ray_address is not None):
            raise InputError(
                "workers and ray_address are options of the engine 'ray'. Choose it too: engine=\"ray\" "
                "(--engine ray)."
            )
        if self.token is not None and self.no_token:
            raise InputError("token and no_token contradict each other. Leave one of them out.")
        if self.no_token and os.environ.get(VARIABLE):
            raise InputError(
                f"no_token (--no-token) and the environment variable {VARIABLE} contradict each other. Unset "
                "the variable, or leave no_token out."
            )
        if self.host not in LOOPBACK and not self.given_token:
            raise ServeError(
                f"A token is required to listen on {self.host}, where other machines can connect. Give one "
                "(token=..., --token TOKEN), or listen on 127.0.0.1."
            )

    @property
    def given_token(self) -> str | None:
        """The token that the user chose, here or in the environment."""
        return None if self.no_token else self.token or os.environ.get(VARIABLE) or None

    @property
    def journal_folder(self) -> Path | None:
        """The folder of the journal: beside a database that is a file, unless another was chosen.

        None if there is no journal, so that activations are kept in memory alone.
        """
        if self.journal == IN_MEMORY:
            return None
        if self.journal is not None:
            return Path(self.journal)
        return Path("intus.journal" if "://" in str(self.database) else f"{self.database}.journal")

    @property
    def score_names(self) -> list[str] | None:
        """The names of the scores to compute; None for the default ones."""
        return None if self.scores is None else [name.strip() for name in self.scores.split(",")]

    def arguments(self) -> list[str]:
        """Return the command-line arguments for these options.

        >>> ServerOptions(port=0, fsync=True).arguments()
        ['--port=0', '--fsync']
        """
        changed = [(_flag(each), getattr(self, each.name)) for each in fields(self) if self._differs(each)]
        return [flag if value is True else f"{flag}={value}" for flag, value in changed]

    def _differs(self, option: Field[Any]) -> bool:
        return bool(getattr(self, option.name) != option.default)


def choose(options: ServerOptions | None, changes: Mapping[str, Any]) -> ServerOptions:
    """Return ``options``, by default the defaults, with ``changes``; raises InputError if one is invalid.

    >>> choose(None, {"grace": 5}).grace
    5
    """
    known = [each.name for each in fields(ServerOptions)]
    for name in changes:
        if name not in known:
            raise InputError(f"There is no option {name!r}. {did_you_mean(name, known)}")
    return replace(options or ServerOptions(), **changes)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser, for ``serve(**vars(parser.parse_args()))``."""
    for option in fields(ServerOptions):
        known: dict[str, Any] = {"default": option.default, "help": option.metadata["text"]}
        if isinstance(option.default, bool):
            known["action"] = "store_true"
        else:
            known |= {"type": option.metadata["parse"], "metavar": option.metadata["metavar"]}
        if option.metadata["choices"]:
            known |= {"choices": option.metadata["choices"]}
        parser.add_argument(_flag(option), **known)


def takes_options(function: _F) -> _F:
    """Give a function of ``(options, /, **changes)`` the signature and documentation of all options."""
    own = inspect.signature(function)
    kept = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    named = [
        inspect.Parameter(each.name, keyword, default=each.default, annotation=each.type)
        for each in fields(ServerOptions)
    ]
    lines = [f"    {each.name}: {_sentence(each.metadata['text'])}" for each in fields(ServerOptions)]
    function.__signature__ = own.replace(parameters=[*kept, *named])  # type: ignore[attr-defined]
    text = inspect.cleandoc(function.__doc__ or "")
    function.__doc__ = text.replace("{options}", "\n".join(lines).lstrip())
    return function


def one_thread() -> None:
    """Limit numerical libraries to one thread, so that scoring does not slow down a training.

    The libraries read these environment variables at import, so this must be called before they are imported.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _flag(option: Field[Any]) -> str:
    return f"--{option.name.replace('_', '-')}"
