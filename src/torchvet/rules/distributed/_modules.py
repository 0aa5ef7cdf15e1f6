"""What rules read of modules in DistributedDataParallel, as the ranks of a run have recorded them."""

from __future__ import annotations

from torchvet.rules.kit import RankRecording, Recording, records


def modules_of(rank: RankRecording) -> list[records.ranks.DistributedModule]:
    """A rank's modules, as they were seen last."""
    return rank.latest(records.ranks.DistributedModule, "id")


def on_all_ranks(recording: Recording, number: int) -> list[records.ranks.DistributedModule]:
    """One module's records, one of each rank that has it: every rank makes the same modules in the same order."""
    return [module for rank in recording.ranks for module in modules_of(rank) if module.id == number]


def step_seconds(rank: RankRecording) -> float:
    """Seconds of a step as a rule; 0 where too few were seen."""
    # `check` loads rules of source without what reads recordings.
    from torchvet.analysis.time_facts import time_facts

    time = time_facts(rank).get("time") or {}
    return float(time.get("median") or time.get("seconds_per_step") or 0.0)


def share_of_step(rank: RankRecording, seconds: float) -> float | None:
    """The share of a step's time that these seconds are; None where that is not known."""
    step = step_seconds(rank)
    return min(1.0, seconds / step) if step else None
