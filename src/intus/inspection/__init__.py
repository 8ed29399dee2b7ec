"""Find which units of a model respond to a hypothesis: models × hypotheses × scores, in one table."""

from .execute import inspect
from .hypotheses import hypothesis

__all__ = ["hypothesis", "inspect"]
