"""Proxies of the next role, which send HTTP requests and have the same methods as the role itself."""

from __future__ import annotations

import http.client
import io
import json
import logging
import math
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from ...core.errors import ServeError
from ...core.results import Predictions, Results
from ...core.score_info import ScoreInfo
from ...storage.codec import encode_records
from ...storage.kept_sketch import KeptSketch
from ...storage.token_file import read_token
from ..aggregation.journal import Log
from ..aggregation.notices import damaged_journal
from ..data_point import DataPoint, with_last
from ..decoding import builtins, decode, encode, read
from ..errors import AwayError, FullError, HeldError, UnansweredError
from ..evaluation.targets import Target
from ..interfaces import Done, RunKey
from ..messages import (
    ArrivalOrderRequest,
    ClaimRequest,
    DoubtRequest,
    FlushRequest,
    MomentMessage,
    Notice,
    NoticesRequest,
    ResultsRequest,
    RunRemoval,
    RunRequest,
    SketchesQuery,
    SketchesReply,
    SketchMessage,
    SketchRequest,
    StatusReport,
    TargetsRemoval,
)
from ..schedule import Moment, Place, Schedule
from ..worker import DATA_POINT, Worker, summary, wait_for

_log = logging.getLogger("intus.serving")
_RETRIES = (0.1, 0.3, 1.0)
#: Seconds without a reply after which a role is asked for something that it can answer at once; seconds in
#: which it must answer that, or take a block of a body; bytes of a block.
CHECK_S, ANSWER_S, BLOCK = 4.0, 5.0, 1 << 18


class _Patient(io.RawIOBase):
    """The bytes that come from a socket. While none come, ``check`` is called after each of its timeouts.

    Only the reading of a TLS connection shows if a byte of the reply has come: messages of TLS itself make
    its socket readable too.
    """

    def __init__(self, sock: socket.socket, holder: io.BufferedReader, check: Callable[[], None]) -> None:
        self._socket, self._holder, self._check = sock, holder, check  # the socket is open while it has one

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                return self._socket.recv_into(buffer)
            except TimeoutError:
                self._check()

    def close(self) -> None:
        self._holder.close()
        super().close()


class _Reply(http.client.HTTPResponse):
    """A reply that calls ``check`` while nothing of it comes."""

    def __init__(
        self, sock: socket.socket, *arguments: Any, check: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Patient(sock, self.fp, check))


class _Checked(http.client.HTTPConnection):
    """A connection that calls ``check`` while no reply comes, to tell a server that hangs from a busy one.

    A server may work on a request for as long as it likes, but must take its body.
    """

    def __init__(self, *arguments: Any, check: Callable[[], None], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.response_class = partial(_Reply, check=check)  # type: ignore[assignment]

    def send(self, data: Any) -> None:
        """Send bytes in blocks, each of which has its own timeout."""
        whole = memoryview(data)
        for start in range(0, len(whole), BLOCK):
            super().send(whole[start : start + BLOCK])

    def getresponse(self) -> http.client.HTTPResponse:
        """Return the reply; raises what ``check`` raises."""
        self.sock.settimeout(CHECK_S)
        return super().getresponse()


class _CheckedTls(_Checked, http.client.HTTPSConnection):
    """The same for a role behind https."""


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens such connections."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self._check = check

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(partial(_Checked, check=self._check), request)

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(partial(_CheckedTls, check=self._check), request)


class Remote:
    """Base of both proxies.

    Attributes:
        role: The name of the role.

    Args:
        url: The role's URL, such as ``http://127.0.0.1:8081``.
        token: The secret that the role requires. Default: that of this user's server at the URL, if it is on
            this machine.
    """

    role = "next server"

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url, self.token = url.rstrip("/"), token
        self._opener = urllib.request.build_opener(_Handler(self._check_answers))

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Send the graph of a model."""
        self._ask(_graph_path(run, model), blob)

    def put_run(self, request: RunRequest) -> None:
        """Send what the user says of a run."""
        self._post("/run", request)

    def put_doubt(self, request: DoubtRequest) -> None:
        """Send a doubt of rows."""
        self._post("/doubts", request)

    def put_target(self, target: Target) -> None:
        """Send a target."""
        self._post("/targets", target.request())

    def notices(self, notices: Sequence[Notice]) -> None:
        """Send notices."""
        if notices:
            self._post("/notices", NoticesRequest(list(notices)))

    def report(self, report: StatusReport) -> None:
        """Send the counts of another role."""
        self._post("/status", report)

    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        """Wait until everything that was sent is scored and stored, of all or of one run or model.

        Raises:
            AwayError: If that takes longer than ``timeout`` seconds, or the role does not answer.
        """
        wait = {} if timeout is None else {"Prefer": f"wait={math.ceil(timeout)}"}
        self._ask_once("/flush", encode(FlushRequest(run, model)), wait)

    def check(self) -> None:
        """Do nothing: the role says so when something is to be stored, and it is kept until then."""

    def clear(self, owner: str) -> None:
        """Delete the targets of a client."""
        self._post("/targets/remove", TargetsRemoval(owner))

    def remove(self, run: str, model: str | None = None) -> bool:
        """Delete a run, or one model of it, and return whether it was stored."""
        try:
            return bool(self._ask("/run/remove", encode(RunRemoval(run, model)))["removed"])
        except UnansweredError as error:
            raise UnansweredError(
                f"{error} It may still delete what is stored of run {run!r} when it can."
            ) from None

    def _post(self, path: str, message: Any) -> None:
        self._ask(path, encode(message))

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        """Send a request and return the JSON reply; retry a few times if the server is away or busy.

        One that hangs is not tried again: the caller tells of it.
        """
        began = time.monotonic()
        for delay in _RETRIES:
            try:
                return self._ask_once(path, body)
            except AwayError:
                if time.monotonic() - began > CHECK_S:
                    raise
                time.sleep(delay)
        return self._ask_once(path, body)

    def _ask_once(self, path: str, body: bytes | None = None, extra: Mapping[str, str] | None = None) -> Any:
        """Send a request and return the JSON reply; raises AwayError if a retry may help, else ServeError."""
        headers = {"Content-Type": "application/octet-stream", **self._token_header(), **(extra or {})}
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            # 403: a server that starts again has a new token, and a wrong one can be mended without loss
            kind = AwayError if error.code in (403, 408, 429, 502, 503, 504) else ServeError
            kind = HeldError if error.code == 507 else kind
            raise kind(f"{self.url}{path} answered {error.code}: {_sentence(text)}") from None
        except (OSError, ValueError) as error:  # no reply, or a truncated one
            refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
            kind = AwayError if refused else UnansweredError
            raise kind(f"The {self.role} {self.url} cannot be reached: {error}") from None

    def _token_header(self) -> dict[str, str]:
        place = urlsplit(self.url)
        token = self.token or read_token(place.hostname or "", place.port or 80)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _check_answers(self) -> None:
        """Raise TimeoutError if the role answers nothing, as when its process hangs or is stopped."""
        request = urllib.request.Request(f"{self.url}/api/status", headers=self._token_header())
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S):
                return
        except urllib.error.HTTPError as error:  # an answer too
            error.close()
        except OSError:
            raise TimeoutError(
                f"it has answered nothing for {CHECK_S + ANSWER_S:.0f} s, as a process does that hangs or is "
                "stopped."
            ) from None


class RemoteFrontend(Remote):
    """The proxy of the frontend, which the evaluator calls."""

    role = "frontend"

    def results(
        self,
        results: Results,
        infos: Sequence[ScoreInfo] = (),
        predicted: Sequence[Predictions] = (),
        unscored: Moment | None = None,
    ) -> None:
        """Send results, what belongs to them, and the earliest epoch of the run not scored in full."""
        self._post("/results", ResultsRequest.of(results, infos, predicted, unscored))

    def keep_sketch(self, run: str, model: str, sketch: KeptSketch, unscored: Moment | None = None) -> None:
        """Send a sample of a layer's rows, to be kept."""
        message = SketchMessage(**sketch._asdict())
        self._post("/sketch", SketchRequest(run, model, message, MomentMessage.of(unscored)))

    def sketches(
        self, run: str, model: str, training: float, at: tuple[str, float, int] | None = None
    ) -> list[KeptSketch]:
        """Return what is kept of a training without its contents, or the sample of a (layer, epoch, step)."""
        answer = self._ask("/sketches", encode(SketchesQuery(run, model, training, at)))
        return [each.sketch() for each in read(answer, SketchesReply).sketches]

    def claim_target(self, name: str, owner: str) -> None:
        """Restrict an owner's targets of a name to the runs of that owner."""
        self._post("/claim", ClaimRequest(name, owner))

    def arrival_order(self, run: str, model: str, mode: str) -> None:
        """Verify the scores of labels that were matched by order of arrival."""
        self._post("/order", ArrivalOrderRequest(run, model, mode))

    def targets(self) -> list[dict[str, Any]]:
        """Return the stored targets."""
        targets: list[dict[str, Any]] = self._ask("/targets")["targets"]
        return targets


@dataclass(frozen=True, slots=True)
class _Call:
    """A queued request.

    Attributes:
        send: Sends it, and returns the reply.
        nbytes: Its size.
        run_key: The (run, model) that it is of; None for a target, which may be of several.
        about: Which data point it is.
        done: Called with the reply when it was sent, or with None when it was refused.
        matters: Whether to retry until it arrives.
        place: The place of a data point in the order of scoring.
        name: What it carries; "" if that does not matter.
    """

    send: Callable[[], Any]
    nbytes: int = 0
    run_key: RunKey | None = None
    about: Hashable = None
    done: Callable[[Any], None] = lambda reply: None
    matters: bool = True
    place: Place | None = None
    name: str = ""


class RemoteEvaluator(Remote):
    """The proxy of the evaluator, which the aggregator calls.

    A thread sends queued requests, so that clients do not wait, and retries each until it arrives. Data
    points are sent by their worth (``schedule``), and before them the others, in order. A data point is done
    when it is scored and stored.

    Args:
        url: The evaluator's URL.
        token: The secret that the evaluator requires.
        folder: Folder for queued targets and graphs, so that they survive this process; None for no folder.
    """

    role = "evaluator"

    def __init__(self, url: str, token: str | None = None, folder: Path | None = None) -> None:
        super().__init__(url, token)
        self._latest: StatusReport | None = None
        self._reporting = threading.Lock()  # around _latest
        self._spool = None if folder is None else _Spool(folder)
        self._worker: Worker[_Call] = Worker(
            "intus-to-evaluator",
            self._deliver,
            lambda call: call.nbytes,
            about=lambda call: call.about,
            waiting=Schedule(lambda call: call.place),
            name_of=lambda call: call.name,
        )
        # apart from what waits for an evaluator that cannot score now: they say that it does
        self._reporter: Worker[_Call] = Worker("intus-reports", self._deliver, lambda call: call.nbytes)
        if self._spool is not None and folder is not None:
            for number, path, body in self._spool.waiting():
                self._submit(number, path, body)
            if self._spool.damage:
                self.notices([damaged_journal(folder, self._spool.damage)])

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Queue the graph of a model."""
        self._keep(_graph_path(run, model), blob)

    def put_run(self, request: RunRequest) -> None:
        """Queue what the user says of a run."""
        self._keep("/run", encode(request))

    def put_doubt(self, request: DoubtRequest) -> None:
        """Queue a doubt of rows."""
        self._keep("/doubts", encode(request))

    def put_target(self, target: Target) -> None:
        """Queue a target."""
        self._keep("/targets", encode(target.request()))

    def points(self, batch: Sequence[DataPoint], done: Done = lambda point, scored: None) -> None:
        """Queue data points that became complete together; ``done`` is called with each that is stored."""
        for point, last in with_last(batch):
            send = partial(self._send, point, last=last)
            settle = partial(_settle, done, point)
            of_point = point.nbytes, point.key[:2], point.identity, settle
            self._worker.submit(_Call(send, *of_point, place=point.place, name=DATA_POINT))

    def backlog(self) -> int:
        """Return the bytes of the queued requests."""
        return self._worker.nbytes

    def notices(self, notices: Sequence[Notice]) -> None:
        """Queue notices; they are sent once, without a retry."""
        self._worker.submit(_Call(partial(super().notices, notices), matters=False))

    def report(self, report: StatusReport) -> None:
        """Queue counts; they replace counts that are still queued."""
        with self._reporting:
            queued, self._latest = self._latest is not None, report
        if not queued:
            self._reporter.submit(_Call(self._send_report, matters=False))

    def check(self) -> None:
        """Write queued messages anew if their file was deleted; raises FullError if that cannot be done."""
        if self._spool is not None:
            self._spool.mend()

    def troubles(self) -> dict[RunKey, str]:
        """Return why data points cannot be scored or stored now, by (run, model)."""
        found = self._worker.troubles()
        return summary((call.run_key, call.name, why) for call, why in found if call.run_key is not None)

    def flush(self, run: str | None = None, model: str | None = None, timeout: float | None = None) -> None:
        """Wait until the queue is sent, then until everything is scored and stored; see ``Remote.flush``."""
        super().flush(run, model, wait_for(self._worker, timeout))

    def remove(self, run: str, model: str | None = None) -> bool:
        """Delete a run, or one model of it, with what is queued of it; after an error that stays queued."""

        def unwanted(call: _Call) -> bool:
            return call.run_key is not None and call.run_key[0] == run and model in (None, call.run_key[1])

        taken = self._worker.take(unwanted)  # so that it is not sent after the removal
        try:
            stored = super().remove(run, model)
        except Exception:
            for call in taken:
                self._worker.submit(call)
            raise
        failed, current = self._worker.drop(unwanted)
        for call in (*taken, *failed):
            call.done(None)
        if current is not None:  # it may have come after the removal
            self._worker.wait_for_current(ANSWER_S)
            stored = super().remove(run, model) or stored
        return stored

    def close(self, patience: float | None = None) -> bool:
        """Send the queue, as long as the evaluator answers, and return whether all was sent.

        Args:
            patience: Seconds to send at most; None for no limit.
        """
        finished = self._worker.close(patience)
        self._reporter.close(1.0)
        if self._spool is not None:
            self._spool.close()
        return finished

    # ------------------------------------------------------------------------------------------------

    def _keep(self, path: str, body: bytes) -> None:
        self._submit(-1 if self._spool is None else self._spool.put(path, body), path, body)

    def _submit(self, number: int, path: str, body: bytes) -> None:
        send, (name, run_key) = partial(self._ask_once, path, body), _carried(path, body)
        self._worker.submit(_Call(send, len(body), run_key, done=self._sent(number), name=name))

    def _sent(self, number: int) -> Callable[[Any], None]:
        spool = self._spool
        return (lambda reply: None) if spool is None else lambda reply: spool.sent(number)

    def _send(self, point: DataPoint, *, last: bool) -> Any:
        waiting = self._worker.earliest(*point.key[:2])
        body = encode_records(point.records, builtins(point.envelope(last=last, waiting=waiting)))
        return self._ask_once("/datapoint", body)

    def _send_report(self) -> None:
        with self._reporting:
            latest, self._latest = self._latest, None
        if latest is not None:
            super().report(latest)

    def _deliver(self, call: _Call) -> None:
        """Send a request; raises AwayError to be called with it again, if it ``matters``."""
        reply = None
        try:
            reply = call.send()
        except AwayError:
            if call.matters:
                raise
        except ServeError:  # a retry would be refused too; the worker logs the error
            call.done(None)
            raise
        call.done(reply)


def _settle(done: Done, point: DataPoint, reply: Any) -> None:
    """Tell whether a data point was scored; one that could not be, or was refused, has none accepted."""
    done(point, reply is not None and reply["accepted"] > 0)


class _Spool:
    """Queued messages on disk, each until it is sent."""

    def __init__(self, folder: Path) -> None:
        self._log = Log(folder, fsync=False)
        self._lock = threading.Lock()
        self._number = 0
        self._kept: dict[int, tuple[str, bytes]] = {}  # path and body of each message

    def waiting(self) -> list[tuple[int, str, bytes]]:
        """Return (number, path, body) of the messages that an earlier process did not send."""
        out = []
        with self._lock:
            for file, frame in self._log.frames():
                if frame is not None and "path" in frame.head:
                    self._number += 1
                    self._log.hold([self._number], file)
                    self._kept[self._number] = frame.head["path"], frame.body
                    out.append((self._number, frame.head["path"], frame.body))
            self._log.begin({})
        return out

    @property
    def damage(self) -> list[str]:
        """Damage that ``waiting`` found: what was damaged or missing."""
        return self._log.damage

    def put(self, path: str, body: bytes) -> int:
        """Store a message and return its number; raises FullError if the disk is full."""
        with self._lock:
            self._mend()
            try:
                self._log.append({"path": path}, body)
            except OSError as error:
                raise FullError(f"The message cannot be kept: {error}. Send it again later.") from error
            self._number += 1
            self._log.hold([self._number])
            self._kept[self._number] = path, body
            return self._number

    def mend(self) -> None:
        """Write the messages anew if their file was deleted; raises FullError if that cannot be done."""
        with self._lock:
            self._mend()

    def _mend(self) -> None:
        try:
            if change := self._log.change():
                messages = [(number, {"path": path}, body) for number, (path, body) in self._kept.items()]
                self._log.renew({}, messages)
                _log.warning("%s. %d queued messages were written anew.", change, len(messages))
        except OSError as error:
            raise FullError(f"The message cannot be kept: {error}. Send it again later.") from error

    def sent(self, number: int) -> None:
        """Delete a message that was sent."""
        with self._lock:
            self._kept.pop(number, None)
            self._log.release([number], {})

    def close(self) -> None:
        with self._lock:
            self._log.close()


def _sentence(reply: str) -> str:
    """Return the sentence of an error's JSON reply; the text itself if it is another."""
    try:
        return str(json.loads(reply)["error"])
    except (ValueError, TypeError, KeyError):
        return reply


def _graph_path(run: str, model: str) -> str:
    return "/graph?" + urlencode({"run": run, "model": model})


def _carried(path: str, body: bytes) -> tuple[str, RunKey | None]:
    """Return what a queued message carries, in words, and of which (run, model); None if of no single one.

    >>> _carried(_graph_path("a b", ""), b"")
    ('graph', ('a b', ''))
    """
    place = urlsplit(path)
    if place.path == "/graph":
        named = dict(parse_qsl(place.query, keep_blank_values=True))
        return "graph", (named["run"], named["model"])
    if place.path == "/run":
        facts = decode(body, RunRequest)
        return "log message", (facts.run, facts.model)
    if place.path == "/doubts":
        doubted = decode(body, DoubtRequest)
        return "doubt", (doubted.run, doubted.model)
    return "target", None
