"""The exceptions intus raises, and the sentences they share.

Every error names what the caller wrote, the value, and what to do. Each class also derives from the
built-in exception a Python user would expect, so ``except KeyError`` keeps working.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class IntusError(Exception):
    """Base class of all errors raised by intus."""


class AddressError(IntusError, KeyError):
    """No layer, module or unit answers to the name the caller wrote."""

    __str__ = Exception.__str__  # KeyError shows the repr of its message, which would quote our sentence


class InputError(IntusError, ValueError):
    """An argument has a value that cannot work."""


class CaptureError(IntusError, RuntimeError):
    """The model cannot be recorded as asked."""


class CodecError(IntusError, ValueError):
    """Bytes or JSON that do not hold what they should."""


class ServeError(IntusError, OSError):
    """A server could not be started or reached."""


class MissingExtraError(IntusError, ImportError):
    """An optional package is needed for what was asked."""


def did_you_mean(name: str, known: Iterable[str], *, most: int = 3) -> str:
    """Return the sentence that names the nearest valid names.

    >>> did_you_mean("conv_3", ["conv2d_3", "relu_1"])
    "Did you mean 'conv2d_3'?"
    >>> did_you_mean("h.0", ["model.h.0.attn", "model.h.0"])
    "Did you mean 'model.h.0' or 'model.h.0.attn'?"
    >>> did_you_mean("zzz", ["conv2d_3", "relu_1"])
    "Known names: 'conv2d_3', 'relu_1'."
    >>> did_you_mean("x", [])
    'There are no names to choose from.'
    """
    names = list(dict.fromkeys(known))
    if not names:
        return "There are no names to choose from."
    within = sorted((n for n in names if f".{name}." in f".{n}."), key=len) if name else []
    near = within[:most] or difflib.get_close_matches(name, names, n=most, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(repr(n) for n in near)}?"
    shown = ", ".join(repr(n) for n in names[:8])
    return f"Known names: {shown}{f' and {len(names) - 8} more' if len(names) > 8 else ''}."


def require(module: str, *, extra: str, why: str, package: str = "") -> ModuleType:
    """Import an optional package, or say in one sentence how to get it.

    ``package`` is its name where the module has another.

    >>> require("json", extra="server", why="to read JSON").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{package or module} is needed {why}. Install it with: pip install 'intus[{extra}]'"
        ) from error
