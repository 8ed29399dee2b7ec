"""Doing something as soon as a module has been imported, if it is imported at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class WhenImported(MetaPathFinder):
    """Calls ``then`` when the module ``name`` has been imported for the first time; until ``forget`` it waits
    at the head of ``sys.meta_path``. The module itself shows no sign of it.

    >>> waiting = WhenImported("this_module_is_never_imported", print)
    >>> waiting.forget()
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then
        sys.meta_path.insert(0, self)

    def forget(self) -> None:
        """Wait no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec with a loader that tells when it is done."""
        if fullname != self._name:
            return None
        self.forget()
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._then)
        return spec


class _Telling(Loader):
    """Loads as another loader does, gives it its place back, and tells."""

    def __init__(self, loader: Loader, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()
