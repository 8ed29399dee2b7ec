"""The next role, reached over HTTP: the same methods as the role itself."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ...core.errors import ServeError
from ...core.results import Results
from ...core.score_info import ScoreInfo
from ...storage.codec import encode_records
from ..aggregation.journal import Log
from ..data_point import DataPoint
from ..decoding import builtins, encode
from ..errors import AwayError, FullError
from ..evaluation.targets import Target
from ..interfaces import Done
from ..messages import (
    ArrivalOrderRequest,
    ClaimRequest,
    ClearRequest,
    FlushRequest,
    Notice,
    NoticesRequest,
    RemoveRequest,
    ResultsRequest,
    StatusReport,
)
from ..worker import Worker, wait_for

_log = logging.getLogger("intus.serving")
_RETRIES = (0.1, 0.3, 1.0)
_LONGEST_PAUSE = 1.0


class Remote:
    """What both stand-ins have in common. ``url`` is like ``http://127.0.0.1:8081``."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 600.0) -> None:
        self.url, self.token, self.timeout = url.rstrip("/"), token, timeout

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        self._ask(_graph_path(run, model), blob)

    def put_target(self, target: Target) -> None:
        self._post("/targets", target.request())

    def notices(self, notices: Sequence[Notice]) -> None:
        if notices:
            self._post("/notices", NoticesRequest(list(notices)))

    def report(self, report: StatusReport) -> None:
        self._post("/status", report)

    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        wait = {} if timeout is None else {"Prefer": f"wait={math.ceil(timeout)}"}
        self._ask_once("/flush", encode(FlushRequest(run, model)), wait)

    def clear(self) -> None:
        self._post("/clear", ClearRequest())

    def remove(self, model: str) -> None:
        self._post("/remove", RemoveRequest(model))

    def _post(self, path: str, message: Any) -> None:
        self._ask(path, encode(message))

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        """Return the JSON answer; a server that is away or busy is asked again a few times."""
        for delay in _RETRIES:
            try:
                return self._ask_once(path, body)
            except AwayError:
                time.sleep(delay)
        return self._ask_once(path, body)

    def _ask_once(self, path: str, body: bytes | None = None, extra: Mapping[str, str] | None = None) -> Any:
        """Return the JSON answer; raises AwayError if another try may help, else ServeError."""
        headers = {"Content-Type": "application/octet-stream", **(extra or {})}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            kind = AwayError if error.code in (429, 502, 503, 504, 507) else ServeError
            raise kind(f"{self.url}{path} answered {error.code}: {text}") from None
        except (OSError, ValueError) as error:  # no answer, or a part of one
            raise AwayError(f"{self.url} cannot be reached: {error}") from None


class RemoteFrontend(Remote):
    """The frontend, as the evaluator sees it."""

    def results(self, results: Results, infos: Sequence[ScoreInfo] = ()) -> None:
        self._post("/results", ResultsRequest.of(results, infos))

    def claim_target(self, name: str, owner: str) -> None:
        self._post("/claim", ClaimRequest(name, owner))

    def arrival_order(self, run: str, model: str, mode: str, holds: bool) -> None:
        self._post("/order", ArrivalOrderRequest(run, model, mode, holds))

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("/targets")["targets"]
        return found


@dataclass(frozen=True, slots=True)
class _Call:
    """A request to send later.

    Attributes:
        send: Sends it.
        nbytes: Its size.
        model: The model it belongs to, if it belongs to one.
        done: Called when it was sent, or refused.
        matters: Whether to send it again until it arrives.
    """

    send: Callable[[], None]
    nbytes: int = 0
    model: str | None = None
    done: Callable[[], None] = lambda: None
    matters: bool = True


class RemoteEvaluator(Remote):
    """The evaluator, as the aggregator sees it.

    A thread sends what clients would otherwise have to wait for, in order, and again until it has arrived: a
    data point is done when it is scored and stored.

    Args:
        url: The evaluator's URL.
        token: The secret it asks for.
        folder: Where targets and graphs that wait are kept, so that they survive the process.
    """

    def __init__(self, url: str, token: str | None = None, folder: Path | None = None) -> None:
        super().__init__(url, token)
        self._trouble = ""
        self._closing = threading.Event()
        self._latest: StatusReport | None = None
        self._reporting = threading.Lock()  # around _latest
        self._spool = None if folder is None else _Spool(folder)
        self._worker: Worker[_Call] = Worker("intus-to-evaluator", self._deliver, lambda c: c.nbytes)
        if self._spool is not None:
            for number, path, body in self._spool.waiting():
                self._submit(number, path, body)

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        self._keep(_graph_path(run, model), blob)

    def put_target(self, target: Target) -> None:
        self._keep("/targets", encode(target.request()))

    def points(self, batch: Sequence[DataPoint], done: Done = lambda point: None) -> None:
        for number, point in enumerate(batch, start=1):
            send = partial(self._send, point, last=number == len(batch))
            self._worker.submit(_Call(send, point.nbytes, point.key.model, partial(done, point)))

    def backlog(self) -> int:
        return self._worker.nbytes

    def notices(self, notices: Sequence[Notice]) -> None:
        self._worker.submit(_Call(partial(super().notices, notices), matters=False))

    def report(self, report: StatusReport) -> None:
        with self._reporting:
            waits, self._latest = self._latest is not None, report
        if not waits:
            self._worker.submit(_Call(self._send_report, matters=False))

    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        super().flush(run, model, wait_for(self._worker, lambda: self._trouble, timeout))

    def clear(self) -> None:
        self._drop(lambda call: True)
        super().clear()

    def remove(self, model: str) -> None:
        self._drop(lambda call: call.model == model)
        super().remove(model)

    def close(self) -> None:
        """Send what waits, as long as the evaluator takes it."""
        self._closing.set()
        self._worker.close()
        if self._spool is not None:
            self._spool.close()

    # ------------------------------------------------------------------------------------------------

    def _keep(self, path: str, body: bytes) -> None:
        self._submit(-1 if self._spool is None else self._spool.put(path, body), path, body)

    def _submit(self, number: int, path: str, body: bytes) -> None:
        done = partial(self._spool.sent, number) if self._spool is not None else lambda: None
        self._worker.submit(_Call(partial(self._once, path, body), len(body), done=done))

    def _drop(self, unwanted: Callable[[_Call], bool]) -> None:
        for call in self._worker.drop(unwanted, patience=1.0):
            call.done()

    def _once(self, path: str, body: bytes) -> None:
        self._ask_once(path, body)

    def _send(self, point: DataPoint, *, last: bool) -> None:
        self._ask_once("/datapoint", encode_records(point.records, builtins(point.envelope(last=last))))

    def _send_report(self) -> None:
        with self._reporting:
            latest, self._latest = self._latest, None
        if latest is not None:
            super().report(latest)

    def _deliver(self, call: _Call) -> None:
        """Send a request until it has arrived; once if it does not matter, and not again if it is refused."""
        pause = _RETRIES[0]
        while not (self._closing.is_set() and self._trouble):
            try:
                call.send()
                self._trouble = ""
                break
            except AwayError as error:
                if not self._trouble:
                    _log.warning("Data points wait to be scored: %s", error)
                self._trouble = str(error)
                if not call.matters:
                    break
                self._closing.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            except ServeError:  # refused, as another try would be; the worker logs it
                call.done()
                raise
        else:
            return  # what waits is kept until the server is started again
        call.done()


class _Spool:
    """Keeps messages on disk until they were sent."""

    def __init__(self, folder: Path) -> None:
        self._log = Log(folder, fsync=False)
        self._lock = threading.Lock()
        self._number = 0

    def waiting(self) -> list[tuple[int, str, bytes]]:
        """Return (number, path, body) of what an earlier process left."""
        out = []
        with self._lock:
            for file, frame in self._log.frames():
                if "path" in frame.head:
                    self._number += 1
                    self._log.hold([self._number], file)
                    out.append((self._number, frame.head["path"], frame.body))
            self._log.begin({})
        return out

    def put(self, path: str, body: bytes) -> int:
        """Keep a message; return its number."""
        with self._lock:
            try:
                self._log.append({"path": path}, body)
            except OSError as error:
                raise FullError(f"The message cannot be kept: {error}. Send it again later.") from error
            self._number += 1
            self._log.hold([self._number])
            return self._number

    def sent(self, number: int) -> None:
        """Delete a message that was sent."""
        with self._lock:
            self._log.release([number], {})

    def close(self) -> None:
        with self._lock:
            self._log.close()


def _graph_path(run: str, model: str) -> str:
    return "/graph?" + urlencode({"run": run, "model": model})
