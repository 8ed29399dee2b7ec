"""Tell in which mode a step calls its model: to train it, or to evaluate it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from .library import Library

_ALIKE = (
    "%s and %s both %s gradients of %s, so their rows are scored together as %r. Set Probe.mode before each "
    "call to keep them apart."
)
_TOGETHER = (
    "%s and %s both ran %s in mode %r, so these rows are scored together. Set Probe.mode before each call to "
    "keep them apart."
)


class Traits(NamedTuple):
    """The traits of a call of a step that decide its mode.

    Attributes:
        takes_gradients: Whether it takes gradients through the model.
        trains: Whether a dropout was active in it, or a normalization used its batch; None if nothing tells.
    """

    takes_gradients: bool
    trains: bool | None


class Modes:
    """The modes of the steps of a model.

    Args:
        library: The library of the model.
        model: The model.
        warn: Receives warnings.
    """

    def __init__(self, library: Library, model: Any, warn: Callable[[str], None]) -> None:
        self._library, self._class, self._warn = library, type(model).__name__, warn
        self._is_training = library.training(model) if library.tells_mode(model) else None
        self._traits: dict[Hashable, Traits] = {}
        self._takes_gradients = False  # any step so far
        self._functions: dict[str, dict[Callable[..., Any], bool]] = defaultdict(dict)

    def of(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, Any],
        traits: Callable[[], Traits],
        *,
        numbers: bool,
        tells: bool = True,
    ) -> str:
        """Return the mode of a call: ``"train"`` or ``"eval"``.

        Functions of one mode are scored together, which is said. A dropout that is active without gradients
        is only evidence of a training where no step takes any.

        Args:
            function: The step's function.
            arguments: Its positional and keyword arguments.
            traits: Finds the traits of the call, at the cost of a trace.
            numbers: Whether they depend on the values of numbers among the arguments.
            tells: Whether the call is scored in this mode.
        """
        key = function, _settings(self._library, arguments, numbers)
        found = self._traits.get(key)
        if found is None:
            try:
                found = traits()
            except Exception:  # it is not recorded, which is said when that is tried
                return "eval" if self._is_training is not None and not self._is_training() else "train"
            self._traits[key] = found
            self._takes_gradients |= found.takes_gradients
        mode = self._mode(found)
        if tells:
            self._tell(mode, function, found.takes_gradients)
        return mode

    def _mode(self, traits: Traits) -> str:
        trains = traits.trains
        if trains is None and self._is_training is not None:
            trains = self._is_training()
        if trains is False:
            return "eval"
        return "train" if traits.takes_gradients or (trains and not self._takes_gradients) else "eval"

    def _tell(self, mode: str, function: Callable[..., Any], takes_gradients: bool) -> None:
        functions = self._functions[mode]
        if function in functions:
            return
        functions[function] = takes_gradients
        if len(functions) == 2:
            names = list(map(name_of, functions))
            if len(set(functions.values())) == 1:
                takes = "take" if takes_gradients else "take no"
                self._warn(_ALIKE % (*names, takes, self._class, mode))
            else:
                self._warn(_TOGETHER % (*names, self._class, mode))


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a step's function."""
    return getattr(function, "__name__", "a function")


def _settings(library: Library, arguments: tuple[Any, Any], numbers: bool) -> Hashable:
    """Return what traits depend on of arguments, and of what is in lists, tuples and dicts among them.

    It is asked for at each call, so that no arrays are looked at.
    """

    def of(value: Any, *, opens: bool = True) -> Hashable:
        if value is None or isinstance(value, bool | str) or (numbers and isinstance(value, int | float)):
            return value
        if opens and isinstance(value, list | tuple):
            return tuple(of(one, opens=False) for one in value)
        if opens and isinstance(value, dict):
            return tuple((name, of(one, opens=False)) for name, one in value.items())
        return library.setting(value)

    args, kwargs = arguments
    return tuple(map(of, args)), tuple((name, of(one)) for name, one in kwargs.items())
