"""Monitoring of a training: hooks, a schedule, a queue, and a thread that sends records to the server.

It runs in the training process, which it must never harm, and needs only the standard library, numpy and
safetensors.
"""

from .commands import clear, flush, register_targets, remove
from .handle import Probe, probe

__all__ = ["Probe", "clear", "flush", "probe", "register_targets", "remove"]
