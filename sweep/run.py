"""Run the catalogue: a forked process per subject, a time limit, and a file of results to resume."""

from __future__ import annotations

import hashlib
import json
import math
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from select import select
from tempfile import mkdtemp
from typing import Any, NamedTuple, Protocol

import torch

import intus

from .check import Outcome, check

#: What a subject may take: seconds of CPU, seconds in all (the machine may be busy), and bytes.
SECONDS, WALL, BYTES = 120, 600, 12 << 30
_PACKAGES = ("torch", "transformers", "timm", "torchvision", "diffusers", "torch_geometric", "monai")
_ROOT = Path(__file__).parents[1]


class Subject(Protocol):
    """A subject of a check: an architecture, an operator, a module."""

    @property
    def family(self) -> str: ...

    @property
    def name(self) -> str: ...


class Kind(NamedTuple):
    """A kind of check.

    Attributes:
        check: Checks one subject. Its second argument is called with the outcome so far, as a dict, after
            each step.
        outcome: The dataclass of the outcome. Its first two fields are the family and the name.
        line: Formats an outcome as a line of progress.
    """

    check: Callable[[Any, Callable[[dict[str, Any]], None]], None]
    outcome: type[Any]
    line: Callable[[Any], str]


def line(outcome: Outcome) -> str:
    """Format an outcome as a line of progress."""
    word = "PROBLEM" if outcome.failed else "valid" if outcome.plain else "not plain"
    why = f"  {outcome.reasons[0][:150]}" if outcome.reasons else ""
    return f"{outcome.family} {outcome.name}: {word}, {outcome.ops} ops, {outcome.seconds:.1f} s{why}"


ARCHITECTURES = Kind(check, Outcome, line)


def fingerprint() -> str:
    """Return a hash of the sources and packages; results with another fingerprint are not reused."""
    found = hashlib.sha256()
    for folder in (
        "src/intus/tracing",
        "src/intus/core",
        "src/intus/storage",
        "sweep/families",
        "sweep/judges",
    ):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            found.update(path.read_bytes())
    for path in sorted((_ROOT / "sweep").glob("*check*.py")):
        found.update(path.read_bytes())
    return f"{found.hexdigest()[:16]} {versions()}"


def versions() -> str:
    """Return the installed versions of the packages of the catalogue."""
    return ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES if version_of(name))


def version_of(name: str) -> str:
    """Return the installed version of a package; an empty text if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def run(
    catalogue: Iterable[Subject],
    results: Path,
    jobs: int,
    log: Callable[[str], None],
    kind: Kind = ARCHITECTURES,
    *,
    minutes: float = math.inf,
    only_failed: bool = False,
) -> tuple[list[Any], int]:
    """Check every subject that has no result yet, and return all outcomes and how many are of other sources.

    Args:
        catalogue: The subjects.
        results: A file of JSON lines with the results; new ones are appended.
        jobs: How many processes to run at a time.
        log: Called with lines of progress.
        kind: How to check a subject.
        minutes: After so many minutes no further subject is started, and the outcomes so far are returned.
        only_failed: Keep the results of other sources, and check again only those that failed.
    """
    catalogue, mark = list(catalogue), fingerprint()
    done, others = _read(results, mark, kind, only_failed)
    failed = {key for key in others if done[key].failed}
    todo = [one for one in catalogue if (one.family, one.name) not in done.keys() - failed]
    if len(todo) < len(catalogue):
        log(f"{len(catalogue) - len(todo)} of {len(catalogue)} have results of an earlier run")
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        for number, outcome in enumerate(_all(todo, jobs, kind, minutes), len(catalogue) - len(todo) + 1):
            done[outcome.family, outcome.name] = outcome
            others.discard((outcome.family, outcome.name))
            file.write(json.dumps({"mark": mark, **vars(outcome)}) + "\n")
            file.flush()
            log(f"[{number}/{len(catalogue)}] {kind.line(outcome)}")
    asked = [(one.family, one.name) for one in catalogue if (one.family, one.name) in done]
    return [done[one] for one in asked], sum(one in others for one in asked)


def _read(
    results: Path, mark: str, kind: Kind, only_failed: bool
) -> tuple[dict[tuple[str, str], Any], set[tuple[str, str]]]:
    """Return the results to keep, and which of them are of other sources.

    A last line that an interrupted run did not finish is dropped, and removed from the file.
    """
    done, others = dict[tuple[str, str], Any](), set[tuple[str, str]]()
    if not results.exists():
        return done, others
    text = results.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        results.write_text(text, encoding="utf-8")
    for row in map(json.loads, text.splitlines()):
        is_other = row.pop("mark") != mark
        outcome, key = kind.outcome(**row), (row["family"], row["name"])
        if is_other and not only_failed:
            continue
        done[key] = outcome
        (others.add if is_other else others.discard)(key)
    return done, others


def _all(todo: list[Subject], jobs: int, kind: Kind, minutes: float) -> Iterator[Any]:
    """Yield the outcomes as processes finish."""
    _import_everything()
    waiting, running = list(reversed(todo)), list[_Child]()
    deadline = time.monotonic() + 60 * minutes
    try:
        while waiting or running:
            if time.monotonic() > deadline:
                waiting.clear()
            while waiting and len(running) < jobs:
                running.append(_Child(waiting.pop(), kind))
            select([child.pipe for child in running], [], [], 0.5)
            for child in [child for child in running if child.is_finished()]:
                running.remove(child)
                yield child.outcome
    finally:
        for child in running:
            child.kill()


def _import_everything() -> None:
    """Import what intus imports on first use, so that every process has it, and the same."""
    path = Path(mkdtemp()) / "a.trace"
    intus.trace(torch.relu, torch.ones(1)).save(path)
    intus.load(path)
    intus.validate(torch.relu, torch.ones(1))
    shutil.rmtree(path.parent)


class _Child:
    """A forked process that checks one subject and reports through a pipe."""

    def __init__(self, one: Subject, kind: Kind) -> None:
        self._kind, self.outcome = kind, kind.outcome(one.family, one.name)
        self._deadline, self._received = time.monotonic() + WALL, b""
        self.pipe, out = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            _in_child(one, kind, out)
        os.close(out)
        os.set_blocking(self.pipe, False)

    def is_finished(self) -> bool:
        """Return whether the process has ended; kill it after the time limit."""
        try:
            while data := os.read(self.pipe, 1 << 16):
                self._received += data
        except BlockingIOError:
            if time.monotonic() < self._deadline:
                return False
            self.kill()
            self._finish(f"it took more than {WALL} s")
            return True
        _, status = os.waitpid(self._process, 0)
        os.close(self.pipe)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            self._finish(f"it took more than {SECONDS} s of CPU")
        else:
            self._finish(f"its process ended with code {code}" if code else "")
        return True

    def _finish(self, problem: str) -> None:
        """Set the outcome from the last report, with a problem of the process if there was one."""
        reports = self._received.splitlines()
        if reports:
            self.outcome = self._kind.outcome(**json.loads(reports[-1]))
        if problem:
            self.outcome.reasons.append(problem)

    def kill(self) -> None:
        """Kill the process."""
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self.pipe)


def _in_child(one: Subject, kind: Kind, out: int) -> None:
    """Check the subject in the child process, with the output of the model discarded, and exit."""

    def report(outcome: dict[str, Any]) -> None:
        data = json.dumps(outcome).encode() + b"\n"
        while data:
            data = data[os.write(out, data) :]

    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        kind.check(one, report)
        code = 0
    finally:
        os._exit(code)
