"""How grave something is, by what was measured and never by its pattern."""

from __future__ import annotations

from torchvet.finding import Severity

_DIES_SOON = 1_000_000
_DIES_LATE = 100_000_000
_LARGE_SHARE = 0.10
_MOST_OF_IT = 0.5
"""Share of the memory left from which on little else may grow."""

_LARGE_BYTES = 32 << 20
"""Less than two segments of CUDA's allocator (20 MiB): what it holds in reserve in any program, and what a bus carries
in a millisecond or two."""


def of_growth(step: int, exhausted_at: int | None) -> Severity:
    """By its forecast: at the memory limit in force, exhausted within a million steps from now or a hundred million."""
    if exhausted_at is None:
        return "info"
    # From now, as a program that has run for long has not become safe by it.
    left = exhausted_at - step
    return "error" if left <= _DIES_SOON else "warning" if left <= _DIES_LATE else "info"


def of_share(share: float) -> Severity:
    """What does not grow, by its share of the peak (or of the step's time), from 0 to 1."""
    return "warning" if share > _LARGE_SHARE else "info"


def of_what_is_left(more: int, left: int | None) -> Severity:
    """What is collected on purpose and stays within a bound: by the bytes still to come, of those that are left."""
    return "warning" if left is not None and more > _MOST_OF_IT * left else "info"


def of_waste(size: int, share: float = 1.0) -> Severity:
    """What is made once, or once a step, for nothing: by its bytes, and by its share of the peak where it lies there.
    A small program's tenth is nobody's trouble."""
    return "warning" if size >= _LARGE_BYTES and share > _LARGE_SHARE else "info"
