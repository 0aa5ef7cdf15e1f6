"""How seconds are spread over the steps of a run of unknown length."""

from __future__ import annotations

_MOST = 24
"""Spans of steps that are told apart; twice as long ones from then on."""
_LEAST = 6
"""Spans below which thirds of them say nothing."""


class Course:
    """Seconds by spans of steps."""

    __slots__ = ("_spans", "_width")

    def __init__(self) -> None:
        self._spans: list[float] = []
        self._width = 1

    def add(self, step: int, seconds: float) -> None:
        """Seconds of a step; steps count from 1, and never go back."""
        self._widen(step)
        at = (step - 1) // self._width
        self._spans += [0.0] * (at + 1 - len(self._spans))
        self._spans[at] += seconds

    def thirds(self, steps: int) -> tuple[float, float, float] | None:
        """Of so many steps, in the first, the middle and the last third, where the first and the last are as long as
        each other; None where there are few."""
        self._widen(steps)
        # The span that is not complete would be short.
        whole = steps // self._width
        third = whole // 3
        if whole < _LEAST:
            return None
        spans = [*self._spans[:whole], *[0.0] * (whole - len(self._spans))]
        first, last = sum(spans[:third]), sum(spans[whole - third :])
        return round(first, 6), round(sum(spans) - first - last, 6), round(last, 6)

    def _widen(self, step: int) -> None:
        while step > _MOST * self._width:
            padded = [*self._spans, 0.0]
            self._spans = [padded[n] + padded[n + 1] for n in range(0, len(self._spans), 2)]
            self._width *= 2
