"""Reads what was recorded of trainings: from a database, or from a server that runs."""

from .runs import Run, Runs, runs

__all__ = ["Run", "Runs", "runs"]
