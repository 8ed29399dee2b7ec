"""Find which units of a model respond to a hypothesis: models × hypotheses × scores, in one table."""

from .directions import Dictionary, Directions
from .execute import inspect
from .hypotheses import hypothesis

__all__ = ["Dictionary", "Directions", "hypothesis", "inspect"]
