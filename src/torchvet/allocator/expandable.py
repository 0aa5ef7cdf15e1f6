"""Expandable segments: one range of addresses a pool and stream, to which memory is mapped page by page at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.allocator.blocks import Block, Pool, cut
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
        block = self._candidate(pool, need) or self._segment(pool)
        if not block.mapped:
            mapped = self._map(block, min(block.size, need))
            if mapped is None:
                return None
            block = mapped
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
        """Give the whole pages of free blocks back."""
        for first in list(self.first.values()):
            block: Block | None = first
            while block is not None:
                if block.free:
                    block = self._unmap(block)
                block = block.after

    def _candidate(self, pool: Pool, need: int) -> Block | None:
        """Unmapped addresses, with the free block before them, where `need` bytes fit in one piece."""
        for _, block in pool.unmapped:
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
        size = _RANGE if self._owner.capacity is None else self._owner.capacity + self._owner.capacity // 8
        size = -(-size // LARGE_SEGMENT) * LARGE_SEGMENT
        block = Block(self._owner.addresses(size), size, pool, 0)
        block.segment = block.address
        block.mapped = False
        pool.unmapped.append((block.address, block))
        pool.unmapped.sort(key=lambda entry: entry[0])
        self.first[block.address] = block
        return block

    def _map(self, block: Block, size: int) -> Block | None:
        """Put memory behind the beginning of an unmapped block; the free block that this makes, merged."""
        pool = block.pool
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        size = min(-(-size // page) * page, block.size)
        if not self._owner.room(size):
            return None
        pool.unmapped.remove((block.address, block))
        if size < block.size:
            rest = cut(block, size)
            pool.unmapped.append((rest.address, rest))
            pool.unmapped.sort(key=lambda entry: entry[0])
        block.mapped = True
        self._owner.take(size)
        self._owner.tell("segment_map", block.address, size, pool.stream)
        self._owner.settle(block)
        return block

    def _unmap(self, block: Block) -> Block:
        """Take the memory from behind the whole pages of a free block; gives the block that is then in its place."""
        pool = block.pool
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        start = -(-(block.address - block.segment) // page) * page + block.segment
        end = (block.address + block.size - block.segment) // page * page + block.segment
        if end <= start:
            return block
        pool.remove(block)
        middle = block
        if start > block.address:
            middle = cut(block, start - block.address)
            pool.add(block)
        if end < middle.address + middle.size:
            pool.add(cut(middle, end - middle.address))
        middle.mapped = False
        pool.unmapped.append((middle.address, middle))
        pool.unmapped.sort(key=lambda entry: entry[0])
        self._owner.take(-middle.size)
        self._owner.tell("segment_unmap", middle.address, middle.size, pool.stream)
        return middle
