"""What the simulated caching allocators hold, as `torch.cuda` says it.

`ANSWERS` stand in for functions of `torch.cuda` that are asked often; all others of `torch.cuda.memory` are torch's own
and work on what `COMPILED` puts into `torch._C`, where a build for CUDA has its allocator.
"""

from __future__ import annotations

import os
from typing import Any

from torchvet.simulate.allocation import memory, pinned, snapshots, workspaces
from torchvet.simulate.cuda import history


def memory_allocated(device: Any = None) -> int:
    """In tensors, rounded as the allocator does."""
    return memory.of(device).allocator.allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most since the start or the last reset."""
    return memory.of(device).allocator.peak_allocated


def memory_reserved(device: Any = None) -> int:
    """Taken from the driver."""
    return memory.of(device).allocator.reserved


def max_memory_reserved(device: Any = None) -> int:
    """The most since the start or the last reset."""
    return memory.of(device).allocator.peak_reserved


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total, as the driver says."""
    held = memory.of(device)
    # The driver counts what the context takes and what the allocator has reserved, in tensors or not.
    return held.total - held.context - held.allocator.reserved, held.total


def list_gpu_processes(device: Any = None) -> str:
    """This one: nobody else uses a simulated card."""
    held = memory.of(device)
    used = (held.context + held.allocator.reserved) / (1 << 20)
    return f"GPU:{held.index}\nprocess {os.getpid():>10d} uses {used:>12.3f} MB GPU memory"


ANSWERS = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "mem_get_info",
    "list_gpu_processes",
)  # fmt: skip


def _stats(device: int) -> dict[str, Any]:
    """All of `torch.cuda.memory_stats_as_nested_dict`."""
    a = memory.of(device).allocator
    by_pool = {
        pool: statistics.rows()
        for pool, statistics in (("all", a.statistics), ("large_pool", a.of_large), ("small_pool", a.of_small))
    }
    most = a.settings.max_split_size
    found: dict[str, Any] = {name: {pool: by_pool[pool][name] for pool in by_pool} for name in by_pool["all"]}
    return found | {
        "num_alloc_retries": a.retries,
        "num_ooms": a.ooms,
        "num_sync_all_streams": a.syncs,
        "num_device_alloc": a.driver_calls,
        "num_device_free": a.driver_frees,
        "max_split_size": -1 if most is None else most,
        "oversize_allocations": a.oversize_blocks.row(),
        "oversize_segments": a.oversize_segments.row(),
        # Those are of CUDA graphs, which are not simulated.
        "reserved_bytes_by_private_pools": {},
    }


def _empty_cache() -> None:
    for held in memory.everyone():
        held.allocator.empty_cache()


def _raw_delete(address: int) -> None:
    for held in memory.everyone():
        # An address says nothing of its device.
        if held.allocator.holds(address):
            held.give_back(address)
            return
    if address:
        raise RuntimeError(f"invalid device pointer: {address:#x}")


def _configure(text: str) -> None:
    for held in memory.everyone():
        held.configure(text)


def _caching(value: bool = True) -> None:
    """Without caching nothing else is simulated: the switch stays on."""


COMPILED: dict[str, Any] = {
    "_cuda_memoryStats": _stats,
    "_cuda_resetPeakMemoryStats": lambda device: memory.of(device).allocator.reset_peak(),
    "_cuda_resetAccumulatedMemoryStats": lambda device: memory.of(device).allocator.reset_accumulated(),
    "_cuda_emptyCache": _empty_cache,
    "_cuda_setMemoryFraction": lambda fraction, device: memory.of(device).limit(fraction),
    "_cuda_getMemoryFraction": lambda device: memory.of(device).fraction,
    "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: memory.of(None).take(size, stream) if size else 0,
    "_cuda_cudaCachingAllocator_raw_delete": _raw_delete,
    "_cuda_cudaCachingAllocator_enable": _caching,
    "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    "_cuda_getAllocatorBackend": lambda: "native",
    "_cuda_hostMemoryStats": pinned.statistics,
    "_cuda_resetPeakHostMemoryStats": pinned.reset_peak,
    "_cuda_resetAccumulatedHostMemoryStats": pinned.reset_accumulated,
    # Newer torch passes a pool, and as its third entry whether to include traces.
    "_cuda_memorySnapshot": lambda pool=None: snapshots.snapshot(
        traces=not (isinstance(pool, tuple) and len(pool) > 2 and not pool[2])
    ),
    "_accelerator_setAllocatorSettings": _configure,
    "_cuda_attach_out_of_memory_observer": memory.observers.append,
    "_cuda_clearCublasWorkspaces": workspaces.clear,
    **history.COMPILED,
}
"""By the name in `torch._C`."""
