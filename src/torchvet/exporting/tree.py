"""Weights by stack as an indented tree: a flame graph for a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from torchvet.exporting.plain import plain
from torchvet.formatting import ms, percent, size

if TYPE_CHECKING:
    from torchvet.exporting.stacks import Profile, StackFrame
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory

_LEAST = 0.005
"""The share of the whole below which a branch is summed up with its neighbors."""


class Branch:
    """What a frame weighs with all below it."""

    def __init__(self) -> None:
        self.weight = 0.0
        self.below: defaultdict[StackFrame, Branch] = defaultdict(Branch)

    def add(self, stack: tuple[StackFrame, ...], weight: float) -> None:
        """Add a stack's weight along its frames."""
        branch = self
        branch.weight += weight
        for frame in stack:
            branch = branch.below[frame]
            branch.weight += weight


class Tree:
    """Writes tree after tree."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._trees = 0

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """The peak of each device, and what its steps leave behind."""
        from torchvet.exporting.snapshot_stacks import profiles_of

        self._add(profiles_of(memory))

    def trace(self, rank: RankTrace) -> None:
        """Where a step goes."""
        from torchvet.exporting.trace_stacks import profiles_of

        self._add(profiles_of(rank))

    def recording(self, recording: Recording) -> None:
        """Where a step of the run goes, by line."""
        from torchvet.exporting.run_stacks import profiles_of

        self._add(profiles_of(recording))

    def finish(self, report: Report) -> None:
        """Says so where nothing was measured."""
        if not self._trees:
            self._stream.write("nothing was measured\n")

    def _add(self, profiles: Iterator[Profile]) -> None:
        for profile in profiles:
            root = Branch()
            for stack, weight in profile.weights:
                if weight > 0:
                    root.add(stack, weight)
            told = ms if profile.unit == "seconds" else size
            self._stream.write(f"{chr(10) if self._trees else ''}{plain(profile.name)}: {told(root.weight)}\n")
            for depth, name, weight in _rows(root, root.weight * _LEAST, 0):
                share = percent(weight / root.weight)
                self._stream.write(f"{share:>6} {told(weight):>10}  {'  ' * depth}{name}\n")
            self._trees += 1


def _rows(branch: Branch, least: float, depth: int) -> Iterator[tuple[int, str, float]]:
    """Depth, name and weight of all below, the heaviest first."""
    small = 0.0
    for frame, below in sorted(branch.below.items(), key=lambda item: -item[1].weight):
        if below.weight < least:
            small += below.weight
            continue
        where = f"  {frame.path}:{frame.line}" if frame.path and f":{frame.line}" not in frame.name else ""
        yield depth, plain(frame.name) + plain(where), below.weight
        yield from _rows(below, least, depth + 1)
    if small >= least:
        yield depth, "others, each small", small
