"""Text and numbers of foreign files, so that they break no form: not JSON, not a table's row, not a line."""

from __future__ import annotations

import json
import math
from typing import Any

_BREAKS = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]
"""Control characters, and what some programs take for the end of a line."""
_NAMED = {0x09: r"\t", 0x0A: r"\n", 0x0D: r"\r"}
_ESCAPES = {c: _NAMED.get(c, f"\\x{c:02x}" if c < 0x100 else f"\\u{c:04x}") for c in _BREAKS}


def plain(text: str) -> str:
    """The text on one line that UTF-8 can write: what it cannot, and control characters, as backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)


def number(value: float) -> float:
    """The number, or 0 for what JSON has no word for: not a number, and infinity."""
    return value if math.isfinite(value) else 0.0


def to_json(value: Any) -> str:
    """One line of ASCII, whatever characters strings have. `value` has plain text and finite numbers only."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
