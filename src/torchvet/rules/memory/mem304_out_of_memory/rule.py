"""MEM304: a request that the device could not meet, or a peak above the limit that the user gives, explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import limit
from torchvet.rules.kit import Finding, Findings, Measured, Related, Rule, SnapshotMemory, percent, size
from torchvet.rules.shared.snapshot_rule import allocated, in_memory, named
from torchvet.snapshots.categories import GRADIENTS, STATE

if TYPE_CHECKING:
    from torchvet.snapshots.failure import AboveLimit, Failure, Shortage


class OutOfMemory(Rule):
    """The device ran out of memory: what was alive, and whether by growth, peak or fragmentation."""

    severity = "error"

    runs_on = "cuda"

    def in_snapshot(self, snapshot: SnapshotMemory) -> Findings:
        """The last request that failed; a program that allocated on for a step or more had caught it."""
        for memory in snapshot.devices:
            if memory.failure is not None:
                yield self._failed(memory.failure)
            # Only where nothing has failed: a failure has its own limit.
            elif memory.above_limit is not None:
                yield self._would_fail(memory.above_limit)

    def _would_fail(self, peak: AboveLimit) -> Finding:
        memory, used = peak.memory, peak.moment.bytes
        step = memory.first_above(peak.capacity) if memory.phases.boundaries else None
        return in_memory(
            self,
            memory,
            severity="error",
            place=peak.stack.place if peak.at >= 0 else None,
            message=f"the recorded program had {size(used)} in use at its peak{_at(peak)}; that does not fit into "
            f"{limit(peak.capacity)}: {_reasons(peak)}",
            cause=f"alive at the peak: {_shares(peak)}",
            advice=_advice(peak),
            related=[*(allocated(row) for row in peak.moment.lines[:3])],
            measured=Measured(bytes=used - peak.capacity, peak_bytes=used, exhausted_at_step=step),
        )

    def _failed(self, failure: Failure) -> Finding:
        memory, layout, used = failure.memory, failure.layout, failure.moment.bytes
        caught = _caught(failure)
        after = "; the program caught it and went on" if caught else ""
        return in_memory(
            self, memory, severity="info" if caught else "error", place=failure.stack.place,
            message=f"{named(failure.stack.place)} asked for {size(failure.requested)}; {size(used)} were in use, "
            f"{size(layout.split_free)} free in pieces and {size(failure.driver_free)} left at the driver, of "
            f"{limit(failure.capacity)}: {_reasons(failure)}{after}",
            cause=f"alive then: {_shares(failure)}", advice=_advice(failure),
            related=[*(allocated(row) for row in failure.moment.lines[:3]), *_shortcuts(failure)],
            measured=Measured(bytes=failure.requested, peak_bytes=used),
        )  # fmt: skip


def _at(peak: AboveLimit) -> str:
    return f" (step {peak.memory.phases.step(peak.at):,})" if peak.memory.phases.boundaries else ""


def _shares(short: Shortage) -> str:
    held = list(short.moment.by_category.items())[:4]
    return ", ".join(f"{name} {percent(amount / short.moment.bytes)}" for name, amount in held)


def _shortcuts(failure: Failure) -> list[Related]:
    """What is usually tried first, and what it would buy here."""
    moment = failure.moment
    # "At most", since not all of it grows with the batch.
    found = [f"half the batch saves {size(failure.of_the_batch / 2)} at most, of {size(moment.bytes)} in use"]
    if failure.leaked and failure.growth:
        more = failure.capacity / max(1.0, failure.growth.explained)
        found.append(f"twice the memory lasts {more:,.0f} steps longer")
    found.append("`empty_cache()` buys nothing: all that could be given back was, before the error")
    return [Related(role="would buy", message=text) for text in found]


def _caught(failure: Failure) -> bool:
    """Whether steps were taken after the last failure."""
    phases = failure.memory.phases
    # A later step began: an error that nobody caught ends the program in its step.
    return phases.step(len(failure.memory.lifetimes.trace)) > phases.step(failure.at)


def _reasons(failure: Shortage) -> str:
    if failure.reason == "fragmentation":
        return "enough was free, but not in one piece (MEM301)"
    if failure.reason == "growth":
        growth = failure.growth
        rate = f", {size(growth.explained)} in every step" if growth else ""
        return f"{size(failure.leaked)} of it had leaked{rate}"
    return "one step needs more than there is"


def _advice(failure: Shortage) -> str:
    if failure.reason == "fragmentation":
        return "see MEM301: what pins the segments, and whether expandable segments help here"
    if failure.reason == "growth":
        return "fix the leak (MEM101, MEM102): a smaller batch or a larger card only postpones the end"
    moment = failure.moment
    # Categories may have a device or a dtype in brackets behind them.
    fixed = moment.total(lambda name: name.split(" (")[0] in ("parameters", GRADIENTS, STATE))
    if failure.of_the_batch > fixed:
        share = percent(failure.of_the_batch / moment.bytes)
        return (
            f"{share} of it are activations and temporaries: half the batch with two micro-steps saves up to half of "
            "that; checkpointing or autocast likewise"
        )
    if not fixed:
        return (
            "call `torch.cuda.memory._record_memory_history()` before the steps of interest: then the snapshot says "
            "what this memory is and which lines allocate it"
        )
    return (
        f"parameters, gradients and optimizer state take {size(fixed)} whatever the batch: shard them, use 8-bit "
        "or lower-precision state, or a larger card"
    )
