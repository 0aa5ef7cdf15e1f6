"""Remembers where backward was called from: a step may have several calls, and any of them may have gone wrong."""

from __future__ import annotations

from collections import deque
from types import CodeType

from torchvet.probes.base.callers import Whereabouts
from torchvet.probes.replay.plans import Spot, spots

Stack = tuple[Spot, ...]
_MOST = 16


class Calls:
    """The last calls, in order. Nothing but their places is kept, and they are compared only when asked for."""

    def __init__(self) -> None:
        # Whereabouts are raw: turning them into spots at each backward would cost more than the rest.
        self._calls: deque[tuple[int, Whereabouts]] = deque(maxlen=_MOST)
        self._optimized = 0

    def add(self, stack: Whereabouts) -> None:
        """Backward is called here."""
        self._calls.append((self._optimized, stack))

    def optimized(self) -> None:
        """An optimizer has stepped: what is called from now on makes gradients for another step."""
        self._optimized += 1

    def clear(self) -> None:
        """Forget all."""
        self._calls.clear()

    def since_step(self) -> list[Stack]:
        """Where the gradients that are there now may come from: the calls since an optimizer stepped, one for each
        place, in the order in which they ran; then those of the step before (a GAN's other loss)."""
        found: dict[tuple[tuple[CodeType, int], ...], Stack] = {}
        # The step before as well: a GAN's other loss has left gradients in shared parameters.
        for age in (0, 1):
            mine = [spots(s) for n, s in self._calls if n == self._optimized - age]
            latest = {_place(s): s for s in mine}
            for place, stack in latest.items():
                found.setdefault(place, stack)
        return list(found.values())

    def one_since_step(self) -> bool:
        """Whether the gradients that are there come from a single call."""
        return sum(number == self._optimized for number, _ in self._calls) == 1

    def before(self) -> Stack:
        """The call before the last from the same place: whatever frame is in both goes round the steps."""
        if not self._calls:
            return ()
        *earlier, (now, last) = [(n, spots(s)) for n, s in self._calls]
        # The frame that is in both calls is the one whose loop goes round the steps.
        same = [s for _, s in earlier if _place(s) == _place(last)]
        older = [s for n, s in earlier if n < now]
        return (same or older or [()])[-1]


def _place(stack: Stack) -> tuple[tuple[CodeType, int], ...]:
    return tuple((s.code, s.instruction) for s in stack)
