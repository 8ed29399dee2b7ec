"""The queue to a server, and one background thread that sends it.

Nothing here may harm the training. Room in the queue is reserved before a tensor is copied, so memory is
bounded; without room a record is dropped and counted. Only the thread uses the network. Every request has the
client's id and a sequence number, so sending it twice has no effect.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import random
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from ..core.doubt import Doubt
from ..core.errors import InputError, ServeError
from ..core.record import LateRecord, Record
from ..storage.codec import records_blob
from .breaker import Breaker
from .budget import Seconds
from .client import BINARY, JSON, RECONNECT_S, Answer, Client
from .jobs import Counts, Job, OpenRequest
from .sent_counts import EpochKey, SentCounts
from .targets import RegisteredTarget
from .warn_once import WarningLog, log_once, note_reason

BATCH_BYTES = 32 << 20  # a larger pass is sent in several requests
BLOCK_S = 30.0  # the longest that ``block`` waits while nothing is sent
EXIT_S = 5.0
IDLE_S = 5.0  # the thread ends after this time without requests; the next request starts another
#: The codes of the server's notices of labels that it cannot match to rows, of what it cannot score, and of
#: layers that sent nothing in an epoch.
_NO_SCORES = "target_misfit", "score_failed", "absent"
_MOST_NO_SCORES = 5  # sentences about layers that fail, which may be all of a network
LEDGER_S = 2.0  # the longest that the server may take to answer what became of the records
ATTEMPTS = 3  # server errors after which a request has failed
BUSY = 429  # the status of a server that is slower than what it gets

#: Why records are dropped, for the page.
ABSENT = "no server had answered yet"
SLOWER = (
    "its queue was full, because the server or the network was slower than the training (record fewer layers "
    "or steps: which=, when=)"
)


class Sender:
    """Sends the records and messages of one process to one server.

    It is thread-safe, and starts empty in a forked child.

    Args:
        host: The server's host name.
        port: Its port.
        capacity: The size of the queue in bytes.
    """

    def __init__(self, host: str, port: int, capacity: int) -> None:
        self.host, self.port, self.capacity = host, port, capacity
        self.capacity_requested = False  # whether a caller chose the capacity
        self._random = random.Random()  # not the global generator, which the training uses
        self.taps: weakref.WeakSet[Any] = weakref.WeakSet()  # whose probe set may have to run before flush
        #: The targets that this process registered, by name and patterns for models, layers and runs.
        self.targets: dict[tuple[str, str, str, str], RegisteredTarget] = {}
        self.logs: list[Any] = []  # of probes; what they collected is sent before the queue is drained
        self.followers: list[Any] = []  # of probes, which read what the server finds
        self.busy = Seconds(0.0, 0.0)  # of sending, following and devices, beside the training's threads
        self._reset()
        atexit.register(self._at_exit)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._client = Client(self.host, self.port)
        self._id, self._seq = str(uuid.uuid4()), 0
        self._jobs: deque[Job] = deque()
        self._in_flight: Job | None = None  # the request that the thread sends or sent last
        self._open_request = OpenRequest()
        self._bytes = 0
        self._counts = Counts()
        self._sent_counts = SentCounts()
        self._breaker = Breaker()
        self._ever_answered = False
        self._delay: Answer | None = None  # with which the server put off the first request of the queue
        self._no_answer = ""  # why the last attempt got no answer
        self.refusal = ""  # why the server refused this process, until it accepts a request
        self._refused: dict[tuple[str, str], str] = {}  # why records of a (run, model) failed, the first time
        self._refused_messages: dict[str, str] = {}  # what was said of refused messages, by path
        self._stuck = False  # whether the last wait for room timed out
        self._logs_due = math.inf  # when the thread posts what the logs collected
        self._thread: threading.Thread | None = None
        self.troubles = WarningLog()

    def _reset_if_forked(self) -> None:
        """Start empty in a forked child, which has the parent's queue but not its thread."""
        if os.getpid() != self._pid:
            self._reset()

    @property
    def id(self) -> str:
        """The id of this process for the server."""
        self._reset_if_forked()
        return self._id

    @property
    def requests(self) -> int:
        """The number of requests with records that were queued so far."""
        self._reset_if_forked()
        return self._seq

    # -- called by the training ------------------------------------------------------------------------

    def reserve(self, nbytes: int, wait: float = 0.0, epoch: EpochKey | None = None) -> bool:
        """Reserve room in the queue for a record.

        Args:
            nbytes: The size of the record.
            wait: The maximum number of seconds to wait for room.
            epoch: The epoch of the record.

        Returns:
            Whether there is room. If not, the record is counted as dropped.
        """
        self._reset_if_forked()
        with self._changed:
            if not self._has_room(nbytes):
                self._post()  # collected records free their room only once they are sent
                if wait and not self._stuck and nbytes <= self.capacity and not self._breaker.down:
                    moved = self._changed.wait_for(
                        lambda: self._has_room(nbytes) or self._breaker.down, timeout=wait
                    )
                    self._stuck = not moved
            if not self._has_room(nbytes):
                self._counts.dropped += 1
                if epoch is not None:
                    self._sent_counts.dropped(epoch, self._why_no_room(nbytes))
                return False
            self._bytes += nbytes
            return True

    def _has_room(self, nbytes: int) -> bool:
        absent = self._breaker.down and not self._ever_answered and self._breaker.wait(time.monotonic()) > 0
        return not absent and self._bytes + nbytes <= self.capacity

    def _why_no_room(self, nbytes: int) -> str:
        if not self._ever_answered and (self._breaker.down or self._no_answer):
            return ABSENT
        if nbytes > self.capacity:
            return "an array is larger than the queue (queue_mb=)"
        if self._no_answer or (self._delay is not None and self._delay.status != BUSY):
            return f"its queue was full, because {self._why_unsent()}"
        return SLOWER

    def _why_unsent(self) -> str:
        """Return why the first request of the queue was not sent yet."""
        if self._delay is not None:
            return f"the {self._takes_nothing(self._delay)}"
        return self._no_answer

    def _takes_nothing(self, answer: Answer) -> str:
        return f"server {self.host}:{self.port} takes nothing now: {answer.why.rstrip('.')}"

    def release(self, nbytes: int) -> None:
        """Release room that was reserved but is not used."""
        with self._changed:
            self._bytes = max(0, self._bytes - nbytes)

    def gather(self, record: Record | LateRecord, nbytes: int, contents: Hashable | None = None) -> None:
        """Add a record, for which room was reserved, to the next request.

        Args:
            record: The record.
            nbytes: The room that was reserved.
            contents: What its arrays were made of, for ``gather_again``; None if that may have changed.
        """
        self._reset_if_forked()
        with self._changed:
            if contents is not None:
                self._open_request.by_contents.setdefault(contents, []).append(record)
            self._open_request.nbytes += nbytes
            self._add(record)
            if self._open_request.nbytes >= BATCH_BYTES:
                self._post()

    def gather_again(self, contents: Hashable, count: int, address: str, kind: str, index: int) -> bool:
        """Add the records of a tensor once more, as those of another with the same contents.

        They share their arrays, which a request has once, so they need no room.

        Args:
            contents: What their arrays were made of.
            count: The number of records of a tensor.
            address: The address of the other tensor.
            kind: Its kind.
            index: Its index.

        Returns:
            False if the next request has no such records, or only a part.
        """
        self._reset_if_forked()
        with self._changed:
            found = self._open_request.by_contents.get(contents, ())
            if len(found) != count:
                return False
            for record in found:
                self._add(replace(record, address=address, kind=kind, index=index))
            return True

    def _add(self, record: Record | LateRecord) -> None:
        self._open_request.records.append(record)
        self._counts.waiting += 1
        self._sent_counts.sent(_epoch_key(record))

    def post(self) -> None:
        """Queue the collected records as one request."""
        self._reset_if_forked()
        with self._changed:
            self._post()

    def _post(self) -> None:
        batch, self._open_request = self._open_request, OpenRequest()
        if batch.records:
            self._push(self._batch(batch.records, batch.nbytes))

    def _batch(self, records: list[Record | LateRecord], nbytes: int = 0, *, of_all: bool = False) -> Job:
        """Return a request with these records, and the counts of their epochs, or those ``of_all``."""
        self._seq += 1
        epochs = [self._sent_counts.current(_epoch_key(record)) for record in records]
        job = Job("/records", bytes, nbytes=nbytes, records=len(records), epochs=epochs)
        facts = {"client": self._id, "seq": self._seq}

        def encode() -> memoryview:
            with self._changed:
                if job.epoch_counts is None:  # a retry must be identical: the first may have arrived
                    job.epoch_counts = self._sent_counts.unacknowledged(None if of_all else set(job.epochs))
                    facts["dropped"] = self._counts.dropped
            made = [one.record() if isinstance(one, LateRecord) else one for one in records]
            return records_blob(made, facts | {"epochs": job.epoch_counts})

        job.body = encode
        return job

    def post_logs_in(self, seconds: float) -> None:
        """Let the thread post what the logs have collected, after this time at the latest."""
        self._reset_if_forked()
        with self._changed:
            self._logs_due = min(self._logs_due, time.monotonic() + seconds)
            self._wake()

    def begin_training(self, run: str, model: str, job: str = "") -> bool:
        """Register a training; return whether this process sent of another one under the same names.

        Args:
            run: The run.
            model: The model.
            job: The name that the processes of the training share; "" if unknown.
        """
        self._reset_if_forked()
        with self._changed:
            self._post()
            self._sent_counts.jobs[run, model] = job
            return self._sent_counts.begin_training(run, model)

    def begin(self, epoch: EpochKey) -> bool:
        """Register the start of an epoch; return whether it is of another training."""
        self._reset_if_forked()
        with self._changed:
            self._post()  # a request has records of one training
            return self._sent_counts.begin(epoch)

    def end(self, epoch: EpochKey, idle: Iterable[str] = ()) -> None:
        """Register the end of an epoch, for the next request; ``idle`` layers are absent on purpose."""
        self._reset_if_forked()
        with self._changed:
            self._sent_counts.end(epoch, idle)

    def whole(self, epoch: EpochKey) -> None:
        """Register that an epoch is whole if nothing more of it is sent, for the next request."""
        self._reset_if_forked()
        with self._changed:
            self._post()
            self._sent_counts.whole(epoch)

    def count_failed(self, epoch: EpochKey) -> None:
        """Count a record of an epoch that could not be made, which the next request reports."""
        self._reset_if_forked()
        with self._changed:
            self._sent_counts.failed(epoch)

    def tell(self, epoch: EpochKey, notes: list[dict[str, Any]]) -> None:
        """Report notes for the page with the next request."""
        self._reset_if_forked()
        with self._changed:
            self._sent_counts.tell(epoch, notes)

    def close_model(self, run: str, model: str) -> None:
        """Report to the server that a model is no longer recorded."""
        self._reset_if_forked()
        with self._changed:
            self._post()
            self._sent_counts.close(run, model)
            self._send_counts()

    def _send_counts(self, *, of_all: bool = False) -> None:
        """Report changed counts that no request of the queue does; if the server never answered, only notes.

        Args:
            of_all: Also those of models that the server does not know yet, and that have not ended.
        """
        under_way = [row for job in self._jobs for row in job.epoch_counts or ()]
        waiting = [job for job in self._jobs if job.path == "/records" and job.epoch_counts is None]
        if waiting:
            epochs = {epoch for job in waiting for epoch in job.epochs}
            under_way += self._sent_counts.unacknowledged(epochs)
        rows = self._sent_counts.unacknowledged(None if of_all else set())
        is_wanted = self._ever_answered or self._sent_counts.has_notes()
        if is_wanted and any(row not in under_way for row in rows):
            self._push(self._batch([], of_all=of_all))

    def send(
        self, path: str, body: bytes, content: str = BINARY, topic: str = "", *, takes_room: bool = True
    ) -> Job:
        """Queue a message behind the collected records; it is kept until the server has it.

        It replaces a waiting message of the same path and ``topic``. A message takes room like records.
        Without room it is dropped with a warning, and its state is ``"dropped"``.

        Args:
            path: The path of the request.
            body: The body.
            content: The content type.
            topic: Identifies messages that replace each other; ``""`` for none.
            takes_room: False for a message that is few and small, and must not be dropped.

        Returns:
            The queued request.
        """
        self._reset_if_forked()
        job = Job(path, lambda: body, content, nbytes=len(body) if takes_room else 0, topic=topic)
        with self._changed:
            self._post()
            for old in [one for one in self._jobs if one is not self._in_flight and one.is_replaced_by(job)]:
                self._finish(old, "dropped")
            if self._bytes + job.nbytes > self.capacity:
                job.state = "dropped"
            else:
                self._bytes += job.nbytes
                self._push(job)
        if job.state == "dropped":
            text = (
                "intus: the queue has no room for %s (%s bytes), which is not sent. Pass a larger queue_mb= "
                "to probe()."
            )
            self.troubles.count(f"room {path}", text, path, job.nbytes)
        return job

    def doubt(self, run: str, model: str, doubt: Doubt) -> None:
        """Tell the server of a doubt of rows of the present training, which scores of them have then."""
        self._reset_if_forked()
        with self._changed:
            training = self._sent_counts.current(EpochKey(run, model, None)).training
        facts = doubt.stated() | {"run": run, "model": model, "client": self._id, "training": training}
        self.send("/doubts", json.dumps(facts).encode(), JSON, takes_room=False)

    def send_json(self, path: str, value: Any, topic: str = "") -> Job:
        """Queue a JSON message."""
        return self.send(path, json.dumps(value, allow_nan=False).encode(), JSON, topic)

    def wait(self, job: Job, timeout: float) -> bool:
        """Wait until a request is done, the server counts as down, or the time is up.

        Args:
            job: The request.
            timeout: The maximum number of seconds to wait.

        Returns:
            Whether the server has received it.
        """
        with self._changed:
            self._changed.wait_for(lambda: job.state != "waiting" or self._breaker.down, timeout)
            return job.state == "sent"

    def drain(self, timeout: float) -> bool:
        """Send everything in the queue.

        Args:
            timeout: The maximum number of seconds to wait.

        Returns:
            Whether nothing is left in the queue. False if the time ran out, or if after another attempt the
            server is down, or takes nothing until somebody mends it.
        """
        self._reset_if_forked()
        self._post_logs()
        with self._changed:
            self._post()
            self._send_counts(of_all=True)
            before = self._breaker.failures
            self.refusal = ""  # the token may be right by now
            self._delay = None  # and the server mended
            self._breaker.retry_now()
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: (
                    not self._jobs
                    or self._thread is None  # the interpreter is shutting down
                    or self.refusal
                    or (self._delay is not None and self._delay.reply.get("lasting") is True)
                    or (self._breaker.down and self._breaker.failures > before)
                ),
                timeout,
            )
            return not self._jobs

    def count_busy(self, seconds: float) -> None:
        """Add processor time of a thread that works for the probes of this server."""
        with self._changed:
            self.busy = Seconds(self.busy.wall + seconds, self.busy.processor + seconds)

    def count_device(self, seconds: float) -> None:
        """Add time for which a GPU worked for the probes of this server, and not for the training."""
        with self._changed:
            self.busy = self.busy._replace(wall=self.busy.wall + seconds)

    def counts(self) -> Counts:
        """Return the numbers of records sent, dropped, failed and waiting."""
        self._reset_if_forked()
        with self._changed:
            counts = self._counts
            return Counts(counts.sent, counts.dropped, counts.failed, counts.waiting)

    def unsent(self) -> str:
        """Return what waits to be sent, and why; "" for nothing."""
        self._reset_if_forked()
        with self._changed:
            if not self._jobs or self.refusal:
                return ""
            why = self._why_unsent() or "the time ran out"
            left = self._counts.waiting
            return f"{why}; {left} records wait to be sent" if left else why

    def refused(self, run: str | None = None, model: str | None = None) -> list[str]:
        """Return a sentence for each (run, model), or those named, of which records failed."""
        self._reset_if_forked()
        with self._changed:
            refused = dict(self._refused)
        return [
            f"records of run {of_run!r} of {of_model!r} were lost, because {why}"
            for (of_run, of_model), why in refused.items()
            if run in (None, of_run) and model in (None, of_model)
        ]

    def faults(self) -> list[str]:
        """Return what the server refused, and why it takes nothing, as sentences."""
        found = [*self._refused_messages.values(), *self.refused(), self.refusal]
        if (delay := self._delay) is not None and delay.status >= 500:
            found.append(self._why_unsent())
        if self._breaker.down:
            found.append(self._no_answer)
        return [text[:1].upper() + text[1:] for text in found if text]

    def ledger(self, run: str, model: str) -> dict[str, Any] | None:
        """Ask the server what became of the records of a (run, model).

        Returns:
            The fields of ``RunLedger`` of the server; None if it does not know or did not answer in LEDGER_S.
        """
        rows = self._ask("/api/status", run=run, model=model).get("runs")
        row = rows[0] if isinstance(rows, list) and rows else None
        return row if isinstance(row, dict) and "kept" in row else None

    def no_scores(self, run: str, model: str) -> list[str]:
        """Ask the server which labels of a (run, model) it cannot match to rows, and what has no scores.

        Returns:
            The sentences of its notices, at most five of each kind.
        """
        notices = self._ask("/api/notices", run=run).get("notices")
        own = [
            one
            for one in (notices if isinstance(notices, list) else ())
            if one.get("run") == run and one.get("model") == model
        ]
        return [
            text
            for code in _NO_SCORES
            for text in _first([one["text"] for one in own if one.get("code") == code])
        ]

    def _ask(self, path: str, **query: str) -> dict[str, Any]:
        """Return the server's reply, within LEDGER_S; an empty one if it did not answer or refused."""
        if self.state != "up":
            return {}
        client = Client(self.host, self.port, LEDGER_S)
        try:
            answer = client.get(f"{path}?{urlencode(query, errors='replace')}")
        except (ServeError, ValueError):  # ValueError: a token that no header can hold
            return {}
        finally:
            client.close()
        return answer.reply if answer.ok else {}

    @property
    def state(self) -> str:
        """``"up"``, ``"down"``, ``"refused"`` without its token, or ``"untried"`` before the first answer."""
        if self._breaker.down:
            return "down"
        if self.refusal:
            return "refused"
        return "up" if self._ever_answered else "untried"

    # -- the thread ----------------------------------------------------------------------------------

    def _push(self, job: Job) -> None:
        self._jobs.append(job)
        self._wake()

    def _wake(self) -> None:
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
                    "send", "intus could not send a batch, which is lost: %s: %s", type(error).__name__, error
                )
                self._finish(job, "failed", f"they could not be sent: {type(error).__name__}")
            del job
            now = time.thread_time()
            self.count_busy(now - before)
            before = now

    def _next(self) -> Job | None:
        """Return the first request once an attempt is due, or None to end the thread after idling.

        Meanwhile post what logs have collected, when that is due.
        """
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._jobs or self._logs_due < math.inf, IDLE_S):
                    self._thread = None
                    self._client.close()
                    return None
                now = time.monotonic()
                is_due = self._logs_due <= now and not (self._jobs and self._breaker.down)
                if is_due:
                    self._logs_due = math.inf
                elif self._jobs:
                    pause = self._breaker.wait(now)
                    if not pause:
                        self._in_flight = self._jobs[0]
                        return self._in_flight
                    self._changed.wait(pause)
                else:
                    self._changed.wait(self._logs_due - now)
            if is_due:
                self._post_logs()

    def _post_logs(self) -> None:
        for log in self.logs:  # outside of the lock: a log takes it within its own
            log.post()

    def _attempt(self, job: Job) -> None:
        try:
            if self._breaker.failures:  # find out whether it is back before anything is encoded
                self._client.connect(RECONNECT_S)
            answer = self._client.post(job.path, job.body(), job.content)
        except ServeError as error:
            self._handle_no_answer(str(error))
            return
        with self._changed:
            self._ever_answered, self._no_answer = True, ""
            job.answers += 1
        if answer.status in (408, 429, 503, 507) or (answer.status >= 500 and job.answers < ATTEMPTS):
            if answer.status != BUSY:
                note_reason(self._takes_nothing(answer), answer.why.rstrip("."))
            with self._changed:
                self._delay = answer
                self._breaker.busy(time.monotonic(), self._random.random(), answer.retry_after)
                self._changed.notify_all()
        else:
            self._handle_answer(job, answer)

    def _handle_answer(self, job: Job, answer: Answer) -> None:
        if not answer.ok:
            self.log_refusal(job.path, answer)
        with self._changed:
            self._delay = None
            self._breaker.succeeded()
            self.troubles.reset("connection")
            if answer.ok:
                self.refusal = ""
                self.troubles.reset("refused 403")
            self._finish(job, "sent" if answer.ok else "failed", f"the server refused them: {answer.why}")
            again = answer.ok or (job.records and not self.refusal)  # refused counts would be refused anew
            if again and self._sent_counts.has_unacknowledged_close():
                self._send_counts()

    def log_refusal(self, path: str, answer: Answer) -> None:
        """Log a refused request, once per route; 403, for a wrong token, once, and it ends waiting."""
        text = f"the server {self.host}:{self.port} refused {path}: {answer.why}"
        route = "" if answer.status == 403 else f" {path.partition('?')[0]}"
        self.troubles.count(f"refused {answer.status}{route}", "intus: %s", text)
        if route and path != "/records":
            self._refused_messages.setdefault(route, text)
        if answer.status == 403:
            with self._changed:
                self.refusal = text[:1].upper() + text[1:]
                self._changed.notify_all()

    def _finish(self, job: Job, state: str, why: str = "") -> None:
        with self._changed:
            if job.state != "waiting":
                return
            job.state = state
            if state == "sent":
                for epoch in job.epochs:
                    self._sent_counts.delivered(epoch)
                self._sent_counts.acknowledge(job.epoch_counts or [])
            else:
                for epoch in job.epochs:
                    self._sent_counts.lost(epoch, why)
                    if state == "failed" and not self.refusal:
                        self._refused.setdefault(epoch[:2], why)
            self._jobs.remove(job)
            self._bytes -= job.nbytes
            self._counts.waiting -= job.records
            setattr(self._counts, state, getattr(self._counts, state) + job.records)
            self._stuck = False
            self._changed.notify_all()

    def _handle_no_answer(self, why: str) -> None:
        with self._changed:
            self._delay, self._no_answer = None, why
            self._breaker.failed(time.monotonic(), self._random.random())
            down = self._breaker.down
        if down:
            what = "recording is interrupted" if self._ever_answered else "nothing is recorded"
            self.troubles.count(
                "connection",
                f"intus: {what}, because %s. The training is not affected. Start a server with `intus serve` "
                "and recording starts when it answers.",
                why,
            )
        with self._changed:
            if down and not self._ever_answered:  # never up: drop records, which would only become outdated
                for job in [job for job in self._jobs if job.records]:
                    self._finish(job, "dropped", ABSENT)
            self._changed.notify_all()

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        for tap in list(self.taps):
            tap.end()
        with self._changed:
            self._post()
            self._sent_counts.close()
        if self.drain(EXIT_S):
            return
        left, why = self.counts().waiting, self._why_unsent() or "the time ran out"
        if left:
            text = f"{left} records could not be sent to {self.host}:{self.port} before exit: {why}."
            log_once(f"intus: {text}", text)


def _first(texts: list[str]) -> list[str]:
    """Return the first sentences, and one that counts the others."""
    more = len(texts) - _MOST_NO_SCORES
    return [*texts[:_MOST_NO_SCORES], *([f"{more} more such notices are on the page."] if more > 0 else [])]


def _epoch_key(record: Record | LateRecord) -> EpochKey:
    return EpochKey(record.run, record.model, record.epoch)


#: One sender per server in a process, so that flush(host, port) finds it.
_SENDERS: dict[tuple[str, int], Sender] = {}
_SENDERS_LOCK = threading.Lock()


def get_sender(host: str, port: int, queue_mb: float = 0.0) -> Sender:
    """Return the sender of this process for a server, created on first use.

    Args:
        host: The server's host name.
        port: Its port.
        queue_mb: The size of the queue in megabytes; 0 if the caller has no preference. The largest size
            requested is used, or 256 if none was.

    Raises:
        InputError: If the host or port is invalid.
    """
    if not isinstance(host, str) or not host or any(mark in host for mark in "/ \r\n"):
        raise InputError(f"host must be a host name such as '127.0.0.1', got {host!r}.")
    name, colon, number = host.partition(":")
    if colon and number.isdigit():
        raise InputError(
            f"host must be a host name without a port, got {host!r}: pass host={name!r}, port={number}."
        )
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise InputError(f"port must be a number from 1 to 65535 (8082 by default), got {port!r}.")
    with _SENDERS_LOCK:
        sender = _SENDERS.get((host, port))
        if sender is None:
            sender = _SENDERS[host, port] = Sender(host, port, int((queue_mb or 256) * 2**20))
        elif queue_mb:
            wanted = int(queue_mb * 2**20)
            sender.capacity = max(sender.capacity, wanted) if sender.capacity_requested else wanted
        sender.capacity_requested |= bool(queue_mb)
        return sender
