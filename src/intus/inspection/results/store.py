"""Write the results of ``inspect`` into a database as they come, and read those of an earlier call."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import IntusError, require
from ...core.followup import UnitExamples, UnitVerification
from ...core.graph import Graph
from ...core.results import COLUMNS, Predictions, Results
from ...scores import Confusion, Score, ScoreColumns, ScoreResult
from ...scores.multiple import info_over_splits
from ...storage.codec import encode_graph
from ..followup.unit_row import UnitRow
from .part import Part


class Store:
    """The database of one call of ``inspect``; without a path it does nothing.

    A database that cannot be opened, read or written is reported by one warning and then left alone, because
    the table matters more.

    Args:
        where: A path or URL; None for no database.
        run: The name of the run.
        scores: The scores, whose descriptions are stored too. Default: none.
        splits: The number of splits that classifiers were scored on. Default: 1.
    """

    def __init__(
        self, where: str | Path | None, run: str, scores: Sequence[Score] = (), splits: int = 1
    ) -> None:
        self.where, self.run = where, run
        self._infos = [info_over_splits(info, splits) for score in scores for info in score.infos]
        self._database: Any = None
        if where is not None:
            require("sqlalchemy", extra="inspect", why="to write results into a database")
            from ...storage.database import Database

            self._try(lambda: setattr(self, "_database", Database(where)))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def finished(self, model: str, epoch: float) -> tuple[str, Part] | None:
        """Return the rows that an earlier call stored for a model, and the fingerprint of its question."""
        if self._database is None:
            return None
        found = self._try(lambda: self._database.inspection(self.run, model, epoch))
        if found is None:
            return None
        fingerprint, content = found
        part = self._try(lambda: decode_part(content, model, epoch))
        return None if part is None else (fingerprint, part)

    @property
    def is_open(self) -> bool:
        """True if there is a database that can be written."""
        return self._database is not None

    def add(
        self,
        part: Part,
        graph: Graph | None,
        fingerprint: str | None,
        predicted: Sequence[Predictions] = (),
    ) -> None:
        """Store the rows of a model, its graph, and the predictions of its classifiers."""
        if self._database is None:
            return

        def write() -> None:
            targets = set(part.columns.target.tolist())
            addresses = set(part.addresses.tolist())
            self._database.drop_followups(self.run, part.model, part.epoch, addresses, targets)
            self._database.add(_results(part, self.run), self._infos, predicted)
            if graph is not None and self._database.graph(self.run, part.model) is None:
                self._database.put_graph(self.run, part.model, encode_graph(graph))
            if fingerprint is not None:
                self._database.put_inspection(
                    self.run, part.model, part.epoch, fingerprint, encode_part(part)
                )

        self._try(write)

    def keep(self, model: str, epoch: float, row: UnitRow, content: UnitExamples | UnitVerification) -> None:
        """Store the examples or the verification of a unit."""
        if self._database is not None:
            what = model, epoch, row.address, row.unit, row.target, content
            self._try(lambda: self._database.put_followup(self.run, *what))

    def _try(self, what: Any) -> Any:
        """Call a function of the database; an error ends the use of the database with a warning."""
        import sqlalchemy

        try:
            return what()
        except (sqlalchemy.exc.SQLAlchemyError, IntusError, OSError, ValueError) as error:
            cause = getattr(error, "orig", None) or error
            warnings.warn(
                f"The results are not stored in {str(self.where)!r}: {str(cause).strip()} "
                "The table is complete.",
                stacklevel=6,
            )
            self._database = None
            return None


def _results(part: Part, run: str) -> Results:
    """Return rows for the database.

    Scores of whole layers get the kind ``inspect``, so that they do not replace a training run's.
    """
    columns, count = part.columns, len(part.columns)
    facts: dict[str, Any] = {
        name: getattr(columns, name) for name in set(ScoreResult._fields) & COLUMNS.keys()
    }
    facts |= {name: [value] * count for name, value in (("run", run), ("model", part.model))}
    facts["epoch"], facts["address"] = np.full(count, part.epoch), part.addresses
    facts["kind"] = np.where(columns.unit == -1, "inspect", "output").astype(object)
    return Results(facts)


def encode_part(part: Part) -> bytes:
    """Return the rows of a model as bytes, without pickling; texts are stored once each."""
    arrays: dict[str, np.ndarray] = {}
    for name, column in _columns(part).items():
        if column.dtype == object:
            texts, which = np.unique(column.astype(str), return_inverse=True)
            arrays[f"{name}.texts"], column = texts, which.reshape(-1).astype(np.int32)
        arrays[name] = column
    found = [
        [*key, list(map(str, one.classes)), *(a.tolist() for a in one[1:])]
        for key, one in part.confusions.items()
    ]
    arrays["confusions"] = np.array(json.dumps(found))
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def decode_part(content: bytes, model: str, epoch: float) -> Part:
    """Return what ``encode_part`` made; raises ValueError if the bytes are damaged."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            found = {name: _column(file, name) for name in ("addresses", "groups", *ScoreResult._fields)}
            confused = json.loads(str(file["confusions"]))
    except Exception as error:  # zipfile, zlib and numpy raise many kinds
        raise ValueError(f"stored rows are damaged ({error})") from error
    confusions = {
        (address, score, target): Confusion(tuple(classes), *map(np.array, numbers))
        for address, score, target, classes, *numbers in confused
    }
    return Part(model, epoch, found.pop("addresses"), found.pop("groups"), ScoreColumns(**found), confusions)


def _column(file: Any, name: str) -> np.ndarray:
    texts = f"{name}.texts"
    return np.asarray(file[texts].astype(object)[file[name]] if texts in file else file[name])


def _columns(part: Part) -> dict[str, np.ndarray]:
    columns = {name: getattr(part.columns, name) for name in ScoreResult._fields}
    return {"addresses": part.addresses, "groups": part.groups} | columns
