"""The caching allocator: best fit in pools of small and large blocks, split, merged, given back to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torchvet.allocator.blocks import Block, Pool, absorb, cut
from torchvet.allocator.expandable import Expandable
from torchvet.allocator.sizes import SMALL, SMALLEST, Settings, is_small, rounded, segment_for

_BASE = 0x7F0000000000
_PAGE = 2 << 20


class OutOfMemory(Exception):
    """A request that neither the cache nor the driver can meet; all in bytes."""

    def __init__(self, requested: int, driver_free: int) -> None:
        super().__init__(f"out of memory: {requested:,} bytes asked for, {driver_free:,} left at the driver")
        self.requested, self.driver_free = requested, driver_free


class CachingAllocator:
    """One device's allocator. `capacity` bounds what the driver gives, in bytes; `told` hears of segments.

    `told(action, address, size, stream)` is called for segment_alloc, segment_free, segment_map, segment_unmap and oom.
    """

    def __init__(
        self, capacity: int | None = None, settings: Settings | None = None,
        told: Callable[[str, int, int, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.capacity, self.settings = capacity, settings or Settings()
        self._told = told
        self._next = _BASE
        self._pools: dict[tuple[bool, int], Pool] = {}
        self._live: dict[int, Block] = {}
        self.segments: dict[int, Block] = {}
        """The first block of every segment, by the segment's address."""
        self.reserved = self.allocated = self.requested = 0
        self.peak_reserved = self.peak_allocated = 0
        self._expandable = Expandable(self)

    def malloc(self, size: int, stream: int = 0) -> int:
        """The address of `size` bytes. Raises `OutOfMemory`, after having given back what was cached."""
        need = rounded(size, self.settings)
        pool = self._pool(is_small(need), stream)
        block = self._from_cache(pool, need) or self._from_driver(pool, need)
        if block is None:
            self.empty_cache()
            block = self._from_driver(pool, need)
        if block is None:
            left = (self.capacity or 0) - self.reserved
            self.tell("oom", left, size, stream)
            raise OutOfMemory(size, left)
        if self._worth_splitting(block, need):
            pool.add(cut(block, need))
        block.allocated, block.requested = True, size
        self._live[block.address] = block
        self.allocated += block.size
        self.requested += size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return block.address

    def free(self, address: int) -> None:
        """Take back what `malloc` gave. Raises KeyError for an address that is not in use."""
        block = self._live.pop(address)
        self.allocated -= block.size
        self.requested -= block.requested
        block.allocated = False
        self.settle(block)

    def empty_cache(self) -> None:
        """Give segments that hold nothing back to the driver, and whole free pages of expandable ones."""
        for address, first in list(self.segments.items()):
            if first.free and not first.split:
                first.pool.remove(first)
                del self.segments[address]
                self.take(-first.size)
                self.tell("segment_free", first.address, first.size, first.pool.stream)
        self._expandable.trim()

    def size_of(self, address: int) -> int:
        """The bytes that a live address really takes."""
        return self._live[address].size

    def chains(self) -> Iterator[list[Block]]:
        """The blocks of every segment in order of addresses, unmapped ones left out."""
        for first in [*self.segments.values(), *self._expandable.first.values()]:
            chain: list[Block] = []
            block: Block | None = first
            while block is not None:
                if block.mapped:
                    chain.append(block)
                block = block.after
            if chain:
                yield chain

    def split_free(self) -> int:
        """Free bytes in segments that cannot be given back because others of their blocks are in use."""
        found = 0
        for first in self.segments.values():
            if first.split:
                block: Block | None = first
                while block is not None:
                    found += 0 if block.allocated else block.size
                    block = block.after
        return found

    def room(self, size: int) -> bool:
        """Whether the driver has `size` bytes left."""
        return self.capacity is None or self.reserved + size <= self.capacity

    def take(self, size: int) -> None:
        """Count bytes that came from the driver, or went back where negative."""
        self.reserved += size
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved

    def tell(self, action: str, address: int, size: int, stream: int) -> None:
        """Let the listener know of a segment."""
        if self._told is not None:
            self._told(action, address, size, stream)

    def addresses(self, size: int) -> int:
        """A fresh range of addresses, page by page, with a page between ranges."""
        found = self._next
        self._next += -(-size // _PAGE) * _PAGE + _PAGE
        return found

    def settle(self, block: Block) -> None:
        """Merge a free block with free neighbours and put it into its pool."""
        for other in (block.before, block.after):
            if other is not None and other.free:
                block.pool.remove(other)
                absorb(block, other)
        if block.before is None:
            firsts = self._expandable.first if self.settings.expandable_segments else self.segments
            firsts[block.segment] = block
        block.pool.add(block)

    def _pool(self, small: bool, stream: int) -> Pool:
        pool = self._pools.get((small, stream))
        if pool is None:
            pool = self._pools[small, stream] = Pool(small, stream)
        return pool

    def _from_cache(self, pool: Pool, need: int) -> Block | None:
        block = pool.best(need)
        if block is None or self._oversized(block, need):
            return None
        pool.remove(block)
        return block

    def _oversized(self, block: Block, need: int) -> bool:
        """Whether a block is one that `max_split_size` keeps whole, and the request is not nearly as large."""
        most = self.settings.max_split_size
        if most is None or block.pool.small or block.size < most:
            return False
        return need < most or block.size >= need + (20 << 20)

    def _from_driver(self, pool: Pool, need: int) -> Block | None:
        if self.settings.expandable_segments:
            return self._expandable.allocate(pool, need)
        size = segment_for(need)
        if not self.room(size):
            return None
        block = Block(self.addresses(size), size, pool, 0)
        block.segment = block.address
        self.segments[block.address] = block
        self.take(size)
        self.tell("segment_alloc", block.address, size, pool.stream)
        return block

    def _worth_splitting(self, block: Block, need: int) -> bool:
        rest = block.size - need
        if block.pool.small or self.settings.expandable_segments:
            return rest >= SMALLEST
        most = self.settings.max_split_size
        return rest > SMALL and (most is None or need < most)
