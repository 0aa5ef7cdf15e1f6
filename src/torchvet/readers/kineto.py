"""Reads profiler traces (Kineto, Chrome JSON) block by block: bounded memory, whatever the file's size.

A trace is an object whose `traceEvents` holds the events, or a bare array of them; several may follow each other, and
the last may be cut off. A block of events is cut out at a boundary `}, {` and decoded whole: if the boundary was none
(it stood in a string, or deeper), decoding fails, and the one before it is tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torchvet.errors import BadInput
from torchvet.readers.blocks import GZIP, blocks, unpacked_head
from torchvet.readers.kineto_events import Event, Header
from torchvet.readers.kineto_repair import Unreadable, repaired, salvaged

LONGEST_HEAD = 16 << 20
LONGEST_EVENT = 16 << 20
"""Bytes within which the events must begin, and one of them must end."""
_TAIL = 1 << 13
_TRIES = 6
_PATIENCE = 4 << 20
"""Bytes after which what does not decode is taken to be bad, and not a boundary that is none."""

_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_NEXT_EVENT = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|name|cat)"')
_ENDING = re.compile(rb"\}\s*\]")
_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')
_events = msgspec.json.Decoder(list[Event])
_header = msgspec.json.Decoder(Header)


def looks_like(head: bytes) -> bool:
    """Whether a file that begins with these bytes (some thousand of them, compressed or not) may be a trace."""
    if head.startswith(GZIP):
        head = unpacked_head(head)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return any(mark in text for mark in _MARKS)
    return text.startswith(b"[") and re.match(rb'\[\s*\{[^{}]{0,2000}"(?:ph|ts|cat|traceEvents)"', text) is not None


class TraceFile:
    """One file, read once from front to back by `batches`; what was noticed on the way stands in the attributes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = Header()
        self.events = 0
        self.lost = 0
        """Events that could not be read."""
        self.repaired = False
        self.cut = False
        """Whether the file ends in the middle."""
        self.stopped = False
        """Whether the file holds more than was read."""
        self.parts = 0
        """Traces within the file, one after the other."""

    def batches(self) -> Iterator[list[Event]]:
        """The events, some thousand at a time. Raises `BadInput` for what is no trace."""
        rest, inside = b"", False
        for block in blocks(self.path, self._was_cut, self._was_stopped):
            if inside:
                found, after = self._quick(rest, block)
                if found is not None:
                    yield found
                    rest = after
                    continue
            rest += block
            while True:
                if not inside:
                    rest, inside = self._begin(rest)
                    if not inside:
                        break
                # Another trace may follow in the same file.
                following = rest.find(_MARKS[0])
                if following < 0:
                    found, rest = self._whole(rest)
                    yield found
                    break
                yield self._last(rest[:following])
                rest, inside = rest[following:], False
        if inside:
            yield self._last(rest)
        elif not self.parts:
            raise self._no_trace('it has no "traceEvents"')

    def _quick(self, rest: bytes, block: bytes) -> tuple[list[Event] | None, bytes]:
        """What decodes as it is up to the block's last boundary, and what follows; None where that fails.

        A block that decodes within an array holds neither its end nor the beginning of another trace.
        """
        # Only the last boundary is wanted, so only the tail is searched.
        boundaries = list(_BOUNDARY.finditer(block, max(0, len(block) - _TAIL)))
        if not boundaries:
            return None, rest
        last = boundaries[-1]
        try:
            found = _events.decode(b"".join((b"[", rest, memoryview(block)[: last.start() + 1], b"]")))
        except Unreadable:
            return None, rest
        self.events += len(found)
        return found, block[last.end() - 1 :]

    def _was_cut(self) -> None:
        self.cut = True

    def _was_stopped(self) -> None:
        self.stopped = True

    def _no_trace(self, reason: str) -> BadInput:
        expected = "expected the JSON that torch.profiler's export_chrome_trace writes, plain or gzip"
        return BadInput(f"{self.path}: no profiler trace: {reason}; {expected}")

    def _begin(self, buffer: bytes) -> tuple[bytes, bool]:
        """Skip to the first event; the second value is whether there is one yet."""
        start = _START.search(buffer)
        if start is None:
            bare = buffer.removeprefix(b"\xef\xbb\xbf").lstrip() if not self.parts else b""
            if bare.startswith(b"[") and looks_like(bare[:4096]):
                self.parts = 1
                return bare[1:], True
            if len(buffer) > LONGEST_HEAD and not self.parts:
                raise self._no_trace(f'no "traceEvents" in its first {LONGEST_HEAD >> 20} MiB')
            return buffer[-LONGEST_HEAD:], False
        self.parts += 1
        head = buffer[: start.start()]
        self._note(head[max(0, head.find(b"{")) :] + b'"traceEvents":[]}')
        return buffer[start.end() :], True

    def _note(self, text: bytes) -> None:
        """Keep what a header says; the first of several that says a thing is right."""
        try:
            found = _header.decode(repaired(text))
        except Unreadable:
            return
        for name in Header.__struct_fields__:
            if not getattr(self.header, name):
                setattr(self.header, name, getattr(found, name))

    def _whole(self, buffer: bytes) -> tuple[list[Event], bytes]:
        """The events that are known to be whole, and what follows them."""
        cuts: list[int] = []
        for pattern, start in ((_BOUNDARY, max(0, len(buffer) - _TAIL)), (_NEXT_EVENT, 0)):
            if start == 0 and pattern is _NEXT_EVENT and len(buffer) < _PATIENCE:
                break
            cuts = [m.start() + 1 for m in pattern.finditer(buffer, start)][-_TRIES:] or cuts
            for cut in reversed(cuts):
                found = self._decoded(buffer[:cut])
                if found is not None:
                    return found, buffer[buffer.index(b"{", cut) :]
        if cuts and len(buffer) > _PATIENCE:  # not the boundary but the events are bad
            return self._rescued(buffer[: cuts[-1]]), buffer[buffer.index(b"{", cuts[-1]) :]
        if len(buffer) > LONGEST_EVENT:
            raise self._no_trace(f"no event ends within {LONGEST_EVENT >> 20} MiB")
        return [], buffer

    def _last(self, buffer: bytes) -> list[Event]:
        """The events up to the array's end, or as far as they go where the file is cut off."""
        ends = [m.start() + 1 for m in _ENDING.finditer(buffer)]
        for end in reversed(ends[-_TRIES:]):
            found = self._decoded(buffer[:end])
            if found is not None:
                self._note(b"{" + buffer[buffer.index(b"]", end) + 1 :].lstrip().removeprefix(b","))
                return found
        if not buffer.lstrip().removeprefix(b"]").strip(b"} \r\n\t"):
            return []  # no event at all
        if ends:
            return self._rescued(buffer[: ends[-1]])
        if _is_whole(buffer):  # the last thing in the array is no event
            return self._rescued(buffer[: buffer.rindex(b"]")])
        self.cut = True
        return self._rescued(buffer[: buffer.rfind(b"}") + 1])

    def _decoded(self, text: bytes) -> list[Event] | None:
        try:
            found = _events.decode(b"[" + text + b"]")
        except Unreadable:
            return None
        self.events += len(found)
        return found

    def _rescued(self, text: bytes) -> list[Event]:
        """What can be read of events that do not decode as they are."""
        given, text = text, repaired(text)
        self.repaired = self.repaired or text != given
        found = self._decoded(text)
        if found is None:
            found, lost = salvaged(text)
            self.events, self.lost = self.events + len(found), self.lost + lost
        return found


def _is_whole(buffer: bytes) -> bool:
    """Whether the rest of a file ends its array, and perhaps the object around it, as JSON does."""
    text = buffer.rstrip().removesuffix(b"}").rstrip()
    if not text.endswith(b"]"):
        return False
    try:
        msgspec.json.decode(b"[" + text)
    except RecursionError:  # deeper than it can be read, and so no event
        return True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
