"""The tap: what a backend shows of a model's passes, made into records for the sender.

``ModelTap`` tags the passes and copies what is recorded of them. Each of the other modules is one question
that this raises, such as how many rows fit into the queue, or whether the ids of items fit the rows.
"""

from .model_tap import ModelTap

__all__ = ["ModelTap"]
