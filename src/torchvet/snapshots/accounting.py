"""Where reserved bytes go: asked for, rounded up, not worth splitting off, free in parts, free whole."""

from __future__ import annotations

from dataclasses import dataclass

from torchvet.allocator.sizes import SMALLEST
from torchvet.readers.snapshot import Segment


@dataclass(frozen=True)
class Accounting:
    """Bytes at the moment of the snapshot; the five parts add up to `reserved`.

    `rounding` is up to a multiple of 512; `slack` is what a block got beyond that because the rest was too small to be
    split off (up to 1 MiB in large segments) or because of other rounding settings.
    """

    requested: int
    rounding: int
    slack: int
    split_free: int
    whole_free: int
    reserved: int


def account(segments: tuple[Segment, ...]) -> Accounting:
    """Add up a device's segments. Free parts of expandable segments count as whole: their pages can be given back."""
    requested = rounding = slack = split = whole = 0
    for segment in segments:
        for block in segment.blocks:
            if block.active:
                rounded = min(block.size, max(SMALLEST, -(-block.requested // SMALLEST) * SMALLEST))
                requested += block.requested
                rounding += rounded - block.requested
                slack += block.size - rounded
        split += segment.split_free
        whole += segment.size - segment.held - segment.split_free
    return Accounting(requested, rounding, slack, split, whole, sum(s.size for s in segments))
