"""The sources of recorded scores: a database, or a server that runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from ..core.errors import InputError, ServeError
from ..core.results import COLUMNS, Results
from ..core.score_info import ScoreInfo
from ..monitoring.client import Client

#: A server as ``host:port``, with an IPv6 address in brackets.
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):(\d+)")


class Source(Protocol):
    """Reads runs and their scores.

    Attributes:
        where: What was opened, for messages.
    """

    where: str

    def runs(self) -> list[dict[str, Any]]:
        """Return a summary of every (run, model), the newest first; see ``Database.runs``."""

    def scores(self) -> dict[str, ScoreInfo]:
        """Return the descriptions of scores, by name."""

    def points(self, run: str, model: str, level: str, equal: Mapping[str, str]) -> Results:
        """Return the scores of a run whose columns equal the given values."""

    def log(self, run: str, model: str) -> dict[str, list[Any]]:
        """Return the values that the user logged, as columns; nan, inf and -inf are texts."""

    def change(self, run: str, **change: Any) -> None:
        """Rename a run (``name=``), replace its ``tags`` or ``remove`` it."""


class DatabaseSource:
    """Reads a database. Its connections are closed after each call.

    Args:
        where: A path or a URL.

    Raises:
        InputError: If there is no such file, or it is no database of intus.
    """

    def __init__(self, where: str | Path) -> None:
        if "://" not in str(where) and not Path(where).is_file():
            raise InputError(
                f"There is no file {str(where)!r}. Give the database of `intus serve --database FILE`, or "
                "HOST:PORT of a server that runs."
            )
        self.where = str(where)
        self.runs()

    def runs(self) -> list[dict[str, Any]]:
        """Return a summary of every (run, model), the newest first."""
        with self._open() as database:
            found: list[dict[str, Any]] = database.runs()
        return found

    def scores(self) -> dict[str, ScoreInfo]:
        """Return the stored descriptions of scores, by name."""
        with self._open() as database:
            found: dict[str, ScoreInfo] = database.scores()
        return found

    def points(self, run: str, model: str, level: str, equal: Mapping[str, str]) -> Results:
        """Return the scores of a run whose columns equal the given values."""
        with self._open() as database:
            found: Results = database.points(run, model, level=level, **equal)
        return found

    def log(self, run: str, model: str) -> dict[str, list[Any]]:
        """Return the values that the user logged, as columns."""
        from ..storage.logged import columns

        with self._open() as database:
            found: dict[str, list[Any]] = columns(database.log(run, model))
        return found

    def change(self, run: str, **change: Any) -> None:
        """Rename a run, replace its tags or remove it."""
        with self._open() as database:
            if change.get("remove"):
                database.remove(run=run)
            for model in [one["model"] for one in database.runs() if one["run"] == run]:
                if "tags" in change:
                    database.put_run(run, model, tags=change["tags"])
            if "name" in change:
                database.rename(run, change["name"])

    def _open(self) -> Any:
        from ..storage.database import Database  # SQLAlchemy is needed for databases alone

        return Database(self.where)


class ServerSource:
    """Reads from a server that runs.

    Args:
        host: Its host name.
        port: The port of its page, or of a server with all roles.

    Raises:
        ServeError: If it does not answer.
    """

    def __init__(self, host: str, port: int) -> None:
        self.where = f"{host}:{port}"
        self._client = Client(host, port, timeout=60.0)
        self.runs()

    def runs(self) -> list[dict[str, Any]]:
        """Return a summary of every (run, model), the newest first."""
        found: list[dict[str, Any]] = self._get("/api/runs")["runs"]
        return found

    def scores(self) -> dict[str, ScoreInfo]:
        """Return the descriptions of scores, by name."""
        return {each["name"]: ScoreInfo.from_json(each) for each in self._get("/api/runs")["scores"]}

    def points(self, run: str, model: str, level: str, equal: Mapping[str, str]) -> Results:
        """Return the scores of a run whose columns equal the given values."""
        found = self._get("/api/points", run=run, model=model, level=level, **equal)
        size = len(found.get("value", ()))
        columns = {name: _filled(found[name], missing) for name, missing in COLUMNS.items() if name in found}
        return Results(columns | {"run": [run] * size, "model": [model] * size})

    def log(self, run: str, model: str) -> dict[str, list[Any]]:
        """Return the values that the user logged, as columns."""
        found = self._get("/api/log", run=run, model=model)
        size = len(found["name"])
        unknown: dict[str, list[Any]] = {"training": [None] * size, "note": [""] * size}
        return unknown | found  # earlier versions have neither

    def change(self, run: str, **change: Any) -> None:
        """Rename a run, replace its tags or remove it."""
        try:
            answer = self._client.post("/api/run", json.dumps({"run": run, **change}).encode())
        finally:
            self._client.close()
        if not answer.ok:
            raise (InputError if answer.status == 400 else ServeError)(answer.why)

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        try:
            answer = self._client.get(f"{path}?{urlencode(query)}" if query else path)
        finally:
            self._client.close()
        if answer.status == 404:
            raise ServeError(f"{self.where} has no page. Give the port of the page, 8080 by default.")
        if not answer.ok:
            raise ServeError(f"{self.where} refused {path}: {answer.why}")
        return answer.reply


def _filled(values: list[Any], missing: Any) -> list[Any]:
    return [missing if value is None else value for value in values] if missing != missing else values


def source(where: str | Path) -> Source:
    """Return the source of a path, of a database's URL, or of ``host:port`` or ``http://host:port``.

    Raises:
        InputError: If there is no such file, or the URL has no port.
        ServeError: If the server does not answer.

    Example:
        >>> source("no.db")
        Traceback (most recent call last):
        ...
        intus.core.errors.InputError: There is no file 'no.db'. Give the database of `intus serve ...
    """
    text = str(where)
    if address := _ADDRESS.fullmatch(text):
        return ServerSource(address[1].strip("[]"), int(address[2]))
    if text.startswith("http://"):
        parts = urlsplit(text)
        return ServerSource(parts.hostname or "", parts.port or 80)
    if text.startswith("https://"):
        raise InputError(f"{text!r} is https, which servers of intus do not speak. Write http://HOST:PORT.")
    return DatabaseSource(where)
