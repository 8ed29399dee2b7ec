"""A recorded ingest: the requests of three clients, and what must be stored once they are acknowledged.

The arrays hold small whole numbers, a different one in each array, so the mean and the number of rows of a
layer tell which arrays were scored: a lost one, one that counts twice, and a wrong one differ.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from intus.core.graph import Calls, Edges, Graph, Meta, ModuleInfo, Ops
from intus.core.record import Record
from intus.storage.codec import encode_graph, encode_records

ROWS = 12
LAYERS = ("0", "1")
TARGET = "parity"
DOUBT = "of other rows"
#: What the server computes of each layer: the judge's two, a classifier's, and one that relates epochs.
SCORES = ("mean", "mean_abs", "linear_f1")


class Point(NamedTuple):
    """A layer in an epoch of a run."""

    run: str
    epoch: int
    address: str


@dataclass(frozen=True)
class Step:
    """A request, or the clock's ``tick`` if it has no path.

    Attributes:
        client: The client, whose requests wait for each other.
        path: The route.
        body: The body.
        arrays: The number that each point's array of this request is made of.
        flushes: Runs whose arrays are scored when this is acknowledged.
        clears: The run that this deletes.
        late: Whether the arrays may be refused, since their epoch was scored.
        doubts: The last epoch of its run whose labelled scores this puts in doubt; -1 for none.
    """

    client: str
    path: str = ""
    body: bytes = b""
    arrays: tuple[tuple[Point, int], ...] = ()
    flushes: str = ""
    clears: str = ""
    late: bool = False
    doubts: int = -1


def _array(number: int) -> np.ndarray:
    """Return rows whose mean is ``number + 0.5`` and whose classes are their parity."""
    rows = np.arange(ROWS) % 2
    return (number + np.stack([rows, 1 - rows], axis=1)).astype(np.float32)


class _Client:
    """Makes the requests of one client and run, with or without reports of its counts."""

    def __init__(self, name: str, *, reports: bool = True) -> None:
        self.name, self.reports, self.seq, self.sent = name, reports, 0, defaultdict(int)

    def records(self, epoch: int, batch: int, *, ended: bool = False, late: bool = False) -> Step:
        arrays = tuple(
            (Point(self.name, epoch, layer), 1 + 16 * place + 2**batch + 64 * epoch)
            for place, layer in enumerate(LAYERS)
        )
        self.sent[epoch] += len(arrays)
        sent = dict.fromkeys(("sent", "whole"), self.sent[epoch])  # a server that ends scores an open epoch
        report = {"run": self.name, "model": "m", "epoch": epoch, "ended": ended, **sent}
        facts = {"run": self.name, "model": "m", "epoch": epoch, "mode": "train"}
        items = np.arange(ROWS) + ROWS * batch
        records = [Record(_array(number), point.address, items=items, **facts) for point, number in arrays]
        envelope = {"client": self.name, "seq": self.seq, "dropped": 0}
        body = encode_records(records, envelope | {"epochs": [report] if self.reports else []})
        self.seq += 1
        return Step(self.name, "/records", body, arrays, late=late)

    def post(self, path: str, message: object, **facts: str | int) -> Step:
        return Step(self.name, path, json.dumps(message).encode(), **facts)

    def flush(self) -> Step:
        return self.post("/flush", {"client": self.name}, flushes=self.name)


def target(client: str) -> Step:
    """Return the registration of the labels of a client."""
    labels = [item % 2 for item in range(4 * ROWS)]
    message = {"name": TARGET, "targets": labels, "client": client, "layer_pattern": LAYERS[0]}
    return Step(client, "/targets", json.dumps(message).encode())


def steps() -> list[Step]:
    """Return the requests: two runs that stay, one that is deleted, late rows, and the clock between."""
    a, b, gone = _Client("a"), _Client("b", reports=False), _Client("gone")
    tick = Step("clock")
    return [
        target("a"),
        Step("a", "/graph?run=a&model=m", encode_graph(_graph())),
        a.records(0, 0),
        gone.records(0, 0),
        a.records(0, 1, ended=True),
        b.records(0, 0),
        tick,
        a.post("/run", {"run": "a", "model": "m", "config": {"rate": 1}, "tags": ["x"]}),
        a.records(1, 0),
        gone.records(0, 1, ended=True),
        b.records(0, 1),
        a.records(1, 1, ended=True),
        a.post("/doubts", {"run": "a", "model": "m", "note": DOUBT, "until": 1, "client": "a"}, doubts=1),
        gone.post("/clear", {"client": "gone"}, clears="gone"),
        b.records(1, 0),
        a.flush(),
        b.records(0, 2, late=True),
        tick,
        b.flush(),
        a.records(2, 0),
        tick,
    ]


def _graph() -> Graph:
    """Return a graph of two layers in a row."""
    return Graph(
        model="m",
        types=("linear",),
        metas=(Meta((2, 2), "float32", "cpu", 16),),
        sites=(),
        args=("0",),
        params=(),
        modules=tuple(ModuleInfo(name, "Linear", "") for name in ("", *LAYERS)),
        ops=Ops(3, kind=[1, 0, 0], type=[0, 0, 0], layer=[0, 1, 2], call=[0, 1, 2]),
        edges=Edges(*(np.array(column, dtype=np.int64) for column in ([0, 1], [1, 2], [0, 0]))),
        calls=Calls(
            module=np.array([0, 1, 2]),
            passno=np.array([1, 1, 1]),
            parent=np.array([-1, 0, 0]),
            start=np.array([0, 1, 2]),
            stop=np.array([3, 2, 3]),
        ),
        op_params=np.empty((0, 2), dtype=np.int64),
        exits=np.array([[2, 0]]),
        facts={"framework": "torch"},
    )


def in_doubt(accepted: Iterable[Step], point: Point) -> bool:
    """Return whether the labelled scores of a point are in doubt, once these requests are acknowledged."""
    return any(step.client == point.run and point.epoch <= step.doubts for step in accepted)


def expected(accepted: Iterable[Step]) -> dict[Point, tuple[int, float]]:
    """Return the number of rows and the mean of every point, once these requests are scored."""
    numbers: dict[Point, list[int]] = defaultdict(list)
    for step in accepted:
        for point, number in step.arrays:
            numbers[point].append(number)
        if step.clears:
            numbers = defaultdict(list, {p: found for p, found in numbers.items() if p.run != step.clears})
    return {point: (ROWS * len(each), sum(each) / len(each) + 0.5) for point, each in numbers.items()}
