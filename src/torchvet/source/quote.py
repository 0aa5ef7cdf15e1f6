"""Quotes a line of the user's source with its neighbours, from the report's own copy or else from disk."""

from __future__ import annotations

import tokenize
from collections.abc import Mapping
from typing import Any, NamedTuple

from torchvet.finding import Location


class Quote(NamedTuple):
    """Consecutive source lines; `first` is the number of the first, `marked` the one that a finding is about."""

    first: int
    lines: list[str]
    marked: int


def quote(location: Location, sources: Mapping[str, Any] | None = None, around: int = 1) -> Quote | None:
    """The lines `around` a location, or None where its text cannot be read.

    `sources` is the report's `facts["sources"]`: `{path: {"start": number of the first line, "lines": [...]}}`. What
    it does not hold is read from disk; a file that cannot be read or decoded is no error, only no quote.
    """
    kept = (sources or {}).get(location.path)
    found = _cut(int(kept.get("start", 1)), list(kept.get("lines", [])), location.line, around) if kept else None
    return found or _cut(1, _from_disk(location.path), location.line, around)


def _cut(start: int, lines: list[str], line: int, around: int) -> Quote | None:
    index = line - start
    if not 0 <= index < len(lines):
        return None
    low = max(0, index - around)
    return Quote(start + low, [text.rstrip("\r\n") for text in lines[low : index + around + 1]], line)


def _from_disk(path: str) -> list[str]:
    try:
        with tokenize.open(path) as stream:
            return stream.read().splitlines()
    except (OSError, SyntaxError, ValueError):
        return []
