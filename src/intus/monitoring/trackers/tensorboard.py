"""TensorBoard: event files in a folder."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from .base import Point, TrackedRun


class TensorBoard:
    """Writes scalars, and findings as text.

    Args:
        where: The folder; ``""`` for ``runs/`` and the name of the training.
        run: The training.
    """

    has_fractions = False
    takes_log = True

    def __init__(self, where: str, run: TrackedRun) -> None:
        folder = Path(where) if where else Path("runs", re.sub(r"[^\w.,=+-]+", "_", run.run))
        self.run = str(folder.resolve())
        self._writer = EventFileWriter(self.run)
        self._last = 0

    def write(self, points: Sequence[Point]) -> None:
        """Write numbers."""
        for point in points:
            event = Event(wall_time=point.time, step=math.floor(point.x))
            event.summary.value.add(tag=point.name, simple_value=point.value)
            self._writer.add_event(event)
            self._last = max(self._last, event.step)
        self._writer.flush()

    def tell(self, findings: Sequence[str]) -> None:
        """Write the sentences that hold now, as a list in Markdown."""
        text = "\n".join(f"- {each}" for each in findings)
        summary = text_pb("intus/findings", text)
        self._writer.add_event(Event(wall_time=time.time(), step=self._last, summary=summary))
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
