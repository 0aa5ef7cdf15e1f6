"""Notes which autograd nodes were made while saved-tensor hooks were on: what those saved, hooks may have packed away.

Needed where torch shows saved tensors only by unpacking (before 2.10). Nodes are numbered as they are made, by a count
of each thread's own. A node counts as made under hooks if any thread had them on at its number.
"""

from __future__ import annotations

import functools
import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from torchvet.probes.internals import private
from torchvet.probes.internals.patching import replace

_MOST = 20_000
"""Bounds kept of one thread. Above that the older half becomes one stretch: its nodes are skipped, hooks or not."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.bounds: list[int] | None = None
        self.depth = 0


class Packing:
    """For each thread an ascending list: hooks on from the first number, off from the second, and so on."""

    def __init__(self) -> None:
        self._all: list[list[int]] = []
        self._mine = _Thread()
        self.skipped = False
        """Whether a node was met that had to be skipped."""

    def covers(self, node: Any) -> bool:
        """Whether hooks may have packed what a node saved."""
        if not self._all:
            return False
        number = node._sequence_nr()
        # An odd number of bounds at or below: the last of them switched hooks on.
        found = any(bisect_right(bounds, number) & 1 for bounds in self._all)
        self.skipped = self.skipped or found
        return found

    def listen(self, undo: ExitStack) -> None:
        """Hear of hooks from now on. What was made before may have been made under hooks."""
        self._all, self._mine, self.skipped = [], _Thread(), False
        number = private.sequence_nr()
        # Nodes that are numbered already: nobody knows what was on when they were made.
        if number:
            self._bounds().extend((0, number))
        hooks = torch.autograd.graph.saved_tensors_hooks
        # All of torch's users of such hooks (checkpointing, `save_on_cpu`) go through this class.
        replace(undo, hooks, "__enter__", _then(hooks.__enter__, self.on))
        replace(undo, hooks, "__exit__", _then(hooks.__exit__, self.off))

    def on(self) -> None:
        """This thread's nodes are made under hooks from here on."""
        mine = self._mine
        mine.depth += 1
        # Hooks may be nested: the stretch begins with the outermost.
        if mine.depth > 1:
            return
        bounds, number = self._bounds(), private.sequence_nr()
        # No node was made since hooks went off: the stretch before goes on.
        if bounds and bounds[-1] == number:
            bounds.pop()
        else:
            bounds.append(number)

    def off(self) -> None:
        """No longer."""
        mine = self._mine
        mine.depth -= 1
        if mine.depth > 0:
            return
        bounds, number = self._bounds(), private.sequence_nr()
        if mine.depth < 0:  # they were on before anybody listened
            mine.depth = 0
            # Whatever was noted of this thread may be wrong: all its nodes so far count as made under
            # hooks.
            bounds[:] = [0, number]
            return
        bounds.append(number)
        if len(bounds) > _MOST:
            # An even number of bounds goes, so that on and off still take turns.
            del bounds[1 : _MOST // 2 - 1]

    def _bounds(self) -> list[int]:
        mine = self._mine
        if mine.bounds is None:
            mine.bounds = []
            self._all.append(mine.bounds)
        return mine.bounds


PACKING = Packing()
"""The one of this process. Without `listen()` it covers nothing."""


def _then(original: Callable[..., Any], note: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any) -> Any:
        result = original(*args)
        # dynamo runs through this too, for hooks that the compiled code will set itself.
        if not torch.compiler.is_compiling():
            note()
        return result

    return call
