"""What the simulated caching allocators hold. The names are `torch.cuda`'s; all sizes in bytes."""

from __future__ import annotations

from typing import Any

from torchvet.simulate import journal, memory


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


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """The peaks begin anew from what is held now."""
    allocator = memory.of(device).allocator
    allocator.peak_allocated, allocator.peak_reserved = allocator.allocated, allocator.reserved


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total, as the driver says."""
    held = memory.of(device)
    return held.total - held.context - held.allocator.reserved, held.total


def empty_cache() -> None:
    """Give segments back that nothing is in, on every device."""
    journal.tell(journal.Event("sync", "empty_cache", None, 0, True, False))
    for held in memory.everyone():
        held.allocator.empty_cache()


def memory_stats(device: Any = None) -> dict[str, int]:
    """The statistics that are simulated, under their names."""
    held = memory.of(device)
    a = held.allocator
    found: dict[str, int] = {
        "num_alloc_retries": held.counts["retries"], "num_ooms": held.counts["ooms"],
        "allocation.all.allocated": held.counts["allocation"],
    }  # fmt: skip
    for name, current, peak in (
        ("allocated_bytes", a.allocated, a.peak_allocated), ("reserved_bytes", a.reserved, a.peak_reserved),
        ("active_bytes", a.allocated, a.peak_allocated), ("requested_bytes", a.requested, a.requested),
        ("inactive_split_bytes", a.split_free(), a.split_free()),
    ):  # fmt: skip
        found[f"{name}.all.current"], found[f"{name}.all.peak"] = current, peak
    return found


def get_allocator_backend() -> str:
    """torch's own."""
    return "native"


ANSWERS = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
    "max_memory_cached", "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "mem_get_info", "empty_cache", "memory_stats", "get_allocator_backend",
)  # fmt: skip
