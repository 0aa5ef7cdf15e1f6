"""DST110: parameters that should be the same on all ranks are not."""

from __future__ import annotations

from torchvet.recording import records
from torchvet.rules.distributed import _replica_looks as replica_looks
from torchvet.rules.distributed._called import parted
from torchvet.rules.distributed._modules import modules_of
from torchvet.rules.distributed._replica_causes import cause_of, done
from torchvet.rules.kit import Finding, Findings, RankRecording, Recording, Rule, Severity, count

_NAMES = 3


class ReplicasDiverge(Rule):
    """Parameters that should be the same on all ranks are not."""

    severity = "error"
    found_with = ("run", "--nproc", "2")
    fix_changes_results = True

    def in_recording(self, recording: Recording) -> Findings:
        """By digests of the parameters' bits after the same steps, and of the buffers that an evaluation went by."""
        ranks = recording.members
        yield from self._buffers(ranks)
        apart = parted(ranks)
        numbers = {r.optimizer for one in ranks for r in one.all(records.ranks.Replicas)}
        for number in sorted(numbers) if len(ranks) > 1 else ():
            # Where one rank goes on alone, as under `Join` with uneven inputs, a number is not of the same moment.
            seen = replica_looks.looks_of(ranks, number)
            looks = [look for look in seen if apart is None or look.step < apart.step]
            first = next((look for look in looks if look.apart()), None)
            if first is None or replica_looks.are_averaged(looks) or not replica_looks.are_alike(looks):
                continue
            if not _was_unfinished(ranks, first):
                yield self._of(recording, ranks[0], first, looks)

    def _buffers(self, ranks: list[RankRecording]) -> Findings:
        tables = [{(r.id, r.number): r for r in one.all(records.ranks.EvaluatedBuffers)} for one in ranks]
        for key in sorted(set.intersection(*map(set, tables))) if len(tables) > 1 else ():
            looked = [table[key] for table in tables]
            if len({one.digest for one in looked}) > 1:
                made = next((m.place for m in modules_of(ranks[0]) if m.id == looked[0].id), None)
                yield self.observed(
                    ranks[0],
                    made or looked[0].place,
                    f"ranks evaluate models that differ: their buffers are not the same (`{looked[0].name}` and "
                    "others)",
                    cause="each rank's batches update its own buffers, and `broadcast_buffers=False` keeps them apart",
                    advice="leave `broadcast_buffers` on, use `SyncBatchNorm`, or evaluate on one rank",
                    severity="warning",
                    related=[self.beside("evaluates", "each rank with its own buffers", looked[0].place)],
                )
                return

    def _of(
        self, recording: Recording, rank: RankRecording, first: replica_looks.Look, looks: list[replica_looks.Look]
    ) -> Finding:
        apart = first.apart()
        cause = cause_of(recording, first, looks)
        wrapped = replica_looks.were_wrapped(first, looks)
        every = max(len(one.parameters) for one in first.of_ranks)
        some = len(apart) < every
        since = "before the first step" if replica_looks.differ_before(apart) else f"after step {first.step}"
        names = ", ".join(f"`{row[0].name}`" for row in apart[:_NAMES])
        more = f" and {len(apart) - _NAMES} more" if len(apart) > _NAMES else ""
        of = f"{count(len(apart))} of {count(every, 'parameter')}" if some else "all parameters"
        severity: Severity = "error" if wrapped or some or replica_looks.same_gradients(apart) else "warning"
        if not wrapped and done(recording.members, "exchanged"):
            severity = "info"
        return self.observed(
            rank,
            cause.place or first.of_ranks[0].place,
            f"{of} differ between the ranks {since}: {names}{more}",
            cause=cause.why,
            advice=cause.advice,
            severity=severity,
        )


def _was_unfinished(ranks: list[RankRecording], first: replica_looks.Look) -> bool:
    """Whether the average before this step never ended, which is DST104's to say. The next pass raises then."""
    failed = any(True for one in ranks for _ in one.all(records.ranks.UnfinishedReduction))
    return failed and first.step >= min(one.ticks for one in ranks)
