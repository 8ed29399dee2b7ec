"""Scores, graphs, labels and notices, kept in SQLite or PostgreSQL.

One class, SQLAlchemy Core, bound parameters only. Every write is one transaction that also raises the
change counter, so that a page learns of what another process wrote into the same file.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..core.errors import InputError, did_you_mean
from ..core.graph import OP, Graph
from ..core.results import COLUMNS, Results
from ..core.score_info import ScoreInfo
from . import labels, points, summaries
from . import tables as t
from .codec import decode_graph
from .migrations import migrate
from .points import NO_EPOCH
from .tables import insert_into, make_engine, read_url, take_turns, upsert


class Changes(NamedTuple):
    """What changed: the newest change number, the kinds of things, and the (run, model) they belong to."""

    number: int
    what: list[str]
    runs: list[tuple[str, str]]


class Database:
    """A store of scores that threads, and with SQLite also processes, may share.

    ``where`` is a path (``"intus.db"``) or a URL (``"sqlite:///intus.db"``, ``"postgresql://…"``). SQLite's
    last writes may be lost in a power cut unless ``fsync`` is asked for.
    Raises InputError when it cannot be opened, or was written by a newer intus.
    """

    def __init__(self, where: str | Path, *, fsync: bool = False) -> None:
        self.url = read_url(where)
        self._engine = make_engine(self.url, fsync)
        self._series: points.Series = {}
        self._infos: dict[str, ScoreInfo] = {}  # that this process has stored
        self._writing = threading.Lock()  # threads queue here instead of spinning on SQLite's file lock
        try:
            with self._write() as connection:
                migrate(connection)
        except (sa.exc.DBAPIError, InputError) as error:
            self._engine.dispose()
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"Could not open the database {self.url.render_as_string()}: {str(error.orig).strip()}. "
                + _remedy(self.url, str(error.orig))
            ) from error

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- scores --------------------------------------------------------------------------------------

    def add(self, results: Results, infos: Iterable[ScoreInfo] = ()) -> int:
        """Store results, and what their scores are, in one transaction.

        A row that was stored before is replaced, and its revision raised if it differs. NaN and infinite
        values are stored as NULL; where the row has no note, the note names them.

        Args:
            results: The results.
            infos: What their scores are; of each name the newest is kept.

        Returns:
            How many rows were new.
        """
        groups = list(points.grouped(results))
        if not groups:
            return 0
        new, changed = 0, {info.name: info for info in infos if self._infos.get(info.name) != info}
        with self._write() as connection, points.forgetting(self._series):
            rows = [{"name": name, "info": json.dumps(info.to_json())} for name, info in changed.items()]
            upsert(connection, t.score, rows, ["name"])
            for run, model, columns in groups:
                new += points.add(connection, self._series, _run_id(connection, run, model), columns)
            _raise_counter(connection, [("points", run, model) for run, model, _ in groups])
        self._infos |= changed
        return new

    def scores(self) -> dict[str, ScoreInfo]:
        """Return what the scores are that results were stored of, by name; older databases may not know."""
        with self._read() as connection:
            rows = connection.execute(sa.select(t.score.c.name, t.score.c.info)).all()
        return {name: ScoreInfo.from_json(json.loads(info)) for name, info in rows}

    def revise(
        self, run: str, model: str, mode: str, said: str, instead: str, *, withdraw: bool = False
    ) -> int:
        """Let every point of a run's ``mode`` ("" is its main one) whose note holds ``said`` say ``instead``,
        or, to ``withdraw`` it, that alone and no number. Returns how many there were."""
        kind, note = t.series.c.kind, t.point.c.note
        ours = kind.endswith(f"@{mode}", autoescape=True) if mode else ~kind.contains("@")
        series = sa.select(t.series.c.id).join(t.run, t.run.c.id == t.series.c.run)
        series = series.where(t.run.c.run == run, t.run.c.model == model, ours)
        change: dict[str, Any] = dict.fromkeys(points.NUMBERS) if withdraw else {}
        change["note"] = instead if withdraw else sa.func.replace(note, said, instead)
        change["revision"] = t.point.c.revision + 1
        with self._write() as connection:
            held = t.point.c.series.in_(series), note.contains(said, autoescape=True)
            count = connection.execute(sa.update(t.point).where(*held).values(change)).rowcount
            if count:
                _raise_counter(connection, [("points", run, model)])
        return int(count)

    def points(self, run: str, model: str, *, level: str | None = None, **equal: Any) -> Results:
        """One run's results, ordered by epoch, step and first appearance.

        ``level`` is "layer" or "unit", by default both; ``equal`` picks by address, unit, kind, target,
        score, epoch or step. An unknown run gives an empty table.
        """
        names = [name for name in COLUMNS if name not in ("run", "model")]
        found = self.columns(run, model, names, level=level, **equal)
        size = len(found["value"])
        return Results(found | {"run": [run] * size, "model": [model] * size}) if size else Results()

    def columns(
        self, run: str, model: str, names: Sequence[str], *, level: str | None = None, **equal: Any
    ) -> dict[str, list[Any]]:
        """The same as lists, None where a number is missing; ``names`` may also have "revision": how often a
        point was found to be something else."""
        if level not in (None, "layer", "unit"):
            raise InputError(f"level={level!r} is not 'layer' or 'unit'.")
        known = {column.name: column for column in (*t.series.c, *t.point.c)}
        for name in equal:
            if name not in COLUMNS or name not in known:
                raise InputError(f"Points have no column {name!r}. {did_you_mean(name, COLUMNS)}")
        query = sa.select(*(known[name] for name in names)).select_from(
            t.series.join(t.point, t.point.c.series == t.series.c.id).join(
                t.run, t.run.c.id == t.series.c.run
            )
        )
        query = query.where(t.run.c.run == run, t.run.c.model == model)
        query = query.where(*(known[name] == value for name, value in equal.items()))
        if level is not None:
            query = query.where(t.series.c.unit < 0 if level == "layer" else t.series.c.unit >= 0)
        with self._read() as connection:
            query = query.order_by(t.point.c.epoch, t.point.c.step, t.series.c.id)
            rows = connection.execute(query).all()
        found = dict(
            zip(names, map(list, zip(*rows, strict=True)) if rows else ([] for _ in names), strict=True)
        )
        if "epoch" in found:
            found["epoch"] = [None if epoch == NO_EPOCH else epoch for epoch in found["epoch"]]
        return found

    def runs(self) -> list[dict[str, Any]]:
        """Return every (run, model), newest first, with what there is to look at in it.

        ``addresses`` are in the order of the network where its graph is known, else as first seen.
        ``targets``, ``scores`` and ``kinds`` are those of whole layers; ``layers`` and ``units`` are the
        pairs of score and target that layers and units have, with the target "" of a score that needs none.
        """
        with self._read() as connection:
            return summaries.read(connection)

    # -- graphs --------------------------------------------------------------------------------------

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Keep a run's graph, as bytes of ``codec.encode_graph``; raises CodecError for other bytes."""
        graph, _ = decode_graph(blob)
        framework = str(graph.facts.get("framework") or "")
        with self._write() as connection:
            number = _run_id(connection, run, model)
            upsert(connection, t.graph, [{"run": number, "content": blob}], ["run"])
            connection.execute(sa.delete(t.place).where(t.place.c.run == number))
            places = [{"run": number, "address": a, "rank": rank} for a, rank in network_order(graph).items()]
            if places:
                connection.execute(sa.insert(t.place), places)
            if framework:
                connection.execute(sa.update(t.run).where(t.run.c.id == number).values(framework=framework))
            _raise_counter(connection, [("graph", run, model)])

    def graph(self, run: str, model: str) -> bytes | None:
        """The bytes ``put_graph`` kept, or None."""
        query = sa.select(t.graph.c.content).join(t.run, t.run.c.id == t.graph.c.run)
        with self._read() as connection:
            blob = connection.execute(query.where(t.run.c.run == run, t.run.c.model == model)).scalar()
        return None if blob is None else bytes(blob)

    # -- notices and labels --------------------------------------------------------------------------

    def add_notice(
        self, code: str, text: str, *, level: str = "warning", run: str = "", model: str = ""
    ) -> None:
        """Keep something a person should see; the same code and text again is counted, not repeated."""
        if level not in ("info", "warning", "error"):
            raise InputError(f"level={level!r} of a notice is not 'info', 'warning' or 'error'.")
        row = {"run": run, "model": model, "level": level, "code": code, "text": text, "time": time.time()}
        with self._write() as connection:
            statement = insert_into(connection, t.notice).values(row | {"count": 1})
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["run", "model", "code", "text"],
                    set_={"count": t.notice.c.count + 1, "time": row["time"], "level": level},
                )
            )
            _raise_counter(connection, [("notices", run, model)])

    def notices(self, run: str | None = None) -> list[dict[str, Any]]:
        """Notices, newest first: all, or those of one run and of no run at all."""
        query = sa.select(t.notice).order_by(t.notice.c.time.desc(), t.notice.c.id.desc())
        if run is not None:
            query = query.where(t.notice.c.run.in_([run, ""]))
        with self._read() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def put_target(
        self,
        name: str,
        targets: Sequence[Any],
        model_pattern: str = ".*",
        layer_pattern: str = ".*",
        run_pattern: str = ".*",
        owner: str = "",
    ) -> None:
        """Keep a registered target's labels (JSON-able), replacing the same owner's of one name. ``owner`` is
        the client that registered it."""
        facts = {"name": name, "targets": targets, "owner": owner, "run_pattern": run_pattern}
        with self._write() as connection:
            labels.put(connection, facts | {"model_pattern": model_pattern, "layer_pattern": layer_pattern})

    def targets(self) -> list[dict[str, Any]]:
        """Registered targets in order of name: name, owner, targets, the three patterns, when it was
        registered, ``until`` when a run must have begun to be scored on it (None: any), whether it is
        claimed, that is for its owner's runs alone, and runs, the [run, model] pairs that have scores of it.
        """
        with self._read() as connection:
            return labels.read(connection)

    def claim_target(self, name: str, owner: str) -> None:
        """From now on a target is for its owner's runs alone."""
        with self._write() as connection:
            labels.claim(connection, name, owner)

    def end_targets(self) -> None:
        """From now on the targets kept are for runs that have begun already."""
        with self._write() as connection:
            labels.end(connection, time.time())

    # -- forgetting, and news ------------------------------------------------------------------------

    def remove(self, model: str) -> int:
        """Forget every run of a model; returns how many there were."""
        return self._forget(t.run.c.model == model, t.notice.c.model == model)

    def clear(self) -> int:
        """Forget everything, labels too; returns how many runs there were."""
        return self._forget(sa.true(), sa.true(), everything=True)

    def _forget(self, which_runs: Any, which_notices: Any, *, everything: bool = False) -> int:
        with self._write() as connection:
            gone = connection.execute(sa.select(t.run.c.run, t.run.c.model).where(which_runs)).all()
            connection.execute(sa.delete(t.run).where(which_runs))  # the rest follows by ON DELETE CASCADE
            connection.execute(sa.delete(t.notice).where(which_notices))
            if everything:
                connection.execute(sa.delete(t.target))
                connection.execute(sa.delete(t.score))
                self._infos = {}
            news = [(what, run, model) for run, model in gone for what in ("points", "graph")]
            _raise_counter(connection, [*news, ("notices", "", "")])
        return len(gone)

    def changes(self, since: int = 0) -> Changes:
        """What was written after change number ``since``; ask again with the number returned."""
        with self._read() as connection:
            number = connection.execute(
                sa.select(t.counter.c.value).where(t.counter.c.name == "change")
            ).scalar()
            query = sa.select(t.change).where(t.change.c.number > since).order_by(t.change.c.number)
            rows = connection.execute(query).all() if number != since else []
        runs = dict.fromkeys((row.run, row.model) for row in rows if row.run or row.model)
        return Changes(int(number or 0), list(dict.fromkeys(row.what for row in rows)), list(runs))

    # -- transactions --------------------------------------------------------------------------------

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with self._writing, self._engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                take_turns(connection)
                yield connection

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection, connection.begin():
            yield connection


def _remedy(url: sa.URL, why: str) -> str:
    """What to do about a database that does not open."""
    if url.get_backend_name() == "postgresql":
        return "See that the PostgreSQL server runs, and that it has this database and user."
    if "locked" in why:
        return "Another program holds it: end that one (a backup, a database browser), and try again."
    return "Give the path of an intus database, or of a file that does not exist yet in a folder that does."


def network_order(graph: Graph) -> dict[str, int]:
    """Rank of every address a graph has, in the order in which their outputs came to be.

    A module comes after what ran inside it. The first call of a module called often answers to its plain
    path too.
    """
    calls, ops = graph.calls, graph.rows_of(OP)
    ended = [(int(calls.stop[call]), 1, -call, graph.call_address(call)) for call in range(len(calls))]
    ended += [(row + 1, 0, 0, graph.labels[row]) for row in ops]
    ranks: dict[str, int] = {}
    for rank, (*_, address) in enumerate(sorted(ended)):
        ranks.setdefault(address, rank)
        if address.endswith(":1"):
            ranks.setdefault(address[: -len(":1")], rank)
    return ranks


def _run_id(connection: sa.Connection, run: str, model: str) -> int:
    """The id of a run, made where it is new."""
    now = time.time()
    statement = insert_into(connection, t.run).values(
        run=run, model=model, framework="", started=now, updated=now, points=0
    )
    connection.execute(
        statement.on_conflict_do_update(index_elements=["run", "model"], set_={"updated": now})
    )
    query = sa.select(t.run.c.id).where(t.run.c.run == run, t.run.c.model == model)
    return int(connection.execute(query).scalar_one())


def _raise_counter(connection: sa.Connection, news: Sequence[tuple[str, str, str]]) -> None:
    """Give (what, run, model) the next change number, in the transaction that changed them."""
    mine = t.counter.c.name == "change"
    connection.execute(sa.update(t.counter).where(mine).values(value=t.counter.c.value + 1))
    number = connection.execute(sa.select(t.counter.c.value).where(mine)).scalar_one()
    rows = [{"what": w, "run": run, "model": model, "number": number} for w, run, model in news]
    upsert(connection, t.change, rows, ["what", "run", "model"])
