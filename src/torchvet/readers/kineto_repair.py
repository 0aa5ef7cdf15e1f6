"""Text that a strict JSON reader refuses, made readable where that is certain, and otherwise given up event by event.

Profilers have written `nan` and `inf` for bandwidths, unescaped backslashes in Windows paths, and bytes of no encoding.
"""

from __future__ import annotations

import re

import msgspec

from torchvet.readers.kineto_events import Event

_NO_NUMBER = re.compile(rb"(?<=[:\[,])(\s*)[-+]?(?:nan|inf(?:inity)?)(?:\([a-z]*\))?(?=\s*[,}\]])", re.IGNORECASE)
_BACKSLASH = re.compile(rb'\\(?:u(?![0-9a-fA-F]{4})|(?=[^"\\/bfnrtu]))')
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BETWEEN = re.compile(rb'(?<=\})\s*,\s*(?=\{\s*"(?:ph|name|cat|args|ts|pid|tid|s|id|bp)")')
_one = msgspec.json.Decoder(Event)

Unreadable = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding of hostile or damaged text raises."""


def repaired(text: bytes) -> bytes:
    """The text with non-numbers as null, stray backslashes doubled, and undecodable bytes replaced."""
    text = _NO_NUMBER.sub(rb"\1null", text)
    text = _BACKSLASH.sub(lambda m: b"\\" + m.group(), text)
    text = _CONTROL.sub(b" ", text)
    return text.decode("utf-8", "replace").encode("utf-8")


def salvaged(text: bytes) -> tuple[list[Event], int]:
    """The events among comma-separated ones that can be read, and how many cannot. The text has been repaired."""
    events, lost = [], 0
    for piece in _BETWEEN.split(text):
        try:
            events.append(_one.decode(piece))
        except Unreadable:
            lost += 1
    return events, lost
