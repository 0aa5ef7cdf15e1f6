"""Real recordings played through the model of the allocator, held against what the GPU's allocator did.

    python benchmarks/simulated_allocator.py DIRECTORY-OR-FILE...

Memory is first laid out as it was before the first event (the final state played backwards). Then every allocation and
every free of the trace is done again. Compared are: the address that each allocation was given; what is reserved and
allocated at each segment event and at the end; and at the end each segment's blocks, one by one. Addresses of new
segments are the driver's choice and taken from the file; when a segment is asked for, and how large, is the model's.
Exits with 1 where an error is above 1 %.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.initial_state import pieces_at_the_beginning
from torchvet.allocator import CachingAllocator, Settings
from torchvet.allocator.sizes import rounded
from torchvet.readers.isolated import read_snapshot
from torchvet.readers.snapshot import ALLOC, FREES, SEGMENT_ALLOC, SEGMENT_FREE, Snapshot, Trace

ALLOWED = 0.01


class Guided(CachingAllocator):
    """Places segments where the recording has them."""

    def __init__(self, settings: Settings, driver: deque[tuple[int, int]]) -> None:
        super().__init__(settings=settings)
        self._driver = driver
        self.unforeseen = 0

    def addresses(self, size: int) -> int:
        """Where the recording's next segment is, if it has the same size."""
        if self._driver and self._driver[0][1] == size:
            return self._driver.popleft()[0]
        self.unforeseen += 1
        return super().addresses(size)


@dataclass
class Compared:
    """One trace: counts, and errors as shares of what the file says."""

    name: str
    allocations: int = 0
    same: int = 0
    segment_events: int = 0
    reserved_error: float = 0.0
    allocated_error: float = 0.0
    end_error: float = 0.0
    layouts: tuple[int, int] = (0, 0)
    unknown: int = 0
    seconds: float = 0.0
    peak: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """The largest error."""
        return max(self.reserved_error, self.allocated_error, self.end_error)


class Replay:
    """One device's trace, played forward."""

    def __init__(self, snapshot: Snapshot, trace: Trace) -> None:
        self.snapshot, self.trace = snapshot, trace
        settings = Settings()
        new = deque((trace.addresses[at], trace.sizes[at]) for at in trace.where(SEGMENT_ALLOC))
        self.model = Guided(settings, new)
        for piece in pieces_at_the_beginning(snapshot, trace, settings):
            self.model.adopt(piece.small, piece.stream, piece.blocks)
        self.reserved, self.allocated = self.model.reserved, self.model.allocated
        """What the file says of now."""
        self.moved = {b.address: b.address for chain in self.model.chains() for b in chain if b.allocated}
        self.sizes: dict[int, int] = {}
        """What the model gave for addresses of the file."""
        self.found = Compared(Path(snapshot.path).stem)
        self.settings = settings

    def run(self) -> Compared:
        """All events, then the final state."""
        started = time.perf_counter()
        due = False
        streams = self.trace.streams or bytes(len(self.trace))
        columns = zip(self.trace.actions, self.trace.addresses, self.trace.sizes, streams, strict=True)
        for code, address, size, stream in columns:
            if code in (SEGMENT_ALLOC, SEGMENT_FREE):
                self.reserved += size if code == SEGMENT_ALLOC else -size
                self.found.segment_events += 1
                due = True
            elif code == ALLOC:
                self._allocate(address, size, stream)
                if due:
                    self._compare()
                due = False
            elif code in FREES:
                self._free(address, size)
        self.found.seconds = time.perf_counter() - started
        self.found.peak = self.model.peak_allocated
        self._compare()
        self._at_the_end()
        return self.found

    def _allocate(self, address: int, size: int, stream: int) -> None:
        given = self.model.malloc(size, stream)
        self.moved[address] = given
        self.found.allocations += 1
        self.found.same += given == address
        self.sizes[address] = rounded(size, self.settings)
        self.allocated += self.sizes[address]

    def _free(self, address: int, size: int) -> None:
        given = self.moved.pop(address, None)
        if given is None:
            self.found.unknown += 1
            return
        self.allocated -= self.sizes.pop(address, self.model.size_of(given))
        self.model.free(given)

    def _compare(self) -> None:
        """The file's allocated bytes lack what blocks have beyond their rounded request: that is the model's alone."""
        found, model = self.found, self.model
        found.reserved_error = max(found.reserved_error, _share(model.reserved, self.reserved))
        found.allocated_error = max(found.allocated_error, _share(model.allocated, self.allocated))

    def _at_the_end(self) -> None:
        segments = [s for s in self.snapshot.segments if s.device == self.trace.device and not s.expandable]
        self.found.end_error = max(
            _share(self.model.allocated, sum(s.held for s in segments)),
            _share(self.model.reserved, sum(s.size for s in segments)),
        )
        theirs = {s.address: [(b.address, b.size, b.active) for b in s.blocks] for s in segments}
        ours = {c[0].address: [(b.address, b.size, b.allocated) for b in c] for c in self.model.chains()}
        self.found.layouts = sum(ours.get(a) == blocks for a, blocks in theirs.items()), len(theirs)
        if self.model.unforeseen:
            self.found.notes.append(f"{self.model.unforeseen} segments that the file does not have")


def _share(ours: int, theirs: int) -> float:
    return abs(ours - theirs) / max(theirs, 1)


def compare(path: Path) -> list[Compared]:
    """Every device's trace of a file."""
    snapshot = read_snapshot(path)
    return [Replay(snapshot, trace).run() for trace in snapshot.traces if len(trace)]


def _row(c: Compared) -> str:
    return (
        f"| {c.name} | {c.allocations:,} | {c.same / max(c.allocations, 1):.2%} | {c.segment_events} "
        f"| {c.reserved_error:.3%} | {c.allocated_error:.3%} | {c.end_error:.3%} | {c.layouts[0]} of {c.layouts[1]} "
        f"| {c.peak / (1 << 20):,.0f} | {1e6 * c.seconds / max(c.allocations, 1):.1f} | {'; '.join(c.notes)} |"
    )


def main() -> None:
    """One table of all files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    paths = [p for given in parser.parse_args().paths for p in (sorted(given.glob("*.pickle")) or [given])]
    print(
        "| recording | allocations | same address | segment events | reserved, worst error | allocated, worst error "
        "| at the end | segments laid out alike | peak MiB | µs an allocation and its free | notes |\n"
        + "|---" * 11
        + "|"
    )
    found = [compared for path in paths for compared in compare(path)]
    for compared in found:
        print(_row(compared))
    sys.exit(any(c.worst > ALLOWED for c in found))


if __name__ == "__main__":
    main()
