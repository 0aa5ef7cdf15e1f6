"""Changes to modules that the program may import later."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class _Finder:
    """Finds one module as the other finders would, and changes it once it is loaded."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self._name, self._change = name, change

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        # By hand, because `importlib.util.find_spec` would ask this finder again.
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                self._change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def when_imported(name: str, change: Callable[[Any], None]) -> None:
    """Call `change(module)` now if the module is loaded, otherwise right after its import."""
    if name in sys.modules:
        change(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, change))
