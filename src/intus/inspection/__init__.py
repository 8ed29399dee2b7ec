"""Which units respond to which idea: models × hypotheses × scores over data, answered by one table."""

from .execute import inspect
from .hypotheses import hypothesis

__all__ = ["hypothesis", "inspect"]
