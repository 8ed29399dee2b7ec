"""The trackers that scores can be written to while a training runs, each by its own library."""

from .base import Place, Point, TrackedRun, Tracker
from .places import open_tracker, places

__all__ = ["Place", "Point", "TrackedRun", "Tracker", "open_tracker", "places"]
