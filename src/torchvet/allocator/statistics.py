"""What the allocator counts, in the shape of `torch.cuda.memory_stats_as_nested_dict`."""

from __future__ import annotations

Row = dict[str, int]


class Statistic:
    """One amount: what it is now, its most, and all that was ever added."""

    __slots__ = ("allocated", "base", "current", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.base = 0

    # Written out wherever requests are counted: these run at every allocation of a simulated program.
    def grow(self, amount: int) -> None:
        """More of it."""
        self.allocated += amount
        self.current += amount
        if self.current > self.peak:
            self.peak = self.current

    def shrink(self, amount: int) -> None:
        """Less of it."""
        self.current -= amount

    def reset_peak(self) -> None:
        """The peak begins anew from what is held now."""
        self.peak = self.current

    def reset_accumulated(self) -> None:
        """What was added and what was taken away are counted anew from 0."""
        self.allocated, self.base = 0, self.current

    def row(self) -> Row:
        """Under torch's names."""
        return _row(self.current, self.peak, self.allocated, self.base)


def _row(current: int, peak: int, allocated: int, base: int) -> Row:
    """`base` is what was held when the sums were last set to 0."""
    # What was freed follows from the others: `free` need not count it.
    return {"current": current, "peak": peak, "allocated": allocated, "freed": base + allocated - current}


class Use:
    """Blocks in use, their bytes, and the bytes asked for: three statistics in one, as every request changes all."""

    __slots__ = (
        "asked", "asked_ever", "bases", "blocks", "blocks_ever", "bytes", "bytes_ever", "most", "most_asked",
        "most_blocks", "waiting", "waiting_bases",
    )  # fmt: skip

    def __init__(self) -> None:
        self.blocks = self.bytes = self.asked = 0
        self.most_blocks = self.most = self.most_asked = 0
        self.blocks_ever = self.bytes_ever = self.asked_ever = 0
        self.bases = self.waiting = self.waiting_bases = (0, 0, 0)
        """`waiting`: what was given back and is not yet done with on other streams."""

    def take(self, size: int, asked: int) -> None:
        """A block of `size` bytes is handed out for `asked`."""
        self.blocks_ever += 1
        self.bytes_ever += size
        self.asked_ever += asked
        self.blocks += 1
        self.bytes += size
        self.asked += asked
        if self.bytes > self.most:
            self.most = self.bytes
        if self.asked > self.most_asked:
            self.most_asked = self.asked
        if self.blocks > self.most_blocks:
            self.most_blocks = self.blocks

    def give_back(self, size: int, asked: int) -> None:
        """It is free again."""
        self.blocks -= 1
        self.bytes -= size
        self.asked -= asked

    def wait(self, blocks: int, size: int, asked: int) -> None:
        """Blocks that were given back wait for other streams, or are done with where negative."""
        before = self.waiting
        self.waiting = (before[0] + blocks, before[1] + size, before[2] + asked)

    def reset_peak(self) -> None:
        """The peaks begin anew from what is held now."""
        self.most_blocks, self.most, self.most_asked = self.blocks, self.bytes, self.asked

    def reset_accumulated(self) -> None:
        """What was added and what was taken away are counted anew from 0."""
        self.blocks_ever = self.bytes_ever = self.asked_ever = 0
        self.bases, self.waiting_bases = (self.blocks, self.bytes, self.asked), self.waiting

    def rows(self) -> tuple[Row, Row]:
        """Of blocks in use and of their bytes."""
        blocks, held, _ = self.bases
        return (
            _row(self.blocks, self.most_blocks, self.blocks_ever, blocks),
            _row(self.bytes, self.most, self.bytes_ever, held),
        )

    def active_rows(self) -> tuple[Row, Row, Row]:
        """Of blocks, of their bytes, and of the bytes asked for, those that wait for other streams included.

        Nothing waits any more when a block is handed out, so that the peaks are those of what is in use.
        """
        now, bases = self.waiting, [a + b for a, b in zip(self.bases, self.waiting_bases, strict=True)]
        return (
            _row(self.blocks + now[0], max(self.most_blocks, self.blocks + now[0]), self.blocks_ever, bases[0]),
            _row(self.bytes + now[1], max(self.most, self.bytes + now[1]), self.bytes_ever, bases[1]),
            _row(self.asked + now[2], max(self.most_asked, self.asked + now[2]), self.asked_ever, bases[2]),
        )


class Split:
    """Free blocks of segments that cannot be given back, and their bytes."""

    __slots__ = ("bases", "blocks", "blocks_ever", "bytes", "bytes_ever", "most", "most_blocks")

    def __init__(self) -> None:
        self.blocks = self.bytes = self.most = self.most_blocks = self.blocks_ever = self.bytes_ever = 0
        self.bases = (0, 0)

    def change(self, blocks: int, size: int) -> None:
        """So many more of so many bytes, or less where negative."""
        self.blocks += blocks
        self.bytes += size
        if blocks > 0:
            self.blocks_ever += blocks
            if self.blocks > self.most_blocks:
                self.most_blocks = self.blocks
        if size > 0:
            self.bytes_ever += size
            if self.bytes > self.most:
                self.most = self.bytes

    def reset_peak(self) -> None:
        """The peaks begin anew from what is held now."""
        self.most_blocks, self.most = self.blocks, self.bytes

    def reset_accumulated(self) -> None:
        """What was added and what was taken away are counted anew from 0."""
        self.blocks_ever = self.bytes_ever = 0
        self.bases = (self.blocks, self.bytes)

    def rows(self) -> tuple[Row, Row]:
        """Of blocks and of their bytes."""
        return (
            _row(self.blocks, self.most_blocks, self.blocks_ever, self.bases[0]),
            _row(self.bytes, self.most, self.bytes_ever, self.bases[1]),
        )


class Statistics:
    """What is counted of all pools, or of those of one size class."""

    __slots__ = ("reserved_bytes", "segment", "split", "use")

    def __init__(self) -> None:
        self.use, self.split = Use(), Split()
        self.segment, self.reserved_bytes = Statistic(), Statistic()

    def rows(self) -> dict[str, Row]:
        """By torch's names. A block is active as long as it is allocated or waits for another stream."""
        blocks, held = self.use.rows()
        active, active_bytes, asked = self.use.active_rows()
        split_blocks, split_bytes = self.split.rows()
        return {
            "allocation": blocks,
            "active": active,
            "allocated_bytes": held,
            "active_bytes": active_bytes,
            "requested_bytes": asked,
            "segment": self.segment.row(),
            "reserved_bytes": self.reserved_bytes.row(),
            "inactive_split": split_blocks,
            "inactive_split_bytes": split_bytes,
        }

    def reset_peak(self) -> None:
        """All peaks begin anew."""
        for part in (self.use, self.split, self.segment, self.reserved_bytes):
            part.reset_peak()

    def reset_accumulated(self) -> None:
        """All sums begin anew."""
        for part in (self.use, self.split, self.segment, self.reserved_bytes):
            part.reset_accumulated()
