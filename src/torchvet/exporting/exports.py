"""All exports of one command: refused before anything is read, fed while files are read, in place once all is well."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchvet.errors import BadInput
from torchvet.exporting.forms import ending_of, form_of
from torchvet.exporting.targets import Target

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory


class Exports:
    """The observer of an inspection that writes files. A context manager: what is not finished is removed.

    Raises `BadInput` for a name without a form, a name given twice (also as one of `others` that are written), and a
    place that cannot be written.
    """

    def __init__(self, paths: Sequence[Path], others: Sequence[Path] = ()) -> None:
        endings = [ending_of(path) for path in paths]
        self.needs_times = ".perfetto.json" in endings
        self._targets: list[Target] = []
        try:
            for path in paths:
                before = [target.path for target in self._targets]
                self._targets.append(Target(path))
                if any(self._targets[-1].is_same(other) for other in [*before, *others]):
                    raise BadInput(f"{path}: is given twice")
        except BaseException:
            self._abandon()
            raise
        self._forms = [form_of(e, t.stream) for e, t in zip(endings, self._targets, strict=True)]

    def __enter__(self) -> Exports:
        return self

    def __exit__(self, *exception: object) -> None:
        self._abandon()

    def files(self, paths: list[Path]) -> None:
        """Raises `BadInput` where an export would take the place of what is read."""
        for target in self._targets:
            if any(target.is_same(path) for path in paths):
                raise BadInput(f"{target.path}: is one of the files to be read; give another name for the export")

    def recording(self, recording: Recording) -> None:
        """Show the recording of a run to all forms. Raises `BadInput` where writing fails."""
        for target, form in zip(self._targets, self._forms, strict=True):
            with target.writing():
                form.recording(recording)

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """Show a snapshot to all forms. Raises `BadInput` where writing fails."""
        for target, form in zip(self._targets, self._forms, strict=True):
            with target.writing():
                form.snapshot(rank, memory)

    def trace(self, rank: RankTrace) -> None:
        """Show a trace to all forms. Raises `BadInput` where writing fails."""
        for target, form in zip(self._targets, self._forms, strict=True):
            with target.writing():
                form.trace(rank)

    def finish(self, report: Report) -> None:
        """Put all files in their places. Raises `BadInput` where writing fails."""
        for target, form in zip(self._targets, self._forms, strict=True):
            with target.writing():
                form.finish(report)
        for target in self._targets:
            target.commit()

    def _abandon(self) -> None:
        for target in self._targets:
            target.abandon()
