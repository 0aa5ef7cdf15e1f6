"""What `PYTORCH_ALLOC_CONF` asks of the caching allocator."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torchvet.allocator import Settings

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The first that is set counts."""


def settings_from(environment: Mapping[str, str]) -> Settings:
    """The allocator's settings. What is not simulated is passed by; see `not_simulated`."""
    found = options(environment)
    split = found.get("max_split_size_mb")
    divisions = found.get("roundup_power2_divisions", "")
    return Settings(
        expandable_segments=found.get("expandable_segments", "").lower() == "true",
        max_split_size=int(split) << 20 if split and split.isdigit() else None,
        roundup_divisions=int(divisions) if divisions.isdigit() else 0,
    )


def options(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings by name, as text. A bracketed list is one value."""
    text = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    return {m[1]: m[2] for m in re.finditer(r"(\w+):(\[[^\]]*\]|[^,]*)", text)}
