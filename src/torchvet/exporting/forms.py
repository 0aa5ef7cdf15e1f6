"""The forms of exports, told by a file's name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from torchvet.errors import BadInput

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory


class Form(Protocol):
    """Writes what it is shown, file by file, to its stream."""

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """Write what a snapshot says; `rank` is its place among those given."""
        ...

    def trace(self, rank: RankTrace) -> None:
        """Write what a trace says."""
        ...

    def recording(self, recording: Recording) -> None:
        """Write where the time of a run's steps went."""
        ...

    def finish(self, report: Report) -> None:
        """Write what comes last. The stream is closed by who opened it."""
        ...


ENDINGS = {
    ".speedscope.json": "a flame graph for speedscope",
    ".perfetto.json": "a timeline for Perfetto or chrome://tracing",
    ".csv": "a table",
    ".jsonl": "tables as JSON Lines",
    ".txt": "a tree as text",
}
"""What a name ends in, and what is written then."""


def ending_of(path: Path) -> str:
    """The ending that says the form. Raises `BadInput` for a name without one of them."""
    for ending in ENDINGS:
        if path.name.lower().endswith(ending) and len(path.name) > len(ending):
            return ending
    known = ", ".join(f"*{ending} ({what})" for ending, what in ENDINGS.items())
    raise BadInput(f"{path}: the name of an export says its form; expected one of {known}")


def form_of(ending: str, stream: TextIO) -> Form:
    """What writes a form; loaded only when it is asked for."""
    if ending == ".speedscope.json":
        from torchvet.exporting.speedscope import Speedscope

        return Speedscope(stream)
    if ending == ".perfetto.json":
        from torchvet.exporting.perfetto import Perfetto

        return Perfetto(stream)
    if ending == ".txt":
        from torchvet.exporting.tree import Tree

        return Tree(stream)
    from torchvet.exporting.tables import Csv, JsonLines

    return Csv(stream) if ending == ".csv" else JsonLines(stream)
