"""Expandable segments: one range of addresses a pool and stream, to which memory is mapped page by page at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.allocator.blocks import Block, Pool, absorb, cut
from torchvet.allocator.sizes import LARGE_SEGMENT, SMALL_SEGMENT

if TYPE_CHECKING:
    from torchvet.allocator.model import CachingAllocator

_RANGE = 1 << 40
"""Addresses of a segment where the device's size is not known: more than any device has."""


class Expandable:
    """The expandable segments of one allocator."""

    def __init__(self, owner: CachingAllocator) -> None:
        self._owner = owner
        self.first: dict[int, Block] = {}
        """The first block of every segment, by the segment's address."""

    def allocate(self, pool: Pool, need: int) -> Block | None:
        """A free block of at least `need` bytes, taken out of its pool; None where the driver has too little left."""
        # An existing segment first: torch makes a second one of a pool and stream only where none has room.
        block = self._candidate(pool, need) or self._segment(pool)
        if not block.mapped:
            # At most this block: `need` may span the free block before it and the addresses behind.
            mapped = self._map(block, min(block.size, need))
            if mapped is None:
                return None
            block = mapped
        # A free block in front may have been merged, and the next stretch is mapped until it is enough.
        while block.size < need:
            following = block.after
            if following is None:
                return None
            mapped = self._map(following, min(need - block.size, following.size))
            if mapped is None:
                return None
            block = mapped
        pool.remove(block)
        return block

    def trim(self) -> None:
        """Give the whole pages of free blocks back, and segments of which nothing is left."""
        # By identity, because pools are not hashable by content.
        for pool in {id(first.pool): first.pool for first in self.first.values()}.values():
            # A copy: unmapping changes the order.
            for block in [pool.blocks[address] for _, address in pool.order]:
                if block.expandable:
                    self._unmap(block)

    def _candidate(self, pool: Pool, need: int) -> Block | None:
        """Unmapped addresses, with the free block before them, where `need` bytes fit in one piece."""
        for _, block in pool.unmapped:
            # What lies free before it counts: together they make one piece.
            start = block.before if block.before is not None and block.before.free else block
            found, at = 0, start
            while found < need and not at.allocated:
                found += at.size
                if at.after is None:
                    break
                at = at.after
            if found >= need:
                return start
        return None

    def _segment(self, pool: Pool) -> Block:
        total = self._owner.total
        # torch's figure: addresses for an eighth more than the card has, as pages unmapped at the front come back at
        # the end.
        size = _RANGE if total is None else total + total // 8
        size = -(-size // LARGE_SEGMENT) * LARGE_SEGMENT
        block = Block(self._owner.addresses(size), size, pool, 0, expandable=True)
        block.segment = block.address
        pool.make_unmapped(block)
        self.first[block.address] = block
        return block

    def _map(self, block: Block, size: int) -> Block | None:
        """Put memory behind the beginning of an unmapped block; the free block that this makes, merged."""
        pool = block.pool
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        size = min(-(-size // page) * page, block.size)
        # The driver refuses: nothing has been changed yet.
        if not self._owner.room(size):
            return None
        address = block.address
        pool.unmapped.remove((address, block))
        if size < block.size:
            pool.make_unmapped(cut(block, size))
        block.mapped = True
        # Bytes, and no segment: torch counts none for mapped pages.
        self._owner.take(pool, size, 0)
        self._owner.settle(block)
        self._owner.tell("segment_map", address, size, pool.stream)
        return block

    def _unmap(self, block: Block) -> None:
        """Take the memory from behind the whole pages of a free block."""
        pool = block.pool
        # The driver takes back whole pages alone: what lies before the first and behind the last stays free here.
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        start = -(-(block.address - block.segment) // page) * page + block.segment
        end = (block.address + block.size - block.segment) // page * page + block.segment
        # Not one whole page: the driver takes back nothing.
        if end <= start:
            return
        pool.remove(block)
        if start > block.address:
            middle = cut(block, start - block.address)
            pool.add(block)
            block = middle
        if end < block.address + block.size:
            pool.add(cut(block, end - block.address))
        self._owner.take(pool, -block.size, 0)
        self._owner.tell("segment_unmap", block.address, block.size, pool.stream)
        self._join_unmapped(block)

    def _join_unmapped(self, block: Block) -> None:
        """Merge an unmapped block with unmapped neighbours; a segment without memory is given up."""
        pool = block.pool
        block.mapped = False
        for other in (block.before, block.after):
            if other is not None and not other.mapped:
                pool.unmapped.remove((other.address, other))
                absorb(block, other)
        if block.before is None:
            self.first[block.segment] = block
        # It has neighbours with memory: the addresses stay as a hole.
        if block.split:
            pool.make_unmapped(block)
        else:
            del self.first[block.segment]
