"""An aggregator service with a journal, whose evaluator scores when the test says so."""

from __future__ import annotations

import numpy as np
from serving_help import record

from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.journal import Journal
from intus.serving.aggregation.service import AggregatorService


class FakeEvaluator:
    """An evaluator that collects data points; ``store`` reports their scores as stored."""

    def __init__(self) -> None:
        self.got, self.received_notices, self.waiting = [], [], []

    def points(self, batch, done) -> None:
        self.got += batch
        self.waiting += [(point, done) for point in batch]

    def store(self, most=None) -> None:
        """Report the scores of all waiting data points as stored, or of the first ``most``."""
        now, self.waiting = self.waiting[:most], [] if most is None else self.waiting[most:]
        for point, done in now:
            done(point, True)

    def last(self):
        """Return {(address, epoch): numbers in the newest data point}."""
        return {(p.key.address, p.epoch): [int(r.array.flat[0]) for r in p.records] for p in self.got}

    def backlog(self) -> int:
        return 0

    def notices(self, notices) -> None:
        self.received_notices += notices

    def report(self, report) -> None:
        pass

    def flush(self, run=None, model=None, timeout=None) -> None:
        pass

    def troubles(self):
        return {}

    def check(self) -> None:
        pass

    def close(self, patience=None) -> bool:
        return True


def numbered(number, **facts):
    return record(array=np.full((2, 3), number, dtype=np.float32), **facts)


def check_sums(row) -> None:
    assert row.sent == row.under_way + row.unknown + row.refused + row.kept
    assert row.kept == row.waiting + row.scored + row.failed + row.lost
    numbers = (
        row.under_way,
        row.unknown,
        row.refused,
        row.kept,
        row.waiting,
        row.scored,
        row.failed,
        row.lost,
    )
    assert min(numbers) >= 0, row


class Machine:
    """An aggregator service with a journal folder, which can be killed and restarted."""

    def __init__(self, folder, **options) -> None:
        self.folder, self.options, self.time = folder, options, 1000.0
        self.start()

    def start(self) -> None:
        self.evaluator = FakeEvaluator()
        self.journal = Journal(self.folder)
        self.service = AggregatorService(
            self.evaluator, Aggregator(**self.options), self.journal, clock=lambda: self.time
        )
        for row in self.service.counts().runs:
            check_sums(row)

    def kill(self) -> None:
        """Restart from the journal alone."""
        self.journal.close()
        self.start()

    def stop(self) -> None:
        self.service.close()

    def send(self, *numbers, seq, client="c", epochs=(), **facts):
        envelope = {"client": client, "seq": seq, "dropped": 0, "epochs": list(epochs)}
        return self.service.records([numbered(number, **facts) for number in numbers], envelope)

    def on_disk(self) -> bool:
        """Return whether the journal contains records, not only snapshots."""
        return any(b'"F32"' in path.read_bytes() for path in self.folder.rglob("*.log"))
