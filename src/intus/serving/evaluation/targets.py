"""Targets: registered labels, and the rules that match them to the rows of a data point.

Labels are never guessed. Where rows have item ids, label i belongs to item i. Where they have none, labels
are matched by order of arrival, and only if there are exactly as many labels as rows.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import re2

from ...core.errors import InputError
from ...core.notes import Facts, SomeClasses, joined, within
from ...core.record import OF_PROBE_SET, PROBE_SET_MODE, Record
from ...scores.statistics.labels import Classes, as_wide, id_table, label_array
from ...storage.needed_labels import needed_beside
from ..data_point import DataPoint
from ..decoding import read
from ..errors import MisfitError
from ..messages import StoredTarget, TargetRequest
from .arrival_order import UNVERIFIED

_log = logging.getLogger("intus.serving")

#: How many items of a class at random make its absence no chance: there are none of 10 once in 22,000 times.
_EXPECTED = 10
#: Most classes that a note names.
_NAMED = 8
_SQUARE = "positions are assumed to be along axis {}: axis {} is as long"
_BY_NUMBER = "positions are matched by their number alone: no label at the last of {}"


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Labels under a name, one per item, or for text one per position of each item.

    Attributes:
        name: The target's name.
        labels: Shape (items,), or (items, positions) if ``per_position``. None where there is no label, which
            -100 means too among classes numbered from 0.
        per_position: Whether each position of an item has a label.
        model_pattern: Compiled RE2 expression that must be found in the model's name. RE2 runs in bounded
            time, which matters because anybody who can reach the server may send a pattern.
        layer_pattern: The same for the layer's address.
        run_pattern: The same for the run's name.
        groups: What each item belongs to, int64 of shape (items,); None if each is a group of its own.
        types: What each label's row is an instance of, int64 of the shape of ``labels``; None if unknown.
        lengths: The number of positions of each item, int64 of shape (items,), if the labels tell; else None.
        owner: The client that registered it.
        typed: Whether the script gave the types, which are otherwise token ids, if there are any.
        registered: When it was registered, in seconds since 1970, by the clock of the aggregator, which also
            says when arrays came; 0 if it is not stated.
        waiting: No epoch waits whose last array came before that time; infinite if none waits.
        moments: When the last array of each epoch that waits came; None if they may be any time since then.
        during: The runs that its owner was recording as it registered it; empty if none or unknown.
        number: Which labels of its name it has, from 1. Those that were registered before others of the same
            number are a part of these.
        until: When a run must have begun to be scored on it; None for any time. It is set when the server is
            started again.
        claimed: Whether it applies to its owner's runs only, because its owner has sent records.
        runs: The (run, model) pairs that have scores of it.
    """

    name: str
    labels: np.ndarray
    per_position: bool
    model_pattern: Any
    layer_pattern: Any
    run_pattern: Any
    groups: np.ndarray | None = None
    types: np.ndarray | None = None
    lengths: np.ndarray | None = None
    owner: str = ""
    typed: bool = False
    registered: float = 0.0
    waiting: float = math.inf
    moments: tuple[float, ...] | None = None
    during: tuple[str, ...] = ()
    number: int = 1
    until: float | None = None
    claimed: bool = False
    runs: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def parse(cls, request: TargetRequest) -> Target:
        """Read a request; raises InputError for labels or patterns that cannot be used.

        >>> Target.parse(TargetRequest(name="digit", targets=[3, 1, None])).labels.tolist()
        [3, 1, None]
        """
        waiting = math.inf if request.waiting is None else request.waiting
        target = cls._of(request, request.client)
        moments = None if request.moments is None else tuple(request.moments)
        target = replace(target, typed=request.typed, registered=request.registered or 0.0)
        return replace(target, waiting=waiting, moments=moments)

    @classmethod
    def stored(cls, row: Mapping[str, Any]) -> Target:
        """Read a row of the database; raises InputError."""
        kept = read(row, StoredTarget)
        target = cls._of(kept, kept.owner)
        runs = frozenset(kept.runs)
        return replace(target, registered=kept.registered, until=kept.until, claimed=kept.claimed, runs=runs)

    @classmethod
    def _of(cls, message: TargetRequest | StoredTarget, owner: str) -> Target:
        name, labels = message.name, message.targets
        per_position = any(isinstance(label, list) for label in labels)
        if _has_nul(labels):
            raise InputError(
                f"The target {name!r} has a label with a NUL character, which arrays would cut off."
            )
        table = label_array(name, labels)
        if table.dtype == object and all(label is None for label in table.ravel()):
            raise InputError(f"The target {name!r} has {len(labels)} labels, and all of them are null.")
        model, layer, run = (
            _compiled(name, which, getattr(message, which))
            for which in ("model_pattern", "layer_pattern", "run_pattern")
        )
        groups = id_table(name, "groups", message.groups, table, per_position=False)
        types = id_table(name, "types", message.types, table, per_position)
        lengths = None
        if per_position and message.exact:
            lengths = np.array([len(row) if isinstance(row, list) else 0 for row in labels], np.int64)
        patterns, ids = (model, layer, run), (groups, types, lengths)
        during, number = tuple(message.during), message.number
        return cls(name, table, per_position, *patterns, *ids, owner, during=during, number=number)

    def request(self) -> TargetRequest:
        """Return the request that registers it."""
        return TargetRequest(
            name=self.name,
            targets=self._lists(self.labels),
            groups=None if self.groups is None else self.groups.tolist(),
            types=None if self.types is None else self._lists(self.types),
            typed=self.typed,
            exact=self.lengths is not None,
            client=self.owner,
            during=list(self.during),
            number=self.number,
            registered=self.registered or None,
            waiting=self.waiting if math.isfinite(self.waiting) else None,
            moments=None if self.moments is None else list(self.moments),
            model_pattern=self.model_pattern.pattern,
            layer_pattern=self.layer_pattern.pattern,
            run_pattern=self.run_pattern.pattern,
        )

    def _lists(self, table: np.ndarray) -> list[Any]:
        """Return labels or types as lists of the lengths that were registered."""
        rows: list[Any] = table.tolist()
        if self.lengths is None:
            return rows
        return [row[:length] for row, length in zip(rows, self.lengths.tolist(), strict=True)]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def patterns(self) -> tuple[str, str, str]:
        """The patterns for models, layers and runs."""
        return self.model_pattern.pattern, self.layer_pattern.pattern, self.run_pattern.pattern

    @property
    def run(self) -> str:
        """The one run that it is for, as of ``Probe.register_targets``; ``""`` if its pattern is another."""
        text = self.run_pattern.pattern
        name = re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
        return name if text == f"^{re.escape(name)}$" else ""

    @property
    def given(self) -> dict[str, str]:
        """The patterns that do not match everything, by name."""
        names = "model_pattern", "layer_pattern", "run_pattern"
        return {name: text for name, text in zip(names, self.patterns, strict=True) if text not in ("", ".*")}

    @property
    def key(self) -> _Key:
        """Key that a later registration must share to replace it for what arrives from then on."""
        return self.name, self.owner, *self.patterns

    @property
    def hold_out(self) -> tuple[bytes | None, bytes | None]:
        """A key that targets share if one Scorer may score them: the hold-out follows groups and types."""
        groups, types = (None if ids is None else ids.tobytes() for ids in (self.groups, self.types))
        return groups, types

    def says_the_same(self, other: Target) -> bool:
        """Return whether labels, groups and types are those of another target."""
        lengths, others = (None if one.lengths is None else one.lengths.tolist() for one in (self, other))
        same = self.hold_out == other.hold_out and lengths == others
        return same and np.array_equal(self.labels, other.labels)

    def extends(self, earlier: Target) -> bool:
        """Return whether each label of an earlier target is that of the same item here, in the same group."""
        pairs = (self.groups, earlier.groups), (self.types, earlier.types), (self.lengths, earlier.lengths)
        return _begins_with(self.labels, earlier.labels, may_lack=True) and all(
            old is None if new is None else old is not None and _begins_with(new, old) for new, old in pairs
        )

    def competes_with(self, other: Target) -> bool:
        """Return whether a layer of a run may be scored on either, as far as clients and patterns tell."""
        overlap = all(map(_may_match_one, self.patterns, other.patterns))
        is_for_both = self.client == other.client or not other.claimed
        alike = self.name == other.name and self.of_probe_set == other.of_probe_set
        return alike and overlap and is_for_both

    def applies(self, point: DataPoint) -> bool:
        """Return whether it matches the data point and applies to its run."""
        return self.matches(point) and (self.is_own(point) or self._is_for(point))

    def applies_to_other_layers(self, point: DataPoint) -> bool:
        """Return whether it applies to the data point's run, and not to its layer because of the pattern."""
        is_for_run = self._matches_run(point) and (self.is_own(point) or self._is_for(point))
        return is_for_run and self.layer_pattern.search(point.key.address) is None

    def matches(self, point: DataPoint) -> bool:
        """Return whether the patterns match the data point's names and its records have a batch axis."""
        return self._matches_run(point) and self.layer_pattern.search(point.key.address) is not None

    def _matches_run(self, point: DataPoint) -> bool:
        batched = all(record.batch_axis is not None for record in point.records)
        return (
            batched
            and self.model_pattern.search(point.key.model) is not None
            and self.run_pattern.search(point.key.run) is not None
            and self.of_probe_set == (point.key.mode == PROBE_SET_MODE)
        )

    @property
    def client(self) -> str:
        """The client that registered it, without the name of its probe set."""
        return self.owner.partition(OF_PROBE_SET)[0]

    @property
    def of_probe_set(self) -> bool:
        """True if its labels belong to the rows of a probe set, not to those of the training data."""
        return OF_PROBE_SET in self.owner

    def is_own(self, point: DataPoint) -> bool:
        """Return whether the client that registered it sends the data point's run."""
        return bool(self.client) and self.client in point.clients

    def _is_for(self, point: DataPoint) -> bool:
        if self.claimed:
            return False
        in_time = self.until is None or point.began < self.until
        return in_time or (point.key.run, point.key.model) in self.runs


_FEWER = " If the probe skipped passes to stay within its budget, raise it: probe(budget=...)."


class Fitted(NamedTuple):
    """The labels of a data point's rows, and what the hold-out follows; a list of a block per record.

    Attributes:
        labels: Shape (rows,), or (rows, positions) if the target is ``per_position``.
        groups: The groups of items, shape (rows,); None if there are none.
        types: The types of the labels, of their shape; None if they are not known.
    """

    labels: list[np.ndarray]
    groups: list[np.ndarray] | None
    types: list[np.ndarray] | None


def fit(target: Target, point: DataPoint) -> Fitted:
    """Match the labels of a target to the rows of a data point.

    Raises:
        MisfitError: If labels and rows cannot be matched, with the counts of both.
    """
    items = _items(target, point)
    labels, groups, types = (
        None if ids is None else [ids[rows] for rows in items]
        for ids in (target.labels, target.groups, target.types)
    )
    assert labels is not None
    if target.per_position:
        wide = _check_positions(target, items, point)
        labels = [as_wide(one.astype(object), n, None) for one, n in zip(labels, wide, strict=True)]
        types = types and [as_wide(one, n, -1) for one, n in zip(types, wide, strict=True)]
    return Fitted(labels, groups, types)


def _items(target: Target, point: DataPoint) -> list[np.ndarray]:
    """Return the numbers of the target's items that are the rows of each record; raises MisfitError."""
    where = point.key.layer_of_model
    known = [record.items for record in point.records if record.items is not None]
    if len(known) == len(point.records):
        highest, lowest = max(_end(ids) for ids in known), min(_start(ids) for ids in known)
        if highest < 0:
            raise MisfitError(
                f"Target {target.name!r} cannot be matched: it is unknown which rows {where} sent, because "
                "the data are shuffled or come in parts, are another dataset, or the ids were not one per "
                "row, or the layer has its rows in an order of its own. Tell the probe (probe.items = "
                "ids), or use a probe_set."
            )
        if lowest < 0:
            unknown = sum(int((ids < 0).sum()) for ids in known)
            raise MisfitError(
                f"Target {target.name!r} cannot be matched: {unknown} of the {point.rows} rows of {where} "
                "have no item ids, or were given another number of ids. Tell the probe which items the rows "
                "are (probe.items = ids), or let it run a probe_set."
            )
        if lowest < 0 or highest >= len(target):
            raise MisfitError(
                f"Target {target.name!r} has {len(target)} labels, for items 0 to {len(target) - 1}, but "
                f"{where} sent item ids {lowest} to {highest}."
            )
        return known
    if known:
        raise MisfitError(
            f"Target {target.name!r} cannot be matched: {len(known)} of the {len(point.records)} arrays of "
            f"{where} have item ids and the others have none."
        )
    if point.rows != len(target):
        epochs, rest = divmod(point.rows, len(target))
        several = (
            f" If these are {epochs} epochs, name the epoch of each: for watch.epoch in range({epochs}). If "
            "they are several passes over the same rows in one epoch, as with a closure that an optimizer "
            "calls, set watch.items before each call."
        )
        raise MisfitError(
            f"Target {target.name!r} has {len(target)} labels, but {where} sent {point.rows} rows without "
            "item ids, and without ids there must be as many labels as rows. Tell the probe which items the "
            "rows are (probe.items = ids), let it run a probe_set, or register one label per row."
            + (_FEWER if not epochs else several if epochs > 1 and not rest else "")
        )
    ends = np.cumsum([record.rows for record in point.records])
    return np.split(np.arange(len(target)), ends[:-1])


def coverage(target: Target, point: DataPoint) -> str:
    """Return a note for the scores: how labels were matched to rows, where that leaves doubt."""
    return joined(matched(target, point), doubts_of_positions(target, point), of_labels(target, point).note)


def of_labels(target: Target, point: DataPoint) -> Facts:
    """Return whether others of the name were registered before, and held-out rows may be copies."""
    return Facts(number=target.number, has_copies=point.has_copies and target.groups is None)


def matched(target: Target, point: DataPoint) -> str:
    """Return a note if labels were matched by order, are of another run, or some of them have no rows."""
    known = [record.items for record in point.records if record.items is not None]
    if not known:
        return joined(UNVERIFIED, _of_other_runs(target, point))
    used = np.unique(np.concatenate(known))
    matched = f"matched {used.size} of {len(target)} labels" if used.size < len(target) else ""
    return joined(matched, Facts(classes=_some_classes(target, used)).note, _of_other_runs(target, point))


def _some_classes(target: Target, items: np.ndarray) -> SomeClasses | None:
    """Return the classes of items that lack some of which as many at random would have ``_EXPECTED``."""
    if len(items) == len(target):
        return None
    codes, names, in_all = _coded(target)
    if not names:
        return None
    here = _counts(codes[items], len(names))
    if not ((here == 0) & (in_all * (len(items) / len(target)) >= _EXPECTED)).any():
        return None
    known = [names[code] for code in np.flatnonzero(here)]
    words = [str(label) for label in sorted(known, key=lambda label: (isinstance(label, str), label))]
    listed = [re.sub(r"[;(),]", " ", label)[:20] for label in words[:_NAMED]]
    code = ""
    if listed != words:  # others may be the same in words
        code = hashlib.blake2b("\n".join(words).encode(errors="replace"), digest_size=3).hexdigest()
    named = ", ".join(listed + ["…"] * (len(words) > _NAMED))
    return SomeClasses(len(known), len(names), named, code)


@lru_cache(maxsize=32)
def _coded(target: Target) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """Return the class of each label as its number, -1 for none; the classes, and how many labels each has.

    There are no classes of numbers.
    """
    classes = Classes()
    codes = classes.encode(target.labels.ravel()).reshape(target.labels.shape)
    names = [] if classes.are_measured or classes.overflowed else classes.in_order()
    return codes, names, _counts(codes, len(names))


def _counts(codes: np.ndarray, classes: int) -> np.ndarray:
    return np.bincount(codes[codes >= 0], minlength=classes)


def _of_other_runs(target: Target, point: DataPoint) -> str:
    """Return a note if labels were registered while the process recorded other runs, and not this one."""
    if not target.during or point.key.run in target.during:
        return ""
    runs = ", ".join(repr(within(run)) for run in target.during[:3])
    return f"labels registered during {runs}, perhaps of other data"


def doubts_of_positions(target: Target, point: DataPoint) -> str:
    """Return a note if arrays and labels leave open which axis has the positions, or which they are."""
    if not target.per_position:
        return ""
    along = next((note for record in point.records if (note := _of_axes(record))), "")
    if target.lengths is not None or target.of_probe_set:
        return along
    # a batch alone may have by chance as many positions as there are labels
    ids = [record.items for record in point.records if record.items is not None]
    used = np.unique(np.concatenate(ids)) if ids else np.arange(len(target))
    used = used[(used >= 0) & (used < len(target))]
    labels = target.labels.shape[1]
    return joined(along, "" if _used(target.labels[used, -1:]) else _BY_NUMBER.format(labels))


def _of_axes(record: Record) -> str:
    """Return a note if the axis behind that of positions is as long."""
    sent = record.statistics
    if sent is not None and not sent.facts["positions"]:
        return ""
    if sent is None:
        _, wide, features = batch_first(record).shape
        features = record.projected_from or features
        axis, other = (one for one in range(3) if one != record.batch_axis)
    else:
        wide, features = 1 + int(sent.arrays["position"].max(initial=-1)), sent.facts["features"]
        axis, other = 1, 2
    return _SQUARE.format(axis, other) if wide == features else ""


def _check_positions(target: Target, items: list[np.ndarray], point: DataPoint) -> list[int]:
    """Return the number of positions of each record's items; raises MisfitError if labels do not fit them.

    They fit if there are as many as the caller wrote labels, those that are None or -100 included: labels
    that are missing at the end would otherwise fit any layer with more positions, as of a special token in
    front, and be those of others there.
    """
    if reason := without_positions(target, point):
        raise MisfitError(reason)
    shapes = [batch_first(record).shape for record in point.records]
    positions = [shape[1] if len(shape) == 3 else 0 for shape in shapes]
    wanted, one_batch = target.labels.shape[1], target.of_probe_set
    if set(positions) == {wanted} and (one_batch or target.lengths is None):
        return positions
    if target.lengths is not None:
        longest = [wanted if one_batch else int(target.lengths[rows].max(initial=0)) for rows in items]
        if one_batch or not _are_of_batches(longest, positions):
            raise MisfitError(_lists_differ(target, longest, positions, point))
        return positions
    used = [_used(target.labels[rows]) for rows in items]
    for shape, last, wide in zip(shapes, used, positions, strict=True):
        if len(shape) != 3 or last > wide:
            raise MisfitError(
                f"Target {target.name!r} has labels for up to {max(used)} positions of an item, but "
                f"{point.key.layer_of_model} sent arrays of shape {shape}; expected (rows, positions, "
                "features). For one label per row, register each column as a target of its own, or "
                "labels.argmax(1) if they are one-hot; for labels of positions, name the layers that they "
                "are for."
            )
    if one_batch or not _are_padded_alike(wanted, positions, used):
        least, most = min(positions), max(positions)
        raise MisfitError(
            f"Target {target.name!r} has labels for {wanted} positions of every item, but "
            f"{point.key.layer_of_model} has {most if least == most else f'{least} to {most}'}, and nobody "
            "knows which of them have none. Give one label for each position of the arrays, None for those "
            "without, such as padding and special tokens; for batches that are padded to their longest item, "
            "give lists that are as long as their items; or name the layers that the target is for."
        )
    return positions


def without_positions(target: Target, point: DataPoint) -> str:
    """Return why a layer has no scores of positions, whatever the labels are; "" if nothing is known."""
    if not target.per_position or not any(record.channels_first for record in point.records):
        return ""
    return (
        f"Target {target.name!r} has labels of positions, but {point.key.layer_of_model} has channels along "
        "axis 1, and positions along axis 2: its module is one of channels, such as Conv1d or BatchNorm1d, "
        "or has the tensor of one. Positions must be axis 1: pass them through a module of their own, such "
        "as nn.Identity()(x.transpose(1, 2)), or name the layers that the target is for."
    )


def _are_of_batches(longest: list[int], positions: list[int]) -> bool:
    """Return whether arrays can have as many positions of each item as it has labels.

    Of a batch that is padded to its longest item, the longest list is as long as the array. Some arrays may
    have a part of their batch alone, but not all, and none may be shorter than a list.
    """
    pairs = list(zip(longest, positions, strict=True))
    return any(most == wide for most, wide in pairs) and all(most <= wide for most, wide in pairs)


def _are_padded_alike(wanted: int, positions: list[int], used: list[int]) -> bool:
    """Return whether arrays are batches padded to their longest item, and labels to that of all batches.

    One must have the longest of all items, with a label at its last position: without, a layer with more or
    fewer positions than its items may have this width by chance.
    """
    is_shown = (wanted, wanted) in zip(positions, used, strict=True)
    return is_shown and all(wide <= wanted for wide in positions)


def _lists_differ(target: Target, longest: list[int], positions: list[int], point: DataPoint) -> str:
    """Return the reason why lists of different lengths do not fit arrays of so many positions."""
    pairs = list(zip(longest, positions, strict=True))
    longer = (pair for pair in pairs if pair[0] > pair[1])
    most, wide = next(longer, max(pairs, key=lambda pair: pair[1] - pair[0]))
    return (
        f"Target {target.name!r} has lists of labels of different lengths, up to {most} for items of which "
        f"{point.key.layer_of_model} sent {wide} positions, so which positions they belong "
        "to is not known. Give each list one label for each position, None for those without, such as "
        "special tokens, and padding if the arrays are longer than the longest item; or name the layers that "
        "the target is for."
    )


def batch_first(record: Record) -> np.ndarray:
    """Return a record's array with its rows first."""
    return np.moveaxis(record.array, record.batch_axis or 0, 0) if record.array.ndim else record.array


def _used(labels: np.ndarray) -> int:
    """Return the number of positions up to the last one at which an item has a label."""
    used = np.flatnonzero((labels.astype(object) != np.array(None)).any(axis=0))
    return int(used[-1]) + 1 if used.size else 0


def _begins_with(new: np.ndarray, old: np.ndarray, *, may_lack: bool = False) -> bool:
    """Return whether an array has the values of an earlier one at their places, and perhaps more behind them.

    Args:
        new: The array.
        old: The earlier one.
        may_lack: Whether None in the earlier one may be any value.
    """
    if new.ndim != old.ndim or any(now < before for now, before in zip(new.shape, old.shape, strict=True)):
        return False
    values = old.astype(object)
    same = new[tuple(map(slice, old.shape))].astype(object) == values
    return bool((same | (values == np.array(None))).all() if may_lack else same.all())


def _end(ids: np.ndarray) -> int:
    return int(ids.max()) if ids.size else 0


def _start(ids: np.ndarray) -> int:
    return int(ids.min()) if ids.size else 0


def _has_nul(labels: Iterable[Any]) -> bool:
    texts = (label for label in labels if type(label) is str)
    return "\0" in "".join(texts) or any(_has_nul(label) for label in labels if type(label) is list)


def _compiled(name: str, which: str, text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if error.args else "it is too large"
        raise InputError(
            f"{which}={text!r} of target {name!r} is not a regular expression in RE2's syntax, which is "
            f"searched in bounded time: {reason}. Lookarounds, back-references and possessive repetition are "
            "not supported."
        ) from None


class Choice(NamedTuple):
    """The choice among several targets of one name for a data point.

    Attributes:
        name: The name.
        target: The target; None if it cannot be known.
        disputed: Targets with different labels of which none is more specific; empty if there is no doubt.
    """

    name: str
    target: Target | None
    disputed: tuple[Target, ...] = ()

    @property
    def text(self) -> str:
        """Sentence for the user about a disputed choice."""
        patterns = " and with ".join(
            ", ".join(f"{which}={text!r}" for which, text in target.given.items()) or "no pattern"
            for target in self.disputed
        )
        outcome = (
            "has no scores of it"
            if self.target is None
            else "stays with the one registered first, since it began before the second was registered"
        )
        return (
            f"The target {self.name!r} was registered with {patterns}, with different labels. All are for "
            f"this run, and none has more patterns than the others, so the run {outcome}. Use other names, "
            "or patterns that match no run in common."
        )


def choose(targets: Sequence[Target], point: DataPoint) -> Choice:
    """Choose from targets of one name that apply to a data point.

    Those that were registered when the last array of its epoch came count; if none was, the first that was
    registered afterwards. Of these, those of the data point's own clients come before others, a client's last
    one before its earlier ones, and then those with more patterns. The same patterns replace each other. If
    several are left with different labels, the first stays for runs that began before the second was
    registered. Other runs have none.

    Args:
        targets: The targets, in order of registration; at least one.
        point: The data point.
    """
    known = [target for target in targets if target.registered <= point.arrived] or targets[:1]
    rivals = [target for target in known if target.is_own(point)] or known
    last = {target.client or target.patterns: target for target in rivals}  # "" is no single client
    by_patterns = {target.patterns: target for target in sorted(last.values(), key=_registered)}
    left = [
        target
        for target in by_patterns.values()
        if not any(target.given.keys() < other.given.keys() for other in by_patterns.values())
    ]
    left.sort(key=_registered)
    if all(left[0].says_the_same(target) for target in left[1:]):
        return Choice(left[0].name, left[-1])
    first = left[0] if point.began < left[1].registered else None
    return Choice(left[0].name, first, tuple(left))


def _registered(target: Target) -> float:
    return target.registered


_Key = tuple[str, str, str, str, str]


class TargetStore(Protocol):
    """Storage of targets that survives a restart of the server."""

    def put_target(self, target: Target) -> None:
        """Store a target, in place of the same owner's target of that name and those patterns."""

    def claim_target(self, name: str, owner: str) -> None:
        """Store that an owner's targets of a name apply to the runs of that owner only."""

    def targets(self) -> list[dict[str, Any]]:
        """Return the stored targets, each as the fields of ``messages.StoredTarget``."""
        ...


class KnownTargets:
    """Targets by name, owner and patterns.

    Of those of one name, owner and patterns, the earlier ones are kept while epochs wait that are scored on
    them. Those of earlier server processes are loaded from the store when needed. The list is replaced,
    never changed, so that it can be read without a lock.
    """

    def __init__(self, store: TargetStore) -> None:
        self._store = store
        self._targets: Sequence[Target] | None = None  # in order of registration
        self._senders: set[str] = set()  # clients that sent records
        self._used: set[_Key] = set()  # targets that were for runs of others
        self._newest = 0.0
        self._lock = threading.Lock()

    def put(self, target: Target) -> bool:
        """Use and store a target, for what arrives from now on.

        Returns:
            True if this replaces a target in use that has other labels, groups or types: the same owner's of
            that name and those patterns, or one with these patterns of another client that trains nothing.
        """
        with self._lock:
            known = self._known()
            if not target.registered:
                earlier = max([self._newest, *(old.registered for old in known)])
                target = replace(target, registered=max(time.time(), earlier + 1e-3))
            target = replace(target, number=_number(target, known))
            self._newest = max(self._newest, target.registered)
            self._store.put_target(target)
            own = [one for one in known if one.key == target.key]
            others = [one for one in known if one.key != target.key]
            times = [one.registered for one in own]
            times = needed_beside(target.registered, times, target.waiting, target.moments)
            needed = [*others, *(one for one in own if one.registered in times), target]
            self._targets = sorted(needed, key=_registered)
            replaced = [one for one in own[-1:] if one.until is None]
            for kept in others:
                alike = kept.name == target.name and kept.patterns == target.patterns
                if (
                    alike
                    and kept.of_probe_set == target.of_probe_set
                    and not kept.claimed
                    and kept.key in self._used
                ):
                    replaced.append(kept)
        return not all(map(target.says_the_same, replaced))

    def clear(self, owner: str) -> None:
        """Remove the targets of a client, ``""`` for those without a client."""
        with self._lock:
            self._targets = [target for target in self._known() if target.client != owner]

    def has(self, name: str) -> bool:
        """Return whether a target of a name is known."""
        with self._lock:
            return any(target.name == name for target in self._known())

    def choices(self, point: DataPoint) -> list[Choice]:
        """Return which target of each name counts for a data point."""
        with self._lock:
            self._claim(point)
            known = self._known()
        by_name: dict[str, list[Target]] = {}
        for target in known:
            if target.applies(point):
                by_name.setdefault(target.name, []).append(target)
        chosen = [choose(targets, point) for targets in by_name.values()]
        used = {one.target.key for one in chosen if one.target is not None and not one.target.is_own(point)}
        if used - self._used:
            with self._lock:
                self._used |= used
        return chosen

    def for_other_layers(self, point: DataPoint) -> dict[str, str]:
        """Return the targets of a data point's run whose pattern does not match its layer.

        Returns:
            The patterns by the name of the target.
        """
        with self._lock:
            known = self._known()
        return {
            target.name: target.layer_pattern.pattern
            for target in known
            if target.applies_to_other_layers(point)
        }

    def set_aside(self, point: DataPoint) -> list[str]:
        """Return the names of targets that match a data point but were registered before the server started.

        Targets of another training are not among them.
        """
        with self._lock:
            known = self._known()
        found = (
            target.name
            for target in known
            if target.matches(point) and not target.applies(point) and not target.claimed
        )
        return list(dict.fromkeys(found))

    def _claim(self, point: DataPoint) -> None:
        """Restrict the targets of clients that have sent records to the runs of these clients."""
        known = self._known()
        self._senders.update(point.clients)
        new = [one for one in known if one.client in self._senders and not one.claimed]
        for name, owner in dict.fromkeys((target.name, target.owner) for target in new):
            self._store.claim_target(name, owner)
        if new:
            self._targets = [replace(one, claimed=True) if one in new else one for one in known]

    def _known(self) -> Sequence[Target]:
        if self._targets is None:
            self._targets = sorted(_usable(self._store.targets()), key=_registered)
        return self._targets


def _may_match_one(first: str, second: str) -> bool:
    """Return whether a name may match both patterns, as far as the text that they begin with tells.

    >>> _may_match_one("^a", "^b"), _may_match_one("^a$", "^ab$"), _may_match_one("^a", "b")
    (False, False, True)
    """
    (short, is_all), (long, _) = sorted(map(_beginning, (first, second)), key=lambda one: len(one[0]))
    return long == short if is_all else long.startswith(short)


def _beginning(pattern: str) -> tuple[str, bool]:
    r"""Return the text that all names begin with that match a pattern, and whether that is all of them.

    >>> _beginning(r"^run\.1$"), _beginning("^ab?c"), _beginning("^a|b")
    (('run.1', True), ('a', False), ('', False))
    """
    found = re.match(r"\^((?:[^\\.^$*+?{}\[\]()|]|\\[^0-9A-Za-z])*)", pattern)
    if found is None or "|" in pattern:
        return "", False
    text, rest = re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL), pattern[found.end() :]
    return text[:-1] if rest[:1] in ("*", "?", "{") else text, rest == "$"


def _number(target: Target, known: Sequence[Target]) -> int:
    """Return the number of a target's labels: that of earlier ones that it extends, else a new one."""
    rivals = [one for one in known if target.competes_with(one)]
    numbers = sorted({one.number for one in rivals}, reverse=True)
    extended = (
        number for number in numbers if all(target.extends(one) for one in rivals if one.number == number)
    )
    return next(extended, 1 + max(numbers, default=0))


def _usable(rows: Iterable[Mapping[str, Any]]) -> Iterator[Target]:
    """Yield the targets that can be read; an older version may have taken others."""
    for row in rows:
        try:
            yield Target.stored(row)
        except InputError as error:
            _log.warning("A stored target is not used: %s", error)
