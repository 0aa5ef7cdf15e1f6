"""Around the calls of single modules, with nothing of torchvet's in the modules themselves.

A hook on a module is copied and pickled with it, and a global hook is paid for by every module's call. So the module's
class is given a `__call__` of its own, which is one of this file's: whoever pickles the class by value names it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from torch import nn

from torchvet.probes.internals.compiled_regions import Aside
from torchvet.probes.internals.patching import replace


class _Around(NamedTuple):
    module: weakref.ref[nn.Module]
    before: Callable[[Any, Any], object]
    after: Callable[[Any, Any], None]


_AROUND: dict[int, _Around] = {}
"""By the identity of a module."""


def _call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """A module's call, with what is around it."""
    one = _AROUND.get(id(module))
    if one is None or one.module() is not module:
        # Looked up at each call: `torch.fx` puts another one there while it traces.
        return nn.Module.__call__(module, *args, **kwargs)
    token = one.before(args, kwargs)
    output = nn.Module.__call__(module, *args, **kwargs)
    if token is not None:
        one.after(token, output)
    return output


class ModuleCalls:
    """The calls of some modules, until they are forgotten."""

    def __init__(self) -> None:
        self._classes: dict[type[nn.Module], tuple[Aside, set[int]]] = {}
        """With the identities of their modules that are followed."""

    @staticmethod
    def can_follow(module: nn.Module) -> bool:
        """Whether its class has the call that every module has."""
        return type(module).__call__ in (nn.Module.__call__, _call)

    def follow(
        self, module: nn.Module, before: Callable[[Any, Any], object], after: Callable[[Any, Any], None]
    ) -> None:
        """Call `before(args, kwargs)` when the module is called, and `after` with what that gave (unless None) and the
        output when it has returned."""
        kind = type(module)
        if kind not in self._classes:

            def install(undo: ExitStack) -> None:
                replace(undo, kind, "__call__", _call)

            self._classes[kind] = Aside(install), set()
            self._classes[kind][0].on()
        self._classes[kind][1].add(id(module))
        _AROUND[id(module)] = _Around(weakref.ref(module), before, after)

    def forget(self, key: int) -> None:
        """Leave a module alone, by its identity."""
        for kind, (aside, keys) in list(self._classes.items()):
            if key in keys:
                keys.remove(key)
                _AROUND.pop(key, None)
                if not keys:
                    aside.off()
                    del self._classes[kind]

    def close(self) -> None:
        """Leave all alone."""
        for _, keys in list(self._classes.values()):
            for key in list(keys):
                self.forget(key)
