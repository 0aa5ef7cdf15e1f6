"""The shortcuts that people try, and the mend: at which step a program dies with each, and what each costs.

Where a change's effect was not measured the answer is a bound, and says so. Rules: a step dies where what it comes to,
`base + growth * steps`, is more than there is room for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torchvet.amounts import count, limit, percent, size
from torchvet.whatif.situation import Situation

NEVER = math.inf


@dataclass(frozen=True)
class Answer:
    """`first` and `last` bound the step at which the program dies, `NEVER` where nothing grows and all fits; both None
    where nothing is known."""

    asked: str
    first: float | None
    last: float | None
    costs: str

    @classmethod
    def at(cls, asked: str, step: float | None, costs: str) -> Answer:
        """An answer without bounds."""
        return cls(asked, step, step, costs)


@dataclass(frozen=True)
class Mend:
    """A finding's remedy: what it is called, and how much growth goes with it, in bytes a step."""

    code: str
    where: str
    bytes_per_step: float


def dies_at(base: float, growth: float, room: float | None) -> float | None:
    """The step whose peak no longer fits, from 1; None where no limit is known."""
    if room is None:
        return None
    if base > room:
        return 1
    return NEVER if growth <= 0 else max(1, math.ceil((room - base) / growth))


def answers(now: Situation, half: Situation | None, mends: list[Mend]) -> Iterator[Answer]:
    """The table, the program as it is first. `half` is the situation measured with half the batch."""
    as_is = dies_at(now.base, now.growth, now.room)
    yield Answer.at("as it is", as_is, _costs_of_now(now))
    yield _half(now, half)
    yield _larger_card(now)
    yield _empty_cache(now, as_is)
    if as_is is not None and as_is != NEVER and now.growth > 0:
        yield Answer.at(
            "restart from a checkpoint every epoch", as_is,
            f"only an epoch of fewer than {as_is:,.0f} steps ends before it dies; state is saved and loaded each time",
        )  # fmt: skip
    yield from _precision(now)
    yield from _checkpointing(now)
    for mend in mends:
        rest = max(0.0, now.growth - mend.bytes_per_step)
        rest = rest if rest > 0.02 * now.growth else 0.0
        yield Answer.at(f"the mend of {mend.code} at {mend.where}", dies_at(now.base, rest, now.room), "an edit")
    if len(mends) > 1:
        rest = max(0.0, now.growth - sum(m.bytes_per_step for m in mends))
        yield Answer.at(
            "all mends", dies_at(now.base, rest if rest > 0.02 * now.growth else 0.0, now.room), "the edits"
        )


def _costs_of_now(now: Situation) -> str:
    grows = f"{size(now.growth)} more at every step" if now.growth > 0 else "nothing grows"
    return f"a step comes to {size(now.base)}, {grows}"


def _half(now: Situation, half: Situation | None) -> Answer:
    twice = "twice as many steps for the same data, other gradients unless two are accumulated"
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
        return Answer.at("twice the memory", None, "no limit is known: give one with --memory-limit")
    step = dies_at(now.base, now.growth, now.room + now.limit)
    return Answer.at(f"twice the memory ({limit(2 * now.limit)})", step, "the hardware; what grows goes on growing")


def _empty_cache(now: Situation, as_is: float | None) -> Answer:
    asked = "empty_cache() at every step"
    if now.device != "cuda":
        return Answer.at(asked, as_is, "does nothing on the CPU")
    kept = f" ({size(now.cached)} at the last step)" if now.cached is not None else ""
    return Answer.at(
        asked, as_is, f"only blocks without a tensor go back{kept}, and the allocator gives those back itself before "
        "it says that memory ran out; each call waits for the device, and the driver is asked again",
    )  # fmt: skip


def _precision(now: Situation) -> Iterator[Answer]:
    """Activations in half precision take half the room; what of them autocast leaves in float32 is not known here.

    A graph saves autocast's copies of the weights: where graphs are kept, so is one more set of copies for each.
    """
    first = dies_at(now.base, now.growth, now.room)
    if now.float32 >= 0.02 * now.base:
        copies = now.parameters / 2
        kept = copies if any(g.graph_per_step > 0 for g in now.growths) else 0.0
        worst = dies_at(now.base + copies, now.growth + kept, now.room)
        last = dies_at(now.base - now.float32 / 2, now.growth / 2, now.room)
        yield Answer(
            "mixed precision", worst, last,
            f"saves {size(now.float32 / 2)} at most, of {size(now.float32)} of float32 activations; copies of weights, "
            f"{size(copies)} at most, come on top{' in every graph that is kept' if kept else ''}; `torchvet amp` "
            "measures it",
        )  # fmt: skip
    if now.half >= 0.02 * now.base:
        step = dies_at(now.base + now.half, 2 * now.growth, now.room)
        yield Answer(
            "mixed precision off", step, first,
            f"up to {size(now.half)} more: activations in half precision would be float32; range and speed change",
        )  # fmt: skip


def _checkpointing(now: Situation) -> Iterator[Answer]:
    activations = now.float32 + now.half
    if activations < 0.1 * now.base:
        return
    yield Answer(
        "activation checkpointing", dies_at(now.base, now.growth, now.room),
        dies_at(now.base - activations, now.growth, now.room),
        f"saves less than {size(activations)}: the blocks' inputs stay; about one more forward pass a step",
    )  # fmt: skip


def remarks(now: Situation) -> Iterator[str]:
    """Answers to what is said instead of measured."""
    if now.growth > 0:
        names = ", ".join(dict.fromkeys(g.holding.name for g in now.growths[:3]))
        held = f", held by {names}" if names else ""
        yield (
            f'"Growth is normal": {size(now.growth)} lived on from each of {count(now.steps, "step")}{held}. Live '
            "tensors are counted, not what the allocator keeps"
        )
    if now.loading is not None:
        yield f'"It is the loader": {percent(now.loading)} of the time went into waiting for data'
    if now.ran_out:
        yield "the program did run out of memory in this run"
