"""``serve``: a server in this process until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import logging
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import uvicorn
from starlette.concurrency import run_in_threadpool
from threadpoolctl import threadpool_limits

from ..core.errors import IntusError, ServeError
from ..engines import Engine, default_engine, make_engine
from ..storage.database import Database
from ..storage.token_file import LOOPBACK, TokenFile, remove_token, write_token
from .aggregation.aggregator import Aggregator
from .aggregation.journal import Journal
from .aggregation.service import AggregatorService
from .announcement import announcement, bracketed
from .errors import fault
from .evaluation.evaluator import Evaluator
from .evaluation.scoring import check_scores
from .frontend import Frontend
from .http.app import build
from .http.bodies import Bodies
from .http.connections import Connection
from .http.feed import ChangeFeed
from .http.remote import RemoteEvaluator, RemoteFrontend
from .interfaces import EvaluatorLink, FrontendLink
from .last_minute import LastMinute
from .options import ServerOptions, add_options, choose, takes_options
from .roles import Roles
from .started import Server as Server  # so that both are imported from one place

_log = logging.getLogger("intus.serving")
#: Seconds in which a server stops, since its journal keeps what is not scored by then.
STOP_S = 10
#: The part of them for requests that are being answered.
_FINISH_REQUESTS_S = 3


@takes_options
def serve(options: ServerOptions | None = None, /, **changes: Any) -> None:
    """Run a server until SIGINT or SIGTERM, then score what was received for ten seconds and return.

    By default one process runs all three roles, on three ports, or on ``port`` alone. Records that are not
    scored yet are stored in the journal, so no acknowledged record is lost when the process is killed, and
    the next start scores what this one left.

    Args:
        options: The options; by default each has its default value.
        **changes: Single options by name, which override those in ``options``. The names are those below.
        {options}

    Raises:
        InputError: If an option has a value that cannot work.
        ServeError: If the server cannot listen, or cannot use its journal or Ray's cluster.
        MissingExtraError: If Ray or PostgreSQL's driver is needed and not installed.
    """
    if _in_event_loop():
        raise ServeError(
            "serve() runs until it is stopped, which an event loop, such as a notebook's, does not allow. "
            "Start the server in a process of its own: from intus.serving.run import Server; server = "
            "Server(); server.page_url"
        )
    _serve(choose(options, changes))


def _serve(options: ServerOptions) -> None:
    _raise_file_limit()
    default = {
        "aggregator": options.aggregator_port,
        "evaluator": options.evaluator_port,
        "frontend": options.frontend_port,
    }
    if options.port is not None:
        ports = [options.port]
    else:
        ports = list(default.values()) if options.role == "all" else [default[options.role]]
    sockets = [_listen(options.host, number) for number in dict.fromkeys(ports)]
    listening_on = [listening.getsockname()[1] for listening in sockets]
    token = None if options.no_token else options.given_token or secrets.token_urlsafe(24)
    with contextlib.ExitStack() as closing:
        for listening in sockets:
            closing.callback(listening.close)
        token_files: list[TokenFile] = []
        closing.callback(_remove_token_files, token_files)
        _write_token_files(token_files, listening_on, token, options)
        roles = _make_roles(options)
        if roles.aggregator:
            roles.aggregator.start()
        shown = None if options.given_token else token
        print(announcement(options, listening_on, shown), flush=True)
        with threadpool_limits(1):  # more threads would slow a training on the same machine down
            _run(roles, sockets, options, token, partial(_remove_token_files, token_files))


def _write_token_files(
    written: list[TokenFile], ports: Sequence[int], token: str | None, options: ServerOptions
) -> None:
    """Write the token into files that only this user can read, from which clients on this machine take it."""
    for port in ports if token is not None else ():
        try:
            written.append(write_token(port, token or ""))
        except (OSError, RuntimeError) as error:
            if options.given_token is None:
                raise ServeError(
                    f"The server's new token cannot be written for the probes of this machine: {error}. Give "
                    "one (--token TOKEN) and set INTUS_TOKEN for them, or let every user in (--no-token)."
                ) from error


def _remove_token_files(written: Sequence[TokenFile]) -> None:
    for file in written:
        remove_token(file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m intus.serving``: serve, or print the error in one line and return 1."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    about = (serve.__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m intus.serving", description=about)
    add_options(parser)
    try:
        serve(**vars(parser.parse_args(arguments)))
    except IntusError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _make_roles(options: ServerOptions) -> Roles:
    try:
        return _roles_of(options)
    except MemoryError as error:
        raise ServeError(
            f"{fault(error)} The server did not start, and its files are as they were."
        ) from error


def _roles_of(options: ServerOptions) -> Roles:
    host, token = bracketed(options.host), options.given_token
    if options.role == "aggregator":
        journal = _journal(options)
        url = options.evaluator_url or f"http://{host}:{options.evaluator_port}"
        evaluator = RemoteEvaluator(url, token, None if journal is None else journal.spool)
        return Roles(_service(evaluator, options, journal))
    if options.role == "evaluator":
        url = options.frontend_url or f"http://{host}:{options.frontend_port}"
        return Roles(evaluator=_evaluator(RemoteFrontend(url, token), options))
    frontend = Frontend(Database(options.database, fsync=options.fsync))
    if options.role == "frontend":
        return Roles(frontend=frontend)
    with contextlib.ExitStack() as undoing:
        undoing.callback(frontend.close)
        journal = _journal(options)
        if journal is not None:
            undoing.callback(journal.close)
        all_scores = _evaluator(frontend, options, on_show=frontend.on_show.now)
        undoing.pop_all()
    return Roles(_service(all_scores, options, journal), all_scores, frontend)


def _evaluator(frontend: FrontendLink, options: ServerOptions, **facts: Any) -> Evaluator:
    check_scores(options.score_names)
    engine = _engine(options)
    return Evaluator(
        frontend,
        options.score_names,
        engine=engine,
        splits=options.splits,
        keeps=options.journal_folder is not None,
        **facts,
    )


def _service(evaluator: EvaluatorLink, options: ServerOptions, journal: Journal | None) -> AggregatorService:
    aggregator = Aggregator(options.trigger.split(","), options.max_bytes, options.grace)
    return AggregatorService(evaluator, aggregator, journal, read_later=True)


def _journal(options: ServerOptions) -> Journal | None:
    if options.journal_folder is None:
        return None
    return Journal(options.journal_folder, max_bytes=options.journal_bytes, fsync=options.fsync)


def _engine(options: ServerOptions) -> Engine:
    if options.engine is None:
        return default_engine()
    if isinstance(options.engine, int):
        return make_engine("on demand", options.engine)
    return make_engine(options.engine, options.workers, options.ray_address)


def _run(
    roles: Roles,
    sockets: list[socket.socket],
    options: ServerOptions,
    token: str | None,
    ending: Callable[[], None],
) -> None:
    feed = ChangeFeed(roles.frontend.database) if roles.frontend else None
    bodies = Bodies(options.max_bytes)
    app = build(roles, token=token, loopback=options.host in LOOPBACK, bodies=bodies, feed=feed)
    config = uvicorn_config(app)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises a signal again once it has shut down
        _Uvicorn(config, roles, feed, ending).run(sockets=sockets)


def uvicorn_config(app: Any) -> uvicorn.Config:
    """Return how uvicorn serves an application."""
    return uvicorn.Config(
        app,
        http=Connection,
        log_config=None,
        access_log=False,
        timeout_keep_alive=120,  # uvicorn's 5 s would cut off a probe that sends once an epoch
        timeout_graceful_shutdown=_FINISH_REQUESTS_S,
        server_header=False,
    )


class _Uvicorn(uvicorn.Server):
    """Closes event streams before the shutdown, which they would delay, and finishes the queues after it.

    ``ended`` is called last: after SIGTERM nothing else runs.
    """

    def __init__(
        self, config: uvicorn.Config, roles: Roles, feed: ChangeFeed | None, ended: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._roles, self._feed, self._ended = roles, feed, ended

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_LoopErrors())
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        began, kept = time.monotonic(), self._roles.keeps_rest
        text = (
            f"Stopping. What is not scored in {STOP_S} seconds is kept, and scored after the next start."
            if kept
            else "Stopping when all that was received is scored."
        )
        with contextlib.suppress(OSError):  # the output may be a closed pipe
            print(f"\n{text} Press Ctrl+C again to stop now.", flush=True)
        if self._feed is not None:
            self._feed.close()
        await super().shutdown(sockets)
        patience = max(STOP_S - 1 - (time.monotonic() - began), 1.0) if kept else None
        finishing = threading.Thread(
            target=self._roles.close, args=(patience,), name="intus-finish", daemon=True
        )
        finishing.start()
        while finishing.is_alive() and not self.force_exit:  # a second Ctrl+C ends it at once
            await asyncio.sleep(0.05)
        if finishing.is_alive():
            await run_in_threadpool(self._roles.end)
        self._ended()


class _LoopErrors:
    """Logs errors of the event loop: that no connection can be accepted once a minute, others each time.

    asyncio tries to accept thousands of times a second, which would fill the disk with lines.
    """

    def __init__(self) -> None:
        self._said = LastMinute()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)):
            loop.default_exception_handler(context)
        elif self._said.is_new("no connection"):
            _log.error(
                "No connection can be accepted: %s (ulimit -n). The server goes on when others are closed.",
                error,
            )


def _raise_file_limit() -> None:
    """Allow as many open files as the system permits; the usual limit is 1,024, on macOS 256."""
    try:
        import resource
    except ImportError:  # Windows
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # macOS says "unlimited" and allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # asyncio disables Nagle's algorithm (40 ms a request) only for sockets created with IPPROTO_TCP.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen(128)
        except BaseException:
            listening.close()
            raise
    except socket.gaierror as error:
        raise ServeError(
            f"host={host!r} is not an address: {error}. Use 127.0.0.1 for this machine alone, or 0.0.0.0 to "
            "let other machines connect (--host)."
        ) from error
    except OSError as error:
        raise ServeError(
            f"The server cannot listen on port {port} of {host}: {error}. If another server runs there, stop "
            "it, or choose another port (--port)."
        ) from error
    listening.setblocking(False)
    return listening


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
