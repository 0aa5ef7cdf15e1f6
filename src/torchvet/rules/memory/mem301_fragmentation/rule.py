"""MEM301: free memory that nothing large fits into."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchvet.allocator import Settings
from torchvet.rules.kit import Finding, Findings, Measured, Related, Rule, Severity, SnapshotMemory, size
from torchvet.rules.shared.snapshot_rule import in_memory, location_of, named
from torchvet.snapshots.replaying import replay

if TYPE_CHECKING:
    from torchvet.snapshots.failure import Failure
    from torchvet.snapshots.layout import Layout, Pin
    from torchvet.snapshots.memory import DeviceMemory

_LOOKED_AT, _WARNING = 0.10, 0.25
"""Shares of the reserved memory that lie free in split segments: to be looked at, and to be a warning where nothing has
failed. Healthy recordings come to 14 % at most."""
_SAVED = 0.10
"""The share that the replay must save for less than `_WARNING` to be reported."""
_EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_WORTH = 64 << 20
"""Bytes below which nobody sets an environment variable."""


class Fragmentation(Rule):
    """Free memory lies in pieces between blocks in use, and nothing large fits into it."""

    severity = "warning"

    runs_on = "cuda"

    def in_snapshot(self, snapshot: SnapshotMemory) -> Findings:
        """Split segments at the last out-of-memory error; without one at the peak, or at the end."""
        for memory in snapshot.devices:
            if memory.failure is not None:
                if memory.failure.reason == "fragmentation":
                    replayed = _would_fit(memory, memory.failure)
                    yield self._finding(memory, memory.layout, "error", "when memory ran out", replayed)
                continue
            when, layout = "at the peak", memory.layout
            # The peak is the moment that counts, unless only the end is bad.
            if layout.share < _WARNING and memory.layout_at_end.share >= _WARNING:
                when, layout = "at the end", memory.layout_at_end
            # Healthy runs reserve 1.9 to 4 times what they use, so only what lies free in split segments counts.
            if layout.share >= _LOOKED_AT and layout.split_free >= _WORTH:
                yield from self._judged(memory, layout, when)

    def _judged(self, memory: DeviceMemory, layout: Layout, when: str) -> Findings:
        replayed = _saving(memory)
        # A program that has freed most of its memory will hardly ask for it again.
        busy = when == "at the peak" or 2 * memory.end.bytes >= memory.peak.bytes
        # Below the share only what the replay proves to help.
        if layout.share >= _WARNING or replayed.helps:
            yield self._finding(
                memory, layout, "warning" if layout.share >= _WARNING and busy else "info", when, replayed
            )

    def _finding(
        self, memory: DeviceMemory, layout: Layout, severity: Severity, when: str, replayed: _Replayed
    ) -> Finding:
        failure = memory.failure
        place = layout.pins[0].place if layout.pins else None
        wanted = f"; {size(failure.requested)} were asked for" if failure else ""
        pinned = _pinning(layout.pins[0]) if layout.pins else "blocks in use"
        elsewhere = (
            f"allocate what {named(place)} keeps before the large temporaries, or into one tensor made beforehand"
        )
        return in_memory(
            self, memory, severity=severity, place=place,
            message=f"{size(layout.split_free)} ({layout.share:.0%} of what is reserved) lie free in "
            f"{layout.split_segments:,} split segments {when}, the largest piece {size(layout.largest_free)}{wanted}",
            cause=f"{pinned} keep these segments from being given back; {replayed.words}",
            advice=f"set {_EXPANDABLE}, or {elsewhere}" if replayed.helps else elsewhere,
            related=[_related(pin) for pin in layout.pins[:4]], measured=Measured(bytes=layout.split_free),
        )  # fmt: skip


class _Replayed(NamedTuple):
    """What expandable segments come to in the replay."""

    helps: bool
    words: str


def _saving(memory: DeviceMemory) -> _Replayed:
    """How much less is reserved."""
    now = memory.peak_reserved
    saved = now - replay(memory, Settings(expandable_segments=True)).peak_reserved
    if saved >= _SAVED * now and saved >= _WORTH:
        return _Replayed(True, f"the replay with expandable segments reserves {size(saved)} ({saved / now:.0%}) less")
    return _Replayed(False, "the replay with expandable segments reserves about as much")


def _would_fit(memory: DeviceMemory, failure: Failure) -> _Replayed:
    """Whether the same allocations fit into the same memory with expandable segments."""
    then = replay(memory, Settings(expandable_segments=True), failure.capacity)
    # It may still run out later, but not at this request.
    if then.failed_at is None or then.failed_at > failure.at:
        return _Replayed(True, "in the replay with expandable segments the request fits")
    return _Replayed(False, "in the replay with expandable segments memory runs out all the same")


def _pinning(pin: Pin) -> str:
    return f"{pin.blocks:,} {'block' if pin.blocks == 1 else 'blocks'} of {named(pin.place, pin.category)}"


def _related(pin: Pin) -> Related:
    number = f"{len(pin.segments):,} {'segment' if len(pin.segments) == 1 else 'segments'}"
    message = f"{pin.category}: {size(pin.bytes)} keep {size(pin.free)} in {number}"
    return Rule.beside("pinned by", message, location_of(pin.place))
