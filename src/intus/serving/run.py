"""Starting servers: ``serve`` in this process until interrupted, ``Server`` in a process beside this one."""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import logging
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from threadpoolctl import threadpool_limits

from ..core.errors import InputError, IntusError, ServeError
from ..storage.database import Database
from .aggregation.aggregator import GRACE_S, Aggregator
from .aggregation.journal import Journal
from .aggregation.service import Collector
from .announcement import announcement, bracketed
from .evaluation.engine import Engine, make
from .evaluation.evaluator import Evaluator
from .frontend import Frontend
from .http.app import MAX_BODY, build
from .http.feed import ChangeFeed
from .http.guard import LOOPBACK
from .http.remote import RemoteEvaluator, RemoteFrontend
from .options import ENGINES, ROLES, add_options
from .roles import Roles

_READY = re.compile(r"Page: http://(?P<page>\S+)/ · probes send to (?P<host>\S+):(?P<port>\d+)")


def serve(
    *,
    host: str = "127.0.0.1",
    role: str = "all",
    port: int | None = None,
    aggregator_port: int = 8082,
    evaluator_port: int = 8081,
    frontend_port: int = 8080,
    database: str | Path = "intus.db",
    token: str | None = None,
    evaluator_url: str | None = None,
    frontend_url: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    ray_address: str | None = None,
    max_bytes: int = 1 << 30,
    trigger: str = "epoch",
    grace: float = GRACE_S,
    journal: str | Path | None = None,
    journal_bytes: int = 4 << 30,
    fsync: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what was received and return.

    All roles in one process by default, on all three ports, or on ``port`` alone (0 picks a free one). Of
    one role, ``port`` is its port, and the next of the chain is at ``evaluator_url`` or ``frontend_url``,
    by default on ``host``. This process computes the scores, or with ``engine="ray"`` so many ``workers`` of
    Ray's, on this machine or on the cluster at ``ray_address``. ``token`` is asked of every request, and
    needed to listen beyond this machine. ``max_bytes`` bounds the arrays that wait for their epoch to end;
    ``trigger`` names more fields whose change ends a wait, "epoch,step" say; ``grace`` is how many seconds an
    epoch is waited for of which not all has come. Until it is scored, what was sent is also in the folder
    ``journal``, by default beside the database, of at most ``journal_bytes``: nothing that was acknowledged
    is lost when the server is killed, and with ``fsync`` when the power goes. Raises ServeError, InputError,
    or MissingExtraError where Ray is not installed.
    """
    if _in_event_loop():
        raise ServeError(
            "serve() runs until it is stopped, and here an event loop runs already, as in a notebook. Start "
            "the server beside it: from intus.serving.run import Server; server = Server(); server.page_url"
        )
    if role not in ROLES:
        raise InputError(f"role={role!r} is not one of {', '.join(ROLES)}.")
    if engine not in ENGINES:
        raise InputError(f"engine={engine!r} is not one of {', '.join(ENGINES)}.")
    if engine == "local" and (workers is not None or ray_address is not None):
        raise InputError('workers and ray_address are of Ray: say engine="ray" (--engine ray) too.')
    if token and not (token.isascii() and token.isprintable() and token == token.strip()):
        raise InputError(
            "The token must be of ASCII letters, digits and signs, with no space at an end: it travels in a "
            "header. Choose another (--token TOKEN)."
        )
    if host not in LOOPBACK and not token:
        raise ServeError(
            f"Listening on {host} lets other machines in, so a token is needed: serve(token=...) or "
            "--token TOKEN. Or listen on 127.0.0.1."
        )
    numbers = {"grace": grace, "max_bytes": max_bytes, "journal_bytes": journal_bytes, "workers": workers}
    for name, number in numbers.items():
        if number is not None and not 0 < number < float("inf"):
            raise InputError(f"{name}={number!r} is not more than nothing. Leave it out for the default.")
    for name, url in (("evaluator_url", evaluator_url), ("frontend_url", frontend_url)):
        if url is not None and not re.match(r"https?://[^/]", url):
            raise InputError(f"{name}={url!r} is not an address. Write it as http://HOST:PORT.")
    default = {"aggregator": aggregator_port, "evaluator": evaluator_port, "frontend": frontend_port}
    ports = [port] if port is not None else list(default.values()) if role == "all" else [default[role]]
    sockets = [_listen(host, number) for number in dict.fromkeys(ports)]
    evaluator_url = evaluator_url or f"http://{bracketed(host)}:{evaluator_port}"
    frontend_url = frontend_url or f"http://{bracketed(host)}:{frontend_port}"
    try:
        aggregator = Aggregator(trigger.split(","), max_bytes, grace)
        folder = Path(journal) if journal is not None else _beside(database)
        kept = partial(Journal, folder, max_bytes=journal_bytes, fsync=fsync)
        scoring = partial(make, engine, workers, ray_address)
        roles = _roles(role, database, token, evaluator_url, frontend_url, aggregator, kept, fsync, scoring)
    except Exception:
        for listening in sockets:
            listening.close()
        raise
    listening_on = [listening.getsockname()[1] for listening in sockets]
    print(announcement(host, role, listening_on, database, token), flush=True)
    with threadpool_limits(1):  # scoring is one thread's work; more would only get in the training's way
        _run(roles, sockets, token, loopback=host in LOOPBACK)


class Server:
    """A server of all roles in a process of its own, for tests, demos and notebooks.

    ``page_url`` is the page's address, ``host`` and ``port`` what probes send to. Options are those of
    ``serve``. A context manager; ``stop`` ends it, and finishes what was received; so does the end of this
    process. Ctrl+C, or a notebook's interrupt, is not for it.

        with Server(database="runs.db", port=0) as server:
            probe(model, server.host, server.port)
    """

    def __init__(self, **options: Any) -> None:
        given = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        arguments = [
            name if value is True else f"{name}={value}"
            for name, value in given.items()
            if value is not None and value is not False
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "intus.serving", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        atexit.register(self.stop)
        assert self.process.stdout is not None
        try:
            line = self.process.stdout.readline()
        except BaseException:  # Ctrl+C while it starts
            self.process.kill()
            raise
        ready = _READY.search(line)
        if ready is None:
            _, complaint = self.process.communicate()
            raise ServeError(f"The server did not start: {(line + complaint).strip()}")
        self.page_url, self.host, self.port = f"http://{ready['page']}/", ready["host"], int(ready["port"])
        self.log: list[str] = []
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._drain, args=(stream,), daemon=True).start()

    def stop(self, timeout: float = 60.0) -> None:
        """Ask the server to end, and kill it when it has not after ``timeout`` seconds."""
        atexit.unregister(self.stop)
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _drain(self, stream: Any) -> None:
        with stream:  # an unread pipe would fill up and stop the server
            self.log.extend(stream)


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m intus.serving``: serve, and tell in one line why it cannot."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m intus.serving", description=serve.__doc__)
    add_options(parser)
    try:
        serve(**vars(parser.parse_args(arguments)))
    except IntusError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _roles(
    role: str,
    database: str | Path,
    token: str | None,
    evaluator_url: str,
    frontend_url: str,
    aggregator: Aggregator,
    kept: Callable[[], Journal],
    fsync: bool,
    scoring: Callable[[], Engine],
) -> Roles:
    if role == "aggregator":
        journal = kept()
        evaluator = RemoteEvaluator(evaluator_url, token, journal.spool)
        return Roles(Collector(evaluator, aggregator, journal))
    if role == "evaluator":
        return Roles(evaluator=Evaluator(RemoteFrontend(frontend_url, token), engine=scoring()))
    frontend = Frontend(Database(database, fsync=fsync))
    if role == "frontend":
        return Roles(frontend=frontend)
    with contextlib.ExitStack() as undoing:
        undoing.callback(frontend.close)
        journal = kept()
        undoing.callback(journal.close)
        all_scores = Evaluator(frontend, engine=scoring())
        undoing.pop_all()
    return Roles(Collector(all_scores, aggregator, journal), all_scores, frontend)


def _beside(database: str | Path) -> Path:
    """Where the journal is unless told: beside a database that is a file."""
    return Path("intus.journal" if "://" in str(database) else f"{database}.journal")


def _run(roles: Roles, sockets: list[socket.socket], token: str | None, *, loopback: bool) -> None:
    feed = ChangeFeed(roles.frontend.database) if roles.frontend else None
    if roles.collector:
        roles.collector.start()
    config = uvicorn.Config(
        build(roles, token=token, loopback=loopback, max_body=MAX_BODY, feed=feed),
        log_config=None,
        access_log=False,
        timeout_keep_alive=120,  # uvicorn's 5 s would cut off a probe that sends once an epoch
        timeout_graceful_shutdown=30,
        server_header=False,
    )
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises a signal again once it has shut down
        _Uvicorn(config, roles, feed).run(sockets=sockets)


class _Uvicorn(uvicorn.Server):
    """Ends the streams of events first, which would hold the shutdown up, and finishes the queues last."""

    def __init__(self, config: uvicorn.Config, roles: Roles, feed: ChangeFeed | None) -> None:
        super().__init__(config)
        self._roles, self._feed = roles, feed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        print("\nStopping: what was received is scored first. Ctrl+C again stops at once.", flush=True)
        if self._feed is not None:
            self._feed.close()
        await super().shutdown(sockets)
        finishing = threading.Thread(target=self._roles.close, name="intus-finish", daemon=True)
        finishing.start()
        while finishing.is_alive() and not self.force_exit:  # a second Ctrl+C ends it at once
            await asyncio.sleep(0.05)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # asyncio turns Nagle's delay off (40 ms a request) only for sockets that say they are TCP.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen(128)
        except BaseException:
            listening.close()
            raise
    except OverflowError:
        raise InputError(f"port={port} is not a port. Write a number from 0 to 65535.") from None
    except socket.gaierror as error:
        raise ServeError(
            f"host={host!r} is no address: {error}. Use 127.0.0.1 for this machine alone, 0.0.0.0 for every "
            "machine that reaches it (--host)."
        ) from error
    except OSError as error:
        raise ServeError(
            f"Port {port} of {host} cannot be listened on: {error}. Is another server running there? "
            "Stop it, or choose another port with --port."
        ) from error
    listening.setblocking(False)
    return listening


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
