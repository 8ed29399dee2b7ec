"""A database of scores, graphs, targets and notices in SQLite or PostgreSQL.

It uses SQLAlchemy Core with bound parameters only. Every write is one transaction that also increments the
change counter, so that a page learns what another process wrote to the same file.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..core.doubt import Doubt
from ..core.errors import InputError, did_you_mean
from ..core.followup import UnitExamples, UnitVerification
from ..core.graph import OP, Graph
from ..core.notes import joined
from ..core.record import OF_PROBE_SET
from ..core.results import COLUMNS, EARLIER, Predictions, Results
from ..core.score_info import ScoreInfo
from . import (
    doubts,
    followups,
    labels,
    log_owner,
    logged,
    points,
    predictions,
    sketches,
    summaries,
    write_ahead_log,
)
from . import tables as t
from .codec import decode_graph
from .kept_sketch import KeptSketch
from .logged import Logged
from .migrations import migrate
from .points import NO_EPOCH
from .same_file import ReplacedError, WatchedFiles, want_of_room
from .soundness import CHECKED_BYTES, DamagedError, Soundness
from .tables import insert_into, insert_of, lock_for_write, make_engine, read_url, reason, upsert

#: Most epochs that are returned as a part of a run's points.
MOST_EPOCHS = 100
#: Most points of a database that are counted, in about a second.
COUNTED_POINTS = 2_000_000
_log = logging.getLogger("intus.storage")


class Changes(NamedTuple):
    """The changes since an earlier call.

    Attributes:
        number: The newest change number.
        what: The kinds of content that changed: ``points``, ``graph``, ``notices``.
        runs: The (run, model) pairs they belong to.
    """

    number: int
    what: list[str]
    runs: list[tuple[str, str]]


class Database:
    """A store of scores that threads, and with SQLite also processes, may share.

    Args:
        where: A path (``"intus.db"``) or a URL (``"sqlite:///intus.db"``, ``"postgresql://user@host/name"``).
        fsync: Whether SQLite syncs to disk at every transaction. By default a power failure may lose the last
            writes.

    Raises:
        InputError: If the database cannot be opened, or was written by a newer version of intus.

    Example:
        >>> import tempfile
        >>> database = Database(tempfile.mkdtemp() + "/scores.db")
        >>> row = {"run": "r", "model": "m", "epoch": 0, "address": "fc1", "score": "mean", "value": 0.5}
        >>> database.add(Results.from_rows([row]))
        1
        >>> database.points("r", "m")["value"].tolist()
        [0.5]
        >>> database.close()
    """

    def __init__(self, where: str | Path, *, fsync: bool = False) -> None:
        self.url = read_url(where)
        self._engine = make_engine(self.url, fsync)
        self._series: points.Series = {}
        self._infos: dict[str, ScoreInfo] = {}  # descriptions that this process has stored
        self._writing = threading.Lock()  # threads wait here rather than poll SQLite's file lock
        self._files = WatchedFiles(())
        self._sound: Soundness | None = None  # of an SQLite database
        self._held: sqlite3.Connection | None = None  # which keeps SQLite from ending the log
        self._anchor: sa.Connection | None = None
        try:
            self._check_whole()
            with self._write() as connection:
                migrate(connection)
                is_new = log_owner.give_id(connection)
            self._watch(is_new)
            self._finish_doubts()
        except InputError:
            self.close()
            raise
        except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError, TypeError, ValueError) as error:
            self.close()
            raise InputError(self.cannot_be_opened(error)) from error

    def cannot_be_opened(self, error: Exception) -> str:
        """Return the sentences that say why the database cannot be opened, and what to do."""
        why = reason(error)
        return f"Could not open the database {self.url.render_as_string()}: {why}. {_remedy(self.url, why)}"

    def _check_whole(self) -> None:
        """Raise InputError if an SQLite database is damaged; a large one is checked when it is read."""
        if self.url.get_backend_name() != "sqlite":
            return
        path = Path(str(self.url.database))
        log_owner.remove_note(path)  # of a log that is gone: its number may be given to another file
        if stray := log_owner.stray_log(path):
            raise InputError(stray)
        if found := write_ahead_log.damage(log := log_owner.log_of(path)):
            raise InputError(
                f"The log {str(log)!r} of the database is damaged: {found}. Restore a copy of both files. Or "
                "move the log away: then the newest scores are lost that are in it alone."
            )
        self._sound = Soundness(path)
        if path.exists() and path.stat().st_size <= CHECKED_BYTES:
            self._held = self._sound.hold_log()  # until close() if it is refused
            with self._read() as connection:
                driver: Any = connection.connection.driver_connection
                found = self._sound.examine(driver)
            if found:
                raise InputError(self.cannot_be_opened(ValueError(found)))
            self._release_log()

    def close(self) -> None:
        """Close all connections. The log of a database that is damaged is kept beside it."""
        self._release_log(unless_damaged=True)
        if self._anchor is not None:
            self._anchor.close()
        self._engine.dispose()
        self._release_log()
        self._set_log_aside()
        self._files = WatchedFiles(())
        if self.url.get_backend_name() == "sqlite":
            log_owner.remove_note(Path(str(self.url.database)))

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- scores --------------------------------------------------------------------------------------

    def add(
        self,
        results: Results,
        infos: Iterable[ScoreInfo] = (),
        predicted: Sequence[Predictions] = (),
    ) -> int:
        """Store results, the descriptions of their scores, and predictions, in one transaction.

        An existing row is replaced, and its revision number incremented if its values differ. NaN and
        infinite numbers are stored as NULL; if the value is one and the row has no note, the note names it.

        Args:
            results: The results.
            infos: Descriptions of their scores; the newest of each name is kept.
            predicted: The predictions of classifiers among them.

        Returns:
            The number of new rows.
        """
        groups = list(points.grouped(results))
        if not groups:
            return 0
        new, changed = 0, {info.name: info for info in infos if self._infos.get(info.name) != info}
        with self._write() as connection:
            rows = [{"name": name, "info": json.dumps(info.to_json())} for name, info in changed.items()]
            upsert(connection, t.score, rows, ["name"])
            change = _increment_counter(connection, [("points", run, model) for run, model, _ in groups])
            for run, model, columns in groups:
                number = _run_id(connection, run, model, change)
                columns = doubts.doubted(columns, doubts.read(connection, number))
                new += points.add(connection, self._series, number, columns, change)
                own = [each for each in predicted if (each.run, each.model) == (run, model)]
                predictions.put(connection, number, self._series[number], own)
        self._infos |= changed
        return new

    def predictions(
        self,
        run: str,
        model: str,
        address: str,
        target: str,
        scores: Sequence[str],
        *,
        kind: str = "output",
        epoch: float | None = None,
        step: int | None = None,
    ) -> Predictions | None:
        """Return the predictions on held-out rows of a classifier's score; None if none are stored.

        Args:
            run: The run.
            model: The model.
            address: The layer.
            target: The target.
            scores: The names of scores that are computed from the same predictions.
            kind: The kind of the point.
            epoch: The epoch, by default the newest.
            step: The step, by default the newest.
        """
        with self._read() as connection:
            told = [each for each in doubts.half_done(connection, run, model) if each.withdraw]
            return predictions.read(connection, run, model, address, kind, target, scores, epoch, step, told)

    def keep_sketch(
        self, run: str, model: str, sketch: KeptSketch, unscored: tuple[float, int] | None = None
    ) -> None:
        """Keep a sample of a layer's rows, for as long as an epoch can be compared with it.

        Args:
            run: The run.
            model: The model.
            sketch: The sample.
            unscored: The earliest (epoch, step) of the run that is not scored in full; None if all are.
        """
        of_run = sa.select(t.run.c.id).where(t.run.c.run == run, t.run.c.model == model)
        with self._write() as connection:
            number = connection.execute(of_run).scalar()
            if number is not None:  # else it was renamed or removed
                sketches.put(connection, number, sketch, unscored)

    def sketches(
        self, run: str, model: str, training: float, at: tuple[str, float, int] | None = None
    ) -> list[KeptSketch]:
        """Return the samples of rows that are kept of a training without their contents.

        Args:
            run: The run.
            model: The model.
            training: The time of its first request.
            at: A (layer, epoch, step), of which the sample is returned with its content; None for all.
        """
        with self._read() as connection:
            return sketches.read(connection, run, model, training, at)

    def tidy_sketches(self) -> None:
        """Delete samples of rows that trainings left which are over, beyond a bound."""
        with self._write() as connection:
            sketches.tidy(connection)

    def scores(self) -> dict[str, ScoreInfo]:
        """Return the stored descriptions of scores, by name; databases of older versions may have none."""
        with self._read() as connection:
            rows = connection.execute(sa.select(t.score.c.name, t.score.c.info)).all()
        return {name: ScoreInfo.from_json(json.loads(info)) for name, info in rows}

    def put_doubt(self, run: str, model: str, doubt: Doubt) -> int:
        """Store a doubt of the rows of a run, for the points of these rows and those that will be added.

        Args:
            run: The run.
            model: The model.
            doubt: The doubt.

        Returns:
            The number of stored points that changed, 0 if it was stored before. Until all have, others can
            write, and readers see all of them as they will be.
        """
        with self._write() as connection:
            number = _run_id(connection, run, model)
            doubt, is_new = doubts.put(connection, number, doubt)  # from now on, points are added with it
            if is_new:
                change = _increment_counter(connection, [("points", run, model)])
                doubts.touch(connection, number, doubt, change)
        return self._apply_doubt(number, run, model, doubt)

    def _finish_doubts(self) -> None:
        """Change the points that doubts are about which a kill has left half done."""
        with self._read() as connection:
            left = doubts.opened(connection)
        for each in left:
            self._apply_doubt(*each)

    def _apply_doubt(self, number: int, run: str, model: str, doubt: Doubt) -> int:
        """Change the points that a stored doubt is about, some at a time; return how many changed."""
        with self._read() as connection:
            ranges = doubts.concerned(connection, number, doubt)
        count = 0
        for series in ranges:
            with self._write() as connection:
                change = _increment_counter(connection, [("points", run, model)])
                count += doubts.apply(connection, number, doubt, series, change)
        with self._write() as connection:
            doubts.close(connection, number, doubt)
        return count

    def revise(self, run: str, model: str, mode: str, old: str, new: str) -> int:
        """Replace a text in the notes of a run's points.

        Args:
            run: The run.
            model: The model.
            mode: The mode of the points, the part of their kind after ``@``; ``""`` for kinds without one.
            old: The text to find in notes.
            new: The new text.

        Returns:
            The number of points changed.
        """
        kind, note = t.series.c.kind, t.point.c.note
        of_mode = kind.endswith(f"@{mode}", autoescape=True) if mode else ~kind.contains("@")
        series = sa.select(t.series.c.id).join(t.run, t.run.c.id == t.series.c.run)
        series = series.where(t.run.c.run == run, t.run.c.model == model, of_mode)
        change = {"note": sa.func.replace(note, old, new), "revision": t.point.c.revision + 1}
        with self._write() as connection:
            matching = t.point.c.series.in_(series), note.contains(old, autoescape=True)
            count = connection.execute(sa.update(t.point).where(*matching).values(change)).rowcount
            if count:
                number = _increment_counter(connection, [("points", run, model)])
                of_run = t.epoch.c.run.in_(
                    sa.select(t.run.c.id).where(t.run.c.run == run, t.run.c.model == model)
                )
                connection.execute(sa.update(t.epoch).where(of_run).values(number=number))
        return int(count)

    def points(self, run: str, model: str, *, level: str | None = None, **equal: Any) -> Results:
        """Return the results of a run, ordered by epoch, step and first appearance.

        Args:
            run: The run.
            model: The model.
            level: ``"layer"`` or ``"unit"``; both by default.
            **equal: Values that columns must equal: address, unit, kind, target, score, epoch, step or
                others.

        Returns:
            The results; empty if there is no such run.

        Raises:
            InputError: If the level or a column does not exist.
        """
        names = [name for name in COLUMNS if name not in ("run", "model")]
        found = self.columns(run, model, names, level=level, **equal)
        size = len(found["value"])
        return Results(found | {"run": [run] * size, "model": [model] * size}) if size else Results()

    def columns(
        self,
        run: str,
        model: str,
        names: Sequence[str],
        *,
        level: str | None = None,
        since: float | None = None,
        epochs: Collection[float | None] | None = None,
        **equal: Any,
    ) -> dict[str, list[Any]]:
        """Return the same points as lists, with None for missing numbers.

        Args:
            run: The run.
            model: The model.
            names: Columns of ``Results``, or ``revision``: how often the values of a point changed.
            level: As for ``points``.
            since: The first epoch to return; None for all.
            epochs: The epochs to return, None among them for points without one; None for all.
            **equal: As for ``points``.

        Raises:
            InputError: If the level or a column of ``equal`` does not exist.
        """
        if level not in (None, "layer", "unit"):
            raise InputError(f"level must be 'layer', 'unit' or None, got level={level!r}.")
        known: dict[str, Any] = {column.name: column for column in (*t.series.c, *t.point.c)}
        for name in equal:
            if name not in COLUMNS or name not in known:
                raise InputError(f"Points have no column {name!r}. {did_you_mean(name, COLUMNS)}")
        known |= {"is_earlier": t.point.c.training < t.run.c.training}
        beside = {"mode": ["kind"], "note": ["is_earlier"]}
        asked = dict.fromkeys([*names, *(each for name in names for each in beside.get(name, ()))])
        query = sa.select().select_from(
            t.series.join(t.point, t.point.c.series == t.series.c.id).join(
                t.run, t.run.c.id == t.series.c.run
            )
        )
        query = query.where(t.run.c.run == run, t.run.c.model == model)
        query = query.where(*(known[name] == value for name, value in equal.items()))
        if level is not None:
            query = query.where(t.series.c.unit < 0 if level == "layer" else t.series.c.unit >= 0)
        if since is not None:
            query = query.where(t.point.c.epoch >= since)
        if epochs is not None:
            query = query.where(t.point.c.epoch.in_(NO_EPOCH if each is None else each for each in epochs))
        with self._read() as connection:
            told = doubts.half_done(connection, run, model)
            asked |= dict.fromkeys(doubts.NEEDED if told else ())
            query = query.order_by(t.point.c.epoch, t.point.c.step, t.series.c.id)
            rows = connection.execute(query.with_only_columns(*map(known.__getitem__, asked))).all()
        found = {name: [row[at] for row in rows] for at, name in enumerate(asked)}
        found |= {name: list(column) for name, column in doubts.doubted(found, told).items()} if told else {}
        if "note" in names:
            found["note"] = list(map(_marked, found["note"], found["is_earlier"]))
        if "mode" in names:  # earlier versions did not store it
            kinds = zip(found["mode"], found["kind"], strict=True)
            found["mode"] = [mode or kind.partition("@")[2] for mode, kind in kinds]
        found = {name: found[name] for name in names}
        if "epoch" in found:
            found["epoch"] = [None if epoch == NO_EPOCH else epoch for epoch in found["epoch"]]
        return found

    def has_points(self, run: str, model: str, epoch: float) -> bool:
        """Return whether a run has points of an epoch."""
        of_epoch = t.point.join(t.series, t.series.c.id == t.point.c.series).join(
            t.run, t.run.c.id == t.series.c.run
        )
        query = sa.select(t.point.c.series).select_from(of_epoch).limit(1)
        with self._read() as connection:
            found = connection.execute(
                query.where(t.run.c.run == run, t.run.c.model == model, t.point.c.epoch == epoch)
            ).first()
        return found is not None

    def short_runs(self) -> list[tuple[str, str, int]]:
        """Return each (run, model) that has fewer points than were added to it, with how many are missing.

        A table of points that was repaired or emptied by another program lacks some. Of a large database
        nothing is known.
        """
        found = (
            sa.select(t.series.c.run, sa.func.count().label("points"))
            .select_from(t.point.join(t.series, t.series.c.id == t.point.c.series))
            .group_by(t.series.c.run)
            .subquery()
        )
        missing = t.run.c.points - sa.func.coalesce(found.c.points, 0)
        query = sa.select(t.run.c.run, t.run.c.model, missing)
        query = query.select_from(t.run.outerjoin(found, found.c.run == t.run.c.id)).where(missing > 0)
        with self._read() as connection:
            total = connection.execute(sa.select(sa.func.sum(t.run.c.points))).scalar() or 0
            rows = connection.execute(query).all() if total <= COUNTED_POINTS else []
        return [(run, model, int(number)) for run, model, number in rows]

    def epochs_after(self, run: str, model: str, change: int) -> list[float | None] | None:
        """Return the epochs of a run with points that changed after a change, at most ``MOST_EPOCHS``.

        Args:
            run: The run.
            model: The model.
            change: The number of a change.

        Returns:
            The epochs, None for points without one. Instead of the list, None if there are more, or the run
            was given its name after that change, so that all of its points may be others.
        """
        query = sa.select(t.epoch.c.epoch).join(t.run, t.run.c.id == t.epoch.c.run)
        query = query.where(t.run.c.run == run, t.run.c.model == model, t.epoch.c.number > change)
        named = sa.select(t.run.c.named).where(t.run.c.run == run, t.run.c.model == model)
        with self._read() as connection:
            since = connection.execute(named).scalar()
            found = connection.execute(query.limit(MOST_EPOCHS + 1)).scalars().all()
        if since is None or since > change or len(found) > MOST_EPOCHS:
            return None
        return [None if epoch == NO_EPOCH else epoch for epoch in found]

    def runs(self) -> list[dict[str, Any]]:
        """Return every (run, model) with a summary of its contents, newest first.

        Returns:
            One dict per run with its name, model, framework, times, number of points and ``has_graph``, and:
            ``epochs``; ``addresses``, in network order if the graph is known, else in order of first
            appearance; ``targets``, ``scores`` and ``kinds`` of whole layers; ``layers`` and ``units``, the
            pairs of score and target that layers and units have, with the target ``""`` of a score without;
            ``logged``, the names of the user's own values; ``config`` and ``tags``.
        """
        with self._read() as connection:
            return summaries.read(connection)

    # -- what the user says of a run -----------------------------------------------------------------

    def put_run(
        self,
        run: str,
        model: str,
        *,
        config: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        log: Sequence[Logged] = (),
    ) -> None:
        """Store the configuration and the tags of a run, in place of earlier ones, and logged values.

        Args:
            run: The run.
            model: The model.
            config: The configuration, JSON-serializable; None to keep what is stored.
            tags: The tags; None to keep what is stored.
            log: Values to add.
        """
        facts = {"config": config, "tags": tags}
        changed = {name: json.dumps(fact) for name, fact in facts.items() if fact is not None}
        with self._write() as connection:
            number = _run_id(connection, run, model)
            if changed:
                connection.execute(sa.update(t.run).where(t.run.c.id == number).values(changed))
            logged.put(connection, number, log)
            _increment_counter(connection, [("log" if log else "points", run, model)])

    def log(self, run: str, model: str) -> list[Logged]:
        """Return the values that the user logged, ordered by name, step and time."""
        with self._read() as connection:
            return logged.read(connection, run, model)

    def rename(self, run: str, name: str) -> None:
        """Rename a run with all of its models and notices.

        Raises:
            InputError: If there is no such run, or there is one of the new name.
        """
        with self._write() as connection:
            models = connection.execute(sa.select(t.run.c.model).where(t.run.c.run == run)).scalars().all()
            taken = connection.execute(sa.select(t.run.c.id).where(t.run.c.run == name)).first()
            if not models or taken:
                raise InputError(
                    f"The run {run!r} cannot be renamed to {name!r}: there is "
                    + ("a run of that name. Choose another." if models else "no such run.")
                )
            changed = [(each, model) for each in (run, name) for model in models]
            changes = [(what, *key) for key in changed for what in ("points", "graph", "log")]
            number = _increment_counter(connection, [*changes, ("notices", "", "")])
            connection.execute(sa.update(t.run).where(t.run.c.run == run).values(run=name, named=number))
            connection.execute(sa.update(t.notice).where(t.notice.c.run == run).values(run=name))

    def addresses(self, run: str, model: str) -> list[str]:
        """Return the layers of a run in network order, or in order of first appearance without a graph."""
        with self._read() as connection:
            return summaries.addresses(connection, run, model)

    # -- graphs --------------------------------------------------------------------------------------

    def put_graph(self, run: str, model: str, blob: bytes) -> None:
        """Store the graph of a run.

        Args:
            run: The run.
            model: The model.
            blob: The bytes of ``codec.encode_graph``.

        Raises:
            CodecError: If the bytes are not a graph.
        """
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
            _increment_counter(connection, [("graph", run, model)])

    def graph(self, run: str, model: str) -> bytes | None:
        """Return the bytes stored by ``put_graph``, or None."""
        query = sa.select(t.graph.c.content).join(t.run, t.run.c.id == t.graph.c.run)
        with self._read() as connection:
            blob = connection.execute(query.where(t.run.c.run == run, t.run.c.model == model)).scalar()
        return None if blob is None else bytes(blob)

    # -- inspections ---------------------------------------------------------------------------------

    def put_inspection(self, run: str, model: str, epoch: float, fingerprint: str, content: bytes) -> None:
        """Store all rows of one model of an inspection, to resume it.

        Args:
            run: The run.
            model: The model.
            epoch: Its epoch; NaN for none.
            fingerprint: The hash of the question and of the model.
            content: The rows, in a form that the caller chooses.
        """
        with self._write() as connection:
            row: dict[str, Any] = {"run": _run_id(connection, run, model), "fingerprint": fingerprint}
            row |= {"epoch": epoch if epoch == epoch else NO_EPOCH, "content": content}
            upsert(connection, t.inspection, [row], ["run", "epoch"])

    def inspection(self, run: str, model: str, epoch: float) -> tuple[str, bytes] | None:
        """Return the fingerprint and the content stored by ``put_inspection``, or None."""
        query = sa.select(t.inspection.c.fingerprint, t.inspection.c.content)
        query = query.join(t.run, t.run.c.id == t.inspection.c.run).where(
            t.run.c.run == run,
            t.run.c.model == model,
            t.inspection.c.epoch == (epoch if epoch == epoch else NO_EPOCH),
        )
        with self._read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else (str(row.fingerprint), bytes(row.content))

    def put_followup(
        self,
        run: str,
        model: str,
        epoch: float,
        address: str,
        unit: int,
        target: str,
        content: UnitExamples | UnitVerification,
    ) -> None:
        """Store the examples or the verification of a unit and a hypothesis, in place of earlier ones.

        Args:
            run: The run.
            model: The model.
            epoch: Its epoch; NaN for none.
            address: The layer.
            unit: The number of the unit.
            target: The hypothesis.
            content: What to store.

        Raises:
            InputError: If it is too large.
        """
        with self._write() as connection:
            keys = {"run": _run_id(connection, run, model), "epoch": epoch, "address": address}
            followups.put(connection, keys | {"unit": unit, "target": target}, content)
            _increment_counter(connection, [("points", run, model)])

    def drop_followups(
        self, run: str, model: str, epoch: float, addresses: Collection[str], targets: Collection[str]
    ) -> None:
        """Delete examples and verifications of these layers and hypotheses, which were computed again."""
        with self._write() as connection:
            followups.drop(connection, _run_id(connection, run, model), epoch, addresses, targets)

    def followups(
        self, run: str, model: str, target: str, unit: str, epoch: float | None = None
    ) -> tuple[list[tuple[str, float | None]], float | None, dict[str, str]]:
        """Return which units have examples or a verification, and those of one unit.

        Args:
            run: The run.
            model: The model.
            target: The hypothesis.
            unit: The layer and the number of the unit, such as ``"conv1[3]"``; ``""`` for none.
            epoch: The epoch of the unit; None for the newest of the run.

        Returns:
            The names of units with their epochs; the epoch of the one unit; and what is stored of it as JSON,
            by kind: ``examples``, ``verification``. An epoch is None if the run has none.
        """
        with self._read() as connection:
            known = followups.units(connection, run, model, target)
            return known, *followups.read(connection, run, model, target, unit, epoch)

    # -- notices and targets -------------------------------------------------------------------------

    def add_notice(
        self, code: str, text: str, *, level: str = "warning", run: str = "", model: str = ""
    ) -> None:
        """Store a notice for the user. The same code and text again is counted, not repeated.

        Args:
            code: A short code for the kind of notice.
            text: The sentence to show.
            level: ``"info"``, ``"warning"`` or ``"error"``.
            run: The run it is about; ``""`` for all.
            model: The model it is about.

        Raises:
            InputError: If there is no such level.
        """
        if level not in ("info", "warning", "error"):
            raise InputError(
                f"The level of a notice must be 'info', 'warning' or 'error', got level={level!r}."
            )
        row = {"run": run, "model": model, "level": level, "code": code, "text": text, "time": time.time()}
        with self._write() as connection:
            statement = insert_into(connection, t.notice).values(row | {"count": 1})
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["run", "model", "code", "text"],
                    set_={"count": t.notice.c.count + 1, "time": row["time"], "level": level},
                )
            )
            _increment_counter(connection, [("notices", run, model)])

    def put_findings(
        self, run: str, model: str, texts: Sequence[str], *, code: str = "finding", level: str = "info"
    ) -> list[str]:
        """Store sentences that follow from the scores of a run as notices, in place of earlier ones.

        Args:
            run: The run.
            model: The model.
            texts: The sentences that hold now.
            code: The code of the notices.
            level: Their level.

        Returns:
            Those that are new.
        """
        of_run = t.notice.c.run == run, t.notice.c.model == model, t.notice.c.code == code
        with self._write() as connection:
            stored = set(connection.execute(sa.select(t.notice.c.text).where(*of_run)).scalars())
            new = [text for text in dict.fromkeys(texts) if text not in stored]
            gone = stored.difference(texts)
            if gone:
                connection.execute(sa.delete(t.notice).where(*of_run, t.notice.c.text.in_(gone)))
            facts = {"run": run, "model": model, "level": level, "code": code, "count": 1}
            for text in new:
                connection.execute(sa.insert(t.notice).values(facts | {"text": text, "time": time.time()}))
            if new or gone:
                _increment_counter(connection, [("notices", run, model)])
        return new

    def notices(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return notices as dicts, newest first: all, or those of one run and of no run."""
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
        *,
        groups: Sequence[Any] | None = None,
        types: Sequence[Any] | None = None,
        exact: bool = False,
        during: Sequence[str] = (),
        number: int = 1,
        registered: float | None = None,
        waiting: float | None = None,
        moments: Sequence[float] | None = None,
    ) -> None:
        """Store a registered target.

        The same owner's targets of that name and those patterns are removed, but those on which arrays may
        have to be scored that wait.

        Args:
            name: The name of the target.
            targets: Its labels, JSON-serializable.
            model_pattern: Regular expression for the models it applies to.
            layer_pattern: Regular expression for the addresses it applies to.
            run_pattern: Regular expression for the runs it applies to.
            owner: The client that registered it.
            groups: The group of each item, JSON-serializable.
            types: The type of each label, JSON-serializable.
            exact: Whether a list has one label for each position of its item.
            during: The runs that the owner was recording.
            number: Which labels of the name they are.
            registered: When it was registered, in seconds since 1970; now by default.
            waiting: No epoch waits whose last array came before that time. By default none waits.
            moments: When the last array of each epoch that waits came; by default at any time since then.
        """
        facts: dict[str, Any] = {"name": name, "targets": targets, "owner": owner, "run_pattern": run_pattern}
        facts |= {"groups": groups, "types": types, "exact": exact, "during": during}
        facts |= {"number": number, "registered": registered, "waiting": waiting, "moments": moments}
        with self._write() as connection:
            labels.put(connection, facts | {"model_pattern": model_pattern, "layer_pattern": layer_pattern})

    def targets(self) -> list[dict[str, Any]]:
        """Return the registered targets as dicts, ordered by name and time of registration.

        Each has ``name``, ``owner``, ``targets``, ``groups``, ``types``, the three patterns, ``registered``
        (a time), ``during`` (the runs that the owner was recording then), ``number`` (which labels of the
        name they are), ``until`` (only runs that began before are scored on it; None for all), ``claimed``
        (whether it applies only to its owner's runs) and ``runs`` (the [run, model] pairs with scores against
        it).
        """
        with self._read() as connection:
            return labels.read(connection)

    def claim_target(self, name: str, owner: str) -> None:
        """Restrict an owner's targets of a name to the runs of that owner from now on."""
        with self._write() as connection:
            labels.claim(connection, name, owner)

    def end_targets(self) -> None:
        """Restrict the targets stored so far to runs that have already begun."""
        with self._write() as connection:
            labels.end(connection, time.time())

    # -- removal and changes ---------------------------------------------------------------------------

    def remove(self, model: str | None = None, *, run: str | None = None) -> int:
        """Delete every run of a model, a run, or a model of a run; return the number of models deleted."""
        wanted = {"model": model, "run": run}
        of_runs, of_notices = (
            sa.and_(
                sa.true(), *(table.c[name] == value for name, value in wanted.items() if value is not None)
            )
            for table in (t.run, t.notice)
        )
        return self._delete(of_runs, of_notices)

    def remove_targets(self, owner: str) -> None:
        """Delete the targets that a client registered, ``""`` for those without a client."""
        with self._write() as connection:
            of_probe_sets = t.target.c.owner.startswith(f"{owner}{OF_PROBE_SET}", autoescape=True)
            connection.execute(sa.delete(t.target).where((t.target.c.owner == owner) | of_probe_sets))
            _increment_counter(connection, [("notices", "", "")])

    def clear(self) -> int:
        """Delete everything, including targets, and return the number of runs deleted."""
        return self._delete(sa.true(), sa.true(), everything=True)

    def _delete(self, which_runs: Any, which_notices: Any, *, everything: bool = False) -> int:
        with self._write() as connection:
            gone = connection.execute(sa.select(t.run.c.run, t.run.c.model).where(which_runs)).all()
            connection.execute(sa.delete(t.run).where(which_runs))  # the rest follows by ON DELETE CASCADE
            connection.execute(sa.delete(t.notice).where(which_notices))
            if everything:
                connection.execute(sa.delete(t.target))
                connection.execute(sa.delete(t.score))
                self._infos = {}
            changes = [(what, run, model) for run, model in gone for what in ("points", "graph")]
            _increment_counter(connection, [*changes, ("notices", "", "")])
        return len(gone)

    def changes(self, since: int = 0) -> Changes:
        """Return what was written after a change number.

        Args:
            since: The ``number`` of the previous call.
        """
        with self._read() as connection:
            number = _change_number(connection)
            query = sa.select(t.change).where(t.change.c.number > since).order_by(t.change.c.number)
            rows = connection.execute(query).all() if number != since else []
        runs = dict.fromkeys((row.run, row.model) for row in rows if row.run or row.model)
        return Changes(number, list(dict.fromkeys(row.what for row in rows)), list(runs))

    def change_number(self) -> int:
        """Return the number of the last change of the database."""
        with self._read() as connection:
            return _change_number(connection)

    def last_change(self, run: str, model: str) -> int:
        """Return the number of the last change of a run; 0 if there is no such run."""
        query = sa.select(sa.func.max(t.change.c.number))
        with self._read() as connection:
            found = connection.execute(query.where(t.change.c.run == run, t.change.c.model == model)).scalar()
        return int(found or 0)

    # -- transactions --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ReplacedError if a file of an SQLite database was deleted or replaced under way."""
        if change := self._files.change():
            raise ReplacedError(
                f"{change}, so what is written to the database would be lost. Put the file back, or end this "
                "program (Ctrl+C, SIGTERM) and start it again; a database whose file is gone begins anew."
            )

    def prove(self) -> None:
        """Raise DamagedError if an SQLite database is damaged, as far as is known or found in a short time.

        It is checked if it was written to by another program, or a query failed as those of a damaged one do.
        Otherwise it is checked if the last time is long ago, and it is not large.
        """
        if self._sound is not None:
            self._sound.prove(routine=True)

    def _release_log(self, *, unless_damaged: bool = False) -> None:
        """Let SQLite end the log, which it writes into the database, when the last connection is closed."""
        if unless_damaged and self._sound is not None and not self._files.change():
            try:
                self._sound.prove(routine=True)
            except DamagedError as error:
                what = "The log is kept as it is."
                try:
                    self._held = self._held or self._sound.hold_log()
                except sqlite3.Error as failure:
                    what = f"The log cannot be kept: {failure}."
                if self._anchor is not None:  # else its start is refused
                    _log.error("%s %s", error, what)
                return
        if self._held is not None:
            self._held.close()
            self._held = None

    def _watch(self, has_new_id: bool) -> None:
        """Watch the files of an SQLite database, which one connection holds open until the end."""
        if self.url.get_backend_name() == "sqlite":
            self._anchor = self._engine.connect()
            if has_new_id:  # it is in the log alone, and stays there without room on the disk
                with suppress(sqlite3.Error):
                    self._anchor.connection.cursor().execute("PRAGMA wal_checkpoint").close()
            path = Path(str(self.url.database))
            self._files = WatchedFiles([path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))])
            log_owner.write_note(path)
            self._sound = Soundness(path)  # its first pages were written, and the log shortened
            sa.event.listen(self._engine, "connect", lambda *_: self.check(), insert=True)

    def _set_log_aside(self) -> None:
        """Move the write-ahead log away from a database that is not its own, and delete the log's index.

        SQLite leaves them if the database's file was replaced, and uses them for the other one when that is
        opened. A process that still has the earlier files open goes on to use these.
        """
        path = Path(str(self.url.database))
        index = path.with_name(f"{path.name}-shm")
        log = log_owner.log_of(path)
        if self._files.still(log) and not self._files.still(path):
            with suppress(OSError):
                kept = log.replace(path.with_name(f"{path.name}.lost-wal"))
                _log.warning("%s is kept as %s: the database that it belongs to is gone.", log, kept)
                if self._files.still(index):
                    index.unlink()

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        self.check()
        with self._writing:
            try:
                self._prove_written()
                with self._noting_damage(), self._engine.connect() as connection:
                    connection = connection.execution_options(writes=True)
                    with connection.begin():
                        lock_for_write(connection)
                        yield connection
                    self.check()  # else it was written to a file that is gone
                    self._prove_written(connection)
            except BaseException:
                self._series.clear()  # it may have created some of them, and their ids are given again
                raise

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        self.check()
        with self._noting_damage(), self._engine.connect() as connection:
            if self.url.get_backend_name() == "postgresql":  # one state for all queries, as SQLite has
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DBAPIError, sqlite3.Error) as error:
            if self._sound is not None:
                self._sound.note(error)
            raise

    def _prove_written(self, connection: Any = None) -> None:
        """Raise DamagedError if what is written may be lost; shorten the log after a transaction."""
        if self._sound is not None and self._anchor is not None:
            self._sound.prove()
            if connection is not None:
                self._sound.has_news = True
                self._sound.shorten(connection.connection.driver_connection)


def _marked(note: str, is_earlier: bool | None) -> str:
    """Return the note of a point, which says if a newer training of the run has not replaced it."""
    return joined(note, EARLIER) if is_earlier else note


def _remedy(url: sa.URL, why: str) -> str:
    """Return what the user can do if a database does not open."""
    if url.get_backend_name() == "postgresql":
        return "Check that the PostgreSQL server is running, and that it has this database and user."
    path = Path(str(url.database))
    if path.is_dir():
        return f"It is a folder: give the path of a file in it, such as {path / 'intus.db'}."
    if ("disk I/O error" in why or "full" in why) and (full := want_of_room(path.parent)):
        return f"Its disk has no room: {full}. Make room and try again. Nothing was lost."
    if "disk I/O error" in why or "error code=" in why:  # of a page that could not be read
        return (
            "The disk may fail; or another program still has the files open of an earlier database of this "
            f"name (a server that ends, a notebook), and uses {url.database}-shm. Nothing was changed. End "
            "that program and try again."
        )
    if "full" in why:
        return "Make room on its disk and try again. Nothing was lost."
    if "malformed" in why or "damaged" in why:
        return (
            f"Restore a copy of it, without {url.database}-wal if there is one; or save what SQLite's own "
            f"program can read (sqlite3 {url.database} "
            ".recover); or choose another database (--database)."
        )
    if "locked" in why:
        return "Another program has locked it. End that program (a backup, a database browser) and try again."
    return "Give the path of an intus database, or of a new file in an existing folder."


def network_order(graph: Graph) -> dict[str, int]:
    """Return the rank of every address of a graph, in the order in which their outputs were computed.

    A module comes after the operations that ran inside it. The first call of a module that is called
    repeatedly is also found by its plain path.
    """
    calls, ops = graph.calls, graph.rows_of(OP)
    ended = [
        (int(calls.stop[call]), 1, place, graph.call_address(call))
        for place, call in enumerate(_by_end(calls.parent.tolist()))
    ]
    ended += [(row + 1, 0, 0, graph.labels[row]) for row in ops]
    ranks: dict[str, int] = {}
    for rank, (*_, address) in enumerate(sorted(ended)):
        ranks.setdefault(address, rank)
        if address.endswith(":1"):
            ranks.setdefault(address[: -len(":1")], rank)
    return ranks


def _by_end(parents: Sequence[int]) -> list[int]:
    """Return module calls in the order in which they ended, of the parent of each in the order they began.

    >>> _by_end([-1, 0, 1, 0])
    [2, 1, 3, 0]
    """
    ended, running = list[int](), list[int]()
    for call, parent in enumerate(parents):
        while running and running[-1] != parent:
            ended.append(running.pop())
        running.append(call)
    return ended + running[::-1]


def _run_id(connection: sa.Connection, run: str, model: str, change: int | None = None) -> int:
    """Return the id of a run, creating it if it is new; ``change`` is the last change, read by default."""
    named = _change_number(connection) if change is None else change
    values = {"run": run, "model": model, "now": time.time(), "named": named}
    return int(connection.execute(_put_run(connection.dialect.name), values).scalar_one())


@lru_cache(maxsize=2)
def _put_run(dialect: str) -> Any:
    now = sa.bindparam("now", type_=sa.Float())
    row = insert_of(dialect, t.run).values(
        run=sa.bindparam("run"), model=sa.bindparam("model"), named=sa.bindparam("named"),
        framework="", started=now, updated=now, points=0,
    )  # fmt: skip
    return row.on_conflict_do_update(index_elements=["run", "model"], set_={"updated": now}).returning(
        t.run.c.id
    )


_IS_CHANGE = t.counter.c.name == "change"
_CHANGE = sa.select(t.counter.c.value).where(_IS_CHANGE)
_NEXT_CHANGE = (
    sa.update(t.counter).where(_IS_CHANGE).values(value=t.counter.c.value + 1).returning(t.counter.c.value)
)


def _change_number(connection: sa.Connection) -> int:
    return int(connection.execute(_CHANGE).scalar() or 0)


def _increment_counter(connection: sa.Connection, changes: Sequence[tuple[str, str, str]]) -> int:
    """Give each changed (what, run, model) the next change number, and return it.

    It belongs to the transaction of the change.
    """
    number = connection.execute(_NEXT_CHANGE).scalar_one()
    rows = [{"what": w, "run": run, "model": model, "number": number} for w, run, model in changes]
    upsert(connection, t.change, rows, ["what", "run", "model"])
    return int(number)
