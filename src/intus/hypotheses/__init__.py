"""Ready-made hypotheses for ``inspect``: what a unit might respond to, in text, code, trees and images.

Each function returns a hypothesis, or many from one parse, which ``inspect(model, hypotheses, …)`` takes
like a function of your own: ``inspect(model, [regex("[0-9]+"), tokenize(), nesting()], …)``.
"""

from .code import tokenize
from .combine import both, either, lag, negate
from .images import categories, masks
from .symbols import Symbols
from .text import lexicon, nesting, regex
from .trees import grammar

__all__ = [
    "Symbols",
    "both",
    "categories",
    "either",
    "grammar",
    "lag",
    "lexicon",
    "masks",
    "negate",
    "nesting",
    "regex",
    "tokenize",
]
