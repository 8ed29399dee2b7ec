"""``runs``: the recorded trainings as a mapping, and their scores as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import InputError, did_you_mean
from ..core.results import Results
from .sources import Source, source

if TYPE_CHECKING:
    import pandas

#: The server of ``intus serve`` on this machine.
LOCAL = "127.0.0.1:8082"
#: The columns by which scores can be selected.
_SELECTED = ("model", "address", "kind", "target", "score")


def runs(where: str | Path = LOCAL) -> Runs:
    """Open the runs of a database or of a server, to read their scores as DataFrames.

    Args:
        where: A database that ``intus serve --database`` wrote, as a path or a URL; or a server that runs,
            as ``"host:port"`` or ``"http://host:port"``. The server on this machine by default.

    Returns:
        A mapping from the name of each run to the run, the newest first.

    Raises:
        InputError: If there is no such file, or it is no database of intus.
        ServeError: If the server does not answer.

    Example:
        >>> known = runs("runs.db")  # doctest: +SKIP
        >>> known["baseline"].scores(target="digit", score="linear_f1")  # doctest: +SKIP
        >>> table = known.scores(target="digit", score="linear_f1")  # doctest: +SKIP
        >>> table.pivot_table("value", "epoch", ["run", "address"])  # doctest: +SKIP
    """
    return Runs(source(where))


class Runs(Mapping[str, "Run"]):
    """The runs of a database or server by name, the newest first. It is read anew at each access.

    Args:
        source: Where to read.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, name: str) -> Run:
        grouped = self._grouped()
        if name not in grouped:
            raise KeyError(f"{self._source.where} has no run {name!r}. {did_you_mean(name, list(grouped))}")
        return Run(name, grouped[name], self._source)

    def __iter__(self) -> Iterator[str]:
        return iter(self._grouped())

    def __len__(self) -> int:
        return len(self._grouped())

    def scores(self, **selected: Any) -> pandas.DataFrame:
        """Return the scores of all runs as a DataFrame; see ``Run.scores``.

        A run that has none of them adds no rows; what no run has is an error.
        """
        found = list(self._grouped().items())
        every = Run("", [summary for _, summaries in found for summary in summaries], self._source)
        every._check(f"{self._source.where} has", selected)
        tables = [Run(name, summaries, self._source)._results(selected) for name, summaries in found]
        return Results.concat(tables).to_pandas()

    def __repr__(self) -> str:
        lines = [repr(Run(name, summaries, self._source)) for name, summaries in self._grouped().items()]
        return "\n".join([f"<Runs of {self._source.where}: {len(lines)}>", *lines])

    def _grouped(self) -> dict[str, list[dict[str, Any]]]:
        """Return the summaries of the models of each run."""
        grouped: dict[str, list[dict[str, Any]]] = {}
        for summary in self._source.runs():
            grouped.setdefault(summary["run"], []).append(summary)
        return grouped


class Run:
    """A recorded training.

    Attributes:
        name: The name of the run.
        models: The names of its models.
        epochs: The epochs that have scores, in order.
        addresses: The layers that have scores, in network order.
        targets: The targets that layers were scored against.
    """

    def __init__(self, name: str, summaries: list[dict[str, Any]], source: Source) -> None:
        self.name, self._source = name, source
        self.models: list[str] = [one["model"] for one in summaries]
        self.epochs: list[float] = sorted({epoch for one in summaries for epoch in one["epochs"]})
        self.addresses: list[str] = _distinct(summaries, "addresses")
        self.targets: list[str] = _distinct(summaries, "targets")
        self._scores: list[str] = _distinct(summaries, "scores")
        self._kinds: list[str] = _distinct(summaries, "kinds")
        self._times = [time for one in summaries for time in (one["started"], one["updated"])]

    @property
    def started(self) -> datetime:
        """The time when the first score was stored."""
        return datetime.fromtimestamp(min(self._times), UTC)

    @property
    def updated(self) -> datetime:
        """The time when the last score was stored."""
        return datetime.fromtimestamp(max(self._times), UTC)

    def scores(self, *, level: Literal["layer", "unit"] = "layer", **selected: Any) -> pandas.DataFrame:
        """Return scores as a tidy DataFrame, ordered by epoch and step.

        Args:
            level: ``"layer"`` for scores of whole layers, ``"unit"`` for scores of single units.
            **selected: Values that columns must equal: ``model``, ``address``, ``kind``, ``target``,
                ``score``. All rows by default.

        Returns:
            One row per score with the columns of ``Results``: run, model, epoch, step, address, unit, kind,
            target, score, value, low, high, baseline, n, note.

        Raises:
            InputError: If the run has no such model, target or score.
            MissingExtraError: If pandas is not installed.

        Example:
            >>> run.scores(target="digit", score="linear_f1")[["epoch", "address", "value"]]  # doctest: +SKIP
        """
        selected["level"] = level
        self._check(f"The run {self.name!r} has", selected)
        return self._results(selected).to_pandas()

    def _results(self, selected: Mapping[str, Any]) -> Results:
        equal = dict(selected)
        level, model = equal.pop("level", "layer"), equal.pop("model", None)
        models = [one for one in self.models if model in (None, one)]
        return Results.concat(self._source.points(self.name, one, level, equal) for one in models)

    def _check(self, subject: str, selected: Mapping[str, Any]) -> None:
        """Raise InputError for a selection that has no rows because of a name that does not exist."""
        for name in selected:
            if name not in (*_SELECTED, "level"):
                raise InputError(f"Scores are not selected by {name!r}. {did_you_mean(name, _SELECTED)}")
        level = selected.get("level", "layer")
        if level not in ("layer", "unit"):
            raise InputError(f"level must be 'layer' or 'unit', got {level!r}.")
        known = {"model": self.models}
        if level == "layer":  # summaries name the targets, scores and kinds of layers
            known |= {"target": ["", *self.targets], "score": self._scores, "kind": self._kinds}
            known |= {"address": self.addresses}
        for name, values in known.items():
            if name in selected and selected[name] not in values:
                text = did_you_mean(selected[name], values)
                raise InputError(f"{subject} no {name} {selected[name]!r}. {text}")

    def __repr__(self) -> str:
        epochs = f"epochs {self.epochs[0]:g} to {self.epochs[-1]:g}" if self.epochs else "no epoch"
        return (
            f"<Run {self.name!r}: {', '.join(self.models)}, {epochs}, {len(self.addresses)} layers, "
            f"targets {', '.join(self.targets) or '-'}>"
        )


def _distinct(summaries: list[dict[str, Any]], key: str) -> list[Any]:
    return list(dict.fromkeys(value for one in summaries for value in one[key]))
