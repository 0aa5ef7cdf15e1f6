"""Giving cached segments back to the driver: all of them, as many as one request needs, or those not used for long."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from torchvet.allocator.blocks import Block, Pool

if TYPE_CHECKING:
    from torchvet.allocator.model import CachingAllocator


class Releasing:
    """What one allocator gives back."""

    def __init__(self, owner: CachingAllocator) -> None:
        self._owner = owner

    def everything(self) -> None:
        """Every segment that is one free block, large ones first, the smallest of them first."""
        # torch's order: the large pool before the small one.
        for pool in sorted(self._owner.pools(), key=lambda p: (p.small, p.stream)):
            for block in [pool.blocks[address] for _, address in pool.order]:
                if not block.expandable and not block.split:
                    self._release(block)

    def oversized(self, pool: Pool, need: int) -> bool:
        """With `max_split_size`: enough of the blocks that are never split for one request. Whether it was enough."""
        most = self._owner.settings.max_split_size
        if most is None:
            return False
        # Blocks below `max_split_size` are never oversized, so that none of them is looked for.
        wanted = max(need, most)
        # As in torch, one block that is large enough goes alone; only without one do several go, the largest first.
        at = bisect_left(pool.order, (wanted, 0))
        if at < len(pool.order):
            self._release(pool.blocks[pool.order[at][1]])
            return True
        released = 0
        for size, address in reversed(list(pool.order)):
            if released >= wanted or size < most:
                break
            released += size
            self._release(pool.blocks[address])
        return released >= wanted

    def unused(self, allowed: int) -> None:
        """With `garbage_collection_threshold`: large segments that were passed by for longer than the average is, until
        what is reserved is below the threshold's share of `allowed` bytes."""
        owner = self._owner
        excess = owner.reserved - int(owner.settings.garbage_collection * allowed)
        if excess <= 0:
            return
        idle = [b for p in owner.pools() if not p.small for b in p.blocks.values() if not b.split and not b.expandable]
        # In rounds, as in torch: each takes those older than the average of what is left.
        while idle and excess > 0:
            average = sum(b.age for b in idle) / len(idle)
            old = [b for b in idle if b.age >= average]
            idle = [b for b in idle if b.age < average]
            for block in old:
                excess -= block.size
                self._release(block)

    def _release(self, block: Block) -> None:
        owner = self._owner
        block.pool.remove(block)
        del owner.segments[block.address]
        owner.take(block.pool, -block.size, -1)
        owner.tell("segment_free", block.address, block.size, block.pool.stream)
