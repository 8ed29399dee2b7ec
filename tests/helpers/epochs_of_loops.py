"""Judge the epochs of records by the loop that trained the model, which knows its own."""

from __future__ import annotations

from collections import Counter

import torch


class Truth:
    """The rows that each epoch of a loop had, and the model after it.

    Args:
        model: A model with a layer ``head``.
        probe_set: What the layer is evaluated on.
    """

    def __init__(self, model, probe_set):
        self.model, self.probe_set, self.rows, self.ends = model, probe_set, Counter(), {}
        self.ended(0)

    def ended(self, epoch):
        with torch.no_grad():
            self.ends[epoch] = self.model.head(self.probe_set).numpy()


def fault_of(truth, records, *, probe_set):
    """Return in words how records differ from the truth; "" if they do not."""
    if not probe_set:
        rows = Counter()
        for one in records:
            if one.address == "seen" and one.mode == "train":
                rows[one.epoch] += one.rows
        return "" if rows == truth.rows else f"rows {dict(rows)}, trained {dict(truth.rows)}"
    found = {one.epoch: one.array for one in records if one.address == "head" and one.kind == "output"}
    if set(found) != set(truth.ends):
        return f"shown {sorted(found)}, trained {sorted(truth.ends)}"
    wrong = [one for one in found if abs(found[one] - truth.ends[one]).max() > 1e-5]
    return f"epochs {wrong} are other models" if wrong else ""


def sentences(status):
    """Return the faults which say that epochs are not found."""
    return [text for text in status["faults"] if "Set watch.epoch = number before each" in text]
