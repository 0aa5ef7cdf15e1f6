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


_AROUND: dict[int, list[_Around]] = {}
"""By the identity of a module."""
_CLASSES: dict[type[nn.Module], tuple[Aside, set[int]]] = {}
"""With the identities of their modules that are followed."""


def _call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """A module's call, with what is around it."""
    around = _AROUND.get(id(module))
    if around is None or around[0].module() is not module:
        # Looked up at each call: `torch.fx` puts another one there while it traces.
        return nn.Module.__call__(module, *args, **kwargs)
    tokens = [(one, one.before(args, kwargs)) for one in around]
    output = nn.Module.__call__(module, *args, **kwargs)
    for one, token in reversed(tokens):
        if token is not None:
            one.after(token, output)
    return output


class ModuleCalls:
    """The calls of some modules, until they are forgotten. Several may follow one module."""

    def __init__(self) -> None:
        self._own: dict[int, tuple[type[nn.Module], _Around]] = {}
        """By the identity of a module: its class, and what is around it."""

    @staticmethod
    def can_follow(module: nn.Module) -> bool:
        """Whether its class has the call that every module has."""
        return type(module).__call__ in (nn.Module.__call__, _call)

    def follow(
        self, module: nn.Module, before: Callable[[Any, Any], object], after: Callable[[Any, Any], None]
    ) -> None:
        """Call `before(args, kwargs)` when the module is called, and `after` with what that gave (unless None) and the
        output when it has returned."""
        kind, key = type(module), id(module)
        self.forget(key)
        known = _AROUND.get(key)
        # Another module had this identity, which has died.
        if known is None or known[0].module() is not module:
            known = _AROUND[key] = []
        if kind not in _CLASSES:

            def install(undo: ExitStack) -> None:
                replace(undo, kind, "__call__", _call)

            _CLASSES[kind] = Aside(install), set()
            _CLASSES[kind][0].on()
        _CLASSES[kind][1].add(key)
        self._own[key] = kind, _Around(weakref.ref(module), before, after)
        known.append(self._own[key][1])

    def forget(self, key: int) -> None:
        """Leave a module alone, by its identity."""
        if key not in self._own:
            return
        kind, own = self._own.pop(key)
        around = _AROUND.get(key, [])
        around[:] = [one for one in around if one is not own]
        # A dead module's identity may be one of another class by now.
        if around and around[0].module() is not None and type(around[0].module()) is kind:
            return
        if not around:
            _AROUND.pop(key, None)
        aside, keys = _CLASSES.get(kind, (None, set()))
        keys.discard(key)
        if aside is not None and not keys:
            aside.off()
            del _CLASSES[kind]

    def close(self) -> None:
        """Leave all alone."""
        for key in list(self._own):
            self.forget(key)
