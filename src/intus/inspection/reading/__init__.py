"""Read behaviors that hooks on modules do not see: operations of a trace, gradients and attributions."""

from .gradients import Behavior, GradientReader
from .traced import Output, TracedRows

__all__ = ["Behavior", "GradientReader", "Output", "TracedRows"]
