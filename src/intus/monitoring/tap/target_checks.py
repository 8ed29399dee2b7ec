"""Warn of targets that cannot be for a model's layers and rows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...core.errors import did_you_mean
from ..sender import Sender
from ..targets import RegisteredTarget, doubt_of_shape, in_use
from ..warn_once import WarningLog
from .coverage import Coverage

_FEW_LABELS = (
    "intus: the target {} has {} labels, but %s was called with item %s in mode %s, so it has no scores "
    "there. Label i belongs to item i of the whole dataset, of which a Subset, as of random_split, has a "
    "part: register the labels of all its rows."
)


class TargetChecks:
    """Checks targets for one model.

    Args:
        run: The name of the training.
        name: The name of the model.
        coverage: Knows its operations.
        sender: Has the registered targets.
        troubles: Receives the warnings.
    """

    def __init__(self, run: str, name: str, coverage: Coverage, sender: Sender, troubles: WarningLog) -> None:
        self._run, self._name, self._coverage = run, name, coverage
        self._sender, self._troubles = sender, troubles

    def check(self, target: RegisteredTarget) -> None:
        """Warn if a target is for this model and run, but for none of the layers, or looks one-hot."""
        if target.is_for(self._name, self._run):
            self.check_shape(target.name, target.labels)
            self.check_layers(f"layer_pattern of the target {target.name!r}", target.layer_pattern)

    def check_shape(self, name: str, labels: list[Any]) -> None:
        """Warn if labels look one-hot."""
        if doubt := doubt_of_shape(name, labels):
            self._troubles.warn_once(f"intus: {doubt}")

    def check_layers(self, what: str, pattern: str) -> None:
        """Warn if a pattern matches none of the recorded operations that are known before the first call."""
        operations, kinds = self._coverage.operations, self._coverage.kinds
        of_values = all(kind in ("output", "input") for kind in kinds)
        of_calls = any(mark in pattern for mark in ("@", "\\["))  # parts and calls are not known yet
        if not operations or not of_values or of_calls:
            return
        if not any(re.search(pattern, address) for address in operations):
            text = (
                f"intus: the pattern {what}, {pattern!r}, matches none of the {len(operations)} layers of "
                f"{self._name}. "
            )
            self._troubles.warn_once(text + did_you_mean(pattern, operations))

    def check_items(self, items: np.ndarray, mode: str) -> None:
        """Warn of targets that have fewer labels than there are items in a pass of a mode."""
        targets = list(self._sender.targets.values())
        if not targets or not items.size:
            return
        last = int(items.max())
        if all(last < len(one.labels) for one in targets):  # this is asked in each pass
            return
        for one in in_use(targets, self._name, self._run):
            if last >= len(one.labels):
                named = repr(one.name).replace("%", "%%")
                self._troubles.warn_once(_FEW_LABELS.format(named, len(one.labels)), self._name, last, mode)
