"""Cases of faults: which there are, and what came of one. Each runs in forked processes.

``python tests/reliability/fault_cases.py`` runs them all and writes the counts into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

import one_life
from fault_injector import KINDS, Fault, Injector
from recorded_ingest import steps

#: How a case goes on: (what becomes of the calls, what becomes of the server).
WAYS = (
    ("once", "lifted"),
    ("once", "killed"),
    ("lasting", "lifted"),
    ("lasting", "killed"),
    ("crash", "killed"),
)
SCENARIOS = ("new", "restart")
#: What may come of a case that is a fault of the server, the worst first.
OUTCOMES = ("lost", "doubled", "wrong", "corrupt", "ledger", "silent", "stuck")
LIFE_S = 90
#: Number of cases of each kind and scenario in the sample.
SAMPLE = 1
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- counts: begin -->\n", "<!-- counts: end -->\n"


@dataclass(frozen=True)
class Case:
    """A fault, and the end of the server that it hits. ``scenario``: a new server, or one with a journal."""

    scenario: str
    fault: Fault
    end: str

    def __str__(self) -> str:
        fault = self.fault
        return f"{self.scenario}, {fault.kind} {fault.at}, {fault.mode}, {self.end}"


@dataclass
class Seen:
    """The report of a life of a server."""

    done: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    faults: list[tuple[str, str]] = field(default_factory=list)
    told: list[dict] = field(default_factory=list)
    fired: bool = False
    status: int = 0


@dataclass
class Outcome:
    """The outcome of a case: its faults, as (what, text); whether the fault was met; all that was told."""

    faults: list[tuple[str, str]]
    fired: bool
    told: list[dict]

    @property
    def worst(self) -> str:
        """Return the worst fault; "" if all held."""
        found = {what for what, _ in self.faults}
        return next((each for each in OUTCOMES if each in found), "")

    @property
    def doubted(self) -> bool:
        """True if a point was said to lack rows, and has all."""
        return any("doubted" in each for each in self.told)


class Runner:
    """Runs cases, in one folder after the other."""

    def __init__(self, sabotage: str = "") -> None:
        self.steps = steps()
        self._template: tuple[Path, set[int]] | None = None
        with self._folder("new") as (folder, _):
            one_life.warm_up(folder, self.steps)
        one_life.SABOTAGES[sabotage]()
        gc.collect()
        gc.freeze()  # a forked process that looks for garbage would copy all that it looks at

    def counts(self, scenario: str) -> tuple[Counter[str], dict[str, list[int]], Counter[str]]:
        """Return the calls of each kind without a fault: how many, from where, how many before the end."""
        with self._folder(scenario) as (folder, done):
            seen = self._first(folder, done, Injector(folder, places=True), "lifted")
            assert not seen.faults, seen.faults
            last = seen.told[-1]
            (before_end,) = (told["before_end"] for told in seen.told if "before_end" in told)
        return Counter(last["counts"]), last["places"], Counter(before_end)

    def run(self, case: Case) -> Outcome:
        """Run a case, and once more if its call was not reached: the clock decides on some calls."""
        outcome = self._run(case)
        return outcome if outcome.fired or outcome.worst else self._run(case)

    def _run(self, case: Case) -> Outcome:
        with self._folder(case.scenario) as (folder, done):
            first = self._first(folder, done, Injector(folder, case.fault), case.end)
            killed = os.WIFSIGNALED(first.status) and os.WTERMSIG(first.status) == signal.SIGKILL
            fired = first.fired or (killed and case.fault.mode != "lasting")
            if killed and case.end == "lifted":
                first.faults.append(("stuck", f"the server did not end in {LIFE_S} seconds"))
            elif not killed and first.status:
                first.faults.append(("silent", f"the process ended with status {first.status}"))
            second = self._life(
                lambda tell: one_life.second_life(folder, self.steps, first.done, first.late, tell)
            )
            if second.status:
                second.faults.append(("stuck", f"the next server ended with status {second.status}"))
        return Outcome([*first.faults, *second.faults], fired, [*first.told, *second.told])

    def run_all(self, cases: Sequence[Case], jobs: int, seconds: float) -> Iterator[tuple[Case, Outcome]]:
        """Yield the cases with their outcomes as they end, of as many as are begun in so many seconds.

        Args:
            cases: The cases.
            jobs: Number of cases to run at the same time.
            seconds: The time.
        """
        if any(case.scenario == "restart" for case in cases):
            self._journal()  # before the processes are forked, which all begin with it
        forking, ends = multiprocessing.get_context("fork"), time.monotonic() + seconds

        def work(cases: Sequence[Case], ended: Connection) -> None:
            for case in cases:
                if time.monotonic() < ends:
                    ended.send((case, self.run(case)))

        at_work: dict[Connection, multiprocessing.Process] = {}
        for job in range(jobs):
            reading, writing = forking.Pipe(duplex=False)
            process = at_work[reading] = forking.Process(target=work, args=(cases[job::jobs], writing))
            process.start()
            writing.close()  # the process alone holds it, so that its end is seen
        while at_work:
            for reading in wait(list(at_work)):
                try:
                    yield reading.recv()
                except EOFError:
                    process = at_work.pop(reading)
                    process.join()
                    if process.exitcode:
                        raise RuntimeError(f"Running cases ended with {process.exitcode}.") from None

    def close(self) -> None:
        """Delete the folder that cases begin with."""
        if self._template is not None:
            shutil.rmtree(self._template[0], ignore_errors=True)

    def _folder(self, scenario: str) -> _Prepared:
        return _Prepared(self._journal() if scenario == "restart" else None)

    def _journal(self) -> tuple[Path, set[int]]:
        """Return files of a server that acknowledged all and stored nothing when it was killed."""
        if self._template is None:
            folder = _new_folder()
            seen = self._life(lambda tell: one_life.unscored_life(folder, self.steps, tell))
            self._template = folder, seen.done
        return self._template

    def _first(self, folder: Path, done: set[int], injector: Injector, end: str) -> Seen:
        seen = self._life(lambda tell: one_life.first_life(folder, self.steps, done, injector, end, tell))
        seen.done |= done
        return seen

    def _life(self, live) -> Seen:
        """Run a function in a forked process, and return what it told."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _in_child(writing, live)
        os.close(writing)
        seen = Seen()
        for what in _told(reading, child):
            seen.told.append(what)
            if "done" in what:
                seen.done.add(what["done"])
                seen.late |= {what["done"]} if what["late"] else set()
            elif "fault" in what:
                seen.faults.append((what["fault"], what["text"]))
            elif "fired" in what:
                seen.fired = what["fired"]
        seen.status = os.waitpid(child, 0)[1]
        return seen


def _told(reading: int, child: int) -> Iterator[dict]:
    """Yield what a process tells, and kill it after LIFE_S seconds."""
    ends, kept = time.monotonic() + LIFE_S, b""
    while True:
        ready, _, _ = select.select([reading], [], [], max(ends - time.monotonic(), 0.0))
        part = os.read(reading, 1 << 16) if ready else b""
        if not ready:
            os.kill(child, signal.SIGKILL)
        *lines, kept = (kept + part).split(b"\n")
        yield from map(json.loads, lines)
        if not part:
            os.close(reading)
            return


def _in_child(writing: int, live) -> None:
    """Run a function, telling by a pipe, and leave the process."""
    write = os.write
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def tell(**what) -> None:
        write(writing, json.dumps(what).encode() + b"\n")

    try:
        live(tell)
    except BaseException:
        tell(fault="silent", text=traceback.format_exc()[-600:])
        os._exit(1)
    os._exit(0)


def _new_folder() -> Path:
    """Return a folder, in memory if there is one: syncing to a disk would take most of the time."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="intus-faults-", dir=memory if memory.is_dir() else None))


class _Prepared:
    """A folder for a case, which is removed after it."""

    def __init__(self, template: tuple[Path, set[int]] | None) -> None:
        self._template = template

    def __enter__(self) -> tuple[Path, set[int]]:
        self._folder = _new_folder()
        if self._template is None:
            return self._folder, set()
        shutil.copytree(self._template[0], self._folder, dirs_exist_ok=True)
        return self._folder, self._template[1]

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass
class Calls:
    """The calls of one kind in a scenario without a fault: how many, and the first from each place.

    ``before_end``: how many there were when the server was asked to end, which one that is killed never is.
    """

    number: int
    first: list[int]
    before_end: int


def calls_of(runner: Runner, scenario: str) -> dict[str, Calls]:
    """Return the calls of each kind, from a run without a fault."""
    counts, places, before_end = runner.counts(scenario)
    return {
        kind: Calls(
            counts[kind],
            [places[kind].index(place) + 1 for place in dict.fromkeys(places[kind])],
            before_end[kind],
        )
        for kind in KINDS
        if counts[kind]
    }


def cases(scenario: str, calls: dict[str, Calls], *, every: bool = False) -> Iterator[Case]:
    """Yield the cases: each way at the first call from each place of the package, or at ``every`` call.

    Of arrays, of which there are thousands, each call has one of the ways in turn.
    """
    for kind, of_kind in calls.items():
        for turn, at in enumerate(range(1, of_kind.number + 1) if every else of_kind.first):
            ways = WAYS if kind != "array" else [WAYS[turn % len(WAYS)]]
            for mode, end in ways:
                if end == "killed" and at > of_kind.before_end:
                    continue
                yield Case(scenario, Fault(kind, at, mode), end)


def sample(scenario: str, calls: dict[str, Calls]) -> Iterator[Case]:
    """Yield a few cases, spread over the kinds, the calls and the ways."""
    found = defaultdict(list)
    for case in cases(scenario, calls):
        found[case.fault.kind].append(case)
    for turn, of_kind in enumerate(found.values()):
        for number in range(SAMPLE):
            yield of_kind[(len(of_kind) * (7 * turn + 13 * number + 3) // 20) % len(of_kind)]


def table(calls: dict[str, dict[str, Calls]], outcomes: dict[Case, Outcome], of: int) -> str:
    """Return the counts as a table in Markdown."""
    heads = ["calls to", "calls", "places", "cases", "met", "held", *OUTCOMES, "doubted"]
    rows = []
    for kind in KINDS:
        own = [each for case, each in outcomes.items() if case.fault.kind == kind]
        known = [of_kind[kind] for of_kind in calls.values() if kind in of_kind]
        worst = Counter(each.worst for each in own if each.fired)
        met = sum(each.fired for each in own)
        first = [sum(each.number for each in known), sum(len(each.first) for each in known), len(own), met]
        rows.append(
            [kind, *first, worst[""], *(worst[each] for each in OUTCOMES), sum(e.doubted for e in own)]
        )
    rows.append(["all", *(sum(row[column] for row in rows) for column in range(1, len(heads)))])
    lines = [heads, ["---"] * len(heads), *rows]
    text = "".join(
        "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in line) + " |\n"
        for line in lines
    )
    return f"{text}\n{len(outcomes):,} of {of:,} cases were run.\n"


def _wanted(calls: dict[str, dict[str, Calls]], chosen: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases that the command line asks for, the first of all sorts."""
    found = [
        case
        for scenario, of_kind in calls.items()
        for case in (
            sample(scenario, of_kind) if chosen.sample else cases(scenario, of_kind, every=chosen.every_call)
        )
        if case.fault.kind in (chosen.kind or KINDS)
    ]
    random.Random(0).shuffle(found)
    turns = Counter[tuple[str, str]]()
    order = {}
    for case in found:
        sort = case.scenario, case.fault.kind
        turns[sort] += 1
        order[case] = turns[sort]
    yield from sorted(found, key=order.__getitem__)  # sorts take turns


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases, print each that did not hold, and write the table; return 1 if one did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--sample", action="store_true", help="a few cases, and no table")
    parser.add_argument("--every-call", action="store_true", help="also the later calls from a place")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after that time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at the same time")
    parser.add_argument(
        "--case",
        nargs=5,
        action="append",
        default=[],
        metavar=("SCENARIO", "KIND", "CALL", "MODE", "END"),
        help="this case only",
    )
    parser.add_argument("--sabotage", choices=one_life.SABOTAGES, default="", help="break the server first")
    chosen = parser.parse_args(arguments)
    began, runner = time.monotonic(), Runner(chosen.sabotage)
    calls: dict[str, dict[str, Calls]] = {}
    if chosen.case:
        wanted = [
            Case(scenario, Fault(kind, int(call), mode), end)
            for scenario, kind, call, mode, end in chosen.case
        ]
    else:
        calls = {scenario: calls_of(runner, scenario) for scenario in chosen.scenario or SCENARIOS}
        wanted = list(_wanted(calls, chosen))
    outcomes: dict[Case, Outcome] = {}
    left = 60 * chosen.minutes - (time.monotonic() - began)
    for case, outcome in runner.run_all(wanted, chosen.jobs, left):
        outcomes[case] = outcome
        if outcome.worst:
            print(f"{case}: {outcome.worst}: {outcome.faults[0][1]}", flush=True)
    runner.close()
    text = table(calls, outcomes, len(wanted))
    print(text)
    if not (chosen.sample or chosen.scenario or chosen.kind or chosen.sabotage or chosen.case):
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    return int(any(each.worst for each in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
