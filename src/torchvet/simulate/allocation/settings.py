"""What `PYTORCH_ALLOC_CONF` asks of the caching allocator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch

from torchvet.allocator import Settings
from torchvet.allocator.sizes import INTERVALS

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""The first that is set counts, as in torch, although it is the older name."""

SIMULATED = frozenset(
    ["max_split_size_mb", "max_non_split_rounding_mb", "garbage_collection_threshold", "roundup_power2_divisions",
     "expandable_segments", "per_process_memory_fraction"]
)  # fmt: skip
PASSED_BY = frozenset(
    ["backend", "large_segment_size_mb", "release_lock_on_cudamalloc", "release_lock_on_hipmalloc",
     "pinned_use_cuda_host_register", "pinned_use_hip_host_register", "pinned_num_register_threads",
     "pinned_reserve_segment_size_mb", "pinned_use_background_threads", "pinned_background_threads",
     "pinned_max_round_threshold_mb", "pinned_free_catch_all", "pinned_max_cached_size_mb", "pinned_max_power2_size_mb",
     "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom"]
)  # fmt: skip
"""What CUDA knows besides (torch 2.13), of host memory, locks and other allocators."""

_check_values = torch._C._accelerator_setAllocatorSettings
"""torch's own parser of what is not CUDA's alone: it is in every build, and refuses wrong values."""


def text_of(environment: Mapping[str, str]) -> str:
    """The settings as they were given."""
    return next((environment[name] for name in VARIABLES if environment.get(name)), "")


def settings_from(text: str) -> Settings:
    """The allocator's settings. Raises ValueError, in CUDA's words, for what CUDA refuses."""
    found = options(text)
    for name in found:
        # CUDA's own keys first: torch's shared parser below lets unknown ones pass.
        if name not in SIMULATED and name not in PASSED_BY:
            raise ValueError(f"Unrecognized key '{name}' in CUDA allocator config.")
    if text:
        _check_values(text)
    split, rounding = found.get("max_split_size_mb"), found.get("max_non_split_rounding_mb")
    divisions = found.get("roundup_power2_divisions", "0")
    return Settings(
        expandable_segments=found.get("expandable_segments") == "True",
        max_split_size=None if split is None else int(split) << 20,
        roundup_divisions=0 if divisions.startswith("[") else int(divisions),
        roundup_intervals=_intervals(divisions) if divisions.startswith("[") else (),
        garbage_collection=float(found.get("garbage_collection_threshold", 0)),
        **({} if rounding is None else {"max_rounding": int(rounding) << 20}),
    )


def fraction_from(text: str) -> float | None:
    """`per_process_memory_fraction`, None where it is not given. Raises ValueError for none between 0 and 1."""
    given = options(text).get("per_process_memory_fraction")
    if given is None:
        return None
    if not 0 <= float(given) <= 1:
        raise ValueError(f"per_process_memory_fraction is invalid, set it in [0.0, 1.0], got {given}")
    return float(given)


def not_simulated(environment: Mapping[str, str]) -> Iterator[str]:
    """Settings that are given, known to CUDA, and make no difference here."""
    for name, value in options(text_of(environment)).items():
        if name in PASSED_BY and (name, value) != ("backend", "native"):
            yield f"{name}:{value}"


def options(text: str) -> dict[str, str]:
    """The settings by name, as text without blanks. A bracketed list is one value."""
    # A later value of the same name wins.
    return {m[1]: m[2] for m in re.finditer(r"([^,:]+):?(\[[^\]]*\]|[^,]*)", text.replace(" ", ""))}


def _intervals(text: str) -> tuple[int, ...]:
    """`[256:1,512:2,>:4]`: divisions by the power of two that a size in MiB begins with. The first holds below too, and
    what is not named has none."""
    found = [0] * INTERVALS
    last = 0
    for number, entry in enumerate(text.strip("[]").split(",")):
        name, _, divisions = entry.partition(":")
        if name == ">":
            # `>` is for all sizes above the last that was named.
            found[last:] = [int(divisions)] * (INTERVALS - last)
            continue
        last = min(int(name).bit_length() - 1, INTERVALS - 1)
        if number == 0:
            found[:last] = [int(divisions)] * last
        found[last] = int(divisions)
    return tuple(found)
