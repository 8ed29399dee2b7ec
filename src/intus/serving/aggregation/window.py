"""What one (run, model) sent in one window, usually an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ...core.record import Record
from ..data_point import DataPoint, Key, size_of

RunKey = tuple[str, str]
WindowKey = tuple[float | int | str | None, ...]

LET_GO = (
    "arrays of this epoch were let go for memory; send fewer layers, steps or rows (which=, when=, rows=)"
)
_serials = count(1)


@dataclass(slots=True)
class Window:
    """``fresh`` are the data points not handed on yet, or not since they grew; ``handed`` those handed on,
    ``awaited`` those of them whose scores are not stored yet.

    ``closed`` says that nothing more is expected, ``lacks`` what is missing, ``kept`` that records of it are
    on disk. Of the data points let go, ``lost`` were never handed on and ``scored`` were.
    """

    number: int
    group: RunKey
    mark: WindowKey
    epoch: float | None
    step: int
    points: dict[Key, list[Record]] = field(default_factory=dict)
    fresh: dict[Key, None] = field(default_factory=dict)
    handed: set[Key] = field(default_factory=set)
    awaited: dict[Key, int] = field(default_factory=dict)
    lost: set[Key] = field(default_factory=set)
    scored: set[Key] = field(default_factory=set)
    nbytes: int = 0
    lacks: str = ""
    closed: bool = False
    touched: float = 0.0
    kept: bool = False

    @property
    def spent(self) -> bool:
        """Whether no array of it will be needed after the server's death."""
        return not self.awaited and (self.over or not self.points)

    @property
    def over(self) -> bool:
        """Whether nothing more is expected, and the scores of all there was are stored."""
        return self.closed and not self.fresh and not self.awaited

    def add(self, record: Record) -> None:
        """Take a record in."""
        key = Key.of(record)
        blocks = self.points.setdefault(key, [])
        if record.batch_axis is None:  # a parameter has a state, not samples: the newest stands for it
            self.nbytes -= sum(map(size_of, blocks))
            blocks.clear()
        blocks.append(record)
        self.fresh[key] = None
        self.nbytes += size_of(record)
        self.kept = True

    def take(self, main_mode: str, clients: tuple[str, ...], began: float) -> list[DataPoint]:
        """The data points to hand on; they stay in the window for rows that come late."""
        out = []
        for key in self.fresh:
            kind, blocks = key.shown_kind(main_mode), tuple(self.points[key])
            lacks = self.lacks or (LET_GO if key in self.lost else "")
            serial = self.awaited[key] = next(_serials)
            point = DataPoint(key, kind, self.epoch, self.step, blocks, lacks, serial, clients, began)
            out.append(point)
        self.handed.update(self.fresh)
        self.fresh = {}
        return out

    def again(self, records: list[Record]) -> None:
        """Hold what it held before it was over."""
        self.points, self.fresh, self.nbytes, self.scored = {}, {}, 0, set()
        for record in records:
            self.add(record)

    def records(self) -> Iterator[Record]:
        """All that it holds."""
        for blocks in self.points.values():
            yield from blocks

    def let_go(self) -> int:
        """Free the arrays, and return how many of them were never handed on."""
        rows = self._with_rows()
        self.scored |= rows & self.handed
        self.lost |= rows - self.handed
        unscored = sum(len(self.points[key]) for key in self.fresh)
        self.points, self.fresh, self.nbytes = {}, {}, 0
        return unscored

    def state(self) -> dict[str, Any]:
        """What must be known of it once its arrays are gone, as JSON."""
        scored = self.scored | (self._with_rows() if self.over else set())
        return {
            "mark": list(self.mark),
            "epoch": self.epoch,
            "step": self.step,
            "lacks": self.lacks,
            "closed": self.closed,
            "over": self.over,
            "lost": [list(key) for key in self.lost],
            "scored": [list(key) for key in scored - self.awaited.keys()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Be as ``state`` says; arrays that it is the first to call scored or lost are let go."""
        self.lacks, self.closed = state["lacks"], state["closed"]
        lost, scored = ({Key(*key) for key in state[name]} for name in ("lost", "scored"))
        gone = set(self.points) if state["over"] else (lost - self.lost) | (scored - self.scored)
        self.lost, self.scored = lost, scored
        for key in gone & self.points.keys():
            self.nbytes -= sum(map(size_of, self.points.pop(key)))
            self.fresh.pop(key, None)

    def _with_rows(self) -> set[Key]:
        return {key for key, blocks in self.points.items() if blocks[0].batch_axis is not None}
