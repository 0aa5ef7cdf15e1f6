"""Timelines for Perfetto: of a snapshot's devices, and of a trace's ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from torchvet.exporting.chrome import Chrome

if TYPE_CHECKING:
    from torchvet.exporting.trace_timeline import Shown
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory


class Perfetto:
    """Writes them as Chrome's trace events."""

    def __init__(self, stream: TextIO) -> None:
        self._chrome = Chrome(stream)
        self._shown: list[Shown] = []

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """A process a device: counters of memory, steps, phases, the peak and what did not fit."""
        from torchvet.exporting.snapshot_timeline import add_device

        for device in memory.devices:
            add_device(self._chrome, device)

    def trace(self, rank: RankTrace) -> None:
        """A process a rank, at the times of the original: steps, phases, why the device was idle."""
        from torchvet.exporting.trace_timeline import add_rank

        shown = add_rank(self._chrome, rank)
        self._shown += [shown] if shown is not None else []

    def recording(self, recording: Recording) -> None:
        """A process a rank: its steps, and how long their phases took."""
        from torchvet.exporting.run_timeline import add_run

        self._shown += [shown for rank in recording.ranks if (shown := add_run(self._chrome, rank)) is not None]

    def finish(self, report: Report) -> None:
        """The findings of traces and runs, and what is to be known of the file."""
        if self._shown:
            from torchvet.exporting.trace_timeline import add_findings

            add_findings(self._chrome, self._shown, report)
        bases = {shown.base for shown in self._shown}
        self._chrome.finish(bases.pop() if len(bases) == 1 else None)
