"""Call a function as soon as a module has been imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class WhenImported(MetaPathFinder):
    """Calls a function when a module has been imported for the first time.

    Until then, or until ``cancel``, it is the first entry of ``sys.meta_path``. The module and its spec keep
    their original loader.

    Args:
        name: The name of the module.
        callback: The function.

    Example:
        >>> hook = WhenImported("this_module_is_never_imported", print)
        >>> hook.cancel()
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name, self._callback = name, callback
        sys.meta_path.insert(0, self)

    def cancel(self) -> None:
        """Remove this finder from ``sys.meta_path``, if it is still there."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec with a loader that calls the function once it is done."""
        if fullname != self._name:
            return None
        self.cancel()
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallbackLoader(spec.loader, self._callback)
        return spec


class _CallbackLoader(Loader):
    """Loads a module with another loader, which it puts in its own place, and then calls a function."""

    def __init__(self, loader: Loader, callback: Callable[[], None]) -> None:
        self._loader, self._callback = loader, callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._callback()
