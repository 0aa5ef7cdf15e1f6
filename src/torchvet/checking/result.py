"""What one file showed."""

from __future__ import annotations

import msgspec

from torchvet.finding import Finding, NotChecked
from torchvet.source.text import split_lines

FAULT = "this is a fault in torchvet, please report it"


class FileResult(msgspec.Struct, omit_defaults=True):
    """What one file showed. `lines` has the text of the lines that findings stand on, by path and number."""

    path: str
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    lines: dict[str, dict[str, str]] = {}


def not_checked(path: str, reason: str) -> FileResult:
    """The result of a file that could not be checked."""
    return FileResult(path, not_checked=[NotChecked(check=path, reason=reason)])


def unreadable(path: str, error: OSError) -> FileResult:
    """The result of a file that could not be read."""
    return not_checked(path, f"it cannot be read: {error.strerror}")


def lines_of(findings: list[Finding], path: str, text: str) -> dict[str, dict[str, str]]:
    """The text of the lines of a file that findings stand on, by path and number; empty without findings there."""
    numbers = sorted({f.location.line for f in findings if f.location is not None and f.location.path == path})
    lines = split_lines(text) if numbers else []
    found = {str(n): lines[n - 1] for n in numbers if 0 < n <= len(lines)}
    return {path: found} if found else {}
