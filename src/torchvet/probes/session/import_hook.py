"""Calls a function when the program finishes importing a module, without importing it first.

The finder only *borrows* the module's real loader: the spec that the import system sees is the real one, its loader
runs the module's code and is left without a trace of having been watched, so `module.__spec__` and `module.__loader__`
are what they would have been. A program that merely asks `importlib.util.find_spec("torch")` triggers nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, callback: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call `callback(module)` once `name` has run to its end, in the importing thread; at once if it is loaded.

    An import that fails leaves the watch in place, since programs try again. What the callback raises reaches the
    program's import statement: callbacks guard themselves. Gives a function that ends the wait.
    """
    module = sys.modules.get(name)
    # Private to `importlib`: half-imported modules are in `sys.modules` already.
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        callback(module)
        return _nothing
    # First in the list: a finder before it that finds the module ends the search.
    watch = _Watch(name, callback)
    sys.meta_path.insert(0, watch)
    return watch.end


def _nothing() -> None:
    """There is no wait to end."""


class _Watch:
    """A finder that finds nothing itself: it asks the finders after it and marks the loader that they name."""

    def __init__(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.callback = callback
        self.asking = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The real spec of the watched module with its loader marked; None for every other module."""
        if fullname != self.name or getattr(self.asking, "now", False):
            return None
        # A finder that asks all of `sys.meta_path` again would otherwise ask this one without end.
        self.asking.now = True
        try:
            spec = self._ask_the_others(fullname, path, target)
        finally:
            self.asking.now = False
        if spec is not None and spec.loader is not None:
            self._mark(spec.loader)
        return spec

    def _ask_the_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def end(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _mark(self, loader: object) -> None:
        """Shadow `exec_module` on this one loader object; the shadow removes itself as it runs."""
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: ModuleType) -> None:
            # First: the module's own code may look at its loader.
            vars(loader).pop("exec_module", None)
            run(module)
            if self in sys.meta_path:
                self.end()
                self.callback(sys.modules.get(self.name, module))

        try:
            loader.exec_module = exec_module  # type: ignore[attr-defined]
        except AttributeError:  # a loader with slots cannot be marked
            pass
