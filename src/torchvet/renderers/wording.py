"""How amounts and foreign strings are written for people.

Sizes and counts are written as `torchvet.formatting` says, the same as in the rules' messages.
"""

from __future__ import annotations

import math
import unicodedata

from torchvet.formatting import binary, count, limit, percent, size

__all__ = ["binary", "count", "limit", "percent", "size"]


def seconds(duration: float) -> str:
    """A duration in seconds: `850 us`, `12.3 ms`, `300 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if not math.isfinite(duration):  # a recording may claim anything
        return "an unknown time"
    if duration < 0.0009995:
        return f"{duration * 1e6:.0f} us"
    if duration < 0.09995:
        return f"{duration * 1e3:.1f} ms"
    if duration < 0.9995:
        return f"{duration * 1e3:.0f} ms"
    if duration < 59.95:
        return f"{duration:.1f} s"
    whole = round(duration)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def encodable(text: str) -> str:
    """The text with lone surrogates (undecodable bytes of a file name) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """A foreign string that is safe on a terminal: control and direction-changing characters become escapes.

    Names of tensors, keys of dicts and messages of exceptions come from the program; none may move the cursor,
    color the screen or reorder the text. Newlines and tabs become spaces.
    """
    return "".join(_shown(c) for c in text)


def _shown(character: str) -> str:
    if character in "\n\r\t":
        return " "
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character.encode("unicode_escape").decode()
    return character
