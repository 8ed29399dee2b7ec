"""Units that are computed from all units of a layer: directions, and the features of dictionaries."""

from .basis import Basis, Dictionary, Directions

__all__ = ["Basis", "Dictionary", "Directions"]
