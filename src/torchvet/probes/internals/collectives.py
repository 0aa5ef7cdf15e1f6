"""How many collectives this rank has called, by the numbers that its process groups give them. Nothing is wrapped."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from torchvet.probes.internals import private


def numbered(of_all_ranks: bool = False) -> int | None:
    """The collectives of all groups that this rank is in, or only of those that all ranks are in; None without a group,
    or where none counts. Libraries make groups of their own, also of all ranks (DeepSpeed does)."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    world: Any = distributed.group.WORLD
    groups = [world] if private.process_groups is None else list(private.process_groups.pg_map)
    size = world.size()
    numbers = [_last(group) for group in groups if not of_all_ranks or group.size() == size]
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _last(group: Any) -> int | None:
    # `_get_sequence_number_for_group` is private, and not every backend counts.
    with suppress(AttributeError, RuntimeError):
        return int(group._get_sequence_number_for_group())
    return None
