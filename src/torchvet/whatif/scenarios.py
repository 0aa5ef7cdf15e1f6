"""The shortcuts that people try, and the fixes: at which step memory runs out with each, and what each costs.

Memory runs out at the first step whose peak, `base + growth * steps`, exceeds `room`. If the effect of a change was not
measured, the answer is a bound and says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torchvet.formatting import count, limit, percent, size
from torchvet.whatif.memory_budget import Situation

NEVER = math.inf
_NOISE = 0.02
"""Of the growth, or of a step's memory: less is not worth an answer."""


@dataclass(frozen=True)
class Answer:
    """`first` and `last` bound the step at which memory runs out: `NEVER` if all fits, None if nothing is known."""

    asked: str
    first: float | None
    last: float | None
    costs: str

    @classmethod
    def at(cls, asked: str, step: float | None, costs: str) -> Answer:
        """An answer with one step instead of bounds."""
        return cls(asked, step, step, costs)


@dataclass(frozen=True)
class Fix:
    """A finding's fix: its rule, its place, and how much growth it removes, in bytes per step."""

    code: str
    where: str
    bytes_per_step: float


def dies_at(base: float, growth: float, room: float | None) -> float | None:
    """The first step, from 1, whose peak does not fit; None if no limit is known."""
    if room is None:
        return None
    if base > room:
        return 1
    return NEVER if growth <= 0 else max(1, math.ceil((room - base) / growth))


def answers(now: Situation, half: Situation | None, fixes: list[Fix]) -> Iterator[Answer]:
    """The answers, the unchanged program first. `half` is what was measured with half the batch."""
    as_is = dies_at(now.base, now.growth, now.room)
    yield Answer.at("as it is", as_is, _costs_of_now(now))
    yield _half(now, half)
    yield _larger_card(now)
    yield _empty_cache(now, as_is)
    if as_is is not None and as_is != NEVER and now.growth > 0:
        costs = f"only an epoch of fewer than {as_is:,.0f} steps ends in time; state is saved and loaded each time"
        yield Answer.at("restart from a checkpoint every epoch", as_is, costs)
    yield from _precision(now)
    yield from _checkpointing(now)
    for fix in fixes:
        yield _fixed(now, f"the fix of {fix.code} at {fix.where}", fix.bytes_per_step, "an edit")
    if len(fixes) > 1:
        yield _fixed(now, "all fixes", sum(m.bytes_per_step for m in fixes), "the edits")


def _fixed(now: Situation, asked: str, saved: float, costs: str) -> Answer:
    """The answer for fixes that remove `saved` bytes per step of the growth."""
    rest = now.growth - saved
    return Answer.at(asked, dies_at(now.base, rest if rest > _NOISE * now.growth else 0.0, now.room), costs)


def _costs_of_now(now: Situation) -> str:
    grows = f"{size(now.growth)} more at every step" if now.growth > 0 else "nothing grows"
    return f"a step takes {size(now.base)}, {grows}"


def _half(now: Situation, half: Situation | None) -> Answer:
    twice = "twice as many steps for the same data; other gradients, unless two are accumulated"
    if half is not None:
        step = dies_at(half.base, half.growth, now.room)
        saved, slower = now.base - half.base, half.growth
        grows = f", then {size(slower)} more at every step" if slower > 0 else ""
        return Answer.at("half the batch", step, f"measured: saves {size(max(0.0, saved))}{grows}; {twice}")
    least = now.base - now.of_batch / 2
    first, last = dies_at(now.base, now.growth, now.room), dies_at(least, now.growth / 2, now.room)
    return Answer("half the batch", first, last, f"saves {size(now.of_batch / 2)} at most; {twice}")


def _larger_card(now: Situation) -> Answer:
    if now.limit is None or now.room is None:
        return Answer.at("twice the memory", None, "no limit is known; give one with --memory-limit")
    step = dies_at(now.base, now.growth, now.room + now.limit)
    return Answer.at(f"twice the memory ({limit(2 * now.limit)})", step, "the hardware; the growth continues")


def _empty_cache(now: Situation, as_is: float | None) -> Answer:
    asked = "empty_cache() at every step"
    if now.device != "cuda":
        return Answer.at(asked, as_is, "does nothing on the CPU")
    kept = f" ({size(now.cached)} at the last step)" if now.cached is not None else ""
    costs = (
        f"returns only unused blocks{kept}, which the allocator itself returns before it runs out of memory; each call "
        "synchronizes with the device, and memory must be requested from the driver again"
    )
    return Answer.at(asked, as_is, costs)


def _precision(now: Situation) -> Iterator[Answer]:
    """Half precision halves activations; how many of them autocast leaves in float32 is not known here.

    A graph saves autocast's copies of the weights, so each graph that is kept keeps one more set of copies.
    """
    first = dies_at(now.base, now.growth, now.room)
    if now.float32 >= _NOISE * now.base:
        copies = now.parameters / 2
        kept = copies if any(g.graph_per_step > 0 for g in now.growths) else 0.0
        worst = dies_at(now.base + copies, now.growth + kept, now.room)
        last = dies_at(now.base - now.float32 / 2, now.growth / 2, now.room)
        costs = (
            f"saves {size(now.float32 / 2)} at most, of {size(now.float32)} of float32 activations; copies of weights "
            f"add {size(copies)} at most{' for every graph that is kept' if kept else ''}; `torchvet amp` measures it"
        )
        yield Answer("mixed precision", worst, last, costs)
    if now.half >= _NOISE * now.base:
        step = dies_at(now.base + now.half, 2 * now.growth, now.room)
        costs = f"up to {size(now.half)} more: half precision activations become float32; range and speed change"
        yield Answer("mixed precision off", step, first, costs)


def _checkpointing(now: Situation) -> Iterator[Answer]:
    activations = now.float32 + now.half
    if activations < 0.1 * now.base:
        return
    first, last = (dies_at(base, now.growth, now.room) for base in (now.base, now.base - activations))
    costs = f"saves less than {size(activations)}, since the blocks' inputs stay; about one more forward pass per step"
    yield Answer("activation checkpointing", first, last, costs)


def remarks(now: Situation) -> Iterator[str]:
    """What the measurements say about common explanations."""
    if now.growth > 0:
        names = ", ".join(dict.fromkeys(g.holding.name for g in now.growths[:3]))
        held = f", held by {names}" if names else ""
        yield (
            f'"Growth is normal": {size(now.growth)} stayed alive from each of {count(now.steps, "step")}{held}. These '
            "are live tensors, not the allocator's cache"
        )
    if now.loading is not None:
        yield f'"It is the loader": {percent(now.loading)} of the time was spent waiting for data'
    if now.ran_out:
        yield "the program did run out of memory in this run"
