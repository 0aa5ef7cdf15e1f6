"""When memory ends: one forecast for a run, from all that grows, that every finding and the facts go by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from torchvet.analysis import growth_of
from torchvet.rules.kit import Growth, RankRecording, Recording, records
from torchvet.rules.shared.bounds import bound_of

_WORTH = 0.05
"""Share of all growth from which on a finding says when memory ends: what is less has no part in it."""


_HOST = "can't allocate memory"
"""What torch says where the host has none left; it is a plain RuntimeError."""


@dataclass(frozen=True)
class Exhaustion:
    """All that grows without a bound, in bytes a step of `kind`, beside the memory that is left at step `now`."""

    rate: float
    kind: records.base.StepKind
    now: int
    left: int | None
    ran_out: bool = False

    @property
    def step(self) -> int | None:
        """The step at which memory ends; the last one, where it has ended."""
        if self.ran_out:
            return self.now
        # Growth goes on as it was: a straight line.
        return int(self.now + self.left / self.rate) if self.left is not None and self.rate > 0 else None

    def beside(self, rate: float) -> Exhaustion:
        """The same with growth that no search for names looks for."""
        return replace(self, rate=self.rate + rate)

    def share(self, rate: float) -> float:
        """The part that a finding's own rate has in it, from 0 to 1."""
        return min(1.0, rate / self.rate) if self.rate > 0 else 0.0

    def step_for(self, rate: float) -> int | None:
        """The step at which memory ends, for a finding that has a part in it; None where that is not worth a word."""
        return self.step if self.share(rate) >= _WORTH else None


# Findings, verdict and facts must name the same step.
_known: WeakKeyDictionary[RankRecording, Exhaustion] = WeakKeyDictionary()


def exhaustion_of(rank: RankRecording, recording: Recording) -> Exhaustion:
    """The forecast of one rank. It is worked out once."""
    if rank not in _known:
        _known[rank] = _forecast(rank, recording)
    return _known[rank]


def rank_of(growth: Growth, recording: Recording) -> RankRecording:
    """The rank whose growth it is."""
    own = growth.parts[0] if growth.parts else growth
    # A sum of names is in no rank's list; its first part is.
    return next((r for r in recording.ranks if own in growth_of(r).growths), recording.ranks[0])


def part_of(growth: Growth, rank: RankRecording) -> float:
    """What a growth takes of the memory that ends, in bytes a step of the forecast's kind: its tensors, and its graph's
    nodes where the host has both."""
    on_host = rank.program is None or rank.program.device == "cpu"
    # With a device nodes take other memory than tensors.
    own = growth.bytes_per_step + (records.base.NODE_BYTES * growth.nodes_per_step if on_host else 0)
    # What grows by evaluation batch takes so much by training step.
    return own * _turns(rank, growth.kind) / max(1, _turns(rank, growth_of(rank).kind))


def end_for(growth: Growth, rank: RankRecording, recording: Recording) -> int | None:
    """The step at which memory ends, in steps of the growth's own kind; None where it has no part in that."""
    forecast = exhaustion_of(rank, recording)
    step = forecast.step_for(part_of(growth, rank))
    if step is None or growth.kind == forecast.kind:
        return step
    # Back from the forecast's steps to the growth's own.
    per = _turns(rank, growth.kind) / max(1, _turns(rank, forecast.kind))
    return int(growth.last_step + (step - forecast.now) * per)


def _turns(rank: RankRecording, kind: records.base.StepKind) -> int:
    from torchvet.analysis.steps import current_steps

    return sum(s.count for s in current_steps(rank) if s.kind == kind)


def _forecast(rank: RankRecording, recording: Recording) -> Exhaustion:
    # Here, so that rules that read source load no reader of runs.
    from torchvet.analysis.growth import usable_censuses
    from torchvet.analysis.memory_limit import memory_left
    from torchvet.analysis.steps import steps_until

    kind = growth_of(rank).kind
    census = next(reversed(usable_censuses(rank)), None)
    now = steps_until(rank, census.tick if census is not None else rank.ticks, kind)
    rate, left = _of_names(rank, recording, memory_left(rank, census))
    # Where memory has run out, the end is known: the last step of the run, not that of the last census.
    outcome = rank.last(records.training.Outcome)
    ran_out = outcome is not None and (outcome.how == "out-of-memory" or _HOST in (outcome.error or ""))
    return Exhaustion(
        rate=rate + _without_a_name(rank),
        kind=kind,
        now=_turns(rank, kind) if ran_out else now,
        left=left,
        ran_out=ran_out,
    )


def _of_names(rank: RankRecording, recording: Recording, left: int | None) -> tuple[float, int | None]:
    """What the names that nothing bounds in time take a step, and the memory that is left when all others are full."""
    rate = 0.0
    for growth in growth_of(rank).growths:
        bound = bound_of(growth, recording)
        more = bound.bytes - growth.bytes if bound is not None and bound.bytes is not None else 0
        if bound is None or not bound.sure or (left is not None and more > left and bound.bytes is not None):
            rate += part_of(growth, rank)
        elif left is not None:
            # What is bounded takes its share of memory once; the rest runs out of what remains.
            left -= more
    return rate, left


def _without_a_name(rank: RankRecording) -> float:
    """What grows and has no name, but for garbage that the cyclic collector was seen to free."""
    from torchvet.analysis.growth import searched

    unnamed = growth_of(rank).unexplained
    use, census = rank.last(records.training.CollectorUse), searched(rank)
    garbage = census is not None and bool(census.strangers) and all(s.kind != "native" for s in census.strangers)
    freed = use is not None and use.enabled and use.freed > 0
    return max(0.0, unnamed - growth_of(rank).unreached) if garbage and freed else unnamed
