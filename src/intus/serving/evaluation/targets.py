"""Targets: labels that were registered by name, and which of them belong to which rows of a data point.

Which row carries which label is never a guess. Where the rows have item ids, label i is item i's; where
they have none, labels are matched by order of arrival, and only when there are exactly as many as rows.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import re2

from ...core.errors import InputError
from ...core.record import OF_PROBE_SET, PROBE_SET_MODE, Record
from ..checks import check_text
from ..data_point import DataPoint
from .arrival_order import UNVERIFIED

IGNORED = -100  #: the class that PyTorch's losses ignore


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Labels under a name, one per item, or for text one per position of each item.

    ``labels`` is (items,); with ``per_position`` it is (items, positions), None where there is no label, as
    which -100 among classes numbered from 0 counts as well.
    The patterns are regular expressions that must be found in the model's name, the layer's address and the
    run's name; of RE2's kind, whose time is bounded, for strangers send them. ``owner`` is the client that
    registered it; once that client sends records, it is ``claimed``: for that client's runs alone. ``until``
    is when the server was begun again: it is for the runs that had begun by then, and for ``runs``, which
    have scores of it.
    """

    name: str
    labels: np.ndarray
    per_position: bool
    model_pattern: Any
    layer_pattern: Any
    run_pattern: Any
    owner: str = ""
    registered: float = 0.0
    until: float | None = None
    claimed: bool = False
    runs: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Target:
        """Read what ``register_targets`` sends; raises InputError with what is wrong.

        >>> Target.parse({"name": "digit", "targets": [3, 1, None]}).labels.tolist()
        [3, 1, None]
        """
        name = check_text(facts.get("name"), "A target's name", empty=False)
        labels = facts.get("targets")
        if not isinstance(labels, list) or not labels:
            raise InputError(f"The target {name!r} must have a list of labels with at least one in it.")
        per_position = any(isinstance(label, list) for label in labels)
        if per_position:
            table = _table(name, labels)
        else:
            table = _column([_label(name, label) for label in labels])
        table = _ignored_left_out(table)
        if all(label is None for label in table.ravel()):
            raise InputError(f"The target {name!r} has {len(labels)} labels, and all of them are null.")
        return cls(
            name,
            table,
            per_position,
            _pattern(name, "model_pattern", facts.get("model_pattern", ".*")),
            _pattern(name, "layer_pattern", facts.get("layer_pattern", ".*")),
            _pattern(name, "run_pattern", facts.get("run_pattern", ".*")),
            check_text(facts.get("client", ""), "A target's client"),
        )

    @classmethod
    def kept(cls, facts: Mapping[str, Any]) -> Target:
        """Read what the database keeps."""
        kept = cls.parse(dict(facts) | {"client": facts["owner"]})
        runs = frozenset((run, model) for run, model in facts["runs"])
        others = {name: facts[name] for name in ("registered", "until", "claimed")}
        return replace(kept, runs=runs, **others)

    def __len__(self) -> int:
        return len(self.labels)

    def applies(self, point: DataPoint) -> bool:
        """Whether it matches the data point, and is for its run."""
        return self.matches(point) and (self.is_own(point) or self._is_for(point))

    def matches(self, point: DataPoint) -> bool:
        """Whether the patterns are found in the data point's names, and it has a batch."""
        batched = all(record.batch_axis is not None for record in point.records)
        return (
            batched
            and self.model_pattern.search(point.key.model) is not None
            and self.layer_pattern.search(point.key.address) is not None
            and self.run_pattern.search(point.key.run) is not None
            and self.of_probe_set == (point.key.mode == PROBE_SET_MODE)
        )

    @property
    def client(self) -> str:
        """Who registered it."""
        return self.owner.partition(OF_PROBE_SET)[0]

    @property
    def of_probe_set(self) -> bool:
        """Whether its labels are those of a probe set, whose rows are other rows than the training's."""
        return OF_PROBE_SET in self.owner

    def is_own(self, point: DataPoint) -> bool:
        """Whether who registered it sends the data point's run."""
        return bool(self.client) and self.client in point.clients

    def _is_for(self, point: DataPoint) -> bool:
        if self.claimed:
            return False
        in_time = self.until is None or point.began < self.until
        return in_time or (point.key.run, point.key.model) in self.runs


_FEWER = " Where the probe's budget leaves passes out, probe(budget=) gives it more."


class Misfit(Exception):  # noqa: N818 - a reason to tell, not an error
    """Why a target's labels do not belong to a data point's rows."""


def fit(target: Target, point: DataPoint) -> list[np.ndarray]:
    """The labels of each of the data point's blocks: (rows,), or (rows, positions) for ``per_position``.

    Raises Misfit with both counts where they cannot be matched.
    """
    where = f"{point.key.address!r} of {point.key.model!r}"
    known = [record.items for record in point.records if record.items is not None]
    if len(known) == len(point.records):
        highest, lowest = max(_end(ids) for ids in known), min(_start(ids) for ids in known)
        if highest < 0:
            raise Misfit(
                f"Target {target.name!r} cannot be matched: nobody knows which rows {where} sent, for the "
                "data are shuffled or come in parts. Tell the probe (probe.items = ids), or use a probe_set."
            )
        if lowest < 0 or highest >= len(target):
            raise Misfit(
                f"Target {target.name!r} has {len(target)} labels, for items 0 to {len(target) - 1}, but "
                f"{where} sent item ids {lowest} to {highest}."
            )
        blocks = [target.labels[ids] for ids in known]
    elif known:
        raise Misfit(
            f"Target {target.name!r} cannot be matched: {len(known)} of the {len(point.records)} arrays of "
            f"{where} have item ids and the others have none."
        )
    elif point.rows != len(target):
        raise Misfit(
            f"Target {target.name!r} has {len(target)} labels, but {where} sent {point.rows} rows without "
            "item ids, and labels are matched to rows by position only when both counts agree. Tell the "
            "probe which items the rows are (probe.items = ids), let it run a probe_set, or register one "
            "label per row." + (_FEWER if point.rows < len(target) else "")
        )
    else:
        ends = np.cumsum([record.rows for record in point.records])
        blocks = np.split(target.labels, ends[:-1])
    if target.per_position:
        return [
            _positions(target, block, record, where)
            for block, record in zip(blocks, point.records, strict=True)
        ]
    return blocks


def coverage(target: Target, point: DataPoint) -> str:
    """How labels that fit found their rows, where that leaves room for doubt: a note for the scores."""
    known = [record.items for record in point.records if record.items is not None]
    if not known:
        return UNVERIFIED
    used = np.unique(np.concatenate(known)).size
    return f"matched {used} of {len(target)} labels" if used < len(target) else ""


def _positions(target: Target, labels: np.ndarray, record: Record, where: str) -> np.ndarray:
    """Labels cut or filled to the positions the array has; a real label is never cut."""
    shape = np.moveaxis(record.array, record.batch_axis or 0, 0).shape if record.array.ndim else ()
    used = max((position + 1 for position in range(labels.shape[1]) if _any(labels[:, position])), default=0)
    if len(shape) != 3 or used > shape[1]:
        raise Misfit(
            f"Target {target.name!r} has labels for up to {used} positions of an item, but {where} sent "
            f"arrays of shape {shape}; expected (rows, positions, features)."
        )
    out = np.full(shape[:2], None, dtype=object)
    width = min(shape[1], labels.shape[1])
    out[:, :width] = labels[:, :width]
    return out


def _any(column: np.ndarray) -> bool:
    return any(label is not None for label in column)


def _end(ids: np.ndarray) -> int:
    return int(ids.max()) if ids.size else 0


def _start(ids: np.ndarray) -> int:
    return int(ids.min()) if ids.size else 0


def _table(name: str, labels: Iterable[Any]) -> np.ndarray:
    """Ragged lists of labels as one rectangle, None where an item has no such position."""
    rows = [[] if row is None else row for row in labels]
    if not all(isinstance(row, list) for row in rows):
        raise InputError(f"The target {name!r} mixes single labels with lists of labels.")
    table = np.full((len(rows), max(map(len, rows))), None, dtype=object)
    for number, row in enumerate(rows):
        table[number, : len(row)] = [_label(name, label) for label in row]
    return table


def _column(labels: list[Any]) -> np.ndarray:
    """Labels as an array of their own type where they have one, which is much faster to work with."""
    kinds = {type(label) for label in labels}
    if kinds in ({int}, {float}, {str}, {bool}):
        typed = np.array(labels)
        return typed if typed.dtype.kind in "ifUb" else np.array(labels, dtype=object)
    return np.array(labels, dtype=object)


def _ignored_left_out(labels: np.ndarray) -> np.ndarray:
    """-100 among classes numbered from 0 is none: so PyTorch's losses are told which labels to ignore."""
    found = {label for label in labels.ravel().tolist() if label is not None}
    numbered = all(type(label) is int and (label >= 0 or label == IGNORED) for label in found)
    if IGNORED not in found or not numbered:
        return labels
    labels = labels.astype(object)
    labels[labels == IGNORED] = None
    return labels


def _label(name: str, label: Any) -> Any:
    if isinstance(label, float) and not math.isfinite(label):
        raise InputError(f"The target {name!r} has the label {label}; write null where there is none.")
    if isinstance(label, str):
        return check_text(label, f"A label of target {name!r}")
    if label is None or isinstance(label, bool | int | float):
        return label
    raise InputError(
        f"The target {name!r} has a label {label!r}; labels are numbers, strings, bools or null."
    )


def _pattern(name: str, which: str, text: Any) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(check_text(text, f"{which} of target {name!r}"), options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if error.args else "it is too large"
        raise InputError(
            f"{which}={text!r} of target {name!r} is not a regular expression that can be searched for in "
            f"bounded time: {reason}. Lookarounds, back-references and possessive repetition are not taken; "
            "the syntax is RE2's."
        ) from None


_Key = tuple[str, str]
_log = logging.getLogger("intus.serving")


class TargetStore(Protocol):
    """Where targets are kept from one life of the server to the next."""

    def put_target(self, facts: Mapping[str, Any]) -> None: ...
    def claim_target(self, name: str, owner: str) -> None: ...
    def targets(self) -> list[dict[str, Any]]: ...


class KnownTargets:
    """Targets by name and owner; those of an earlier life are fetched from the store when first needed.

    The dict is replaced, never changed, so that who reads it needs no lock.
    """

    def __init__(self, store: TargetStore) -> None:
        self._store = store
        self._targets: dict[_Key, Target] | None = None
        self._senders: set[str] = set()  # clients that sent records
        self._order = 0.0
        self._lock = threading.Lock()

    def put(self, facts: Mapping[str, Any]) -> tuple[str, bool]:
        """Take a target into use and store it, replacing the same owner's of that name; returns the name, and
        whether one that was in use had other labels."""
        target = Target.parse(facts)
        with self._lock:
            self._store.put_target(facts)
            known, key = self._known(), (target.name, target.owner)
            before = known.get(key)
            self._order = max([self._order, *(old.registered for old in known.values())]) + 1
            others = {old: kept for old, kept in known.items() if old != key}
            self._targets = others | {key: replace(target, registered=self._order)}
        in_use = before is not None and before.until is None
        return target.name, in_use and not np.array_equal(before.labels, target.labels)  # type: ignore[union-attr]

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._targets = {}

    def of(self, point: DataPoint) -> list[Target]:
        """The targets that apply to a data point: of one name its own process's, else the newest."""
        with self._lock:
            self._claim(point)
            known = self._known()
        fitting = [target for target in known.values() if target.applies(point)]
        fitting.sort(key=lambda target: (target.is_own(point), target.registered))
        return list({target.name: target for target in fitting}.values())

    def set_aside(self, point: DataPoint) -> list[str]:
        """The names of targets that match a data point but are kept for other runs, unless they are another
        training's."""
        with self._lock:
            known = self._known()
        return [
            target.name
            for target in known.values()
            if target.matches(point) and not target.applies(point) and not target.claimed
        ]

    def _claim(self, point: DataPoint) -> None:
        """Who sends records keeps its targets to itself."""
        known = self._known()
        self._senders.update(point.clients)
        for key, target in known.items():
            if target.client in self._senders and not target.claimed:
                self._store.claim_target(*key)
                known = known | {key: replace(target, claimed=True)}
        self._targets = known

    def _known(self) -> dict[_Key, Target]:
        if self._targets is None:
            kept = _read(self._store.targets())
            self._targets = {(target.name, target.owner): target for target in kept}
        return self._targets


def _read(kept: Iterable[Mapping[str, Any]]) -> Iterator[Target]:
    """The targets of an earlier life; what an older intus took and this one does not is left out."""
    for facts in kept:
        try:
            yield Target.kept(facts)
        except InputError as error:
            _log.warning("A target kept from before is not used: %s", error)
