"""The line to a server: a byte-bounded queue and one background thread that empties it.

The training process is sacred. Room in the queue is reserved before a tensor is copied, so memory is
bounded; without room a record is dropped and counted. The thread alone talks to the network. Every batch
bears the client's id and a number, so sending one twice does no harm.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import threading
import time
import uuid
import weakref
from collections import deque
from typing import Any

from ..core.errors import InputError, ServeError
from ..core.record import Record
from ..storage.codec import encode_records
from .breaker import Breaker
from .client import BINARY, JSON, Answer, Client
from .jobs import Counts, Job, OpenRequest
from .sent_counts import EpochKey, SentCounts
from .warn_once import WarningLog, logger

BATCH_BYTES = 32 << 20  # a pass larger than this goes out in several requests
BLOCK_S = 30.0  # the longest that ``block`` may hold the training up while nothing moves
EXIT_S = 5.0
IDLE_S = 5.0  # an idle thread ends; the next batch starts another
ATTEMPTS = 3  # answers to a request, after which the server's own failure is its last word


class Sender:
    """All that one process sends to one server. Thread-safe; starts afresh in a forked child."""

    def __init__(self, host: str, port: int, capacity: int) -> None:
        self.host, self.port, self.capacity = host, port, capacity
        self.asked = False  # whether the capacity is what a caller asked for
        self._chance = random.Random()  # its own: the global generator belongs to the training
        self.before_flush: weakref.WeakSet[Any] = weakref.WeakSet()  # taps whose probe set may be due
        self.worked = 0.0  # seconds of the processor that sending took
        self._fresh()
        atexit.register(self._at_exit)

    def _fresh(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._client = Client(self.host, self.port)
        self._id, self._seq = str(uuid.uuid4()), 0
        self._jobs: deque[Job] = deque()
        self._trying: Job | None = None  # what the thread is at, or was last
        self._gathering = OpenRequest()
        self._bytes = 0
        self._counts = Counts()
        self._tallies = SentCounts()
        self._breaker = Breaker()
        self._reached = False  # whether the server ever answered
        self._stuck = False  # whether a wait for room ended without any
        self._thread: threading.Thread | None = None
        self.troubles = WarningLog()

    def _own(self) -> None:
        """A forked child has the parent's queue but not its thread: it starts with nothing."""
        if os.getpid() != self._pid:
            self._fresh()

    @property
    def id(self) -> str:
        """What the server knows this process by."""
        self._own()
        return self._id

    # -- from the training thread --------------------------------------------------------------------

    def reserve(self, nbytes: int, wait: float = 0.0, span: EpochKey | None = None) -> bool:
        """Take room for a record of ``nbytes``, waiting up to ``wait`` seconds; False counts it dropped, of
        the epoch ``span``."""
        self._own()
        with self._changed:
            if not self._has_room(nbytes):
                self._post()  # what is gathered can only make room once it is on its way
                if wait and not self._stuck and nbytes <= self.capacity and not self._breaker.down:
                    moved = self._changed.wait_for(
                        lambda: self._has_room(nbytes) or self._breaker.down, timeout=wait
                    )
                    self._stuck = not moved
            if not self._has_room(nbytes):
                self._counts.dropped += 1
                if span is not None:
                    self._tallies.dropped(span)
                return False
            self._bytes += nbytes
            return True

    def _has_room(self, nbytes: int) -> bool:
        absent = self._breaker.down and not self._reached and self._breaker.wait(time.monotonic()) > 0
        return not absent and self._bytes + nbytes <= self.capacity

    def release(self, nbytes: int) -> None:
        """Give back room that no record came for."""
        with self._changed:
            self._bytes = max(0, self._bytes - nbytes)

    def gather(self, record: Record, nbytes: int) -> None:
        """Let a record, for which room was reserved, join the next batch."""
        self._own()
        with self._changed:
            self._gathering.records.append(record)
            self._gathering.nbytes += nbytes
            self._counts.waiting += 1
            self._tallies.sent(_span(record))
            if self._gathering.nbytes >= BATCH_BYTES:
                self._post()

    def post(self) -> None:
        """Put what was gathered on its way, as one request."""
        self._own()
        with self._changed:
            self._post()

    def _post(self) -> None:
        batch, self._gathering = self._gathering, OpenRequest()
        if batch.records:
            self._push(self._batch(batch.records, batch.nbytes))

    def _batch(self, records: list[Record], nbytes: int = 0) -> Job:
        """A request with these records, and news of the epochs."""
        self._seq += 1
        job = Job("/records", bytes, nbytes=nbytes, records=len(records), spans=[_span(r) for r in records])
        facts = {"client": self._id, "seq": self._seq}

        def encode() -> bytes:
            with self._changed:
                if job.said is None:  # a second try must say the same: the first may have been heard
                    job.said = self._tallies.news(set(job.spans))
                    facts["dropped"] = self._counts.dropped
            return encode_records(records, facts | {"epochs": job.said})

        job.body = encode
        return job

    def begin(self, span: EpochKey) -> None:
        """An epoch begins."""
        self._own()
        with self._changed:
            self._tallies.begin(span)

    def end(self, span: EpochKey) -> None:
        """An epoch has ended; the next batch tells it."""
        self._own()
        with self._changed:
            self._tallies.end(span)

    def leave(self, run: str, model: str) -> None:
        """A model is watched no more, which the server should know now."""
        self._own()
        with self._changed:
            self._post()
            self._tallies.leave(run, model)
            self._tell()

    def _tell(self) -> None:
        """Send the news that no batch has told; to a server that was never there it means nothing."""
        if self._reached and not self._jobs and self._tallies.news():
            self._push(self._batch([]))

    def send(self, path: str, body: bytes, content: str = BINARY, topic: str = "") -> Job:
        """Queue a message behind what was gathered; it is kept until the server has it.

        It replaces one of the same path and ``topic`` that still waits. A message takes room like records;
        without room it is dropped, said, and its job comes back as such.
        """
        self._own()
        job = Job(path, lambda: body, content, nbytes=len(body), topic=topic)
        with self._changed:
            self._post()
            for old in [one for one in self._jobs if one is not self._trying and one.is_replaced_by(job)]:
                self._finish(old, "dropped")
            if self._bytes + job.nbytes > self.capacity:
                job.state = "dropped"
            else:
                self._bytes += job.nbytes
                self._push(job)
        if job.state == "dropped":
            text = "intus: no room for %s (%s bytes): it is not sent. A larger queue_mb gives more."
            self.troubles.count(f"room {path}", text, path, job.nbytes)
        return job

    def send_json(self, path: str, value: Any, topic: str = "") -> Job:
        """Queue a JSON message."""
        return self.send(path, json.dumps(value, allow_nan=False).encode(), JSON, topic)

    def wait(self, job: Job, timeout: float) -> bool:
        """Wait until a job is done, the server counts as absent or the time is up: was it delivered?"""
        with self._changed:
            self._changed.wait_for(lambda: job.state != "waiting" or self._breaker.down, timeout)
            return job.state == "sent"

    def drain(self, timeout: float) -> bool:
        """Send everything; False when the time ran out or the server is gone, at once if it stays gone."""
        self._own()
        with self._changed:
            self._post()
            self._tell()
            before = self._breaker.failures
            self._breaker.hurry()
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: not self._jobs or (self._breaker.down and self._breaker.failures > before), timeout
            )
            return not self._jobs

    def counts(self) -> Counts:
        """What became of the records."""
        self._own()
        with self._changed:
            c = self._counts
            return Counts(c.sent, c.dropped, c.failed, c.waiting)

    @property
    def state(self) -> str:
        """``"up"``, ``"down"``, or ``"untried"`` before the first answer."""
        if self._breaker.down:
            return "down"
        return "up" if self._reached else "untried"

    # -- the thread ----------------------------------------------------------------------------------

    def _push(self, job: Job) -> None:
        self._jobs.append(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="intus-sender", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down
                self._thread = None
        self._changed.notify_all()

    def _run(self) -> None:
        before = time.thread_time()
        while (job := self._next()) is not None:
            try:
                self._attempt(job)
            except Exception as error:
                self.troubles.count(
                    "send", "intus could not send a batch: %s: %s", type(error).__name__, error
                )
                self._finish(job, "failed")
            del job
            now = time.thread_time()
            self.worked, before = self.worked + now - before, now

    def _next(self) -> Job | None:
        """The job at the head once a try is due; None, and the end of the thread, after idling."""
        with self._changed:
            while True:
                if not self._jobs and not self._changed.wait_for(lambda: self._jobs, IDLE_S):
                    self._thread = None
                    self._client.close()
                    return None
                pause = self._breaker.wait(time.monotonic())
                if not pause:
                    self._trying = self._jobs[0]
                    return self._trying
                self._changed.wait(pause)

    def _attempt(self, job: Job) -> None:
        body = job.body()
        try:
            answer = self._client.post(job.path, body, job.content)
        except ServeError as error:
            self._unreachable(str(error))
            return
        with self._changed:
            self._reached = True
            job.answers += 1
        if answer.status in (429, 503, 507) or (answer.status >= 500 and job.answers < ATTEMPTS):
            with self._changed:
                self._breaker.busy(time.monotonic(), self._chance.random(), answer.retry_after)
        else:
            self._answered(job, answer)

    def _answered(self, job: Job, answer: Answer) -> None:
        if not answer.ok:
            text = "intus: %s:%s refused %s: %s"
            code = f"refused {answer.status}"
            self.troubles.count(code, text, self.host, self.port, job.path, answer.why)
        with self._changed:
            self._breaker.worked()
            self.troubles.again("line")
            self._finish(job, "sent" if answer.ok else "failed")
            if self._tallies.leaving():
                self._tell()

    def _finish(self, job: Job, state: str) -> None:
        with self._changed:
            if job.state != "waiting":
                return
            job.state = state
            if state == "sent":
                self._tallies.told(job.said or [])
            else:
                for span in job.spans:
                    self._tallies.lost(span)
            self._jobs.remove(job)
            self._bytes -= job.nbytes
            self._counts.waiting -= job.records
            setattr(self._counts, state, getattr(self._counts, state) + job.records)
            self._stuck = False
            self._changed.notify_all()

    def _unreachable(self, why: str) -> None:
        with self._changed:
            self._breaker.failed(time.monotonic(), self._chance.random())
            down = self._breaker.down
        if down:
            what = "recording is interrupted" if self._reached else "nothing is recorded"
            self.troubles.count(
                "line",
                f"intus: {what}: %s. Start a server with `intus serve`; the training goes on unharmed, and "
                "recording starts when the server answers.",
                why,
            )
        with self._changed:
            if down and not self._reached:  # nobody has been there yet: what waits would only grow stale
                for job in [job for job in self._jobs if job.records]:
                    self._finish(job, "dropped")
            self._changed.notify_all()

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._post()
            self._tallies.leave()
        if self.drain(EXIT_S):
            return
        left = self.counts().waiting
        if left:
            logger.warning("intus: %s records could not be sent to %s:%s.", left, self.host, self.port)


def _span(record: Record) -> EpochKey:
    return EpochKey(record.run, record.model, record.epoch)


_LINES: dict[tuple[str, int], Sender] = {}  # one line per server in a process: flush(host, port) must find it
_LINES_LOCK = threading.Lock()


def line(host: str, port: int, queue_mb: float = 0.0) -> Sender:
    """This process's line to a server; its queue is the largest that was asked for, 256 MB if nobody asked.

    Raises InputError for what cannot be a host or a port.
    """
    if not isinstance(host, str) or not host or any(mark in host for mark in "/ \r\n"):
        raise InputError(f"host={host!r} is not a host name. Write one such as '127.0.0.1'.")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise InputError(f"port={port!r} is not a port. Write a number from 1 to 65535, 8082 by default.")
    with _LINES_LOCK:
        sender = _LINES.get((host, port))
        if sender is None:
            sender = _LINES[host, port] = Sender(host, port, int((queue_mb or 256) * 2**20))
        elif queue_mb:
            wanted = int(queue_mb * 2**20)
            sender.capacity = max(sender.capacity, wanted) if sender.asked else wanted
        sender.asked |= bool(queue_mb)
        return sender
