"""Unified diffs: make one from two texts, and apply one strictly."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_CHANGED = {"-": "-", "+": "+", " ": "-+"}
"""For each mark of a line: which sides, old and new, the line belongs to."""
_UNENDED = "\\ No newline at end of file\n"


class PatchError(ValueError):
    """A patch that does not fit its text, or is no unified diff. The message names the file and the hunk."""


@dataclass(frozen=True)
class _Hunk:
    header: str
    before: int  # lines of the old text before the hunk
    old: list[str]
    new: list[str]


def made(before: str, after: str, name: str) -> str:
    """The unified diff from one text to the other, both called `name`. Empty if the texts are equal."""
    changes = difflib.unified_diff(lines_of(before), lines_of(after), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n{_UNENDED}" for line in changes)


def applied(text: str, patch: str) -> str:
    """The text with every hunk applied at the line that its header states.

    Raises PatchError if a removed or context line differs from the text. Unlike the tool `patch`, this does not search
    for a place nearby.
    """
    lines, result, done = lines_of(text), [], 0
    name = patch.partition("\n")[0].removeprefix("--- ")
    for number, hunk in enumerate(_hunks(patch, name), start=1):
        end = hunk.before + len(hunk.old)
        if hunk.before < done or lines[hunk.before : end] != hunk.old:
            raise PatchError(f"{name}: hunk {number} ({hunk.header}) does not match the text")
        result += lines[done : hunk.before] + hunk.new
        done = end
    return "".join(result + lines[done:])


def lines_of(text: str) -> list[str]:
    """The lines of a text, each with its end."""
    # Not str.splitlines: it also splits at form feeds and other characters that end no line of a file.
    return list(StringIO(text))


def _hunks(patch: str, name: str) -> Iterator[_Hunk]:
    lines = lines_of(patch)
    starts = [at for at, line in enumerate(lines) if line.startswith("@@")]
    if lines and not (starts[:1] == [2] and lines[0].startswith("--- ") and lines[1].startswith("+++ ")):
        raise PatchError(f"{name}: not a unified diff of one file")
    for number, (start, end) in enumerate(pairwise([*starts, len(lines)]), start=1):
        hunk = _hunk(lines[start].rstrip("\n"), lines[start + 1 : end])
        if hunk is None:
            raise PatchError(f"{name}: hunk {number} ({lines[start].strip()}) is malformed")
        yield hunk


def _hunk(header: str, body: list[str]) -> _Hunk | None:
    """The hunk, or None if a line has no mark or the header's counts are wrong."""
    stated = _HEADER.match(header)
    sides: dict[str, list[str]] = {"-": [], "+": []}
    changed = ""
    for line in body:
        if line == _UNENDED:
            for side in changed:
                sides[side][-1] = sides[side][-1].removesuffix("\n")
            continue
        # Editors strip the one space of an empty context line.
        mark, content = (" ", line) if line == "\n" else (line[0], line[1:])
        if mark not in _CHANGED or not content.endswith("\n"):
            return None
        changed = _CHANGED[mark]
        for side in changed:
            sides[side].append(content)
    if stated is None or [int(stated[group] or 1) for group in (2, 3)] != [len(sides["-"]), len(sides["+"])]:
        return None
    # "-5,0" inserts after line 5, whereas "-5,1" begins with line 5.
    return _Hunk(header, int(stated[1]) - bool(sides["-"]), sides["-"], sides["+"])
