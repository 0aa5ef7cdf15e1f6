"""Speedscope's file format: sampled profiles over shared frames.

After https://www.speedscope.app/file-format-schema.json and src/lib/file-format-spec.ts of jlfwong/speedscope, whose
importer refuses negative weights, passes over weights of 0, and takes the name of the first profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from torchvet._version import __version__
from torchvet.exporting.plain import number, plain, to_json
from torchvet.exporting.stacks import Profile, StackFrame

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class Speedscope:
    """Writes profile after profile, and the frames that they share at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._frames: dict[StackFrame, int] = {}
        self._profiles = 0
        head = to_json({"$schema": SCHEMA, "version": __version__, "exporter": f"torchvet {__version__}"})
        stream.write(head.removesuffix("}") + ',"name":"torchvet","profiles":[')

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """The peak of each device, and what its steps leave behind."""
        from torchvet.exporting.snapshot_stacks import profiles_of

        for profile in profiles_of(memory):
            self._add(profile)

    def trace(self, rank: RankTrace) -> None:
        """Where a step goes."""
        from torchvet.exporting.trace_stacks import profiles_of

        for profile in profiles_of(rank):
            self._add(profile)

    def recording(self, recording: Recording) -> None:
        """Where a step of the run goes, by line."""
        from torchvet.exporting.run_stacks import profiles_of

        for profile in profiles_of(recording):
            self._add(profile)

    def finish(self, report: Report) -> None:
        """The frames. A file has one profile at least: the importer asks for the first one's name."""
        if not self._profiles:
            self._add(Profile("nothing was in use", "bytes", ()))
        frames = [_frame(f) for f in self._frames]
        self._stream.write('],"shared":{"frames":[' + ",\n".join(map(to_json, frames)) + "]}}\n")

    def _add(self, profile: Profile) -> None:
        samples: list[list[int]] = []
        weights: list[float] = []
        for stack, weight in profile.weights:
            if number(weight) > 0:
                samples.append([self._frames.setdefault(f, len(self._frames)) for f in stack])
                weights.append(weight)
        self._stream.write(",\n" if self._profiles else "\n")
        row = {"type": "sampled", "name": plain(profile.name), "unit": profile.unit, "startValue": 0}
        row |= {"endValue": number(sum(weights)), "samples": samples, "weights": weights}
        self._stream.write(to_json(row))
        self._profiles += 1


def _frame(frame: StackFrame) -> dict[str, Any]:
    found: dict[str, Any] = {"name": plain(frame.name) or "(no name)"}
    if frame.path:
        found["file"] = plain(frame.path)
    if frame.line > 0:
        found["line"] = frame.line
    return found
