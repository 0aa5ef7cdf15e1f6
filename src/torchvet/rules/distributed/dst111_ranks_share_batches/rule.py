"""DST111: all ranks train on the same batches."""

from __future__ import annotations

from torchvet.rules.distributed._replica_looks import of_parts
from torchvet.rules.kit import Findings, Recording, Rule, count, records

_ENOUGH = 5
"""Batches that were the same on all ranks, and differed among themselves."""


class RanksShareBatches(Rule):
    """All ranks train on the same batches, so that they do the work of one."""

    severity = "warning"
    found_with = ("run", "--nproc", "2")
    fix_changes_results = True

    def in_recording(self, recording: Recording) -> Findings:
        """By digests of the batches that loaders gave."""
        ranks = [one for one in recording.members if one.ticks]
        if len(ranks) < 2 or of_parts(ranks):
            return
        same = _same_on_all([{batch.number: batch for batch in one.all(records.ranks.Batch)} for one in ranks])
        if len({batch.digest for batch in same}) < _ENOUGH:
            return
        yield self.observed(
            ranks[0],
            same[-1].made or same[-1].place,
            f"{len(ranks)} ranks train on the same batches: all {count(len(same))} that were looked at are equal, bit "
            "for bit",
            cause="each rank's loader goes through the whole dataset in the same order: their averaged gradients are "
            "those of one rank",
            advice="give the loader a `DistributedSampler`, and call its `set_epoch` before each epoch",
        )


def _same_on_all(tables: list[dict[int, records.ranks.Batch]]) -> list[records.ranks.Batch]:
    """The batches that all ranks have looked at, if none differs."""
    numbers = sorted(set.intersection(*map(set, tables)))
    differ = any(len({table[n].digest for table in tables}) > 1 for n in numbers)
    return [] if differ else [tables[0][n] for n in numbers]
