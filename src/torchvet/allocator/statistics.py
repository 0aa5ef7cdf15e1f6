"""What the allocator counts, in the shape of `torch.cuda.memory_stats_as_nested_dict`."""

from __future__ import annotations

Row = dict[str, int]


class Statistic:
    """One amount: what it is now, its most, and all that was ever added."""

    __slots__ = ("allocated", "base", "current", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.base = 0

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
    return {"current": current, "peak": peak, "allocated": allocated, "freed": base + allocated - current}


class Use:
    """Blocks in use, their bytes, and the bytes asked for: three statistics in one, as every request changes all."""

    __slots__ = (
        "asked", "asked_ever", "bases", "blocks", "blocks_ever", "bytes", "bytes_ever", "most", "most_asked",
        "most_blocks",
    )  # fmt: skip

    def __init__(self) -> None:
        self.blocks = self.bytes = self.asked = 0
        self.most_blocks = self.most = self.most_asked = 0
        self.blocks_ever = self.bytes_ever = self.asked_ever = 0
        self.bases = (0, 0, 0)

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

    def reset_peak(self) -> None:
        """The peaks begin anew from what is held now."""
        self.most_blocks, self.most, self.most_asked = self.blocks, self.bytes, self.asked

    def reset_accumulated(self) -> None:
        """What was added and what was taken away are counted anew from 0."""
        self.blocks_ever = self.bytes_ever = self.asked_ever = 0
        self.bases = (self.blocks, self.bytes, self.asked)

    def rows(self) -> tuple[Row, Row, Row]:
        """Of blocks, of their bytes, and of the bytes asked for."""
        blocks, held, asked = self.bases
        return (
            _row(self.blocks, self.most_blocks, self.blocks_ever, blocks),
            _row(self.bytes, self.most, self.bytes_ever, held),
            _row(self.asked, self.most_asked, self.asked_ever, asked),
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
        """By torch's names. A block is active as long as it is allocated: no stream keeps one waiting here."""
        blocks, held, asked = self.use.rows()
        split_blocks, split_bytes = self.split.rows()
        return {
            "allocation": blocks, "active": dict(blocks), "allocated_bytes": held, "active_bytes": dict(held),
            "requested_bytes": asked, "segment": self.segment.row(), "reserved_bytes": self.reserved_bytes.row(),
            "inactive_split": split_blocks, "inactive_split_bytes": split_bytes,
        }  # fmt: skip

    def reset_peak(self) -> None:
        """All peaks begin anew."""
        for part in (self.use, self.split, self.segment, self.reserved_bytes):
            part.reset_peak()

    def reset_accumulated(self) -> None:
        """All sums begin anew."""
        for part in (self.use, self.split, self.segment, self.reserved_bytes):
            part.reset_accumulated()
