"""``runs``: the recorded trainings as a mapping, and their scores as DataFrames."""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, Mapping, ValuesView
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import InputError, did_you_mean, require
from ..core.findings import SCORES, Finding, findings
from ..core.names import check_name
from ..core.results import Results
from ..monitoring.scalars import check_tags
from .sources import Source, source

if TYPE_CHECKING:
    import pandas

#: The server of ``intus serve`` on this machine.
LOCAL = "127.0.0.1:8082"
#: The columns by which scores can be selected.
_SELECTED = ("model", "address", "kind", "mode", "target", "score", "epoch", "step")
#: Those that are numbers.
_NUMBERS = ("epoch", "step")


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

    def values(self) -> ValuesView[Run]:
        """Return the runs."""
        return self._read().values()

    def items(self) -> ItemsView[str, Run]:
        """Return the runs with their names."""
        return self._read().items()

    def _read(self) -> dict[str, Run]:
        """Return all runs by one reading; a ``Mapping`` would read them again for each."""
        return {name: Run(name, summaries, self._source) for name, summaries in self._grouped().items()}

    def scores(self, **selected: Any) -> pandas.DataFrame:
        """Return the scores of all runs as a DataFrame; see ``Run.scores``.

        A run that has none of them adds no rows; what no run has is an error.
        """
        found = self.values()
        every = Run("", [summary for run in found for summary in run._summaries], self._source)
        every._check(f"{self._source.where} has", selected)
        mode = selected.pop("mode", None)
        tables = [run._results(selected) for run in found]
        return _of_mode(Results.concat(tables), mode).to_pandas()

    def grouped(self, by: str | Collection[str] | None = None, **selected: Any) -> pandas.DataFrame:
        """Return the mean of each score over the runs of a group, such as runs that differ in their seed.

        Args:
            by: The entries of ``config`` that the runs of a group have in common. By default all but
                ``seed``; then a run without a configuration is left out, and those that have a seed alone
                are the group ``"seed=*"``. An empty list puts all runs into one group.
            **selected: See ``Run.scores``.

        Returns:
            The columns of ``Run.scores``. ``run`` is the name of the group (``"lr=0.1, width=64"``),
            ``value`` the mean over its runs, ``low`` and ``high`` the bounds of the mean's 95 % interval
            over runs (Student's t, within the range of the score; NaN for a single run), ``n`` the number
            of runs. ``kind`` has no mode: each ``mode`` has rows of its own, whichever came first in a run.

        Raises:
            InputError: If no run has such entries in its configuration, or no run has such scores.

        Example:
            >>> mean = runs("runs.db").grouped(target="digit", score="linear_f1")  # doctest: +SKIP
        """
        require("scipy", extra="inspect", why="to compute intervals over runs")
        from ..storage.groups import label, mean_over_runs

        entries = [by] if isinstance(by, str) else by
        runs = self.values()
        groups: dict[str, list[Run]] = {}
        for run in runs:
            if name := label(run.config, entries):
                groups.setdefault(name, []).append(run)
        if not groups:
            known = sorted({entry for run in runs for entry in run.config})
            raise InputError(
                f"No run of {self._source.where} has a configuration"
                + (
                    f" with {', '.join(entries)}. Known entries: {', '.join(known) or 'none'}."
                    if entries
                    else ""
                )
                + (" to group by. Pass config={...} to probe()." if not entries else "")
            )
        every = Run(
            "", [one for group in groups.values() for run in group for one in run._summaries], self._source
        )
        every._check(f"{self._source.where} has", selected)
        mode, kind = selected.pop("mode", None), selected.pop("kind", None)  # which mean others in each run
        infos = self._source.scores()
        tables = [
            mean_over_runs([run._results(selected) for run in group], name, infos)
            for name, group in groups.items()
        ]
        found = Results.concat(tables)
        if kind is not None:
            base, _, of_kind = kind.partition("@")
            found = found.where(kind=base, **({"mode": of_kind} if of_kind else {}))
        return _of_mode(found, mode).to_pandas()

    def __repr__(self) -> str:
        lines = [repr(run) for run in self.values()]
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
        logged: The names of the values that ``Probe.log`` recorded.
        config: The configuration that was passed to ``probe``; ``{}`` if none was.
    """

    def __init__(self, name: str, summaries: list[dict[str, Any]], source: Source) -> None:
        self.name, self._source, self._summaries = name, source, summaries
        self.models: list[str] = [one["model"] for one in summaries]
        self.epochs: list[float] = sorted({epoch for one in summaries for epoch in one["epochs"]})
        self.addresses: list[str] = _distinct(summaries, "addresses")
        self.targets: list[str] = _distinct(summaries, "targets")
        self.logged: list[str] = _distinct(summaries, "logged")
        self.config: dict[str, Any] = {
            name: value for one in summaries for name, value in one["config"].items()
        }
        self._tags: list[str] = _distinct(summaries, "tags")
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

    @property
    def tags(self) -> list[str]:
        """The tags of the run. Set others to replace them: ``run.tags = ["baseline"]``."""
        return list(self._tags)

    @tags.setter
    def tags(self, tags: list[str]) -> None:
        self._tags = check_tags(tags)
        self._source.change(self.name, tags=self._tags)

    def rename(self, name: str) -> None:
        """Rename the run. What a training that still runs sends later is stored under the old name.

        So is what waits to be scored: a server refuses the new name until all is scored. In a database file
        that a server has open this cannot be known: give the server's ``HOST:PORT`` to ``runs`` instead.

        Args:
            name: The new name.

        Raises:
            InputError: If there is a run of that name, or arrays of this one wait to be scored.
            ServeError: If the roles of the server run apart, and the page's knows nothing of what waits.
        """
        check_name("The name of a run", name)
        self._source.change(self.name, name=name)
        self.name = name

    def remove(self) -> None:
        """Delete the run with its scores, graphs, notices and logged values.

        What a training that still runs sends later is stored again. A server also deletes what waits to be
        scored. In a database file that a server has open this is not possible, and the run comes back with
        it: give the server's ``HOST:PORT`` to ``runs`` instead.

        Raises:
            InputError: If arrays of the run wait to be scored, and the roles of the server run apart.
            ServeError: If they run apart, and the page's knows nothing of what waits.
        """
        self._source.change(self.name, remove=True)

    def log(self, *names: str) -> pandas.DataFrame:
        """Return the values that ``Probe.log`` recorded as a tidy DataFrame, ordered by name, step and time.

        Args:
            *names: Only values of these names. All by default.

        Returns:
            One row per value with the columns run, model, name, epoch, step, time (UTC), value, note and
            training. NaN and infinities are as they were logged. ``training`` is when the training began that
            the value is of: of its ``probe``, in seconds since 1970 by the clock of its machine; NaN if
            unknown. Of several trainings under this name, a later one replaces the values of the same name,
            epoch and step, and the note of those that it has left says that they are of an earlier one.

        Raises:
            InputError: If no value of such a name was logged.
            MissingExtraError: If pandas is not installed.

        Example:
            >>> run.log("loss").plot("step", "value")  # doctest: +SKIP
        """
        pd = require("pandas", extra="inspect", why="to return logged values as a DataFrame")
        for name in names:
            if name not in self.logged:
                text = did_you_mean(name, self.logged)
                raise InputError(f"The run {self.name!r} has logged no {name!r}. {text}")
        tables = []
        for model in self.models:
            columns = {
                name: values for name, values in self._source.log(self.name, model).items() if name != "total"
            }
            kinds = {"value": float, "epoch": float, "step": int, "time": float, "training": float}
            found = pd.DataFrame(columns).astype(kinds)
            found["time"] = pd.to_datetime(found["time"], unit="s", utc=True)
            tables.append(found.assign(run=self.name, model=model))
        table = pd.concat(tables, ignore_index=True)[
            ["run", "model", "name", "epoch", "step", "time", "value", "note", "training"]
        ]
        return table[table["name"].isin(names)].reset_index(drop=True) if names else table

    def findings(self) -> list[Finding]:
        """Return what follows from the scores and their intervals, each as a sentence with its numbers.

        The rules are those of ``intus.core.findings``: where NaN began, which target is learned in which
        layer and from when (of a training's own passes: whose score rises, which is of the kind ``"risen"``,
        because the weights change between their rows), which fell to its baseline, and which layers add
        nothing over an earlier one. Of several trainings under this name they are of the newest.

        Returns:
            Findings with ``text``, ``kind``, ``target``, ``address``, ``epoch``, ``step`` and ``model``. What
            the newest scores no longer support is left out.

        Example:
            >>> for finding in run.findings():  # doctest: +SKIP
            ...     print(finding)
        """
        found = []
        for one in self._summaries:
            model = one["model"]
            known = [name for name in SCORES if name in one["scores"]]
            tables = [self._source.points(self.name, model, "layer", {"score": name}) for name in known]
            log = self._source.log(self.name, model)
            columns = log["name"], log["step"], log["epoch"], map(float, log["value"]), log["note"]
            values = [tuple(row) for *row, note in zip(*columns, strict=True) if not note]
            found += findings(Results.concat(tables), one["addresses"], values, model)
        return found

    def scores(self, *, level: Literal["layer", "unit"] = "layer", **selected: Any) -> pandas.DataFrame:
        """Return scores as a tidy DataFrame, ordered by epoch and step.

        Args:
            level: ``"layer"`` for scores of whole layers, ``"unit"`` for scores of single units.
            **selected: Values that columns must equal: ``model``, ``address``, ``kind``, ``mode``,
                ``target``, ``score``, ``epoch``, ``step``. Epochs and steps may be slices:
                ``epoch=slice(3, 10)`` is from 3 up to 10, without 10. All rows by default.

        Returns:
            One row per score with the columns of ``Results``: run, model, epoch, step, address, unit, kind,
            mode, target, score, value, low, high, baseline, n, note, training.

        Raises:
            InputError: If the run has no such model, target, score or epoch, or a value is of another type.
            MissingExtraError: If pandas is not installed.

        Example:
            >>> run.scores(target="digit", score="linear_f1")[["epoch", "address", "value"]]  # doctest: +SKIP
        """
        selected["level"] = level
        self._check(f"The run {self.name!r} has", selected)
        mode = selected.pop("mode", None)
        return _of_mode(self._results(selected), mode).to_pandas()

    def _results(self, selected: Mapping[str, Any]) -> Results:
        equal = dict(selected)
        level, model = equal.pop("level", "layer"), equal.pop("model", None)
        numbers = {name: equal.pop(name) for name in _NUMBERS if name in equal}
        models = [one for one in self.models if model in (None, one)]
        found = Results.concat(self._source.points(self.name, one, level, equal) for one in models)
        return found.where(**numbers)

    def _check(self, subject: str, selected: Mapping[str, Any]) -> None:
        """Raise InputError for a selection that has no rows because of a name that does not exist."""
        for name in selected:
            if name not in (*_SELECTED, "level"):
                raise InputError(f"Scores are not selected by {name!r}. {did_you_mean(name, _SELECTED)}")
            wanted, such_as = (Real, "number") if name in _NUMBERS else (str, "string")
            if name in _NUMBERS and isinstance(selected[name], slice):
                _check_slice(name, selected[name])
            elif name != "level" and not isinstance(selected[name], wanted):
                raise InputError(
                    f"{name} must be a {such_as}, got {selected[name]!r}. Leave it out for every {name}."
                )
        level = selected.get("level", "layer")
        if level not in ("layer", "unit"):
            raise InputError(f"level must be 'layer' or 'unit', got {level!r}.")
        known: dict[str, list[Any]] = {"model": self.models, "epoch": self.epochs}
        if level == "layer":  # summaries name the targets, scores and kinds of layers
            known |= {"target": ["", *self.targets], "score": self._scores, "kind": self._kinds}
            known |= {"address": self.addresses}
        epochs = selected.get("epoch")
        if isinstance(epochs, slice):
            del known["epoch"]
            if not len(Results({"epoch": self.epochs}).where(epoch=epochs)):
                raise InputError(f"{subject} no epoch in {_shown(epochs)}. {_have(self.epochs)}")
        for name, values in known.items():
            if name in selected and selected[name] not in values:
                if name == "epoch":
                    epoch = _shown(float(selected[name]))
                    raise InputError(f"{subject} no epoch {epoch}. {_have(self.epochs, most=8)}")
                text = did_you_mean(str(selected[name]), [_shown(value) for value in values])
                raise InputError(f"{subject} no {name} {selected[name]!r}. {text}")

    def __repr__(self) -> str:
        epochs = f"epochs {self.epochs[0]:g} to {self.epochs[-1]:g}" if self.epochs else "no epoch"
        return (
            f"<Run {self.name!r}: {', '.join(self.models)}, {epochs}, {len(self.addresses)} layers, "
            f"targets {', '.join(self.targets) or '-'}>"
        )


def _of_mode(found: Results, mode: str | None) -> Results:
    """Return the rows of a mode, all for None; raises InputError if it is none of theirs."""
    if mode is None or not len(found):
        return found
    known = sorted(set(found["mode"].tolist()))
    if mode not in known:
        raise InputError(f"These scores have no mode {mode!r}. {did_you_mean(mode, known)}")
    return found.where(mode=mode)


def _check_slice(name: str, value: slice) -> None:
    """Raise InputError unless a slice has numbers or None as its bounds, in order, and no stride."""
    bounds = [each for each in (value.start, value.stop) if each is not None]
    plain = value.step is None and all(isinstance(each, Real) for each in bounds)
    if not plain or (len(bounds) == 2 and not bounds[0] < bounds[1]):
        raise InputError(
            f"{name}={value} must be a slice from a number up to a larger one, such as slice(3, 10)."
        )


def _have(epochs: list[float], most: int = 0) -> str:
    """Return a sentence with the epochs, each of them if there are at most ``most``."""
    span = f"{epochs[0]:g} to {epochs[-1]:g}" if epochs else "none"
    return f"Its epochs: {', '.join(map(_shown, epochs)) if 0 < len(epochs) <= most else span}."


def _shown(value: Any) -> str:
    if isinstance(value, slice):
        return ":".join("" if each is None else f"{each:g}" for each in (value.start, value.stop))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _distinct(summaries: list[dict[str, Any]], key: str) -> list[Any]:
    return list(dict.fromkeys(value for one in summaries for value in one[key]))
