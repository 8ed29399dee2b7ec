"""The tap: what a backend shows of a model's passes, made into records for the sender.

``ModelTap`` tags passes and copies what is recorded of them. Each other module answers one question of it,
such as which ids belong to the rows of a pass, how many of them fit into the queue, or what a pass costs.
"""

from .model_tap import ModelTap

__all__ = ["ModelTap"]
