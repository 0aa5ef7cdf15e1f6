"""Dispatch modes of torchvet's own: where they may be switched, and taken out from wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import REGIONS, compiled_anything
from torchvet.probes.internals.mode_dependent import STEPPING_ASIDE


class OwnMode(private.DispatchMode):  # type: ignore[no-untyped-call]
    """What looks at operators without changing them. Several may stand above each other, but above none of others."""

    # Without it torch raises for `cond` and `while_loop` under a mode that does not handle them.
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default wraps the handler so that its first call imports torch._dynamo: seconds of the program's time.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # Compiled regions stay compiled while the mode is on: falling back to eager would change the program's numbers.
        return True

    @property
    def can_leave(self) -> bool:
        """Whether the mode can be switched here, on or off.

        `inference_mode`, the autograd engine and compiled regions put the dispatch keys back on exit as they found them
        on entry: a mode taken out in between would leave its key behind, and the program's next operator would fail.
        """
        elsewhere = torch.is_inference_mode_enabled() or private.graph_task() != -1
        return not (elsewhere or REGIONS.inside)

    def enter(self) -> bool:
        """Switch on. False where that is not safe, or others' modes are on: theirs must be left before ours."""
        if compiled_anything() and not private.MODES_BESIDE_COMPILE:
            return False
        if not self.can_leave or any(not isinstance(m, OwnMode) for m in private.dispatch_modes()):
            return False
        self.__enter__()  # type: ignore[no-untyped-call]
        # After the mode is on: what is wrapped reads the stack to know which modes to take off.
        STEPPING_ASIDE.mode_entered(self)
        return True

    def ran_aside(self, op: str, out: Any) -> None:
        """An operator ran with this mode off, as it computes in another way under one: its name and its result."""

    def enter_beneath(self) -> bool:
        """Switch on where modes of the program's own are on: beneath them all, so that each finds itself on top when
        it is left, and this one sees what they let through. False where that is not safe."""
        stack: list[Any] = private.dispatch_modes()
        if not stack:
            return self.enter()
        if compiled_anything() and not private.MODES_BESIDE_COMPILE:
            return False
        # Modes with a key are torch's own, of tracing and of fake tensors: nothing has values under them.
        if not self.can_leave or any(getattr(m, "_mode_key", None) is not None for m in stack):
            return False
        above = [private.pop_mode() for _ in stack]
        private.push_mode(self)
        for mode in reversed(above):
            private.push_mode(mode)
        for flags, theirs in _flags(self, stack[0]):
            # What was so before their mode was so before ours; when theirs is left, ours is on.
            flags.append(theirs[-1])
            # The flags say "a mode was on before": true for theirs from now on. The compile flag stays,
            # since ours does not count as one.
            theirs[-1] = flags is not getattr(self, _COMPILING, None) or theirs[-1]
        STEPPING_ASIDE.mode_entered(self)
        return True

    def leave(self) -> None:
        """Switch off, wherever in the stack of modes this one stands by now."""
        # First of all, also where the mode is gone from the stack already: torch's functions must be its own
        # again.
        STEPPING_ASIDE.mode_left(self)
        stack: list[Any] = private.dispatch_modes()
        if not any(mode is self for mode in stack):
            return
        above = []
        # `__exit__` takes out whichever mode is on top, so those above must go first and come back.
        while (top := private.dispatch_modes()[-1]) is not self:
            above.append(top)
            private.pop_mode()
        if not above:
            self.__exit__(None, None, None)
            return
        private.pop_mode()
        for mode in reversed(above):
            private.push_mode(mode)
        for flags, theirs in _flags(self, above[-1]):
            theirs[-1] = flags.pop()


_COMPILING = "old_without_ignore_compile_internals_dispatch_mode_flags"
_OLD_FLAGS = ("old_dispatch_mode_flags", "old_non_infra_dispatch_mode_flags", _COMPILING)


def _flags(mine: Any, theirs: Any) -> Iterator[tuple[Any, Any]]:
    """What two modes have noted of the state before each, kind by kind: torch puts it back when a mode is left, so
    that the one next in the stack must be told who goes from below it, or the state of this one would stay."""
    # A private method (see `private.ATTRIBUTES`); a mode that was never entered has no lists yet.
    mine._lazy_init_old_dispatch_mode_flags()
    for name in _OLD_FLAGS:
        ours, others = getattr(mine, name, None), getattr(theirs, name, None)
        if ours is not None and others:
            yield ours, others
