"""DST101: memory grows on some ranks only, and no name explains it."""

from __future__ import annotations

from torchvet.analysis import growth_of
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, Severity, size
from torchvet.rules.shared.witnesses import Witness, allocator, sampled_thresholds, witnesses

_ALONE = 4.0
"""How many times the rate of the others' the growth of a rank is."""


class RankLeaksAlone(Rule):
    """Memory grows on some ranks only, and no name explains it"""

    severity = "warning"
    found_with = ("run", "--nproc", "2")

    def in_recording(self, recording: Recording) -> Findings:
        """Each rank that grows, where a measure of growth says that others do not."""
        ranks = [one for one in recording.members if one.ticks]
        seen = {one.rank: {w.name: w for w in witnesses(one, recording)} for one in ranks}
        for one in ranks:
            for name, mine in seen[one.rank].items():
                others = {n: w[name] for n, w in seen.items() if n != one.rank and name in w}
                if mine.unit == "bytes" and _rises(one, mine) and _some_are_flat(mine, others):
                    yield self._finding(one, mine, others)
                    break

    def _finding(self, rank: RankRecording, mine: Witness, others: dict[int, Witness]) -> Finding:
        rate = mine.measured or 0.0
        flat = [n for n, w in others.items() if w.state == "flat"]
        most = max(max(0.0, others[n].measured or 0.0) for n in flat)
        who = f"rank {flat[0]} does" if len(flat) == 1 else f"{len(flat)} of {len(others)} other ranks do"
        return self.observed(
            rank,
            None,
            f"the {mine.name} of rank {rank.rank} grows by {size(rate)} per step beyond what names explain; {who} not: "
            f"{size(most)} at most",
            severity=_severity(rank, mine),
            cause="all ranks run the same step: what grows on some of them is kept by what these do alone, as logging, "
            "evaluation, saving, or what is gathered from the others",
            advice="look at what runs under a condition on the rank (`if rank == 0:`) and keeps something from step to "
            "step",
            # No rate: growth without a name has its own finding, which this one is not to replace.
            measured=Measured(steps=rank.ticks),
        )


def _rises(rank: RankRecording, mine: Witness) -> bool:
    """Whether it is sure that something without a name grows; names that grow are findings of their own."""
    named = mine.name == "live storages" and bool(growth_of(rank).growths)
    return mine.state == "grows" and not named and (mine.measured or 0.0) > sampled_thresholds(rank)[0]


def _some_are_flat(mine: Witness, others: dict[int, Witness]) -> bool:
    flat = [w for w in others.values() if w.state == "flat"]
    return bool(flat) and all((mine.measured or 0.0) > _ALONE * (w.measured or 0.0) for w in flat)


def _severity(rank: RankRecording, mine: Witness) -> Severity:
    """A note where MEM118 tells the same growth. It goes by one allocator: on a GPU the host's heap has no other."""
    told = mine.name in ("live storages", allocator(rank).name)
    return "info" if told or (mine.low or 0.0) <= sampled_thresholds(rank)[1] else "warning"
