"""`torchvet.inspect()`: what `torchvet inspect` finds, as a report, from one's own program."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchvet.finding import Report


def inspect(
    *paths: str | PathLike[str], select: Sequence[str] = (), ignore: Sequence[str] = (), memory_limit: int | None = None
) -> Report:
    """Report on CUDA memory snapshots, or on one recording; nothing in them is executed.

    `select` and `ignore` are beginnings of codes, `memory_limit` bytes to forecast against. Raises `BadInput` for files
    that cannot be read, that are of several kinds, or that are none of these.
    """
    from torchvet.inspecting import inspect_paths

    return inspect_paths([Path(p) for p in paths], select=select, ignore=ignore, memory_limit=memory_limit)
