"""One life of a server under a fault: it starts, gets requests, and is stopped or killed.

It runs in a process of its own, forked, with the roles, the routes and the files of a real server; only the
sockets are left out. It writes what it sees to a pipe, a JSON value in each line: so what was acknowledged
is known when it is killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fault_injector import Injector
from recorded_ingest import DOUBT, LAYERS, SCORES, TARGET, Point, Step, expected, in_doubt, target

from intus.core.errors import IntusError
from intus.engines.on_demand import OnDemandEngine
from intus.serving import run, worker
from intus.serving.aggregation import aggregator, journal, service
from intus.serving.evaluation import evaluator, scoring
from intus.serving.http import app
from intus.serving.options import ServerOptions
from intus.storage.database import Database

#: Seconds for what must happen once the fault is over.
PATIENCE_S = 20.0
#: Seconds that a flush waits: while a fault lasts, and otherwise.
FAULTY_FLUSH_S, FLUSH_S = 1, 5
TRIES = 5


def set_up() -> None:
    """Make the server small and fast: files of a few requests, no waiting between tries, few scores."""
    journal.FILE_BYTES = 3000
    service.TICK_S = 1e6  # the recorded ingest has the clock's calls
    worker.FIRST_PAUSE_S, worker.LONGEST_PAUSE_S, worker.FLUSH_PAUSE_S = 0.01, 0.02, 0.02
    worker.AWAY_S = 0.2
    scoring.default_scores = lambda: list(SCORES)
    app.openapi = lambda served: {}  # which takes as long as everything else
    OnDemandEngine._start = lambda self, task: None  # processes, which start after more work than this
    evaluator.warm_up = lambda scores: None  # the process has imported all, and calls have one order


def warm_up(folder: Path, steps: list[Step]) -> None:
    """Live without a fault, so that forked processes have imported all, and leave no thread."""
    set_up()
    seen: list[dict] = []
    life = Life(folder, lambda **what: seen.append(what), Injector(folder))
    assert life.start()
    finish(life, Script(life, steps, set(), set()))
    life.stop()
    life.loop.close()
    assert not [what for what in seen if "fault" in what], seen
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), thread


def _unwritten() -> None:
    """Acknowledge without writing to the journal."""
    journal.Log.append = lambda self, head, body=b"": None


def _unknown() -> None:
    """Take a request that came again for a new one."""
    aggregator.Aggregator.knows = lambda self, run_key, client_id, seq: False


def _unstored() -> None:
    """Count results as stored that are not."""
    Database.add = lambda self, results, infos=(), predicted=(): 0


def _undoubted() -> None:
    """Forget a doubt of rows that is acknowledged."""
    Database.put_doubt = lambda self, run, model, doubt: 0


#: Ways to break the server, by which tests see that the judge notices.
SABOTAGES: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "unwritten": _unwritten,
    "unknown": _unknown,
    "unstored": _unstored,
    "undoubted": _undoubted,
}


class Life:
    """A server in this process.

    Args:
        folder: The folder of its files.
        tell: Takes what is seen.
    """

    def __init__(self, folder: Path, tell: Callable[..., None], injector: Injector) -> None:
        self.folder, self.tell, self.injector = folder, tell, injector
        self.loop = asyncio.new_event_loop()
        self.roles = self.app = None

    # -- its begin and end ----------------------------------------------------------------------------

    def start(self) -> bool:
        """Start as ``intus serve`` does; return False if it ended."""
        options = ServerOptions(database=self.folder / "x.db", fsync=True, no_token=True)
        try:
            self.roles = run._make_roles(options)
            self.app = app.build(self.roles)
            self.roles.aggregator.start()
        except IntusError as error:
            self.tell(sentence=str(error))
            return False
        except Exception as error:
            self.tell(fault="silent", text=f"the start ended with {_short(error)}")
            return False
        ends = time.monotonic() + PATIENCE_S
        while not (self.is_read or self.roles.aggregator._failure) and time.monotonic() < ends:
            time.sleep(0.001)
        return True

    @property
    def is_read(self) -> bool:
        return self.roles.aggregator._is_read.is_set()

    def stop(self) -> None:
        self.roles.close(9.0)

    # -- requests -------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Return the status and the JSON of the reply."""
        path, _, query = path.partition("?")
        waits = FAULTY_FLUSH_S if self.injector.lasts else FLUSH_S
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "scheme": "http", "headers": [(b"host", b"127.0.0.1"), (b"prefer", f"wait={waits}".encode())],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        sent: list[dict] = []

        async def receive() -> dict:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict) -> None:
            sent.append(message)

        try:
            self.loop.run_until_complete(self.app(scope, receive, send))
        except Exception as error:  # uvicorn logs it
            self.tell(traceback=f"{path}: {_short(error)}")
        status = next((each["status"] for each in sent if "status" in each), 0)
        text = b"".join(each.get("body", b"") for each in sent)
        try:
            return status, json.loads(text or b"null")
        except ValueError:
            return status, text.decode(errors="replace")

    def do(self, step: Step) -> str:
        """Send a request once; return "done" if acknowledged, "late" if its rows were refused, or ""."""
        if not step.path:
            try:
                self.roles.aggregator.tick()
            except Exception:  # the clock logs it, and goes on
                logging.exception("tick")
            return "done"
        status, reply = self.ask("POST", step.path, step.body)
        if status != 200:
            self.tell(refused=status, path=step.path, why=str(reply)[:300])
            return ""
        if reply.get("duplicate") or not step.arrays or reply.get("accepted") == len(step.arrays):
            return "done"
        if not step.late:
            self.tell(fault="lost", text=f"a request was answered with {reply}: {step.arrays}")
        return "late"

    def lift(self) -> None:
        """End the fault if it was met; calls are counted until then."""
        self.injector.active = self.injector.active and not self.injector.fired

    def settle(self, seconds: float) -> None:
        """Wait until what was complete is scored."""
        ends = time.monotonic() + seconds
        while self.roles.evaluator.status()["pending"] and time.monotonic() < ends:
            time.sleep(0.0005)

    # -- judging --------------------------------------------------------------------------------------

    def judge(self, accepted: list[Step], only: str = "", *, whole: bool = True) -> None:
        """Compare the page with what must be there, of ``only`` one run; ``whole`` if all is scored."""
        wanted = {point: facts for point, facts in expected(accepted).items() if only in ("", point.run)}
        for name in {point.run for point in wanted} | ({"gone"} if not only else set()):
            status, points = self.ask("GET", "/api/points?" + urlencode({"run": name, "model": "m"}))
            if status != 200:
                if not self.injector.active:
                    self.tell(fault="stuck", text=f"the page has {status} {points}")
                return
            found, labelled, doubted = {}, set(), set()
            for row in zip(*(points[c] for c in COLUMNS), strict=True):
                epoch, address, score, label, value, rows, note = row
                key = Point(name, int(epoch), address)
                if score == "mean":
                    found[key] = value, rows, note
                if label == TARGET and score == "linear_f1" and value is not None:
                    labelled.add(key)
                    doubted |= {key} if DOUBT in note else set()
            for point in sorted(found.keys() - wanted.keys()) if whole else ():
                self.tell(fault="wrong", text=f"{point} was deleted or never sent, and is there")
            for point in (each for each in wanted if each.run == name):
                self._judge_point(point, *wanted[point], found.get(point), point in labelled)
                if point in labelled and (point in doubted) < in_doubt(accepted, point):
                    self.tell(fault="lost", text=f"{point} has lost its doubt")

    def _judge_point(self, point: Point, rows: int, mean: float, found: tuple | None, labelled: bool) -> None:
        if found is None:
            self.tell(fault="lost", text=f"{point} is not there")
            return
        value, has, note = found
        if has != rows:
            what = "lost" if has < rows else "doubled"
            self.tell(fault=what, text=f"{point} has {has} rows of {rows}, note {note!r}")
        elif value != mean:
            self.tell(fault="wrong", text=f"{point} has mean {value}, not {mean}")
        elif (
            "may have been lost" in note
        ):  # what was lost was never acknowledged, which a journal cannot tell
            self.tell(doubted=str(point))
        elif "incomplete" in note:
            self.tell(fault="wrong", text=f"{point} has all rows, and says {note!r}")
        if point.run == "a" and point.address == LAYERS[0] and not labelled:
            self.tell(fault="lost", text=f"{point} has no score of the target")

    def judge_ledger(self) -> None:
        """Check that the account of each run adds up, and has nothing failed, lost or waiting."""
        status, reply = self.ask("GET", "/api/status")
        if status != 200:
            if not self.injector.active:
                self.tell(fault="stuck", text=f"/api/status has {status} {reply}")
            return
        for of in reply["runs"]:
            sent = of["under_way"] + of["unknown"] + of["refused"] + of["kept"]
            kept = of["waiting"] + of["scored"] + of["failed"] + of["lost"]
            if (of["sent"], of["kept"]) != (sent, kept):
                self.tell(fault="ledger", text=f"the sums of {of} differ")
            elif of["failed"] or of["lost"]:
                self.tell(fault="ledger", text=f"{of['failed']} failed, {of['lost']} lost in {of['run']}")

    def judge_file(self) -> None:
        """Ask SQLite whether the database is whole."""
        with sqlite3.connect(self.folder / "x.db") as connection:
            found = connection.execute("PRAGMA integrity_check").fetchall()
            foreign = connection.execute("PRAGMA foreign_key_check").fetchall()
        connection.close()
        if found != [("ok",)] or foreign:
            self.tell(fault="corrupt", text=f"{found} {foreign}")


COLUMNS = ("epoch", "address", "score", "target", "value", "n", "note")


def _short(error: BaseException) -> str:
    places = traceback.extract_tb(error.__traceback__)
    own = [place for place in places if "/intus/" in place.filename]
    where = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}: {error}{where}"[:300]


class Script:
    """Sends the steps that are not acknowledged yet, each client its own in order."""

    def __init__(self, life: Life, steps: list[Step], done: set[int], late: set[int]) -> None:
        self.life, self.steps, self.done, self.late = life, steps, done, late

    @property
    def accepted(self) -> list[Step]:
        return [self.steps[number] for number in sorted(self.done - self.late)]

    def send(self, *, tries: int, after: Callable[[], None] = lambda: None) -> bool:
        """Send all; a client whose request is refused so often stops. Return whether all are acknowledged."""
        stopped = set()
        for number, step in enumerate(self.steps):
            if number in self.done or step.client in stopped:
                continue
            for _ in range(tries):
                if self._do(number, step):
                    break
            else:
                stopped.add(step.client)
            after()
        return not stopped

    def _do(self, number: int, step: Step) -> bool:
        answer = self.life.do(step)
        if not answer:
            return False
        self.done.add(number)
        self.late |= {number} if answer == "late" else set()
        self.life.tell(done=number, late=answer == "late")
        if step.flushes:
            self.life.judge(self.accepted, step.flushes, whole=False)
        return True


def first_life(folder: Path, steps: list[Step], done: set[int], injector: Injector, end: str, tell) -> None:
    """Run the steps under a fault. Then ``end`` it: lift the fault and finish, or kill the process."""
    set_up()
    injector.install()
    life = Life(folder, tell, injector)
    script = Script(life, steps, set(done), set())
    lasting = injector.fault is not None and injector.fault.mode == "lasting"
    injector.active = True

    def after() -> None:
        life.settle(0.02 if injector.fired else 5.0)
        if injector.fired and end == "killed" and not lasting:
            os.kill(os.getpid(), signal.SIGKILL)

    if life.start():
        if life.is_read:
            after()
            script.send(tries=1 if lasting else TRIES, after=after)
        tell(before_end=dict(injector.counts))
        if end == "killed":
            tell(fired=injector.fired)
            os.kill(os.getpid(), signal.SIGKILL)
        life.lift()
        if life.is_read:
            finish(life, script)
        life.stop()  # which has calls, too
    tell(fired=injector.fired, counts=dict(injector.counts), places=injector.places)


def unscored_life(folder: Path, steps: list[Step], tell) -> None:
    """Acknowledge all requests but flushes, score nothing, and be killed."""
    set_up()
    worker.Worker._run = lambda self: None
    life = Life(folder, tell, Injector(folder))
    script = Script(life, steps, {n for n, step in enumerate(steps) if step.flushes}, set())
    assert life.start()
    assert script.send(tries=1)
    os.kill(os.getpid(), signal.SIGKILL)


def finish(life: Life, script: Script) -> None:
    """Send what is left, and judge all."""
    ends = time.monotonic() + PATIENCE_S
    while not script.send(tries=TRIES):
        life.lift()
        if time.monotonic() > ends:
            life.tell(fault="stuck", text="requests are still refused")
            return
        time.sleep(0.05)
    while (answer := life.ask("POST", "/flush", b"{}"))[0] != 200:
        life.lift()
        if time.monotonic() > ends:
            life.tell(fault="stuck", text=f"flush is answered with {answer}")
            return
        time.sleep(0.05)
    life.judge(script.accepted)
    life.judge_ledger()


def second_life(folder: Path, steps: list[Step], done: set[int], late: set[int], tell) -> None:
    """Start again on the same files without a fault, finish, and judge all, also the file."""
    set_up()
    injector = Injector(folder)
    life = Life(folder, tell, injector)
    script = Script(life, steps, set(done), set(late))
    if not life.start():
        tell(fault="stuck", text="the server does not start again")
        return
    if not life.is_read:
        tell(fault="stuck", text=f"the journal is not read: {life.roles.aggregator._failure}")
        return
    if 0 in script.done:
        life.do(target("a"))  # as the docs say: a target is registered again for a run that begins after
    finish(life, script)
    life.stop()
    life.judge_file()
