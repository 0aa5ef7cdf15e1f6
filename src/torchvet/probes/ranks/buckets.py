"""Finds the buckets in which DistributedDataParallel averages gradients. It makes them again in its second step, and
only C++ holds them: a search for who does would go through the whole heap and find no name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torchvet.probes.base.kit import Watcher
from torchvet.probes.internals.modes import OwnMode

_WHAT = "buckets of gradients"
_CALLS = 3
"""Calls of one reducer that may make buckets: it is asked before each pass, and makes them before the second."""
_MOST = 64
"""Reducers that are told apart."""


class BucketWatcher(Watcher):
    """Storages that are buckets of gradients count as memory that training needs."""

    def install(self) -> None:
        """Private; see `private.ATTRIBUTES`."""
        distributed: Any = torch.distributed
        if distributed.is_available():
            self._calls: dict[int, int] = {}
            self.replace(distributed.Reducer, "_rebuild_buckets", self._rebuilds)

    def _rebuilds(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def rebuild(*args: Any) -> Any:
            if torch.compiler.is_compiling() or not self.host.active or not self._may_make(args[0]):
                return original(*args)
            made = _Made()
            if not made.enter():
                return original(*args)
            try:
                return original(*args)
            finally:
                made.leave()
                with self.host.looking(_WHAT):
                    for tensor in made.tensors:
                        self.host.known.buckets.put(tensor, None)
                    made.tensors.clear()

        return rebuild

    def _may_make(self, reducer: Any) -> bool:
        calls = self._calls.get(id(reducer), 0)
        if calls >= _CALLS or len(self._calls) >= _MOST:
            return False
        self._calls[id(reducer)] = calls + 1
        return True


class _Made(OwnMode):
    """What operators make while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # Numbers of buckets are sent to the other ranks by the way: those are integers.
        if isinstance(out, torch.Tensor) and out.is_floating_point():
            self.tensors.append(out)
        return out
