"""The caching allocator: best fit in pools of small and large blocks, split, merged, given back to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torchvet.allocator.blocks import Block, Pool, absorb, cut
from torchvet.allocator.expandable import Expandable
from torchvet.allocator.releasing import Releasing
from torchvet.allocator.sizes import SMALL, SMALLEST, Settings, rounded, segment_for
from torchvet.allocator.statistics import Statistic, Statistics

# Addresses as CUDA's look; only their order and distance matter.
_BASE = 0x7F0000000000
_PAGE = 2 << 20


class OutOfMemory(Exception):
    """A request that neither the cache nor the driver can meet; all in bytes.

    `wanted` is what the driver was asked for.
    """

    def __init__(self, requested: int, wanted: int, driver_free: int) -> None:
        super().__init__(f"out of memory: {requested:,} bytes asked for, {driver_free:,} left at the driver")
        self.requested, self.wanted, self.driver_free = requested, wanted, driver_free


class CachingAllocator:
    """One device's allocator. `capacity` bounds what the driver gives, in bytes; `told` hears of segments.

    `told(action, address, size, stream)` is called for segment_alloc, segment_free, segment_map, segment_unmap, oom,
    and free_completed of what has waited for other streams.
    For oom the address is what the driver has left, as in CUDA's trace. `total` is what the card has, `allowed` what
    the process may take of it (`set_per_process_memory_fraction`).
    """

    def __init__(
        self,
        capacity: int | None = None,
        settings: Settings | None = None,
        told: Callable[[str, int, int, int], None] | None = None,
        total: int | None = None,
    ) -> None:
        self.capacity, self.settings = capacity, settings or Settings()
        self.total = capacity if total is None else total
        self.allowed: int | None = None
        self._told = told
        self._next = _BASE
        self._pools: dict[tuple[bool, int], Pool] = {}
        self._live: dict[int, Block] = {}
        self._uses: dict[int, set[int]] = {}
        """Streams that use a live address besides its own."""
        self._waiting: list[Block] = []
        self.segments: dict[int, Block] = {}
        """The first block of every segment, by the segment's address."""
        self.statistics, self.of_small, self.of_large = Statistics(), Statistics(), Statistics()
        self._use, self._split = self.statistics.use, self.statistics.split
        self.oversize_blocks, self.oversize_segments = Statistic(), Statistic()
        """Those that are at least as large as `max_split_size`."""
        self.retries = self.ooms = self.syncs = self.driver_calls = self.driver_frees = 0
        self._expandable = Expandable(self)
        self._releasing = Releasing(self)

    @property
    def allocated(self) -> int:
        """Bytes in use, rounded as blocks are."""
        return self._use.bytes

    @property
    def peak_allocated(self) -> int:
        """The most bytes in use since the last reset."""
        return self._use.most

    @property
    def requested(self) -> int:
        """Bytes in use as they were asked for."""
        return self._use.asked

    @property
    def reserved(self) -> int:
        """Bytes taken from the driver."""
        return self.statistics.reserved_bytes.current

    @property
    def peak_reserved(self) -> int:
        """The most bytes taken from the driver since the last reset."""
        return self.statistics.reserved_bytes.peak

    def malloc(self, size: int, stream: int = 0) -> int:
        """The address of `size` bytes. Raises `OutOfMemory`, after having given back what was cached."""
        if self._waiting:
            self.process_events()
        need = rounded(size, self.settings)
        pool = self._pool(need <= SMALL, stream)
        # Best fit in the cache first, whatever the driver has.
        block = self._from_cache(pool, need) or self._anew(pool, need, size)
        # Free parts of split segments are counted where torch counts them: as blocks are handed out and come back.
        was_split = block.before is not None or block.after is not None
        if block.size != need and self._worth_splitting(block, need):
            pool.add(cut(block, need))
            # torch counts no free parts of expandable segments: their pages can be given back one by one.
            if not block.expandable:
                rest = block.after.size if block.after is not None else 0
                self._count_split(pool, *((0, -need) if was_split else (1, rest)))
        # The whole free part is handed out: one fewer.
        elif was_split and not block.expandable:
            self._count_split(pool, -1, -block.size)
        block.allocated, block.requested = True, size
        self._live[block.address] = block
        self._use.take(block.size, size)
        pool.statistics.use.take(block.size, size)
        most = self.settings.max_split_size
        if most is not None and block.size >= most:
            self.oversize_blocks.grow(1)
        return block.address

    def free(self, address: int) -> None:
        """Take back what `malloc` gave. Raises KeyError for an address that is not in use.

        What other streams use waits for them; their work is over when a block is asked for next.
        """
        block = self._live.pop(address)
        self._use.give_back(block.size, block.requested)
        block.pool.statistics.use.give_back(block.size, block.requested)
        most = self.settings.max_split_size
        if most is not None and block.size >= most:
            self.oversize_blocks.shrink(1)
        block.allocated = False
        if address in self._uses:
            del self._uses[address]
            # It counts as active until the other stream is done, and can not be handed out.
            self._wait(block, 1)
            self._waiting.append(block)
            return
        # In torch's order: statistics first, then merging.
        self._recycle(block)

    def record_stream(self, address: int, stream: int) -> None:
        """Another stream uses a live address: once it is given back, it waits for that stream's work."""
        if stream != self._live[address].pool.stream:
            self._uses.setdefault(address, set()).add(stream)

    def is_used_elsewhere(self, address: int) -> bool:
        """Whether a live address will wait for other streams."""
        return address in self._uses

    def process_events(self) -> None:
        """What was given back and waited for other streams can be handed out again."""
        # Emptied first: recycling may lead back here.
        done, self._waiting = self._waiting, []
        for block in done:
            self._wait(block, -1)
            self.tell("free_completed", block.address, block.requested, block.pool.stream)
            self._recycle(block)

    def _wait(self, block: Block, by: int) -> None:
        block.waiting = by > 0
        for use in (self._use, block.pool.statistics.use):
            use.wait(by, by * block.size, by * block.requested)

    def _recycle(self, block: Block) -> None:
        if block.before is None and block.after is None:
            block.pool.add(block)
            return
        blocks, size = self.settle(block)
        if not block.expandable:
            now = block.size if block.split else 0
            self._count_split(block.pool, (now > 0) - blocks, now - size)

    def empty_cache(self) -> None:
        """Give segments that hold nothing back to the driver, and whole free pages of expandable ones."""
        # torch waits for all streams before it gives segments back, so nothing waits for them after this.
        self.process_events()
        self.syncs += 1
        self._releasing.everything()
        # After whole segments, as torch's `release_cached_blocks` does.
        self._expandable.trim()

    def size_of(self, address: int) -> int:
        """The bytes that a live address really takes."""
        return self._live[address].size

    def requested_of(self, address: int) -> int:
        """The bytes that were asked for at a live address."""
        return self._live[address].requested

    def holds(self, address: int) -> bool:
        """Whether an address is in use."""
        return address in self._live

    def reset_peak(self) -> None:
        """All peaks begin anew from what is held now."""
        for statistics in (self.statistics, self.of_small, self.of_large):
            statistics.reset_peak()
        for statistic in (self.oversize_blocks, self.oversize_segments):
            statistic.reset_peak()

    def reset_accumulated(self) -> None:
        """All sums and counts begin anew from 0."""
        for statistics in (self.statistics, self.of_small, self.of_large):
            statistics.reset_accumulated()
        for statistic in (self.oversize_blocks, self.oversize_segments):
            statistic.reset_accumulated()
        self.retries = self.ooms = self.syncs = self.driver_calls = self.driver_frees = 0

    def stream_of(self, address: int) -> int:
        """The stream that a live address belongs to."""
        return self._live[address].pool.stream

    def pools(self) -> Iterable[Pool]:
        """Of both size classes and all streams."""
        return self._pools.values()

    def chains(self) -> Iterator[list[Block]]:
        """The blocks of every segment in order of addresses; of expandable ones of every stretch that is mapped."""
        for first in [*self.segments.values(), *self._expandable.first.values()]:
            chain: list[Block] = []
            block: Block | None = first
            while block is not None:
                if block.mapped:
                    chain.append(block)
                # A hole without memory ends the stretch.
                elif chain:
                    yield chain
                    chain = []
                block = block.after
            if chain:
                yield chain

    def split_free(self) -> int:
        """Free bytes in segments that cannot be given back because others of their blocks are in use."""
        return self._split.bytes

    def adopt(self, small: bool, stream: int, blocks: list[tuple[int, int, int | None]]) -> None:
        """A segment as it is found: its blocks as `(address, size, requested)`, None for a free one, without gaps."""
        pool = self._pool(small, stream)
        start = blocks[0][0]
        block = Block(start, sum(size for _, size, _ in blocks), pool, start)
        self.segments[start] = block
        self.take(pool, block.size, 1)
        for _, size, requested in blocks:
            rest = cut(block, size) if size < block.size else None
            if requested is None:
                pool.add(block)
                if block.split:
                    self._count_split(pool, 1, size)
            else:
                block.allocated, block.requested = True, requested
                self._live[block.address] = block
                self._use.take(size, requested)
                pool.statistics.use.take(size, requested)
            if rest is not None:
                block = rest

    def room(self, size: int) -> bool:
        """Whether the driver has `size` bytes left."""
        return self.capacity is None or self.reserved + size <= self.capacity

    def take(self, pool: Pool, size: int, segments: int) -> None:
        """Count bytes and segments that came from the driver, or went back where negative."""
        if size > 0:
            self.driver_calls += 1
        else:
            self.driver_frees += 1
        for statistics in (self.statistics, pool.statistics):
            if size > 0:
                statistics.reserved_bytes.grow(size)
                statistics.segment.grow(segments)
            else:
                statistics.reserved_bytes.shrink(-size)
                statistics.segment.shrink(-segments)
        most = self.settings.max_split_size
        if segments and most is not None and abs(size) >= most:
            (self.oversize_segments.grow if size > 0 else self.oversize_segments.shrink)(1)

    def tell(self, action: str, address: int, size: int, stream: int) -> None:
        """Let the listener know of a segment."""
        if self._told is not None:
            self._told(action, address, size, stream)

    def addresses(self, size: int) -> int:
        """A fresh range of addresses, page by page, with a page between ranges."""
        found = self._next
        # A page between, so that no two segments look like neighbours.
        self._next += -(-size // _PAGE) * _PAGE + _PAGE
        return found

    def settle(self, block: Block) -> tuple[int, int]:
        """Merge a free block with free neighbours and put it into its pool; how many it merged, and their bytes."""
        blocks = size = 0
        # Free neighbours of one segment only: chains never cross segments.
        for other in (block.before, block.after):
            if other is not None and other.free:
                block.pool.remove(other)
                blocks, size = blocks + 1, size + other.size
                absorb(block, other)
        if block.before is None:
            (self._expandable.first if block.expandable else self.segments)[block.segment] = block
        block.pool.add(block)
        return blocks, size

    def _count_split(self, pool: Pool, blocks: int, size: int) -> None:
        self._split.change(blocks, size)
        pool.statistics.split.change(blocks, size)

    def _pool(self, small: bool, stream: int) -> Pool:
        pool = self._pools.get((small, stream))
        if pool is None:
            pool = self._pools[small, stream] = Pool(small, stream, self.of_small if small else self.of_large)
        return pool

    def _from_cache(self, pool: Pool, need: int) -> Block | None:
        # Also where nothing fits: blocks grow older by each search that passes them by.
        pool.searches += 1
        block = pool.best(need, self.settings.expandable_segments)
        if block is None or self._oversized(block, need):
            return None
        pool.remove(block)
        return block

    def _oversized(self, block: Block, need: int) -> bool:
        """Whether a block is one that `max_split_size` keeps whole, and the request is not nearly as large."""
        most = self.settings.max_split_size
        if most is None:
            return False
        # A small request must not take a block that is kept whole.
        if need < most:
            return block.size >= most
        return block.size >= need + self.settings.max_rounding

    def _anew(self, pool: Pool, need: int, size: int) -> Block:
        """A block from the driver, at last after having given back what is cached."""
        # torch's order: collect above the threshold, ask the driver, give oversized blocks back and ask again, give all
        # of the cache back and ask for the last time.
        # Without a limit there is nothing that a threshold is a share of.
        if self.allowed is not None and self.settings.garbage_collection:
            self._releasing.unused(self.allowed)
        block = self._from_driver(pool, need)
        if block is None and self._releasing.oversized(pool, need):
            block = self._from_driver(pool, need)
        if block is None:
            # The last resort; it costs a synchronization of all streams, which torch counts as a retry.
            self.empty_cache()
            self.retries += 1
            block = self._from_driver(pool, need)
        if block is None:
            self.ooms += 1
            left = (self.capacity or 0) - self.reserved
            self.tell("oom", left, need, pool.stream)
            raise OutOfMemory(size, segment_for(need), left)
        return block

    def _from_driver(self, pool: Pool, need: int) -> Block | None:
        size = segment_for(need)
        # The process's own limit says no before the driver is asked.
        if self.allowed is not None and self.reserved + size > self.allowed:
            return None
        if self.settings.expandable_segments:
            return self._expandable.allocate(pool, need)
        if not self.room(size):
            return None
        block = Block(self.addresses(size), size, pool, 0)
        block.segment = block.address
        self.segments[block.address] = block
        self.take(pool, size, 1)
        self.tell("segment_alloc", block.address, size, pool.stream)
        return block

    def _worth_splitting(self, block: Block, need: int) -> bool:
        # As `should_split` in torch: a large block keeps a rest of up to 1 MiB. Requests that small have another pool.
        rest = block.size - need
        if block.pool.small or self.settings.expandable_segments:
            return rest >= SMALLEST
        most = self.settings.max_split_size
        return rest > SMALL and (most is None or need < most)
