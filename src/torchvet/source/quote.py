"""Quotes a line of the user's source with its neighbours, from the report's own copy or else from disk."""

from __future__ import annotations

import os
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

    `sources` is the report's `facts["sources"]`: `{path: {"start": number of the first line, "lines": [...]}}`. Where
    a report has them nothing else is read: its recording may be a stranger's and name any file of the reader's. Without
    them the file is read; one that cannot be read or decoded is no error, only no quote.
    """
    if sources is None:
        return _cut(1, _from_disk(location.path), location.line, around)
    kept = sources.get(location.path)
    return _cut(int(kept.get("start", 1)), list(kept.get("lines", [])), location.line, around) if kept else None


def _cut(start: int, lines: list[str], line: int, around: int) -> Quote | None:
    index = line - start
    if not 0 <= index < len(lines):
        return None
    low = max(0, index - around)
    return Quote(start + low, [text.rstrip("\r\n") for text in lines[low : index + around + 1]], line)


def _from_disk(path: str) -> list[str]:
    """The lines of a Python file. A snapshot may be a stranger's: of other files, or devices, nothing is quoted."""
    if not path.endswith(".py") or not os.path.isfile(path):
        return []
    try:
        with tokenize.open(path) as stream:
            return stream.read().splitlines()
    except (OSError, SyntaxError, ValueError):
        return []
