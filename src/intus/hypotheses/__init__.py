"""Ready-made hypotheses for ``inspect``."""
