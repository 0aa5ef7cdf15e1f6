"""One report for ranks that each watch themselves: the first has the records of all."""

from __future__ import annotations

from pathlib import Path

from torchvet.errors import BadInput
from torchvet.formatting import rank_names
from torchvet.probes.hosts.fellow_ranks import FellowRanks, Joined
from torchvet.recording import RankRecording, Recording, RecordingWriter, read
from torchvet.recording.records.ranks import Absent
from torchvet.recording.writer import claim
from torchvet.scratch import Scratch


class AllRanks:
    """This rank's watch among those of the others. `joined` says that the first rank has its records, and reports."""

    def __init__(self) -> None:
        """The watch begins."""
        self.joined = False
        self._fellows = FellowRanks()

    def end(self) -> None:
        """The watch ends: the others may hear of it."""
        self._fellows.announce()

    def join(self, recording: Recording, writer: RecordingWriter, failed: bool) -> Recording:
        """The recording with those of the other ranks, as far as they can be had. What is missing is written down."""
        own = recording.ranks[0] if recording.ranks else None
        group = self._fellows.group(own.member) if own is not None else None
        if own is None or group is None:
            return recording
        others: list[RankRecording] = []
        try:
            with Scratch() as folder:
                claim(folder)
                found = self._fellows.join(group, writer.path, folder, recording.path, failed)
                others = _read(folder, found)
        except (OSError, BadInput) as error:
            found = Joined(group.rank, group.world, dict.fromkeys(range(group.world), str(error)))
        self.joined = found.went
        missing = _missing(found)
        if missing is not None:
            own.lines.append(missing)
            # Where the first rank reports, nothing is missing in what is kept.
            if not self.joined:
                writer.write(missing)
        ranks = sorted([*recording.ranks, *others], key=lambda one: (one.ticks == 0, one.rank, one.child))
        return Recording(ranks, recording.path)


def _read(folder: Path, joined: Joined) -> list[RankRecording]:
    """The records that came. What a rank says of another is dropped, and that rank is missing."""
    found = [one for one in read(folder).ranks if one.name.partition(".")[0] == f"rank{one.rank}"]
    joined.came = [rank for rank in joined.came if any(one.rank == rank for one in found)]
    return [one for one in found if one.rank in joined.came]


def _missing(joined: Joined) -> Absent | None:
    """The ranks whose records did not come, and why."""
    missing = [rank for rank in range(joined.world) if rank not in (joined.rank, *joined.came)]
    if joined.went:
        return Absent(ranks=missing, reason="the report of rank 0 is on all ranks")
    reasons: dict[str, list[int]] = {}
    for rank in missing:
        reasons.setdefault(joined.reasons.get(rank) or "its records cannot be read", []).append(rank)
    said = [reason if len(reasons) == 1 else f"{rank_names(ranks)}: {reason}" for reason, ranks in reasons.items()]
    return Absent(ranks=missing, reason="; ".join(said)) if missing else None
