"""Collects what is to be drawn while files are inspected, so that none is read twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchvet.charts import Chart, Drawing

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory

MOST_FILES = 16
"""Files whose charts are drawn; the findings are of all."""


class Drawn:
    """The observer of an inspection that draws. `drawing` gives the charts once there is a report."""

    needs_times = True

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._charts: list[Chart] = []
        self._missing: list[str] = []
        self._traces: list[RankTrace] = []
        self._files = 0

    def files(self, paths: list[Path]) -> None:
        """The files that will be read."""
        self._files = len(paths)
        if len(paths) > MOST_FILES:
            self._missing.append(f"those of {len(paths) - MOST_FILES} of {len(paths)} files are left out")

    def recording(self, recording: Recording) -> None:
        """A recording of a run."""
        self._recording = recording

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """A snapshot: drawn at once, since its events are not kept."""
        from torchvet.drawing.snapshot import charts_of_snapshot

        if rank < MOST_FILES:
            self._charts += charts_of_snapshot(memory, rank if self._files > 1 else None, self._missing)

    def trace(self, rank: RankTrace) -> None:
        """The digest of a trace."""
        self._traces.append(rank)

    def drawing(self, report: Report) -> Drawing:
        """All that can be drawn."""
        if self._recording is not None:
            from torchvet.drawing.run import drawing_of

            return drawing_of(self._recording, report)
        if self._traces:
            from torchvet.drawing.trace import charts_of_traces

            self._charts += charts_of_traces(self._traces[:MOST_FILES], report, self._missing)
        return Drawing(charts=self._charts, missing=self._missing)
