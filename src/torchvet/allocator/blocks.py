"""Blocks in a chain of neighbours, and the free ones of a pool in order."""

from __future__ import annotations

from bisect import bisect_left, insort


class Block:
    """A stretch of device memory. Unmapped ones are addresses of an expandable segment without memory behind them."""

    __slots__ = ("address", "after", "allocated", "before", "mapped", "pool", "requested", "segment", "size")

    def __init__(self, address: int, size: int, pool: Pool, segment: int) -> None:
        self.address, self.size, self.pool, self.segment = address, size, pool, segment
        self.requested = 0
        self.allocated = False
        self.mapped = True
        self.before: Block | None = None
        self.after: Block | None = None

    @property
    def split(self) -> bool:
        """Whether it is a part of its segment."""
        return self.before is not None or self.after is not None

    @property
    def free(self) -> bool:
        """Whether it can be handed out as it is."""
        return self.mapped and not self.allocated


class Pool:
    """The free blocks of one size class and one stream, smallest first and then lowest address first."""

    __slots__ = ("blocks", "order", "small", "stream", "unmapped")

    def __init__(self, small: bool, stream: int) -> None:
        self.small, self.stream = small, stream
        self.order: list[tuple[int, int]] = []
        self.blocks: dict[int, Block] = {}
        self.unmapped: list[tuple[int, Block]] = []
        """By address; addresses differ, so that blocks are never compared."""

    def add(self, block: Block) -> None:
        """A block that is free from now on."""
        insort(self.order, (block.size, block.address))
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        """A block that is handed out, merged or given back."""
        del self.order[bisect_left(self.order, (block.size, block.address))]
        del self.blocks[block.address]

    def best(self, size: int) -> Block | None:
        """The smallest free block of at least `size` bytes, the lowest address of several."""
        at = bisect_left(self.order, (size, 0))
        return self.blocks[self.order[at][1]] if at < len(self.order) else None


def cut(block: Block, size: int) -> Block:
    """Shorten a block to `size` bytes and give the new block that is its rest."""
    rest = Block(block.address + size, block.size - size, block.pool, block.segment)
    rest.mapped = block.mapped
    rest.before, rest.after = block, block.after
    if block.after is not None:
        block.after.before = rest
    block.after = rest
    block.size = size
    return rest


def absorb(block: Block, other: Block) -> None:
    """Lengthen a block by its neighbour, which is no block any more."""
    block.size += other.size
    if block.before is other:
        block.address, block.before = other.address, other.before
        if other.before is not None:
            other.before.after = block
    else:
        block.after = other.after
        if other.after is not None:
            other.after.before = block
