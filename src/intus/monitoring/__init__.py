"""What lives in the training process: hooks, a schedule, a queue, a thread that talks to the server.

Needs the standard library, numpy and safetensors alone; training is never harmed.
"""

from .commands import clear, flush, register_targets, remove
from .handle import Probe, probe

__all__ = ["Probe", "clear", "flush", "probe", "register_targets", "remove"]
