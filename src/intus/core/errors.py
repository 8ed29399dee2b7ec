"""The exceptions intus raises, and helpers that phrase their messages.

Every error names what the caller wrote, the value, and what to do. Each class also derives from the
built-in exception a Python user would expect, so that ``except KeyError`` works.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn


class IntusError(Exception):
    """Base class of all errors raised by intus.

    Every subclass also derives from a built-in exception:

    - ``AddressError`` (``KeyError``): a name or address that does not exist.
    - ``InputError`` (``ValueError``): an argument with an invalid value.
    - ``CaptureError`` (``RuntimeError``): a model that cannot be recorded.
    - ``CodecError`` (``ValueError``): a file or message that cannot be decoded.
    - ``NonFiniteError`` (``FloatingPointError``): a NaN or infinity, where the caller asked to raise.
    - ``ServeError`` (``OSError``): a server that cannot be started or reached.
    - ``MissingExtraError`` (``ImportError``): an optional package that is not installed.

    Example:
        >>> try:
        ...     intus.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))["fc9"]
        ... except intus.IntusError as error:
        ...     print(type(error).__name__)
        AddressError
    """


class AddressError(IntusError, KeyError):
    """Raised if no layer, module, parameter or unit has the address that the caller wrote."""

    __str__ = Exception.__str__  # KeyError.__str__ would show the message quoted


class InputError(IntusError, ValueError):
    """Raised if an argument has an invalid value."""


class CaptureError(IntusError, RuntimeError):
    """Raised if a model cannot be recorded with the options given."""


class CodecError(IntusError, ValueError):
    """Raised if bytes, JSON or a file cannot be decoded, or a value cannot be encoded."""


class NonFiniteError(IntusError, FloatingPointError):
    """Raised on request if a model computes NaN or an infinity."""


class ServeError(IntusError, OSError):
    """Raised if a server cannot be started or reached."""


class MissingExtraError(IntusError, ImportError):
    """Raised if an optional package is needed but not installed."""


class Unavailable:
    """A public name whose packages are not installed: calling it raises ``MissingExtraError``.

    Importing such a name works, and so do ``hasattr(intus, name)`` and ``help(intus)``, because an exception
    other than AttributeError would break them and an AttributeError would hide the reason.

    Args:
        message: The message of the error.
    """

    def __init__(self, message: str) -> None:
        self._message = message

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise MissingExtraError, whatever the arguments."""
        raise MissingExtraError(self._message)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(self._message if "_message" in vars(self) else name)

    def __instancecheck__(self, instance: object) -> bool:
        return False  # nothing is a Trace where none can be made

    def __repr__(self) -> str:
        return f"<not available: {self._message}>"


def did_you_mean(name: str, known: Iterable[str], *, most: int = 3) -> str:
    """Return a sentence that suggests the nearest valid names.

    Args:
        name: The name that the caller wrote.
        known: The valid names.
        most: The maximum number of suggestions.

    Example:
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


def did_not_run(name: str, when: str = "in this pass") -> str:
    """Return the sentence that a module of the model was not called.

    Args:
        name: What the caller wrote: an address, a class or a pattern.
        when: In what it was not called.

    Example:
        >>> did_not_run("dropout")
        "'dropout' did not run in this pass."
    """
    return f"{name!r} did not run {when}."


def check_folder(path: Path) -> None:
    """Raise an error if the folder that a file is to be written to does not exist.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: If its folder does not exist, with a sentence that says so.

    Example:
        >>> check_folder(Path("model.svg"))
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}. Make it first."
        )


def missing_packages(what: str, packages: Iterable[str], extra: str) -> str:
    """Return the message that packages are not installed.

    Args:
        what: What needs them.
        packages: Their names.
        extra: The extra of intus that installs them.

    Example:
        >>> missing_packages("intus.serve", ["uvicorn"], "server")
        "intus.serve needs uvicorn, which is not installed. Install it with: pip install 'intus[server]'"
    """
    names = list(packages)
    are, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return (
        f"{what} needs {', '.join(names)}, which {are} not installed. Install {them} with: "
        f"pip install 'intus[{extra}]'"
    )


#: What a server says of a journal that another server writes.
IN_USE = "is used by another server"

#: What a server imports, which the extra ``server`` installs.
SERVER = ("msgspec", "re2", "scipy", "sklearn", "sqlalchemy", "starlette", "uvicorn")


def check_installed(what: str, packages: Iterable[str], extra: str) -> None:
    """Raise an error if packages are not installed; imports none of them.

    Args:
        what: What needs them.
        packages: The modules that are imported.
        extra: The extra of intus that installs them.

    Raises:
        MissingExtraError: If one of them is not installed.

    Example:
        >>> check_installed("intus demo", ["json"], "all")
    """
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtraError(missing_packages(what, missing, extra))


#: How to install a package beside another, which cannot be imported with the numpy that the extra installs.
_BESIDE = {("mxnet", "pandas"): 'pip install "pandas<3" "numpy==1.23.5"'}


def _installing(module: str, extra: str) -> str:
    """Return the command that installs a package beside those that are installed."""
    beside = (
        command
        for (package, other), command in _BESIDE.items()
        if other == module and importlib.util.find_spec(package) is not None
    )
    return next(beside, f"pip install 'intus[{extra}]'")


def require(module: str, *, extra: str, why: str, package: str = "") -> ModuleType:
    """Import an optional package, or raise an error that names the extra to install.

    Args:
        module: The module to import.
        extra: The extra of intus that installs it.
        why: What the package is needed for, as the end of the sentence "X is needed ...".
        package: The name of the package, if the module has another.

    Returns:
        The module.

    Raises:
        MissingExtraError: If the module cannot be imported, with the reason if it is installed.

    Example:
        >>> require("json", extra="server", why="to read JSON").__name__
        'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) and importlib.util.find_spec(module.partition(".")[0]):
            remedy = f"It is installed, but cannot be imported: {error}"
        else:
            remedy = f"Install it with: {_installing(module, extra)}"
        raise MissingExtraError(f"{package or module} is needed {why}. {remedy}") from error
