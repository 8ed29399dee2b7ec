"""Records and data points for the servers' tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from intus.core.record import Record
from intus.serving.data_point import DataPoint, Key
from intus.serving.decoding import decode, encode
from intus.serving.evaluation.targets import Target
from intus.serving.messages import TargetRequest


def record(rows: int = 4, address: str = "fc1", **facts: Any) -> Record:
    """Return a record of ``rows`` rows and three features, of epoch 0 of model ``m`` in run ``r``."""
    array = facts.pop("array", np.arange(rows * 3, dtype=np.float32).reshape(rows, 3))
    return Record(array, address, **({"run": "r", "model": "m", "epoch": 0, "mode": "train"} | facts))


def point(*records: Record, lacks: str = "") -> DataPoint:
    """Return a data point of these records."""
    return DataPoint(Key.of(records[0]), records[0].kind, records[0].epoch, -1, tuple(records), lacks)


def target_of(facts: dict[str, Any]) -> Target:
    """Return a target decoded from a request."""
    return Target.parse(decode(encode(facts), TargetRequest))
