"""Blocks in a chain of neighbours, and the free ones of a pool in order."""

from __future__ import annotations

from bisect import bisect_left, insort

from torchvet.allocator.statistics import Statistics


class Block:
    """A stretch of device memory. Unmapped ones are addresses of an expandable segment without memory behind them."""

    __slots__ = (
        "address", "after", "allocated", "before", "expandable", "mapped", "pool", "requested", "segment", "since",
        "size", "waiting",
    )  # fmt: skip

    def __init__(self, address: int, size: int, pool: Pool, segment: int, expandable: bool = False) -> None:
        self.address, self.size, self.pool, self.segment = address, size, pool, segment
        self.expandable = expandable
        self.requested = self.since = 0
        self.allocated = self.waiting = False
        """`waiting`: given back, and not yet done with on other streams."""
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
        return self.mapped and not self.allocated and not self.waiting

    @property
    def age(self) -> int:
        """How often its pool was searched since it became free."""
        return self.pool.searches - self.since


class Pool:
    """The free blocks of one size class and one stream, smallest first and then lowest address first.

    `statistics` are those of the size class, of all streams.
    """

    __slots__ = ("blocks", "order", "searches", "small", "statistics", "stream", "unmapped")

    def __init__(self, small: bool, stream: int, statistics: Statistics) -> None:
        self.small, self.stream, self.statistics = small, stream, statistics
        # `(size, address)` in one sorted list: best fit is a bisection, ties go to the lower address as in
        # torch's set.
        self.order: list[tuple[int, int]] = []
        self.blocks: dict[int, Block] = {}
        self.unmapped: list[tuple[int, Block]] = []
        """By address; addresses differ, so that blocks are never compared."""
        self.searches = 0

    def add(self, block: Block) -> None:
        """A block that is free from now on."""
        insort(self.order, (block.size, block.address))
        self.blocks[block.address] = block
        # Age is counted in searches of the pool, and not in time: it is what torch's garbage collection goes
        # by.
        block.since = self.searches

    def remove(self, block: Block) -> None:
        """A block that is handed out, merged or given back."""
        del self.order[bisect_left(self.order, (block.size, block.address))]
        del self.blocks[block.address]

    def best(self, size: int, expandable: bool) -> Block | None:
        """The smallest free block of at least `size` bytes, the lowest address of several.

        With expandable segments a block counts as large as it can become; without, those that there are stay aside.
        """
        at = bisect_left(self.order, (size, 0))
        if at >= len(self.order):
            return None
        block = self.blocks[self.order[at][1]]
        return block if not block.expandable else self._among_expandable(at, expandable)

    def _among_expandable(self, at: int, wanted: bool) -> Block | None:
        following = (self.blocks[address] for _, address in self.order[at:])
        if not wanted:
            return next((b for b in following if not b.expandable), None)
        # As in torch, best fit goes by what a block can become: a larger one with less room behind it fits better.
        # The smallest that fits; it is never absent, since `at` is within the list.
        found = next(following)
        for block in following:
            if not found.expandable or _room(block) >= _room(found):
                break
            found = block
        return found

    def make_unmapped(self, block: Block) -> None:
        """Addresses without memory behind them from now on."""
        block.mapped = False
        self.unmapped.append((block.address, block))
        # A handful: one stretch for each segment, plus holes.
        self.unmapped.sort(key=lambda entry: entry[0])


def _room(block: Block) -> int:
    """What a free block of an expandable segment can become."""
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)


def cut(block: Block, size: int) -> Block:
    """Shorten a block to `size` bytes and give the new block that is its rest."""
    rest = Block(block.address + size, block.size - size, block.pool, block.segment, block.expandable)
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
    # The block that stays keeps its identity: live addresses and pools refer to it.
    if block.before is other:
        block.address, block.before = other.address, other.before
        if other.before is not None:
            other.before.after = block
    else:
        block.after = other.after
        if other.after is not None:
            other.after.before = block
