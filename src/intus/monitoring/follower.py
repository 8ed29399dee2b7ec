"""Follow what the server finds about a model in training, and hand it on: to trackers and to a callback."""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from ..core.errors import ServeError
from ..core.findings import Finding
from ..core.notes import Facts
from .client import Client
from .clocks import thread_seconds, thread_seconds_since
from .commands import flush
from .sender import Sender
from .trackers import Place, Point, Tracker
from .warn_once import WarningLog

POLL_S = 1.0  # between questions to the server
AWAY_S = 10.0  # the same, while it does not answer
END_S = 30.0  # the longest wait for a tracker at the end
MOST = 100_000  # numbers that wait for a tracker that fails
_COLUMNS = ("epoch", "step", "address", "kind", "target", "score", "value", "training", "note")
QUIET_S = 60.0  # without news of a probe that was removed
_RAISED = "intus: the function on_finding raised an error, and is called again with the next finding: %s: %s"
_NO_PAGE = (
    "intus: what the server %s:%s finds cannot be read, because it has no page. Send to a server with all "
    "roles (intus serve), or to the port of one."
)
_FAILED = "intus: the tracker %s could not be written to, and is tried again with what follows: %s: %s"
_CLOSED = (
    "intus: what watch.log is given of %s is still recorded, but no longer written to %s, which flush closed "
    "after watch.remove(). Log before the flush, or call probe() again."
)
_LOST = "intus: %s numbers could not be written to the tracker %s, and are lost there: %s: %s"
_FRACTIONS = (
    "intus: the tracker %s counts steps in whole numbers, so what belongs to epoch %s is written at %s. "
    "Number the epochs 0, 1, 2 to keep them apart."
)
_TAKEN_BACK = (
    "Scores that the tracker {} has got {}, and stay there as they were: {}. Read the corrected ones on the "
    "page of the server, or with intus.runs."
)
_WITHDRAWN, _IN_DOUBT = "are withdrawn", "are in doubt"
#: The names of all runs of trackers in this process begin with these words, by tracker's run and words.
_PREFIXES: dict[tuple[str, str], tuple[str, str]] = {}


class Follower:
    """Asks the server about a model from a thread of its own, from the start of a probe to its end.

    Args:
        sender: The sender of the probe.
        run: The name of the training.
        model: The name of the model.
        trackers: Where to write scores, logged values and findings.
        troubles: Counts and logs what fails.
        on_finding: Called with each finding once; None for nothing.

    Attributes:
        removed: Whether the probe was removed. Then the next ``flush`` is the end.
    """

    def __init__(
        self,
        sender: Sender,
        run: str,
        model: str,
        trackers: Sequence[tuple[Place, Tracker]],
        troubles: WarningLog,
        on_finding: Callable[[Finding], Any] | None = None,
    ) -> None:
        self._sender, self._run, self._model, self._troubles = sender, run, model, troubles
        self._client = Client(sender.host, sender.port, timeout=60.0)  # it may be busy scoring
        self._on_finding = on_finding
        self._found: set[tuple[Any, ...]] = set()  # findings without their words, which may change
        self._outlets = [
            _Outlet(str(place), tracker, _prefix(f"{place.tracker} {tracker.run}", run, model), troubles)
            for place, tracker in trackers
        ]
        self._scores, self._held = _NewScores(), Held()
        self._change = 0  # the last one of the server's database of which the scores were read
        self._logged: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._asked = self._answered = 0  # rounds
        self._ending = False
        self._pid = os.getpid()
        self.removed = False
        if self._outlets and (stored := self._read_scores()) is not None:
            self._scores.leave_out(stored)
            self._change = stored["change"]
        self._thread = threading.Thread(target=self._follow, name="intus-follower", daemon=True)
        self._thread.start()
        sender.followers.append(self)
        if self._outlets:
            atexit.register(self._at_exit)

    # -- called by the training ------------------------------------------------------------------------

    def log(self, entry: dict[str, Any]) -> None:
        """Take values that the user logged: a step, an epoch, a time, and numbers by name."""
        places = [outlet.name for outlet in self._outlets if outlet.tracker.takes_log]
        if not places or os.getpid() != self._pid:  # trackers are those of the process that called probe
            return
        with self._changed:
            if not self._ending:
                self._logged.append(entry)
                return
        self._troubles.warn_once(_CLOSED, self._model, " and ".join(places))

    def catch_up(self, timeout: float) -> None:
        """Wait until all that the server knows by now is handed on."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            self._asked += 1
            wanted = self._asked
            self._changed.notify_all()
            deadline = time.monotonic() + timeout
            while self._answered < wanted and self._thread.is_alive() and time.monotonic() < deadline:
                self._changed.wait(0.5)

    def end(self, timeout: float = END_S) -> None:
        """Hand on what is left, close the trackers, and end the thread."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self in self._sender.followers:
            self._sender.followers.remove(self)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            flush(self._sender.host, self._sender.port)
            self.end()

    # -- the thread ------------------------------------------------------------------------------------

    def _follow(self) -> None:
        pause, ending, quiet = POLL_S, False, 0.0
        while not ending:
            with self._changed:
                if not self._changed.wait_for(lambda: self._asked > self._answered or self._ending, pause):
                    quiet += pause
                asked, before = self._asked, self._change
                is_asked = self._asked > self._answered
                # without trackers, nobody ends it if the script does not call flush
                ending = self._ending or (self.removed and not self._outlets and quiet > QUIET_S)
            began = thread_seconds()
            try:
                pause = POLL_S if self._round(is_asked=is_asked, is_last=ending) else AWAY_S
            except Exception as error:
                text = "intus could not follow what the server finds: %s: %s"
                self._troubles.count(f"follow {type(error).__name__}", text, type(error).__name__, error)
            quiet = quiet if self._change == before else 0.0
            self._sender.count_busy(thread_seconds_since(began).processor)
            with self._changed:
                self._answered = asked
                self._changed.notify_all()
        for outlet in self._outlets:
            outlet.close()
        self._client.close()

    def _round(self, *, is_asked: bool, is_last: bool) -> bool:
        """Read what is new, and hand it on; return whether the server answered.

        Args:
            is_asked: Whether ``catch_up`` waits for it: scores are handed on also if some of earlier epochs
                are to come.
            is_last: Whether none follows, so that nothing may wait for another.
        """
        news = self._get("/api/findings")
        is_read = news is not None
        if news is not None:
            if not self._outlets:
                self._change = news["change"]
            elif self._held or news["change"] != self._change:
                points = self._whole_epochs()
                is_read = points is not None
                for outlet in self._outlets:
                    outlet.add(points or ())
            self._call_back(news["findings"])
            for outlet in self._outlets:
                outlet.findings = [each["text"] for each in news["findings"]] + self._scores.corrections()
                outlet.tell_taken_back(self._scores.taken_back)
        with self._changed:
            logged, self._logged = self._logged, []
        late = self._held.take(math.inf) if is_last or (is_asked and is_read) else []
        for outlet in self._outlets:
            outlet.add(late)
            outlet.add(_points_of(logged) if outlet.tracker.takes_log else ())
            outlet.write()
        return news is not None

    def _whole_epochs(self) -> list[Point] | None:
        """Read new scores; return those of epochs up to which all is scored, None if there is no reply.

        Which epochs are whole is asked first, and then the scores are read, each time: what is stored between
        the two is then read, too, though it may be of an epoch that does not count as whole yet. The other
        way round, or without reading, an epoch could be whole of which the last scores were not read.
        """
        whole = self._whole_until()
        columns = self._read_scores()
        if columns is None:
            return None
        self._held.add(self._scores.take(columns))
        self._change = columns["change"]
        return self._held.take(whole)

    def _call_back(self, found: Sequence[dict[str, Any]]) -> None:
        """Call the user's function with each finding that it does not know."""
        if self._on_finding is None:
            return
        for each in found:
            epoch = math.nan if each["epoch"] is None else each["epoch"]
            known = {name: each[name] for name in Finding._fields if name in each}  # of an older server
            finding = Finding(**known | {"epoch": epoch})
            key = finding.kind, finding.target, finding.address, each["epoch"], finding.step
            if key in self._found:
                continue
            self._found.add(key)
            try:
                self._on_finding(finding)
            except BaseException as error:  # also sys.exit(), which would end the thread
                self._troubles.count("on_finding", _RAISED, type(error).__name__, error)

    def _whole_until(self) -> float:
        """Return an epoch before which all that the server got is scored; -inf if it does not say."""
        rows = (self._get("/api/status") or {}).get("runs")
        if not rows:
            return -math.inf
        earliest, newest = rows[0].get("earliest"), rows[0].get("newest")
        if earliest is not None:
            return float(earliest)
        return -math.inf if newest is None else math.nextafter(newest, math.inf)

    def _read_scores(self) -> dict[str, Any] | None:
        """Return the scores of epochs that changed since the last time; None if there is no reply."""
        return self._get("/api/points", level="layer", columns=",".join(_COLUMNS), after=str(self._change))

    def _get(self, path: str, **query: str) -> dict[str, Any] | None:
        """Return a reply about the model; None if there is none."""
        try:
            answer = self._client.get(f"{path}?{urlencode({'run': self._run, 'model': self._model} | query)}")
        except ServeError:
            return None  # which the sender says
        if answer.status == 404:
            self._troubles.warn_once(_NO_PAGE, self._sender.host, self._sender.port)
        return answer.reply if answer.ok else None


class _NewScores:
    """Finds the scores that were not read before, in replies with all scores of the epochs that changed.

    The scores of a training come in any order of epochs: the server begins with the newest. A score of which
    only the note or the interval changes, as when labels are verified or doubted later, is not new.

    Attributes:
        taken_back: How many scores that were read with a value are withdrawn since or in doubt, by which of
            the two and the reason.
    """

    def __init__(self) -> None:
        self.taken_back: Counter[tuple[str, str]] = Counter()
        self._series: dict[tuple[Any, ...], int] = {}  # a number for each, which takes less memory
        self._doubted: set[tuple[Any, ...]] = set()  # scores, and why they are in doubt
        # values and the trainings that they are of, by epoch and step, then by series
        self._values: dict[tuple[Any, ...], dict[int, tuple[float, float | None]]] = {}

    def leave_out(self, columns: dict[str, list[Any]]) -> None:
        """Count the scores of a reply as read, such as those of an earlier part of the training."""
        for _ in self.take(columns):
            pass
        self.taken_back.clear()

    def corrections(self) -> list[str]:
        """Return sentences on the scores that were read and that no longer hold."""
        return [
            f"{count} of the scores here {what} since they were written: {why}"
            for (what, why), count in self.taken_back.items()
        ]

    def take(self, columns: dict[str, list[Any]]) -> Iterator[Point]:
        """Yield the new scores of a reply that have a value.

        One of another value is new, and so is one of another training, which a tracker may have elsewhere.
        """
        now = time.time()
        for epoch, step, *series_, value, training, note in zip(
            *map(columns.__getitem__, _COLUMNS), strict=True
        ):
            if epoch is None:
                continue
            series = self._series.setdefault(tuple(series_), len(self._series))
            known = self._values.setdefault((epoch, step), {})
            if value is None:
                if known.pop(series, None) is not None:
                    self.taken_back[_WITHDRAWN, note.removeprefix("withdrawn: ")] += 1
                continue
            for reason in Facts.of(note).doubts:
                if (doubted := (epoch, step, series, reason)) not in self._doubted:
                    self._doubted.add(doubted)
                    self.taken_back[_IN_DOUBT, Facts(doubts=(reason,)).note] += 1
            if known.get(series) == (value, training):
                continue
            known[series] = value, training
            address, kind, target, score = series_
            name = score_name(target, score, address, kind)
            yield Point(name, *(("step", step) if step >= 0 else ("epoch", epoch)), now, value)


class Held:
    """Keeps scores until those of all earlier epochs are there, so that each series is written in order.

    A tracker takes what is written last for the newest: it is what W&B has in the summary of a run.

    Example:
        >>> held = Held()
        >>> held.add(Point("norm/fc", "epoch", epoch, 0.0, 1.0) for epoch in (3, 1, 2))
        >>> [point.x for point in held.take(3)], bool(held)
        ([1, 2], True)
    """

    def __init__(self) -> None:
        self._points: list[Point] = []

    def __bool__(self) -> bool:
        return bool(self._points)

    def add(self, points: Iterable[Point]) -> None:
        """Add scores, in any order."""
        self._points += points

    def take(self, until: float) -> list[Point]:
        """Return the scores of epochs before one, in their order, and of single steps, and forget them."""
        found = [point for point in self._points if point.axis == "step" or point.x < until]
        self._points = [point for point in self._points if not (point.axis == "step" or point.x < until)]
        now = time.time()  # not when each was read, so that times have the order of epochs, too
        return [point._replace(time=now) for point in sorted(found, key=lambda point: point.x)]


def score_name(target: str, score: str, address: str, kind: str) -> str:
    """Return the name that a score has in a tracker.

    Example:
        >>> score_name("digit", "linear_f1", "fc1", "output"), score_name("", "mean", "", "output@eval")
        ('digit/linear_f1/fc1', 'mean output@eval/model')
    """
    what = score if kind == "output" else f"{score} {kind}"
    return "/".join([*([target] if target else []), what, address or "model"])


def _points_of(logged: Sequence[dict[str, Any]]) -> Iterator[Point]:
    for entry in logged:
        for name, value in entry["values"].items():
            yield Point(f"log/{name}", "step", entry["step"], entry["time"], float(value))


def _prefix(place: str, run: str, model: str) -> str:
    """Return what names begin with: ``intus/``, and more for a second model in the same run of a tracker."""
    for words in ("intus", f"intus/{model}", f"intus/{run}/{model}"):
        if _PREFIXES.setdefault((place, words), (run, model)) == (run, model):
            break
    return f"{words}/"


class _Outlet:
    """Writes to a tracker, and keeps what it does not take yet. It never raises.

    Args:
        name: What the user calls it.
        tracker: The tracker.
        prefix: What all names begin with.
        troubles: Counts and logs what fails.

    Attributes:
        name: What the user calls it.
    """

    def __init__(self, name: str, tracker: Tracker, prefix: str, troubles: WarningLog) -> None:
        self.tracker = tracker
        self.findings: list[str] = []
        self.name, self._prefix, self._troubles = name, prefix, troubles
        self._told: list[str] = []
        self._waiting: list[Point] = []

    def add(self, points: Iterator[Point] | Sequence[Point]) -> None:
        """Add numbers to write."""
        for point in points:
            if not self.tracker.has_fractions and point.x % 1:
                self._troubles.warn_once(_FRACTIONS, self.name, f"{point.x:g}", math.floor(point.x))
            self._waiting.append(point._replace(name=self._prefix + point.name))

    def tell_taken_back(self, scores: Iterable[tuple[str, str]]) -> None:
        """Say once of each reason that the tracker has scores that no longer hold."""
        for what, why in scores:
            self._troubles.warn_once(f"intus: {_TAKEN_BACK.format(self.name, what, why)}")

    def write(self) -> None:
        """Write what waits, or leave it for the next time."""
        try:
            self.tracker.write(self._waiting)
            self._waiting = []
            if self.findings != self._told:
                self.tracker.tell(self.findings)
                self._told = self.findings
        except Exception as error:
            self._troubles.count(f"write {self.name}", _FAILED, self.name, type(error).__name__, error)
            if len(self._waiting) > MOST:
                self._lose(len(self._waiting) - MOST, error)

    def close(self) -> None:
        """Close the tracker."""
        try:
            self.tracker.close()
            error: Exception | None = None
        except Exception as raised:
            error = raised
            text = "intus: the tracker %s could not be closed: %s: %s"
            self._troubles.count(f"close {self.name}", text, self.name, type(raised).__name__, raised)
        if self._waiting:
            self._lose(len(self._waiting), error)

    def _lose(self, count: int, error: Exception | None) -> None:
        del self._waiting[:count]
        self._troubles.count(f"lost {self.name}", _LOST, count, self.name, type(error).__name__, error)
