"""Writes reports to files."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file that is as it was until it is whole: an earlier report is not lost to a full disk."""
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name[:200]}.{os.getpid()}.part")
    if (place.exists() and not place.is_file()) or not os.access(place.parent, os.W_OK):
        place.write_text(text, encoding="utf-8")  # a pipe or a device; or a file in a folder that takes no others
        return
    try:
        beside.write_text(text, encoding="utf-8")
        if place.exists():
            beside.chmod(place.stat().st_mode)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
